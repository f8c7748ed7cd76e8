package rule

import (
	"math"
	"math/big"
)

// Interval is a range of integers or of reals, both ends included. Arithmetic with its ends is that
// of an evaluation: integers are exact, and the rounding of reals is monotonic.
type Interval struct{ low, high Value }

// Between returns the interval of integers from low to high.
func Between(low, high int64) Interval { return Interval{Int(low), Int(high)} }

// hull is the smallest interval with all values, which are of one type.
func hull(values ...Value) Interval {
	all := Interval{values[0], values[0]}
	for _, v := range values[1:] {
		if v.Less(all.low) {
			all.low = v
		}
		if all.high.Less(v) {
			all.high = v
		}
	}
	return all
}

func (i Interval) with(other Interval) Interval {
	return hull(i.low, i.high, other.low, other.high)
}

// magnitude is the largest absolute value.
func (i Interval) magnitude() Value { return extreme(Max, function(Abs, i.low), function(Abs, i.high)) }

// within reports whether all values are from -limit to limit. NaN is not.
func (i Interval) within(limit Value) bool { return !limit.Less(i.magnitude()) }

func (i Interval) hasZero() bool  { return !Int(0).Less(i.low) && !i.high.Less(Int(0)) }
func (i Interval) positive() bool { return Int(0).Less(i.low) }
func (i Interval) natural() bool  { return !i.low.Less(Int(0)) }

// corners applies an operator that is monotonic in each operand. It is false if a result has no
// value.
func (i Interval) corners(op Op, other Interval) (Interval, bool) {
	var all [4]Value
	for n := range all {
		x, y := i.low, other.low
		if n&1 != 0 {
			x = i.high
		}
		if n&2 != 0 {
			y = other.high
		}
		if all[n] = arithmetic(op, x, y); !all[n].isNumber() || all[n].kind == realKind && math.IsNaN(all[n].real()) {
			return Interval{}, false
		}
	}
	return hull(all[:]...), true
}

// modulo is the range of x % y for a divisor without 0: it has the sign of y.
func (i Interval) modulo() Interval {
	most := i.magnitude()
	switch {
	case most.kind == realKind:
		return Interval{signed(Minus, most), most}
	case i.positive():
		return Interval{Int(0), arithmetic(Subtract, i.high, Int(1))}
	}
	return Interval{arithmetic(Add, i.low, Int(1)), Int(0)}
}

// bits is a range of x & y, x | y and x ^ y: that of the longer operand's bits.
func (i Interval) bits(other Interval) Interval {
	both := i.with(other)
	n := max(both.low.big().BitLen(), both.high.big().BitLen())
	power := new(big.Int).Lsh(big.NewInt(1), uint(n))
	all := Interval{Int(0), large(new(big.Int).Sub(power, big.NewInt(1)))}
	if !both.natural() {
		all.low = large(power.Neg(power))
	}
	return all
}

// signed is the range after +, - or ~.
func (i Interval) signed(op Op) Interval { return hull(signed(op, i.low), signed(op, i.high)) }

func (i Interval) absolute() Interval {
	all := hull(function(Abs, i.low), function(Abs, i.high))
	if i.hasZero() && !i.natural() {
		all.low = arithmetic(Subtract, i.low, i.low) // 0 or 0.0
	}
	return all
}

// extreme is the range of min or max.
func (i Interval) extreme(op Op, other Interval) Interval {
	return Interval{extreme(op, i.low, other.low), extreme(op, i.high, other.high)}
}

// toFloat is the range after conversion to a real.
func (i Interval) toFloat() Interval {
	return Interval{function(ToFloat, i.low), function(ToFloat, i.high)}
}
