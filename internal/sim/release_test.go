package sim

import (
	"testing"

	"attune/internal/sim/finding"
)

// TestProductsToldByOneLane: one lane of each warp gives a buffer back that products have read. Behind the wait that is enough, because all lanes
// have waited; before the wait it is too early, and of what the lanes have read by themselves one of them cannot tell.
func TestProductsToldByOneLane(t *testing.T) {
	t.Parallel()
	const (
		barrier = ".shared .align 8 .u64 b;"
		first   = "setp.eq.u32 %p3, %r0, 0;\n @%p3 mbarrier.init.shared.b64 [b], 4;\n bar.sync 0;\n"
		oneLane = "and.b32 %r16, %r0, 31;\n setp.eq.u32 %p4, %r16, 0;\n @%p4 mbarrier.arrive.shared.b64 _, [b];\n"
		// Thread 0 waits for the four warps and writes over B, which all have read.
		overwrite = "@!%p3 bra END;\nSPIN:\n mbarrier.try_wait.parity.shared.b64 %p5, [b], 0;\n @!%p5 bra SPIN;\n" +
			"st.shared.v4.u32 [%r10+2048], {%r12,%r12,%r12,%r12};\nEND:\n"
	)
	begin := first + productReady + groupFence + product + groupCommit
	right := begin + groupWait + oneLane + overwrite + result
	defect{
		name: "of its own reads", kind: finding.Race, declarations: productShared + barrier, given: given{threads: 128, arch: "sm_90a"},
		wrong: begin + groupWait + "ld.shared.u32 %r17, [%r10+2048];\n" + oneLane + overwrite + result, right: right, at: "*", with: "*",
	}.check(t)
	// By then the product may be under way or not, as the schedule will have it.
	early := kernelWith(productShared+barrier, begin+oneLane+groupWait+overwrite+result+"ret;")
	for seed := range uint64(6) {
		got := simulate(t, given{text: early, threads: 128, arch: "sm_90a", seed: seed})
		if len(got.findings) == 0 {
			t.Errorf("before the wait, seed %d: it finds nothing", seed)
		}
		for _, f := range got.findings {
			if f.Kind != finding.Race && f.Kind != finding.MissingWait {
				t.Errorf("before the wait, seed %d: it finds %v", seed, f)
			}
		}
	}
}
