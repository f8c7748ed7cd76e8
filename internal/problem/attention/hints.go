package attention

import "attune/internal/profile"

// Hints are what the insights of a profile advise for kernels of attention, and their knobs.
func (p *Problem) Hints() profile.Hints { return hints }

var hints = profile.Hints{
	"memory-bound": {
		Text:  "reduce the bytes, for example with more query rows per byte of K and V",
		Knobs: []string{"TILE_M", "USE_FP8_MMA"},
	},
	"tensor-bound": {Text: "only a faster number format would help", Knobs: []string{"USE_FP8_MMA"}},
	"cache-bound": {
		Text:  "K and V are read once per tile of query rows, so larger tiles read less",
		Knobs: []string{"TILE_M", "USE_CP_ASYNC"},
	},
	"l1-bound": {
		Text:  "keep more values in registers",
		Knobs: []string{"USE_XOR_SWIZZLE", "USE_FUSED_SOFTMAX", "USE_KV_LUT"},
	},
	"integer-bound": {
		Text:  "it decodes E4M3 and computes addresses",
		Knobs: []string{"USE_KV_LUT", "USE_FP8_MMA", "TILE_M"},
	},
	"fma-bound": {
		Text:  "matrix products belong on the tensor cores",
		Knobs: []string{"USE_WMMA_QK", "USE_WMMA_PV", "USE_FAST_EXP"},
	},
	"exponential-bound": {Text: "it computes exponentials and conversions", Knobs: []string{"USE_FAST_EXP"}},
	"small-grid": {
		Text:  "smaller tiles make more blocks; larger problems fill it",
		Knobs: []string{"TILE_M", "KEY_WARPS"},
	},
	"few-warps":          {Knobs: []string{"TILE_M", "TILE_N", "NUM_WARPS"}},
	"bank-conflicts":     {Knobs: []string{"USE_XOR_SWIZZLE"}},
	"uncoalesced-loads":  {Text: "neighbouring lanes should read neighbouring bytes", Knobs: []string{"USE_CP_ASYNC"}},
	"uncoalesced-stores": {Text: "stage the output in shared memory, or use wider stores"},
	"waits-for-memory": {
		Text:  "issue the loads of tiles earlier",
		Knobs: []string{"USE_CP_ASYNC", "USE_THREE_STAGE_PIPE", "USE_WARP_SPECIALIZATION"},
	},
	"waits-for-shared-memory": {Knobs: []string{"USE_FUSED_SOFTMAX", "USE_KV_LUT", "USE_FAST_EXP"}},
	"waits-for-barriers": {
		Text:  "use fewer barriers, or fewer warps at each",
		Knobs: []string{"NUM_WARPS", "TILE_N", "USE_WARP_SPECIALIZATION"},
	},
	"waits-for-arithmetic": {
		Text:  "more warps or more independent instructions would hide the latency",
		Knobs: []string{"NUM_WARPS"},
	},
	"waits-for-a-pipe": {Knobs: []string{"USE_FP8_MMA", "USE_FAST_EXP"}},
	"waits-for-shared-queue": {
		Text:  "wider accesses need fewer instructions",
		Knobs: []string{"USE_XOR_SWIZZLE", "USE_FUSED_SOFTMAX"},
	},
	"waits-for-global-queue": {Text: "wider accesses need fewer instructions", Knobs: []string{"USE_CP_ASYNC"}},
	"waits-for-warpgroup":    {Text: "keep one in flight", Knobs: []string{"NUM_WARPS"}},
	"latency-bound": {
		Text:  "warps wait for results; more warps or shorter dependency chains would help",
		Knobs: []string{"NUM_WARPS", "KEY_WARPS", "TILE_M"},
	},
}
