package mma

import (
	"math"

	"attune/internal/half"
)

// In mode Exact, products whose accumulators are all f32, or all f16, run in assembly if the host has
// AVX2: eight columns of B by one row of A at a time. Sums in f16 are float32 meanwhile. exact.go
// computes all other products, and a test compares the two.

// stepPlan holds the parameters of the assembly, which reads the fields by offset.
type stepPlan struct {
	keepMask   uint64 // bits of a float64 that the accumulator keeps
	fraction   int64
	terms      int // per step, padding included
	rows       int
	sumsStride int // bytes between rows of sums
	aStride    int // bytes between rows of A

	leastExponent int64 // of a sum, biased as in a float32

	// Of sums in f16; zero for f32.
	smallest      float64 // normal number
	shifter       float64 // times a power of two: a float64 whose last place is that of an f16
	largestSquare float64
}

// assemblyColumns is the number of columns per call of the assembly, and maxAssemblyRows the limit
// on the rows.
const (
	assemblyColumns = 8
	maxAssemblyRows = 64
)

// supportsAssembly reports whether the assembly can compute the product. A step's sum must fit into
// 32 bits, and each of its products is below 4 in units of the largest.
func (p *Product) supportsAssembly() bool {
	t := p.plan.accumulator
	return p.useAssembly && p.c == t && p.d == t && p.plan.terms<<(p.plan.fraction+2) <= 1<<31 &&
		p.n%assemblyColumns == 0 && p.m <= maxAssemblyRows
}

func (p *Product) stepPlan() stepPlan {
	cut := 52 - 23
	if p.plan.coarse {
		cut = 52 - 13
	}
	s := stepPlan{keepMask: ^uint64(0) << cut, fraction: int64(p.plan.fraction), terms: p.plan.paddedTerms(), rows: p.m, sumsStride: 4 * p.n, aStride: 4 * p.rowLength}
	s.leastExponent = float32MinimumExp + float32Bias
	if p.plan.accumulator == F16 {
		const largest = 65504
		s.keepMask = 0x7FF << 52 // the exponent of a total
		s.leastExponent = float16MinimumExp + float32Bias
		s.smallest, s.shifter, s.largestSquare = 0x1p-14, 0x1.8p42, largest*largest
	}
	return s
}

const float32Bias = 127

// decodePlan holds the parameters of decodeAssembly, which reads the fields by offset.
type decodePlan struct {
	shift, mantissa uint64
	rebias          float32
	bias            int32
	last            int32 // exponent field of infinities and NaNs
	flip            uint32
	infinity        uint32
	bound           int32
	zero, nonFinite int32   // exponents
	unit            float32 // of subnormals
	subnormals      uint32  // mask: subnormals are multiplied by their unit
}

// decodeWords decodes 16-bit elements in their order. It reports whether stepAssembly can process them.
func decodeWords(t *decodedRows[float32], codes []uint32, f *format, negate bool) bool {
	t.values, t.exponents = resize(t.values, len(codes)), resize(t.exponents, len(codes))
	plan := decodePlan{
		shift: uint64(f.shift), mantissa: uint64(f.mantissa), rebias: f.rebias, last: int32(len(f.binades)/2 - 1), infinity: 0x7F800000,
		bound: maxAssemblyExponent, zero: zeroExponent, nonFinite: nonFiniteExponent,
	}
	plan.bias = plan.last / 2
	if f.rebias != 1 {
		plan.unit, plan.subnormals = f.binades[0].unit, ^uint32(0)
	}
	if negate {
		plan.flip = 1 << 31
	}
	return decodeAssembly(&t.values[0], &t.exponents[0], &codes[0], len(codes), &plan) == 0
}

// maxAssemblyExponent bounds the exponents of elements in the assembly, so products, sums and
// powers of two stay within float32. Formats with 5 exponent bits are always within the bound.
const maxAssemblyExponent = 48

func fitsAssembly(exponent int32) bool {
	return exponent >= -maxAssemblyExponent && exponent <= maxAssemblyExponent || exponent == zeroExponent || exponent == nonFiniteExponent
}

// interleavedIndex returns the index of a term of a column in the order of the assembly: eight
// columns together, the first terms of all eight before their second terms.
func (p *Product) interleavedIndex(column, term int) int {
	return (column/assemblyColumns*p.rowLength+term)*assemblyColumns + column%assemblyColumns
}

// decodeInterleaved decodes the columns of B. It reports whether the assembly can process them.
func (t *decodedRows[T]) decodeInterleaved(p *Product, matrix []uint32, f *format) bool {
	t.values = resize(t.values, p.rowLength*p.n)
	t.exponents = resize(t.exponents, p.rowLength*p.n)
	if p.rowLength != p.k {
		t.setZero()
	}
	fit := true
	for column := range p.n {
		codes := matrix[column*p.k:][:len(p.termIndexes)]
		first := p.interleavedIndex(column, 0)
		values, exponents := t.values[first:], t.exponents[first:]
		if f.table != nil {
			for k, at := range p.termIndexes {
				e := &f.table[codes[k]&0xFF]
				values[at*assemblyColumns], exponents[at*assemblyColumns] = T(e.value), e.exponent
			}
			continue
		}
		if f.shift != 0 {
			for k, at := range p.termIndexes {
				value, exponent := f.decodeShifted(codes[k])
				values[at*assemblyColumns], exponents[at*assemblyColumns] = T(value), exponent
				fit = fit && fitsAssembly(exponent)
			}
			continue
		}
		for k, at := range p.termIndexes {
			value, exponent := decodeElement[float32](f, codes[k])
			values[at*assemblyColumns], exponents[at*assemblyColumns] = T(value), exponent
			fit = fit && fitsAssembly(exponent)
		}
	}
	return fit
}

// decodesWords reports whether decodeWords decodes a matrix of a format: 16-bit elements in the order
// of K, without padding.
func (p *Product) decodesWords(f *format) bool {
	return p.useAssembly && f.shift != 0 && p.rowLength == p.k && !p.plan.emulated
}

// interleaveWords is decodeInterleaved by decodeWords.
func (b *Operand) interleaveWords(p *Product, f *format) bool {
	fit := decodeWords(&b.plain, b.words, f, false)
	t := &b.narrow
	t.values, t.exponents = resize(t.values, len(b.words)), resize(t.exponents, len(b.words))
	for column := 0; column < p.n; column += assemblyColumns {
		values, exponents := b.plain.values[column*p.k:], b.plain.exponents[column*p.k:]
		for k := range p.k {
			at := p.interleavedIndex(column, k)
			to, toExponents := t.values[at:at+assemblyColumns], t.exponents[at:at+assemblyColumns]
			for i := range to {
				to[i], toExponents[i] = values[i*p.k+k], exponents[i*p.k+k]
			}
		}
	}
	return fit
}

// multiplyAssembly is multiplyRows in assembly.
func (p *Product) multiplyAssembly(s *Scratch, d []uint32, a, b *decodedRows[float32], c []uint32) {
	sums := d[:p.m*p.n]
	if p.plan.emulated || p.plan.accumulator == F16 {
		s.sums = resize(s.sums, len(sums))
		sums = s.sums
	}
	switch {
	case p.plan.emulated || c == nil:
		clear(sums)
	case p.plan.accumulator == F16:
		s.widen(sums, c)
	default:
		copy(sums, c)
	}
	plan := p.stepPlan()
	for column := 0; column < p.n; column += assemblyColumns {
		for k := 0; k < p.rowLength; k += plan.terms {
			at := p.interleavedIndex(column, k)
			skipped := stepAssembly(&sums[column], &a.values[k], &a.exponents[k], &b.values[at], &b.exponents[at], &plan)
			for row := 0; skipped != 0; skipped, row = skipped>>1, row+1 {
				if skipped&1 != 0 {
					p.addStepColumns(sums[row*p.n+column:][:assemblyColumns], a, b, row*p.rowLength+k, at)
				}
			}
		}
	}
	switch {
	case p.plan.emulated:
		for i, sum := range sums {
			d[i] = p.encodeResult(float64(math.Float32frombits(sum)) + p.accumulatorAt(c, i))
		}
	case p.plan.accumulator == F16:
		if encodeAssembly(&d[0], &sums[0], len(sums)) != 0 {
			for i, sum := range sums {
				d[i] = encodeExactFloat16(sum)
			}
		}
	}
}

// widen sets sums to the values of f16.
func (s *Scratch) widen(sums, codes []uint32) {
	t := &s.narrowA
	decodeWords(t, codes[:len(sums)], formatF16, false)
	for i, value := range t.values {
		sums[i] = math.Float32bits(value)
	}
}

// encodeExactFloat16 encodes a float32 that is the value of an f16.
func encodeExactFloat16(bits uint32) uint32 {
	const rebias = 0x1p-112
	value := math.Float32frombits(bits &^ (1 << 31))
	if value-value != 0 {
		return uint32(half.Float16FromFloat32(math.Float32frombits(bits)))
	}
	return math.Float32bits(value*rebias)>>13 | bits>>16&0x8000
}

// addStepColumns computes a step of eight columns that the assembly skipped. row and columns are
// the indexes of the step's first term in A and B.
func (p *Product) addStepColumns(sums []uint32, a, b *decodedRows[float32], row, columns int) {
	var va, vb [maxTerms]float64
	var ea, eb [maxTerms]int32
	step := p.plan.paddedTerms()
	for j := range sums {
		for k := range step {
			at := columns + k*assemblyColumns + j
			va[k], ea[k] = float64(a.values[row+k]), a.exponents[row+k]
			vb[k], eb[k] = float64(b.values[at]), b.exponents[at]
		}
		sum := addStep(&p.plan, float64(math.Float32frombits(sums[j])), va[:step], vb[:step], ea[:step], eb[:step])
		if sums[j] = math.Float32bits(float32(sum)); sum != sum {
			sums[j] = canonicalNaN
		}
	}
}

// maxTerms is the largest number of terms of a step.
const maxTerms = 32
