package mma

import (
	"math"
	"math/bits"
)

func (p *Product) multiplyIntegers(s *Scratch, d, a, b, c []uint32) {
	s.wholeA = decodeIntegers(s.wholeA, a[:p.m*p.k], p.a)
	s.wholeB = decodeIntegers(s.wholeB, b[:p.n*p.k], p.b)
	for i := range p.m {
		row := s.wholeA[i*p.k:][:p.k]
		for j := 0; j < p.n; j += columns {
			var sums [columns]int32
			addIntegers(&sums, row, s.wholeB[j*p.k:][:columns*p.k])
			for l, sum := range sums {
				p.finish(d, c, i*p.n+j+l, sum)
			}
		}
	}
}

// decodeIntegers extends the sign of signed elements.
func decodeIntegers(values []int32, matrix []uint32, t Type) []int32 {
	values = resize(values, len(matrix))
	above := 32 - t.Bits()
	signed := t == S8 || t == S4
	for i, element := range matrix {
		if element <<= above; signed {
			values[i] = int32(element) >> above
		} else {
			values[i] = int32(element >> above)
		}
	}
	return values
}

// addIntegers adds the products of a row with four columns, which lie one behind the other.
func addIntegers(sums *[columns]int32, row, b []int32) {
	k := len(row)
	b0, b1, b2, b3 := b[:k], b[k:][:k], b[2*k:][:k], b[3*k:][:k]
	s0, s1, s2, s3 := sums[0], sums[1], sums[2], sums[3]
	for i, x := range row {
		s0 += x * b0[i]
		s1 += x * b1[i]
		s2 += x * b2[i]
		s3 += x * b3[i]
	}
	*sums = [columns]int32{s0, s1, s2, s3}
}

// finish adds C to a sum, which itself is far from overflowing, and wraps around or saturates once.
func (p *Product) finish(d, c []uint32, i int, sum int32) {
	total := int64(sum)
	if c != nil {
		total += int64(int32(c[i]))
	}
	if p.saturate {
		total = min(max(total, math.MinInt32), math.MaxInt32)
	}
	d[i] = uint32(total)
}

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
			p.finish(d, c, i*p.n+j, int32(ones))
		}
	}
}
