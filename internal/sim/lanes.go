package sim

import (
	"unsafe"

	"attune/internal/ptx"
)

// The commonest operations on registers have a compact form, and code for 32 lanes at a time: in Go (vector.go), and in assembly where the processor has
// AVX2. What stands in a row of a basic block is executed as one run, with no look at anything in between: the loops of a kernel are made of such runs.

// laneCode numbers the operations that have a compact form. The table in lanes_amd64.s has the same order.
type laneCode uint32

const (
	noLane laneCode = iota
	laneMov
	laneAdd
	laneSub
	laneMul
	laneMad
	laneAnd
	laneOr
	laneXor
	laneShl
	laneShr
	laneSar
	laneMinSigned
	laneMaxSigned
	laneMin
	laneMax
	laneSelp
	laneAddFloat
	laneSubFloat
	laneMulFloat
	laneFma
	laneMinFloat
	laneMaxFloat
	laneHalfToFloat
	laneFromSigned
	laneEqual
	laneUnequal
	laneLessSigned
	laneAtLeastSigned
	laneLess
	laneAtLeast
	laneEqualFloat
	laneUnequalFloat
	laneLessFloat
	laneAtMostFloat
	laneMov64
	laneAdd64
	laneSub64
	laneAnd64
	laneOr64
	laneShl64
	laneShr64
	laneSelp64
	laneMulWide
	laneMulWideSigned
	laneMadWide
	laneMadWideSigned
	laneWiden
	laneWidenSigned
	laneNarrow
	lanePack
	laneUnpack
	lanePack64
	laneUnpack64
	laneCodes
)

// laneOp is the compact form of an operation: which one it is, and where its registers stand in their files, in bytes. Of a value that is taken apart, b has
// the upper half.
type laneOp struct {
	code       laneCode
	d, a, b, c uint32
}

// laneForm is the compact form of an instruction.
type laneForm struct {
	code   laneCode
	turned bool // the second operand comes first
}

// laneForms has the instructions by name. All give the bits that package arith gives; a test holds them against it.
var laneForms = makeLaneForms()

func makeLaneForms() map[string]laneForm {
	m := map[string]laneForm{}
	same := func(code laneCode, names ...string) {
		for _, name := range names {
			m[name] = laneForm{code: code}
		}
	}
	turned := func(code laneCode, names ...string) {
		for _, name := range names {
			m[name] = laneForm{code, true}
		}
	}
	same(laneAdd, "add.s32", "add.u32")
	same(laneSub, "sub.s32", "sub.u32")
	same(laneMul, "mul.lo.s32", "mul.lo.u32")
	same(laneMad, "mad.lo.s32", "mad.lo.u32")
	same(laneAnd, "and.b32")
	same(laneOr, "or.b32")
	same(laneXor, "xor.b32")
	same(laneShl, "shl.b32")
	same(laneShr, "shr.u32", "shr.b32")
	same(laneSar, "shr.s32")
	same(laneMinSigned, "min.s32")
	same(laneMaxSigned, "max.s32")
	same(laneMin, "min.u32")
	same(laneMax, "max.u32")
	same(laneSelp, "selp.b32", "selp.u32", "selp.s32", "selp.f32")
	same(laneAddFloat, "add.f32", "add.rn.f32")
	same(laneSubFloat, "sub.f32", "sub.rn.f32")
	same(laneMulFloat, "mul.f32", "mul.rn.f32")
	same(laneFma, "fma.rn.f32", "mad.rn.f32")
	same(laneMinFloat, "min.f32")
	same(laneMaxFloat, "max.f32")
	same(laneHalfToFloat, "cvt.f32.f16")
	same(laneFromSigned, "cvt.rn.f32.s32")
	same(laneEqual, "setp.eq.s32", "setp.eq.u32", "setp.eq.b32")
	same(laneUnequal, "setp.ne.s32", "setp.ne.u32", "setp.ne.b32")
	same(laneLessSigned, "setp.lt.s32")
	turned(laneLessSigned, "setp.gt.s32")
	same(laneAtLeastSigned, "setp.ge.s32")
	turned(laneAtLeastSigned, "setp.le.s32")
	same(laneLess, "setp.lt.u32", "setp.lo.u32")
	turned(laneLess, "setp.gt.u32", "setp.hi.u32")
	same(laneAtLeast, "setp.ge.u32", "setp.hs.u32")
	turned(laneAtLeast, "setp.le.u32", "setp.ls.u32")
	same(laneEqualFloat, "setp.eq.f32")
	same(laneUnequalFloat, "setp.neu.f32")
	same(laneLessFloat, "setp.lt.f32")
	turned(laneLessFloat, "setp.gt.f32")
	same(laneAtMostFloat, "setp.le.f32")
	turned(laneAtMostFloat, "setp.ge.f32")
	same(laneAdd64, "add.s64", "add.u64")
	same(laneSub64, "sub.s64", "sub.u64")
	same(laneAnd64, "and.b64")
	same(laneOr64, "or.b64")
	same(laneShl64, "shl.b64")
	same(laneShr64, "shr.u64", "shr.b64")
	same(laneSelp64, "selp.b64", "selp.u64", "selp.s64", "selp.f64")
	same(laneMulWide, "mul.wide.u32")
	same(laneMulWideSigned, "mul.wide.s32")
	same(laneMadWide, "mad.wide.u32")
	same(laneMadWideSigned, "mad.wide.s32")
	same(laneWiden, "cvt.u64.u32")
	same(laneWidenSigned, "cvt.s64.s32")
	same(laneNarrow, "cvt.u32.u64")
	return m
}

// How far a register of a file is from the next.
const (
	row32   = uint32(unsafe.Sizeof(v32{}))
	row64   = uint32(unsafe.Sizeof(v64{}))
	rowPred = uint32(unsafe.Sizeof(uint32(0)))
)

// place is where a slot stands in its file.
func (s slot) place() uint32 {
	return uint32(s.index) * [...]uint32{file32: row32, file64: row64, filePred: rowPred}[s.file]
}

// compact gives an operation its compact form.
func (o *op) compact(code laneCode, d slot, sources ...slot) {
	o.lane, o.laneTo, o.run = laneOp{code: code, d: d.place()}, d, runLane
	for i, at := range []*uint32{&o.lane.a, &o.lane.b, &o.lane.c}[:len(sources)] {
		*at = sources[i].place()
	}
}

// compactMov gives a mov its compact form, if it has one.
func (o *op) compactMov() {
	d, s := o.mov.dst, o.mov.src
	of := func(list []piece, n int, f file) bool {
		for _, p := range list {
			if p.slot.file != f {
				return false
			}
		}
		return len(list) == n
	}
	switch bits := o.mov.bits; {
	case of(d, 1, file32) && of(s, 1, file32):
		o.compact(laneMov, d[0].slot, s[0].slot)
	case of(d, 1, file64) && of(s, 1, file64) && bits == 64:
		o.compact(laneMov64, d[0].slot, s[0].slot)
	case of(d, 1, file32) && of(s, 2, file32) && bits == 32:
		o.compact(lanePack, d[0].slot, s[0].slot, s[1].slot)
	case of(d, 2, file32) && of(s, 1, file32) && bits == 32:
		o.compact(laneUnpack, d[0].slot, s[0].slot, d[1].slot)
	case of(d, 1, file64) && of(s, 2, file32) && bits == 64:
		o.compact(lanePack64, d[0].slot, s[0].slot, s[1].slot)
	case of(d, 2, file32) && of(s, 1, file64) && bits == 64:
		o.compact(laneUnpack64, d[0].slot, s[0].slot, d[1].slot)
	}
}

// compactALU gives a scalar operation its compact form, if it has one and its operands are such as that expects.
func (o *op) compactALU(name string) {
	a := o.alu
	form, found := laneForms[name]
	if !found || a.pair >= 0 || a.noFirst || a.extend.from != 0 || a.Carry != nil || a.n > 3 {
		return
	}
	var sources [3]slot
	for i := range a.n {
		if a.args[i].not || a.args[i].slot.file != fileOf(a.Args[i]) || a.Args[i] != ptx.Pred && a.Args[i].Bits() < 16 {
			return
		}
		sources[i] = a.args[i].slot
	}
	if form.turned {
		sources[0], sources[1] = sources[1], sources[0]
	}
	o.compact(form.code, a.dst, sources[:a.n]...)
}

// runLane executes one operation by its compact form. Lanes that take no part get back what they had.
func runLane(w *warp, o *op, mask uint32) {
	one := unsafe.Slice(&o.lane, 1)
	if mask == everyLane {
		w.doLanes(one)
		return
	}
	if o.mov != nil && len(o.mov.dst) > 1 {
		runMov(w, o, mask)
		return
	}
	switch index := o.laneTo.index; o.laneTo.file {
	case file32:
		d := &w.r32[index]
		had := *d
		w.doLanes(one)
		for m := ^mask; m != 0; m &= m - 1 {
			lane := firstLane(m) & 31
			d[lane] = had[lane]
		}
	case file64:
		d := &w.r64[index]
		had := *d
		w.doLanes(one)
		for m := ^mask; m != 0; m &= m - 1 {
			lane := firstLane(m) & 31
			d[lane] = had[lane]
		}
	default:
		had := w.preds[index]
		w.doLanes(one)
		w.preds[index] = had&^mask | w.preds[index]&mask
	}
}

// doLanes executes operations one after the other, with every lane.
func (w *warp) doLanes(ops []laneOp) {
	if haveLaneAssembly {
		lanesAssembly(&ops[0], len(ops), unsafe.SliceData(w.r32), unsafe.SliceData(w.r64), unsafe.SliceData(w.preds))
		return
	}
	w.doLanesInGo(ops)
}

func (w *warp) doLanesInGo(ops []laneOp) {
	for i := range ops {
		laneLoops[ops[i].code](w, &ops[i])
	}
}

// tally counts the operations of a run by class.
type tally struct{ integer, float, move uint32 }

// findRuns finds the runs: operations in compact form without a guard, none but the first of which anything comes to from elsewhere. Each knows how many
// there are from it on, so that a run can be entered, and left, in its middle.
func (c *code) findRuns() {
	led := make([]bool, len(c.ops)+1) // something comes here from elsewhere
	for i := range c.ops {
		if ctl := c.ops[i].ctl; ctl != nil {
			for _, t := range ctl.targets {
				led[t] = true
			}
			if ctl.meet >= 0 {
				led[ctl.meet] = true
			}
			led[i+1] = true
		}
	}
	c.lanes = make([]laneOp, len(c.ops))
	for i := len(c.ops) - 1; i >= 0; i-- {
		o := &c.ops[i]
		c.lanes[i] = o.lane
		if o.lane.code == noLane || o.guard >= 0 || o.watched {
			continue
		}
		o.runLength = 1
		if i+1 < len(c.ops) && !led[i+1] {
			o.runLength += c.ops[i+1].runLength
			o.ahead = c.ops[i+1].ahead
		}
		switch o.class {
		case classInteger:
			o.ahead.integer++
		case classFloat:
			o.ahead.float++
		case classMove:
			o.ahead.move++
		default:
			panic("BUG: an operation on lanes of another class")
		}
	}
}

// doRun executes n operations of the run that stands next.
func (w *warp) doRun(o *op, n int) {
	pc := int(w.pc)
	w.doLanes(w.laneOps[pc : pc+n])
	did := o.ahead
	if n < int(o.runLength) {
		rest := &w.ops[pc+n].ahead
		did = tally{did.integer - rest.integer, did.float - rest.float, did.move - rest.move}
	}
	w.count.class[classInteger] += uint64(did.integer)
	w.count.class[classFloat] += uint64(did.float)
	w.count.class[classMove] += uint64(did.move)
	w.pc += int32(n)
}
