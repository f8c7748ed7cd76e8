package sim

import (
	"fmt"
	"math/bits"
	"strings"

	"attune/internal/ptx"
	"attune/internal/sim/arith"
)

// v32 and v64 are registers: a value for each lane.
type (
	v32 = [32]uint32
	v64 = [32]uint64
)

const everyLane = ^uint32(0)

func firstLane(mask uint32) int { return bits.TrailingZeros32(mask) }

// aluOp is an operation whose lanes have nothing to do with each other, lane by lane through a function of package arith.
type aluOp struct {
	arith.Op
	args    [5]aluArg
	n       int
	dst     slot
	extend  extension // of a result that is narrower than its register
	pair    int32     // predicate of the second result, or -1
	noFirst bool      // the first result goes nowhere (setp _|q)
}

type aluArg struct {
	slot slot
	mask uint64 // bits of the operand's type
	not  bool   // a negated predicate
}

// extension widens a result to its register.
type extension struct {
	from   uint // bits of the result; 0 where nothing is to be done
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

// lowerALU turns a scalar instruction into an operation.
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
	o.alu, o.run, o.class = a, runALU, classInteger
	if isFloat(found.Result) || a.n > 0 && isFloat(found.Args[0]) {
		o.class = classFloat
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

// lowerResult finds the register, or the two, that a result goes to.
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

// register is the slot of a register that has to be of a type's file.
func (c *code) register(o ptx.Operand, t ptx.Type) (slot, error) {
	if o.Kind != ptx.RegOperand {
		return slot{}, fmt.Errorf("it wants a register for a .%s", t)
	}
	return c.source(o, t)
}

func (c *code) predicate(o ptx.Operand) (slot, error) {
	if o.Kind != ptx.RegOperand || c.regs[o.Register].file != filePred {
		return slot{}, fmt.Errorf("it wants a predicate here")
	}
	return c.regs[o.Register], nil
}

// get reads an operand in one lane.
func (w *warp) get(a *aluArg, lane int) uint64 {
	switch a.slot.file {
	case file32:
		return uint64(w.r32[a.slot.index][lane]) & a.mask
	case file64:
		return w.r64[a.slot.index][lane] & a.mask
	}
	bit := uint64(w.preds[a.slot.index] >> lane & 1)
	if a.not {
		bit ^= 1
	}
	return bit
}

// set writes a value to a register in one lane.
func (w *warp) set(s slot, lane int, value uint64) {
	switch s.file {
	case file32:
		w.r32[s.index][lane] = uint32(value)
	case file64:
		w.r64[s.index][lane] = value
	default:
		w.setBit(s.index, lane, value != 0)
	}
}

func (w *warp) setBit(index int32, lane int, on bool) {
	if on {
		w.preds[index] |= 1 << lane
	} else {
		w.preds[index] &^= 1 << lane
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
		x[3] |= x[4] << 8 // the predicate of lop3 stands behind its table
		if !a.noFirst {
			w.set(a.dst, lane, a.extend.apply(a.Func(x[0], x[1], x[2], x[3]), a.dst.file))
		}
		if a.pair >= 0 {
			w.setBit(a.pair, lane, a.Pair(x[0], x[1], x[2], x[3]) != 0)
		}
	}
}

// runCarry is for the instructions that chain through the condition code.
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
