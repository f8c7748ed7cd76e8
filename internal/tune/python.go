package tune

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.starlark.net/syntax"

	"attune/internal/rule"
)

// The constraints of public tuning spaces are Python expressions, with the && and || of C in some.
// They become rules in three steps. rewrite replaces what Starlark's grammar lacks, and the parser of
// Starlark reads the result. python then translates the tree: comparisons in chains, powers, booleans
// as numbers, list comprehensions and the functions that rules do not have.

// parsePython compiles a Python expression over knobs. A conjunction gives one rule for each of its
// terms.
func parsePython(text string, knobs []Knob) ([]*rule.Rule, error) {
	p := &python{}
	var names []string
	for _, k := range knobs {
		names = append(names, identifier(k.Name))
		if slices.ContainsFunc(k.Values, func(v rule.Value) bool { return v.Type() == rule.Bool(true).Type() }) {
			p.booleans = append(p.booleans, identifier(k.Name))
		}
	}
	expr, err := p.parse(text)
	if err != nil {
		return nil, err
	}
	translated := p.expr(expr)
	if p.err != nil {
		return nil, p.err
	}
	r, wrong := rule.New(text, translated, rule.Vocabulary{Names: names, Language: rule.Imported})
	if len(wrong) > 0 {
		return nil, p.explain(wrong[0])
	}
	return r.Terms(), nil
}

// evaluateList evaluates the text of a list, such as "[1] + [2 * i for i in range(1, 11)]".
func evaluateList(text string) ([]rule.Value, error) {
	p := &python{}
	expr, err := p.parse(text)
	if err != nil {
		return nil, err
	}
	values := p.values(p.list(expr))
	return values, p.err
}

// python translates one expression. After an error its results have no meaning.
type python struct {
	columns  []int // by rune of the rewritten text: the column in the original
	booleans []string
	scope    map[string]rule.Value // variables of comprehensions
	items    int                   // of all lists
	err      error
}

// maxText limits the bytes of an expression, and maxList the values of all its lists, so that a
// hostile file ends in an error.
const (
	maxText = 1 << 16
	maxList = 1 << 16
)

// The words that rewrite puts in place of operators. A comparison becomes "| word |", which binds as
// tightly as a comparison of Python does, and may be chained. A power becomes ".word *", which binds
// more tightly than a sign on its left.
var comparisonWords = map[string]syntax.Token{
	"__lt__": syntax.LT, "__le__": syntax.LE, "__gt__": syntax.GT, "__ge__": syntax.GE, "__eq__": syntax.EQL, "__ne__": syntax.NEQ,
}

const powerWord = "__pow__"

var replaced = map[string]string{
	"<": " |__lt__| ", "<=": " |__le__| ", ">": " |__gt__| ", ">=": " |__ge__| ", "==": " |__eq__| ", "!=": " |__ne__| ",
	"**": " ." + powerWord + " * ", "&&": " and ", "||": " or ", "!": " not ",
}

// pythonToken matches texts, names and numbers, so that no operator is found inside one, and operators.
var pythonToken = regexp.MustCompile(`'[^']*'|"[^"]*"|[A-Za-z_]\w*|\d[\w.]*|<<|>>|[<>=!]=|\*\*|&&|\|\||[<>!]|\s`)

// rewrite returns a text that Starlark can parse.
func (p *python) rewrite(text string) string {
	var out strings.Builder
	column := 1
	add := func(original, rewritten string) {
		out.WriteString(rewritten)
		for i := range []rune(rewritten) {
			p.columns = append(p.columns, column+min(i, max(len([]rune(original))-1, 0)))
		}
		column += len([]rune(original))
	}
	end := 0
	for _, at := range pythonToken.FindAllStringIndex(text, -1) {
		add(text[end:at[0]], text[end:at[0]])
		token := text[at[0]:at[1]]
		end = at[1]
		switch by, ok := replaced[token]; {
		case ok:
			add(token, by)
		case strings.TrimSpace(token) == "":
			add(token, " ") // a line may end anywhere
		case token[0] == '\'' || token[0] == '"':
			add(token, strings.ReplaceAll(token, `\`, `\\`))
		case token[0] >= '0' && token[0] <= '9':
			add(token, strings.ReplaceAll(token, "_", ""))
		default:
			add(token, identifier(token))
		}
	}
	add(text[end:], text[end:])
	rewritten := out.String()
	p.columns = p.columns[len(rewritten)-len(strings.TrimLeft(rewritten, " ")):] // an indent is no expression
	rewritten = strings.Trim(rewritten, " ")
	p.columns = append(p.columns[:utf8.RuneCountInString(rewritten)], column)
	return rewritten
}

// identifier returns a name as rewritten: one that is a keyword in Starlark only is replaced.
func identifier(name string) string {
	if name == "load" {
		return "__load__"
	}
	return name
}

func (p *python) parse(text string) (syntax.Expr, error) {
	if len(text) <= maxText { // the parser refuses a longer one
		text = p.rewrite(text)
	}
	expr, err := rule.ParseSyntax(text)
	if err != nil {
		return nil, p.explain(err)
	}
	return expr, nil
}

// column returns the column in the original text.
func (p *python) column(rewritten int) int {
	if p.columns == nil {
		return rewritten
	}
	return p.columns[max(min(rewritten, len(p.columns))-1, 0)]
}

// explain says what is wrong with the original text.
func (p *python) explain(err error) error {
	if wrong, ok := errors.AsType[*rule.SyntaxError](err); ok {
		return &rule.SyntaxError{Column: p.column(wrong.Column), Reason: wrong.Reason}
	}
	if unknown, ok := errors.AsType[*rule.NameError](err); ok {
		return fmt.Errorf("column %d: unknown knob %q", p.column(unknown.Column), unknown.Name)
	}
	if form, ok := errors.AsType[*rule.FormError](err); ok {
		return fmt.Errorf("column %d: want a number, a knob or a parenthesis", p.column(form.Column))
	}
	return err
}

// fail records the first error.
func (p *python) fail(e syntax.Expr, format string, args ...any) syntax.Expr {
	if p.err == nil {
		start, _ := e.Span()
		p.err = fmt.Errorf("column %d: %s", p.column(int(start.Col)), fmt.Sprintf(format, args...))
	}
	return e
}

// expr translates an expression.
func (p *python) expr(expr syntax.Expr) syntax.Expr {
	if p.err != nil {
		return expr
	}
	switch e := expr.(type) {
	case *syntax.Literal:
		return e
	case *syntax.Ident:
		if v, ok := p.scope[e.Name]; ok {
			return written(v, e.NamePos)
		}
		return e
	case *syntax.ParenExpr:
		return &syntax.ParenExpr{Lparen: e.Lparen, X: p.expr(e.X), Rparen: e.Rparen}
	case *syntax.UnaryExpr:
		return p.unary(e)
	case *syntax.CondExpr:
		return &syntax.CondExpr{Cond: p.expr(e.Cond), True: p.expr(e.True), False: p.expr(e.False)}
	case *syntax.CallExpr:
		return p.call(e)
	case *syntax.BinaryExpr:
		return p.binary(e)
	}
	return p.fail(expr, "want a number, a knob or a parenthesis")
}

func (p *python) unary(e *syntax.UnaryExpr) syntax.Expr {
	if e.X == nil || e.Op == syntax.STAR || e.Op == syntax.STARSTAR {
		return p.fail(e, "want a number, a knob or a parenthesis")
	}
	x := p.expr(e.X)
	if e.Op != syntax.NOT {
		x = p.number(x)
	}
	return &syntax.UnaryExpr{OpPos: e.OpPos, Op: e.Op, X: x}
}

func (p *python) binary(e *syntax.BinaryExpr) syntax.Expr {
	switch e.Op {
	case syntax.AND, syntax.OR:
		return &syntax.BinaryExpr{X: p.expr(e.X), OpPos: e.OpPos, Op: e.Op, Y: p.expr(e.Y)}
	case syntax.PIPE, syntax.IN, syntax.NOT_IN:
		return p.comparison(e)
	case syntax.STAR, syntax.SLASH, syntax.SLASHSLASH, syntax.PERCENT:
		return p.product(e)
	case syntax.EQ:
		return p.fail(e, "want a number, a knob or a parenthesis")
	}
	return p.arithmetic(p.expr(e.X), e, p.expr(e.Y))
}

// arithmetic is the operation of an expression with other operands.
func (p *python) arithmetic(x syntax.Expr, like *syntax.BinaryExpr, y syntax.Expr) syntax.Expr {
	return &syntax.BinaryExpr{X: p.number(x), OpPos: like.OpPos, Op: like.Op, Y: p.number(y)}
}

// comparison translates a chain such as 32 <= x * y <= 1024, which holds if each link does. Its last
// link may be "in". An expression without a comparison is an "or" of bits.
func (p *python) comparison(e *syntax.BinaryExpr) syntax.Expr {
	var membership *syntax.BinaryExpr
	var first syntax.Expr = e
	if e.Op != syntax.PIPE {
		membership, first = e, e.X
	}
	operands, operators := p.links(first)
	var all syntax.Expr
	join := func(link *syntax.BinaryExpr) {
		if all == nil {
			all = link
			return
		}
		all = &syntax.BinaryExpr{X: all, OpPos: link.OpPos, Op: syntax.AND, Y: link}
	}
	for i, operator := range operators {
		join(&syntax.BinaryExpr{X: p.number(operands[i]), OpPos: e.OpPos, Op: operator, Y: p.number(operands[i+1])})
	}
	if membership != nil {
		list := &syntax.ListExpr{}
		for _, item := range p.list(membership.Y) {
			list.List = append(list.List, p.number(item))
		}
		join(&syntax.BinaryExpr{X: p.number(operands[len(operands)-1]), OpPos: e.OpPos, Op: membership.Op, Y: list})
		operators = append(operators, membership.Op)
	}
	switch len(operators) {
	case 0:
		return operands[0]
	case 1:
		return all
	}
	return &syntax.ParenExpr{X: all, Lparen: e.OpPos} // one term of a conjunction
}

// links splits the operands of "|" at the words of comparisons.
func (p *python) links(expr syntax.Expr) (operands []syntax.Expr, operators []syntax.Token) {
	e, ok := expr.(*syntax.BinaryExpr)
	if !ok || e.Op != syntax.PIPE {
		return []syntax.Expr{p.expr(expr)}, nil
	}
	operands, operators = p.links(e.X)
	if word, ok := e.Y.(*syntax.Ident); ok {
		if operator, ok := comparisonWords[word.Name]; ok {
			return append(operands, nil), append(operators, operator)
		}
	}
	if last := &operands[len(operands)-1]; *last == nil {
		*last = p.expr(e.Y)
	} else {
		*last = p.arithmetic(*last, e, p.expr(e.Y))
	}
	return operands, operators
}

// product translates products, quotients and powers. A factor with the word of a power has the next
// factor as its exponent.
func (p *python) product(e *syntax.BinaryExpr) syntax.Expr {
	var factors []syntax.Expr
	var operators []*syntax.BinaryExpr
	var spine syntax.Expr = e
	for {
		b, ok := spine.(*syntax.BinaryExpr)
		if !ok || !slices.Contains([]syntax.Token{syntax.STAR, syntax.SLASH, syntax.SLASHSLASH, syntax.PERCENT}, b.Op) {
			break
		}
		factors, operators = append(factors, b.Y), append(operators, b)
		spine = b.X
	}
	factors = append(factors, spine) // the last factor is the first here
	exponent := syntax.Expr(nil)
	var done []syntax.Expr
	var between []*syntax.BinaryExpr
	for i, factor := range factors {
		if base, isPower := p.power(factor, exponent); isPower {
			done[len(done)-1] = base
			between = between[:len(between)-1]
		} else {
			done = append(done, p.expr(factor))
		}
		exponent = done[len(done)-1]
		if i < len(operators) {
			between = append(between, operators[i])
		}
	}
	result := done[len(done)-1]
	for i := len(done) - 2; i >= 0; i-- {
		result = p.arithmetic(result, between[i], done[i])
	}
	return result
}

// power translates a factor with the word of a power, possibly behind signs.
func (p *python) power(factor, exponent syntax.Expr) (syntax.Expr, bool) {
	switch e := factor.(type) {
	case *syntax.UnaryExpr:
		if x, ok := p.power(e.X, exponent); ok {
			return &syntax.UnaryExpr{OpPos: e.OpPos, Op: e.Op, X: x}, true
		}
	case *syntax.DotExpr:
		if e.Name.Name == powerWord && exponent != nil {
			return call("pow", e, p.number(p.expr(e.X)), p.number(exponent)), true
		}
	}
	return nil, false
}

// call is a call of a function at the place of an expression.
func call(name string, at syntax.Expr, args ...syntax.Expr) syntax.Expr {
	start, _ := at.Span()
	return &syntax.CallExpr{Fn: &syntax.Ident{NamePos: start, Name: name}, Lparen: start, Args: args, Rparen: start}
}

// number makes a boolean 0 or 1: in Python it is a number.
func (p *python) number(e syntax.Expr) syntax.Expr {
	if e != nil && p.isBoolean(e) {
		return call("number", e, e)
	}
	return e
}

// isBoolean reports whether the value of a translated expression may be a boolean.
func (p *python) isBoolean(expr syntax.Expr) bool {
	switch e := expr.(type) {
	case *syntax.Ident:
		return e.Name == "True" || e.Name == "False" || slices.Contains(p.booleans, e.Name)
	case *syntax.ParenExpr:
		return p.isBoolean(e.X)
	case *syntax.UnaryExpr:
		return e.Op == syntax.NOT
	case *syntax.CondExpr:
		return p.isBoolean(e.True) || p.isBoolean(e.False)
	case *syntax.BinaryExpr:
		switch e.Op {
		case syntax.AND, syntax.OR:
			return p.isBoolean(e.X) || p.isBoolean(e.Y)
		case syntax.LT, syntax.LE, syntax.GT, syntax.GE, syntax.EQL, syntax.NEQ, syntax.IN, syntax.NOT_IN:
			return true
		}
	}
	return false
}

// written writes a value as an expression.
func written(v rule.Value, at syntax.Position) syntax.Expr {
	l := &syntax.Literal{TokenPos: at, Raw: v.String()}
	switch v.Type() {
	case rule.Bool(true).Type():
		return &syntax.Ident{NamePos: at, Name: v.String()}
	case rule.Text("").Type():
		l.Token, l.Value = syntax.STRING, v.String()
	case rule.Real(0).Type():
		x, _ := v.Float()
		l.Token, l.Value = syntax.FLOAT, x
	default:
		n, _ := new(big.Int).SetString(v.String(), 10)
		l.Token, l.Value = syntax.INT, n
		if n.IsInt64() {
			l.Value = n.Int64()
		}
	}
	return l
}

// equal compares two values as Python does: a boolean is 0 or 1.
func equal(v, w rule.Value) bool {
	number := func(v rule.Value) rule.Value {
		if n, ok := v.Int64(); ok {
			return rule.Int(n)
		}
		return v
	}
	return number(v).Equal(number(w))
}
