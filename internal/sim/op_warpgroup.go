package sim

import (
	"fmt"
	"strings"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/mma"
	"attune/internal/sim/order"
)

// groupWarps is the number of warps of a warpgroup.
const groupWarps = order.GroupWarps

// warpgroup is four warps that execute the same sequence of warpgroup instructions, each at its own
// speed. The instructions are compared one by one. A wait for a product lasts until all four warps
// have started it.
type warpgroup struct {
	steps []groupStep
	base  int // number of steps before these, which all warps have executed

	ended [endedReads]endedRead // the last Bs whose reads have ended, by their steps

	diverged bool // the warps do different things, which has been reported; they are not compared any more
}

// endedReads is more than the products that warps have in flight together.
const endedReads = 32

// endedRead is a B that a product has read.
type endedRead struct {
	step int
	b    *tile
}

// groupStep is an instruction that all warps of a warpgroup must execute alike.
type groupStep struct {
	op        *op
	a, b      mma.Descriptor
	add       bool
	registers int // of setmaxnreg
}

func (w *warp) warpgroup() *warpgroup { return &w.block.warpgroups[w.index/groupWarps] }

// siblings returns the warps of the warpgroup.
func (w *warp) siblings() []*warp {
	first := w.index / groupWarps * groupWarps
	return w.block.warps[first:min(first+groupWarps, len(w.block.warps))]
}

// gatherForWarpgroup checks that all lanes of the warp execute a warpgroup instruction, and reports
// whether it can be executed now.
func (w *warp) gatherForWarpgroup(o *op, mask uint32) bool {
	if mask == everyLane {
		return true
	}
	mask, ready := w.gatherWarp(o, mask)
	if ready && mask != everyLane {
		w.report(finding.DivergentBarrier, o, mask, func() string {
			return fmt.Sprintf("only %s of the warp execute an instruction that all lanes of four warps must execute together", lanesText(mask))
		})
		w.warpgroup().diverged = true
	}
	return ready
}

// takeStep records that the warp executes an instruction of its warpgroup, compares it with that of
// the other warps, and returns its number.
func (w *warp) takeStep(o *op, s groupStep) int {
	g, n := w.warpgroup(), w.wgmma.steps
	w.wgmma.steps++
	w.block.changes++
	if n < g.base+len(g.steps) {
		w.compareStep(o, s, g.steps[n-g.base])
	} else {
		g.steps = append(g.steps, s)
	}
	for _, other := range w.siblings() {
		if other.alive == 0 && other.wgmma.steps <= n {
			w.reportDivergence(o, position{}, fmt.Sprintf("warp %d has ended without it", other.index))
		}
	}
	if n := len(w.siblings()); n < groupWarps {
		w.reportDivergence(o, position{}, fmt.Sprintf("this one has %d", n))
	}
	w.dropSteps(g)
	w.wakeWarpgroup()
	return n
}

// reportDivergence reports, once, that the warps of the warpgroup do not do the same.
func (w *warp) reportDivergence(o *op, other position, why string) {
	if g := w.warpgroup(); !g.diverged {
		g.diverged = true
		w.reportPair(finding.DivergentBarrier, o, other, everyLane, func() string {
			return "the four warps of a warpgroup must execute the instruction together, but " + why
		})
	}
}

func (w *warp) compareStep(o *op, s, first groupStep) {
	switch {
	case s.registers > 0 && s.registers == first.registers:
		// Compilers give each branch of a warp-specialised kernel its own setmaxnreg. The chip
		// compares the counts, not the places in the code.
	case s.op != first.op:
		w.reportDivergence(o, positionOf(w, first.op), "another warp executes a different one")
	case s != first && !w.warpgroup().diverged:
		w.report(finding.Undefined, o, w.lanes, func() string { return "the warps of a warpgroup have different descriptors or scale-d" })
	}
}

// dropSteps drops the steps that all warps have executed, once there are many.
func (w *warp) dropSteps(g *warpgroup) {
	const many = 64
	if len(g.steps) < many {
		return
	}
	least := g.base + len(g.steps)
	for _, other := range w.siblings() {
		if other.alive != 0 {
			least = min(least, other.wgmma.steps)
		}
	}
	g.steps = append(g.steps[:0], g.steps[least-g.base:]...)
	g.base = least
}

// allHaveTaken reports whether all warps of the warpgroup that are left have executed a step. Warps
// that have diverged do not wait for each other.
func (w *warp) allHaveTaken(step int) bool {
	if w.warpgroup().diverged {
		return true
	}
	for _, other := range w.siblings() {
		if other.alive != 0 && other.wgmma.steps <= step {
			return false
		}
	}
	return true
}

// wakeWarpgroup lets the warps of the warpgroup check again whether all have started a product.
func (w *warp) wakeWarpgroup() {
	for _, other := range w.siblings() {
		other.wake(waitWarpgroup)
	}
}

// endInWarpgroup checks the end of a warp.
func (w *warp) endInWarpgroup() {
	if w.wgmma.steps == 0 && len(w.warpgroup().steps) == 0 {
		return
	}
	if len(w.wgmma.open) > 0 {
		w.add(unwaited, w.wgmma.open[0].op, position{}, everyLane, func() string { return "ends while a wgmma.mma_async is in flight" })
		w.wgmma.open = nil
	}
	if g := w.warpgroup(); w.wgmma.steps < g.base+len(g.steps) {
		w.reportDivergence(g.steps[max(w.wgmma.steps-g.base, 0)].op, position{}, fmt.Sprintf("warp %d has ended without it", w.index))
	}
	w.wakeWarpgroup()
}

// Registers that warps pass to each other.
//
// A block keeps the registers that it was launched with, and setmaxnreg moves them between its
// warps. .dec releases registers, and .inc waits until there are enough. Only the compiler knows
// how many registers a thread has at launch. For setmaxnreg to have an effect the PTX must
// determine the number, by .maxnreg or by .maxntid and .minnctapersm. With the latter two the
// compiler uses as many as fit.

const (
	chipRegisters = 64 << 10 // of a multiprocessor
	maxRegisters  = 255      // of a thread
)

// registersAtLaunch returns the number of registers that a thread of a kernel has at launch; 0
// where the PTX does not determine it.
func registersAtLaunch(f *ptx.Function) int {
	if f.MaxRegisters > 0 {
		return f.MaxRegisters
	}
	threads := f.MaxThreads[0] * max(f.MaxThreads[1], 1) * max(f.MaxThreads[2], 1)
	if threads == 0 || f.MinBlocks == 0 {
		return 0
	}
	return min(chipRegisters/(threads*f.MinBlocks)/8*8, maxRegisters)
}

// lowerMaxRegisters lowers setmaxnreg.inc and .dec.
func (c *code) lowerMaxRegisters(in *ptx.Instruction, o *op) error {
	if err := c.requireHopper("setmaxnreg"); err != nil {
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
	o.class = count.Sync
	o.run = func(w *warp, o *op, mask uint32) {
		if !w.gatherForWarpgroup(o, mask) || !w.setRegisters(o, n) {
			return
		}
		w.takeStep(o, groupStep{op: o, registers: n})
	}
	return nil
}

// setRegisters gives a warp n registers per thread. It halts the warp and returns false if they are
// not available yet.
func (w *warp) setRegisters(o *op, n int) bool {
	b := w.block
	if w.registers == 0 {
		return true
	}
	more := (n - w.registers) * 32
	if more > b.freeRegisters {
		w.halt(wait{kind: waitRegisters, op: o, id: more - b.freeRegisters})
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
