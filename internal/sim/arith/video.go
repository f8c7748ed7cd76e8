package arith

import "attune/internal/ptx"

// The video instructions work on whole registers here: selectors of bytes and halves belong to operands.
//
// Chips have not had those of one lane for a long time. What ptxas puts in their place is not always what PTX says,
// and it is the chip's answer that is given here: a sum without sign has no upper limit to saturate at, a second
// operation compares what it should have cut to 32 bits, or the sign of what it cut, and vmad takes everything for
// signed.

// videoOperations are those on two numbers, by opcode without its number of lanes.
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

// video is an instruction on one lane: an operation, saturation, and perhaps a second operation with a third source.
type video struct {
	x, y, result integer
	operation    func(x, y int64) int64
	limit        func(r int64) int64 // nil without .sat
	cut          bool                // to a signed number of 32 bits, before the second operation
}

func (v *video) first(a, b uint64) int64 {
	r := v.operation(int64(v.x.extend(a)), int64(v.y.extend(b)))
	if v.limit != nil {
		r = v.limit(r)
	}
	if v.cut {
		return int64(int32(r))
	}
	return r
}

// less compares the result of the first operation with the third source, in 64 bits with the sign of the result.
func (v *video) less(r int64, c uint64) bool {
	return integer{bits: 64, signed: v.result.signed}.less(uint64(r), v.result.extend(c))
}

// notNegative is all that is left of saturation without sign for the instructions that never get too large.
func notNegative(r int64) int64 { return max(r, 0) }

// videoScalar defines vadd, vsub, vabsdiff, vmin and vmax.
func videoScalar(f *form) (Op, bool) {
	if !f.words32(3) {
		return Op{}, false
	}
	v := &video{x: integerOf(f.types[1]), y: integerOf(f.types[2]), result: integerOf(f.types[0])}
	v.operation = videoOperations[f.opcode]
	v.cut = f.opcode == "vadd" || f.opcode == "vsub"
	if f.take("sat") {
		v.limit = notNegative
		if v.result.signed {
			v.limit = func(r int64) int64 { return int64(v.result.extend(v.result.clamp(r))) }
		}
	}
	return v.define(f, f.types[0], f.types[1:])
}

// videoShift defines vshl and vshr.
func videoShift(f *form) (Op, bool) {
	mode := f.choose("clamp", "wrap")
	if !f.words32(3) || mode == "" || f.types[2] != ptx.U32 {
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
	if f.take("sat") {
		v.cut = true
		v.limit = func(r int64) int64 { return int64(v.result.clamp(r << 30 >> 30)) } // 34 bits count
	}
	return v.define(f, f.types[0], f.types[1:])
}

// videoSet defines vset: 1 or 0. The sign of a second operation is that of the first source.
func videoSet(f *form) (Op, bool) {
	if !f.words32(2) {
		return Op{}, false
	}
	v := &video{x: integerOf(f.types[0]), y: integerOf(f.types[1]), result: integerOf(f.types[0])}
	holds, ok := videoComparison(f)
	if !ok {
		return Op{}, false
	}
	v.operation = holds
	return v.define(f, ptx.U32, f.types)
}

// videoComparison takes a comparison of numbers off the form.
func videoComparison(f *form) (func(x, y int64) int64, bool) {
	relations, ok := signedOnes[f.choose("eq", "ne", "lt", "le", "gt", "ge")]
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

// define takes off the form the second operation, if there is one.
func (v *video) define(f *form, to ptx.Type, from []ptx.Type) (Op, bool) {
	op := Op{Result: to, Args: []ptx.Type{from[0], from[1], to}}
	switch f.choose("add", "min", "max") {
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

// videoMad defines vmad: a·b + c, one more with .po, scaled by a shift. Where no factor is signed, the shift and the
// limits are without sign.
func videoMad(f *form) (Op, bool) {
	if !f.words32(3) {
		return Op{}, false
	}
	s32 := integer{bits: 32, signed: true}
	result, third := s32, ptx.S32
	if f.types[1] == ptx.U32 && f.types[2] == ptx.U32 {
		result, third = integer{bits: 32}, ptx.U32
	}
	increment, sat := bit(f.take("po")), f.take("sat")
	shift := map[string]int{"shr7": 7, "shr15": 15}[f.choose("shr7", "shr15")]
	return Op{Result: f.types[0], Args: []ptx.Type{f.types[1], f.types[2], third}, Func: func(a, b, c, _ uint64) uint64 {
		r := s32.extend(a)*s32.extend(b) + s32.extend(c) + increment
		if result.signed {
			r = uint64(int64(r) >> shift)
		} else {
			r >>= shift
		}
		if sat {
			return result.clamp(int64(r))
		}
		return r & 0xFFFFFFFF
	}}, true
}

// videoVector defines the instructions on two halves or four bytes.
func videoVector(f *form) (Op, bool) {
	if !f.words32(3) {
		return Op{}, false
	}
	name := f.opcode[:len(f.opcode)-1]
	return videoLanes(f, f.types[0], f.types[1:], videoOperations[name])
}

// videoVectorSet defines vset2 and vset4.
func videoVectorSet(f *form) (Op, bool) {
	if !f.words32(2) {
		return Op{}, false
	}
	holds, ok := videoComparison(f)
	if !ok {
		return Op{}, false
	}
	return videoLanes(f, ptx.U32, f.types, holds)
}

// videoLanes applies an operation to each lane. With .add the results are summed up, on top of a third source.
func videoLanes(f *form, to ptx.Type, from []ptx.Type, operation func(x, y int64) int64) (Op, bool) {
	width := 16
	if f.opcode[len(f.opcode)-1] == '4' {
		width = 8
	}
	x, y := integer{width, from[0].Signed()}, integer{width, from[1].Signed()}
	n := integer{width, to.Signed()}
	accumulate := f.take("add")
	sat := !accumulate && f.opcode[:4] != "vset" && f.take("sat")
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
				r |= n.clamp(lane) << i
			default:
				r |= n.cut(uint64(lane)) << i
			}
		}
		return r & 0xFFFFFFFF
	}}, true
}
