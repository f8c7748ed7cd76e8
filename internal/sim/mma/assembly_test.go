package mma

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// withAndWithoutAssembly returns a product with and without assembly.
func withAndWithoutAssembly(t *testing.T, text string, chip Chip) (in *Instruction, with, without *Product) {
	t.Helper()
	if !haveAssembly {
		t.Skip("AVX2 is missing or disabled on this host")
	}
	in = mustLookup(t, text)
	var err error
	if with, err = in.Product(chip, Exact); err != nil {
		t.Skip(err)
	}
	same := *with
	same.useAssembly = false
	return in, with, &same
}

// checkAssembly multiplies with and without assembly, directly and with a prepared B.
func checkAssembly(t *testing.T, in *Instruction, with, without *Product, a, b, c []uint32) {
	t.Helper()
	var s Scratch
	n := in.Shape.M * in.Shape.N
	want, got := make([]uint32, n), make([]uint32, n)
	without.Multiply(&s, want, a, b, c)
	with.Multiply(&s, got, a, b, c)
	compareMatrices(t, in.Text+" in assembly", got, want, in.Shape.N)
	narrow := *with
	narrow.useWide = false
	for _, p := range []*Product{with, &narrow, without} {
		var prepared, preparedA Operand
		p.Prepare(&prepared, b)
		p.PrepareA(&preparedA, a)
		for range 2 {
			clear(got)
			p.MultiplyPrepared(&s, got, a, &prepared, c)
			compareMatrices(t, in.Text+" with prepared B", got, want, in.Shape.N)
			clear(got)
			p.MultiplyOperands(&s, got, &preparedA, &prepared, c)
			compareMatrices(t, in.Text+" with prepared operands", got, want, in.Shape.N)
		}
	}
}

// assemblyProducts are products that the assembly supports.
var assemblyProducts = []string{
	"wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3",
	"wgmma.mma_async.sync.aligned.m64n24k32.f32.e5m2.e4m3",
	"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
	"wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16",
	"wgmma.mma_async.sync.aligned.m64n16k8.f32.tf32.tf32",
	"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32",
	"mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32",
	"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
	"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
	"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
	"mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32",
	"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
	"mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16",
	"mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16",
	"wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16",
	"wgmma.mma_async.sync.aligned.m64n24k16.f16.f16.f16",
	"wgmma.mma_async.sync.aligned.m64n16k32.f16.e5m2.e4m3",
}

func TestAssemblySupport(t *testing.T) {
	for _, text := range assemblyProducts {
		if _, with, without := withAndWithoutAssembly(t, text, Hopper); !with.supportsAssembly() || without.supportsAssembly() {
			t.Errorf("%s: supportsAssembly is %v, and %v with assembly off", text, with.supportsAssembly(), without.supportsAssembly())
		}
	}
}

// TestAssemblyEveryFP8Pair multiplies every FP8 encoding by every other, alone and beside another
// product.
func TestAssemblyEveryFP8Pair(t *testing.T) {
	for _, types := range []string{"e4m3.e4m3", "e4m3.e5m2", "e5m2.e4m3", "e5m2.e5m2"} {
		in, with, without := withAndWithoutAssembly(t, "wgmma.mma_async.sync.aligned.m64n256k32.f32."+types, Hopper)
		for first := 0; first < 256; first += in.Shape.M {
			for _, beside := range []uint32{0, 0x38} {
				a, b := make([]uint32, in.Shape.M*in.Shape.K), make([]uint32, in.Shape.N*in.Shape.K)
				for i := range in.Shape.M {
					a[i*in.Shape.K+5], a[i*in.Shape.K+30] = uint32(first+i), beside
				}
				for j := range in.Shape.N {
					b[j*in.Shape.K+5], b[j*in.Shape.K+30] = uint32(j), beside
				}
				checkAssembly(t, in, with, without, a, b, nil)
			}
		}
	}
}

// drawElement draws encodings of all kinds: arbitrary ones, moderate values, and the limits of a
// type.
func drawElement(random *rand.Rand, t Type) uint32 {
	width := t.word()
	limits := []uint32{
		0, 1, 1 << (width - 1), 1<<(width-1) + 1, 1<<(width-1) - 1, 1<<width - 1, 0x7C00, 0xFC00, 0x7BFF, 0x7F80, 0xFF80, 0x7F81, 0x7F800000, 0xFF800000, 0x7F,
		0x7E, 0x7C, 0x7D, 0x00800000, 0x007FFFFF, 0x7F7FFFFF,
	}
	var code uint32
	switch random.IntN(8) {
	case 0:
		code = limits[random.IntN(len(limits))]
	case 1:
		code = random.Uint32()
	default:
		code = drawModerate(random, t)
	}
	return uint32(uint64(code) & (1<<width - 1))
}

// TestIntegersAssembly multiplies integers of every type, arbitrary ones and the limits.
func TestIntegersAssembly(t *testing.T) {
	for _, text := range []string{
		"mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32",
		"mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.u8.s32",
		"mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32",
		"wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32",
		"wgmma.mma_async.sync.aligned.m64n24k32.s32.s8.u8",
	} {
		in, with, without := withAndWithoutAssembly(t, text, Hopper)
		if !with.addsIntegers() || without.addsIntegers() {
			t.Errorf("%s: assembly is %v, and %v with assembly off", text, with.addsIntegers(), without.addsIntegers())
		}
		for seed := range uint64(20) {
			random := rand.New(rand.NewPCG(seed, 3))
			draw := func(n, width int) []uint32 {
				m := make([]uint32, n)
				for i := range m {
					limits := []uint32{random.Uint32(), random.Uint32(), 0, 1 << (width - 1), 1<<(width-1) - 1, ^uint32(0)}
					m[i] = limits[random.IntN(len(limits))] & uint32(1<<width-1)
				}
				return m
			}
			s := in.Shape
			checkAssembly(t, in, with, without, draw(s.M*s.K, in.A.Bits()), draw(s.N*s.K, in.B.Bits()), draw(s.M*s.N, 32))
		}
	}
}

func FuzzAssembly(f *testing.F) {
	for i := range assemblyProducts {
		for chip := range uint8(4) {
			f.Add(uint8(i), chip, uint64(i), 8, []byte{0x7F, 0x80, 0, 0xFF, 1, 0x38}, []byte{0x7C, 0x7E, 0x81})
			f.Add(uint8(i), chip, uint64(100+i), 0, []byte{}, []byte{})
			f.Add(uint8(i), chip, uint64(25), 64, []byte{}, []byte{}) // only an accumulator, of any magnitude
			f.Add(uint8(i), chip, uint64(26), 2, []byte{}, []byte{})
		}
	}
	f.Fuzz(func(t *testing.T, which, chip uint8, seed uint64, wild int, rowBytes, columnBytes []byte) {
		in, with, without := withAndWithoutAssembly(t, assemblyProducts[int(which)%len(assemblyProducts)], Chip(chip%4))
		random := rand.New(rand.NewPCG(seed, 1))
		draw := func(n int, t Type, given []byte) []uint32 {
			m := make([]uint32, n)
			for i := range m {
				switch m[i] = drawModerate(random, t); {
				case random.IntN(64) < wild:
					m[i] = drawElement(random, t)
				case seed%4 == 3: // few bits, so that most products need not be truncated
					m[i] &= 0xBE << (t.word() - 8)
				}
			}
			for i, code := range given[:min(len(given), n)] {
				m[i] = uint32(code) << (t.word() - 8)
			}
			return m
		}
		s := in.Shape
		a, b, c := draw(s.M*s.K, in.A, rowBytes), draw(s.N*s.K, in.B, columnBytes), draw(s.M*s.N, in.C, nil)
		if seed%3 == 0 {
			c = nil
		}
		if seed%5 == 0 { // keep only the accumulator
			clear(a)
			clear(b)
		}
		if seed%2 == 0 {
			with.negate, without.negate = true, true
		}
		before := slices.Clone(c)
		checkAssembly(t, in, with, without, a, b, c)
		if !slices.Equal(c, before) {
			t.Error("Multiply changed C")
		}
	})
}
