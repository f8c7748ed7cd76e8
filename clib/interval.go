package clib

import (
	"math"
	"math/big"
)

// interval is the range of an integer expression, both ends included.
type interval struct{ low, high *big.Int }

func between(low, high int64) interval { return interval{big.NewInt(low), big.NewInt(high)} }

// hull is the smallest interval with all values.
func hull(values ...*big.Int) interval {
	all := interval{values[0], values[0]}
	for _, v := range values[1:] {
		if v.Cmp(all.low) < 0 {
			all.low = v
		}
		if v.Cmp(all.high) > 0 {
			all.high = v
		}
	}
	return all
}

func (i interval) with(other interval) interval {
	return hull(i.low, i.high, other.low, other.high)
}

// within reports whether all values are from -limit to limit.
func (i interval) within(limit *big.Int) bool {
	return i.low.CmpAbs(limit) <= 0 && i.high.CmpAbs(limit) <= 0
}

func (i interval) hasZero() bool  { return i.low.Sign() <= 0 && i.high.Sign() >= 0 }
func (i interval) positive() bool { return i.low.Sign() > 0 }
func (i interval) natural() bool  { return i.low.Sign() >= 0 }

// corners applies an operation that is monotonic in each operand.
func (i interval) corners(other interval, operation func(z, x, y *big.Int)) interval {
	var all []*big.Int
	for _, x := range []*big.Int{i.low, i.high} {
		for _, y := range []*big.Int{other.low, other.high} {
			z := new(big.Int)
			operation(z, x, y)
			all = append(all, z)
		}
	}
	return hull(all...)
}

// floorDivide sets z to x / y rounded down, for y that is not 0.
func floorDivide(z, x, y *big.Int) {
	remainder := new(big.Int)
	z.QuoRem(x, y, remainder)
	if remainder.Sign()*y.Sign() < 0 {
		z.Sub(z, big.NewInt(1))
	}
}

// modulo is the range of x % y, which has the sign of y.
func (i interval) modulo() interval {
	one := big.NewInt(1)
	if i.positive() {
		return interval{new(big.Int), new(big.Int).Sub(i.high, one)}
	}
	return interval{new(big.Int).Add(i.low, one), new(big.Int)}
}

// bits is a range of x & y, x | y and x ^ y: that of the longer operand's bits.
func (i interval) bits(other interval) interval {
	both := i.with(other)
	n := max(both.low.BitLen(), both.high.BitLen())
	power := new(big.Int).Lsh(big.NewInt(1), uint(n))
	all := interval{new(big.Int), new(big.Int).Sub(power, big.NewInt(1))}
	if !both.natural() {
		all.low = new(big.Int).Neg(power)
	}
	return all
}

func (i interval) negated() interval {
	return interval{new(big.Int).Neg(i.high), new(big.Int).Neg(i.low)}
}

func (i interval) absolute() interval {
	if i.natural() {
		return i
	}
	all := hull(new(big.Int).Abs(i.low), new(big.Int).Abs(i.high))
	if i.hasZero() {
		all.low = new(big.Int)
	}
	return all
}

// float is the interval after conversion to double.
func (i interval) float() span {
	low, _ := new(big.Float).SetInt(i.low).Float64()
	high, _ := new(big.Float).SetInt(i.high).Float64()
	return span{low, high}
}

// span is the range of a float expression, both ends included. Rounding is monotonic, so the ends
// of a result are the rounded results of the ends.
type span struct{ low, high float64 }

func spanOf(values ...float64) span {
	all := span{math.Inf(1), math.Inf(-1)}
	for _, v := range values {
		all.low, all.high = math.Min(all.low, v), math.Max(all.high, v)
	}
	return all
}

func (s span) corners(other span, operation func(x, y float64) float64) span {
	return spanOf(operation(s.low, other.low), operation(s.low, other.high),
		operation(s.high, other.low), operation(s.high, other.high))
}

// finite reports whether no value is infinite or NaN.
func (s span) finite() bool {
	return math.Abs(s.low) <= math.MaxFloat64 && math.Abs(s.high) <= math.MaxFloat64
}

func (s span) hasZero() bool { return s.low <= 0 && s.high >= 0 }
