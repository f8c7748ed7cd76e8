package run

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/gate"
	"attune/internal/toolchain"
)

// someRun is a run on a GPU with two outputs and the times of two shapes.
func someRun() *Run {
	r := full()
	r.Failure, r.TimedOut, r.Requested.Simulation = "", false, nil
	r.Requested.Shapes = []string{"1x8x512x64", "1x1x32x64"}
	r.Correctness = []Correctness{
		{Shape: "1x8x512x64", Inputs: "normal", Seed: 1, OutputSHA256: "aa"},
		{Shape: "1x1x32x64", Inputs: "peaked", Seed: 0, OutputSHA256: "bb"},
	}
	for _, shape := range r.Requested.Shapes {
		r.Samples = append(r.Samples, Samples{Shape: shape, Variant: device.Series{Seconds: []float64{10e-6, 11e-6, 12e-6}}})
	}
	r.Performance = []Performance{{Shape: "1x8x512x64", Benchmark: true}, {Shape: "1x1x32x64"}}
	return r
}

func TestCompareRepeated(t *testing.T) {
	check := func(what string, change func(recorded, repeated *Run), want ...string) *Reproduction {
		t.Helper()
		recorded, repeated := someRun(), someRun()
		repeated.ID, repeated.Reproduces = "20261116-031522-stage2-3f9a1d", recorded.ID
		change(recorded, repeated)
		got := CompareRepeated(recorded, repeated)
		if diff := cmp.Diff(want, got.Differences); diff != "" || got.Holds != (len(want) == 0) || got.Recorded != recorded.ID || got.Repeated != repeated.ID {
			t.Errorf("%s: holds is %t (-want +got):\n%s", what, got.Holds, diff)
		}
		return got
	}
	same := check("nothing", func(_, _ *Run) {})
	if same.Outputs != (OutputCheck{Same: 2}) || !same.Code.Same || same.CorrectnessOnly {
		t.Errorf("a repetition without changes is %+v", same)
	}
	if len(same.Times) != 2 || same.Time == nil || same.Time.Ratio != 1 {
		t.Errorf("a repetition without changes is %+v", same)
	}
	if slices.ContainsFunc(append(same.Gates, same.Verdict), func(g GateCheck) bool { return !g.Compared || g.Recorded != g.Repeated }) {
		t.Errorf("gates %+v", same.Gates)
	}

	check("sources", func(_, repeated *Run) { repeated.CodeHash, repeated.Build.SourceHash = "c1de", "5" }, "the machine code differs: the sources have changed")
	check("compiler", func(_, repeated *Run) { repeated.CodeHash, repeated.Build.Compiler = "c1de", "nvcc 13.1" },
		"the machine code differs: the compiler was nvcc 13.0.88 and is nvcc 13.1")
	check("flags", func(_, repeated *Run) { repeated.CodeHash, repeated.Build.Flags = "c1de", nil }, "the machine code differs: the compiler's flags have changed")
	check("arch", func(_, repeated *Run) { repeated.CodeHash, repeated.Build.Arch = "c1de", "sm_80" },
		"the machine code differs: it was built for sm_89 and is for sm_80")
	check("no reason", func(_, repeated *Run) { repeated.CodeHash = "c1de" }, "the machine code differs: the sources, flags and compiler are the same")
	check("no recorded build", func(recorded, _ *Run) { recorded.CodeHash, recorded.Build = "", nil }, "the machine code differs: it did not compile before")
	check("no repeated build", func(_, repeated *Run) { repeated.CodeHash, repeated.Build = "", nil }, "the machine code differs: it does not compile now")
	check("other sources with the same code", func(_, repeated *Run) { repeated.Build = &toolchain.Record{SourceHash: "5"} })

	check("bytes", func(_, repeated *Run) { repeated.Correctness[1].OutputSHA256 = "cc" }, "1 of 2 outputs have different bytes, the first on 1x1x32x64 peaked seed 0")
	check("outputs", func(_, repeated *Run) { repeated.Correctness = repeated.Correctness[:1] }, "1 recorded outputs are missing now")
	check("more outputs", func(recorded, _ *Run) { recorded.Correctness = recorded.Correctness[:1] })
	old := check("an old record", func(recorded, _ *Run) { recorded.Correctness[0].Inputs, recorded.Correctness[1].OutputSHA256 = "", "" })
	if old.Outputs != (OutputCheck{Same: 1}) {
		t.Errorf("an old record: %+v", old.Outputs)
	}
	fewer := check("fewer shapes", func(_, repeated *Run) {
		repeated.Requested.Shapes, repeated.Correctness, repeated.Samples = repeated.Requested.Shapes[:1], repeated.Correctness[:1], repeated.Samples[:1]
	})
	if fewer.Outputs != (OutputCheck{Same: 1, Skipped: 1}) || len(fewer.Times) != 1 {
		t.Errorf("fewer shapes: %+v", fewer)
	}

	check("verdict", func(_, repeated *Run) { repeated.Verdict, repeated.Gates.Performance = gate.ValidNegative, gate.Fail },
		"the performance gate was pass and is fail", "the verdict was merge and is valid-negative")
	check("required speedup", func(_, repeated *Run) { repeated.RequiredSpeedup = 1 }, "the required speedup was 1.15x and is 1.00x")

	// The simulator measures no time, so nothing that needs times is compared.
	simulated := check("simulated", func(_, repeated *Run) {
		repeated.Device, repeated.Requested.Simulation = "sim", &Simulation{Schedules: 1, Checks: true, Tensor: "exact"}
		repeated.Verdict, repeated.Gates.Performance, repeated.Performance, repeated.Samples = gate.Unknown, gate.NotMeasured, nil, nil
	})
	if !simulated.CorrectnessOnly || simulated.Time != nil || simulated.Verdict.Compared || !simulated.Gates[1].Compared || simulated.Gates[2].Compared {
		t.Errorf("simulated: %+v", simulated)
	}
}

// With a changed kernel.toml or reference a record does not hold. Other versions of Python and numpy
// are reported and decide nothing. Unordered sums may differ.
func TestCompareRepeatedProblem(t *testing.T) {
	recorded, repeated := someRun(), someRun()
	recorded.Problem = &Problem{SpecSHA256: "aa", Facts: map[string]string{"numpy": "2.1", "path": "r.py", "python": "3.12", "sha256:r.py": "11"}}
	repeated.Problem = &Problem{SpecSHA256: "bb", Facts: map[string]string{"numpy": "2.2", "path": "r.py", "sha256:r.py": "22"}}
	recorded.Correctness[1].Notes = []finding.Finding{{Kind: finding.UnorderedSums}}
	repeated.Correctness[1].OutputSHA256 = "cc"
	got := CompareRepeated(recorded, repeated)
	want := []string{"kernel.toml has changed", "numpy was 2.1 and is 2.2", "python was 3.12 and is missing", "r.py has changed"}
	if diff := cmp.Diff(want, got.Changed); diff != "" || got.Holds || !got.Stale || got.Outputs != (OutputCheck{Same: 1, Unordered: 1}) {
		t.Errorf("%+v (-want +got):\n%s", got, diff)
	}
	want = []string{"kernel.toml has changed; restore it, or record a new run", "r.py has changed; restore it, or record a new run"}
	if diff := cmp.Diff(want, got.Differences); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	repeated.Problem = &Problem{SpecSHA256: "aa", Facts: map[string]string{"numpy": "2.2", "path": "r.py", "python": "3.12", "sha256:r.py": "11"}}
	if got := CompareRepeated(recorded, repeated); !got.Holds || got.Stale || len(got.Changed) != 1 {
		t.Errorf("another numpy: %+v", got)
	}
	repeated.Problem, repeated.Correctness[0].OutputSHA256 = nil, "dd"
	got = CompareRepeated(recorded, repeated)
	if diff := cmp.Diff([]string{"1 of 1 outputs have different bytes, the first on 1x8x512x64 seed 1"}, got.Differences); diff != "" || got.Changed != nil {
		t.Errorf("%v\n%s", got.Changed, diff)
	}
}

// Times of two sessions decide nothing, however different they are.
func TestTimesDecideNothing(t *testing.T) {
	recorded, repeated := someRun(), someRun()
	repeated.Samples[0].Variant.Seconds = []float64{22e-6}
	got := CompareRepeated(recorded, repeated)
	if !got.Holds || got.Time.Ratio > 0.6 || got.Times[0].RepeatedUS != 22 || got.Times[0].RecordedUS != 11 || !got.Times[0].Benchmark || got.Times[1].Benchmark {
		t.Errorf("%+v", got)
	}
}

func TestCause(t *testing.T) {
	check := func(verdict gate.Verdict, g gate.Gates, want string) {
		t.Helper()
		r := &Run{Verdict: verdict}
		r.SetGates(g)
		if got := r.Cause(); got != want {
			t.Errorf("%s: %q, want %q", verdict, got, want)
		}
	}
	pass, later := gate.Check{Status: gate.Pass, Reasons: []string{"fast"}}, gate.Unmeasured("an earlier gate failed")
	fail := func(reasons ...string) gate.Check { return gate.Check{Status: gate.Fail, Reasons: reasons} }
	check(gate.Merge, gate.Gates{Resources: pass, Correctness: pass, Performance: pass, Profile: later}, "")
	check(gate.OverBudget, gate.Gates{Resources: fail("it does not compile\nmore", "output"), Correctness: later, Performance: later},
		"it does not compile")
	check(gate.Incorrect, gate.Gates{Resources: pass, Correctness: fail("wrong", "as well"), Performance: later, Profile: later}, "wrong")
	check(gate.ValidNegative, gate.Gates{Resources: pass, Correctness: pass, Performance: fail("too slow"), Profile: later}, "too slow")
	check(gate.Inconclusive, gate.Gates{Resources: pass, Correctness: pass, Performance: gate.Unmeasured("too close to call"), Profile: later},
		"too close to call")
	check(gate.Unknown, gate.Gates{}, "")
}

func TestDecodeSamples(t *testing.T) {
	got, err := DecodeSamples([]byte(`{"schema_version":1,"samples":[{"shape":"S","variant":{"seconds":[1,2],"launches_per_sample":5}}]}`))
	want := []Samples{{Shape: "S", Variant: device.Series{Seconds: []float64{1, 2}, LaunchesPerSample: 5}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := DecodeSamples([]byte("[")); err == nil || !strings.HasPrefix(err.Error(), "read the samples of a run: ") {
		t.Errorf("%v", err)
	}
}
