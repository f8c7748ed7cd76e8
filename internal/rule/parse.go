package rule

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"go.starlark.net/syntax"
)

// Limits of a rule. maxText bounds the memory of the parser, and maxParts the time of an evaluation.
const (
	maxText  = 1 << 16 // bytes
	maxParts = 1000    // operations and names
)

// Language is what a rule may contain.
type Language int

const (
	// Plain is arithmetic and logic on numbers with min, max and abs, and lists after "in".
	Plain Language = iota
	// Numeric adds inf, nan and functions whose results are numbers.
	Numeric
	// Imported adds texts and the functions that an importer translates a foreign dialect to.
	Imported
)

var (
	plainConstants    = []string{"True", "False"}
	plainFunctions    = []string{"min", "max", "abs"}
	numericConstants  = slices.Concat(plainConstants, []string{"inf", "nan"})
	numericFunctions  = slices.Concat(plainFunctions, []string{"int", "float", "ceil", "floor", "sqrt"})
	importedFunctions = slices.Concat(numericFunctions, []string{"pow", "round", "log", "log2", "number"})
)

// Functions lists the functions of a language.
func (l Language) Functions() []string {
	switch l {
	case Plain:
		return plainFunctions
	case Numeric:
		return numericFunctions
	}
	return importedFunctions
}

// Constants lists the constants of a language.
func (l Language) Constants() []string {
	if l == Plain {
		return plainConstants
	}
	return numericConstants
}

// Vocabulary is what a rule may use. The order of the names is that of the values of an evaluation.
type Vocabulary struct {
	Names    []string
	Language Language
}

// FormError is the error of a part that the language does not have.
type FormError struct {
	Column  int
	Instead string // what the part is, and what to write in place of it; may be empty
}

func (e *FormError) Error() string {
	if e.Instead != "" {
		return fmt.Sprintf("column %d: %s", e.Column, e.Instead)
	}
	return fmt.Sprintf("column %d: no part of a rule", e.Column)
}

// NameError is the error of a name that the vocabulary does not have. It is reported once a rule.
type NameError struct {
	Name   string
	Column int
}

func (e *NameError) Error() string {
	return fmt.Sprintf("column %d: unknown name %q", e.Column, e.Name)
}

// SyntaxError is the error of a text that is no expression, or of one that is too large.
type SyntaxError struct {
	Column int
	Reason string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("column %d: %s", e.Column, e.Reason) }

// IsWord reports whether a name can be used in a rule, and is not a keyword.
func IsWord(name string) bool {
	expr, err := new(syntax.FileOptions).ParseExpr("name", name, 0)
	_, isName := expr.(*syntax.Ident)
	return err == nil && isName
}

// ParseSyntax parses a text to Starlark's syntax tree.
func ParseSyntax(text string) (syntax.Expr, error) {
	if len(text) > maxText {
		return nil, &SyntaxError{1, fmt.Sprintf("the expression has %d bytes; at most %d are supported", len(text), maxText)}
	}
	expr, err := new(syntax.FileOptions).ParseExpr("rule", text, 0)
	at, ok := errors.AsType[syntax.Error](err)
	switch {
	case !ok:
		return expr, err
	case strings.Contains(at.Msg, "got '**'"):
		before, _, _ := strings.Cut(text, "**")
		return nil, &SyntaxError{utf8.RuneCountInString(before) + 1, "there is no power operator **; multiply, or shift as in 1 << n"}
	}
	return nil, &SyntaxError{int(at.Pos.Col), at.Msg}
}

// Parse compiles a rule. It reports everything that is wrong with it.
func Parse(text string, of Vocabulary) (*Rule, []error) {
	expr, err := ParseSyntax(text)
	if err != nil {
		return nil, []error{err}
	}
	return New(text, expr, of)
}

// New compiles a parsed rule of a text. It reports everything that is wrong with it.
func New(text string, expr syntax.Expr, of Vocabulary) (*Rule, []error) {
	if parts := count(expr); parts > maxParts {
		return nil, []error{&SyntaxError{1, fmt.Sprintf("the expression has %d operations and names; at most %d are supported", parts, maxParts)}}
	}
	p := parser{Vocabulary: of}
	root := p.node(expr)
	if len(p.wrong) > 0 {
		return nil, p.wrong
	}
	return newRule(text, root), nil
}

// count returns the number of operations and names. Literals are free: a list of them is searched
// fast.
func count(expr syntax.Expr) int {
	parts := 0
	syntax.Walk(expr, func(n syntax.Node) bool {
		switch n.(type) {
		case nil, *syntax.Literal, *syntax.ParenExpr:
		default:
			parts++
		}
		return true
	})
	return parts
}

// parser turns a syntax tree into that of a rule. After an error its nodes are nil.
type parser struct {
	Vocabulary
	unknown []string // names that have been reported
	wrong   []error
}

func column(e syntax.Expr) int {
	start, _ := e.Span()
	return int(start.Col)
}

// form reports a part that the language does not have.
func (p *parser) form(e syntax.Expr) *Node {
	p.wrong = append(p.wrong, &FormError{column(e), instead(e)})
	return nil
}

// instead is what to write in place of parts that Starlark has, and a rule has not: a rule is bounded,
// solved and written in C, which needs every operand in its text.
func instead(e syntax.Expr) string {
	switch e := unparen(e).(type) {
	case *syntax.Comprehension:
		return `there are no comprehensions; write each item, as in N in [32, 64] or A > 0 and B > 0`
	case *syntax.CallExpr:
		f, _ := e.Fn.(*syntax.Ident)
		if f == nil {
			return ""
		}
		switch f.Name {
		case "all":
			return `there is no all(); join the conditions by "and"`
		case "any":
			return `there is no any(); join the conditions by "or"`
		case "sum":
			return `there is no sum(); add the items by "+"`
		case "range":
			return `there is no range(); write its bounds, as in 0 <= N and N < 8`
		}
	}
	return ""
}

func (p *parser) node(expr syntax.Expr) *Node {
	switch e := expr.(type) {
	case *syntax.ParenExpr:
		n := p.node(e.X)
		if n != nil {
			n.grouped = true
		}
		return n
	case *syntax.Literal:
		return p.literal(e)
	case *syntax.Ident:
		return p.name(e)
	case *syntax.UnaryExpr:
		if e.X == nil || unary[e.Op] == "" { // f(*args)
			return p.form(e)
		}
		return p.operation(e, unary[e.Op], e.X)
	case *syntax.BinaryExpr:
		return p.binary(e)
	case *syntax.CondExpr:
		return p.operation(e, Choice, e.Cond, e.True, e.False)
	case *syntax.CallExpr:
		return p.call(e)
	}
	return p.form(expr)
}

// operation is a node of operands.
func (p *parser) operation(e syntax.Expr, op Op, operands ...syntax.Expr) *Node {
	n := &Node{Op: op, Column: column(e)}
	for _, operand := range operands {
		n.Args = append(n.Args, p.node(operand))
	}
	return n
}

func (p *parser) literal(e *syntax.Literal) *Node {
	n := &Node{Op: Constant, Column: column(e)}
	switch value := e.Value.(type) {
	case int64:
		n.Value = Int(value)
	case *big.Int:
		if n.Value = large(value); n.Value.kind == badKind {
			p.wrong = append(p.wrong, &SyntaxError{n.Column, n.Value.text})
		}
	case float64:
		n.Value = Real(value)
	case string:
		if n.Value = Text(value); p.Language != Imported || e.Token != syntax.STRING {
			return p.form(e)
		}
	default:
		return p.form(e)
	}
	return n
}

func (p *parser) name(e *syntax.Ident) *Node {
	n := &Node{Op: Constant, Column: column(e)}
	known := slices.Index(p.Names, e.Name)
	switch {
	case e.Name == "True" || e.Name == "False":
		n.Value = Bool(e.Name == "True")
	case known >= 0:
		n.Op, n.Name = Name, known
	case e.Name == "inf" && p.Language != Plain:
		n.Value = Real(math.Inf(1))
	case e.Name == "nan" && p.Language != Plain:
		n.Value = Real(math.NaN())
	case !slices.Contains(p.unknown, e.Name):
		p.unknown = append(p.unknown, e.Name)
		p.wrong = append(p.wrong, &NameError{e.Name, n.Column})
	}
	return n
}

var unary = map[syntax.Token]Op{syntax.NOT: Not, syntax.PLUS: Plus, syntax.MINUS: Minus, syntax.TILDE: Invert}

// binary allows a list only to the right of "in": a list times a large integer would exhaust the
// memory.
func (p *parser) binary(e *syntax.BinaryExpr) *Node {
	switch e.Op {
	case syntax.EQ: // f(x=1)
		return p.form(e)
	case syntax.IN, syntax.NOT_IN:
	default:
		return p.operation(e, Op(e.Op.String()), e.X, e.Y)
	}
	n := &Node{Op: Membership, Column: column(e), Args: []*Node{p.node(e.X)}}
	var items []syntax.Expr
	switch list := unparen(e.Y).(type) {
	case *syntax.ListExpr:
		items = list.List
	case *syntax.TupleExpr:
		items = list.List
	default:
		return p.form(e.Y)
	}
	for _, item := range items {
		n.Args = append(n.Args, p.node(item))
	}
	if e.Op == syntax.NOT_IN {
		return &Node{Op: Not, Column: n.Column, Args: []*Node{n}}
	}
	return n
}

func unparen(e syntax.Expr) syntax.Expr {
	for {
		paren, ok := e.(*syntax.ParenExpr)
		if !ok {
			return e
		}
		e = paren.X
	}
}

func (p *parser) call(e *syntax.CallExpr) *Node {
	f, ok := e.Fn.(*syntax.Ident)
	if !ok || !slices.Contains(p.Language.Functions(), f.Name) {
		return p.form(e)
	}
	n := p.operation(e, Op(f.Name), e.Args...)
	least, most := 1, 1
	switch n.Op {
	case Min, Max:
		least, most = 2, math.MaxInt
	case Power:
		least, most = 2, 2
	}
	if count := len(n.Args); (count < least || count > most) && len(p.wrong) == 0 {
		p.wrong = append(p.wrong, &SyntaxError{n.Column, fmt.Sprintf("%s of %d arguments", n.Op, count)})
	}
	return n
}
