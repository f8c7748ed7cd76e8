package spec

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.starlark.net/syntax"

	"attune/internal/array"
	"attune/internal/rule"
	"attune/internal/tensormap"
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

// Uint evaluates the expression to an integer from 0 to 2^64-1, for scalars of 64 bits without a
// sign. A boolean counts as 0 or 1.
func (e *Expr) Uint(values []int) (uint64, error) {
	value := e.rule.evaluate(values)
	switch n, ok := value.Uint64(); {
	case ok:
		return n, nil
	case value.Type() == rule.Int(0).Type():
		return 0, fmt.Errorf("it is %v; %s has 0 to %d", value, array.U64, uint64(math.MaxUint64))
	}
	n, err := e.rule.number(values)
	return uint64(n), err
}

// Real evaluates the expression to a number. A boolean counts as 0 or 1.
func (e *Expr) Real(values []int) (float64, error) {
	value := e.rule.evaluate(values)
	if err := value.Err(); err != nil {
		return 0, err
	}
	x, ok := value.Float()
	if !ok {
		return 0, fmt.Errorf("the result is a %s; want a number", value.Type())
	}
	return x, nil
}

// String returns the expression as kernel.toml has it.
func (e *Expr) String() string { return e.text }

// Values returns the values of the axes and then of all knobs, for Expr.Int and Expr.Real.
func (d *Declaration) Values(v Variant, s Shape) []int {
	_, values := s.Axes()
	return append(values, v.values...)
}

// IsPresent reports whether the kernel gets a buffer for an argument, and not a null pointer.
func (a *Arg) IsPresent(values []int) (bool, error) {
	if a.When == nil {
		return true, nil
	}
	value, err := a.When.Int(values)
	return value != 0, err
}

// typeFor returns the type of an argument.
func (a *Arg) typeFor(values []int) (array.DType, error) {
	if a.TypeRule == nil {
		return a.Type, nil
	}
	index, err := a.TypeRule.Int(values)
	if err != nil {
		return "", err
	}
	return array.DTypes[index], nil
}

// ArgsFor returns the arguments with the types that values of axes and knobs give them. A tensor map has
// the type of its buffer.
func (d *Declaration) ArgsFor(values []int) ([]Arg, error) {
	args := slices.Clone(d.Args)
	for i := range args {
		var err error
		if args[i].Type, err = args[i].typeFor(values); err != nil {
			return nil, fmt.Errorf("%s:%d: %s (%q): %w", File, args[i].TypeRule.line, args[i].TypeRule.key, clip(args[i].TypeRule.text), err)
		}
	}
	for i, a := range args {
		if a.Map != nil && a.Map.Arg >= 0 {
			args[i].Type = args[a.Map.Arg].Type
		}
	}
	return args, nil
}

// ArgsOf returns the arguments with the types of a variant.
func (d *Declaration) ArgsOf(v Variant) ([]Arg, error) {
	return d.ArgsFor(append(make([]int, len(d.Axes)), v.values...)) // no type depends on an axis
}

// TypeText is the type as kernel.toml has it; empty for a tensor map.
func (a *Arg) TypeText() string {
	if a.TypeRule != nil {
		return a.TypeRule.text
	}
	return string(a.Type)
}

// ChoosesType reports whether the type of an argument depends on the knob with an index.
func (d *Declaration) ChoosesType(knob int) bool {
	return slices.ContainsFunc(d.Args, func(a Arg) bool {
		return a.TypeRule != nil && slices.Contains(a.TypeRule.rule.rule.Uses(), len(d.Axes)+knob)
	})
}

// SwizzleFor returns the swizzle of a tensor map: none, 32B, 64B or 128B. Other bytes give a word that
// no tensor map has.
func (m *MapRule) SwizzleFor(values []int) (string, error) {
	if m.SwizzleBytes == nil {
		return m.Swizzle, nil
	}
	bytes, err := m.SwizzleBytes.Int(values)
	if err != nil || bytes == 0 {
		return tensormap.Swizzles[0], err
	}
	return fmt.Sprintf("%dB", bytes), nil
}

// Settings returns the knobs that expressions of the arguments, the launch and the work use, with
// their values: variants of the same code that differ in them are launched differently.
func (d *Declaration) Settings(v Variant) []Setting {
	exprs := slices.Concat(d.Grid[:], d.Block[:], d.Cluster[:], []*Expr{d.Shared, d.FLOPs, d.Bytes})
	for _, a := range d.Args {
		exprs = append(append(exprs, a.Shape...), a.Value, a.When, a.Fill.A, a.Fill.B, a.TypeRule)
		if a.Map != nil {
			exprs = append(append(append(exprs, a.Map.Box...), a.Map.Order...), a.Map.SwizzleBytes)
		}
	}
	used := map[int]bool{}
	for _, e := range exprs {
		if e == nil {
			continue
		}
		for _, name := range e.rule.rule.Uses() {
			used[name] = true
		}
	}
	var settings []Setting
	for i, knob := range v.stage.kernel.Knobs {
		if used[len(d.Axes)+i] {
			settings = append(settings, Setting{knob.Name, v.values[i]})
		}
	}
	return settings
}

// EvalError adds to the error of an expression its place in kernel.toml and the shape.
func (d *Declaration) EvalError(e *Expr, s Shape, err error) error {
	return fmt.Errorf("%s:%d: %s (%q) for %s: %w", File, e.line, e.key, clip(e.text), s, err)
}

// clip cuts an expression for a message.
func clip(text string) string {
	const most = 80
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// maxRank is the largest number of dimensions of a buffer, as in numpy.
const maxRank = 32

// expressions lists the names of expressions: axes, then knobs.
func (l *loader) expressions() vocabulary {
	return vocabulary{
		one: "axis or knob", many: "axes, knobs", names: slices.Concat(l.Declared.Axes, l.knobNames()), language: rule.Numeric,
	}
}

// expr reads an expression, or a number in its place. It is nil if the expression is wrong.
func (l *loader) expr(t *table, key string, n *node) *Expr {
	var text string
	switch value := n.value.(type) {
	case string:
		text = strings.Join(strings.Fields(value), " ")
	case int64:
		text = strconv.FormatInt(value, 10)
	case float64:
		text = formatFloat(value)
	default:
		t.wrongType(key, n, "an expression or a number")
		return nil
	}
	if text == "" {
		l.problems.add(n.line, "%q in %s is empty", key, t.name)
		return nil
	}
	expr, err := rule.ParseSyntax(text)
	if err != nil {
		l.problems.add(n.line, "%q in %s is %q: %v", key, t.name, clip(text), err)
		return nil
	}
	e := l.compiled(t, key, text, expr)
	if e != nil {
		e.text, e.line = text, n.line
	}
	return e
}

// formatFloat writes a float of TOML as a Starlark expression.
func formatFloat(value float64) string {
	switch {
	case math.IsNaN(value):
		return "nan"
	case math.IsInf(value, 1):
		return "inf"
	case math.IsInf(value, -1):
		return "-inf"
	}
	text := strconv.FormatFloat(value, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text
}

// compiled compiles a parsed expression, or a part of one, of the text of a key.
func (l *loader) compiled(t *table, key, text string, expr syntax.Expr) *Expr {
	compiled, wrong := compileExpr(text, expr, l.expressions())
	for _, err := range wrong {
		if len(l.Declared.Axes) == 0 {
			err = fmt.Errorf("%w; [shapes] declares no axis", err)
		}
		if l.isNews(err) {
			l.problems.add(t.at(key), "%q in %s is %q: %v", key, t.name, clip(text), err)
		}
	}
	if len(wrong) > 0 {
		return nil
	}
	start, end := expr.Span()
	runes := []rune(text)
	part := string(runes[start.Col-1 : min(int(end.Col)-1, len(runes))])
	return &Expr{text: part, line: t.at(key), key: fmt.Sprintf("%q in %s", key, t.name), rule: compiled}
}

// isNews reports whether an error of an expression must be reported. Without axes every expression
// has the same unknown ones, because [shapes] is missing or wrong.
func (l *loader) isNews(err error) bool {
	if len(l.Declared.Axes) > 0 {
		return true
	}
	if slices.Contains(l.unknown, err.Error()) {
		return false
	}
	l.unknown = append(l.unknown, err.Error())
	return true
}

// exprs reads an array of expressions, or a single one in its place.
func (l *loader) exprs(t *table, key string, n *node, most int) []*Expr {
	items := n.array
	if items == nil {
		items = []*node{n}
	}
	if len(items) == 0 || len(items) > most {
		l.problems.add(n.line, "%q in %s has %d expressions; want 1 to %d", key, t.name, len(items), most)
		return nil
	}
	var all []*Expr
	for _, n := range items {
		all = append(all, l.expr(t, key, n))
	}
	return all
}

// optionalExpr reads an expression; nil if the key is absent.
func (l *loader) optionalExpr(t *table, key string) *Expr {
	n := t.get(key)
	if n == nil {
		return nil
	}
	return l.expr(t, key, n)
}

// extents reads up to three dimensions; omitted ones are 1. All are nil if the key is absent.
func (l *loader) extents(t *table, key string, look lookup) (all [3]*Expr) {
	n := look(t, key)
	if n == nil {
		return all
	}
	given := l.exprs(t, key, n, len(all))
	if given == nil {
		return all
	}
	copy(all[:], given)
	for i := len(given); i < len(all); i++ {
		all[i] = l.expr(t, key, &node{line: n.line, value: int64(1)})
	}
	return all
}
