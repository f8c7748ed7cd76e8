package arith

import "math/bits"

// rounding is where a number goes that lies between two codes.
type rounding uint8

const (
	toNearest rounding = iota // the nearer one; halfway, the even one
	toZero
	down
	up
)

type class uint8

const (
	zero class = iota
	finite
	infinite
	notANumber
)

// number is a floating-point number taken apart: for a finite one, significand · 2^exponent with bit 63 of the
// significand set; for one that is not a number, its sign and its mantissa, which only float64 keeps. Its first bit
// is set: it is quiet.
//
// A result that has more than 64 bits keeps the first 63 of them and, as the last, whether anything not zero follows.
// That is all rounding to the 53 bits of a float64 or fewer needs to know, in any direction, so everything is rounded
// only once.
type number struct {
	class       class
	negative    bool
	significand uint64
	exponent    int
}

var (
	one = number{class: finite, significand: 1 << 63, exponent: -63}
	// invalid is the answer where there is none.
	invalid = number{class: notANumber, negative: true, significand: 1 << 63}
)

// normal makes a number of any significand; 0 makes zero.
func normal(negative bool, significand uint64, exponent int) number {
	if significand == 0 {
		return number{negative: negative}
	}
	shift := bits.LeadingZeros64(significand)
	return number{class: finite, negative: negative, significand: significand << shift, exponent: exponent - shift}
}

// negated changes the sign of numbers only.
func (x number) negated() number {
	if x.class != notANumber {
		x.negative = !x.negative
	}
	return x
}

// sum adds. The rounding decides only the sign of a zero.
func sum(x, y number, r rounding) number { return fused(x, one, y, r) }

func product(x, y number) number {
	negative := x.negative != y.negative
	switch {
	case y.class == notANumber:
		return y
	case x.class == notANumber:
		return x
	case x.class == infinite && y.class == zero, x.class == zero && y.class == infinite:
		return invalid
	case x.class == infinite || y.class == infinite:
		return number{class: infinite, negative: negative}
	case x.class == zero || y.class == zero:
		return number{negative: negative}
	}
	hi, lo := bits.Mul64(x.significand, y.significand)
	return collapse(negative, hi, lo, x.exponent+y.exponent)
}

// fused is x·y + z. Of several NaNs it takes that of y, then that of z. The rounding decides only the sign of a zero
// that is the difference of equal numbers: -0 downwards, else +0.
func fused(x, y, z number, r rounding) number {
	p := product(x, y)
	switch {
	case y.class == notANumber:
		return y
	case z.class == notANumber:
		return z
	case p.class == notANumber:
		return p
	case p.class == infinite && z.class == infinite && p.negative != z.negative:
		return invalid
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

	// Both as 128 bits with the first of them free for the carry. Neither loses anything: significands have at most
	// 53 bits, so that 21 and more zeros follow. What is shifted out below is noted in the last bit; where it is not
	// zero, the shift was a long one and at most one bit can cancel in front, so that the last bit stays far behind
	// those that matter.
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
		return collapse(p.negative, hi, lo, exponent)
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
	return collapse(negative, hi, lo, exponent)
}

func quotient(x, y number) number {
	negative := x.negative != y.negative
	switch {
	case x.class == notANumber:
		return x
	case y.class == notANumber:
		return y
	case x.class == zero && y.class == zero, x.class == infinite && y.class == infinite:
		return invalid
	case x.class == infinite || y.class == zero:
		return number{class: infinite, negative: negative}
	case x.class == zero || y.class == infinite:
		return number{negative: negative}
	}
	q, remainder := bits.Div64(x.significand>>1, 0, y.significand)
	return normal(negative, q|bit(remainder != 0), x.exponent-y.exponent-63)
}

func squareRoot(x number) number {
	switch {
	case x.class == zero || x.class == notANumber:
		return x
	case x.negative:
		return invalid
	case x.class == infinite:
		return x
	}
	// The root of 128 bits with an even exponent, bit by bit.
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
	return normal(false, root|bit(squareHi != hi || squareLo != 0), exponent/2)
}

// collapse makes a number of 128 bits that are not zero.
func collapse(negative bool, hi, lo uint64, exponent int) number {
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

// shiftRight notes in the last bit whether it shifts out anything that is not zero.
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

// integral rounds a number to a whole one.
func (x number) integral(r rounding) number {
	if x.class != finite || x.exponent >= 0 {
		return x
	}
	return normal(x.negative, roundOff(x.significand, -x.exponent, x.negative, r), 0)
}

// roundOff drops so many low bits of a significand. It may carry into one more bit than are left.
func roundOff(significand uint64, dropped int, negative bool, r rounding) uint64 {
	const half = 1 << 63
	var kept, rest uint64 // rest is the fraction dropped, in units of 2^-64
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
