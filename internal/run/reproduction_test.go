package run

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/gate"
	"attune/internal/toolchain"
)

// recorded is a run on a GPU with two answers and the times of two shapes.
func recorded() *Run {
	r := full()
	r.Failure, r.TimedOut, r.Asked.Simulation = "", false, nil
	r.Asked.Shapes = []string{"1x8x512x64", "1x1x32x64"}
	r.Correctness = []Correctness{
		{Shape: "1x8x512x64", Inputs: "normal", Seed: 1, OutputSHA256: "aa"},
		{Shape: "1x1x32x64", Inputs: "peaked", Seed: 0, OutputSHA256: "bb"},
	}
	for _, shape := range r.Asked.Shapes {
		r.Samples = append(r.Samples, Samples{Shape: shape, Variant: device.Series{Seconds: []float64{10e-6, 11e-6, 12e-6}}})
	}
	r.Performance = []Performance{{Shape: "1x8x512x64", Judged: true}, {Shape: "1x1x32x64"}}
	return r
}

func TestCompareAgain(t *testing.T) {
	check := func(what string, change func(then, now *Run), want ...string) *Reproduction {
		t.Helper()
		then, now := recorded(), recorded()
		now.ID, now.Reproduces = "20261116-031522-stage2-3f9a1d", then.ID
		change(then, now)
		got := CompareAgain(then, now)
		if diff := cmp.Diff(want, got.Differences); diff != "" || got.Holds != (len(want) == 0) || got.Then != then.ID || got.Now != now.ID {
			t.Errorf("%s: holds is %t (-want +got):\n%s", what, got.Holds, diff)
		}
		return got
	}
	same := check("nothing", func(_, _ *Run) {})
	if same.Outputs != (OutputCheck{Same: 2}) || !same.Code.Same || same.CorrectnessOnly {
		t.Errorf("the same again is %+v", same)
	}
	if len(same.Times) != 2 || same.Time == nil || same.Time.Ratio != 1 {
		t.Errorf("the same again is %+v", same)
	}
	if slices.ContainsFunc(append(same.Gates, same.Verdict), func(g GateCheck) bool { return !g.Compared || g.Then != g.Now }) {
		t.Errorf("gates %+v", same.Gates)
	}

	check("sources", func(_, now *Run) { now.CodeHash, now.Build.SourceHash = "c1de", "5" }, "the machine code is another: the sources have changed")
	check("compiler", func(_, now *Run) { now.CodeHash, now.Build.Compiler = "c1de", "nvcc 13.1" },
		"the machine code is another: the compiler was nvcc 13.0.88 and is nvcc 13.1")
	check("flags", func(_, now *Run) { now.CodeHash, now.Build.Flags = "c1de", nil }, "the machine code is another: the compiler's flags have changed")
	check("arch", func(_, now *Run) { now.CodeHash, now.Build.Arch = "c1de", "sm_80" },
		"the machine code is another: it was built for sm_89 and is for sm_80")
	check("no reason", func(_, now *Run) { now.CodeHash = "c1de" }, "the machine code is another: the sources, flags and compiler are the same")
	check("no build then", func(then, _ *Run) { then.CodeHash, then.Build = "", nil }, "the machine code is another: it did not compile then")
	check("no build now", func(_, now *Run) { now.CodeHash, now.Build = "", nil }, "the machine code is another: it does not compile now")
	check("the source is another, and the code is not", func(_, now *Run) { now.Build = &toolchain.Record{SourceHash: "5"} })

	check("bytes", func(_, now *Run) { now.Correctness[1].OutputSHA256 = "cc" }, "1 of 2 answers have other bytes, the first on 1x1x32x64 peaked seed 0")
	check("answers", func(_, now *Run) { now.Correctness = now.Correctness[:1] }, "1 answers of then were not given now")
	check("more answers", func(then, _ *Run) { then.Correctness = then.Correctness[:1] })
	old := check("an old record", func(then, _ *Run) { then.Correctness[0].Inputs, then.Correctness[1].OutputSHA256 = "", "" })
	if old.Outputs != (OutputCheck{Same: 1}) {
		t.Errorf("an old record: %+v", old.Outputs)
	}
	fewer := check("fewer shapes", func(_, now *Run) {
		now.Asked.Shapes, now.Correctness, now.Samples = now.Asked.Shapes[:1], now.Correctness[:1], now.Samples[:1]
	})
	if fewer.Outputs != (OutputCheck{Same: 1, LeftOut: 1}) || len(fewer.Times) != 1 {
		t.Errorf("fewer shapes: %+v", fewer)
	}

	check("verdict", func(_, now *Run) { now.Verdict, now.Gates.Performance = gate.ValidNegative, gate.Fail },
		"the performance gate said pass and says fail", "the verdict was merge and is valid-negative")
	check("promise", func(_, now *Run) { now.RequiredSpeedup = 1 }, "1.15x was needed and 1.00x is")

	// On the simulator no times are taken, and nothing that needs them is compared.
	simulated := check("simulated", func(_, now *Run) {
		now.Device, now.Asked.Simulation = "sim", &Simulation{Schedules: 1, Checks: true, Tensor: "exact"}
		now.Verdict, now.Gates.Performance, now.Performance, now.Samples = gate.Unknown, gate.NotMeasured, nil, nil
	})
	if !simulated.CorrectnessOnly || simulated.Time != nil || simulated.Verdict.Compared || !simulated.Gates[1].Compared || simulated.Gates[2].Compared {
		t.Errorf("simulated: %+v", simulated)
	}
}

// Times decide nothing, however far they are apart: they are of two sessions.
func TestTimesDecideNothing(t *testing.T) {
	then, now := recorded(), recorded()
	now.Samples[0].Variant.Seconds = []float64{22e-6}
	got := CompareAgain(then, now)
	if !got.Holds || got.Time.Ratio > 0.6 || got.Times[0].NowUS != 22 || got.Times[0].ThenUS != 11 || !got.Times[0].Judged || got.Times[1].Judged {
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
