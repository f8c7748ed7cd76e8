package mma

import "fmt"

// Mode selects how floating-point products are added. Integer products are exact in every mode but
// Skip, and f64 products follow the hardware.
type Mode uint8

// The modes.
const (
	Exact  Mode = iota // the bits that the hardware gives
	F32Sum             // sequential float32 additions, in the order of K
	F64Sum             // sequential float64 additions, rounded once at the end
	Skip               // none: D is C, for a launch whose instructions alone are counted
)

// Product computes D = A·B + C for matrices of one shape and one set of types. It is immutable: any
// number of goroutines may share a Product, each with its own Scratch.
type Product struct {
	m, n, k        int // k counts slice elements: K, or K/32 for B1
	a, b, c, d     Type
	negate         bool
	saturate       bool
	bitOp          BitOp
	rounding       Rounding
	plan           plan
	rowLength      int   // decoded terms of a row, padding included
	termIndexes    []int // index in such a row of each k
	narrowProducts bool  // float32 holds every product of two elements exactly
	useAssembly    bool  // the host has the assembly; tests clear it
	useWide        bool  // the host has stepWide; tests clear it
	exact          bool  // floating point in mode Exact
	integers       bool  // elements are integers of 8 or 4 bits
	// multiplyOther computes the product if exact is false.
	multiplyOther func(p *Product, s *Scratch, d, a, b, c []uint32)
}

// Scratch is the working memory of a product. The zero value is ready to use and grows on demand.
// It serves products of all kinds, one at a time.
type Scratch struct {
	narrowA, narrowB     decodedRows[float32]
	wideA, wideB         decodedRows[float64]
	integersA, integersB []int32
	totals               []int32
	sums                 []uint32
	widened              assemblyRows
	operandA, operandB   Operand
}

// Operand is a matrix A or B decoded once for any number of products of the same kind. It must not
// be shared between goroutines.
type Operand struct {
	words       []uint32 // encoded elements; nil if no product will need them again
	ownWords    []uint32 // backing store of words after Prepare
	narrow      decodedRows[float32]
	assembly    assemblyRows
	integers    []int16      // for integersAssembly; valid where words are needed
	plain       assemblyRows // before it is interleaved
	wide        decodedRows[float64]
	interleaved bool // of B: assembly is valid
	fits        bool // of A: assembly is valid
	wideDecoded bool // wide is valid as well
}

// Product returns the arithmetic of an instruction on a tensor core generation.
func (in *Instruction) Product(chip Chip, mode Mode) (*Product, error) {
	if in.Op > WGMMA {
		return nil, fmt.Errorf("%s: not a matrix product; only mma, wmma.mma and wgmma are", in.Text)
	}
	if err := in.availableOn(chip); err != nil {
		return nil, fmt.Errorf("%s: %w", in.Text, err)
	}
	s := in.Shape
	p := &Product{
		m: s.M, n: s.N, k: s.K * in.A.Bits() / in.A.word(),
		a: in.A, b: in.B, c: in.C, d: in.D,
		negate: in.Negate, saturate: in.Saturate, bitOp: in.BitOp, rounding: in.Rounding,
	}
	p.plan = in.plan(chip)
	p.rowLength = p.k / p.plan.terms * p.plan.paddedTerms()
	for k := range p.k {
		p.termIndexes = append(p.termIndexes, p.plan.termIndex(k))
	}
	p.useAssembly, p.useWide = haveAssembly, haveWide
	p.narrowProducts = in.A == F16 || in.A.is8BitFloat()
	switch {
	case mode == Skip:
		p.multiplyOther = (*Product).skip
	case in.A == F64:
		p.multiplyOther = (*Product).multiplyF64
	case in.A == B1:
		p.multiplyOther = (*Product).multiplyBits
	case in.D == S32:
		p.multiplyOther, p.integers = (*Product).multiplyIntegers, true
	case mode == F64Sum:
		p.multiplyOther = (*Product).multiplySequential64
	case mode == F32Sum:
		p.multiplyOther = (*Product).multiplySequential32
	default:
		p.exact = true
	}
	return p, nil
}

func (in *Instruction) availableOn(chip Chip) error {
	switch {
	case in.Op == WGMMA && chip != Hopper:
		return fmt.Errorf("wgmma exists on Hopper (sm_90a) only, not on %s", chip)
	case in.A.is8BitFloat() && chip < Ada:
		return fmt.Errorf("FP8 elements need sm_89 or later, not %s", chip)
	case in.A == F64 && in.Shape.M == 16 && chip < Hopper:
		return fmt.Errorf("f64 in this shape needs sm_90 or later, not %s; use m8n8k4", chip)
	}
	return nil
}

// Multiply sets D to A·B + C. The slices have the order of Fragment: A by rows and B by columns, K
// fastest; C and D by rows. A nil C is zero. C and D may be the same slice.
func (p *Product) Multiply(s *Scratch, d, a, b, c []uint32) {
	if !p.exact {
		p.multiplyOther(p, s, d, a, b, c)
		return
	}
	s.operandB.words = b[:p.n*p.k]
	p.prepareExact(&s.operandB)
	s.operandA.words = a[:p.m*p.k]
	p.prepareExactA(&s.operandA)
	p.multiplyExact(s, d, &s.operandA, &s.operandB, c)
	s.operandA.words, s.operandB.words = nil, nil
}

// skip sets D to C, or to zero where they differ in type.
func (p *Product) skip(_ *Scratch, d, _, _, c []uint32) {
	if c == nil || p.c != p.d {
		clear(d)
		return
	}
	copy(d, c)
}

// Prepare decodes B for MultiplyPrepared.
func (p *Product) Prepare(o *Operand, b []uint32) {
	if o.words = b[:p.n*p.k]; p.exact {
		p.prepareExact(o)
	}
	if o.words = nil; !p.exact || !p.narrowProducts {
		o.ownWords = append(o.ownWords[:0], b...)
		o.words = o.ownWords
	}
	if p.addsIntegers() {
		o.integers = p.interleaveIntegers(o.integers, b)
	}
}

// PrepareA decodes A for MultiplyOperands.
func (p *Product) PrepareA(o *Operand, a []uint32) {
	o.words = a[:p.m*p.k]
	if p.exact {
		p.prepareExactA(o)
	}
	if o.words = nil; !p.exact || !p.narrowProducts {
		o.ownWords = append(o.ownWords[:0], a...)
		o.words = o.ownWords
	}
	if p.addsIntegers() {
		o.integers = decodeIntegers(o.integers, a[:p.m*p.k], p.a)
	}
}

// MultiplyPrepared is Multiply with a B that Prepare of the same Product has decoded.
func (p *Product) MultiplyPrepared(s *Scratch, d, a []uint32, b *Operand, c []uint32) {
	if p.exact {
		s.operandA.words = a[:p.m*p.k]
		p.prepareExactA(&s.operandA)
		p.multiplyExact(s, d, &s.operandA, b, c)
		s.operandA.words = nil
		return
	}
	if p.addsIntegers() {
		s.operandA.integers = decodeIntegers(s.operandA.integers, a[:p.m*p.k], p.a)
		p.multiplyIntegersAssembly(s, d, s.operandA.integers, b.integers, c)
		return
	}
	p.multiplyOther(p, s, d, a, b.words, c)
}

// MultiplyOperands is Multiply with operands that PrepareA and Prepare of the same Product have
// decoded.
func (p *Product) MultiplyOperands(s *Scratch, d []uint32, a, b *Operand, c []uint32) {
	if p.exact {
		p.multiplyExact(s, d, a, b, c)
		return
	}
	if p.addsIntegers() {
		p.multiplyIntegersAssembly(s, d, a.integers, b.integers, c)
		return
	}
	p.multiplyOther(p, s, d, a.words, b.words, c)
}

// resize returns a slice of n elements. It reuses the memory of s if that is large enough.
func resize[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}
