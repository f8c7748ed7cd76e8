package sim

import (
	"maps"
	"math"
	"math/bits"
	"strings"

	"attune/internal/ptx"
)

// The commonest scalar operations have loops of their own, for warps whose lanes all take part. They compute the same as package arith does; a test holds
// them against it.

// vectorLoop is such a loop. It is called with every lane active.
type vectorLoop func(w *warp, o *op)

// chooseVector gives an operation its loop, if it has one and if its operands are such as the loop expects.
func (c *code) chooseVector(in *ptx.Instruction, o *op) {
	a := o.alu
	if a.pair >= 0 || a.noFirst || a.extend.from != 0 || a.Carry != nil || a.n > 3 {
		return
	}
	loop := vectorLoops[in.Opcode+"."+strings.Join(in.Modifiers, ".")]
	if loop == nil {
		return
	}
	index := []*int32{&o.a, &o.b, &o.c}
	for i := range a.n {
		if a.args[i].not || a.args[i].slot.file != fileOf(a.Args[i]) || a.Args[i] != ptx.Pred && a.Args[i].Bits() < 32 && a.Args[i].Bits() != 16 {
			return
		}
		*index[i] = a.args[i].slot.index
	}
	o.d = a.dst.index
	o.run = func(w *warp, o *op, mask uint32) {
		if mask != everyLane {
			runALU(w, o, mask)
			return
		}
		loop(w, o)
	}
}

var vectorLoops = chooseLoops()

// chooseLoops takes the loops in assembly where there are such.
func chooseLoops() map[string]vectorLoop {
	m := goLoops()
	maps.Copy(m, assemblyLoops())
	return m
}

func goLoops() map[string]vectorLoop {
	m := map[string]vectorLoop{}
	same := func(loop vectorLoop, names ...string) {
		for _, name := range names {
			m[name] = loop
		}
	}
	same(addLoop, "add.s32", "add.u32")
	same(subLoop, "sub.s32", "sub.u32")
	same(mulLoop, "mul.lo.s32", "mul.lo.u32")
	same(madLoop, "mad.lo.s32", "mad.lo.u32")
	same(andLoop, "and.b32")
	same(orLoop, "or.b32")
	same(xorLoop, "xor.b32")
	same(shlLoop, "shl.b32")
	same(shrLoop, "shr.u32", "shr.b32")
	same(sarLoop, "shr.s32")
	same(minsLoop, "min.s32")
	same(maxsLoop, "max.s32")
	same(selpLoop, "selp.b32", "selp.u32", "selp.s32", "selp.f32")
	same(selp64Loop, "selp.b64", "selp.u64", "selp.s64", "selp.f64")
	same(add64Loop, "add.s64", "add.u64")
	same(mulWideLoop, "mul.wide.u32")
	same(mulWideSignedLoop, "mul.wide.s32")
	same(madWideLoop, "mad.wide.u32")
	same(madWideSignedLoop, "mad.wide.s32")
	same(shl64Loop, "shl.b64")
	same(widenLoop, "cvt.u64.u32")
	same(widenSignedLoop, "cvt.s64.s32")
	same(narrowLoop, "cvt.u32.u64")
	same(addFloatLoop, "add.f32", "add.rn.f32")
	same(subFloatLoop, "sub.f32", "sub.rn.f32")
	same(mulFloatLoop, "mul.f32", "mul.rn.f32")
	same(fmaLoop, "fma.rn.f32", "mad.rn.f32")
	same(maxFloatLoop, "max.f32")
	same(halfToFloatLoop, "cvt.f32.f16")
	for name, compare := range map[string]func(a, b uint32) bool{
		"eq.s32": func(a, b uint32) bool { return a == b }, "ne.s32": func(a, b uint32) bool { return a != b },
		"eq.u32": func(a, b uint32) bool { return a == b }, "ne.u32": func(a, b uint32) bool { return a != b },
		"eq.b32": func(a, b uint32) bool { return a == b }, "ne.b32": func(a, b uint32) bool { return a != b },
	} {
		m["setp."+name] = setpLoop(compare)
	}
	m["setp.lt.s32"], m["setp.gt.s32"] = setpLessSigned, swapped(setpLessSigned)
	m["setp.lt.u32"], m["setp.gt.u32"] = setpLess, swapped(setpLess)
	m["setp.ge.s32"], m["setp.le.s32"] = negated(setpLessSigned), negated(swapped(setpLessSigned))
	m["setp.ge.u32"], m["setp.le.u32"] = negated(setpLess), negated(swapped(setpLess))
	return m
}

func addLoop(w *warp, o *op) {
	d, a, b := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = a[i] + b[i]
	}
}

func subLoop(w *warp, o *op) {
	d, a, b := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = a[i] - b[i]
	}
}

func mulLoop(w *warp, o *op) {
	d, a, b := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = a[i] * b[i]
	}
}

func madLoop(w *warp, o *op) {
	d, a, b, c := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b], &w.r32[o.c]
	for i := range d {
		d[i] = a[i]*b[i] + c[i]
	}
}

func andLoop(w *warp, o *op) {
	d, a, b := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = a[i] & b[i]
	}
}

func orLoop(w *warp, o *op) {
	d, a, b := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = a[i] | b[i]
	}
}

func xorLoop(w *warp, o *op) {
	d, a, b := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = a[i] ^ b[i]
	}
}

func shlLoop(w *warp, o *op) {
	d, a, b := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = a[i] << b[i]
	}
}

func shrLoop(w *warp, o *op) {
	d, a, b := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = a[i] >> b[i]
	}
}

func sarLoop(w *warp, o *op) {
	d, a, b := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = uint32(int32(a[i]) >> b[i])
	}
}

func minsLoop(w *warp, o *op) {
	d, a, b := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = uint32(min(int32(a[i]), int32(b[i])))
	}
}

func maxsLoop(w *warp, o *op) {
	d, a, b := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = uint32(max(int32(a[i]), int32(b[i])))
	}
}

func selpLoop(w *warp, o *op) {
	d, a, b, p := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b], w.preds[o.c]
	for i := range d {
		d[i] = b[i] ^ (a[i]^b[i])&-(p>>i&1)
	}
}

func selp64Loop(w *warp, o *op) {
	d, a, b, p := &w.r64[o.d], &w.r64[o.a], &w.r64[o.b], w.preds[o.c]
	for i := range d {
		d[i] = b[i] ^ (a[i]^b[i])&-uint64(p>>i&1)
	}
}

func add64Loop(w *warp, o *op) {
	d, a, b := &w.r64[o.d], &w.r64[o.a], &w.r64[o.b]
	for i := range d {
		d[i] = a[i] + b[i]
	}
}

func mulWideLoop(w *warp, o *op) {
	d, a, b := &w.r64[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = uint64(a[i]) * uint64(b[i])
	}
}

func mulWideSignedLoop(w *warp, o *op) {
	d, a, b := &w.r64[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = uint64(int64(int32(a[i])) * int64(int32(b[i])))
	}
}

func madWideLoop(w *warp, o *op) {
	d, a, b, c := &w.r64[o.d], &w.r32[o.a], &w.r32[o.b], &w.r64[o.c]
	for i := range d {
		d[i] = uint64(a[i])*uint64(b[i]) + c[i]
	}
}

func madWideSignedLoop(w *warp, o *op) {
	d, a, b, c := &w.r64[o.d], &w.r32[o.a], &w.r32[o.b], &w.r64[o.c]
	for i := range d {
		d[i] = uint64(int64(int32(a[i]))*int64(int32(b[i]))) + c[i]
	}
}

func shl64Loop(w *warp, o *op) {
	d, a, b := &w.r64[o.d], &w.r64[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = a[i] << b[i]
	}
}

func widenLoop(w *warp, o *op) {
	d, a := &w.r64[o.d], &w.r32[o.a]
	for i := range d {
		d[i] = uint64(a[i])
	}
}

func widenSignedLoop(w *warp, o *op) {
	d, a := &w.r64[o.d], &w.r32[o.a]
	for i := range d {
		d[i] = uint64(int64(int32(a[i])))
	}
}

func narrowLoop(w *warp, o *op) {
	d, a := &w.r32[o.d], &w.r64[o.a]
	for i := range d {
		d[i] = uint32(a[i])
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

func addFloatLoop(w *warp, o *op) {
	d, a, b := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = floatBits(math.Float32frombits(a[i]) + math.Float32frombits(b[i]))
	}
}

func subFloatLoop(w *warp, o *op) {
	d, a, b := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = floatBits(math.Float32frombits(a[i]) - math.Float32frombits(b[i]))
	}
}

func mulFloatLoop(w *warp, o *op) {
	d, a, b := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		d[i] = floatBits(math.Float32frombits(a[i]) * math.Float32frombits(b[i]))
	}
}

// fmaLoop goes through float64, where the product is exact. The sum rounded to float64 and then to float32 is the sum rounded once, unless the first
// rounding ends on a point half way between two float32, or the result is subnormal: those few go the long way.
func fmaLoop(w *warp, o *op) {
	d, a, b, c := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b], &w.r32[o.c]
	for i := range d {
		p := float64(math.Float32frombits(a[i])) * float64(math.Float32frombits(b[i]))
		s := p + float64(math.Float32frombits(c[i]))
		code := math.Float64bits(s)
		const halfWay, below = 1 << 28, 1<<29 - 1
		exponent := code >> 52 & 0x7FF
		if code&below == halfWay || exponent < 1023-125 || exponent > 1023+126 {
			d[i] = uint32(o.alu.Func(uint64(a[i]), uint64(b[i]), uint64(c[i]), 0))
			continue
		}
		d[i] = math.Float32bits(float32(s))
	}
}

// maxFloatLoop gives the number where one operand is NaN, and the positive zero of two zeros.
func maxFloatLoop(w *warp, o *op) {
	d, a, b := &w.r32[o.d], &w.r32[o.a], &w.r32[o.b]
	for i := range d {
		x, y := math.Float32frombits(a[i]), math.Float32frombits(b[i])
		switch {
		case x > y:
			d[i] = a[i]
		case x < y:
			d[i] = b[i]
		default:
			d[i] = uint32(o.alu.Func(uint64(a[i]), uint64(b[i]), 0, 0))
		}
	}
}

// halfToFloatLoop widens halves; subnormals and NaN go the long way.
func halfToFloatLoop(w *warp, o *op) {
	d, a := &w.r32[o.d], &w.r32[o.a]
	for i := range d {
		h := a[i] & 0xFFFF
		exponent := h >> 10 & 31
		if exponent == 0 && h&0x3FF != 0 || exponent == 31 {
			d[i] = uint32(o.alu.Func(uint64(h), 0, 0, 0))
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

func setpLoop(compare func(a, b uint32) bool) vectorLoop {
	return func(w *warp, o *op) {
		a, b := &w.r32[o.a], &w.r32[o.b]
		p := uint32(0)
		for i := range a {
			if compare(a[i], b[i]) {
				p |= 1 << i
			}
		}
		w.preds[o.d] = p
	}
}

func setpLess(w *warp, o *op) {
	a, b := &w.r32[o.a], &w.r32[o.b]
	p := uint32(0)
	for i := range a {
		_, borrow := bits.Sub32(a[i], b[i], 0)
		p |= borrow << i
	}
	w.preds[o.d] = p
}

func setpLessSigned(w *warp, o *op) {
	a, b := &w.r32[o.a], &w.r32[o.b]
	p := uint32(0)
	for i := range a {
		p |= uint32(uint64(int64(int32(a[i]))-int64(int32(b[i])))>>63) << i
	}
	w.preds[o.d] = p
}

func swapped(loop vectorLoop) vectorLoop {
	return func(w *warp, o *op) {
		turned := *o
		turned.a, turned.b = o.b, o.a
		loop(w, &turned)
	}
}

func negated(loop vectorLoop) vectorLoop {
	return func(w *warp, o *op) {
		loop(w, o)
		w.preds[o.d] = ^w.preds[o.d]
	}
}
