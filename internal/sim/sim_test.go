package sim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/finding"
	"attune/internal/sim/mem"
)

// The kernels of these tests are k(out, in), with registers enough for anything, the addresses of both buffers in %rd0 and %rd1, the thread in %r0, its
// number in the grid in %r63 and the address of its own word of out in %rd31. What a thread puts into %r1 goes there.

const header = ".version 8.3\n.target sm_89\n.address_size 64\n"

// kernel is a module whose entry function has this body.
func kernel(body string) string { return kernelWith("", body) }

// kernelWith has declarations of the module before the entry function.
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

// storing is a body that ends with the result in %r1.
func storing(body string) string { return body + "\n\tst.global.u32 [%rd31], %r1;\n\tret;" }

// given is a launch of such a kernel; what is left zero is one block of one warp, and a word of out for each thread.
type given struct {
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
	writtenBefore bool // the output counts as written
	schedules     uint64
}

// gave is what came of it.
type gave struct {
	out      []uint32
	findings []finding.Finding
	counters count.Counters
}

func (g gave) kinds() string {
	var list []string
	for _, f := range g.findings {
		list = append(list, string(f.Kind))
	}
	return strings.Join(list, " ")
}

// simulate runs a kernel that can be run.
func simulate(t testing.TB, g given) gave {
	t.Helper()
	got, err := try(t, g)
	if err != nil {
		t.Fatalf("%v\n%s", err, numbered(g.text))
	}
	return got
}

// try runs a kernel.
func try(t testing.TB, g given) (gave, error) {
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
		return gave{}, err
	}
	p, err := Load(module, g.arch)
	if err != nil {
		return gave{}, err
	}
	memory := mem.NewMemory()
	out := buffer(t, memory, "out", 4*g.out)
	in := buffer(t, memory, "in", 4*len(g.in))
	if g.writtenBefore {
		put(t, memory, out, make([]uint32, g.out))
	}
	put(t, memory, in, g.in)
	l := Launch{
		Grid: [3]int{g.blocks, 1, 1}, Block: [3]int{g.threads, 1, 1}, DynamicShared: g.shared,
		Params: binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, out), in),
	}
	result, err := p.Run(t.Context(), memory, l, Options{
		Seed: g.seed, Checks: !g.unchecked, Workers: g.workers, MaxSteps: g.steps, Printf: g.printf,
	})
	if err != nil {
		return gave{}, err
	}
	return gave{take(t, memory, out, g.out), result.Findings, result.Counters}, nil
}

func buffer(t testing.TB, m *mem.Memory, name string, size int) uint64 {
	t.Helper()
	base, err := m.Alloc(name, size)
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

// numbered is a text with the numbers of its lines, for messages.
func numbered(text string) string {
	var b strings.Builder
	for i, line := range strings.Split(text, "\n") {
		fmt.Fprintf(&b, "%4d %s\n", i+1, line)
	}
	return b.String()
}

// each is the answer of n threads.
func each(n int, f func(thread uint32) uint32) []uint32 {
	values := make([]uint32, n)
	for i := range values {
		values[i] = f(uint32(i))
	}
	return values
}

// schedules runs a kernel under several schedules, each of which must give the answer and find nothing.
func schedules(t *testing.T, name string, g given, want []uint32) {
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
			t.Fatalf("%s, seed %d: it gives\n%#x, want\n%#x\n%s", name, seed, got.out, want, numbered(g.text))
		}
		if len(got.findings) > 0 {
			t.Fatalf("%s, seed %d: %v\n%s", name, seed, got.findings, numbered(g.text))
		}
	}
}

// TestLaunches: the variables of a module are made for a launch and are gone behind it, and what one launch did is no race with the next.
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
