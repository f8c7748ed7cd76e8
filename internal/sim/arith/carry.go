package arith

// The carry is that of unsigned addition, for signed types too. Subtraction adds the complement, so that its carry is
// the opposite of a borrow. PTX speaks of a borrow, which comes to the same as long as additions and subtractions do
// not share a chain; where they do, the chip goes by the carry.

func addc(f *form) (Op, bool) { return chain(f, 2, sumWithCarry, true, f.take("cc")) }

func subc(f *form) (Op, bool) { return chain(f, 2, differenceWithCarry, true, f.take("cc")) }

func madc(f *form) (Op, bool) { return madCarry(f, f.choose("lo", "hi"), true, f.take("cc")) }

// madCarry defines mad.cc and madc: the carry is that of adding c to half of the product.
func madCarry(f *form, half string, uses, sets bool) (Op, bool) {
	multiply := func(n integer, a, b uint64) uint64 { return n.cut(a * b) }
	switch half {
	case "hi":
		multiply = integer.high
	case "lo":
	default:
		return Op{}, false
	}
	return chain(f, 3, func(n integer, a, b, c uint64, carry bool) (uint64, bool) {
		return sumWithCarry(n, multiply(n, a, b), c, 0, carry)
	}, uses, sets)
}

// link computes a link of a chain of carries.
type link func(n integer, a, b, c uint64, carry bool) (r uint64, out bool)

// chain defines a link. The first of a chain starts from no carry, or from no borrow.
func chain(f *form, sources int, compute link, uses, sets bool) (Op, bool) {
	t, ok := f.one(integers32to64...)
	n := integerOf(t)
	op := uniform(t, sources, nil)
	op.UsesCarry, op.SetsCarry = uses, sets
	op.Carry = func(a, b, c uint64, carry bool) (uint64, bool) { return compute(n, a, b, c, carry) }
	if !uses {
		start := f.opcode == "sub"
		op.Carry = func(a, b, c uint64, _ bool) (uint64, bool) { return compute(n, a, b, c, start) }
	}
	return op, ok
}

func sumWithCarry(n integer, a, b, _ uint64, carry bool) (r uint64, out bool) {
	a, b = n.cut(a), n.cut(b)
	r = n.cut(a + b + bit(carry))
	return r, r < a || carry && r == a
}

// differenceWithCarry adds the complement of b, so that no carry is a borrow.
func differenceWithCarry(n integer, a, b, _ uint64, carry bool) (r uint64, out bool) {
	return sumWithCarry(n, a, ^b, 0, carry)
}
