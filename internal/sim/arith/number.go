package arith

import "math/bits"

// rounding is a rounding mode (PTX ISA, Rounding Modifiers): .rn, .rz, .rm or .rp.
type rounding uint8

const (
	toNearest rounding = iota // .rn: to nearest, ties to even
	toZero                    // .rz
	down                      // .rm: toward negative infinity
	up                        // .rp: toward positive infinity
)

type class uint8

const (
	zero class = iota
	finite
	infinite
	notANumber
)

// number is a decoded floating-point value. A finite value is significand · 2^exponent, with bit 63
// of the significand set. A NaN has its sign and its mantissa, which only f64 preserves. The top
// bit of that mantissa is set, because a result is always a quiet NaN.
//
// An exact result of more than 64 bits keeps its first 63 bits. Bit 0 is then a sticky bit: it is
// set if any discarded bit is 1. That is enough to round correctly to 53 bits or fewer in any
// direction, so every operation rounds once.
type number struct {
	class       class
	negative    bool
	significand uint64
	exponent    int
}

var (
	one = number{class: finite, significand: 1 << 63, exponent: -63}
	// defaultNaN is the result of an invalid operation such as 0 · infinity.
	defaultNaN = number{class: notANumber, negative: true, significand: 1 << 63}
)

// normalised builds a number from a significand that need not have bit 63 set.
func normalised(negative bool, significand uint64, exponent int) number {
	if significand == 0 {
		return number{negative: negative}
	}
	shift := bits.LeadingZeros64(significand)
	return number{class: finite, negative: negative, significand: significand << shift, exponent: exponent - shift}
}

// negated flips the sign, except of a NaN.
func (x number) negated() number {
	if x.class != notANumber {
		x.negative = !x.negative
	}
	return x
}

// sum is x + y. The rounding mode decides only the sign of an exact zero.
func sum(x, y number, r rounding) number { return multiplyAdd(x, one, y, r) }

// product is x · y, exact. If both operands are NaN, the result is y.
func product(x, y number) number {
	negative := x.negative != y.negative
	switch {
	case y.class == notANumber:
		return y
	case x.class == notANumber:
		return x
	case x.class == infinite && y.class == zero, x.class == zero && y.class == infinite:
		return defaultNaN
	case x.class == infinite || y.class == infinite:
		return number{class: infinite, negative: negative}
	case x.class == zero || y.class == zero:
		return number{negative: negative}
	}
	hi, lo := bits.Mul64(x.significand, y.significand)
	return normalise128(negative, hi, lo, x.exponent+y.exponent)
}

// multiplyAdd is x·y + z with one rounding. Of several NaN operands it returns y, then z, then x.
// The rounding mode decides only the sign of an exact zero difference: -0 for .rm, else +0.
func multiplyAdd(x, y, z number, r rounding) number {
	p := product(x, y)
	switch {
	case y.class == notANumber:
		return y
	case z.class == notANumber:
		return z
	case p.class == notANumber:
		return p
	case p.class == infinite && z.class == infinite && p.negative != z.negative:
		return defaultNaN
	case p.class == infinite:
		return p
	case z.class == infinite:
		return z
	case p.class == zero && z.class == zero && p.negative != z.negative:
		return number{negative: r == down}
	case p.class == zero:
		return z
	case z.class == zero:
		return p
	}

	// Align both terms as 128-bit integers, with the top bit free for the carry. Freeing that bit
	// loses nothing: significands have at most 53 bits, so at least 21 zero bits end the product.
	// shiftRight keeps the bits that the alignment discards as a sticky bit. If that bit is set,
	// the shift was long, so at most one leading bit can cancel, and the sticky bit stays far below
	// the rounding position.
	pHi, pLo := bits.Mul64(x.significand, y.significand)
	pHi, pLo = pHi>>1, pHi<<63|pLo>>1
	zHi, zLo := z.significand>>1, uint64(0)
	exponent, zExponent := x.exponent+y.exponent+1, z.exponent-64+1
	if exponent > zExponent {
		zHi, zLo = shiftRight(zHi, zLo, exponent-zExponent)
	} else {
		pHi, pLo = shiftRight(pHi, pLo, zExponent-exponent)
		exponent = zExponent
	}

	if p.negative == z.negative {
		lo, carry := bits.Add64(pLo, zLo, 0)
		hi, _ := bits.Add64(pHi, zHi, carry)
		return normalise128(p.negative, hi, lo, exponent)
	}
	lo, borrow := bits.Sub64(pLo, zLo, 0)
	hi, borrow := bits.Sub64(pHi, zHi, borrow)
	negative := p.negative
	if borrow != 0 {
		lo, borrow = bits.Sub64(0, lo, 0)
		hi, _ = bits.Sub64(0, hi, borrow)
		negative = z.negative
	}
	if hi|lo == 0 {
		return number{negative: r == down}
	}
	return normalise128(negative, hi, lo, exponent)
}

// quotient is x / y to 64 bits with a sticky bit. If both operands are NaN, the result is x.
func quotient(x, y number) number {
	negative := x.negative != y.negative
	switch {
	case x.class == notANumber:
		return x
	case y.class == notANumber:
		return y
	case x.class == zero && y.class == zero, x.class == infinite && y.class == infinite:
		return defaultNaN
	case x.class == infinite || y.class == zero:
		return number{class: infinite, negative: negative}
	case x.class == zero || y.class == infinite:
		return number{negative: negative}
	}
	q, remainder := bits.Div64(x.significand>>1, 0, y.significand)
	return normalised(negative, q|bit(remainder != 0), x.exponent-y.exponent-63)
}

// squareRoot is √x to 64 bits with a sticky bit. The root of -0 is -0.
func squareRoot(x number) number {
	switch {
	case x.class == zero || x.class == notANumber:
		return x
	case x.negative:
		return defaultNaN
	case x.class == infinite:
		return x
	}
	// The integer square root of a 128-bit value with an even exponent, bit by bit.
	hi, exponent := x.significand, x.exponent-64
	if exponent%2 != 0 {
		hi, exponent = hi>>1, exponent+1
	}
	var root uint64
	for b := uint64(1) << 63; b != 0; b >>= 1 {
		if squareHi, squareLo := bits.Mul64(root|b, root|b); squareHi < hi || squareHi == hi && squareLo == 0 {
			root |= b
		}
	}
	squareHi, squareLo := bits.Mul64(root, root)
	return normalised(false, root|bit(squareHi != hi || squareLo != 0), exponent/2)
}

// normalise128 builds a number from a nonzero 128-bit significand.
func normalise128(negative bool, hi, lo uint64, exponent int) number {
	shift := bits.LeadingZeros64(hi)
	if hi == 0 {
		shift += bits.LeadingZeros64(lo)
	}
	hi, lo = shiftLeft(hi, lo, shift)
	return number{class: finite, negative: negative, significand: hi | bit(lo != 0), exponent: exponent - shift + 64}
}

func shiftLeft(hi, lo uint64, amount int) (uint64, uint64) {
	if amount >= 64 {
		return lo << (amount - 64), 0
	}
	return hi<<amount | lo>>(64-amount), lo << amount
}

// shiftRight sets bit 0 if it discards any bit that is 1 (sticky shift).
func shiftRight(hi, lo uint64, amount int) (uint64, uint64) {
	switch {
	case amount == 0:
		return hi, lo
	case amount < 64:
		return hi >> amount, hi<<(64-amount) | lo>>amount | bit(lo<<(64-amount) != 0)
	case amount < 128:
		return 0, hi>>(amount-64) | bit(hi<<(128-amount) != 0 || lo != 0)
	}
	return 0, bit(hi|lo != 0)
}

// roundToIntegral rounds to an integral value.
func (x number) roundToIntegral(r rounding) number {
	if x.class != finite || x.exponent >= 0 {
		return x
	}
	return normalised(x.negative, shiftRounded(x.significand, -x.exponent, x.negative, r), 0)
}

// shiftRounded shifts a significand right by dropped bits and rounds. The result may carry into one
// more bit.
func shiftRounded(significand uint64, dropped int, negative bool, r rounding) uint64 {
	const half = 1 << 63
	var kept, rest uint64 // rest is the dropped fraction, in units of 2^-64
	switch {
	case dropped == 0:
		return significand
	case dropped < 64:
		kept, rest = significand>>dropped, significand<<(64-dropped)
	case dropped == 64:
		rest = significand
	default:
		rest = 1
	}
	switch r {
	case toNearest:
		kept += bit(rest > half || rest == half && kept&1 == 1)
	case down:
		kept += bit(rest != 0 && negative)
	case up:
		kept += bit(rest != 0 && !negative)
	}
	return kept
}
