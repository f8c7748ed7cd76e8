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
	Rule   string // a Starlark expression over knobs
	Why    string
	Source string // of the stages that it binds; all of them if empty

	uses []int // the knobs in the rule, as indices into Kernel.Knobs, in order
	rule *starlark.Function
}

// in says whether the rule binds the stages of a source.
func (c *Constraint) in(source string) bool { return c.Source == "" || c.Source == source }

// maxSteps ends a rule that runs away: several hundred operators, of which each may double the length of a number.
const maxSteps = 1000

// threads are those that wait for the next rule: a search asks rules by the million.
var threads = sync.Pool{New: func() any { return new(starlark.Thread) }}

// Holds says whether the rule allows an assignment: one value for each knob, in the order of Kernel.Knobs. It can be
// called from many goroutines at once. An error means that the rule has no answer, as after a division by zero.
func (c *Constraint) Holds(values []int) (bool, error) {
	args := make(starlark.Tuple, len(c.uses))
	for i, knob := range c.uses {
		args[i] = starlark.MakeInt(values[knob])
	}
	thread := threads.Get().(*starlark.Thread)
	thread.SetMaxExecutionSteps(thread.ExecutionSteps() + maxSteps)
	result, err := starlark.Call(thread, c.rule, args, nil)
	if err != nil {
		return false, err // and drop the thread, which may be canceled
	}
	threads.Put(thread)
	return bool(result.Truth()), nil
}

// newConstraint compiles a rule over the named knobs. It reports all that is wrong with the rule.
func newConstraint(rule, why string, knobs []string) (*Constraint, []error) {
	options := new(syntax.FileOptions)
	expr, err := options.ParseExpr("rule", rule, 0)
	if err != nil {
		if at, ok := errors.AsType[syntax.Error](err); ok {
			err = fmt.Errorf("column %d: %s", at.Pos.Col, at.Msg)
		}
		return nil, []error{err}
	}
	r := ruleReader{knobs: knobs}
	r.read(expr)
	if len(r.wrong) == 0 && len(r.uses) == 0 {
		r.wrong = append(r.wrong, errors.New("it names no knob"))
	}
	if len(r.wrong) > 0 {
		return nil, r.wrong
	}
	slices.Sort(r.uses)
	// The rule becomes the body of a function of its knobs: compiled once, called with other values each time.
	lambda := &syntax.LambdaExpr{Body: expr}
	for _, knob := range r.uses {
		lambda.Params = append(lambda.Params, &syntax.Ident{Name: knobs[knob]})
	}
	value, err := starlark.EvalExprOptions(options, new(starlark.Thread), lambda, nil)
	if err != nil {
		return nil, []error{err}
	}
	value.Freeze()
	return &Constraint{Rule: rule, Why: why, uses: r.uses, rule: value.(*starlark.Function)}, nil
}

// ruleReader goes through a rule, notes the knobs it uses, and what in it is not plain. Plain rules need no trust:
// their work is bounded by their length.
type ruleReader struct {
	knobs []string
	uses  []int
	wrong []error
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
	knob := slices.Index(r.knobs, e.Name)
	switch {
	case knob < 0:
		r.wrong = append(r.wrong, fmt.Errorf("unknown knob %q%s", e.Name, hint(e.Name, r.knobs)))
	case !slices.Contains(r.uses, knob):
		r.uses = append(r.uses, knob)
	}
}

func (r *ruleReader) notPlain(e syntax.Expr) {
	start, _ := e.Span()
	r.wrong = append(r.wrong, fmt.Errorf("column %d: a rule has only knobs, numbers, operators, min, max, abs, "+
		"and lists after \"in\"", start.Col))
}
