package arith

import "attune/internal/ptx"

// relation is how two values stand to each other. The values are bits, so that a comparison is a set of relations.
type relation uint8

const (
	less relation = 1 << iota
	equal
	greater
	unordered
)

// comparisons of each kind of type. Those of floating point that end in u hold for a NaN, too.
var (
	equalities = map[string]relation{"eq": equal, "ne": less | greater}
	signedOnes = map[string]relation{
		"eq": equal, "ne": less | greater, "lt": less, "le": less | equal, "gt": greater, "ge": greater | equal,
	}
	unsignedOnes = map[string]relation{
		"eq": equal, "ne": less | greater, "lt": less, "le": less | equal, "gt": greater, "ge": greater | equal,
		"lo": less, "ls": less | equal, "hi": greater, "hs": greater | equal,
	}
	floatOnes = map[string]relation{
		"eq": equal, "ne": less | greater, "lt": less, "le": less | equal, "gt": greater, "ge": greater | equal,
		"equ": equal | unordered, "neu": less | greater | unordered,
		"ltu": less | unordered, "leu": less | equal | unordered, "gtu": greater | unordered, "geu": greater | equal | unordered,
		"num": less | equal | greater, "nan": unordered,
	}
)

// comparison takes a comparison of this type off the form: a test of two codes, those of the halves for a pair.
func (f *form) comparison(t ptx.Type) (holds func(a, b uint64) bool, ok bool) {
	known := floatOnes
	relate := relateFloats(f, t)
	switch t {
	case ptx.B16, ptx.B32, ptx.B64:
		known = equalities
	case ptx.U16, ptx.U32, ptx.U64:
		known = unsignedOnes
	case ptx.S16, ptx.S32, ptx.S64:
		known = signedOnes
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
		if f.take(word) {
			return func(a, b uint64) bool { return relate(a, b)&relations != 0 }, true
		}
	}
	return nil, false
}

// relateFloats is nil where the type is not of floating point.
func relateFloats(f *form, t ptx.Type) func(a, b uint64) relation {
	n := formatOf(t)
	if n == nil {
		return nil
	}
	ftz := (n == float16 || n == float32s) && f.take("ftz")
	return func(a, b uint64) relation {
		if n.isNaN(a) || n.isNaN(b) {
			return unordered
		}
		if ftz {
			a, b = n.flush(a), n.flush(b)
		}
		x, y := n.order(a), n.order(b)
		switch {
		case x == y, (a|b)&n.magnitude() == 0:
			return equal
		case x < y:
			return less
		}
		return greater
	}
}

// combination takes off the form the operator that combines a comparison with a predicate; without one, the predicate
// does not count.
func (f *form) combination() (combine func(holds bool, predicate uint64) uint64, given bool) {
	switch f.choose("and", "or", "xor") {
	case "and":
		return func(holds bool, predicate uint64) uint64 { return bit(holds) & predicate & 1 }, true
	case "or":
		return func(holds bool, predicate uint64) uint64 { return (bit(holds) | predicate) & 1 }, true
	case "xor":
		return func(holds bool, predicate uint64) uint64 { return (bit(holds) ^ predicate) & 1 }, true
	}
	return func(holds bool, _ uint64) uint64 { return bit(holds) }, false
}

// setp compares. Its second predicate is that of the upper half of a pair, else that of the opposite comparison.
func setp(f *form) (Op, bool) {
	if len(f.types) != 1 {
		return Op{}, false
	}
	t := f.types[0]
	holds, ok := f.comparison(t)
	combine, combined := f.combination()
	op := Op{Result: ptx.Pred, Args: compared(t, combined)}
	op.Func = func(a, b, c, _ uint64) uint64 { return combine(holds(a, b), c) }
	switch {
	case isPair(t):
		op.Pair = func(a, b, c, _ uint64) uint64 { return combine(holds(a>>16, b>>16), c) }
	case t != ptx.F16 && t != ptx.BF16:
		op.Pair = func(a, b, c, _ uint64) uint64 { return combine(!holds(a, b), c) }
	}
	return op, ok
}

// compared is the list of the sources of a comparison.
func compared(t ptx.Type, combined bool) []ptx.Type {
	if combined {
		return []ptx.Type{t, t, ptx.Pred}
	}
	return []ptx.Type{t, t}
}

// set compares and makes a number of the answer: 1 of floating point, or all ones.
func set(f *form) (Op, bool) {
	if len(f.types) != 2 {
		return Op{}, false
	}
	to, from := f.types[0], f.types[1]
	if to == ptx.BF16 && f.has("ftz") {
		return Op{}, false
	}
	holds, ok := f.comparison(from)
	combine, combined := f.combination()
	yes, exists := answer(to, from)
	compute := func(a, b, c, _ uint64) uint64 { return combine(holds(a, b), c) * yes }
	if isPair(from) {
		lower := compute
		compute = func(a, b, c, _ uint64) uint64 { return lower(a>>16, b>>16, c, 0)<<16 | lower(a, b, c, 0) }
	}
	return Op{Result: to, Args: compared(from, combined), Func: compute}, ok && exists
}

// answer is the code, of a half for a pair, that set gives for true.
func answer(to, from ptx.Type) (yes uint64, exists bool) {
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

// selp is the first source where the predicate is true, else the second.
func selp(f *form) (Op, bool) {
	t, ok := f.one(selectable...)
	n := integer{bits: t.Bits()}
	return Op{Result: t, Args: []ptx.Type{t, t, ptx.Pred}, Func: func(a, b, predicate, _ uint64) uint64 {
		if predicate&1 == 0 {
			a = b
		}
		return n.cut(a)
	}}, ok
}

// slct is the first source where the third is not negative, else the second; so it is for -0, and not for NaN.
func slct(f *form) (Op, bool) {
	if len(f.types) != 2 {
		return Op{}, false
	}
	by := f.types[1]
	f.types = f.types[:1]
	t, ok := f.one(selectable...)
	var first func(c uint64) bool
	switch by {
	case ptx.S32:
		first = func(c uint64) bool { return int32(c) >= 0 }
	case ptx.F32:
		ftz := f.take("ftz")
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
		return n.cut(a)
	}}, ok
}
