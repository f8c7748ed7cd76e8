package sim

import (
	"math/bits"
	"slices"

	"attune/internal/coverage"
	"attune/internal/sim/count"
	"attune/internal/sim/lanes"
	"attune/internal/sim/mem"
	"attune/internal/sim/order"
)

const everyLane = lanes.All

// firstLane returns the lowest lane of a mask.
func firstLane(mask uint32) int { return bits.TrailingZeros32(mask) }

// warp is 32 lanes with their registers.
//
// The lanes that are converged at one instruction are a lane group. Most of the time a warp is one
// group, whose state is in the fields below. The other groups of a diverged warp are in a list.
type warp struct {
	block *block
	index int
	alive uint32 // lanes that exist and have not ended
	isNew bool   // it has not run yet

	// The running group.
	group    *laneGroup
	pc       int32
	lanes    uint32 // of the group
	frame    *frame
	reconv   *reconvergencePoint
	reconvPC int32 // reconv.pc if that is in the running frame, else -1

	// The running frame.
	ops     []op
	laneOps []lanes.Op
	lanes.Registers
	carry uint32
	taint *taint // of the frame; nil where no register is tainted

	groups []*laneGroup // all groups except the running one
	halted bool         // the running group cannot continue now

	participants []participant // of the collective operation that runs

	clocks       order.Warp
	fences       order.Fences
	copies       copyQueue
	wgmma        productQueue
	bulk         bulkQueue
	inits        initializations
	registers    int        // per thread, for setmaxnreg; 0 where unknown
	clusterPhase [32]uint64 // phase of the cluster barrier that each lane has arrived in, plus 1; 0 for none

	mats          matrices
	counters      count.Counters
	shuffled      shuffleSources // of the last shuffle of the whole warp
	local         [32]mem.Local
	value         [256]byte // the bytes that a lane stores
	window        window    // of the load or the store that runs (window.go)
	zeros         [32]byte
	polledBarrier *mbarrier   // that the last unsuccessful wait was for
	waits         bool        // a wait has failed in this time slice, and ends it: another warp must come first
	lastBuffer    *mem.Buffer // of the last access to global memory; the next is likely to be to the same
	lastTexture   namedTexture
	addr          lanes.V64 // addresses of an access, for the memory operations
	warpAddr      uint64    // address of an access that several lanes make together
	sharing       uint32    // these lanes; everyLane for the whole group
	whole         bool      // all lanes that are left make the access that runs
	retired       uint64    // instructions
	exited        uint32    // warps that had ended when a barrier completed that this one has waited at
	lastClock     uint64
}

// laneGroup is a set of converged lanes.
type laneGroup struct {
	pc     int32
	lanes  uint32
	frame  *frame
	reconv *reconvergencePoint
	wait   *wait // nil for a runnable group

	polls   int    // unsuccessful polls since anything changed
	pollsAt uint64 // value of block.changes at the last poll

	partial bool // it executes operations of the whole warp without the missing lanes
}

// wait is why a group cannot continue.
type wait struct {
	kind    waitKind
	op      *op
	member  uint32 // lanes that a collective operation needs
	id      int    // of a barrier; for waitRegisters the number of missing registers
	aligned bool   // the operation is one of the whole warp
}

type waitKind uint8

const (
	waitLanes     waitKind = iota // for other lanes of the warp at the same instruction
	waitBarrier                   // for other warps
	waitWarpgroup                 // for the other warps of the warpgroup to start a product
	waitCluster                   // for other blocks
	waitRegisters                 // for other warps to release registers
)

// reconvergencePoint is where groups that diverged at a branch reconverge.
type reconvergencePoint struct {
	pc       int32
	frame    *frame
	expected uint32 // lanes that will arrive
	arrived  uint32 // lanes that have arrived and wait
	outer    *reconvergencePoint
}

// takeArrived makes a group of the lanes that have arrived, and leaves none.
func (r *reconvergencePoint) takeArrived() *laneGroup {
	g := &laneGroup{pc: r.pc, lanes: r.arrived, frame: r.frame, reconv: r.outer}
	r.arrived = 0
	return g
}

// frame is a call of a function.
type frame struct {
	lanes.Registers
	code   *code
	params []byte // variables of space .param, lane by lane
	local  int    // address of its local variables
	caller *frame
	back   int32 // instruction to return to
	call   *controlOp

	taint    *taint          // registers with uninitialised values; nil for none so far
	products []asyncRegister // state of the 32-bit registers; nil where no wgmma.mma_async uses any
}

// localGap separates the local variables of a function from each other, and those of a caller from
// those of a callee, in bytes.
const localGap = 64

// newFrame makes a frame of a call, or of the entry function where there is no caller.
func (w *warp) newFrame(c *code, caller *frame) *frame {
	t := w.block.launch.tails[c]
	f := &frame{
		Registers: lanes.Registers{R32: make([]lanes.V32, c.n32), R64: make([]lanes.V64, c.n64), Preds: make([]uint32, c.nPred)},
		code:      c, caller: caller, params: make([]byte, 32*c.paramSize),
	}
	if len(c.products) > 0 {
		f.products = make([]asyncRegister, c.n32)
	}
	if caller != nil {
		f.local = mem.AlignUp(caller.local+caller.code.localSize+localGap, max(c.localAlign, 16))
	}
	copy(f.R32[c.tail32:], t.t32)
	copy(f.R64[c.tail64:], t.t64)
	for _, k := range c.constants {
		if k.base == baseLocal {
			for lane := range 32 {
				f.setLane(k.slot, lane, k.value+uint64(f.local))
			}
		}
	}
	if caller != nil {
		w.fillSpecials(f)
	}
	return f
}

// setLane writes a value to a register in one lane. It does nothing for a slot without a file.
func (f *frame) setLane(s slot, lane int, value uint64) {
	switch s.file {
	case file32:
		f.R32[s.index][lane] = uint32(value)
	case file64:
		f.R64[s.index][lane] = value
	case filePred:
		f.Preds[s.index] = f.Preds[s.index]&^(1<<lane) | uint32(value&1)<<lane
	}
}

// lane reads a register in one lane.
func (f *frame) lane(s slot, lane int) uint64 {
	switch s.file {
	case file32:
		return uint64(f.R32[s.index][lane])
	case filePred:
		return uint64(f.Preds[s.index] >> lane & 1)
	}
	return f.R64[s.index][lane]
}

// load makes a group the running one.
func (w *warp) load(g *laneGroup) {
	w.group, w.pc, w.lanes, w.reconv = g, g.pc, g.lanes, g.reconv
	w.enter(g.frame)
	w.setReconvPC()
	w.halted = false
}

// enter makes a frame the running one.
func (w *warp) enter(f *frame) {
	w.frame, w.ops, w.laneOps, w.Registers, w.taint = f, f.code.ops, f.code.laneOps, f.Registers, f.liveTaint()
}

func (w *warp) setReconvPC() {
	w.reconvPC = -1
	if w.reconv != nil && w.reconv.frame == w.frame {
		w.reconvPC = w.reconv.pc
	}
}

// save stores the state of the running group in its laneGroup.
func (w *warp) save() {
	g := w.group
	g.pc, g.lanes, g.frame, g.reconv = w.pc, w.lanes, w.frame, w.reconv
}

// run runs the warp for a number of instructions, or until none of its groups can continue.
func (w *warp) run(slice int) {
	w.waits = false
	for slice > 0 {
		if w.group == nil && !w.next() {
			return
		}
		slice = w.runGroup(slice)
		if w.group == nil {
			continue
		}
		w.save()
		if w.halted || len(w.groups) > 0 {
			// The next group runs even where this one could continue: it may wait for the other in
			// a loop.
			w.groups = append(w.groups, w.group)
			w.group = nil
		}
		if w.block.stopped() || w.block.yielded || w.waits {
			return
		}
	}
}

// groupSlice bounds the time slice of a group of a diverged warp, in instructions. A group that
// waits in a loop for other lanes of its warp must not keep them from running.
const groupSlice = 4096

// runGroup runs the running group, and returns how many instructions of the time slice are left.
func (w *warp) runGroup(slice int) int {
	budget := slice
	if len(w.groups) > 0 {
		budget = min(budget, groupSlice)
	}
	left := budget
	marks, executed := w.block.marks, w.block.executed
	for left > 0 {
		if w.pc == w.reconvPC {
			w.reconverge()
			if w.group == nil {
				break
			}
			continue
		}
		o := &w.ops[w.pc]
		if n := w.runnableRun(o, left); n > 0 {
			marks.add(o, coverage.Ran) // of the whole run
			for i := range executed[min(int(o.number), len(executed)):min(int(o.number)+n, len(executed))] {
				executed[int(o.number)+i]++
			}
			w.runLaneOps(o, n)
			left -= n
			continue
		}
		w.pc++
		mask := w.lanes
		if o.guard >= 0 {
			p := w.Preds[o.guard]
			if o.guardNot {
				p = ^p
			}
			if mask &= p; mask != w.lanes {
				marks.add(o, coverage.Skipped)
			}
		}
		left--
		if w.taint != nil {
			w.passTaint(o, mask)
		}
		if mask == 0 {
			continue
		}
		w.counters.Instruction(o.class)
		marks.add(o, coverage.Ran)
		if len(executed) > 0 {
			executed[o.number]++
		}
		o.run(w, o, mask)
		if w.block.held.Any() {
			w.block.held.Unlock()
		}
		if w.halted || w.waits || w.group == nil || w.block.launch.halt.Load() { // one instruction may take long
			break
		}
		if o.mem != nil && o.mem.yields && w.block.yieldsAfterAccess() {
			break
		}
	}
	w.retired += uint64(budget - left)
	return slice - (budget - left)
}

// next makes the first runnable group the running one.
func (w *warp) next() bool {
	for i, g := range w.groups {
		if g.wait == nil {
			w.groups = append(w.groups[:i], w.groups[i+1:]...)
			w.load(g)
			return true
		}
	}
	return false
}

// runnable reports whether any group can continue.
func (w *warp) runnable() bool {
	if w.group != nil {
		return true
	}
	for _, g := range w.groups {
		if g.wait == nil {
			return true
		}
	}
	return false
}

// halt stops the running group at its current operation, which it will execute again.
func (w *warp) halt(reason wait) {
	w.pc--
	w.group.wait = &reason
	w.halted = true
}

// wake lets the groups that wait for something check their condition again.
func (w *warp) wake(kind waitKind) {
	wake := func(g *laneGroup) {
		if g.wait != nil && g.wait.kind == kind {
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

// diverge splits the running group. The taken lanes continue at target, the others at the next
// instruction. Both reconverge at reconvPC.
func (w *warp) diverge(taken uint32, target, reconvPC int32) {
	rest := w.lanes &^ taken
	w.setReconvergence(reconvPC)
	other := &laneGroup{pc: w.pc, lanes: rest, frame: w.frame, reconv: w.reconv}
	w.lanes, w.pc = taken, target
	if w.block.coinFlip() { // either side may run first
		other.pc, other.lanes, w.pc, w.lanes = w.pc, w.lanes, other.pc, other.lanes
	}
	w.groups = append(w.groups, other)
}

// detachRest lets the lanes of the running group that are not in the mask continue as their own
// group.
func (w *warp) detachRest(mask uint32) {
	if rest := w.lanes &^ mask; rest != 0 {
		w.groups = append(w.groups, &laneGroup{pc: w.pc, lanes: rest, frame: w.frame, reconv: w.reconv})
		w.lanes = mask
	}
}

// setReconvergence makes an instruction the reconvergence point of the running group and of the
// groups that split from it.
func (w *warp) setReconvergence(pc int32) {
	if w.reconv == nil || w.reconv.frame != w.frame || w.reconv.pc != pc {
		w.reconv = &reconvergencePoint{pc: pc, frame: w.frame, expected: w.lanes, outer: w.reconv}
		w.setReconvPC()
	}
}

// reconverge handles the arrival of the running group at its reconvergence point. The group waits
// for the missing lanes there, or continues together with them.
func (w *warp) reconverge() {
	r := w.reconv
	if r.expected == w.lanes {
		w.reconv = r.outer
		w.setReconvPC()
		return
	}
	r.arrived |= w.lanes
	w.group = nil
	if r.arrived == r.expected {
		w.load(r.takeArrived())
	}
}

// end ends lanes of the running group.
func (w *warp) end(mask uint32) {
	w.alive &^= mask
	w.lanes &^= mask
	w.clocks.EndLanes(mask)
	w.dropFromReconvergence(mask)
	if w.lanes == 0 {
		w.group = nil
	}
	w.retryCollectives()
	w.block.lanesEnded(w)
}

// reconvergencePoints lists the points that any group of the warp will reach, inner ones first.
func (w *warp) reconvergencePoints() []*reconvergencePoint {
	var list []*reconvergencePoint
	visit := func(r *reconvergencePoint) {
		for ; r != nil && !slices.Contains(list, r); r = r.outer {
			list = append(list, r)
		}
	}
	if w.group != nil {
		visit(w.reconv)
	}
	for _, g := range w.groups {
		visit(g.reconv)
	}
	return list
}

// dropFromReconvergence removes ended lanes from every reconvergence point. Lanes that waited only
// for them continue.
func (w *warp) dropFromReconvergence(mask uint32) {
	for _, r := range w.reconvergencePoints() {
		r.expected &^= mask
		r.arrived &^= mask
		if r.arrived != 0 && r.arrived == r.expected {
			w.groups = append(w.groups, r.takeArrived())
		}
	}
}

// releaseArrived lets lanes continue that wait at a reconvergence point for lanes which may be
// waiting for them. PTX guarantees independent progress of the threads of a warp. It reports
// whether there were any.
func (w *warp) releaseArrived() bool {
	found := false
	for _, r := range w.reconvergencePoints() {
		if r.arrived != 0 {
			r.expected &^= r.arrived
			w.groups = append(w.groups, r.takeArrived())
			found = true
		}
	}
	return found
}

// retryCollectives lets groups that wait for other lanes check again, after lanes have ended.
func (w *warp) retryCollectives() {
	for _, g := range w.groups {
		if g.wait != nil && g.wait.kind == waitLanes {
			g.wait = nil
		}
	}
}
