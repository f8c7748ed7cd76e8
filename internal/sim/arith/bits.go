package arith

import (
	"math"
	"math/bits"

	"attune/internal/ptx"
)

func popc(f *form) (Op, bool) {
	t, ok := f.oneType(ptx.B32, ptx.B64)
	n := integerOf(t)
	return Op{Result: ptx.U32, Args: []ptx.Type{t}, Func: func(a, _, _, _ uint64) uint64 {
		return uint64(bits.OnesCount64(n.truncate(a)))
	}}, ok
}

func clz(f *form) (Op, bool) {
	t, ok := f.oneType(ptx.B32, ptx.B64)
	n := integerOf(t)
	return Op{Result: ptx.U32, Args: []ptx.Type{t}, Func: func(a, _, _, _ uint64) uint64 {
		return uint64(bits.LeadingZeros64(n.truncate(a)) - (64 - n.bits))
	}}, ok
}

func brev(f *form) (Op, bool) {
	t, ok := f.oneType(ptx.B32, ptx.B64)
	n := integerOf(t)
	return uniformOp(t, 1, func(a, _, _, _ uint64) uint64 { return bits.Reverse64(a) >> (64 - n.bits) }), ok
}

// bfind returns the position of the most significant bit that differs from the sign bit; all ones
// if there is none. .shiftamt returns the shift that moves it to the top (PTX ISA, Integer
// Arithmetic Instructions).
func bfind(f *form) (Op, bool) {
	shift := f.consume("shiftamt")
	t, ok := f.oneType(integers32to64...)
	n := integerOf(t)
	return Op{Result: ptx.U32, Args: []ptx.Type{t}, Func: func(a, _, _, _ uint64) uint64 {
		if n.signed && n.less(a, 0) {
			a = ^a
		}
		position := bits.Len64(n.truncate(a)) - 1
		switch {
		case position < 0:
			return 0xFFFFFFFF
		case shift:
			return uint64(n.bits - 1 - position)
		}
		return uint64(position)
	}}, ok
}

// fns finds the n-th set bit, counted from a base position upwards or downwards.
func fns(f *form) (Op, bool) {
	_, ok := f.oneType(ptx.B32)
	return Op{Result: ptx.B32, Args: []ptx.Type{ptx.B32, ptx.U32, ptx.S32}, Func: func(mask, base, offset, _ uint64) uint64 {
		position, count, step := int64(uint32(base)), int64(int32(offset)), int64(1)
		if count == math.MinInt32 {
			return 0 // result of the H200; the PTX ISA specifies 0xFFFFFFFF
		}
		if count == 0 {
			count = 1
			mask &= 1 << position
		} else if count < 0 {
			count, step = -count, -1
		}
		for ; position >= 0 && position < 32; position += step {
			if count -= int64(mask >> position & 1); count == 0 {
				return uint64(position)
			}
		}
		return 0xFFFFFFFF
	}}, ok
}

// ones is a mask of count low bits.
func ones(count uint64) uint64 { return 1<<count - 1 }

// fieldOperandMask masks the position and the length of a bit field. 32-bit forms use 8 bits of
// both, as the PTX ISA specifies. The H200 has no 64-bit instruction, and the code that ptxas emits
// uses all 32 bits.
func fieldOperandMask(t ptx.Type) uint64 {
	if t.Bits() == 64 {
		return 0xFFFFFFFF
	}
	return 0xFF
}

// bfe extracts a bit field. Signed types extend the field by its top bit, or by the sign bit of a
// if the field ends beyond it.
func bfe(f *form) (Op, bool) {
	t, ok := f.oneType(integers32to64...)
	n, mask := integerOf(t), fieldOperandMask(t)
	width := uint64(n.bits)
	return Op{Result: t, Args: []ptx.Type{t, ptx.U32, ptx.U32}, Func: func(a, position, length, _ uint64) uint64 {
		position, length = position&mask, length&mask
		if length == 0 {
			return 0
		}
		field := n.truncate(a) >> position & ones(length)
		if n.signed && a>>min(position+length-1, width-1)&1 == 1 {
			field |= ^ones(min(length, max(width, position)-position))
		}
		return n.truncate(field)
	}}, ok
}

// bfi inserts the low bits of a into b.
func bfi(f *form) (Op, bool) {
	t, ok := f.oneType(ptx.B32, ptx.B64)
	n, mask := integerOf(t), fieldOperandMask(t)
	return Op{Result: t, Args: []ptx.Type{t, t, ptx.U32, ptx.U32}, Func: func(a, b, position, length uint64) uint64 {
		position, length = position&mask, length&mask
		field := ones(length) << position
		return n.truncate(a<<position&field | b&^field)
	}}, ok
}

// szext extends the low length bits of a value, by sign or by zeros. .clamp limits the length to
// 32, .wrap takes it modulo 32.
func szext(f *form) (Op, bool) {
	mode := f.consumeAny("clamp", "wrap")
	t, ok := f.oneType(integers32...)
	clamp, signed := mode == "clamp", t.Signed()
	return Op{Result: t, Args: []ptx.Type{t, ptx.U32}, Func: func(a, length, _, _ uint64) uint64 {
		length = uint64(uint32(length))
		if clamp && length >= 32 {
			return uint64(uint32(a))
		}
		length &= 31
		if length == 0 {
			return 0
		}
		return uint64(uint32(integer{bits: int(length), signed: signed}.extend(a)))
	}}, ok && mode != ""
}

// bmsk makes a mask of length bits that starts at a position. .wrap takes both modulo 32.
func bmsk(f *form) (Op, bool) {
	mode := f.consumeAny("clamp", "wrap")
	_, ok := f.oneType(ptx.B32)
	clamp := mode == "clamp"
	return Op{Result: ptx.B32, Args: []ptx.Type{ptx.U32, ptx.U32}, Func: func(position, length, _, _ uint64) uint64 {
		position, length = uint64(uint32(position)), uint64(uint32(length))
		if !clamp {
			position, length = position&31, length&31
		}
		return uint64(uint32(ones(length) << position))
	}}, ok && mode != ""
}

// bitwise defines the logic instructions on predicates and bit types (PTX ISA, Logic and Shift
// Instructions).
func bitwise(f *form, sources int, combine func(a, b uint64) uint64) (Op, bool) {
	t, ok := f.oneType(ptx.Pred, ptx.B16, ptx.B32, ptx.B64)
	n := integerOf(t)
	return uniformOp(t, sources, func(a, b, _, _ uint64) uint64 { return n.truncate(combine(a, b)) }), ok
}

func and(f *form) (Op, bool) { return bitwise(f, 2, func(a, b uint64) uint64 { return a & b }) }
func or(f *form) (Op, bool)  { return bitwise(f, 2, func(a, b uint64) uint64 { return a | b }) }
func xor(f *form) (Op, bool) { return bitwise(f, 2, func(a, b uint64) uint64 { return a ^ b }) }
func not(f *form) (Op, bool) { return bitwise(f, 1, func(a, _ uint64) uint64 { return ^a }) }

// cnot is the logical negation of C: 1 if the source is 0, else 0.
func cnot(f *form) (Op, bool) {
	t, ok := f.oneType(ptx.B16, ptx.B32, ptx.B64)
	n := integerOf(t)
	return uniformOp(t, 1, func(a, _, _, _ uint64) uint64 { return bit(n.truncate(a) == 0) }), ok
}

// lop3 looks up each result bit in an 8-bit table, indexed by the bits of a, b and c.
func lop3(f *form) (Op, bool) {
	_, ok := f.oneType(ptx.B32)
	compute := func(a, b, c, table uint64) uint64 {
		var r uint64
		for i := range uint64(8) {
			if table>>i&1 == 1 {
				// The bit positions at which a, b and c spell the index i.
				r |= (a ^ (i>>2&1 - 1)) & (b ^ (i>>1&1 - 1)) & (c ^ (i&1 - 1))
			}
		}
		return r & 0xFFFFFFFF
	}
	op := uniformOp(ptx.B32, 4, compute)
	switch f.consumeAny("or", "and") {
	case "or":
		op.Pair = func(a, b, c, d uint64) uint64 { return bit(compute(a, b, c, d) != 0) | d>>8&1 }
	case "and":
		op.Pair = func(a, b, c, d uint64) uint64 { return bit(compute(a, b, c, d) != 0) & (d >> 8) & 1 }
	}
	if op.Pair != nil {
		op.Args = append(op.Args, ptx.Pred)
	}
	return op, ok
}

// The shift amount is an unsigned 32-bit value for every type. A shift by the width or more gives
// 0, or all sign bits for a signed right shift.

func shl(f *form) (Op, bool) {
	t, ok := f.oneType(ptx.B16, ptx.B32, ptx.B64)
	n := integerOf(t)
	return Op{Result: t, Args: []ptx.Type{t, ptx.U32}, Func: func(a, amount, _, _ uint64) uint64 {
		return n.truncate(a << uint32(amount))
	}}, ok
}

func shr(f *form) (Op, bool) {
	t, ok := f.oneType(ptx.B16, ptx.B32, ptx.B64, ptx.U16, ptx.U32, ptx.U64, ptx.S16, ptx.S32, ptx.S64)
	n := integerOf(t)
	compute := func(a, amount, _, _ uint64) uint64 { return n.truncate(a) >> uint32(amount) }
	if n.signed {
		compute = func(a, amount, _, _ uint64) uint64 { return n.truncate(uint64(int64(n.extend(a)) >> uint32(amount))) }
	}
	return Op{Result: t, Args: []ptx.Type{t, ptx.U32}, Func: compute}, ok
}

// shf shifts the 64-bit value b:a and returns its upper half (.l) or its lower half (.r). .clamp
// limits the amount to 32, .wrap takes it modulo 32.
func shf(f *form) (Op, bool) {
	direction, mode := f.consumeAny("l", "r"), f.consumeAny("clamp", "wrap")
	_, ok := f.oneType(ptx.B32)
	left, clamp := direction == "l", mode == "clamp"
	return Op{Result: ptx.B32, Args: []ptx.Type{ptx.B32, ptx.B32, ptx.U32}, Func: func(a, b, c, _ uint64) uint64 {
		amount := c & 31
		if clamp {
			amount = min(uint64(uint32(c)), 32)
		}
		both := b<<32 | a&0xFFFFFFFF
		if left {
			return both << amount >> 32
		}
		return both >> amount & 0xFFFFFFFF
	}}, ok && direction != "" && mode != ""
}

// byteSelectors holds the four byte selectors of each prmt mode, indexed by the low two bits of the
// last source.
var byteSelectors = map[string][4]uint64{
	"f4e":  {0x3210, 0x4321, 0x5432, 0x6543},
	"b4e":  {0x5670, 0x6701, 0x7012, 0x0123},
	"rc8":  {0x0000, 0x1111, 0x2222, 0x3333},
	"ecl":  {0x3210, 0x3211, 0x3222, 0x3333},
	"ecr":  {0x0000, 0x1110, 0x2210, 0x3210},
	"rc16": {0x1010, 0x3232, 0x1010, 0x3232},
}

// prmt picks four of the eight bytes of b:a. Bit 3 of a selector replicates the byte's sign bit.
func prmt(f *form) (Op, bool) {
	_, ok := f.oneType(ptx.B32)
	permute := func(a, b, selectors, _ uint64) uint64 {
		both := b<<32 | a&0xFFFFFFFF
		var r uint64
		for i := 0; i < 4; i++ {
			selector := selectors >> (4 * i)
			value := both >> (selector & 7 * 8) & 0xFF
			if selector&8 != 0 {
				value = value >> 7 * 0xFF
			}
			r |= value << (8 * i)
		}
		return r
	}
	op := Op{Result: ptx.B32, Args: []ptx.Type{ptx.B32, ptx.B32, ptx.B32}, Func: permute}
	if mode := f.consumeAny("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"); mode != "" {
		table := byteSelectors[mode]
		op.Func = func(a, b, c, _ uint64) uint64 { return permute(a, b, table[c&3], 0) }
	}
	return op, ok
}
