package sim

import (
	"strings"
	"testing"

	"attune/internal/finding"
)

// taintLocal declares two words of local memory that only thread 5 writes. %p1 says that the thread
// is that one. loadLocal loads the first word.
const taintLocal = `.local .align 16 .b8 l[16];
	setp.eq.u32 %p1, %r0, 5;
	@%p1 st.local.u32 [l], 7;
	@%p1 st.local.u32 [l+4], 8;
	`

const loadLocal = "ld.local.u32 %r2, [l];\n"

// TestSpeculativeLoads loads a word that only one thread has written, and uses the value in that
// thread alone.
func TestSpeculativeLoads(t *testing.T) {
	t.Parallel()
	want := each(32, func(i uint32) uint32 {
		if i == 5 {
			return 7
		}
		return 1
	})
	for name, body := range map[string]string{
		"selp":                   "selp.u32 %r1, %r2, 1, %p1;\n",
		"selp the other way":     "not.pred %p2, %p1;\n selp.u32 %r1, 1, %r2, %p2;\n",
		"slct":                   "selp.s32 %r3, 1, -1, %p1;\n slct.u32.s32 %r1, %r2, 1, %r3;\n",
		"and with zero":          "selp.u32 %r3, -1, 0, %p1;\n and.b32 %r4, %r2, %r3;\n not.b32 %r5, %r3;\n and.b32 %r5, %r5, 1;\n or.b32 %r1, %r4, %r5;\n",
		"or with ones":           "selp.u32 %r3, 0, -1, %p1;\n or.b32 %r4, %r2, %r3;\n selp.u32 %r1, %r4, 1, %p1;\n",
		"lop3":                   "selp.u32 %r3, -1, 0, %p1;\n lop3.b32 %r4, %r2, %r3, 0, 0xC0;\n selp.u32 %r1, %r4, 1, %p1;\n",
		"shift":                  "selp.u32 %r3, 0, 32, %p1;\n shl.b32 %r4, %r2, %r3;\n setp.eq.u32 %p3, %r4, 7;\n selp.u32 %r1, 7, 1, %p3;\n",
		"a branch":               "mov.u32 %r1, 1;\n @!%p1 bra L;\n add.u32 %r1, %r2, 0;\nL:\n",
		"a guard":                "mov.u32 %r1, 1;\n @%p1 mov.u32 %r1, %r2;\n",
		"and of predicates":      "setp.eq.u32 %p2, %r2, 7;\n and.pred %p3, %p2, %p1;\n mov.u32 %r1, 1;\n @%p3 mov.u32 %r1, 7;\n @%p3 bra L;\nL:\n",
		"or of predicates":       "not.pred %p4, %p1;\n setp.ne.u32 %p2, %r2, 7;\n or.pred %p3, %p2, %p4;\n @%p3 bra L;\n mov.u32 %r1, 7;\n bra M;\nL:\n mov.u32 %r1, 1;\nM:\n",
		"setp with and":          "setp.eq.and.u32 %p3|%p4, %r2, 7, %p1;\n mov.u32 %r1, 1;\n @!%p3 bra L;\n mov.u32 %r1, 7;\nL:\n",
		"setp with or":           "setp.ne.or.u32 %p3, %r2, 7, !%p1;\n mov.u32 %r1, 7;\n @!%p3 bra L;\n mov.u32 %r1, 1;\nL:\n",
		"arithmetic and selp":    "mul.lo.u32 %r3, %r2, 3;\n add.f32 %f1, %f1, %f2;\n sub.u32 %r3, %r3, 14;\n selp.u32 %r1, %r3, 1, %p1;\n",
		"64 bits":                "mov.u32 %r3, 1;\n mov.b64 %rd4, {%r2, %r3};\n mov.u64 %rd5, 1;\n selp.b64 %rd6, %rd4, %rd5, %p1;\n cvt.u32.u64 %r1, %rd6;\n",
		"a vector":               "ld.local.v2.u32 {%r4, %r2}, [l];\n selp.u32 %r1, %r4, %r2, %p1;\n selp.u32 %r1, %r4, 1, %p1;\n",
		"a copy on the stack":    "st.local.u32 [l+8], %r2;\n ld.local.u32 %r4, [l+8];\n selp.u32 %r1, %r4, 1, %p1;\n",
		"a value that is lost":   "add.u32 %r3, %r2, 1;\n mov.u32 %r2, 3;\n mov.u32 %r3, %r2;\n st.local.u32 [l+8], %r3;\n ld.local.u32 %r4, [l];\n selp.u32 %r1, %r4, 1, %p1;\n",
		"a prefetch":             "selp.u32 %r1, %r2, 1, %p1;\n nanosleep.u32 %r2;\n",
		"a predicate in doubt":   "setp.eq.u32 %p2, %r2, 9;\n @%p2 mov.u32 %r3, 4;\n selp.u32 %r1, %r2, 1, %p1;\n",
		"a register read before": "xor.b32 %r3, %r2, %r2;\n selp.u32 %r1, %r2, 1, %p1;\n",
	} {
		schedules(t, name, setup{text: kernel(storing(taintLocal + loadLocal + body))}, want)
	}
	// The same for shared and global memory. Lanes share one load.
	shared := ".shared .align 16 .b8 s[16];"
	fill := "setp.eq.u32 %p1, %r0, 5;\n"
	text := kernelWith(shared, storing(fill+"ld.shared.u32 %r2, [s];\n @%p1 st.shared.u32 [s+4], 1;\n selp.u32 %r1, 3, %r0, %p1;\n selp.u32 %r1, %r0, %r2, %p1;\n mov.u32 %r1, %r0;\n"))
	schedules(t, "shared memory", setup{text: text}, each(32, func(i uint32) uint32 { return i }))
	text = kernel(storing(fill + "ld.global.u32 %r2, [%rd31];\n setp.ne.u32 %p2, %r0, 40;\n selp.u32 %r1, %r0, %r2, %p2;\n"))
	schedules(t, "global memory", setup{text: text}, each(32, func(i uint32) uint32 { return i }))
}

// TestUninitializedUses uses a word that was never written. The finding has the load and the use.
func TestUninitializedUses(t *testing.T) {
	t.Parallel()
	const (
		shared = ".shared .align 16 .b8 s[512];\n.func f(.param .b32 x) { ret; }\n"
		right  = taintLocal + "st.local.u32 [l], 0;\n st.local.u32 [l+4], 0;\n"
		at     = "ld.local.u32 %r2, [l]"
	)
	check := func(name, body, use string, contains ...string) {
		t.Helper()
		if !strings.Contains(body, use+";") {
			t.Fatalf("%s: %q is not in the body", name, use)
		}
		defect{
			name: name, kind: finding.Uninitialized, declarations: shared, setup: setup{threads: 32, arch: "sm_90a", out: 64},
			wrong: taintLocal + loadLocal + body, right: right + loadLocal + body, at: at, with: use,
			contains: append(contains, "reads 4 bytes; byte 0 of local memory was never written", "uses the value"),
		}.check(t)
	}
	const store = "st.global.u32 [%rd31], %r1"
	check("a store", "mov.u32 %r1, %r2;\n"+store+";\n", store, "it is stored", "(31 times)")
	check("a sum", "mov.u32 %r1, 3;\n add.u32 %r1, %r1, %r2;\n mul.lo.u32 %r1, %r1, 5;\n"+store+";\n", store)
	check("a selected value", "selp.u32 %r1, 1, %r2, %p1;\n"+store+";\n", store)
	check("a selection by it", "setp.eq.u32 %p2, %r2, 0;\n selp.u32 %r1, 1, 2, %p2;\n"+store+";\n", store)
	check("a guard in doubt", "setp.eq.u32 %p2, %r2, 0;\n mov.u32 %r1, 2;\n @%p2 mov.u32 %r1, 1;\n"+store+";\n", store)
	check("both operands", "and.b32 %r1, %r2, %r2;\n"+store+";\n", store)
	check("a shift by it", "mov.u32 %r3, 1;\n shl.b32 %r1, %r3, %r2;\n"+store+";\n", store)
	check("a carry", "add.cc.u32 %r1, %r2, 1;\n"+store+";\n", store)
	check("a generic store", "cvta.global.u64 %rd4, %rd31;\n add.u32 %r3, %r2, 1;\n st.u32 [%rd4], %r3;\n", "st.u32 [%rd4], %r3")
	check("an address", "and.b32 %r3, %r2, 0;\n and.b32 %r4, %r2, 60;\n cvt.u64.u32 %rd4, %r4;\n add.u64 %rd4, %rd4, %rd0;\n ld.global.u32 %r5, [%rd4];\n", "ld.global.u32 %r5, [%rd4]", "its address")
	check("a branch", "setp.eq.u32 %p2, %r2, 0;\n @%p2 bra L;\n mov.u32 %r1, 2;\nL:\n", "@%p2 bra L", "the condition of the branch")
	check("the guard of a store", "setp.eq.u32 %p2, %r2, 0;\n @%p2 st.global.u32 [%rd31], 1;\n", "@%p2 st.global.u32 [%rd31], 1", "its condition")
	check("an atomic operation", "red.global.add.u32 [%rd0], %r2;\n", "red.global.add.u32 [%rd0], %r2", "an operand")
	check("a shuffle", "shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;\n"+store+";\n", store, "(31 times)")
	check("a vote", "setp.eq.u32 %p2, %r2, 0;\n vote.sync.ballot.b32 %r3, %p2, -1;\n", "vote.sync.ballot.b32 %r3, %p2, -1")
	check("a barrier", "and.b32 %r3, %r2, 1;\n bar.sync %r3;\n", "bar.sync %r3")
	check("a call", ".param .b32 p;\n st.param.b32 [p], %r2;\n add.u32 %r3, %r2, 1;\n call f, (p);\n", "st.param.b32 [p], %r2")
	check("a matrix", zeroed(3, 7)+zeroSums+padded+"st.global.f32 [%rd31], %f1;\n", "st.global.f32 [%rd31], %f1")
	copied := "st.local.u32 [l+8], %r2;\n add.u32 %r6, %r2, 1;\n ld.local.u32 %r3, [l+8];\n st.global.u32 [%rd31], %r3;\n"
	defect{
		name: "a copy on the stack", kind: finding.Uninitialized, wrong: taintLocal + loadLocal + copied, right: right + loadLocal + copied,
		at: "ld.local.u32 %r3, [l+8]", with: "st.global.u32 [%rd31], %r3", contains: []string{"byte 8 of local memory"},
	}.check(t)
}

const (
	zeroSums = "mov.f32 %f5, 0f00000000;\n mov.f32 %f6, %f5;\n mov.f32 %f7, %f5;\n mov.f32 %f8, %f5;\n"
	// padded multiplies by an A of which %r2 has unwritten elements.
	padded = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r2,%r3,%r4,%r5}, {%r6,%r7}, {%f5,%f6,%f7,%f8};\n"
)

// TestUndefinedBits packs, shifts and masks values of which some bits are undefined: an unset register,
// and a word of local memory of which two bytes were never written.
func TestUndefinedBits(t *testing.T) {
	t.Parallel()
	want := each(32, func(uint32) uint32 { return 7 })
	const half = ".local .align 4 .b8 l[4];\n st.local.u16 [l], 7;\n ld.local.u32 %r2, [l];\n"
	bodies := map[string]string{
		"a pair, shifted":       "mov.b64 %rd2, {%r9, %r8};\n shr.u64 %rd3, %rd2, 32;\n cvt.u32.u64 %r1, %rd3;\n",
		"a pair, unpacked":      "mov.b64 %rd2, {%r9, %r8};\n mov.b64 {%r3, %r1}, %rd2;\n",
		"a pair, narrowed":      "mov.b64 %rd2, {%r8, %r9};\n cvt.u32.u64 %r1, %rd2;\n",
		"a pair, stored":        "mov.b64 %rd2, {%r8, %r9};\n st.global.u32 [%rd31], %rd2;\n mov.u32 %r1, 7;\n",
		"a mask":                "and.b32 %r1, %r2, 0xFFFF;\n",
		"ones":                  "or.b32 %r3, %r2, 0xFFFF0000;\n xor.b32 %r1, %r3, 0xFFFF0000;\n",
		"a shift":               "shl.b32 %r3, %r2, 16;\n shr.u32 %r1, %r3, 16;\n",
		"bytes":                 "prmt.b32 %r1, %r2, 0, 0x4410;\n",
		"a field":               "bfe.u32 %r1, %r2, 0, 16;\n",
		"a field put into zero": "bfi.b32 %r1, %r2, 0, 0, 16;\n",
		"a conversion":          "cvt.u32.u16 %r1, %r2;\n",
		"halves":                "mov.b32 {%h1, %h2}, %r2;\n cvt.u32.u16 %r1, %h1;\n",
		"a sum":                 "add.u32 %r3, %r2, 0x10000;\n and.b32 %r1, %r3, 0xFFFF;\n",
		"lop3 of two":           "lop3.b32 %r1, %r2, %r9, 0xFFFF, 0x80;\n and.b32 %r1, %r1, 0;\n add.u32 %r1, %r1, 7;\n",
		"a byte stored":         "st.global.u8 [%rd31], %r2;\n mov.u32 %r1, 7;\n",
		"a comparison":          "and.b32 %r3, %r2, 255;\n setp.eq.u32 %p1, %r3, 7;\n mov.u32 %r1, 7;\n @%p1 bra L;\n mov.u32 %r1, 3;\nL:\n",
	}
	for name, body := range bodies {
		if strings.Contains(body, "%r2,") || strings.Contains(body, "%r2;") {
			body = half + body
		}
		schedules(t, name, setup{text: kernel(storing("mov.u32 %r8, 7;\n" + body))}, want)
	}
	check := func(name, wrong, right string, contains ...string) {
		t.Helper()
		const store = "st.global.u32 [%rd31], %r1"
		defect{
			name: name, kind: finding.Uninitialized, wrong: half + wrong + store + ";\n", right: half + right + store + ";\n",
			at: "ld.local.u32 %r2, [l]", with: store, contains: append(contains, "it is stored"),
		}.check(t)
	}
	check("the other half", "shr.u32 %r1, %r2, 16;\n", "shl.b32 %r1, %r2, 16;\n")
	check("a mask of one byte more", "and.b32 %r1, %r2, 0x1FFFF;\n", "and.b32 %r1, %r2, 0xFFFF;\n")
	check("a sign", "bfe.s32 %r1, %r2, 8, 9;\n", "bfe.s32 %r1, %r2, 7, 9;\n")
	check("a byte", "prmt.b32 %r1, %r2, 0, 0x4421;\n", "prmt.b32 %r1, %r2, 0, 0x4411;\n")
	check("a rotation", "shf.l.wrap.b32 %r1, %r2, %r2, 4;\n", "and.b32 %r3, %r2, 0xFFFF;\n shf.l.wrap.b32 %r1, %r3, %r3, 4;\n")
	check("a product of the high halves", "mul.hi.u32 %r1, %r2, 5;\n", "and.b32 %r3, %r2, 255;\n mul.hi.u32 %r1, %r3, 5;\n")
}

// TestUndefinedStores stores undefined values to shared memory. Only their use is a defect, and the
// finding names the store.
func TestUndefinedStores(t *testing.T) {
	t.Parallel()
	const (
		words  = ".shared .align 16 .b8 s[512];"
		begin  = ".local .align 4 .b8 l[4];\n setp.lt.u32 %p1, %r0, 16;\n @%p1 st.local.u32 [l], 7;\n ld.local.u32 %r2, [l];\n mov.u32 %r3, s;\n mad.lo.u32 %r4, %r0, 4, %r3;\n st.shared.u32 [%r4], %r2;\n bar.sync 0;\n"
		mirror = "xor.b32 %r5, %r0, 31;\n mad.lo.u32 %r5, %r5, 4, %r3;\n ld.shared.u32 %r1, [%r5];\n"
		store  = "st.global.u32 [%rd31], %r1"
	)
	schedules(t, "padding", setup{text: kernelWith(words, storing(begin+mirror+"setp.ge.u32 %p2, %r0, 16;\n selp.u32 %r1, %r1, 7, %p2;\n"))},
		each(32, func(uint32) uint32 { return 7 }))
	defect{
		name: "a use", kind: finding.Uninitialized, declarations: words, wrong: begin + mirror + store + ";\n",
		right: strings.Replace(begin, "@%p1", "", 1) + mirror + store + ";\n", at: "ld.shared.u32 %r1, [%r5]", with: store,
		contains: []string{"thread 31 has stored an undefined value to byte 124 of shared memory (s+124) (ptx:26)", "(16 times)"},
	}.check(t)
	defect{
		name: "an atomic operation", kind: finding.Uninitialized, declarations: words, wrong: begin + "red.shared.add.u32 [%r4], 1;\n",
		right: begin + "@%p1 red.shared.add.u32 [%r4], 1;\n", at: "red.shared.add.u32 [%r4], 1", contains: []string{"has stored an undefined value"},
	}.check(t)
}

// TestUnreadExchange exchanges words that were never written. Only an exchange whose old value is used
// reads them.
func TestUnreadExchange(t *testing.T) {
	t.Parallel()
	const (
		words    = ".shared .align 16 .b8 s[128];"
		begin    = "mov.u32 %r3, s;\n mad.lo.u32 %r4, %r0, 4, %r3;\n"
		exchange = "atom.shared.exch.b32 %r1, [%r4], %r0"
	)
	defect{
		name: "an exchange", kind: finding.Uninitialized, declarations: words, setup: setup{threads: 32},
		wrong: begin + exchange + ";\n st.global.u32 [%rd31], %r1;\n",
		right: begin + exchange + ";\n ld.shared.u32 %r2, [%r4];\n st.global.u32 [%rd31], %r2;\n",
		at:    exchange, contains: []string{"was never written"},
	}.check(t)
}

// TestPaddedRows multiplies a matrix of which the last eight rows were never written. The rows of the
// product are discarded, or stored.
func TestPaddedRows(t *testing.T) {
	t.Parallel()
	const (
		words = ".shared .align 16 .b8 s[512];"
		fill  = "mov.u32 %r3, s;\n mad.lo.u32 %r4, %r0, 8, %r3;\n mov.u64 %rd2, 0;\n setp.lt.u32 %p1, %r0, 32;\n st.shared.u64 [%r4], %rd2;\n LAST bar.sync 0;\n"
		load  = "and.b32 %r5, %r0, 15;\n shr.u32 %r6, %r0, 4;\n mad.lo.u32 %r7, %r6, 128, %r3;\n and.b32 %r5, %r0, 7;\n mad.lo.u32 %r7, %r5, 16, %r7;\n shr.u32 %r6, %r0, 3;\n and.b32 %r6, %r6, 1;\n mad.lo.u32 %r7, %r6, 256, %r7;\n" +
			"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r7];\n mov.u32 %r14, 0;\n mov.u32 %r15, 0;\n" + zeroSums +
			"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r10,%r11,%r12,%r13}, {%r14,%r15}, {%f5,%f6,%f7,%f8};\n"
		last = "st.shared.u64 [%r4+256], %rd2;\n"
	)
	padded, whole := strings.Replace(fill, "LAST", "", 1)+load, strings.Replace(fill, "LAST", last, 1)+load
	schedules(t, "discarded", setup{text: kernelWith(words, storing(padded+"mov.b32 %r1, %f1;\n"))}, each(32, func(uint32) uint32 { return 0 }))
	defect{
		name: "stored", kind: finding.Uninitialized, declarations: words, wrong: padded + "st.global.f32 [%rd31], %f3;\n", right: whole + "st.global.f32 [%rd31], %f3;\n",
		at: "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r7]", with: "st.global.f32 [%rd31], %f3",
		contains: []string{"reads a row of 16 bytes", "was never written", "it is stored"},
	}.check(t)
}

// TestUninitializedAccumulator adds to an accumulator of wgmma that was never written.
func TestUninitializedAccumulator(t *testing.T) {
	t.Parallel()
	body := func(first, scale string) string {
		return ".local .align 4 .b8 l[4];\n" + productReady + first + "ld.local.f32 %f0, [l];\n setp.ne.u32 %p2, %r0, 400;\n" + groupFence +
			strings.Replace(product, "%rd11, 1,", "%rd11, "+scale+",", 1) + groupCommit + groupWait + result
	}
	const written = "st.local.u32 [l], 0;\n"
	for _, scale := range []string{"1", "%p2"} {
		defect{
			name: "scale-d " + scale, kind: finding.Uninitialized, declarations: productShared, setup: setup{threads: 128, arch: "sm_90a"},
			wrong: body("", scale), right: body(written, scale), at: "*", with: "*", contains: []string{"its accumulator"},
		}.check(t)
	}
	g := setup{text: kernelWith(productShared, body("", "0")+"ret;"), threads: 128, arch: "sm_90a"}
	if got := simulate(t, g); len(got.findings) > 0 {
		t.Errorf("a product that is not added: %v", got.findings)
	}
}

// TestUnsetRegisters uses registers that no instruction has set.
func TestUnsetRegisters(t *testing.T) {
	t.Parallel()
	const function = ".func (.reg .b32 y) f(.reg .b32 x) { .reg .b32 z; .reg .pred q; setp.eq.u32 q, x, z; @q bra L; L: mov.u32 y, x; ret; }\n.func (.reg .b32 y) g(.reg .b32 x) { mov.u32 y, x; ret; }\n"
	check := func(name, wrong, right, at string, contains ...string) {
		t.Helper()
		defect{
			name: name, kind: finding.Uninitialized, declarations: function + ".shared .align 4 .b8 s[4];\n", setup: setup{threads: 32, out: 64},
			wrong: wrong, right: right, at: at, contains: append(contains, "was never set"),
		}.check(t)
	}
	const (
		store  = "st.global.u32 [%rd31], %r9"
		stores = store + ";\n"
		set    = "mov.u32 %r9, 4;\n"
		fifth  = "setp.eq.u32 %p1, %r0, 5;\n"
		shfl   = "shfl.sync.bfly.b32 %r9, %r8, 1, 31, -1;\n"
	)
	check("a store", stores, set+stores, store, "thread 0", "the register %r9", "the value is stored", "(32 times)")
	check("a guarded definition", fifth+"@%p1 "+set+stores, fifth+"@%p1 "+set+"@!%p1 mov.u32 %r9, 0;\n"+stores, store, "(31 times)")
	check("one side of a branch", fifth+"@%p1 bra L;\n"+set+"L:\n"+stores, fifth+set+"@%p1 bra L;\n mov.u32 %r9, 3;\nL:\n"+stores, store, "thread 5", "(once)")
	check("a predicate", "@%p3 st.global.u32 [%rd31], %r0;\n", "setp.eq.u32 %p3, %r0, %r0;\n @%p3 st.global.u32 [%rd31], %r0;\n",
		"@%p3 st.global.u32 [%rd31], %r0", "the register %p3", "its condition")
	check("a branch", "@%p3 bra L;\n mov.u32 %r1, 1;\nL:\n", fifth+"@%p1 bra L;\n mov.u32 %r1, 1;\nL:\n", "@%p3 bra L", "the condition of the branch")
	check("an address", "mad.wide.u32 %rd9, %r9, 4, %rd0;\n ld.global.u32 %r1, [%rd9];\n", set+"mad.wide.u32 %rd9, %r9, 4, %rd0;\n ld.global.u32 %r1, [%rd9];\n",
		"ld.global.u32 %r1, [%rd9]", "its address")
	check("a sum in a loop", "mov.u32 %r2, 0;\nL:\n add.u32 %r9, %r9, %r2;\n add.u32 %r2, %r2, 1;\n setp.lt.u32 %p1, %r2, 5;\n @%p1 bra L;\n"+stores,
		set+"mov.u32 %r2, 0;\nL:\n add.u32 %r9, %r9, %r2;\n add.u32 %r2, %r2, 1;\n setp.lt.u32 %p1, %r2, 5;\n @%p1 bra L;\n"+stores, store, "(32 times)")
	check("a shuffle", fifth+"@%p1 mov.u32 %r8, 1;\n"+shfl+stores, "mov.u32 %r8, 1;\n"+shfl+stores, store, "the register %r8", "(31 times)")
	check("a shuffle by an unset distance", "shfl.sync.idx.b32 %r9, %r0, %r8, 31, -1;\n", "mov.u32 %r8, 1;\n shfl.sync.idx.b32 %r9, %r0, %r8, 31, -1;\n", "*")
	check("a register of a function", "call (%r9), f, (%r0);\n", "call (%r9), g, (%r0);\n", "*")
}

// TestUnsetRegistersThatDoNotMatter reads registers that were never set, as compilers do.
func TestUnsetRegistersThatDoNotMatter(t *testing.T) {
	t.Parallel()
	const function = ".func (.reg .b32 y) f(.param .b32 x) { mov.u32 y, 3; ret; }\n"
	for name, body := range map[string]string{
		"a copy":                "mov.u32 %r8, %r9;\n mov.u32 %r1, 7;\n",
		"selp":                  "setp.eq.u32 %p1, %r0, %r0;\n selp.u32 %r1, 7, %r9, %p1;\n",
		"a guard":               "setp.eq.u32 %p1, %r0, 5;\n mov.u32 %r1, 7;\n @%p1 mov.u32 %r9, 7;\n @%p1 mov.u32 %r1, %r9;\n",
		"a shuffle to a copy":   "setp.lt.u32 %p1, %r0, 16;\n @%p1 mov.u32 %r8, 7;\n shfl.sync.idx.b32 %r1, %r8, 3, 31, -1;\n",
		"a shuffle within half": "setp.lt.u32 %p1, %r0, 16;\n @%p1 mov.u32 %r8, 7;\n shfl.sync.down.b32 %r2, %r8, 1, 31, -1;\n setp.lt.u32 %p2, %r0, 15;\n selp.u32 %r1, %r2, 7, %p2;\n",
		"lanes that diverge":    "setp.lt.u32 %p1, %r0, 16;\n mov.u32 %r1, 7;\n @%p1 bra L;\n shfl.sync.bfly.b32 %r2, %r8, 1, 31, 0xffff0000;\nL:\n",
		"an argument":           ".param .b32 p;\n st.param.b32 [p], %r9;\n call (%r2), f, (p);\n add.u32 %r1, %r2, 4;\n",
		"a dead register":       "mov.u32 %r1, 7;\n setp.eq.u32 %p1, %r0, 40;\n @!%p1 bra L;\n mov.u32 %r1, %r9;\nL:\n",
	} {
		schedules(t, name, setup{text: kernelWith(function, storing(body))}, each(32, func(uint32) uint32 { return 7 }))
	}
}

// TestUnsetAccumulator starts a product whose accumulator was never set. It must not be added to.
func TestUnsetAccumulator(t *testing.T) {
	t.Parallel()
	body := func(scale string) string {
		return strings.TrimSuffix(productReady, productZero) + "setp.eq.u32 %p2, %r0, 400;\n not.pred %p3, %p2;\n" + groupFence +
			strings.Replace(product, "%rd11, 1,", "%rd11, "+scale+",", 1) + groupCommit + groupWait + result
	}
	defect{
		name: "an accumulator", kind: finding.Uninitialized, declarations: productShared, setup: setup{threads: 128, arch: "sm_90a"},
		wrong: body("%p3"), right: body("%p2"), at: "*", contains: []string{"its accumulator", "the register %f0"},
	}.check(t)
}
