package tune

// list parses a list: items in brackets, a comprehension, range(...), list(...), or a sum of those.
func (p *parser) list() listNode {
	left := p.listTerm()
	for {
		if _, ok := p.take("+"); !ok {
			return left
		}
		left = concatenate(left, p.listTerm())
	}
}

func concatenate(left, right listNode) listNode {
	return func(env []Value) ([]Value, Value) {
		first, failed := left(env)
		if failed.kind == badKind {
			return nil, failed
		}
		second, failed := right(env)
		if len(first)+len(second) > maxList {
			return nil, bad("a list has more than %d values", maxList)
		}
		return append(first, second...), failed
	}
}

func (p *parser) listTerm() listNode {
	if p.depth++; p.depth > maxDepth {
		p.fail(p.peek(), "more than %d nested lists", maxDepth)
	}
	defer func() { p.depth-- }()
	t := p.peek()
	switch {
	case t.kind == operatorToken && (t.text == "[" || t.text == "("):
		p.at++
		closing := "]"
		if t.text == "(" {
			closing = ")"
		}
		return p.items(closing)
	case t.kind == nameToken && t.text == "range":
		p.at++
		p.expect("(")
		return rangeOf(p.items(")"))
	case t.kind == nameToken && (t.text == "list" || t.text == "tuple" || t.text == "sorted"):
		p.at++
		p.expect("(")
		inner := p.list()
		p.expect(")")
		return inner
	}
	p.fail(t, "want a list, got %s", t.describe())
	return nil
}

// arguments parses those of a reduction: one list, or values.
func (p *parser) arguments() listNode {
	if t := p.peek(); t.kind == operatorToken && t.text == "[" || t.kind == nameToken && (t.text == "range" || t.text == "list") {
		inner := p.list()
		p.expect(")")
		return inner
	}
	return p.items(")")
}

// items parses the rest of a list after its bracket: values with commas, or a comprehension.
func (p *parser) items(closing string) listNode {
	if _, ok := p.take(closing); ok {
		return func([]Value) ([]Value, Value) { return nil, Value{} }
	}
	start := p.at
	if loop := p.findLoop(); loop >= 0 {
		return p.comprehension(start, loop, closing)
	}
	var items []*node
	for {
		items = append(items, p.conditional())
		if _, ok := p.take(","); !ok {
			break
		}
		if t := p.peek(); t.kind == operatorToken && t.text == closing {
			break // a comma after the last item
		}
	}
	p.expect(closing)
	return func(env []Value) ([]Value, Value) {
		values := make([]Value, len(items))
		for i, item := range items {
			if values[i] = item.eval(env); values[i].kind == badKind {
				return nil, values[i]
			}
		}
		return values, Value{}
	}
}

// findLoop returns the position of the "for" of a comprehension in the present bracket; -1 if there
// is none.
func (p *parser) findLoop() int {
	depth := 0
	for i := p.at; i < len(p.tokens); i++ {
		t := p.tokens[i]
		if t.kind != operatorToken {
			continue
		}
		switch t.text {
		case "(", "[":
			depth++
		case ")", "]":
			if depth--; depth < 0 {
				return -1
			}
		case "for":
			if depth == 0 {
				return i
			}
		}
	}
	return -1
}

// comprehension parses [ITEM for NAME in LIST if CONDITION]. The loop is parsed before the item,
// which uses its variable.
func (p *parser) comprehension(item, loop int, closing string) listNode {
	p.at = loop + 1
	variable := p.peek()
	if variable.kind != nameToken {
		p.fail(variable, "want the name of a variable, got %s", variable.describe())
		return nil
	}
	p.at++
	p.expect("in")
	over := p.list()
	for len(p.names) < p.slots { // slots of comprehensions that ended
		p.names = append(p.names, "")
	}
	slot := p.slots
	p.slots++
	p.names = append(p.names, variable.text)
	condition := constant(Bool(true))
	if _, ok := p.take("if"); ok {
		condition = p.disjunction()
	}
	p.expect(closing)
	if p.err != nil {
		return nil
	}
	end := p.at
	p.at = item
	each := p.conditional()
	if p.err == nil && p.at != loop {
		p.fail(p.peek(), "unexpected %s", p.peek().describe())
	}
	p.names[slot] = "" // out of scope
	if p.err != nil {
		return nil
	}
	p.at = end
	return func(env []Value) ([]Value, Value) { return generate(env, slot, over, condition, each) }
}

func generate(env []Value, slot int, over listNode, condition, each *node) ([]Value, Value) {
	source, failed := over(env)
	if failed.kind == badKind {
		return nil, failed
	}
	var values []Value
	for _, v := range source {
		env[slot] = v
		keep := condition.eval(env)
		if keep.kind == badKind {
			return nil, keep
		}
		if !keep.truth() {
			continue
		}
		next := each.eval(env)
		if next.kind == badKind {
			return nil, next
		}
		values = append(values, next)
	}
	return values, Value{}
}

// rangeOf is range(end), range(start, end) or range(start, end, step).
func rangeOf(arguments listNode) listNode {
	return func(env []Value) ([]Value, Value) {
		given, failed := arguments(env)
		if failed.kind == badKind {
			return nil, failed
		}
		for _, v := range given {
			if v.kind != intKind {
				return nil, bad("range takes integers, not %s", v)
			}
		}
		start, end, step := int64(0), int64(0), int64(1)
		switch len(given) {
		case 1:
			end = given[0].bits
		case 2:
			start, end = given[0].bits, given[1].bits
		case 3:
			start, end, step = given[0].bits, given[1].bits, given[2].bits
		default:
			return nil, bad("range takes one to three integers")
		}
		if step == 0 {
			return nil, bad("a range with a step of 0 has no end")
		}
		var values []Value
		for n := start; step > 0 && n < end || step < 0 && n > end; n += step {
			if len(values) == maxList {
				return nil, bad("a list has more than %d values", maxList)
			}
			values = append(values, Int(n))
		}
		return values, Value{}
	}
}
