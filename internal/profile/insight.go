package profile

import "fmt"

// Insight is a sentence about a launch.
type Insight struct {
	Rule  string   `json:"rule"`
	Text  string   `json:"text"`
	Knobs []string `json:"knobs,omitempty"` // that bear on it
}

// Explain says what limits a launch, by every rule that holds, the weightiest first. Of the knobs only those are named that the kernel has.
func Explain(v Values, has func(knob string) bool) []Insight {
	var all []Insight
	for _, r := range rules {
		text := r.holds(v)
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

// rule says something about a launch, or nothing. Figures that were not measured make no rule hold.
type rule struct {
	name  string
	knobs []string
	holds func(v Values) string
}

// Shares of peak, in percent, from which on a unit is called busy, and below which idle.
const (
	busy = 60
	idle = 40
)

var rules = []rule{
	{"memory-bound", []string{"TILE_M", "USE_FP8_MMA"}, above(DRAMBusy, busy,
		"DRAM is at %.0f %% of its peak: fewer bytes would help, such as more query rows for each byte of K and V")},
	{"tensor-bound", []string{"USE_FP8_MMA"}, above(TensorBusy, busy,
		"the tensor pipe is busy in %.0f %% of the active cycles: what is left is products of a faster format")},
	{"cache-bound", []string{"TILE_M", "USE_CP_ASYNC"}, above(L2Busy, busy,
		"L2 is at %.0f %% of its peak: K and V are read once for each tile of query rows, so that larger tiles read less")},
	{"l1-bound", []string{"USE_XOR_SWIZZLE", "USE_FUSED_SOFTMAX", "USE_KV_LUT"}, above(L1Busy, busy,
		"L1 and shared memory are at %.0f %% of their peak: what stays in registers does not go through them")},
	{"integer-bound", []string{"USE_KV_LUT", "USE_FP8_MMA", "TILE_M"}, above(ALUBusy, busy,
		"the ALU pipe is at %.0f %% of its peak: decoding E4M3 and addresses are its work")},
	{"fma-bound", []string{"USE_WMMA_QK", "USE_WMMA_PV", "USE_FAST_EXP"}, above(FMABusy, busy,
		"the FMA pipe is at %.0f %% of its peak: products belong on the tensor cores")},
	{"exponential-bound", []string{"USE_FAST_EXP"}, above(XUBusy, busy,
		"the XU pipe is at %.0f %% of its peak: exponentials and conversions are its work")},
	{"latency-bound", []string{"NUM_WARPS", "KEY_WARPS", "BLOCKS_PER_SM", "TILE_M"}, latencyBound},
	{"small-grid", []string{"TILE_M", "KEY_WARPS"}, below(Waves, 1,
		"the blocks fill %.2f of the places on the chip: smaller tiles make more of them, and larger problems need no help")},
	{"few-warps", []string{"BLOCKS_PER_SM", "TILE_M", "TILE_N", "NUM_WARPS"}, fewWarps},
	{"bank-conflicts", []string{"USE_XOR_SWIZZLE"}, bankConflicts},
	{"uncoalesced-loads", []string{"USE_CP_ASYNC"}, below(LoadUse, 24,
		"of the 32 bytes of a loaded sector %.1f are used: neighbouring lanes should read neighbouring bytes")},
	{"uncoalesced-stores", nil, below(StoreUse, 24,
		"of the 32 bytes of a stored sector %.1f are used: the output would go faster through shared memory or wider stores")},
	{"waits-for-memory", []string{"USE_CP_ASYNC", "USE_THREE_STAGE_PIPE", "USE_WARP_SPECIALIZATION"}, stalled("long_scoreboard",
		"waiting for global memory: tiles must be asked for earlier")},
	{"waits-for-shared-memory", []string{"USE_FUSED_SOFTMAX", "USE_KV_LUT", "USE_FAST_EXP"}, stalled("short_scoreboard",
		"waiting for shared memory or exponentials")},
	{"waits-for-barriers", []string{"NUM_WARPS", "TILE_N", "USE_WARP_SPECIALIZATION"}, stalled("barrier",
		"waiting at barriers: fewer of them, or fewer warps at each")},
	{"waits-for-arithmetic", []string{"NUM_WARPS", "BLOCKS_PER_SM"}, stalled("wait",
		"waiting for the result of the instruction before: other warps, or other work of the same warp, must fill the gap")},
	{"waits-for-a-pipe", []string{"USE_FP8_MMA", "USE_FAST_EXP"}, stalled("math_pipe_throttle",
		"waiting for an arithmetic pipe that is taken")},
	{"waits-for-shared-queue", []string{"USE_XOR_SWIZZLE", "USE_FUSED_SOFTMAX"}, stalled("mio_throttle",
		"waiting for a place in the queue of shared memory: wider accesses make fewer")},
	{"waits-for-global-queue", []string{"USE_CP_ASYNC"}, stalled("lg_throttle",
		"waiting for a place in the queue of global memory: wider accesses make fewer")},
	{"waits-for-warpgroup", []string{"NUM_WARPS"}, stalled("gmma",
		"waiting for products of a warpgroup: keep one in flight")},
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

// latencyBound holds where issue slots are mostly empty and no unit is busy: warps wait, and too few others are there to run meanwhile.
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
	return fmt.Sprintf("issue slots are empty in %.0f %% of the active cycles and no unit is above %d %% (the highest is at %.0f %%): warps wait for each other's "+
		"and their own results, and more of them, or shorter chains, would help", 100-issue, idle, highest)
}

// registerFile is the number of registers of a multiprocessor, from sm_70 on; a warp gets them for each lane in steps of 8.
const registerFile, registerStep, lanes = 65536, 8, 32

// fewWarps holds where the chip could have four times the warps.
func fewWarps(v Values) string {
	occupancy, ok := v[Occupancy]
	if !ok || occupancy >= 25 {
		return ""
	}
	text := fmt.Sprintf("%.0f %% of the warps that a multiprocessor can hold are there", occupancy)
	if registers := int(v[Registers]); registers > 0 {
		room := registerFile / ((registers + registerStep - 1) / registerStep * registerStep * lanes)
		text += fmt.Sprintf("; %d registers a thread leave room for %d of them", registers, room)
	}
	return text
}

// bankConflicts holds where a tenth of the passes through shared memory are there for conflicts only.
func bankConflicts(v Values) string {
	conflicts, passes := v[LoadConflicts]+v[storeConflicts]+v[copyConflicts], v[wavefronts]
	if passes == 0 || conflicts/passes < 0.1 {
		return ""
	}
	return fmt.Sprintf("%.0f of %.0f passes through shared memory are there for bank conflicts", conflicts, passes)
}

// stalled holds where the reason makes up a quarter of the time between two instructions of a warp.
func stalled(reason, text string) func(Values) string {
	return func(v Values) string {
		total, cycles := v[latency], v[stallPrefix+reason]
		if total == 0 || cycles/total < 0.25 {
			return ""
		}
		return fmt.Sprintf("of %.1f cycles between two instructions of a warp %.1f go by %s", total, cycles, text)
	}
}
