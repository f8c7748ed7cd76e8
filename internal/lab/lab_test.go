package lab

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"attune/internal/device"
	"attune/internal/device/isolate"
	"attune/internal/half"
	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/kernels"
)

const (
	merged   = "merge pass/pass/pass/not-measured"
	wrongOne = "incorrect pass/fail/not-measured/not-measured"
)

// times makes stage2 so many times as fast as stage1, of what it has promised.
func (s *setup) times(promise, noise float64) {
	s.t.Helper()
	required := s.variant("stage2").RequiredSpeedup()
	s.knows("stage1", behaviour{seconds: required * promise * 10e-6, noise: noise})
	s.knows("stage2", behaviour{seconds: 10e-6, noise: noise})
}

func TestTheWholeRoad(t *testing.T) {
	s := newSetup(t)
	s.times(1.5, 0.01)
	before := time.Now().Add(-time.Second)
	r := s.one(s.request("stage2"))
	expect(t, r, merged)

	want := 1.5 * s.variant("stage2").RequiredSpeedup()
	if r.Speedup == nil || math.Abs(r.Speedup.Ratio/want-1) > 0.02 || r.Speedup.Low > r.Speedup.Ratio || r.Speedup.High < r.Speedup.Ratio {
		t.Errorf("the speedup is %+v, want %.2f", r.Speedup, want)
	}
	if len(r.Correctness) != 12 || r.Asked.Problems != 12 || len(r.Performance) != 2 || !r.Performance[0].Judged || r.Performance[1].Judged {
		t.Errorf("%d answers and the times %+v", len(r.Correctness), r.Performance)
	}
	if p50 := r.Performance[0].P50US; math.Abs(p50-10) > 0.1 || r.Headline == nil || r.Headline.P50US != p50 || r.Headline.Shape != "1x2x40x64" {
		t.Errorf("a median of %g us, headline %+v", p50, r.Headline)
	}
	if r.Device != "cuda" || r.Facts.Name != "a double" || r.Loaded.Registers != 42 || r.Asked.Timing == "" || r.Time.Before(before) {
		t.Errorf("the record is %+v", r)
	}
	form := "ptx"
	if c, _ := compiler(t); c != nil {
		form = "cubin"
	}
	if r.Ran != form || r.Arch != "sm_89" || r.CodeHash == "" || r.Parent != "stage1" || r.Stage != "stage2" || r.GitSHA != "0123abc" {
		t.Errorf("it ran as %s, for %s, code %s, parent %s", r.Ran, r.Arch, r.CodeHash, r.Parent)
	}
	if s.gpu.opened != 1 || s.gpu.closed != 1 {
		t.Errorf("%d devices opened, %d closed", s.gpu.opened, s.gpu.closed)
	}
}

// What the ledger has of a run is all of it.
func TestARunIsInTheLedger(t *testing.T) {
	s := newSetup(t)
	s.times(1.5, 0.01)
	r := s.one(s.request("stage2"))
	read := func(name string) []byte {
		t.Helper()
		text, err := s.Ledger.Read(t.Context(), r.ID, name)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	kept, err := run.Decode(read("run.json"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, kept, cmpopts.IgnoreFields(run.Run{}, "Samples", "Log")); diff != "" {
		t.Errorf("(-told +kept):\n%s", diff)
	}
	var samples struct {
		SchemaVersion int           `json:"schema_version"`
		Samples       []run.Samples `json:"samples"`
	}
	if err := json.Unmarshal(read("samples.json"), &samples); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Samples, samples.Samples); diff != "" || samples.SchemaVersion != 1 || len(samples.Samples[0].Parent.Seconds) != 40 {
		t.Errorf("schema %d (-told +kept):\n%s", samples.SchemaVersion, diff)
	}
	if log := string(read("ptxas.log")); log != r.Log || !strings.Contains(log, "registers") {
		t.Errorf("the log is %q", log)
	}
	if report := string(read("report.md")); !strings.HasPrefix(report, "# stage2: merge\n") || !strings.Contains(report, r.ID) {
		t.Errorf("the report is %s", report)
	}
	found, err := s.Ledger.Verify(t.Context())
	if err != nil || found.Runs != 1 || len(found.Problems) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
	entries, err := s.Ledger.List(t.Context(), ledger.Filter{Verdict: "merge"})
	if err != nil || len(entries) != 1 || *entries[0].Headline.P50US != r.Headline.P50US || entries[0].GitSHA != "0123abc" {
		t.Errorf("%+v, %v", entries, err)
	}
}

func TestThePromiseDecides(t *testing.T) {
	check := func(promise, noise float64, want, reason string) {
		t.Helper()
		s := newSetup(t)
		s.times(promise, noise)
		r := s.one(s.request("stage2"))
		expect(t, r, want)
		says(t, r.Reasons.Performance, reason)
		if len(r.Performance) != 2 || r.Speedup == nil || r.RequiredSpeedup != s.variant("stage2").RequiredSpeedup() {
			t.Errorf("times %+v, speedup %v, required %g", r.Performance, r.Speedup, r.RequiredSpeedup)
		}
	}
	check(1.01, 0.001, merged, "x stage1 (")
	check(0.9, 0.01, "valid-negative pass/pass/fail/not-measured", "is needed")
	check(1, 0.1, "inconclusive pass/pass/not-measured/not-measured", "too close to call")
}

func TestAStageWithoutAParentNeedsOnlyBeRight(t *testing.T) {
	s := newSetup(t)
	s.knows("stage0", behaviour{})
	r := s.one(s.request("stage0"))
	expect(t, r, merged)
	says(t, r.Reasons.Performance, "no parent")
	if r.Speedup != nil || r.Parent != "" || r.RequiredSpeedup != 0 || r.Performance[0].ParentRatio != nil || r.Headline.ParentRatio != nil {
		t.Errorf("the record is %+v", r)
	}
}

func TestWrongAnswers(t *testing.T) {
	set := func(element int, value float64) func([]byte) {
		return func(out []byte) {
			binary.LittleEndian.PutUint16(out[2*element:], uint16(half.Float16FromFloat64(value)))
		}
	}
	for name, test := range map[string]struct {
		kernel behaviour
		reason string
		rows   int
	}{
		"one element off": {behaviour{answers: set(5, 9)}, "1x2x40x64 seed 0: max_err", 12},
		"one NaN":         {behaviour{answers: set(64, math.NaN())}, "causal seed 1: 1 elements are not finite, the first at batch 0 head 0 row 1 dim 0", 12},
		"all zeros":       {behaviour{answers: func(out []byte) { clear(out) }}, "% of the elements are bad", 12},
		"a finding": {
			behaviour{findings: []device.Finding{{Kind: device.Unwritten, Text: "2 bytes never written"}}},
			"1x2x40x64 seed 0 and 11 more: unwritten: 2 bytes never written", 12,
		},
	} {
		s := newSetup(t)
		s.knows("stage2", test.kernel)
		s.knows("stage1", behaviour{})
		r := s.one(s.request("stage2"))
		expect(t, r, wrongOne)
		says(t, r.Reasons.Correctness, test.reason)
		says(t, r.Reasons.Performance, "an earlier gate failed")
		if len(r.Correctness) != test.rows || len(r.Performance) != 0 || r.Headline != nil || r.Failure != "" {
			t.Errorf("%s: %d rows, times %+v, failure %q", name, len(r.Correctness), r.Performance, r.Failure)
		}
		for _, row := range r.Correctness {
			if row.Pass || len(row.Wrong) == 0 {
				t.Errorf("%s: a row passed: %+v", name, row)
			}
		}
	}
}

// The bytes of the output are hashed, so that two devices can be compared bit for bit.
func TestAnswersAreHashed(t *testing.T) {
	s := newSetup(t)
	s.knows("stage0", behaviour{})
	r := s.one(s.request("stage0"))
	hashes := map[string]bool{}
	for _, row := range r.Correctness {
		hashes[row.OutputSHA256] = true
	}
	if len(hashes) != 10 || hashes[""] {
		t.Errorf("the hashes are %v", hashes)
	}
}

// What a kernel does to its device is that variant's affair: the next one gets a fresh device.
func TestALostDeviceCostsOneVariant(t *testing.T) {
	fault := &device.Fault{Code: "CUDA_ERROR_ILLEGAL_ADDRESS", Text: "an illegal memory access", Did: "launch"}
	second := func(err error) behaviour {
		return behaviour{launch: func(number int) error {
			if number == 1 {
				return err
			}
			return nil
		}}
	}
	for name, test := range map[string]struct {
		kernel  behaviour
		reason  string
		timeout bool
		rows    int
	}{
		"a fault":             {second(fault), "1x2x40x64 seed 1: launch: CUDA_ERROR_ILLEGAL_ADDRESS", false, 1},
		"a hang":              {second(&device.Timeout{Limit: time.Minute}), "1x2x40x64 seed 1: no answer in 1m0s", true, 1},
		"a crash":             {second(fmt.Errorf("run: %w", &isolate.Crash{How: "signal: killed"})), "the kernel died: signal: killed", false, 1},
		"a fault while timed": {behaviour{timing: fault}, "timing 1x2x40x64 in turns with stage1+USE_CP_ASYNC=0: launch: CUDA_", false, 12},
		"a hang while timed":  {behaviour{timing: &device.Timeout{Limit: time.Minute}}, "no answer in 1m0s", true, 12},
	} {
		s := newSetup(t)
		s.knows("stage0", behaviour{})
		s.knows("stage1", test.kernel)
		s.knows("stage1+USE_CP_ASYNC=0", behaviour{})
		if err := s.run(s.request("stage0", "stage1", "stage0")); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		expect(t, s.runs[0], merged)
		expect(t, s.runs[1], wrongOne)
		expect(t, s.runs[2], merged)
		lost := s.runs[1]
		says(t, lost.Reasons.Correctness, test.reason)
		says(t, lost.Reasons.Performance, "an earlier gate failed")
		if lost.Failure == "" || lost.TimedOut != test.timeout || len(lost.Correctness) != test.rows || lost.Headline != nil {
			t.Errorf("%s: failure %q, timed out %t, %d rows", name, lost.Failure, lost.TimedOut, len(lost.Correctness))
		}
		if s.gpu.opened != 3 || s.gpu.closed != 3 {
			t.Errorf("%s: %d devices opened, %d closed", name, s.gpu.opened, s.gpu.closed)
		}
		if diff := cmp.Diff([]string{"stage0", "stage1", "stage0"}, s.recorded()); diff != "" {
			t.Errorf("%s: recorded:\n%s", name, diff)
		}
	}
}

// With no parent to share the device with, there is no doubt whose fault it was.
func TestAFaultWhileTimedAlone(t *testing.T) {
	s := newSetup(t)
	s.knows("stage0", behaviour{timing: &device.Fault{Code: "CUDA_ERROR_LAUNCH_FAILED", Did: "replay"}})
	r := s.one(s.request("stage0"))
	expect(t, r, wrongOne)
	says(t, r.Reasons.Correctness, "timing 1x2x40x64: replay: CUDA_ERROR_LAUNCH_FAILED")
}

func TestADeviceWithoutAClock(t *testing.T) {
	s := newSetup(t)
	s.knows("stage0", behaviour{timing: device.ErrNoClock})
	r := s.one(s.request("stage0"))
	expect(t, r, "not-measured pass/pass/not-measured/not-measured")
	says(t, r.Reasons.Performance, "this device measures no time")
	if r.Asked.Timing != "" || len(r.Performance) != 0 {
		t.Errorf("timing %q, times %+v", r.Asked.Timing, r.Performance)
	}
}

func TestNoDevice(t *testing.T) {
	s := newSetup(t)
	s.Open, s.Facts, s.NoDevice = nil, device.Facts{}, "no GPU: there is no driver"
	r := s.one(s.request("stage1"))
	if r.Gates.Resources == "not-measured" || r.Device != "none" || r.Facts != nil || r.Arch != "sm_90a" {
		t.Errorf("the record is %+v", r)
	}
	says(t, r.Reasons.Correctness, "no GPU: there is no driver")
	says(t, r.Reasons.Performance, "no GPU")
	says(t, r.Reasons.Profile, "no GPU")
	if r.Headline != nil || len(r.Correctness)+len(r.Performance) != 0 {
		t.Errorf("figures of nothing: %+v", r)
	}
}

func TestUnderASanitizer(t *testing.T) {
	broken := errors.New("compute-sanitizer ended with code -1")
	hang := behaviour{launch: func(int) error { return &device.Timeout{Limit: time.Second} }}
	check := func(kernel behaviour, finding []device.Finding, err error) (*run.Run, error) {
		t.Helper()
		s := newSetup(t)
		s.knows("stage0", kernel)
		s.Open = func(ctx context.Context) (device.Device, error) {
			d, _ := s.gpu.open(ctx)
			return &watched{opened: d.(*opened), findings: finding, err: err}, nil
		}
		if err := s.run(s.request("stage0")); err != nil {
			return nil, err
		}
		return s.runs[0], nil
	}
	clean, err := check(behaviour{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, clean, "not-measured pass/pass/not-measured/not-measured")
	says(t, clean.Reasons.Performance, "slows kernels down")
	if clean.Asked.Sanitizer != "memcheck" || len(clean.Correctness) != 12 {
		t.Errorf("the record is %+v", clean)
	}
	found, err := check(behaviour{}, []device.Finding{{Kind: "memcheck", Text: "Invalid write"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, found, wrongOne)
	says(t, found.Reasons.Correctness, "memcheck: Invalid write")
	if _, err := check(behaviour{}, nil, broken); !errors.Is(err, broken) {
		t.Errorf("a sanitizer that failed of itself: %v", err)
	}
	// A process that was killed leaves its sanitizer nothing to say, and the hang stands.
	hung, err := check(hang, nil, broken)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, hung, wrongOne)
	if !hung.TimedOut || hung.Asked.Sanitizer != "memcheck" {
		t.Errorf("the record is %+v", hung)
	}
}

// newBroken is a lab for a kernel that has stages for everything that can go wrong.
func newBroken(t *testing.T) *setup {
	t.Helper()
	c, cacheDir := compiler(t)
	if c == nil {
		t.Skip("the pinned compiler is needed")
	}
	return newSetupOf(t, os.DirFS("testdata/broken"), c, cacheDir)
}

func TestOverBudget(t *testing.T) {
	s := newBroken(t)
	r := s.one(s.request("greedy"))
	expect(t, r, "over-budget fail/not-measured/not-measured/not-measured")
	says(t, r.Reasons.Resources, "registers a thread, and the budget is 8")
	says(t, r.Reasons.Correctness, "an earlier gate failed")
	if r.Build == nil || s.gpu.opened != 0 || r.Device != "none" {
		t.Errorf("%d devices opened, build %v", s.gpu.opened, r.Build)
	}
}

func TestAVariantThatDoesNotCompile(t *testing.T) {
	s := newBroken(t)
	s.knows("good", behaviour{})
	if err := s.run(s.request("garbled", "good")); err != nil {
		t.Fatal(err)
	}
	garbled := s.runs[0]
	expect(t, garbled, "over-budget fail/not-measured/not-measured/not-measured")
	says(t, garbled.Reasons.Resources, "it does not compile")
	says(t, garbled.Reasons.Resources, "broken.cu(")
	if garbled.Arch != "sm_89" || !strings.Contains(garbled.Failure, "broken.cu(") || garbled.Log == "" || garbled.Build != nil {
		t.Errorf("the record is %+v", garbled)
	}
	if strings.Contains(garbled.Failure, os.TempDir()) {
		t.Errorf("a path of this machine is in %s", garbled.Failure)
	}
	expect(t, s.runs[1], merged)
}

func TestAParentThatCannotBeBuilt(t *testing.T) {
	s := newSetupOf(t, kernels.SDPA(), nil, t.TempDir()) // what is not shipped cannot be built
	s.knows("stage1", behaviour{})
	r := s.request("stage1")
	against := s.variant("stage2+TILE_N=32")
	r.Against = &against
	got := s.one(r)
	expect(t, got, "not-measured pass/pass/not-measured/not-measured")
	says(t, got.Reasons.Performance, "the parent stage2+TILE_N=32: build stage2+TILE_N=32 for sm_89: no CUDA compiler")
	// Its own times were taken all the same.
	if len(got.Performance) != 2 || got.Headline == nil || got.Speedup != nil || got.Performance[0].ParentRatio != nil {
		t.Errorf("times %+v, speedup %v", got.Performance, got.Speedup)
	}
}

// Against another variant nothing was promised: it must not be slower.
func TestAgainst(t *testing.T) {
	s := newSetup(t)
	s.knows("stage0", behaviour{seconds: 11e-6})
	s.knows("stage2", behaviour{})
	r := s.request("stage2")
	against := s.variant("stage0")
	r.Against = &against
	got := s.one(r)
	expect(t, got, merged)
	if got.Parent != "stage0" || got.Asked.Against != "stage0" || got.RequiredSpeedup != 1 || math.Abs(got.Speedup.Ratio-1.1) > 1e-9 {
		t.Errorf("parent %s, against %s, required %g, speedup %+v", got.Parent, got.Asked.Against, got.RequiredSpeedup, got.Speedup)
	}
}

func TestJudgedShapes(t *testing.T) {
	check := func(asked, judged, want []string) {
		t.Helper()
		s := newSetup(t)
		s.knows("stage0", behaviour{})
		r := s.request("stage0")
		r.Shapes, r.Judged, r.Seeds = shapes(t, asked...), shapes(t, judged...), []uint64{0}
		got := s.one(r)
		var names []string
		for _, p := range got.Performance {
			if p.Judged {
				names = append(names, p.Shape)
			}
		}
		if diff := cmp.Diff(want, names); diff != "" || got.Headline.Shape != want[0] {
			t.Errorf("asked for %v, judged are %v: headline %s, judged:\n%s", asked, judged, got.Headline.Shape, diff)
		}
	}
	a, b, c := "1x1x8x64", "1x1x16x64", "1x1x9x64:causal"
	check([]string{a, b, c}, []string{b, c}, []string{b, c})
	check([]string{a, b}, []string{b, c}, []string{b})
	check([]string{a, b}, []string{c}, []string{a, b}) // none of the judged was asked for: all count
	check([]string{a}, nil, []string{a})
}

// The promise is judged over the judged shapes alone.
func TestOnlyJudgedShapesCount(t *testing.T) {
	s := newSetup(t)
	s.knows("stage1", behaviour{seconds: 20e-6})
	s.knows("stage2", behaviour{seconds: 10e-6, causal: 80e-6})
	r := s.one(s.request("stage2"))
	expect(t, r, merged)
	if math.Abs(r.Speedup.Ratio-2) > 1e-9 || math.Abs(*r.Performance[1].ParentRatio-0.25) > 1e-9 {
		t.Errorf("the speedup is %g, and %g on the shape that is not judged", r.Speedup.Ratio, *r.Performance[1].ParentRatio)
	}
}

// kernelOfTwoSizes has a head dim of 128 as well.
const kernelOfTwoSizes = `
name = "k"
about = "a kernel"
[[knob]]
name = "HEAD_DIM"
layer = "macro"
values = [64, 128]
default = 64
about = "numbers in a row"
[[stage]]
name = "narrow"
source = "k.cu"
hypothesis = "h"
error_share = 0.05
budget = { registers = 128, shared_bytes = 49152, spill_bytes = 0 }
archs = ["sm_80"]
[[shapes]]
name = "small"
problems = ["1x1x8x64"]
[run]
shapes = ["small"]
benchmark = ["small"]
seeds = [0]
[tolerance]
max_err = 0.06
mean_err = 0.02
atol = 0.06
rtol = 0.06
bad_fraction = 0.01
`

func TestRequestsThatAreRefused(t *testing.T) {
	refuse := func(s *setup, r Request, want string) {
		t.Helper()
		err := s.run(r)
		var request RequestError
		if !errors.As(err, &request) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if s.gpu.opened != 0 || len(s.runs) != 0 || len(s.events) != 0 || len(s.recorded()) != 0 {
			t.Errorf("something was started: %d devices, %d runs, events %v", s.gpu.opened, len(s.runs), s.events)
		}
	}
	s := newSetup(t)
	wide := s.request("stage0", "stage1")
	wide.Shapes = shapes(t, "1x2x40x64", "1x1x8x128")
	refuse(s, wide, "shape 1x1x8x128 has head dim 128, and stage0 is built for 64")
	many := s.request("stage0")
	many.Shapes = shapes(t, "40000x4x1x64", "40000x4x1x64:kvheads=2")
	refuse(s, many, "shape 40000x4x1x64:kvheads=2 has 80000 K/V heads over all batches, each for 2 heads; "+
		"where heads share them a grid has room for 65535 of both")
	old := s.request("stage0")
	old.Arch = "sm_70"
	refuse(s, old, `stage0 is for sm_80, sm_89, sm_90a, not for "sm_70"`)

	two := newSetupOf(t, fstest.MapFS{spec.File: {Data: []byte(kernelOfTwoSizes)}, "k.cu": {}}, nil, t.TempDir())
	r := two.request("narrow")
	against := two.variant("narrow+HEAD_DIM=128")
	r.Against = &against
	refuse(two, r, "shape 1x2x40x64 has head dim 64, and narrow+HEAD_DIM=128 is built for 128")
}

// Code for a newer chip than the device's is refused as well, when the device is known.
func TestAnArchitectureThatTheDeviceIsNot(t *testing.T) {
	s := newSetup(t)
	r := s.request("stage0")
	r.Arch = "sm_90a"
	err := s.run(r)
	var request RequestError
	if !errors.As(err, &request) || !strings.Contains(err.Error(), "code for sm_90a does not run on the device, which is sm_89") {
		t.Errorf("got %v", err)
	}
	// Code for an older one is compiled by the driver.
	s.gpu = newGPU("sm_90")
	s.Facts, s.Open = s.gpu.facts, s.gpu.open
	older, _, err := s.Builder.Build(t.Context(), Target(s.Kernel, s.variant("stage0"), "sm_80"))
	if err != nil {
		t.Fatal(err)
	}
	s.gpu.variants[string(older.PTX)] = "stage0"
	r.Arch = "sm_80"
	got := s.one(r)
	expect(t, got, merged)
	if got.Ran != "ptx" || got.Arch != "sm_80" || got.Asked.Arch != "sm_80" {
		t.Errorf("it ran as %s for %s, asked for %q", got.Ran, got.Arch, got.Asked.Arch)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSetup(t)
	s.knows("stage0", behaviour{})
	s.knows("stage1+USE_CP_ASYNC=0", behaviour{})
	s.knows("stage1", behaviour{launch: func(number int) error {
		if number == 2 {
			cancel()
		}
		return nil
	}})
	var told []string
	err := s.Run(ctx, s.request("stage0", "stage1", "stage0"), func(r *run.Run) { told = append(told, r.Variant) })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if want := []string{"stage0"}; !slices.Equal(told, want) || !slices.Equal(s.recorded(), want) {
		t.Errorf("told of %v, recorded %v, want %v", told, s.recorded(), want)
	}
	if s.gpu.opened != 2 || s.gpu.closed != 2 {
		t.Errorf("%d devices opened, %d closed", s.gpu.opened, s.gpu.closed)
	}
	if found, err := s.Ledger.Verify(t.Context()); err != nil || len(found.Problems) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

// A lab that was interrupted leaves no compiler running and nothing of its own in the folder for temporary files.
func TestCancelEndsTheCompilers(t *testing.T) {
	temporary, tools := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	nvcc := filepath.Join(tools, "nvcc")
	script := "#!/bin/sh\necho $$ >> " + tools + "/started\nexec sleep 600\n"
	if err := os.WriteFile(nvcc, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s := newSetupOf(t, kernels.SDPA(), &toolchain.Compiler{NVCC: nvcc, PTXAS: nvcc, Version: "0"}, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if started, _ := os.ReadFile(filepath.Join(tools, "started")); len(started) > 0 {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	err := s.Run(ctx, s.request("stage0", "stage1", "stage2"), func(*run.Run) { t.Error("a run was finished") })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	started, err := os.ReadFile(filepath.Join(tools, "started"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range strings.Fields(string(started)) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("compiler %d is still there: %v", pid, err)
		}
	}
}

func TestCancelledBeforeItBegins(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := newSetup(t)
	s.knows("stage0", behaviour{})
	err := s.Run(ctx, s.request("stage0"), func(*run.Run) { t.Error("a run was finished") })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// What is not the kernel's doing ends the work, and what was finished before is kept.
func TestFailuresOfTheLabItself(t *testing.T) {
	lost := errors.New("the driver is gone")
	check := func(want error, breakIt func(s *setup), variants ...string) {
		t.Helper()
		s := newSetupOf(t, kernels.SDPA(), nil, t.TempDir())
		s.knows("stage0", behaviour{})
		breakIt(s)
		err := s.run(s.request(variants...))
		if !errors.Is(err, want) || !strings.HasPrefix(err.Error(), variants[len(variants)-1]+": ") {
			t.Errorf("got %v, want %v", err, want)
		}
		if len(s.recorded()) != len(variants)-1 {
			t.Errorf("recorded %v of %v", s.recorded(), variants)
		}
	}
	check(lost, func(s *setup) { s.Open = func(context.Context) (device.Device, error) { return nil, lost } }, "stage0")
	check(lost, func(s *setup) { s.knows("stage0", behaviour{launch: func(int) error { return lost }}) }, "stage0")
	check(lost, func(s *setup) { s.knows("stage0", behaviour{timing: lost}) }, "stage0")
	check(toolchain.ErrNoCompiler, func(*setup) {}, "stage0", "stage0+TILE_N=32")
}

// The figures of a run that the ledger would not take are told all the same, without an id that nobody could find.
func TestALedgerThatCannotBeWritten(t *testing.T) {
	s := newSetup(t)
	s.knows("stage0", behaviour{})
	if err := errors.Join(os.Remove(s.dir), os.WriteFile(s.dir, nil, 0o644)); err != nil { // a file where the ledger was
		t.Fatal(err)
	}
	err := s.run(s.request("stage0", "stage0"))
	if err == nil || !strings.Contains(err.Error(), "was not recorded") {
		t.Errorf("got %v", err)
	}
	if len(s.runs) != 1 || s.runs[0].ID != "" || s.runs[0].Verdict != "merge" {
		t.Errorf("told of %+v", s.runs)
	}
}

func TestEvents(t *testing.T) {
	s := newSetup(t)
	s.knows("stage0", behaviour{})
	s.one(s.request("stage0"))
	want := []Event{
		{"stage0", "compiling", 0, 0},
		{"stage0", "opening the device", 0, 0},
		{"stage0", "correctness 1x2x40x64 seed 0", 0, 12},
		{"stage0", "correctness 1x2x40x64 seed 1", 1, 12},
		{"stage0", "correctness 1x2x40x64 seed 0 outliers", 2, 12},
		{"stage0", "correctness 1x2x40x64 seed 0 peaked", 3, 12},
		{"stage0", "correctness 1x2x40x64 seed 0 rising", 4, 12},
		{"stage0", "correctness 1x2x40x64 seed 0 low", 5, 12},
		{"stage0", "correctness 1x1x33x64:causal seed 0", 6, 12},
		{"stage0", "correctness 1x1x33x64:causal seed 1", 7, 12},
		{"stage0", "correctness 1x1x33x64:causal seed 0 outliers", 8, 12},
		{"stage0", "correctness 1x1x33x64:causal seed 0 peaked", 9, 12},
		{"stage0", "correctness 1x1x33x64:causal seed 0 rising", 10, 12},
		{"stage0", "correctness 1x1x33x64:causal seed 0 low", 11, 12},
		{"stage0", "timing 1x2x40x64", 0, 2},
		{"stage0", "timing 1x1x33x64:causal", 1, 2},
	}
	if diff := cmp.Diff(want, s.events); diff != "" {
		t.Error(diff)
	}
	s.Watch = nil // nobody need watch
	if err := s.run(s.request("stage0")); err != nil {
		t.Error(err)
	}
}

// What the ship carries must hold its own budgets, or a plain run on a machine without a GPU fails.
func TestShippedStagesAreWithinTheirBudgets(t *testing.T) {
	s := newSetupOf(t, kernels.SDPA(), nil, t.TempDir())
	s.Open, s.NoDevice = nil, "no GPU"
	for _, stage := range s.Kernel.Stages {
		for _, arch := range stage.Archs {
			t.Run(stage.Name+" for "+arch, func(t *testing.T) {
				r := s.request(stage.Name)
				r.Arch, s.Facts.Arch, s.runs = arch, "", nil
				expect(t, s.one(r), "not-measured pass/not-measured/not-measured/not-measured")
			})
		}
	}
}

func TestShippedTargets(t *testing.T) {
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, target := range ShippedTargets(kernel) {
		got = append(got, target.String())
		if target.Knobs["TILE_M"] == 0 || target.Kernel != "sdpa" {
			t.Errorf("%s has knobs %v", target, target.Knobs)
		}
	}
	if sorted := slices.Sorted(slices.Values(got)); len(slices.Compact(sorted)) != len(got) {
		t.Errorf("one comes twice: %v", got)
	}
	for _, stage := range kernel.Stages {
		needed := []spec.Variant{stage.Variant()}
		if parent, ok := stage.Variant().Parent(); ok {
			needed = append(needed, parent)
		}
		for _, v := range needed {
			for _, arch := range stage.Archs {
				if want := v.String() + " for " + arch; !slices.Contains(got, want) {
					t.Errorf("%s is missing", want)
				}
			}
		}
	}
	for _, s := range kernel.Selections { // a machine without a compiler must be able to run them
		parent, _ := s.Parent()
		for _, v := range append(s.Variants(), parent) {
			if want := v.String() + " for " + s.Archs[0]; !slices.Contains(got, want) {
				t.Errorf("%s is missing", want)
			}
		}
	}
}

// A figure that JSON cannot hold is an error and no panic.
func TestDocumentsRefuseWhatIsNoNumber(t *testing.T) {
	nan := []device.Series{{Seconds: []float64{math.NaN()}}}
	for _, r := range []*run.Run{
		{Variant: "stage0", RequiredSpeedup: math.NaN()},
		{Variant: "stage0", Samples: []run.Samples{{Variant: nan[0]}}},
	} {
		if _, err := documents(r); err == nil || !strings.Contains(err.Error(), "of stage0: json: unsupported value") {
			t.Errorf("got %v", err)
		}
	}
}
