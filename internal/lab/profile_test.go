package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"attune/internal/child/childtest"
	"attune/internal/device"
	"attune/internal/device/isolate"
	simdevice "attune/internal/device/sim"
	"attune/internal/problem"
	"attune/internal/profile"
	"attune/internal/run"
)

// fakeProfiler has the same counters for every launch.
type fakeProfiler struct {
	counters device.Counters
	unknown  []string
	err      error
	jobs     []device.Job
}

func (c *fakeProfiler) Capture(_ context.Context, job device.Job, report string) (*profile.Capture, error) {
	c.jobs = append(c.jobs, job)
	if c.err != nil {
		return nil, c.err
	}
	if err := os.WriteFile(report, []byte("a report"), 0o644); err != nil {
		return nil, err
	}
	return &profile.Capture{Counters: c.counters, Unknown: c.unknown}, nil
}

// busy are the counters of a launch with this utilisation of tensor cores and DRAM.
func busy(tensor, dram float64) device.Counters {
	return device.Counters{
		"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": tensor, "dram__throughput.avg.pct_of_peak_sustained_elapsed": dram,
		"lts__throughput.avg.pct_of_peak_sustained_elapsed": 20, "l1tex__throughput.avg.pct_of_peak_sustained_active": 25,
		"sm__throughput.avg.pct_of_peak_sustained_elapsed": 30, "launch__waves_per_multiprocessor": 2,
		"gpu__time_duration.sum": 9060, "dram__bytes.sum": 812410, "sm__ops_path_tensor_src_fp16_dst_fp32.sum": 2000000,
	}
}

func (s *setup) profileRequest(variant string, p Profiler) ProfileRequest {
	s.t.Helper()
	s.declare(variant, s.gpu.Behaviours[variant])
	return ProfileRequest{Variant: s.variant(variant), Shapes: shapes(s.t, "1x2x32x64", "1x1x33x64:causal"), Profiler: p}
}

func TestProfileGate(t *testing.T) {
	t.Parallel()
	check := func(tensor, dram float64, want, reason string) {
		t.Helper()
		s := newSetup(t)
		s.gpu.Facts.Name = "NVIDIA H200"
		c := &fakeProfiler{counters: busy(tensor, dram), unknown: []string{"a__b.sum"}}
		r, profiles, err := s.Profile(t.Context(), s.profileRequest("stage2", c))
		if err != nil {
			t.Fatal(err)
		}
		expectOutcome(t, r, want)
		expectReason(t, r.Reasons.Profile, reason)
		expectReason(t, r.Reasons.Performance, "a profile takes counters, no times")
		if len(profiles) != 2 || profiles[1].Shape != "1x1x33x64:causal" || profiles[0].Roofline == nil || profiles[0].Unknown[0] != "a__b.sum" || len(c.jobs) != 2 {
			t.Errorf("%d profiles, %+v", len(profiles), profiles)
		}
		if len(r.Performance) != 0 || s.gpu.Opened != 1 || s.gpu.Closed != 1 {
			t.Errorf("times %v, %d devices opened, %d closed", r.Performance, s.gpu.Opened, s.gpu.Closed)
		}
		files := []string{
			"profile.json", "profile.md", "ptxas.log", "report.md", "run.json", "samples.json.gz", "sha256sums",
			"stage2-1x1x33x64-causal.svg", "stage2-1x2x32x64.svg",
		}
		if diff := cmp.Diff(files, s.files(r)); diff != "" {
			t.Errorf("the run's folder (-want +got):\n%s", diff)
		}
	}
	check(12, 3, "valid-negative pass/pass/not-measured/fail", "1x2x32x64: busiest unit: SM pipes at 30.0 % of its peak, 50 % required")
	check(60, 3, "not-measured pass/pass/not-measured/pass", "1x2x32x64: busiest unit: tensor cores at 60.0 % of its peak, 50 % required")
	// A memory-bound kernel near the bandwidth passes, however idle its tensor cores are.
	check(10, 90, "not-measured pass/pass/not-measured/pass", "1x1x33x64:causal: busiest unit: DRAM at 90.0 % of its peak, 50 % required")
}

// files are the names in the folder of a run.
func (s *setup) files(r *run.Run) []string {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, "runs", r.ID))
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestProfileGateOfSeveralShapes(t *testing.T) {
	t.Parallel()
	of := func(v ...profile.Values) string {
		var all []*profile.Profile
		for _, values := range v {
			all = append(all, &profile.Profile{Ncu: values})
		}
		return string(profileGate(all).Status)
	}
	good, open := profile.Values{profile.DRAMBusy: 99}, profile.Values{}
	bad := profile.Values{profile.TensorBusy: 1, profile.DRAMBusy: 1, profile.L2Busy: 1, profile.L1Busy: 1, profile.SMBusy: 1}
	for want, got := range map[string]string{
		"pass": of(good, good), "fail": of(good, bad, open), "not-measured": of(good, open, good),
	} {
		if got != want {
			t.Errorf("got %s; want %s", got, want)
		}
	}
	if of(bad, good) != "fail" || of(open, bad) != "fail" {
		t.Error("the outcome depends on the order of the shapes")
	}
}

func TestProfileIntoFolder(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	request := s.profileRequest("stage2", &fakeProfiler{counters: busy(12, 3)})
	request.Folder = filepath.Join(t.TempDir(), "new", "out")
	r, profiles, err := s.Profile(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if profiles[0].Roofline != nil || !strings.Contains(profiles[0].NoRoofline, "rate of the tensor cores of a fake") {
		t.Errorf("a roofline of an unknown device: %+v, %q", profiles[0].Roofline, profiles[0].NoRoofline)
	}
	text, err := os.ReadFile(filepath.Join(request.Folder, "stage2-1x2x32x64.ncu-rep"))
	if err != nil || string(text) != "a report" {
		t.Errorf("the report is %q, %v", text, err)
	}
	if names := s.files(r); !slices.Contains(names, "profile.json") || slices.Contains(names, "stage2-1x2x32x64.ncu-rep") {
		t.Errorf("the ledger has %v", names)
	}
	request.Folder = filepath.Join(request.Folder, "profile.json") // which is a file
	if r, _, err := s.Profile(t.Context(), request); err == nil || !strings.Contains(err.Error(), "write the profiles of stage2") {
		t.Errorf("into a file: %v, %v", r, err)
	}
}

// An incorrect variant is recorded without a profile.
func TestProfileAfterFailedGate(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.gpu.Behaviours["stage2"] = behaviour{Output: func(out []byte) { clear(out) }}
	c := &fakeProfiler{counters: busy(12, 3)}
	r, profiles, err := s.Profile(t.Context(), s.profileRequest("stage2", c))
	if err != nil {
		t.Fatal(err)
	}
	expectOutcome(t, r, "incorrect pass/fail/not-measured/not-measured")
	if len(profiles) != 0 || len(c.jobs) != 0 || slices.Contains(s.files(r), "profile.json") {
		t.Errorf("%d profiles of %d launches", len(profiles), len(c.jobs))
	}
}

func TestProfileFails(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	if r, _, err := s.Profile(t.Context(), s.profileRequest("stage2", &fakeProfiler{err: profile.ErrNoPermission})); !errors.Is(err, profile.ErrNoPermission) {
		t.Errorf("without permission: %v, %v", r, err)
	}
	if got := s.recorded(); len(got) > 0 {
		t.Errorf("recorded without a profile: %v", got)
	}
	broken := s.profileRequest("stage2", &fakeProfiler{err: errors.New("ncu fell over")})
	broken.Fallback = simdevice.Open(simdevice.Options{})
	if r, _, err := s.Profile(t.Context(), broken); err == nil || !strings.Contains(err.Error(), "ncu fell over") {
		t.Errorf("a failure of the profiler must not fall back to the simulator: %v, %v", r, err)
	}
	request := s.profileRequest("stage2", nil)
	request.Shapes = shapes(t, "1x1x8x32")
	if _, _, err := s.Profile(t.Context(), request); err == nil || !strings.Contains(err.Error(), "head dim") {
		t.Errorf("of another head dim: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Profile(ctx, s.profileRequest("stage2", nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// The simulator counts the same launch as the chip, from its PTX.
func TestProfileAgainstTheSimulator(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	c := &fakeProfiler{counters: busy(12, 3)}
	request := s.profileRequest("stage2", c)
	request.Shapes, request.Simulator = shapes(t, "1x1x32x64"), simdevice.Open(simdevice.Options{})
	_, profiles, err := s.Profile(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range profiles[0].Metrics {
		both := row.Sim != nil && row.Ncu != nil
		if both != (row.Difference != nil) || both != (row.Key == profile.TensorFLOPs) {
			t.Errorf("%+v", row)
		}
	}
	request.Simulator = broken{}
	if _, _, err := s.Profile(t.Context(), request); err == nil || !strings.Contains(err.Error(), "profile stage2 on 1x1x32x64: on the simulator: it is broken") {
		t.Errorf("on a simulator that fails: %v", err)
	}
}

// broken is a device that runs nothing.
type broken struct{ device.Device }

func (broken) Run(context.Context, device.Job) (*device.Outcome, error) {
	return nil, errors.New("it is broken")
}

// With no GPU the simulator is all there is, and what it cannot know is not measured.
func TestProfileOnTheSimulator(t *testing.T) {
	t.Parallel()
	s := newSimulated(t, simdevice.Options{Checks: true})
	request := ProfileRequest{Variant: s.variant("good"), Shapes: shapes(t, "1x1x4x64"), Simulator: simdevice.Open(simdevice.Options{})}
	r, profiles, err := s.Profile(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	expectOutcome(t, r, "not-measured pass/pass/not-measured/not-measured")
	p := profiles[0]
	if p.Ncu != nil || p.Sim["ptx_instructions"] == 0 || p.Sim["global_load_sectors"] == 0 || p.Roofline != nil || p.Report != "" {
		t.Errorf("%+v", p)
	}
	if _, ok := p.Sim[profile.Time]; ok {
		t.Error("the simulator has a time")
	}
	want := "it is a profile; `attune profile good --shapes 1x1x4x64 --seeds 0 --device sim` takes a new one"
	if _, err := ReproduceRequest(s.Kernel, r, nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("repeated: %v; want %q", err, want)
	}
}

// Without permission to read counters, or without ncu, only the counters of the chip are missing.
// The ncu of this test is a shell script.
func TestProfileWithoutCounters(t *testing.T) {
	t.Parallel()
	forbidden := filepath.Join(t.TempDir(), "ncu")
	const script = `#!/bin/sh
echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0." >"$2"
exit 1
`
	childtest.Program(t, forbidden, script)
	check := func(what, reason string, set func(*ProfileRequest)) {
		t.Helper()
		s := newSetup(t)
		request := s.profileRequest("stage2", nil)
		request.Shapes, request.Fallback = shapes(t, "1x1x16x64", "1x1x32x64"), simdevice.Open(simdevice.Options{})
		set(&request)
		r, profiles, err := s.Profile(t.Context(), request)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		expectOutcome(t, r, "not-measured pass/pass/not-measured/not-measured")
		if got := r.Reasons.Profile; len(got) != 1 || !strings.Contains(got[0], reason) || strings.Contains(got[0], "\n") {
			t.Errorf("%s: the gate has %q; want one line with %q", what, got, reason)
		}
		if len(profiles) != 2 || len(profiles[0].Ncu) > 0 || profiles[1].Sim["ptx_instructions"] == 0 {
			t.Errorf("%s: %+v", what, profiles)
		}
		if names := s.files(r); !slices.Contains(names, "profile.json") || slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, ".ncu-rep") }) {
			t.Errorf("%s: the ledger has %v", what, names)
		}
	}
	check("no permission", "the driver restricts its counters to administrators (ERR_NVGPUCTRPERM); run as root, ", func(r *ProfileRequest) {
		r.Profiler = &profile.Nsight{Program: forbidden, Arch: "sm_90", Child: isolate.Options{Command: []string{"/bin/true"}, Limit: time.Minute}}
	})
	check("no ncu", "there is no ncu in PATH, ", func(r *ProfileRequest) { r.NoProfiler = profile.ErrNoProfiler.Error() })
}

// A declared kernel gets insights by pipe that speak of no kernel of ours, a comparison of its
// traffic with [work], and a roofline or what [work] lacks for one.
func TestProfileOfAnotherProblem(t *testing.T) {
	t.Parallel()
	check := func(d *doubling, roofline bool, missing, traffic string) {
		t.Helper()
		s := newDoubling(t, d)
		s.gpu.Facts.Name = "NVIDIA H200"
		s.Device = GPU(s.gpu.Facts, s.gpu.Open)
		request := s.doublingRequest("plain")
		r, profiles, err := s.Profile(t.Context(), ProfileRequest{Variant: request.Variants[0], Shapes: request.Shapes[1:], Profiler: &fakeProfiler{counters: busy(10, 80)}})
		if err != nil {
			t.Fatal(err)
		}
		expectOutcome(t, r, "not-measured pass/pass/not-measured/pass")
		p := profiles[0]
		if (p.Roofline != nil) != roofline || p.NoRoofline != missing {
			t.Errorf("roofline %+v, or %q; want %q", p.Roofline, p.NoRoofline, missing)
		}
		want := []profile.Insight{
			{Rule: "memory-bound", Text: "DRAM is at 80 % of its peak: move fewer bytes: a narrower type, or fusion with the kernels before and after"},
			{Rule: "excess-traffic", Text: traffic},
		}
		if diff := cmp.Diff(want, p.Insights, insightText); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if _, counted := p.Values()[profile.WorkBytes]; counted {
			t.Error("the work is among the counters")
		}
	}
	check(&doubling{}, true, "", "DRAM moves 101.55 times the bytes of [work]: inputs are loaded again, sectors are used in part, or registers spill")
	unknown := "DRAM moves 812410 bytes; kernel.toml declares no [work] bytes to compare them with"
	check(&doubling{unknown: true}, false, "kernel.toml declares no [work] flops and no bytes", unknown)
	if got := missingWork(problem.Work{Bytes: 8}); got != "kernel.toml declares no [work] flops" {
		t.Error(got)
	}
}

// insightText compares what insights say, not what they are made of.
var insightText = cmpopts.IgnoreFields(profile.Insight{}, "Cause", "Next", "Gain", "Effort")

// Insights of attention name the knobs that the variant has.
func TestProfileNamesKnobs(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	_, profiles, err := s.Profile(t.Context(), s.profileRequest("stage2", &fakeProfiler{counters: busy(10, 80)}))
	if err != nil {
		t.Fatal(err)
	}
	want := []profile.Insight{{
		Rule: "memory-bound", Text: "DRAM is at 80 % of its peak: reduce the bytes, for example with more query rows per byte of K and V",
		Knobs: []string{"TILE_M", "USE_FP8_MMA"},
	}}
	if diff := cmp.Diff(want, profiles[0].Insights, insightText); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := knobsOf(s.variant("stage7b"), []string{"USE_XOR_SWIZZLE", "TILE_M"}); !slices.Equal(got, []string{"TILE_M"}) {
		t.Errorf("stage7b has the knobs %v", got)
	}
}
