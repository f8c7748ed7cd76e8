package mma

import (
	"math"
	"math/bits"
)

// multiplyIntegers computes products of s8, u8, s4 and u4 elements with an s32 accumulator.
func (p *Product) multiplyIntegers(s *Scratch, d, a, b, c []uint32) {
	s.integersA = decodeIntegers(s.integersA, a[:p.m*p.k], p.a)
	s.integersB = decodeIntegers(s.integersB, b[:p.n*p.k], p.b)
	for i := range p.m {
		row := s.integersA[i*p.k:][:p.k]
		for j := 0; j < p.n; j += columnUnroll {
			var sums [columnUnroll]int32
			addIntegers(&sums, row, s.integersB[j*p.k:][:columnUnroll*p.k])
			for l, sum := range sums {
				p.storeSum(d, c, i*p.n+j+l, sum)
			}
		}
	}
}

// addsIntegers reports whether integersAssembly adds the products.
func (p *Product) addsIntegers() bool {
	return p.useAssembly && p.integers && p.n%narrowColumns == 0 && p.k%2 == 0
}

// interleaveIntegers decodes B for integersAssembly: eight columns together, of each a pair of terms before
// the next pair.
func (p *Product) interleaveIntegers(values []int16, matrix []uint32) []int16 {
	values = resize(values, p.n*p.k)
	above := 32 - p.b.Bits()
	signed := p.b == S8 || p.b == S4
	for column := range p.n {
		to := values[column/narrowColumns*narrowColumns*p.k+column%narrowColumns*2:]
		for k, element := range matrix[column*p.k:][:p.k] {
			if element <<= above; signed {
				element = uint32(int32(element) >> above)
			} else {
				element >>= above
			}
			to[k&^1*narrowColumns+k&1] = int16(element)
		}
	}
	return values
}

// multiplyIntegersAssembly is multiplyIntegers in assembly.
func (p *Product) multiplyIntegersAssembly(s *Scratch, d []uint32, a, b []int16, c []uint32) {
	s.totals = resize(s.totals, p.m*p.n)
	for column := 0; column < p.n; column += narrowColumns {
		integersAssembly(&s.totals[column], &a[0], &b[column*p.k], p.m, p.k, 4*p.n)
	}
	for i, sum := range s.totals {
		p.storeSum(d, c, i, sum)
	}
}

// decodeIntegers sign-extends signed elements and zero-extends unsigned ones.
func decodeIntegers[T int16 | int32](values []T, matrix []uint32, t Type) []T {
	values = resize(values, len(matrix))
	above := 32 - t.Bits()
	signed := t == S8 || t == S4
	for i, element := range matrix {
		if element <<= above; signed {
			values[i] = T(int32(element) >> above)
		} else {
			values[i] = T(element >> above)
		}
	}
	return values
}

// addIntegers adds the products of a row with four consecutive columns.
func addIntegers(sums *[columnUnroll]int32, row, b []int32) {
	k := len(row)
	b0, b1, b2, b3 := b[:k], b[k:][:k], b[2*k:][:k], b[3*k:][:k]
	s0, s1, s2, s3 := sums[0], sums[1], sums[2], sums[3]
	for i, x := range row {
		s0 += x * b0[i]
		s1 += x * b1[i]
		s2 += x * b2[i]
		s3 += x * b3[i]
	}
	*sums = [columnUnroll]int32{s0, s1, s2, s3}
}

// storeSum adds C to a sum, which cannot itself overflow, and wraps around or saturates
// (.satfinite) once.
func (p *Product) storeSum(d, c []uint32, i int, sum int32) {
	total := int64(sum)
	if c != nil {
		total += int64(int32(c[i]))
	}
	if p.saturate {
		total = min(max(total, math.MinInt32), math.MaxInt32)
	}
	d[i] = uint32(total)
}

// multiplyBits counts the set bits of A & B or A ^ B, for single-bit elements.
func (p *Product) multiplyBits(_ *Scratch, d, a, b, c []uint32) {
	for i := range p.m {
		for j := range p.n {
			ones := 0
			for k := range p.k {
				x, y := a[i*p.k+k], b[j*p.k+k]
				if p.bitOp == Xor {
					ones += bits.OnesCount32(x ^ y)
				} else {
					ones += bits.OnesCount32(x & y)
				}
			}
			p.storeSum(d, c, i*p.n+j, int32(ones))
		}
	}
}
