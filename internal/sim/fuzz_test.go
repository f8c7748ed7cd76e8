package sim

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"attune/internal/crash"
	"attune/internal/ptx"
)

// seeds are kernels that together use every instruction family.
var seeds = []string{
	kernelWith(sharedArray, storing(fillShared+`
	setp.lt.u32 %p1, %r0, 7;
	@%p1 bra LOW;
	add.u32 %r1, %r0, 3;
	bra JOIN;
LOW:
	ld.shared.u32 %r1, [s+16];
LOOP:
	sub.u32 %r1, %r1, 1;
	setp.gt.s32 %p2, %r1, 0;
	@%p2 bra LOOP;
JOIN:
	shfl.sync.down.b32 %r2|%p3, %r1, 1, 31, -1;
	vote.sync.ballot.b32 %r3, %p3, -1;
	match.any.sync.b32 %r4, %r1, -1;
	redux.sync.add.s32 %r5, %r1, -1;
	elect.sync %r6|%p4, -1;
	bar.red.popc.u32 %r7, 0, %p3;
	activemask.b32 %r8;
	bar.warp.sync -1;
	bar.sync 1, 32;`)),
	kernelWith(sharedArray+"\n.global .align 4 .u32 g[4] = {1, 2, 3, 4};\n.const .align 4 .u32 c = 7;", storing(`
	mov.u32 %r2, s;
	mad.lo.u32 %r2, %r0, 16, %r2;
	cp.async.cg.shared.global [%r2], [%rd1], 16, 8;
	cp.async.commit_group;
	cp.async.wait_group 0;
	ld.shared.v4.u32 {%r3,%r4,%r5,%r6}, [%r2];
	atom.shared.add.u32 %r7, [s], 1;
	atom.global.cas.b32 %r8, [g], 1, 2;
	red.global.max.u32 [g+4], %r0;
	fence.acq_rel.gpu;
	ld.const.u32 %r9, [c];
	ld.acquire.gpu.global.u32 %r1, [g+8];
	st.release.gpu.global.u32 [g+12], %r1;
	cvta.global.u64 %rd2, %rd1;
	isspacep.global %p1, %rd2;
	ld.u16 %r3, [%rd2+2];`)),
	kernelWith(barrierObject, storing(initialise(32)+arriveAndWait+"mbarrier.inval.shared.b64 [%r5];")),
	kernelWith(sharedArray, storing(fillShared+`
	mov.u32 %r2, s;
	mad.lo.u32 %r3, %r0, 16, %r2;
	ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r4,%r5,%r6,%r7}, [%r3];
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r10,%r11,%r12,%r13}, {%r4,%r5,%r6,%r7}, {%r4,%r5}, {%r10,%r11,%r12,%r13};
	wmma.load.c.sync.aligned.row.m16n16k16.shared.f16 {%r4,%r5,%r6,%r7}, [%r2], 16;
	wmma.store.d.sync.aligned.col.m16n16k16.shared.f16 [%r2], {%r4,%r5,%r6,%r7}, 16;
	movmatrix.sync.aligned.m8n8.trans.b16 %r8, %r4;
	stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {%r8};
	mov.b64 %rd2, {%r4, %r5};
	mov.b64 {%r6, _}, %rd2;
	add.cc.u32 %r6, %r6, %r7;
	addc.u32 %r1, %r6, 0;
	cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;
	ex2.approx.ftz.f32 %f1, %f2;
	lop3.b32 %r1, %r1, %r2, %r3, 0x96;`)),
	kernelWith(`.func (.param .b32 r) f(.param .b32 a)
{
	.reg .b32 %x<4>;
	.reg .pred %q;
	.local .align 4 .b8 l[8];
	.param .b32 b; .param .b32 s;
	ld.param.u32 %x1, [a];
	st.local.u32 [l+4], %x1;
	setp.gt.u32 %q, %x1, 2;
	@%q exit;
	setp.eq.u32 %q, %x1, 0;
	@%q ret;
	sub.u32 %x1, %x1, 1;
	st.param.u32 [b], %x1;
	call (s), f, (b);
	ld.param.u32 %x2, [s];
	st.param.u32 [r], %x2;
	ret;
}`, storing(`.param .b32 a; .param .b32 r;
	st.param.u32 [a], %r0;
	call (r), f, (a);
	ld.param.u32 %r1, [r];
	T: .branchtargets A, B;
	brx.idx %r1, T;
A:
	mov.u64 %rd2, f;
	P: .callprototype (.param .b32 r) _ (.param .b32 a);
	@%p1 call (r), %rd2, (a), P;
B:
	mov.u32 %r1, %clock;`)),
	strings.Replace(kernelWith(productShared, storing(productReady+groupFence+product+groupCommit+otherResult+productA+groupCommit+
		"wgmma.wait_group.sync.aligned 1;\n add.f32 %f8, %f0, %f1;\n"+groupWait+"mov.b32 %r1, %f4;\n setmaxnreg.dec.sync.aligned.u32 40;")),
		"sm_89", "sm_90a", 1),
	kernelWith(".shared .align 128 .b8 s[256];\n.shared .align 8 .b8 bar[8];", storing(`mov.u32 %r2, s;
	mov.u32 %r3, bar;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared::cta.b64 [%r3], 1;
	fence.proxy.async;
	barrier.cluster.arrive.release.aligned;
	barrier.cluster.wait.acquire.aligned;
	mapa.shared::cluster.u32 %r4, %r3, 0;
	@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 132;
	@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 128, [%r3];
	@%p1 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r2+128], %r0, [%r4];
	@%p1 cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd1, {%r0}], [%r3];
	mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;
	ld.shared.u32 %r1, [%r2];
	cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd0], [%r2], 16;
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;`)),
}

// FuzzKernel replaces words of a kernel. The kernel may run or be refused with an error. It must
// not crash the program or run forever.
func FuzzKernel(f *testing.F) {
	for i := range seeds {
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), []byte{3, 1, 0, 40, 77, 5, 90, 2, 1})
	}
	f.Fuzz(func(t *testing.T, which uint8, edits []byte) {
		survives(t, edit(seeds[int(which)%len(seeds)], edits))
	})
}

// FuzzText runs any text.
func FuzzText(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Add(header + ".visible .entry k(.param .u64 p0, .param .u64 p1)\n{\n}\n")
	f.Fuzz(func(t *testing.T, text string) { survives(t, text) })
}

func survives(t *testing.T, text string) {
	// Without the panic the fuzzer would hang and not show the text.
	defer time.AfterFunc(time.Minute, func() { panic("BUG: the simulator hangs on\n" + text) }).Stop()
	for _, g := range []setup{{threads: 33, shared: 64}, {blocks: 2, seed: 5, unchecked: true}, {threads: 128, seed: 3}} {
		g.text, g.steps, g.in = text, 3000, make([]uint32, 64)
		got, err := try(t, g)
		if p, ok := errors.AsType[*crash.Panic](err); ok { // the fuzzer would not see it
			t.Fatalf("%v\n%s\n%s", p, p.Stack, text)
		}
		if err == nil && len(got.out) == 0 {
			t.Error("neither an output nor an error")
		}
	}
}

var token = regexp.MustCompile(`[%$\w]+(<\d+>)?|[^\s\w]`)

// dictionary has the words of all seeds, in a fixed order.
var dictionary = makeDictionary()

func makeDictionary() []string {
	var list []string
	seen := map[string]bool{}
	for _, s := range append(seeds, "-1 0 1 31 32 33 0xffffffff 4294967296 -9223372036854775808 0f7F800000 %laneid %tid.y u8 s64 v2 v8 b128 f64 aligned sync") {
		for _, w := range token.FindAllString(s, -1) {
			if !seen[w] {
				seen[w] = true
				list = append(list, w)
			}
		}
	}
	return list
}

// edit changes a text. Each edit has three bytes: the operation, the line or word that it changes,
// and the replacement.
func edit(text string, edits []byte) string {
	for ; len(edits) >= 3; edits = edits[3:] {
		what, where, with := edits[0], int(edits[1]), int(edits[2])
		lines := strings.Split(text, "\n")
		at := 20 + where%max(1, len(lines)-20)
		if at >= len(lines) {
			continue
		}
		switch what % 6 {
		case 0: // delete a line
			lines = append(lines[:at:at], lines[at+1:]...)
		case 1: // swap two lines
			to := 20 + with%max(1, len(lines)-20)
			lines[at], lines[to] = lines[to], lines[at]
		case 2: // duplicate a line
			lines = append(lines[:at+1:at+1], lines[at:]...)
		case 3: // add a guard
			lines[at] = "@%p" + string(rune('0'+with%8)) + " " + lines[at]
		default: // replace a word
			places := token.FindAllStringIndex(lines[at], -1)
			if len(places) == 0 {
				continue
			}
			p := places[int(what/6)%len(places)]
			lines[at] = lines[at][:p[0]] + dictionary[with%len(dictionary)] + lines[at][p[1]:]
		}
		text = strings.Join(lines, "\n")
	}
	return text
}

// TestSeeds checks that the seeds are valid kernels.
func TestSeeds(t *testing.T) {
	for i, s := range seeds {
		if _, err := ptx.Parse([]byte(s)); err != nil {
			t.Errorf("seed %d: %v\n%s", i, err, numbered(s))
		}
		if _, err := try(t, setup{text: s, steps: 3000, in: make([]uint32, 64)}); err != nil {
			t.Errorf("seed %d: %v\n%s", i, err, numbered(s))
		}
	}
}
