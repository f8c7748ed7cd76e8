package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"attune/internal/finding"
)

// defect is a kernel with one defect, and the corrected kernel.
type defect struct {
	name         string
	declarations string
	wrong, right string // bodies
	setup        setup
	kind         finding.Kind
	at           string   // the instruction it is reported at; * for any
	with         string   // the instruction it conflicts with; empty for none
	contains     []string // what the message must contain
	onlySeed     bool     // under the given schedule only
}

// check requires that every schedule reports the defect and nothing else, and that the corrected
// kernel has no findings.
func (d defect) check(t *testing.T) {
	t.Helper()
	seeds := uint64(6)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		g := d.setup
		g.seed, g.writtenBefore = seed, true
		if d.onlySeed && seed != d.setup.seed {
			continue
		}
		g.text = kernelWith(d.declarations, d.right+"\n\tret;")
		if got := simulate(t, g); len(got.findings) > 0 {
			t.Errorf("%s, seed %d: findings in the corrected kernel: %v", d.name, seed, got.findings)
		}
		g.text = kernelWith(d.declarations, d.wrong+"\n\tret;")
		got := simulate(t, g)
		if len(got.findings) == 0 {
			t.Errorf("%s, seed %d: no findings", d.name, seed)
		}
		for _, f := range got.findings {
			d.checkFinding(t, seed, f)
		}
		if t.Failed() {
			return
		}
		g.unchecked, g.workers = true, 1 // without checkers, blocks do not lock memory
		if got := simulate(t, g); len(got.findings) > 0 && d.kind != finding.Deadlock {
			t.Errorf("%s, seed %d: findings with the checkers off: %v", d.name, seed, got.findings)
		}
	}
}

func (d defect) checkFinding(t *testing.T, seed uint64, f finding.Finding) {
	t.Helper()
	places := []string{f.Where.PTX}
	if f.Other != nil {
		places = append(places, f.Other.PTX)
	}
	want := []string{d.at}
	if d.with != "" {
		want = append(want, d.with)
	}
	// Either access of a race may come second.
	same := len(places) == len(want) && (places[0] == want[0] || len(want) == 2 && places[0] == want[1] && places[1] == want[0]) &&
		(len(want) < 2 || places[0] != want[0] || places[1] == want[1]) || d.at == "*"
	if f.Kind != d.kind || !same {
		t.Errorf("%s, seed %d: finding %s at %q; want %s at %q", d.name, seed, f.Kind, places, d.kind, want)
	}
	for _, text := range d.contains {
		if !strings.Contains(f.String(), text) {
			t.Errorf("%s, seed %d: the message does not contain %q: %s", d.name, seed, text, f)
		}
	}
	if f.Count < 1 || f.Where.PTXLine < 1 {
		t.Errorf("%s, seed %d: a finding without count or line: %#v", d.name, seed, f)
	}
}

const sharedArray = ".shared .align 16 .b8 s[512];"

func TestBounds(t *testing.T) {
	t.Parallel()
	check := func(d defect) {
		t.Helper()
		d.kind = finding.OutOfBounds
		d.check(t)
	}
	check(defect{
		name: "past the end of a buffer", setup: setup{in: make([]uint32, 32)},
		wrong:    "mad.wide.u32 %rd2, %r0, 4, %rd1;\n ld.global.u32 %r1, [%rd2+4];",
		right:    "mad.wide.u32 %rd2, %r0, 4, %rd1;\n ld.global.u32 %r1, [%rd2];",
		at:       "ld.global.u32 %r1, [%rd2+4]",
		contains: []string{"thread 31 of block [0 0 0]", "reads 4 bytes", "4 bytes past the end of in (128 bytes)", "(once)"},
	})
	check(defect{
		name: "before a buffer", setup: setup{in: make([]uint32, 32), out: 40},
		wrong: "st.global.u32 [%rd0+-8], %r0;", right: "st.global.u32 [%rd31], %r0;",
		at: "st.global.u32 [%rd0+-8], %r0", contains: []string{"writes 4 bytes", "8 bytes before out"},
	})
	check(defect{
		name:  "far from any buffer",
		wrong: "mov.u64 %rd2, 16;\n atom.global.add.u32 %r1, [%rd2], 1;", right: "atom.global.add.u32 %r1, [%rd0], 1;",
		at: "atom.global.add.u32 %r1, [%rd2], 1", contains: []string{"updates 4 bytes at address 0x10 of global memory"},
	})
	check(defect{
		name: "across the end", setup: setup{in: make([]uint32, 3)},
		wrong: "ld.global.v2.u32 {%r1, %r2}, [%rd1+8];", right: "ld.global.v2.u32 {%r1, %r2}, [%rd1];",
		at: "ld.global.v2.u32 {%r1, %r2}, [%rd1+8]", contains: []string{"all lanes", "reads 8 bytes", "4 bytes past the end of in (12 bytes)"},
	})
	check(defect{
		name: "past shared memory", declarations: sharedArray,
		wrong: "shl.b32 %r2, %r0, 2;\n mov.u32 %r3, s;\n add.u32 %r3, %r3, %r2;\n st.shared.u32 [%r3+400], %r0;",
		right: "shl.b32 %r2, %r0, 2;\n mov.u32 %r3, s;\n add.u32 %r3, %r3, %r2;\n st.shared.u32 [%r3], %r0;",
		at:    "st.shared.u32 [%r3+400], %r0", contains: []string{"thread 28", "4 bytes past the end of", "(4 times)"},
	})
	check(defect{
		name: "past dynamic shared memory", declarations: ".extern .shared .align 16 .b8 d[];", setup: setup{shared: 128},
		wrong: "mov.u32 %r3, d;\n st.shared.u8 [%r3+128], 1;",
		right: "mov.u32 %r3, d;\n setp.eq.u32 %p1, %r0, 0;\n @%p1 st.shared.u8 [%r3+127], 1;",
		at:    "st.shared.u8 [%r3+128], 1", contains: []string{"writes 1 bytes", "1 bytes past the end of"},
	})
	check(defect{
		name: "before shared memory", declarations: sharedArray,
		wrong: "mov.u32 %r3, s;\n sub.u32 %r3, %r3, 4;\n ld.shared.u32 %r1, [%r3];", right: "ld.const.u32 %r1, [c];",
		at: "ld.shared.u32 %r1, [%r3]", contains: []string{"4 bytes before its start"},
	}.declaring(".const .align 4 .u32 c = 5;"))
	check(defect{
		name:  "past local memory",
		wrong: ".local .align 4 .b8 l[8];\n st.local.u32 [l+8], %r0;", right: ".local .align 4 .b8 l[8];\n st.local.u32 [l+4], %r0;",
		at: "st.local.u32 [l+8], %r0", contains: []string{"address 0x8 of local memory", "k has 8 bytes at 0x0 (l)"},
	})
	const several = ".local .align 4 .b8 a[16];\n .local .align 4 .b8 b[16];\n .local .align 4 .b8 c[4];\n .local .align 4 .b8 d[4];\n .local .align 4 .b8 e[4];\n"
	check(defect{
		name:  "from one local variable into the next",
		wrong: several + "mov.u32 %r2, a;\n st.local.u32 [%r2+16], %r0;", right: several + "mov.u32 %r2, a;\n st.local.u32 [%r2+12], %r0;",
		at: "st.local.u32 [%r2+16], %r0", contains: []string{"address 0x10 of local memory", "k has 16 bytes at 0x0 (a), 16 at 0x50 (b)", "(d) and more"},
	})
	check(defect{
		name: "no local variables", wrong: "mov.u32 %r2, 8;\n st.local.u32 [%r2], %r0;", right: "mov.u32 %r2, 8;",
		at: "st.local.u32 [%r2], %r0", contains: []string{"k has no local variables"},
	})
	check(defect{
		name: "past the constants", declarations: ".const .align 4 .u32 c[2] = {1, 2};",
		wrong: "ld.const.u32 %r1, [c+8];", right: "ld.const.u32 %r1, [c+4];",
		at: "ld.const.u32 %r1, [c+8]", contains: []string{"reads 4 bytes at address 0x8 of .const"},
	})
	check(defect{
		name: "writes constants", declarations: ".const .align 4 .u32 c[2] = {1, 2};",
		wrong: "mov.u64 %rd2, c;\n cvta.const.u64 %rd3, %rd2;\n st.u32 [%rd3], 1;",
		right: "mov.u64 %rd2, c;\n cvta.const.u64 %rd3, %rd2;\n ld.u32 %r1, [%rd3];",
		at:    "st.u32 [%rd3], 1", contains: []string{"writes .const, which is read-only"},
	})
	check(defect{
		name: "a copy past shared memory", declarations: sharedArray, setup: setup{in: make([]uint32, 128)},
		wrong: "mad.wide.u32 %rd2, %r0, 16, %rd1;\n mov.u32 %r3, s;\n mad.lo.u32 %r3, %r0, 16, %r3;\n " +
			"cp.async.cg.shared.global [%r3+16], [%rd2], 16;\n cp.async.wait_all;",
		right: "mad.wide.u32 %rd2, %r0, 16, %rd1;\n mov.u32 %r3, s;\n mad.lo.u32 %r3, %r0, 16, %r3;\n " +
			"cp.async.cg.shared.global [%r3], [%rd2], 16;\n cp.async.wait_all;",
		at: "cp.async.cg.shared.global [%r3+16], [%rd2], 16", contains: []string{"thread 31", "writes 16 bytes"},
	})
	check(defect{
		name: "a copy from past the end of a buffer", declarations: sharedArray, setup: setup{in: make([]uint32, 127)},
		wrong: "mad.wide.u32 %rd2, %r0, 16, %rd1;\n mov.u32 %r3, s;\n mad.lo.u32 %r3, %r0, 16, %r3;\n " +
			"cp.async.ca.shared.global [%r3], [%rd2], 16;\n cp.async.wait_all;",
		right: `mad.wide.u32 %rd2, %r0, 16, %rd1;
	mov.u32 %r3, s;
	mad.lo.u32 %r3, %r0, 16, %r3;
	setp.eq.u32 %p1, %r0, 31;
	selp.u32 %r4, 12, 16, %p1;
	cp.async.ca.shared.global [%r3], [%rd2], 16, %r4;
	cp.async.wait_all;`,
		at: "cp.async.ca.shared.global [%r3], [%rd2], 16", contains: []string{"thread 31", "reads 16 bytes", "4 bytes past the end of in"},
	})
	check(defect{
		name: "a row of a matrix", declarations: sharedArray,
		wrong: fillShared + "mov.u32 %r3, s;\n mad.lo.u32 %r3, %r0, 16, %r3;\n " +
			"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4,%r5,%r6,%r7}, [%r3+16];",
		right: fillShared + "mov.u32 %r3, s;\n mad.lo.u32 %r3, %r0, 16, %r3;\n " +
			"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4,%r5,%r6,%r7}, [%r3];",
		at: "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4,%r5,%r6,%r7}, [%r3+16]", contains: []string{"reads 16 bytes", "(once)"},
	})
}

// declaring adds a declaration.
func (d defect) declaring(declaration string) defect {
	d.declarations += declaration
	return d
}

// fillShared writes all 512 bytes of s.
const fillShared = `
	mov.u32 %r50, s;
	mad.lo.u32 %r50, %r0, 16, %r50;
	mov.u32 %r51, 0;
	st.shared.v4.u32 [%r50], {%r0, %r51, %r51, %r0};
	bar.warp.sync -1;
`

func TestAlignment(t *testing.T) {
	t.Parallel()
	check := func(d defect) {
		t.Helper()
		d.kind = finding.Misaligned
		d.check(t)
	}
	check(defect{
		name: "a word", setup: setup{in: make([]uint32, 4)}, wrong: "ld.global.u32 %r1, [%rd1+2];", right: "ld.global.u32 %r1, [%rd1+4];",
		at: "ld.global.u32 %r1, [%rd1+2]", contains: []string{"reads 4 bytes", "not a multiple of 4"},
	})
	check(defect{
		name: "a vector", setup: setup{in: make([]uint32, 8)},
		wrong: "ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd1+8];", right: "ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd1+16];",
		at: "ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd1+8]", contains: []string{"reads 16 bytes", "not a multiple of 16"},
	})
	check(defect{
		name:         "shared",
		declarations: sharedArray,
		wrong:        "setp.eq.u32 %p1, %r0, 5;\n @%p1 st.shared.u16 [s+3], 1;",
		right:        "setp.eq.u32 %p1, %r0, 5;\n @%p1 st.shared.u16 [s+4], 1;",
		at:           "@%p1 st.shared.u16 [s+3], 1", contains: []string{"thread 5", "writes 2 bytes", "of .shared"},
	})
	check(defect{
		name:  "local",
		wrong: ".local .align 8 .b8 l[16];\n st.local.u64 [l+4], %rd0;",
		right: ".local .align 8 .b8 l[16];\n st.local.u64 [l+8], %rd0;",
		at:    "st.local.u64 [l+4], %rd0", contains: []string{"writes 8 bytes", "of .local"},
	})
	check(defect{
		name: "the source of a copy", declarations: sharedArray, setup: setup{in: make([]uint32, 8)},
		wrong: "setp.eq.u32 %p1, %r0, 0;\n @%p1 cp.async.ca.shared.global [s], [%rd1+4], 8;\n cp.async.wait_all;",
		right: "setp.eq.u32 %p1, %r0, 0;\n @%p1 cp.async.ca.shared.global [s], [%rd1+8], 8;\n cp.async.wait_all;",
		at:    "@%p1 cp.async.ca.shared.global [s], [%rd1+4], 8", contains: []string{"reads 8 bytes", "of .global"},
	})
	check(defect{
		name: "the target of a copy", declarations: sharedArray, setup: setup{in: make([]uint32, 8)},
		wrong: "setp.eq.u32 %p1, %r0, 0;\n @%p1 cp.async.ca.shared.global [s+4], [%rd1], 8;\n cp.async.wait_all;",
		right: "setp.eq.u32 %p1, %r0, 0;\n @%p1 cp.async.ca.shared.global [s+8], [%rd1], 8;\n cp.async.wait_all;",
		at:    "@%p1 cp.async.ca.shared.global [s+4], [%rd1], 8", contains: []string{"writes 8 bytes", "of .shared"},
	})
	check(defect{
		name: "a row of a matrix", declarations: sharedArray,
		wrong: fillShared + "mov.u32 %r3, s;\n ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3+8];",
		right: fillShared + "mov.u32 %r3, s;\n ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3+16];",
		at:    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3+8]", contains: []string{"reads 16 bytes"},
	})
}

func TestUnwritten(t *testing.T) {
	t.Parallel()
	check := func(d defect) {
		t.Helper()
		d.kind = finding.Uninitialized
		d.check(t)
	}
	check(defect{
		name: "one byte of a word", declarations: sharedArray,
		wrong: "setp.eq.u32 %p1, %r0, 0;\n @%p1 st.shared.u16 [s], 1;\n @%p1 st.shared.u8 [s+2], 1;\n @%p1 ld.shared.u32 %r1, [s];",
		right: "setp.eq.u32 %p1, %r0, 0;\n @%p1 st.shared.u16 [s], 1;\n @%p1 st.shared.u16 [s+2], 1;\n @%p1 ld.shared.u32 %r1, [s];",
		at:    "@%p1 ld.shared.u32 %r1, [s]", contains: []string{"reads 4 bytes; byte 3 of shared memory (s+3) was never written"},
	})
	check(defect{
		name:         "dynamic shared memory",
		declarations: ".extern .shared .align 16 .b8 d[];\n.shared .align 4 .b8 s[4];",
		setup:        setup{shared: 32},
		wrong:        "setp.eq.u32 %p1, %r0, 0;\n @%p1 st.shared.u32 [s], 1;\n @%p1 ld.shared.u8 %r1, [d+7];",
		right:        "setp.eq.u32 %p1, %r0, 0;\n @%p1 st.shared.u8 [d+7], 1;\n @%p1 ld.shared.u8 %r1, [d+7];",
		at:           "@%p1 ld.shared.u8 %r1, [d+7]", contains: []string{"byte 7 of dynamic shared memory"},
	})
	check(defect{
		name: "local memory", wrong: ".local .align 4 .b8 l[8];\n st.local.u32 [l], %r0;\n ld.local.u32 %r1, [l+4];",
		right: ".local .align 4 .b8 l[8];\n st.local.u32 [l+4], %r0;\n ld.local.u32 %r1, [l+4];",
		at:    "ld.local.u32 %r1, [l+4]", contains: []string{"byte 4 of local memory", "(32 times)"},
	})
	check(defect{
		name: "an atomic operation", declarations: sharedArray,
		wrong: "setp.eq.u32 %p1, %r0, 0;\n @%p1 atom.shared.add.u32 %r1, [s+16], 1;",
		right: "setp.eq.u32 %p1, %r0, 0;\n @%p1 st.shared.u32 [s+16], 1;\n @%p1 atom.shared.add.u32 %r1, [s+16], 1;",
		at:    "@%p1 atom.shared.add.u32 %r1, [s+16], 1", contains: []string{"updates 4 bytes", "(s+16)"},
	})
	check(defect{
		name: "a matrix", declarations: sharedArray,
		wrong: "st.shared.u32 [s], 1;\n bar.warp.sync -1;\n mov.u32 %r3, s;\n ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];\n st.global.u32 [%rd31], %r4;",
		right: fillShared + "mov.u32 %r3, s;\n ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];\n st.global.u32 [%rd31], %r4;",
		at:    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3]", with: "st.global.u32 [%rd31], %r4", contains: []string{"(s+4)", "it is stored"},
	})
	// The output of a launch is uninitialised.
	text := kernel("ld.global.u16 %r1, [%rd0+6];\n st.global.u32 [%rd31], %r0;\n ret;")
	got := simulate(t, setup{text: text, threads: 1, out: 2})
	if got.kinds() != "uninitialized" || !strings.Contains(got.findings[0].Detail, "byte 6 of out") {
		t.Errorf("findings of a read of an uninitialised output: %v", got.findings)
	}
}

// TestBlocksWriteOneValue has parallel blocks write the same value by one instruction, which is not
// a race.
func TestBlocksWriteOneValue(t *testing.T) {
	t.Parallel()
	const store = `mov.u32 %r1, 0;
AGAIN:
	st.global.u32 [%rd0], %r1;
	st.global.u16 [%rd0+6], 7;
	add.u32 %r1, %r1, 0;
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, 20;
	@%p1 bra AGAIN;
	ret;`
	times := 20
	if testing.Short() {
		times = 2
	}
	for range times {
		g := setup{text: kernel("mov.u32 %r2, 0;\n" + store), blocks: 200, workers: 8}
		if got := simulate(t, g); len(got.findings) > 0 {
			t.Fatalf("findings %v", got.findings)
		}
	}
}

func TestRaces(t *testing.T) {
	t.Parallel()
	check := func(d defect) {
		t.Helper()
		d.kind = finding.Race
		d.check(t)
	}
	const (
		// first selects one thread of the first and one of the second warp, second two lanes of one
		// warp.
		first  = "setp.eq.u32 %p1, %r0, 0;\n setp.eq.u32 %p2, %r0, 32;\n"
		second = "setp.eq.u32 %p1, %r0, 0;\n setp.eq.u32 %p2, %r0, 1;\n"
	)
	check(defect{
		name: "two warps write", declarations: sharedArray, setup: setup{threads: 64},
		wrong: first + "@%p1 st.shared.u32 [s], 1;\n @%p2 st.shared.u32 [s], 2;",
		right: first + "@%p1 st.shared.u32 [s], 1;\n bar.sync 0;\n @%p2 st.shared.u32 [s], 2;",
		at:    "@%p1 st.shared.u32 [s], 1", with: "@%p2 st.shared.u32 [s], 2", contains: []string{"warps need a barrier"},
	})
	check(defect{
		name: "one warp reads what another writes", declarations: sharedArray, setup: setup{threads: 64},
		wrong: first + "@%p1 st.shared.u32 [s], 1;\n bar.sync 0;\n @%p2 ld.shared.u32 %r1, [s];\n @%p1 st.shared.u32 [s], 2;",
		right: first + "@%p1 st.shared.u32 [s], 1;\n bar.sync 0;\n @%p2 ld.shared.u32 %r1, [s];\n bar.sync 0;\n @%p1 st.shared.u32 [s], 2;",
		at:    "@%p2 ld.shared.u32 %r1, [s]", with: "@%p1 st.shared.u32 [s], 2", contains: []string{"nothing orders the two"},
	})
	check(defect{
		name: "two lanes of a warp", declarations: sharedArray,
		wrong:    second + "@%p1 st.shared.u32 [s], 1;\n @%p2 ld.shared.u32 %r1, [s];",
		right:    second + "@%p1 st.shared.u32 [s], 1;\n bar.warp.sync -1;\n @%p2 ld.shared.u32 %r1, [s];",
		at:       "@%p2 ld.shared.u32 %r1, [s]",
		with:     "@%p1 st.shared.u32 [s], 1",
		contains: []string{"thread 1 of", "thread 0 wrote", "__syncwarp()"},
	})
	check(defect{
		name: "two lanes with different bar.warp.sync masks", declarations: sharedArray,
		wrong: second + "@%p1 st.shared.u32 [s], 1;\n mov.u32 %r2, 0xfffffffe;\n @!%p1 bar.warp.sync %r2;\n @%p2 ld.shared.u32 %r1, [s];",
		right: second + "@%p1 st.shared.u32 [s], 1;\n setp.gt.u32 %p3, %r0, 1;\n mov.u32 %r2, 3;\n @!%p3 bar.warp.sync %r2;\n " +
			"@%p2 ld.shared.u32 %r1, [s];",
		at: "@%p2 ld.shared.u32 %r1, [s]", with: "@%p1 st.shared.u32 [s], 1",
	})
	check(defect{
		name: "different values in one instruction", declarations: sharedArray,
		wrong: "st.shared.u32 [s], %r0;", right: "st.shared.u32 [s], 5;",
		at: "st.shared.u32 [s], %r0", with: "st.shared.u32 [s], %r0",
	})
	check(defect{
		name: "bytes of one word", declarations: sharedArray, setup: setup{threads: 64},
		wrong: first + "@%p1 st.shared.u8 [s+1], 1;\n @%p2 st.shared.u16 [s], 2;",
		right: first + "@%p1 st.shared.u8 [s+1], 1;\n @%p2 st.shared.u16 [s+2], 2;",
		at:    "@%p1 st.shared.u8 [s+1], 1", with: "@%p2 st.shared.u16 [s], 2",
	})
	check(defect{
		name: "an atomic operation and a plain store", declarations: sharedArray, setup: setup{threads: 64},
		wrong: first + "@%p1 st.shared.u32 [s], 1;\n bar.sync 0;\n @%p1 atom.shared.add.u32 %r1, [s], 1;\n @%p2 st.shared.u32 [s], 7;",
		right: first + "@%p1 st.shared.u32 [s], 1;\n bar.sync 0;\n @%p1 atom.shared.add.u32 %r1, [s], 1;\n " +
			"@%p2 atom.shared.exch.b32 %r1, [s], 7;",
		at: "@%p1 atom.shared.add.u32 %r1, [s], 1", with: "@%p2 st.shared.u32 [s], 7",
	})
	check(defect{
		name: "a flag without release", declarations: sharedArray, setup: setup{threads: 64},
		wrong: first + `@%p1 st.shared.u32 [s], 0;
	bar.sync 0;
	@%p1 bra WAIT;
	@!%p2 bra END;
	st.shared.u32 [s+4], 1;
	st.volatile.shared.u32 [s], 1;
	bra END;
WAIT:
	ld.volatile.shared.u32 %r2, [s];
	setp.eq.u32 %p3, %r2, 0;
	@%p3 bra WAIT;
	ld.shared.u32 %r1, [s+4];
END:`,
		right: first + `@%p1 st.shared.u32 [s], 0;
	bar.sync 0;
	@%p1 bra WAIT;
	@!%p2 bra END;
	st.shared.u32 [s+4], 1;
	membar.cta;
	st.volatile.shared.u32 [s], 1;
	bra END;
WAIT:
	ld.volatile.shared.u32 %r2, [s];
	setp.eq.u32 %p3, %r2, 0;
	@%p3 bra WAIT;
	membar.cta;
	ld.shared.u32 %r1, [s+4];
END:`,
		at: "ld.shared.u32 %r1, [s+4]", with: "st.shared.u32 [s+4], 1",
	})
	check(defect{
		name: "two blocks", setup: setup{threads: 64, blocks: 2},
		wrong:    "setp.eq.u32 %p1, %r0, 0;\n @%p1 st.global.u32 [%rd0], %r61;",
		right:    "setp.eq.u32 %p1, %r0, 0;\n @%p1 st.global.u32 [%rd31], %r61;",
		at:       "@%p1 st.global.u32 [%rd0], %r61",
		with:     "@%p1 st.global.u32 [%rd0], %r61",
		contains: []string{"of block [", "blocks need an atomic operation, or a fence and a flag"},
	})
	check(defect{
		name: "two blocks, one of them reading", setup: setup{threads: 64, blocks: 2},
		wrong: "setp.eq.u32 %p2, %r63, 0;\n setp.eq.u32 %p1, %r63, 64;\n @%p1 ld.global.u32 %r1, [%rd0];\n " +
			"@%p2 st.global.u32 [%rd0], %r61;",
		right: "setp.eq.u32 %p2, %r63, 0;\n setp.eq.u32 %p1, %r63, 64;\n @%p1 ld.global.u32 %r1, [%rd0+4];\n " +
			"@%p2 st.global.u32 [%rd0], %r61;",
		at: "@%p1 ld.global.u32 %r1, [%rd0]", with: "@%p2 st.global.u32 [%rd0], %r61",
	})
	check(defect{
		name: "a whole warp reads what another thread writes", declarations: sharedArray, setup: setup{threads: 64},
		wrong: first + "@%p2 st.shared.u32 [s], 1;\n bar.sync 0;\n setp.lt.u32 %p3, %r0, 32;\n @%p3 ld.shared.u32 %r1, [s];\n " +
			"@%p2 st.shared.u32 [s], 2;",
		right: first + "@%p2 st.shared.u32 [s], 1;\n bar.sync 0;\n setp.lt.u32 %p3, %r0, 32;\n @%p3 ld.shared.u32 %r1, [s];\n bar.sync 0;\n " +
			"@%p2 st.shared.u32 [s], 2;",
		at: "@%p3 ld.shared.u32 %r1, [s]", with: "@%p2 st.shared.u32 [s], 2", contains: []string{"warp 0"},
	})
	check(defect{
		name: "two instructions that happen to write the same value", declarations: sharedArray, setup: setup{threads: 64},
		wrong: first + "and.b32 %r3, %r0, 31;\n mov.u32 %r4, 0;\n @%p1 st.shared.u32 [s], %r3;\n @%p2 st.shared.u32 [s], %r4;",
		right: first + "mov.u32 %r3, 0;\n mov.u32 %r4, 0;\n @%p1 st.shared.u32 [s], %r3;\n @%p2 st.shared.u32 [s], %r4;\n @%p2 st.shared.u32 [s], 0;",
		at:    "@%p1 st.shared.u32 [s], %r3", with: "@%p2 st.shared.u32 [s], %r4",
	})
	unrolled := "\n.loc 1 7 3\n @%p1 st.shared.u32 [s], %r3;\n.loc 1 LINE 3\n @%p2 st.shared.u32 [s], %r4;\n"
	check(defect{
		name: "two instructions of one source line, as after unrolling", declarations: ".file 1 \"k.cu\"\n" + sharedArray, setup: setup{threads: 64},
		wrong: first + "and.b32 %r3, %r0, 31;\n and.b32 %r4, %r0, 31;" + strings.Replace(unrolled, "LINE", "8", 1),
		right: first + "and.b32 %r3, %r0, 31;\n and.b32 %r4, %r0, 31;" + strings.Replace(unrolled, "LINE", "7", 1),
		at:    "@%p1 st.shared.u32 [s], %r3", with: "@%p2 st.shared.u32 [s], %r4",
	})
	check(defect{
		name: "an exchange that does not check the old value", setup: setup{threads: 64, blocks: 2},
		wrong: "ld.global.u32 %r2, [%rd0];\n add.u32 %r4, %r2, 1;\n atom.global.exch.b32 %r3, [%rd0], %r4;",
		right: "ld.global.f32 %f1, [%rd0];\n mov.b32 %r2, %f1;\nAGAIN:\n mov.b32 %r3, %r2;\n add.u32 %r4, %r3, 1;\n " +
			"atom.global.cas.b32 %r2, [%rd0], %r3, %r4;\n setp.ne.u32 %p1, %r2, %r3;\n @%p1 bra AGAIN;",
		at: "ld.global.u32 %r2, [%rd0]", with: "atom.global.exch.b32 %r3, [%rd0], %r4",
	})
	check(defect{
		name: "a plain store to a value that a compare-and-swap expects", declarations: sharedArray, setup: setup{threads: 64},
		wrong: first + "@%p1 st.shared.u32 [s], 0;\n bar.sync 0;\n @%p1 st.shared.u32 [s], 1;\n @%p2 ld.shared.u32 %r2, [s];\n bar.sync 0;\n @%p2 atom.shared.cas.b32 %r3, [s], %r2, 5;",
		right: first + "@%p1 st.shared.u32 [s], 1;\n bar.sync 0;\n @%p2 ld.shared.u32 %r2, [s];\n @%p2 atom.shared.cas.b32 %r3, [s], %r2, 5;",
		at:    "@%p1 st.shared.u32 [s], 1", with: "@%p2 ld.shared.u32 %r2, [s]",
	})
	check(defect{
		name: "ldmatrix of rows that are not synchronised", declarations: sharedArray,
		wrong: strings.Replace(fillShared, "bar.warp.sync -1;", "", 1) + "mov.u32 %r3, s;\n " +
			"ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];",
		right: fillShared + "mov.u32 %r3, s;\n ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];",
		at:    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3]", with: "st.shared.v4.u32 [%r50], {%r0, %r51, %r51, %r0}",
	})
}

func TestCopies(t *testing.T) {
	t.Parallel()
	const begin = `
	mov.u32 %r3, s;
	mad.lo.u32 %r4, %r0, 4, %r3;
	mad.wide.u32 %rd2, %r0, 4, %rd1;
	cp.async.ca.shared.global [%r4], [%rd2], 4;
	cp.async.commit_group;
`
	const copying = "cp.async.ca.shared.global [%r4], [%rd2], 4"
	in := each(64, func(i uint32) uint32 { return i })
	defect{
		name: "no wait", declarations: sharedArray, setup: setup{threads: 64, in: in}, kind: finding.MissingWait,
		wrong: begin + "ld.shared.u32 %r1, [%r4];", right: begin + "cp.async.wait_group 0;\n ld.shared.u32 %r1, [%r4];",
		at: "ld.shared.u32 %r1, [%r4]", with: copying, contains: []string{"the target of an asynchronous copy that thread"},
	}.check(t)
	defect{
		name: "a wait for the groups before", declarations: sharedArray, setup: setup{threads: 64, in: in}, kind: finding.MissingWait,
		wrong: begin + "cp.async.wait_group 1;\n ld.shared.u32 %r1, [%r4];",
		right: begin + "cp.async.commit_group;\n cp.async.wait_group 1;\n ld.shared.u32 %r1, [%r4];",
		at:    "ld.shared.u32 %r1, [%r4]", with: copying,
	}.check(t)
	defect{
		name: "a barrier without a wait", declarations: sharedArray, setup: setup{threads: 64, in: in}, kind: finding.MissingWait,
		wrong: begin + "bar.sync 0;\n xor.b32 %r5, %r0, 32;\n mad.lo.u32 %r5, %r5, 4, %r3;\n ld.shared.u32 %r1, [%r5];",
		right: begin + "cp.async.wait_all;\n bar.sync 0;\n xor.b32 %r5, %r0, 32;\n mad.lo.u32 %r5, %r5, 4, %r3;\n " +
			"ld.shared.u32 %r1, [%r5];",
		at: "ld.shared.u32 %r1, [%r5]", with: copying,
	}.check(t)
	defect{
		name: "a wait without a barrier", declarations: sharedArray, setup: setup{threads: 64, in: in}, kind: finding.Race,
		wrong: fillOnce + begin + "cp.async.wait_all;\n xor.b32 %r5, %r0, 32;\n mad.lo.u32 %r5, %r5, 4, %r3;\n ld.shared.u32 %r1, [%r5];",
		right: fillOnce + begin + "cp.async.wait_all;\n bar.sync 0;\n xor.b32 %r5, %r0, 32;\n mad.lo.u32 %r5, %r5, 4, %r3;\n " +
			"ld.shared.u32 %r1, [%r5];",
		at: "ld.shared.u32 %r1, [%r5]", with: copying,
	}.check(t)
	defect{
		name: "a store to the target of a copy", declarations: sharedArray, setup: setup{threads: 64, in: in}, kind: finding.MissingWait,
		wrong: begin + "st.shared.u32 [%r4], 1;\n cp.async.wait_all;", right: begin + "cp.async.wait_all;\n st.shared.u32 [%r4], 1;",
		at: "st.shared.u32 [%r4], 1", with: copying,
	}.check(t)
	defect{
		name: "reads more than it copies", declarations: sharedArray, setup: setup{threads: 64, in: in}, kind: finding.Undefined,
		wrong: "mov.u32 %r3, s;\n mad.lo.u32 %r4, %r0, 4, %r3;\n mov.u32 %r5, 5;\n cp.async.ca.shared.global [%r4], [%rd1], 4, %r5;\n " +
			"cp.async.wait_all;",
		right: "mov.u32 %r3, s;\n mad.lo.u32 %r4, %r0, 4, %r3;\n mov.u32 %r5, 3;\n cp.async.ca.shared.global [%r4], [%rd1], 4, %r5;\n " +
			"cp.async.wait_all;",
		at: "cp.async.ca.shared.global [%r4], [%rd1], 4, %r5", contains: []string{"copies 4 bytes but reads 5"},
	}.check(t)
	// The target is poisoned until the wait, so a missing wait also changes the output.
	got := simulate(t, setup{text: kernelWith(sharedArray, storing(fillOnce+begin+"ld.shared.u32 %r1, [%r4];")), in: in})
	if got.out[3] != 0xffffffff {
		t.Errorf("without a wait the copy delivers %#x", got.out[3])
	}
	// A short source is padded with zeros. A predicate replaces the whole source by zeros.
	short := "mov.u32 %r5, 1;\n setp.eq.u32 %p1, %r0, 2;\n" + strings.Replace(begin, "[%rd2], 4", "[%rd2], 4, %r5", 1) +
		"cp.async.ca.shared.global [%r4+256], [%rd2], 4, %p1;\n cp.async.wait_all;\n ld.shared.u32 %r1, [%r4];\n " +
		"ld.shared.u32 %r2, [%r4+256];\n mad.lo.u32 %r1, %r2, 65536, %r1;"
	schedules(t, "short copies", setup{text: kernelWith(sharedArray, storing(short)), in: each(32, func(i uint32) uint32 { return 0x201 * i })},
		each(32, func(i uint32) uint32 {
			if i == 2 {
				return i
			}
			return 0x201*i<<16 + i
		}))
}

// fillOnce has each of 64 threads write a word, followed by a barrier.
const fillOnce = `
	mov.u32 %r50, s;
	mad.lo.u32 %r50, %r0, 4, %r50;
	st.shared.u32 [%r50], %r0;
	bar.sync 0;
`

// A line that reads past one buffer and writes past another has two findings, and accesses of several
// lanes or unrolled copies to one buffer are one.
func TestAccessesOfOneLine(t *testing.T) {
	t.Parallel()
	const line = ".loc 1 7 3\n"
	text := kernel(line+"mad.wide.u32 %rd2, %r0, 4, %rd1;\n ld.global.u32 %r1, [%rd2+4];\n "+
		"st.global.u32 [%rd31+4], %r1;\n st.global.u32 [%rd31+8], %r1;\n ld.global.u32 %r2, [%rd31+4];\n ret;") + ".file 1 \"k.cu\"\n"
	got := simulate(t, setup{text: text, out: 32, in: make([]uint32, 32), writtenBefore: true})
	var all []string
	for _, f := range got.findings {
		if f.Kind == finding.OutOfBounds {
			all = append(all, f.Detail[strings.Index(f.Detail, ": ")+2:][:len("writes")]+fmt.Sprintf(" %s %d", f.Detail[strings.LastIndex(f.Detail, "of ")+3:], f.Count))
		}
	}
	if want := []string{"reads  in (128 bytes) 1", "writes out (128 bytes) 3", "reads  out (128 bytes) 1"}; !slices.Equal(all, want) {
		t.Errorf("%q", all)
	}
}

// A missing barrier shows as races within a warp and between warps. The text is about the latter,
// which a barrier of the warp does not mend.
func TestRaceBetweenWarps(t *testing.T) {
	t.Parallel()
	body := `
	mov.u32 %r2, s;
	mad.lo.u32 %r3, %r0, 4, %r2;
	st.shared.u32 [%r3], %r0;
	add.u32 %r4, %r0, 31;
	rem.u32 %r4, %r4, 64;
	mad.lo.u32 %r4, %r4, 4, %r2;
	ld.shared.u32 %r1, [%r4];`
	got := simulate(t, setup{text: kernelWith(".shared .align 4 .b32 s[64];", storing(body)), threads: 64})
	if !strings.HasPrefix(got.kinds(), "race") || !strings.HasSuffix(got.findings[0].Detail, "(warps need a barrier)") {
		t.Errorf("%v", got.findings)
	}
}
