package mutate

import "math"

// span is all the values that a register may have, from lo to hi, as numbers with a sign. Of a register with 32 bits they are those of 32 bits.
type span struct{ lo, hi int64 }

func only(n int64) span { return span{n, n} }

func (s span) single() bool { return s.lo == s.hi }

func (s span) and(t span) span { return span{min(s.lo, t.lo), max(s.hi, t.hi)} }

// anyOf is all values of so many bits.
func anyOf(bits int) span {
	switch bits {
	case 1:
		return span{0, 1}
	case 64:
		return span{math.MinInt64, math.MaxInt64}
	}
	return span{-1 << (bits - 1), 1<<(bits-1) - 1}
}

// natural says whether a number is the same with a sign as without.
func (s span) natural() bool { return s.lo >= 0 }

// unsigned is what a number of 32 bits is without a sign.
func (s span) unsigned() span {
	switch {
	case s.natural():
		return s
	case s.hi < 0:
		return span{s.lo + 1<<32, s.hi + 1<<32}
	}
	return span{0, 1<<32 - 1}
}

// small says whether sums and products with another small one are right in 64 bits.
func (s span) small() bool { return s.lo >= -1<<31 && s.hi < 1<<32 }

// within is the span if all of it fits so many bits, and any value if a result may have wrapped.
func (s span) within(bits int) span {
	if all := anyOf(bits); s.lo < all.lo || s.hi > all.hi {
		return all
	}
	return s
}

// over is what comes of an operation that is largest and smallest at the ends of its operands.
func over(a, b span, f func(x, y int64) int64) span {
	corners := [4]int64{f(a.lo, b.lo), f(a.lo, b.hi), f(a.hi, b.lo), f(a.hi, b.hi)}
	s := only(corners[0])
	for _, c := range corners {
		s = s.and(only(c))
	}
	return s
}

// arithmetic is what an operation on so many bits gives; signed says how it takes its operands where that matters.
func arithmetic(opcode string, bits int, signed bool, a, b span) span {
	switch opcode {
	case "and", "or", "xor":
		return bitwise(opcode, bits, a, b)
	case "shl", "shr":
		return shifted(opcode, bits, signed, a, b)
	}
	if !a.small() || !b.small() {
		return anyOf(bits)
	}
	asSame := signed || a.natural() && b.natural()
	switch {
	case opcode == "add":
		return over(a, b, func(x, y int64) int64 { return x + y }).within(bits)
	case opcode == "sub":
		return over(a, b, func(x, y int64) int64 { return x - y }).within(bits)
	case opcode == "mul":
		if a.lo < -1<<31 || a.hi > math.MaxInt32 || b.lo < -1<<31 || b.hi > math.MaxInt32 {
			return anyOf(bits)
		}
		return over(a, b, func(x, y int64) int64 { return x * y }).within(bits)
	case opcode == "min" && asSame:
		return span{min(a.lo, b.lo), min(a.hi, b.hi)}
	case opcode == "max" && asSame:
		return span{max(a.lo, b.lo), max(a.hi, b.hi)}
	case opcode == "div" && a.natural() && b.lo > 0:
		return span{a.lo / b.hi, a.hi / b.lo}
	case opcode == "rem" && a.natural() && b.lo > 0:
		return span{0, min(a.hi, b.hi-1)}
	}
	return anyOf(bits)
}

func bitwise(opcode string, bits int, a, b span) span {
	if a.single() && b.single() {
		switch opcode {
		case "and":
			return only(a.lo & b.lo)
		case "or":
			return only(a.lo | b.lo)
		}
		return only(a.lo ^ b.lo)
	}
	if a.single() {
		a, b = b, a
	}
	switch {
	case opcode == "and" && b.single() && a.natural() && a.hi <= b.lo && b.lo&(b.lo+1) == 0: // all bits are kept
		return a
	case opcode == "and" && b.single() && a.natural() && b.lo != 0 && a.hi < b.lo&-b.lo: // none are
		return only(0)
	case opcode == "and" && a.natural() && b.natural():
		return span{0, min(a.hi, b.hi)}
	case opcode == "and" && a.natural():
		return span{0, a.hi}
	case opcode == "and" && b.natural():
		return span{0, b.hi}
	case opcode != "and" && a.natural() && b.natural():
		most := int64(1)
		for most <= max(a.hi, b.hi) && most < math.MaxInt64/2 {
			most *= 2
		}
		if max(a.hi, b.hi) >= most {
			return anyOf(bits)
		}
		return span{0, most - 1}
	}
	return anyOf(bits)
}

// shifted is a number that is shifted by a known number of bits.
func shifted(opcode string, bits int, signed bool, a, by span) span {
	if !by.single() || by.lo < 0 || by.lo >= int64(bits) {
		return anyOf(bits)
	}
	n := uint(by.lo)
	switch {
	case opcode == "shl" && a.small() && n < 31:
		return span{a.lo << n, a.hi << n}.within(bits)
	case opcode == "shl" && a == only(0):
		return a
	case opcode == "shr" && (signed || a.natural()):
		return span{a.lo >> n, a.hi >> n}
	case opcode == "shr" && n > 0: // a sign becomes a digit
		return span{0, 1<<(uint(bits)-n) - 1}
	}
	return anyOf(bits)
}

// compared is what a comparison gives.
func compared(how string, signed bool, a, b span) span {
	if !signed && how != "eq" && how != "ne" && !(a.natural() && b.natural()) {
		return anyOf(1)
	}
	yes, no := false, false
	switch how {
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
		return only(1)
	case no:
		return only(0)
	}
	return anyOf(1)
}

// narrowed is what is left of a, knowing that a comparison with b holds.
func narrowed(how string, signed bool, a, b span) span {
	n := a
	switch {
	case how == "eq":
		n = span{max(a.lo, b.lo), min(a.hi, b.hi)}
	case !signed && !(a.natural() && b.natural()):
	case how == "lt" && b.hi > math.MinInt64:
		n.hi = min(a.hi, b.hi-1)
	case how == "le":
		n.hi = min(a.hi, b.hi)
	case how == "gt" && b.lo < math.MaxInt64:
		n.lo = max(a.lo, b.lo+1)
	case how == "ge":
		n.lo = max(a.lo, b.lo)
	}
	if n.lo > n.hi { // no thread comes here
		return a
	}
	return n
}
