package tune

import (
	"slices"

	"go.starlark.net/syntax"

	"attune/internal/rule"
)

// list translates a list to its items: brackets, a comprehension, range(...), list(...), or a sum of
// those. Comprehensions are written out.
func (p *python) list(expr syntax.Expr) []syntax.Expr {
	if p.err != nil {
		return nil
	}
	switch e := expr.(type) {
	case *syntax.ListExpr:
		return p.exprs(e.List)
	case *syntax.TupleExpr:
		return p.exprs(e.List)
	case *syntax.ParenExpr:
		if isList(e.X) {
			return p.list(e.X)
		}
		return p.exprs([]syntax.Expr{e.X})
	case *syntax.Comprehension:
		return p.comprehension(e)
	case *syntax.BinaryExpr:
		if e.Op == syntax.PLUS {
			return append(p.list(e.X), p.list(e.Y)...)
		}
	case *syntax.CallExpr:
		switch name := functionName(e); {
		case name == "range":
			return p.rangeOf(e)
		case slices.Contains([]string{"list", "tuple", "sorted"}, name) && len(e.Args) == 1:
			return p.list(e.Args[0])
		}
	}
	p.fail(expr, "want a list")
	return nil
}

// isList reports whether an expression has the form of a list.
func isList(expr syntax.Expr) bool {
	switch e := expr.(type) {
	case *syntax.ListExpr, *syntax.TupleExpr, *syntax.Comprehension:
		return true
	case *syntax.ParenExpr:
		return isList(e.X)
	case *syntax.BinaryExpr:
		return e.Op == syntax.PLUS && isList(e.X)
	case *syntax.CallExpr:
		return slices.Contains([]string{"range", "list", "tuple", "sorted"}, functionName(e))
	}
	return false
}

func (p *python) exprs(items []syntax.Expr) []syntax.Expr {
	var all []syntax.Expr
	for _, item := range items {
		p.spend(item)
		all = append(all, p.expr(item))
	}
	return all
}

// spend counts an item of a list.
func (p *python) spend(e syntax.Expr) {
	if p.items++; p.items > maxList {
		p.fail(e, "a list has more than %d values", maxList)
	}
}

// values evaluates items that use no knob.
func (p *python) values(items []syntax.Expr) []rule.Value {
	var all []rule.Value
	for _, item := range items {
		if p.err != nil {
			return nil
		}
		all = append(all, p.value(item))
	}
	return all
}

// value evaluates a translated expression that uses no knob.
func (p *python) value(e syntax.Expr) rule.Value {
	r, wrong := rule.New("", e, rule.Vocabulary{Language: rule.Imported})
	if len(wrong) > 0 {
		if p.err == nil {
			p.err = p.explain(wrong[0])
		}
		return rule.Value{}
	}
	v := r.Eval(nil)
	if err := v.Err(); err != nil {
		p.fail(e, "%v", err)
	}
	return v
}

// comprehension writes [ITEM for NAME in LIST if CONDITION] out. The list and the condition must not
// depend on knobs.
func (p *python) comprehension(e *syntax.Comprehension) []syntax.Expr {
	loop, ok := e.Clauses[0].(*syntax.ForClause)
	var variable *syntax.Ident
	if ok {
		variable, ok = loop.Vars.(*syntax.Ident)
	}
	conditions := e.Clauses[1:]
	if !ok || e.Curly || slices.ContainsFunc(conditions, func(c syntax.Node) bool { _, isLoop := c.(*syntax.ForClause); return isLoop }) {
		p.fail(e, "want a list with one variable")
		return nil
	}
	source := p.values(p.list(loop.X))
	outer := p.scope
	defer func() { p.scope = outer }()
	var all []syntax.Expr
values:
	for _, v := range source {
		p.spend(e)
		p.scope = map[string]rule.Value{variable.Name: v}
		for name, value := range outer {
			if name != variable.Name {
				p.scope[name] = value
			}
		}
		for _, c := range conditions {
			if holds := p.value(p.expr(c.(*syntax.IfClause).Cond)); p.err != nil || !holds.Truth() {
				continue values
			}
		}
		all = append(all, p.folded(p.expr(e.Body)))
	}
	return all
}

// folded replaces an expression without knobs by its value, if it has one.
func (p *python) folded(e syntax.Expr) syntax.Expr {
	r, wrong := rule.New("", e, rule.Vocabulary{Language: rule.Imported})
	if len(wrong) > 0 {
		return e
	}
	v := r.Eval(nil)
	if v.Err() != nil {
		return e
	}
	start, _ := e.Span()
	return written(v, start)
}

// rangeOf is range(end), range(start, end) or range(start, end, step).
func (p *python) rangeOf(e *syntax.CallExpr) []syntax.Expr {
	var given []int64
	for _, v := range p.values(p.exprs(e.Args)) {
		n, _ := v.Int64()
		if v != rule.Int(n) {
			p.fail(e, "range takes integers, not %s", v)
		}
		given = append(given, n)
	}
	if p.err != nil {
		return nil
	}
	start, end, step := int64(0), int64(0), int64(1)
	switch len(given) {
	case 1:
		end = given[0]
	case 2:
		start, end = given[0], given[1]
	case 3:
		start, end, step = given[0], given[1], given[2]
	default:
		p.fail(e, "range takes one to three integers")
	}
	if step == 0 {
		p.fail(e, "a range with a step of 0 has no end")
	}
	at, _ := e.Span()
	var all []syntax.Expr
	for n := start; p.err == nil && (step > 0 && n < end || step < 0 && n > end); n += step {
		p.spend(e)
		all = append(all, written(rule.Int(n), at))
	}
	return all
}

// functionName is the name of a called function, without the module of math.ceil; empty if it has none.
func functionName(e *syntax.CallExpr) string {
	switch f := e.Fn.(type) {
	case *syntax.Ident:
		return f.Name
	case *syntax.DotExpr:
		if module, ok := f.X.(*syntax.Ident); ok && slices.Contains([]string{"math", "np", "numpy"}, module.Name) {
			return f.Name.Name
		}
	}
	return ""
}

// call translates a function. Those of lists become operators.
func (p *python) call(e *syntax.CallExpr) syntax.Expr {
	name := functionName(e)
	switch name {
	case "abs", "int", "round", "ceil", "floor", "float", "sqrt", "log2", "log", "bool":
		if len(e.Args) != 1 {
			return p.fail(e, "%s of %d arguments", name, len(e.Args))
		}
		x := p.expr(e.Args[0])
		if name == "bool" {
			return truth(x)
		}
		return call(name, e, p.number(x))
	case "min", "max", "sum", "prod", "len", "any", "all":
	default:
		return p.fail(e, "unknown function %q", name)
	}
	var items []syntax.Expr
	if len(e.Args) == 1 && isList(e.Args[0]) {
		items = p.list(e.Args[0])
	} else {
		items = p.exprs(e.Args)
	}
	start, _ := e.Span()
	switch name {
	case "len":
		return written(rule.Int(int64(len(items))), start)
	case "any":
		return truth(p.fold(items, syntax.OR, rule.Bool(false), start))
	case "all":
		return truth(p.fold(items, syntax.AND, rule.Bool(true), start))
	case "sum":
		return p.fold(items, syntax.PLUS, rule.Int(0), start)
	case "prod":
		return p.fold(items, syntax.STAR, rule.Int(1), start)
	}
	switch len(items) {
	case 0:
		return p.fail(e, "an empty list has no least or greatest value")
	case 1:
		return items[0]
	}
	for i := range items {
		items[i] = p.number(items[i])
	}
	return call(name, e, items...)
}

// truth is bool(x).
func truth(x syntax.Expr) syntax.Expr {
	start, _ := x.Span()
	return &syntax.UnaryExpr{OpPos: start, Op: syntax.NOT, X: &syntax.UnaryExpr{OpPos: start, Op: syntax.NOT, X: x}}
}

// fold joins items by an operator.
func (p *python) fold(items []syntax.Expr, operator syntax.Token, first rule.Value, at syntax.Position) syntax.Expr {
	all := written(first, at)
	for _, item := range items {
		if operator != syntax.AND && operator != syntax.OR {
			item = p.number(item)
		}
		all = &syntax.BinaryExpr{X: all, OpPos: at, Op: operator, Y: item}
	}
	return &syntax.ParenExpr{Lparen: at, X: all, Rparen: at}
}
