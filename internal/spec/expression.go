package spec

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	starlarkmath "go.starlark.net/lib/math"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// vocabulary lists the names that an expression may use: knobs, or the properties of a shape and
// the predicates over them.
type vocabulary struct {
	one, many string   // what error messages call a name
	names     []string // in the order of the values of an evaluation
	later     []string // predicates that are declared further down in the file
	numeric   bool     // with inf, nan and the functions of numericFunctions
}

// expression is a compiled rule.
type expression struct {
	uses []int // indices of the names it uses, ascending
	rule *starlark.Function
}

// maxSteps ends a rule that would run too long. It allows several hundred operators, each of which
// may double the length of an integer.
const maxSteps = 1000

// threads recycles Starlark threads: a search evaluates rules millions of times.
var threads = sync.Pool{New: func() any { return new(starlark.Thread) }}

// Holds reports whether the rule is true for an assignment: one value for each name of the
// vocabulary. For a constraint these are the knobs in the order of Kernel.Knobs. It is safe for
// concurrent use. It returns an error if the rule cannot be evaluated, for example because of a
// division by zero.
func (e *expression) Holds(values []int) (bool, error) {
	value, err := e.evaluate(values)
	if err != nil {
		return false, err
	}
	return bool(value.Truth()), nil
}

// number evaluates an expression whose result is a boolean (0 or 1) or an integer.
func (e *expression) number(values []int) (int, error) {
	value, err := e.evaluate(values)
	if err != nil {
		return 0, err
	}
	switch value := value.(type) {
	case starlark.Bool:
		if value {
			return 1, nil
		}
		return 0, nil
	case starlark.Int:
		n, ok := value.Int64()
		if !ok {
			return 0, fmt.Errorf("the result %v does not fit 64 bits", value)
		}
		return int(n), nil
	}
	return 0, fmt.Errorf("the result is a %s; want a boolean or an integer (// divides without a fraction)", value.Type())
}

// evaluate calls the compiled expression with the values of the names it uses.
func (e *expression) evaluate(values []int) (starlark.Value, error) {
	args := make(starlark.Tuple, len(e.uses))
	for i, name := range e.uses {
		args[i] = starlark.MakeInt(values[name])
	}
	thread := threads.Get().(*starlark.Thread)
	thread.SetMaxExecutionSteps(thread.ExecutionSteps() + maxSteps)
	value, err := starlark.Call(thread, e.rule, args, nil)
	if err != nil {
		return nil, err // and drop the thread, which may be cancelled
	}
	threads.Put(thread)
	return value, nil
}

// compileCondition compiles a rule that must use at least one name: a constant condition is a
// mistake.
func compileCondition(rule string, of vocabulary) (expression, []error) {
	e, wrong := compile(rule, of)
	if len(wrong) == 0 && len(e.uses) == 0 {
		wrong = []error{fmt.Errorf("it names no %s", of.one)}
	}
	return e, wrong
}

// compile compiles a rule. It reports everything that is wrong with the rule.
func compile(rule string, of vocabulary) (expression, []error) {
	expr, err := parseExpr(rule)
	if err != nil {
		return expression{}, []error{err}
	}
	return compileExpr(expr, of)
}

// parseExpr parses a Starlark expression.
func parseExpr(text string) (syntax.Expr, error) {
	expr, err := new(syntax.FileOptions).ParseExpr("rule", text, 0)
	if at, ok := errors.AsType[syntax.Error](err); ok {
		err = fmt.Errorf("column %d: %s", at.Pos.Col, at.Msg)
		if strings.Contains(at.Msg, "got '**'") {
			before, _, _ := strings.Cut(text, "**")
			err = fmt.Errorf("column %d: there is no power operator **; multiply, or shift as in 1 << n", utf8.RuneCountInString(before)+1)
		}
	}
	return expr, err
}

func compileExpr(expr syntax.Expr, of vocabulary) (expression, []error) {
	c := ruleChecker{vocabulary: of}
	c.check(expr)
	if len(c.wrong) > 0 {
		return expression{}, c.wrong
	}
	slices.Sort(c.uses)
	// The rule becomes the body of a function of the names it uses. It is compiled once and called
	// with different values.
	lambda := &syntax.LambdaExpr{Body: expr}
	for _, name := range c.uses {
		lambda.Params = append(lambda.Params, &syntax.Ident{Name: of.names[name]})
	}
	value, err := starlark.EvalExprOptions(new(syntax.FileOptions), new(starlark.Thread), lambda, numericNames)
	if err != nil {
		return expression{}, []error{err}
	}
	value.Freeze()
	return expression{c.uses, value.(*starlark.Function)}, nil
}

// ruleChecker walks a rule, collects the names it uses and reports what is not plain arithmetic or
// logic. The work of a plain rule is bounded by its length, so that kernel.toml need not be
// trusted.
type ruleChecker struct {
	vocabulary
	uses    []int
	unknown []string // names that have been reported
	wrong   []error
}

var (
	ruleConstants = []string{"True", "False"}
	ruleFunctions = []string{"min", "max", "abs"}

	// numericFunctions are those of expressions whose result is a number.
	numericConstants = []string{"inf", "nan"}
	numericFunctions = slices.Concat(ruleFunctions, []string{"int", "float", "ceil", "floor", "sqrt"})
	numericNames     = starlark.StringDict{
		"inf": starlark.Float(math.Inf(1)), "nan": starlark.Float(math.NaN()),
		"ceil": starlarkmath.Module.Members["ceil"], "floor": starlarkmath.Module.Members["floor"],
		"sqrt": starlarkmath.Module.Members["sqrt"],
	}
)

func (v vocabulary) functions() []string {
	if v.numeric {
		return numericFunctions
	}
	return ruleFunctions
}

func (c *ruleChecker) check(expr syntax.Expr) {
	switch e := expr.(type) {
	case *syntax.Ident:
		c.name(e)
	case *syntax.Literal:
		if e.Token != syntax.INT && e.Token != syntax.FLOAT {
			c.notPlain(e)
		}
	case *syntax.ParenExpr:
		c.check(e.X)
	case *syntax.UnaryExpr:
		if e.X == nil || e.Op == syntax.STAR || e.Op == syntax.STARSTAR { // f(*args)
			c.notPlain(e)
			return
		}
		c.check(e.X)
	case *syntax.BinaryExpr:
		c.binary(e)
	case *syntax.CondExpr:
		c.check(e.Cond)
		c.check(e.True)
		c.check(e.False)
	case *syntax.CallExpr:
		if f, ok := e.Fn.(*syntax.Ident); !ok || !slices.Contains(c.functions(), f.Name) {
			c.notPlain(e)
			return
		}
		c.checkAll(e.Args)
	default:
		c.notPlain(e)
	}
}

func (c *ruleChecker) checkAll(exprs []syntax.Expr) {
	for _, e := range exprs {
		c.check(e)
	}
}

// binary checks a binary expression. A list is allowed only to the right of "in": a list times a
// large integer would exhaust the memory.
func (c *ruleChecker) binary(e *syntax.BinaryExpr) {
	if e.Op == syntax.EQ { // f(x=1)
		c.notPlain(e)
		return
	}
	c.check(e.X)
	if e.Op != syntax.IN && e.Op != syntax.NOT_IN {
		c.check(e.Y)
		return
	}
	switch items := unparen(e.Y).(type) {
	case *syntax.ListExpr:
		c.checkAll(items.List)
	case *syntax.TupleExpr:
		c.checkAll(items.List)
	default:
		c.notPlain(e.Y)
	}
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

func (c *ruleChecker) name(e *syntax.Ident) {
	if slices.Contains(ruleConstants, e.Name) || slices.Contains(c.unknown, e.Name) {
		return
	}
	i := slices.Index(c.names, e.Name)
	if i >= 0 {
		if !slices.Contains(c.uses, i) {
			c.uses = append(c.uses, i)
		}
		return
	}
	if c.numeric && slices.Contains(numericConstants, e.Name) {
		return
	}
	c.unknown = append(c.unknown, e.Name)
	if slices.Contains(c.later, e.Name) {
		c.wrong = append(c.wrong, fmt.Errorf("predicate %q is declared below; a rule sees only the predicates above it", e.Name))
		return
	}
	c.wrong = append(c.wrong, fmt.Errorf("unknown %s %q%s", c.one, e.Name, hint(e.Name, c.names)))
}

func (c *ruleChecker) notPlain(e syntax.Expr) {
	start, _ := e.Span()
	what := "a rule"
	if c.numeric {
		what = "an expression"
	}
	c.wrong = append(c.wrong, fmt.Errorf("column %d: %s may contain only %s, numbers, operators, %s, "+
		"and lists after \"in\"", start.Col, what, c.many, strings.Join(c.functions(), ", ")))
}
