package audit

import (
	"slices"

	"attune/internal/ptx"
)

// origin is where the value of a register may come from. A register with several definitions has
// the origins of all.
type origin struct {
	// known: from an argument, from memory, or from the address of a symbol. A register that is not
	// known is computed from constants and special registers only.
	known bool
	// variables of the module whose address the value is derived from, and parameters that lead to
	// outputs.
	variables []*ptx.Variable
}

// add merges another origin and reports whether that changed anything.
func (o *origin) add(other origin) (changed bool) {
	if other.known && !o.known {
		o.known, changed = true, true
	}
	for _, v := range other.variables {
		if !slices.Contains(o.variables, v) {
			o.variables, changed = append(o.variables, v), true
		}
	}
	return changed
}

// trace computes the origins of all registers. It ignores the order of instructions, so that a
// loop needs no special case.
func (a *auditor) trace() {
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
	if to := paramStored(in); to != nil {
		return a.param(to).add(a.of(f, &in.Operands[1]))
	}
	var from origin
	for i := range in.Operands[1:] {
		from.add(a.read(f, in, &in.Operands[i+1]))
	}
	if in.Opcode == "alloca" || in.Opcode == "stacksave" {
		from.known = true
	}
	return a.define(f, &in.Operands[0], from)
}

// paramStored is the parameter that st.param sets, or nil for another instruction.
func paramStored(in *ptx.Instruction) *ptx.Variable {
	if in.Opcode != "st" || !slices.Contains(spacesOf(in), ptx.Param) || len(in.Operands) != 2 || in.Operands[0].Kind != ptx.AddrOperand {
		return nil
	}
	return in.Operands[0].Parts[0].Symbol.Variable
}

// read is the origin of a source operand. A load returns what is in memory: it may be an address
// that the host has put there, but not one of a variable, because storing that is reported.
func (a *auditor) read(f *ptx.Function, in *ptx.Instruction, o *ptx.Operand) origin {
	if o.Kind != ptx.AddrOperand {
		return a.of(f, o)
	}
	v := o.Parts[0].Symbol.Variable
	if v != nil && v.Space == ptx.Param && in.Opcode == "ld" {
		return *a.param(v)
	}
	return origin{known: true}
}

// of is the origin of an operand's value.
func (a *auditor) of(f *ptx.Function, o *ptx.Operand) (from origin) {
	switch o.Kind {
	case ptx.RegOperand:
		return a.values[f][o.Register]
	case ptx.SymOperand:
		from.known = true
		v := o.Symbol.Variable
		switch {
		case v == nil:
		case v.Space == ptx.Param:
			from.add(*a.param(v))
		case v.Space == ptx.Global || v.Space == ptx.Const:
			from.variables = []*ptx.Variable{v}
		}
	}
	for i := range o.Parts {
		from.add(a.of(f, &o.Parts[i]))
	}
	return from
}

// param is the origin of a parameter's value.
func (a *auditor) param(v *ptx.Variable) *origin {
	if a.params[v] == nil {
		a.params[v] = &origin{}
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
			changed = a.receive(f, &results[i], origin{known: true}) || changed
		}
	}
	return changed
}

// passToAll gives every parameter of a function a known origin: an unknown call may pass anything.
func (a *auditor) passToAll() (changed bool) {
	for _, f := range a.functions {
		for _, p := range f.Params {
			changed = a.pass(f, p, origin{known: true}) || changed
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
