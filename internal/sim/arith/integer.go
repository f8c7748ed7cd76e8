package arith

import (
	"math/bits"

	"attune/internal/ptx"
)

// integer is how bits stand for whole numbers.
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

// integerOf is the integer of a type that is one, of bits (unsigned), or of a pair (the one of its halves).
func integerOf(t ptx.Type) integer {
	switch t {
	case ptx.U16x2:
		return integer{bits: 16}
	case ptx.S16x2:
		return integer{bits: 16, signed: true}
	}
	return integer{bits: t.Bits(), signed: t.Signed()}
}

// extend makes 64 bits of a code, by its sign where it has one.
func (t integer) extend(code uint64) uint64 {
	shift := 64 - t.bits
	if t.signed {
		return uint64(int64(code<<shift) >> shift)
	}
	return code << shift >> shift
}

// cut makes a code of 64 bits.
func (t integer) cut(value uint64) uint64 { return value << (64 - t.bits) >> (64 - t.bits) }

// less compares codes.
func (t integer) less(a, b uint64) bool {
	a, b = t.extend(a), t.extend(b)
	if t.signed {
		return int64(a) < int64(b)
	}
	return a < b
}

// clamp makes the nearest code of a number.
func (t integer) clamp(value int64) uint64 {
	lowest, highest := t.limits()
	return t.cut(uint64(min(max(value, lowest), highest)))
}

// limits are the least and the greatest number, those of u64 as far as they fit.
func (t integer) limits() (lowest, highest int64) {
	if t.signed {
		return -1 << (t.bits - 1), 1<<(t.bits-1) - 1
	}
	if t.bits == 64 {
		return 0, 1<<63 - 1
	}
	return 0, 1<<t.bits - 1
}

// multiply gives the product of two codes, 128 bits of it.
func (t integer) multiply(a, b uint64) (hi, lo uint64) {
	a, b = t.extend(a), t.extend(b)
	hi, lo = bits.Mul64(a, b)
	if t.signed {
		// A negative operand was taken for 2^64 more than it is.
		if int64(a) < 0 {
			hi -= b
		}
		if int64(b) < 0 {
			hi -= a
		}
	}
	return hi, lo
}

// high is the upper half of the product of two codes.
func (t integer) high(a, b uint64) uint64 {
	hi, lo := t.multiply(a, b)
	if t.bits == 64 {
		return hi
	}
	return t.cut(lo >> t.bits)
}

// isInteger says whether the first type is one of whole numbers, or of two of them.
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

// addInteger defines add and sub of integers.
func addInteger(f *form, sum func(a, b uint64) uint64) (Op, bool) {
	if f.take("sat") {
		_, ok := f.one(ptx.S32)
		return uniform(ptx.S32, 2, func(a, b, _, _ uint64) uint64 {
			s32 := integer{bits: 32, signed: true}
			return s32.clamp(int64(sum(s32.extend(a), s32.extend(b))))
		}), ok
	}
	if t, ok := f.one(ptx.U16x2, ptx.S16x2); ok && f.opcode == "add" {
		return uniform(t, 2, packed(func(a, b, _, _ uint64) uint64 { return sum(a, b) & 0xFFFF })), true
	}
	t, ok := f.one(integers16to64...)
	n := integerOf(t)
	return uniform(t, 2, func(a, b, _, _ uint64) uint64 { return n.cut(sum(a, b)) }), ok
}

func mulInteger(f *form) (Op, bool) {
	mode := f.choose("lo", "hi", "wide")
	t, ok := f.one(integers16to64...)
	n := integerOf(t)
	op := uniform(t, 2, nil)
	switch mode {
	case "lo":
		op.Func = func(a, b, _, _ uint64) uint64 { return n.cut(a * b) }
	case "hi":
		op.Func = func(a, b, _, _ uint64) uint64 { return n.high(a, b) }
	case "wide":
		op.Result = wider(t)
		ok = ok && op.Result != ptx.NoType
		w := integerOf(op.Result)
		op.Func = func(a, b, _, _ uint64) uint64 { return w.cut(n.extend(a) * n.extend(b)) }
	default:
		return Op{}, false
	}
	return op, ok
}

func madInteger(f *form) (Op, bool) {
	mode := f.choose("lo", "hi", "wide")
	if f.take("cc") {
		return madCarry(f, mode, false, true)
	}
	t, ok := f.one(integers16to64...)
	n := integerOf(t)
	op := uniform(t, 3, nil)
	switch mode {
	case "lo":
		op.Func = func(a, b, c, _ uint64) uint64 { return n.cut(a*b + c) }
	case "hi":
		op.Func = func(a, b, c, _ uint64) uint64 { return n.cut(n.high(a, b) + c) }
		if t == ptx.S32 && f.take("sat") {
			op.Func = func(a, b, c, _ uint64) uint64 { return n.clamp(int64(n.extend(n.high(a, b)) + n.extend(c))) }
		}
	case "wide":
		op.Result = wider(t)
		ok = ok && op.Result != ptx.NoType
		op.Args[2] = op.Result
		w := integerOf(op.Result)
		op.Func = func(a, b, c, _ uint64) uint64 { return w.cut(n.extend(a)*n.extend(b) + c) }
	default:
		return Op{}, false
	}
	return op, ok
}

// wider is the type of twice the width; there is none for 64 bits.
func wider(t ptx.Type) ptx.Type {
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

// product24 is the product of the low 24 bits of two codes.
func product24(f *form) (product func(a, b uint64) uint64, hi bool, t ptx.Type, ok bool) {
	mode := f.choose("lo", "hi")
	t, ok = f.one(integers32...)
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
	return uniform(t, 2, func(a, b, _, _ uint64) uint64 { return product(a, b) }), ok
}

func mad24(f *form) (Op, bool) {
	product, hi, t, ok := product24(f)
	n := integerOf(t)
	if hi && t == ptx.S32 && f.take("sat") {
		return uniform(t, 3, func(a, b, c, _ uint64) uint64 { return n.clamp(int64(n.extend(product(a, b)) + n.extend(c))) }), ok
	}
	return uniform(t, 3, func(a, b, c, _ uint64) uint64 { return n.cut(product(a, b) + c) }), ok
}

func sad(f *form) (Op, bool) {
	t, ok := f.one(integers16to64...)
	n := integerOf(t)
	return uniform(t, 3, func(a, b, c, _ uint64) uint64 {
		if n.less(a, b) {
			a, b = b, a
		}
		return n.cut(a - b + c)
	}), ok
}

// divInteger is the quotient rounded towards zero. PTX leaves division by zero open: the chip answers with all ones.
func divInteger(f *form) (Op, bool) {
	t, ok := f.one(integers16to64...)
	n := integerOf(t)
	return uniform(t, 2, func(a, b, _, _ uint64) uint64 {
		a, b = n.extend(a), n.extend(b)
		switch {
		case b == 0:
			return n.cut(^uint64(0))
		case n.signed:
			return n.cut(uint64(int64(a) / int64(b)))
		}
		return a / b
	}), ok
}

// remainder has the sign of the dividend. PTX leaves division by zero open: the chip answers with all ones.
func remainder(f *form) (Op, bool) {
	t, ok := f.one(integers16to64...)
	n := integerOf(t)
	return uniform(t, 2, func(a, b, _, _ uint64) uint64 {
		a, b = n.extend(a), n.extend(b)
		switch {
		case b == 0:
			return n.cut(^uint64(0))
		case n.signed:
			return n.cut(uint64(int64(a) % int64(b)))
		}
		return a % b
	}), ok
}

func absInteger(f *form) (Op, bool) {
	t, ok := f.one(signed16to64...)
	n := integerOf(t)
	return uniform(t, 1, func(a, _, _, _ uint64) uint64 {
		if n.less(a, 0) {
			a = -a
		}
		return n.cut(a)
	}), ok
}

func negInteger(f *form) (Op, bool) {
	t, ok := f.one(signed16to64...)
	n := integerOf(t)
	return uniform(t, 1, func(a, _, _, _ uint64) uint64 { return n.cut(-a) }), ok
}

// extremeInteger defines min and max of integers.
func extremeInteger(f *form) (Op, bool) {
	t, ok := f.one(ptx.U16, ptx.U32, ptx.U64, ptx.S16, ptx.S32, ptx.S64, ptx.U16x2, ptx.S16x2)
	n := integerOf(t)
	largest := f.opcode == "max"
	relu := (t == ptx.S32 || t == ptx.S16x2) && f.take("relu")
	extreme := func(a, b, _, _ uint64) uint64 {
		if n.less(a, b) == largest {
			a = b
		}
		if relu && n.less(a, 0) {
			return 0
		}
		return n.cut(a)
	}
	if t == ptx.U16x2 || t == ptx.S16x2 {
		extreme = packed(extreme)
	}
	return uniform(t, 2, extreme), ok
}

// dp4a adds the four products of bytes to c.
func dp4a(f *form) (Op, bool) {
	if !f.words32(2) {
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

// dp2a adds the products of two 16-bit values with two bytes of b to c.
func dp2a(f *form) (Op, bool) {
	half := f.choose("lo", "hi")
	if !f.words32(2) || half == "" {
		return Op{}, false
	}
	x, y := integer{bits: 16, signed: f.types[0].Signed()}, integer{bits: 8, signed: f.types[1].Signed()}
	shift := 16 * bit(half == "hi")
	return dot(f, func(a, b, c, _ uint64) uint64 {
		return (c + x.extend(a)*y.extend(b>>shift) + x.extend(a>>16)*y.extend(b>>shift>>8)) & 0xFFFFFFFF
	}), true
}

// words32 says whether there are so many types, all of them integers of 32 bits.
func (f *form) words32(count int) bool {
	for _, t := range f.types {
		if t != ptx.U32 && t != ptx.S32 {
			return false
		}
	}
	return len(f.types) == count
}

// dot is a dot product: its sum is signed where a source is.
func dot(f *form, compute Func) Op {
	sum := ptx.U32
	if f.types[0] == ptx.S32 || f.types[1] == ptx.S32 {
		sum = ptx.S32
	}
	return Op{Result: sum, Args: []ptx.Type{f.types[0], f.types[1], sum}, Func: compute}
}
