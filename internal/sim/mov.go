package sim

import (
	"fmt"

	"attune/internal/ptx"
)

// movOp moves between registers, and packs and unpacks vectors of them.
type movOp struct {
	dst, src []piece // each covers the value from its first bit on; one piece or several of equal width
	bits     uint    // of the whole value
	clock    string  // the special register that is read, where it is one that runs
}

// piece is a register that holds some bits of a value; a sink has no file.
type piece struct {
	slot slot
	at   uint
	bits uint
}

// lowerMov turns mov into an operation.
func (c *code) lowerMov(in *ptx.Instruction, o *op) error {
	t, err := onlyType(in)
	if err != nil {
		return err
	}
	if len(in.Operands) != 2 {
		return fmt.Errorf("it has %d operands, want 2", len(in.Operands))
	}
	o.class = classMove
	from := in.Operands[1]
	if t == ptx.Pred {
		return c.lowerMovPred(in, o)
	}
	m := &movOp{bits: uint(t.Bits())}
	if from.Kind == ptx.SpecialOperand && runningClock(from.Special) {
		m.clock = from.Special
	} else if m.src, err = c.pieces(from, t); err != nil {
		return err
	}
	if m.dst, err = c.pieces(in.Operands[0], t); err != nil {
		return err
	}
	o.mov, o.run = m, runMov
	o.compactMov()
	return nil
}

func (c *code) lowerMovPred(in *ptx.Instruction, o *op) error {
	d, err := c.predicate(in.Operands[0])
	if err != nil {
		return err
	}
	o.d = d.index
	from := in.Operands[1]
	if from.Kind == ptx.ImmOperand {
		o.a = int32(from.Value & 1)
		o.run = func(w *warp, o *op, mask uint32) {
			w.preds[o.d] = w.preds[o.d]&^mask | mask*uint32(o.a)
		}
		return nil
	}
	if from.Kind == ptx.SpecialOperand && from.Special == "is_explicit_cluster" {
		s, err := c.special(from.Special, ptx.U32)
		o.a = s.index
		o.run = func(w *warp, o *op, mask uint32) {
			w.preds[o.d] = w.preds[o.d]&^mask | mask*w.r32[o.a][0]
		}
		return err
	}
	a, err := c.predicate(from)
	if err != nil {
		return err
	}
	o.a = a.index
	not := uint32(0)
	if from.Negated {
		not = everyLane
	}
	o.run = func(w *warp, o *op, mask uint32) {
		w.preds[o.d] = w.preds[o.d]&^mask | (w.preds[o.a]^not)&mask
	}
	return nil
}

// onlyType is the type of an instruction that has one modifier.
func onlyType(in *ptx.Instruction) (ptx.Type, error) {
	if len(in.Modifiers) != 1 {
		return 0, fmt.Errorf("unsupported instruction")
	}
	t, ok := ptx.ParseType(in.Modifiers[0])
	if !ok {
		return 0, fmt.Errorf("unsupported type .%s", in.Modifiers[0])
	}
	return t, nil
}

// pieces gives the registers of an operand that is a value of a type or a vector of equal parts of it.
func (c *code) pieces(o ptx.Operand, t ptx.Type) ([]piece, error) {
	whole := uint(t.Bits())
	if o.Kind != ptx.VecOperand {
		s, err := c.source(o, t)
		if err != nil {
			return nil, err
		}
		if s.file == filePred {
			return nil, fmt.Errorf("a predicate is not a .%s", t)
		}
		return []piece{{s, 0, whole}}, nil
	}
	n := uint(len(o.Parts))
	if n == 0 || whole%n != 0 {
		return nil, fmt.Errorf("a .%s has no %d equal parts", t, n)
	}
	part := whole / n
	var list []piece
	for i, p := range o.Parts {
		if p.Kind == ptx.SinkOperand {
			list = append(list, piece{slot{}, uint(i) * part, part})
			continue
		}
		s, err := c.source(p, map[uint]ptx.Type{8: ptx.B8, 16: ptx.B16, 32: ptx.B32, 64: ptx.B64}[part])
		if err != nil {
			return nil, err
		}
		list = append(list, piece{s, uint(i) * part, part})
	}
	return list, nil
}

func runMov(w *warp, o *op, mask uint32) {
	v := o.mov
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		low, high := w.gather(v, lane)
		w.scatter(v, lane, low, high)
	}
}

// gather puts the value of a mov together, 128 bits at most.
func (w *warp) gather(v *movOp, lane int) (low, high uint64) {
	if v.clock != "" {
		return w.readClock(v.clock), 0
	}
	for _, p := range v.src {
		var value, more uint64
		switch p.slot.file {
		case file32:
			value = uint64(w.r32[p.slot.index][lane])
		case file64:
			value = w.r64[p.slot.index][lane]
			if p.bits == 128 {
				more = w.r64[p.slot.index+1][lane]
			}
		}
		if p.bits < 64 {
			value &= 1<<p.bits - 1
		}
		if p.at < 64 {
			low |= value << p.at
			high |= more
		} else {
			high |= value << (p.at - 64)
		}
	}
	return low, high
}

// scatter spreads a value over the registers of the destination.
func (w *warp) scatter(v *movOp, lane int, low, high uint64) {
	for _, p := range v.dst {
		value := low
		if p.at >= 64 {
			value = high
		}
		value >>= p.at % 64
		if p.bits < 64 {
			value &= 1<<p.bits - 1
		}
		switch p.slot.file {
		case file32:
			w.r32[p.slot.index][lane] = uint32(value)
		case file64:
			w.r64[p.slot.index][lane] = value
			if p.bits == 128 {
				w.r64[p.slot.index+1][lane] = high
			}
		}
	}
}
