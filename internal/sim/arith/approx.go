package arith

import (
	"math"

	"attune/internal/ptx"
)

// Around the unit, instructions without .ftz scale their operands, and so do we.

const toNormal = 0x1p24 // makes a subnormal number normal

func rcpApprox(x, _ float32, ftz bool) float32 {
	scale := float32(1)
	switch {
	case ftz:
	case abs32(x) < smallestNormal:
		scale = toNormal
	case abs32(x) > 0x1p126:
		scale = 0.25
	}
	return scale * unitRcp(x*scale)
}

func sqrtApprox(x, _ float32, ftz bool) float32 {
	if !ftz && abs32(x) < smallestNormal {
		return unitSqrt(x*toNormal) * 0x1p-12
	}
	return unitSqrt(x)
}

func rsqrtApprox(x, _ float32, ftz bool) float32 {
	if !ftz && abs32(x) < smallestNormal {
		return unitRsqrt(x*toNormal) * 0x1p12
	}
	return unitRsqrt(x)
}

func lg2Approx(x, _ float32, ftz bool) float32 {
	if !ftz && abs32(x) < smallestNormal {
		return unitLg2(x*toNormal) - 24
	}
	return unitLg2(x)
}

func ex2Approx(x, _ float32, ftz bool) float32 {
	if !ftz && x < -126 {
		half := unitEx2(x * 0.5)
		return half * half
	}
	return unitEx2(x)
}

func sinApprox(x, _ float32, _ bool) float32  { return unitSin(turns(x), 0) }
func cosApprox(x, _ float32, _ bool) float32  { return unitSin(turns(x), 1) }
func tanhApprox(x, _ float32, _ bool) float32 { return unitTanh(x) }

// turns is x/2π as the chip has it: one product, rounded to zero. So the error of sine and cosine grows with x.
func turns(x float32) float32 {
	const perRadian = 0x3E22F983
	p := product(float32s.decode(uint64(math.Float32bits(x))), float32s.decode(perRadian))
	return single(float32s.encode(p, toZero))
}

// multiplyFlushed is mul.ftz.f32.
var multiplyFlushed = (&float{format: float32s, ftz: true}).compute(multiplication)

// divApprox multiplies with a reciprocal, which is 0 for divisors above 2^126.
func divApprox(x, y float32, ftz bool) float32 {
	if ftz {
		return single(multiplyFlushed(uint64(math.Float32bits(x)), uint64(math.Float32bits(unitRcp(y))), 0, 0))
	}
	if abs32(y) < smallestNormal {
		x, y = x*toNormal, y*toNormal
	}
	return x * unitRcp(y)
}

// divFull is divApprox in the whole range.
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

// approximate defines a function of float32 whose .approx or .full has been taken off.
func approximate(f *form, sources int, function func(x, y float32, ftz bool) float32, of ...ptx.Type) (Op, bool) {
	t, ok := f.one(of...)
	ftz := f.take("ftz")
	op := uniform(t, sources, func(a, b, _, _ uint64) uint64 {
		r := function(single(a), single(b), ftz)
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
	if !f.take("approx") {
		return Op{}, false
	}
	return approximate(f, 1, function, ptx.F32)
}

func ex2(f *form) (Op, bool) {
	t, ok := f.one(ptx.F16, ptx.F16x2, ptx.BF16, ptx.BF16x2)
	if !ok {
		return onlyApproximate(f, ex2Approx)
	}
	n := &float{format: formatOf(t)}
	if n.format == bfloat16 {
		// There is no other form.
		if n.ftz = f.take("ftz"); !n.ftz {
			return Op{}, false
		}
	}
	return approximateHalf(f, t, n, unitEx2)
}

func tanh(f *form) (Op, bool) {
	t, ok := f.one(ptx.F16, ptx.F16x2, ptx.BF16, ptx.BF16x2)
	if ok {
		return approximateHalf(f, t, &float{format: formatOf(t)}, unitTanh)
	}
	if f.has("ftz") {
		return Op{}, false
	}
	return onlyApproximate(f, tanhApprox)
}

// approximateHalf defines a function of numbers of 16 bits: that of float32, cut off.
func approximateHalf(f *form, t ptx.Type, n *float, function func(x float32) float32) (Op, bool) {
	op := uniformFloat(t, 1, func(a, _, _, _ uint64) uint64 {
		x := single(float32s.encode(n.read(a), toNearest))
		y := float32s.decode(uint64(math.Float32bits(function(x))))
		code := n.finish(n.encode(y, toZero))
		if code == n.infinity()-1 && n.encode(y, toNearest) == n.infinity() {
			return n.infinity()
		}
		return code
	})
	op.Approximate = true
	return op, f.take("approx")
}

func rsqrt(f *form) (Op, bool) {
	if !f.take("approx") {
		return Op{}, false
	}
	if _, ok := f.one(ptx.F64); !ok {
		return approximate(f, 1, rsqrtApprox, ptx.F32)
	}
	if len(f.words) > 0 {
		return gross(f, rsqrtGross)
	}
	op := uniform(ptx.F64, 1, func(a, _, _, _ uint64) uint64 {
		if float64s.isNaN(a) {
			return float64s.kept(float64s.decode(a))
		}
		r := rsqrtDouble(math.Float64frombits(a))
		if r != r {
			return float64s.kept(invalid)
		}
		return math.Float64bits(r)
	})
	op.Approximate = true
	return op, true
}

// gross defines the approximations of float64 that read and write upper halves only, with 20 bits of mantissa: those
// of float32, cut off.
func gross(f *form, function func(x float64) float64) (Op, bool) {
	const upper, nan = 0xFFFFFFFF_00000000, 0x7FFFFFFF_00000000
	op := uniform(ptx.F64, 1, func(a, _, _, _ uint64) uint64 {
		r := function(math.Float64frombits(float64s.flush(a & upper)))
		if r != r {
			return nan
		}
		return float64s.flush(math.Float64bits(r) & upper)
	})
	op.Approximate = true
	return op, f.take("ftz")
}

// rcpGross and rsqrtGross have the unit compute in the range of float32, by an even power of two.

func rcpGross(x float64) float64 {
	near, exponent := toUnit(x)
	return math.Ldexp(float64(unitRcp(near)), -exponent)
}

func rsqrtGross(x float64) float64 {
	near, exponent := toUnit(x)
	return math.Ldexp(float64(unitRsqrt(near)), -exponent/2)
}

func toUnit(x float64) (near float32, exponent int) {
	_, exponent = math.Frexp(x)
	exponent &^= 1
	return float32(math.Ldexp(x, -exponent)), exponent
}

// rsqrtDouble is rsqrt.approx.f64: a step of Newton's kind from the gross approximation. Products are rounded before
// they are used.
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
