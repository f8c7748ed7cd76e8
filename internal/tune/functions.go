package tune

import (
	"math"
	"math/bits"
	"slices"
	"strings"
)

// contains tests whether a value is in a list.
func contains(x *node, list listNode, uses []int, want bool) *node {
	n := newNode(opaqueNode, "", func(env []Value) Value {
		v := x.eval(env)
		if v.kind == badKind {
			return v
		}
		values, failed := list(env)
		if failed.kind == badKind {
			return failed
		}
		return Bool(slices.ContainsFunc(values, v.equal) == want)
	}, x)
	n.uses = append(n.uses, uses...)
	return n
}

func compare(operator string, left, right *node) *node {
	return newNode(comparisonNode, operator, func(env []Value) Value {
		x, y := left.eval(env), right.eval(env)
		if x.kind == badKind {
			return x
		}
		if y.kind == badKind {
			return y
		}
		switch operator {
		case "==":
			return Bool(x.equal(y))
		case "!=":
			return Bool(!x.equal(y))
		}
		return ordered(operator, x, y)
	}, left, right)
}

// ordered compares numbers with numbers, and texts with texts.
func ordered(operator string, x, y Value) Value {
	var order int
	switch a, aok := x.Float(); {
	case x.kind == textKind && y.kind == textKind:
		order = strings.Compare(x.text, y.text)
	case x.kind == intKind && y.kind == intKind:
		order = cmpInt(x.bits, y.bits)
	default:
		b, bok := y.Float()
		if !aok || !bok {
			return bad("%s %s %s compares a text with a number", x, operator, y)
		}
		if math.IsNaN(a) || math.IsNaN(b) {
			return Bool(false)
		}
		order = cmpFloat(a, b)
	}
	switch operator {
	case "<":
		return Bool(order < 0)
	case "<=":
		return Bool(order <= 0)
	case ">":
		return Bool(order > 0)
	}
	return Bool(order >= 0)
}

func cmpInt(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func cmpFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// arithmetic applies a binary operator to numbers. Integers stay integers as in Python, except in a
// true division and where the result leaves 64 bits.
func arithmetic(operator string, left, right *node) *node {
	whole := integerOperators[operator]
	real := realOperators[operator]
	return newNode(arithmeticNode, operator, func(env []Value) Value {
		x, y := left.eval(env), right.eval(env)
		if x.kind == badKind {
			return x
		}
		if y.kind == badKind {
			return y
		}
		isInt := (x.kind == intKind || x.kind == boolKind) && (y.kind == intKind || y.kind == boolKind)
		if isInt && whole != nil {
			if v, ok := whole(x.bits, y.bits); ok {
				return v
			}
		}
		a, aok := x.Float()
		b, bok := y.Float()
		if !aok || !bok || real == nil {
			return bad("%s %s %s has no value", x, operator, y)
		}
		return real(a, b)
	}, left, right)
}

// integerOperators return false where the result does not fit an integer.
var integerOperators = map[string]func(a, b int64) (Value, bool){
	"+": func(a, b int64) (Value, bool) { return Int(a + b), (a+b > a) == (b > 0) },
	"-": func(a, b int64) (Value, bool) { return Int(a - b), (a-b < a) == (b > 0) },
	"*": func(a, b int64) (Value, bool) {
		high, low := bits.Mul64(magnitude(a), magnitude(b))
		return Int(a * b), high == 0 && low <= math.MaxInt64
	},
	"//": func(a, b int64) (Value, bool) {
		if b == 0 {
			return bad("%d // 0 divides by zero", a), true
		}
		q := a / b
		if a%b != 0 && (a < 0) != (b < 0) {
			q--
		}
		return Int(q), a != math.MinInt64 || b != -1
	},
	"%": func(a, b int64) (Value, bool) {
		if b == 0 {
			return bad("%d %% 0 divides by zero", a), true
		}
		r := a % b
		if r != 0 && (r < 0) != (b < 0) {
			r += b
		}
		return Int(r), true
	},
	"**": func(a, b int64) (Value, bool) {
		result, ok := Int(1), b >= 0 && b < 64
		for range min(max(b, 0), 64) {
			high, low := bits.Mul64(magnitude(result.bits), magnitude(a))
			ok = ok && high == 0 && low <= math.MaxInt64
			result.bits *= a
		}
		return result, ok
	},
	"<<": func(a, b int64) (Value, bool) {
		if b < 0 || b > 62 || magnitude(a) > math.MaxInt64>>b {
			return bad("%d << %d does not fit 64 bits", a, b), true
		}
		return Int(a << b), true
	},
	">>": func(a, b int64) (Value, bool) {
		if b < 0 {
			return bad("%d >> %d shifts by a negative number", a, b), true
		}
		return Int(a >> min(b, 63)), true
	},
	"&": func(a, b int64) (Value, bool) { return Int(a & b), true },
	"|": func(a, b int64) (Value, bool) { return Int(a | b), true },
	"^": func(a, b int64) (Value, bool) { return Int(a ^ b), true },
}

func magnitude(a int64) uint64 {
	if a < 0 {
		return -uint64(a)
	}
	return uint64(a)
}

var realOperators = map[string]func(a, b float64) Value{
	"+":  func(a, b float64) Value { return Real(a + b) },
	"-":  func(a, b float64) Value { return Real(a - b) },
	"*":  func(a, b float64) Value { return Real(a * b) },
	"**": func(a, b float64) Value { return Real(math.Pow(a, b)) },
	"/": func(a, b float64) Value {
		if b == 0 {
			return bad("%v / 0 divides by zero", a)
		}
		return Real(a / b)
	},
	"//": func(a, b float64) Value {
		if b == 0 {
			return bad("%v // 0 divides by zero", a)
		}
		return Real(math.Floor(a / b))
	},
	"%": func(a, b float64) Value {
		if b == 0 {
			return bad("%v %% 0 divides by zero", a)
		}
		r := math.Mod(a, b)
		if r != 0 && (r < 0) != (b < 0) {
			r += b
		}
		return Real(r)
	},
}

// functions are those of one number.
var functions = map[string]func(Value) Value{
	"abs": func(v Value) Value {
		if v.kind == realKind {
			return Real(math.Abs(v.real()))
		}
		return Int(int64(magnitude(v.bits)))
	},
	"int":   func(v Value) Value { return rounded(v, math.Trunc) },
	"round": func(v Value) Value { return rounded(v, math.RoundToEven) },
	"ceil":  func(v Value) Value { return rounded(v, math.Ceil) },
	"floor": func(v Value) Value { return rounded(v, math.Floor) },
	"bool":  func(v Value) Value { return Bool(v.truth()) },
	"float": func(v Value) Value { return ofReal(v, func(x float64) float64 { return x }) },
	"sqrt":  func(v Value) Value { return ofReal(v, math.Sqrt) },
	"log2":  func(v Value) Value { return ofReal(v, math.Log2) },
	"log":   func(v Value) Value { return ofReal(v, math.Log) },
}

func ofReal(v Value, f func(float64) float64) Value {
	x, _ := v.Float()
	if y := f(x); !math.IsNaN(y) && !math.IsInf(y, 0) {
		return Real(y)
	}
	return bad("a function of %s has no value", v)
}

func rounded(v Value, f func(float64) float64) Value {
	if v.kind != realKind {
		return Int(v.bits)
	}
	x := f(v.real())
	if math.Abs(x) >= 1<<63 || math.IsNaN(x) {
		return bad("%s does not fit 64 bits", v)
	}
	return Int(int64(x))
}

// reductions turn a list, or several arguments, into one value.
var reductions = map[string]func([]Value) Value{
	"min": func(all []Value) Value { return extreme(all, "<") },
	"max": func(all []Value) Value { return extreme(all, ">") },
	"sum": func(all []Value) Value { return fold(all, "+", Int(0)) },
	"prod": func(all []Value) Value {
		return fold(all, "*", Int(1))
	},
	"len": func(all []Value) Value { return Int(int64(len(all))) },
	"any": func(all []Value) Value { return Bool(slices.ContainsFunc(all, Value.truth)) },
	"all": func(all []Value) Value {
		return Bool(!slices.ContainsFunc(all, func(v Value) bool { return !v.truth() }))
	},
}

func extreme(all []Value, operator string) Value {
	if len(all) == 0 {
		return bad("an empty list has no least or greatest value")
	}
	best := all[0]
	for _, v := range all[1:] {
		less := ordered(operator, v, best)
		if less.kind == badKind {
			return less
		}
		if less.truth() {
			best = v
		}
	}
	return best
}

func fold(all []Value, operator string, start Value) Value {
	for _, v := range all {
		start = arithmetic(operator, constant(start), constant(v)).eval(nil)
	}
	return start
}

// call parses the arguments of a function; the parenthesis has been consumed.
func (p *parser) call(t token, name string) *node {
	if f := functions[name]; f != nil {
		x := p.conditional()
		p.expect(")")
		return newNode(opaqueNode, "", func(env []Value) Value {
			v := x.eval(env)
			if v.kind == badKind {
				return v
			}
			if v.kind == textKind {
				return bad("%s(%q) is not the function of a number", name, v.text)
			}
			return f(v)
		}, x)
	}
	reduce := reductions[name]
	if reduce == nil {
		return p.fail(t, "unknown function %q", name)
	}
	used := len(p.uses)
	list := p.arguments()
	n := newNode(opaqueNode, "", func(env []Value) Value {
		values, failed := list(env)
		if failed.kind == badKind {
			return failed
		}
		return reduce(values)
	})
	n.uses = slices.Clone(p.uses[used:])
	return n
}
