package sim

import (
	"fmt"
	"strings"
	"testing"

	"attune/internal/finding"
)

// scope is how far a release or an acquire reaches.
type scope int

const (
	noScope scope = iota
	inBlock
	everywhere
)

// flagAccess writes a flag, or waits for it, and says how far that releases or acquires.
type flagAccess struct {
	text  string
	scope scope
}

var flagWriters = []flagAccess{
	{"st.relaxed.gpu.global.u32 [flag], 1;", noScope},
	{"st.volatile.global.u32 [flag], 1;", noScope},
	{"st.release.gpu.global.u32 [flag], 1;", everywhere},
	{"st.release.sys.global.u32 [flag], 1;", everywhere},
	{"fence.acq_rel.gpu;\n st.relaxed.gpu.global.u32 [flag], 1;", everywhere},
	{"fence.sc.gpu;\n st.volatile.global.u32 [flag], 1;", everywhere},
	{"membar.gl;\n st.volatile.global.u32 [flag], 1;", everywhere},
	{"membar.cta;\n st.volatile.global.u32 [flag], 1;", inBlock},
	{"fence.acq_rel.cta;\n st.relaxed.gpu.global.u32 [flag], 1;", inBlock},
	{"membar.gl;\n atom.global.exch.b32 %r2, [flag], 1;", everywhere},
	{"atom.release.gpu.global.add.u32 %r2, [flag], 1;", everywhere},
	{"atom.acq_rel.gpu.global.cas.b32 %r2, [flag], 0, 1;", everywhere},
	{"red.release.gpu.global.or.b32 [flag], 1;", everywhere},
	{"atom.relaxed.gpu.global.add.u32 %r2, [flag], 1;", noScope},
	{"fence.release.gpu;\n st.relaxed.gpu.global.u32 [flag], 1;", everywhere},
	{"fence.acquire.gpu;\n st.relaxed.gpu.global.u32 [flag], 1;", noScope},
	{"st.relaxed.gpu.global.u32 [flag], 1;\n membar.gl;", noScope}, // the fence is too late
}

const again = "setp.eq.u32 %p3, %r2, 0;\n @%p3 bra WAIT;\n"

var flagReaders = []flagAccess{
	{"ld.relaxed.gpu.global.u32 %r2, [flag];\n" + again, noScope},
	{"ld.volatile.global.u32 %r2, [flag];\n" + again, noScope},
	{"ld.acquire.gpu.global.u32 %r2, [flag];\n" + again, everywhere},
	{"ld.relaxed.gpu.global.u32 %r2, [flag];\n" + again + "fence.acq_rel.gpu;", everywhere},
	{"ld.volatile.global.u32 %r2, [flag];\n" + again + "membar.gl;", everywhere},
	{"ld.volatile.global.u32 %r2, [flag];\n" + again + "membar.cta;", inBlock},
	{"ld.relaxed.gpu.global.u32 %r2, [flag];\n" + again + "fence.acquire.gpu;", everywhere},
	{"ld.relaxed.gpu.global.u32 %r2, [flag];\n" + again + "fence.release.gpu;", noScope},
	{"atom.acquire.gpu.global.or.b32 %r2, [flag], 0;\n" + again, everywhere},
	{"atom.relaxed.gpu.global.or.b32 %r2, [flag], 0;\n" + again, noScope},
}

// messages has one thread write data and then a flag. Another, of another warp or another block, waits
// for the flag and stores the data. visit gets each such kernel. It is ordered exactly if the writer
// releases, the reader acquires, and both scopes include the other thread.
func messages(store, load string, visit func(name string, g setup, ordered bool)) {
	for _, apart := range []scope{inBlock, everywhere} {
		g, name := setup{threads: 64, out: 1, writtenBefore: true}, "two warps"
		if apart == everywhere {
			g.blocks, g.threads, name = 2, 32, "two blocks"
		}
		for _, w := range flagWriters {
			for _, r := range flagReaders {
				g.text = kernelWith(".global .align 4 .u32 flag;\n.global .align 4 .u32 data;", fmt.Sprintf(`
	setp.eq.u32 %%p1, %%r63, 0;
	@%%p1 bra WRITER;
	setp.eq.u32 %%p2, %%r63, 32;
	@!%%p2 bra END;
WAIT:
	%s
	%s.u32 %%r1, [data];
	st.global.u32 [%%rd0], %%r1;
	bra END;
WRITER:
	%s.u32 [data], 41;
	%s
END:
	ret;`, r.text, load, store, w.text))
				visit(fmt.Sprintf("%q to %q, %s", w.text, r.text, name), g, w.scope >= apart && r.scope >= apart)
			}
		}
	}
}

// TestMessages tests message passing of plain data.
func TestMessages(t *testing.T) {
	t.Parallel()
	messages("st.global", "ld.global", func(name string, g setup, ordered bool) {
		for g.seed = range uint64(2) {
			if g.seed > 0 && testing.Short() {
				continue
			}
			got := simulate(t, g)
			if (len(got.findings) == 0) != ordered || !ordered && got.kinds() != "race" {
				t.Errorf("%s: findings %v, ordered is %v", name, got.findings, ordered)
			}
		}
	})
}

// TestFlagReset has a thread reset the flag that it has waited for with a plain store. The strong
// write of the flag is part of the release, so a thread that acquires is ordered after it. With the
// thread's other accesses after its fence that is not so.
func TestFlagReset(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	const spin = "setp.lt.u32 %p3, %r2, 1;\n @%p3 bra WAIT;\n"
	check := func(write, read, between string, races bool) {
		t.Helper()
		for _, blocks := range []int{1, 2} {
			g := setup{blocks: blocks, threads: 64 / blocks, out: 1, writtenBefore: true}
			g.text = kernelWith(".global .align 4 .u32 flag;\n.global .align 4 .u32 data;", fmt.Sprintf(`
	setp.eq.u32 %%p1, %%r63, 0;
	@%%p1 bra WRITER;
	setp.eq.u32 %%p2, %%r63, 32;
	@!%%p2 bra END;
WAIT:
	%s
	st.global.u32 [flag], 0;
	%s
	bra END;
WRITER:
	st.global.u32 [data], 41;
	%s
END:
	ret;`, read, between, write))
			for seed := range uint64(4) {
				g.seed = seed
				if got := simulate(t, g); races != (len(got.findings) > 0) || races && got.kinds() != "race" {
					t.Errorf("%q to %q, %d blocks, seed %d: findings %v, want a race: %v", write, read, blocks, seed, got.findings, races)
				}
			}
		}
	}
	readers := []string{
		"ld.acquire.gpu.global.u32 %r2, [flag];\n" + spin,
		"ld.relaxed.gpu.global.u32 %r2, [flag];\n" + spin + "fence.acq_rel.gpu;",
		"ld.volatile.global.u32 %r2, [flag];\n" + spin + "membar.gl;",
		"atom.global.or.b32 %r2, [flag], 0;\n" + spin,
		"atom.relaxed.sys.global.or.b32 %r2, [flag], 0;\n" + spin + "fence.sc.sys;",
	}
	for _, fence := range []string{"fence.acq_rel.gpu;\n", "fence.sc.gpu;\n", "fence.release.gpu;\n", "fence.acq_rel.sys;\n", "fence.sc.sys;\n", "membar.gl;\n", "membar.sys;\n"} {
		for _, write := range []string{
			"red.relaxed.gpu.global.add.u32 [flag], 1;", "red.global.add.u32 [flag], 1;", "atom.global.exch.b32 %r2, [flag], 1;",
			"st.relaxed.gpu.global.u32 [flag], 1;", "st.volatile.global.u32 [flag], 1;",
		} {
			for _, read := range readers {
				check(fence+write, read, "", false)
			}
		}
	}
	check("fence.acq_rel.gpu;\n red.relaxed.gpu.global.add.u32 [flag], 1;\n red.relaxed.gpu.global.add.u32 [flag], 1;",
		strings.Replace(readers[0], "%r2, 1;", "%r2, 2;", 1), "", false)
	// The same without a fence, and for data between the fence and the flag.
	check("red.relaxed.gpu.global.add.u32 [flag], 1;", readers[0], "", true)
	check("fence.acq_rel.gpu;\n st.global.u32 [data], 42;\n red.relaxed.gpu.global.add.u32 [flag], 1;", readers[0], "ld.global.u32 %r1, [data];\n st.global.u32 [%rd0], %r1;", true)
	check("fence.acq_rel.gpu;\n red.relaxed.gpu.global.add.u32 [flag], 1;", "ld.relaxed.gpu.global.u32 %r2, [flag];\n"+spin, "", true)
}

func TestFences(t *testing.T) {
	t.Parallel()
	const variables = ".global .align 4 .u32 flag;\n.global .align 4 .u32 data;"
	// What a thread has fenced before a barrier, another thread may publish after it. The threads
	// of a block write and synchronise, and one of them sets the flag.
	publish := func(before, flag string) string {
		return strings.NewReplacer("BEFORE", before, "FLAG", flag).Replace(`
	setp.eq.u32 %p1, %r61, 0;
	@%p1 bra WRITER;
	setp.ne.u32 %p2, %r0, 0;
	@%p2 bra END;
WAIT:
	ld.acquire.gpu.global.u32 %r2, [flag];
	setp.eq.u32 %p3, %r2, 0;
	@%p3 bra WAIT;
	ld.global.u32 %r1, [%rd0+20];
	bra END;
WRITER:
	st.global.u32 [%rd31], %r0;
	BEFORE
	bar.sync 0;
	setp.ne.u32 %p2, %r0, 40;
	@%p2 bra END;
	FLAG
END:`)
	}
	defect{
		name: "one thread releases for the block", declarations: variables, setup: setup{blocks: 2, threads: 64}, kind: finding.Race,
		wrong: publish("", "st.relaxed.gpu.global.u32 [flag], 1;"), right: publish("", "st.release.gpu.global.u32 [flag], 1;"),
		at: "ld.global.u32 %r1, [%rd0+20]", with: "st.global.u32 [%rd31], %r0",
	}.check(t)
	defect{
		name: "fences before the barrier", declarations: variables, setup: setup{blocks: 2, threads: 64}, kind: finding.Race,
		wrong: publish("", "st.relaxed.gpu.global.u32 [flag], 1;"), right: publish("membar.gl;", "st.relaxed.gpu.global.u32 [flag], 1;"),
		at: "ld.global.u32 %r1, [%rd0+20]", with: "st.global.u32 [%rd31], %r0",
	}.check(t)
	// Atomic operations with block scope are atomic only within the block.
	defect{
		name: "an atomic operation with too small a scope", declarations: variables, setup: setup{blocks: 2}, kind: finding.Race,
		wrong: "atom.relaxed.cta.global.add.u32 %r2, [data], 1;", right: "atom.relaxed.gpu.global.add.u32 %r2, [data], 1;",
		at: "atom.relaxed.cta.global.add.u32 %r2, [data], 1", with: "atom.relaxed.cta.global.add.u32 %r2, [data], 1",
	}.check(t)
	// Threads of one warp need not run in lockstep.
	defect{
		name: "volatile accesses without bar.warp.sync", declarations: sharedArray, kind: finding.Race,
		wrong: warpReduction(""), right: warpReduction("bar.warp.sync -1;"),
		at: "ld.volatile.shared.u32 %r4, [%r3+4]", with: "st.volatile.shared.u32 [%r3], %r0",
	}.check(t)
	defect{
		name: "ld.global.nc of written memory", setup: setup{threads: 64}, kind: finding.Undefined,
		wrong: "st.global.u32 [%rd31], %r0;\n bar.sync 0;\n ld.global.nc.u32 %r1, [%rd0];",
		right: "st.global.u32 [%rd31], %r0;\n bar.sync 0;\n ld.global.u32 %r1, [%rd0];",
		at:    "ld.global.nc.u32 %r1, [%rd0]", with: "st.global.u32 [%rd31], %r0", contains: []string{".nc"},
	}.check(t)
	// Several warps that write one value by the same instruction do not race.
	if got := simulate(t, setup{text: kernelWith(sharedArray, "st.shared.u32 [s], 5;\n ret;"), threads: 96, blocks: 2}); len(got.findings) > 0 {
		t.Errorf("findings of one value written by all warps: %v", got.findings)
	}
}

func warpReduction(sync string) string {
	return fillShared + "mov.u32 %r3, s;\n mad.lo.u32 %r3, %r0, 4, %r3;\n st.volatile.shared.u32 [%r3], %r0;\n " + sync + "\n " +
		"ld.volatile.shared.u32 %r4, [%r3+4];"
}

// TestGaps checks that an index past the end of a variable does not reach the next variable.
func TestGaps(t *testing.T) {
	t.Parallel()
	defect{
		name:         "shared variables",
		declarations: ".shared .align 4 .b8 a[64];\n.shared .align 4 .b8 b[64];",
		kind:         finding.OutOfBounds,
		setup:        setup{threads: 16},
		wrong:        "mov.u32 %r3, a;\n mad.lo.u32 %r3, %r0, 4, %r3;\n st.shared.u32 [%r3+4], %r0;\n st.shared.u32 [b], 1;",
		right:        "mov.u32 %r3, a;\n mad.lo.u32 %r3, %r0, 4, %r3;\n st.shared.u32 [%r3], %r0;\n st.shared.u32 [b], 1;",
		at:           "st.shared.u32 [%r3+4], %r0", contains: []string{"thread 15", "past the end of a (64 bytes)"},
	}.check(t)
	defect{
		name: "constants", declarations: ".const .align 4 .u32 a[2] = {1, 2};\n.const .align 4 .u32 b[2] = {3, 4};", kind: finding.OutOfBounds,
		wrong: "ld.const.u32 %r1, [a+8];\n ld.const.u32 %r2, [b];", right: "ld.const.u32 %r1, [a+4];\n ld.const.u32 %r2, [b];",
		at: "ld.const.u32 %r1, [a+8]",
	}.check(t)
}

const heapFunctions = ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 a);"

// allocate calls malloc and puts the address into %rd5.
func allocate(bytes string) string {
	return ".param .b64 n; .param .b64 a;\n st.param.b64 [n], " + bytes + ";\n call (a), malloc, (n);\n ld.param.b64 %rd5, [a];\n"
}

func TestHeap(t *testing.T) {
	t.Parallel()
	const release = "st.param.b64 [n], %rd5;\n call free, (n);\n"
	schedules(t, "an allocation per thread", setup{text: kernelWith(heapFunctions, storing(allocate("16")+`
	st.u32 [%rd5+12], %r0;
	ld.u32 %r1, [%rd5+12];
	`+release)), threads: 64}, each(64, func(i uint32) uint32 { return i }))
	for _, size := range []string{"0x100000000000", "-1"} {
		schedules(t, "more than the heap has", setup{text: kernelWith(heapFunctions, storing(allocate(size)+"cvt.u32.u64 %r1, %rd5;"))}, make([]uint32, 32))
	}
	// Twice 7 MB do not fit into the heap of 8 MB, but a small allocation still does.
	text := kernelWith(heapFunctions, storing(allocate("7000000")+`
	st.param.b64 [n], 7000000;
	call (a), malloc, (n);
	ld.param.b64 %rd6, [a];
	st.param.b64 [n], 16;
	call (a), malloc, (n);
	ld.param.b64 %rd7, [a];
	setp.ne.u64 %p1, %rd5, 0;
	setp.eq.and.u64 %p1, %rd6, 0, %p1;
	setp.ne.and.u64 %p1, %rd7, 0, %p1;
	selp.u32 %r1, 1, 0, %p1;`))
	schedules(t, "the heap is full", setup{text: text, threads: 1}, []uint32{1})
	defect{
		name: "past the end", declarations: heapFunctions, kind: finding.OutOfBounds, setup: setup{threads: 1},
		wrong: allocate("16") + "st.u32 [%rd5+16], %r0;", right: allocate("16") + "st.u32 [%rd5+12], %r0;",
		at: "st.u32 [%rd5+16], %r0", contains: []string{"thread 0", "the allocation of thread"},
	}.check(t)
	defect{
		name: "freed twice", declarations: heapFunctions, kind: finding.Undefined, setup: setup{threads: 1},
		wrong: allocate("16") + release + "call free, (n);", right: allocate("16") + release + "st.param.b64 [n], 0;\n call free, (n);",
		at: "call free, (n)", contains: []string{"frees 0x"},
	}.check(t)
	defect{
		name: "never written", declarations: heapFunctions, kind: finding.Uninitialized, setup: setup{threads: 1},
		wrong: allocate("16") + "ld.u32 %r1, [%rd5];", right: allocate("16") + "st.u32 [%rd5], %r0;\n ld.u32 %r1, [%rd5];",
		at: "ld.u32 %r1, [%rd5]",
	}.check(t)
	got := simulate(t, setup{text: kernelWith(heapFunctions, allocate("16")+release+"st.u32 [%rd5], %r0;\n ret;"), threads: 1})
	if len(got.findings) != 1 || got.findings[0].Where.PTX != "st.u32 [%rd5], %r0" {
		t.Errorf("findings of a store to freed memory: %v", got.findings)
	}
}

func TestAssert(t *testing.T) {
	t.Parallel()
	text := kernelWith(`.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.global .b8 message[] = {120, 62, 48, 0};
.global .b8 file[] = {97, 46, 99, 117, 0};
.global .b8 name[] = {107, 40, 41, 0};`, `
	.param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
	setp.ne.u32 %p1, %r0, 6;
	@%p1 bra END;
	mov.u64 %rd2, message;
	cvta.global.u64 %rd2, %rd2;
	st.param.b64 [a], %rd2;
	mov.u64 %rd2, file;
	cvta.global.u64 %rd2, %rd2;
	st.param.b64 [b], %rd2;
	st.param.b32 [c], 12;
	mov.u64 %rd2, name;
	cvta.global.u64 %rd2, %rd2;
	st.param.b64 [d], %rd2;
	st.param.b64 [e], 1;
	call __assertfail, (a, b, c, d, e);
END:
	ret;`)
	_, err := try(t, setup{text: text})
	if err == nil {
		t.Fatal("the kernel continues after a failed assertion")
	}
	for _, want := range []string{"`x>0`", "a.cu:12", "k()", "thread 6 of block [0 0 0]"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not contain %q", err, want)
		}
	}
}

// TestReset resets a flag or a counter with a plain store. That is correct for a thread that knows
// that all other threads have finished with it.
func TestReset(t *testing.T) {
	t.Parallel()
	check := func(name string, blocks, threads int, body string, races bool) {
		t.Helper()
		for seed := range uint64(6) {
			text := kernelWith(".global .align 4 .u32 flag;", body+"\n ret;")
			got := simulate(t, setup{text: text, blocks: blocks, threads: threads, out: 1, writtenBefore: true, seed: seed})
			if found := strings.HasPrefix(got.kinds(), "race"); found != races || !races && len(got.findings) > 0 {
				t.Errorf("%s, seed %d: findings %v; want a race: %v", name, seed, got.findings, races)
			}
		}
	}
	handshake := func(set, poll string) string {
		return strings.NewReplacer("SET", set, "POLL", poll).Replace(`
	setp.eq.u32 %p1, %r63, 0;
	@%p1 SET [flag], 1;
	setp.ne.u32 %p2, %r63, 32;
	@%p2 bra END;
WAIT:
	POLL %r2, [flag];
	setp.eq.u32 %p3, %r2, 0;
	@%p3 bra WAIT;
	st.global.u32 [flag], 0;
END:`)
	}
	check("released and acquired", 2, 32, handshake("st.release.gpu.global.u32", "ld.acquire.gpu.global.u32"), false)
	check("released by an atomic operation", 2, 32, handshake("red.release.gpu.global.add.u32", "ld.acquire.gpu.global.u32"), false)
	check("between warps", 1, 64, handshake("st.release.cta.global.u32", "ld.acquire.cta.global.u32"), false)
	check("relaxed", 2, 32, handshake("st.relaxed.gpu.global.u32", "ld.acquire.gpu.global.u32"), true)
	check("released with block scope", 2, 32, handshake("st.release.cta.global.u32", "ld.acquire.gpu.global.u32"), true)
	check("not acquired", 2, 32, handshake("st.release.gpu.global.u32", "ld.relaxed.gpu.global.u32"), true)

	ticket := func(which string) string {
		return "atom.global.add.u32 %r2, [flag], 1;\n setp.eq.u32 %p1, %r2, " + which + ";\n @%p1 st.global.u32 [flag], 0;"
	}
	check("the last ticket", 3, 40, ticket("119"), false)
	check("the first ticket", 3, 40, ticket("0"), true)
	check("the last ticket but one", 3, 40, ticket("118"), true)
	check("a thread that need not be the last", 1, 96, "atom.global.add.u32 %r2, [flag], 1;\n setp.eq.u32 %p1, %r0, 95;\n @%p1 st.global.u32 [flag], 0;", true)
}
