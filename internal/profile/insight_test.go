package profile

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// appliedRules are the names of the rules that apply.
func appliedRules(v Values) []string {
	names := []string{}
	for _, i := range Explain(v, nil) {
		names = append(names, i.Rule)
	}
	return names
}

// TestRecordedLaunches checks the rules on two launches on an H200 whose limits are known.
func TestRecordedLaunches(t *testing.T) {
	for stage, want := range map[string][]string{
		"stage3b": {"latency-bound", "small-grid", "few-warps", "bank-conflicts", "uncoalesced-stores", "waits-for-arithmetic"},
		"stage3c": {"latency-bound", "small-grid", "few-warps", "uncoalesced-stores"},
	} {
		if diff := cmp.Diff(want, appliedRules(recorded(t, stage))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", stage, diff)
		}
	}
	check := func(rule, want string) {
		t.Helper()
		for _, i := range Explain(recorded(t, "stage3b"), nil) {
			if i.Rule == rule && !strings.Contains(i.Text, want) {
				t.Errorf("%s: %q; want %q in it", rule, i.Text, want)
			}
		}
	}
	check("latency-bound", "issue slots are empty in 68 % of the active cycles and no unit is above 40 % (the highest is at 22 %)")
	check("small-grid", "the grid is 0.48 waves of blocks")
	check("few-warps", "the occupancy is 6 % of the warps that a multiprocessor can run; 182 registers per thread allow 11 warps")
	check("bank-conflicts", "bank conflicts cause 32768 of the 204800 wavefronts of shared memory")
	check("waits-for-arithmetic", "1.1 of the 3.2 cycles between two instructions of a warp are spent waiting for the previous instruction")
}

func TestRules(t *testing.T) {
	// good is a launch to which no rule applies.
	good := Values{
		TensorBusy: 59, DRAMBusy: 30, L2Busy: 30, L1Busy: 30, SMBusy: 59, ALUBusy: 30, FMABusy: 30, XUBusy: 30, LSUBusy: 30, IssueBusy: 50, Occupancy: 50, Registers: 64,
		Waves: 4, LoadConflicts: 9, storeConflicts: 0, wavefronts: 100, LoadUse: 32, StoreUse: 32, latency: 8,
	}
	check := func(change Values, want ...string) {
		t.Helper()
		v := maps.Clone(good)
		maps.Copy(v, change)
		if diff := cmp.Diff(append([]string{}, want...), appliedRules(v)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", change, diff)
		}
	}
	check(nil)
	check(Values{DRAMBusy: 60}, "memory-bound")
	check(Values{TensorBusy: 75}, "tensor-bound")
	check(Values{L2Busy: 61}, "cache-bound")
	check(Values{L1Busy: 61}, "l1-bound")
	check(Values{ALUBusy: 61}, "integer-bound")
	check(Values{FMABusy: 61}, "fma-bound")
	check(Values{XUBusy: 61}, "exponential-bound")
	check(Values{LSUBusy: 61}, "lsu-bound")
	check(Values{IssueBusy: 80}, "issue-bound")
	check(Values{IssueBusy: 79})
	check(Values{DRAMBytes: 124, WorkBytes: 100})
	check(Values{DRAMBytes: 125, WorkBytes: 100}, "excess-traffic")
	check(Values{DRAMBytes: 125, WorkBytes: 0}, "excess-traffic")
	check(Values{DRAMBytes: 125}) // a problem that does not declare its work
	check(Values{WorkBytes: 100}) // not measured
	check(Values{IssueBusy: 39})  // the tensor cores are busy
	check(Values{IssueBusy: 39, TensorBusy: 39, SMBusy: 39}, "latency-bound")
	check(Values{IssueBusy: 40, TensorBusy: 39, SMBusy: 39})
	check(Values{Waves: 0.9}, "small-grid")
	check(Values{Occupancy: 24}, "few-warps")
	check(Values{storeConflicts: 1}, "bank-conflicts")
	check(Values{LoadUse: 20}, "uncoalesced-loads")
	check(Values{StoreUse: 16}, "uncoalesced-stores")
	check(Values{"stall_selected": 8, "stall_not_selected": 8})
	for reason, rule := range map[string]string{
		"long_scoreboard": "waits-for-memory", "short_scoreboard": "waits-for-shared-memory", "barrier": "waits-for-barriers", "wait": "waits-for-arithmetic",
		"math_pipe_throttle": "waits-for-a-pipe", "mio_throttle": "waits-for-shared-queue", "lg_throttle": "waits-for-global-queue", "gmma": "waits-for-warpgroup",
	} {
		check(Values{"stall_" + reason: 1.9})
		check(Values{"stall_" + reason: 2}, rule)
	}
}

// Rules need measured figures. The simulator's counters are enough for some rules.
func TestRulesWithoutFigures(t *testing.T) {
	if got := appliedRules(nil); len(got) > 0 {
		t.Errorf("without figures: %v", got)
	}
	v := Values{LoadConflicts: 32768, storeConflicts: 0, wavefronts: 204800}
	got := Explain(v, nil)
	const cause = "bank conflicts cause 32768 of the 204800 wavefronts of shared memory"
	const next = "pad or swizzle the rows, so that the lanes of a warp access different banks"
	want := []Insight{{Rule: "bank-conflicts", Text: cause + ": " + next, Cause: cause, Next: next, Effort: Small}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A gain follows from the figures, and there is none where they do not bound it.
func TestGains(t *testing.T) {
	for rule, c := range map[string]struct {
		v    Values
		want float64 // 0 if unknown
	}{
		"memory-bound":     {Values{DRAMBusy: 80}, 1.25},
		"tensor-bound":     {Values{TensorBusy: 62.5}, 1.6},
		"latency-bound":    {Values{IssueBusy: 10, SMBusy: 20, DRAMBusy: 5}, 5},
		"small-grid":       {Values{Waves: 0.25}, 4},
		"few-warps":        {Values{Occupancy: 10}, 0},
		"bank-conflicts":   {Values{LoadConflicts: 25, wavefronts: 100, L1Busy: 90}, 100.0 / 75},
		"excess-traffic":   {Values{WorkBytes: 100, DRAMBytes: 300, DRAMBusy: 70}, 3},
		"waits-for-memory": {Values{latency: 10, stallPrefix + "long_scoreboard": 5}, 2},
	} {
		all := Explain(c.v, nil)
		i := slices.IndexFunc(all, func(i Insight) bool { return i.Rule == rule })
		switch {
		case i < 0:
			t.Errorf("%s does not apply", rule)
		case (all[i].Gain == nil) != (c.want == 0), all[i].Gain != nil && math.Abs(*all[i].Gain-c.want) > 1e-12:
			t.Errorf("%s: %+v; want a gain of %g", rule, all[i], c.want)
		}
	}
	for _, v := range []Values{{WorkBytes: 100, DRAMBytes: 300, DRAMBusy: 7}, {WorkBytes: 0, DRAMBytes: 300, DRAMBusy: 70}, {LoadConflicts: 25, wavefronts: 100, L1Busy: 9}} {
		for _, i := range Explain(v, nil) {
			if i.Rule != "memory-bound" && i.Gain != nil {
				t.Errorf("%+v has a gain that nothing bounds", i)
			}
		}
	}
}

// Hints replace the advice, and rules without a hint are left out.
func TestExplainWithHints(t *testing.T) {
	v := Values{DRAMBusy: 70, L2Busy: 70, ALUBusy: 70}
	hints := Hints{"memory-bound": {Text: "read less", Knobs: []string{"TILE"}}, "integer-bound": {}}
	want := []Insight{
		{
			Rule: "memory-bound", Text: "DRAM is at 70 % of its peak: read less", Knobs: []string{"TILE"},
			Cause: "DRAM is at 70 % of its peak", Next: "read less", Gain: new(100.0 / 70), Effort: Large,
		},
		{Rule: "integer-bound", Text: "the ALU pipe is at 70 % of its peak", Cause: "the ALU pipe is at 70 % of its peak", Gain: new(100.0 / 70), Effort: Medium},
	}
	if diff := cmp.Diff(want, Explain(v, hints)); diff != "" {
		t.Error(diff)
	}
	if got := Explain(v, Hints{}); len(got) > 0 {
		t.Errorf("no hints: %v", got)
	}
}

// Advice for any kernel names no kernel of ours.
func TestAdviceIsNeutral(t *testing.T) {
	for _, r := range rules {
		for _, word := range []string{"K and V", "query", "E4M3", "softmax", "_"} {
			if strings.Contains(r.advice, word) {
				t.Errorf("%s: %q", r.name, r.advice)
			}
		}
	}
}
