package profile

import (
	"fmt"
	"math"
)

// Insight is a sentence about a launch.
type Insight struct {
	Rule  string   `json:"rule"`
	Text  string   `json:"text"`            // cause and next step together
	Knobs []string `json:"knobs,omitempty"` // that affect it

	Cause string `json:"cause,omitempty"` // what was counted
	Next  string `json:"next,omitempty"`  // what to do about it
	// Gain is the largest speedup that the next step can give by the figures, if it removed the cause and
	// nothing else became the limit. It is nil where the figures do not bound it.
	Gain   *float64 `json:"gain_at_most,omitempty"`
	Effort Effort   `json:"effort,omitempty"` // without a knob for it
}

// Effort is a rough size of the work for a next step: a knob or a setting, a change of a loop, a new
// form of the kernel.
type Effort string

// The efforts.
const (
	Small  Effort = "small"
	Medium Effort = "medium"
	Large  Effort = "large"
)

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
		insight := Insight{Rule: r.name, Text: fact, Knobs: hint.Knobs, Cause: fact, Next: hint.Text, Effort: r.effort, Gain: r.bound(v)}
		if hint.Text != "" {
			insight.Text += ": " + hint.Text
		}
		all = append(all, insight)
	}
	return all
}

// rule explains one kind of limit. explain returns an empty text if the rule does not apply, or if
// a figure that it needs was not measured. advice says what to do about any kernel.
//
// gain is the largest speedup by the figures, and effort the size of the work without a knob for it.
type rule struct {
	name    string
	explain func(v Values) string
	advice  string
	gain    func(v Values) float64 // nil if no figure bounds it
	effort  Effort
}

// bound is the gain of a rule, nil if it is unknown or none.
func (r *rule) bound(v Values) *float64 {
	if r.gain == nil {
		return nil
	}
	gain := r.gain(v)
	if !(gain > 1) || math.IsInf(gain, 1) {
		return nil
	}
	return &gain
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
		idleShare(DRAMBusy), Large,
	},
	{
		"excess-traffic", excessTraffic, "",
		trafficShare, Medium,
	},
	{
		"tensor-bound", above(TensorBusy, busy, "the tensor pipe is busy in %.0f %% of the active cycles"),
		"only a faster number format or less work would help",
		idleShare(TensorBusy), Large,
	},
	{
		"cache-bound", above(L2Busy, busy, "L2 is at %.0f %% of its peak"),
		"reuse more of what is loaded in shared memory or registers; larger tiles read less",
		idleShare(L2Busy), Medium,
	},
	{
		"l1-bound", above(L1Busy, busy, "L1 and shared memory are at %.0f %% of their peak"),
		"keep more values in registers, and use wider accesses without bank conflicts",
		idleShare(L1Busy), Medium,
	},
	{
		"integer-bound", above(ALUBusy, busy, "the ALU pipe is at %.0f %% of its peak"),
		"it computes integers, comparisons, selections and addresses; unrolling and simpler indices need fewer of them",
		idleShare(ALUBusy), Medium,
	},
	{
		"fma-bound", above(FMABusy, busy, "the FMA pipe is at %.0f %% of its peak"),
		"packed half precision needs fewer instructions; matrix products belong on the tensor cores",
		idleShare(FMABusy), Large,
	},
	{
		"exponential-bound", above(XUBusy, busy, "the XU pipe is at %.0f %% of its peak"),
		"it computes exponentials, roots, quotients and conversions of types; fewer of them, or polynomials on the FMA pipe, would help",
		idleShare(XUBusy), Medium,
	},
	{
		"lsu-bound", above(LSUBusy, busy, "the LSU pipe is at %.0f %% of its peak"),
		"wider loads and stores (128 bits a thread) need fewer instructions",
		idleShare(LSUBusy), Medium,
	},
	{
		"issue-bound", above(IssueBusy, issueBusy, "issue slots are taken in %.0f %% of the active cycles"),
		"the kernel executes too many instructions; wider accesses, packed arithmetic and less index arithmetic need fewer",
		idleShare(IssueBusy), Medium,
	},
	{
		"latency-bound", latencyBound, "warps wait for results; more warps or shorter dependency chains would help",
		busiestShare, Medium,
	},
	{
		"small-grid", below(Waves, 1, "the grid is %.2f waves of blocks, less than the chip can run at once"),
		"less work per block makes more blocks; larger problems fill it",
		waveShare, Medium,
	},
	{
		"few-warps", fewWarps, "fewer registers per thread, less shared memory per block or larger blocks allow more",
		nil, Medium,
	},
	{
		"bank-conflicts", bankConflicts, "pad or swizzle the rows, so that the lanes of a warp access different banks",
		conflictShare, Small,
	},
	{
		"uncoalesced-loads", below(LoadUse, 24, "loads use %.1f of the 32 bytes of a sector"),
		"neighbouring lanes should read neighbouring bytes",
		nil, Medium,
	},
	{
		"uncoalesced-stores", below(StoreUse, 24, "stores use %.1f of the 32 bytes of a sector"),
		"stage the output in shared memory, or use wider stores",
		nil, Medium,
	},
	{
		"waits-for-memory", stalled("long_scoreboard", "waiting for global memory"),
		"issue loads earlier, or have more of them in flight",
		stallShare("long_scoreboard"), Medium,
	},
	{
		"waits-for-shared-memory", stalled("short_scoreboard", "waiting for shared memory or exponentials"),
		"more independent instructions between the access and its use would hide the latency",
		stallShare("short_scoreboard"), Medium,
	},
	{
		"waits-for-barriers", stalled("barrier", "waiting at barriers"), "use fewer barriers, or fewer warps at each",
		stallShare("barrier"), Medium,
	},
	{
		"waits-for-arithmetic", stalled("wait", "waiting for the previous instruction"),
		"more warps or more independent instructions would hide the latency",
		stallShare("wait"), Medium,
	},
	{
		"waits-for-a-pipe", stalled("math_pipe_throttle", "waiting for a busy arithmetic pipe"), "",
		stallShare("math_pipe_throttle"), Medium,
	},
	{
		"waits-for-shared-queue", stalled("mio_throttle", "waiting for the instruction queue of shared memory"),
		"wider accesses need fewer instructions",
		stallShare("mio_throttle"), Small,
	},
	{
		"waits-for-global-queue", stalled("lg_throttle", "waiting for the instruction queue of global memory"),
		"wider accesses need fewer instructions",
		stallShare("lg_throttle"), Small,
	},
	{
		"waits-for-warpgroup", stalled("gmma", "waiting for wgmma"), "keep one in flight",
		stallShare("gmma"), Medium,
	},
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
	highest := busiest(v)
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

// busiest is the share of its peak that the busiest unit has, in percent.
func busiest(v Values) float64 {
	highest := 0.0
	for _, unit := range []string{TensorBusy, DRAMBusy, L2Busy, L1Busy, SMBusy, ALUBusy, FMABusy, XUBusy} {
		highest = max(highest, v[unit])
	}
	return highest
}

// idleShare is the speedup up to the peak of a unit, from its share in percent.
func idleShare(unit string) func(Values) float64 {
	return func(v Values) float64 { return 100 / v[unit] }
}

// busiestShare is the speedup up to the peak of the busiest unit.
func busiestShare(v Values) float64 { return 100 / busiest(v) }

// waveShare is the speedup if blocks filled the chip once.
func waveShare(v Values) float64 { return 1 / v[Waves] }

// trafficShare is the speedup of a kernel that DRAM limits, if it moved the bytes of [work] only.
func trafficShare(v Values) float64 {
	if v[DRAMBusy] < busy {
		return 1
	}
	return v[DRAMBytes] / v[WorkBytes]
}

// conflictShare is the speedup of a kernel that shared memory limits, without conflicts.
func conflictShare(v Values) float64 {
	if v[L1Busy] < busy {
		return 1
	}
	conflicts, all := v[LoadConflicts]+v[storeConflicts]+v[copyConflicts], v[wavefronts]
	return all / (all - conflicts)
}

// stallShare is the speedup of each warp without one kind of stall.
func stallShare(reason string) func(Values) float64 {
	return func(v Values) float64 { return v[latency] / (v[latency] - v[stallPrefix+reason]) }
}
