package sim

import (
	"fmt"
	"strings"
	"unsafe"

	"attune/internal/ptx"
	"attune/internal/sim/arith"
	"attune/internal/sim/count"
	"attune/internal/sim/lanes"
)

// aluOp is an operation on each lane by itself. Package arith computes it, lane by lane.
type aluOp struct {
	arith.Op
	args    [5]aluArg
	n       int
	dst     slot
	extend  extension // of a result that is narrower than its register
	pair    int32     // predicate of the second result, or -1
	noFirst bool      // the first result is dropped (setp _|q)
}

type aluArg struct {
	slot slot
	mask uint64 // bits of the operand's type
	not  bool   // a negated predicate
}

// extension widens a result to its register.
type extension struct {
	from   uint // bits of the result; 0 for no extension
	signed bool
}

func (e extension) apply(value uint64, to file) uint64 {
	if e.from == 0 {
		return value
	}
	if e.signed {
		value = uint64(int64(value<<(64-e.from)) >> (64 - e.from))
	}
	if to == file32 {
		return uint64(uint32(value))
	}
	return value
}

// lowerALU lowers a scalar instruction.
func (c *code) lowerALU(in *ptx.Instruction, o *op) error {
	found, err := arith.Lookup(in.Opcode, in.Modifiers)
	if err != nil {
		return err
	}
	a := &aluOp{Op: found, n: len(found.Args), pair: -1}
	if a.n > len(a.args) || len(in.Operands) != a.n+1 {
		return fmt.Errorf("it has %d operands, want %d", len(in.Operands), a.n+1)
	}
	if err := c.lowerResult(a, in.Operands[0]); err != nil {
		return err
	}
	for i, t := range found.Args {
		operand := in.Operands[i+1]
		not := operand.Kind == ptx.RegOperand && operand.Negated
		operand.Negated = false
		s, err := c.sourceOfAnyWidth(operand, t)
		if err != nil {
			return err
		}
		if (s.file == filePred) != (t == ptx.Pred) && !(t == ptx.Pred && operand.Kind == ptx.ImmOperand) {
			return fmt.Errorf("operand %d is not a .%s", i+1, t)
		}
		a.args[i] = aluArg{slot: s, mask: typeMask(t), not: not}
	}
	o.alu, o.run, o.class = a, runALU, count.Integer
	if isFloat(found.Result) || a.n > 0 && isFloat(found.Args[0]) {
		o.class = count.Float
	}
	if found.Carry != nil {
		o.run = runCarry
	}
	o.compactALU(in.Opcode + "." + strings.Join(in.Modifiers, "."))
	return nil
}

func typeMask(t ptx.Type) uint64 {
	if t.Bits() >= 64 {
		return ^uint64(0)
	}
	return 1<<t.Bits() - 1
}

func isFloat(t ptx.Type) bool {
	switch t {
	case ptx.F16, ptx.F16x2, ptx.BF16, ptx.BF16x2, ptx.F32, ptx.F64, ptx.TF32:
		return true
	}
	return false
}

// lowerResult finds the one or two registers of a result.
func (c *code) lowerResult(a *aluOp, o ptx.Operand) error {
	if o.Kind == ptx.PairOperand {
		if a.Pair == nil || len(o.Parts) != 2 {
			return fmt.Errorf("it has one result")
		}
		if o.Parts[1].Kind != ptx.SinkOperand {
			s, err := c.predicate(o.Parts[1])
			if err != nil {
				return err
			}
			a.pair = s.index
		}
		o = o.Parts[0]
	}
	switch o.Kind {
	case ptx.SinkOperand:
		a.noFirst = true
		return nil
	case ptx.RegOperand:
	default:
		return fmt.Errorf("its result must go to a register")
	}
	a.dst = c.regs[o.Register]
	if (a.dst.file == filePred) != (a.Result == ptx.Pred) {
		return fmt.Errorf("its result is a .%s", a.Result)
	}
	if have := c.fn.Registers[o.Register].Type.Bits(); a.Result.Bits() > have {
		return fmt.Errorf("a register of %d bits is too small for .%s", have, a.Result)
	}
	if a.dst.file != filePred && a.Result.Bits() < c.fn.Registers[o.Register].Type.Bits() {
		a.extend = extension{from: uint(a.Result.Bits()), signed: a.Result.Signed()}
	}
	return nil
}

// get reads an operand in one lane.
func (w *warp) get(a *aluArg, lane int) uint64 {
	switch a.slot.file {
	case file32:
		return uint64(w.R32[a.slot.index][lane]) & a.mask
	case file64:
		return w.R64[a.slot.index][lane] & a.mask
	}
	bit := uint64(w.Preds[a.slot.index] >> lane & 1)
	if a.not {
		bit ^= 1
	}
	return bit
}

// set writes a value to a register in one lane.
func (w *warp) set(s slot, lane int, value uint64) {
	switch s.file {
	case file32:
		w.R32[s.index][lane] = uint32(value)
	case file64:
		w.R64[s.index][lane] = value
	default:
		w.setBit(s.index, lane, value != 0)
	}
}

func (w *warp) setBit(index int32, lane int, on bool) {
	if on {
		w.Preds[index] |= 1 << lane
	} else {
		w.Preds[index] &^= 1 << lane
	}
}

func runALU(w *warp, o *op, mask uint32) {
	a := o.alu
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		var x [5]uint64
		for i := range a.n {
			x[i] = w.get(&a.args[i], lane)
		}
		x[3] |= x[4] << 8 // the predicate of lop3 follows its table
		if !a.noFirst {
			w.set(a.dst, lane, a.extend.apply(a.Func(x[0], x[1], x[2], x[3]), a.dst.file))
		}
		if a.pair >= 0 {
			w.setBit(a.pair, lane, a.Pair(x[0], x[1], x[2], x[3]) != 0)
		}
	}
}

// runCarry runs instructions that chain through the condition code.
func runCarry(w *warp, o *op, mask uint32) {
	a := o.alu
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		var x [3]uint64
		for i := range min(a.n, 3) {
			x[i] = w.get(&a.args[i], lane)
		}
		result, out := a.Carry(x[0], x[1], x[2], w.carry>>lane&1 != 0)
		w.set(a.dst, lane, result)
		if a.SetsCarry {
			w.carry &^= 1 << lane
			if out {
				w.carry |= 1 << lane
			}
		}
	}
}

// Operations with a compact form (package lanes). A run of them in a basic block is executed by one
// call, with no dispatch in between. The inner loops of a kernel consist of such runs.

// offset returns the byte offset of a slot in its register file.
func (s slot) offset() uint32 {
	return uint32(s.index) * [...]uint32{file32: lanes.Stride32, file64: lanes.Stride64, filePred: lanes.StridePred}[s.file]
}

// compact gives an operation a compact form, unless a checker runs before it.
func (o *op) compact(code lanes.Code, d slot, sources ...slot) {
	if o.checked {
		return
	}
	o.lane, o.laneDst, o.run = lanes.Op{Code: code, D: d.offset()}, d, runLane
	for i, at := range []*uint32{&o.lane.A, &o.lane.B, &o.lane.C}[:len(sources)] {
		*at = sources[i].offset()
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
		o.compact(lanes.Mov32, d[0].slot, s[0].slot)
	case of(d, 1, file64) && of(s, 1, file64) && bits == 64:
		o.compact(lanes.Mov64, d[0].slot, s[0].slot)
	case of(d, 1, file32) && of(s, 2, file32) && bits == 32:
		o.compact(lanes.Pack32, d[0].slot, s[0].slot, s[1].slot)
	case of(d, 2, file32) && of(s, 1, file32) && bits == 32:
		o.compact(lanes.Unpack32, d[0].slot, s[0].slot, d[1].slot)
	case of(d, 1, file64) && of(s, 2, file32) && bits == 64:
		o.compact(lanes.Pack64, d[0].slot, s[0].slot, s[1].slot)
	case of(d, 2, file32) && of(s, 1, file64) && bits == 64:
		o.compact(lanes.Unpack64, d[0].slot, s[0].slot, d[1].slot)
	}
}

// compactALU gives a scalar operation its compact form, if it has one and its operands suit it.
func (o *op) compactALU(name string) {
	a := o.alu
	form, found := lanes.Lookup(name)
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
	if form.Swapped {
		sources[0], sources[1] = sources[1], sources[0]
	}
	o.compact(form.Code, a.dst, sources[:a.n]...)
}

// runLane executes one operation by its compact form, and restores the lanes that are not in the
// mask.
func runLane(w *warp, o *op, mask uint32) {
	one := unsafe.Slice(&o.lane, 1)
	if mask == everyLane {
		w.Registers.Run(one)
		return
	}
	if o.mov != nil && len(o.mov.dst) > 1 {
		runMov(w, o, mask)
		return
	}
	switch index := o.laneDst.index; o.laneDst.file {
	case file32:
		d := &w.R32[index]
		before := *d
		w.Registers.Run(one)
		for m := ^mask; m != 0; m &= m - 1 {
			lane := firstLane(m) & 31
			d[lane] = before[lane]
		}
	case file64:
		d := &w.R64[index]
		before := *d
		w.Registers.Run(one)
		for m := ^mask; m != 0; m &= m - 1 {
			lane := firstLane(m) & 31
			d[lane] = before[lane]
		}
	default:
		before := w.Preds[index]
		w.Registers.Run(one)
		w.Preds[index] = before&^mask | w.Preds[index]&mask
	}
}

// findRuns finds the runs of operations in compact form: without a guard, and with no jump to any
// but the first. Each operation has the length of the run from it on, so that a time slice may
// begin and end in the middle of a run.
func (c *code) findRuns() {
	isTarget := make([]bool, len(c.ops)+1)
	for i := range c.ops {
		if ctl := c.ops[i].ctl; ctl != nil {
			for _, t := range ctl.targets {
				isTarget[t] = true
			}
			if ctl.reconvPC >= 0 {
				isTarget[ctl.reconvPC] = true
			}
			isTarget[i+1] = true
		}
	}
	c.laneOps = make([]lanes.Op, len(c.ops))
	for i := len(c.ops) - 1; i >= 0; i-- {
		o := &c.ops[i]
		c.laneOps[i] = o.lane
		if o.lane.Code == lanes.None || o.guard >= 0 || o.checked {
			continue
		}
		o.runLength = 1
		if i+1 < len(c.ops) && !isTarget[i+1] {
			o.runLength += c.ops[i+1].runLength
			o.tally = c.ops[i+1].tally
		}
		switch o.class {
		case count.Integer:
			o.tally.Integer++
		case count.Float:
			o.tally.Float++
		case count.Move:
			o.tally.Move++
		default:
			panic("BUG: an operation in compact form of another class")
		}
	}
}

// runnableRun returns how many operations of the run that begins at o can be executed as a run now, in
// a time slice with some instructions left: none of them may access a tainted register.
func (w *warp) runnableRun(o *op, left int) int {
	if o.runLength == 0 || w.lanes != everyLane {
		return 0
	}
	n := min(int(o.runLength), left)
	if w.taint != nil {
		n = min(n, w.untaintedRun(o))
	}
	return n
}

// runLaneOps executes n operations of the run that begins at o, the next operation.
func (w *warp) runLaneOps(o *op, n int) {
	pc := int(w.pc)
	w.Registers.Run(w.laneOps[pc : pc+n])
	done := o.tally
	if n < int(o.runLength) {
		done = done.Sub(w.ops[pc+n].tally)
	}
	w.counters.Instructions(done)
	w.pc += int32(n)
}
