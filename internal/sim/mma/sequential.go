package mma

// multiplySequential32 and multiplySequential64 start with C and add one product at a time, in
// float32 or float64.
func (p *Product) multiplySequential32(s *Scratch, d, a, b, c []uint32) {
	s.narrowA.values = decodeSequential(s.narrowA.values, a[:p.m*p.k], p.formatOf(p.a), p.negate)
	s.narrowB.values = decodeSequential(s.narrowB.values, b[:p.n*p.k], p.formatOf(p.b), false)
	multiplySequential(p, s.narrowA.values, s.narrowB.values, d, c)
}

func (p *Product) multiplySequential64(s *Scratch, d, a, b, c []uint32) {
	s.wideA.values = decodeSequential(s.wideA.values, a[:p.m*p.k], p.formatOf(p.a), p.negate)
	s.wideB.values = decodeSequential(s.wideB.values, b[:p.n*p.k], p.formatOf(p.b), false)
	multiplySequential(p, s.wideA.values, s.wideB.values, d, c)
}

func decodeSequential[T float32 | float64](values []T, matrix []uint32, f *format, negate bool) []T {
	values = resize(values, len(matrix))
	for i, bits := range matrix {
		value, _ := decodeElement[T](f, bits)
		if negate {
			value = -value
		}
		values[i] = value
	}
	return values
}

// columnUnroll is the number of columns per iteration. Every N is a multiple of it.
const columnUnroll = 4

func multiplySequential[T float32 | float64](p *Product, a, b []T, d, c []uint32) {
	for i := range p.m {
		row := a[i*p.k:][:p.k]
		for j := 0; j < p.n; j += columnUnroll {
			at := i*p.n + j
			var sums [columnUnroll]T
			for l := range sums {
				sums[l] = T(p.accumulatorAt(c, at+l))
			}
			addSequential(&sums, row, b[j*p.k:][:columnUnroll*p.k])
			for l, sum := range sums {
				d[at+l] = p.encodeResult(float64(sum))
			}
		}
	}
}

// addSequential adds the products of a row with four consecutive columns. The conversions prevent
// fused multiply-add, which would make results differ between host architectures.
func addSequential[T float32 | float64](sums *[columnUnroll]T, row, b []T) {
	k := len(row)
	b0, b1, b2, b3 := b[:k], b[k:][:k], b[2*k:][:k], b[3*k:][:k]
	s0, s1, s2, s3 := sums[0], sums[1], sums[2], sums[3]
	for i, x := range row {
		s0 += T(x * b0[i])
		s1 += T(x * b1[i])
		s2 += T(x * b2[i])
		s3 += T(x * b3[i])
	}
	*sums = [columnUnroll]T{s0, s1, s2, s3}
}
