package rule

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// cKind is the type of a part in C.
type cKind int

const (
	boolean cKind = iota
	integer
	booleanOrInteger // the value of `causal and keys > 8`, which is 0 or a boolean
	float
)

func (k cKind) String() string {
	return [...]string{"a boolean", "an integer", "a boolean or an integer", "a float"}[k]
}

// cValue is a part of a rule in C.
type cValue struct {
	c      string // an int, an int64_t or a double
	kind   cKind
	limits Interval // of integers unless it is a float; 0 and 1 of a boolean
}

// truth is a C condition that holds if the value is true.
func (v cValue) truth() string {
	switch v.kind {
	case boolean:
		return v.c
	case float:
		return "(" + v.c + " != 0.0)"
	}
	return "(" + v.c + " != 0)"
}

// C writes rules of one vocabulary in C. It refuses a rule that C could compute differently: it
// proves by intervals that no integer leaves 64 bits, that no float overflows and that no divisor
// is 0.
type C struct {
	names   []cValue
	helpers []string // C functions that the rules call
}

// Declare adds the next name of the vocabulary: an int64_t expression in C, and its range.
func (c *C) Declare(text string, limits Interval) {
	c.names = append(c.names, cValue{c: text, kind: integer, limits: limits})
}

// Condition writes a rule as a C condition.
func (c *C) Condition(r *Rule) (string, error) { return c.truth(r.root) }

// Number writes a rule as a C integer with its range; a boolean is 0 or 1.
func (c *C) Number(r *Rule) (text string, limits Interval, err error) {
	v, err := c.value(r.root)
	if err == nil && v.kind == float {
		err = refuse(r.root, "its value is %v; want a boolean or an integer", v.kind)
	}
	return v.c, v.limits, err
}

// Helpers returns the C functions that the rules call.
func (c *C) Helpers() []string {
	var code []string
	for _, name := range c.helpers {
		code = append(code, helperCode[name])
	}
	return code
}

// integerLimit is the largest integer of C code. Its negative counterpart is allowed; -2^63 is not,
// because C cannot negate it. exactLimit is the largest integer that a double holds exactly, with
// all below. floatLimit is the largest finite double.
var (
	integerLimit = Int(math.MaxInt64)
	exactLimit   = Int(1 << 53)
	floatLimit   = Real(math.MaxFloat64)
)

// refuse is the error of a part that C cannot compute in the same way.
func refuse(n *Node, format string, args ...any) error {
	return fmt.Errorf("column %d: %s", n.Column, fmt.Sprintf(format, args...))
}

// truth writes a part of which only the truth matters.
func (c *C) truth(n *Node) (string, error) {
	if n.Op == And || n.Op == Or {
		x, err := c.truth(n.Args[0])
		if err != nil {
			return "", err
		}
		y, err := c.truth(n.Args[1])
		return fmt.Sprintf("(%s %s %s)", x, map[Op]string{And: "&&", Or: "||"}[n.Op], y), err
	}
	v, err := c.value(n)
	return v.truth(), err
}

// value writes a part.
func (c *C) value(n *Node) (cValue, error) {
	v, err := c.anyValue(n)
	switch {
	case err != nil:
	case v.kind == float && !v.limits.within(floatLimit):
		err = refuse(n, "the float may overflow: it is from %v to %v", v.limits.low, v.limits.high)
	case v.kind != float && !v.limits.within(integerLimit):
		err = refuse(n, "the integer may exceed 64 bits: it is from %v to %v", v.limits.low, v.limits.high)
	}
	return v, err
}

func (c *C) anyValue(n *Node) (cValue, error) {
	switch n.Op {
	case Name:
		return c.names[n.Name], nil
	case Constant:
		return constant(n)
	case Not:
		x, err := c.truth(n.Args[0])
		return truthValue("(!" + x + ")"), err
	case Plus, Minus, Invert:
		return c.unary(n)
	case Choice:
		return c.conditional(n)
	case And, Or:
		return c.logic(n)
	case Membership:
		return c.membership(n)
	case Min, Max, Abs:
		return c.call(n)
	}
	switch {
	case n.Op.isComparison():
		return c.comparison(n, n.Op, n.Args[0], n.Args[1])
	case len(n.Args) == 1 || n.Op == Power:
		return cValue{}, refuse(n, "a function other than min, max and abs")
	}
	return c.arithmetic(n)
}

func truthValue(text string) cValue { return cValue{c: text, kind: boolean, limits: Between(0, 1)} }

func constant(n *Node) (cValue, error) {
	v := cValue{kind: integer, limits: Interval{n.Value, n.Value}}
	switch n.Value.kind {
	case intKind:
		v.c = fmt.Sprintf("INT64_C(%d)", n.Value.bits)
	case largeKind: // value refuses it
	case boolKind:
		return truthValue(strconv.FormatInt(n.Value.bits, 10)), nil
	case realKind:
		v.kind, v.c = float, strconv.FormatFloat(n.Value.real(), 'g', -1, 64)
		if !strings.ContainsAny(v.c, ".e") {
			v.c += ".0"
		}
	default:
		return v, refuse(n, "%q is no number", n.Value.text)
	}
	return v, nil
}

func (c *C) unary(n *Node) (cValue, error) {
	x, err := c.value(n.Args[0])
	switch {
	case err != nil:
		return x, err
	case !x.numeric(), x.kind == float && n.Op == Invert:
		return x, refuse(n, "%v of %v", n.Op.text(), x.kind)
	case n.Op == Plus:
		return x, nil
	}
	x.c, x.limits = "("+n.Op.text()+x.c+")", x.limits.signed(n.Op)
	return x, nil
}

// either is one of two values.
func either(n *Node, condition string, x, y cValue) (cValue, error) {
	v := cValue{c: fmt.Sprintf("(%s ? %s : %s)", condition, x.c, y.c), kind: x.kind}
	switch {
	case (x.kind == float) != (y.kind == float):
		return v, refuse(n, "the value is %v or %v", x.kind, y.kind)
	case x.kind != y.kind:
		v.kind = booleanOrInteger
	}
	v.limits = x.limits.with(y.limits)
	return v, nil
}

func (c *C) conditional(n *Node) (cValue, error) {
	condition, err := c.truth(n.Args[0])
	if err != nil {
		return cValue{}, err
	}
	x, y, err := c.both(n.Args[1], n.Args[2])
	if err != nil {
		return cValue{}, err
	}
	return either(n, condition, x, y)
}

func (c *C) both(x, y *Node) (cValue, cValue, error) {
	a, err := c.value(x)
	if err != nil {
		return cValue{}, cValue{}, err
	}
	b, err := c.value(y)
	return a, b, err
}

// logic is `and` or `or`, of which the value is one of the operands.
func (c *C) logic(n *Node) (cValue, error) {
	x, y, err := c.both(n.Args[0], n.Args[1])
	if err != nil {
		return cValue{}, err
	}
	switch {
	case x.kind == boolean && y.kind == boolean && n.Op == And:
		return truthValue(fmt.Sprintf("(%s && %s)", x.c, y.c)), nil
	case x.kind == boolean && y.kind == boolean:
		return truthValue(fmt.Sprintf("(%s || %s)", x.c, y.c)), nil
	case n.Op == Or:
		return either(n, x.truth(), x, y)
	}
	condition := x.truth()
	if x.c, x.limits = "0", Between(0, 0); x.kind == float { // the value of a false x
		x.c, x.limits = "0.0", Interval{Real(0), Real(0)}
	}
	return either(n, condition, y, x)
}

// membership is `in` a list.
func (c *C) membership(n *Node) (cValue, error) {
	var equal []string
	for _, item := range n.Args[1:] {
		v, err := c.comparison(n, Equal, n.Args[0], item)
		if err != nil {
			return cValue{}, err
		}
		equal = append(equal, v.c)
	}
	if len(equal) == 0 {
		return truthValue("0"), nil
	}
	return truthValue("(" + strings.Join(equal, " || ") + ")"), nil
}

// comparison compares two numbers, exactly, or two booleans.
func (c *C) comparison(n *Node, op Op, a, b *Node) (cValue, error) {
	x, y, err := c.both(a, b)
	switch {
	case err != nil:
		return cValue{}, err
	case x.kind == integer && y.kind == integer, x.kind == boolean && y.kind == boolean:
	case !x.numeric() || !y.numeric():
		return cValue{}, refuse(n, "compares %v with %v", x.kind, y.kind)
	default:
		for _, v := range []cValue{x, y} {
			if v.kind == integer && !v.limits.within(exactLimit) {
				return cValue{}, refuse(n, "compares a float with an integer that may exceed 2^53: it is from %v to %v", v.limits.low, v.limits.high)
			}
		}
		x, y = x.toFloat(), y.toFloat()
	}
	return truthValue(fmt.Sprintf("(%s %s %s)", x.c, op, y.c)), nil
}

func (v cValue) numeric() bool { return v.kind == integer || v.kind == float }

// toFloat converts a number to double.
func (v cValue) toFloat() cValue {
	if v.kind == float {
		return v
	}
	return cValue{c: "(double)" + v.c, kind: float, limits: v.limits.toFloat()}
}

func (c *C) arithmetic(n *Node) (cValue, error) {
	x, y, err := c.both(n.Args[0], n.Args[1])
	switch {
	case err != nil:
		return cValue{}, err
	case !x.numeric() || !y.numeric():
		return cValue{}, refuse(n, "%v %s %v", x.kind, n.Op, y.kind)
	case x.kind == float || y.kind == float || n.Op == Divide:
		return c.floats(n, x.toFloat(), y.toFloat())
	}
	return c.integers(n, n.Op, x, y)
}

// integers is arithmetic with two integers.
func (c *C) integers(n *Node, op Op, x, y cValue) (cValue, error) {
	v := cValue{c: fmt.Sprintf("(%s %s %s)", x.c, op, y.c), kind: integer}
	switch op {
	case Add, Subtract, Multiply:
		v.limits, _ = x.limits.corners(op, y.limits)
		return v, nil
	case BitAnd, BitOr, BitXor:
		v.limits = x.limits.bits(y.limits)
		return v, nil
	case ShiftLeft, ShiftRight:
		return c.shift(n, x, y)
	}
	if y.limits.hasZero() {
		return v, refuse(n, "the divisor may be 0: it is from %v to %v", y.limits.low, y.limits.high)
	}
	operator, helper := "%", "floor_modulo"
	if v.limits = y.limits.modulo(); op == FloorDivide {
		operator, helper = "/", "floor_divide"
		v.limits, _ = x.limits.corners(op, y.limits)
	}
	if x.limits.natural() && y.limits.positive() {
		v.c = fmt.Sprintf("(%s %s %s)", x.c, operator, y.c)
	} else {
		v.c = c.helper(helper, x, y)
	}
	return v, nil
}

// shift is a product or a floored quotient with a power of two: C leaves shifts of negative
// integers undefined, or to the compiler.
func (c *C) shift(n *Node, x, y cValue) (cValue, error) {
	const most = 62
	if !y.limits.natural() || !y.limits.within(Int(most)) {
		return cValue{}, refuse(n, "the shift count is from %v to %v; want 0 to %d", y.limits.low, y.limits.high, most)
	}
	limits, _ := Between(1, 1).corners(ShiftLeft, y.limits)
	by := cValue{c: fmt.Sprintf("(INT64_C(1) << %s)", y.c), kind: integer, limits: limits}
	if n.Op == ShiftRight {
		return c.integers(n, FloorDivide, x, by)
	}
	return c.integers(n, Multiply, x, by)
}

// floats is arithmetic with two floats. Products go through a function, so that a compiler cannot
// fuse them with a sum, which would round once instead of twice.
func (c *C) floats(n *Node, x, y cValue) (cValue, error) {
	divides := n.Op == Divide || n.Op == FloorDivide || n.Op == Modulo
	if divides && y.limits.hasZero() {
		return cValue{}, refuse(n, "the divisor may be 0: it is from %v to %v", y.limits.low, y.limits.high)
	}
	v := cValue{kind: float, c: fmt.Sprintf("(%s %s %s)", x.c, n.Op, y.c)}
	switch n.Op {
	case Add, Subtract, Divide:
	case Multiply:
		v.c = c.helper("product", x, y)
	case FloorDivide:
		v.c = fmt.Sprintf("floor(%s / %s)", x.c, y.c)
	case Modulo:
		v.c, v.limits = c.helper("float_modulo", x, y), y.limits.modulo()
		return v, nil
	default:
		return v, refuse(n, "%v %s %v", x.kind, n.Op, y.kind)
	}
	var ok bool
	if v.limits, ok = x.limits.corners(n.Op, y.limits); !ok {
		return v, refuse(n, "the float may overflow")
	}
	return v, nil
}

// helper calls a C function.
func (c *C) helper(name string, args ...cValue) string {
	if !slices.Contains(c.helpers, name) {
		c.helpers = append(c.helpers, name)
	}
	var texts []string
	for _, a := range args {
		texts = append(texts, a.c)
	}
	return name + "(" + strings.Join(texts, ", ") + ")"
}

// call is min, max or abs.
func (c *C) call(n *Node) (cValue, error) {
	first, err := c.value(n.Args[0])
	switch {
	case err != nil:
		return first, err
	case !first.numeric():
		return first, refuse(n, "%s of %v", n.Op, first.kind)
	case n.Op == Abs:
		return c.absolute(first), nil
	}
	for _, arg := range n.Args[1:] {
		next, err := c.value(arg)
		if err == nil && next.kind != first.kind {
			err = refuse(n, "%s of %v and %v", n.Op, first.kind, next.kind)
		}
		if err != nil {
			return cValue{}, err
		}
		suffix := map[cKind]string{integer: "_integer", float: "_float"}[first.kind]
		first = cValue{c: c.helper(string(n.Op)+suffix, first, next), kind: first.kind, limits: first.limits.extreme(n.Op, next.limits)}
	}
	return first, nil
}

func (c *C) absolute(x cValue) cValue {
	v := cValue{c: "fabs(" + x.c + ")", kind: x.kind, limits: x.limits.absolute()}
	if x.kind == integer {
		v.c = c.helper("absolute", x)
	}
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
