package audit

import (
	"slices"

	"attune/internal/finding"
	"attune/internal/ptx"
)

// form is how a value depends on the addresses of variables and outputs. A kernel that launders an
// address makes a copy of it that no longer depends on it in a way that the audit can follow: by
// branches on its bits, by memory, or by a table of bits. So an address must keep its form up to
// the access that uses it. Values of other forms must not decide anything.
type form uint8

// The forms, from the most to the least that is known.
const (
	exact     form = iota // the address of one variable plus a distance
	choice                // the address of one of several variables plus a distance, or no address
	scrambled             // any other function of addresses
)

const addressBits = 64

// outputAlign is the alignment of the buffers of outputs, in bytes: that of cudaMalloc.
const outputAlign = 256

// mix is the origin of a value that is computed from several in an unknown way.
func mix(sources ...origin) origin {
	from := none(false)
	for _, s := range sources {
		from.set = from.set && s.set
		from.known = from.known || s.known
		for _, v := range s.variables {
			if !slices.Contains(from.variables, v) {
				from.variables = append(from.variables, v)
			}
		}
	}
	return scrambledIf(true, from)
}

// scrambledIf is an origin, without a form if the condition holds.
func scrambledIf(condition bool, from origin) origin {
	if condition && len(from.variables) > 0 {
		from.form = scrambled
	}
	return from
}

// result is the origin of the result of an instruction that is not a call.
func (a *auditor) result(f *ptx.Function, in *ptx.Instruction) origin {
	sources := make([]origin, len(in.Operands)-1)
	derived := 0 // sources that depend on an address
	for i := range sources {
		sources[i] = a.read(f, in, &in.Operands[i+1])
		if len(sources[i].variables) > 0 {
			derived++
		}
	}
	from := mix(sources...)
	switch in.Opcode {
	case "alloca", "stacksave":
		from.known = true
	case "cvta": // to shared memory, which no launch outlives, even at a constant place such as CUDA's reserved part
		from.known = from.known || slices.Contains(spacesOf(in), ptx.Shared) && !slices.Contains(in.Modifiers, "to")
	case "addc", "subc", "madc":
		return mix(from, a.values[f][len(f.Registers)])
	}
	if !from.set || derived == 0 {
		return from
	}
	if kept, ok := keepForm(in, sources, derived); ok {
		kept.known = from.known
		return kept
	}
	return from
}

// keepForm is the origin of the result of an instruction that moves an address or adds a distance
// to it. ok is false for another instruction.
func keepForm(in *ptx.Instruction, sources []origin, derived int) (from origin, ok bool) {
	first := sources[0]
	only := func(i int) bool { return i < len(sources) && derived == 1 && len(sources[i].variables) > 0 }
	switch in.Opcode {
	case "ld", "ldu", "shfl":
		return first, only(0)
	case "mov", "cvta":
		return first, len(sources) == 1 && in.Operands[0].Kind == ptx.RegOperand && in.Operands[1].Kind != ptx.VecOperand
	case "cvt":
		return first, isNarrowing(in)
	case "selp":
		if len(sources) == 3 && len(sources[2].variables) == 0 {
			first.add(sources[1])
			return first, true
		}
	case "add", "sub", "mad":
		return addForm(in, sources, only)
	case "and", "or":
		if len(sources) == 2 && only(0) && in.Operands[2].Kind == ptx.ImmOperand && first.form != scrambled {
			return maskForm(in, first, in.Operands[2].Value)
		}
	}
	return origin{}, false
}

// isNarrowing reports whether a cvt keeps the low bits of an integer and adds none.
func isNarrowing(in *ptx.Instruction) bool {
	if len(in.Modifiers) != 2 {
		return false
	}
	to, _ := ptx.ParseType(in.Modifiers[0])
	from, _ := ptx.ParseType(in.Modifiers[1])
	return isInteger(to) && isInteger(from) && to.Bits() <= from.Bits()
}

func isInteger(t ptx.Type) bool {
	return slices.Contains([]ptx.Type{ptx.U32, ptx.S32, ptx.U64, ptx.S64}, t)
}

// addForm is the origin of a sum, a difference or a product plus an addend.
func addForm(in *ptx.Instruction, sources []origin, only func(int) bool) (from origin, ok bool) {
	if !isInteger(typeOf(in)) || slices.Contains(in.Modifiers, "cc") || slices.Contains(in.Modifiers, "sat") {
		return origin{}, false
	}
	switch {
	case in.Opcode == "mad":
		if only(2) {
			return sources[2], true
		}
	case only(0):
		return sources[0], true
	case in.Opcode == "add" && only(1):
		return sources[1], true
	case in.Opcode == "sub" && sameAddress(sources): // a distance inside of one variable
		return none(true), true
	}
	return origin{}, false
}

// sameAddress reports whether the first two sources are addresses in one variable.
func sameAddress(sources []origin) bool {
	return len(sources) >= 2 && sources[0].form == exact && sources[1].form == exact && len(sources[0].variables) == 1 &&
		sameVariables(sources[0].variables, sources[1].variables)
}

// maskForm is the origin of an address with constant bits removed or added. Bits below the
// alignment of the variable belong to the distance.
func maskForm(in *ptx.Instruction, from origin, mask uint64) (origin, bool) {
	align := uint64(outputAlign)
	for _, v := range from.variables {
		if v.Space != ptx.Param || v.Size()*8 != addressBits {
			align = min(align, uint64(max(v.Align, 1)))
		}
	}
	if slices.Contains(in.Modifiers, "b32") {
		mask = uint64(int64(int32(mask))) // written with or without a sign
	}
	if in.Opcode == "and" && mask < align {
		return none(true), true
	}
	return from, in.Opcode == "and" && ^mask < align || in.Opcode == "or" && mask < align
}

// typeOf is the type of an instruction: its last modifier.
func typeOf(in *ptx.Instruction) ptx.Type {
	if len(in.Modifiers) == 0 {
		return ptx.NoType
	}
	t, _ := ptx.ParseType(in.Modifiers[len(in.Modifiers)-1])
	return t
}

// decisions reports addresses that decide a predicate, a branch or a barrier. What happens then
// depends on the address, and no register shows it.
func (a *auditor) decisions(f *ptx.Function, in *ptx.Instruction) {
	if len(in.Operands) == 0 || in.Opcode == "isspacep" {
		return
	}
	operands := in.Operands
	switch {
	case in.Opcode == "call":
		operands = operands[1:2] // the callee
	case !in.HasResult():
		if slices.ContainsFunc(operands, func(o ptx.Operand) bool { return o.Kind == ptx.AddrOperand }) {
			return // addresses has reported what is stored
		}
	case !definesPredicate(f, &operands[0]) || in.Opcode == "setp" && a.isTame(f, in):
		return
	case in.Opcode == "shfl": // its predicate is about the lanes
		operands = operands[2:]
	default:
		operands = operands[1:]
	}
	for i := range operands {
		a.escapes(f, in, &operands[i], "taken apart by a comparison")
	}
}

func definesPredicate(f *ptx.Function, result *ptx.Operand) (found bool) {
	result.EachRegister(func(r int) { found = found || f.Registers[r].Type == ptx.Pred })
	return found
}

// isTame reports whether a comparison tells nothing about where a variable lies: it compares an
// address with null, or two addresses in one variable. An order tells more than equality, because a
// sum may wrap around. It is tame in outputs all the same: honest kernels loop while p < end, and
// reads of outputs show in other ways too.
func (a *auditor) isTame(f *ptx.Function, in *ptx.Instruction) bool {
	if len(in.Operands) < 3 {
		return false
	}
	x, y := a.of(f, &in.Operands[1]), a.of(f, &in.Operands[2])
	same := sameAddress([]origin{x, y})
	if !slices.Contains(in.Modifiers, "eq") && !slices.Contains(in.Modifiers, "ne") {
		return same && x.variables[0].Space == ptx.Param
	}
	isNull := in.Operands[2].Kind == ptx.ImmOperand && in.Operands[2].Value == 0
	return same || isNull && x.form != scrambled
}

// escapes reports the variables and outputs whose address an operand may carry to where the
// analysis does not follow it.
func (a *auditor) escapes(f *ptx.Function, in *ptx.Instruction, o *ptx.Operand, how string) {
	for _, v := range a.of(f, o).variables {
		a.escape(v, in, how)
	}
}

func (a *auditor) escape(v *ptx.Variable, in *ptx.Instruction, how string) {
	switch v.Space {
	case ptx.Global:
		a.report(finding.ModuleMemory, v.Name, in, "the address of the variable %s is %s", v.Name, how)
	case ptx.Param:
		a.report(finding.OutputRead, v.Name, in, "the address of an output (%s) is %s, so that the kernel could read it", v.Name, how)
	}
}
