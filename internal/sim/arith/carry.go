package arith

// This file defines the instructions of PTX ISA, Extended-Precision Integer Arithmetic
// Instructions.
//
// The carry flag is the carry of an unsigned addition, for signed types as well. A subtraction adds
// the complement, so its carry is the inverse of a borrow. The PTX ISA specifies a borrow instead.
// The two agree unless one chain mixes additions and subtractions; for such chains the H200 uses
// the carry.

func addc(f *form) (Op, bool) { return carryOp(f, 2, sumWithCarry, true, f.consume("cc")) }

func subc(f *form) (Op, bool) { return carryOp(f, 2, differenceWithCarry, true, f.consume("cc")) }

func madc(f *form) (Op, bool) { return madCarryOp(f, f.consumeAny("lo", "hi"), true, f.consume("cc")) }

// madCarryOp defines mad.cc and madc. The carry is the carry of adding c to one half of the
// product.
func madCarryOp(f *form, half string, uses, sets bool) (Op, bool) {
	multiply := func(n integer, a, b uint64) uint64 { return n.truncate(a * b) }
	switch half {
	case "hi":
		multiply = integer.mulHigh
	case "lo":
	default:
		return Op{}, false
	}
	return carryOp(f, 3, func(n integer, a, b, c uint64, carry bool) (uint64, bool) {
		return sumWithCarry(n, multiply(n, a, b), c, 0, carry)
	}, uses, sets)
}

// carryFunc computes one instruction of a carry chain.
type carryFunc func(n integer, a, b, c uint64, carry bool) (r uint64, out bool)

// carryOp defines one instruction of a carry chain. The first of a chain starts without carry, or
// without borrow for a subtraction.
func carryOp(f *form, sources int, compute carryFunc, uses, sets bool) (Op, bool) {
	t, ok := f.oneType(integers32to64...)
	n := integerOf(t)
	op := uniformOp(t, sources, nil)
	op.UsesCarry, op.SetsCarry = uses, sets
	op.Carry = func(a, b, c uint64, carry bool) (uint64, bool) { return compute(n, a, b, c, carry) }
	if !uses {
		start := f.opcode == "sub"
		op.Carry = func(a, b, c uint64, _ bool) (uint64, bool) { return compute(n, a, b, c, start) }
	}
	return op, ok
}

func sumWithCarry(n integer, a, b, _ uint64, carry bool) (r uint64, out bool) {
	a, b = n.truncate(a), n.truncate(b)
	r = n.truncate(a + b + bit(carry))
	return r, r < a || carry && r == a
}

// differenceWithCarry adds the complement of b, so a clear carry is a borrow.
func differenceWithCarry(n integer, a, b, _ uint64, carry bool) (r uint64, out bool) {
	return sumWithCarry(n, a, ^b, 0, carry)
}
