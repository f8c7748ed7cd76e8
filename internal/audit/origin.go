package audit

import (
	"slices"
	"strings"

	"attune/internal/ptx"
)

// origin is where the value of a register may come from. A register with several definitions has
// the origins of all.
type origin struct {
	// set: a definition of the register is known. Until then the other fields mean nothing.
	set bool
	// known: from an argument, from memory, or from the address of a symbol. A register that is not
	// known is computed from constants and special registers only.
	known bool
	// variables of the module whose address the value depends on, and parameters that lead to
	// outputs.
	variables []*ptx.Variable
	form      form // of the dependence; only with variables
}

// none is the origin of a value that depends on no address.
func none(known bool) origin { return origin{set: true, known: known} }

// add merges the origin of another definition and reports whether that changed anything.
func (o *origin) add(other origin) (changed bool) {
	if !other.set {
		return false
	}
	form := max(o.form, other.form)
	if o.set && !sameVariables(o.variables, other.variables) {
		form = max(form, choice)
	}
	if !o.set || other.known && !o.known || form != o.form {
		changed = true
	}
	o.set, o.known, o.form = true, o.known || other.known, form
	for _, v := range other.variables {
		if !slices.Contains(o.variables, v) {
			o.variables, changed = append(slices.Clip(o.variables), v), true
		}
	}
	return changed
}

func sameVariables(a, b []*ptx.Variable) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(v *ptx.Variable) bool { return !slices.Contains(b, v) })
}

// trace computes the origins of all registers. It ignores the order of instructions, so that a
// loop needs no special case. Registers that nothing sets count as independent of addresses, and so
// does the first value of registers that are set only from each other.
func (a *auditor) trace() {
	for _, f := range a.functions {
		for r, set := range setRegisters(f) {
			a.values[f][r].set = !set || f.Registers[r].Type == ptx.Pred
		}
		a.values[f][len(f.Registers)].set = true // the carry flag
	}
	a.traceDefinitions()
	for _, f := range a.functions {
		for r := range a.values[f] {
			a.values[f][r].set = true
		}
	}
	for _, p := range a.params {
		p.set = true
	}
	a.settled = true
	a.traceDefinitions()
}

func (a *auditor) traceDefinitions() {
	for changed := true; changed; {
		changed = false
		for _, f := range a.functions {
			for i := range f.Code {
				changed = a.step(f, &f.Code[i]) || changed
			}
		}
	}
}

// step applies one instruction to the origins.
func (a *auditor) step(f *ptx.Function, in *ptx.Instruction) (changed bool) {
	if in.Opcode == "call" {
		return a.stepCall(f, in)
	}
	if len(in.Operands) == 0 {
		return false
	}
	if to := a.stored(in); to != nil {
		return to.add(scrambledIf(typeOf(in).Bits() < addressBits, a.of(f, &in.Operands[1])))
	}
	from := a.result(f, in)
	if slices.Contains(in.Modifiers, "cc") { // the carry flag has a place after the registers
		changed = a.values[f][len(f.Registers)].add(scrambledIf(true, from))
	}
	return a.define(f, &in.Operands[0], from) || changed
}

// stored is the origin of the memory that a store sets, where that memory is tracked: a parameter,
// or all of local memory. It is nil for another instruction.
func (a *auditor) stored(in *ptx.Instruction) *origin {
	if in.Opcode != "st" || len(in.Operands) != 2 || in.Operands[0].Kind != ptx.AddrOperand {
		return nil
	}
	switch spaces := spacesOf(in); {
	case slices.Contains(spaces, ptx.Local):
		return &a.local
	case slices.Contains(spaces, ptx.Param) && in.Operands[0].Parts[0].Symbol.Variable != nil:
		return a.param(in.Operands[0].Parts[0].Symbol.Variable)
	}
	return nil
}

// read is the origin of a source operand. A load returns what is in memory. That may be an address
// that the host has put there. It is one of a variable or an output only in parameters and in local
// memory, because storing such an address elsewhere is reported. A value that is loaded from a
// scrambled address depends on it too: a table can return the bits of an index.
func (a *auditor) read(f *ptx.Function, in *ptx.Instruction, o *ptx.Operand) origin {
	if o.Kind != ptx.AddrOperand {
		return a.of(f, o)
	}
	base := a.of(f, &o.Parts[0])
	spaces := spacesOf(in)
	if in.Opcode == "ld" && slices.Contains(spaces, ptx.Param) {
		base.known = true
		return scrambledIf(typeOf(in).Bits() < addressBits, base)
	}
	loaded := origin{set: base.set, known: true}
	if base.form == scrambled {
		loaded.variables, loaded.form = base.variables, scrambled
	}
	if base.set && (len(spaces) == 0 || slices.Contains(spaces, ptx.Local)) {
		loaded.add(scrambledIf(typeOf(in).Bits() < addressBits, a.local))
	}
	return loaded
}

// of is the origin of an operand's value.
func (a *auditor) of(f *ptx.Function, o *ptx.Operand) origin {
	switch o.Kind {
	case ptx.RegOperand:
		return a.values[f][o.Register]
	case ptx.SymOperand:
		v := o.Symbol.Variable
		switch {
		case v == nil:
		case v.Space == ptx.Param:
			from := *a.param(v)
			from.known = true
			return from
		case v.Space == ptx.Global || v.Space == ptx.Const:
			return origin{set: true, known: true, variables: []*ptx.Variable{v}}
		}
		return none(true)
	case ptx.SpecialOperand:
		// The driver passes the address of the barrier of a cooperative grid in these registers, which
		// are a finding of their own.
		return none(strings.HasPrefix(o.Special, "envreg"))
	}
	if len(o.Parts) == 0 {
		return none(false)
	}
	parts := make([]origin, len(o.Parts))
	for i := range o.Parts {
		parts[i] = a.of(f, &o.Parts[i])
	}
	return mix(parts...)
}

// param is the origin of a parameter's value.
func (a *auditor) param(v *ptx.Variable) *origin {
	if a.params[v] == nil {
		a.params[v] = &origin{set: a.settled}
	}
	return a.params[v]
}

// isResult reports whether the first operand of an instruction may be a result: registers, not an
// address.
func isResult(o *ptx.Operand) bool {
	switch o.Kind {
	case ptx.RegOperand, ptx.VecOperand, ptx.PairOperand, ptx.ListOperand:
		return true
	}
	return false
}

// define merges an origin into the registers of a result. A predicate holds no address.
func (a *auditor) define(f *ptx.Function, result *ptx.Operand, from origin) (changed bool) {
	if !isResult(result) {
		return false
	}
	result.EachRegister(func(r int) {
		if f.Registers[r].Type != ptx.Pred {
			changed = a.values[f][r].add(from) || changed
		}
	})
	return changed
}

// stepCall passes arguments and return values between the caller and every possible callee.
func (a *auditor) stepCall(f *ptx.Function, in *ptx.Instruction) (changed bool) {
	callees := in.Callees
	if direct := in.Operands[1].Symbol.Function; direct != nil {
		callees = []*ptx.Function{direct}
	}
	results, arguments := in.Operands[0].Parts, in.Operands[2].Parts
	for _, callee := range callees {
		if callee.Code == nil {
			continue
		}
		for i := range min(len(arguments), len(callee.Params)) {
			changed = a.pass(callee, callee.Params[i], a.of(f, &arguments[i])) || changed
		}
		for i := range min(len(results), len(callee.Returns)) {
			changed = a.receive(f, &results[i], a.returned(callee, callee.Returns[i])) || changed
		}
	}
	if callees == nil {
		changed = a.passToAll() || changed
	}
	if callees == nil || callees[0].Code == nil {
		for i := range results {
			changed = a.receive(f, &results[i], none(true)) || changed
		}
	}
	return changed
}

// passToAll gives every parameter of a function a known origin: an unknown call may pass anything.
func (a *auditor) passToAll() (changed bool) {
	for _, f := range a.functions {
		for _, p := range f.Params {
			changed = a.pass(f, p, none(true)) || changed
		}
	}
	return changed
}

// pass merges the origin of an argument into a parameter of a function.
func (a *auditor) pass(callee *ptx.Function, to *ptx.Variable, from origin) bool {
	if to.Space == ptx.Reg {
		return a.values[callee][to.Register].add(from)
	}
	return a.param(to).add(from)
}

// returned is the origin of a return value.
func (a *auditor) returned(callee *ptx.Function, v *ptx.Variable) origin {
	if v.Space == ptx.Reg {
		return a.values[callee][v.Register]
	}
	return *a.param(v)
}

// receive merges the origin of a return value into an operand of the caller: a register, or a
// variable of space .param.
func (a *auditor) receive(f *ptx.Function, to *ptx.Operand, from origin) bool {
	if v := to.Symbol.Variable; v != nil {
		return a.param(v).add(from)
	}
	return a.define(f, to, from)
}
