package audit

import (
	"slices"
	"strings"

	"attune/internal/finding"
	"attune/internal/ptx"
)

// addresses reports what the memory operands of an instruction lead to.
func (a *auditor) addresses(f *ptx.Function, in *ptx.Instruction) {
	if in.Opcode == "call" {
		return
	}
	spaces := spacesOf(in)
	number := 0 // of the address operand
	for i := range in.Operands {
		o := &in.Operands[i]
		if o.Kind != ptx.AddrOperand {
			if number > 0 && a.stored(in) == nil { // a value that st, red or atom puts into memory
				a.escapes(f, in, o, "stored in memory")
			}
			continue
		}
		space := ptx.Generic
		if len(spaces) > 0 {
			space = spaces[min(number, len(spaces)-1)]
		}
		switch {
		case space == ptx.Global || space == ptx.Generic:
			a.address(f, in, o, number)
		case in.Opcode != "ld" && a.of(f, &o.Parts[0]).form == scrambled: // a later load finds what was written there
			a.escapes(f, in, &o.Parts[0], "taken apart in another address")
		}
		number++
	}
}

// spacesOf lists the state spaces among the modifiers. The first belongs to the first address, the
// second to the second.
func spacesOf(in *ptx.Instruction) []ptx.Space {
	var all []ptx.Space
	for _, m := range in.Modifiers {
		name, _, _ := strings.Cut(m, "::")
		for _, s := range []ptx.Space{ptx.Const, ptx.Global, ptx.Local, ptx.Param, ptx.Shared} {
			if name == s.String() {
				all = append(all, s)
			}
		}
	}
	return all
}

// address reports an address in global memory: of a variable that the instruction may write, or of
// no known origin.
func (a *auditor) address(f *ptx.Function, in *ptx.Instruction, o *ptx.Operand, number int) {
	base := &o.Parts[0]
	from := a.of(f, base)
	tensor := slices.Contains(in.Modifiers, "tensor") && len(o.Parts) > 1
	for _, v := range from.variables {
		switch {
		case v.Space == ptx.Param && reads(in, number):
			a.report(finding.OutputRead, v.Name, in, "reads an output (%s), which has the result of an earlier launch", v.Name)
		case v.Space == ptx.Param && from.form == scrambled && in.Opcode != "prefetch":
			a.escape(v, in, "taken apart in another address")
		case v.Space == ptx.Param:
		case tensor:
			a.report(finding.AbsoluteAddress, v.Name, in, "the tensor map %s is not an argument, so its address is not one of a buffer", v.Name)
		case v.Space == ptx.Global && writes(in, number):
			a.report(finding.ModuleMemory, v.Name, in, "writes the variable %s of the module", v.Name)
		case from.form == scrambled && in.Opcode != "ld" && in.Opcode != "prefetch":
			a.escape(v, in, "taken apart in another address")
		}
	}
	const source = 1 // later addresses of a copy are barriers in shared memory
	if !from.known && number <= source && accesses(in) {
		a.report(finding.AbsoluteAddress, in.Opcode, in, "%s uses an address that is computed from constants only", in.Opcode)
	}
}

// writes reports whether an instruction may write through its address operand of this number.
func writes(in *ptx.Instruction, number int) bool {
	switch in.Opcode {
	case "ld", "ldu", "ldmatrix", "prefetch", "prefetchu":
		return false
	case "wmma":
		return !slices.Contains(in.Modifiers, "load")
	case "cp":
		return number == 0 && !slices.Contains(in.Modifiers, "prefetch")
	}
	return true
}

// reads reports whether an instruction returns what is at its address operand of this number.
func reads(in *ptx.Instruction, number int) bool {
	switch in.Opcode {
	case "ld", "ldu", "atom":
		return true
	case "multimem":
		return slices.Contains(in.Modifiers, "ld_reduce")
	case "wmma":
		return !writes(in, number)
	case "cp":
		return number == 1
	}
	return false
}

// accesses reports whether an instruction accesses data, and not a barrier or a cache.
func accesses(in *ptx.Instruction) bool {
	return slices.Contains([]string{"ld", "ldu", "st", "atom", "red", "cp", "multimem"}, in.Opcode)
}
