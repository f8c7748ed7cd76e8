package sim

import (
	"slices"

	"attune/internal/ptx"
)

// copied finds the registers whose values do nothing but move on: through bitwise operations to stores of generic or local memory, and to arguments. Code that
// was not optimised copies structures with holes in them, sets bits of bytes that nobody has written, and loads what it does not use; that it reads them then
// says nothing. unused are those of them that are never read.
func copied(f *ptx.Function) (good, unused []bool) {
	good = make([]bool, len(f.Registers))
	for i := range good {
		good[i] = true
	}
	into := make([][]int, len(f.Registers)) // registers that a register's value goes to
	stored := make([]bool, len(f.Registers))
	for i := range f.Code {
		in := &f.Code[i]
		sources := in.Operands
		target := -1
		switch in.Opcode {
		case "st":
			if len(in.Operands) != 2 || !movesOn(in.Modifiers) {
				break
			}
			eachRegister(&in.Operands[1], func(r int) { stored[r] = true })
			sources = in.Operands[:1] // what is stored may be anything
		case "mov", "and", "or", "xor", "not", "shl", "shr", "bfi", "prmt", "selp", "cvt":
			if len(in.Operands) > 0 && in.Operands[0].Kind == ptx.RegOperand {
				target, sources = in.Operands[0].Register, in.Operands[1:]
			}
		default:
			if len(in.Operands) > 0 && in.Operands[0].Kind == ptx.RegOperand {
				sources = in.Operands[1:] // a result
			}
		}
		for j := range sources {
			eachRegister(&sources[j], func(r int) {
				if target >= 0 {
					into[r] = append(into[r], target)
				} else {
					good[r] = false
				}
			})
		}
	}
	for changed := true; changed; {
		changed = false
		for r, targets := range into {
			for _, t := range targets {
				if good[r] && !good[t] {
					good[r], changed = false, true
				}
			}
		}
	}
	unused = make([]bool, len(f.Registers))
	for r := range good {
		unused[r] = good[r] && !stored[r] && len(into[r]) == 0
	}
	return good, unused
}

// isRead says whether any instruction reads the register, or one of the registers, of an operand.
func (c *code) isRead(o *ptx.Operand) bool {
	if c.read == nil {
		c.read = readRegisters(c.fn)
	}
	return hasOneOf(o, c.read)
}

// hasOneOf says whether one of the registers of an operand is among those marked.
func hasOneOf(o *ptx.Operand, marked []bool) bool {
	found := false
	eachRegister(o, func(r int) { found = found || marked[r] })
	return found
}

// readRegisters finds the registers that any instruction reads.
func readRegisters(f *ptx.Function) []bool {
	read := make([]bool, len(f.Registers))
	for i := range f.Code {
		operands := f.Code[i].Operands
		if len(operands) > 0 && (operands[0].Kind == ptx.RegOperand || operands[0].Kind == ptx.VecOperand) && f.Code[i].Opcode != "call" {
			operands = operands[1:] // a result
		}
		for j := range operands {
			eachRegister(&operands[j], func(r int) { read[r] = true })
		}
	}
	return read
}

// isGuess says whether what is loaded to an operand is what a compare-and-swap expects to find. If somebody else has changed it meanwhile, the swap does not
// take place: loops begin so, with a plain load.
func (c *code) isGuess(o *ptx.Operand) bool {
	if c.guessed == nil {
		c.guessed = guesses(c.fn)
	}
	return hasOneOf(o, c.guessed)
}

// guesses finds the registers whose values are compared by a compare-and-swap.
func guesses(f *ptx.Function) []bool {
	guessed := make([]bool, len(f.Registers))
	any := false
	note := func(r int) { guessed[r], any = true, true }
	for i := range f.Code {
		if in := &f.Code[i]; in.Opcode == "atom" && slices.Contains(in.Modifiers, "cas") && len(in.Operands) > 2 {
			eachRegister(&in.Operands[2], note)
		}
	}
	for any {
		any = false
		for i := range f.Code {
			in := &f.Code[i]
			if in.Opcode != "mov" || len(in.Operands) != 2 {
				continue
			}
			if hasOneOf(&in.Operands[0], guessed) {
				eachRegister(&in.Operands[1], func(r int) {
					if !guessed[r] {
						note(r)
					}
				})
			}
		}
	}
	return guessed
}

// setsConstants finds the instructions that give a register a constant: a mov of one, or of a register that holds one since such an instruction before it
// with nothing but instructions in a row between the two.
func setsConstants(f *ptx.Function) []bool {
	sets := make([]bool, len(f.Code))
	leads := map[int]bool{}
	for i := range f.Code {
		for _, target := range f.Code[i].Targets {
			leads[target] = true
		}
	}
	holds := map[int]bool{} // registers that hold a constant here
	for i := range f.Code {
		in := &f.Code[i]
		if leads[i] {
			clear(holds)
		}
		if in.Opcode == "mov" && in.Guard < 0 && len(in.Operands) == 2 && in.Operands[0].Kind == ptx.RegOperand {
			from := &in.Operands[1]
			sets[i] = from.Kind == ptx.ImmOperand || from.Kind == ptx.RegOperand && holds[from.Register]
			holds[in.Operands[0].Register] = sets[i]
			continue
		}
		for j := range in.Operands {
			eachRegister(&in.Operands[j], func(r int) { holds[r] = false }) // it may be a result
		}
		if in.Targets != nil {
			clear(holds)
		}
	}
	return sets
}

// writesAlike says whether two operations write one value on purpose, if they do: they are one, stand in one source line, which the compiler has unrolled, or
// both store a constant, as when a flag is set in several places.
func (p *Program) writesAlike(a, b int32) bool {
	if a == b {
		return true
	}
	one, other := p.ops[a], p.ops[b]
	return one.line() == other.line() || one.op().storesConstant() && other.op().storesConstant()
}

func (o *op) storesConstant() bool { return o.mem != nil && o.mem.constant }

// isConstant says whether an operand is a constant, or a register that is never set to anything but constants.
func (c *code) isConstant(o *ptx.Operand) bool {
	if o.Kind != ptx.RegOperand {
		return o.Kind == ptx.ImmOperand
	}
	if c.onlyConstant == nil {
		c.onlyConstant = constantRegisters(c.fn)
	}
	return c.onlyConstant[o.Register]
}

// constantRegisters finds the registers that only a mov of a constant sets.
func constantRegisters(f *ptx.Function) []bool {
	constant, otherwise := make([]bool, len(f.Registers)), make([]bool, len(f.Registers))
	for i := range f.Code {
		in := &f.Code[i]
		if len(in.Operands) == 0 || in.Operands[0].Kind != ptx.RegOperand && in.Operands[0].Kind != ptx.VecOperand {
			continue
		}
		marked := otherwise
		if in.Opcode == "mov" && in.Operands[1].Kind == ptx.ImmOperand {
			marked = constant
		}
		eachRegister(&in.Operands[0], func(r int) { marked[r] = true })
	}
	for r := range constant {
		constant[r] = constant[r] && !otherwise[r]
	}
	return constant
}

// movesOn says whether a store may be one to the stack.
func movesOn(modifiers []string) bool {
	for _, m := range modifiers {
		switch m {
		case "global", "shared", "shared::cta", "shared::cluster":
			return false
		}
	}
	return true
}

func eachRegister(o *ptx.Operand, f func(int)) {
	if o.Kind == ptx.RegOperand {
		f(o.Register)
	}
	for i := range o.Parts {
		eachRegister(&o.Parts[i], f)
	}
}
