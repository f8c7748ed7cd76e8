package arith

import "attune/internal/ptx"

// This file defines the instructions of PTX ISA, Video Instructions. They work on whole registers
// here; byte and halfword selectors belong to the operands.
//
// Recent GPUs have no hardware for the scalar video instructions. The code that ptxas emits instead
// deviates from the PTX ISA, and this file follows the H200:
// - An unsigned saturating sum has no upper limit.
// - A secondary operation compares the first result before it is truncated to 32 bits, or compares
//   the truncated result by its sign.
// - vmad treats every operand as signed.

// videoOperations are the operations on two values, by opcode without the lane count.
var videoOperations = map[string]func(x, y int64) int64{
	"vadd":     func(x, y int64) int64 { return x + y },
	"vsub":     func(x, y int64) int64 { return x - y },
	"vabsdiff": func(x, y int64) int64 { return max(x-y, y-x) },
	"vmin":     func(x, y int64) int64 { return min(x, y) },
	"vmax":     func(x, y int64) int64 { return max(x, y) },
	"vavrg": func(x, y int64) int64 {
		if x+y < 0 {
			return (x + y) >> 1
		}
		return (x + y + 1) >> 1
	},
}

// video is a scalar video instruction: an operation, optional saturation, and an optional secondary
// operation with a third source.
type video struct {
	x, y, result integer
	operation    func(x, y int64) int64
	saturate     func(r int64) int64 // nil without .sat
	truncate     bool                // to a signed 32-bit value before the secondary operation
}

// first computes the value before the secondary operation.
func (v *video) first(a, b uint64) int64 {
	r := v.operation(int64(v.x.extend(a)), int64(v.y.extend(b)))
	if v.saturate != nil {
		r = v.saturate(r)
	}
	if v.truncate {
		return int64(int32(r))
	}
	return r
}

// less compares the first result with the third source, in 64 bits and with the sign of the result.
func (v *video) less(r int64, c uint64) bool {
	return integer{bits: 64, signed: v.result.signed}.less(uint64(r), v.result.extend(c))
}

// clampNegative is unsigned saturation as ptxas implements it: the lower limit only.
func clampNegative(r int64) int64 { return max(r, 0) }

// videoScalar defines vadd, vsub, vabsdiff, vmin and vmax.
func videoScalar(f *form) (Op, bool) {
	if !f.has32BitTypes(3) {
		return Op{}, false
	}
	v := &video{x: integerOf(f.types[1]), y: integerOf(f.types[2]), result: integerOf(f.types[0])}
	v.operation = videoOperations[f.opcode]
	v.truncate = f.opcode == "vadd" || f.opcode == "vsub"
	if f.consume("sat") {
		v.saturate = clampNegative
		if v.result.signed {
			v.saturate = func(r int64) int64 { return int64(v.result.extend(v.result.saturate(r))) }
		}
	}
	return v.withSecondOperation(f, f.types[0], f.types[1:])
}

// videoShift defines vshl and vshr.
func videoShift(f *form) (Op, bool) {
	mode := f.consumeAny("clamp", "wrap")
	if !f.has32BitTypes(3) || mode == "" || f.types[2] != ptx.U32 {
		return Op{}, false
	}
	v := &video{x: integerOf(f.types[1]), y: integerOf(f.types[2]), result: integerOf(f.types[0])}
	left, wrap := f.opcode == "vshl", mode == "wrap"
	v.operation = func(x, y int64) int64 {
		if wrap {
			y &= 31
		}
		if left {
			return x << min(y, 32)
		}
		return x >> min(y, 32)
	}
	if f.consume("sat") {
		v.truncate = true
		v.saturate = func(r int64) int64 { return int64(v.result.saturate(r << 30 >> 30)) } // only the low 34 bits matter
	}
	return v.withSecondOperation(f, f.types[0], f.types[1:])
}

// videoSet defines vset, which returns 1 or 0. The first source sets the signedness of the
// secondary operation.
func videoSet(f *form) (Op, bool) {
	if !f.has32BitTypes(2) {
		return Op{}, false
	}
	v := &video{x: integerOf(f.types[0]), y: integerOf(f.types[1]), result: integerOf(f.types[0])}
	holds, ok := videoComparison(f)
	if !ok {
		return Op{}, false
	}
	v.operation = holds
	return v.withSecondOperation(f, ptx.U32, f.types)
}

// videoComparison consumes a comparison operator of integers.
func videoComparison(f *form) (func(x, y int64) int64, bool) {
	relations, ok := signedComparisons[f.consumeAny("eq", "ne", "lt", "le", "gt", "ge")]
	return func(x, y int64) int64 {
		is := equal
		if x < y {
			is = less
		} else if x > y {
			is = greater
		}
		return int64(bit(is&relations != 0))
	}, ok
}

// withSecondOperation consumes the optional secondary operation and builds the Op.
func (v *video) withSecondOperation(f *form, to ptx.Type, from []ptx.Type) (Op, bool) {
	op := Op{Result: to, Args: []ptx.Type{from[0], from[1], to}}
	switch f.consumeAny("add", "min", "max") {
	case "add":
		op.Func = func(a, b, c, _ uint64) uint64 { return (uint64(v.first(a, b)) + c) & 0xFFFFFFFF }
	case "min":
		op.Func = func(a, b, c, _ uint64) uint64 {
			if r := v.first(a, b); v.less(r, c) {
				c = uint64(r)
			}
			return c & 0xFFFFFFFF
		}
	case "max":
		op.Func = func(a, b, c, _ uint64) uint64 {
			if r := v.first(a, b); !v.less(r, c) {
				c = uint64(r)
			}
			return c & 0xFFFFFFFF
		}
	default:
		op.Args = op.Args[:2]
		op.Func = func(a, b, _, _ uint64) uint64 { return uint64(v.first(a, b)) & 0xFFFFFFFF }
	}
	return op, true
}

// videoMad defines vmad: a·b + c, plus 1 with .po, shifted right by .shr7 or .shr15. If neither
// factor is signed, the shift and the saturation are unsigned.
func videoMad(f *form) (Op, bool) {
	if !f.has32BitTypes(3) {
		return Op{}, false
	}
	s32 := integer{bits: 32, signed: true}
	result, third := s32, ptx.S32
	if f.types[1] == ptx.U32 && f.types[2] == ptx.U32 {
		result, third = integer{bits: 32}, ptx.U32
	}
	increment, sat := bit(f.consume("po")), f.consume("sat")
	shift := map[string]int{"shr7": 7, "shr15": 15}[f.consumeAny("shr7", "shr15")]
	return Op{Result: f.types[0], Args: []ptx.Type{f.types[1], f.types[2], third}, Func: func(a, b, c, _ uint64) uint64 {
		r := s32.extend(a)*s32.extend(b) + s32.extend(c) + increment
		if result.signed {
			r = uint64(int64(r) >> shift)
		} else {
			r >>= shift
		}
		if sat {
			return result.saturate(int64(r))
		}
		return r & 0xFFFFFFFF
	}}, true
}

// videoVector defines the video instructions on two halfwords or four bytes.
func videoVector(f *form) (Op, bool) {
	if !f.has32BitTypes(3) {
		return Op{}, false
	}
	name := f.opcode[:len(f.opcode)-1]
	return videoLanes(f, f.types[0], f.types[1:], videoOperations[name])
}

// videoVectorSet defines vset2 and vset4.
func videoVectorSet(f *form) (Op, bool) {
	if !f.has32BitTypes(2) {
		return Op{}, false
	}
	holds, ok := videoComparison(f)
	if !ok {
		return Op{}, false
	}
	return videoLanes(f, ptx.U32, f.types, holds)
}

// videoLanes applies an operation to each lane. With .add it adds the lane results to a third
// source.
func videoLanes(f *form, to ptx.Type, from []ptx.Type, operation func(x, y int64) int64) (Op, bool) {
	width := 16
	if f.opcode[len(f.opcode)-1] == '4' {
		width = 8
	}
	x, y := integer{width, from[0].Signed()}, integer{width, from[1].Signed()}
	n := integer{width, to.Signed()}
	accumulate := f.consume("add")
	sat := !accumulate && f.opcode[:4] != "vset" && f.consume("sat")
	return Op{Result: to, Args: []ptx.Type{from[0], from[1], to}, Func: func(a, b, c, _ uint64) uint64 {
		var r uint64
		if accumulate {
			r = c
		}
		for i := 0; i < 32; i += width {
			lane := operation(int64(x.extend(a>>i)), int64(y.extend(b>>i)))
			switch {
			case accumulate:
				r += uint64(lane)
			case sat:
				r |= n.saturate(lane) << i
			default:
				r |= n.truncate(uint64(lane)) << i
			}
		}
		return r & 0xFFFFFFFF
	}}, true
}
