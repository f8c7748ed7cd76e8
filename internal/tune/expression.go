package tune

import (
	"fmt"
	"slices"
	"strings"
)

// expression is a compiled Python expression over knobs: arithmetic, comparisons (chained too),
// logic, conditional expressions, lists after "in" and the functions of functions.go. Integers that
// leave 64 bits become reals.
type expression struct {
	text  string
	uses  []int // indices of the knobs it uses, ascending
	slots int   // length of the environment: the knobs, then the variables of comprehensions
	value *node
}

// node is a part of an expression. It is evaluated in an environment: the values of the knobs, then
// those of comprehension variables. A part without a value gives a bad Value.
type node struct {
	eval func(env []Value) Value
	op   operation // opaqueNode if only the whole part can be evaluated
	args []*node
	name string // of an arithmetic operator or a comparison
	knob int    // of a leaf that is a knob
	uses []int  // knobs, in any order, possibly twice
}

// operation is what a solver knows about a node.
type operation uint8

const (
	opaqueNode operation = iota
	knobNode
	arithmeticNode
	comparisonNode
	logicNode  // its name is "or" or "and"
	notNode    // the logical one
	choiceNode // its args are the value if true, the condition, the value if false
)

// newNode returns a node of parts, which are nil after an error of the parser.
func newNode(op operation, name string, eval func(env []Value) Value, args ...*node) *node {
	n := &node{eval: eval, op: op, args: args, name: name}
	for _, arg := range args {
		if arg != nil {
			n.uses = append(n.uses, arg.uses...)
		}
	}
	return n
}

// listNode evaluates a list. The Value is bad if the list has none.
type listNode func(env []Value) ([]Value, Value)

// holds reports whether the expression is true. An expression that cannot be evaluated, for example
// because it divides by zero, is not.
func (e *expression) holds(env []Value) bool {
	v := e.value.eval(env)
	return v.kind != badKind && v.truth()
}

// compile compiles an expression over the named knobs. A conjunction gives one expression for each
// of its terms, because a solver can check each as soon as its knobs are assigned.
func compile(text string, knobs []string) ([]*expression, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	if terms := conjuncts(tokens); len(terms) > 1 {
		var all []*expression
		for _, term := range terms {
			e, err := compileTerm(term, text, knobs)
			if err != nil {
				return nil, err
			}
			all = append(all, e)
		}
		return all, nil
	}
	e, err := compileTerm(tokens, text, knobs)
	if err != nil {
		return nil, err
	}
	return []*expression{e}, nil
}

// conjuncts splits a conjunction at its outermost "and"s. An "or" or a conditional expression binds
// less tightly than "and", so that a text with one of them outside parentheses is one term.
func conjuncts(tokens []token) [][]token {
	var terms [][]token
	depth, start := 0, 0
	for i, t := range tokens {
		if t.kind != operatorToken {
			continue
		}
		switch t.text {
		case "(", "[":
			depth++
		case ")", "]":
			depth--
		case "or", "||", "if":
			if depth == 0 {
				return nil
			}
		case "and", "&&":
			if depth == 0 {
				terms = append(terms, ended(tokens[start:i], t.column))
				start = i + 1
			}
		}
	}
	return append(terms, tokens[start:])
}

func ended(tokens []token, column int) []token {
	return append(slices.Clone(tokens), token{kind: endToken, text: `"and"`, column: column})
}

func compileTerm(tokens []token, text string, knobs []string) (*expression, error) {
	p := &parser{tokens: tokens, names: slices.Clone(knobs), knobs: len(knobs), slots: len(knobs)}
	value := p.conditional()
	p.end()
	if p.err != nil {
		return nil, p.err
	}
	slices.Sort(p.uses)
	return &expression{text, slices.Compact(p.uses), p.slots, value}, nil
}

// evaluateList evaluates the text of a list, such as "[1] + [2 * i for i in range(1, 11)]".
func evaluateList(text string) ([]Value, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	list := p.list()
	p.end()
	if p.err != nil {
		return nil, p.err
	}
	values, failed := list(make([]Value, p.slots))
	if failed.kind == badKind {
		return nil, fmt.Errorf("%s", failed.text)
	}
	return values, nil
}

// maxDepth limits nested parentheses, maxList the length of a list, so that a hostile file ends in
// an error.
const (
	maxDepth = 200
	maxList  = 1 << 16
)

// parser is a recursive-descent parser that builds nodes. After an error it returns nil nodes.
type parser struct {
	tokens []token
	at     int
	depth  int
	names  []string // of the slots; a comprehension variable hides a knob while it is in scope
	knobs  int
	slots  int
	uses   []int
	err    error
}

func (p *parser) peek() token { return p.tokens[p.at] }

// fail records the first error and skips to the end.
func (p *parser) fail(t token, format string, args ...any) *node {
	if p.err == nil {
		p.err = fmt.Errorf("column %d: %s", t.column, fmt.Sprintf(format, args...))
	}
	p.at = len(p.tokens) - 1
	return nil
}

// take consumes an operator if it is next.
func (p *parser) take(operators ...string) (string, bool) {
	t := p.peek()
	if t.kind == operatorToken && slices.Contains(operators, t.text) {
		p.at++
		return t.text, true
	}
	return "", false
}

func (p *parser) expect(operator string) {
	if _, ok := p.take(operator); !ok {
		p.fail(p.peek(), "want %q, got %s", operator, p.peek().describe())
	}
}

func (p *parser) end() {
	if t := p.peek(); t.kind != endToken {
		p.fail(t, "unexpected %s", t.describe())
	}
}

func (t token) describe() string {
	switch t.kind {
	case numberToken:
		return t.value.String()
	case endToken:
		return t.text
	}
	return fmt.Sprintf("%q", t.text)
}

// conditional parses A if B else C, the loosest form.
func (p *parser) conditional() *node {
	if p.depth++; p.depth > maxDepth {
		return p.fail(p.peek(), "more than %d nested parentheses", maxDepth)
	}
	defer func() { p.depth-- }()
	yes := p.disjunction()
	if _, ok := p.take("if"); !ok {
		return yes
	}
	condition := p.disjunction()
	p.expect("else")
	no := p.conditional()
	return newNode(choiceNode, "", func(env []Value) Value {
		c := condition.eval(env)
		switch {
		case c.kind == badKind:
			return c
		case c.truth():
			return yes.eval(env)
		}
		return no.eval(env)
	}, yes, condition, no)
}

func (p *parser) disjunction() *node {
	left := p.conjunction()
	for {
		if _, ok := p.take("or", "||"); !ok {
			return left
		}
		left = either(left, p.conjunction(), true)
	}
}

func (p *parser) conjunction() *node {
	left := p.negation()
	for {
		if _, ok := p.take("and", "&&"); !ok {
			return left
		}
		left = either(left, p.negation(), false)
	}
}

// either evaluates the left side, and the right side unless the left decides.
func either(left, right *node, decides bool) *node {
	name := "and"
	if decides {
		name = "or"
	}
	return newNode(logicNode, name, func(env []Value) Value {
		if v := left.eval(env); v.kind == badKind || v.truth() == decides {
			return v
		}
		return right.eval(env)
	}, left, right)
}

func (p *parser) negation() *node {
	if _, ok := p.take("not", "!"); !ok {
		return p.comparison()
	}
	if p.depth++; p.depth > maxDepth {
		return p.fail(p.peek(), "more than %d nested operators", maxDepth)
	}
	defer func() { p.depth-- }()
	x := p.negation()
	return newNode(notNode, "", func(env []Value) Value {
		v := x.eval(env)
		if v.kind == badKind {
			return v
		}
		return Bool(!v.truth())
	}, x)
}

var comparisons = []string{"<", "<=", ">", ">=", "==", "!=", "in", "not", "is"}

// comparison parses a chain such as 32 <= x * y <= 1024, which holds if each link does.
func (p *parser) comparison() *node {
	left := p.binary(0)
	var chain *node
	for {
		operator, ok := p.take(comparisons...)
		if !ok {
			break
		}
		if operator == "not" {
			p.expect("in")
			operator = "not in"
		}
		if operator == "is" {
			return p.fail(p.peek(), `"is" compares identities; write ==`)
		}
		var link *node
		if strings.HasSuffix(operator, "in") {
			used := len(p.uses)
			list := p.list()
			link = contains(left, list, p.uses[used:], operator == "in")
			left = constant(bad("a list is no number"))
		} else {
			right := p.binary(0)
			link = compare(operator, left, right)
			left = right
		}
		if chain != nil {
			link = either(chain, link, false)
		}
		chain = link
	}
	if chain == nil {
		return left
	}
	return chain
}

// levels has the binary operators, from the loosest to the tightest.
var levels = [][]string{{"|"}, {"^"}, {"&"}, {"<<", ">>"}, {"+", "-"}, {"*", "/", "//", "%"}}

func (p *parser) binary(level int) *node {
	if level == len(levels) {
		return p.unary()
	}
	left := p.binary(level + 1)
	for {
		operator, ok := p.take(levels[level]...)
		if !ok {
			return left
		}
		left = arithmetic(operator, left, p.binary(level+1))
	}
}

func (p *parser) unary() *node {
	operator, ok := p.take("-", "+", "~")
	if !ok {
		return p.power()
	}
	if p.depth++; p.depth > maxDepth {
		return p.fail(p.peek(), "more than %d nested operators", maxDepth)
	}
	defer func() { p.depth-- }()
	x := p.unary()
	switch operator {
	case "-":
		return arithmetic("-", constant(Int(0)), x)
	case "~":
		return arithmetic("-", constant(Int(-1)), x)
	}
	return arithmetic("+", constant(Int(0)), x)
}

// power binds more tightly than a sign on its left and less tightly than one on its right.
func (p *parser) power() *node {
	base := p.atom()
	if _, ok := p.take("**"); !ok {
		return base
	}
	return arithmetic("**", base, p.unary())
}

func constant(v Value) *node { return newNode(opaqueNode, "", func([]Value) Value { return v }) }

func (p *parser) atom() *node {
	t := p.peek()
	p.at++
	switch {
	case t.kind == numberToken:
		return constant(t.value)
	case t.kind == textToken:
		return constant(Text(t.text))
	case t.kind == nameToken:
		return p.name(t)
	case t.kind == operatorToken && t.text == "(":
		x := p.conditional()
		p.expect(")")
		return x
	}
	return p.fail(t, "want a number, a knob or a parenthesis, got %s", t.describe())
}

// name parses a constant, a call or the name of a knob.
func (p *parser) name(t token) *node {
	switch t.text {
	case "True":
		return constant(Bool(true))
	case "False":
		return constant(Bool(false))
	}
	name := t.text
	if name == "math" || name == "np" || name == "numpy" { // math.ceil
		if _, ok := p.take("."); ok {
			name = p.peek().text
			p.at = min(p.at+1, len(p.tokens)-1)
		}
	}
	if _, ok := p.take("("); ok {
		return p.call(t, name)
	}
	slot := lastIndex(p.names, t.text)
	if slot < 0 {
		return p.fail(t, "unknown knob %q", t.text)
	}
	value := func(env []Value) Value { return env[slot] }
	if slot >= p.knobs { // of a comprehension, which is opaque
		return newNode(opaqueNode, "", value)
	}
	p.uses = append(p.uses, slot)
	return &node{eval: value, op: knobNode, knob: slot, uses: []int{slot}}
}

// lastIndex finds a name, the innermost comprehension variable first.
func lastIndex(names []string, name string) int {
	for i := len(names) - 1; i >= 0; i-- {
		if names[i] == name {
			return i
		}
	}
	return -1
}
