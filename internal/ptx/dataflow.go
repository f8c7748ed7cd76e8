package ptx

import "slices"

// EachRegister calls f for every register of an operand.
func (o *Operand) EachRegister(f func(register int)) {
	if o.Kind == RegOperand {
		f(o.Register)
	}
	for i := range o.Parts {
		o.Parts[i].EachRegister(f)
	}
}

// HasRegister reports whether one of an operand's registers is marked. marks has an element for
// each register of the function.
func (o *Operand) HasRegister(marks []bool) bool {
	found := false
	o.EachRegister(func(r int) { found = found || marks[r] })
	return found
}

// CopiedRegisters finds the registers whose values are only copied: through bitwise operations to
// stores to generic or local memory, and to arguments of calls. unused are the copied registers that
// no instruction reads.
//
// Unoptimised code copies structures with padding, sets bits in bytes that were never written, and
// loads values that it does not use. A read of unwritten memory into a copied register is therefore
// no sign of a defect.
func (f *Function) CopiedRegisters() (copied, unused []bool) {
	copied = make([]bool, len(f.Registers))
	for i := range copied {
		copied[i] = true
	}
	targets := make([][]int, len(f.Registers)) // registers that a register's value goes to
	stored := make([]bool, len(f.Registers))
	for i := range f.Code {
		in := &f.Code[i]
		if in.Opcode == "st" && len(in.Operands) == 2 && mayStoreToStack(in.Modifiers) {
			in.Operands[1].EachRegister(func(r int) { stored[r] = true })
			in.Operands[0].EachRegister(func(r int) { copied[r] = false })
			continue
		}
		sources, target := in.copySources()
		for j := range sources {
			sources[j].EachRegister(func(r int) {
				if target >= 0 {
					targets[r] = append(targets[r], target)
				} else {
					copied[r] = false
				}
			})
		}
	}
	for changed := true; changed; {
		changed = false
		for r, list := range targets {
			for _, t := range list {
				if copied[r] && !copied[t] {
					copied[r], changed = false, true
				}
			}
		}
	}
	unused = make([]bool, len(f.Registers))
	for r := range copied {
		unused[r] = copied[r] && !stored[r] && len(targets[r]) == 0
	}
	return copied, unused
}

// copySources returns the source operands of an instruction. For an instruction that copies bits it
// also returns the register that they go to; otherwise that is -1.
func (in *Instruction) copySources() (sources []Operand, target int) {
	if !in.HasResult() || in.Operands[0].Kind != RegOperand {
		return in.Operands, -1
	}
	switch in.Opcode {
	case "mov", "and", "or", "xor", "not", "shl", "shr", "bfi", "prmt", "selp", "cvt":
		return in.Operands[1:], in.Operands[0].Register
	}
	return in.Operands[1:], -1
}

// mayStoreToStack reports whether a store with these modifiers may be a store to the stack.
func mayStoreToStack(modifiers []string) bool {
	for _, m := range modifiers {
		switch m {
		case "global", "shared", "shared::cta", "shared::cluster":
			return false
		}
	}
	return true
}

// ReadRegisters finds the registers that any instruction reads.
func (f *Function) ReadRegisters() []bool {
	read := make([]bool, len(f.Registers))
	for i := range f.Code {
		operands := f.Code[i].Operands
		if f.Code[i].HasResult() && f.Code[i].Opcode != "wgmma" { // a product may add to its result
			operands = operands[1:]
		}
		for j := range operands {
			operands[j].EachRegister(func(r int) { read[r] = true })
		}
	}
	return read
}

// TestedRegisters finds the registers that any instruction reads, as an operand or as its guard.
func (f *Function) TestedRegisters() []bool {
	tested := f.ReadRegisters()
	for i := range f.Code {
		if guard := f.Code[i].Guard; guard >= 0 {
			tested[guard] = true
		}
	}
	return tested
}

// LoopsUntil reports whether threads leave the loop around an instruction only if the predicate that
// it sets is true. The loop has no other branch.
func (f *Function) LoopsUntil(index, predicate int) bool {
	if f.Code[index].Guard >= 0 {
		return false
	}
	for i := index + 1; i < len(f.Code); i++ {
		in := &f.Code[i]
		switch {
		case in.Opcode == "bra" && in.Guard == predicate && in.GuardNot:
			return f.runsStraight(in.Targets[0], index)
		case in.Opcode == "bra" && in.Guard == predicate:
			if i+1 == len(f.Code) || in.Targets[0] <= i {
				return false
			}
			back := &f.Code[i+1] // the branch that is not taken repeats the loop
			return back.Opcode == "bra" && back.Guard < 0 && f.runsStraight(back.Targets[0], index)
		case in.changesFlow() || in.HasResult() && in.Operands[0].hasRegister(predicate):
			return false
		}
	}
	return false
}

// runsStraight reports whether the instructions from one to another follow each other.
func (f *Function) runsStraight(from, to int) bool {
	if from > to {
		return false
	}
	for i := from; i < to; i++ {
		if f.Code[i].changesFlow() {
			return false
		}
	}
	return true
}

// changesFlow reports whether a thread may continue elsewhere than at the next instruction.
func (in *Instruction) changesFlow() bool {
	switch in.Opcode {
	case "ret", "exit", "trap", "call":
		return true
	}
	return in.Targets != nil
}

func (o *Operand) hasRegister(register int) bool {
	found := false
	o.EachRegister(func(r int) { found = found || r == register })
	return found
}

// HasResult reports whether the first operand is a result.
func (in *Instruction) HasResult() bool {
	switch in.Opcode {
	case "st", "brx", "call", "nanosleep":
		return false
	case "bar", "barrier":
		return slices.Contains(in.Modifiers, "red")
	}
	return in.writesFirstOperand() || len(in.Operands) > 0 && in.Operands[0].Kind == PairOperand
}

// writesFirstOperand reports whether the first operand may be a result: registers, not an address.
func (in *Instruction) writesFirstOperand() bool {
	return len(in.Operands) > 0 && (in.Operands[0].Kind == RegOperand || in.Operands[0].Kind == VecOperand)
}

// ExpectedRegisters finds the registers whose values a compare-and-swap expects to find in memory,
// and the registers that these are copied from.
func (f *Function) ExpectedRegisters() []bool {
	expected := make([]bool, len(f.Registers))
	changed := false
	mark := func(r int) {
		if !expected[r] {
			expected[r], changed = true, true
		}
	}
	for i := range f.Code {
		if in := &f.Code[i]; in.Opcode == "atom" && slices.Contains(in.Modifiers, "cas") && len(in.Operands) > 2 {
			in.Operands[2].EachRegister(mark)
		}
	}
	for changed {
		changed = false
		for i := range f.Code {
			in := &f.Code[i]
			if in.Opcode == "mov" && len(in.Operands) == 2 && in.Operands[0].HasRegister(expected) {
				in.Operands[1].EachRegister(mark)
			}
		}
	}
	return expected
}

// ConstantMoves finds the instructions that set a register to a constant: a mov of a constant, or of
// a register that an earlier such mov has set in the same run of straight-line code.
func (f *Function) ConstantMoves() []bool {
	moves := make([]bool, len(f.Code))
	isTarget := map[int]bool{}
	for i := range f.Code {
		for _, target := range f.Code[i].Targets {
			isTarget[target] = true
		}
	}
	holds := map[int]bool{} // registers that hold a constant here
	for i := range f.Code {
		in := &f.Code[i]
		if isTarget[i] {
			clear(holds)
		}
		if in.Opcode == "mov" && in.Guard < 0 && len(in.Operands) == 2 && in.Operands[0].Kind == RegOperand {
			from := &in.Operands[1]
			moves[i] = from.Kind == ImmOperand || from.Kind == RegOperand && holds[from.Register]
			holds[in.Operands[0].Register] = moves[i]
			continue
		}
		for j := range in.Operands {
			in.Operands[j].EachRegister(func(r int) { holds[r] = false }) // it may be a result
		}
		if in.Targets != nil {
			clear(holds)
		}
	}
	return moves
}

// ConstantRegisters finds the registers that are set only by a mov of a constant.
func (f *Function) ConstantRegisters() []bool {
	constant, other := make([]bool, len(f.Registers)), make([]bool, len(f.Registers))
	for i := range f.Code {
		in := &f.Code[i]
		if !in.writesFirstOperand() {
			continue
		}
		marked := other
		if in.Opcode == "mov" && in.Operands[1].Kind == ImmOperand {
			marked = constant
		}
		in.Operands[0].EachRegister(func(r int) { marked[r] = true })
	}
	for r := range constant {
		constant[r] = constant[r] && !other[r]
	}
	return constant
}

// Reachable finds the functions that an entry function may call, itself included, and the shared
// variables that they use. An indirect call may reach every function that is not an entry.
func (m *Module) Reachable(entry *Function) (functions map[*Function]bool, shared map[*Variable]bool) {
	functions, shared = map[*Function]bool{}, map[*Variable]bool{}
	var visit func(f *Function)
	var operand func(o *Operand)
	operand = func(o *Operand) {
		if v := o.Symbol.Variable; v != nil && v.Space == Shared {
			shared[v] = true
		}
		if f := o.Symbol.Function; f != nil {
			visit(f)
		}
		for i := range o.Parts {
			operand(&o.Parts[i])
		}
	}
	visit = func(f *Function) {
		if functions[f] {
			return
		}
		functions[f] = true
		for i := range f.Code {
			in := &f.Code[i]
			if in.Opcode == "call" && in.Operands[1].Kind == RegOperand {
				for _, other := range m.Functions {
					if !other.Entry {
						visit(other)
					}
				}
			}
			for j := range in.Operands {
				operand(&in.Operands[j])
			}
		}
	}
	visit(entry)
	return functions, shared
}
