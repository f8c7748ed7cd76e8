package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"attune/internal/sim/count"
)

// counting returns a function that compares the counters of a kernel with expected ones, with all
// checkers and with none.
func counting(t *testing.T, g setup, declare string, ignore ...string) func(name, body string, want count.Counters) {
	t.Helper()
	return func(name, body string, want count.Counters) {
		t.Helper()
		g.text = kernelWith(".shared .align 128 .b8 s[8192];"+declare, body+"\n ret;")
		g.writtenBefore, g.out = true, 4096
		g.in = make([]uint32, 4096)
		for _, unchecked := range []bool{false, true} {
			g.unchecked = unchecked
			got := simulate(t, g)
			if d := cmp.Diff(want, got.counters, cmpopts.IgnoreUnexported(count.Counters{}), cmpopts.IgnoreFields(count.Counters{}, ignore...)); d != "" {
				t.Errorf("%s, unchecked %v (-want +got):\n%s", name, unchecked, d)
			}
		}
	}
}

func sectorsOf(requests, sectors uint64) count.Sectors {
	return count.Sectors{Requests: requests, Sectors: sectors}
}

func banksOf(requests, wavefronts, conflicts uint64) count.Banks {
	return count.Banks{Requests: requests, Wavefronts: wavefronts, Conflicts: conflicts}
}

// onGlobal has lane i access global memory at i*stride + offset. %p1 is true in lanes below 16, %p2
// in no lane.
func onGlobal(stride, offset int, access string) string {
	return fmt.Sprintf("mad.wide.u32 %%rd2, %%r0, %d, %%rd1;\n mad.wide.u32 %%rd3, %%r0, %d, %%rd0;\n setp.lt.u32 %%p1, %%r0, 16;\n "+
		"setp.gt.u32 %%p2, %%r0, 99;\n "+access, stride, stride, offset)
}

// onShared has lane i access shared memory at i*stride.
func onShared(stride int, access string) string {
	return fmt.Sprintf("mov.u32 %%r2, s;\n mad.lo.u32 %%r3, %%r0, %d, %%r2;\n ", stride) + access
}

// filled initialises the whole shared array: each lane stores 64 words, one conflict-free pass
// each.
const filled = "mov.u32 %r2, s;\n mad.lo.u32 %r3, %r0, 4, %r2;\n mov.u32 %r9, 0;\nFILL:\n st.shared.u32 [%r3], 0;\n add.u32 %r3, %r3, 128;\n " +
	"add.u32 %r9, %r9, 1;\n setp.lt.u32 %p3, %r9, 64;\n @%p3 bra FILL;\n bar.warp.sync -1;\n "

// A sector has 32 bytes. A request is a warp instruction with at least one active lane.
func TestGlobalCounters(t *testing.T) {
	t.Parallel()
	check := counting(t, setup{}, "")
	const word = "ld.global.u32 %%r1, [%%rd2+%d];"
	loads := func(name, body string, sectors, bytes uint64) {
		t.Helper()
		check(name, body, count.Counters{GlobalLoads: sectorsOf(1, sectors), GlobalBytes: bytes})
	}
	loads("contiguous words", onGlobal(4, 0, word), 4, 128)
	loads("words not aligned to a sector", onGlobal(4, 16, word), 5, 128)
	loads("every second word", onGlobal(8, 0, word), 8, 128)
	loads("one sector per lane", onGlobal(32, 0, word), 32, 128)
	loads("one word for all lanes", onGlobal(0, 0, word), 1, 128)
	loads("vectors", onGlobal(16, 0, "ld.global.v4.u32 {%%r1,%%r2,%%r3,%%r4}, [%%rd2+%d];"), 16, 512)
	loads("bytes", onGlobal(1, 0, "ld.global.u8 %%r1, [%%rd2+%d];"), 1, 32)
	// Of a guarded instruction only the active lanes count. Without one there is no request.
	loads("half of the lanes", onGlobal(4, 0, "@%%p1 "+word), 2, 64)
	check("no lane", onGlobal(4, 0, "@%%p2 "+word), count.Counters{})
	check("stores", onGlobal(8, 0, "st.global.u32 [%%rd3+%d], %%r1;"), count.Counters{GlobalStores: sectorsOf(1, 8), GlobalBytes: 128})
	check("no lane stores", onGlobal(8, 0, "@%%p2 st.global.u32 [%%rd3+%d], %%r1;"), count.Counters{})
	check("a sum in global memory", onGlobal(0, 0, "red.global.add.u32 [%%rd3+%d], 1;"),
		count.Counters{Atomics: 1, GlobalAtomics: sectorsOf(1, 1), GlobalBytes: 128})
	counting(t, setup{threads: 64, blocks: 3}, "")("two warps of three blocks", onGlobal(4, 0, word),
		count.Counters{GlobalLoads: sectorsOf(6, 24), GlobalBytes: 768})
}

// In a pass each of 32 banks delivers one 4-byte word, to every lane that accesses it. A phase is
// the whole warp for up to 4 bytes per lane, half of it for 8 bytes, a quarter for 16 bytes.
func TestSharedCounters(t *testing.T) {
	t.Parallel()
	check := counting(t, setup{}, "")
	store := func(stride int, conflicts uint64) {
		t.Helper()
		check(fmt.Sprintf("%d bytes apart", stride), onShared(stride, "st.shared.u32 [%r3], 1;"),
			count.Counters{SharedStores: banksOf(1, 1+conflicts, conflicts), SharedBytes: 128})
	}
	store(4, 0)
	store(8, 1) // 2 words in every second bank
	store(12, 0)
	store(16, 3)
	store(32, 7)
	store(64, 15)
	store(128, 31)
	store(132, 0) // rows of 33 words: the usual padding
	store(0, 0)   // all lanes write one word
	// Two lanes share each word, and all 16 words are in one bank.
	check("pairs of lanes in one bank", "shr.u32 %r1, %r0, 1;\n mov.u32 %r2, s;\n mad.lo.u32 %r3, %r1, 128, %r2;\n st.shared.u32 [%r3], 5;",
		count.Counters{SharedStores: banksOf(1, 16, 15), SharedBytes: 128})
	check("bytes of one word", onShared(1, "st.shared.u8 [%r3], 1;"), count.Counters{SharedStores: banksOf(1, 1, 0), SharedBytes: 32})
	check("no lane", onShared(4, "setp.gt.u32 %p1, %r0, 99;\n @%p1 st.shared.u32 [%r3], 1;"), count.Counters{})
	const wide = "st.shared.v4.u32 [%r3], {%r1,%r1,%r1,%r1};"
	check("16 bytes, contiguous", onShared(16, wide), count.Counters{SharedStores: banksOf(1, 4, 0), SharedBytes: 512})
	check("16 bytes of 32", onShared(32, wide), count.Counters{SharedStores: banksOf(1, 8, 4), SharedBytes: 512}) // one more pass per quarter
	check("16 bytes, one address for all lanes", onShared(0, wide), count.Counters{SharedStores: banksOf(1, 4, 0), SharedBytes: 512})
	// Lanes 0 to 11 are one quarter and half of another: two phases.
	check("16 bytes of twelve lanes", onShared(16, "setp.lt.u32 %p1, %r0, 12;\n @%p1 "+wide), count.Counters{SharedStores: banksOf(1, 2, 0), SharedBytes: 192})
	const two = "st.shared.v2.u32 [%r3], {%r1,%r1};"
	check("8 bytes, contiguous", onShared(8, two), count.Counters{SharedStores: banksOf(1, 2, 0), SharedBytes: 256})
	check("8 bytes of 16", onShared(16, two), count.Counters{SharedStores: banksOf(1, 4, 2), SharedBytes: 256})
	// A store with lanes in both halves takes two passes even where one would suffice, as on an
	// H200.
	check("8 bytes of every fourth lane", onShared(8, "and.b32 %r1, %r0, 3;\n setp.eq.u32 %p1, %r1, 0;\n @%p1 "+two),
		count.Counters{SharedStores: banksOf(1, 2, 0), SharedBytes: 64})
	check("read back", onShared(8, "st.shared.u32 [%r3], 1;\n ld.shared.u32 %r1, [%r3];\n setp.lt.u32 %p1, %r0, 16;\n @%p1 ld.shared.u32 %r1, [%r3];"),
		count.Counters{SharedStores: banksOf(1, 2, 1), SharedLoads: banksOf(2, 3, 1), SharedBytes: 320})

	// Loads of 8 and 16 bytes from 8 KiB that 64 stores have initialised.
	loads := func(name, index string, bytes uint64, want count.Banks) {
		t.Helper()
		instruction := map[uint64]string{8: "ld.shared.v2.u32 {%r4,%r5}, [%r3];", 16: "ld.shared.v4.u32 {%r4,%r5,%r6,%r7}, [%r3];"}[bytes]
		check(fmt.Sprintf("%s, %d bytes", name, bytes), filled+"mov.u32 %r1, %r0;\n "+index+
			fmt.Sprintf("\n mad.lo.u32 %%r3, %%r1, %d, %%r2;\n ", bytes)+instruction,
			count.Counters{SharedStores: banksOf(64, 64, 0), SharedLoads: want, SharedBytes: 64*128 + 32*bytes})
	}
	loads("contiguous", "", 8, banksOf(1, 2, 0))
	loads("contiguous", "", 16, banksOf(1, 4, 0))
	loads("every second element", "shl.b32 %r1, %r1, 1;", 8, banksOf(1, 4, 2))    // 16 lanes over half of the banks
	loads("every second element", "shl.b32 %r1, %r1, 1;", 16, banksOf(1, 8, 4))   // 8 lanes over half of the banks
	loads("every eighth element", "shl.b32 %r1, %r1, 3;", 16, banksOf(1, 32, 28)) // 8 lanes in one bank
	// Where neighbouring lanes have the same address, two phases are served at once. At most 16
	// elements of 8 bytes take one pass, of 16 bytes two.
	loads("one address for all lanes", "mov.u32 %r1, 3;", 8, banksOf(1, 1, 0))
	loads("one address for all lanes", "mov.u32 %r1, 3;", 16, banksOf(1, 2, 0))
	loads("pairs", "shr.u32 %r1, %r1, 1;", 8, banksOf(1, 1, 0))
	loads("fours", "shr.u32 %r1, %r1, 2;", 8, banksOf(1, 1, 0))
	loads("fours", "shr.u32 %r1, %r1, 2;", 16, banksOf(1, 2, 0))
	loads("pairs at distance two", "shr.u32 %r5, %r1, 2;\n shl.b32 %r5, %r5, 1;\n and.b32 %r1, %r1, 1;\n or.b32 %r1, %r1, %r5;", 8, banksOf(1, 1, 0))
	loads("lanes 0 and 2, 1 and 3", "and.b32 %r1, %r1, 29;", 8, banksOf(1, 2, 0)) // elements 0 1 4 5 .. 28 29: 16 to 29 are in the banks of 0 to 13
	loads("lanes 0 and 4", "and.b32 %r1, %r1, 27;", 8, banksOf(1, 2, 0))          // pairs at distance four
	loads("pairs in one bank", "shr.u32 %r1, %r1, 1;\n shl.b32 %r1, %r1, 4;", 8, banksOf(1, 16, 14))
}

// Eight contiguous rows of 16 bytes use each bank once. Rows 128 bytes apart are all in the same
// four banks.
func TestMatrixCounters(t *testing.T) {
	t.Parallel()
	check := counting(t, setup{}, "")
	matrix := func(stride int) string {
		return onShared(stride, "st.shared.v4.u32 [%r3], {%r1,%r1,%r1,%r1};\n bar.warp.sync -1;\n "+
			"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4,%r5,%r6,%r7}, [%r3];")
	}
	four, bad := banksOf(1, 4, 0), banksOf(1, 32, 28)
	check("a matrix", matrix(16), count.Counters{SharedStores: four, SharedLoads: four, MatrixLoads: four, SharedBytes: 1024})
	check("a matrix in one bank", matrix(128), count.Counters{SharedStores: bad, SharedLoads: bad, MatrixLoads: bad, SharedBytes: 1024})
	// 144 bytes apart, each row begins four banks after the previous one.
	check("a matrix with padding", matrix(144), count.Counters{SharedStores: four, SharedLoads: four, MatrixLoads: four, SharedBytes: 1024})
	check("a matrix stored", onShared(128, "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r3], {%r1,%r1};"),
		count.Counters{SharedStores: banksOf(1, 16, 14), SharedBytes: 256})
}

// A wmma.load or wmma.store is counted as the machine instructions that ptxas makes of it.
// Contiguous lines of 16 elements have no conflicts. Lines 64 words apart all begin in the same
// bank.
func TestFragmentCounters(t *testing.T) {
	t.Parallel()
	registers := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("%%r%d", 20+i))
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	check := counting(t, setup{}, "", "SharedBytes", "GlobalBytes", "SharedStores")
	shared := func(form, memory string, n int, want, matrices count.Banks) {
		t.Helper()
		check("load "+form, filled+fmt.Sprintf("wmma.load.%s %s, [%%r2], %s;", strings.Replace(form, "SPACE", "shared", 1), registers(n), memory),
			count.Counters{SharedLoads: want, MatrixLoads: matrices})
	}
	// A and B of f16: ldmatrix of four matrices of eight 16-byte rows. Rows 32 bytes apart take 2
	// passes per matrix, rows 128 bytes apart 8, rows 144 bytes apart 1.
	for _, which := range []string{"a.sync.aligned.row", "a.sync.aligned.col", "b.sync.aligned.row", "b.sync.aligned.col"} {
		form := which + ".m16n16k16.SPACE.f16"
		shared(form, "16", 8, banksOf(1, 8, 4), banksOf(1, 8, 4))
		shared(form, "64", 8, banksOf(1, 32, 28), banksOf(1, 32, 28))
		shared(form, "72", 8, banksOf(1, 4, 0), banksOf(1, 4, 0))
	}
	shared("a.sync.aligned.row.m32n8k16.SPACE.f16", "72", 8, banksOf(2, 8, 0), banksOf(2, 8, 0)) // eight matrices
	shared("b.sync.aligned.row.m32n8k16.SPACE.f16", "72", 8, banksOf(1, 2, 0), banksOf(1, 2, 0)) // two
	// C of f32 by rows: four loads of 8 bytes per lane, from 32 bytes of each of eight lines. A
	// half warp accesses four lines, which conflict 64 words apart but not 72 words apart.
	shared("c.sync.aligned.row.m16n16k16.SPACE.f32", "64", 8, banksOf(4, 32, 24), count.Banks{})
	shared("c.sync.aligned.row.m16n16k16.SPACE.f32", "72", 8, banksOf(4, 8, 0), count.Banks{})
	// By columns: eight loads of 4 bytes per lane, from eight words of each of the lines 2t. Lines
	// 128 words apart take four passes.
	shared("c.sync.aligned.col.m16n16k16.SPACE.f32", "64", 8, banksOf(8, 32, 24), count.Banks{})
	shared("c.sync.aligned.row.m8n32k16.SPACE.f32", "64", 8, banksOf(8, 32, 24), count.Banks{}) // rows and columns swapped
	shared("c.sync.aligned.col.m8n32k16.SPACE.f32", "72", 8, banksOf(4, 8, 0), count.Banks{})
	// C of f16: four loads of 4 bytes per lane, from 16 bytes of each of eight lines. Lines of 144
	// bytes are four banks apart.
	shared("c.sync.aligned.row.m16n16k16.SPACE.f16", "72", 4, banksOf(4, 4, 0), count.Banks{})
	shared("c.sync.aligned.col.m16n16k16.SPACE.f16", "64", 4, banksOf(4, 32, 28), count.Banks{})
	// tf32: along a line as f16, across it from eight words of each of four lines.
	shared("a.sync.aligned.row.m16n16k8.SPACE.tf32", "20", 4, banksOf(4, 4, 0), count.Banks{}) // 20 words apart: 0 20 8 28 16 4 24 12, four banks each
	shared("a.sync.aligned.col.m16n16k8.SPACE.tf32", "40", 4, banksOf(4, 4, 0), count.Banks{}) // 40 words apart: 0 8 16 24, eight banks each
	// s8: ldmatrix of two matrices along a line. Across it eight loads of one byte per lane, from
	// eight bytes of each of four lines.
	shared("a.sync.aligned.row.m16n16k16.SPACE.s8", "16", 2, banksOf(1, 2, 0), banksOf(1, 2, 0))
	shared("a.sync.aligned.col.m16n16k16.SPACE.s8", "32", 2, banksOf(8, 32, 24), count.Banks{}) // lines 4t, 128 bytes apart: one bank
	shared("a.sync.aligned.col.m16n16k16.SPACE.s8", "16", 2, banksOf(8, 16, 8), count.Banks{})  // 64 bytes apart: two

	global := func(form, memory string, n int, want count.Sectors) {
		t.Helper()
		check("load "+form, fmt.Sprintf("wmma.load.%s %s, [%%rd1], %s;", strings.Replace(form, "SPACE", "global", 1), registers(n), memory),
			count.Counters{GlobalLoads: want})
	}
	// From global memory: four loads of 4 bytes per lane, from 16 bytes of each of eight lines,
	// each in its own sector. The halves of a 32-byte line are in one sector but in different
	// requests.
	global("a.sync.aligned.row.m16n16k16.SPACE.f16", "64", 8, sectorsOf(4, 32))
	global("a.sync.aligned.row.m16n16k16.SPACE.f16", "16", 8, sectorsOf(4, 32))
	global("b.sync.aligned.row.m16n16k16.SPACE.f16", "64", 8, sectorsOf(4, 32))
	global("c.sync.aligned.row.m16n16k16.SPACE.f32", "64", 8, sectorsOf(4, 32)) // eight lines, one sector each
	global("c.sync.aligned.col.m16n16k16.SPACE.f32", "64", 8, sectorsOf(8, 32)) // four lines, one sector each
	global("a.sync.aligned.row.m16n16k16.SPACE.s8", "16", 2, sectorsOf(2, 8))   // eight lines of 16 bytes, two to a sector

	store := counting(t, setup{}, "", "SharedBytes", "GlobalBytes")
	store("store to global memory", "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd0], "+registers(8)+", 64;",
		count.Counters{GlobalStores: sectorsOf(4, 32)})
	store("store halves to global memory", "wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%rd0], "+registers(4)+", 16;",
		count.Counters{GlobalStores: sectorsOf(4, 32)})
	store("store to shared memory", "mov.u32 %r2, s;\n wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r2], "+registers(8)+", 64;",
		count.Counters{SharedStores: banksOf(4, 32, 24)})
	store("store to padded shared memory", "mov.u32 %r2, s;\n wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r2], "+registers(8)+", 72;",
		count.Counters{SharedStores: banksOf(4, 8, 0)})
}

// A copy reads the sectors of the lanes that read any bytes, and writes for all lanes.
func TestCopyCounters(t *testing.T) {
	t.Parallel()
	check := counting(t, setup{}, "")
	copies := func(from, to int, instruction string) string {
		return onShared(to, fmt.Sprintf("setp.lt.u32 %%p1, %%r0, 8;\n setp.gt.u32 %%p2, %%r0, 99;\n selp.b32 %%r1, 16, 0, %%p1;\n "+
			"selp.b32 %%r4, 16, 4, %%p1;\n mad.wide.u32 %%rd2, %%r0, %d, %%rd1;\n ", from)+instruction+"\n cp.async.wait_all;")
	}
	const whole = "cp.async.cg.shared.global [%r3], [%rd2], 16;"
	check("16 bytes", copies(16, 16, whole), count.Counters{AsyncBytes: 512, BypassCopies: sectorsOf(1, 16), SharedCopies: banksOf(1, 4, 0), GlobalBytes: 512})
	check("cached in L1", copies(16, 16, "cp.async.ca.shared.global [%r3], [%rd2], 16;"),
		count.Counters{AsyncBytes: 512, CachedCopies: sectorsOf(1, 16), SharedCopies: banksOf(1, 4, 0), GlobalBytes: 512})
	check("4 bytes", copies(4, 4, "cp.async.ca.shared.global [%r3], [%rd2], 4;"),
		count.Counters{AsyncBytes: 128, CachedCopies: sectorsOf(1, 4), SharedCopies: banksOf(1, 1, 0), GlobalBytes: 128})
	check("no lane reads", copies(16, 16, "cp.async.cg.shared.global [%r3], [%rd2], 16, 0;"),
		count.Counters{AsyncBytes: 512, BypassCopies: sectorsOf(1, 0), SharedCopies: banksOf(1, 4, 0)})
	check("eight lanes read", copies(16, 16, "cp.async.cg.shared.global [%r3], [%rd2], 16, %r1;"),
		count.Counters{AsyncBytes: 512, BypassCopies: sectorsOf(1, 4), SharedCopies: banksOf(1, 4, 0), GlobalBytes: 128})
	check("eight lanes read, by a predicate", copies(16, 16, "cp.async.cg.shared.global [%r3], [%rd2], 16, !%p1;"),
		count.Counters{AsyncBytes: 512, BypassCopies: sectorsOf(1, 4), SharedCopies: banksOf(1, 4, 0), GlobalBytes: 128})
	check("all lanes read", copies(16, 16, "cp.async.cg.shared.global [%r3], [%rd2], 16, %r4;"),
		count.Counters{AsyncBytes: 512, BypassCopies: sectorsOf(1, 16), SharedCopies: banksOf(1, 4, 0), GlobalBytes: 512})
	check("eight lanes copy", copies(16, 16, "@%p1 "+whole),
		count.Counters{AsyncBytes: 128, BypassCopies: sectorsOf(1, 4), SharedCopies: banksOf(1, 1, 0), GlobalBytes: 128})
	check("no lane copies", copies(16, 16, "@%p2 "+whole), count.Counters{})
	// Source and target have banks, and the worse one counts: 32 bytes apart, eight lanes take two
	// passes.
	check("to every second element", copies(16, 32, whole),
		count.Counters{AsyncBytes: 512, BypassCopies: sectorsOf(1, 16), SharedCopies: banksOf(1, 8, 4), GlobalBytes: 512})
	check("from every second element", copies(32, 16, whole),
		count.Counters{AsyncBytes: 512, BypassCopies: sectorsOf(1, 32), SharedCopies: banksOf(1, 8, 4), GlobalBytes: 512})
}

func TestCounters(t *testing.T) {
	t.Parallel()
	counting(t, setup{threads: 64}, "")("barriers", "bar.sync 0;\n bar.sync 1, 64;\n bar.arrive 2, 64;\n @!%p1 bar.sync 3;", count.Counters{Barriers: 8})
	counting(t, setup{}, "")("local memory", ".local .align 4 .b8 l[8];\n st.local.v2.u32 [l], {%r0, %r0};\n "+
		"ld.local.u32 %r1, [l];", count.Counters{LocalBytes: 12 * 32})
	// Two warps, each with one product of f16 and one of e4m3. The test kernels are for sm_89,
	// which has machine instructions for both.
	const halves, eights = 2 * 16 * 8 * 16, 2 * 16 * 8 * 32
	counting(t, setup{threads: 64}, "")("products", `
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};
	mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};`,
		count.Counters{
			TensorOps: 4, TensorFLOPs: 2 * (halves + eights), Products: [...]uint64{count.HMMA: 2, count.QMMA: 2, count.DMMA: 0},
			Operations: [...]uint64{count.FP16ToFP32: 2 * halves, count.FP8: 2 * eights, count.FP64: 0},
		})
}

// A product of a warpgroup is one instruction in each of its four warps, with 16 of the 64 rows.
func TestWarpgroupCounters(t *testing.T) {
	t.Parallel()
	g := setup{text: kernelWith(productShared, productReady+groupFence+product+groupCommit+groupWait+"ret;"), threads: 128, arch: "sm_90a"}
	const flops = 2 * 64 * 8 * 32
	want := count.Counters{
		TensorOps: 4, TensorFLOPs: flops, Products: [...]uint64{count.QMMA: 4, count.DMMA: 0}, WarpgroupProducts: 4,
		Operations: [...]uint64{count.FP8: flops, count.FP64: 0}, Barriers: 4,
	}
	got := simulate(t, g).counters
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(count.Counters{}), cmpopts.IgnoreFields(count.Counters{}, "SharedStores", "SharedBytes")); d != "" {
		t.Error(d)
	}
}

// A bulk copy moves whole sectors: 256 bytes that begin in the middle of a sector touch nine. One
// lane starts it, and both warps poll the mbarrier until it lands.
func TestBulkCounters(t *testing.T) {
	t.Parallel()
	check := func(name, body string, want count.Counters) {
		t.Helper()
		const ready = `mov.u32 %r10, s;
	mov.u32 %r11, bar;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared::cta.b64 [%r11], 1;
	bar.sync 0;
	@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 256;
`
		const wait = "WAIT:\n mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r11], 0;\n @!%p2 bra WAIT;\n ret;"
		g := setup{
			text:    kernelWith(".shared .align 128 .b8 s[256];\n.shared .align 8 .b8 bar[8];\n", ready+body+wait),
			threads: 64, in: make([]uint32, 128), out: 128, writtenBefore: true, arch: "sm_90a",
		}
		got := simulate(t, g).counters
		if got.Waits < 2 {
			t.Errorf("%s: %d waits at the mbarrier", name, got.Waits)
		}
		want.Barriers = 2
		if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(count.Counters{}), cmpopts.IgnoreFields(count.Counters{}, "Waits")); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	const load = "@%%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%%r10], [%%rd1+%d], 256, [%%r11];\n"
	const store = "WAIT0:\n mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r11], 0;\n @!%p2 bra WAIT0;\n " +
		"@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r10], 256;\n @%p1 cp.async.bulk.commit_group;\n @%p1 cp.async.bulk.wait_group 0;\n"
	check("a load", fmt.Sprintf(load, 0), count.Counters{BulkLoads: 1, BulkLoadBytes: 256, AsyncBytes: 256})
	check("a load across sectors", fmt.Sprintf(load, 16), count.Counters{BulkLoads: 1, BulkLoadBytes: 288, AsyncBytes: 256})
	check("a load and a store", fmt.Sprintf(load, 0)+store,
		count.Counters{BulkLoads: 1, BulkLoadBytes: 256, BulkStores: 1, BulkStoreBytes: 256, AsyncBytes: 512})
}

func TestInstructionClasses(t *testing.T) {
	t.Parallel()
	check := func(name, body string, g setup, want map[string]uint64) {
		t.Helper()
		g.text = kernelWith(".shared .align 16 .b8 s[512];", body)
		c := simulate(t, g).counters
		// Every kernel begins with these instructions and ends with ret.
		total := uint64(0)
		for class, n := range map[string]uint64{"memory": 2, "move": 3, "integer": 2, "control": 1, "float": 0, "sync": 0, "warp": 0, "tensor": 0} {
			want[class] += n
			total += want[class]
		}
		if d := cmp.Diff(want, c.ByClass()); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if got := c.WarpInstructions(); got != total {
			t.Errorf("%s: %d warp instructions, want %d", name, got, total)
		}
	}
	check("nothing", "ret;", setup{}, map[string]uint64{})
	check("one of each", fillShared+`
	add.u32 %r1, %r0, 1;
	add.f32 %f1, %f2, %f3;
	mov.u32 %r2, 1;
	shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1;
	bar.sync 0;
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};
	bra END;
END:
	ret;`, setup{}, map[string]uint64{"integer": 2, "float": 1, "move": 3, "warp": 2, "sync": 1, "tensor": 1, "control": 1, "memory": 1})
	// A loop of three instructions with ten iterations.
	check("a loop", `
	mov.u32 %r1, 0;
LOOP:
	add.u32 %r1, %r1, 1;
	setp.lt.u32 %p1, %r1, 10;
	@%p1 bra LOOP;
	ret;`, setup{}, map[string]uint64{"move": 1, "integer": 20, "control": 9}) // the tenth branch has no active lane
	check("two sides", `
	setp.lt.u32 %p1, %r0, 5;
	@%p1 bra LOW;
	add.u32 %r1, %r1, 1;
	bra JOIN;
LOW:
	add.u32 %r1, %r1, 2;
	add.u32 %r1, %r1, 2;
JOIN:
	ret;`, setup{}, map[string]uint64{"integer": 4, "control": 2})
	check("a guard with no lane", "setp.gt.u32 %p1, %r0, 99;\n @%p1 add.u32 %r1, %r1, 1;\n ret;", setup{}, map[string]uint64{"integer": 1})
}
