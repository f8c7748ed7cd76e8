package arith

import (
	"math"

	"attune/internal/ptx"
)

// Around the unit, instructions without .ftz scale their operands, and so do we.

// Sine, cosine and hyperbolic tangent are computed in float64 and rounded once: their last bits are not the chip's. Sine and cosine are of
// turns, not of radians.
func unitSin(x float32) float32 {
	return flush32(float32(math.Sin(2 * math.Pi * math.Remainder(float64(flush32(x)), 1))))
}

func unitCos(x float32) float32 {
	return float32(math.Cos(2 * math.Pi * math.Remainder(float64(x), 1)))
}

func unitTanh(x float32) float32 { return float32(math.Tanh(float64(x))) }

const (
	smallestNormal = 0x1p-126
	toNormal       = 0x1p24 // makes a subnormal number normal
)

func abs32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

func flush32(x float32) float32 {
	if abs32(x) < smallestNormal {
		return math.Float32frombits(math.Float32bits(x) & (1 << 31))
	}
	return x
}

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

func sinApprox(x, _ float32, _ bool) float32  { return unitSin(turns(x)) }
func cosApprox(x, _ float32, _ bool) float32  { return unitCos(turns(x)) }
func tanhApprox(x, _ float32, _ bool) float32 { return unitTanh(x) }

// turns is x/2π as the chip has it: one product, rounded to zero. So the error of sine and cosine grows with x.
func turns(x float32) float32 {
	const perRadian = 0x3E22F983
	p := product(float32s.decode(uint64(math.Float32bits(x))), float32s.decode(perRadian))
	return math.Float32frombits(uint32(float32s.encode(p, toZero)))
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
		r := function(math.Float32frombits(uint32(a)), math.Float32frombits(uint32(b)), ftz)
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
		return gross(f, unitRsqrt, -0.5)
	}
	op := uniform(ptx.F64, 1, func(a, _, _, _ uint64) uint64 {
		if float64s.isNaN(a) {
			return float64s.kept(float64s.decode(a))
		}
		r := 1 / math.Sqrt(math.Float64frombits(a))
		if r != r {
			return float64s.kept(invalid)
		}
		return math.Float64bits(r)
	})
	op.Approximate = true
	return op, true
}

// gross defines the approximations of float64 that read and write upper halves only, with 20 bits of mantissa. They are those of float32,
// cut off. A result has the exponent of the operand times the power.
func gross(f *form, function func(x float32) float32, power float64) (Op, bool) {
	const upper, nan = 0xFFFFFFFF_00000000, 0x7FFFFFFF_00000000
	op := uniform(ptx.F64, 1, func(a, _, _, _ uint64) uint64 {
		x := math.Float64frombits(float64s.flush(a & upper))
		fraction, exponent := math.Frexp(x)
		exponent &^= 1
		r := float64(function(float32(x)))
		if exponent != 0 && x != 0 && !math.IsInf(x, 0) {
			_ = fraction
			r = math.Ldexp(float64(function(float32(math.Ldexp(x, -exponent)))), int(power*float64(exponent)))
		}
		if r != r {
			return nan
		}
		return float64s.flush(math.Float64bits(r) & upper)
	})
	op.Approximate = true
	return op, f.take("ftz")
}
