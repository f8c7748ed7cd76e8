package arith

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"attune/internal/fp8"
	"attune/internal/half"
	"attune/internal/ptx"
)

var integerTypes = []ptx.Type{ptx.U8, ptx.S8, ptx.U16, ptx.S16, ptx.U32, ptx.S32, ptx.U64, ptx.S64}

// TestConvertFloats compares conversions between all formats in all rounding modes with exact
// arithmetic.
func TestConvertFloats(t *testing.T) {
	for _, from := range formats {
		for _, to := range formats {
			for direction, r := range roundings {
				name := fmt.Sprintf("cvt.%s.%v.%v", direction, to.of, from.of)
				if from.bits < to.bits {
					name = fmt.Sprintf("cvt.%v.%v", to.of, from.of)
				} else if from.of == to.of {
					continue
				}
				op := lookup(t, name)
				for _, row := range operands(op.Args, 3000) {
					if row[0]&from.magnitude() >= from.infinity() {
						continue
					}
					if got, want := op.Func(row[0], 0, 0, 0), roundExact(to.format, exactValue(from.format, row[0]), r); got != want {
						t.Fatalf("%s of %x: %x, want %x", name, row[0], got, want)
					}
				}
			}
		}
	}
}

func TestConvertIntegersToFloats(t *testing.T) {
	for _, from := range integerTypes {
		for _, to := range formats {
			for direction, r := range roundings {
				name := fmt.Sprintf("cvt.%s.%v.%v", direction, to.of, from)
				op := lookup(t, name)
				for _, row := range operands(op.Args, 1000) {
					x := new(big.Float).SetPrec(64).SetInt(bigValue(from, row[0]))
					if got, want := op.Func(row[0], 0, 0, 0), roundExact(to.format, x, r); got != want {
						t.Fatalf("%s of %x: %x, want %x", name, row[0], got, want)
					}
				}
			}
		}
	}
}

func TestConvertFloatsToIntegers(t *testing.T) {
	round := map[string]func(x float64) float64{"rni": math.RoundToEven, "rzi": math.Trunc, "rmi": math.Floor, "rpi": math.Ceil}
	for _, from := range formats {
		for _, to := range integerTypes {
			low, high := new(big.Float).SetInt64(0), new(big.Float).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(to.Bits())))
			if to.Signed() {
				half := new(big.Float).Quo(high, big.NewFloat(2))
				low, high = new(big.Float).Neg(half), half
			}
			highest := new(big.Float).SetPrec(80).Sub(high, big.NewFloat(1))
			for direction, whole := range round {
				name := fmt.Sprintf("cvt.%s.%v.%v", direction, to, from.of)
				op := lookup(t, name)
				for _, row := range operands(op.Args, 1000) {
					if from.isNaN(row[0]) {
						continue
					}
					x := math.Inf(1)
					if row[0]&from.magnitude() < from.infinity() {
						x, _ = exactValue(from.format, row[0]&from.magnitude()).Float64()
					}
					if row[0]&from.sign() != 0 {
						x = -x
					}
					y := new(big.Float).SetPrec(80).SetFloat64(whole(x))
					if y.Cmp(low) < 0 {
						y = low
					} else if y.Cmp(highest) > 0 {
						y = highest
					}
					n, _ := y.Int(nil)
					if got, want := op.Func(row[0], 0, 0, 0), truncated(to.Bits(), n); got != want {
						t.Fatalf("%s of %x (%v): %x, want %x", name, row[0], x, got, want)
					}
				}
			}
		}
	}
}

func TestConvertIntegers(t *testing.T) {
	for _, from := range integerTypes {
		for _, to := range integerTypes {
			op := lookup(t, fmt.Sprintf("cvt.%v.%v", to, from))
			limited, err := Lookup("cvt", []string{"sat", to.String(), from.String()})
			low, high := integerOf(to).limits()
			least, most := bigValue(from, 0), new(big.Int).Lsh(big.NewInt(1), uint(from.Bits()))
			if from.Signed() {
				most.Rsh(most, 1)
				least = new(big.Int).Neg(most)
			}
			greatest := new(big.Int).SetInt64(high)
			if to == ptx.U64 {
				greatest.SetUint64(math.MaxUint64)
			}
			fits := least.Cmp(big.NewInt(low)) >= 0 && new(big.Int).Sub(most, big.NewInt(1)).Cmp(greatest) <= 0
			if fits != (err != nil) {
				t.Errorf("cvt.sat.%v.%v: error is %v, but fits is %t", to, from, err, fits)
			}
			for _, row := range operands(op.Args, 500) {
				x := bigValue(from, row[0])
				if got, want := op.Func(row[0], 0, 0, 0), truncated(to.Bits(), x); got != want {
					t.Fatalf("cvt.%v.%v of %x: %x, want %x", to, from, row[0], got, want)
				}
				if err == nil {
					if x.Cmp(big.NewInt(low)) < 0 {
						x = big.NewInt(low)
					} else if x.Cmp(greatest) > 0 {
						x = greatest
					}
					if got, want := limited.Func(row[0], 0, 0, 0), truncated(to.Bits(), x); got != want {
						t.Fatalf("cvt.sat.%v.%v of %x: %x, want %x", to, from, row[0], got, want)
					}
				}
			}
		}
	}
}

// TestEveryHalf converts every 16-bit value to f32 and back, and rounds it to an integral value.
func TestEveryHalf(t *testing.T) {
	wide, narrow := lookup(t, "cvt.f32.f16"), lookup(t, "cvt.rn.f16.f32")
	bwide, bnarrow := lookup(t, "cvt.f32.bf16"), lookup(t, "cvt.rn.bf16.f32")
	whole, bwhole := lookup(t, "cvt.rpi.f16.f16"), lookup(t, "cvt.rmi.bf16.bf16")
	for a := range uint64(1 << 16) {
		if float16.isNaN(a) {
			if got := wide.Func(a, 0, 0, 0); got != 0x7FFFFFFF {
				t.Fatalf("cvt.f32.f16 of %x: %x", a, got)
			}
		} else {
			x := half.Float16(a).Float32()
			if got := wide.Func(a, 0, 0, 0); got != uint64(math.Float32bits(x)) {
				t.Fatalf("cvt.f32.f16 of %x: %x", a, got)
			}
			if got := narrow.Func(uint64(math.Float32bits(x)), 0, 0, 0); got != a {
				t.Fatalf("cvt.rn.f16.f32 of %v: %x, want %x", x, got, a)
			}
			if got, want := whole.Func(a, 0, 0, 0), uint64(half.Float16FromFloat64(math.Ceil(float64(x)))); got != want {
				t.Fatalf("cvt.rpi.f16.f16 of %x: %x, want %x", a, got, want)
			}
		}
		if got := bwide.Func(a, 0, 0, 0); got != a<<16 {
			t.Fatalf("cvt.f32.bf16 of %x: %x", a, got)
		}
		if !bfloat16.isNaN(a) {
			if got := bnarrow.Func(a<<16, 0, 0, 0); got != a {
				t.Fatalf("cvt.rn.bf16.f32 of %x: %x", a<<16, got)
			}
			floor := half.BFloat16FromFloat32(float32(math.Floor(float64(half.BFloat16(a).Float32()))))
			if got := bwhole.Func(a, 0, 0, 0); got != uint64(floor) {
				t.Fatalf("cvt.rmi.bf16.bf16 of %x: %x, want %x", a, got, floor)
			}
		}
	}
}

// TestEveryFP8Pair converts every pair of 8-bit encodings to f16x2 and back.
func TestEveryFP8Pair(t *testing.T) {
	check := func(format string, nan func(code uint8) bool, value func(code uint8) float32) {
		t.Helper()
		out, back := lookup(t, "cvt.rn.f16x2."+format), lookup(t, "cvt.rn.satfinite."+format+".f16x2")
		clamped, pair := lookup(t, "cvt.rn.relu.f16x2."+format), lookup(t, "cvt.rn.satfinite.relu."+format+".f32")
		for code := range uint64(1 << 16) {
			halves := out.Func(code, 0, 0, 0)
			for i := range 2 {
				c, h := uint8(code>>(8*i)), uint16(halves>>(16*i))
				if nan(c) {
					if h != 0x7FFF {
						t.Fatalf("cvt.rn.f16x2.%s of %04x: %x", format, code, halves)
					}
					continue
				}
				if half.Float16(h).Float32() != value(c) {
					t.Fatalf("cvt.rn.f16x2.%s of %04x: %x", format, code, halves)
				}
				want := uint64(h)
				if c >= 0x80 {
					want = 0
				}
				if got := clamped.Func(code, 0, 0, 0) >> (16 * i) & 0xFFFF; got != want {
					t.Fatalf("cvt.rn.relu.f16x2.%s of %04x: %x, want %x", format, code, got, want)
				}
			}
			if hi, lo := uint8(code>>8), uint8(code); !nan(hi) && !nan(lo) {
				x, y := value(hi), value(lo)
				if !math.IsInf(float64(x), 0) && !math.IsInf(float64(y), 0) {
					if got := back.Func(halves, 0, 0, 0); got != code {
						t.Fatalf("cvt.rn.satfinite.%s.f16x2 of %x: %x, want %x", format, halves, got, code)
					}
				}
				got := pair.Func(uint64(math.Float32bits(max(x, -1))), uint64(math.Float32bits(y)), 0, 0)
				if (hi >= 0x80 && got>>8 != 0) || (lo >= 0x80 && got&0xFF != 0) {
					t.Fatalf("cvt.rn.satfinite.relu.%s.f32 of %v, %v: %x", format, x, y, got)
				}
			}
		}
	}
	check("e4m3x2", func(c uint8) bool { return c&0x7F == 0x7F }, func(c uint8) float32 { return fp8.E4M3(c).Float32() })
	check("e5m2x2", func(c uint8) bool { return c&0x7F > 0x7C }, func(c uint8) float32 { return fp8.E5M2(c).Float32() })
}

func TestConversionExamples(t *testing.T) {
	const nan, inf = 0x7FC00000, 0x7F800000
	checkResult(t, "cvt.rzi.s32.f32", 0, nan)
	checkResult(t, "cvt.rzi.u64.f32", 1<<63, nan)
	checkResult(t, "cvt.rzi.s8.f64", 0x80, 0x7FF8000000000000)
	checkResult(t, "cvt.rpi.u32.f32", 1, 1)
	checkResult(t, "cvt.rpi.ftz.u32.f32", 0, 1)
	checkResult(t, "cvt.rni.s32.f32", 2, 0x40200000)
	checkResult(t, "cvt.rni.f32.f32", 0x80000000, 0xBF000000)
	checkResult(t, "cvt.f32.f32", 0xFF800001, 0xFF800001) // a move
	checkResult(t, "cvt.ftz.f32.f32", 0x7FFFFFFF, 0xFF800001)
	checkResult(t, "cvt.ftz.f32.f32", 0x80000000, 0x80000001)
	checkResult(t, "cvt.sat.f32.f32", 0, nan)
	checkResult(t, "cvt.sat.f32.f32", 0x3F800000, inf)
	checkResult(t, "cvt.rn.f16.f32", 0x7FFF, 0xFFC00000)
	checkResult(t, "cvt.rn.f16.f32", 0x7C00, 0x477FF000)
	checkResult(t, "cvt.rz.f16.f32", 0x7BFF, 0x477FF000)
	checkResult(t, "cvt.rn.satfinite.f16.f32", 0xFBFF, 0xFF800000)
	checkResult(t, "cvt.rn.relu.f16.f32", 0x7FFF, nan)
	checkResult(t, "cvt.rn.relu.f16.f32", 0, 0xC0000000)
	checkResult(t, "cvt.rp.ftz.f16.f32", 1, 1) // .ftz has no effect here
	checkResult(t, "cvt.rp.ftz.bf16.f32", 0, 1)
	checkResult(t, "cvt.rn.f16x2.f32", 0x3C00_4000, 0x3F800000, 0x40000000)
	checkResult(t, "cvt.rn.bf16x2.f32", 0x7FFF_3F81, nan, 0x3F808001)
	checkResult(t, "cvt.rn.relu.satfinite.bf16x2.f32", 0x7F7F_0000, inf, 0xFF800000)
	checkResult(t, "cvt.f16.bf16", 0x3C00, 0x3F80)
	checkResult(t, "cvt.f64.f16", 0x7FF8040000000000, 0x7C01)
	checkResult(t, "cvt.f64.f32", 0xFFF8000020000000, 0xFF800001)
	checkResult(t, "cvt.ftz.f64.f32", 0x7FFFFFFFE0000000, 0xFF800001)
	checkResult(t, "cvt.rn.f32.f64", 0xFFC00000, 0xFFF0000000000001)
	checkResult(t, "cvt.rn.sat.f16.f64", 0, 0x7FF8000000000000)
	checkResult(t, "cvt.rn.tf32.f32", 0x7FFFE000, nan)
	checkResult(t, "cvt.rn.tf32.f32", 0x3F800000, 0x3F801000)
	checkResult(t, "cvt.rna.tf32.f32", 0x3F802000, 0x3F801000)
	checkResult(t, "cvt.rz.relu.tf32.f32", 0, 0xBF800000)
	checkResult(t, "cvt.rna.tf32.f32", 0xFF800000, 0xFF800001)
	checkResult(t, "cvt.rna.satfinite.tf32.f32", 0x7F7FE000, 0x7F7FFFFF)
	checkResult(t, "cvt.rn.satfinite.e4m3x2.f32", 0x2D55, 0x3ED00000, 0x414E6666) // 0.40625, 12.9
	checkResult(t, "cvt.rn.satfinite.e4m3x2.f32", 0x7FFE, nan, 0xFF800000)
	checkResult(t, "cvt.rn.satfinite.e5m2x2.f16x2", 0x7F7B, 0xFE00_7C00)
	checkResult(t, "cvt.s8.s32", 0x80, 0x180)
	checkResult(t, "cvt.sat.u8.s32", 0, 0xFFFFFFFF)
	checkResult(t, "cvt.sat.s64.u64", 1<<63-1, 1<<63)
	checkResult(t, "cvt.pack.sat.s16.s32", 0x7FFF_8000, 100000, 0xFFFF0000)
	checkResult(t, "cvt.pack.sat.u8.s32.b32", 0x5678_FF_00, 300, 0xFFFFFFFF, 0x12345678)
	checkResult(t, "cvt.pack.sat.s2.s32.b32", 0xFFFFFFF0|0b01_10, 5, 0xFFFFFFF0, 0xFFFFFFFF)
}
