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

	"attune/internal/child/childtest"
	"attune/internal/device"
	"attune/internal/device/devicetest"
	"attune/internal/finding"
	"attune/internal/half"
	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/kernels"
)

// Outcomes for expectOutcome.
const (
	merged    = "merge pass/pass/pass/not-measured"
	incorrect = "incorrect pass/fail/not-measured/not-measured"
)

// setSpeedup sets the times of stage1 and stage2 so that stage2 has a multiple of its required
// speedup.
func (s *setup) setSpeedup(factor, noise float64) {
	s.t.Helper()
	required := s.variant("stage2").RequiredSpeedup()
	s.declare("stage1", behaviour{Seconds: required * factor * 10e-6, Noise: noise})
	s.declare("stage2", behaviour{Seconds: 10e-6, Noise: noise})
}

func TestRun(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.setSpeedup(1.5, 0.01)
	before := time.Now().Add(-time.Second)
	r := s.runOne(s.request("stage2"))
	expectOutcome(t, r, merged)

	want := 1.5 * s.variant("stage2").RequiredSpeedup()
	if r.Speedup == nil || math.Abs(r.Speedup.Ratio/want-1) > 0.02 || r.Speedup.Low > r.Speedup.Ratio || r.Speedup.High < r.Speedup.Ratio {
		t.Errorf("the speedup is %+v, want %.2f", r.Speedup, want)
	}
	if len(r.Correctness) != 12 || r.Requested.Problems != 12 || len(r.Performance) != 2 || !r.Performance[0].Benchmark || r.Performance[1].Benchmark {
		t.Errorf("%d outputs and the times %+v", len(r.Correctness), r.Performance)
	}
	if p50 := r.Performance[0].P50US; math.Abs(p50-10) > 0.1 || r.Headline == nil || r.Headline.P50US != p50 || r.Headline.Shape != "1x2x40x64" {
		t.Errorf("a median of %g us, headline %+v", p50, r.Headline)
	}
	if r.Device != "cuda" || r.Facts.Name != "a fake" || r.Loaded.Registers != 42 || r.Requested.Timing == "" || r.Time.Before(before) {
		t.Errorf("the record is %+v", r)
	}
	form := "ptx"
	if c, _ := compiler(t); c != nil {
		form = "cubin"
	}
	if r.Ran != form || r.Arch != "sm_89" || r.CodeHash == "" || r.Parent != "stage1" || r.Stage != "stage2" || r.GitSHA != "0123abc" {
		t.Errorf("it ran as %s, for %s, code %s, parent %s", r.Ran, r.Arch, r.CodeHash, r.Parent)
	}
	if s.gpu.Opened != 2 || s.gpu.Closed != 2 { // one for the gate and a fresh one for the times
		t.Errorf("%d devices opened, %d closed", s.gpu.Opened, s.gpu.Closed)
	}
}

// The ledger has the complete run.
func TestRunIsRecorded(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.setSpeedup(1.5, 0.01)
	r := s.runOne(s.request("stage2"))
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
		t.Errorf("(-reported +recorded):\n%s", diff)
	}
	var samples struct {
		SchemaVersion int           `json:"schema_version"`
		Samples       []run.Samples `json:"samples"`
	}
	if err := json.Unmarshal(read("samples.json"), &samples); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Samples, samples.Samples); diff != "" || samples.SchemaVersion != 1 || len(samples.Samples[0].Parent.Seconds) != 40 {
		t.Errorf("schema %d (-reported +recorded):\n%s", samples.SchemaVersion, diff)
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

func TestRequiredSpeedupDecides(t *testing.T) {
	t.Parallel()
	check := func(factor, noise float64, want, reason string) {
		t.Helper()
		s := newSetup(t)
		s.setSpeedup(factor, noise)
		r := s.runOne(s.request("stage2"))
		expectOutcome(t, r, want)
		expectReason(t, r.Reasons.Performance, reason)
		if len(r.Performance) != 2 || r.Speedup == nil || r.RequiredSpeedup != s.variant("stage2").RequiredSpeedup() {
			t.Errorf("times %+v, speedup %v, required %g", r.Performance, r.Speedup, r.RequiredSpeedup)
		}
	}
	check(1.01, 0.001, merged, "x stage1 (")
	check(0.9, 0.01, "valid-negative pass/pass/fail/not-measured", "required")
	check(1, 0.1, "inconclusive pass/pass/not-measured/not-measured", "too close to call")
}

func TestStageWithoutParentNeedsOnlyToBeCorrect(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage0", behaviour{})
	r := s.runOne(s.request("stage0"))
	expectOutcome(t, r, merged)
	expectReason(t, r.Reasons.Performance, "no parent")
	if r.Speedup != nil || r.Parent != "" || r.RequiredSpeedup != 0 || r.Performance[0].ParentRatio != nil || r.Headline.ParentRatio != nil {
		t.Errorf("the record is %+v", r)
	}
}

func TestWrongOutputs(t *testing.T) {
	t.Parallel()
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
		"one element off": {behaviour{Output: set(5, 9)}, "1x2x40x64 seed 0: max_err", 12},
		"one NaN":         {behaviour{Output: set(64, math.NaN())}, "causal seed 1: 1 elements are not finite, the first at batch 0 head 0 row 1 dim 0", 12},
		"all zeros":       {behaviour{Output: func(out []byte) { clear(out) }}, "% of the elements are bad", 12},
		"a finding": {
			behaviour{Findings: []finding.Finding{finding.New(finding.Unwritten, "2 bytes never written")}},
			"1x2x40x64 seed 0 and 11 more: unwritten: 2 bytes never written", 12,
		},
	} {
		s := newSetup(t)
		s.declare("stage2", test.kernel)
		s.declare("stage1", behaviour{})
		r := s.runOne(s.request("stage2"))
		expectOutcome(t, r, incorrect)
		expectReason(t, r.Reasons.Correctness, test.reason)
		expectReason(t, r.Reasons.Performance, "an earlier gate failed")
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
func TestOutputsAreHashed(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage0", behaviour{})
	r := s.runOne(s.request("stage0"))
	hashes := map[string]bool{}
	for _, row := range r.Correctness {
		hashes[row.OutputSHA256] = true
	}
	if len(hashes) != 10 || hashes[""] {
		t.Errorf("the hashes are %v", hashes)
	}
}

// A failure that loses the device ends one variant. The next one gets a fresh device.
func TestLostDeviceEndsOneVariant(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	fault := &device.Fault{Code: "CUDA_ERROR_ILLEGAL_ADDRESS", Text: "an illegal memory access", Operation: "launch"}
	second := func(err error) behaviour {
		return behaviour{Launch: func(number int) error {
			if number == 1 {
				return err
			}
			return nil
		}}
	}
	for name, test := range map[string]struct {
		kernel behaviour
		reason string
		rows   int
		opened int // a variant that is timed has two devices
	}{
		"a fault":             {second(fault), "1x2x40x64 seed 1: launch: CUDA_ERROR_ILLEGAL_ADDRESS", 1, 5},
		"a crash":             {second(fmt.Errorf("run: %w", &device.Crash{How: "signal: killed"})), "the kernel died: signal: killed", 1, 5},
		"a fault while timed": {behaviour{Timing: fault}, "timing 1x2x40x64 interleaved with stage1+USE_CP_ASYNC=0: launch: CUDA_", 12, 6},
	} {
		s := newSetup(t)
		s.declare("stage0", behaviour{})
		s.declare("stage1", test.kernel)
		s.declare("stage1+USE_CP_ASYNC=0", behaviour{})
		if err := s.run(s.request("stage0", "stage1", "stage0")); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		expectOutcome(t, s.runs[0], merged)
		expectOutcome(t, s.runs[1], incorrect)
		expectOutcome(t, s.runs[2], merged)
		lost := s.runs[1]
		expectReason(t, lost.Reasons.Correctness, test.reason)
		expectReason(t, lost.Reasons.Performance, "an earlier gate failed")
		if lost.Failure == "" || lost.TimedOut || len(lost.Correctness) != test.rows || lost.Headline != nil {
			t.Errorf("%s: failure %q, timed out %t, %d rows", name, lost.Failure, lost.TimedOut, len(lost.Correctness))
		}
		if s.gpu.Opened != test.opened || s.gpu.Closed != test.opened {
			t.Errorf("%s: %d devices opened, %d closed", name, s.gpu.Opened, s.gpu.Closed)
		}
		if diff := cmp.Diff([]string{"stage0", "stage1", "stage0"}, s.recorded()); diff != "" {
			t.Errorf("%s: recorded:\n%s", name, diff)
		}
	}
}

// A timeout says nothing about the output: the kernel may be slow, or run on a slow simulator. It is
// never recorded as incorrect.
func TestTimeoutIsNotMeasured(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	limit := &device.Timeout{Limit: time.Minute}
	second := func(number int) error {
		if number == 1 {
			return limit
		}
		return nil
	}
	zeros := func(out []byte) { clear(out) }
	for name, test := range map[string]struct {
		kernel              behaviour
		outcome             string
		correctness, timing string
		rows                int
		opened              int // a variant that is timed has two devices
	}{
		"a launch": {
			behaviour{Launch: second},
			"not-measured pass/not-measured/not-measured/not-measured",
			"1x2x40x64 seed 1: no result within 1m0s", "the correctness check exceeded its time limit", 1, 5,
		},
		"a timing": {
			behaviour{Timing: limit},
			"not-measured pass/pass/not-measured/not-measured",
			"", "timing 1x2x40x64 interleaved with stage1+USE_CP_ASYNC=0: no result within 1m0s", 12, 6,
		},
		"a launch after a wrong output": {
			behaviour{Launch: second, Output: zeros}, incorrect, "1x2x40x64 seed 0: max_err", "an earlier gate failed", 1, 5,
		},
	} {
		s := newSetup(t)
		s.declare("stage0", behaviour{})
		s.declare("stage1", test.kernel)
		s.declare("stage1+USE_CP_ASYNC=0", behaviour{})
		if err := s.run(s.request("stage0", "stage1", "stage0")); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		expectOutcome(t, s.runs[0], merged)
		expectOutcome(t, s.runs[1], test.outcome)
		expectOutcome(t, s.runs[2], merged)
		r := s.runs[1]
		if test.correctness != "" {
			expectReason(t, r.Reasons.Correctness, test.correctness)
		}
		expectReason(t, r.Reasons.Performance, test.timing)
		if !r.TimedOut || r.Failure == "" || len(r.Correctness) != test.rows || r.Headline != nil {
			t.Errorf("%s: failure %q, timed out %t, %d rows", name, r.Failure, r.TimedOut, len(r.Correctness))
		}
		if s.gpu.Opened != test.opened || s.gpu.Closed != test.opened {
			t.Errorf("%s: %d devices opened, %d closed", name, s.gpu.Opened, s.gpu.Closed)
		}
	}
}

// Without a parent the fault is the variant's own.
func TestFaultWhileTimedAlone(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage0", behaviour{Timing: &device.Fault{Code: "CUDA_ERROR_LAUNCH_FAILED", Operation: "replay"}})
	r := s.runOne(s.request("stage0"))
	expectOutcome(t, r, incorrect)
	expectReason(t, r.Reasons.Correctness, "timing 1x2x40x64: replay: CUDA_ERROR_LAUNCH_FAILED")
}

func TestDeviceWithoutClock(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage0", behaviour{Timing: device.ErrNoClock})
	r := s.runOne(s.request("stage0"))
	expectOutcome(t, r, "not-measured pass/pass/not-measured/not-measured")
	expectReason(t, r.Reasons.Performance, "this device measures no time")
	if r.Requested.Timing != "" || len(r.Performance) != 0 {
		t.Errorf("timing %q, times %+v", r.Requested.Timing, r.Performance)
	}
}

func TestNoDevice(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.Device = NoDevice("no GPU: there is no driver")
	r := s.runOne(s.request("stage1"))
	if r.Gates.Resources == "not-measured" || r.Device != "none" || r.Facts != nil || r.Arch != "sm_90a" {
		t.Errorf("the record is %+v", r)
	}
	expectReason(t, r.Reasons.Correctness, "no GPU: there is no driver")
	expectReason(t, r.Reasons.Performance, "no GPU")
	expectReason(t, r.Reasons.Profile, "no GPU")
	if r.Headline != nil || len(r.Correctness)+len(r.Performance) != 0 {
		t.Errorf("figures without a device: %+v", r)
	}
}

func TestRunUnderSanitizer(t *testing.T) {
	t.Parallel()
	broken := errors.New("compute-sanitizer ended with code -1")
	hang := behaviour{Launch: func(int) error { return &device.Timeout{Limit: time.Second} }}
	check := func(kernel behaviour, finding []finding.Finding, err error) (*run.Run, error) {
		t.Helper()
		s := newSetup(t)
		s.declare("stage0", kernel)
		s.Device.open = func(ctx context.Context) (device.Device, error) {
			d, _ := s.gpu.Open(ctx)
			return &sanitizedDevice{Device: d.(*devicetest.Device), findings: finding, err: err}, nil
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
	expectOutcome(t, clean, "not-measured pass/pass/not-measured/not-measured")
	expectReason(t, clean.Reasons.Performance, "slows kernels down")
	if clean.Requested.Sanitizer != "memcheck" || len(clean.Correctness) != 12 {
		t.Errorf("the record is %+v", clean)
	}
	found, err := check(behaviour{}, []finding.Finding{finding.New("memcheck", "Invalid write")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	expectOutcome(t, found, incorrect)
	expectReason(t, found.Reasons.Correctness, "memcheck: Invalid write")
	if _, err := check(behaviour{}, nil, broken); !errors.Is(err, broken) {
		t.Errorf("a failure of the sanitizer itself: %v", err)
	}
	// After a timeout the process is killed and the sanitizer has no report.
	hung, err := check(hang, nil, broken)
	if err != nil {
		t.Fatal(err)
	}
	expectOutcome(t, hung, "not-measured pass/not-measured/not-measured/not-measured")
	if !hung.TimedOut || hung.Requested.Sanitizer != "memcheck" {
		t.Errorf("the record is %+v", hung)
	}
}

// newBroken is a lab for a kernel with a stage for each way to be wrong.
func newBroken(t *testing.T) *setup {
	t.Helper()
	c, cacheDir := compiler(t)
	if c == nil {
		t.Skip(needsCompiler)
	}
	return newSetupOf(t, os.DirFS("testdata/broken"), c, cacheDir)
}

func TestOverBudget(t *testing.T) {
	t.Parallel()
	s := newBroken(t)
	r := s.runOne(s.request("greedy"))
	expectOutcome(t, r, "over-budget fail/not-measured/not-measured/not-measured")
	expectReason(t, r.Reasons.Resources, "registers per thread; the budget is 8")
	expectReason(t, r.Reasons.Correctness, "an earlier gate failed")
	if r.Build == nil || s.gpu.Opened != 0 || r.Device != "none" {
		t.Errorf("%d devices opened, build %v", s.gpu.Opened, r.Build)
	}
}

// A source that breaks a rule of attune fails its variant, and the next one runs.
func TestVariantWithBrokenSource(t *testing.T) {
	t.Parallel()
	c, cacheDir := compiler(t)
	if c == nil {
		t.Skip(needsCompiler)
	}
	source, err := os.ReadFile("testdata/broken/broken.cu")
	toml, err2 := os.ReadFile("testdata/broken/kernel.toml")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	short := strings.Replace(string(source), "attune_launch[3] = {kHeadDim, 1, 0}", "attune_launch[2 + !DEFECT] = {kHeadDim, 1}", 1)
	s := newSetupOf(t, fstest.MapFS{"kernel.toml": {Data: toml}, "broken.cu": {Data: []byte(short)}}, c, cacheDir)
	s.declare("good", behaviour{})
	if err := s.run(s.request("outside", "good")); err != nil {
		t.Fatal(err)
	}
	r := s.runs[0]
	expectOutcome(t, r, "over-budget fail/not-measured/not-measured/not-measured")
	expectReason(t, r.Reasons.Resources, "attune_launch has 2 words, want 3 to 5")
	if r.Arch != "sm_89" || r.Failure != "build outside for sm_89: attune_launch has 2 words, want 3 to 5" || r.Build != nil {
		t.Errorf("the record is %+v", r)
	}
	expectOutcome(t, s.runs[1], merged)
}

func TestVariantThatDoesNotCompile(t *testing.T) {
	t.Parallel()
	s := newBroken(t)
	s.declare("good", behaviour{})
	if err := s.run(s.request("garbled", "good")); err != nil {
		t.Fatal(err)
	}
	garbled := s.runs[0]
	expectOutcome(t, garbled, "over-budget fail/not-measured/not-measured/not-measured")
	expectReason(t, garbled.Reasons.Resources, "it does not compile")
	expectReason(t, garbled.Reasons.Resources, "broken.cu(")
	if garbled.Arch != "sm_89" || !strings.Contains(garbled.Failure, "broken.cu(") || garbled.Log == "" || garbled.Build != nil {
		t.Errorf("the record is %+v", garbled)
	}
	if strings.Contains(garbled.Failure, os.TempDir()) {
		t.Errorf("a path of this machine is in %s", garbled.Failure)
	}
	expectOutcome(t, s.runs[1], merged)
}

func TestParentThatCannotBeBuilt(t *testing.T) {
	t.Parallel()
	s := newSetupOf(t, kernels.SDPA(), nil, t.TempDir()) // other variants than the shipped ones cannot be built
	s.declare("stage1", behaviour{})
	r := s.request("stage1")
	against := s.variant("stage2+TILE_N=32")
	r.Against = &against
	got := s.runOne(r)
	expectOutcome(t, got, "not-measured pass/pass/not-measured/not-measured")
	expectReason(t, got.Reasons.Performance, "the parent stage2+TILE_N=32: build stage2+TILE_N=32 for sm_89: no CUDA compiler")
	// Its own times were measured.
	if len(got.Performance) != 2 || got.Headline == nil || got.Speedup != nil || got.Performance[0].ParentRatio != nil {
		t.Errorf("times %+v, speedup %v", got.Performance, got.Speedup)
	}
}

// Against another variant the required speedup is 1.
func TestAgainst(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage0", behaviour{Seconds: 11e-6})
	s.declare("stage2", behaviour{})
	r := s.request("stage2")
	against := s.variant("stage0")
	r.Against = &against
	got := s.runOne(r)
	expectOutcome(t, got, merged)
	if got.Parent != "stage0" || got.Requested.Against != "stage0" || got.RequiredSpeedup != 1 || math.Abs(got.Speedup.Ratio-1.1) > 1e-9 {
		t.Errorf("parent %s, against %s, required %g, speedup %+v", got.Parent, got.Requested.Against, got.RequiredSpeedup, got.Speedup)
	}
}

func TestBenchmarkShapes(t *testing.T) {
	t.Parallel()
	check := func(requested, benchmark, want []string) {
		t.Helper()
		s := newSetup(t)
		s.declare("stage0", behaviour{})
		r := s.request("stage0")
		r.Shapes, r.Benchmark, r.Seeds = shapes(t, requested...), shapes(t, benchmark...), []uint64{0}
		got := s.runOne(r)
		var names []string
		for _, p := range got.Performance {
			if p.Benchmark {
				names = append(names, p.Shape)
			}
		}
		if diff := cmp.Diff(want, names); diff != "" || got.Headline.Shape != want[0] {
			t.Errorf("requested %v, benchmark %v: headline %s, counted:\n%s", requested, benchmark, got.Headline.Shape, diff)
		}
	}
	a, b, c := "1x1x8x64", "1x1x16x64", "1x1x9x64:causal"
	check([]string{a, b, c}, []string{b, c}, []string{b, c})
	check([]string{a, b}, []string{b, c}, []string{b})
	check([]string{a, b}, []string{c}, []string{a, b}) // no benchmark shape was requested, so all count
	check([]string{a}, nil, []string{a})
}

// The speedup is that over the benchmark shapes.
func TestOnlyBenchmarkShapesCount(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage1", behaviour{Seconds: 20e-6})
	s.declare("stage2", behaviour{OfJob: func(job device.Job) float64 {
		if job.Args[11].Scalar[0] != 0 { // causal
			return 80e-6
		}
		return 10e-6
	}})
	r := s.runOne(s.request("stage2"))
	expectOutcome(t, r, merged)
	if math.Abs(r.Speedup.Ratio-2) > 1e-9 || math.Abs(*r.Performance[1].ParentRatio-0.25) > 1e-9 {
		t.Errorf("the speedup is %g, and %g on the other shape", r.Speedup.Ratio, *r.Performance[1].ParentRatio)
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
about = "elements of a row"
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

func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	refuse := func(s *setup, r Request, want string) {
		t.Helper()
		err := s.run(r)
		var request RequestError
		if !errors.As(err, &request) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if s.gpu.Opened != 0 || len(s.runs) != 0 || len(s.steps) != 0 || len(s.recorded()) != 0 {
			t.Errorf("something was started: %d devices, %d runs, steps %v", s.gpu.Opened, len(s.runs), s.steps)
		}
	}
	s := newSetup(t)
	wide := s.request("stage0", "stage1")
	wide.Shapes = shapes(t, "1x2x40x64", "1x1x8x128")
	refuse(s, wide, "shape 1x1x8x128 has head dim 128, and stage0 is built for 64")
	many := s.request("stage0")
	many.Shapes = shapes(t, "40000x4x1x64", "40000x4x1x64:kvheads=2")
	refuse(s, many, "shape 40000x4x1x64:kvheads=2 has 80000 K/V heads over all batches, each for 2 heads; "+
		"a grid of grouped heads holds at most 65535 of either")
	old := s.request("stage0")
	old.Arch = "sm_70"
	refuse(s, old, `stage0 is for sm_80, sm_89, sm_90a, not for "sm_70"`)

	two := newSetupOf(t, fstest.MapFS{spec.File: {Data: []byte(kernelOfTwoSizes)}, "k.cu": {}}, nil, t.TempDir())
	r := two.request("narrow")
	against := two.variant("narrow+HEAD_DIM=128")
	r.Against = &against
	refuse(two, r, "shape 1x2x40x64 has head dim 64, and narrow+HEAD_DIM=128 is built for 128")
}

// Code for a newer chip than the device is refused, and code for an older one is compiled by the
// driver.
func TestArchOfTheDevice(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	r := s.request("stage0")
	r.Arch = "sm_90a"
	err := s.run(r)
	var request RequestError
	if !errors.As(err, &request) || !strings.Contains(err.Error(), "code for sm_90a does not run on the device, which is sm_89") {
		t.Errorf("got %v", err)
	}
	s.gpu = devicetest.NewGPU("sm_90", attend)
	s.Device = GPU(s.gpu.Facts, s.gpu.Open)
	s.gpu.Variants[string(s.built("stage0", "sm_80").PTX)] = "stage0"
	r.Arch = "sm_80"
	got := s.runOne(r)
	expectOutcome(t, got, merged)
	if got.Ran != "ptx" || got.Arch != "sm_80" || got.Requested.Arch != "sm_80" {
		t.Errorf("it ran as %s for %s, requested %q", got.Ran, got.Arch, got.Requested.Arch)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSetup(t)
	s.declare("stage0", behaviour{})
	s.declare("stage1+USE_CP_ASYNC=0", behaviour{})
	s.declare("stage1", behaviour{Launch: func(number int) error {
		if number == 2 {
			cancel()
		}
		return nil
	}})
	var reported []string
	err := s.Run(ctx, s.request("stage0", "stage1", "stage0"), func(r *run.Run) { reported = append(reported, r.Variant) })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if want := []string{"stage0"}; !slices.Equal(reported, want) || !slices.Equal(s.recorded(), want) {
		t.Errorf("reported %v, recorded %v, want %v", reported, s.recorded(), want)
	}
	if s.gpu.Opened != 3 || s.gpu.Closed != 3 {
		t.Errorf("%d devices opened, %d closed", s.gpu.Opened, s.gpu.Closed)
	}
	if found, err := s.Ledger.Verify(t.Context()); err != nil || len(found.Problems) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

// Ctrl-C while a finished run is described and recorded does not lose it.
func TestCancelWhileRecording(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := newSetup(t)
	s.declare("stage0", behaviour{})
	describe := s.Describe
	s.Describe = func(record any) (map[string][]byte, error) {
		cancel()
		return describe(record)
	}
	var ids []string
	_ = s.Run(ctx, s.request("stage0"), func(r *run.Run) { ids = append(ids, r.ID) }) // cancelled or finished
	if recorded := s.recorded(); len(ids) != 1 || ids[0] == "" || !slices.Equal(recorded, []string{"stage0"}) {
		t.Errorf("runs %q are finished, recorded are %v", ids, recorded)
	}
}

// An interrupted lab leaves no compiler running and no temporary files.
func TestCancelEndsTheCompilers(t *testing.T) {
	temporary, tools := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	nvcc := filepath.Join(tools, "nvcc")
	script := "#!/bin/sh\necho $$ >> " + tools + "/started\nexec sleep 600\n"
	childtest.Program(t, nvcc, script)
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
		t.Errorf("temporary files: %v, %v", left, err)
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
			t.Errorf("compiler %d is still running: %v", pid, err)
		}
	}
}

func TestCancelledBeforeTheStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := newSetup(t)
	s.declare("stage0", behaviour{})
	err := s.Run(ctx, s.request("stage0"), func(*run.Run) { t.Error("a run was finished") })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A failure that the kernel did not cause ends the work. Finished runs are kept.
func TestFailuresOfTheLab(t *testing.T) {
	t.Parallel()
	lost := errors.New("the driver is gone")
	check := func(want error, breakIt func(s *setup), variants ...string) {
		t.Helper()
		s := newSetupOf(t, kernels.SDPA(), nil, t.TempDir())
		s.declare("stage0", behaviour{})
		breakIt(s)
		err := s.run(s.request(variants...))
		if !errors.Is(err, want) || !strings.HasPrefix(err.Error(), variants[len(variants)-1]+": ") {
			t.Errorf("got %v, want %v", err, want)
		}
		if len(s.recorded()) != len(variants)-1 {
			t.Errorf("recorded %v of %v", s.recorded(), variants)
		}
	}
	check(lost, func(s *setup) { s.Device.open = func(context.Context) (device.Device, error) { return nil, lost } }, "stage0")
	check(lost, func(s *setup) { s.declare("stage0", behaviour{Launch: func(int) error { return lost }}) }, "stage0")
	check(lost, func(s *setup) { s.declare("stage0", behaviour{Timing: lost}) }, "stage0")
	check(toolchain.ErrNoCompiler, func(*setup) {}, "stage0", "stage0+TILE_N=32")
}

// A run that cannot be recorded is reported without an id.
func TestLedgerThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage0", behaviour{})
	if err := errors.Join(os.Remove(s.dir), os.WriteFile(s.dir, nil, 0o644)); err != nil { // a file in place of the folder
		t.Fatal(err)
	}
	err := s.run(s.request("stage0", "stage0"))
	if err == nil || !strings.Contains(err.Error(), "was not recorded") {
		t.Errorf("got %v", err)
	}
	if len(s.runs) != 1 || s.runs[0].ID != "" || s.runs[0].Verdict != "merge" {
		t.Errorf("reported %+v", s.runs)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage0", behaviour{})
	s.runOne(s.request("stage0"))
	want := []Progress{
		{Subject: "stage0", Step: "building", Done: 0, Total: 0},
		{Subject: "stage0", Step: "opening the device", Done: 0, Total: 0},
		{Subject: "stage0", Step: "correctness 1x2x40x64 seed 0", Done: 0, Total: 12},
		{Subject: "stage0", Step: "correctness 1x2x40x64 seed 1", Done: 1, Total: 12},
		{Subject: "stage0", Step: "correctness 1x2x40x64 seed 0 outliers", Done: 2, Total: 12},
		{Subject: "stage0", Step: "correctness 1x2x40x64 seed 0 peaked", Done: 3, Total: 12},
		{Subject: "stage0", Step: "correctness 1x2x40x64 seed 0 rising", Done: 4, Total: 12},
		{Subject: "stage0", Step: "correctness 1x2x40x64 seed 0 low", Done: 5, Total: 12},
		{Subject: "stage0", Step: "correctness 1x1x33x64:causal seed 0", Done: 6, Total: 12},
		{Subject: "stage0", Step: "correctness 1x1x33x64:causal seed 1", Done: 7, Total: 12},
		{Subject: "stage0", Step: "correctness 1x1x33x64:causal seed 0 outliers", Done: 8, Total: 12},
		{Subject: "stage0", Step: "correctness 1x1x33x64:causal seed 0 peaked", Done: 9, Total: 12},
		{Subject: "stage0", Step: "correctness 1x1x33x64:causal seed 0 rising", Done: 10, Total: 12},
		{Subject: "stage0", Step: "correctness 1x1x33x64:causal seed 0 low", Done: 11, Total: 12},
		{Subject: "stage0", Step: "timing 1x2x40x64", Done: 0, Total: 2},
		{Subject: "stage0", Step: "opening the device", Done: 0, Total: 0},
		{Subject: "stage0", Step: "timing 1x1x33x64:causal", Done: 1, Total: 2},
	}
	position := cmpopts.IgnoreFields(Progress{}, "Entry", "Entries", "Name", "Share")
	if diff := cmp.Diff(want, s.steps, position); diff != "" {
		t.Error(diff)
	}
	s.steps = nil
	if err := s.run(s.request("stage0", "stage0")); err != nil {
		t.Fatal(err)
	}
	last := 0.0
	for i, p := range s.steps {
		entry := 1 + i/(len(s.steps)/2)
		if p.Entry != entry || p.Entries != 2 || p.Name != "stage0" || p.Share < last || p.Share >= 1 {
			t.Errorf("step %d: %+v after a share of %g", i, p, last)
		}
		last = p.Share
	}
	if half := s.steps[len(s.steps)/2].Share; half != 0.5 || last < 0.9 {
		t.Errorf("the share is %g after the first of two equal runs, and %g before the last step", half, last)
	}
	s.Progress = nil // the callback is optional
	if err := s.run(s.request("stage0")); err != nil {
		t.Error(err)
	}
}

// Otherwise `attune run` would fail on a machine without a GPU and a compiler.
func TestShippedStagesAreWithinTheirBudgets(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("reads every stage for every architecture")
	}
	s := newSetupOf(t, kernels.SDPA(), nil, t.TempDir())
	s.Device = NoDevice("no GPU")
	for _, stage := range s.Kernel.Stages {
		for _, arch := range stage.Archs {
			t.Run(stage.Name+" for "+arch, func(t *testing.T) {
				r := s.request(stage.Name)
				r.Arch, s.runs = arch, nil
				expectOutcome(t, s.runOne(r), "not-measured pass/not-measured/not-measured/not-measured")
			})
		}
	}
}

func TestShippedTargets(t *testing.T) {
	t.Parallel()
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
		t.Errorf("a target is listed twice: %v", got)
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
	for _, s := range kernel.Selections { // a machine without a compiler needs them
		parent, _ := s.Parent()
		for _, v := range append(s.Variants(), parent) {
			if want := v.String() + " for " + s.Archs[0]; !slices.Contains(got, want) {
				t.Errorf("%s is missing", want)
			}
		}
	}
}
