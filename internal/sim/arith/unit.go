package arith

import "math"

// The chip has one unit for the reciprocal, the roots, the logarithm, the power of two, the sine and the hyperbolic
// tangent of float32. It looks up a parabola by the first bits of the operand and evaluates it at the bits that
// follow. It takes subnormal numbers for zeros, and makes none.
//
// PTX grants these functions an error of some ulps. What the unit makes of them is given here to the bit.

// parabola is c0 + c1·x + c2·x², in units of its table.
type parabola struct {
	c0     int64
	c1, c2 int32
}

// at evaluates a parabola at a fraction of so many bits.
func (p *parabola) at(x uint32, bits int) int64 {
	return p.c0 + int64(p.c1)*int64(x) + int64(p.c2)*int64(square(x, bits))
}

// square is x² for a fraction x of so many bits, in units of 2^-15. The unit leaves out what a bit times a bit gives
// below that unit, so carries from there are missing.
func square(x uint32, bits int) uint32 {
	var sum uint32
	for i := 1; i <= 7; i++ {
		if x>>(bits-i)&1 == 0 {
			continue
		}
		// This bit squared, and twice this bit times each of those that follow.
		followers := x >> (bits - 16 + i) & (1<<(16-2*i) - 1)
		sum += 1<<(15-2*i) + followers
	}
	return sum
}

const (
	exponentOne = 127 << 23 // the code of 1
	mantissa32  = 1<<23 - 1
)

const smallestNormal = 0x1p-126

func single(code uint64) float32 { return math.Float32frombits(uint32(code)) }

func abs32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

func flush32(x float32) float32 {
	if abs32(x) < smallestNormal {
		return math.Float32frombits(math.Float32bits(x) & (1 << 31))
	}
	return x
}

// look finds the parabola of a mantissa by its first bits, and evaluates it at the rest.
func look(table []parabola, mantissa uint32, first int) int64 {
	rest := 23 - first
	return table[mantissa>>rest].at(mantissa&(1<<rest-1), rest)
}

// unitEx2 is ex2.approx.ftz.f32.
func unitEx2(x float32) float32 {
	switch {
	case x != x:
		return x
	case x >= 128:
		return float32(math.Inf(1))
	case x < -126:
		return 0
	}
	// Fixed point with 23 bits after the point, cut off. A fraction of a negative number is complemented, not negated.
	fixed := int32(abs32(x) * (1 << 23))
	if math.Signbit(float64(x)) {
		if fixed&mantissa32 == 0 {
			fixed = -fixed
		} else {
			fixed = ^fixed
		}
	}
	code := look(ex2Table[:], uint32(fixed)&mantissa32, 6) >> 15
	return math.Float32frombits(uint32(code) + uint32(fixed>>23-1)<<23)
}

// unitRcp is rcp.approx.ftz.f32.
func unitRcp(x float32) float32 {
	x = flush32(x)
	bits := math.Float32bits(x)
	mantissa, exponent := bits&mantissa32, int32(bits>>23&0xFF)
	if x == 0 || exponent == 0xFF {
		return 1 / x
	}
	code := int32(exponentOne)
	if mantissa != 0 {
		code = int32(look(rcpTable[:], mantissa, 7) >> 15)
	}
	return withSign(code-(exponent-127)<<23, bits)
}

// withSign is a number by its code and the sign of another; too small a one is 0.
func withSign(code int32, sign uint32) float32 {
	return flush32(math.Float32frombits(uint32(max(code, 0)) | sign&(1<<31)))
}

// unitRsqrt is rsqrt.approx.ftz.f32.
func unitRsqrt(x float32) float32 {
	x = flush32(x)
	bits := math.Float32bits(x)
	mantissa, exponent := bits&mantissa32, int32(bits>>23&0xFF)-127
	if x == 0 || bits>>31 == 1 || exponent == 128 {
		return float32(1 / math.Sqrt(float64(x)))
	}
	code := int32(exponentOne)
	if mantissa != 0 || exponent&1 == 1 {
		code = int32(look(rsqrtTable[64*(exponent&1):], mantissa, 6) >> 16)
	}
	return math.Float32frombits(uint32(code - exponent>>1<<23))
}

// unitSqrt is sqrt.approx.ftz.f32.
func unitSqrt(x float32) float32 {
	x = flush32(x)
	bits := math.Float32bits(x)
	mantissa, exponent := bits&mantissa32, int32(bits>>23&0xFF)-127
	if x == 0 || bits>>31 == 1 || exponent == 128 {
		return float32(math.Sqrt(float64(x)))
	}
	code := int32(look(sqrtTable[64*(exponent&1):], mantissa, 6) >> 17)
	return math.Float32frombits(uint32(code + exponent>>1<<23))
}

// unitLg2 is lg2.approx.ftz.f32.
func unitLg2(x float32) float32 {
	x = flush32(x)
	bits := math.Float32bits(x)
	mantissa, exponent := bits&mantissa32, int64(bits>>23&0xFF)-127
	if x == 0 || bits>>31 == 1 || exponent == 128 {
		return float32(math.Log2(float64(x)))
	}
	if x == 1 {
		return 0
	}
	// Fixed point with 36 bits after the point; what is negative is complemented, not negated.
	fixed := exponent<<36 + look(lg2Table[:], mantissa, 6)>>2
	if fixed < 0 {
		return fromFixed(true, ^fixed, 36)
	}
	return fromFixed(false, fixed, 36)
}

// fromFixed makes a number of fixed point; its first 24 bits count.
func fromFixed(negative bool, fixed int64, fraction int) float32 {
	return single(float32s.encode(normal(negative, uint64(fixed), -fraction), toZero))
}

// unitSin is the sine of so many turns, after so many quarters of a turn.
func unitSin(turns float32, quarters uint32) float32 {
	magnitude := abs32(turns)
	switch {
	case turns != turns || math.IsInf(float64(turns), 0):
		return float32(math.NaN())
	case magnitude >= 1<<23:
		magnitude = 0 // whole turns
	}
	// Fixed point with 25 bits after the point, cut off: two for the quarter, in which every second one runs
	// backwards, and 23 for the place in it.
	phase := uint32(uint64(float64(magnitude)*(1<<25))) + quarters<<23
	quarter, place := phase>>23, phase&mantissa32
	if quarter&1 == 1 {
		place ^= mantissa32
	}
	negative := quarter&2 == 2
	if quarters == 0 && math.Signbit(float64(turns)) {
		negative = !negative // cosines have no use for the sign
	}
	return fromFixed(negative, look(sinTable[:], place, 6), 37)
}

// tanhRows says where the rows of tanhTable are for each power of two from 2^-8 upwards: the first one, and how many
// bits count them.
var tanhRows = [...]struct{ first, bits int }{
	{0, 0}, {1, 0}, {2, 0}, {3, 1}, {5, 1}, {7, 2}, {11, 2}, {15, 2}, {19, 3}, {27, 4}, {43, 3},
}

// unitTanh is tanh.approx.f32. Small numbers are their own tangent, subnormal ones too.
func unitTanh(x float32) float32 {
	bits := math.Float32bits(x)
	exponent := int(bits>>23&0xFF) - (127 - 8)
	switch {
	case x != x || exponent < 0:
		return x
	case exponent >= len(tanhRows):
		return withSign(exponentOne, bits)
	}
	rows := tanhRows[exponent]
	// Of the mantissa, the bits that find the row and 17 more count.
	mantissa := int(bits & mantissa32)
	row := &tanhTable[rows.first+mantissa>>(23-rows.bits)]
	fixed := row.at(uint32(mantissa>>(6-rows.bits))&(1<<17-1), 17)
	return fromFixed(bits>>31 == 1, min(fixed, 1<<39), 39)
}
