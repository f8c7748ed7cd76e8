package clib

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"go.starlark.net/syntax"
)

// kind is the Starlark type of an expression.
type kind int

const (
	boolean kind = iota
	integer
	booleanOrInteger // the value of `causal and keys > 8`, which is 0 or a boolean
	float
)

func (k kind) String() string {
	return [...]string{"a boolean", "an integer", "a boolean or an integer", "a float"}[k]
}

// value is a translated expression.
type value struct {
	c    string // in C: an int, an int64_t or a double
	kind kind
	ints interval // unless it is a float
	span span     // if it is a float
}

// truth is a C condition that holds if Starlark takes the value as true.
func (v value) truth() string {
	switch v.kind {
	case boolean:
		return v.c
	case float:
		return "(" + v.c + " != 0.0)"
	}
	return "(" + v.c + " != 0)"
}

// translator translates rules of kernel.toml to C.
type translator struct {
	names   map[string]value
	used    []string // names of translated rules
	helpers []string // C functions that they call
}

// integerLimit is the largest integer of C code. Its negative counterpart is allowed; -2^63 is not,
// because C cannot negate it. exactLimit is the largest integer that a double holds exactly, with
// all below.
var (
	integerLimit = big.NewInt(math.MaxInt64)
	exactLimit   = big.NewInt(1 << 53)
)

// parse parses a rule.
func parse(rule string) (syntax.Expr, error) {
	return new(syntax.FileOptions).ParseExpr("rule", rule, 0)
}

// condition translates a rule to a C condition.
func (t *translator) condition(rule string) (string, error) {
	expr, err := parse(rule)
	if err != nil {
		return "", err
	}
	return t.truth(expr)
}

// number translates a rule to a C integer; a boolean is 0 or 1.
func (t *translator) number(rule string) (value, error) {
	expr, err := parse(rule)
	if err != nil {
		return value{}, err
	}
	v, err := t.value(expr)
	if err == nil && v.kind == float {
		err = refuse(expr, "its value is %v; want a boolean or an integer", v.kind)
	}
	v.kind = integer
	return v, err
}

// refuse is the error of an expression that C cannot compute in the same way.
func refuse(e syntax.Expr, format string, args ...any) error {
	start, _ := e.Span()
	return fmt.Errorf("column %d: %s", start.Col, fmt.Sprintf(format, args...))
}

// truth translates an expression of which only the truth matters.
func (t *translator) truth(expr syntax.Expr) (string, error) {
	switch e := expr.(type) {
	case *syntax.ParenExpr:
		return t.truth(e.X)
	case *syntax.BinaryExpr:
		if e.Op == syntax.AND || e.Op == syntax.OR {
			x, err := t.truth(e.X)
			if err != nil {
				return "", err
			}
			y, err := t.truth(e.Y)
			return fmt.Sprintf("(%s %s %s)", x, map[syntax.Token]string{syntax.AND: "&&", syntax.OR: "||"}[e.Op], y), err
		}
	}
	v, err := t.value(expr)
	return v.truth(), err
}

// value translates an expression.
func (t *translator) value(expr syntax.Expr) (value, error) {
	v, err := t.anyValue(expr)
	switch {
	case err != nil:
	case v.kind == float && !v.span.finite():
		err = refuse(expr, "the float may overflow: it is from %g to %g", v.span.low, v.span.high)
	case v.kind != float && !v.ints.within(integerLimit):
		err = refuse(expr, "the integer may exceed 64 bits: it is from %v to %v", v.ints.low, v.ints.high)
	}
	return v, err
}

func (t *translator) anyValue(expr syntax.Expr) (value, error) {
	switch e := expr.(type) {
	case *syntax.ParenExpr:
		return t.value(e.X)
	case *syntax.Ident:
		return t.name(e)
	case *syntax.Literal:
		return literal(e)
	case *syntax.UnaryExpr:
		return t.unary(e)
	case *syntax.CondExpr:
		return t.conditional(e)
	case *syntax.CallExpr:
		return t.call(e)
	case *syntax.BinaryExpr:
		switch e.Op {
		case syntax.AND, syntax.OR:
			return t.logic(e)
		case syntax.IN, syntax.NOT_IN:
			return t.membership(e)
		case syntax.EQL, syntax.NEQ, syntax.LT, syntax.LE, syntax.GT, syntax.GE:
			return t.comparison(e)
		}
		return t.arithmetic(e)
	}
	return value{}, refuse(expr, "no such expression in C")
}

func truthValue(c string) value { return value{c: c, kind: boolean, ints: between(0, 1)} }

func (t *translator) name(e *syntax.Ident) (value, error) {
	switch e.Name {
	case "True":
		return truthValue("1"), nil
	case "False":
		return truthValue("0"), nil
	}
	v, ok := t.names[e.Name]
	if !ok {
		return value{}, refuse(e, "unknown name %q", e.Name)
	}
	if !slices.Contains(t.used, e.Name) {
		t.used = append(t.used, e.Name)
	}
	return v, nil
}

func literal(e *syntax.Literal) (value, error) {
	switch n := e.Value.(type) {
	case int64:
		return value{c: fmt.Sprintf("INT64_C(%d)", n), kind: integer, ints: between(n, n)}, nil
	case *big.Int:
		return value{kind: integer, ints: interval{n, n}}, nil // value refuses it
	case float64:
		text := strconv.FormatFloat(n, 'g', -1, 64)
		if !strings.ContainsAny(text, ".e") {
			text += ".0"
		}
		return value{c: text, kind: float, span: span{n, n}}, nil
	}
	return value{}, refuse(e, "%s is no number", e.Raw)
}

func (t *translator) unary(e *syntax.UnaryExpr) (value, error) {
	if e.Op == syntax.NOT {
		x, err := t.truth(e.X)
		return truthValue("(!" + x + ")"), err
	}
	x, err := t.value(e.X)
	switch {
	case err != nil:
		return x, err
	case x.kind == integer && e.Op == syntax.MINUS:
		x.c, x.ints = "(-"+x.c+")", x.ints.negated()
	case x.kind == integer && e.Op == syntax.TILDE:
		one := big.NewInt(1)
		x.ints = x.ints.negated().corners(interval{one, one}, func(z, x, y *big.Int) { z.Sub(x, y) })
		x.c = "(~" + x.c + ")"
	case x.kind == float && e.Op == syntax.MINUS:
		x.c, x.span = "(-"+x.c+")", span{-x.span.high, -x.span.low}
	case (x.kind == integer || x.kind == float) && e.Op == syntax.PLUS:
	default:
		return x, refuse(e, "%v of %v", e.Op, x.kind)
	}
	return x, nil
}

// either is one of two values.
func either(e syntax.Expr, condition string, x, y value) (value, error) {
	v := value{c: fmt.Sprintf("(%s ? %s : %s)", condition, x.c, y.c), kind: x.kind}
	switch {
	case x.kind == float && y.kind == float:
		v.span = spanOf(x.span.low, x.span.high, y.span.low, y.span.high)
		return v, nil
	case x.kind == float || y.kind == float:
		return v, refuse(e, "the value is %v or %v", x.kind, y.kind)
	case x.kind != y.kind:
		v.kind = booleanOrInteger
	}
	v.ints = x.ints.with(y.ints)
	return v, nil
}

func (t *translator) conditional(e *syntax.CondExpr) (value, error) {
	condition, err := t.truth(e.Cond)
	if err != nil {
		return value{}, err
	}
	x, y, err := t.both(e.True, e.False)
	if err != nil {
		return value{}, err
	}
	return either(e, condition, x, y)
}

func (t *translator) both(x, y syntax.Expr) (value, value, error) {
	a, err := t.value(x)
	if err != nil {
		return value{}, value{}, err
	}
	b, err := t.value(y)
	return a, b, err
}

// logic is `and` or `or`, of which Starlark's value is one of the operands.
func (t *translator) logic(e *syntax.BinaryExpr) (value, error) {
	x, y, err := t.both(e.X, e.Y)
	if err != nil {
		return value{}, err
	}
	and := e.Op == syntax.AND
	switch {
	case x.kind == boolean && y.kind == boolean && and:
		return truthValue(fmt.Sprintf("(%s && %s)", x.c, y.c)), nil
	case x.kind == boolean && y.kind == boolean:
		return truthValue(fmt.Sprintf("(%s || %s)", x.c, y.c)), nil
	case !and:
		return either(e, x.truth(), x, y)
	}
	condition := x.truth()
	if x.c = "0"; x.kind == float { // the value of a false x
		x.c, x.span = "0.0", span{}
	} else {
		x.ints = between(0, 0)
	}
	return either(e, condition, y, x)
}

// membership is `in` or `not in` a list.
func (t *translator) membership(e *syntax.BinaryExpr) (value, error) {
	var items []syntax.Expr
	list := e.Y
	for paren, ok := list.(*syntax.ParenExpr); ok; paren, ok = list.(*syntax.ParenExpr) {
		list = paren.X
	}
	switch list := list.(type) {
	case *syntax.ListExpr:
		items = list.List
	case *syntax.TupleExpr:
		items = list.List
	default:
		return value{}, refuse(e.Y, "no list")
	}
	var equal []string
	for _, item := range items {
		v, err := t.comparison(&syntax.BinaryExpr{X: e.X, Op: syntax.EQL, Y: item, OpPos: e.OpPos})
		if err != nil {
			return value{}, err
		}
		equal = append(equal, v.c)
	}
	c := "(" + strings.Join(equal, " || ") + ")"
	if len(equal) == 0 {
		c = "0"
	}
	if e.Op == syntax.NOT_IN {
		c = "(!" + c + ")"
	}
	return truthValue(c), nil
}

// comparison compares two numbers, exactly, or two booleans.
func (t *translator) comparison(e *syntax.BinaryExpr) (value, error) {
	x, y, err := t.both(e.X, e.Y)
	switch {
	case err != nil:
		return value{}, err
	case x.kind == integer && y.kind == integer, x.kind == boolean && y.kind == boolean:
	case !x.numeric() || !y.numeric():
		return value{}, refuse(e, "compares %v with %v", x.kind, y.kind)
	default:
		for _, v := range []value{x, y} {
			if v.kind == integer && !v.ints.within(exactLimit) {
				return value{}, refuse(e, "compares a float with an integer that may exceed 2^53: it is from %v to %v", v.ints.low, v.ints.high)
			}
		}
		x, y = x.toFloat(), y.toFloat()
	}
	return truthValue(fmt.Sprintf("(%s %v %s)", x.c, e.Op, y.c)), nil
}

func (v value) numeric() bool { return v.kind == integer || v.kind == float }

// toFloat converts a number to double.
func (v value) toFloat() value {
	if v.kind == float {
		return v
	}
	return value{c: "(double)" + v.c, kind: float, span: v.ints.float()}
}

func (t *translator) arithmetic(e *syntax.BinaryExpr) (value, error) {
	x, y, err := t.both(e.X, e.Y)
	switch {
	case err != nil:
		return value{}, err
	case !x.numeric() || !y.numeric():
		return value{}, refuse(e, "%v %v %v", x.kind, e.Op, y.kind)
	case x.kind == float || y.kind == float || e.Op == syntax.SLASH:
		return t.floats(e, x.toFloat(), y.toFloat())
	}
	return t.integers(e, x, y)
}

// integers is arithmetic with two integers.
func (t *translator) integers(e *syntax.BinaryExpr, x, y value) (value, error) {
	infix := func(operator string, ints interval) value {
		return value{c: fmt.Sprintf("(%s %s %s)", x.c, operator, y.c), kind: integer, ints: ints}
	}
	switch e.Op {
	case syntax.PLUS:
		return infix("+", x.ints.corners(y.ints, func(z, x, y *big.Int) { z.Add(x, y) })), nil
	case syntax.MINUS:
		return infix("-", x.ints.corners(y.ints, func(z, x, y *big.Int) { z.Sub(x, y) })), nil
	case syntax.STAR:
		return infix("*", x.ints.corners(y.ints, func(z, x, y *big.Int) { z.Mul(x, y) })), nil
	case syntax.AMP, syntax.PIPE, syntax.CIRCUMFLEX:
		return infix(e.Op.String(), x.ints.bits(y.ints)), nil
	case syntax.LTLT, syntax.GTGT:
		return t.shift(e, x, y)
	case syntax.SLASHSLASH, syntax.PERCENT:
	default:
		return value{}, refuse(e, "%v %v %v", x.kind, e.Op, y.kind)
	}
	if y.ints.hasZero() {
		return value{}, refuse(e, "the divisor may be 0: it is from %v to %v", y.ints.low, y.ints.high)
	}
	ints, operator, helper := y.ints.modulo(), "%", "floor_modulo"
	if e.Op == syntax.SLASHSLASH {
		ints, operator, helper = x.ints.corners(y.ints, floorDivide), "/", "floor_divide"
	}
	if x.ints.natural() && y.ints.positive() {
		return infix(operator, ints), nil
	}
	return value{c: t.helper(helper, x, y), kind: integer, ints: ints}, nil
}

// shift is a product or a floored quotient with a power of two: C leaves shifts of negative
// integers undefined, or to the compiler.
func (t *translator) shift(e *syntax.BinaryExpr, x, y value) (value, error) {
	const most = 62
	if !y.ints.natural() || !y.ints.within(big.NewInt(most)) {
		return value{}, refuse(e, "the shift count is from %v to %v; want 0 to %d", y.ints.low, y.ints.high, most)
	}
	power := func(n *big.Int) *big.Int { return new(big.Int).Lsh(big.NewInt(1), uint(n.Uint64())) }
	by := value{c: fmt.Sprintf("(INT64_C(1) << %s)", y.c), kind: integer, ints: interval{power(y.ints.low), power(y.ints.high)}}
	operator := syntax.STAR
	if e.Op == syntax.GTGT {
		operator = syntax.SLASHSLASH
	}
	return t.integers(&syntax.BinaryExpr{X: e.X, Op: operator, Y: e.Y, OpPos: e.OpPos}, x, by)
}

// floats is arithmetic with two floats. Products go through a function, so that a compiler cannot
// fuse them with a sum, which would round once instead of twice.
func (t *translator) floats(e *syntax.BinaryExpr, x, y value) (value, error) {
	divides := e.Op == syntax.SLASH || e.Op == syntax.SLASHSLASH || e.Op == syntax.PERCENT
	if divides && y.span.hasZero() {
		return value{}, refuse(e, "the divisor may be 0: it is from %g to %g", y.span.low, y.span.high)
	}
	v := value{kind: float, c: fmt.Sprintf("(%s %v %s)", x.c, e.Op, y.c)}
	quotient := x.span.corners(y.span, func(x, y float64) float64 { return x / y })
	switch e.Op {
	case syntax.PLUS:
		v.span = x.span.corners(y.span, func(x, y float64) float64 { return x + y })
	case syntax.MINUS:
		v.span = x.span.corners(y.span, func(x, y float64) float64 { return x - y })
	case syntax.STAR:
		v.c, v.span = t.helper("product", x, y), x.span.corners(y.span, func(x, y float64) float64 { return x * y })
	case syntax.SLASH:
		v.span = quotient
	case syntax.SLASHSLASH:
		v.c, v.span = fmt.Sprintf("floor(%s / %s)", x.c, y.c), span{math.Floor(quotient.low), math.Floor(quotient.high)}
	case syntax.PERCENT:
		most := math.Max(math.Abs(y.span.low), math.Abs(y.span.high))
		v.c, v.span = t.helper("float_modulo", x, y), span{-most, most}
	default:
		return value{}, refuse(e, "%v %v %v", x.kind, e.Op, y.kind)
	}
	return v, nil
}

// helper calls a C function.
func (t *translator) helper(name string, args ...value) string {
	if !slices.Contains(t.helpers, name) {
		t.helpers = append(t.helpers, name)
	}
	var texts []string
	for _, a := range args {
		texts = append(texts, a.c)
	}
	return name + "(" + strings.Join(texts, ", ") + ")"
}

// call is min, max or abs.
func (t *translator) call(e *syntax.CallExpr) (value, error) {
	f, ok := e.Fn.(*syntax.Ident)
	if !ok || f.Name != "min" && f.Name != "max" && f.Name != "abs" {
		return value{}, refuse(e, "a function other than min, max and abs")
	}
	if n := len(e.Args); f.Name == "abs" && n != 1 || f.Name != "abs" && n < 2 {
		return value{}, refuse(e, "%s of %d arguments", f.Name, n)
	}
	first, err := t.value(e.Args[0])
	if err == nil && !first.numeric() {
		err = refuse(e, "%s of %v", f.Name, first.kind)
	}
	if err != nil {
		return value{}, err
	}
	if f.Name == "abs" {
		return t.absolute(first), nil
	}
	for _, arg := range e.Args[1:] {
		next, err := t.value(arg)
		if err == nil && next.kind != first.kind {
			err = refuse(e, "%s of %v and %v", f.Name, first.kind, next.kind)
		}
		if err != nil {
			return value{}, err
		}
		first = t.extreme(f.Name, first, next)
	}
	return first, nil
}

func (t *translator) absolute(x value) value {
	if x.kind == integer {
		return value{c: t.helper("absolute", x), kind: integer, ints: x.ints.absolute()}
	}
	most := math.Max(math.Abs(x.span.low), math.Abs(x.span.high))
	v := value{c: "fabs(" + x.c + ")", kind: float, span: span{0, most}}
	if !x.span.hasZero() {
		v.span.low = math.Min(math.Abs(x.span.low), math.Abs(x.span.high))
	}
	return v
}

// extreme is the smaller ("min") or the larger of two numbers of a kind.
func (t *translator) extreme(name string, x, y value) value {
	v := value{kind: x.kind}
	if x.kind == float {
		f := map[string]func(x, y float64) float64{"min": math.Min, "max": math.Max}[name]
		v.c, v.span = t.helper(name+"_float", x, y), span{f(x.span.low, y.span.low), f(x.span.high, y.span.high)}
		return v
	}
	pick := func(a, b *big.Int) *big.Int {
		if (a.Cmp(b) < 0) == (name == "min") {
			return a
		}
		return b
	}
	v.c, v.ints = t.helper(name+"_integer", x, y), interval{pick(x.ints.low, y.ints.low), pick(x.ints.high, y.ints.high)}
	return v
}

// helperCode has the C functions that translated rules call.
var helperCode = map[string]string{
	"floor_divide": `static int64_t floor_divide(int64_t x, int64_t y) {
  return x / y - (x % y != 0 && (x < 0) != (y < 0));
}
`,
	"floor_modulo": `static int64_t floor_modulo(int64_t x, int64_t y) {
  const int64_t z = x % y;
  return z != 0 && (z < 0) != (y < 0) ? z + y : z;
}
`,
	"float_modulo": `static double float_modulo(double x, double y) {
  const double z = fmod(x, y);
  return z != 0 && (x < 0) != (y < 0) ? z + y : z;
}
`,
	"product": `static double product(double x, double y) {
  volatile double z = x * y; /* not fused with a sum */
  return z;
}
`,
	"absolute":    "static int64_t absolute(int64_t x) { return x < 0 ? -x : x; }\n",
	"min_integer": "static int64_t min_integer(int64_t x, int64_t y) { return y < x ? y : x; }\n",
	"max_integer": "static int64_t max_integer(int64_t x, int64_t y) { return y > x ? y : x; }\n",
	"min_float":   "static double min_float(double x, double y) { return y < x ? y : x; }\n",
	"max_float":   "static double max_float(double x, double y) { return y > x ? y : x; }\n",
}
