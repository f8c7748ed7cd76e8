package audit

import (
	"slices"

	"attune/internal/ptx"
)

// place is where an address may point, as far as that is local memory. A register with several
// definitions has the places of all.
type place struct {
	// set: a definition is known. Until then the other fields mean nothing.
	set bool
	// bases are local variables, or parameters of a function by which a caller may pass the address
	// of one.
	bases []*ptx.Variable
	// fixed: the address is offset bytes behind the only base. Otherwise it may be anywhere in it.
	fixed  bool
	offset int64
	// other: the address may also be one that has no base.
	other bool
}

// elsewhere is the place of a value that is no address in local memory, as far as is known.
func elsewhere() place { return place{set: true, other: true} }

// inside is the place of an address at an offset in a variable.
func inside(v *ptx.Variable, offset int64) place {
	return place{set: true, bases: []*ptx.Variable{v}, fixed: true, offset: offset}
}

// add merges the place of another definition and reports whether that changed anything.
func (p *place) add(from place) (changed bool) {
	switch {
	case !from.set:
		return false
	case !p.set:
		*p = from
		return true
	}
	fixed := p.fixed && from.fixed && p.offset == from.offset && sameVariables(p.bases, from.bases)
	changed = p.fixed != fixed || from.other && !p.other
	p.fixed, p.other = fixed, p.other || from.other
	for _, v := range from.bases {
		if !slices.Contains(p.bases, v) {
			p.bases, changed = append(slices.Clip(p.bases), v), true
		}
	}
	return changed
}

// shift is the place of an address plus a distance.
func (p place) shift(distance int64) place {
	p.offset += distance
	return p
}

// combine is the place of a value that is computed from several. A distance has no base, so what is
// added to an address does not lead elsewhere.
func combine(sources []place) place {
	result := place{set: true}
	for _, s := range sources {
		if !s.set {
			return place{}
		}
		if len(s.bases) == 0 {
			continue
		}
		result.add(place{set: true, bases: s.bases, other: s.other})
	}
	result.other = result.other || len(result.bases) == 0
	return result
}

// stack has the places of all values: in registers, and in the parameters of calls and functions.
type stack struct {
	values  map[*ptx.Function][]place
	params  map[*ptx.Variable]*place
	dynamic map[*ptx.Instruction]*ptx.Variable // what alloca returns the address of
	escaped map[*ptx.Variable]bool             // bases whose address is in memory or in another function
	needed  map[*ptx.Variable]bool             // parameters to memory that the function reads before it sets it
}

// traceStack computes the places of all values. It ignores the order of instructions, as trace does.
func (a *auditor) traceStack() *stack {
	s := &stack{
		values: map[*ptx.Function][]place{}, params: map[*ptx.Variable]*place{}, dynamic: map[*ptx.Instruction]*ptx.Variable{},
		escaped: map[*ptx.Variable]bool{}, needed: map[*ptx.Variable]bool{},
	}
	for _, f := range a.functions {
		s.start(f)
		for changed := true; changed; {
			changed = false
			for i := range f.Code {
				changed = s.step(f, &f.Code[i]) || changed
			}
		}
		for i := range f.Code {
			s.escapes(f, &f.Code[i])
		}
		for _, v := range f.Returns {
			if v.Space == ptx.Reg {
				s.mark(s.values[f][v.Register])
			}
		}
	}
	s.traceNeeds(a.functions)
	return s
}

// start sets the places that a function begins with. A kernel's arguments lead to global memory.
func (s *stack) start(f *ptx.Function) {
	values := make([]place, len(f.Registers))
	for r, set := range setRegisters(f) {
		if !set {
			values[r] = elsewhere()
		}
	}
	for _, p := range f.Params {
		at := inside(p, 0)
		if f.Entry {
			at = elsewhere()
		}
		if p.Space == ptx.Reg {
			values[p.Register] = at
		} else {
			s.params[p] = &at
		}
	}
	s.values[f] = values
}

// step applies one instruction to the places.
func (s *stack) step(f *ptx.Function, in *ptx.Instruction) (changed bool) {
	if len(in.Operands) == 0 {
		return false
	}
	isParam := slices.Contains(spacesOf(in), ptx.Param)
	if in.Opcode == "st" && isParam && len(in.Operands) == 2 && in.Operands[0].Kind == ptx.AddrOperand {
		v := in.Operands[0].Parts[0].Symbol.Variable
		return v != nil && s.param(v).add(s.of(f, &in.Operands[1]))
	}
	from := elsewhere()
	switch {
	case in.Opcode == "call":
		for i := range in.Operands[0].Parts {
			if v := in.Operands[0].Parts[i].Symbol.Variable; v != nil {
				changed = s.param(v).add(from) || changed
			}
		}
	case in.Opcode == "ld" && isParam && len(in.Operands) == 2 && in.Operands[1].Kind == ptx.AddrOperand:
		if v := in.Operands[1].Parts[0].Symbol.Variable; v != nil {
			from = *s.param(v)
		}
	case slices.ContainsFunc(in.Operands, func(o ptx.Operand) bool { return o.Kind == ptx.AddrOperand }):
	default:
		from = s.result(f, in)
	}
	if !isResult(&in.Operands[0]) {
		return changed
	}
	in.Operands[0].EachRegister(func(r int) { changed = s.values[f][r].add(from) || changed })
	return changed
}

// result is the place of what an instruction computes from registers.
func (s *stack) result(f *ptx.Function, in *ptx.Instruction) place {
	sources := make([]place, len(in.Operands)-1)
	for i := range sources {
		sources[i] = s.of(f, &in.Operands[i+1])
	}
	last := &in.Operands[len(in.Operands)-1]
	isDistance := last.Kind == ptx.ImmOperand && len(sources) == 2 && isInteger(typeOf(in))
	switch {
	case in.Opcode == "alloca":
		if s.dynamic[in] == nil {
			s.dynamic[in] = &ptx.Variable{Name: "alloca", Space: ptx.Local}
		}
		return inside(s.dynamic[in], 0)
	case in.Opcode == "cvta", in.Opcode == "mov" && in.Operands[0].Kind == ptx.RegOperand && len(sources) == 1 && last.Kind != ptx.VecOperand:
		return sources[0]
	case in.Opcode == "add" && isDistance:
		return sources[0].shift(int64(last.Value))
	case in.Opcode == "sub" && isDistance:
		return sources[0].shift(-int64(last.Value))
	case in.Opcode == "selp" && len(sources) == 3:
		from := sources[0]
		from.add(sources[1])
		return from
	}
	return combine(sources)
}

// of is the place of an operand's value.
func (s *stack) of(f *ptx.Function, o *ptx.Operand) place {
	switch {
	case o.Kind == ptx.RegOperand:
		return s.values[f][o.Register]
	case o.Kind == ptx.SymOperand && o.Symbol.Variable != nil && o.Symbol.Variable.Space == ptx.Local:
		return inside(o.Symbol.Variable, o.Offset)
	case len(o.Parts) == 0:
		return elsewhere()
	}
	parts := make([]place, len(o.Parts))
	for i := range o.Parts {
		parts[i] = s.of(f, &o.Parts[i])
	}
	return combine(parts)
}

// param is the place of a parameter's value.
func (s *stack) param(v *ptx.Variable) *place {
	if s.params[v] == nil {
		s.params[v] = &place{}
	}
	return s.params[v]
}

// argument is the place of an argument of a call: a register or a variable of space .param.
func (s *stack) argument(f *ptx.Function, o *ptx.Operand) place {
	if v := o.Symbol.Variable; v != nil && v.Space == ptx.Param {
		return *s.param(v)
	}
	return s.of(f, o)
}

// escapes marks the bases whose address an instruction passes to a function or puts into memory.
func (s *stack) escapes(f *ptx.Function, in *ptx.Instruction) {
	if in.Opcode == "call" {
		for i := range in.Operands[2].Parts {
			s.mark(s.argument(f, &in.Operands[2].Parts[i]))
		}
		return
	}
	isAddress := func(o ptx.Operand) bool { return o.Kind == ptx.AddrOperand }
	if in.Opcode == "ld" || !slices.ContainsFunc(in.Operands, isAddress) {
		return
	}
	for i := range in.Operands {
		if !isAddress(in.Operands[i]) {
			s.mark(s.of(f, &in.Operands[i]))
		}
	}
}

func (s *stack) mark(p place) {
	for _, v := range p.bases {
		s.escaped[v] = true
	}
}
