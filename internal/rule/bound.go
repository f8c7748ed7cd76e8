package rule

import "math"

// bound returns an interval that contains the value of a part for all values of the names within
// their ranges. A part with an interval never fails. It is false if nothing is known: the part may be
// a text, may fail, or may be of several types.
func bound(n *Node, ranges []Range) (Interval, bool) {
	switch n.Op {
	case Constant:
		return point(n.Value)
	case Name:
		return ranges[n.Name].Interval, ranges[n.Name].known
	case And, Or:
		return boundLogic(n, ranges)
	case Choice:
		return boundChoice(n, ranges)
	}
	x, ok := bound(n.Args[0], ranges)
	if !ok {
		return Interval{}, false
	}
	switch n.Op {
	case Not:
		return decided(x.isFalse(), x.isTrue()), true
	case Plus, Minus:
		return x.signed(n.Op), x.isNumber()
	case Abs:
		return x.absolute(), x.isNumber()
	}
	if len(n.Args) != 2 {
		return Interval{}, false
	}
	y, ok := bound(n.Args[1], ranges)
	switch {
	case !ok || x.isNumber() != y.isNumber():
		return Interval{}, false
	case n.Op.isComparison():
		return boundComparison(n.Op, x, y), true
	case !x.isNumber():
		return Interval{}, false
	}
	switch n.Op {
	case Min, Max:
		return x.extreme(n.Op, y), (x.low.kind == realKind) == (y.low.kind == realKind)
	case Add, Subtract, Multiply:
		return x.corners(n.Op, y)
	case Divide, FloorDivide:
		if !y.hasZero() {
			return x.corners(n.Op, y)
		}
	case Modulo:
		if !y.hasZero() && x.low.isInt() == y.low.isInt() {
			return y.modulo(), true
		}
	}
	return Interval{}, false
}

// Range is what is known about the value of a name.
type Range struct {
	Interval
	known bool
}

// rangeOf is the range of some values. It is not known if they are of several types, or texts.
func rangeOf(values []Value) Range {
	if len(values) == 0 {
		return Range{}
	}
	for _, v := range values {
		if !v.isNumber() && v.kind != boolKind || (v.kind == realKind) != (values[0].kind == realKind) ||
			(v.kind == boolKind) != (values[0].kind == boolKind) || v.kind == realKind && math.IsNaN(v.real()) {
			return Range{}
		}
	}
	return Range{hull(values...), true}
}

func point(v Value) (Interval, bool) {
	r := rangeOf([]Value{v})
	return r.Interval, r.known
}

func (i Interval) isNumber() bool { return i.low.isNumber() }

// isTrue reports whether all values are true.
func (i Interval) isTrue() bool {
	if i.low.kind == boolKind {
		return i.low.Truth()
	}
	return !i.hasZero()
}

func (i Interval) isFalse() bool { return !i.low.Truth() && !i.high.Truth() }

// decided is a boolean.
func decided(always, never bool) Interval { return Interval{Bool(always), Bool(!never)} }

func boundComparison(op Op, x, y Interval) Interval {
	below, _ := compare(x.high, y.low)
	above, _ := compare(x.low, y.high)
	switch op {
	case Less:
		return decided(below < 0, above >= 0)
	case LessEqual:
		return decided(below <= 0, above > 0)
	case Greater:
		return decided(above > 0, below <= 0)
	case GreaterEqual:
		return decided(above >= 0, below < 0)
	case NotEqual:
		return decided(below < 0 || above > 0, below == 0 && above == 0)
	}
	return decided(below == 0 && above == 0, below < 0 || above > 0)
}

// merge contains the values of two intervals; false if they are of different types.
func merge(x, y Interval, ok bool) (Interval, bool) {
	same := (x.low.kind == boolKind) == (y.low.kind == boolKind) && (x.low.kind == realKind) == (y.low.kind == realKind)
	if !ok || !same {
		return Interval{}, false
	}
	return x.with(y), true
}

func boundLogic(n *Node, ranges []Range) (Interval, bool) {
	x, ok := bound(n.Args[0], ranges)
	if ok && (n.Op == Or && x.isTrue() || n.Op == And && x.isFalse()) {
		return x, true
	}
	y, right := bound(n.Args[1], ranges)
	if ok && (x.isTrue() || x.isFalse()) {
		return y, right
	}
	both, known := merge(x, y, ok && right)
	if known && n.Op == And && y.isFalse() {
		return y, true // a left side that is false is the same value
	}
	return both, known
}

func boundChoice(n *Node, ranges []Range) (Interval, bool) {
	condition, known := bound(n.Args[0], ranges)
	yes, yesOK := bound(n.Args[1], ranges)
	no, noOK := bound(n.Args[2], ranges)
	switch {
	case !known:
		return Interval{}, false
	case condition.isTrue():
		return yes, yesOK
	case condition.isFalse():
		return no, noOK
	}
	return merge(yes, no, yesOK && noOK)
}
