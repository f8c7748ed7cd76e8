package spec

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Constraint is a rule between knobs that every variant obeys.
type Constraint struct {
	Rule    string // a Starlark expression over knobs
	Why     string
	Sources []string // it binds only stages built from one of these; all stages if empty

	expression
}

// in reports whether the rule binds the stages of a source.
func (c *Constraint) in(source string) bool { return covers(c.Sources, source) }

// newConstraint compiles a rule over the named knobs. It reports all that is wrong with the rule.
func newConstraint(rule, why string, knobs []string) (*Constraint, []error) {
	e, wrong := compileCondition(rule, vocabulary{one: "knob", many: "knobs", names: knobs})
	if len(wrong) > 0 {
		return nil, wrong
	}
	return &Constraint{Rule: rule, Why: why, expression: e}, nil
}

// vocabulary is what an expression may name: knobs, or the words of a shape and predicates over them.
type vocabulary struct {
	one, many string
	names     []string
	later     []string // predicates that are declared further down in the file
}

// expression is a rule that was compiled: over knobs, or over the words of a shape.
type expression struct {
	uses []int // what it names, as indices into its vocabulary, in order
	rule *starlark.Function
}

// maxSteps ends a rule that runs away: several hundred operators, of which each may double the length of a number.
const maxSteps = 1000

// threads are those that wait for the next rule: a search asks rules by the million.
var threads = sync.Pool{New: func() any { return new(starlark.Thread) }}

// Holds says whether the rule allows an assignment: one value for each name of the vocabulary, which for a constraint is each knob, in the
// order of Kernel.Knobs. It can be called from many goroutines at once. An error means that the rule has no answer, as after a division by zero.
func (e *expression) Holds(values []int) (bool, error) {
	result, err := e.evaluate(values)
	if err != nil {
		return false, err
	}
	return bool(result.Truth()), nil
}

// number evaluates an expression whose result is a boolean (0 or 1) or an integer.
func (e *expression) number(values []int) (int, error) {
	result, err := e.evaluate(values)
	if err != nil {
		return 0, err
	}
	switch result := result.(type) {
	case starlark.Bool:
		if result {
			return 1, nil
		}
		return 0, nil
	case starlark.Int:
		n, ok := result.Int64()
		if !ok {
			return 0, fmt.Errorf("the result %v does not fit 64 bits", result)
		}
		return int(n), nil
	}
	return 0, fmt.Errorf("the result is a %s; want a boolean or an integer (// divides without a fraction)", result.Type())
}

// evaluate calls the compiled expression with the values of the names it uses.
func (e *expression) evaluate(values []int) (starlark.Value, error) {
	args := make(starlark.Tuple, len(e.uses))
	for i, name := range e.uses {
		args[i] = starlark.MakeInt(values[name])
	}
	thread := threads.Get().(*starlark.Thread)
	thread.SetMaxExecutionSteps(thread.ExecutionSteps() + maxSteps)
	result, err := starlark.Call(thread, e.rule, args, nil)
	if err != nil {
		return nil, err // and drop the thread, which may be canceled
	}
	threads.Put(thread)
	return result, nil
}

// compileCondition compiles a rule that must depend on something: one that names nothing is a slip.
func compileCondition(rule string, of vocabulary) (expression, []error) {
	e, wrong := compile(rule, of)
	if len(wrong) == 0 && len(e.uses) == 0 {
		wrong = []error{fmt.Errorf("it names no %s", of.one)}
	}
	return e, wrong
}

// compile makes a function of a rule. It reports all that is wrong with the rule.
func compile(rule string, of vocabulary) (expression, []error) {
	options := new(syntax.FileOptions)
	expr, err := options.ParseExpr("rule", rule, 0)
	if err != nil {
		if at, ok := errors.AsType[syntax.Error](err); ok {
			err = fmt.Errorf("column %d: %s", at.Pos.Col, at.Msg)
		}
		return expression{}, []error{err}
	}
	r := ruleReader{vocabulary: of}
	r.read(expr)
	if len(r.wrong) > 0 {
		return expression{}, r.wrong
	}
	slices.Sort(r.uses)
	// The rule becomes the body of a function of what it names: compiled once, called with other values each time.
	lambda := &syntax.LambdaExpr{Body: expr}
	for _, name := range r.uses {
		lambda.Params = append(lambda.Params, &syntax.Ident{Name: of.names[name]})
	}
	value, err := starlark.EvalExprOptions(options, new(starlark.Thread), lambda, nil)
	if err != nil {
		return expression{}, []error{err}
	}
	value.Freeze()
	return expression{r.uses, value.(*starlark.Function)}, nil
}

// ruleReader goes through a rule, notes the names it uses, and what in it is not plain. Plain rules need no trust:
// their work is bounded by their length.
type ruleReader struct {
	vocabulary
	uses    []int
	unknown []string
	wrong   []error
}

var (
	ruleConstants = []string{"True", "False"}
	ruleFunctions = []string{"min", "max", "abs"}
)

func (r *ruleReader) read(expr syntax.Expr) {
	switch e := expr.(type) {
	case *syntax.Ident:
		r.name(e)
	case *syntax.Literal:
		if e.Token != syntax.INT && e.Token != syntax.FLOAT {
			r.notPlain(e)
		}
	case *syntax.ParenExpr:
		r.read(e.X)
	case *syntax.UnaryExpr:
		if e.X == nil || e.Op == syntax.STAR || e.Op == syntax.STARSTAR { // f(*args)
			r.notPlain(e)
			return
		}
		r.read(e.X)
	case *syntax.BinaryExpr:
		r.binary(e)
	case *syntax.CondExpr:
		r.read(e.Cond)
		r.read(e.True)
		r.read(e.False)
	case *syntax.CallExpr:
		if f, ok := e.Fn.(*syntax.Ident); !ok || !slices.Contains(ruleFunctions, f.Name) {
			r.notPlain(e)
			return
		}
		r.readAll(e.Args)
	default:
		r.notPlain(e)
	}
}

func (r *ruleReader) readAll(exprs []syntax.Expr) {
	for _, e := range exprs {
		r.read(e)
	}
}

// binary reads an expression with two sides. Only "in" has a list, on its right: a list times a large number would
// fill the memory.
func (r *ruleReader) binary(e *syntax.BinaryExpr) {
	if e.Op == syntax.EQ { // f(x=1)
		r.notPlain(e)
		return
	}
	r.read(e.X)
	if e.Op != syntax.IN && e.Op != syntax.NOT_IN {
		r.read(e.Y)
		return
	}
	switch items := unparen(e.Y).(type) {
	case *syntax.ListExpr:
		r.readAll(items.List)
	case *syntax.TupleExpr:
		r.readAll(items.List)
	default:
		r.notPlain(e.Y)
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

func (r *ruleReader) name(e *syntax.Ident) {
	if slices.Contains(ruleConstants, e.Name) {
		return
	}
	i := slices.Index(r.names, e.Name)
	if i < 0 && slices.Contains(r.unknown, e.Name) { // reported already
		return
	}
	if i < 0 {
		r.unknown = append(r.unknown, e.Name)
	}
	switch {
	case i < 0 && slices.Contains(r.later, e.Name):
		r.wrong = append(r.wrong, fmt.Errorf("predicate %q is declared below; a rule sees only the predicates above it", e.Name))
	case i < 0:
		r.wrong = append(r.wrong, fmt.Errorf("unknown %s %q%s", r.one, e.Name, hint(e.Name, r.names)))
	case !slices.Contains(r.uses, i):
		r.uses = append(r.uses, i)
	}
}

func (r *ruleReader) notPlain(e syntax.Expr) {
	start, _ := e.Span()
	r.wrong = append(r.wrong, fmt.Errorf("column %d: a rule has only %s, numbers, operators, min, max, abs, "+
		"and lists after \"in\"", start.Col, r.many))
}
