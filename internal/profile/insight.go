package profile

import "fmt"

// Insight is a sentence about a launch.
type Insight struct {
	Rule  string   `json:"rule"`
	Text  string   `json:"text"`
	Knobs []string `json:"knobs,omitempty"` // that affect it
}

// Explain describes what limits a launch: one insight for each rule that applies, the most
// important first. The hints of a problem replace the advice of the rules and add knobs; a problem
// with hints has insights of those rules only.
func Explain(v Values, hints Hints) []Insight {
	var all []Insight
	for _, r := range rules {
		hint, known := hints[r.name]
		if hints == nil {
			hint.Text = r.advice
		} else if !known {
			continue
		}
		fact := r.explain(v)
		if fact == "" {
			continue
		}
		if hint.Text != "" {
			fact += ": " + hint.Text
		}
		all = append(all, Insight{Rule: r.name, Text: fact, Knobs: hint.Knobs})
	}
	return all
}

// rule explains one kind of limit. explain returns an empty text if the rule does not apply, or if
// a figure that it needs was not measured. advice says what to do about any kernel.
type rule struct {
	name    string
	explain func(v Values) string
	advice  string
}

// A unit is busy from this share of its peak on, and idle below the other, in percent. Issue slots
// limit a kernel only if nearly all are taken: a scheduler issues one instruction a cycle.
const (
	busy      = 60
	idle      = 40
	issueBusy = 80
)

var rules = []rule{
	{
		"memory-bound", above(DRAMBusy, busy, "DRAM is at %.0f %% of its peak"),
		"move fewer bytes: a narrower type, or fusion with the kernels before and after",
	},
	{"excess-traffic", excessTraffic, ""},
	{
		"tensor-bound", above(TensorBusy, busy, "the tensor pipe is busy in %.0f %% of the active cycles"),
		"only a faster number format or less work would help",
	},
	{
		"cache-bound", above(L2Busy, busy, "L2 is at %.0f %% of its peak"),
		"reuse more of what is loaded in shared memory or registers; larger tiles read less",
	},
	{
		"l1-bound", above(L1Busy, busy, "L1 and shared memory are at %.0f %% of their peak"),
		"keep more values in registers, and use wider accesses without bank conflicts",
	},
	{
		"integer-bound", above(ALUBusy, busy, "the ALU pipe is at %.0f %% of its peak"),
		"it computes integers, comparisons, selections and addresses; unrolling and simpler indices need fewer of them",
	},
	{
		"fma-bound", above(FMABusy, busy, "the FMA pipe is at %.0f %% of its peak"),
		"packed half precision needs fewer instructions; matrix products belong on the tensor cores",
	},
	{
		"exponential-bound", above(XUBusy, busy, "the XU pipe is at %.0f %% of its peak"),
		"it computes exponentials, roots, quotients and conversions of types; fewer of them, or polynomials on the FMA pipe, would help",
	},
	{
		"lsu-bound", above(LSUBusy, busy, "the LSU pipe is at %.0f %% of its peak"),
		"wider loads and stores (128 bits a thread) need fewer instructions",
	},
	{
		"issue-bound", above(IssueBusy, issueBusy, "issue slots are taken in %.0f %% of the active cycles"),
		"the kernel executes too many instructions; wider accesses, packed arithmetic and less index arithmetic need fewer",
	},
	{"latency-bound", latencyBound, "warps wait for results; more warps or shorter dependency chains would help"},
	{
		"small-grid", below(Waves, 1, "the grid is %.2f waves of blocks, less than the chip can run at once"),
		"less work per block makes more blocks; larger problems fill it",
	},
	{"few-warps", fewWarps, "fewer registers per thread, less shared memory per block or larger blocks allow more"},
	{"bank-conflicts", bankConflicts, "pad or swizzle the rows, so that the lanes of a warp access different banks"},
	{
		"uncoalesced-loads", below(LoadUse, 24, "loads use %.1f of the 32 bytes of a sector"),
		"neighbouring lanes should read neighbouring bytes",
	},
	{
		"uncoalesced-stores", below(StoreUse, 24, "stores use %.1f of the 32 bytes of a sector"),
		"stage the output in shared memory, or use wider stores",
	},
	{
		"waits-for-memory", stalled("long_scoreboard", "waiting for global memory"),
		"issue loads earlier, or have more of them in flight",
	},
	{
		"waits-for-shared-memory", stalled("short_scoreboard", "waiting for shared memory or exponentials"),
		"more independent instructions between the access and its use would hide the latency",
	},
	{"waits-for-barriers", stalled("barrier", "waiting at barriers"), "use fewer barriers, or fewer warps at each"},
	{
		"waits-for-arithmetic", stalled("wait", "waiting for the previous instruction"),
		"more warps or more independent instructions would hide the latency",
	},
	{"waits-for-a-pipe", stalled("math_pipe_throttle", "waiting for a busy arithmetic pipe"), ""},
	{
		"waits-for-shared-queue", stalled("mio_throttle", "waiting for the instruction queue of shared memory"),
		"wider accesses need fewer instructions",
	},
	{
		"waits-for-global-queue", stalled("lg_throttle", "waiting for the instruction queue of global memory"),
		"wider accesses need fewer instructions",
	},
	{"waits-for-warpgroup", stalled("gmma", "waiting for wgmma"), "keep one in flight"},
}

func above(key string, limit float64, format string) func(Values) string {
	return func(v Values) string {
		if value, ok := v[key]; ok && value >= limit {
			return fmt.Sprintf(format, value)
		}
		return ""
	}
}

func below(key string, limit float64, format string) func(Values) string {
	return func(v Values) string {
		if value, ok := v[key]; ok && value > 0 && value < limit {
			return fmt.Sprintf(format, value)
		}
		return ""
	}
}

// excessTraffic applies if DRAM moves a quarter more than the bytes of the problem, or if nobody
// knows these. Values without WorkBytes are of a problem that is not asked.
func excessTraffic(v Values) string {
	work, asked := v[WorkBytes]
	moved := v[DRAMBytes]
	switch {
	case !asked || moved <= 0:
		return ""
	case work <= 0:
		return fmt.Sprintf("DRAM moves %.0f bytes; kernel.toml declares no [work] bytes to compare them with", moved)
	case moved < 1.25*work:
		return ""
	}
	return fmt.Sprintf("DRAM moves %.2f times the bytes of [work]: inputs are loaded again, sectors are used in part, or registers spill", moved/work)
}

// latencyBound applies if issue slots are mostly empty and no unit is busy: warps wait, and too few
// other warps are ready.
func latencyBound(v Values) string {
	issue, ok := v[IssueBusy]
	if !ok || issue >= idle {
		return ""
	}
	highest := 0.0
	for _, unit := range []string{TensorBusy, DRAMBusy, L2Busy, L1Busy, SMBusy, ALUBusy, FMABusy, XUBusy} {
		highest = max(highest, v[unit])
	}
	if highest >= idle {
		return ""
	}
	return fmt.Sprintf("issue slots are empty in %.0f %% of the active cycles and no unit is above %d %% (the highest is at %.0f %%)", 100-issue, idle, highest)
}

// A multiprocessor has 65536 registers from sm_70 on. They are allocated per warp, in steps of 8
// registers per lane.
const registerFile, registerStep, lanes = 65536, 8, 32

// fewWarps applies if the occupancy is below a quarter.
func fewWarps(v Values) string {
	occupancy, ok := v[Occupancy]
	if !ok || occupancy >= 25 {
		return ""
	}
	text := fmt.Sprintf("the occupancy is %.0f %% of the warps that a multiprocessor can run", occupancy)
	if registers := int(v[Registers]); registers > 0 {
		warps := registerFile / ((registers + registerStep - 1) / registerStep * registerStep * lanes)
		text += fmt.Sprintf("; %d registers per thread allow %d warps", registers, warps)
	}
	return text
}

// bankConflicts applies if conflicts cause at least a tenth of the wavefronts of shared memory.
func bankConflicts(v Values) string {
	conflicts, all := v[LoadConflicts]+v[storeConflicts]+v[copyConflicts], v[wavefronts]
	if all == 0 || conflicts/all < 0.1 {
		return ""
	}
	return fmt.Sprintf("bank conflicts cause %.0f of the %.0f wavefronts of shared memory", conflicts, all)
}

// stalled applies if the reason is at least a quarter of the time between two instructions of a
// warp.
func stalled(reason, text string) func(Values) string {
	return func(v Values) string {
		total, cycles := v[latency], v[stallPrefix+reason]
		if total == 0 || cycles/total < 0.25 {
			return ""
		}
		return fmt.Sprintf("%.1f of the %.1f cycles between two instructions of a warp are spent %s", cycles, total, text)
	}
}
