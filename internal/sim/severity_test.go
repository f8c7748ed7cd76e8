package sim

import (
	"testing"

	"attune/internal/sim/finding"
)

// TestSeverities checks which findings are strict: undefined in PTX, and right on hardware.
func TestSeverities(t *testing.T) {
	t.Parallel()
	check := func(name, declarations, body string, kind finding.Kind, want finding.Severity) {
		t.Helper()
		g := setup{text: kernelWith(declarations, body+"\n\tret;"), threads: 128, arch: "sm_90a", writtenBefore: true, in: make([]uint32, 64)}
		got := simulate(t, g)
		if len(got.findings) == 0 {
			t.Errorf("%s: no findings", name)
		}
		for _, f := range got.findings {
			if f.Kind != kind || f.Severity != want {
				t.Errorf("%s: %s finding %v; want %s, %s", name, f.Severity, f, want, kind)
			}
		}
	}
	const (
		barrier = ".shared .align 8 .b8 b[16];"
		init    = "setp.ne.u32 %p1, %r0, 0;\n @%p1 bra END;\n mov.u32 %r2, b;\n mbarrier.init.shared.b64 [%r2], 2;\n"
		arrive  = "mbarrier.arrive.shared.b64 %rd5, [%r2];\n"
		again   = "mbarrier.init.shared.b64 [%r2], 2;\n"
		store   = "st.shared.u32 [%r2+4], %r0;\n"
		end     = "END:\n"
	)
	check("an mbarrier initialised again", barrier, init+again+end, finding.BadBarrier, finding.Strict)
	check("an mbarrier initialised again after a phase", barrier, init+arrive+arrive+again+arrive+end, finding.BadBarrier, finding.Strict)
	check("an mbarrier initialised again in a phase", barrier, init+arrive+again+end, finding.BadBarrier, finding.Error)
	check("the bytes of an mbarrier overwritten", barrier, init+arrive+arrive+store+"ld.shared.u32 %r1, [%r2+4];\n st.global.u32 [%rd31], %r1;\n"+end, finding.BadBarrier, finding.Strict)
	check("the bytes of an mbarrier overwritten in a phase", barrier, init+arrive+store+end, finding.BadBarrier, finding.Error)
	check("the bytes of an mbarrier read", barrier, init+arrive+"ld.shared.u32 %r1, [%r2+4];\n st.global.u32 [%rd31], %r1;\n"+end, finding.BadBarrier, finding.Strict)
	check("the bytes of an mbarrier read while another warp polls", pollShared, pollReady+pollLoad+pollWait+"ld.shared.u32 %r1, [%r11];\n st.global.u32 [%rd31], %r1;\n",
		finding.BadBarrier, finding.Strict)
	check("two mbarriers overwritten", barrier, init+"mbarrier.init.shared.b64 [%r2+8], 1;\n mov.u64 %rd5, 0;\n st.shared.v2.u64 [%r2], {%rd5, %rd5};\n"+end, finding.BadBarrier, finding.Strict)
	check("no wgmma.fence", productShared, productReady+product+groupCommit+groupWait+result, finding.MissingFence, finding.Strict)
	const local = ".local .align 16 .b8 l[16];\n"
	check("an unused load", "", local+"st.local.u32 [l], 1;\n ld.local.u32 %r2, [l+4];\n", finding.Uninitialized, finding.Strict)
	check("an unused part of a load", "", local+"st.local.u32 [l], 1;\n ld.local.v2.u32 {%r2, _}, [l];\n st.global.u32 [%rd31], %r2;\n", finding.Uninitialized, finding.Strict)
	check("a used load", "", local+"ld.local.u32 %r2, [l+4];\n st.global.u32 [%rd31], %r2;\n", finding.Uninitialized, finding.Error)

	// What was an mbarrier until it was overwritten is none any more.
	g := setup{text: kernelWith(barrier, init+store+arrive+end+"ret;"), threads: 32, arch: "sm_90a"}
	if got := simulate(t, g); len(got.findings) != 2 || got.findings[0].Severity != finding.Strict || got.findings[1].Severity != finding.Error {
		t.Errorf("an mbarrier used after it was overwritten: %v", got.findings)
	}
}
