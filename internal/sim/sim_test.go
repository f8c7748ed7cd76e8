package sim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/mem"
)

// The kernels of these tests are k(out, in). They have many registers of each type. %rd0 and %rd1
// have the addresses of the two buffers, %r0 the thread index in the block, %r63 the index in the
// grid, and %rd31 the address of the thread's own word of out. Tests put a result into %r1.

const header = ".version 8.3\n.target sm_89\n.address_size 64\n"

// kernel returns a module whose entry function has the body.
func kernel(body string) string { return kernelWith("", body) }

// kernelWith is kernel with declarations of the module before the entry function.
func kernelWith(declarations, body string) string {
	return header + declarations + `
.visible .entry k(.param .u64 p0, .param .u64 p1)
{
	.reg .pred %p<16>;
	.reg .b16 %h<16>;
	.reg .b32 %r<64>;
	.reg .f32 %f<32>;
	.reg .f64 %fd<8>;
	.reg .b64 %rd<32>;
	ld.param.u64 %rd0, [p0];
	ld.param.u64 %rd1, [p1];
	mov.u32 %r0, %tid.x;
	mov.u32 %r61, %ctaid.x;
	mov.u32 %r62, %ntid.x;
	mad.lo.u32 %r63, %r61, %r62, %r0;
	mad.wide.u32 %rd31, %r63, 4, %rd0;
` + body + "\n}\n"
}

// storing returns a body that stores %r1 at its end.
func storing(body string) string { return body + "\n\tst.global.u32 [%rd31], %r1;\n\tret;" }

// zeroed sets 32-bit registers %r first to last to zero.
func zeroed(first, last int) string {
	text := ""
	for i := first; i <= last; i++ {
		text += fmt.Sprintf("mov.u32 %%r%d, 0;\n", i)
	}
	return text
}

// setup is a launch of such a kernel. The zero value is one block of one warp, with a word of out
// for each thread.
type setup struct {
	text          string
	blocks        int
	threads       int
	shared        int
	out           int // words
	in            []uint32
	seed          uint64
	unchecked     bool
	workers       int
	steps         uint64
	printf        func(string)
	arch          string
	cooperative   bool
	writtenBefore bool   // out counts as initialised
	schedules     uint64 // at most
}

// outcome is the result of a launch.
type outcome struct {
	out      []uint32
	findings []finding.Finding
	counters count.Counters
	stale    *finding.Finding
}

// kinds returns the kinds of the findings, separated by spaces.
func (g outcome) kinds() string {
	var list []string
	for _, f := range g.findings {
		list = append(list, string(f.Kind))
	}
	return strings.Join(list, " ")
}

// simulate runs a kernel that must run without an error.
func simulate(t testing.TB, g setup) outcome {
	t.Helper()
	got, err := try(t, g)
	if err != nil {
		t.Fatalf("%v\n%s", err, numbered(g.text))
	}
	return got
}

// try runs a kernel.
func try(t testing.TB, g setup) (outcome, error) {
	t.Helper()
	g.blocks = max(g.blocks, 1)
	if g.threads == 0 {
		g.threads = 32
	}
	if g.out == 0 {
		g.out = g.blocks * g.threads
	}
	module, err := ptx.Parse([]byte(g.text))
	if err != nil {
		return outcome{}, err
	}
	p, err := Load(module, g.arch)
	if err != nil {
		return outcome{}, err
	}
	memory := mem.NewMemory()
	out := buffer(t, memory, "out", 4*g.out)
	in := buffer(t, memory, "in", 4*len(g.in))
	if g.writtenBefore {
		put(t, memory, out, make([]uint32, g.out))
	}
	put(t, memory, in, g.in)
	l := Launch{
		Grid: [3]int{g.blocks, 1, 1}, Block: [3]int{g.threads, 1, 1}, DynamicShared: g.shared, Cooperative: g.cooperative,
		Params: binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, out), in),
	}
	result, err := p.Run(t.Context(), memory, l, Options{
		Residency: true,
		Seed:      g.seed, Checks: !g.unchecked, Workers: g.workers, MaxSteps: g.steps, Printf: g.printf,
	})
	if err != nil {
		return outcome{}, err
	}
	return outcome{take(t, memory, out, g.out), result.Findings, result.Counters, result.Stale}, nil
}

func buffer(t testing.TB, m *mem.Memory, name string, size int) uint64 {
	t.Helper()
	base, err := m.Alloc(finding.Variable{Name: name}, size)
	if err != nil {
		t.Fatal(err)
	}
	return base
}

func put(t testing.TB, m *mem.Memory, to uint64, values []uint32) {
	t.Helper()
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, v)
	}
	if err := m.Write(to, data); err != nil {
		t.Fatal(err)
	}
}

func take(t testing.TB, m *mem.Memory, from uint64, n int) []uint32 {
	t.Helper()
	data := make([]byte, 4*n)
	if err := m.Read(data, from); err != nil {
		t.Fatal(err)
	}
	values := make([]uint32, n)
	for i := range values {
		values[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	return values
}

// numbered returns a text with line numbers, for messages.
func numbered(text string) string {
	var b strings.Builder
	for i, line := range strings.Split(text, "\n") {
		fmt.Fprintf(&b, "%4d %s\n", i+1, line)
	}
	return b.String()
}

// each returns the expected output of n threads.
func each(n int, f func(thread uint32) uint32) []uint32 {
	values := make([]uint32, n)
	for i := range values {
		values[i] = f(uint32(i))
	}
	return values
}

// schedules runs a kernel under several schedules. Each must produce the output without findings.
func schedules(t *testing.T, name string, g setup, want []uint32) {
	t.Helper()
	seeds := uint64(12)
	if testing.Short() {
		seeds = 3
	}
	if g.schedules > 0 {
		seeds = min(seeds, g.schedules)
	}
	for seed := range seeds {
		g.seed = seed
		got := simulate(t, g)
		if !slices.Equal(got.out, want) {
			t.Fatalf("%s, seed %d: output\n%#x, want\n%#x\n%s", name, seed, got.out, want, numbered(g.text))
		}
		if len(got.findings) > 0 {
			t.Fatalf("%s, seed %d: %v\n%s", name, seed, got.findings, numbered(g.text))
		}
	}
}

// TestLaunches checks that the variables of a module live as long as a launch, and that accesses of
// one launch do not race with those of the next.
func TestLaunches(t *testing.T) {
	t.Parallel()
	text := kernelWith(".global .align 4 .u32 g = 3;", "ld.global.u32 %r1, [g];\n cvt.u32.u64 %r2, %rd1;\n add.u32 %r1, %r1, %r2;\n "+
		"setp.eq.u32 %p1, %r0, %r2;\n @%p1 st.global.u32 [%rd0], %r1;\n ret;")
	p, err := Load(mustParse(t, text), "")
	if err != nil {
		t.Fatal(err)
	}
	m := mem.NewMemory()
	out := buffer(t, m, "out", 4)
	for thread := range uint64(3) {
		l := Launch{Entry: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Params: append(littleEndian(out, 8), littleEndian(thread, 8)...)}
		result, err := p.Run(t.Context(), m, l, Options{Checks: true})
		if err != nil || len(result.Findings) > 0 || m.Len() != 1 || take(t, m, out, 1)[0] != 3+uint32(thread) {
			t.Errorf("%v, %v, %d buffers, %v", err, result, m.Len(), take(t, m, out, 1))
		}
	}
}
