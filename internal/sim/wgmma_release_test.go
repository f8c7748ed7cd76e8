package sim

import (
	"testing"

	"attune/internal/sim/finding"
)

// TestReleaseByOneLane has one lane of each warp release a buffer that products have read. After
// the wait that is enough, because all lanes have waited. Before the wait it is too early. One lane
// cannot release what other lanes have read with ordinary loads.
func TestReleaseByOneLane(t *testing.T) {
	t.Parallel()
	const (
		barrier = ".shared .align 8 .u64 b;"
		first   = "setp.eq.u32 %p3, %r0, 0;\n @%p3 mbarrier.init.shared.b64 [b], 4;\n bar.sync 0;\n"
		oneLane = "and.b32 %r16, %r0, 31;\n setp.eq.u32 %p4, %r16, 0;\n @%p4 mbarrier.arrive.shared.b64 _, [b];\n"
		// Thread 0 waits for the four warps and overwrites B, which all have read.
		overwrite = "@!%p3 bra END;\nSPIN:\n mbarrier.try_wait.parity.shared.b64 %p5, [b], 0;\n @!%p5 bra SPIN;\n" +
			"st.shared.v4.u32 [%r10+2048], {%r12,%r12,%r12,%r12};\nEND:\n"
	)
	begin := first + productReady + groupFence + product + groupCommit
	right := begin + groupWait + oneLane + overwrite + result
	defect{
		name: "reads of other lanes", kind: finding.Race, declarations: productShared + barrier, setup: setup{threads: 128, arch: "sm_90a"},
		wrong: begin + groupWait + "ld.shared.u32 %r17, [%r10+2048];\n" + oneLane + overwrite + result, right: right, at: "*", with: "*",
	}.check(t)
	// It depends on the schedule whether the product is still in flight.
	early := kernelWith(productShared+barrier, begin+oneLane+groupWait+overwrite+result+"ret;")
	for seed := range uint64(6) {
		got := simulate(t, setup{text: early, threads: 128, arch: "sm_90a", seed: seed})
		if len(got.findings) == 0 {
			t.Errorf("before the wait, seed %d: no findings", seed)
		}
		for _, f := range got.findings {
			if f.Kind != finding.Race && f.Kind != finding.MissingWait {
				t.Errorf("before the wait, seed %d: findings %v", seed, f)
			}
		}
	}
}
