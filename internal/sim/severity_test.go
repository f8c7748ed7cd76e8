package sim

import (
	"testing"

	"attune/internal/finding"
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
	check("an mbarrier initialised by every lane", barrier, "setp.gt.u32 %p1, %r0, 31;\n @%p1 bra END;\n mov.u32 %r2, b;\n"+again+end, finding.BadBarrier, finding.Strict)
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

	const words = ".shared .align 4 .b8 s[4];\n"

	// All threads load what thread 0 stores back.
	const (
		loads  = "ld.global.u32 %r2, [%rd0];\n setp.eq.u32 %p1, %r0, 0;\n add.u32 %r2, %r2, 1;\n"
		stores = "@%p1 st.global.u32 [%rd0], %r2;\n"
	)
	check("a racing load whose value thread 0 uses alone", "", loads+stores, finding.Race, finding.Strict)
	const four = "and.b32 %r3, %r0, 3;\n mad.wide.u32 %rd5, %r3, 4, %rd0;\n ld.global.u32 %r2, [%rd5];\n setp.lt.u32 %p1, %r0, 4;\n"
	check("racing loads whose values four threads use", "", four+"@%p1 st.global.u32 [%rd5], %r2;\n", finding.Race, finding.Strict)
	check("a racing load whose value is stored", "", loads+stores+"st.global.u32 [%rd31], %r2;\n", finding.Race, finding.Error)
	check("a racing load whose value is stored to shared memory", words, loads+stores+"mov.u32 %r3, s;\n @!%p1 st.shared.u32 [%r3], %r2;\n",
		finding.Race, finding.Error)
	check("a racing load that decides a branch", "", loads+stores+"setp.gt.u32 %p2, %r2, 9;\n @%p2 bra END;\n membar.gl;\nEND:\n", finding.Race, finding.Error)

	// A warp stores and ends. The others wait at a barrier, or do not, and load.
	const (
		ending = "setp.lt.u32 %p1, %r0, 96;\n @%p1 bra OTHER;\n setp.ne.u32 %p2, %r0, 96;\n @%p2 bra END;\n st.shared.u32 [s], 5;\n bra END;\nOTHER:\n"
		load   = "setp.ne.u32 %p2, %r0, 0;\n @%p2 bra END;\n ld.shared.u32 %r1, [s];\n st.global.u32 [%rd31], %r1;\nEND:\n"
	)
	check("a store of a warp that ends before a barrier", words, ending+"bar.sync 0;\n"+load, finding.Race, finding.Strict)
	check("a store of a warp that ends, and a barrier for others", words, ending+"bar.sync 1, 96;\n"+load, finding.Race, finding.Error)

	// A block ends while a bulk store may still read its shared memory.
	const (
		source = ".shared .align 16 .b8 s[512];\n"
		bulk   = "mov.u32 %r2, s;\n mad.lo.u32 %r3, %r0, 4, %r2;\n st.shared.u32 [%r3], %r0;\n fence.proxy.async;\n bar.sync 0;\n setp.ne.u32 %p1, %r0, 0;\n @%p1 bra END;\n" +
			"cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r2], 512;\n"
	)
	check("a committed store at the end", source, bulk+"cp.async.bulk.commit_group;\n"+end, finding.MissingWait, finding.Strict)
	check("a store that was not committed", source, bulk+end, finding.MissingWait, finding.Error)

	// Lane 0 of warp 0 acquires what warp 1 has released. Lane 1 reads it.
	const (
		shared  = ".shared .align 4 .b8 v[4];\n.shared .align 4 .b8 flag[4];\n"
		acquire = `st.shared.u32 [flag], 0;
	bar.sync 0;
	shr.u32 %r2, %r0, 5;
	setp.gt.u32 %p1, %r2, 1;
	@%p1 bra END;
	setp.eq.u32 %p2, %r2, 1;
	@%p2 bra WRITER;
	setp.ne.u32 %p3, %r0, 0;
	@%p3 bra JOIN;
SPIN:
	ld.acquire.cta.shared.u32 %r3, [flag];
	setp.ne.u32 %p4, %r3, 7;
	@%p4 bra SPIN;
JOIN:
`
		read = `setp.ne.u32 %p5, %r0, 1;
	@%p5 bra END;
	ld.shared.u32 %r1, [v];
	st.global.u32 [%rd31], %r1;
	bra END;
WRITER:
	setp.ne.u32 %p6, %r0, 32;
	@%p6 bra END;
	st.shared.u32 [v], 5;
	st.release.cta.shared.u32 [flag], 7;
END:
`
		shuffle = "shfl.sync.idx.b32 %r4, %r3, 0, 31, -1;\n"
	)
	check("a shuffle after an acquire", shared, acquire+shuffle+read, finding.Race, finding.Strict)
	check("a shuffle of other lanes after an acquire", shared, acquire+"@!%p3 bra SKIP;\n shfl.sync.idx.b32 %r4, %r3, 1, 31, 0xfffffffe;\nSKIP:\n"+read, finding.Race, finding.Error)
	synced := simulate(t, setup{text: kernelWith(shared, acquire+shuffle+"bar.warp.sync -1;\n"+read+"ret;"), threads: 128, writtenBefore: true})
	if len(synced.findings) > 0 {
		t.Errorf("bar.warp.sync after an acquire: %v", synced.findings)
	}

	// What was an mbarrier until it was overwritten is none any more.
	g := setup{text: kernelWith(barrier, init+store+arrive+end+"ret;"), threads: 32, arch: "sm_90a"}
	if got := simulate(t, g); len(got.findings) != 2 || got.findings[0].Severity != finding.Strict || got.findings[1].Severity != finding.Error {
		t.Errorf("an mbarrier used after it was overwritten: %v", got.findings)
	}
}
