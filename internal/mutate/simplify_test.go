package mutate

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim"
	"attune/internal/sim/mem"
)

// boundedKernel is a kernel with a body, for blocks of 64 threads. Its parameters are bounded: a
// from 1 to 1000, b from -8 to 8. It writes %r1 to %r8 to out.
func boundedKernel(body string) []byte {
	text := `.version 8.3
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 a, .param .s32 b)
.maxntid 64, 1, 1
{
	.reg .pred %p<16>;
	.reg .b32 %r<32>;
	.reg .b64 %rd<16>;
` + body + `
	ld.param.u64 %rd14, [out];
	mov.u32 %r30, %tid.x;
	mad.wide.u32 %rd14, %r30, 32, %rd14;
`
	for i := 1; i <= 8; i++ {
		text += fmt.Sprintf("\tst.global.u32 [%%rd14+%d], %%r%d;\n", 4*i-4, i)
	}
	return []byte(text + "\tret;\n}\n")
}

var parameterBounds = map[string]Range{"a": {1, 1000}, "b": {-8, 8}}

// TestSimplify checks which lines of a body change, and how.
func TestSimplify(t *testing.T) {
	check := func(name, body string, want ...string) {
		t.Helper()
		text := boundedKernel(body)
		simple, err := simplify(text, "k", parameterBounds)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		now := strings.Split(string(simple), "\n")
		for i, was := range strings.Split(string(text), "\n") {
			if now[i] != was {
				got = append(got, strings.TrimSpace(now[i]))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	const a, b, tid = "\tld.param.u32 %r1, [a];\n", "\tld.param.u32 %r2, [b];\n", "\tmov.u32 %r3, %tid.x;\n"
	check("sign of tid", tid+"\tshr.s32 %r4, %r3, 31;\n\tshr.u32 %r5, %r4, 27;", "mov.b32 %r4, 0;", "mov.b32 %r5, 0;")
	check("a value that may be negative", b+"\tshr.s32 %r4, %r2, 31;")
	check("a product that may wrap around", a+"\tmul.lo.s32 %r4, %r1, 3000000;\n\tsetp.gt.s32 %p1, %r4, 0;")
	check("a sum that cannot wrap around", a+"\tadd.s32 %r4, %r1, 31;\n\tsetp.gt.s32 %p1, %r4, 31;", "setp.eq.s32 %p1, 1, 1;")
	check("a comparison that is just undecided", a+"\tadd.s32 %r4, %r1, 31;\n\tsetp.gt.s32 %p1, %r4, 32;")
	check("unsigned instructions", b+"\tsetp.lt.u32 %p1, %r2, 9;\n\tmin.u32 %r4, %r2, 0;")
	check("a loop that is not entered",
		tid+"\tsetp.gt.u32 %p1, %r3, 63;\n\t@%p1 bra L;\n\tbra.uni M;\nL:\n\tmov.u32 %r4, 7;\nM:",
		"setp.eq.s32 %p1, 0, 1;", "")
	check("a branch that is always taken", a+"\tsetp.eq.s32 %p1, %r1, 0;\n{ @!%p1 bra L; }\n\tmov.u32 %r4, %r1;\nL:",
		"setp.eq.s32 %p1, 0, 1;", "{ bra L; }")
	check("a branch refines a value", b+"\tsetp.lt.s32 %p1, %r2, 8;\n\t@%p1 bra L;\n\tmov.u32 %r4, %r2;\nL:", "mov.b32 %r4, 8;")
	check("no refinement: the value changed after the comparison",
		a+b+"\tsetp.ne.s32 %p1, %r2, 8;\n\tmov.u32 %r2, %r1;\n\t@%p1 bra L;\n\tmov.u32 %r4, %r2;\nL:")
	check("no refinement: unsigned comparison of a negative value", b+"\tsetp.ge.u32 %p1, %r2, 8;\n\t@!%p1 bra L;\n\tmov.u32 %r4, %r2;\nL:")
	check("an unsigned quotient", b+"\tdiv.u32 %r4, %r2, 16;")
	check("a loop",
		"\tmov.u32 %r4, -3;\nL:\n\tshr.s32 %r5, %r4, 31;\n\tadd.s32 %r4, %r4, 1;\n\tsetp.lt.s32 %p1, %r4, 9;\n\t@%p1 bra L;\n\tmov.u32 %r6, %r4;",
		"mov.b32 %r4, -3;", "mov.b32 %r6, 9;")
	check("a loop with a known end",
		"\tmov.u32 %r4, 0;\nL:\n\tshr.s32 %r5, %r4, 31;\n\tadd.s32 %r4, %r4, 1;\n\tsetp.lt.s32 %p1, %r4, 100;\n\t@%p1 bra L;",
		"mov.b32 %r4, 0;", "mov.b32 %r5, 0;")
	check("a guard", "\tmov.u32 %r4, 5;\n"+b+"\tsetp.lt.s32 %p1, %r2, 0;\n\t@%p1 mov.u32 %r4, 6;\n\tmov.u32 %r5, %r4;", "mov.b32 %r4, 5;")
	check("wide products", a+"\tmul.wide.s32 %rd1, %r1, 128;\n\tand.b64 %rd2, %rd1, -4294967296;\n\tsetp.eq.s64 %p1, %rd2, 0;",
		"mov.b64 %rd2, 0;", "setp.eq.s32 %p1, 1, 1;")
	check("products that are too wide", a+"\tmul.wide.u32 %rd1, %r1, -1;\n\tshr.u64 %rd2, %rd1, 42;", "mov.b64 %rd2, 0;")
	check("masks that keep all bits and none", a+"\tand.b32 %r3, %r1, 1023;\n\tsetp.eq.s32 %p1, %r3, 0;\n\tand.b32 %r4, %r1, 511;\n\tand.b32 %r5, %r1, 3072;",
		"setp.eq.s32 %p1, 0, 1;", "mov.b32 %r5, 0;")
	const product = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%r3, %r4, %r5, %r6}, %rd1, %rd2, p, 1, 1; }"
	check("wgmma without accumulation", "{ .reg .pred p; setp.ne.b32 p, 0, 0;\n\t"+product,
		"mov.b32 %r3, 0; mov.b32 %r4, 0; mov.b32 %r5, 0; mov.b32 %r6, 0; "+product)
	check("wgmma with accumulation", "{ .reg .pred p; setp.ne.b32 p, 1, 0;\n\t"+product)
	check("a vector", "\tmov.u64 %rd1, 5;\n\tmov.b64 {%r4, %r5}, %rd1;\n\tmov.u32 %r6, %r4;", "mov.b64 %rd1, 5;")
	if _, err := simplify([]byte("bar.sync 0;"), "k", nil); err == nil {
		t.Error("simplify accepted invalid PTX")
	}
}

// FuzzSimplify checks that the simplified kernel computes the same values as the original.
func FuzzSimplify(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1))
		text := boundedKernel(randomProgram(random))
		simple, err := simplify(text, "k", parameterBounds)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, a := range []int32{1, 1000, 1 + random.Int32N(1000)} {
			b := random.Int32N(17) - 8
			if want, got := runKernel(t, text, a, b), runKernel(t, simple, a, b); !slices.Equal(want, got) {
				t.Fatalf("a %d, b %d: %v, want %v\noriginal:\n%s\nsimplified:\n%s", a, b, got, want, text, simple)
			}
		}
	})
}

// programWriter writes random PTX on the registers %r1 to %r8, which all have a value.
type programWriter struct {
	strings.Builder
	random *rand.Rand
}

var constants = []int64{0, 1, -1, 2, 3, 5, 16, 31, 127, 1023, 1 << 16, -128, math.MaxInt32, math.MinInt32}

func (w *programWriter) printf(format string, args ...any) { fmt.Fprintf(w, format, args...) }

func (w *programWriter) pick(from ...string) string { return from[w.random.IntN(len(from))] }

func (w *programWriter) register() string { return fmt.Sprintf("%%r%d", 1+w.random.IntN(8)) }

// source is a constant or a register.
func (w *programWriter) source() string {
	if w.random.IntN(3) == 0 {
		return fmt.Sprint(constants[w.random.IntN(len(constants))])
	}
	return w.register()
}

func (w *programWriter) setp(predicate string) {
	w.printf("\tsetp.%s.%s %s, %s, %s;\n", w.pick("lt", "le", "gt", "ge", "eq", "ne"), w.pick("s32", "u32"), predicate, w.register(), w.source())
}

// instruction writes an instruction, sometimes with a guard.
func (w *programWriter) instruction() {
	guard := ""
	if w.random.IntN(5) == 0 {
		w.setp("%p1")
		guard = w.pick("@%p1 ", "@!%p1 ")
	}
	random, register, source, pick := w.random, w.register, w.source, w.pick
	switch kind := pick("add", "sub", "min", "max", "and", "or", "xor", "shl", "shr", "mul", "mad", "selp", "wide", "div"); kind {
	case "add", "sub", "min", "max":
		w.printf("\t%s%s.%s %s, %s, %s;\n", guard, kind, pick("s32", "u32"), register(), register(), source())
	case "and", "or", "xor":
		w.printf("\t%s%s.b32 %s, %s, %s;\n", guard, kind, register(), register(), source())
	case "shl":
		w.printf("\t%sshl.b32 %s, %s, %d;\n", guard, register(), register(), random.IntN(33))
	case "shr":
		w.printf("\t%sshr.%s %s, %s, %d;\n", guard, pick("s32", "u32"), register(), register(), random.IntN(33))
	case "mul":
		w.printf("\t%smul.lo.s32 %s, %s, %s;\n", guard, register(), register(), source())
	case "mad":
		w.printf("\t%smad.lo.s32 %s, %s, %s, %s;\n", guard, register(), register(), source(), register())
	case "selp":
		w.printf("\tsetp.lt.s32 %%p2, %s, %s;\n\tselp.b32 %s, %s, %s, %%p2;\n", register(), source(), register(), source(), source())
	case "div":
		w.printf("\t%s%s.%s %s, %s, %d;\n", guard, pick("div", "rem"), pick("s32", "u32"), register(), register(), 1+random.IntN(9))
	case "wide":
		w.printf("\tmul.wide.%s %%rd1, %s, %s;\n\t%s.b64 %%rd1, %%rd1, %d;\n", pick("s32", "u32"), register(), register(),
			pick("and", "or", "xor"), constants[random.IntN(len(constants))])
		w.printf("\tcvt.%s.%s %%rd2, %s;\n\tadd.s64 %%rd1, %%rd1, %%rd2;\n", pick("s64", "u64"), pick("s32", "u32"), register())
		w.printf("\tshr.%s %%rd1, %%rd1, %d;\n", pick("s64", "u64"), random.IntN(64))
		w.printf("\tcvt.u32.u64 %s, %%rd1;\n", register())
	}
}

// randomProgram returns arithmetic, comparisons, forward branches and a loop.
func randomProgram(random *rand.Rand) string {
	w := &programWriter{random: random}
	for i := 1; i <= 8; i++ {
		w.printf("\tmov.u32 %%r%d, %s;\n", i, w.pick("%tid.x", "%laneid", "%ctaid.x", "%ntid.x", "7", "-9", "0"))
	}
	w.WriteString("\tld.param.u32 %r1, [a];\n\tld.param.u32 %r2, [b];\n\tmov.u32 %r20, 0;\n")
	for part := range 4 {
		w.setp("%p3")
		w.printf("\t%s bra L%d;\n", w.pick("@%p3", "@!%p3"), part)
		for range 4 {
			w.instruction()
		}
		w.printf("L%d:\n", part)
		for range 3 {
			w.instruction()
		}
		if part == 1 {
			w.WriteString("AGAIN:\n")
		}
	}
	w.WriteString("\tadd.s32 %r20, %r20, 1;\n\tsetp.lt.s32 %p4, %r20, 3;\n\t@%p4 bra AGAIN;\n")
	return w.String()
}

// runKernel returns the output of a kernel for one block of 64 threads.
func runKernel(t *testing.T, text []byte, a, b int32) []uint32 {
	t.Helper()
	module, err := ptx.Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	program, err := sim.Load(module, "")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	const threads = 64
	memory := mem.NewMemory()
	out, err := memory.Alloc(finding.Variable{Name: "out"}, 32*threads)
	if err != nil {
		t.Fatal(err)
	}
	params := binary.LittleEndian.AppendUint64(nil, out)
	params = binary.LittleEndian.AppendUint32(params, uint32(a))
	params = binary.LittleEndian.AppendUint32(params, uint32(b))
	launch := sim.Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{threads, 1, 1}, Params: params}
	if _, err := program.Run(t.Context(), memory, launch, sim.Options{}); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	data := make([]byte, 32*threads)
	if err := memory.Read(data, out); err != nil {
		t.Fatal(err)
	}
	words := make([]uint32, 8*threads)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	return words
}
