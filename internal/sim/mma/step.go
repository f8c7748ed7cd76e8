package mma

import "math"

// Products with a float32 accumulator in mode Exact go through assembly where the processor has AVX2: eight columns of B by one row of A at a time. What
// that does not do, and what it is held against by a test, is the way of exact.go.

// stepPlan is what the assembly has to know of a product. It reads the fields by their place.
type stepPlan struct {
	stays    uint64 // bits of a float64 that an accumulator keeps
	fraction int64
	terms    int // of a step, with the zeros that fill it up
	rows     int
	sums     int // bytes from one row of sums to the next
	a        int // bytes from one row of A to the next
}

// columnsAtOnce is how many columns the assembly does at a time, and mostRows for how many rows.
const (
	columnsAtOnce = 8
	mostRows      = 64
)

// takesAssembly says whether the assembly does a product: 32 bits must hold the sum of a step, each of whose products is below 4 in units of the largest.
func (p *Product) takesAssembly() bool {
	return p.assembly && p.plan.accumulator == F32 && p.c == F32 && p.d == F32 && p.plan.terms<<(p.plan.fraction+2) <= 1<<31 &&
		p.n%columnsAtOnce == 0 && p.m <= mostRows
}

func (p *Product) stepPlan() stepPlan {
	cut := 52 - 23
	if p.plan.coarse {
		cut = 52 - 13
	}
	return stepPlan{stays: ^uint64(0) << cut, fraction: int64(p.plan.fraction), terms: p.plan.step(), rows: p.m, sums: 4 * p.n, a: 4 * p.width}
}

// The exponents of elements that the assembly takes, so that no product, sum or power of two leaves float32. Of what has 5 bits of exponent, all are.
const mostExponent = 48

func fits(exponent int32) bool {
	return exponent >= -mostExponent && exponent <= mostExponent || exponent == zeroExponent || exponent == infiniteExponent
}

// across is where a term of a column stands for the assembly: eight columns together, their first terms before their second ones.
func (p *Product) across(column, term int) int {
	return (column/columnsAtOnce*p.width+term)*columnsAtOnce + column%columnsAtOnce
}

// decodeAcross takes the columns of B apart. It says whether the assembly can do with them.
func (t *terms[T]) decodeAcross(p *Product, matrix []uint32, f *format) bool {
	t.values = resize(t.values, p.width*p.n)
	t.exponents = resize(t.exponents, p.width*p.n)
	if p.width != p.k {
		t.forget()
	}
	fit := true
	for column := range p.n {
		codes := matrix[column*p.k:][:len(p.places)]
		first := p.across(column, 0)
		values, exponents := t.values[first:], t.exponents[first:]
		if f.table != nil {
			for k, at := range p.places {
				e := &f.table[codes[k]&0xFF]
				values[at*columnsAtOnce], exponents[at*columnsAtOnce] = T(e.value), e.exponent
			}
			continue
		}
		for k, at := range p.places {
			value, exponent := split[float32](f, codes[k])
			values[at*columnsAtOnce], exponents[at*columnsAtOnce] = T(value), exponent
			fit = fit && fits(exponent)
		}
	}
	return fit
}

// multiplyAcross is multiplyExact with the assembly.
func (p *Product) multiplyAcross(s *Scratch, d []uint32, a, b *terms[float32], c []uint32) {
	sums := d[:p.m*p.n]
	switch {
	case p.plan.emulated:
		s.sums = resize(s.sums, len(sums))
		sums = s.sums
		clear(sums)
	case c == nil:
		clear(sums)
	default:
		copy(sums, c)
	}
	plan := p.stepPlan()
	for column := 0; column < p.n; column += columnsAtOnce {
		for k := 0; k < p.width; k += plan.terms {
			at := p.across(column, k)
			odd := stepAssembly(&sums[column], &a.values[k], &a.exponents[k], &b.values[at], &b.exponents[at], &plan)
			for row := 0; odd != 0; odd, row = odd>>1, row+1 {
				if odd&1 != 0 {
					p.addOdd(sums[row*p.n+column:][:columnsAtOnce], a, b, row*p.width+k, at)
				}
			}
		}
	}
	if p.plan.emulated {
		for i, sum := range sums {
			d[i] = p.end(float64(math.Float32frombits(sum)) + p.begin(c, i))
		}
	}
}

// addOdd is a step of eight columns that the assembly leaves alone: of a row from a place on, and of columns from another.
func (p *Product) addOdd(sums []uint32, a, b *terms[float32], row, columns int) {
	var va, vb [mostTerms]float64
	var ea, eb [mostTerms]int32
	step := p.plan.step()
	for j := range sums {
		for k := range step {
			at := columns + k*columnsAtOnce + j
			va[k], ea[k] = float64(a.values[row+k]), a.exponents[row+k]
			vb[k], eb[k] = float64(b.values[at]), b.exponents[at]
		}
		sum := addStep(&p.plan, float64(math.Float32frombits(sums[j])), va[:step], vb[:step], ea[:step], eb[:step])
		sums[j] = p.end(sum)
	}
}

// mostTerms is the most that a step has.
const mostTerms = 32
