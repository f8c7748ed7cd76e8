package ptx

import (
	"cmp"
	"slices"
	"strings"
)

// UnorderedSums reports whether the module adds floating-point numbers by atomic operations or bulk
// reductions. The order of such sums, and therefore their rounding, differs from launch to launch.
func (m *Module) UnorderedSums() bool { return m.FirstUnorderedSum() != "" }

// FirstUnorderedSum is the source line, or else the PTX line, of the first such operation; empty
// without one.
func (m *Module) FirstUnorderedSum() string {
	for _, f := range m.Functions {
		for i := range f.Code {
			in := &f.Code[i]
			if !in.unorderedSum() {
				continue
			}
			return cmp.Or(m.SourceLine(in.Location), Place("", in.Line))
		}
	}
	return ""
}

// unorderedSum reports whether the instruction is an atomic sum of floats.
func (in *Instruction) unorderedSum() bool {
	atomic := in.Opcode == "atom" || in.Opcode == "red" || in.Opcode == "multimem" ||
		in.Opcode == "cp" && slices.Contains(in.Modifiers, "reduce")
	isFloat := func(modifier string) bool {
		return slices.Contains([]string{"f16", "f16x2", "bf16", "bf16x2", "f32", "f64"}, strings.TrimPrefix(modifier, "."))
	}
	return atomic && slices.Contains(in.Modifiers, "add") && slices.ContainsFunc(in.Modifiers, isFloat)
}
