package sim

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"attune/internal/ptx"
	"attune/internal/sim/mem"
)

// TestRefusals tests what cannot run. Each case has a clear message in one line, and none crashes.
func TestRefusals(t *testing.T) {
	t.Parallel()
	check := func(name string, g setup, want ...string) {
		t.Helper()
		if g.steps == 0 {
			g.steps = 10000
		}
		for _, unchecked := range []bool{false, true} {
			g.unchecked = unchecked
			_, err := try(t, g)
			if err == nil {
				t.Errorf("%s: no error", name)
				return
			}
			for _, text := range want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: error %q does not contain %q", name, err, text)
				}
			}
			if strings.Contains(err.Error(), "\n") || strings.HasSuffix(err.Error(), ".") {
				t.Errorf("%s: the message has several lines or ends with a period: %q", name, err)
			}
		}
	}
	body := func(text string) setup { return setup{text: kernel(text + "\n ret;")} }

	// Text.
	check("no PTX at all", setup{text: "MZ\x90\x00"}, "line 1")
	check("an empty text", setup{text: ""}, "version")
	check("half a module", setup{text: kernel("ret;")[:300]}, "line ")
	check("no entry", setup{text: header}, "no entry function")
	check("an unknown instruction", body("frobnicate.u32 %r1, %r2;"), "PTX line 20", "frobnicate.u32 %r1, %r2", "unsupported instruction")
	check("an unknown type", body("add.u33 %r1, %r2, %r3;"), "add.u33")
	check("an unknown register", body("add.u32 %q1, %r2, %r3;"), "line 20", "%q1")
	check("too few operands", body("add.u32 %r1, %r2;"), "PTX line 20", "it has 2 operands, want 3")
	check("a predicate as a number", body("add.u32 %r1, %r2, %p1;"), "operand 2 is not a .u32")
	check("a number as a predicate", body("selp.u32 %r1, %r2, %r3, %r4;"), "operand 3 is not a .pred")
	check("a constant as the result", body("add.u32 5, %r2, %r3;"), "line 20")
	check("an unknown special register", body("mov.u32 %r1, %envreg3;"), "%envreg3")
	check("a constant of the wrong kind", body("add.u64 %rd3, %rd2, 0f3F800000;"), "a constant of this form")
	check("an unknown variable", body("ld.global.u32 %r1, [nowhere];"), "line 20", "nowhere")
	check("the wrong space", setup{text: kernelWith(".shared .u32 s;", "ld.global.u32 %r1, [s];\n ret;")}, "s is in .shared")
	check("an unknown label", body("bra NOWHERE;"), "NOWHERE")
	check("an unknown function", body("call.uni nowhere, ();"), "nowhere")
	check("a function that is only declared", setup{text: kernelWith(".extern .func f();", "call.uni f, ();\n "+
		"ret;")}, "f is declared and not defined")
	check("a call with another number of arguments", setup{text: kernelWith(".func f(.param .b32 a)\n{ ret; }", "call.uni f, ();\n "+
		"ret;")}, "line 21", "arguments")
	check("a store to a small register", body("st.global.u64 [%rd0], %r1;"), "too small")
	check("three values for four", body("ld.global.v4.u32 {%r1,%r2,%r3}, [%rd0];"), "3 values, want 4")
	check("an unknown vector size", body("ld.global.v3.u32 {%r1,%r2,%r3}, [%rd0];"), "v3")
	check("a load without a type", body("ld.global %r1, [%rd0];"), "no type")
	check("a load without an address", body("ld.global.u32 %r1, %rd0;"), "address in brackets")
	check("a copy of three bytes", body("cp.async.ca.shared.global [%r1], [%rd0], 3;"), "cannot copy 3 bytes")
	check("a shuffle without sync", body("shfl.down.b32 %r1, %r0, 1, 31;"), "unsupported form")
	check("a matrix of the wrong size",
		body("mma.sync.aligned.m16n8k9.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};"), "m16n8k9")
	check("registers for half a matrix",
		body("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2}, {%r1,%r2,%r3,%r4};"),
		"a has 2 registers, want 4")

	// More memory than a chip has.
	check("local memory", body(".local .align 4 .b8 l[1073741824];\n st.local.u32 [l], %r0;"), "local")
	check("parameters of a function", setup{text: kernelWith(".func f(.param .b8 a[1073741824])\n{ ret; }", ".param .b8 a[1073741824];\n call f, (a);\n ret;")}, "param")
	check("constants", setup{text: kernelWith(".const .b8 a[1073741824];", "ret;")}, "const")

	const gigabyte = ".align 1073741824"
	check("the alignment of a local variable", body(".local "+gigabyte+" .b32 l;\n st.local.u32 [l], %r0;"), "alignment")
	check("the alignment of a constant", setup{text: kernelWith(".const .b32 a;\n.const "+gigabyte+" .b32 b;", "ret;")}, "alignment")
	check("the alignment of a parameter", setup{text: kernelWith(".func f(.param "+gigabyte+" .b32 a)\n{ ret; }", ".param .b32 a;\n call f, (a);\n ret;")}, "alignment")

	// Instructions of Hopper and later.
	for _, text := range []string{
		"wgmma.fence.sync.aligned;",
		"cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%rd0, {%r2, %r3}], [%r4];",
		"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u8 [%rd0], [%r1], 16;",
		"cp.async.bulk.shared::cta.shared::cta.bulk_group [%r1], [%r2], 16;",
		"barrier.cluster.sync;",
		"wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f1,%f2,%f3,%f4}, %rd1, %rd2, 1, 1, 1;",
		"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd0], [%rd1], 128;",
		"tcgen05.fence::before_thread_sync;",
	} {
		_, err := try(t, body(text))
		var unsupported *UnsupportedError
		if !errors.As(err, &unsupported) || unsupported.Line != 20 || !strings.Contains(text, unsupported.Text) || unsupported.Why == "" {
			t.Errorf("%s: error %v", text, err)
		}
	}

	// Errors while the kernel runs.
	check("an endless loop", setup{text: kernel("LOOP:\n add.u32 %r1, %r1, 1;\n " +
		"bra LOOP;"), steps: 5000}, "more than 5000 warp instructions", "endless", "warp 0")
	check("an endless loop of one lane", setup{text: kernel("LOOP:\n setp.eq.u32 %p1, %r0, 3;\n @%p1 bra LOOP;\n " +
		"ret;"), steps: 5000}, "endless", "lane 3")
	check("trap", body("setp.eq.u32 %p1, %r0, 9;\n @%p1 trap;"), "executed trap at ptx:21", "thread 9 of block [0 0 0]")
	check("endless recursion", setup{text: kernelWith(".func f(.param .b32 a)\n"+
		"{ .param .b32 b; call.uni f, (b); ret; }", ".param .b32 x;\n call.uni f, (x);\n ret;"), steps: 1 << 20},
		"f calls itself more than")
	check("an indirect call of an address that is not a function", setup{text: kernelWith(".func f()\n{ ret; }", "mov.u64 %rd5, 64;\n P: .callprototype _ ();\n "+
		"call %rd5, (), P;\n ret;")},
		"indirect call at ptx:", "0x40")
}

// TestTwoEntries loads a module with a kernel that can run and one that cannot.
func TestTwoEntries(t *testing.T) {
	t.Parallel()
	hopper := strings.Replace(strings.TrimPrefix(kernel("wgmma.fence.sync.aligned;\n ret;"), header), "entry k", "entry hopper", 1)
	p, err := Load(mustParse(t, kernel("ret;")+hopper), "")
	if err != nil {
		t.Fatal(err)
	}
	l := Launch{Entry: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Params: make([]byte, 16)}
	if _, err := p.Run(t.Context(), mem.NewMemory(), l, Options{}); err != nil {
		t.Error(err)
	}
	l.Entry = "hopper"
	var unsupported *UnsupportedError
	if _, err := p.Run(t.Context(), mem.NewMemory(), l, Options{}); !errors.As(err, &unsupported) || unsupported.Text != "wgmma.fence.sync.aligned" {
		t.Errorf("error of the other kernel: %v", err)
	}
}

// TestBreakpoint checks that brkpt has no effect without a debugger.
func TestBreakpoint(t *testing.T) {
	schedules(t, "brkpt", setup{text: kernel(storing("brkpt;\n mov.u32 %r1, 4;"))}, each(32, func(uint32) uint32 { return 4 }))
}

// TestLaunchRefusals tests launches that the driver refuses too.
func TestLaunchRefusals(t *testing.T) {
	t.Parallel()
	load := func(text string) *Program {
		t.Helper()
		p, err := Load(mustParse(t, text), "")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	plain := load(kernel("ret;"))
	good := Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Params: make([]byte, 16)}
	check := func(name string, p *Program, change func(*Launch), want ...string) {
		t.Helper()
		l := good
		change(&l)
		result, err := p.Run(t.Context(), mem.NewMemory(), l, Options{MaxSteps: 1000})
		if err == nil {
			t.Errorf("%s: no error: %v", name, result)
			return
		}
		for _, text := range want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: error %q does not contain %q", name, err, text)
			}
		}
	}
	check("an unknown entry", plain, func(l *Launch) { l.Entry = "q" }, `no entry function "q"`, "it has k")
	check("no grid", plain, func(l *Launch) { l.Grid[1] = 0 }, "launch k", "every extent must be at least 1")
	check("a negative grid", plain, func(l *Launch) { l.Grid[2] = -1 }, "every extent")
	check("no block", plain, func(l *Launch) { l.Block[0] = 0 }, "every extent")
	check("too many threads", plain, func(l *Launch) { l.Block = [3]int{33, 32, 1} }, "a block of 1056 threads", "1024")
	check("a number of threads that overflows", plain, func(l *Launch) { l.Block = [3]int{1 << 32, 1 << 32, 1} }, "a block of [4294967296 4294967296 1]")
	check("a block too deep", plain, func(l *Launch) { l.Block[2] = 65 }, "[1024 1024 64]")
	check("too large a grid", plain, func(l *Launch) { l.Grid = [3]int{1 << 31, 1, 1} }, "a grid of [2147483648 1 1]")
	check("too high a grid", plain, func(l *Launch) { l.Grid[1] = 65536 }, "a grid of [1 65536 1]")
	check("too few parameters", plain, func(l *Launch) { l.Params = l.Params[:8] }, "8 bytes of parameters; the kernel takes 16 bytes in 2 parameters")
	check("too many parameters", plain, func(l *Launch) { l.Params = make([]byte, 24) }, "24 bytes of parameters")
	check("a parameter of another size", plain, func(l *Launch) { l.Params = make([]byte, 12) }, "12 bytes of parameters")
	check("too much shared memory", plain, func(l *Launch) { l.DynamicShared = 99<<10 + 1 }, "101377 bytes of shared memory", "101376 are allowed on sm_89")
	for arch, most := range map[string]int{"sm_75": 64, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_90a": 227, "sm_100f": 227} {
		if got := maxShared(arch); got != most<<10 {
			t.Errorf("%d bytes of shared memory on %s, want %d", got, arch, most<<10)
		}
	}
	const huge = math.MaxInt
	check("shared memory that overflows", plain, func(l *Launch) { l.DynamicShared = huge }, "9223372036854775807 of them dynamic", "101376 are allowed")
	some := load(kernelWith(".shared .b8 s[8];", "mov.u32 %r1, s;\n ret;"))
	check("a sum of shared memory that overflows", some, func(l *Launch) { l.DynamicShared = huge }, "9223372036854775815 bytes of shared memory")
	check("a grid that overflows", plain, func(l *Launch) { l.Grid = [3]int{huge, huge, huge} }, "a grid of [9223372036854775807 ")
	check("a cluster that overflows", plain, func(l *Launch) { l.Cluster = [3]int{1 << 32, 1 << 32, 1} }, "clusters of [4294967296 4294967296 1]")
	check("a negative cluster", plain, func(l *Launch) { l.Cluster = [3]int{-1, 1, 1} }, "clusters of [-1 1 1]", "at least 1")
	check("two negative extents of a cluster", plain, func(l *Launch) { l.Cluster = [3]int{-2, -1, 1} }, "clusters of [-2 -1 1]")
	aligned := load(kernelWith(".extern .shared .align 1073741824 .b8 s[];", "mov.u32 %r1, s;\n ret;"))
	check("an alignment of a gigabyte", aligned, func(*Launch) {}, "an alignment of 1073741824 bytes; 65536 are allowed")
	check("negative shared memory", plain, func(l *Launch) { l.DynamicShared = -4 }, "shared memory")
	static := load(kernelWith(".shared .b8 s[49000];", "mov.u32 %r1, s;\n ret;"))
	check("too much of both kinds", static, func(l *Launch) { l.DynamicShared = 53000 }, "102000 bytes of shared memory, 53000 of them dynamic")
	static = load(kernelWith(".shared .b8 s[49153];", "mov.u32 %r1, s;\n ret;"))
	check("too much static shared memory", static, func(*Launch) {}, "49153 bytes of static shared memory; 49152 are allowed")
	small := load(strings.Replace(kernel("ret;"), "\n{", "\n.maxntid 64, 1, 1\n{", 1))
	check("more threads than .maxntid", small, func(l *Launch) { l.Block[0] = 65 }, "64 at most", ".maxntid")
	exact := load(strings.Replace(kernel("ret;"), "\n{", "\n.reqntid 64, 1, 1\n{", 1))
	check("other threads than .reqntid", exact, func(l *Launch) { l.Block[0] = 32 }, ".reqntid")
	two := load(kernel("ret;") + strings.Replace(strings.TrimPrefix(kernel("ret;"), header), "entry k", "entry q", 1))
	check("no entry named, and two to choose from", two, func(l *Launch) {}, "k, q")
	if _, err := two.Entry("q"); err != nil {
		t.Error(err)
	}
	if n := static.SharedBytes(); n != 49153 {
		t.Errorf("%d bytes of static shared memory, want 49153", n)
	}

	// A cancelled context.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := plain.Run(ctx, mem.NewMemory(), good, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error of a cancelled launch: %v", err)
	}
	if _, err := try(t, setup{text: kernel("ret;"), arch: "sm_5"}); err == nil || !strings.Contains(err.Error(), "sm_5") {
		t.Errorf("error for an unknown chip: %v", err)
	}
}

// TestWrongRegisters checks that a register of the wrong width is refused in every position.
func TestWrongRegisters(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"mad.wide.u32 %r1, %r0, 4, %rd0;",
		"mul.wide.u32 %r1, %r0, 4;",
		"add.u64 %r1, %rd0, %rd0;",
		"cvt.u64.u32 %r1, %r0;",
		"brx.idx %rd1, T;\nT: .branchtargets A;\nA:",
		"bar.sync %rd1;",
		"bar.sync 0, %rd1;",
		"bar.red.popc.u32 %rd1, 0, %p1;",
		"bar.warp.sync %rd1;",
		"mbarrier.init.shared.b64 [%r1], %rd1;",
		"mbarrier.arrive.shared.b64 %rd1, [%r1], %rd2;",
		"mbarrier.test_wait.shared.b64 %p1, [%r1], %r2;",
		"mbarrier.test_wait.parity.shared.b64 %p1, [%r1], %rd2;",
		"mbarrier.pending_count.b64 %rd1, %rd2;",
		"mbarrier.pending_count.b64 %r1, %r2;",
		"shfl.sync.idx.b32 %rd1, %r1, 1, 31, -1;",
		"shfl.sync.idx.b32 %r1, %rd1, 1, 31, -1;",
		"shfl.sync.idx.b32 %r1, %r1, %rd1, 31, -1;",
		"shfl.sync.idx.b32 %r1, %r1, 1, %rd1, -1;",
		"shfl.sync.idx.b32 %r1, %r1, 1, 31, %rd1;",
		"vote.sync.ballot.b32 %rd1, %p1, -1;",
		"vote.sync.any.pred %r1, %p1, -1;",
		"match.any.sync.b32 %rd1, %r1, -1;",
		"match.any.sync.b64 %r1, %r1, -1;",
		"redux.sync.add.u32 %rd1, %r1, -1;",
		"elect.sync %rd1|%p1, -1;",
		"redux.sync.add.u32 %r1, %rd1, -1;",
		"activemask.b32 %rd1;",
		"createpolicy.fractional.L2::evict_last.b64 %r1, 1.0;",
		"wmma.load.c.sync.aligned.row.m16n16k16.global.f16 {%r4,%r5,%r6,%r7}, [%rd1], %rd2;",
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%rd4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};",
		"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1,%rd2}, [%r3];",
		"atom.global.add.u32 %p1, [%rd0], 1;",
		"atom.global.add.u64 %r1, [%rd0], %rd1;",
		"atom.global.add.u32 %r1, [%rd0], %p1;",
		"ld.global.u64 %r1, [%rd0];",
		"cp.async.ca.shared.global [%r1], [%rd1], 4, %rd2;",
		"mov.u32 %rd1, %r1;",
		"mov.b64 %r1, %rd1;",
	} {
		_, err := try(t, setup{text: kernelWith(".shared .align 16 .b8 s[16];", text+"\n ret;"), steps: 1000})
		if err == nil {
			t.Errorf("%s: no error", text)
		}
	}
	// A result may go to the sink.
	schedules(t, "sinks", setup{text: kernel(storing(`
	setp.lt.u32 %p0, %r0, 5;
	mov.u32 %r1, 3;
	vote.sync.any.pred _, %p0, -1;
	redux.sync.add.u32 _, %r1, -1;
	@%p0 add.u32 %r1, %r1, %r0;`))}, each(32, func(i uint32) uint32 {
		if i < 5 {
			return 3 + i
		}
		return 3
	}))
}

func mustParse(t testing.TB, text string) *ptx.Module {
	t.Helper()
	module, err := ptx.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, numbered(text))
	}
	return module
}

// TestTargets loads PTX for chips that can run its target, and for others.
func TestTargets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ target, arch, want string }{
		{"sm_80", "sm_80", ""},
		{"sm_80", "sm_90a", ""},
		{"sm_90a", "sm_90", ""},
		{"sm_90", "compute_90a", ""},
		{"sm_90a", "", ""},
		{"sm_90a", "hopper", ""},
		{"sm_90a", "sm_80", ".target sm_90a cannot run on sm_80: a chip does not run PTX for a later one"},
		{"sm_90", "sm_89", ".target sm_90 cannot run on sm_89"},
		{"sm_90a", "sm_100", "it has the features of one chip alone; choose sm_90a, or compile for sm_100"},
	} {
		module := mustParse(t, ".version 8.0\n.target "+c.target+"\n.address_size 64\n.visible .entry k() { ret; }\n")
		_, err := Load(module, c.arch)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s on %s: error %v, want %q", c.target, c.arch, err, c.want)
		}
	}
}

// The family of a refused instruction is short enough for a verdict.
func TestFamilyOfUnsupported(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [a], 32;": "tcgen05",
		"@%p1 multimem.red.add.f32 [%rd1], %f1;":                           "multimem",
		"the variable x":                                                   "",
		"the function k.b;":                                                "",
	} {
		if got := (&UnsupportedError{Text: text}).Family(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
