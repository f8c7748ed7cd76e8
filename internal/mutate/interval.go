package mutate

import "math"

// interval is the set of values from lo to hi of a register, as signed integers. A 32-bit register
// has the values of an int32.
type interval struct{ lo, hi int64 }

func singleton(n int64) interval { return interval{n, n} }

func (s interval) single() bool { return s.lo == s.hi }

// hull is the smallest interval that contains both.
func (s interval) hull(t interval) interval { return interval{min(s.lo, t.lo), max(s.hi, t.hi)} }

// fullInterval is the interval of all values of a width.
func fullInterval(bits int) interval {
	switch bits {
	case 1:
		return interval{0, 1}
	case 64:
		return interval{math.MinInt64, math.MaxInt64}
	}
	return interval{-1 << (bits - 1), 1<<(bits-1) - 1}
}

// nonNegative reports whether the signed and unsigned readings of all values agree.
func (s interval) nonNegative() bool { return s.lo >= 0 }

// unsigned returns the unsigned reading of a 32-bit interval.
func (s interval) unsigned() interval {
	switch {
	case s.nonNegative():
		return s
	case s.hi < 0:
		return interval{s.lo + 1<<32, s.hi + 1<<32}
	}
	return interval{0, 1<<32 - 1}
}

// small reports whether sums and products of two such values do not overflow int64.
func (s interval) small() bool { return s.lo >= -1<<31 && s.hi < 1<<32 }

// fit returns the interval if it fits into the width, else the full interval, because the result
// may have wrapped around.
func (s interval) fit(bits int) interval {
	if all := fullInterval(bits); s.lo < all.lo || s.hi > all.hi {
		return all
	}
	return s
}

// cornerHull is the result of an operation that takes its extremes at the ends of its operands.
func cornerHull(a, b interval, f func(x, y int64) int64) interval {
	corners := [4]int64{f(a.lo, b.lo), f(a.lo, b.hi), f(a.hi, b.lo), f(a.hi, b.hi)}
	s := singleton(corners[0])
	for _, c := range corners {
		s = s.hull(singleton(c))
	}
	return s
}

// applyArithmetic returns the result of an operation on a width; signed is the signedness of the
// instruction.
func applyArithmetic(opcode string, bits int, signed bool, a, b interval) interval {
	switch opcode {
	case "and", "or", "xor":
		return applyBitwise(opcode, bits, a, b)
	case "shl", "shr":
		return shiftInterval(opcode, bits, signed, a, b)
	}
	if !a.small() || !b.small() {
		return fullInterval(bits)
	}
	signedOrder := signed || a.nonNegative() && b.nonNegative()
	switch {
	case opcode == "add":
		return cornerHull(a, b, func(x, y int64) int64 { return x + y }).fit(bits)
	case opcode == "sub":
		return cornerHull(a, b, func(x, y int64) int64 { return x - y }).fit(bits)
	case opcode == "mul":
		if a.lo < -1<<31 || a.hi > math.MaxInt32 || b.lo < -1<<31 || b.hi > math.MaxInt32 {
			return fullInterval(bits)
		}
		return cornerHull(a, b, func(x, y int64) int64 { return x * y }).fit(bits)
	case opcode == "min" && signedOrder:
		return interval{min(a.lo, b.lo), min(a.hi, b.hi)}
	case opcode == "max" && signedOrder:
		return interval{max(a.lo, b.lo), max(a.hi, b.hi)}
	case opcode == "div" && a.nonNegative() && b.lo > 0:
		return interval{a.lo / b.hi, a.hi / b.lo}
	case opcode == "rem" && a.nonNegative() && b.lo > 0:
		return interval{0, min(a.hi, b.hi-1)}
	}
	return fullInterval(bits)
}

func applyBitwise(opcode string, bits int, a, b interval) interval {
	if a.single() && b.single() {
		switch opcode {
		case "and":
			return singleton(a.lo & b.lo)
		case "or":
			return singleton(a.lo | b.lo)
		}
		return singleton(a.lo ^ b.lo)
	}
	if a.single() {
		a, b = b, a
	}
	switch {
	case opcode == "and" && b.single() && a.nonNegative() && a.hi <= b.lo && b.lo&(b.lo+1) == 0: // the mask keeps all bits
		return a
	case opcode == "and" && b.single() && a.nonNegative() && b.lo != 0 && a.hi < b.lo&-b.lo: // the mask clears all bits
		return singleton(0)
	case opcode == "and" && a.nonNegative() && b.nonNegative():
		return interval{0, min(a.hi, b.hi)}
	case opcode == "and" && a.nonNegative():
		return interval{0, a.hi}
	case opcode == "and" && b.nonNegative():
		return interval{0, b.hi}
	case opcode != "and" && a.nonNegative() && b.nonNegative():
		most := int64(1)
		for most <= max(a.hi, b.hi) && most < math.MaxInt64/2 {
			most *= 2
		}
		if max(a.hi, b.hi) >= most {
			return fullInterval(bits)
		}
		return interval{0, most - 1}
	}
	return fullInterval(bits)
}

// shiftInterval shifts by a known amount.
func shiftInterval(opcode string, bits int, signed bool, a, by interval) interval {
	if !by.single() || by.lo < 0 || by.lo >= int64(bits) {
		return fullInterval(bits)
	}
	n := uint(by.lo)
	switch {
	case opcode == "shl" && a.small() && n < 31:
		return interval{a.lo << n, a.hi << n}.fit(bits)
	case opcode == "shl" && a == singleton(0):
		return a
	case opcode == "shr" && (signed || a.nonNegative()):
		return interval{a.lo >> n, a.hi >> n}
	case opcode == "shr" && n > 0: // the sign bit becomes a value bit
		return interval{0, 1<<(uint(bits)-n) - 1}
	}
	return fullInterval(bits)
}

// compareIntervals returns the possible results of a comparison.
func compareIntervals(operator string, signed bool, a, b interval) interval {
	if !signed && operator != "eq" && operator != "ne" && !(a.nonNegative() && b.nonNegative()) {
		return fullInterval(1)
	}
	yes, no := false, false
	switch operator {
	case "lt":
		yes, no = a.hi < b.lo, a.lo >= b.hi
	case "le":
		yes, no = a.hi <= b.lo, a.lo > b.hi
	case "gt":
		yes, no = a.lo > b.hi, a.hi <= b.lo
	case "ge":
		yes, no = a.lo >= b.hi, a.hi < b.lo
	case "eq":
		yes, no = a.single() && a == b, a.hi < b.lo || a.lo > b.hi
	case "ne":
		yes, no = a.hi < b.lo || a.lo > b.hi, a.single() && a == b
	}
	switch {
	case yes:
		return singleton(1)
	case no:
		return singleton(0)
	}
	return fullInterval(1)
}

// refineInterval narrows a, given that a comparison with b holds.
func refineInterval(operator string, signed bool, a, b interval) interval {
	n := a
	switch {
	case operator == "eq":
		n = interval{max(a.lo, b.lo), min(a.hi, b.hi)}
	case !signed && !(a.nonNegative() && b.nonNegative()):
	case operator == "lt" && b.hi > math.MinInt64:
		n.hi = min(a.hi, b.hi-1)
	case operator == "le":
		n.hi = min(a.hi, b.hi)
	case operator == "gt" && b.lo < math.MaxInt64:
		n.lo = max(a.lo, b.lo+1)
	case operator == "ge":
		n.lo = max(a.lo, b.lo)
	}
	if n.lo > n.hi { // unreachable
		return a
	}
	return n
}
