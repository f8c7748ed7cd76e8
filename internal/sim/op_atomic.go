package sim

import (
	"encoding/binary"
	"fmt"
	"slices"

	"attune/internal/ptx"
	"attune/internal/sim/arith"
	"attune/internal/sim/count"
	"attune/internal/sim/mem"
)

// atomicOp is the arithmetic of an atomic operation.
type atomicOp struct {
	update func(old, b, c uint64) uint64
	b, c   []element                     // operands, for each element of a vector
	dst    []element                     // the old values; empty for red
	flush  func(old, b, c uint64) uint64 // update outside of shared memory, where add.f32 flushes subnormals
}

var atomicNames = []string{"add", "inc", "dec", "min", "max", "and", "or", "xor", "exch", "cas"}

// lowerAtomic lowers atom and red.
func (c *code) lowerAtomic(in *ptx.Instruction, o *op) error {
	modifiers := slices.Clone(in.Modifiers)
	name := ""
	modifiers = slices.DeleteFunc(modifiers, func(m string) bool {
		if slices.Contains(atomicNames, m) {
			name = m
			return true
		}
		return m == "noftz"
	})
	mods := readModifiers(modifiers)
	if len(mods.rest) > 0 || name == "" || mods.typed == ptx.NoType {
		return fmt.Errorf("unsupported form")
	}
	a := &atomicOp{}
	m := &memOp{space: mods.space, size: mods.typed.Size(), strong: true, atomic: a, ordered: mods.order != "", blockScope: mods.scope == "cta"}
	m.acquire = mods.order == "acquire" || mods.order == "acq_rel"
	m.release = mods.order == "release" || mods.order == "acq_rel"
	operands := in.Operands
	if in.Opcode == "atom" {
		if len(operands) < 3 {
			return fmt.Errorf("it has %d operands", len(operands))
		}
		if operands[0].Kind != ptx.SinkOperand {
			if err := c.atomicElements(&a.dst, operands[0], mods, true); err != nil {
				return err
			}
		}
		operands = operands[1:]
	}
	if mods.hinted {
		operands = operands[:len(operands)-1]
	}
	want := 2
	if name == "cas" {
		want = 3
	}
	if len(operands) != want {
		return fmt.Errorf("it has %d operands after its result, want %d", len(operands), want)
	}
	if err := c.lowerAddress(m, operands[0]); err != nil {
		return err
	}
	if err := c.atomicElements(&a.b, operands[1], mods, false); err != nil {
		return err
	}
	if want == 3 {
		if err := c.atomicElements(&a.c, operands[2], mods, false); err != nil {
			return err
		}
	}
	m.bytes = m.size * mods.vector
	m.usesOld = in.Opcode == "atom" && c.isRead(&in.Operands[0])
	m.overwrites = name == "exch" && !m.usesOld
	o.mem, o.class, o.run = m, count.Memory, runAtomic
	c.noteCommunication(m)
	return a.choose(name, mods.typed)
}

func (c *code) atomicElements(into *[]element, o ptx.Operand, mods memModifiers, result bool) error {
	parts := []ptx.Operand{o}
	if o.Kind == ptx.VecOperand {
		parts = o.Parts
	}
	if len(parts) != mods.vector {
		return fmt.Errorf("it has %d values, want %d", len(parts), mods.vector)
	}
	for _, p := range parts {
		if result && p.Kind != ptx.RegOperand && p.Kind != ptx.SinkOperand {
			return fmt.Errorf("its result must go to a register")
		}
		if p.Kind == ptx.SinkOperand {
			*into = append(*into, element{})
			continue
		}
		s, err := c.source(p, mods.typed)
		if err != nil {
			return err
		}
		*into = append(*into, element{slot: s})
	}
	return nil
}

// choose finds the function of an operation on a type.
func (a *atomicOp) choose(name string, t ptx.Type) error {
	switch name {
	case "exch":
		a.update = func(_, b, _ uint64) uint64 { return b }
		return nil
	case "cas":
		a.update = func(old, b, c uint64) uint64 {
			if old == b {
				return c
			}
			return old
		}
		return nil
	case "inc":
		a.update = func(old, b, _ uint64) uint64 {
			if uint32(old) >= uint32(b) {
				return 0
			}
			return old + 1
		}
		return nil
	case "dec":
		a.update = func(old, b, _ uint64) uint64 {
			if uint32(old) == 0 || uint32(old) > uint32(b) {
				return b
			}
			return old - 1
		}
		return nil
	}
	modifiers := []string{t.String()}
	found, err := arith.Lookup(name, modifiers)
	if err != nil {
		return fmt.Errorf("unsupported form: %w", err)
	}
	a.update = func(old, b, _ uint64) uint64 { return found.Func(old, b, 0, 0) }
	if name == "add" && t == ptx.F32 {
		flushing, err := arith.Lookup(name, []string{"ftz", "f32"})
		if err != nil {
			return err
		}
		a.flush = func(old, b, _ uint64) uint64 { return flushing.Func(old, b, 0, 0) }
	}
	return nil
}

func runAtomic(w *warp, o *op, mask uint32) {
	m := o.mem
	w.computeAddresses(m)
	w.beforeStrong(m, mask)
	w.counters.Atomics++
	changed := false
	w.inSpaces(m, mask, func(space ptx.Space, mask uint32) {
		update := m.atomic.update
		if space != ptx.Shared && m.atomic.flush != nil {
			update = m.atomic.flush
		}
		w.counters.Access(&w.addr, space, mask, m.bytes, mem.Update)
		for l := mask; l != 0; l &= l - 1 {
			lane := firstLane(l)
			data := w.accessLane(o, m, space, lane, mem.Update)
			weak := w.isWeak(space) && data != nil
			if weak {
				copy(w.value[:], data)
			}
			for i := range m.atomic.b {
				changed = w.updateElement(m, update, data, i, lane) || changed
			}
			if weak {
				w.overwrite(o, w.addr[lane], lane, w.value[:m.bytes], data)
			}
		}
	})
	w.afterStrong(m, mask, !changed)
	if changed {
		w.block.changes++
	}
}

// updateElement updates one element, and reports whether memory has changed.
func (w *warp) updateElement(m *memOp, update func(old, b, c uint64) uint64, data []byte, i, lane int) bool {
	a := m.atomic
	var old, high uint64
	if data != nil {
		old, high = readElement(data, m.size, i)
	}
	b := w.elementValue(a.b[i].slot, lane)
	c := uint64(0)
	if len(a.c) > 0 {
		c = w.elementValue(a.c[i].slot, lane)
	}
	if m.size == 16 {
		return w.updateWide(m, data, old, high, i, lane)
	}
	result := update(old, b, c)
	if data != nil {
		writeElement(data, m.size, i, result)
	}
	if len(a.dst) > 0 && a.dst[i].slot.file != noFile {
		w.set(a.dst[i].slot, lane, old)
	}
	return result != old
}

// updateWide is updateElement for exch and cas of 128 bits.
func (w *warp) updateWide(m *memOp, data []byte, low, high uint64, i, lane int) bool {
	a := m.atomic
	pair := func(s slot) (uint64, uint64) { return w.R64[s.index][lane], w.R64[s.index+1][lane] }
	bl, bh := pair(a.b[i].slot)
	newLow, newHigh := bl, bh
	if len(a.c) > 0 {
		newLow, newHigh = low, high
		if low == bl && high == bh {
			newLow, newHigh = pair(a.c[i].slot)
		}
	}
	if data != nil {
		binary.LittleEndian.PutUint64(data[16*i:], newLow)
		binary.LittleEndian.PutUint64(data[16*i+8:], newHigh)
	}
	if len(a.dst) > 0 && a.dst[i].slot.file == file64 {
		w.R64[a.dst[i].slot.index][lane], w.R64[a.dst[i].slot.index+1][lane] = low, high
	}
	return newLow != low || newHigh != high
}

func (w *warp) elementValue(s slot, lane int) uint64 {
	if s.file == file32 {
		return uint64(w.R32[s.index][lane])
	}
	return w.R64[s.index][lane]
}

func readElement(data []byte, size, i int) (low, high uint64) {
	switch size {
	case 2:
		return uint64(binary.LittleEndian.Uint16(data[2*i:])), 0
	case 4:
		return uint64(binary.LittleEndian.Uint32(data[4*i:])), 0
	case 8:
		return binary.LittleEndian.Uint64(data[8*i:]), 0
	}
	return binary.LittleEndian.Uint64(data[16*i:]), binary.LittleEndian.Uint64(data[16*i+8:])
}

func writeElement(data []byte, size, i int, value uint64) {
	switch size {
	case 2:
		binary.LittleEndian.PutUint16(data[2*i:], uint16(value))
	case 4:
		binary.LittleEndian.PutUint32(data[4*i:], uint32(value))
	case 8:
		binary.LittleEndian.PutUint64(data[8*i:], value)
	}
}
