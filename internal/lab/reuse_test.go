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

// runTwo runs two variants in one request.
func (s *setup) runTwo(first, second string) (*run.Run, *run.Run) {
	s.t.Helper()
	if err := s.run(s.request(first, second)); err != nil {
		s.t.Fatal(err)
	}
	if len(s.runs) != 2 {
		s.t.Fatalf("%d runs", len(s.runs))
	}
	return s.runs[0], s.runs[1]
}

// The fake GPU would panic if it had to run padded, which is not declared.
func TestSameCodeIsMeasuredOnce(t *testing.T) {
	t.Parallel()
	s := newBroken(t)
	s.declare("good", behaviour{Seconds: 7e-6, Noise: 0.01})
	good, padded := s.runTwo("good", "padded")
	expectOutcome(t, good, merged)
	expectOutcome(t, padded, merged)
	if good.MeasuredAs != nil || s.gpu.Opened != 2 || s.gpu.Closed != 2 {
		t.Errorf("the first one is measured as %v, and %d devices were opened", good.MeasuredAs, s.gpu.Opened)
	}
	if diff := cmp.Diff(&run.MeasuredAs{Run: good.ID, Variant: "good", Times: true}, padded.MeasuredAs); diff != "" {
		t.Error(diff)
	}
	if padded.ID == good.ID || padded.Variant != "padded" || padded.CodeHash != good.CodeHash || padded.Build.PTXHash == good.Build.PTXHash {
		t.Errorf("the second variant has no record of its own: %+v", padded)
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
			t.Errorf("reused results (-first +second):\n%s", diff)
		}
	}
	// Another command measures again, and so does a request that names a variant twice.
	s.runs = nil
	if _, again := s.runTwo("good", "good"); again.MeasuredAs != nil {
		t.Errorf("measured as %+v, itself", again.MeasuredAs)
	}
	s.runs = nil
	s.declare("padded", behaviour{})
	if again := s.runOne(s.request("padded")); again.MeasuredAs != nil {
		t.Errorf("measured as %+v of an earlier command", again.MeasuredAs)
	}
}

// A speedup needs times interleaved with the own parent. Only the outputs are reused.
func TestSameCodeWithAnotherParentIsTimedAgain(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage0", behaviour{Seconds: 40e-6})
	s.declare("stage1", behaviour{Seconds: 20e-6})
	s.declare("stage2", behaviour{})
	stage, variant := s.runTwo("stage2", "stage0+USE_WMMA_QK=1+USE_CP_ASYNC=1+USE_WMMA_PV=1")
	if diff := cmp.Diff(&run.MeasuredAs{Run: stage.ID, Variant: "stage2"}, variant.MeasuredAs); diff != "" {
		t.Error(diff)
	}
	if variant.Parent != "stage0" || variant.Speedup.Ratio < 3.9 || stage.Speedup.Ratio > 2.1 || s.gpu.Opened != 3 || s.gpu.Closed != 3 {
		t.Errorf("%s over %s: %+v; %d devices opened", variant.Variant, variant.Parent, variant.Speedup, s.gpu.Opened)
	}
	expectOutcome(t, variant, merged)
}

// The errors are reused; each variant has the limits of its own stage.
func TestSameCodeHasItsOwnLimits(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage3b", behaviour{Seconds: 20e-6})
	s.declare("stage6", behaviour{Output: func(out []byte) { // one element, which no mean shows
		x := half.DecodeFloat16(out[:2])[0]
		binary.LittleEndian.PutUint16(out, uint16(half.Float16FromFloat64(x+0.005)))
	}})
	loose, strict := s.runTwo("stage6", "stage5+USE_WARP_SPECIALIZATION=0+USE_PERSISTENT_CTA=0+USE_FP8_MMA=1")
	expectOutcome(t, loose, merged)
	expectOutcome(t, strict, incorrect)
	expectReason(t, strict.Reasons.Correctness, "max_err")
	if strict.MeasuredAs == nil || strict.Correctness[0].MaxErr != loose.Correctness[0].MaxErr || strict.Correctness[0].Pass || !loose.Correctness[0].Pass {
		t.Errorf("%+v and %+v", loose.Correctness[0], strict.Correctness[0])
	}
}

// Results of a run that a fault ended are not reused.
func TestIncompleteRunIsNotReused(t *testing.T) {
	t.Parallel()
	s := newBroken(t)
	s.declare("good", behaviour{Launch: func(number int) error {
		if number > 0 {
			return &device.Fault{}
		}
		return nil
	}})
	s.declare("padded", behaviour{})
	good, padded := s.runTwo("good", "padded")
	expectOutcome(t, good, incorrect)
	expectOutcome(t, padded, merged)
	if padded.MeasuredAs != nil || s.gpu.Opened != 3 {
		t.Errorf("measured as %+v, %d devices opened", padded.MeasuredAs, s.gpu.Opened)
	}

	timing := newBroken(t)
	timing.declare("good", behaviour{Timing: &device.Fault{}})
	timing.declare("padded", behaviour{})
	if _, padded = timing.runTwo("good", "padded"); padded.MeasuredAs != nil {
		t.Errorf("measured as %+v, which had a fault while it was timed", padded.MeasuredAs)
	}
}

func TestVariantWithTheCodeOfItsParent(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage1", behaviour{Noise: 0.2})
	r := s.request("stage2+USE_WMMA_PV=0")
	against := s.variant("stage1")
	r.Against = &against
	got := s.runOne(r)
	expectOutcome(t, got, merged) // 1x is required, and it is not slower
	expectSameCode(t, got, "stage1")
}

func TestStageWithTheCodeOfItsParent(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/broken/" + spec.File)
	source, errSource := os.ReadFile("testdata/broken/broken.cu")
	if err := errors.Join(err, errSource); err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), `name = "padded"`, "name = \"padded\"\nparent = \"good\"\nspeedup = 1.1", 1)
	c, cacheDir := compiler(t)
	if c == nil {
		t.Skip(needsCompiler)
	}
	s := newSetupOf(t, fstest.MapFS{spec.File: {Data: []byte(changed)}, "broken.cu": {Data: source}}, c, cacheDir)
	s.declare("padded", behaviour{Noise: 0.2})
	got := s.runOne(s.request("padded"))
	expectOutcome(t, got, "valid-negative pass/pass/fail/not-measured")
	expectReason(t, got.Reasons.Performance, "1.000x good (1.000 to 1.000), 1.10x required")
	expectSameCode(t, got, "good")
}

// expectSameCode expects a speedup of exactly 1, whatever the times are.
func expectSameCode(t *testing.T, got *run.Run, parent string) {
	t.Helper()
	expectReason(t, got.Reasons.Performance, "same code as "+parent)
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
