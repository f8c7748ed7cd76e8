package lab

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/half"
	"attune/internal/measure"
	"attune/internal/run"
	"attune/internal/spec"
)

// two does a request for two variants.
func (s *setup) two(first, second string) (*run.Run, *run.Run) {
	s.t.Helper()
	if err := s.run(s.request(first, second)); err != nil {
		s.t.Fatal(err)
	}
	if len(s.runs) != 2 {
		s.t.Fatalf("%d runs", len(s.runs))
	}
	return s.runs[0], s.runs[1]
}

// The double does not know padded, and would panic if it had to run it.
func TestTheSameCodeIsMeasuredOnce(t *testing.T) {
	s := newBroken(t)
	s.knows("good", behaviour{seconds: 7e-6, noise: 0.01})
	good, padded := s.two("good", "padded")
	expect(t, good, merged)
	expect(t, padded, merged)
	if good.MeasuredAs != nil || s.gpu.opened != 1 || s.gpu.closed != 1 {
		t.Errorf("the first one is measured as %v, and %d devices were opened", good.MeasuredAs, s.gpu.opened)
	}
	if diff := cmp.Diff(&run.MeasuredAs{Run: good.ID, Variant: "good", Times: true}, padded.MeasuredAs); diff != "" {
		t.Error(diff)
	}
	if padded.ID == good.ID || padded.Variant != "padded" || padded.CodeHash != good.CodeHash || padded.Build.PTXHash == good.Build.PTXHash {
		t.Errorf("the second record is no record of its own: %+v", padded)
	}
	for _, same := range []struct{ want, got any }{
		{good.Correctness, padded.Correctness},
		{good.Performance, padded.Performance},
		{good.Samples, padded.Samples},
		{good.Facts, padded.Facts},
		{good.Headline, padded.Headline},
		{[]any{good.Device, good.Ran, good.Loaded}, []any{padded.Device, padded.Ran, padded.Loaded}},
	} {
		if diff := cmp.Diff(same.want, same.got); diff != "" {
			t.Errorf("the twin (-first +second):\n%s", diff)
		}
	}
	// What belongs to another command is measured again, and so is what is asked for twice.
	s.runs = nil
	if _, again := s.two("good", "good"); again.MeasuredAs != nil {
		t.Errorf("measured as %+v, itself", again.MeasuredAs)
	}
	s.runs = nil
	s.knows("padded", behaviour{})
	if again := s.one(s.request("padded")); again.MeasuredAs != nil {
		t.Errorf("measured as %+v of an earlier command", again.MeasuredAs)
	}
}

// A speedup needs times in turns with one's own parent; the answers serve all the same.
func TestTheSameCodeWithAnotherParentIsTimedAnew(t *testing.T) {
	s := newSetup(t)
	s.knows("stage0", behaviour{seconds: 40e-6})
	s.knows("stage1", behaviour{seconds: 20e-6})
	s.knows("stage2", behaviour{})
	stage, departure := s.two("stage2", "stage0+USE_WMMA_QK=1+USE_CP_ASYNC=1+USE_WMMA_PV=1")
	if diff := cmp.Diff(&run.MeasuredAs{Run: stage.ID, Variant: "stage2"}, departure.MeasuredAs); diff != "" {
		t.Error(diff)
	}
	if departure.Parent != "stage0" || departure.Speedup.Ratio < 3.9 || stage.Speedup.Ratio > 2.1 || s.gpu.opened != 2 || s.gpu.closed != 2 {
		t.Errorf("%s over %s: %+v; %d devices opened", departure.Variant, departure.Parent, departure.Speedup, s.gpu.opened)
	}
	expect(t, departure, merged)
}

// What is measured is taken over; the judgement is each variant's own.
func TestTheSameCodeIsJudgedByItsOwnShare(t *testing.T) {
	s := newSetup(t)
	s.knows("stage3b", behaviour{seconds: 20e-6})
	s.knows("stage6", behaviour{answers: func(out []byte) {
		for ; len(out) > 0; out = out[2:] {
			x := half.DecodeFloat16(out[:2])[0]
			binary.LittleEndian.PutUint16(out, uint16(half.Float16FromFloat64(1.005*x)))
		}
	}})
	loose, strict := s.two("stage6", "stage5+USE_WARP_SPECIALIZATION=0+USE_PERSISTENT_CTA=0+USE_FP8_MMA=1")
	expect(t, loose, merged)
	expect(t, strict, wrongOne)
	says(t, strict.Reasons.Correctness, "max_err")
	if strict.MeasuredAs == nil || strict.Correctness[0].MaxErr != loose.Correctness[0].MaxErr || strict.Correctness[0].Pass || !loose.Correctness[0].Pass {
		t.Errorf("%+v and %+v", loose.Correctness[0], strict.Correctness[0])
	}
}

// A crash measures nothing, and what a sanitizer saw is not in the rows: both are found out by each variant for itself.
func TestWhatWasCutShortIsNotShared(t *testing.T) {
	s := newBroken(t)
	s.knows("good", behaviour{launch: func(number int) error {
		if number > 0 {
			return &device.Fault{}
		}
		return nil
	}})
	s.knows("padded", behaviour{})
	good, padded := s.two("good", "padded")
	expect(t, good, wrongOne)
	expect(t, padded, merged)
	if padded.MeasuredAs != nil || s.gpu.opened != 2 {
		t.Errorf("measured as %+v, %d devices opened", padded.MeasuredAs, s.gpu.opened)
	}

	timing := newBroken(t)
	timing.knows("good", behaviour{timing: &device.Fault{}})
	timing.knows("padded", behaviour{})
	if _, padded = timing.two("good", "padded"); padded.MeasuredAs != nil {
		t.Errorf("measured as %+v, which was lost while it was timed", padded.MeasuredAs)
	}
}

func TestAVariantThatIsItsParent(t *testing.T) {
	s := newSetup(t)
	s.knows("stage1", behaviour{noise: 0.2})
	r := s.request("stage2+USE_WMMA_PV=0")
	against := s.variant("stage1")
	r.Against = &against
	got := s.one(r)
	expect(t, got, merged) // it has promised nothing, and is not slower
	checkIdentity(t, got, "stage1")
}

func TestAStageThatIsItsParentKeepsNoPromise(t *testing.T) {
	text, err := os.ReadFile("testdata/broken/" + spec.File)
	source, errSource := os.ReadFile("testdata/broken/broken.cu")
	if err := errors.Join(err, errSource); err != nil {
		t.Fatal(err)
	}
	promising := strings.Replace(string(text), `name = "padded"`, "name = \"padded\"\nparent = \"good\"\nspeedup = 1.1", 1)
	c, cacheDir := compiler(t)
	if c == nil {
		t.Skip("the pinned compiler is needed")
	}
	s := newSetupOf(t, fstest.MapFS{spec.File: {Data: []byte(promising)}, "broken.cu": {Data: source}}, c, cacheDir)
	s.knows("padded", behaviour{noise: 0.2})
	got := s.one(s.request("padded"))
	expect(t, got, "valid-negative pass/pass/fail/not-measured")
	says(t, got.Reasons.Performance, "1.000x good (1.000 to 1.000), and 1.10x is needed")
	checkIdentity(t, got, "good")
}

// checkIdentity expects a speedup of exactly 1, whatever the clock said.
func checkIdentity(t *testing.T, got *run.Run, parent string) {
	t.Helper()
	says(t, got.Reasons.Performance, "same code as "+parent)
	if diff := cmp.Diff(&measure.Speedup{Ratio: 1, Low: 1, High: 1}, got.Speedup); diff != "" {
		t.Error(diff)
	}
	for _, row := range got.Performance {
		if *row.ParentRatio != 1 || *row.RatioLow != 1 || *row.RatioHigh != 1 || *row.ParentP50US != row.P50US {
			t.Errorf("%s: %g (%g to %g), %g us beside %g us", row.Shape, *row.ParentRatio, *row.RatioLow, *row.RatioHigh, *row.ParentP50US, row.P50US)
		}
	}
	if got.Headline == nil || *got.Headline.ParentRatio != 1 {
		t.Errorf("headline %+v", got.Headline)
	}
}
