package spec

import (
	"fmt"

	"go.starlark.net/starlark"
)

// Expr is an expression of a declaration over axes and knobs. Declaration.Values gives the values
// of both. A number of kernel.toml is an expression that uses neither.
type Expr struct {
	text string
	line int    // in kernel.toml
	key  string // where it is, for messages: "grid" in [launch]
	rule expression
}

// Int evaluates the expression to an integer. A boolean counts as 0 or 1. A float is an error that
// names the integer division.
func (e *Expr) Int(values []int) (int, error) { return e.rule.number(values) }

// Real evaluates the expression to a number. A boolean counts as 0 or 1.
func (e *Expr) Real(values []int) (float64, error) {
	value, err := e.rule.evaluate(values)
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
		return float64(value.Float()), nil
	case starlark.Float:
		return float64(value), nil
	}
	return 0, fmt.Errorf("the result is a %s; want a number", value.Type())
}

// String returns the expression as kernel.toml has it.
func (e *Expr) String() string { return e.text }

// Values returns the values of the axes and then of all knobs, for Expr.Int and Expr.Real.
func (d *Declaration) Values(v Variant, s Shape) []int {
	_, values := s.Axes()
	return append(values, v.values...)
}

// EvalError adds to the error of an expression its place in kernel.toml and the shape.
func (d *Declaration) EvalError(e *Expr, s Shape, err error) error {
	return fmt.Errorf("%s:%d: %s (%q) for %s: %w", File, e.line, e.key, e.text, s, err)
}
