package sim

import (
	"math"
	"strings"
	"testing"

	"attune/internal/finding"
)

// TestReleaseByOneLane has one lane of each warp of a warpgroup release a buffer that products have
// read, and a thread of another warp overwrite the buffer. After the wait that is enough, because
// all lanes have waited. Before the wait it is too early. One lane cannot release what other lanes
// have read with ordinary loads.
func TestReleaseByOneLane(t *testing.T) {
	t.Parallel()
	const (
		barrier = ".shared .align 8 .u64 b;"
		ready   = "setp.eq.u32 %p3, %r0, 0;\n @%p3 mbarrier.init.shared.b64 [b], 4;\n setp.ge.u32 %p6, %r0, 128;\n" +
			"mov.u32 %r10, s;\n @%p6 bra PRODUCER;\n" + productOnes +
			"fence.proxy.async.shared::cta;\n bar.sync 0;\n" + productZero + groupFence + product + groupCommit
		oneLane = "and.b32 %r16, %r0, 31;\n setp.eq.u32 %p4, %r16, 0;\n @%p4 mbarrier.arrive.shared.b64 _, [b];\n"
		// Thread 128 waits for the four warps and overwrites B, which all have read.
		overwrite = result + "bra END;\nPRODUCER:\n bar.sync 0;\n setp.ne.u32 %p3, %r0, 128;\n @%p3 bra END;\n" +
			"SPIN:\n mbarrier.try_wait.parity.shared.b64 %p5, [b], 0;\n @!%p5 bra SPIN;\n" +
			"st.shared.v4.u32 [%r10+2048], {%r0,%r0,%r0,%r0};\nEND:\n"
	)
	right := ready + groupWait + oneLane + overwrite
	defect{
		name: "reads of other lanes", kind: finding.Race, declarations: productShared + barrier, setup: setup{threads: 160, arch: "sm_90a"},
		wrong: ready + groupWait + "ld.shared.u32 %r17, [%r10+2048];\n" + oneLane + overwrite, right: right, at: "*", with: "*",
	}.check(t)
	checkEarly(t, "before the wait", setup{text: kernelWith(productShared+barrier, ready+oneLane+groupWait+overwrite+"ret;"), threads: 160, arch: "sm_90a"})
}

// checkEarly requires that an operand is found to be overwritten too early. It depends on the
// schedule whether the product is still in flight.
func checkEarly(t *testing.T, name string, g setup) {
	t.Helper()
	for g.seed = range uint64(6) {
		got := simulate(t, g)
		if len(got.findings) == 0 {
			t.Errorf("%s, seed %d: no findings", name, g.seed)
		}
		for _, f := range got.findings {
			if f.Kind != finding.Race && f.Kind != finding.MissingWait {
				t.Errorf("%s, seed %d: findings %v", name, g.seed, f)
			}
		}
	}
}

// TestReleaseByOneWarp has one warp of a warpgroup overwrite the operands after its own wait. On an
// H200 the four warps start a product together, so the wait of one ends the reads of all four. The
// other warps, which may wait much later, get the same result.
func TestReleaseByOneWarp(t *testing.T) {
	t.Parallel()
	const (
		begin = productReady + groupFence + product + product + groupCommit
		// Both are whole B. Each is 16 lanes.
		byWarp0 = "setp.lt.u32 %p2, %r0, 16;\n @%p2 st.shared.v4.u32 [%r11+2048], {%r0,%r0,%r0,%r0};\n"
		byWarp3 = "setp.ge.u32 %p2, %r0, 112;\n @%p2 st.shared.v4.u32 [%r11+256], {%r0,%r0,%r0,%r0};\n"
		// The other warps wait after the store, whatever the schedule.
		behind0 = "setp.ge.u32 %p7, %r0, 32;\n @%p7 bar.sync 1;\n" + groupWait + byWarp0 + "@!%p7 bar.sync 1;\n"
	)
	all := each(128, func(uint32) uint32 { return math.Float32bits(128) })
	for name, body := range map[string]string{
		"B by warp 0":              begin + groupWait + byWarp0 + result,
		"B by warp 3":              begin + groupWait + byWarp3 + result,
		"B before the other waits": begin + behind0 + result,
		"B with a group in flight": productReady + groupFence + product + groupCommit + product + groupCommit + otherResult + groupCommit +
			"wgmma.wait_group.sync.aligned 1;\n" + result + groupWait + byWarp0,
		"a sum over two waits": productReady + groupFence + product + groupCommit + "wgmma.wait_group.sync.aligned 0;\n" + groupFence +
			product + groupCommit + behind0 + result,
	} {
		g := setup{text: kernelWith(productShared, body+"ret;"), threads: 128, arch: "sm_90a"}
		schedules(t, name, g, all)
		g.unchecked = true
		schedules(t, name+", unchecked", g, all)
	}
	checkEarly(t, "before any wait", setup{text: kernelWith(productShared, begin+"bar.sync 0;\n"+byWarp0+groupWait+"ret;"), threads: 128, arch: "sm_90a"})
}

// TestProductSeesItsWarpgroup has each warp copy a part of the operands and start the product after
// its own wait, without a barrier. The warps start together, so the product sees all parts. Without
// a proxy fence that is a strict finding: NVIDIA's own kernels have none after cp.async.
func TestProductSeesItsWarpgroup(t *testing.T) {
	t.Parallel()
	body := func(fence, wait string) string {
		copied := strings.NewReplacer(
			"st.shared.v4.u32 [%r11], {%r12,%r12,%r12,%r12};", "cp.async.cg.shared.global [%r11], [%rd1], 16;",
			"@%p1 st.shared.v4.u32 [%r11+2048], {%r12,%r12,%r12,%r12};", "@%p1 cp.async.cg.shared.global [%r11+2048], [%rd1], 16;").Replace(productOnes)
		return copied + wait + fence + productZero + groupFence + product + groupCommit + groupWait + result
	}
	const fence, wait = "fence.proxy.async;\n", "cp.async.wait_all;\n"
	ones := []uint32{0x38383838, 0x38383838, 0x38383838, 0x38383838}
	g := setup{text: kernelWith(productShared, body(fence, wait)+"ret;"), threads: 128, arch: "sm_90a", in: ones}
	schedules(t, "with a fence", g, each(128, func(uint32) uint32 { return math.Float32bits(64) }))
	g.text = kernelWith(productShared, body("", wait)+"ret;")
	for g.seed = range uint64(4) {
		got := simulate(t, g)
		if len(got.findings) == 0 || got.out[127] != math.Float32bits(64) {
			t.Errorf("without a fence, seed %d: %v, output %#x", g.seed, got.findings, got.out[127])
		}
		for _, f := range got.findings {
			if f.Kind != finding.MissingFence || f.Severity != finding.Strict {
				t.Errorf("without a fence, seed %d: %s finding %v", g.seed, f.Severity, f)
			}
		}
	}
	g.text = kernelWith(productShared, body(fence, "")+wait+"ret;")
	if got := simulate(t, g); !strings.Contains(got.kinds(), string(finding.MissingWait)) && !strings.Contains(got.kinds(), string(finding.Race)) {
		t.Errorf("without a wait: %v", got.findings)
	}
}
