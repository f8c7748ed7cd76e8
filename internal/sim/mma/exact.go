package mma

import (
	"math"

	"attune/internal/half"
)

// terms are the elements of a matrix, taken apart for the exact sum: rows of steps.
type terms[T float32 | float64] struct {
	values    []T
	exponents []int32
}

// The exponent of a zero is so low that zeros never decide what is cut off: that of a product with a zero is below that of
// every other product. The exponent of infinities and NaNs is so high that even their product with a zero stands out.
const (
	zeroExponent      = -10000
	infiniteExponent  = 30000
	onlyZeros         = -5000 // the largest exponent is below it
	someInfinite      = 5000  // the largest exponent is above it
	float32MinimumExp = -126
	float16MinimumExp = -14
)

// forget makes zeros of all terms.
func (t *terms[T]) forget() {
	clear(t.values)
	for i := range t.exponents {
		t.exponents[i] = zeroExponent
	}
}

// decode takes rows apart. It says whether the assembly can do with them.
func (t *terms[T]) decode(p *Product, matrix []uint32, f *format, negate bool) bool {
	rows := len(matrix) / p.k
	t.values = resize(t.values, rows*p.width)
	t.exponents = resize(t.exponents, rows*p.width)
	if p.width != p.k {
		t.forget()
	}
	sign, fit := T(1), true
	if negate {
		sign = -1
	}
	for row := range rows {
		values, exponents := t.values[row*p.width:][:p.width], t.exponents[row*p.width:][:p.width]
		codes := matrix[row*p.k:][:len(p.places)]
		if f.table != nil {
			for k, at := range p.places {
				e := &f.table[codes[k]&0xFF]
				values[at], exponents[at] = T(e.value)*sign, e.exponent
			}
			continue
		}
		for k, at := range p.places {
			value, exponent := split[float32](f, codes[k])
			values[at], exponents[at] = T(value)*sign, exponent
			fit = fit && fits(exponent)
		}
	}
	return fit
}

// multiplyAnyExact goes through assembly where it can.
func (p *Product) multiplyAnyExact(s *Scratch, d, a []uint32, b *Operand, c []uint32) {
	a = a[:p.m*p.k]
	if b.across {
		if fit := s.narrowA.decode(p, a, p.formatOf(p.a), p.negate); fit {
			p.multiplyAcross(s, d, &s.narrowA, &b.narrow, c)
			return
		}
		if !b.decoded { // with such an A, B is wanted the other way
			b.wide.decode(p, b.words, p.formatOf(p.b), false)
			b.decoded = true
		}
	} else if p.narrow {
		s.narrowA.decode(p, a, p.formatOf(p.a), p.negate)
		multiplyExact(p, &s.narrowA, &b.narrow, d, c)
		return
	}
	s.wideA.decode(p, a, p.formatOf(p.a), p.negate)
	multiplyExact(p, &s.wideA, &b.wide, d, c)
}

// prepareExact takes B apart.
func (p *Product) prepareExact(b *Operand) {
	f := p.formatOf(p.b)
	b.across, b.decoded = p.takesAssembly() && b.narrow.decodeAcross(p, b.words, f), false
	switch {
	case b.across:
	case p.narrow:
		b.narrow.decode(p, b.words, f, false)
	default:
		b.wide.decode(p, b.words, f, false)
	}
}

func multiplyExact[T float32 | float64](p *Product, a, b *terms[T], d, c []uint32) {
	step := p.plan.step()
	for i := range p.m {
		for j := range p.n {
			begin := p.begin(c, i*p.n+j)
			sum := begin
			if p.plan.emulated {
				sum = 0
			}
			for k := 0; k < p.width; k += step {
				x, y := i*p.width+k, j*p.width+k
				sum = addStep(&p.plan, sum,
					a.values[x:x+step], b.values[y:y+step], a.exponents[x:x+step], b.exponents[y:y+step])
			}
			if p.plan.emulated {
				sum += begin // rounded at the end, which is as good as at once: a float64 has more than twice the bits
			}
			d[i*p.n+j] = p.end(sum)
		}
	}
}

// addStep adds the products of a step to an accumulator, as a tensor core does.
func addStep[T float32 | float64](p *plan, sum float64, a, b []T, exponentsA, exponentsB []int32) float64 {
	top := largest(exponentsA, exponentsB)
	if top > someInfinite || sum-sum != 0 {
		return addInfinite(sum, a, b)
	}
	own := p.exponent(sum)
	var units int64
	if top > onlyZeros {
		top = max(top, own)
		units = addTruncated(a, b, T(powerOfTwo(p.fraction-int(top))))
	} else if top = own; sum == 0 {
		return 0
	}
	units += int64(sum * powerOfTwo(p.fraction-int(top)))
	return p.round(float64(units) * powerOfTwo(int(top)-p.fraction))
}

// largest is the largest exponent of the products.
func largest(a, b []int32) int32 {
	m0, m1, m2, m3 := int32(math.MinInt32), int32(math.MinInt32), int32(math.MinInt32), int32(math.MinInt32)
	for len(a) >= block && len(b) >= block {
		x, y := (*[block]int32)(a), (*[block]int32)(b)
		m0 = max(m0, x[0]+y[0])
		m1 = max(m1, x[1]+y[1])
		m2 = max(m2, x[2]+y[2])
		m3 = max(m3, x[3]+y[3])
		m0 = max(m0, x[4]+y[4])
		m1 = max(m1, x[5]+y[5])
		m2 = max(m2, x[6]+y[6])
		m3 = max(m3, x[7]+y[7])
		a, b = a[block:], b[block:]
	}
	return max(m0, m1, m2, m3)
}

// addTruncated adds the products, each cut to a multiple of 1/scale, and counts in that unit. The products and their
// multiples by a power of two are exact, and the conversion to an integer cuts towards zero.
func addTruncated[T float32 | float64](a, b []T, scale T) int64 {
	var s0, s1, s2, s3 int64
	for len(a) >= block && len(b) >= block {
		x, y := (*[block]T)(a), (*[block]T)(b)
		s0 += int64(x[0] * y[0] * scale)
		s1 += int64(x[1] * y[1] * scale)
		s2 += int64(x[2] * y[2] * scale)
		s3 += int64(x[3] * y[3] * scale)
		s0 += int64(x[4] * y[4] * scale)
		s1 += int64(x[5] * y[5] * scale)
		s2 += int64(x[6] * y[6] * scale)
		s3 += int64(x[7] * y[7] * scale)
		a, b = a[block:], b[block:]
	}
	return s0 + s1 + s2 + s3
}

// addInfinite is for steps with infinities or NaNs: what comes out is one of them, whatever the finite terms are.
func addInfinite[T float32 | float64](sum float64, a, b []T) float64 {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// exponent is that of an accumulator, whose format has subnormal numbers.
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

// round makes an accumulator of a sum: a float16 to nearest, a float32 towards zero. What comes out as zero is +0.
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

// truncateToFloat32 cuts a number to float32, or to the 13 bits of fraction of a coarse one. Too large is infinite.
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

// begin is element i of C, zero where there is no C.
func (p *Product) begin(c []uint32, i int) float64 {
	switch {
	case c == nil:
		return 0
	case p.c == F16:
		return float64(half.Float16(c[i]).Float32())
	}
	return float64(math.Float32frombits(c[i]))
}

// end makes an element of D. Every NaN becomes the same one.
func (p *Product) end(x float64) uint32 {
	if p.d == F16 {
		return uint32(half.Float16FromFloat64(x))
	}
	if x != x {
		return 0x7FFFFFFF
	}
	return math.Float32bits(float32(x))
}

func powerOfTwo(n int) float64 { return math.Float64frombits(uint64(n+1023) << 52) }
