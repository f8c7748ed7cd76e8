package arith

import "math"

// The special function unit (SFU) computes the reciprocal, the roots, the logarithm, the power of
// two, the sine and the hyperbolic tangent of f32. It selects a quadratic polynomial by the leading
// bits of the operand and evaluates it at the remaining bits. It flushes subnormal operands and
// results.
//
// The PTX ISA allows these functions an error of a few ulp. This file reproduces the H200 bit for
// bit.

// quadratic is c0 + c1·x + c2·x², in units of its table.
type quadratic struct {
	c0     int64
	c1, c2 int32
}

// eval evaluates the polynomial at a fraction of the given number of bits.
func (p *quadratic) eval(x uint32, bits int) int64 {
	return p.c0 + int64(p.c1)*int64(x) + int64(p.c2)*int64(square(x, bits))
}

// square is x² for a fraction x of the given number of bits, in units of 2^-15. The SFU omits
// partial products below that unit, so their carries are missing.
func square(x uint32, bits int) uint32 {
	top := x >> ((bits - 15) & 31) // the bits that count
	var sum uint32
	for i := range uint32(7) {
		// The square of this bit, plus twice its product with each lower bit.
		bit, followers := top>>(14-i)&1, top>>i&(1<<(14-2*i)-1)
		sum += -bit & (1<<(13-2*i) + followers)
	}
	return sum
}

const (
	exponentOne = 127 << 23 // encoding of 1.0
	mantissa32  = 1<<23 - 1
)

const smallestNormal = 0x1p-126

func float32From(code uint64) float32 { return math.Float32frombits(uint32(code)) }

func abs32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

func flush32(x float32) float32 {
	if abs32(x) < smallestNormal {
		return math.Float32frombits(math.Float32bits(x) & (1 << 31))
	}
	return x
}

// evalTable selects a polynomial by the first bits of a mantissa and evaluates it at the rest.
func evalTable(table []quadratic, mantissa uint32, first int) int64 {
	rest := 23 - first
	return table[mantissa>>rest].eval(mantissa&(1<<rest-1), rest)
}

// sfuEx2 is ex2.approx.ftz.f32.
func sfuEx2(x float32) float32 {
	switch {
	case x != x:
		return x
	case x >= 128:
		return float32(math.Inf(1))
	case x < -126:
		return 0
	}
	// Fixed point with 23 fraction bits, truncated. The SFU complements a negative fraction instead
	// of negating it.
	fixed := int32(abs32(x) * (1 << 23))
	if math.Signbit(float64(x)) {
		if fixed&mantissa32 == 0 {
			fixed = -fixed
		} else {
			fixed = ^fixed
		}
	}
	code := evalTable(ex2Table[:], uint32(fixed)&mantissa32, 6) >> 15
	return math.Float32frombits(uint32(code) + uint32(fixed>>23-1)<<23)
}

// sfuRcp is rcp.approx.ftz.f32.
func sfuRcp(x float32) float32 {
	x = flush32(x)
	bits := math.Float32bits(x)
	mantissa, exponent := bits&mantissa32, int32(bits>>23&0xFF)
	if x == 0 || exponent == 0xFF {
		return 1 / x
	}
	code := int32(exponentOne)
	if mantissa != 0 {
		code = int32(evalTable(rcpTable[:], mantissa, 7) >> 15)
	}
	return signedFloat(code-(exponent-127)<<23, bits)
}

// signedFloat combines an encoding with the sign bit of another value. An encoding below the
// smallest normal number becomes 0.
func signedFloat(code int32, sign uint32) float32 {
	return flush32(math.Float32frombits(uint32(max(code, 0)) | sign&(1<<31)))
}

// sfuRsqrt is rsqrt.approx.ftz.f32.
func sfuRsqrt(x float32) float32 {
	x = flush32(x)
	bits := math.Float32bits(x)
	mantissa, exponent := bits&mantissa32, int32(bits>>23&0xFF)-127
	if x == 0 || bits>>31 == 1 || exponent == 128 {
		return float32(1 / math.Sqrt(float64(x)))
	}
	code := int32(exponentOne)
	if mantissa != 0 || exponent&1 == 1 {
		code = int32(evalTable(rsqrtTable[64*(exponent&1):], mantissa, 6) >> 16)
	}
	return math.Float32frombits(uint32(code - exponent>>1<<23))
}

// sfuSqrt is sqrt.approx.ftz.f32.
func sfuSqrt(x float32) float32 {
	x = flush32(x)
	bits := math.Float32bits(x)
	mantissa, exponent := bits&mantissa32, int32(bits>>23&0xFF)-127
	if x == 0 || bits>>31 == 1 || exponent == 128 {
		return float32(math.Sqrt(float64(x)))
	}
	code := int32(evalTable(sqrtTable[64*(exponent&1):], mantissa, 6) >> 17)
	return math.Float32frombits(uint32(code + exponent>>1<<23))
}

// sfuLg2 is lg2.approx.ftz.f32.
func sfuLg2(x float32) float32 {
	x = flush32(x)
	bits := math.Float32bits(x)
	mantissa, exponent := bits&mantissa32, int64(bits>>23&0xFF)-127
	if x == 0 || bits>>31 == 1 || exponent == 128 {
		return float32(math.Log2(float64(x)))
	}
	if x == 1 {
		return 0
	}
	// Fixed point with 36 fraction bits. The SFU complements a negative value instead of negating
	// it.
	fixed := exponent<<36 + evalTable(lg2Table[:], mantissa, 6)>>2
	if fixed < 0 {
		return fromFixed(true, ^fixed, 36)
	}
	return fromFixed(false, fixed, 36)
}

// fromFixed converts fixed point to f32, truncated to 24 significant bits.
func fromFixed(negative bool, fixed int64, fraction int) float32 {
	return float32From(float32s.encode(normalised(negative, uint64(fixed), -fraction), toZero))
}

// sfuSin is the sine of an angle in revolutions, advanced by a number of quarter revolutions.
func sfuSin(revolutions float32, quarters uint32) float32 {
	magnitude := abs32(revolutions)
	switch {
	case revolutions != revolutions || math.IsInf(float64(revolutions), 0):
		return float32(math.NaN())
	case magnitude >= 1<<23:
		magnitude = 0 // an integral number of revolutions
	}
	// Fixed point with 25 fraction bits, truncated: 2 bits select the quadrant and 23 bits the
	// position in it. Odd quadrants run backwards.
	phase := uint32(uint64(float64(magnitude)*(1<<25))) + quarters<<23
	quadrant, position := phase>>23, phase&mantissa32
	if quadrant&1 == 1 {
		position ^= mantissa32
	}
	negative := quadrant&2 == 2
	if quarters == 0 && math.Signbit(float64(revolutions)) {
		negative = !negative // the sine is odd; the cosine ignores the sign
	}
	return fromFixed(negative, evalTable(sinTable[:], position, 6), 37)
}

// tanhRows locates the rows of tanhTable for each power of two from 2^-8 upwards: the first row,
// and the number of mantissa bits that select the row.
var tanhRows = [...]struct{ first, bits int }{
	{0, 0}, {1, 0}, {2, 0}, {3, 1}, {5, 1}, {7, 2}, {11, 2}, {15, 2}, {19, 3}, {27, 4}, {43, 3},
}

// sfuTanh is tanh.approx.f32. Below 2^-8 the result is the operand itself, subnormal or not.
func sfuTanh(x float32) float32 {
	bits := math.Float32bits(x)
	exponent := int(bits>>23&0xFF) - (127 - 8)
	switch {
	case x != x || exponent < 0:
		return x
	case exponent >= len(tanhRows):
		return signedFloat(exponentOne, bits)
	}
	rows := tanhRows[exponent]
	// Only the bits that select the row and the next 17 bits of the mantissa matter.
	mantissa := int(bits & mantissa32)
	row := &tanhTable[rows.first+mantissa>>(23-rows.bits)]
	fixed := row.eval(uint32(mantissa>>(6-rows.bits))&(1<<17-1), 17)
	return fromFixed(bits>>31 == 1, min(fixed, 1<<39), 39)
}
