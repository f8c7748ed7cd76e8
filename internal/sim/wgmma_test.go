package sim

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"attune/internal/finding"
)

// The products of these tests multiply 64x32 by 32x8 ones, so that each adds 32 to every element of
// the result.

const (
	productShared = ".shared .align 128 .b8 s[2304];"
	// productOnes fills A and B with ones, and puts their descriptors into %rd10 and %rd11.
	productOnes = `
	mov.u32 %r10, s;
	mad.lo.u32 %r11, %r0, 16, %r10;
	mov.u32 %r12, 0x38383838;
	st.shared.v4.u32 [%r11], {%r12,%r12,%r12,%r12};
	setp.lt.u32 %p1, %r0, 16;
	@%p1 st.shared.v4.u32 [%r11+2048], {%r12,%r12,%r12,%r12};
	shr.u32 %r13, %r10, 4;
	cvt.u64.u32 %rd10, %r13;
	or.b64 %rd10, %rd10, 0x0000000800400000;
	add.u32 %r13, %r13, 128;
	cvt.u64.u32 %rd11, %r13;
	or.b64 %rd11, %rd11, 0x0000000800080000;
`
	productReady = productOnes + "fence.proxy.async.shared::cta;\n bar.sync 0;\n" + productZero
	productZero  = "mov.f32 %f0, 0f00000000;\n mov.f32 %f1, 0f00000000;\n mov.f32 %f2, 0f00000000;\n mov.f32 %f3, 0f00000000;\n"

	groupFence  = "wgmma.fence.sync.aligned;\n"
	groupCommit = "wgmma.commit_group.sync.aligned;\n"
	groupWait   = "wgmma.wait_group.sync.aligned 0;\n"
	product     = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f0, %f1, %f2, %f3}, %rd10, %rd11, 1, 1, 1;\n"
	productText = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f0, %f1, %f2, %f3}, %rd10, %rd11, 1, 1, 1"
	productA    = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f0, %f1, %f2, %f3}, {%r20, %r21, %r22, %r23}, %rd11, 1, 1, 1;\n"
	otherResult = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f4, %f5, %f6, %f7}, %rd10, %rd11, 0, 1, 1;\n"
	result      = "add.f32 %f8, %f0, %f3;\n mov.b32 %r1, %f8;\n st.global.u32 [%rd31], %r1;\n"
)

func TestWgmma(t *testing.T) {
	t.Parallel()
	check := func(name, body string, want float32) {
		t.Helper()
		g := setup{text: kernelWith(productShared, productReady+groupFence+body+"ret;"), threads: 128, arch: "sm_90a"}
		all := each(128, func(uint32) uint32 { return math.Float32bits(want) })
		schedules(t, name, g, all)
		g.unchecked = true
		schedules(t, name+", unchecked", g, all)
	}
	end := groupCommit + groupWait + result
	check("one product", product+end, 64)
	check("two products into one accumulator", product+product+end, 128)
	check("two groups", product+groupCommit+product+end, 128)
	check("a wait for one of two groups, then for both", product+groupCommit+product+groupCommit+
		"wgmma.wait_group.sync.aligned 1;\n"+groupWait+result, 128)
	check("two results", product+groupCommit+otherResult+groupCommit+"wgmma.wait_group.sync.aligned 1;\n"+result+groupWait, 64)
	check("empty groups", groupCommit+groupCommit+product+groupCommit+groupCommit+"wgmma.wait_group.sync.aligned 1;\n"+result, 64)
	check("scale-d 0", product+strings.Replace(product, "1, 1, 1;", "0, 1, 1;", 1)+end, 64)
	check("scale-d by a predicate", "setp.ne.u32 %p2, %r0, %r0;\n"+product+strings.Replace(product, "1, 1, 1;", "%p2, 1, 1;", 1)+end, 64)
	check("scale-d by a negated predicate", "setp.ne.u32 %p2, %r0, %r0;\n"+product+strings.Replace(product, "1, 1, 1;",
		"!%p2, 1, 1;", 1)+end, 128)
	check("negated", product+product+strings.Replace(product, "1, 1, 1;", "1, 1, -1;", 1)+end, 64)
	check("negated twice", strings.Replace(product, "1, 1, 1;", "1, -1, -1;", 1)+end, 64)
	ones := "mov.u32 %r20, %r12;\n mov.u32 %r21, %r12;\n mov.u32 %r22, %r12;\n mov.u32 %r23, 0;\n" + groupFence
	check("A in registers", ones+productA+end, 32+16)
	check("two products with one A in registers", ones+productA+productA+end, 64+32)
	// Operands may be overwritten after the wait and a barrier, and read again after a fence.
	again := product + groupCommit + groupWait + "bar.sync 0;\n mov.u32 %r14, 0x40404040;\n st.shared.v4.u32 [%r11], {%r14,%r14,%r14,%r14};\n" +
		"fence.proxy.async;\n bar.sync 0;\n"
	check("a second product with new operands", again+product+end, 64+128)
	check("the reader fences", strings.Replace(again, "fence.proxy.async;\n bar.sync 0;\n",
		"bar.sync 0;\n fence.proxy.async;\n", 1)+product+end, 64+128)
	check("every warp overwrites its own rows", product+groupCommit+groupWait+
		"mov.u32 %r14, 0x40404040;\n shr.u32 %r15, %r0, 5;\n and.b32 %r16, %r0, 31;\n"+
		"and.b32 %r17, %r16, 15;\n shr.u32 %r18, %r16, 4;\n mad.lo.u32 %r19, %r15, 256, %r10;\n mad.lo.u32 %r19, %r18, 1024, %r19;\n"+
		"mad.lo.u32 %r19, %r17, 16, %r19;\n st.shared.v4.u32 [%r19], {%r14,%r14,%r14,%r14};\n fence.proxy.async;\n bar.warp.sync -1;\n"+product+end, 64+128)
	// A loop long enough that the warpgroup drops steps.
	check("many steps", "mov.u32 %r2, 0;\nLOOP:\n"+product+groupCommit+groupWait+
		"add.u32 %r2, %r2, 1;\n setp.lt.u32 %p2, %r2, 100;\n @%p2 bra LOOP;\n"+result, 6400)
	check("a uniform branch", "setp.lt.u32 %p2, %r0, 999;\n @!%p2 bra END;\n"+product+end+"END:\n", 64)
	check("setmaxnreg", "setmaxnreg.dec.sync.aligned.u32 40;\n griddepcontrol.wait;\n"+product+end+
		"setmaxnreg.inc.sync.aligned.u32 232;\n", 64)
}

// TestWgmmaCalled executes the fence and the wait in functions.
func TestWgmmaCalled(t *testing.T) {
	t.Parallel()
	functions := productShared + ".func fence()\n{\n" + groupFence + "ret;\n}\n.func finish()\n{\n" + groupCommit + groupWait + "ret;\n}\n"
	g := setup{threads: 128, arch: "sm_90a"}
	g.text = kernelWith(functions, productReady+"call.uni fence, ();\n"+product+"call.uni finish, ();\n"+result+"ret;")
	schedules(t, "called", g, each(128, func(uint32) uint32 { return math.Float32bits(64) }))
}

// TestWgmmaLate checks that a result is not available before the wait, with the checkers or
// without.
func TestWgmmaLate(t *testing.T) {
	t.Parallel()
	for _, unchecked := range []bool{false, true} {
		text := kernelWith(productShared, productReady+groupFence+product+groupCommit+result+groupWait+"ret;")
		got := simulate(t, setup{text: text, threads: 128, arch: "sm_90a", unchecked: unchecked})
		if x := math.Float32frombits(got.out[5]); x == x {
			t.Errorf("unchecked %v: before the wait the result is %v, want NaN", unchecked, x)
		}
		// An operand that is changed before the wait changes the result.
		text = kernelWith(productShared, productReady+groupFence+product+groupCommit+
			"bar.sync 0;\n mov.u32 %r14, 0x40404040;\n st.shared.v4.u32 [%r11], {%r14,%r14,%r14,%r14};\n bar.sync 0;\n"+groupWait+result+"ret;")
		got = simulate(t, setup{text: text, threads: 128, arch: "sm_90a", unchecked: unchecked})
		if x := math.Float32frombits(got.out[5]); x != 128 {
			t.Errorf("unchecked %v: with A changed in flight the result is %v, want 128", unchecked, x)
		}
	}
}

func TestWgmmaDefects(t *testing.T) {
	t.Parallel()
	end := groupCommit + groupWait + result
	good := productReady + groupFence + product + end
	check := func(name string, kind finding.Kind, wrong, right, at, with string, contains ...string) {
		t.Helper()
		defect{
			name: name, kind: kind, declarations: productShared, setup: setup{threads: 128, arch: "sm_90a"},
			wrong: wrong, right: right, at: at, with: with, contains: contains,
		}.check(t)
	}
	without := func(what string) string {
		if strings.Count(good, what) != 1 {
			t.Fatalf("%q occurs %d times", what, strings.Count(good, what))
		}
		return strings.Replace(good, what, "", 1)
	}
	with := func(old, text string) string { return strings.Replace(good, old, text, 1) }

	// Fences.
	const proxy = "fence.proxy.async.shared::cta;\n"
	check("no proxy fence", finding.MissingFence, without(proxy), good, "*", "", "no fence.proxy.async between the two")
	check("a proxy fence for global memory", finding.MissingFence, with(proxy, "fence.proxy.async.global;\n"), with(proxy, "fence.proxy.async;\n"), "*", "")
	check("a proxy fence that is too early", finding.MissingFence, proxy+without(proxy), good, "*", "")
	check("a proxy fence of another warp", finding.MissingFence, with(proxy, "setp.ge.u32 %p2, %r0, 32;\n @%p2 "+proxy),
		with(proxy+" bar.sync 0;\n", "bar.sync 0;\n"+proxy), "*", "", "stored")
	check("a copy that lands after the proxy fence", finding.MissingFence,
		with(proxy, "and.b32 %r15, %r0, 7;\n mad.wide.u32 %rd12, %r15, 16, %rd0;\n cp.async.cg.shared.global [%r11], [%rd12], 16;\n"+
			proxy+"cp.async.wait_all;\n"),
		with(proxy, "and.b32 %r15, %r0, 7;\n mad.wide.u32 %rd12, %r15, 16, %rd0;\n cp.async.cg.shared.global [%r11], [%rd12], 16;\n"+
			"cp.async.wait_all;\n"+proxy), "*", "")
	// The fence counts for every thread that is ordered after it, whatever the synchronisation.
	const flag = ".shared .align 8 .u64 b;\n.shared .align 4 .u32 n;"
	first := "setp.eq.u32 %p3, %r0, 0;\n @%p3 st.shared.u32 [n], 0;\n @%p3 mbarrier.init.shared.b64 [b], 128;\n bar.sync 0;\n"
	for name, sync := range map[string]string{
		"by a flag": "red.release.cta.shared.add.u32 [n], 1;\nSPIN:\n " +
			"ld.acquire.cta.shared.u32 %r2, [n];\n setp.lt.u32 %p3, %r2, 128;\n @%p3 bra SPIN;\n bar.warp.sync -1;\n",
		"by a flag after a fence": "fence.acq_rel.cta;\n red.relaxed.cta.shared.add.u32 [n], 1;\nSPIN:\n ld.relaxed.cta.shared.u32 %r2, [n];\n" +
			"setp.lt.u32 %p3, %r2, 128;\n @%p3 bra SPIN;\n fence.acq_rel.cta;\n bar.warp.sync -1;\n",
		"by an mbarrier": "mbarrier.arrive.shared.b64 %rd5, [b];\nSPIN:\n " +
			"mbarrier.test_wait.shared.b64 %p3, [b], %rd5;\n @!%p3 bra SPIN;\n bar.warp.sync -1;\n",
	} {
		right := first + with(" bar.sync 0;\n", sync)
		defect{
			name: name, kind: finding.MissingFence, declarations: productShared + flag, setup: setup{threads: 128, arch: "sm_90a"},
			wrong: strings.Replace(right, proxy, "", 1), right: right, at: "*",
		}.check(t)
	}
	check("no wgmma.fence", finding.MissingFence, without(groupFence), good, productText, "", "wgmma.fence")
	check("a result that was changed", finding.MissingFence, good+"add.f32 %f2, %f2, %f2;\n"+product+end, good+
		"add.f32 %f2, %f2, %f2;\n"+groupFence+product+end, productText, "")
	check("a result that was read", finding.MissingFence, good+product+end, good+groupFence+product+end, productText, "")
	check("an operand that was changed", finding.MissingFence,
		productReady+zeroed(20, 23)+groupFence+"mov.u32 %r20, %r12;\n"+productA+end, productReady+zeroed(20, 23)+"mov.u32 %r20, %r12;\n"+groupFence+productA+end, "*", "", "wgmma.fence")
	const zeros = "mov.f32 %f0, 0f00000000;\n mov.f32 %f1, %f0;\n mov.f32 %f2, %f1;\n mov.f32 %f3, %f0;\n"
	check("an accumulator set to zero without a fence", finding.MissingFence, good+zeros+product+end, good+groupFence+zeros+product+end, productText, "")
	check("an accumulator set to a variable after the fence", finding.MissingFence, good+groupFence+"mul.f32 %f0, %f3, %f3;\n"+zeros[strings.Index(zeros, "mov.f32 %f1"):]+product+end,
		good+groupFence+zeros+product+end, productText, "")

	// Waits.
	read := "st.global.f32 [%rd31], %f2;\n"
	begun := productReady + groupFence + product + groupCommit
	check("a result that is read", finding.MissingWait, begun+read+groupWait, begun+groupWait+read, "st.global.f32 [%rd31], %f2",
		productText, "wgmma.wait_group")
	check("a result that is written", finding.MissingWait, begun+"mov.f32 %f2, 0f00000000;\n"+groupWait, begun+groupWait+
		"mov.f32 %f2, 0f00000000;\n",
		"mov.f32 %f2, 0f00000000", productText)
	check("a group that was not committed", finding.MissingWait, productReady+groupFence+product+groupWait+read+groupCommit+groupWait,
		begun+groupWait+read,
		"st.global.f32 [%rd31], %f2", productText)
	check("one pending group too many", finding.MissingWait, begun+"wgmma.wait_group.sync.aligned 1;\n"+read+groupWait,
		begun+groupCommit+"wgmma.wait_group.sync.aligned 1;\n"+read+groupWait, "st.global.f32 [%rd31], %f2", productText)
	check("an operand in registers", finding.MissingWait, productReady+zeroed(20, 23)+groupFence+productA+groupCommit+"mov.u32 %r21, 7;\n"+groupWait,
		productReady+zeroed(20, 23)+groupFence+productA+groupCommit+groupWait+"mov.u32 %r21, 7;\n", "mov.u32 %r21, 7", strings.TrimSuffix(productA, ";\n"))
	store := "st.shared.v4.u32 [%r11], {%r12,%r12,%r12,%r12};\n"
	check("an operand in shared memory", finding.MissingWait, begun+"bar.sync 0;\n"+store+"bar.sync 0;\n"+groupWait, begun+groupWait+
		"bar.sync 0;\n"+store, "*", "", "an operand of an asynchronous product that warpgroup 0 ", "started and no thread has waited for")
	// The wait of one warp ends the reads of all four. It does not say that another warp has waited.
	check("an operand that is stored twice", finding.Race, begun+groupWait+store+"st.shared.v4.u32 [%r10+2048], {%r0,%r0,%r0,%r0};\n",
		begun+groupWait+store, "*", "*")
	check("a thread that ends", finding.MissingWait, begun, begun+groupWait, productText, "", "ends while")
	chained := "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f4, %f5, %f6, %f7}, {%f0, %f1, %f2, %f3}, %rd11, 0, 1, 1"
	check("a result as an operand", finding.MissingWait, begun+chained+";\n"+groupCommit+groupWait, begun+groupWait+chained+";\n"+
		groupCommit+groupWait, chained, productText,
		"not as the same accumulator")
	crossed := "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f1, %f0, %f2, %f3}, %rd10, %rd11, 1, 1, 1"
	check("a result in another order", finding.MissingWait, begun+crossed+";\n"+groupCommit+groupWait, begun+groupWait+crossed+";\n"+
		groupCommit+groupWait, crossed, productText)

	// Memory.
	check("past the end", finding.OutOfBounds, with("add.u32 %r13, %r13, 128;", "add.u32 %r13, %r13, 136;"), good, productText, "",
		"past the end")
	check("uninitialised", finding.Uninitialized, without("@%p1 st.shared.v4.u32 [%r11+2048], {%r12,%r12,%r12,%r12};\n"), good,
		productText, "", "was never written")
	// The four warps start a product together, so it sees what each of them has written before. A
	// fifth warp needs a barrier.
	outsider := func(between string) string {
		return "setp.ge.u32 %p6, %r0, 128;\n mov.u32 %r10, s;\n @%p6 st.shared.u32 [%r10+2048], 0;\n @%p6 fence.proxy.async;\n" + between +
			"@%p6 bra END;\n" + strings.Replace(strings.Replace(good, " bar.sync 0;\n", " bar.sync 1, 128;\n", 1), "%p1, %r0, 16;", "%p1, %r0, 0;", 1) + "END:\n"
	}
	shared := strings.Replace(productShared, ";", ";\n", 1)
	fill := func(body string) string {
		return "mad.lo.u32 %r11, %r0, 16, s;\n setp.lt.u32 %p5, %r0, 16;\n mov.u32 %r12, 0;\n @%p5 st.shared.v4.u32 [%r11+2048], {%r12,%r12,%r12,%r12};\n" +
			"fence.proxy.async;\n bar.sync 0;\n" + body
	}
	defect{
		name: "a race", kind: finding.Race, declarations: shared, setup: setup{threads: 160, arch: "sm_90a"},
		wrong: fill(outsider("")), right: fill(outsider("bar.sync 0;\n")), at: "*", with: "*",
	}.check(t)

	// The warpgroup.
	check("three warps", finding.DivergentBarrier, productReady+"setp.ge.u32 %p2, %r0, 96;\n @%p2 bra END;\n"+groupFence+product+
		groupCommit+groupWait+"END:\n", good,
		"*", "", "warp 3 has ended without it")
	check("half a warp", finding.DivergentBarrier, with(groupFence, groupFence+"setp.eq.u32 %p2, %r0, 5;\n @%p2 "+groupFence), good,
		"@%p2 wgmma.fence.sync.aligned", "")
	check("different instructions", finding.DivergentBarrier,
		productReady+groupFence+"setp.ge.u32 %p2, %r0, 32;\n @%p2 bra ELSE;\n"+product+"bra JOIN;\nELSE:\n"+product+"JOIN:\n"+end,
		productReady+groupFence+"setp.ge.u32 %p2, %r0, 128;\n @%p2 bra ELSE;\n"+product+"bra JOIN;\nELSE:\n"+product+"JOIN:\n"+end, productText, productText,
		"another warp executes a different one")
	check("different descriptors", finding.Undefined, with(groupFence, groupFence+
		"setp.lt.u32 %p2, %r0, 32;\n @%p2 or.b64 %rd10, %rd10, 0x10000;\n"), good, productText, "",
		"the warps of a warpgroup have different descriptors")
	check("a different descriptor in one lane", finding.Undefined, with(groupFence, groupFence+
		"setp.eq.u32 %p2, %r0, 5;\n @%p2 mov.u64 %rd10, %rd11;\n"), good, productText, "",
		"lanes of the warp have different descriptors")
	check("a different scale-d in one lane", finding.Undefined, with(product, "setp.eq.u32 %p2, %r0, 5;\n"+strings.Replace(product, "1, 1, 1;",
		"%p2, 1, 1;", 1)), good, "*", "", "scale-d")
	check("setmaxnreg of one warp", finding.DivergentBarrier, good+"setp.lt.u32 %p2, %r0, 32;\n @%p2 setmaxnreg.dec.sync.aligned.u32 40;\n",
		good+"setmaxnreg.dec.sync.aligned.u32 40;\n", "*", "")
	check("warps that wait for each other", finding.Deadlock,
		productReady+groupFence+"setp.ge.u32 %p2, %r0, 32;\n @%p2 bar.sync 1;\n"+product+groupCommit+groupWait+"@!%p2 bar.sync 1;\n",
		productReady+groupFence+"setp.ge.u32 %p2, %r0, 32;\n @%p2 bar.sync 1;\n"+product+groupCommit+"@!%p2 bar.sync 1;\n"+groupWait, "*", "",
		"waits for the other warps of its warpgroup", "waits at barrier 1")
	defect{
		name: "half a warpgroup", kind: finding.DivergentBarrier, declarations: productShared, setup: setup{threads: 64, arch: "sm_90a"},
		wrong: groupFence, right: "bar.sync 0;", at: "wgmma.fence.sync.aligned", contains: []string{"this one has 2"},
	}.check(t)
}

// TestWgmmaRefusals checks instructions that ptxas refuses or that are not simulated.
func TestWgmmaRefusals(t *testing.T) {
	t.Parallel()
	check := func(text, want string) {
		t.Helper()
		_, err := try(t, setup{text: kernel(text + "\n ret;"), threads: 128, arch: "sm_90a"})
		var unsupported *UnsupportedError
		if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %q", text, err, want)
		}
	}
	mma := func(change ...string) string { return strings.NewReplacer(change...).Replace(product) }
	check("wgmma.fence.sync;", "sync")
	check("wgmma.fence.sync.aligned 1;", "1 operands, want 0")
	check("wgmma.wait_group.sync.aligned 8;", "from 0 to 7")
	check("wgmma.wait_group.sync.aligned %r1;", "from 0 to 7")
	check(mma(", %f3}", "}"), "d has 3 registers, want 4")
	check(mma("%f3", "%fd3"), "cannot be used as a .b32")
	check(mma(", 1, 1, 1;", ", 1, 1;"), "it has 5 operands, want 6")
	check(mma(", 1, 1, 1;", ", 1, 2, 1;"), "operand 4 must be")
	check(mma(", 1, 1, 1;", ", 1, 1, 1, 0, 0;"), "it has 8 operands, want 6")
	check(mma(", 1, 1, 1;", ", %r1, 1, 1;"), "predicate")
	check(mma("m64n8k32", "m64n9k32"), "m64n9k32")
	check(mma("mma_async", "mma_async.sp"), "sparse")
	check(mma("%rd10", "%r10"), "cannot be used as a .b64")
	check(mma("%rd10", "{%r1, %r2}"), "a has 2 registers, want 4")
	check("setmaxnreg.inc.sync.aligned.u32 25;", "multiple of 8")
	check("setmaxnreg.inc.sync.aligned.u32 %r1;", "unsupported form")
	check("setmaxnreg.inc.u32 32;", "unsupported form")
	check("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;", "unsupported form")

	_, err := try(t, setup{text: kernel(groupFence + "ret;")})
	if err == nil || !strings.Contains(err.Error(), "wgmma is for sm_90a, not for sm_89") {
		t.Errorf("error for another chip: %v", err)
	}
}

// BenchmarkWgmma runs products of 64x64x32, four to a group, as in kernels. A quarter of a product
// is one warp instruction.
func BenchmarkWgmma(b *testing.B)        { benchmarkWgmma(b, false) }
func BenchmarkWgmmaChecked(b *testing.B) { benchmarkWgmma(b, true) }

func benchmarkWgmma(b *testing.B, checks bool) {
	b.Helper()
	var registers []string
	zeros := ""
	for i := range 32 {
		registers = append(registers, fmt.Sprintf("%%f%d", i))
		zeros += fmt.Sprintf("mov.f32 %%f%d, 0f00000000;\n", i)
	}
	wide := "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {" + strings.Join(registers, ",") + "}, %rd10, %rd11, 1, 1, 1;\n"
	body := strings.ReplaceAll(productOnes, "@%p1 ", "") + "fence.proxy.async;\n bar.sync 0;\n" + zeros + `
	mov.u32 %r2, 0;
LOOP:
	` + groupFence + wide + wide + wide + wide + groupCommit + groupWait + `
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, 20;
	@%p1 bra LOOP;
	st.global.f32 [%rd31], %f3;
	ret;`
	benchmarkOn(b, "sm_90a", body, 2, 128, checks)
}
