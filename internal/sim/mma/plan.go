package mma

// plan is how a chip computes a product of floating-point numbers.
type plan struct {
	accumulator Type // F16 or F32: what a step takes and gives
	terms       int  // products a step adds at once
	fraction    int  // bits below that of the largest exponent that take part
	// coarse: the accumulator keeps 13 bits of a float32's fraction.
	coarse bool
	// emulated: 8-bit floats are widened to f16, those with k%4 < 2 go before the others, the steps begin at zero, and C is
	// added to their result by an ordinary addition. So says the machine code that ptxas makes for mma.sync where the chip
	// has 8-bit floats in wgmma only.
	emulated bool
}

func (in *Instruction) plan(chip Chip) plan {
	p := plan{accumulator: in.D, terms: in.Shape.K, fraction: 25}
	if in.C == F32 {
		p.accumulator = F32
	}
	newer := chip >= Hopper
	if !newer {
		p.fraction = 24
	}
	switch {
	case in.A.is8BitFloat() && (in.Op == Group || !newer):
		p.fraction = 13
		p.coarse = p.accumulator == F32
		if !newer {
			p.terms = min(p.terms, 16)
		}
	case in.A.is8BitFloat():
		p.emulated = true
		p.terms /= 2
	case in.A == TF32 && (in.Op == Warp || !newer):
		p.terms = 4
	case !newer:
		p.terms = min(p.terms, 8)
	}
	return p
}

// block is what the inner loops work on at a time; steps of fewer terms are filled up with zeros.
const block = 8

// step is the room of a step among the decoded terms of a row.
func (p *plan) step() int { return (p.terms + block - 1) / block * block }

// place is where the term k of a row stands, in a row of steps.
func (p *plan) place(k int) int {
	if p.emulated {
		k = k/4*2 + k%2 + k%4/2*p.terms
	}
	return k/p.terms*p.step() + k%p.terms
}
