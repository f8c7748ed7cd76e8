package profile

import "fmt"

// Insight is a sentence about a launch.
type Insight struct {
	Rule  string   `json:"rule"`
	Text  string   `json:"text"`
	Knobs []string `json:"knobs,omitempty"` // that affect it
}

// Explain describes what limits a launch: one insight for each rule that applies, the most
// important first. It lists only knobs that the kernel has.
func Explain(v Values, has func(knob string) bool) []Insight {
	var all []Insight
	for _, r := range rules {
		text := r.explain(v)
		if text == "" {
			continue
		}
		i := Insight{Rule: r.name, Text: text}
		for _, knob := range r.knobs {
			if has(knob) {
				i.Knobs = append(i.Knobs, knob)
			}
		}
		all = append(all, i)
	}
	return all
}

// rule explains one kind of limit. explain returns an empty text if the rule does not apply, or if
// a figure that it needs was not measured.
type rule struct {
	name    string
	knobs   []string
	explain func(v Values) string
}

// A unit is busy from this share of its peak on, and idle below the other, in percent.
const (
	busy = 60
	idle = 40
)

var rules = []rule{
	{"memory-bound", []string{"TILE_M", "USE_FP8_MMA"}, above(DRAMBusy, busy,
		"DRAM is at %.0f %% of its peak: reduce the bytes, for example with more query rows per byte of K and V")},
	{"tensor-bound", []string{"USE_FP8_MMA"}, above(TensorBusy, busy,
		"the tensor pipe is busy in %.0f %% of the active cycles: only a faster number format would help")},
	{"cache-bound", []string{"TILE_M", "USE_CP_ASYNC"}, above(L2Busy, busy,
		"L2 is at %.0f %% of its peak: K and V are read once per tile of query rows, so larger tiles read less")},
	{"l1-bound", []string{"USE_XOR_SWIZZLE", "USE_FUSED_SOFTMAX", "USE_KV_LUT"}, above(L1Busy, busy,
		"L1 and shared memory are at %.0f %% of their peak: keep more values in registers")},
	{"integer-bound", []string{"USE_KV_LUT", "USE_FP8_MMA", "TILE_M"}, above(ALUBusy, busy,
		"the ALU pipe is at %.0f %% of its peak: it decodes E4M3 and computes addresses")},
	{"fma-bound", []string{"USE_WMMA_QK", "USE_WMMA_PV", "USE_FAST_EXP"}, above(FMABusy, busy,
		"the FMA pipe is at %.0f %% of its peak: matrix products belong on the tensor cores")},
	{"exponential-bound", []string{"USE_FAST_EXP"}, above(XUBusy, busy,
		"the XU pipe is at %.0f %% of its peak: it computes exponentials and conversions")},
	{"latency-bound", []string{"NUM_WARPS", "KEY_WARPS", "TILE_M"}, latencyBound},
	{"small-grid", []string{"TILE_M", "KEY_WARPS"}, below(Waves, 1,
		"the grid is %.2f waves of blocks, less than the chip can run at once: smaller tiles make more blocks; larger problems fill it")},
	{"few-warps", []string{"TILE_M", "TILE_N", "NUM_WARPS"}, fewWarps},
	{"bank-conflicts", []string{"USE_XOR_SWIZZLE"}, bankConflicts},
	{"uncoalesced-loads", []string{"USE_CP_ASYNC"}, below(LoadUse, 24,
		"loads use %.1f of the 32 bytes of a sector: neighbouring lanes should read neighbouring bytes")},
	{"uncoalesced-stores", nil, below(StoreUse, 24,
		"stores use %.1f of the 32 bytes of a sector: stage the output in shared memory, or use wider stores")},
	{"waits-for-memory", []string{"USE_CP_ASYNC", "USE_THREE_STAGE_PIPE", "USE_WARP_SPECIALIZATION"}, stalled("long_scoreboard",
		"waiting for global memory: issue the loads of tiles earlier")},
	{"waits-for-shared-memory", []string{"USE_FUSED_SOFTMAX", "USE_KV_LUT", "USE_FAST_EXP"}, stalled("short_scoreboard",
		"waiting for shared memory or exponentials")},
	{"waits-for-barriers", []string{"NUM_WARPS", "TILE_N", "USE_WARP_SPECIALIZATION"}, stalled("barrier",
		"waiting at barriers: use fewer barriers, or fewer warps at each")},
	{"waits-for-arithmetic", []string{"NUM_WARPS"}, stalled("wait",
		"waiting for the previous instruction: more warps or more independent instructions would hide the latency")},
	{"waits-for-a-pipe", []string{"USE_FP8_MMA", "USE_FAST_EXP"}, stalled("math_pipe_throttle",
		"waiting for a busy arithmetic pipe")},
	{"waits-for-shared-queue", []string{"USE_XOR_SWIZZLE", "USE_FUSED_SOFTMAX"}, stalled("mio_throttle",
		"waiting for the instruction queue of shared memory: wider accesses need fewer instructions")},
	{"waits-for-global-queue", []string{"USE_CP_ASYNC"}, stalled("lg_throttle",
		"waiting for the instruction queue of global memory: wider accesses need fewer instructions")},
	{"waits-for-warpgroup", []string{"NUM_WARPS"}, stalled("gmma",
		"waiting for wgmma: keep one in flight")},
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
	return fmt.Sprintf("issue slots are empty in %.0f %% of the active cycles and no unit is above %d %% (the highest is at %.0f %%): "+
		"warps wait for results; more warps or shorter dependency chains would help", 100-issue, idle, highest)
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
