package arith

import (
	"attune/internal/fp8"
	"attune/internal/half"
	"attune/internal/ptx"
)

// conversion is a cvt with its types and modifiers (PTX ISA, Data Movement and Conversion
// Instructions: cvt).
type conversion struct {
	form     *form
	to, from ptx.Type
	rounding rounding
	// At most one is set: rounded for a rounding modifier of the result (.rn), toIntegral for
	// rounding to an integral value (.rni).
	rounded, toIntegral bool
	ftz, sat            bool
}

func cvt(f *form) (Op, bool) {
	if f.consume("pack") {
		return cvtPack(f)
	}
	if len(f.types) != 2 {
		return Op{}, false
	}
	c := conversion{form: f, to: f.types[0], from: f.types[1]}
	if c.to == ptx.TF32 {
		return c.toTF32()
	}
	c.rounding, c.rounded = f.rounding()
	if !c.rounded {
		c.rounding, c.toIntegral = integralRoundings[f.consumeAny("rni", "rzi", "rmi", "rpi")]
	}
	c.ftz, c.sat = (c.to == ptx.F32 || c.from == ptx.F32) && f.consume("ftz"), f.consume("sat")
	switch {
	case c.to == ptx.E4M3x2 || c.to == ptx.E5M2x2:
		return c.toFP8()
	case c.from == ptx.E4M3x2 || c.from == ptx.E5M2x2:
		return c.fromFP8()
	case isPair(c.to):
		return c.toPair()
	case isInteger(c.to) && isInteger(c.from):
		return c.betweenIntegers()
	case isInteger(c.to) && formatOf(c.from) != nil && !isPair(c.from):
		return c.toInteger()
	case isInteger(c.from) && formatOf(c.to) != nil:
		return c.fromInteger()
	case formatOf(c.to) != nil && formatOf(c.from) != nil && !isPair(c.from):
		return c.betweenFloats()
	}
	return Op{}, false
}

// integralRoundings maps the modifiers for rounding to an integral value.
var integralRoundings = map[string]rounding{"rni": toNearest, "rzi": toZero, "rmi": down, "rpi": up}

func (c *conversion) op(compute Func) Op {
	return Op{Result: c.to, Args: []ptx.Type{c.from}, Func: compute}
}

// betweenIntegers converts between integers. cvt.sat exists only for pairs of types in which a
// value can be out of range.
func (c *conversion) betweenIntegers() (Op, bool) {
	to, from := integerOf(c.to), integerOf(c.from)
	if c.rounded || c.toIntegral || c.ftz {
		return Op{}, false
	}
	if !c.sat {
		return c.op(func(a, _, _, _ uint64) uint64 { return to.truncate(from.extend(a)) }), true
	}
	fits := from.bits < to.bits && (to.signed || !from.signed) || to == from
	return c.op(func(a, _, _, _ uint64) uint64 {
		value := from.extend(a)
		if !from.signed && value>>63 == 1 {
			value = 1<<63 - 1 // out of range for every type except u64
		}
		return to.saturate(int64(value))
	}), !fits
}

// toInteger rounds to an integral value and saturates. NaN becomes 0; from f64 or to a 64-bit type
// it becomes 2^(bits-1).
func (c *conversion) toInteger() (Op, bool) {
	to, from := integerOf(c.to), &float{format: formatOf(c.from), ftz: c.ftz}
	lowest, highest := to.limits()
	greatest := uint64(highest)
	if to == (integer{bits: 64}) {
		greatest = 1<<64 - 1
	}
	var nan uint64
	if c.from == ptx.F64 || to.bits == 64 {
		nan = 1 << (to.bits - 1)
	}
	r := c.rounding
	return c.op(func(a, _, _, _ uint64) uint64 {
		x := from.read(a).roundToIntegral(r)
		switch {
		case x.class == notANumber:
			return nan
		case x.class == zero:
			return 0
		case x.negative:
			if x.class == infinite || x.exponent > 0 || x.significand>>-x.exponent > uint64(-lowest) {
				return to.truncate(uint64(lowest))
			}
			return to.truncate(-(x.significand >> -x.exponent))
		case x.class == infinite || x.exponent > 0 || x.significand>>-x.exponent > greatest:
			return greatest
		}
		return x.significand >> -x.exponent
	}), c.toIntegral && (!c.sat || c.from != ptx.BF16)
}

// fromInteger rounds an integer to a floating-point format.
func (c *conversion) fromInteger() (Op, bool) {
	from, to := integerOf(c.from), &float{format: formatOf(c.to), rounding: c.rounding, ftz: c.ftz, sat: c.sat}
	return c.op(func(a, _, _, _ uint64) uint64 {
		value := from.extend(a)
		if from.signed && int64(value) < 0 {
			return to.write(normalised(true, -value, 0))
		}
		return to.write(normalised(false, value, 0))
	}), c.rounded && (!c.sat || c.to != ptx.BF16)
}

// betweenFloats converts between floating-point formats, and rounds to an integral value within
// one.
func (c *conversion) betweenFloats() (Op, bool) {
	from, to := &float{format: formatOf(c.from)}, &float{format: formatOf(c.to), rounding: c.rounding, sat: c.sat}
	// The H200 ignores .ftz for conversions to f16.
	from.ftz, to.ftz = c.ftz && c.from == ptx.F32 && c.to != ptx.F16, c.ftz && c.to == ptx.F32
	ok := !c.sat || c.to != ptx.BF16 && c.from != ptx.BF16
	switch {
	case c.toIntegral:
		ok = ok && c.to == c.from
	case to.bits < from.bits:
		ok = ok && c.rounded
	case c.to == c.from:
		ok = ok && !c.rounded
	case to.bits > from.bits:
		ok = ok && (!c.rounded || c.from == ptx.BF16)
	}
	finite := false
	if c.from == ptx.F32 && to.bits == 16 && (c.rounding == toNearest || c.rounding == toZero) && !c.ftz && !c.sat {
		to.relu, finite = c.form.consume("relu"), c.form.consume("satfinite")
	}
	r, whole := c.rounding, c.toIntegral
	convert := func(a, _, _, _ uint64) uint64 {
		x := from.read(a)
		if whole {
			x = x.roundToIntegral(r)
		}
		return to.writeFinite(x, finite)
	}
	nan := c.nan()
	return c.op(func(a, _, _, _ uint64) uint64 {
		if from.isNaN(a) {
			return to.applyModifiers(nan(a))
		}
		return convert(a, 0, 0, 0)
	}), ok
}

// nan returns the conversion of a NaN. f32 to f32 and f64 to f64 without .ftz are moves, and bf16
// to f32 is a shift. .ftz makes an f32 NaN canonical first. Other conversions from or to f64 keep
// the sign and the leading bits of the mantissa. All other NaN results are canonical.
func (c *conversion) nan() func(a uint64) uint64 {
	from, to := formatOf(c.from), formatOf(c.to)
	switch {
	case c.to == c.from && !c.toIntegral && !c.ftz && to.bits > 16:
		return func(a uint64) uint64 { return integer{bits: to.bits}.truncate(a) }
	case c.to == ptx.F32 && c.from == ptx.BF16 && !c.ftz:
		return func(a uint64) uint64 { return a << 16 & 0xFFFFFFFF }
	case c.ftz && c.from == ptx.F32:
		return func(uint64) uint64 { return to.encode(from.decode(from.nan), toNearest) }
	case c.from == ptx.F64:
		return func(a uint64) uint64 { return to.encodeNaN(from.decode(a)) }
	}
	return func(a uint64) uint64 { return to.encode(from.decode(a), toNearest) }
}

// writeFinite is write with .satfinite: infinities and overflows become the largest finite number.
func (f *float) writeFinite(x number, finite bool) uint64 {
	code := f.write(x)
	if finite && code&f.magnitude() == f.infinity() {
		return code - 1
	}
	return code
}

// toPair converts two f32 values to 16 bits each, the first to the upper half.
func (c *conversion) toPair() (Op, bool) {
	to := &float{format: formatOf(c.to), rounding: c.rounding, relu: c.form.consume("relu")}
	finite := c.form.consume("satfinite")
	return Op{Result: c.to, Args: []ptx.Type{c.from, c.from}, Func: func(a, b, _, _ uint64) uint64 {
		return to.writeFinite(float32s.decode(a), finite)<<16 | to.writeFinite(float32s.decode(b), finite)
	}}, c.from == ptx.F32 && c.rounded && c.rounding <= toZero && !c.ftz && !c.sat
}

// toTF32 rounds an f32 to 10 bits of mantissa, which keep their position.
func (c *conversion) toTF32() (Op, bool) {
	if c.form.consume("rna") {
		return c.toTF32Away()
	}
	r, ok := c.form.rounding()
	tf32 := &float{format: &format{bits: 19, mantissa: 10, bias: 127, nan: 0x3FFFF}, rounding: r, relu: c.form.consume("relu")}
	return c.op(func(a, _, _, _ uint64) uint64 { return tf32.write(float32s.decode(a)) << 13 }),
		ok && r <= toZero && c.from == ptx.F32
}

// toTF32Away rounds to nearest with ties away from zero (.rna). Like the H200 it adds to the
// encoding, so a NaN keeps its bits, and .satfinite changes a NaN too.
func (c *conversion) toTF32Away() (Op, bool) {
	finite := c.form.consume("satfinite")
	return c.op(func(a, _, _, _ uint64) uint64 {
		const last = 1 << 13
		if a&float32s.magnitude() < float32s.infinity() {
			a += last / 2
		}
		a &= 0xFFFFFFFF &^ (last - 1)
		if finite && a&float32s.magnitude() >= float32s.infinity() {
			a -= last
		}
		return a
	}), c.from == ptx.F32
}

// toFP8 converts two f32 values, the first to the upper byte, or the halves of an f16x2. The PTX
// ISA requires .rn and .satfinite.
func (c *conversion) toFP8() (Op, bool) {
	encode := func(x float32) uint64 { return uint64(fp8.E4M3FromFloat32(x)) }
	if c.to == ptx.E5M2x2 {
		encode = func(x float32) uint64 { return uint64(fp8.E5M2FromFloat32(x)) }
	}
	if c.form.consume("relu") {
		keep := encode
		encode = func(x float32) uint64 {
			if code := keep(x); code&0x80 == 0 {
				return code
			}
			return 0
		}
	}
	ok := c.rounded && c.rounding == toNearest && !c.ftz && !c.sat && c.form.consume("satfinite")
	switch c.from {
	case ptx.F32:
		return Op{Result: c.to, Args: []ptx.Type{ptx.F32, ptx.F32}, Func: func(a, b, _, _ uint64) uint64 {
			return encode(float32From(a))<<8 | encode(float32From(b))
		}}, ok
	case ptx.F16x2:
		return c.op(func(a, _, _, _ uint64) uint64 {
			return encode(half.Float16(a>>16).Float32())<<8 | encode(half.Float16(a).Float32())
		}), ok
	}
	return Op{}, false
}

// fromFP8 converts two FP8 bytes to the halves of an f16x2. The conversion is exact.
func (c *conversion) fromFP8() (Op, bool) {
	decode := func(code uint8) float32 { return fp8.E4M3(code).Float32() }
	if c.from == ptx.E5M2x2 {
		decode = func(code uint8) float32 { return fp8.E5M2(code).Float32() }
	}
	relu := c.form.consume("relu")
	var halves [256]uint64
	for code := range halves {
		halves[code] = uint64(half.Float16FromFloat32(decode(uint8(code))))
		if relu && halves[code]&0x8000 != 0 {
			halves[code] = 0
		}
	}
	return c.op(func(a, _, _, _ uint64) uint64 {
		return halves[uint8(a>>8)]<<16 | halves[uint8(a)]
	}), c.to == ptx.F16x2 && c.rounded && c.rounding == toNearest && !c.ftz && !c.sat
}

// cvtPack saturates two s32 values, the first into the upper bits, and inserts the low bits of a
// third source above them.
func cvtPack(f *form) (Op, bool) {
	to := map[string]integer{"u2": {bits: 2}, "s2": {2, true}, "u4": {bits: 4}, "s4": {4, true}}[f.consumeAny("u2", "s2", "u4", "s4")]
	types := f.types
	if to.bits == 0 && len(types) > 0 && isInteger(types[0]) {
		to, types = integerOf(types[0]), types[1:]
	}
	s32 := integer{bits: 32, signed: true}
	pack := func(a, b, c, _ uint64) uint64 {
		both := to.saturate(int64(s32.extend(a)))<<to.bits | to.saturate(int64(s32.extend(b)))
		return (c<<(2*to.bits) | both) & 0xFFFFFFFF
	}
	switch {
	case !f.consume("sat") || to.bits == 0 || to.bits > 16 || len(types) == 0 || types[0] != ptx.S32:
		return Op{}, false
	case to.bits == 16:
		return Op{Result: ptx.B32, Args: []ptx.Type{ptx.S32, ptx.S32}, Func: pack}, len(types) == 1
	}
	return Op{Result: ptx.B32, Args: []ptx.Type{ptx.S32, ptx.S32, ptx.B32}, Func: pack}, len(types) == 2 && types[1] == ptx.B32
}
