package sim

import (
	"math"
	"math/bits"

	"attune/internal/sim/arith"
)

// The operations that have a compact form, in Go: for processors without AVX2, and for the assembly to be held against.

func (w *warp) at32(place uint32) *v32    { return &w.r32[place/row32] }
func (w *warp) at64(place uint32) *v64    { return &w.r64[place/row64] }
func (w *warp) pred(place uint32) *uint32 { return &w.preds[place/rowPred] }

// laneLoops are the loops, by the operation's number.
var laneLoops = [laneCodes]func(w *warp, o *laneOp){
	laneMov:           movLoop,
	laneAdd:           addLoop,
	laneSub:           subLoop,
	laneMul:           mulLoop,
	laneMad:           madLoop,
	laneAnd:           andLoop,
	laneOr:            orLoop,
	laneXor:           xorLoop,
	laneShl:           shlLoop,
	laneShr:           shrLoop,
	laneSar:           sarLoop,
	laneMinSigned:     minSignedLoop,
	laneMaxSigned:     maxSignedLoop,
	laneMin:           minLoop,
	laneMax:           maxLoop,
	laneSelp:          selpLoop,
	laneAddFloat:      addFloatLoop,
	laneSubFloat:      subFloatLoop,
	laneMulFloat:      mulFloatLoop,
	laneFma:           fmaLoop,
	laneMinFloat:      minFloatLoop,
	laneMaxFloat:      maxFloatLoop,
	laneHalfToFloat:   halfToFloatLoop,
	laneFromSigned:    fromSignedLoop,
	laneEqual:         equalLoop,
	laneUnequal:       unequalLoop,
	laneLessSigned:    lessSignedLoop,
	laneAtLeastSigned: atLeastSignedLoop,
	laneLess:          lessLoop,
	laneAtLeast:       atLeastLoop,
	laneEqualFloat:    equalFloatLoop,
	laneUnequalFloat:  unequalFloatLoop,
	laneLessFloat:     lessFloatLoop,
	laneAtMostFloat:   atMostFloatLoop,
	laneMov64:         mov64Loop,
	laneAdd64:         add64Loop,
	laneSub64:         sub64Loop,
	laneAnd64:         and64Loop,
	laneOr64:          or64Loop,
	laneShl64:         shl64Loop,
	laneShr64:         shr64Loop,
	laneSelp64:        selp64Loop,
	laneMulWide:       mulWideLoop,
	laneMulWideSigned: mulWideSignedLoop,
	laneMadWide:       madWideLoop,
	laneMadWideSigned: madWideSignedLoop,
	laneWiden:         widenLoop,
	laneWidenSigned:   widenSignedLoop,
	lanePack:          packLoop,
	laneUnpack:        unpackLoop,
	lanePack64:        pack64Loop,
	laneUnpack64:      unpack64Loop,
	laneNarrow:        narrowLoop,
}

func movLoop(w *warp, o *laneOp)   { *w.at32(o.d) = *w.at32(o.a) }
func mov64Loop(w *warp, o *laneOp) { *w.at64(o.d) = *w.at64(o.a) }

func addLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = a[i] + b[i]
	}
}

func subLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = a[i] - b[i]
	}
}

func mulLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = a[i] * b[i]
	}
}

func madLoop(w *warp, o *laneOp) {
	d, a, b, c := w.at32(o.d), w.at32(o.a), w.at32(o.b), w.at32(o.c)
	for i := range d {
		d[i] = a[i]*b[i] + c[i]
	}
}

func andLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = a[i] & b[i]
	}
}

func orLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = a[i] | b[i]
	}
}

func xorLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = a[i] ^ b[i]
	}
}

func shlLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = a[i] << b[i]
	}
}

func shrLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = a[i] >> b[i]
	}
}

func sarLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = uint32(int32(a[i]) >> b[i])
	}
}

func minSignedLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = uint32(min(int32(a[i]), int32(b[i])))
	}
}

func maxSignedLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = uint32(max(int32(a[i]), int32(b[i])))
	}
}

func minLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = min(a[i], b[i])
	}
}

func maxLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = max(a[i], b[i])
	}
}

func selpLoop(w *warp, o *laneOp) {
	d, a, b, p := w.at32(o.d), w.at32(o.a), w.at32(o.b), *w.pred(o.c)
	for i := range d {
		d[i] = b[i] ^ (a[i]^b[i])&-(p>>i&1)
	}
}

func selp64Loop(w *warp, o *laneOp) {
	d, a, b, p := w.at64(o.d), w.at64(o.a), w.at64(o.b), *w.pred(o.c)
	for i := range d {
		d[i] = b[i] ^ (a[i]^b[i])&-uint64(p>>i&1)
	}
}

func add64Loop(w *warp, o *laneOp) {
	d, a, b := w.at64(o.d), w.at64(o.a), w.at64(o.b)
	for i := range d {
		d[i] = a[i] + b[i]
	}
}

func sub64Loop(w *warp, o *laneOp) {
	d, a, b := w.at64(o.d), w.at64(o.a), w.at64(o.b)
	for i := range d {
		d[i] = a[i] - b[i]
	}
}

func and64Loop(w *warp, o *laneOp) {
	d, a, b := w.at64(o.d), w.at64(o.a), w.at64(o.b)
	for i := range d {
		d[i] = a[i] & b[i]
	}
}

func or64Loop(w *warp, o *laneOp) {
	d, a, b := w.at64(o.d), w.at64(o.a), w.at64(o.b)
	for i := range d {
		d[i] = a[i] | b[i]
	}
}

func shl64Loop(w *warp, o *laneOp) {
	d, a, b := w.at64(o.d), w.at64(o.a), w.at32(o.b)
	for i := range d {
		d[i] = a[i] << b[i]
	}
}

func shr64Loop(w *warp, o *laneOp) {
	d, a, b := w.at64(o.d), w.at64(o.a), w.at32(o.b)
	for i := range d {
		d[i] = a[i] >> b[i]
	}
}

func mulWideLoop(w *warp, o *laneOp) {
	d, a, b := w.at64(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = uint64(a[i]) * uint64(b[i])
	}
}

func mulWideSignedLoop(w *warp, o *laneOp) {
	d, a, b := w.at64(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = uint64(int64(int32(a[i])) * int64(int32(b[i])))
	}
}

func madWideLoop(w *warp, o *laneOp) {
	d, a, b, c := w.at64(o.d), w.at32(o.a), w.at32(o.b), w.at64(o.c)
	for i := range d {
		d[i] = uint64(a[i])*uint64(b[i]) + c[i]
	}
}

func madWideSignedLoop(w *warp, o *laneOp) {
	d, a, b, c := w.at64(o.d), w.at32(o.a), w.at32(o.b), w.at64(o.c)
	for i := range d {
		d[i] = uint64(int64(int32(a[i]))*int64(int32(b[i]))) + c[i]
	}
}

func widenLoop(w *warp, o *laneOp) {
	d, a := w.at64(o.d), w.at32(o.a)
	for i := range d {
		d[i] = uint64(a[i])
	}
}

func widenSignedLoop(w *warp, o *laneOp) {
	d, a := w.at64(o.d), w.at32(o.a)
	for i := range d {
		d[i] = uint64(int64(int32(a[i])))
	}
}

func narrowLoop(w *warp, o *laneOp) {
	d, a := w.at32(o.d), w.at64(o.a)
	for i := range d {
		d[i] = uint32(a[i])
	}
}

func fromSignedLoop(w *warp, o *laneOp) {
	d, a := w.at32(o.d), w.at32(o.a)
	for i := range d {
		d[i] = math.Float32bits(float32(int32(a[i])))
	}
}

func packLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = a[i]&0xFFFF | b[i]<<16
	}
}

func unpackLoop(w *warp, o *laneOp) {
	low, high, a := w.at32(o.d), w.at32(o.b), w.at32(o.a)
	for i, x := range a {
		low[i] = x & 0xFFFF
		high[i] = x >> 16
	}
}

func pack64Loop(w *warp, o *laneOp) {
	d, a, b := w.at64(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = uint64(a[i]) | uint64(b[i])<<32
	}
}

func unpack64Loop(w *warp, o *laneOp) {
	low, high, a := w.at32(o.d), w.at32(o.b), w.at64(o.a)
	for i, x := range a {
		low[i] = uint32(x)
		high[i] = uint32(x >> 32)
	}
}

// nan32 is the only NaN that float operations give.
const nan32 = 0x7FFFFFFF

// floatBits is the code of a result, with the chip's NaN.
func floatBits(x float32) uint32 {
	if x != x {
		return nan32
	}
	return math.Float32bits(x)
}

func addFloatLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = floatBits(math.Float32frombits(a[i]) + math.Float32frombits(b[i]))
	}
}

func subFloatLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = floatBits(math.Float32frombits(a[i]) - math.Float32frombits(b[i]))
	}
}

func mulFloatLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
	for i := range d {
		d[i] = floatBits(math.Float32frombits(a[i]) * math.Float32frombits(b[i]))
	}
}

// What loops ask for the few results that they do not know.
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

// fmaLoop goes through float64, where the product is exact. The sum rounded to float64 and then to float32 is the sum rounded once, unless the first
// rounding ends on a point half way between two float32, or the result is subnormal: those few go the long way.
func fmaLoop(w *warp, o *laneOp) {
	d, a, b, c := w.at32(o.d), w.at32(o.a), w.at32(o.b), w.at32(o.c)
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

// minFloatLoop and maxFloatLoop give the number where one operand is NaN, and take the negative zero for the smaller of two zeros.
func minFloatLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
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

func maxFloatLoop(w *warp, o *laneOp) {
	d, a, b := w.at32(o.d), w.at32(o.a), w.at32(o.b)
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

// halfToFloatLoop widens halves; subnormals and NaN go the long way.
func halfToFloatLoop(w *warp, o *laneOp) {
	d, a := w.at32(o.d), w.at32(o.a)
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

func equalLoop(w *warp, o *laneOp) {
	a, b, p := w.at32(o.a), w.at32(o.b), uint32(0)
	for i := range a {
		if a[i] == b[i] {
			p |= 1 << i
		}
	}
	*w.pred(o.d) = p
}

func lessLoop(w *warp, o *laneOp) {
	a, b, p := w.at32(o.a), w.at32(o.b), uint32(0)
	for i := range a {
		_, borrow := bits.Sub32(a[i], b[i], 0)
		p |= borrow << i
	}
	*w.pred(o.d) = p
}

func lessSignedLoop(w *warp, o *laneOp) {
	a, b, p := w.at32(o.a), w.at32(o.b), uint32(0)
	for i := range a {
		p |= uint32(uint64(int64(int32(a[i]))-int64(int32(b[i])))>>63) << i
	}
	*w.pred(o.d) = p
}

func unequalLoop(w *warp, o *laneOp)       { negated(equalLoop, w, o) }
func atLeastLoop(w *warp, o *laneOp)       { negated(lessLoop, w, o) }
func atLeastSignedLoop(w *warp, o *laneOp) { negated(lessSignedLoop, w, o) }
func unequalFloatLoop(w *warp, o *laneOp)  { negated(equalFloatLoop, w, o) } // or unordered

func negated(loop func(w *warp, o *laneOp), w *warp, o *laneOp) {
	loop(w, o)
	*w.pred(o.d) ^= everyLane
}

func equalFloatLoop(w *warp, o *laneOp) {
	a, b, p := w.at32(o.a), w.at32(o.b), uint32(0)
	for i := range a {
		if math.Float32frombits(a[i]) == math.Float32frombits(b[i]) {
			p |= 1 << i
		}
	}
	*w.pred(o.d) = p
}

func lessFloatLoop(w *warp, o *laneOp) {
	a, b, p := w.at32(o.a), w.at32(o.b), uint32(0)
	for i := range a {
		if math.Float32frombits(a[i]) < math.Float32frombits(b[i]) {
			p |= 1 << i
		}
	}
	*w.pred(o.d) = p
}

func atMostFloatLoop(w *warp, o *laneOp) {
	a, b, p := w.at32(o.a), w.at32(o.b), uint32(0)
	for i := range a {
		if math.Float32frombits(a[i]) <= math.Float32frombits(b[i]) {
			p |= 1 << i
		}
	}
	*w.pred(o.d) = p
}
