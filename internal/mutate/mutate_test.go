package mutate_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/mutate"
	"attune/internal/ptx"
	"attune/internal/sim"
	"attune/internal/toolchain"
)

// moduleWith is a module with a kernel body, which starts in line 16.
func moduleWith(body string) []byte {
	return []byte(`.version 8.3
.target sm_90a
.address_size 64
.visible .entry other()
{
	bar.sync 0;
	ret;
}
.visible .entry k(.param .u64 p)
{
	.reg .pred %p<9>;
	.reg .b16 %h<9>;
	.reg .b32 %r<40>;
	.reg .b64 %rd<9>;
	.reg .f32 %f<9>;
` + body + "\nEND:\n\tret;\n}\n")
}

// checkLine returns a function that requires exactly these mutants of a line, each of them valid
// PTX.
func checkLine(t *testing.T) func(line string, want ...string) {
	return func(line string, want ...string) {
		t.Helper()
		text := moduleWith("\t" + line)
		got := map[string]bool{}
		all, err := mutate.All(text, "k")
		if err != nil && len(want) > 0 {
			t.Errorf("%s: %v", line, err)
			return
		}
		for _, m := range all {
			got[m.Kind+": "+strings.TrimSpace(m.After)] = true
			if m.Line != 16 || m.Before != strings.TrimSpace(line) {
				t.Errorf("%s: line %d, before %q", line, m.Line, m.Before)
			}
			if _, err := ptx.Parse(m.Apply(text)); err != nil {
				t.Errorf("%s: a mutant is not valid PTX: %v", line, err)
			}
		}
		wanted := map[string]bool{}
		for _, w := range want {
			wanted[w] = true
		}
		if d := cmp.Diff(wanted, got); d != "" || len(got) != len(all) {
			t.Errorf("%s: %d mutants (-want +got):\n%s", line, len(all), d)
		}
	}
}

// removed is the mutant without the instruction.
const removed = "left out: // left out"

// offMutant is a mutant whose operand is changed in a register of its own.
func offMutant(kind, instruction, operand string, by int, line string) string {
	return fmt.Sprintf("%s: { .reg .b32 off_by; %s off_by, %s, %d; %s }", kind, instruction, operand, by, line)
}

func TestMemoryAndBarrierMutants(t *testing.T) {
	check := checkLine(t)
	check("bar.sync 0;", removed)
	check("bar.sync 1, 64;", removed, "other barrier: bar.sync 2, 64;", "other count: bar.sync 1, 96;", "other count: bar.sync 1, 32;")
	check("bar.arrive 15, 64;", removed, "other barrier: bar.arrive 0, 64;", "other count: bar.arrive 15, 96;", "other count: bar.arrive 15, 32;")
	check("barrier.sync.aligned 3, 128;", removed, "other barrier: barrier.sync.aligned 4, 128;",
		"other count: barrier.sync.aligned 3, 160;", "other count: barrier.sync.aligned 3, 96;")
	check("barrier.sync %r1, %r2;", removed,
		"other count: { .reg .b32 off_by; add.s32 off_by, %r2, 32; barrier.sync %r1, off_by; }",
		"other count: { .reg .b32 off_by; add.s32 off_by, %r2, -32; barrier.sync %r1, off_by; }")
	check("membar.gl;", removed)
	check("mbarrier.arrive.shared.b64 %rd1, [%r1];", removed, "address off: mbarrier.arrive.shared.b64 %rd1, [%r1+8];")
	check("cp.async.wait_group 1;", removed, "waits for less: cp.async.wait_group 2;")
	check("cp.async.wait_all;", removed)
	check("cp.async.cg.shared.global [%r1+16], [%rd1], 16;", removed,
		"address off: cp.async.cg.shared.global [%r1+32], [%rd1], 16;", "address off: cp.async.cg.shared.global [%r1+16], [%rd1+16], 16;")
	check("st.global.u16 [%rd1+-2], %h1;", removed, "address off: st.global.u16 [%rd1+0], %h1;")
	check("st.shared.v2.u32 [%r1], {%r2, %r3};", removed, "address off: st.shared.v2.u32 [%r1+8], {%r2, %r3};")
	check("ld.global.u64 %rd1, [%rd2];", "address off: ld.global.u64 %rd1, [%rd2+8];")
	check("ld.shared.v4.u32 {%r1,%r2,%r3,%r4}, [%r5+8];", "address off: ld.shared.v4.u32 {%r1,%r2,%r3,%r4}, [%r5+24];")
	check("ld.shared.f32 %f1, [%r5];", "address off: ld.shared.f32 %f1, [%r5+4];")
	check("ld.param.u64 %rd1, [p];", "other value: ld.param.u64 %rd1, [p]; add.s64 %rd1, %rd1, 1;")
	check("red.global.add.u32 [%rd1], 1;", removed, "address off: red.global.add.u32 [%rd1+4], 1;")
	check("atom.shared.add.u32 %r1, [%r2], 1;", "address off: atom.shared.add.u32 %r1, [%r2+4], 1;")
}

func TestGuardAndValueMutants(t *testing.T) {
	check := checkLine(t)
	check("@%p1 add.u32 %r1, %r2, %r3;", "guard turned round: @!%p1 add.u32 %r1, %r2, %r3;", "other operation: @%p1 sub.u32 %r1, %r2, %r3;")
	check("@!%p1 mov.u32 %r1, 5;", "guard turned round: @%p1 mov.u32 %r1, 5;", "other constant: @!%p1 mov.u32 %r1, 10;")
	check("mov.u32 %r1, 0;", "other value: mov.u32 %r1, 1;")
	check("mov.f32 %f1, 0f00000000;", "other value: mov.f32 %f1, 0f3F800000;")
	check("mov.f32 %f1, %f2;", "other value: mov.f32 %f1, %f2; fma.rn.f32 %f1, %f1, 0f40000000, 0f3F800000;")
	check("mov.u32 %r1, %ctaid.y;", "other value: mov.u32 %r1, %ctaid.x;")
	check("mov.u32 %r1, %tid.x;", "other value: mov.u32 %r1, %laneid;")
	check("@%p1 mov.b32 %r1, %r2;", "guard turned round: @!%p1 mov.b32 %r1, %r2;", "other value: @%p1 mov.b32 %r1, %r2; @%p1 xor.b32 %r1, %r1, -2147483647;")
	check("mov.b64 %rd1, {%r1, %r2};", "other value: mov.b64 %rd1, {%r1, %r2}; add.s64 %rd1, %rd1, 1;")
	check("mov.b16 %h1, %h2;")
	check("cvt.u64.u32 %rd1, %r1;", "other value: cvt.u64.u32 %rd1, %r1; add.s64 %rd1, %rd1, 1;")
	check("cvta.to.global.u64 %rd1, %rd2;", "other value: cvta.to.global.u64 %rd1, %rd2; add.s64 %rd1, %rd1, 128;")
	check("not.b32 %r1, %r2;", "other value: not.b32 %r1, %r2; add.s32 %r1, %r1, 1;")
}

func TestArithmeticMutants(t *testing.T) {
	check := checkLine(t)
	check("add.s32 %r1, %r2, 4096;", "other operation: sub.s32 %r1, %r2, 4096;", "other constant: add.s32 %r1, %r2, 4112;")
	check("mov.b64 %rd1, 3;")
	check("setp.lt.s32 %p1, %r1, %r2;", "other comparison: setp.le.s32 %p1, %r1, %r2;", "other comparison: setp.ge.s32 %p1, %r1, %r2;")
	check("setp.eq.u32 %p1, %r1, 7;", "other comparison: setp.ne.u32 %p1, %r1, 7;", "other constant: setp.eq.u32 %p1, %r1, 8;")
	check("setp.gtu.f32 %p1, %f1, %f2;", "other comparison: setp.leu.f32 %p1, %f1, %f2;")
	check("add.s32 %r1, %r2, -1;", "other operation: sub.s32 %r1, %r2, -1;", "other constant: add.s32 %r1, %r2, 0;")
	check("sub.s32 %r1, %r2, %r3;", "other operation: add.s32 %r1, %r2, %r3;", "operands swapped: sub.s32 %r1, %r3, %r2;")
	check("sub.f32 %f1, %f2, %f2;", "other operation: add.f32 %f1, %f2, %f2;")
	check("max.f32 %f1, %f2, %f3;", "other operation: min.f32 %f1, %f2, %f3;")
	check("min.s32 %r1, %r2, %r3;", "other operation: max.s32 %r1, %r2, %r3;")
	check("and.b32 %r1, %r2, 12;", "other operation: or.b32 %r1, %r2, 12;", "other constant: and.b32 %r1, %r2, 8;")
	check("or.b32 %r1, %r2, %r3;", "other operation: and.b32 %r1, %r2, %r3;")
	check("xor.b32 %r1, %r2, %r3;", "other operation: or.b32 %r1, %r2, %r3;")
	check("shl.b32 %r1, %r2, 3;", "other operation: shr.u32 %r1, %r2, 3;", "other constant: shl.b32 %r1, %r2, 4;")
	check("shr.s32 %r1, %r2, %r3;", "other operation: shl.b32 %r1, %r2, %r3;", "operands swapped: shr.s32 %r1, %r3, %r2;")
	check("shr.u64 %rd1, %rd2, %r3;", "other operation: shl.b64 %rd1, %rd2, %r3;")
	check("div.rn.f32 %f1, %f2, %f3;", "operands swapped: div.rn.f32 %f1, %f3, %f2;")
	check("selp.f32 %f1, %f2, %f3, %p1;", "operands swapped: selp.f32 %f1, %f3, %f2, %p1;")
	check("mul.lo.s32 %r1, %r2, 9;", "other constant: mul.lo.s32 %r1, %r2, 10;")
}

func TestShuffleAndMatrixMutants(t *testing.T) {
	check := checkLine(t)
	check("shfl.sync.bfly.b32 %r1|%p1, %r2, 16, 31, -1;", "other lanes: shfl.sync.up.b32 %r1|%p1, %r2, 16, 31, -1;")
	check("shfl.sync.down.b32 %r1, %r2, 1, 31, -1;", "other lanes: shfl.sync.up.b32 %r1, %r2, 1, 31, -1;")
	check("shfl.sync.idx.b32 %r1, %r2, 1, 31, -1;")
	check("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1,%r2}, [%r3];",
		"address off: ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1,%r2}, [%r3+16];", "other layout: ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r1,%r2}, [%r3];")
	check("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r1}, [%r3];",
		"address off: ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r1}, [%r3+16];", "other layout: ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r3];")
	check("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {%r1};", removed, "address off: stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3+16], {%r1};")
	check("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%r9], %r10;",
		"address off: wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%r9+16], %r10;",
		"other layout: wmma.load.a.sync.aligned.col.m16n16k16.shared.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%r9], %r10;")
	check("wmma.store.d.sync.aligned.col.m16n16k16.shared.f32 [%r9], {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, %r10;", removed,
		"address off: wmma.store.d.sync.aligned.col.m16n16k16.shared.f32 [%r9+16], {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, %r10;",
		"other layout: wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r9], {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, %r10;")
	check("cvt.rn.f16x2.e4m3x2 %r1, %h1;", "other layout: cvt.rn.f16x2.e5m2x2 %r1, %h1;")
	// Lines with two instructions are not mutated.
	check("bar.sync 0; bar.sync 0;")
	check("ex2.approx.f32 %f1, %f2;")
}

func TestHopperBarrierMutants(t *testing.T) {
	check := checkLine(t)
	check("fence.proxy.async;", removed, "weaker fence: fence.acq_rel.cta;", "weaker fence: fence.proxy.async.global;")
	check("fence.proxy.async.shared::cta;", removed, "weaker fence: fence.acq_rel.cta;", "weaker fence: fence.proxy.async.global;")
	check("fence.proxy.async.global;", removed, "weaker fence: fence.acq_rel.cta;", "weaker fence: fence.proxy.async.shared::cta;")
	check("fence.mbarrier_init.release.cluster;", removed)
	check("wgmma.fence.sync.aligned;", removed)
	check("wgmma.commit_group.sync.aligned;", removed)
	check("wgmma.wait_group.sync.aligned 1;", removed, "waits for less: wgmma.wait_group.sync.aligned 2;")
	check("cp.async.bulk.commit_group;", removed)
	check("cp.async.bulk.wait_group 0;", removed, "waits for less: cp.async.bulk.wait_group 1;", "waits for less: cp.async.bulk.wait_group.read 0;")
	check("cp.async.bulk.wait_group.read 0;", removed, "waits for less: cp.async.bulk.wait_group.read 1;")
	check("setmaxnreg.inc.sync.aligned.u32 232;", removed,
		"other count: setmaxnreg.inc.sync.aligned.u32 240;", "other count: setmaxnreg.inc.sync.aligned.u32 224;")
	check("bra.uni END;", removed)
	check("mbarrier.init.shared::cta.b64 [%r1], 8;", removed, "address off: mbarrier.init.shared::cta.b64 [%r1+8], 8;",
		"other count: mbarrier.init.shared::cta.b64 [%r1], 9;", "other count: mbarrier.init.shared::cta.b64 [%r1], 7;")
	check("mbarrier.init.shared::cta.b64 [%r1], %r2;", removed, "address off: mbarrier.init.shared::cta.b64 [%r1+8], %r2;",
		offMutant("other count", "add.s32", "%r2", 1, "mbarrier.init.shared::cta.b64 [%r1], off_by;"),
		offMutant("other count", "add.s32", "%r2", -1, "mbarrier.init.shared::cta.b64 [%r1], off_by;"))
	check("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], %r2;", removed, "address off: mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+8], %r2;",
		offMutant("other bytes", "add.s32", "%r2", 16, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], off_by;"),
		offMutant("other bytes", "add.s32", "%r2", -16, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], off_by;"))
	check("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 64;", removed, "address off: mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1+8], 64;",
		"other bytes: mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 80;", "other bytes: mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 48;")
	check("again: mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 1;", "left out: again: setp.eq.s32 %p1, 0, 0;",
		"address off: again: mbarrier.test_wait.parity.shared.b64 %p1, [%r1+8], 1;",
		"other parity: again: mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0;")
	check("mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;", "left out: setp.eq.s32 %p1, 0, 0;",
		"address off: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1+8], %r2;",
		offMutant("other parity", "xor.b32", "%r2", 1, "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], off_by;"))
	check("mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 1;", "left out: setp.eq.s32 %p1, 0, 0;",
		"address off: mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1+8], 1;", "other parity: mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 0;")
}

func TestBulkCopyMutants(t *testing.T) {
	check := checkLine(t)
	load := "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
	check(load+"[%r1], [%rd1, {%r2, 5}], [%r3];", removed,
		"address off: "+load+"[%r1+128], [%rd1, {%r2, 5}], [%r3];", "address off: "+load+"[%r1], [%rd1, {%r2, 5}], [%r3+128];",
		offMutant("other box", "add.s32", "%r2", 16, load+"[%r1], [%rd1, {off_by, 5}], [%r3];"), "other box: "+load+"[%r1], [%rd1, {%r2,6}], [%r3];")
	store := "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group "
	check(store+"[%rd1, {%r2}], [%r1];", removed, "address off: "+store+"[%rd1, {%r2}], [%r1+128];",
		offMutant("other box", "add.s32", "%r2", 16, store+"[%rd1, {off_by}], [%r1];"))
	bulk := "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
	check(bulk+"[%r1], [%rd1], 64, [%r3];", removed,
		"address off: "+bulk+"[%r1+16], [%rd1], 64, [%r3];", "address off: "+bulk+"[%r1], [%rd1+16], 64, [%r3];",
		"address off: "+bulk+"[%r1], [%rd1], 64, [%r3+16];",
		"other bytes: "+bulk+"[%r1], [%rd1], 80, [%r3];", "other bytes: "+bulk+"[%r1], [%rd1], 48, [%r3];")
}

func TestWGMMAMutants(t *testing.T) {
	check := checkLine(t)
	// Descriptor fields: the 128-byte swizzle becomes the next mode, and the stride grows by 16
	// bytes. Zero fields are not mutated.
	check("or.b64 %rd1, %rd2, 4611686293305294848;", "other operation: and.b64 %rd1, %rd2, 4611686293305294848;",
		"other descriptor: or.b64 %rd1, %rd2, 4611686297600262144;",
		"other descriptor: or.b64 %rd1, %rd2, -9223371761976868864;")
	check("mov.b64 %rd1, 34363932672;", "other descriptor: mov.b64 %rd1, 34363998208;", "other descriptor: mov.b64 %rd1, 38658899968;")
	check("mov.b64 %rd1, 1099511660544;") // bits outside the descriptor fields
	product := "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f0, %f1, %f2, %f3}, "
	check(product+"%rd1, %rd2, 1, 1, 1;", removed, "other layout: "+strings.Replace(product, ".e4m3", ".e5m2", 1)+"%rd1, %rd2, 1, 1, 1;",
		"other product: "+product+"%rd2, %rd1, 1, 1, 1;", "other product: "+product+"%rd1, %rd2, 0, 1, 1;",
		"other product: "+product+"%rd1, %rd2, 1, -1, 1;")
	check(product+"{%r1, %r2, %r3, %r4}, %rd2, %p1, 1, 1;", removed,
		"other layout: "+strings.Replace(product, ".e4m3", ".e5m2", 1)+"{%r1, %r2, %r3, %r4}, %rd2, %p1, 1, 1;",
		"other product: "+product+"{%r1, %r2, %r3, %r4}, %rd2, !%p1, 1, 1;", "other product: "+product+"{%r1, %r2, %r3, %r4}, %rd2, %p1, -1, 1;")
}

func TestClusterMutants(t *testing.T) {
	check := checkLine(t)
	check("barrier.cluster.arrive.aligned;", removed, "weaker fence: barrier.cluster.arrive.relaxed.aligned;")
	check("barrier.cluster.arrive.release.aligned;", removed, "weaker fence: barrier.cluster.arrive.relaxed.aligned;")
	check("barrier.cluster.arrive.relaxed.aligned;", removed)
	check("barrier.cluster.wait.aligned;", removed)
	check("mapa.shared::cluster.u32 %r1, %r2, %r3;", offMutant("other rank", "xor.b32", "%r3", 1, "mapa.shared::cluster.u32 %r1, %r2, off_by;"))
	bulk := "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
	multicast := strings.Replace(bulk, "bytes ", "bytes.multicast::cluster ", 1)
	check(multicast+"[%r1], [%rd1], 64, [%r3], 3;", removed, "address off: "+multicast+"[%r1+16], [%rd1], 64, [%r3], 3;",
		"address off: "+multicast+"[%r1], [%rd1+16], 64, [%r3], 3;", "address off: "+multicast+"[%r1], [%rd1], 64, [%r3+16], 3;",
		"other bytes: "+multicast+"[%r1], [%rd1], 80, [%r3], 3;", "other bytes: "+multicast+"[%r1], [%rd1], 48, [%r3], 3;",
		"other rank: "+multicast+"[%r1], [%rd1], 64, [%r3], 2;")
	check("elect.sync _|%p1, -1;", "other lanes: setp.eq.s32 %p1, 0, 0;")
}

func TestErrors(t *testing.T) {
	check := func(name string, text []byte, entry, want string) {
		t.Helper()
		if list, err := mutate.All(text, entry); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", name, list, err, want)
		}
	}
	check("no PTX", []byte("bar.sync 0;"), "k", "line 1")
	check("no such entry", moduleWith("\tbar.sync 0;"), "q", `no entry function "q"`)
	check("nothing to change", moduleWith(""), "k", "an instruction to mutate")
}

func TestApply(t *testing.T) {
	text := []byte("one\ntwo\nthree\n")
	m := mutate.Mutant{Line: 2, After: "\t2"}
	if got := string(m.Apply(text)); got != "one\n\t2\nthree\n" {
		t.Errorf("got %q", got)
	}
	if string(text) != "one\ntwo\nthree\n" {
		t.Errorf("Apply changed its input: %q", text)
	}
}

// shippedPTX returns the shipped PTX of a stage.
func shippedPTX(t *testing.T, stage string) []byte {
	t.Helper()
	packed, err := os.ReadFile("../../kernels/ptx/" + stage + ".sm_89.ptx.zst")
	if err != nil {
		t.Fatal(err)
	}
	text, err := toolchain.UnpackPTX(packed)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestShippedKernels checks the mutants of shipped kernels: each differs in one line, no two are
// equal, and a sample is valid PTX that the simulator accepts.
func TestShippedKernels(t *testing.T) {
	t.Parallel()
	kinds := map[string]bool{}
	for _, stage := range []string{"stage0", "stage1", "stage2"} {
		text := shippedPTX(t, stage)
		lines := strings.Split(string(text), "\n")
		all, err := mutate.All(text, "sdpa")
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		last := 0
		for _, m := range all {
			kinds[m.Kind] = true
			key := fmt.Sprintf("%d %s", m.Line, strings.TrimSpace(m.After))
			if seen[key] {
				t.Errorf("%s: duplicate mutant: %s", stage, key)
			}
			seen[key] = true
			if strings.TrimSpace(lines[m.Line-1]) != m.Before || strings.TrimSpace(m.After) == m.Before || m.Line < last {
				t.Errorf("%s: line %d is %q, the mutant has %q and makes %q of it", stage, m.Line, lines[m.Line-1], m.Before, m.After)
			}
			last = m.Line
		}
		sample := 60
		if testing.Short() {
			sample = 10
		}
		for _, m := range mutate.Sample(all, sample, 1) {
			checkProgram(t, stage, text, m)
		}
	}
	for _, kind := range []string{
		"left out", "waits for less", "guard turned round", "other comparison", "other operation", "operands swapped", "other constant", "address off",
		"other layout", "other lanes",
	} {
		if !kinds[kind] {
			t.Errorf("no stage has a mutant %q; there are %v", kind, kinds)
		}
	}
}

// checkProgram requires that a mutant differs in its line only, parses, and is accepted by the
// simulator.
func checkProgram(t *testing.T, stage string, text []byte, m mutate.Mutant) {
	t.Helper()
	changed := m.Apply(text)
	before, after := strings.Split(string(text), "\n"), strings.Split(string(changed), "\n")
	if len(before) != len(after) {
		t.Errorf("%s, line %d: %d lines became %d", stage, m.Line, len(before), len(after))
		return
	}
	for i := range before {
		if (before[i] != after[i]) != (i == m.Line-1) {
			t.Errorf("%s, line %d: line %d is now %q", stage, m.Line, i+1, after[i])
		}
	}
	module, err := ptx.Parse(changed)
	if err != nil {
		t.Errorf("%s, line %d, %s: %v", stage, m.Line, m.Kind, err)
		return
	}
	if _, err := sim.Load(module, ""); err != nil {
		t.Errorf("%s, line %d, %s: %v", stage, m.Line, m.Kind, err)
	}
}

func TestSample(t *testing.T) {
	text := shippedPTX(t, "stage2")
	all, err := mutate.All(text, "sdpa")
	if err != nil {
		t.Fatal(err)
	}
	again, err := mutate.All(text, "sdpa")
	if err != nil || !slices.Equal(all, again) {
		t.Errorf("the second call of All returns other mutants: %v", err)
	}
	check := func(n, want int) []mutate.Mutant {
		t.Helper()
		picked := mutate.Sample(all, n, 7)
		if len(picked) != want {
			t.Errorf("Sample(%d) returned %d mutants, want %d", n, len(picked), want)
		}
		if !slices.IsSortedFunc(picked, func(a, b mutate.Mutant) int { return a.Line - b.Line }) {
			t.Errorf("Sample(%d) is not sorted by line", n)
		}
		for _, m := range picked {
			if !slices.Contains(all, m) {
				t.Errorf("%v is not one of the mutants", m)
			}
		}
		return picked
	}
	check(0, len(all))
	check(len(all)+1, len(all))
	check(1, 1)
	some := check(40, 40)
	if !slices.Equal(some, mutate.Sample(all, 40, 7)) {
		t.Error("the same seed gives another sample")
	}
	if slices.Equal(some, mutate.Sample(all, 40, 8)) {
		t.Error("another seed gives the same sample")
	}
	if !slices.Equal(all, again) {
		t.Error("Sample changed its input")
	}
}
