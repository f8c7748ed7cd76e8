package rule

import (
	"math"
	"math/big"
	"math/bits"
	"slices"
)

// arithmetic applies a binary operator to two values. Integers stay exact.
func arithmetic(op Op, x, y Value) Value {
	switch {
	case x.kind == badKind:
		return x
	case y.kind == badKind:
		return y
	case x.isInt() && y.isInt() && op != Divide:
		if x.kind == intKind && y.kind == intKind {
			if v, ok := smallIntegers(op, x.bits, y.bits); ok {
				return v
			}
		}
		return integers(op, x, y)
	case x.isNumber() && y.isNumber():
		return reals(op, x, y)
	}
	return unknownOperator(op, x, y)
}

func unknownOperator(op Op, x, y Value) Value {
	return bad("unknown binary op: %s %s %s", x.Type(), op, y.Type())
}

// smallIntegers computes with 64 bits. It is false where the result does not fit them, and for the
// operators that integers has alone.
func smallIntegers(op Op, a, b int64) (Value, bool) {
	switch op {
	case Add:
		return Int(a + b), (a+b > a) == (b > 0)
	case Subtract:
		return Int(a - b), (a-b < a) == (b > 0)
	case Multiply:
		high, low := bits.Mul64(magnitude(a), magnitude(b))
		return Int(a * b), high == 0 && low <= math.MaxInt64
	case FloorDivide, Modulo:
		if b == 0 || b == -1 {
			return Value{}, false
		}
		quotient, rest := a/b, a%b
		if rest != 0 && (rest < 0) != (b < 0) {
			quotient, rest = quotient-1, rest+b
		}
		if op == Modulo {
			return Int(rest), true
		}
		return Int(quotient), true
	case BitAnd:
		return Int(a & b), true
	case BitOr:
		return Int(a | b), true
	case BitXor:
		return Int(a ^ b), true
	}
	return Value{}, false
}

func magnitude(a int64) uint64 {
	if a < 0 {
		return -uint64(a)
	}
	return uint64(a)
}

// integers computes with integers of any size.
func integers(op Op, x, y Value) Value {
	a, b, z := x.big(), y.big(), new(big.Int)
	switch op {
	case Add:
		z.Add(a, b)
	case Subtract:
		z.Sub(a, b)
	case Multiply:
		z.Mul(a, b)
	case FloorDivide, Modulo:
		return floored(op, a, b)
	case BitAnd:
		z.And(a, b)
	case BitOr:
		z.Or(a, b)
	case BitXor:
		z.Xor(a, b)
	case ShiftLeft, ShiftRight:
		return shift(op, a, y)
	case Power:
		return power(x, y)
	default:
		return unknownOperator(op, x, y)
	}
	return large(z)
}

// floored is a division that rounds down, or its rest, which has the sign of the divisor.
func floored(op Op, a, b *big.Int) Value {
	if b.Sign() == 0 {
		if op == Modulo {
			return bad("integer modulo by zero")
		}
		return bad("floored division by zero")
	}
	quotient, rest := new(big.Int).QuoRem(a, b, new(big.Int))
	if rest.Sign()*b.Sign() < 0 {
		quotient.Sub(quotient, big.NewInt(1))
		rest.Add(rest, b)
	}
	if op == Modulo {
		return large(rest)
	}
	return large(quotient)
}

func shift(op Op, a *big.Int, count Value) Value {
	const most = 511 // as in Starlark
	switch n := count.bits; {
	case count.kind != intKind || n > math.MaxInt32 || op == ShiftLeft && n > most:
		return bad("shift count too large: %s", count)
	case n < 0:
		return bad("negative shift count: %s", count)
	case op == ShiftLeft:
		return large(a.Lsh(a, uint(n)))
	default:
		return large(a.Rsh(a, uint(n)))
	}
}

// power is an integer, unless the exponent is negative.
func power(x, y Value) Value {
	a, n := x.big(), y.big()
	switch {
	case n.Sign() < 0:
		return reals(Power, x, y)
	case a.IsInt64() && magnitude(a.Int64()) <= 1 && n.Sign() > 0: // -1, 0 or 1
		n.SetInt64(2 - int64(n.Bit(0)))
	case !n.IsInt64() || n.Int64() > maxBits || int64(a.BitLen()-1)*n.Int64() > maxBits:
		return bad("an integer has more than %d bits", maxBits)
	}
	return large(a.Exp(a, n, nil))
}

// reals computes with numbers of which one is real, or divides.
func reals(op Op, x, y Value) Value {
	a, _ := x.Float()
	b, _ := y.Float()
	if x.isInt() && math.IsInf(a, 0) || y.isInt() && math.IsInf(b, 0) {
		return bad("int too large to convert to float")
	}
	switch op {
	case Add:
		return Real(a + b)
	case Subtract:
		return Real(a - b)
	case Multiply:
		return Real(a * b)
	case Power:
		return defined(math.Pow(a, b))
	case Divide:
		if b == 0 {
			return bad("floating-point division by zero")
		}
		return Real(a / b)
	case FloorDivide:
		if b == 0 {
			return bad("floored division by zero")
		}
		return Real(math.Floor(a / b))
	case Modulo:
		if b == 0 {
			return bad("floating-point modulo by zero")
		}
		rest := math.Mod(a, b)
		if rest != 0 && (a < 0) != (b < 0) {
			rest += b
		}
		return Real(rest)
	}
	return unknownOperator(op, x, y)
}

func defined(x float64) Value {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return bad("the function has no value there")
	}
	return Real(x)
}

// signed applies +, - or ~ to a number.
func signed(op Op, x Value) Value {
	switch {
	case x.kind == badKind:
		return x
	case op == Plus && x.isNumber():
		return x
	case op == Minus && x.isInt():
		return arithmetic(Subtract, Int(0), x)
	case op == Minus && x.kind == realKind:
		return Real(-x.real())
	case op == Invert && x.isInt():
		return arithmetic(Subtract, Int(-1), x)
	}
	return bad("unknown unary op: %s %s", op.text(), x.Type())
}

// comparison compares two values by an operator.
func comparison(op Op, x, y Value) Value {
	switch {
	case x.kind == badKind:
		return x
	case y.kind == badKind:
		return y
	}
	order, ok := compare(x, y)
	switch {
	case ok:
		return Bool(satisfies(op, order))
	case op == Equal || op == NotEqual:
		return Bool(op == NotEqual)
	}
	return bad("%s %s %s not implemented", x.Type(), op, y.Type())
}

func satisfies(op Op, order int) bool {
	switch op {
	case Equal:
		return order == 0
	case NotEqual:
		return order != 0
	case Less:
		return order < 0
	case LessEqual:
		return order <= 0
	case Greater:
		return order > 0
	}
	return order >= 0
}

// function applies a function of one value.
func function(op Op, x Value) Value {
	switch {
	case x.kind == badKind:
		return x
	case op == Number && x.kind == boolKind:
		return Int(x.bits)
	case op == Number:
		return x
	case x.kind == boolKind && (op == ToInt || op == ToFloat):
		x = Int(x.bits)
	case !x.isNumber():
		return bad("%s: got %s, want int or float", op, x.Type())
	}
	switch op {
	case Abs:
		if x.Less(Int(0)) {
			return signed(Minus, x)
		}
		return x
	case ToInt:
		return rounded(op, x, math.Trunc)
	case Round:
		return rounded(op, x, math.RoundToEven)
	case Ceil:
		return rounded(op, x, math.Ceil)
	case Floor:
		return rounded(op, x, math.Floor)
	}
	a, _ := x.Float()
	switch op {
	case ToFloat:
		if x.isInt() && math.IsInf(a, 0) {
			return bad("int too large to convert to float")
		}
		return Real(a)
	case SquareRoot:
		return Real(math.Sqrt(a))
	case Log:
		return defined(math.Log(a))
	}
	return defined(math.Log2(a))
}

// Less reports whether a number is below another.
func (v Value) Less(w Value) bool {
	order, ok := compare(v, w)
	return ok && order < 0
}

func rounded(op Op, x Value, f func(float64) float64) Value {
	if x.isInt() {
		return x
	}
	y := f(x.real())
	switch {
	case math.IsNaN(y) || math.IsInf(y, 0):
		return bad("%s: cannot convert float %s to integer", op, Real(y))
	case math.Abs(y) < 1<<62:
		return Int(int64(y))
	}
	n, _ := big.NewFloat(y).Int(nil)
	return large(n)
}

// extreme is the least value ("min") or the greatest ("max"); of equal ones the first.
func extreme(op Op, x, y Value) Value {
	switch order, ok := compare(y, x); {
	case x.kind == badKind:
		return x
	case y.kind == badKind:
		return y
	case !ok:
		return bad("%s: %s < %s not implemented", op, y.Type(), x.Type())
	case op == Min && order < 0, op == Max && order > 0:
		return y
	}
	return x
}

// contains reports whether a value is among others.
func contains(x Value, values []Value) bool { return slices.ContainsFunc(values, x.Equal) }
