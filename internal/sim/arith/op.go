package arith

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/ptx"
)

// Func computes one lane. Operands and result are raw bits in the low bits. Bits of an operand above its type are
// ignored, unused operands too; bits of the result above its type are 0. A predicate is 0 or 1.
type Func func(a, b, c, d uint64) uint64

// Op is a scalar instruction: what it reads and writes, and what it computes.
type Op struct {
	Result ptx.Type   // of the destination; a register that is wider takes a signed integer sign-extended, all else zero-extended
	Args   []ptx.Type // of the sources, in order
	// Func computes the destination; nil where Carry does.
	//
	// Only lop3.and and lop3.or have five sources: for them, d is the fourth (the table) with the fifth (the
	// predicate) in bit 8.
	Func Func
	// Pair computes the second destination, a predicate, from the same sources; nil where there cannot be one.
	Pair Func
	// Carry computes the destination and the carry of add.cc, addc, sub.cc, subc, mad.cc and madc. The carry of a
	// subtraction is set where nothing had to be borrowed.
	Carry func(a, b, c uint64, carry bool) (r uint64, out bool)
	// UsesCarry says that Carry depends on the carry of the instruction before it, SetsCarry that its carry is to be
	// kept.
	UsesCarry, SetsCarry bool
	// Approximate says that PTX leaves the last bits of the result to the chip.
	Approximate bool
}

// Lookup finds the instruction with this opcode and these modifiers, written without dots. Types count in their
// order; the other modifiers may stand anywhere, as for ptxas.
func Lookup(opcode string, modifiers []string) (Op, error) {
	f := form{opcode: opcode}
	for _, word := range modifiers {
		if t, ok := ptx.ParseType(word); ok {
			f.types = append(f.types, t)
		} else {
			f.words = append(f.words, word)
		}
	}
	if define, ok := instructions[opcode]; ok {
		// A word that is left over is unknown, stands there twice or contradicts another.
		if op, ok := define(&f); ok && len(f.words) == 0 {
			return op, nil
		}
	}
	return Op{}, fmt.Errorf("unsupported instruction %s", strings.Join(append([]string{opcode}, modifiers...), "."))
}

// instructions says for each opcode which of its forms exist. A definition takes the words that it understands off
// the form.
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

// form is an instruction as it is written: its types in order, and the other words in any.
type form struct {
	opcode string
	types  []ptx.Type
	words  []string
}

// take says whether a word is there, and takes it off.
func (f *form) take(word string) bool {
	i := slices.Index(f.words, word)
	if i < 0 {
		return false
	}
	f.words = slices.Delete(f.words, i, i+1)
	return true
}

// has says whether a word is there, and leaves it.
func (f *form) has(word string) bool { return slices.Contains(f.words, word) }

// choose takes off the first of these words that is there; it is empty where none is.
func (f *form) choose(words ...string) string {
	for _, word := range words {
		if f.take(word) {
			return word
		}
	}
	return ""
}

// one is the type of an instruction that has one type, out of these.
func (f *form) one(of ...ptx.Type) (ptx.Type, bool) {
	if len(f.types) != 1 || !slices.Contains(of, f.types[0]) {
		return ptx.NoType, false
	}
	return f.types[0], true
}

// uniform is an instruction whose result and sources are all of one type.
func uniform(t ptx.Type, sources int, compute Func) Op {
	return Op{Result: t, Args: slices.Repeat([]ptx.Type{t}, sources), Func: compute}
}

// packed applies a function of 16-bit operands to both halves of 32-bit operands.
func packed(half Func) Func {
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
