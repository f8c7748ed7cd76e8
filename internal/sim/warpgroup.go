package sim

import (
	"fmt"

	"attune/internal/sim/mma"
)

// groupWarps is how many warps a warpgroup has.
const groupWarps = 4

// warpgroup is four warps that execute the same instructions on matrices, each in its own time. Their steps are compared one by one; a wait for a product
// lasts until all four have begun it.
type warpgroup struct {
	steps []groupStep
	base  int // steps before these, which all warps have taken

	parted bool // one of them does something else, which has been told; they are not compared any more
}

// groupStep is an instruction that the warps of a warpgroup execute alike.
type groupStep struct {
	op   *op
	a, b mma.Descriptor
	add  bool
}

// warpgroup is that of a warp.
func (w *warp) warpgroup() *warpgroup { return &w.block.warpgroups[w.index/groupWarps] }

// siblings are the warps of the warpgroup.
func (w *warp) siblings() []*warp {
	first := w.index / groupWarps * groupWarps
	return w.block.warps[first:min(first+groupWarps, len(w.block.warps))]
}

// wholeInGroup checks that all lanes of the warp take part in an operation of its warpgroup, and says whether it can be done now.
func (w *warp) wholeInGroup(o *op, mask uint32) bool {
	if mask == everyLane {
		return true
	}
	mask, all := w.assemble(o, mask)
	if all && mask != everyLane {
		w.report(DivergentBarrier, o, mask, func() string {
			return fmt.Sprintf("only %s of the warp are here, and the instruction is for all lanes of four warps together", lanesText(mask))
		})
		w.warpgroup().parted = true
	}
	return all
}

// takeStep notes that the warp has executed an instruction of its warpgroup, compares it with what the others have executed, and gives its number.
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
			w.part(o, spot{}, fmt.Sprintf("warp %d has ended without it", other.index))
		}
	}
	if n := len(w.siblings()); n < groupWarps {
		w.part(o, spot{}, fmt.Sprintf("this one has %d", n))
	}
	w.forgetSteps(g)
	w.wakeGroup()
	return n
}

// part reports, once, that the warps of the warpgroup do not do the same.
func (w *warp) part(o *op, other spot, why string) {
	if g := w.warpgroup(); !g.parted {
		g.parted = true
		w.reportPair(DivergentBarrier, o, other, everyLane, func() string {
			return "the instruction is for the four warps of a warpgroup together, and " + why
		})
	}
}

func (w *warp) compareStep(o *op, s, first groupStep) {
	switch {
	case s.op != first.op:
		w.part(o, spotOf(w, first.op), "another warp executes another one")
	case s != first && !w.warpgroup().parted:
		w.report(Undefined, o, w.lanes, func() string { return "the warps of a warpgroup have different descriptors or scale-d" })
	}
}

// forgetSteps drops the steps that all warps have taken, now and then.
func (w *warp) forgetSteps(g *warpgroup) {
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

// groupHasTaken says whether all warps of the warpgroup that are left have taken a step. Those that do not do the same do not wait for each other.
func (w *warp) groupHasTaken(step int) bool {
	if w.warpgroup().parted {
		return true
	}
	for _, other := range w.siblings() {
		if other.alive != 0 && other.wgmma.steps <= step {
			return false
		}
	}
	return true
}

// wakeGroup lets the warps of the warpgroup look again whether all have come.
func (w *warp) wakeGroup() {
	for _, other := range w.siblings() {
		other.wake(waitWarpgroup)
	}
}

// wake lets the groups of a warp that wait for something look again.
func (w *warp) wake(what waitKind) {
	wake := func(g *group) {
		if g.wait != nil && g.wait.what == what {
			g.wait = nil
		}
	}
	if w.group != nil {
		wake(w.group)
	}
	for _, g := range w.groups {
		wake(g)
	}
}

// leaveGroup is the end of a warp.
func (w *warp) leaveGroup() {
	if w.wgmma.steps == 0 && len(w.warpgroup().steps) == 0 {
		return
	}
	if len(w.wgmma.open) > 0 {
		w.report(MissingWait, w.wgmma.open[0].op, everyLane, func() string { return "ends while a wgmma.mma_async is under way" })
		w.wgmma.open = nil
	}
	if g := w.warpgroup(); w.wgmma.steps < g.base+len(g.steps) {
		w.part(g.steps[max(w.wgmma.steps-g.base, 0)].op, spot{}, fmt.Sprintf("warp %d has ended without it", w.index))
	}
	w.wakeGroup()
}
