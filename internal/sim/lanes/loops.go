package lanes

import (
	"math"
	"math/bits"

	"attune/internal/ptx"
	"attune/internal/sim/arith"
)

// The operations in Go. Processors without AVX2 use them, and the tests compare the assembly with
// them.

func (r *Registers) at32(offset uint32) *V32    { return &r.R32[offset/Stride32] }
func (r *Registers) at64(offset uint32) *V64    { return &r.R64[offset/Stride64] }
func (r *Registers) pred(offset uint32) *uint32 { return &r.Preds[offset/StridePred] }

// loops has the loop of each operation, by its code.
var loops = [codes]func(r *Registers, o *Op){
	Mov32:      mov32Loop,
	add32:      add32Loop,
	sub32:      sub32Loop,
	mul32:      mul32Loop,
	mad32:      mad32Loop,
	and32:      and32Loop,
	or32:       or32Loop,
	xor32:      xor32Loop,
	shl32:      shl32Loop,
	shrU32:     shrU32Loop,
	shrS32:     shrS32Loop,
	minS32:     minS32Loop,
	maxS32:     maxS32Loop,
	minU32:     minU32Loop,
	maxU32:     maxU32Loop,
	selp32:     selp32Loop,
	addF32:     addF32Loop,
	subF32:     subF32Loop,
	mulF32:     mulF32Loop,
	fmaF32:     fmaF32Loop,
	minF32:     minF32Loop,
	maxF32:     maxF32Loop,
	cvtF32F16:  cvtF32F16Loop,
	cvtF32S32:  cvtF32S32Loop,
	eq32:       eq32Loop,
	ne32:       ne32Loop,
	ltS32:      ltS32Loop,
	geS32:      geS32Loop,
	ltU32:      ltU32Loop,
	geU32:      geU32Loop,
	eqF32:      eqF32Loop,
	neuF32:     neuF32Loop,
	ltF32:      ltF32Loop,
	leF32:      leF32Loop,
	Mov64:      mov64Loop,
	add64:      add64Loop,
	sub64:      sub64Loop,
	and64:      and64Loop,
	or64:       or64Loop,
	shl64:      shl64Loop,
	shrU64:     shrU64Loop,
	selp64:     selp64Loop,
	mulWideU32: mulWideU32Loop,
	mulWideS32: mulWideS32Loop,
	madWideU32: madWideU32Loop,
	madWideS32: madWideS32Loop,
	cvtU64U32:  cvtU64U32Loop,
	cvtS64S32:  cvtS64S32Loop,
	Pack32:     pack32Loop,
	Unpack32:   unpack32Loop,
	Pack64:     pack64Loop,
	Unpack64:   unpack64Loop,
	fmaSatF32:  fmaSatF32Loop,
	maxNaNF32:  maxNaNF32Loop,
	cvtU32U64:  cvtU32U64Loop,
	addFtzF32:  arithLoop("add", "ftz", "f32"),
	subFtzF32:  arithLoop("sub", "ftz", "f32"),
	mulFtzF32:  arithLoop("mul", "ftz", "f32"),
	fmaFtzF32:  arithLoop("fma", "rn", "ftz", "f32"),
	minFtzF32:  arithLoop("min", "ftz", "f32"),
	maxFtzF32:  arithLoop("max", "ftz", "f32"),
	eqFtzF32:   arithLoop("setp", "eq", "ftz", "f32"),
	neuFtzF32:  arithLoop("setp", "neu", "ftz", "f32"),
	ltFtzF32:   arithLoop("setp", "lt", "ftz", "f32"),
	leFtzF32:   arithLoop("setp", "le", "ftz", "f32"),
	ltuFtzF32:  arithLoop("setp", "ltu", "ftz", "f32"),
	leuFtzF32:  arithLoop("setp", "leu", "ftz", "f32"),
	ltuF32:     arithLoop("setp", "ltu", "f32"),
	leuF32:     arithLoop("setp", "leu", "f32"),
	absF32:     arithLoop("abs", "f32"),
	negF32:     arithLoop("neg", "f32"),
	absFtzF32:  arithLoop("abs", "ftz", "f32"),
	negFtzF32:  arithLoop("neg", "ftz", "f32"),
	mulHiU32:   mulHiU32Loop,
	mul64:      mul64Loop,
	not32:      not32Loop,
	eq64:       eq64Loop,
	ne64:       ne64Loop,
	ltS64:      ltS64Loop,
	geS64:      geS64Loop,
	cvtU32U16:  cvtU32U16Loop,
	andPred:    andPredLoop,
	orPred:     orPredLoop,
	xorPred:    xorPredLoop,
}

func mov32Loop(r *Registers, o *Op) { *r.at32(o.D) = *r.at32(o.A) }
func mov64Loop(r *Registers, o *Op) { *r.at64(o.D) = *r.at64(o.A) }

func add32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = a[i] + b[i]
	}
}

func sub32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = a[i] - b[i]
	}
}

func mul32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = a[i] * b[i]
	}
}

func mad32Loop(r *Registers, o *Op) {
	d, a, b, c := r.at32(o.D), r.at32(o.A), r.at32(o.B), r.at32(o.C)
	for i := range d {
		d[i] = a[i]*b[i] + c[i]
	}
}

func and32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = a[i] & b[i]
	}
}

func or32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = a[i] | b[i]
	}
}

func xor32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = a[i] ^ b[i]
	}
}

func shl32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = a[i] << b[i]
	}
}

func shrU32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = a[i] >> b[i]
	}
}

func shrS32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = uint32(int32(a[i]) >> b[i])
	}
}

func minS32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = uint32(min(int32(a[i]), int32(b[i])))
	}
}

func maxS32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = uint32(max(int32(a[i]), int32(b[i])))
	}
}

func minU32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = min(a[i], b[i])
	}
}

func maxU32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = max(a[i], b[i])
	}
}

func selp32Loop(r *Registers, o *Op) {
	d, a, b, p := r.at32(o.D), r.at32(o.A), r.at32(o.B), *r.pred(o.C)
	for i := range d {
		d[i] = b[i] ^ (a[i]^b[i])&-(p>>i&1)
	}
}

func selp64Loop(r *Registers, o *Op) {
	d, a, b, p := r.at64(o.D), r.at64(o.A), r.at64(o.B), *r.pred(o.C)
	for i := range d {
		d[i] = b[i] ^ (a[i]^b[i])&-uint64(p>>i&1)
	}
}

func add64Loop(r *Registers, o *Op) {
	d, a, b := r.at64(o.D), r.at64(o.A), r.at64(o.B)
	for i := range d {
		d[i] = a[i] + b[i]
	}
}

func sub64Loop(r *Registers, o *Op) {
	d, a, b := r.at64(o.D), r.at64(o.A), r.at64(o.B)
	for i := range d {
		d[i] = a[i] - b[i]
	}
}

func and64Loop(r *Registers, o *Op) {
	d, a, b := r.at64(o.D), r.at64(o.A), r.at64(o.B)
	for i := range d {
		d[i] = a[i] & b[i]
	}
}

func or64Loop(r *Registers, o *Op) {
	d, a, b := r.at64(o.D), r.at64(o.A), r.at64(o.B)
	for i := range d {
		d[i] = a[i] | b[i]
	}
}

func shl64Loop(r *Registers, o *Op) {
	d, a, b := r.at64(o.D), r.at64(o.A), r.at32(o.B)
	for i := range d {
		d[i] = a[i] << b[i]
	}
}

func shrU64Loop(r *Registers, o *Op) {
	d, a, b := r.at64(o.D), r.at64(o.A), r.at32(o.B)
	for i := range d {
		d[i] = a[i] >> b[i]
	}
}

func mulWideU32Loop(r *Registers, o *Op) {
	d, a, b := r.at64(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = uint64(a[i]) * uint64(b[i])
	}
}

func mulWideS32Loop(r *Registers, o *Op) {
	d, a, b := r.at64(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = uint64(int64(int32(a[i])) * int64(int32(b[i])))
	}
}

func madWideU32Loop(r *Registers, o *Op) {
	d, a, b, c := r.at64(o.D), r.at32(o.A), r.at32(o.B), r.at64(o.C)
	for i := range d {
		d[i] = uint64(a[i])*uint64(b[i]) + c[i]
	}
}

func madWideS32Loop(r *Registers, o *Op) {
	d, a, b, c := r.at64(o.D), r.at32(o.A), r.at32(o.B), r.at64(o.C)
	for i := range d {
		d[i] = uint64(int64(int32(a[i]))*int64(int32(b[i]))) + c[i]
	}
}

func cvtU64U32Loop(r *Registers, o *Op) {
	d, a := r.at64(o.D), r.at32(o.A)
	for i := range d {
		d[i] = uint64(a[i])
	}
}

func cvtS64S32Loop(r *Registers, o *Op) {
	d, a := r.at64(o.D), r.at32(o.A)
	for i := range d {
		d[i] = uint64(int64(int32(a[i])))
	}
}

func cvtU32U64Loop(r *Registers, o *Op) {
	d, a := r.at32(o.D), r.at64(o.A)
	for i := range d {
		d[i] = uint32(a[i])
	}
}

func cvtF32S32Loop(r *Registers, o *Op) {
	d, a := r.at32(o.D), r.at32(o.A)
	for i := range d {
		d[i] = math.Float32bits(float32(int32(a[i])))
	}
}

func pack32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = a[i]&0xFFFF | b[i]<<16
	}
}

func unpack32Loop(r *Registers, o *Op) {
	low, high, a := r.at32(o.D), r.at32(o.B), r.at32(o.A)
	for i, x := range a {
		low[i] = x & 0xFFFF
		high[i] = x >> 16
	}
}

func pack64Loop(r *Registers, o *Op) {
	d, a, b := r.at64(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = uint64(a[i]) | uint64(b[i])<<32
	}
}

func unpack64Loop(r *Registers, o *Op) {
	low, high, a := r.at32(o.D), r.at32(o.B), r.at64(o.A)
	for i, x := range a {
		low[i] = uint32(x)
		high[i] = uint32(x >> 32)
	}
}

// nan32 is the only NaN that a float operation of the chip produces.
const nan32 = 0x7FFFFFFF

// floatBits returns the bits of a result, with any NaN replaced by the chip's.
func floatBits(x float32) uint32 {
	if x != x {
		return nan32
	}
	return math.Float32bits(x)
}

func addF32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = floatBits(math.Float32frombits(a[i]) + math.Float32frombits(b[i]))
	}
}

func subF32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = floatBits(math.Float32frombits(a[i]) - math.Float32frombits(b[i]))
	}
}

func mulF32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = floatBits(math.Float32frombits(a[i]) * math.Float32frombits(b[i]))
	}
}

// Exact functions of package arith, for the operands that the loops do not handle themselves.
var (
	exactFma    = mustArith("fma", "rn", "f32")
	exactMin    = mustArith("min", "f32")
	exactMax    = mustArith("max", "f32")
	exactWidens = mustArith("cvt", "f32", "f16")
)

func mustArith(opcode string, modifiers ...string) func(a, b, c, d uint64) uint64 {
	found, err := arith.Lookup(opcode, modifiers)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return found.Func
}

// fmaF32Loop computes in float64, where the product is exact. Rounding the sum to float64 and then
// to float32 equals rounding once, except in two cases. Either the first rounding ends half way
// between two float32 values, or the result is subnormal. exactFma handles these.
func fmaF32Loop(r *Registers, o *Op) {
	d, a, b, c := r.at32(o.D), r.at32(o.A), r.at32(o.B), r.at32(o.C)
	for i := range d {
		p := float64(math.Float32frombits(a[i])) * float64(math.Float32frombits(b[i]))
		s := p + float64(math.Float32frombits(c[i]))
		code := math.Float64bits(s)
		const halfWay, below = 1 << 28, 1<<29 - 1
		exponent := code >> 52 & 0x7FF
		if code&below == halfWay || exponent < 1023-125 || exponent > 1023+126 {
			d[i] = uint32(exactFma(uint64(a[i]), uint64(b[i]), uint64(c[i]), 0))
			continue
		}
		d[i] = math.Float32bits(float32(s))
	}
}

// fmaSatF32Loop clamps to [0, 1], with NaN to 0.
func fmaSatF32Loop(r *Registers, o *Op) {
	fmaF32Loop(r, o)
	d := r.at32(o.D)
	for i, code := range d {
		switch x := math.Float32frombits(code); {
		case x > 1:
			d[i] = math.Float32bits(1)
		case !(x > 0):
			d[i] = 0
		}
	}
}

// maxNaNF32Loop returns the chip's NaN where an operand is NaN.
func maxNaNF32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		x, y := math.Float32frombits(a[i]), math.Float32frombits(b[i])
		switch {
		case x > y:
			d[i] = a[i]
		case x < y:
			d[i] = b[i]
		case x == y:
			d[i] = a[i] & b[i] // of zeros of different sign, +0
		default:
			d[i] = 0x7FFFFFFF
		}
	}
}

// minF32Loop and maxF32Loop return the other operand where one is NaN. Negative zero is less than
// positive zero.
func minF32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		x, y := math.Float32frombits(a[i]), math.Float32frombits(b[i])
		switch {
		case x < y:
			d[i] = a[i]
		case x > y:
			d[i] = b[i]
		default:
			d[i] = uint32(exactMin(uint64(a[i]), uint64(b[i]), 0, 0))
		}
	}
}

func maxF32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		x, y := math.Float32frombits(a[i]), math.Float32frombits(b[i])
		switch {
		case x > y:
			d[i] = a[i]
		case x < y:
			d[i] = b[i]
		default:
			d[i] = uint32(exactMax(uint64(a[i]), uint64(b[i]), 0, 0))
		}
	}
}

// cvtF32F16Loop converts f16 to f32. exactWidens handles subnormals, infinities and NaN.
func cvtF32F16Loop(r *Registers, o *Op) {
	d, a := r.at32(o.D), r.at32(o.A)
	for i := range d {
		h := a[i] & 0xFFFF
		exponent := h >> 10 & 31
		if exponent == 0 && h&0x3FF != 0 || exponent == 31 {
			d[i] = uint32(exactWidens(uint64(h), 0, 0, 0))
			continue
		}
		sign := h >> 15 << 31
		if exponent == 0 {
			d[i] = sign
			continue
		}
		d[i] = sign | (h&0x7FFF)<<13 + (127-15)<<23
	}
}

func eq32Loop(r *Registers, o *Op) {
	a, b, p := r.at32(o.A), r.at32(o.B), uint32(0)
	for i := range a {
		if a[i] == b[i] {
			p |= 1 << i
		}
	}
	*r.pred(o.D) = p
}

func ltU32Loop(r *Registers, o *Op) {
	a, b, p := r.at32(o.A), r.at32(o.B), uint32(0)
	for i := range a {
		_, borrow := bits.Sub32(a[i], b[i], 0)
		p |= borrow << i
	}
	*r.pred(o.D) = p
}

func ltS32Loop(r *Registers, o *Op) {
	a, b, p := r.at32(o.A), r.at32(o.B), uint32(0)
	for i := range a {
		p |= uint32(uint64(int64(int32(a[i]))-int64(int32(b[i])))>>63) << i
	}
	*r.pred(o.D) = p
}

func ne32Loop(r *Registers, o *Op)   { negated(eq32Loop, r, o) }
func geU32Loop(r *Registers, o *Op)  { negated(ltU32Loop, r, o) }
func geS32Loop(r *Registers, o *Op)  { negated(ltS32Loop, r, o) }
func neuF32Loop(r *Registers, o *Op) { negated(eqF32Loop, r, o) } // or unordered

func negated(loop func(r *Registers, o *Op), r *Registers, o *Op) {
	loop(r, o)
	*r.pred(o.D) ^= All
}

func eqF32Loop(r *Registers, o *Op) {
	a, b, p := r.at32(o.A), r.at32(o.B), uint32(0)
	for i := range a {
		if math.Float32frombits(a[i]) == math.Float32frombits(b[i]) {
			p |= 1 << i
		}
	}
	*r.pred(o.D) = p
}

func ltF32Loop(r *Registers, o *Op) {
	a, b, p := r.at32(o.A), r.at32(o.B), uint32(0)
	for i := range a {
		if math.Float32frombits(a[i]) < math.Float32frombits(b[i]) {
			p |= 1 << i
		}
	}
	*r.pred(o.D) = p
}

func leF32Loop(r *Registers, o *Op) {
	a, b, p := r.at32(o.A), r.at32(o.B), uint32(0)
	for i := range a {
		if math.Float32frombits(a[i]) <= math.Float32frombits(b[i]) {
			p |= 1 << i
		}
	}
	*r.pred(o.D) = p
}

// arithLoop is the loop of an operation on f32 whose special cases are those of package arith.
func arithLoop(opcode string, modifiers ...string) func(r *Registers, o *Op) {
	op, err := arith.Lookup(opcode, modifiers)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return func(r *Registers, o *Op) {
		var result V32
		sources := [3]*V32{{}, {}, {}}
		for i, at := range []uint32{o.A, o.B, o.C}[:len(op.Args)] {
			sources[i] = r.at32(at)
		}
		bits := uint32(0)
		for i := range result {
			result[i] = uint32(op.Func(uint64(sources[0][i]), uint64(sources[1][i]), uint64(sources[2][i]), 0))
			bits |= result[i] & 1 << i
		}
		if op.Result == ptx.Pred {
			*r.pred(o.D) = bits
		} else {
			*r.at32(o.D) = result
		}
	}
}

func mulHiU32Loop(r *Registers, o *Op) {
	d, a, b := r.at32(o.D), r.at32(o.A), r.at32(o.B)
	for i := range d {
		d[i] = uint32(uint64(a[i]) * uint64(b[i]) >> 32)
	}
}

func mul64Loop(r *Registers, o *Op) {
	d, a, b := r.at64(o.D), r.at64(o.A), r.at64(o.B)
	for i := range d {
		d[i] = a[i] * b[i]
	}
}

func not32Loop(r *Registers, o *Op) {
	d, a := r.at32(o.D), r.at32(o.A)
	for i := range d {
		d[i] = ^a[i]
	}
}

func cvtU32U16Loop(r *Registers, o *Op) {
	d, a := r.at32(o.D), r.at32(o.A)
	for i := range d {
		d[i] = a[i] & 0xFFFF
	}
}

func andPredLoop(r *Registers, o *Op) { *r.pred(o.D) = *r.pred(o.A) & *r.pred(o.B) }
func orPredLoop(r *Registers, o *Op)  { *r.pred(o.D) = *r.pred(o.A) | *r.pred(o.B) }
func xorPredLoop(r *Registers, o *Op) { *r.pred(o.D) = *r.pred(o.A) ^ *r.pred(o.B) }

// compare64 sets the bits of the lanes for which a comparison holds.
func compare64(r *Registers, o *Op, holds func(a, b uint64) bool) {
	a, b, bits := r.at64(o.A), r.at64(o.B), uint32(0)
	for i := range a {
		if holds(a[i], b[i]) {
			bits |= 1 << i
		}
	}
	*r.pred(o.D) = bits
}

func eq64Loop(r *Registers, o *Op) { compare64(r, o, func(a, b uint64) bool { return a == b }) }
func ne64Loop(r *Registers, o *Op) { compare64(r, o, func(a, b uint64) bool { return a != b }) }
func ltS64Loop(r *Registers, o *Op) {
	compare64(r, o, func(a, b uint64) bool { return int64(a) < int64(b) })
}

func geS64Loop(r *Registers, o *Op) {
	compare64(r, o, func(a, b uint64) bool { return int64(a) >= int64(b) })
}
