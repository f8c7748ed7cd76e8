package sim

import (
	"fmt"

	"attune/internal/ptx"
	"attune/internal/sim/count"
)

// movOp is a mov between registers. It also packs and unpacks vectors of registers.
type movOp struct {
	dst, src []piece // one piece, or several of equal width that cover the value
	bits     uint    // of the whole value
	clock    string  // the clock register that is read; empty for none
}

// piece is a register that holds some bits of a value. The slot of a sink has no file.
type piece struct {
	slot slot
	at   uint // first bit of the value
	bits uint
}

func (c *code) lowerMov(in *ptx.Instruction, o *op) error {
	mods := in.Modifiers
	n := uint(1) // elements of a vector
	if len(mods) == 2 && (mods[0] == "v2" || mods[0] == "v4") {
		n, mods = uint(mods[0][1]-'0'), mods[1:]
	}
	t, err := onlyType(mods)
	if err != nil {
		return err
	}
	if len(in.Operands) != 2 {
		return fmt.Errorf("it has %d operands, want 2", len(in.Operands))
	}
	o.class = count.Move
	from := in.Operands[1]
	if t == ptx.Pred {
		return c.lowerMovPred(in, o)
	}
	if n > 1 {
		return c.lowerMovVector(in, o, n*uint(t.Bits()))
	}
	m := &movOp{bits: uint(t.Bits())}
	if from.Kind == ptx.SpecialOperand && isClock(from.Special) {
		m.clock = from.Special
	} else if m.src, err = c.pieces(from, t, m.bits); err != nil {
		return err
	}
	if m.dst, err = c.pieces(in.Operands[0], t, m.bits); err != nil {
		return err
	}
	o.mov, o.run = m, runMov
	o.compactMov()
	return nil
}

// lowerMovVector lowers a mov of a vector with a number of bits, element by element.
func (c *code) lowerMovVector(in *ptx.Instruction, o *op, bits uint) error {
	const most = 128
	if in.Operands[0].Kind != ptx.VecOperand || in.Operands[1].Kind != ptx.VecOperand || len(in.Operands[0].Parts) != len(in.Operands[1].Parts) || bits > most {
		return fmt.Errorf("unsupported form; a mov of a vector needs two vectors of up to %d bits", most)
	}
	m := &movOp{bits: bits}
	var err error
	if m.src, err = c.pieces(in.Operands[1], ptx.NoType, bits); err != nil {
		return err
	}
	if m.dst, err = c.pieces(in.Operands[0], ptx.NoType, bits); err != nil {
		return err
	}
	o.mov, o.run = m, runMov
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
			w.Preds[o.d] = w.Preds[o.d]&^mask | mask*uint32(o.a)
		}
		return nil
	}
	if from.Kind == ptx.SpecialOperand && from.Special == "is_explicit_cluster" {
		s, err := c.special(from.Special, ptx.U32)
		o.a = s.index
		o.run = func(w *warp, o *op, mask uint32) {
			w.Preds[o.d] = w.Preds[o.d]&^mask | mask*w.R32[o.a][0]
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
		w.Preds[o.d] = w.Preds[o.d]&^mask | (w.Preds[o.a]^not)&mask
	}
	return nil
}

// onlyType returns the type of an instruction whose only modifier is a type.
func onlyType(modifiers []string) (ptx.Type, error) {
	if len(modifiers) != 1 {
		return 0, fmt.Errorf("unsupported instruction")
	}
	t, ok := ptx.ParseType(modifiers[0])
	if !ok {
		return 0, fmt.Errorf("unsupported type .%s", modifiers[0])
	}
	return t, nil
}

// pieces returns the registers of an operand: a value of a type, or a vector of equal parts of its
// bits.
func (c *code) pieces(o ptx.Operand, t ptx.Type, whole uint) ([]piece, error) {
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
		return nil, fmt.Errorf("%d bits cannot be split into %d equal parts", whole, n)
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

// gather assembles the value of a mov from its source registers, at most 128 bits.
func (w *warp) gather(v *movOp, lane int) (low, high uint64) {
	if v.clock != "" {
		return w.readClock(v.clock), 0
	}
	for _, p := range v.src {
		var value, more uint64
		switch p.slot.file {
		case file32:
			value = uint64(w.R32[p.slot.index][lane])
		case file64:
			value = w.R64[p.slot.index][lane]
			if p.bits == 128 {
				more = w.R64[p.slot.index+1][lane]
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

// scatter writes a value to the destination registers.
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
			w.R32[p.slot.index][lane] = uint32(value)
		case file64:
			w.R64[p.slot.index][lane] = value
			if p.bits == 128 {
				w.R64[p.slot.index+1][lane] = high
			}
		}
	}
}
