package mma

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// allProducts lists the products of mma.sync and wgmma, and of wmma in all layouts.
func allProducts(t testing.TB) (all []*Instruction) {
	t.Helper()
	for _, f := range forms {
		for _, s := range f.shapes {
			if s.N == 0 {
				s.N = 48
			}
			for _, a := range f.multiplicand {
				for _, d := range f.accumulator {
					op := ""
					if a == B1 {
						op = ".and.popc"
					}
					types := fmt.Sprintf("%s.%s.%s.%s%s", d, a, a, d, op)
					switch f.op {
					case MMASync:
						all = append(all, mustLookup(t, fmt.Sprintf("mma.sync.aligned.%s.row.col.%s", s, types)))
					case WGMMA:
						all = append(all, mustLookup(t, fmt.Sprintf("wgmma.mma_async.sync.aligned.%s.%s.%s.%s%s", s, d, a, a, op)))
					case WMMA:
						if a == F16 {
							types = fmt.Sprintf("%s.%s", d, d)
						}
						for _, layouts := range []string{"row.col", "row.row", "col.row", "col.col"} {
							if layouts == "row.col" || a.Bits() >= 8 {
								all = append(all, mustLookup(t, fmt.Sprintf("wmma.mma.sync.aligned.%s.%s.%s", layouts, s, types)))
							}
						}
					}
				}
			}
		}
	}
	return all
}

// TestFragmentsHoldEveryElement checks that a fragment holds every element Copies times, and that
// Scatter and Gather are inverse for both register widths.
func TestFragmentsHoldEveryElement(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, in := range allProducts(t) {
		for m := A; m <= D; m++ {
			f := in.Fragment(m, 99)
			if in.Op == WGMMA && m == B {
				if f != nil {
					t.Errorf("%s: B must not have a fragment", in.Text)
				}
				continue
			}
			held := map[[2]int]int{}
			for lane := range 32 {
				for e := range f.Elements() {
					row, col := f.At(lane, e)
					held[[2]int{row, col}]++
				}
			}
			rows, cols := f.Rows, f.Cols
			if m == B {
				rows, cols = cols, rows
			}
			for row := range rows {
				for col := range cols {
					if n := held[[2]int{row, col}]; n != f.Copies {
						t.Fatalf("%s, %s: element %d, %d is held %d times, want %d", in.Text, m, row, col, n, f.Copies)
					}
				}
			}
			matrix := make([]uint32, f.Words())
			for i := range matrix {
				matrix[i] = random.Uint32() & (1<<min(f.bits, 32) - 1)
			}
			roundTrip[uint64](t, f, matrix, f.Registers)
			roundTrip[uint32](t, f, matrix, f.Registers*max(1, f.bits/32))
		}
	}
}

func roundTrip[W uint32 | uint64](t *testing.T, f *Fragment, matrix []uint32, n int) {
	t.Helper()
	registers := make([]*[32]W, n)
	for i := range registers {
		registers[i] = new([32]W)
	}
	Scatter(f, registers, matrix)
	back := make([]uint32, len(matrix))
	if !Gather(f, back, registers) {
		t.Error("copies of an element differ")
	}
	if !slices.Equal(back, matrix) {
		t.Errorf("%d by %d: Gather does not invert Scatter", f.Rows, f.Cols)
	}
	registers[0][5] ^= 1
	if f.Copies > 1 == Gather(f, back, registers) {
		t.Errorf("%d copies: Gather reports a changed copy wrongly", f.Copies)
	}
}

// formula gives the position of element i of a lane in PTX ISA notation: groupID g and
// threadID_in_group t.
type formula func(g, t, i int) (row, col int)

func pick(first bool, x, y int) int {
	if first {
		return x
	}
	return y
}

func accumulatorFormula(g, t, i int) (row, col int) { return pick(i < 2, g, g+8), t*2 + i&1 }

// ptxFragments holds the formulas of the PTX ISA, one case per section of Warp-Level Matrix
// Multiply-Accumulate Instructions.
var ptxFragments = []struct {
	text    string
	a, b, c formula
}{
	{
		"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
		func(g, t, i int) (int, int) { return g, t },
		func(g, t, i int) (int, int) { return t, g },
		func(g, t, i int) (int, int) { return g, t*2 + i&1 },
	},
	{
		"mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32",
		func(g, t, i int) (int, int) { return g, t*4 + i },
		func(g, t, i int) (int, int) { return t*4 + i, g },
		func(g, t, i int) (int, int) { return g, t*2 + i },
	},
	{
		"mma.sync.aligned.m8n8k32.row.col.s32.u4.u4.s32",
		func(g, t, i int) (int, int) { return g, t*8 + i },
		func(g, t, i int) (int, int) { return t*8 + i, g },
		func(g, t, i int) (int, int) { return g, t*2 + i },
	},
	{ // an element of b1 is 32 bits here
		"mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc",
		func(g, t, i int) (int, int) { return g, t },
		func(g, t, i int) (int, int) { return t, g },
		func(g, t, i int) (int, int) { return g, t*2 + i },
	},
	{
		"mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32",
		func(g, t, i int) (int, int) { return pick(i == 0, g, g+8), t },
		func(g, t, i int) (int, int) { return t, g },
		accumulatorFormula,
	},
	{
		"mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64",
		func(g, t, i int) (int, int) { return pick(i == 0, g, g+8), t },
		func(g, t, i int) (int, int) { return t, g },
		accumulatorFormula,
	},
	{
		"mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16",
		func(g, t, i int) (int, int) { return pick(i < 2, g, g+8), t*2 + i&1 },
		func(g, t, i int) (int, int) { return t*2 + i, g },
		accumulatorFormula,
	},
	{
		"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
		func(g, t, i int) (int, int) { return pick(i == 0 || i == 2, g, g+8), pick(i < 2, t, t+4) },
		func(g, t, i int) (int, int) { return pick(i == 0, t, t+4), g },
		accumulatorFormula,
	},
	{
		"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
		func(g, t, i int) (int, int) {
			return pick(i < 2 || i >= 4 && i < 6, g, g+8), pick(i < 4, t*2+i&1, t*2+i&1+8)
		},
		func(g, t, i int) (int, int) { return pick(i < 2, t*2+i&1, t*2+i&1+8), g },
		accumulatorFormula,
	},
	{
		"mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64",
		func(g, t, i int) (int, int) { return pick(i%2 == 0, g, g+8), pick(i%2 == 0, i*2+t, i*2-2+t) },
		func(g, t, i int) (int, int) { return t + i*4, g },
		accumulatorFormula,
	},
	{
		"mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e5m2.f32",
		func(g, t, i int) (int, int) { return pick(i < 4, g, g+8), t*4 + i&3 },
		func(g, t, i int) (int, int) { return t*4 + i, g },
		accumulatorFormula,
	},
	{
		"mma.sync.aligned.m16n8k32.row.col.s32.s4.s4.s32",
		func(g, t, i int) (int, int) { return pick(i < 8, g, g+8), t*8 + i&7 },
		func(g, t, i int) (int, int) { return t*8 + i, g },
		accumulatorFormula,
	},
	{
		"mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e4m3.f16",
		func(g, t, i int) (int, int) {
			return pick(i < 4 || i >= 8 && i < 12, g, g+8), pick(i < 8, t*4+i&3, t*4+i&3+16)
		},
		func(g, t, i int) (int, int) { return pick(i < 4, t*4+i&3, t*4+i&3+16), g },
		accumulatorFormula,
	},
	{
		"mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32",
		func(g, t, i int) (int, int) {
			return pick(i < 8 || i >= 16 && i < 24, g, g+8), pick(i < 16, t*8+i&7, t*8+i&7+32)
		},
		func(g, t, i int) (int, int) { return pick(i < 8, t*8+i&7, t*8+i&7+32), g },
		accumulatorFormula,
	},
	{
		"mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc",
		func(g, t, i int) (int, int) { return pick(i == 0 || i == 2, g, g+8), pick(i < 2, t, t+4) },
		func(g, t, i int) (int, int) { return pick(i == 0, t, t+4), g },
		accumulatorFormula,
	},
	{ // the rows of warp 0
		"wgmma.mma_async.sync.aligned.m64n24k32.f16.e4m3.e4m3",
		func(g, t, i int) (int, int) {
			return pick(i < 4 || i >= 8 && i < 12, g, g+8), pick(i < 8, t*4+i&3, t*4+i&3+16)
		},
		nil,
		func(g, t, i int) (int, int) { return g + 8*(i/2%2), 8*(i/4) + 2*t + i%2 },
	},
}

// TestFragmentsMatchPTX compares the layouts with the formulas of the PTX ISA.
func TestFragmentsMatchPTX(t *testing.T) {
	for _, c := range ptxFragments {
		in := mustLookup(t, c.text)
		for m, want := range map[Matrix]formula{A: c.a, B: c.b, C: c.c, D: c.c} {
			if want == nil {
				continue
			}
			f := in.Fragment(m, 0)
			for lane := range 32 {
				for i := range f.Elements() {
					row, col := f.At(lane, i)
					if r, k := want(lane>>2, lane%4, i); row != r || col != k {
						t.Fatalf("%s: %s%d of lane %d is at %d, %d, want %d, %d", c.text, m, i, lane, row, col, r, k)
					}
				}
			}
		}
	}
}

// TestRandomLayouts checks that interchangeable wmma fragments have the same layout and others do
// not.
func TestRandomLayouts(t *testing.T) {
	product := mustLookup(t, "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32")
	load := func(words string) *Fragment {
		in := mustLookup(t, "wmma."+words)
		return in.Fragment(in.Matrix, 1)
	}
	for _, c := range []struct {
		what       string
		got, other *Fragment
		same       bool
	}{
		{"a loaded a", load("load.a.sync.aligned.row.m16n16k16.shared.f16"), product.Fragment(A, 1), true},
		{"an a of the other layout", load("load.a.sync.aligned.col.m16n16k16.f16"), product.Fragment(A, 1), false},
		{"a loaded b", load("load.b.sync.aligned.col.m16n16k16.global.f16"), product.Fragment(B, 1), true},
		{"an accumulator from either layout", load("load.c.sync.aligned.col.m16n16k16.f32"), product.Fragment(C, 1), true},
		{"c and d", product.Fragment(C, 1), product.Fragment(D, 1), true},
		{"a stored d", load("store.d.sync.aligned.row.m16n16k16.f32"), product.Fragment(D, 1), true},
		{"another seed", product.Fragment(D, 1), product.Fragment(D, 2), false},
		{"another shape", load("store.d.sync.aligned.row.m8n32k16.f32"), product.Fragment(D, 1), false},
	} {
		if same := slices.Equal(c.got.position, c.other.position); same != c.same {
			t.Errorf("%s: same layout is %v, want %v", c.what, same, c.same)
		}
	}
	for text, want := range map[string][3]int{ // registers of A, registers of B, copies of A
		"m16n16k16.f32.f32":           {8, 8, 2},
		"m32n8k16.f16.f16":            {8, 8, 1},
		"m8n32k16.f32.f32":            {8, 8, 4},
		"m16n16k16.f32.bf16.bf16.f32": {4, 4, 1},
		"m8n32k16.f32.bf16.bf16.f32":  {2, 8, 1},
		"m16n16k16.s32.s8.s8.s32":     {2, 2, 1},
		"m32n8k16.s32.u8.u8.s32":      {4, 1, 1},
		"m16n16k8.f32.tf32.tf32.f32":  {4, 4, 1},
		"m8n8k4.f64.f64.f64.f64":      {1, 1, 1},
		"m8n8k32.s32.s4.s4.s32":       {1, 1, 1},
	} {
		in := mustLookup(t, "wmma.mma.sync.aligned.row.col."+text)
		if a, b := in.Fragment(A, 5), in.Fragment(B, 5); [3]int{a.Registers, b.Registers, a.Copies} != want {
			t.Errorf("%s: %d and %d registers, %d copies, want %v", text, a.Registers, b.Registers, a.Copies, want)
		}
	}
}

func TestMatrix8x8Layouts(t *testing.T) {
	for text, want := range map[string]func(lane, i int) (row, col int){
		"ldmatrix.sync.aligned.m8n8.x4.shared.b16":       func(l, i int) (int, int) { return i/2*8 + l/4, l%4*2 + i%2 },
		"ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16": func(l, i int) (int, int) { return i/2*8 + l%4*2 + i%2, l / 4 },
		"stmatrix.sync.aligned.m8n8.x1.b16":              func(l, i int) (int, int) { return l / 4, l%4*2 + i%2 },
	} {
		in := mustLookup(t, text)
		f := in.Fragment(A, 0)
		if f.Registers != in.Count || f.Rows != 8*in.Count || f.Cols != 8 {
			t.Errorf("%s: %d registers, %d by %d", text, f.Registers, f.Rows, f.Cols)
		}
		for lane := range 32 {
			for i := range f.Elements() {
				row, col := f.At(lane, i)
				if r, c := want(lane, i); row != r || col != c {
					t.Fatalf("%s: element %d of lane %d is at %d, %d, want %d, %d", text, i, lane, row, col, r, c)
				}
			}
		}
	}

	// movmatrix transposes: every lane receives the elements across the diagonal.
	in := mustLookup(t, "movmatrix.sync.aligned.m8n8.trans.b16")
	source, result, matrix := newRegisters(1), newRegisters(1), make([]uint32, 64)
	for i := range matrix {
		matrix[i] = uint32(i)
	}
	Scatter(in.Fragment(A, 0), source, matrix)
	Gather(in.Fragment(A, 0), matrix, source)
	Scatter(in.Fragment(D, 0), result, matrix)
	for lane := range 32 {
		g, k := uint32(lane/4), uint32(lane%4*2)
		if want := 8*k + g | (8*(k+1)+g)<<16; result[0][lane] != want {
			t.Fatalf("lane %d has %#x, want %#x", lane, result[0][lane], want)
		}
	}
}
