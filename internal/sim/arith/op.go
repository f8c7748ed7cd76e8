package arith

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/ptx"
)

// Func computes one lane. Operands and result are raw bits in the low bits of a word. Func ignores
// operand bits above the operand's type and operands that the instruction does not have. Result
// bits above the result type are 0. A predicate is 0 or 1.
type Func func(a, b, c, d uint64) uint64

// Op is a scalar instruction: its operand types and the functions that compute it.
type Op struct {
	// Result is the type of the destination. A wider register receives a signed integer
	// sign-extended and every other type zero-extended.
	Result ptx.Type
	// Args are the types of the sources, in order.
	Args []ptx.Type
	// Func computes the destination; nil if Carry is set.
	//
	// Only lop3.and and lop3.or have five sources. For them, d holds the fourth (the lookup table)
	// with the fifth (the predicate) in bit 8.
	Func Func
	// Pair computes the second destination, a predicate, from the same sources. It is nil if the
	// instruction has no second destination.
	Pair Func
	// Carry computes the destination and the carry-out of add.cc, addc, sub.cc, subc, mad.cc and
	// madc. A subtraction sets the carry-out if it did not borrow.
	Carry func(a, b, c uint64, carry bool) (r uint64, out bool)
	// UsesCarry reports that Carry reads the carry flag; SetsCarry, that it writes the flag.
	UsesCarry, SetsCarry bool
	// Approximate reports that the PTX ISA leaves the low bits of the result to the hardware.
	Approximate bool
}

// Lookup returns the instruction with this opcode and these modifiers, which have no dots. The
// order of types matters. The other modifiers may appear anywhere, as in ptxas.
func Lookup(opcode string, modifiers []string) (Op, error) {
	f := form{opcode: opcode}
	for _, word := range modifiers {
		if t, ok := ptx.ParseType(word); ok {
			f.types = append(f.types, t)
		} else {
			f.modifiers = append(f.modifiers, word)
		}
	}
	if define, ok := instructions[opcode]; ok {
		// A modifier that is left over is unknown, repeated, or contradicts another one.
		if op, ok := define(&f); ok && len(f.modifiers) == 0 {
			return op, nil
		}
	}
	return Op{}, fmt.Errorf("unsupported instruction %s", strings.Join(append([]string{opcode}, modifiers...), "."))
}

// instructions maps each opcode to the function that defines its forms. The function consumes the
// modifiers that it understands.
var instructions = map[string]func(*form) (Op, bool){
	"add": add, "sub": sub, "mul": mul, "mad": mad, "fma": fma, "div": div, "rem": remainder,
	"addc": addc, "subc": subc, "madc": madc,
	"mul24": mul24, "mad24": mad24, "sad": sad, "dp4a": dp4a, "dp2a": dp2a,
	"abs": abs, "neg": neg, "min": minimum, "max": maximum, "copysign": copysign, "testp": testp,

	"popc": popc, "clz": clz, "bfind": bfind, "fns": fns, "brev": brev, "bfe": bfe, "bfi": bfi, "szext": szext, "bmsk": bmsk,
	"and": and, "or": or, "xor": xor, "not": not, "cnot": cnot, "lop3": lop3,
	"shl": shl, "shr": shr, "shf": shf, "prmt": prmt,

	"set": set, "setp": setp, "selp": selp, "slct": slct,
	"cvt": cvt,

	"rcp": rcp, "sqrt": sqrt, "rsqrt": rsqrt, "sin": sin, "cos": cos, "lg2": lg2, "ex2": ex2, "tanh": tanh,

	"vadd": videoScalar, "vsub": videoScalar, "vabsdiff": videoScalar, "vmin": videoScalar, "vmax": videoScalar,
	"vshl": videoShift, "vshr": videoShift, "vset": videoSet, "vmad": videoMad,
	"vadd2": videoVector, "vsub2": videoVector, "vavrg2": videoVector, "vabsdiff2": videoVector,
	"vmin2": videoVector, "vmax2": videoVector, "vset2": videoVectorSet,
	"vadd4": videoVector, "vsub4": videoVector, "vavrg4": videoVector, "vabsdiff4": videoVector,
	"vmin4": videoVector, "vmax4": videoVector, "vset4": videoVectorSet,
}

// form is an instruction as written: its types in order, and its other modifiers in any order.
type form struct {
	opcode    string
	types     []ptx.Type
	modifiers []string
}

// consume removes a modifier and reports whether it was present.
func (f *form) consume(word string) bool {
	i := slices.Index(f.modifiers, word)
	if i < 0 {
		return false
	}
	f.modifiers = slices.Delete(f.modifiers, i, i+1)
	return true
}

// has reports whether a modifier is present, without removing it.
func (f *form) has(word string) bool { return slices.Contains(f.modifiers, word) }

// consumeAny removes and returns the first of these modifiers that is present, or "".
func (f *form) consumeAny(words ...string) string {
	for _, word := range words {
		if f.consume(word) {
			return word
		}
	}
	return ""
}

// oneType returns the type of an instruction that has exactly one type, from the allowed ones.
func (f *form) oneType(allowed ...ptx.Type) (ptx.Type, bool) {
	if len(f.types) != 1 || !slices.Contains(allowed, f.types[0]) {
		return ptx.NoType, false
	}
	return f.types[0], true
}

// uniformOp is an instruction whose result and sources all have one type.
func uniformOp(t ptx.Type, sources int, compute Func) Op {
	return Op{Result: t, Args: slices.Repeat([]ptx.Type{t}, sources), Func: compute}
}

// onBothHalves applies a function of 16-bit operands to both halves of 32-bit operands.
func onBothHalves(half Func) Func {
	return func(a, b, c, d uint64) uint64 {
		return half(a>>16&0xFFFF, b>>16&0xFFFF, c>>16&0xFFFF, d)<<16 | half(a&0xFFFF, b&0xFFFF, c&0xFFFF, d)
	}
}

func bit(condition bool) uint64 {
	if condition {
		return 1
	}
	return 0
}
