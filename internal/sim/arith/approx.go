package arith

import (
	"math"

	"attune/internal/ptx"
)

// This file defines the .approx and .full instructions of PTX ISA, Floating-Point Instructions. The
// SFU flushes subnormals. Forms without .ftz therefore scale operands and results around the SFU,
// as on the H200.

const subnormalScale = 0x1p24 // makes a subnormal f32 normal

func rcpApprox(x, _ float32, ftz bool) float32 {
	scale := float32(1)
	switch {
	case ftz:
	case abs32(x) < smallestNormal:
		scale = subnormalScale
	case abs32(x) > 0x1p126:
		scale = 0.25
	}
	return scale * sfuRcp(x*scale)
}

func sqrtApprox(x, _ float32, ftz bool) float32 {
	if !ftz && abs32(x) < smallestNormal {
		return sfuSqrt(x*subnormalScale) * 0x1p-12
	}
	return sfuSqrt(x)
}

func rsqrtApprox(x, _ float32, ftz bool) float32 {
	if !ftz && abs32(x) < smallestNormal {
		return sfuRsqrt(x*subnormalScale) * 0x1p12
	}
	return sfuRsqrt(x)
}

func lg2Approx(x, _ float32, ftz bool) float32 {
	if !ftz && abs32(x) < smallestNormal {
		return sfuLg2(x*subnormalScale) - 24
	}
	return sfuLg2(x)
}

func ex2Approx(x, _ float32, ftz bool) float32 {
	if !ftz && x < -126 {
		half := sfuEx2(x * 0.5)
		return half * half
	}
	return sfuEx2(x)
}

func sinApprox(x, _ float32, _ bool) float32  { return sfuSin(revolutions(x), 0) }
func cosApprox(x, _ float32, _ bool) float32  { return sfuSin(revolutions(x), 1) }
func tanhApprox(x, _ float32, _ bool) float32 { return sfuTanh(x) }

// revolutions is x/2π as the H200 computes it: one product, rounded toward zero. The absolute error
// of sin and cos therefore grows with x.
func revolutions(x float32) float32 {
	const perRadian = 0x3E22F983
	p := product(float32s.decode(uint64(math.Float32bits(x))), float32s.decode(perRadian))
	return float32From(float32s.encode(p, toZero))
}

// multiplyFlushed is mul.ftz.f32.
var multiplyFlushed = (&float{format: float32s, ftz: true}).compute(multiplication)

// divApprox multiplies by the reciprocal, which is 0 for divisors above 2^126.
func divApprox(x, y float32, ftz bool) float32 {
	if ftz {
		return float32From(multiplyFlushed(uint64(math.Float32bits(x)), uint64(math.Float32bits(sfuRcp(y))), 0, 0))
	}
	if abs32(y) < smallestNormal {
		x, y = x*subnormalScale, y*subnormalScale
	}
	return x * sfuRcp(y)
}

// divFull is divApprox with scaling, so it covers the whole range of divisors.
func divFull(x, y float32, ftz bool) float32 {
	if ftz {
		x, y = flush32(x), flush32(y)
	}
	if abs32(y) > 0x1p126 {
		x, y = x*0.25, y*0.25
		if ftz {
			x = flush32(x)
		}
	}
	return divApprox(x, y, ftz)
}

// approximate defines an f32 function whose .approx or .full is already consumed. Every NaN result
// is canonical.
func approximate(f *form, sources int, function func(x, y float32, ftz bool) float32, of ...ptx.Type) (Op, bool) {
	t, ok := f.oneType(of...)
	ftz := f.consume("ftz")
	op := uniformOp(t, sources, func(a, b, _, _ uint64) uint64 {
		r := function(float32From(a), float32From(b), ftz)
		if r != r {
			return float32s.nan
		}
		return uint64(math.Float32bits(r))
	})
	op.Approximate = true
	return op, ok
}

func sin(f *form) (Op, bool) { return onlyApproximate(f, sinApprox) }
func cos(f *form) (Op, bool) { return onlyApproximate(f, cosApprox) }
func lg2(f *form) (Op, bool) { return onlyApproximate(f, lg2Approx) }

func onlyApproximate(f *form, function func(x, y float32, ftz bool) float32) (Op, bool) {
	if !f.consume("approx") {
		return Op{}, false
	}
	return approximate(f, 1, function, ptx.F32)
}

func ex2(f *form) (Op, bool) {
	t, ok := f.oneType(ptx.F16, ptx.F16x2, ptx.BF16, ptx.BF16x2)
	if !ok {
		return onlyApproximate(f, ex2Approx)
	}
	n := &float{format: formatOf(t)}
	if n.format == bfloat16 {
		// bf16 exists with .ftz only.
		if n.ftz = f.consume("ftz"); !n.ftz {
			return Op{}, false
		}
	}
	return approximateHalf(f, t, n, sfuEx2)
}

func tanh(f *form) (Op, bool) {
	t, ok := f.oneType(ptx.F16, ptx.F16x2, ptx.BF16, ptx.BF16x2)
	if ok {
		return approximateHalf(f, t, &float{format: formatOf(t)}, sfuTanh)
	}
	if f.has("ftz") {
		return Op{}, false
	}
	return onlyApproximate(f, tanhApprox)
}

// approximateHalf defines a function of 16-bit values: the f32 function, truncated toward zero. A
// result that .rn would round to infinity is infinity.
func approximateHalf(f *form, t ptx.Type, n *float, function func(x float32) float32) (Op, bool) {
	op := uniformFloat(t, 1, func(a, _, _, _ uint64) uint64 {
		x := float32From(float32s.encode(n.read(a), toNearest))
		y := float32s.decode(uint64(math.Float32bits(function(x))))
		code := n.applyModifiers(n.encode(y, toZero))
		if code == n.infinity()-1 && n.encode(y, toNearest) == n.infinity() {
			return n.infinity()
		}
		return code
	})
	op.Approximate = true
	return op, f.consume("approx")
}

func rsqrt(f *form) (Op, bool) {
	if !f.consume("approx") {
		return Op{}, false
	}
	if _, ok := f.oneType(ptx.F64); !ok {
		return approximate(f, 1, rsqrtApprox, ptx.F32)
	}
	if len(f.modifiers) > 0 {
		return gross(f, rsqrtGross)
	}
	op := uniformOp(ptx.F64, 1, func(a, _, _, _ uint64) uint64 {
		if float64s.isNaN(a) {
			return float64s.encodeNaN(float64s.decode(a))
		}
		r := rsqrtDouble(math.Float64frombits(a))
		if r != r {
			return float64s.encodeNaN(defaultNaN)
		}
		return math.Float64bits(r)
	})
	op.Approximate = true
	return op, true
}

// gross defines rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64, the "gross approximations" of the PTX
// ISA. They read and write only the upper 32 bits of a value, 20 bits of mantissa. The H200
// computes them with the f32 SFU and truncates.
func gross(f *form, function func(x float64) float64) (Op, bool) {
	const upper, nan = 0xFFFFFFFF_00000000, 0x7FFFFFFF_00000000
	op := uniformOp(ptx.F64, 1, func(a, _, _, _ uint64) uint64 {
		r := function(math.Float64frombits(float64s.flush(a & upper)))
		if r != r {
			return nan
		}
		return float64s.flush(math.Float64bits(r) & upper)
	})
	op.Approximate = true
	return op, f.consume("ftz")
}

// rcpGross and rsqrtGross scale the operand by an even power of two into the range of f32, where
// the SFU computes the function.

func rcpGross(x float64) float64 {
	near, exponent := scaleToFloat32(x)
	return math.Ldexp(float64(sfuRcp(near)), -exponent)
}

func rsqrtGross(x float64) float64 {
	near, exponent := scaleToFloat32(x)
	return math.Ldexp(float64(sfuRsqrt(near)), -exponent/2)
}

func scaleToFloat32(x float64) (near float32, exponent int) {
	_, exponent = math.Frexp(x)
	exponent &^= 1
	return float32(math.Ldexp(x, -exponent)), exponent
}

// rsqrtDouble is rsqrt.approx.f64: one step of a third-order Newton iteration from the gross
// approximation. Go rounds each explicit product before its use, as the H200 does.
func rsqrtDouble(x float64) float64 {
	switch {
	case x < 0:
		return math.NaN()
	case 0 < x && x < 0x1p-1022:
		return rsqrtDouble(x*0x1p54) * 0x1p27
	}
	upper := func(x float64) float64 { return math.Float64frombits(math.Float64bits(x) &^ (1<<32 - 1)) }
	y := upper(rsqrtGross(upper(x)))
	if x != x || y == 0 || math.IsInf(y, 0) {
		return y
	}
	e := math.FMA(x, -float64(y*y), 1)
	return math.FMA(math.FMA(e, 0.375, 0.5), float64(y*e), y)
}
