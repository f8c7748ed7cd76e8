package mma

import "fmt"

// Mode is how products of floating-point numbers are added. Integers are exact in every mode, and f64 is as the chip
// has it.
type Mode uint8

// The modes.
const (
	Exact  Mode = iota // bit for bit what the chip gives
	F32Sum             // one float32 addition after the other, in the order of K
	F64Sum             // the same in float64, rounded once at the end
)

// Product computes D = A·B + C for matrices of one shape and one set of types. It holds no state: one Product serves any
// number of goroutines, each with a Scratch of its own.
type Product struct {
	m, n, k    int // k counts words: for single bits, 32 at a time
	a, b, c, d Type
	negate     bool
	saturate   bool
	bitOp      BitOp
	rounding   Rounding
	plan       plan
	width      int                                               // of a row of steps
	places     []int                                             // of the terms in it
	narrow     bool                                              // every product of two elements is a float32
	assembly   bool                                              // may be used
	exact      bool                                              // as the chip adds floats
	multiply   func(p *Product, s *Scratch, d, a, b, c []uint32) // where it is not
}

// Scratch is the memory a product works in. The zero value is ready, grows as needed, and serves products of all kinds,
// one at a time.
type Scratch struct {
	narrowA, narrowB terms[float32]
	wideA, wideB     terms[float64]
	wholeA, wholeB   []int32
	sums             []uint32
	operand          Operand
}

// Operand is the matrix B of a product, made ready once for any number of products of the same kind. It serves one goroutine.
type Operand struct {
	words   []uint32 // as it came, where that is still wanted
	kept    []uint32
	narrow  terms[float32]
	wide    terms[float64]
	across  bool // narrow has it term by term, as the assembly wants it
	decoded bool // and wide has it too
}

// Product is the arithmetic of an instruction on a chip.
func (in *Instruction) Product(chip Chip, mode Mode) (*Product, error) {
	if in.Op > Group {
		return nil, fmt.Errorf("%s: not a product", in.Text)
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
	p.width = p.k / p.plan.terms * p.plan.step()
	for k := range p.k {
		p.places = append(p.places, p.plan.place(k))
	}
	p.assembly = haveAssembly
	p.narrow = in.A == F16 || in.A.is8BitFloat()
	switch {
	case in.A == F64:
		p.multiply = (*Product).multiplyF64
	case in.A == B1:
		p.multiply = (*Product).multiplyBits
	case in.D == S32:
		p.multiply = (*Product).multiplyIntegers
	case mode == F64Sum:
		p.multiply = (*Product).multiplyPlain64
	case mode == F32Sum:
		p.multiply = (*Product).multiplyPlain32
	default:
		p.exact = true
	}
	return p, nil
}

func (in *Instruction) availableOn(chip Chip) error {
	switch {
	case in.Op == Group && chip != Hopper:
		return fmt.Errorf("wgmma exists on Hopper only, not on %s", chip)
	case in.A.is8BitFloat() && chip < Ada:
		return fmt.Errorf("8-bit floats need sm_89 or later, not %s", chip)
	case in.A == F64 && in.Shape.M == 16 && chip < Hopper:
		return fmt.Errorf("f64 in this shape needs sm_90 or later, not %s", chip)
	}
	return nil
}

// Multiply sets D to A·B + C, where the slices lie as Fragment says: A by rows and B by columns, K fastest, C and D by rows.
// A C of nil counts as zero. C and D may be the same slice.
func (p *Product) Multiply(s *Scratch, d, a, b, c []uint32) {
	if !p.exact {
		p.multiply(p, s, d, a, b, c)
		return
	}
	s.operand.words = b[:p.n*p.k]
	p.prepareExact(&s.operand)
	p.multiplyAnyExact(s, d, a, &s.operand, c)
	s.operand.words = nil
}

// Prepare makes B ready.
func (p *Product) Prepare(o *Operand, b []uint32) {
	if o.words = b; p.exact {
		p.prepareExact(o)
	}
	if o.words = nil; !p.exact || !p.narrow {
		o.kept = append(o.kept[:0], b...)
		o.words = o.kept
	}
}

// MultiplyPrepared is Multiply with a B that this Product has made ready.
func (p *Product) MultiplyPrepared(s *Scratch, d, a []uint32, b *Operand, c []uint32) {
	if p.exact {
		p.multiplyAnyExact(s, d, a, b, c)
		return
	}
	p.multiply(p, s, d, a, b.words, c)
}

// resize is a slice of n elements, the same memory where it is large enough.
func resize[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}
