package tune

import (
	"math"
	"slices"
)

// bounds is what is known about the value of a node while some of its knobs are not assigned.
type bounds struct {
	known     bool // the value is a number from low to high, never a failure
	low, high float64
	whole     bool // the number is an integer
}

var (
	unknown   = bounds{}
	undecided = bounds{known: true, low: 0, high: 1, whole: true} // a boolean
)

// maxExact is the largest integer up to which floating-point numbers represent all integers.
const maxExact = 1 << 53

// number returns the bounds of numbers. Beyond maxExact an integer may have become a real, rounded,
// so that a bound there is the least that is certain.
func number(low, high float64, whole bool) bounds {
	if math.IsNaN(low) || math.IsNaN(high) {
		return unknown
	}
	if low < -maxExact || high > maxExact {
		whole = false
	}
	if low = min(low, maxExact); low < -maxExact {
		low = math.Inf(-1)
	}
	if high = max(high, -maxExact); high > maxExact {
		high = math.Inf(1)
	}
	return bounds{true, low, high, whole}
}

// isTrue reports whether the value is true whatever the knobs that are left.
func (b bounds) isTrue() bool { return b.known && (b.low > 0 || b.high < 0) }

func (b bounds) isFalse() bool { return b.known && b.low == 0 && b.high == 0 }

// hull contains the values of both.
func (b bounds) hull(c bounds) bounds {
	if !b.known || !c.known {
		return unknown
	}
	return bounds{true, min(b.low, c.low), max(b.high, c.high), b.whole && c.whole}
}

// assignment is a partial assignment of knobs. A knob that is not assigned has one of its values.
type assignment struct {
	env      []Value
	assigned []bool   // by knob
	ranges   []bounds // by knob: those of all its values
}

func (a *assignment) complete(n *node) bool {
	return !slices.ContainsFunc(n.uses, func(knob int) bool { return !a.assigned[knob] })
}

// bounds returns what is known about a node, and whether it has certainly no value.
func (a *assignment) bounds(n *node) (b bounds, failed bool) {
	if a.complete(n) {
		v := n.eval(a.env)
		if v.kind == badKind {
			return unknown, true
		}
		return rangeOfValues([]Value{v}), false
	}
	if n.op == opaqueNode {
		return unknown, false
	}
	if n.op == knobNode {
		return a.ranges[n.knob], false
	}
	var args [3]bounds
	for i, arg := range n.args {
		b, failed := a.bounds(arg)
		if failed && (i == 0 && n.op != choiceNode || n.op == arithmeticNode || n.op == comparisonNode) {
			return unknown, true // every form but a choice evaluates its first part
		}
		args[i] = b
	}
	switch n.op {
	case arithmeticNode:
		return arithmeticBounds(n.name, args[0], args[1]), false
	case comparisonNode:
		return comparisonBounds(n.name, args[0], args[1]), false
	case logicNode:
		return logicBounds(n.name, args[0], args[1]), false
	case notNode:
		return notBounds(args[0]), false
	}
	return choiceBounds(args[0], args[1], args[2]), false
}

// rangeOfValues bounds values; unknown if one is not a number.
func rangeOfValues(values []Value) bounds {
	all := bounds{known: true, low: math.Inf(1), high: math.Inf(-1), whole: true}
	for _, v := range values {
		x, ok := v.Float()
		if !ok {
			return unknown
		}
		all = all.hull(number(x, x, v.kind != realKind))
	}
	return all
}

func arithmeticBounds(operator string, x, y bounds) bounds {
	if !x.known || !y.known {
		return unknown
	}
	whole := x.whole && y.whole
	switch operator {
	case "+":
		return number(x.low+y.low, x.high+y.high, whole)
	case "-":
		return number(x.low-y.high, x.high-y.low, whole)
	case "*":
		return corners(x, y, whole, func(a, b float64) float64 { return a * b })
	}
	if y.low <= 0 { // a divisor may be zero; those below are not worth the cases
		return unknown
	}
	switch operator {
	case "/":
		return corners(x, y, false, func(a, b float64) float64 { return a / b })
	case "//":
		return corners(x, y, whole, func(a, b float64) float64 { return math.Floor(a / b) })
	case "%":
		if x.low >= 0 && x.high < y.low {
			return x
		}
		return number(0, y.high, whole)
	}
	return unknown
}

// corners bounds a function that is monotone in both arguments.
func corners(x, y bounds, whole bool, f func(a, b float64) float64) bounds {
	values := []float64{f(x.low, y.low), f(x.low, y.high), f(x.high, y.low), f(x.high, y.high)}
	return number(slices.Min(values), slices.Max(values), whole) // NaN if one is: infinity times zero
}

func comparisonBounds(operator string, x, y bounds) bounds {
	if !x.known || !y.known {
		return unknown
	}
	switch operator {
	case ">", ">=":
		operator = map[string]string{">": "<", ">=": "<="}[operator]
		x, y = y, x
	}
	always, never := false, false
	switch operator {
	case "<":
		always, never = x.high < y.low, x.low >= y.high
	case "<=":
		always, never = x.high <= y.low, x.low > y.high
	case "==":
		always, never = x.low == y.high && x.high == y.low, x.high < y.low || x.low > y.high
	case "!=":
		always, never = x.high < y.low || x.low > y.high, x.low == y.high && x.high == y.low
	}
	return decided(always, never)
}

func decided(always, never bool) bounds {
	switch {
	case always:
		return bounds{true, 1, 1, true}
	case never:
		return bounds{true, 0, 0, true}
	}
	return undecided
}

func logicBounds(name string, x, y bounds) bounds {
	switch {
	case name == "or" && x.isTrue(), name == "and" && x.isFalse():
		return x
	case x.isTrue(), x.isFalse():
		return y
	}
	return x.hull(y)
}

func notBounds(x bounds) bounds {
	if !x.known {
		return unknown
	}
	return decided(x.isFalse(), x.isTrue())
}

func choiceBounds(yes, condition, no bounds) bounds {
	switch {
	case !condition.known:
		return unknown
	case condition.isTrue():
		return yes
	case condition.isFalse():
		return no
	}
	return yes.hull(no)
}
