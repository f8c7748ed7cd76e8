package mma

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// valueOf returns the value of an element, decoded by the reference model.
func valueOf(t Type, code uint32) float64 {
	if t == F32 {
		return float64(math.Float32frombits(code))
	}
	n := referenceDecode(t, code)
	if n.kind != "" {
		return math.NaN()
	}
	return float64(1-2*b2i(n.negative)) * math.Ldexp(float64(n.significand), n.exponent-int(n.fraction))
}

// TestSequentialSums compares the modes F32Sum and F64Sum with a sum in float64. F64Sum must equal
// that sum rounded once. F32Sum may differ by one rounding per term.
func TestSequentialSums(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var s Scratch
	for _, text := range floatProducts() {
		in := mustLookup(t, text)
		sh := in.Shape
		draw := func(n int, t Type) []uint32 {
			m := make([]uint32, n)
			for i := range m {
				m[i] = drawModerate(random, t)
			}
			return m
		}
		a, b, c := draw(sh.M*sh.K, in.A), draw(sh.N*sh.K, in.B), draw(sh.M*sh.N, in.C)
		results := map[Mode][]uint32{}
		for _, mode := range []Mode{F32Sum, F64Sum} {
			p, err := in.Product(Hopper, mode)
			if err != nil {
				t.Fatal(err)
			}
			results[mode] = make([]uint32, len(c))
			p.Multiply(&s, results[mode], a, b, c)
		}
		for i := range c {
			sum := valueOf(in.C, c[i])
			size := math.Abs(sum)
			for k := range sh.K {
				product := float64(valueOf(in.A, a[i/sh.N*sh.K+k]) * valueOf(in.B, b[i%sh.N*sh.K+k])) // the conversion prevents fused multiply-add
				sum += product
				size += math.Abs(product)
			}
			want := math.Float32bits(float32(sum))
			slack := size * float64(sh.K+1) * 0x1p-24
			if in.D == F16 {
				want = nearestFloat16(sum)
				slack += math.Abs(sum) * 0x1p-11
			}
			if got := results[F64Sum][i]; got != want {
				t.Fatalf("%s in float64: %#x at %d, want %#x", text, got, i, want)
			}
			if got := valueOf(in.D, results[F32Sum][i]); math.Abs(got-sum) > slack {
				t.Fatalf("%s in float32: %g at %d, want %g within %g", text, got, i, sum, slack)
			}
		}
	}
}

// TestCanonicalNaN checks that a NaN result has the canonical encoding in every mode.
func TestCanonicalNaN(t *testing.T) {
	in := mustLookup(t, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")
	for _, mode := range []Mode{Exact, F32Sum, F64Sum} {
		p, err := in.Product(Ada, mode)
		if err != nil {
			t.Fatal(err)
		}
		a, b, c := make([]uint32, 128), make([]uint32, 64), make([]uint32, 128)
		a[0], b[0], b[8] = 0xFC00, 0x3C00, 0xBC00 // -Inf times 1, -1 and 0
		c[1] = 0xFF800000
		p.Multiply(new(Scratch), c, a, b, c)
		if want := []uint32{0xFF800000, 0x7FFFFFFF, 0x7FFFFFFF}; !slices.Equal(c[:3], want) {
			t.Errorf("mode %d: %#x, want %#x", mode, c[:3], want)
		}
	}
}

// TestNilAccumulator checks that a nil C is zero, also with the negated product of wgmma.
func TestNilAccumulator(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 9))
	for _, in := range allProducts(t) {
		sh := in.Shape
		words := max(1, in.A.Bits()/32)
		k := sh.K * in.A.Bits() / in.A.word() * words
		matrix := func(n int, t Type) []uint32 {
			m := make([]uint32, n)
			for i := range m {
				m[i] = drawModerate(random, t)
				if t == F64 {
					m[i] = uint32(i%2) * 0x3FF00000 // 1
				}
			}
			return m
		}
		a, b := matrix(sh.M*k, in.A), matrix(sh.N*k, in.B)
		for _, negate := range []bool{false, true} {
			if negate && (in.Op != WGMMA || in.D == S32) {
				continue
			}
			for mode := Exact; mode <= F64Sum; mode++ {
				in.Negate = false
				p, err := in.Product(Hopper, mode)
				if err != nil {
					t.Fatal(err)
				}
				zeros := make([]uint32, sh.M*sh.N*max(1, in.D.Bits()/32))
				want, got := make([]uint32, len(zeros)), make([]uint32, len(zeros))
				p.Multiply(new(Scratch), want, a, b, zeros)
				if in.Negate = negate; negate {
					for i := range want {
						if want[i] != 0 {
							want[i] ^= 1 << (in.D.Bits() - 1)
						}
					}
				}
				if p, err = in.Product(Hopper, mode); err != nil {
					t.Fatal(err)
				}
				p.Multiply(new(Scratch), got, a, b, nil)
				compareMatrices(t, fmt.Sprintf("%s in mode %d, negated: %v", in.Text, mode, negate), got, want, sh.N)
			}
		}
	}
}

func TestChipSupport(t *testing.T) {
	for _, c := range []struct {
		text string
		want []Chip // generations that support it
	}{
		{"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", []Chip{Ampere, Ada, Hopper, Blackwell, Workstation}},
		{"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", []Chip{Ada, Hopper, Blackwell, Workstation}},
		{"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", []Chip{Ampere, Ada, Hopper, Blackwell, Workstation}},
		{"mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64", []Chip{Hopper, Blackwell, Workstation}},
		{"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", []Chip{Hopper}},
		{"ldmatrix.sync.aligned.m8n8.x1.b16", nil},
	} {
		in := mustLookup(t, c.text)
		for _, chip := range []Chip{Ampere, Ada, Hopper, Blackwell, Workstation} {
			_, err := in.Product(chip, Exact)
			if has := slices.Contains(c.want, chip); has != (err == nil) {
				t.Errorf("%s on %s: %v", c.text, chip, err)
			}
			if err != nil && !strings.HasPrefix(err.Error(), c.text+": ") {
				t.Errorf("error %q does not start with %s", err, c.text)
			}
		}
	}
}

// TestChipArithmetic checks sums in which the generations differ.
func TestChipArithmetic(t *testing.T) {
	one := func(text string, chip Chip, a, b []uint32, c float32) float32 {
		in := mustLookup(t, text)
		p, err := in.Product(chip, Exact)
		if err != nil {
			t.Fatal(err)
		}
		sh := in.Shape
		x, y, z := make([]uint32, sh.M*sh.K), make([]uint32, sh.N*sh.K), make([]uint32, sh.M*sh.N)
		copy(x, a)
		copy(y, b)
		z[0] = math.Float32bits(c)
		p.Multiply(new(Scratch), z, x, y, z)
		return math.Float32frombits(z[0])
	}
	const half = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
	ones := slices.Repeat([]uint32{0x3C00}, 16)
	large, minus, zeros := []uint32{0x7800}, []uint32{0xF800}, make([]uint32, 6)
	cancel := slices.Concat(large, minus, zeros, ones[:8])
	for _, c := range []struct {
		text string
		chip Chip
		a, b []uint32
		c    float32
		want float32
	}{
		// For 2^25 plus sixteen ones, a step on Ampere has units of 2.
		{half, Hopper, ones, ones, 0x1p25, 0x1p25 + 16},
		{half, Ampere, ones, ones, 0x1p25, 0x1p25},
		{half, Ampere, ones, ones, 0x1p24, 0x1p24 + 16},
		// 2^30 - 2^30 plus eight ones: the ones are lost only if the same step adds them.
		{half, Hopper, cancel, slices.Concat(large, large, zeros, ones[:8]), 0, 0},
		{half, Ada, cancel, slices.Concat(large, large, zeros, ones[:8]), 0, 8},
		// Zeros do not take part in the alignment: 2^15 times zero does not truncate 2^-24.
		{half, Hopper, []uint32{0x7800, 0x0001}, []uint32{0x0000, 0x3C00}, 0, 0x1p-24},
		{half, Hopper, []uint32{0x7800, 0x0001}, []uint32{0x0001, 0x3C00}, 0, 0x1p-9 + 0x1p-24},
		// A coarse accumulator drops the low fraction bits of C; the FP8 emulation by f16 does not.
		{"wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3", Hopper, nil, nil, 1 + 0x1p-13 + 0x1p-14, 1 + 0x1p-13},
		{"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", Ada, nil, nil, 1 + 0x1p-13 + 0x1p-14, 1 + 0x1p-13},
		{"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", Hopper, nil, nil, 1 + 0x1p-13 + 0x1p-14, 1 + 0x1p-13 + 0x1p-14},
	} {
		if got := one(c.text, c.chip, c.a, c.b, c.c); got != c.want {
			t.Errorf("%s on %s: %g + %d products is %v, want %v", c.text, c.chip, c.c, len(c.a), got, c.want)
		}
	}
}

func TestDirectedRounding(t *testing.T) {
	negativeZero := math.Copysign(0, -1)
	for _, c := range []struct {
		x, y, z  float64
		rounding Rounding
		want     float64
	}{
		{1, 0x1p-60, 1, Nearest, 1},
		{1, 0x1p-60, 1, Up, 1 + 0x1p-52},
		{1, 0x1p-60, 1, Down, 1},
		{1, -0x1p-60, 1, TowardZero, 1 - 0x1p-53},
		{1, 0x1p-60, -1, TowardZero, -1 + 0x1p-53},
		{1, -0x1p-60, -1, Down, -1 - 0x1p-52},
		{0x1p1000, 0x1p1000, 0, TowardZero, math.MaxFloat64},
		{0x1p1000, 0x1p1000, 0, Up, math.Inf(1)},
		{0x1p-1000, 0x1p-1000, 0, Up, math.SmallestNonzeroFloat64},
		{0x1p-1000, 0x1p-1000, 0, Down, 0},
		{1, 1, -1, Down, negativeZero},
		{1, 1, -1, Up, 0},
		{0, 1, 0, Down, 0},
		{0, -1, 0, Down, negativeZero},
		{math.Inf(1), 1, 0, Down, math.Inf(1)},
	} {
		if got := fma(c.x, c.y, c.z, c.rounding); math.Float64bits(got) != math.Float64bits(c.want) {
			t.Errorf("%g * %g + %g, rounding %d: %g, want %g", c.x, c.y, c.z, c.rounding, got, c.want)
		}
	}
}

// TestSharedRuns checks that the elements of a 16-byte unit are contiguous, and that Address stays
// within the 256 KiB window.
func TestSharedRuns(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		d := Descriptor(random.Uint64())
		for _, typ := range []Type{F16, E4M3, TF32, B1} {
			transposed := typ == F16 && random.IntN(2) == 0
			s := d.Shared(typ, transposed)
			for range 10 {
				row, k := random.IntN(64), random.IntN(8)
				along := &k
				if transposed {
					along = &row
				}
				*along -= *along % s.Run()
				first := s.Address(row, k)
				*along += s.Run() - 1
				last := s.Address(row, k)
				if first%16 != 0 || first >= 1<<18 || last != first+uint32(16-typ.word()/8) {
					t.Fatalf("%#x, %s: 16 bytes from %#x to %#x", d, typ, first, last)
				}
			}
		}
	}
}

// TestSkip: counting launches leave C in D.
func TestSkip(t *testing.T) {
	p, err := mustLookup(t, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").Product(Hopper, Skip)
	if err != nil {
		t.Fatal(err)
	}
	var s Scratch
	a, b, c, d := make([]uint32, 256), make([]uint32, 128), make([]uint32, 128), make([]uint32, 128)
	for i := range c {
		c[i] = uint32(i)
	}
	if p.Multiply(&s, d, a, b, c); !slices.Equal(c, d) {
		t.Error("D is not C")
	}
	if p.Multiply(&s, d, a, b, nil); slices.Max(d) != 0 {
		t.Error("D is not zero without C")
	}
}

// TestDecodeShifted compares the two ways to decode a 16-bit format.
func TestDecodeShifted(t *testing.T) {
	for name, f := range map[string]*format{"f16": formatF16, "bf16": formatBF16} {
		for code := range uint32(1 << 16) {
			want, wantExponent := decodeElement[float32](f, code)
			got, exponent := f.decodeShifted(code)
			if math.Float32bits(got) != math.Float32bits(want) || exponent != wantExponent {
				t.Fatalf("%s %#x: %v with exponent %d, want %v with %d", name, code, got, exponent, want, wantExponent)
			}
		}
		if !haveAssembly {
			continue
		}
		codes, rows := make([]uint32, 1<<16), assemblyRows{}
		for code := range codes {
			codes[code] = uint32(code)
		}
		decodeWords(&rows, codes, f, true)
		for code := range uint32(1 << 16) {
			want, wantExponent := decodeElement[float32](f, code)
			got, exponent := rows.values[code], int32(rows.exponents[code])
			if math.Float32bits(got) != math.Float32bits(-want) && (got == got || want == want) || exponent != wantExponent {
				t.Fatalf("%s %#x in assembly: %v with exponent %d, want %v with %d", name, code, got, exponent, -want, wantExponent)
			}
		}
	}
}
