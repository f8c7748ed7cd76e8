package sim

import (
	"fmt"
	"strings"

	"attune/internal/ptx"
)

// Registers that warps hand to each other.
//
// A block has as many registers as it was launched with, and setmaxnreg moves them between its warps: .dec gives some back, .inc waits until
// there are enough. How many a thread has at the launch, only the compiler knows; but where setmaxnreg is to count it must have been told, by .maxnreg or by
// .maxntid and .minnctapersm, of which it then makes the most.

const (
	chipRegisters = 64 << 10 // of a multiprocessor
	mostRegisters = 255      // of a thread
)

// registersAtLaunch is how many registers a thread of a kernel begins with; 0 where the PTX does not say.
func registersAtLaunch(f *ptx.Function) int {
	if f.MaxRegisters > 0 {
		return f.MaxRegisters
	}
	threads := f.MaxThreads[0] * max(f.MaxThreads[1], 1) * max(f.MaxThreads[2], 1)
	if threads == 0 || f.MinBlocks == 0 {
		return 0
	}
	return min(chipRegisters/(threads*f.MinBlocks)/8*8, mostRegisters)
}

// lowerMaxRegisters is setmaxnreg.inc or .dec.
func (c *code) lowerMaxRegisters(in *ptx.Instruction, o *op) error {
	if err := c.wantsHopper("setmaxnreg"); err != nil {
		return err
	}
	words := strings.Join(in.Modifiers, ".")
	if words != "inc.sync.aligned.u32" && words != "dec.sync.aligned.u32" || len(in.Operands) != 1 || in.Operands[0].Kind != ptx.ImmOperand {
		return fmt.Errorf("unsupported form")
	}
	n := int(in.Operands[0].Value)
	if n < 24 || n > 256 || n%8 != 0 {
		return fmt.Errorf("%d registers; it takes a multiple of 8 from 24 to 256", n)
	}
	o.class = classSync
	o.run = func(w *warp, o *op, mask uint32) {
		if !w.wholeInGroup(o, mask) || !w.setRegisters(o, n) {
			return
		}
		w.takeStep(o, groupStep{op: o})
	}
	return nil
}

// setRegisters gives a warp n registers a thread, or lets it wait for them.
func (w *warp) setRegisters(o *op, n int) bool {
	b := w.block
	if w.registers == 0 {
		return true // nobody knows
	}
	more := (n - w.registers) * 32
	if more > b.freeRegisters {
		w.halt(wait{what: waitRegisters, op: o, id: more - b.freeRegisters})
		return false
	}
	b.freeRegisters -= more
	w.registers = n
	if more < 0 {
		b.changes++
		for _, other := range b.warps {
			other.wake(waitRegisters)
		}
	}
	return true
}
