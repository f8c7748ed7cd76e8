package arith

import (
	"math"

	"attune/internal/ptx"
)

// format is an IEEE 754 binary format.
type format struct {
	bits     int
	mantissa int // stored bits of the mantissa
	bias     int
	nan      uint64 // encoding of every NaN result; 0 for f64, which preserves the NaN operand
}

var (
	float16  = &format{bits: 16, mantissa: 10, bias: 15, nan: 0x7FFF}
	bfloat16 = &format{bits: 16, mantissa: 7, bias: 127, nan: 0x7FFF}
	float32s = &format{bits: 32, mantissa: 23, bias: 127, nan: 0x7FFFFFFF}
	float64s = &format{bits: 64, mantissa: 52, bias: 1023}
)

// formatOf returns the format of a type, or of the halves of a packed type; nil for other types.
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

// isSubnormal reports whether the magnitude is below the smallest normal number; true for zero.
func (f *format) isSubnormal(code uint64) bool { return code&f.infinity() == 0 }

// flush replaces a subnormal number by zero with the same sign.
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
		return normalised(negative, mantissa, 1-f.bias-f.mantissa)
	case code&f.magnitude() == f.infinity():
		return number{class: infinite, negative: negative}
	case f.isNaN(code):
		return number{class: notANumber, negative: negative, significand: mantissa<<(64-f.mantissa) | 1<<63}
	}
	return normalised(negative, mantissa|1<<f.mantissa, exponent-f.bias-f.mantissa)
}

// encode rounds a number to the format. Overflow and underflow follow IEEE 754.
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
			return f.encodeNaN(x)
		}
		return f.nan
	}
	exponent := x.exponent + 63 + f.bias // biased
	if exponent > 2*f.bias {
		return sign | f.overflow(x.negative, r)
	}
	dropped := 63 - f.mantissa + max(0, 1-exponent)
	kept := shiftRounded(x.significand, dropped, x.negative, r)
	// Adding the leading bit, or a carry out of the mantissa, increments the exponent field.
	magnitude := uint64(max(0, exponent-1))<<f.mantissa + kept
	if magnitude >= f.infinity() {
		return sign | f.overflow(x.negative, r)
	}
	return sign | magnitude
}

// encodeNaN encodes a NaN with its sign and the leading bits of its mantissa.
func (f *format) encodeNaN(x number) uint64 {
	code := f.infinity() | x.significand>>(64-f.mantissa)
	if x.negative {
		code |= f.sign()
	}
	return code
}

// overflow returns the magnitude of an overflowed result: infinity, or the largest finite number if
// the rounding mode points toward zero.
func (f *format) overflow(negative bool, r rounding) uint64 {
	if r == toZero || r == down && !negative || r == up && negative {
		return f.infinity() - 1
	}
	return f.infinity()
}

// underflows reports whether a result is below the smallest normal number after rounding with
// unbounded exponent. .ftz uses this test.
func (f *format) underflows(x number, r rounding) bool {
	exponent := x.exponent + 63
	if shiftRounded(x.significand, 63-f.mantissa, x.negative, r)>>(f.mantissa+1) != 0 {
		exponent++
	}
	return x.class == finite && exponent < 1-f.bias
}

// one returns the encoding of 1.0.
func (f *format) one() uint64 { return uint64(f.bias) << f.mantissa }

// float is arithmetic in a format with the modifiers .ftz, .sat and .relu.
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
	if f.ftz && f.underflows(x, f.rounding) {
		x = number{negative: x.negative}
	}
	return f.applyModifiers(f.encode(x, f.rounding))
}

// applyModifiers flushes a subnormal result (.ftz) and clamps: .sat to [0, 1] with NaN to 0, .relu
// negative results to 0.
func (f *float) applyModifiers(code uint64) uint64 {
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

// roundings maps the rounding modifiers of floating-point results.
var roundings = map[string]rounding{"rn": toNearest, "rz": toZero, "rm": down, "rp": up}

// rounding consumes the rounding modifier. Without one the mode is to nearest even.
func (f *form) rounding() (r rounding, present bool) {
	r, present = roundings[f.consumeAny("rn", "rz", "rm", "rp")]
	return r, present
}

// float consumes the modifiers of floating-point arithmetic: rounding, .ftz and .sat.
func (f *form) float() (t ptx.Type, arithmetic *float, rounded, ok bool) {
	t, ok = f.oneType(ptx.F16, ptx.F16x2, ptx.BF16, ptx.BF16x2, ptx.F32, ptx.F64)
	if !ok {
		return t, nil, false, false
	}
	a := &float{format: formatOf(t)}
	a.rounding, rounded = f.rounding()
	if a.format == float16 || a.format == float32s {
		a.ftz, a.sat = f.consume("ftz"), f.consume("sat")
	}
	// f16 and bf16 support .rn only.
	return t, a, rounded, a.bits > 16 || a.rounding == toNearest
}

// uniformFloat is uniformOp for a floating-point type; a packed type applies compute to both
// halves.
func uniformFloat(t ptx.Type, sources int, compute Func) Op {
	if isPair(t) {
		compute = onBothHalves(compute)
	}
	return uniformOp(t, sources, compute)
}

// operation is an IEEE 754 operation: computed exactly, then rounded once.
type operation struct {
	exact func(x, y, z number, r rounding) number
	// single and double compute the same on the host, rounded to nearest even; nil if the host has
	// no such operation.
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
	fusedMultiplyAdd = operation{
		exact:  multiplyAdd,
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
	squareRootOp = operation{
		exact:  func(x, _, _ number, _ rounding) number { return squareRoot(x) },
		single: func(x, _, _ float32) float32 { return float32(math.Sqrt(float64(x))) },
		double: func(x, _, _ float64) float64 { return math.Sqrt(x) },
	}
)

// compute returns the lane function of an operation in this arithmetic.
func (f *float) compute(o operation) Func {
	exact := func(a, b, c, _ uint64) uint64 { return f.write(o.exact(f.read(a), f.read(b), f.read(c), f.rounding)) }
	switch {
	case f.rounding == toNearest && f.format == float32s && o.single != nil:
		return func(a, b, c, _ uint64) uint64 {
			if f.ftz {
				a, b, c = f.flush(a), f.flush(b), f.flush(c)
			}
			x := o.single(float32From(a), float32From(b), float32From(c))
			switch {
			case x != x:
				return f.applyModifiers(f.nan)
			case f.ftz && abs32(x) == smallestNormal:
				return exact(a, b, c, 0) // .ftz flushes a result that rounding raised to this value
			}
			return f.applyModifiers(uint64(math.Float32bits(x)))
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
	if f.consume("cc") {
		return carryOp(f, 2, sumWithCarry, false, true)
	}
	if f.isInteger() {
		return addSubInteger(f, func(a, b uint64) uint64 { return a + b })
	}
	return binaryFloat(f, addition)
}

func sub(f *form) (Op, bool) {
	if f.consume("cc") {
		return carryOp(f, 2, differenceWithCarry, false, true)
	}
	if f.isInteger() {
		return addSubInteger(f, func(a, b uint64) uint64 { return a - b })
	}
	return binaryFloat(f, subtraction)
}

func mul(f *form) (Op, bool) {
	if f.isInteger() {
		return mulInteger(f)
	}
	return binaryFloat(f, multiplication)
}

// binaryFloat defines an operation of two sources in all floating-point formats.
func binaryFloat(f *form, o operation) (Op, bool) {
	t, n, _, ok := f.float()
	if !ok {
		return Op{}, false
	}
	return uniformFloat(t, 2, n.compute(o)), true
}

// mad of a floating-point type is fma, for f32 and f64 only.
func mad(f *form) (Op, bool) {
	if f.isInteger() {
		return madInteger(f)
	}
	if _, ok := f.oneType(ptx.F32, ptx.F64); !ok {
		return Op{}, false
	}
	return fma(f)
}

// isOutOfBounds reports whether a 16-bit value is the NaN with which a tensor copy fills elements
// outside the tensor (.oobfill). The sign is ignored.
func isOutOfBounds(code uint64) bool { return code&0x7FFF == 0x7FF7 }

// fma is a·b + c with one rounding. With .oob, an out-of-bounds NaN in a or b makes the result 0.
func fma(f *form) (Op, bool) {
	t, n, rounded, ok := f.float()
	if !ok || !rounded {
		return Op{}, false
	}
	oob := false
	if n.bits == 16 {
		n.relu = !n.sat && f.consume("relu")
		oob = !n.ftz && f.consume("oob")
	}
	compute := n.compute(fusedMultiplyAdd)
	if oob {
		fuse := compute
		compute = func(a, b, c, _ uint64) uint64 {
			if isOutOfBounds(a) || isOutOfBounds(b) {
				return 0 // c does not matter
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
	if f.consume("approx") {
		return approximate(f, 2, divApprox, ptx.F32)
	}
	if f.consume("full") {
		return approximate(f, 2, divFull, ptx.F32)
	}
	return correctlyRounded(f, 2, division)
}

func rcp(f *form) (Op, bool) {
	if f.consume("approx") {
		if _, ok := f.oneType(ptx.F64); ok {
			return gross(f, rcpGross)
		}
		return approximate(f, 1, rcpApprox, ptx.F32)
	}
	return correctlyRounded(f, 1, reciprocal)
}

func sqrt(f *form) (Op, bool) {
	if f.consume("approx") {
		return approximate(f, 1, sqrtApprox, ptx.F32)
	}
	return correctlyRounded(f, 1, squareRootOp)
}

// correctlyRounded defines div, rcp and sqrt with a rounding modifier, which exist for f32 and f64
// only.
func correctlyRounded(f *form, sources int, o operation) (Op, bool) {
	t, ok := f.oneType(ptx.F32, ptx.F64)
	r, rounded := f.rounding()
	n := &float{format: formatOf(t), rounding: r}
	if !ok || !rounded {
		return Op{}, false
	}
	n.ftz = t == ptx.F32 && f.consume("ftz")
	return uniformOp(t, sources, n.compute(o)), true
}
