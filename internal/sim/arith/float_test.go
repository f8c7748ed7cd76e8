package arith

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"attune/internal/half"
	"attune/internal/ptx"
)

var formats = []struct {
	of ptx.Type
	*format
}{{ptx.F16, float16}, {ptx.BF16, bfloat16}, {ptx.F32, float32s}, {ptx.F64, float64s}}

// exactValue returns the value of an encoding that is not NaN or infinity.
func exactValue(f *format, code uint64) *big.Float {
	x := new(big.Float).SetPrec(4096)
	mantissa, exponent := code&(1<<f.mantissa-1), int(code&f.magnitude()>>f.mantissa)
	if exponent == 0 {
		exponent = 1
	} else {
		mantissa |= 1 << f.mantissa
	}
	x.SetUint64(mantissa)
	x.SetMantExp(x, exponent-f.bias-f.mantissa)
	if code&f.sign() != 0 {
		x.Neg(x)
	}
	return x
}

// roundExact rounds a value to a format, computed in integral units in the last place.
func roundExact(f *format, x *big.Float, r rounding) uint64 {
	sign := uint64(0)
	if x.Signbit() {
		sign = f.sign()
	}
	if x.Sign() == 0 {
		return sign
	}
	exponent := max(x.MantExp(nil)-1, 1-f.bias) // of the value; the unit in the last place is 2^(exponent-mantissa)
	units := new(big.Float).SetPrec(8192).SetMantExp(new(big.Float).SetPrec(8192).Abs(x), f.mantissa-exponent)
	whole, _ := units.Int(nil)
	rest := new(big.Float).SetPrec(8192).Sub(units, new(big.Float).SetInt(whole))
	half := rest.Cmp(big.NewFloat(0.5))
	if r == toNearest && (half > 0 || half == 0 && whole.Bit(0) == 1) ||
		rest.Sign() != 0 && (r == up && sign == 0 || r == down && sign != 0) {
		whole.Add(whole, big.NewInt(1))
	}
	// The encoding is the number of units plus the exponent field.
	code := new(big.Int).Lsh(big.NewInt(int64(exponent+f.bias-1)), uint(f.mantissa))
	code.Add(code, whole)
	if code.Cmp(new(big.Int).SetUint64(f.infinity())) >= 0 {
		if r == toZero || r == up && sign != 0 || r == down && sign == 0 {
			return sign | (f.infinity() - 1)
		}
		return sign | f.infinity()
	}
	return sign | code.Uint64()
}

// TestRounding compares every basic operation in every format and rounding mode with exact
// arithmetic.
func TestRounding(t *testing.T) {
	type operation struct {
		name    string
		sources int
		exact   func(x, y, z *big.Float) *big.Float
	}
	wide := func() *big.Float { return new(big.Float).SetPrec(4096).SetMode(big.ToNearestEven) }
	all := []operation{
		{"add", 2, func(x, y, _ *big.Float) *big.Float { return wide().Add(x, y) }},
		{"sub", 2, func(x, y, _ *big.Float) *big.Float { return wide().Sub(x, y) }},
		{"mul", 2, func(x, y, _ *big.Float) *big.Float { return wide().Mul(x, y) }},
		{"fma", 3, func(x, y, z *big.Float) *big.Float { return wide().Add(wide().Mul(x, y), z) }},
	}
	// Quotients and roots of operands this short are exact, or far enough from every rounding
	// boundary.
	large := []operation{
		{"div", 2, func(x, y, _ *big.Float) *big.Float { return wide().Quo(x, y) }},
		{"rcp", 1, func(x, _, _ *big.Float) *big.Float { return wide().Quo(big.NewFloat(1), x) }},
		{"sqrt", 1, func(x, _, _ *big.Float) *big.Float { return new(big.Float).SetPrec(400).Sqrt(x) }},
	}
	for _, f := range formats {
		operations, directions := all, []string{"rn"}
		if f.bits > 16 {
			operations, directions = append(all[:len(all):len(all)], large...), []string{"rn", "rz", "rm", "rp"}
		}
		for _, o := range operations {
			for _, direction := range directions {
				op := lookup(t, fmt.Sprintf("%s.%s.%v", o.name, direction, f.of))
				r := roundings[direction]
				for _, row := range operands(op.Args, 3000) {
					var values [3]*big.Float
					for i := range values {
						values[i] = exactValue(f.format, row[i])
					}
					if undefinedExactly(f.format, o.name, row[:o.sources]) {
						continue
					}
					x := o.exact(values[0], values[1], values[2])
					want := roundExact(f.format, x, r)
					if x.Sign() == 0 {
						want = signOfZero(f.format, o.name, row[:o.sources], r)
					}
					if got := op.Func(row[0], row[1], row[2], 0); got != want {
						t.Fatalf("%s.%s.%v of %x: %x, want %x", o.name, direction, f.of, row[:o.sources], got, want)
					}
				}
			}
		}
	}
}

// undefinedExactly reports whether exact arithmetic has no result for these operands.
func undefinedExactly(f *format, name string, row []uint64) bool {
	for _, code := range row {
		if code&f.magnitude() >= f.infinity() {
			return true
		}
	}
	last := row[len(row)-1]
	return (name == "div" || name == "rcp") && last&f.magnitude() == 0 || name == "sqrt" && last&f.sign() != 0
}

// signOfZero returns the zero that IEEE 754 defines for a result that is exactly zero.
func signOfZero(f *format, name string, row []uint64, r rounding) uint64 {
	negative := row[0]&f.sign() != 0 // sign of the first or only term
	second := negative
	switch name {
	case "mul", "div":
		negative = (row[0]^row[1])&f.sign() != 0
		second = negative
	case "add":
		second = row[1]&f.sign() != 0
	case "sub":
		second = row[1]&f.sign() == 0
	case "fma":
		negative = (row[0]^row[1])&f.sign() != 0
		second = row[2]&f.sign() != 0
	}
	if negative != second {
		negative = r == down
	}
	if negative {
		return f.sign()
	}
	return 0
}

// TestExactMatchesHost checks that the exact implementation agrees with the host's arithmetic.
func TestExactMatchesHost(t *testing.T) {
	for _, f := range []*float{
		{format: float32s}, {format: float64s}, {format: float32s, ftz: true}, {format: float32s, sat: true},
	} {
		of := ptx.F32
		if f.bits == 64 {
			of = ptx.F64
		}
		for i, o := range []operation{addition, subtraction, multiplication, division, fusedMultiplyAdd, reciprocal, squareRootOp} {
			fast := f.compute(o)
			exact := f.compute(operation{exact: o.exact})
			for _, row := range operands([]ptx.Type{of, of, of}, 3000) {
				a, b := exact(row[0], row[1], row[2], 0), fast(row[0], row[1], row[2], 0)
				if a != b {
					t.Fatalf("operation %d of %x in %d bits: exact %x, host %x", i, row, f.bits, a, b)
				}
			}
		}
	}
}

// TestHalfPrecision checks sums, products and fused products of random 16-bit values. f64 holds
// these exactly or nearly so.
func TestHalfPrecision(t *testing.T) {
	g := generator(1)
	add, mul, fma := lookup(t, "add.f16"), lookup(t, "mul.f16"), lookup(t, "fma.rn.f16")
	badd, bmul := lookup(t, "add.bf16"), lookup(t, "mul.bf16")
	for range 200_000 {
		a, b, c := g.next()&0xFFFF, g.next()&0xFFFF, g.next()&0xFFFF
		x, y := float64(half.Float16(a).Float32()), float64(half.Float16(b).Float32())
		check := func(name string, got uint64, want half.Float16) {
			if got != uint64(want) {
				t.Fatalf("%s of %04x, %04x, %04x: %04x, want %04x", name, a, b, c, got, want)
			}
		}
		check("add.f16", add.Func(a, b, 0, 0), half.Float16FromFloat64(x+y))
		check("mul.f16", mul.Func(a, b, 0, 0), half.Float16FromFloat64(x*y))
		if z := float64(half.Float16(c).Float32()); math.Abs(z) > math.Abs(x*y)*0x1p-20 && math.Abs(z) < math.Abs(x*y)*0x1p20 {
			check("fma.rn.f16", fma.Func(a, b, c, 0), half.Float16FromFloat64(float64(x*y)+z))
		}
		// f32 has more than twice the significant bits of bf16, so rounding to f32 first does not
		// change the result.
		v, w := half.BFloat16(a).Float32(), half.BFloat16(b).Float32()
		check("add.bf16", badd.Func(a, b, 0, 0), half.Float16(half.BFloat16FromFloat32(v+w)))
		check("mul.bf16", bmul.Func(a, b, 0, 0), half.Float16(half.BFloat16FromFloat32(v*w)))
	}
}

// Encodings of f32.
const (
	canonicalNaN, inf, minusInf = 0x7FFFFFFF, 0x7F800000, 0xFF800000
	oneF32, twoF32, minusZero   = 0x3F800000, 0x40000000, 0x80000000
	leastNormal                 = 0x00800000 // the smallest normal number
)

// TestFloatExamples checks modifiers and special values: as the PTX ISA defines them, else as on
// the H200.
func TestFloatExamples(t *testing.T) {
	checkResult(t, "add.f32", canonicalNaN, inf, minusInf)
	checkResult(t, "add.f32", canonicalNaN, 0x7F800001, oneF32)
	checkResult(t, "add.f32", 0, oneF32, 0xBF800000)
	checkResult(t, "add.rm.f32", minusZero, oneF32, 0xBF800000)
	checkResult(t, "add.sat.f32", oneF32, oneF32, oneF32)
	checkResult(t, "add.sat.f32", 0, minusZero, minusZero)
	checkResult(t, "add.sat.f32", 0, inf, minusInf)
	checkResult(t, "add.ftz.f32", 0, 1, 2)
	checkResult(t, "add.f32", 3, 1, 2)
	checkResult(t, "mul.ftz.f32", minusZero, 0x80800000, 0x3F000000)
	checkResult(t, "mul.f32", leastNormal, 0x00FFFFFF, 0x3F000000)     // rounds up to the smallest normal number
	checkResult(t, "mul.ftz.f32", 0, 0x00FFFFFF, 0x3F000000)           // but .ftz still flushes it
	checkResult(t, "mul.ftz.f32", leastNormal, 0x00FFFFFF, 0x3F000001) // not flushed
	checkResult(t, "mul.rz.f32", 0x7F7FFFFF, 0x7F7FFFFF, twoF32)       // overflow, here and in the next three lines
	checkResult(t, "mul.rp.f32", inf, 0x7F7FFFFF, twoF32)
	checkResult(t, "mul.rm.f32", 0x7F7FFFFF, 0x7F7FFFFF, twoF32)
	checkResult(t, "mul.rm.f32", minusInf, 0x7F7FFFFF, 0xC0000000)
	checkResult(t, "fma.rn.f32", 0x337FFFFE, 0x3F800001, 0x3F7FFFFF, 0xBF800000) // one rounding, not two
	checkResult(t, "fma.rn.relu.f16", 0, 0xBC00, 0x3C00, 0)
	checkResult(t, "fma.rn.relu.f16", 0x7FFF, 0x7E00, 0x3C00, 0)
	checkResult(t, "fma.rn.relu.f16", 0, 0x8000, 0x3C00, 0x8000)
	checkResult(t, "fma.rn.oob.f16", 0, 0x7FF7, 0x3C00, 0x3C00)
	checkResult(t, "fma.rn.oob.f16", 0, 0x3C00, 0x7FF7, 0x3C00)
	checkResult(t, "fma.rn.oob.f16", 0x7FFF, 0x3C00, 0x3C00, 0x7FF7)
	checkResult(t, "fma.rn.oob.bf16x2", 0x3F80, 0xFFF7_3F80, 0x3F80_3F80, 0)
	checkResult(t, "div.rn.f32", inf, oneF32, 0)
	checkResult(t, "div.rn.f32", canonicalNaN, 0, minusZero)
	checkResult(t, "sqrt.rn.f32", canonicalNaN, 0xBF800000)
	checkResult(t, "sqrt.rn.f32", minusZero, minusZero)
	checkResult(t, "sqrt.rp.f32", 0x3FB504F4, twoF32)
	checkResult(t, "sqrt.rz.f32", 0x3FB504F3, twoF32)
}

func TestSignAndMinMaxExamples(t *testing.T) {
	checkResult(t, "abs.f32", canonicalNaN, 0xFFC00001)
	checkResult(t, "neg.f32", canonicalNaN, 0x7FC00001)
	checkResult(t, "neg.f32", 0x80000001, 1)
	checkResult(t, "neg.ftz.f32", minusZero, 1)
	checkResult(t, "abs.f16x2", 0x7FFF_0001, 0xFE00_8001)
	checkResult(t, "copysign.f32", 0xBF800000, minusZero, oneF32)
	checkResult(t, "min.f32", minusZero, 0, minusZero)
	checkResult(t, "max.f32", 0, minusZero, 0)
	checkResult(t, "min.f32", oneF32, oneF32, canonicalNaN)
	checkResult(t, "min.NaN.f32", canonicalNaN, oneF32, 0xFFC00000)
	checkResult(t, "max.f32", canonicalNaN, 0x7FC00000, 0xFFC00000)
	checkResult(t, "max.xorsign.abs.f32", 0xC0000000, 0xC0000000, oneF32)
	checkResult(t, "min.xorsign.abs.f32", minusZero, 0, 0xBF800000)
	checkResult(t, "max.ftz.f32", 0, 1, minusZero)
}

func TestFloat64NaN(t *testing.T) {
	// f64 preserves a NaN operand: the second before the third before the first, but a dividend
	// before its divisor.
	const a, b, c = 0x7FF0000000000001, 0xFFF8000000000002, 0x7FF800000000000C
	checkResult(t, "add.f64", 0xFFF8000000000002, a, b)
	checkResult(t, "sub.f64", 0x7FF8000000000001, a, 0)
	checkResult(t, "sub.f64", 0xFFF8000000000002, 0, b)
	checkResult(t, "fma.rn.f64", c, a, 0, c)
	checkResult(t, "fma.rn.f64", 0xFFF8000000000002, a, b, c)
	checkResult(t, "div.rn.f64", 0x7FF8000000000001, a, b)
	checkResult(t, "max.f64", 0xFFF8000000000002, a, b)
	checkResult(t, "abs.f64", 0xFFF8000000000002, b)
	checkResult(t, "mul.f64", 0xFFF8000000000000, 0, 0x7FF0000000000000)
}

func TestTestpExamples(t *testing.T) {
	checkResult(t, "testp.normal.f32", 1, 0)
	checkResult(t, "testp.normal.f32", 0, 1)
	checkResult(t, "testp.subnormal.f32", 1, 1)
	checkResult(t, "testp.subnormal.f32", 0, 0)
	checkResult(t, "testp.finite.f32", 0, inf)
	checkResult(t, "testp.number.f32", 1, inf)
	checkResult(t, "testp.infinite.f64", 1, 0xFFF0000000000000)
	checkResult(t, "testp.notanumber.f64", 1, 0x7FF0000000000001)
}

func TestComparisons(t *testing.T) {
	// Each comparison of 1.0 with 2.0, 1.0, 0.0 and NaN.
	const one, two, nan = 0x3F800000, 0x40000000, 0x7FC00000
	for name, want := range map[string][4]uint64{
		"eq": {0, 1, 0, 0}, "ne": {1, 0, 1, 0}, "lt": {1, 0, 0, 0}, "le": {1, 1, 0, 0}, "gt": {0, 0, 1, 0}, "ge": {0, 1, 1, 0},
		"equ": {0, 1, 0, 1}, "neu": {1, 0, 1, 1}, "ltu": {1, 0, 0, 1}, "leu": {1, 1, 0, 1},
		"gtu": {0, 0, 1, 1}, "geu": {0, 1, 1, 1}, "num": {1, 1, 1, 0}, "nan": {0, 0, 0, 1},
	} {
		plain, not := lookup(t, "setp."+name+".f32"), lookup(t, "setp."+name+".xor.f32")
		whole, float := lookup(t, "set."+name+".u32.f32"), lookup(t, "set."+name+".and.f32.f32")
		for i, other := range []uint64{two, one, 0, nan} {
			if got := plain.Func(one, other, 0, 0); got != want[i] {
				t.Errorf("setp.%s.f32 of 1 and %x: %d, want %d", name, other, got, want[i])
			}
			if p, q := plain.Pair(one, other, 0, 0), not.Func(one, other, 1, 0); p != 1-want[i] || q != 1-want[i] {
				t.Errorf("setp.%s.f32 of 1 and %x: inverse is %d, and %d by xor, want %d", name, other, p, q, 1-want[i])
			}
			if got := whole.Func(one, other, 0, 0); got != want[i]*0xFFFFFFFF {
				t.Errorf("set.%s.u32.f32 of 1 and %x: %x", name, other, got)
			}
			if got := float.Func(one, other, 1, 0); got != want[i]*one {
				t.Errorf("set.%s.and.f32.f32 of 1 and %x: %x", name, other, got)
			}
		}
	}
	check := func(name string, want uint64, a, b, c uint64) {
		t.Helper()
		if got := lookup(t, name).Func(a, b, c, 0); got != want {
			t.Errorf("%s of %x, %x, %x: %x, want %x", name, a, b, c, got, want)
		}
	}
	check("setp.eq.f32", 1, 0, 0x80000000, 0)
	check("setp.lt.f32", 1, 0, 1, 0)
	check("setp.lt.ftz.f32", 0, 0, 1, 0)
	check("setp.lo.u32", 0, 0xFFFFFFFF, 0, 0)
	check("setp.lt.s32", 1, 0xFFFFFFFF, 0, 0)
	check("setp.or.hs.u16", 1, 0, 1, 1)
	check("set.lt.f16x2.f16x2", 0x3C000000, 0x0000_4000, 0x3C00_3C00, 0)
	check("set.lt.s32.bf16x2", 0xFFFF, 0x4000_0000, 0x3F80_3F80, 0)
	check("set.eq.bf16.s64", 0x3F80, 1<<40, 1<<40, 0)
	check("slct.s32.f32", 5, 5, 6, 0x80000000)
	check("slct.s32.f32", 6, 5, 6, nan)
	check("slct.s32.f32", 6, 5, 6, 0x80000001)
	check("slct.ftz.s32.f32", 5, 5, 6, 0x80000001)
	check("slct.u64.s32", 6, 5, 6, 0xFFFFFFFF)
	check("selp.b16", 5, 5, 6, 1)
	if lookup(t, "setp.lt.and.f16x2").Pair(0, 0x3C00_0000, 1, 0) != 1 {
		t.Error("setp.lt.and.f16x2: the second predicate is not the comparison of the upper halves")
	}
}
