package mma

import (
	"math"

	"attune/internal/half"
)

// decodedRows holds the elements of a matrix, decoded for the exact sum, as rows of padded steps.
type decodedRows[T float32 | float64] struct {
	values    []T
	exponents []int32
}

// Exponents of special elements. A product with a zero has a lower exponent than every other
// product, so zeros never decide the truncation. A product with an infinity or a NaN, even by zero,
// has a higher exponent than every finite product.
const (
	zeroExponent       = -10000
	nonFiniteExponent  = 30000
	zeroThreshold      = -5000 // all products are zero if the largest exponent is below this
	nonFiniteThreshold = 5000  // some product is not finite if the largest exponent is above this
	float32MinimumExp  = -126
	float16MinimumExp  = -14
)

// setZero sets all terms to zero.
func (t *decodedRows[T]) setZero() {
	clear(t.values)
	for i := range t.exponents {
		t.exponents[i] = zeroExponent
	}
}

// decode decodes the rows of a matrix.
func (t *decodedRows[T]) decode(p *Product, matrix []uint32, f *format, negate bool) {
	rows := len(matrix) / p.k
	t.values = resize(t.values, rows*p.rowLength)
	t.exponents = resize(t.exponents, rows*p.rowLength)
	if p.rowLength != p.k {
		t.setZero()
	}
	sign := T(1)
	if negate {
		sign = -1
	}
	for row := range rows {
		values, exponents := t.values[row*p.rowLength:][:p.rowLength], t.exponents[row*p.rowLength:][:p.rowLength]
		codes := matrix[row*p.k:][:len(p.termIndexes)]
		if f.table != nil {
			for k, at := range p.termIndexes {
				e := &f.table[codes[k]&0xFF]
				values[at], exponents[at] = T(e.value)*sign, int32(e.exponent)
			}
			continue
		}
		if f.shift != 0 {
			for k, at := range p.termIndexes {
				value, exponent := f.decodeShifted(codes[k])
				values[at], exponents[at] = T(value)*sign, exponent
			}
			continue
		}
		for k, at := range p.termIndexes {
			value, exponent := decodeElement[float32](f, codes[k])
			values[at], exponents[at] = T(value)*sign, exponent
		}
	}
}

// multiplyExact uses the assembly if it supports the operands.
func (p *Product) multiplyExact(s *Scratch, d []uint32, a, b *Operand, c []uint32) {
	switch {
	case b.interleaved && a.fits:
		p.multiplyAssembly(s, d, &a.assembly, &b.assembly, c)
		return
	case !b.interleaved && p.narrowProducts:
		multiplyRows(p, &a.narrow, &b.narrow, d, c)
		return
	}
	// One of the operands does not fit the assembly, so both must be decoded for multiplyRows.
	if !a.wideDecoded {
		a.wide.decode(p, a.words, p.formatOf(p.a), p.negate)
		a.wideDecoded = true
	}
	if !b.wideDecoded {
		b.wide.decode(p, b.words, p.formatOf(p.b), false)
		b.wideDecoded = true
	}
	multiplyRows(p, &a.wide, &b.wide, d, c)
}

// prepareExactA decodes A.
func (p *Product) prepareExactA(a *Operand) {
	f := p.formatOf(p.a)
	a.fits, a.wideDecoded = false, false
	switch {
	case p.supportsAssembly() && p.decodesWords(f):
		a.assembly.reset(p, p.m)
		a.fits = decodeWords(&a.assembly, a.words, f, p.negate)
	case p.supportsAssembly() && p.decodesTable(f):
		a.assembly.decodeWide(p, a.words, f, false)
		a.fits = true
	case p.supportsAssembly():
		a.fits = a.assembly.decodeRows(p, a.words, f, p.negate)
	case p.narrowProducts:
		a.narrow.decode(p, a.words, f, p.negate)
	}
}

// prepareExact decodes B.
func (p *Product) prepareExact(b *Operand) {
	f := p.formatOf(p.b)
	b.interleaved, b.wideDecoded = false, false
	switch {
	case p.supportsAssembly() && p.decodesWords(f):
		b.interleaved = b.interleaveWords(p, f)
	case p.supportsAssembly() && p.decodesTable(f):
		b.assembly.decodeWide(p, b.words, f, true)
		b.interleaved = true
	case p.supportsAssembly():
		b.interleaved = b.assembly.decodeColumns(p, b.words, f)
	}
	switch {
	case b.interleaved:
	case p.narrowProducts:
		b.narrow.decode(p, b.words, f, false)
	}
}

func multiplyRows[T float32 | float64](p *Product, a, b *decodedRows[T], d, c []uint32) {
	step := p.plan.paddedTerms()
	for i := range p.m {
		for j := range p.n {
			begin := p.accumulatorAt(c, i*p.n+j)
			sum := begin
			if p.plan.emulated {
				sum = 0
			}
			for k := 0; k < p.rowLength; k += step {
				x, y := i*p.rowLength+k, j*p.rowLength+k
				sum = addStep(&p.plan, sum,
					a.values[x:x+step], b.values[y:y+step], a.exponents[x:x+step], b.exponents[y:y+step])
			}
			if p.plan.emulated {
				// Rounding only in encodeResult gives the same bits: float64 has more than twice
				// the significant bits of the result.
				sum += begin
			}
			d[i*p.n+j] = p.encodeResult(sum)
		}
	}
}

// addStep adds the products of a step to an accumulator, like a tensor core.
func addStep[T float32 | float64](p *plan, sum float64, a, b []T, exponentsA, exponentsB []int32) float64 {
	top := maxExponent(exponentsA, exponentsB)
	if top > nonFiniteThreshold || sum-sum != 0 {
		return addNonFinite(sum, a, b)
	}
	own := p.exponent(sum)
	var units int64
	if top > zeroThreshold {
		top = max(top, own)
		units = addTruncated(a, b, T(powerOfTwo(p.fraction-int(top))))
	} else if top = own; sum == 0 {
		return 0
	}
	units += int64(sum * powerOfTwo(p.fraction-int(top)))
	return p.round(float64(units) * powerOfTwo(int(top)-p.fraction))
}

// maxExponent returns the largest exponent of the products.
func maxExponent(a, b []int32) int32 {
	m0, m1, m2, m3 := int32(math.MinInt32), int32(math.MinInt32), int32(math.MinInt32), int32(math.MinInt32)
	for len(a) >= unroll && len(b) >= unroll {
		x, y := (*[unroll]int32)(a), (*[unroll]int32)(b)
		m0 = max(m0, x[0]+y[0])
		m1 = max(m1, x[1]+y[1])
		m2 = max(m2, x[2]+y[2])
		m3 = max(m3, x[3]+y[3])
		m0 = max(m0, x[4]+y[4])
		m1 = max(m1, x[5]+y[5])
		m2 = max(m2, x[6]+y[6])
		m3 = max(m3, x[7]+y[7])
		a, b = a[unroll:], b[unroll:]
	}
	return max(m0, m1, m2, m3)
}

// addTruncated truncates each product to a multiple of 1/scale and returns the sum in that unit.
// The products and their scaling by a power of two are exact; the conversion to integer truncates
// toward zero.
func addTruncated[T float32 | float64](a, b []T, scale T) int64 {
	var s0, s1, s2, s3 int64
	for len(a) >= unroll && len(b) >= unroll {
		x, y := (*[unroll]T)(a), (*[unroll]T)(b)
		s0 += int64(x[0] * y[0] * scale)
		s1 += int64(x[1] * y[1] * scale)
		s2 += int64(x[2] * y[2] * scale)
		s3 += int64(x[3] * y[3] * scale)
		s0 += int64(x[4] * y[4] * scale)
		s1 += int64(x[5] * y[5] * scale)
		s2 += int64(x[6] * y[6] * scale)
		s3 += int64(x[7] * y[7] * scale)
		a, b = a[unroll:], b[unroll:]
	}
	return s0 + s1 + s2 + s3
}

// addNonFinite adds a step with infinities or NaNs. The result is one of them, regardless of the
// finite terms.
func addNonFinite[T float32 | float64](sum float64, a, b []T) float64 {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// exponent returns the exponent of an accumulator; for subnormals, that of the smallest normal
// number of its format.
func (p *plan) exponent(x float64) int32 {
	if x == 0 {
		return zeroExponent
	}
	least := int32(float32MinimumExp)
	if p.accumulator == F16 {
		least = float16MinimumExp
	}
	return max(int32(math.Float64bits(x)>>52&0x7FF)-1023, least)
}

// round rounds a sum to the accumulator: f16 to nearest even, f32 toward zero. A zero result is +0.
func (p *plan) round(x float64) float64 {
	if p.accumulator == F16 {
		x = float64(half.Float16FromFloat64(x).Float32())
	} else {
		x = truncateToFloat32(x, p.coarse)
	}
	if x == 0 {
		return 0
	}
	return x
}

// truncateToFloat32 truncates to float32, or to 13 fraction bits if coarse. Overflow gives
// infinity.
func truncateToFloat32(x float64, coarse bool) float64 {
	bits := math.Float64bits(x)
	exponent := int(bits>>52&0x7FF) - 1023
	if exponent > 127 {
		return math.Inf(1 - 2*int(bits>>63))
	}
	cut := 52 - 23
	if coarse {
		cut = 52 - 13
	}
	cut += max(float32MinimumExp-exponent, 0)
	if cut > 52 {
		return 0
	}
	return math.Float64frombits(bits >> cut << cut)
}

// accumulatorAt returns element i of C; zero if C is nil.
func (p *Product) accumulatorAt(c []uint32, i int) float64 {
	switch {
	case c == nil:
		return 0
	case p.c == F16:
		return float64(half.Float16(c[i]).Float32())
	}
	return float64(math.Float32frombits(c[i]))
}

// encodeResult encodes an element of D. Every NaN becomes the canonical one.
func (p *Product) encodeResult(x float64) uint32 {
	if p.d == F16 {
		return uint32(half.Float16FromFloat64(x))
	}
	if x != x {
		return canonicalNaN
	}
	return math.Float32bits(float32(x))
}

// canonicalNaN is the f32 that every NaN becomes.
const canonicalNaN = 0x7FFFFFFF

func powerOfTwo(n int) float64 { return math.Float64frombits(uint64(n+1023) << 52) }
