package arith

import (
	"math/bits"

	"attune/internal/ptx"
)

// integer is an integer format: width and signedness. The functions of this file define the
// instructions of PTX ISA, Integer Arithmetic Instructions. Results wrap modulo 2^bits unless .sat
// saturates them.
type integer struct {
	bits   int
	signed bool
}

var (
	signed16to64   = []ptx.Type{ptx.S16, ptx.S32, ptx.S64}
	integers16to64 = []ptx.Type{ptx.U16, ptx.U32, ptx.U64, ptx.S16, ptx.S32, ptx.S64}
	integers32to64 = []ptx.Type{ptx.U32, ptx.U64, ptx.S32, ptx.S64}
	integers32     = []ptx.Type{ptx.U32, ptx.S32}
)

// integerOf returns the integer format of an integer type, of a bit type (unsigned), or of the
// halves of a packed type.
func integerOf(t ptx.Type) integer {
	switch t {
	case ptx.U16x2:
		return integer{bits: 16}
	case ptx.S16x2:
		return integer{bits: 16, signed: true}
	}
	return integer{bits: t.Bits(), signed: t.Signed()}
}

// extend widens the low t.bits bits to 64 bits, by sign if the format is signed.
func (t integer) extend(code uint64) uint64 {
	shift := 64 - t.bits
	if t.signed {
		return uint64(int64(code<<shift) >> shift)
	}
	return code << shift >> shift
}

// truncate clears the bits above t.bits.
func (t integer) truncate(value uint64) uint64 { return value << (64 - t.bits) >> (64 - t.bits) }

// less compares two encoded values.
func (t integer) less(a, b uint64) bool {
	a, b = t.extend(a), t.extend(b)
	if t.signed {
		return int64(a) < int64(b)
	}
	return a < b
}

// saturate encodes the representable value nearest to value.
func (t integer) saturate(value int64) uint64 {
	lowest, highest := t.limits()
	return t.truncate(uint64(min(max(value, lowest), highest)))
}

// limits returns the least and the greatest value. For u64 the greatest is the largest int64.
func (t integer) limits() (lowest, highest int64) {
	if t.signed {
		return -1 << (t.bits - 1), 1<<(t.bits-1) - 1
	}
	if t.bits == 64 {
		return 0, 1<<63 - 1
	}
	return 0, 1<<t.bits - 1
}

// mulWide returns the 128-bit product of two encoded values.
func (t integer) mulWide(a, b uint64) (hi, lo uint64) {
	a, b = t.extend(a), t.extend(b)
	hi, lo = bits.Mul64(a, b)
	if t.signed {
		// Mul64 read a negative operand as 2^64 more than its value.
		if int64(a) < 0 {
			hi -= b
		}
		if int64(b) < 0 {
			hi -= a
		}
	}
	return hi, lo
}

// mulHigh returns the upper half of the product of two encoded values.
func (t integer) mulHigh(a, b uint64) uint64 {
	hi, lo := t.mulWide(a, b)
	if t.bits == 64 {
		return hi
	}
	return t.truncate(lo >> t.bits)
}

// isInteger reports whether the first type is an integer type or a pair of 16-bit integers.
func (f *form) isInteger() bool {
	return len(f.types) > 0 && (isInteger(f.types[0]) || f.types[0] == ptx.U16x2 || f.types[0] == ptx.S16x2)
}

func isInteger(t ptx.Type) bool {
	switch t {
	case ptx.U8, ptx.U16, ptx.U32, ptx.U64, ptx.S8, ptx.S16, ptx.S32, ptx.S64:
		return true
	}
	return false
}

// addSubInteger defines add and sub of integers, with .sat for s32 and add of u16x2 and s16x2.
func addSubInteger(f *form, sum func(a, b uint64) uint64) (Op, bool) {
	if f.consume("sat") {
		_, ok := f.oneType(ptx.S32)
		return uniformOp(ptx.S32, 2, func(a, b, _, _ uint64) uint64 {
			s32 := integer{bits: 32, signed: true}
			return s32.saturate(int64(sum(s32.extend(a), s32.extend(b))))
		}), ok
	}
	if t, ok := f.oneType(ptx.U16x2, ptx.S16x2); ok && f.opcode == "add" {
		return uniformOp(t, 2, onBothHalves(func(a, b, _, _ uint64) uint64 { return sum(a, b) & 0xFFFF })), true
	}
	t, ok := f.oneType(integers16to64...)
	n := integerOf(t)
	return uniformOp(t, 2, func(a, b, _, _ uint64) uint64 { return n.truncate(sum(a, b)) }), ok
}

// mulInteger defines mul.lo, mul.hi and mul.wide of integers.
func mulInteger(f *form) (Op, bool) {
	mode := f.consumeAny("lo", "hi", "wide")
	t, ok := f.oneType(integers16to64...)
	n := integerOf(t)
	op := uniformOp(t, 2, nil)
	switch mode {
	case "lo":
		op.Func = func(a, b, _, _ uint64) uint64 { return n.truncate(a * b) }
	case "hi":
		op.Func = func(a, b, _, _ uint64) uint64 { return n.mulHigh(a, b) }
	case "wide":
		op.Result = doubleWidth(t)
		ok = ok && op.Result != ptx.NoType
		w := integerOf(op.Result)
		op.Func = func(a, b, _, _ uint64) uint64 { return w.truncate(n.extend(a) * n.extend(b)) }
	default:
		return Op{}, false
	}
	return op, ok
}

// madInteger defines mad.lo, mad.hi and mad.wide of integers, with .sat for mad.hi.s32.
func madInteger(f *form) (Op, bool) {
	mode := f.consumeAny("lo", "hi", "wide")
	if f.consume("cc") {
		return madCarryOp(f, mode, false, true)
	}
	t, ok := f.oneType(integers16to64...)
	n := integerOf(t)
	op := uniformOp(t, 3, nil)
	switch mode {
	case "lo":
		op.Func = func(a, b, c, _ uint64) uint64 { return n.truncate(a*b + c) }
	case "hi":
		op.Func = func(a, b, c, _ uint64) uint64 { return n.truncate(n.mulHigh(a, b) + c) }
		if t == ptx.S32 && f.consume("sat") {
			op.Func = func(a, b, c, _ uint64) uint64 { return n.saturate(int64(n.extend(n.mulHigh(a, b)) + n.extend(c))) }
		}
	case "wide":
		op.Result = doubleWidth(t)
		ok = ok && op.Result != ptx.NoType
		op.Args[2] = op.Result
		w := integerOf(op.Result)
		op.Func = func(a, b, c, _ uint64) uint64 { return w.truncate(n.extend(a)*n.extend(b) + c) }
	default:
		return Op{}, false
	}
	return op, ok
}

// doubleWidth returns the type of twice the width; NoType for 64-bit types.
func doubleWidth(t ptx.Type) ptx.Type {
	switch t {
	case ptx.U16:
		return ptx.U32
	case ptx.S16:
		return ptx.S32
	case ptx.U32:
		return ptx.U64
	case ptx.S32:
		return ptx.S64
	}
	return ptx.NoType
}

// product24 defines the product of mul24 and mad24: bits 0 to 31 (.lo) or 16 to 47 (.hi) of the
// product of the low 24 bits of two operands.
func product24(f *form) (product func(a, b uint64) uint64, hi bool, t ptx.Type, ok bool) {
	mode := f.consumeAny("lo", "hi")
	t, ok = f.oneType(integers32...)
	n := integer{bits: 24, signed: t.Signed()}
	hi = mode == "hi"
	product = func(a, b uint64) uint64 {
		wide := n.extend(a) * n.extend(b)
		if hi {
			wide >>= 16
		}
		return wide & 0xFFFFFFFF
	}
	return product, hi, t, ok && mode != ""
}

func mul24(f *form) (Op, bool) {
	product, _, t, ok := product24(f)
	return uniformOp(t, 2, func(a, b, _, _ uint64) uint64 { return product(a, b) }), ok
}

func mad24(f *form) (Op, bool) {
	product, hi, t, ok := product24(f)
	n := integerOf(t)
	if hi && t == ptx.S32 && f.consume("sat") {
		return uniformOp(t, 3, func(a, b, c, _ uint64) uint64 { return n.saturate(int64(n.extend(product(a, b)) + n.extend(c))) }), ok
	}
	return uniformOp(t, 3, func(a, b, c, _ uint64) uint64 { return n.truncate(product(a, b) + c) }), ok
}

// sad is |a - b| + c.
func sad(f *form) (Op, bool) {
	t, ok := f.oneType(integers16to64...)
	n := integerOf(t)
	return uniformOp(t, 3, func(a, b, c, _ uint64) uint64 {
		if n.less(a, b) {
			a, b = b, a
		}
		return n.truncate(a - b + c)
	}), ok
}

// divInteger truncates the quotient toward zero. The PTX ISA leaves division by zero undefined; the
// H200 returns all ones.
func divInteger(f *form) (Op, bool) {
	t, ok := f.oneType(integers16to64...)
	n := integerOf(t)
	return uniformOp(t, 2, func(a, b, _, _ uint64) uint64 {
		a, b = n.extend(a), n.extend(b)
		switch {
		case b == 0:
			return n.truncate(^uint64(0))
		case n.signed:
			return n.truncate(uint64(int64(a) / int64(b)))
		}
		return a / b
	}), ok
}

// remainder has the sign of the dividend. The PTX ISA leaves division by zero undefined; the H200
// returns all ones.
func remainder(f *form) (Op, bool) {
	t, ok := f.oneType(integers16to64...)
	n := integerOf(t)
	return uniformOp(t, 2, func(a, b, _, _ uint64) uint64 {
		a, b = n.extend(a), n.extend(b)
		switch {
		case b == 0:
			return n.truncate(^uint64(0))
		case n.signed:
			return n.truncate(uint64(int64(a) % int64(b)))
		}
		return a % b
	}), ok
}

func absInteger(f *form) (Op, bool) {
	t, ok := f.oneType(signed16to64...)
	n := integerOf(t)
	return uniformOp(t, 1, func(a, _, _, _ uint64) uint64 {
		if n.less(a, 0) {
			a = -a
		}
		return n.truncate(a)
	}), ok
}

func negInteger(f *form) (Op, bool) {
	t, ok := f.oneType(signed16to64...)
	n := integerOf(t)
	return uniformOp(t, 1, func(a, _, _, _ uint64) uint64 { return n.truncate(-a) }), ok
}

// minMaxInteger defines min and max of integers. .relu clamps negative results to 0.
func minMaxInteger(f *form) (Op, bool) {
	t, ok := f.oneType(ptx.U16, ptx.U32, ptx.U64, ptx.S16, ptx.S32, ptx.S64, ptx.U16x2, ptx.S16x2)
	n := integerOf(t)
	largest := f.opcode == "max"
	relu := (t == ptx.S32 || t == ptx.S16x2) && f.consume("relu")
	extreme := func(a, b, _, _ uint64) uint64 {
		if n.less(a, b) == largest {
			a = b
		}
		if relu && n.less(a, 0) {
			return 0
		}
		return n.truncate(a)
	}
	if t == ptx.U16x2 || t == ptx.S16x2 {
		extreme = onBothHalves(extreme)
	}
	return uniformOp(t, 2, extreme), ok
}

// dp4a adds the four products of corresponding bytes of a and b to c.
func dp4a(f *form) (Op, bool) {
	if !f.has32BitTypes(2) {
		return Op{}, false
	}
	x, y := integer{bits: 8, signed: f.types[0].Signed()}, integer{bits: 8, signed: f.types[1].Signed()}
	return dot(f, func(a, b, c, _ uint64) uint64 {
		for i := 0; i < 32; i += 8 {
			c += x.extend(a>>i) * y.extend(b>>i)
		}
		return c & 0xFFFFFFFF
	}), true
}

// dp2a adds two products to c: the 16-bit halves of a times two bytes of b, the lower two (.lo) or
// the upper two (.hi).
func dp2a(f *form) (Op, bool) {
	half := f.consumeAny("lo", "hi")
	if !f.has32BitTypes(2) || half == "" {
		return Op{}, false
	}
	x, y := integer{bits: 16, signed: f.types[0].Signed()}, integer{bits: 8, signed: f.types[1].Signed()}
	shift := 16 * bit(half == "hi")
	return dot(f, func(a, b, c, _ uint64) uint64 {
		return (c + x.extend(a)*y.extend(b>>shift) + x.extend(a>>16)*y.extend(b>>shift>>8)) & 0xFFFFFFFF
	}), true
}

// has32BitTypes reports whether the form has exactly count types, all of them u32 or s32.
func (f *form) has32BitTypes(count int) bool {
	for _, t := range f.types {
		if t != ptx.U32 && t != ptx.S32 {
			return false
		}
	}
	return len(f.types) == count
}

// dot builds dp4a and dp2a: the accumulator is signed if one source is signed.
func dot(f *form, compute Func) Op {
	sum := ptx.U32
	if f.types[0] == ptx.S32 || f.types[1] == ptx.S32 {
		sum = ptx.S32
	}
	return Op{Result: sum, Args: []ptx.Type{f.types[0], f.types[1], sum}, Func: compute}
}
