package mma

// plan describes how a tensor core computes a floating-point product.
type plan struct {
	accumulator Type // F16 or F32: type of the sum before and after a step
	terms       int  // products per step
	fraction    int  // fraction bits kept below the largest exponent
	// coarse: the accumulator keeps 13 of the 23 fraction bits of f32.
	coarse bool
	// emulated: mma.sync on FP8 elements on a GPU that has FP8 in wgmma only. ptxas emits code that
	// widens the elements to f16 and adds those with k%4 < 2 before the others. The steps start at
	// zero, and an ordinary addition adds C to their result. From sm_120 on there is an instruction.
	emulated bool
}

// plan returns the plan of an instruction. Hopper and Blackwell add all of K in one step with 25
// fraction bits. Ampere and Ada add at most 8 products per step with 24 fraction bits. Exceptions:
// wmma on tf32, and tf32 on Ampere and Ada, add 4 products per step. FP8 products keep 13 fraction
// bits unless they are emulated, and Ada adds at most 16 of them per step.
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
	case in.A.is8BitFloat() && (in.Op == WGMMA || !newer):
		p.fraction = 13
		p.coarse = p.accumulator == F32
		if !newer {
			p.terms = min(p.terms, 16)
		}
	case in.A.is8BitFloat() && chip < Workstation:
		p.emulated = true
		p.terms /= 2
	case in.A == TF32 && (in.Op == WMMA || !newer):
		p.terms = 4
	case !newer:
		p.terms = min(p.terms, 8)
	}
	return p
}

// unroll is the number of terms per iteration of the inner loops. Shorter steps are padded with
// zeros.
const unroll = 8

// paddedTerms returns the number of decoded terms of a step, padding included.
func (p *plan) paddedTerms() int { return (p.terms + unroll - 1) / unroll * unroll }

// termIndex returns the index of term k in a row of padded steps.
func (p *plan) termIndex(k int) int {
	if p.emulated {
		k = k/4*2 + k%2 + k%4/2*p.terms
	}
	return k/p.terms*p.paddedTerms() + k%p.terms
}
