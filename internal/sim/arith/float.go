package arith

import (
	"math"

	"attune/internal/ptx"
)

// format is a floating-point format as IEEE 754 has them.
type format struct {
	bits     int
	mantissa int // bits of the mantissa that are written down
	bias     int
	nan      uint64 // the code of every NaN that an operation makes; 0 for float64, which keeps those of its operands
}

var (
	float16  = &format{bits: 16, mantissa: 10, bias: 15, nan: 0x7FFF}
	bfloat16 = &format{bits: 16, mantissa: 7, bias: 127, nan: 0x7FFF}
	float32s = &format{bits: 32, mantissa: 23, bias: 127, nan: 0x7FFFFFFF}
	float64s = &format{bits: 64, mantissa: 52, bias: 1023}
)

// formatOf is the format of a type, or of the halves of a pair; nil where it is none of the four.
func formatOf(t ptx.Type) *format {
	switch t {
	case ptx.F16, ptx.F16x2:
		return float16
	case ptx.BF16, ptx.BF16x2:
		return bfloat16
	case ptx.F32:
		return float32s
	case ptx.F64:
		return float64s
	}
	return nil
}

func isPair(t ptx.Type) bool { return t == ptx.F16x2 || t == ptx.BF16x2 }

func (f *format) sign() uint64      { return 1 << (f.bits - 1) }
func (f *format) magnitude() uint64 { return f.sign() - 1 }
func (f *format) infinity() uint64  { return f.magnitude() &^ ones(uint64(f.mantissa)) }

func (f *format) isNaN(code uint64) bool { return code&f.magnitude() > f.infinity() }

// isSubnormal is true of zero, too.
func (f *format) isSubnormal(code uint64) bool { return code&f.infinity() == 0 }

// flush makes zeros of subnormal numbers, by their sign.
func (f *format) flush(code uint64) uint64 {
	if f.isSubnormal(code) {
		return code & f.sign()
	}
	return code
}

func (f *format) decode(code uint64) number {
	negative := code&f.sign() != 0
	mantissa := code & ones(uint64(f.mantissa))
	exponent := int(code&f.magnitude()) >> f.mantissa
	switch {
	case exponent == 0:
		return normal(negative, mantissa, 1-f.bias-f.mantissa)
	case code&f.magnitude() == f.infinity():
		return number{class: infinite, negative: negative}
	case f.isNaN(code):
		return number{class: notANumber, negative: negative, significand: mantissa<<(64-f.mantissa) | 1<<63}
	}
	return normal(negative, mantissa|1<<f.mantissa, exponent-f.bias-f.mantissa)
}

func (f *format) encode(x number, r rounding) uint64 {
	var sign uint64
	if x.negative {
		sign = f.sign()
	}
	switch x.class {
	case zero:
		return sign
	case infinite:
		return sign | f.infinity()
	case notANumber:
		if f.nan == 0 {
			return f.kept(x)
		}
		return f.nan
	}
	exponent := x.exponent + 63 + f.bias // as it is written down
	if exponent > 2*f.bias {
		return sign | f.overflow(x.negative, r)
	}
	dropped := 63 - f.mantissa + max(0, 1-exponent)
	kept := roundOff(x.significand, dropped, x.negative, r)
	// The first bit, where there is one, counts the exponent one up, as does a carry out of the mantissa.
	magnitude := uint64(max(0, exponent-1))<<f.mantissa + kept
	if magnitude >= f.infinity() {
		return sign | f.overflow(x.negative, r)
	}
	return sign | magnitude
}

// kept is the code of a NaN with its sign and what fits of its mantissa.
func (f *format) kept(x number) uint64 {
	code := f.infinity() | x.significand>>(64-f.mantissa)
	if x.negative {
		code |= f.sign()
	}
	return code
}

// overflow is the magnitude of what is too large: infinity, or the largest number where rounding goes the other way.
func (f *format) overflow(negative bool, r rounding) uint64 {
	if r == toZero || r == down && !negative || r == up && negative {
		return f.infinity() - 1
	}
	return f.infinity()
}

// isTiny says whether a number is smaller than all normal ones, once it is rounded as if there were smaller ones.
func (f *format) isTiny(x number, r rounding) bool {
	exponent := x.exponent + 63
	if roundOff(x.significand, 63-f.mantissa, x.negative, r)>>(f.mantissa+1) != 0 {
		exponent++
	}
	return x.class == finite && exponent < 1-f.bias
}

// one is the code of 1.
func (f *format) one() uint64 { return uint64(f.bias) << f.mantissa }

// float is arithmetic in a format, with what modifiers do to operands and results.
type float struct {
	*format
	rounding       rounding
	ftz, sat, relu bool
}

func (f *float) read(code uint64) number {
	if f.ftz {
		code = f.flush(code)
	}
	return f.decode(code)
}

func (f *float) write(x number) uint64 {
	if f.ftz && f.isTiny(x, f.rounding) {
		x = number{negative: x.negative}
	}
	return f.finish(f.encode(x, f.rounding))
}

// finish flushes and clamps a result.
func (f *float) finish(code uint64) uint64 {
	if f.ftz {
		code = f.flush(code)
	}
	negative := code&f.sign() != 0
	switch {
	case f.sat && (negative || f.isNaN(code)):
		return 0
	case f.sat:
		return min(code, f.one())
	case f.relu && negative && !f.isNaN(code):
		return 0
	}
	return code
}

// roundings are the modifiers for directions of rounding.
var roundings = map[string]rounding{"rn": toNearest, "rz": toZero, "rm": down, "rp": up}

// rounding takes the rounding off the form.
func (f *form) rounding() (r rounding, given bool) {
	r, given = roundings[f.choose("rn", "rz", "rm", "rp")]
	return r, given
}

// float takes off the form what arithmetic of its type may have: rounding, .ftz and .sat.
func (f *form) float() (t ptx.Type, arithmetic *float, rounded, ok bool) {
	t, ok = f.one(ptx.F16, ptx.F16x2, ptx.BF16, ptx.BF16x2, ptx.F32, ptx.F64)
	if !ok {
		return t, nil, false, false
	}
	a := &float{format: formatOf(t)}
	a.rounding, rounded = f.rounding()
	if a.format == float16 || a.format == float32s {
		a.ftz, a.sat = f.take("ftz"), f.take("sat")
	}
	// Numbers of 16 bits round to nearest only.
	return t, a, rounded, a.bits > 16 || a.rounding == toNearest
}

// uniformFloat is an instruction of one floating-point type, applied to both halves of a pair.
func uniformFloat(t ptx.Type, sources int, compute Func) Op {
	if isPair(t) {
		compute = packed(compute)
	}
	return uniform(t, sources, compute)
}

// operation is one of the operations that IEEE 754 defines for every format: exact, then rounded once.
type operation struct {
	exact func(x, y, z number, r rounding) number
	// single and double do the same rounded to nearest, on the processor; nil where it has no such operation.
	single func(x, y, z float32) float32
	double func(x, y, z float64) float64
}

var (
	addition = operation{
		exact:  func(x, y, _ number, r rounding) number { return sum(x, y, r) },
		single: func(x, y, _ float32) float32 { return x + y },
		double: func(x, y, _ float64) float64 { return x + y },
	}
	subtraction = operation{
		exact:  func(x, y, _ number, r rounding) number { return sum(x, y.negated(), r) },
		single: func(x, y, _ float32) float32 { return x - y },
		double: func(x, y, _ float64) float64 { return x - y },
	}
	multiplication = operation{
		exact:  func(x, y, _ number, _ rounding) number { return product(x, y) },
		single: func(x, y, _ float32) float32 { return x * y },
		double: func(x, y, _ float64) float64 { return x * y },
	}
	fusion = operation{
		exact:  fused,
		double: math.FMA,
	}
	division = operation{
		exact:  func(x, y, _ number, _ rounding) number { return quotient(x, y) },
		single: func(x, y, _ float32) float32 { return x / y },
		double: func(x, y, _ float64) float64 { return x / y },
	}
	reciprocal = operation{
		exact:  func(x, _, _ number, _ rounding) number { return quotient(one, x) },
		single: func(x, _, _ float32) float32 { return 1 / x },
		double: func(x, _, _ float64) float64 { return 1 / x },
	}
	root = operation{
		exact:  func(x, _, _ number, _ rounding) number { return squareRoot(x) },
		single: func(x, _, _ float32) float32 { return float32(math.Sqrt(float64(x))) },
		double: func(x, _, _ float64) float64 { return math.Sqrt(x) },
	}
)

// compute is an operation in this arithmetic.
func (f *float) compute(o operation) Func {
	exact := func(a, b, c, _ uint64) uint64 { return f.write(o.exact(f.read(a), f.read(b), f.read(c), f.rounding)) }
	switch {
	case f.rounding == toNearest && f.format == float32s && o.single != nil:
		return func(a, b, c, _ uint64) uint64 {
			if f.ftz {
				a, b, c = f.flush(a), f.flush(b), f.flush(c)
			}
			x := o.single(single(a), single(b), single(c))
			switch {
			case x != x:
				return f.finish(f.nan)
			case f.ftz && abs32(x) == smallestNormal:
				return exact(a, b, c, 0) // what was rounded up to this is flushed
			}
			return f.finish(uint64(math.Float32bits(x)))
		}
	case f.rounding == toNearest && f.format == float64s && o.double != nil:
		return func(a, b, c, _ uint64) uint64 {
			x := o.double(math.Float64frombits(a), math.Float64frombits(b), math.Float64frombits(c))
			if x != x {
				return exact(a, b, c, 0)
			}
			return math.Float64bits(x)
		}
	}
	return exact
}

func add(f *form) (Op, bool) {
	if f.take("cc") {
		return chain(f, 2, sumWithCarry, false, true)
	}
	if f.isInteger() {
		return addInteger(f, func(a, b uint64) uint64 { return a + b })
	}
	return elementary(f, addition)
}

func sub(f *form) (Op, bool) {
	if f.take("cc") {
		return chain(f, 2, differenceWithCarry, false, true)
	}
	if f.isInteger() {
		return addInteger(f, func(a, b uint64) uint64 { return a - b })
	}
	return elementary(f, subtraction)
}

func mul(f *form) (Op, bool) {
	if f.isInteger() {
		return mulInteger(f)
	}
	return elementary(f, multiplication)
}

// elementary defines an operation of two sources in all formats.
func elementary(f *form, o operation) (Op, bool) {
	t, n, _, ok := f.float()
	if !ok {
		return Op{}, false
	}
	return uniformFloat(t, 2, n.compute(o)), true
}

// mad of floating point is fma, for the types that had it before there was fma.
func mad(f *form) (Op, bool) {
	if f.isInteger() {
		return madInteger(f)
	}
	if _, ok := f.one(ptx.F32, ptx.F64); !ok {
		return Op{}, false
	}
	return fma(f)
}

// isOutOfBounds says whether a number of 16 bits is the NaN with which a tensor copy fills what lies outside of the
// tensor; its sign does not count.
func isOutOfBounds(code uint64) bool { return code&0x7FFF == 0x7FF7 }

func fma(f *form) (Op, bool) {
	t, n, rounded, ok := f.float()
	if !ok || !rounded {
		return Op{}, false
	}
	oob := false
	if n.bits == 16 {
		n.relu = !n.sat && f.take("relu")
		oob = !n.ftz && f.take("oob")
	}
	compute := n.compute(fusion)
	if oob {
		fuse := compute
		compute = func(a, b, c, _ uint64) uint64 {
			if isOutOfBounds(a) || isOutOfBounds(b) {
				return 0 // whatever c is
			}
			return fuse(a, b, c, 0)
		}
	}
	return uniformFloat(t, 3, compute), true
}

func div(f *form) (Op, bool) {
	if f.isInteger() {
		return divInteger(f)
	}
	if f.take("approx") {
		return approximate(f, 2, divApprox, ptx.F32)
	}
	if f.take("full") {
		return approximate(f, 2, divFull, ptx.F32)
	}
	return correct(f, 2, division)
}

func rcp(f *form) (Op, bool) {
	if f.take("approx") {
		if _, ok := f.one(ptx.F64); ok {
			return gross(f, rcpGross)
		}
		return approximate(f, 1, rcpApprox, ptx.F32)
	}
	return correct(f, 1, reciprocal)
}

func sqrt(f *form) (Op, bool) {
	if f.take("approx") {
		return approximate(f, 1, sqrtApprox, ptx.F32)
	}
	return correct(f, 1, root)
}

// correct defines the operations that are correctly rounded for float32 and float64 only, where a rounding is given.
func correct(f *form, sources int, o operation) (Op, bool) {
	t, ok := f.one(ptx.F32, ptx.F64)
	r, rounded := f.rounding()
	n := &float{format: formatOf(t), rounding: r}
	if !ok || !rounded {
		return Op{}, false
	}
	n.ftz = t == ptx.F32 && f.take("ftz")
	return uniform(t, sources, n.compute(o)), true
}
