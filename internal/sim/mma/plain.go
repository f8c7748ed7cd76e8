package mma

// multiplyPlain32 and multiplyPlain64 add one product after the other, beginning with C.
func (p *Product) multiplyPlain32(s *Scratch, d, a, b, c []uint32) {
	s.narrowA.values = decodePlain(s.narrowA.values, a[:p.m*p.k], p.formatOf(p.a), p.negate)
	s.narrowB.values = decodePlain(s.narrowB.values, b[:p.n*p.k], p.formatOf(p.b), false)
	multiplyPlain(p, s.narrowA.values, s.narrowB.values, d, c)
}

func (p *Product) multiplyPlain64(s *Scratch, d, a, b, c []uint32) {
	s.wideA.values = decodePlain(s.wideA.values, a[:p.m*p.k], p.formatOf(p.a), p.negate)
	s.wideB.values = decodePlain(s.wideB.values, b[:p.n*p.k], p.formatOf(p.b), false)
	multiplyPlain(p, s.wideA.values, s.wideB.values, d, c)
}

func decodePlain[T float32 | float64](values []T, matrix []uint32, f *format, negate bool) []T {
	values = resize(values, len(matrix))
	for i, bits := range matrix {
		value, _ := split[T](f, bits)
		if negate {
			value = -value
		}
		values[i] = value
	}
	return values
}

// Every N is a multiple of columns, so that many columns are done at a time.
const columns = 4

func multiplyPlain[T float32 | float64](p *Product, a, b []T, d, c []uint32) {
	for i := range p.m {
		row := a[i*p.k:][:p.k]
		for j := 0; j < p.n; j += columns {
			at := i*p.n + j
			var sums [columns]T
			for l := range sums {
				sums[l] = T(p.begin(c, at+l))
			}
			addPlain(&sums, row, b[j*p.k:][:columns*p.k])
			for l, sum := range sums {
				d[at+l] = p.end(float64(sum))
			}
		}
	}
}

// addPlain adds the products of a row with four columns, which lie one behind the other. The conversions keep a product
// from being fused with its addition, which would make results differ between machines.
func addPlain[T float32 | float64](sums *[columns]T, row, b []T) {
	k := len(row)
	b0, b1, b2, b3 := b[:k], b[k:][:k], b[2*k:][:k], b[3*k:][:k]
	s0, s1, s2, s3 := sums[0], sums[1], sums[2], sums[3]
	for i, x := range row {
		s0 += T(x * b0[i])
		s1 += T(x * b1[i])
		s2 += T(x * b2[i])
		s3 += T(x * b3[i])
	}
	*sums = [columns]T{s0, s1, s2, s3}
}
