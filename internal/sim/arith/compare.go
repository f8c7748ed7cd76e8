package arith

import "attune/internal/ptx"

// relation is the order of two values. The constants are bits, so a comparison operator is a set of
// relations (PTX ISA, Comparison and Selection Instructions).
type relation uint8

const (
	less relation = 1 << iota
	equal
	greater
	unordered
)

// The comparison operators of each kind of type. Floating-point operators that end in u also hold
// if an operand is NaN.
var (
	bitComparisons    = map[string]relation{"eq": equal, "ne": less | greater}
	signedComparisons = map[string]relation{
		"eq": equal, "ne": less | greater, "lt": less, "le": less | equal, "gt": greater, "ge": greater | equal,
	}
	unsignedComparisons = map[string]relation{
		"eq": equal, "ne": less | greater, "lt": less, "le": less | equal, "gt": greater, "ge": greater | equal,
		"lo": less, "ls": less | equal, "hi": greater, "hs": greater | equal,
	}
	floatComparisons = map[string]relation{
		"eq": equal, "ne": less | greater, "lt": less, "le": less | equal, "gt": greater, "ge": greater | equal,
		"equ": equal | unordered, "neu": less | greater | unordered,
		"ltu": less | unordered, "leu": less | equal | unordered, "gtu": greater | unordered, "geu": greater | equal | unordered,
		"num": less | equal | greater, "nan": unordered,
	}
)

// comparison consumes a comparison operator of this type. It returns a test of two encoded values,
// of the halves for a packed type.
func (f *form) comparison(t ptx.Type) (holds func(a, b uint64) bool, ok bool) {
	known := floatComparisons
	relate := relateFloats(f, t)
	switch t {
	case ptx.B16, ptx.B32, ptx.B64:
		known = bitComparisons
	case ptx.U16, ptx.U32, ptx.U64:
		known = unsignedComparisons
	case ptx.S16, ptx.S32, ptx.S64:
		known = signedComparisons
	default:
		if relate == nil {
			return nil, false
		}
	}
	if relate == nil {
		n := integerOf(t)
		relate = func(a, b uint64) relation {
			switch {
			case n.less(a, b):
				return less
			case n.less(b, a):
				return greater
			}
			return equal
		}
	}
	for word, relations := range known {
		if f.consume(word) {
			return func(a, b uint64) bool { return relate(a, b)&relations != 0 }, true
		}
	}
	return nil, false
}

// relateFloats compares two floating-point values; it returns nil for other types. -0 equals +0.
func relateFloats(f *form, t ptx.Type) func(a, b uint64) relation {
	n := formatOf(t)
	if n == nil {
		return nil
	}
	ftz := (n == float16 || n == float32s) && f.consume("ftz")
	return func(a, b uint64) relation {
		if n.isNaN(a) || n.isNaN(b) {
			return unordered
		}
		if ftz {
			a, b = n.flush(a), n.flush(b)
		}
		x, y := n.orderKey(a), n.orderKey(b)
		switch {
		case x == y, (a|b)&n.magnitude() == 0:
			return equal
		case x < y:
			return less
		}
		return greater
	}
}

// booleanOperator consumes the operator that combines the comparison with a predicate (.and, .or,
// .xor). Without one, combine ignores the predicate.
func (f *form) booleanOperator() (combine func(holds bool, predicate uint64) uint64, present bool) {
	switch f.consumeAny("and", "or", "xor") {
	case "and":
		return func(holds bool, predicate uint64) uint64 { return bit(holds) & predicate & 1 }, true
	case "or":
		return func(holds bool, predicate uint64) uint64 { return (bit(holds) | predicate) & 1 }, true
	case "xor":
		return func(holds bool, predicate uint64) uint64 { return (bit(holds) ^ predicate) & 1 }, true
	}
	return func(holds bool, _ uint64) uint64 { return bit(holds) }, false
}

// setp writes the comparison to the first predicate. The second predicate receives the comparison
// of the upper halves for packed types, else the inverse comparison.
func setp(f *form) (Op, bool) {
	if len(f.types) != 1 {
		return Op{}, false
	}
	t := f.types[0]
	holds, ok := f.comparison(t)
	combine, combined := f.booleanOperator()
	op := Op{Result: ptx.Pred, Args: comparisonArgs(t, combined)}
	op.Func = func(a, b, c, _ uint64) uint64 { return combine(holds(a, b), c) }
	switch {
	case isPair(t):
		op.Pair = func(a, b, c, _ uint64) uint64 { return combine(holds(a>>16, b>>16), c) }
	case t != ptx.F16 && t != ptx.BF16:
		op.Pair = func(a, b, c, _ uint64) uint64 { return combine(!holds(a, b), c) }
	}
	return op, ok
}

// comparisonArgs returns the source types of set and setp.
func comparisonArgs(t ptx.Type, combined bool) []ptx.Type {
	if combined {
		return []ptx.Type{t, t, ptx.Pred}
	}
	return []ptx.Type{t, t}
}

// set writes 1.0 for true if the result is a floating-point type, else all ones. False is 0.
func set(f *form) (Op, bool) {
	if len(f.types) != 2 {
		return Op{}, false
	}
	to, from := f.types[0], f.types[1]
	if to == ptx.BF16 && f.has("ftz") {
		return Op{}, false
	}
	holds, ok := f.comparison(from)
	combine, combined := f.booleanOperator()
	yes, exists := trueValue(to, from)
	compute := func(a, b, c, _ uint64) uint64 { return combine(holds(a, b), c) * yes }
	if isPair(from) {
		lower := compute
		compute = func(a, b, c, _ uint64) uint64 { return lower(a>>16, b>>16, c, 0)<<16 | lower(a, b, c, 0) }
	}
	return Op{Result: to, Args: comparisonArgs(from, combined), Func: compute}, ok && exists
}

// trueValue returns the encoding of true in the result type, of one half for packed types.
func trueValue(to, from ptx.Type) (yes uint64, exists bool) {
	half := from == ptx.F16 || from == ptx.BF16
	switch to {
	case ptx.F16x2, ptx.BF16x2:
		return formatOf(to).one(), to == from
	case ptx.U32, ptx.S32:
		if isPair(from) {
			return 0xFFFF, true
		}
		return 0xFFFFFFFF, true
	case ptx.U16, ptx.S16:
		return 0xFFFF, half
	case ptx.F32:
		return float32s.one(), !half && !isPair(from)
	case ptx.F16:
		return float16.one(), from != ptx.BF16 && !isPair(from)
	case ptx.BF16:
		return bfloat16.one(), !isPair(from)
	}
	return 0, false
}

var selectable = []ptx.Type{
	ptx.B16, ptx.B32, ptx.B64, ptx.U16, ptx.U32, ptx.U64, ptx.S16, ptx.S32, ptx.S64, ptx.F32, ptx.F64,
}

// selp returns the first source if the predicate is true, else the second.
func selp(f *form) (Op, bool) {
	t, ok := f.oneType(selectable...)
	n := integer{bits: t.Bits()}
	return Op{Result: t, Args: []ptx.Type{t, t, ptx.Pred}, Func: func(a, b, predicate, _ uint64) uint64 {
		if predicate&1 == 0 {
			a = b
		}
		return n.truncate(a)
	}}, ok
}

// slct returns the first source if the third is not negative, else the second. -0 selects the first
// source, NaN the second.
func slct(f *form) (Op, bool) {
	if len(f.types) != 2 {
		return Op{}, false
	}
	by := f.types[1]
	f.types = f.types[:1]
	t, ok := f.oneType(selectable...)
	var first func(c uint64) bool
	switch by {
	case ptx.S32:
		first = func(c uint64) bool { return int32(c) >= 0 }
	case ptx.F32:
		ftz := f.consume("ftz")
		first = func(c uint64) bool {
			if ftz {
				c = float32s.flush(c)
			}
			return !float32s.isNaN(c) && (c&float32s.sign() == 0 || c&float32s.magnitude() == 0)
		}
	default:
		return Op{}, false
	}
	n := integer{bits: t.Bits()}
	return Op{Result: t, Args: []ptx.Type{t, t, by}, Func: func(a, b, c, _ uint64) uint64 {
		if !first(c) {
			a = b
		}
		return n.truncate(a)
	}}, ok
}
