package mma

import (
	"math"
	"math/bits"

	"attune/internal/half"
)

// In mode Exact, products whose accumulators are all f32, or all f16, run in assembly if the host has
// AVX2: eight columns of B by one row of A at a time, and sixteen with AVX-512. Sums in f16 are float32
// meanwhile. exact.go computes all other products, and a test compares the two.

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

	// Of stepWide: how far below the largest exponent the last bits of products may be for float32 to
	// hold every sum of them, and the bytes between the bounds of rows.
	exactFraction int64
	boundsStride  int
}

// The numbers of columns per call of the assembly, and the limit on the rows.
const (
	narrowColumns   = 8
	wideColumns     = 16
	maxAssemblyRows = 64
)

// assemblyColumns returns the number of columns per call of the assembly.
func (p *Product) assemblyColumns() int {
	if p.useWide && p.n%wideColumns == 0 && p.plan.accumulator == F32 {
		return wideColumns
	}
	return narrowColumns
}

// supportsAssembly reports whether the assembly can compute the product. A step's sum must fit into
// 32 bits, and each of its products is below 4 in units of the largest.
func (p *Product) supportsAssembly() bool {
	t := p.plan.accumulator
	return p.useAssembly && p.c == t && p.d == t && p.plan.terms<<(p.plan.fraction+2) <= 1<<31 &&
		p.n%narrowColumns == 0 && p.m <= maxAssemblyRows
}

func (p *Product) stepPlan() stepPlan {
	cut := 52 - 23
	if p.plan.coarse {
		cut = 52 - 13
	}
	const significant = 24 // bits of a float32
	bitsOfSum := int64(bits.Len(uint(p.plan.terms-1)) + 2)
	s := stepPlan{keepMask: ^uint64(0) << cut, fraction: int64(p.plan.fraction), terms: p.plan.paddedTerms(), rows: p.m, sumsStride: 4 * p.n, aStride: 4 * p.rowLength}
	s.leastExponent = float32MinimumExp + float32Bias
	s.exactFraction, s.boundsStride = min(s.fraction, significant-bitsOfSum), 8*p.steps()
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

// assemblyRows are the elements of a matrix, decoded for the assembly.
type assemblyRows struct {
	values    []float32
	exponents []int16
	// bounds are, for stepWide, the largest exponent of each step of a row or of a column, and the
	// exponent of its last bit. Those of columns are together: the first of sixteen, then the second.
	bounds []int32
}

// noLastBit and anyLastBit are the exponents of the last bits of zeros, and of elements about which
// nothing is known.
const (
	noLastBit  = 10000
	anyLastBit = -10000
)

// decodeWords decodes 16-bit elements in their order. It reports whether stepAssembly can process them.
func decodeWords(t *assemblyRows, codes []uint32, f *format, negate bool) bool {
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

// steps returns the number of steps of K.
func (p *Product) steps() int { return p.rowLength / p.plan.paddedTerms() }

// reset makes room for the elements of some rows or columns, and sets the padding to zero.
func (t *assemblyRows) reset(p *Product, rows int) {
	t.values, t.exponents = resize(t.values, rows*p.rowLength), resize(t.exponents, rows*p.rowLength)
	if p.rowLength != p.k {
		clear(t.values)
		for i := range t.exponents {
			t.exponents[i] = zeroExponent
		}
	}
	if p.assemblyColumns() != wideColumns {
		return
	}
	t.bounds = resize(t.bounds, 2*rows*p.steps())
	for i := range t.bounds {
		t.bounds[i] = anyLastBit
	}
}

// decodeRows decodes the rows of A. It reports whether the assembly can process them.
func (t *assemblyRows) decodeRows(p *Product, matrix []uint32, f *format, negate bool) bool {
	rows := len(matrix) / p.k
	t.reset(p, rows)
	flip := uint32(0)
	if negate {
		flip = 1 << 31
	}
	fit := true
	for row := range rows {
		codes := matrix[row*p.k:][:len(p.termIndexes)]
		values, exponents := t.values[row*p.rowLength:][:p.rowLength], t.exponents[row*p.rowLength:][:p.rowLength]
		if f.table != nil {
			for k, at := range p.termIndexes {
				e := &f.table[codes[k]&0xFF]
				values[at], exponents[at] = math.Float32frombits(math.Float32bits(e.value)^flip), e.exponent
			}
			continue
		}
		for k, at := range p.termIndexes {
			value, exponent := decodeElement[float32](f, codes[k])
			values[at], exponents[at] = math.Float32frombits(math.Float32bits(value)^flip), int16(exponent)
			fit = fit && fitsAssembly(exponent)
		}
	}
	return fit
}

// decodeColumns is decodeRows for the columns of B, which it interleaves.
func (t *assemblyRows) decodeColumns(p *Product, matrix []uint32, f *format) bool {
	t.reset(p, p.n)
	n, fit := p.assemblyColumns(), true
	for column := range p.n {
		codes := matrix[column*p.k:][:len(p.termIndexes)]
		values, exponents := t.values[p.interleavedIndex(column, 0):], t.exponents[column/n*n*p.rowLength+column%n*2:]
		if f.table != nil {
			for k, at := range p.termIndexes {
				e := &f.table[codes[k]&0xFF]
				values[at*n], exponents[at&^1*n+at&1] = e.value, e.exponent
			}
			continue
		}
		for k, at := range p.termIndexes {
			value, exponent := decodeElement[float32](f, codes[k])
			values[at*n], exponents[at&^1*n+at&1] = value, int16(exponent)
			fit = fit && fitsAssembly(exponent)
		}
	}
	return fit
}

// decodesTable reports whether decodeWide decodes a matrix of a format.
func (p *Product) decodesTable(f *format) bool {
	return p.assemblyColumns() == wideColumns && f.table != nil && p.rowLength == p.k && !p.plan.emulated && !p.negate
}

// decodeWide is decodeRows, or decodeColumns, by a table of elements, with the bounds of each step.
func (t *assemblyRows) decodeWide(p *Product, matrix []uint32, f *format, columns bool) {
	rows, steps, terms := len(matrix)/p.k, p.steps(), p.plan.terms
	t.values, t.exponents, t.bounds = resize(t.values, len(matrix)), resize(t.exponents, len(matrix)), resize(t.bounds, 2*rows*steps)
	each := 1
	if columns {
		each = wideColumns
	}
	for row := 0; row < rows; row += each {
		for step := range steps {
			from := row*p.k + step*terms
			to, bounds := row*p.k+step*terms*each, &t.bounds[2*(row*steps+step*each)]
			if columns {
				decodeTableColumns(&t.values[to], &t.exponents[to], &matrix[from], terms, p.k, &f.table[0], bounds)
			} else {
				decodeTableRow(&t.values[to], &t.exponents[to], &matrix[from], terms, &f.table[0], bounds)
			}
		}
	}
}

// interleavedIndex returns the index of a term of a column in the order of the assembly: the columns
// of a call together, the first terms of all of them before their second terms. Exponents have the
// first two terms of each column before the next two.
func (p *Product) interleavedIndex(column, term int) int {
	n := p.assemblyColumns()
	return (column/n*p.rowLength+term)*n + column%n
}

// decodesWords reports whether decodeWords decodes a matrix of a format: 16-bit elements in the order
// of K, without padding.
func (p *Product) decodesWords(f *format) bool {
	return p.useAssembly && f.shift != 0 && p.rowLength == p.k && !p.plan.emulated
}

// interleaveWords is decodeColumns by decodeWords.
func (b *Operand) interleaveWords(p *Product, f *format) bool {
	fit := decodeWords(&b.plain, b.words, f, false)
	t, n := &b.assembly, p.assemblyColumns()
	t.reset(p, p.n)
	for first := 0; first < p.n; first += narrowColumns {
		at := p.interleavedIndex(first, 0)
		to, toExponents := t.values[at:], t.exponents[first/n*n*p.k+first%n*2:]
		values, exponents := b.plain.values[first*p.k:][:narrowColumns*p.k], b.plain.exponents[first*p.k:][:narrowColumns*p.k]
		for k := 0; k < p.k; k += 2 {
			terms, next, pairs := (*[narrowColumns]float32)(to[k*n:]), (*[narrowColumns]float32)(to[(k+1)*n:]), (*[2 * narrowColumns]int16)(toExponents[k*n:])
			for i, at := 0, k; i < narrowColumns; i, at = i+1, at+p.k {
				terms[i], next[i] = values[at], values[at+1]
				pairs[2*i], pairs[2*i+1] = exponents[at], exponents[at+1]
			}
		}
	}
	return fit
}

// multiplyAssembly is multiplyRows in assembly.
func (p *Product) multiplyAssembly(s *Scratch, d []uint32, a, b *assemblyRows, c []uint32) {
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
	columns := p.assemblyColumns()
	for column := 0; column < p.n; column += columns {
		for k := 0; k < p.rowLength; k += plan.terms {
			at := p.interleavedIndex(column, k)
			var skipped uint64
			if columns == wideColumns {
				step := k / plan.terms
				skipped = stepWide(&sums[column], &a.values[k], &a.exponents[k], &b.values[at], &b.exponents[at],
					&a.bounds[2*step], &b.bounds[2*(column*p.steps()+step*wideColumns)], &plan)
			} else {
				skipped = stepAssembly(&sums[column], &a.values[k], &a.exponents[k], &b.values[at], &b.exponents[at], &plan)
			}
			for row := 0; skipped != 0; skipped, row = skipped>>1, row+1 {
				if skipped&1 != 0 {
					p.addStepColumns(sums[row*p.n+column:][:columns], a, b, row*p.rowLength+k, at)
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
	t := &s.widened
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

// addStepColumns computes a step of the columns of a call that the assembly skipped. row and columns are
// the indexes of the step's first term in A and B.
func (p *Product) addStepColumns(sums []uint32, a, b *assemblyRows, row, columns int) {
	var va, vb [maxTerms]float64
	var ea, eb [maxTerms]int32
	step := p.plan.paddedTerms()
	for j := range sums {
		for k := range step {
			va[k], ea[k] = float64(a.values[row+k]), int32(a.exponents[row+k])
			vb[k], eb[k] = float64(b.values[columns+k*len(sums)+j]), int32(b.exponents[columns+(k/2*len(sums)+j)*2+k%2])
		}
		sum := addStep(&p.plan, float64(math.Float32frombits(sums[j])), va[:step], vb[:step], ea[:step], eb[:step])
		if sums[j] = math.Float32bits(float32(sum)); sum != sum {
			sums[j] = canonicalNaN
		}
	}
}

// maxTerms is the largest number of terms of a step.
const maxTerms = 32
