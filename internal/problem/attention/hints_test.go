package attention

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"attune/internal/profile"
)

// Insights of attention speak of its tiles and knobs, and of no rule besides these. Package profile
// tests how the text is divided, and the gain.
func TestHints(t *testing.T) {
	v := profile.Values{
		profile.TensorBusy: 71, profile.DRAMBusy: 61, profile.L2Busy: 62, profile.L1Busy: 63, profile.SMBusy: 64, profile.ALUBusy: 65,
		profile.FMABusy: 66, profile.XUBusy: 67, profile.LSUBusy: 68, profile.IssueBusy: 90, profile.Occupancy: 6, profile.Registers: 182,
		profile.Waves: 0.5, profile.LoadConflicts: 20, "shared_store_conflicts": 10, "shared_wavefronts": 100,
		profile.LoadUse: 20.5, profile.StoreUse: 16.5, "cycles_per_instruction": 8,
	}
	for _, reason := range []string{"long_scoreboard", "short_scoreboard", "barrier", "wait", "math_pipe_throttle", "mio_throttle", "lg_throttle", "gmma"} {
		v["stall_"+reason] = 2.5
	}
	p := &Problem{}
	got := profile.Explain(v, p.Hints())
	got = append(got, profile.Explain(profile.Values{profile.IssueBusy: 20, profile.L2Busy: 30}, p.Hints())...)
	want := []profile.Insight{
		{Rule: "memory-bound", Text: "DRAM is at 61 % of its peak: reduce the bytes, for example with more query rows per byte of K and V", Knobs: []string{"TILE_M", "USE_FP8_MMA"}},
		{Rule: "tensor-bound", Text: "the tensor pipe is busy in 71 % of the active cycles: only a faster number format would help", Knobs: []string{"USE_FP8_MMA"}},
		{Rule: "cache-bound", Text: "L2 is at 62 % of its peak: K and V are read once per tile of query rows, so larger tiles read less", Knobs: []string{"TILE_M", "USE_CP_ASYNC"}},
		{Rule: "l1-bound", Text: "L1 and shared memory are at 63 % of their peak: keep more values in registers", Knobs: []string{"USE_XOR_SWIZZLE", "USE_FUSED_SOFTMAX", "USE_KV_LUT"}},
		{Rule: "integer-bound", Text: "the ALU pipe is at 65 % of its peak: it decodes E4M3 and computes addresses", Knobs: []string{"USE_KV_LUT", "USE_FP8_MMA", "TILE_M"}},
		{Rule: "fma-bound", Text: "the FMA pipe is at 66 % of its peak: matrix products belong on the tensor cores", Knobs: []string{"USE_WMMA_QK", "USE_WMMA_PV", "USE_FAST_EXP"}},
		{Rule: "exponential-bound", Text: "the XU pipe is at 67 % of its peak: it computes exponentials and conversions", Knobs: []string{"USE_FAST_EXP"}},
		{Rule: "small-grid", Text: "the grid is 0.50 waves of blocks, less than the chip can run at once: smaller tiles make more blocks; larger problems fill it", Knobs: []string{"TILE_M", "KEY_WARPS"}},
		{Rule: "few-warps", Text: "the occupancy is 6 % of the warps that a multiprocessor can run; 182 registers per thread allow 11 warps", Knobs: []string{"TILE_M", "TILE_N", "NUM_WARPS"}},
		{Rule: "bank-conflicts", Text: "bank conflicts cause 30 of the 100 wavefronts of shared memory", Knobs: []string{"USE_XOR_SWIZZLE"}},
		{Rule: "uncoalesced-loads", Text: "loads use 20.5 of the 32 bytes of a sector: neighbouring lanes should read neighbouring bytes", Knobs: []string{"USE_CP_ASYNC"}},
		{Rule: "uncoalesced-stores", Text: "stores use 16.5 of the 32 bytes of a sector: stage the output in shared memory, or use wider stores"},
		{Rule: "waits-for-memory", Text: "2.5 of the 8.0 cycles between two instructions of a warp are spent waiting for global memory: issue the loads of tiles earlier", Knobs: []string{"USE_CP_ASYNC", "USE_THREE_STAGE_PIPE", "USE_WARP_SPECIALIZATION"}},
		{Rule: "waits-for-shared-memory", Text: "2.5 of the 8.0 cycles between two instructions of a warp are spent waiting for shared memory or exponentials", Knobs: []string{"USE_FUSED_SOFTMAX", "USE_KV_LUT", "USE_FAST_EXP"}},
		{Rule: "waits-for-barriers", Text: "2.5 of the 8.0 cycles between two instructions of a warp are spent waiting at barriers: use fewer barriers, or fewer warps at each", Knobs: []string{"NUM_WARPS", "TILE_N", "USE_WARP_SPECIALIZATION"}},
		{Rule: "waits-for-arithmetic", Text: "2.5 of the 8.0 cycles between two instructions of a warp are spent waiting for the previous instruction: more warps or more independent instructions would hide the latency", Knobs: []string{"NUM_WARPS"}},
		{Rule: "waits-for-a-pipe", Text: "2.5 of the 8.0 cycles between two instructions of a warp are spent waiting for a busy arithmetic pipe", Knobs: []string{"USE_FP8_MMA", "USE_FAST_EXP"}},
		{Rule: "waits-for-shared-queue", Text: "2.5 of the 8.0 cycles between two instructions of a warp are spent waiting for the instruction queue of shared memory: wider accesses need fewer instructions", Knobs: []string{"USE_XOR_SWIZZLE", "USE_FUSED_SOFTMAX"}},
		{Rule: "waits-for-global-queue", Text: "2.5 of the 8.0 cycles between two instructions of a warp are spent waiting for the instruction queue of global memory: wider accesses need fewer instructions", Knobs: []string{"USE_CP_ASYNC"}},
		{Rule: "waits-for-warpgroup", Text: "2.5 of the 8.0 cycles between two instructions of a warp are spent waiting for wgmma: keep one in flight", Knobs: []string{"NUM_WARPS"}},
		{Rule: "latency-bound", Text: "issue slots are empty in 80 % of the active cycles and no unit is above 40 % (the highest is at 30 %): warps wait for results; more warps or shorter dependency chains would help", Knobs: []string{"NUM_WARPS", "KEY_WARPS", "TILE_M"}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(profile.Insight{}, "Cause", "Next", "Gain", "Effort")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(want) != len(p.Hints()) {
		t.Errorf("%d hints; %d of them are tested", len(p.Hints()), len(want))
	}
}
