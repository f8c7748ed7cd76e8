package sim

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestCounters counts kernels whose figures can be worked out by hand.
func TestCounters(t *testing.T) {
	t.Parallel()
	check := func(name, body string, g given, want Counters) {
		t.Helper()
		g.text = kernelWith(".shared .align 128 .b8 s[8192];", body+"\n ret;")
		g.writtenBefore, g.out = true, 4096
		g.in = make([]uint32, 4096)
		for _, unchecked := range []bool{false, true} {
			g.unchecked = unchecked
			got := simulate(t, g)
			if d := cmp.Diff(want, got.counters, cmpopts.IgnoreUnexported(Counters{})); d != "" {
				t.Errorf("%s, unchecked %v (-want +got):\n%s", name, unchecked, d)
			}
		}
	}
	// Lane i accesses at i*stride + offset.
	global := func(stride, offset int, access string) string {
		return fmt.Sprintf("mad.wide.u32 %%rd2, %%r0, %d, %%rd1;\n mad.wide.u32 %%rd3, %%r0, %d, %%rd0;\n setp.lt.u32 %%p1, %%r0, 16;\n "+
			"setp.gt.u32 %%p2, %%r0, 99;\n "+access,
			stride, stride, offset)
	}
	const word = "ld.global.u32 %%r1, [%%rd2+%d];"
	check("words side by side", global(4, 0, word), given{}, Counters{GlobalLoadRequests: 1, GlobalLoadSectors: 4, GlobalBytes: 128})
	check("across a sector", global(4, 16, word), given{}, Counters{GlobalLoadRequests: 1, GlobalLoadSectors: 5, GlobalBytes: 128})
	check("every second word", global(8, 0, word), given{}, Counters{GlobalLoadRequests: 1, GlobalLoadSectors: 8, GlobalBytes: 128})
	check("a sector each", global(32, 0, word), given{}, Counters{GlobalLoadRequests: 1, GlobalLoadSectors: 32, GlobalBytes: 128})
	check("one word for all", global(0, 0, word), given{}, Counters{GlobalLoadRequests: 1, GlobalLoadSectors: 1, GlobalBytes: 128})
	check("half of the lanes", global(4, 0, "@%%p1 "+word), given{}, Counters{GlobalLoadRequests: 1, GlobalLoadSectors: 2, GlobalBytes: 64})
	check("no lane", global(4, 0, "@%%p2 "+word), given{}, Counters{})
	check("vectors", global(16, 0, "ld.global.v4.u32 {%%r1,%%r2,%%r3,%%r4}, [%%rd2+%d];"), given{},
		Counters{GlobalLoadRequests: 1, GlobalLoadSectors: 16, GlobalBytes: 512})
	check("bytes", global(1, 0, "ld.global.u8 %%r1, [%%rd2+%d];"), given{}, Counters{GlobalLoadRequests: 1, GlobalLoadSectors: 1, GlobalBytes: 32})
	check("stores", global(8, 0, "st.global.u32 [%%rd3+%d], %%r1;"), given{}, Counters{GlobalStoreRequests: 1, GlobalStoreSectors: 8, GlobalBytes: 128})
	check("two warps of three blocks", global(4, 0, word), given{threads: 64, blocks: 3}, Counters{GlobalLoadRequests: 6, GlobalLoadSectors: 24, GlobalBytes: 768})
	check("a sum in global memory", global(0, 0, "red.global.add.u32 [%%rd3+%d], 1;"), given{},
		Counters{Atomics: 1, GlobalStoreRequests: 1, GlobalStoreSectors: 1, GlobalBytes: 128})

	shared := func(stride int, access string) string {
		return fmt.Sprintf("mov.u32 %%r2, s;\n mad.lo.u32 %%r3, %%r0, %d, %%r2;\n"+
			" ", stride) + access
	}
	store := func(stride int, conflicts uint64) {
		t.Helper()
		check(fmt.Sprintf("%d bytes apart", stride), shared(stride, "st.shared.u32 [%r3], 1;"), given{},
			Counters{SharedStores: 1, SharedStoreConflicts: conflicts, SharedBytes: 128})
	}
	store(4, 0)
	store(8, 1) // 2 words of each second bank
	store(12, 0)
	store(16, 3)
	store(32, 7)
	store(64, 15)
	store(128, 31)
	store(132, 0) // the classic row of 33 words
	store(0, 0)
	// Two lanes share each word, and all sixteen words are of one bank.
	check("pairs of lanes in one bank", "shr.u32 %r1, %r0, 1;\n mov.u32 %r2, s;\n mad.lo.u32 %r3, %r1, 128, %r2;\n "+
		"st.shared.u32 [%r3], 5;", given{},
		Counters{SharedStores: 1, SharedStoreConflicts: 15, SharedBytes: 128})
	const wide = "st.shared.v4.u32 [%r3], {%r1,%r1,%r1,%r1};"
	check("16 bytes side by side", shared(16, wide), given{}, Counters{SharedStores: 1, SharedBytes: 512})
	check("16 bytes of 32", shared(32, wide), given{}, Counters{SharedStores: 1, SharedStoreConflicts: 4, SharedBytes: 512}) // one more pass a quarter
	check("8 bytes side by side", shared(8, "st.shared.v2.u32 [%r3], {%r1,%r1};"), given{}, Counters{SharedStores: 1, SharedBytes: 256})
	check("8 bytes of 16", shared(16, "st.shared.v2.u32 [%r3], {%r1,%r1};"), given{}, Counters{SharedStores: 1, SharedStoreConflicts: 2, SharedBytes: 256})
	check("bytes of one word", shared(1, "st.shared.u8 [%r3], 1;"), given{}, Counters{SharedStores: 1, SharedBytes: 32})
	check("read back", shared(8, "st.shared.u32 [%r3], 1;\n ld.shared.u32 %r1, [%r3];\n setp.lt.u32 %p1, %r0, 16;\n "+
		"@%p1 ld.shared.u32 %r1, [%r3];"), given{},
		Counters{SharedStores: 1, SharedStoreConflicts: 1, SharedLoads: 2, SharedLoadConflicts: 1, SharedBytes: 320})
	// Rows of 16 bytes: side by side each eight of them fill the banks once; 128 bytes apart all are in the same four.
	matrix := func(stride int) string {
		return shared(stride, "st.shared.v4.u32 [%r3], {%r1,%r1,%r1,%r1};\n bar.warp.sync -1;\n "+
			"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4,%r5,%r6,%r7}, [%r3];")
	}
	check("a matrix", matrix(16), given{}, Counters{SharedStores: 1, SharedLoads: 1, SharedBytes: 1024})
	check("a matrix in one bank", matrix(128), given{}, Counters{
		SharedStores: 1, SharedLoads: 1, SharedBytes: 1024, SharedStoreConflicts: 28, SharedLoadConflicts: 28,
	})

	check("barriers", "bar.sync 0;\n bar.sync 1, 64;\n bar.arrive 2, 64;\n @!%p1 bar.sync 3;", given{threads: 64}, Counters{Barriers: 8})
	check("local memory", ".local .align 4 .b8 l[8];\n st.local.v2.u32 [l], {%r0, %r0};\n "+
		"ld.local.u32 %r1, [l];", given{}, Counters{LocalBytes: 12 * 32})
	check("a copy", shared(16, "mad.wide.u32 %rd2, %r0, 16, %rd1;\n cp.async.cg.shared.global [%r3], [%rd2], 16;\n "+
		"cp.async.wait_all;"), given{},
		Counters{AsyncBytes: 512, GlobalLoadRequests: 1, GlobalLoadSectors: 16, GlobalBytes: 512})
	check("products", `
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};
	mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};`,
		given{threads: 64}, Counters{TensorOps: 4, TensorFLOPs: 2 * (2*16*8*16 + 2*16*8*32)})
	check("fragments", `
	wmma.load.c.sync.aligned.row.m16n16k16.global.f16 {%r4,%r5,%r6,%r7}, [%rd1], 16;
	mov.u32 %r2, s;
	wmma.store.d.sync.aligned.row.m16n16k16.shared.f16 [%r2], {%r4,%r5,%r6,%r7}, 16;
	wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%rd0], {%r4,%r5,%r6,%r7}, 32;`, given{},
		Counters{GlobalBytes: 1024, SharedBytes: 512, GlobalLoadSectors: 16, GlobalStoreSectors: 16})
}

func TestInstructionClasses(t *testing.T) {
	t.Parallel()
	check := func(name, body string, g given, want map[string]uint64) {
		t.Helper()
		g.text = kernelWith(".shared .align 16 .b8 s[512];", body)
		c := simulate(t, g).counters
		// Every kernel begins with these, and ends with ret.
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
	check("nothing", "ret;", given{}, map[string]uint64{})
	check("one of each", fillShared+`
	add.u32 %r1, %r0, 1;
	add.f32 %f1, %f2, %f3;
	mov.u32 %r2, 1;
	shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1;
	bar.sync 0;
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};
	bra END;
END:
	ret;`, given{}, map[string]uint64{"integer": 2, "float": 1, "move": 3, "warp": 2, "sync": 1, "tensor": 1, "control": 1, "memory": 1})
	// A loop of three instructions, ten times; the first lane stops after five rounds.
	check("a loop", `
	mov.u32 %r1, 0;
LOOP:
	add.u32 %r1, %r1, 1;
	setp.lt.u32 %p1, %r1, 10;
	@%p1 bra LOOP;
	ret;`, given{}, map[string]uint64{"move": 1, "integer": 20, "control": 9}) // the tenth branch has no lane
	check("two sides", `
	setp.lt.u32 %p1, %r0, 5;
	@%p1 bra LOW;
	add.u32 %r1, %r1, 1;
	bra JOIN;
LOW:
	add.u32 %r1, %r1, 2;
	add.u32 %r1, %r1, 2;
JOIN:
	ret;`, given{}, map[string]uint64{"integer": 4, "control": 2})
	check("a guard with no lane", "setp.gt.u32 %p1, %r0, 99;\n @%p1 add.u32 %r1, %r1, 1;\n ret;", given{}, map[string]uint64{"integer": 1})
}
