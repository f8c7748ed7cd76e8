package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.starlark.net/syntax"

	"attune/internal/rule"
)

// vocabulary lists the names that an expression may use: knobs, or the properties of a shape and
// the predicates over them.
type vocabulary struct {
	one, many string   // what error messages call a name
	names     []string // in the order of the values of an evaluation
	later     []string // predicates that are declared further down in the file
	language  rule.Language
}

// expression is a compiled rule over integers.
type expression struct{ rule *rule.Rule }

// Holds reports whether the rule is true for an assignment: one value for each name of the
// vocabulary. For a constraint these are the knobs in the order of Kernel.Knobs. It is safe for
// concurrent use. It returns an error if the rule cannot be evaluated, for example because of a
// division by zero.
func (e expression) Holds(values []int) (bool, error) {
	value := e.evaluate(values)
	if err := value.Err(); err != nil {
		return false, err
	}
	return value.Truth(), nil
}

// number evaluates an expression whose result is a boolean (0 or 1) or an integer.
func (e expression) number(values []int) (int, error) {
	value := e.evaluate(values)
	if err := value.Err(); err != nil {
		return 0, err
	}
	n, ok := value.Int64()
	switch {
	case ok:
		return int(n), nil
	case value.Type() == rule.Int(0).Type():
		digits := value.String()
		if most := 40; len(digits) > most {
			digits = fmt.Sprintf("%s... (%d digits)", digits[:most], len(digits))
		}
		return 0, fmt.Errorf("the result %s does not fit 64 bits", digits)
	}
	return 0, fmt.Errorf("the result is a %s; want a boolean or an integer (// divides without a fraction)", value.Type())
}

// environments recycles the values of evaluations: a search evaluates rules millions of times.
var environments = sync.Pool{New: func() any { return new([]rule.Value) }}

func (e expression) evaluate(values []int) rule.Value {
	env := environments.Get().(*[]rule.Value)
	defer environments.Put(env)
	if len(*env) < len(values) {
		*env = make([]rule.Value, len(values))
	}
	for _, name := range e.rule.Uses() {
		(*env)[name] = rule.Int(int64(values[name]))
	}
	return e.rule.Eval(*env)
}

// compileCondition compiles a rule that must use at least one name: a constant condition is a
// mistake.
func compileCondition(text string, of vocabulary) (expression, []error) {
	e, wrong := compile(text, of)
	if len(wrong) == 0 && len(e.rule.Uses()) == 0 {
		wrong = []error{fmt.Errorf("it names no %s", of.one)}
	}
	return e, wrong
}

// compile compiles a rule. It reports everything that is wrong with the rule.
func compile(text string, of vocabulary) (expression, []error) {
	expr, err := rule.ParseSyntax(text)
	if err != nil {
		return expression{}, []error{err}
	}
	return compileExpr(text, expr, of)
}

// compileExpr compiles a parsed expression of a text.
func compileExpr(text string, expr syntax.Expr, of vocabulary) (expression, []error) {
	compiled, wrong := rule.New(text, expr, rule.Vocabulary{Names: of.names, Language: of.language})
	for i, err := range wrong {
		wrong[i] = of.explain(err)
	}
	return expression{compiled}, wrong
}

// explain says what is wrong in the words of the vocabulary.
func (v vocabulary) explain(err error) error {
	if unknown, ok := errors.AsType[*rule.NameError](err); ok {
		if slices.Contains(v.later, unknown.Name) {
			return fmt.Errorf("predicate %q is declared below; a rule sees only the predicates above it", unknown.Name)
		}
		return fmt.Errorf("unknown %s %q%s", v.one, unknown.Name, hint(unknown.Name, v.names))
	}
	if form, ok := errors.AsType[*rule.FormError](err); ok && form.Instead == "" {
		what := "a rule"
		if v.language == rule.Numeric {
			what = "an expression"
		}
		return fmt.Errorf("column %d: %s may contain only %s, numbers, operators, %s, and lists after \"in\"",
			form.Column, what, v.many, strings.Join(v.language.Functions(), ", "))
	}
	return err
}
