package rule

import "slices"

// evaluator evaluates a part of a rule. Closures are compiled once; an evaluation allocates nothing
// unless an integer leaves 64 bits.
type evaluator func(values []Value) Value

func compile(n *Node) evaluator {
	var args []evaluator
	for _, arg := range n.Args {
		args = append(args, compile(arg))
	}
	switch n.Op {
	case Constant:
		value := n.Value
		return func([]Value) Value { return value }
	case Name:
		name := n.Name
		return func(values []Value) Value { return values[name] }
	case And, Or:
		return logic(n.Op == Or, args[0], args[1])
	case Not:
		x := args[0]
		return func(values []Value) Value {
			v := x(values)
			if v.kind == badKind {
				return v
			}
			return Bool(!v.Truth())
		}
	case Choice:
		return choice(args[0], args[1], args[2])
	case Membership:
		return membership(n, args)
	case Min, Max:
		return extremes(n.Op, args)
	case Plus, Minus, Invert:
		op, x := n.Op, args[0]
		return func(values []Value) Value { return signed(op, x(values)) }
	}
	switch {
	case n.Op.isComparison():
		return comparing(n.Op, newLeaf(n.Args[0], args[0]), newLeaf(n.Args[1], args[1]))
	case len(args) == 1:
		op, x := n.Op, args[0]
		return func(values []Value) Value { return function(op, x(values)) }
	}
	return computing(n.Op, newLeaf(n.Args[0], args[0]), newLeaf(n.Args[1], args[1]))
}

// logic evaluates the left side, and the right side unless the left decides.
func logic(decides bool, x, y evaluator) evaluator {
	return func(values []Value) Value {
		if v := x(values); v.kind == badKind || v.Truth() == decides {
			return v
		}
		return y(values)
	}
}

func choice(condition, yes, no evaluator) evaluator {
	return func(values []Value) Value {
		c := condition(values)
		switch {
		case c.kind == badKind:
			return c
		case c.Truth():
			return yes(values)
		}
		return no(values)
	}
}

// membership evaluates all items, as Starlark does: one that fails makes the whole fail.
func membership(n *Node, args []evaluator) evaluator {
	x, items := args[0], args[1:]
	if !slices.ContainsFunc(n.Args[1:], func(item *Node) bool { return item.Op != Constant }) {
		list := make([]Value, len(items))
		for i, item := range n.Args[1:] {
			list[i] = item.Value
		}
		return func(values []Value) Value {
			v := x(values)
			if v.kind == badKind {
				return v
			}
			return Bool(contains(v, list))
		}
	}
	return func(values []Value) Value {
		v := x(values)
		if v.kind == badKind {
			return v
		}
		found := false
		for _, item := range items {
			w := item(values)
			if w.kind == badKind {
				return w
			}
			found = found || v.Equal(w)
		}
		return Bool(found)
	}
}

func extremes(op Op, args []evaluator) evaluator {
	return func(values []Value) Value {
		best := args[0](values)
		for _, arg := range args[1:] {
			best = extreme(op, best, arg(values))
		}
		return best
	}
}

// leaf is an operand. A name or a constant is read without a call, which is a third of the time of a
// short rule.
type leaf struct {
	eval  evaluator // nil for a leaf
	name  int       // -1 for a constant
	value Value
}

func newLeaf(n *Node, eval evaluator) *leaf {
	switch n.Op {
	case Name:
		return &leaf{name: n.Name}
	case Constant:
		return &leaf{name: -1, value: n.Value}
	}
	return &leaf{eval: eval}
}

func (l *leaf) get(values []Value) Value {
	if l.eval != nil {
		return l.eval(values)
	}
	if l.name >= 0 {
		return values[l.name]
	}
	return l.value
}

// comparing compares two integers without a call.
func comparing(op Op, x, y *leaf) evaluator {
	below, equal, above := Bool(satisfies(op, -1)), Bool(satisfies(op, 0)), Bool(satisfies(op, 1))
	return func(values []Value) Value {
		v, w := x.get(values), y.get(values)
		if v.kind != intKind || w.kind != intKind {
			return comparison(op, v, w)
		}
		switch {
		case v.bits < w.bits:
			return below
		case v.bits > w.bits:
			return above
		}
		return equal
	}
}

// computing applies the common operators to small integers without a call.
func computing(op Op, x, y *leaf) evaluator {
	switch op {
	case Add:
		return func(values []Value) Value {
			v, w := x.get(values), y.get(values)
			if sum := v.bits + w.bits; v.kind == intKind && w.kind == intKind && (sum > v.bits) == (w.bits > 0) {
				return Int(sum)
			}
			return arithmetic(op, v, w)
		}
	case Multiply:
		const half = 1 << 31
		return func(values []Value) Value {
			v, w := x.get(values), y.get(values)
			if v.kind == intKind && w.kind == intKind && v.bits < half && v.bits > -half && w.bits < half && w.bits > -half {
				return Int(v.bits * w.bits)
			}
			return arithmetic(op, v, w)
		}
	case Modulo:
		return func(values []Value) Value {
			v, w := x.get(values), y.get(values)
			if v.kind == intKind && w.kind == intKind && v.bits >= 0 && w.bits > 0 {
				return Int(v.bits % w.bits)
			}
			return arithmetic(op, v, w)
		}
	}
	return func(values []Value) Value { return arithmetic(op, x.get(values), y.get(values)) }
}
