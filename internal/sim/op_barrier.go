package sim

import (
	"fmt"
	"math/bits"
	"slices"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/order"
)

// syncOp is a synchronising operation, or one that the lanes of a warp execute together.
type syncOp struct {
	// Barriers.
	id, count slot // count is noFile where all threads take part
	aligned   bool
	wait      bool   // sync and red wait; arrive does not
	reduce    string // and, or, popc
	value     slot   // the predicate of a reduction or a vote
	not       bool   // value is negated; for redux: the values are signed
	dst       slot

	// Fences.
	wide    bool // it reaches other blocks
	total   bool // a fence that is part of one order of all such fences: fence.sc, membar
	release bool
	acquire bool

	// Collective operations between lanes.
	member     slot   // mask of the lanes that take part
	collective string // lanes at operations with the same string and mask take part in one operation
	kind       string // such as up or ballot
	a, b       slot
	mask       slot  // clamp and segment mask of a shuffle
	pair       int32 // predicate of the second result, or -1
	vote       int64 // the constant that is voted, where value has no file

	// Asynchronous copies and mbarriers.
	addr *memOp
	mbar mbarrierOp
	copy copyOp
	bulk *bulkOp

	tensorMap *tensorMapOp
}

// barrier is one of the 16 barriers of a block.
type barrier struct {
	active   bool
	count    int      // expected threads; 0 for all
	arrived  int      // threads, for messages
	lanes    []uint32 // that have arrived, by warp
	clock    order.Clock
	handover order.Handover
	first    position // of the first arrival
	waiters  []waiter
	met      []uint32 // the lanes of the last completion, if it was for some threads of the block

	popCount int // of the reductions
	all, any bool
}

// waiter is a group that waits at a barrier.
type waiter struct {
	warp  *warp
	group *laneGroup
	op    *op
}

// expected returns the number of threads that the barrier waits for.
func (bar *barrier) expected(b *block) int {
	if bar.count != 0 {
		return bar.count
	}
	return b.launch.threads[0] * b.launch.threads[1] * b.launch.threads[2]
}

// lowerBarrier lowers bar and barrier, except barrier.cluster.
func (c *code) lowerBarrier(in *ptx.Instruction, o *op) error {
	s := &syncOp{aligned: in.Opcode == "bar"}
	o.sync, o.class = s, count.Sync
	var rest []string
	for _, m := range in.Modifiers {
		switch m {
		case "cta":
		case "aligned":
			s.aligned = true
		default:
			rest = append(rest, m)
		}
	}
	if len(rest) == 0 {
		return fmt.Errorf("unsupported form")
	}
	switch rest[0] {
	case "warp":
		if !slices.Equal(rest, []string{"warp", "sync"}) || len(in.Operands) != 1 {
			return fmt.Errorf("unsupported form")
		}
		o.class = count.Warp
		return c.lowerMember(in, o, 0, runWarpSync)
	case "sync":
		s.wait = true
	case "arrive":
		if len(in.Operands) != 2 {
			return fmt.Errorf("it needs a barrier and a number of threads")
		}
	case "red":
		s.wait = true
		if len(rest) < 2 {
			return fmt.Errorf("unsupported form")
		}
		return c.lowerBarrierReduction(in, o, rest[1])
	default:
		return fmt.Errorf("unsupported form")
	}
	o.run = runBarrier
	return c.lowerBarrierOperands(s, in.Operands)
}

func (c *code) lowerBarrierOperands(s *syncOp, operands []ptx.Operand) error {
	if len(operands) < 1 || len(operands) > 2 {
		return fmt.Errorf("it has %d operands, want a barrier and perhaps a number of threads", len(operands))
	}
	var err error
	if s.id, err = c.source(operands[0], ptx.U32); err == nil && len(operands) == 2 {
		s.count, err = c.source(operands[1], ptx.U32)
	}
	return err
}

// lowerBarrierReduction lowers bar.red d, barrier {, threads}, {!}p.
func (c *code) lowerBarrierReduction(in *ptx.Instruction, o *op, what string) error {
	s := o.sync
	s.reduce = what
	n := len(in.Operands)
	if n < 3 || in.Operands[0].Kind != ptx.RegOperand {
		return fmt.Errorf("it has %d operands, want a result, a barrier and a predicate", n)
	}
	s.dst = c.regs[in.Operands[0].Register]
	if want := ptx.U32; s.dst.file == file64 || (s.dst.file == filePred) == (what == "popc") {
		return fmt.Errorf("its result is a .%s for popc and a predicate for and, or", want)
	}
	p := in.Operands[n-1]
	s.not = p.Negated
	p.Negated = false
	value, err := c.predicate(p)
	if err != nil {
		return err
	}
	s.value = value
	o.run = runBarrier
	return c.lowerBarrierOperands(s, in.Operands[1:n-1])
}

func runBarrier(w *warp, o *op, mask uint32) {
	s := o.sync
	mask, ready := w.gatherAligned(o, mask)
	if !ready {
		return
	}
	lane := firstLane(mask)
	id := int(w.R32[s.id.index][lane])
	threads := 0
	if s.count.file != noFile {
		threads = int(w.R32[s.count.index][lane])
	}
	if id >= len(w.block.barriers) || threads%32 != 0 {
		w.report(finding.BadBarrier, o, mask, func() string {
			return fmt.Sprintf("barrier %d for %d threads; there are barriers 0 to 15, and the number of threads must be a multiple of 32", id, threads)
		})
		return
	}
	w.detachRest(mask)
	w.counters.Barriers++
	w.block.arriveAt(id, threads, w, o, mask)
}

// arriveAt records the arrival of lanes of a warp at a barrier. Lanes that wait are halted until
// the barrier completes. threads is the number that it is for; 0 for all.
func (b *block) arriveAt(id, threads int, w *warp, o *op, mask uint32) {
	bar := &b.barriers[id]
	if !bar.active {
		*bar = barrier{active: true, count: threads, lanes: make([]uint32, len(b.warps)), clock: b.newClock(), first: positionOf(w, o), all: true, met: bar.met}
	}
	if bar.count != threads {
		w.reportPair(finding.BadBarrier, o, bar.first, mask, func() string {
			return fmt.Sprintf("barrier %d is for %d threads here and for %d elsewhere (0 means all)", id, threads, bar.count)
		})
	}
	if twice := bar.lanes[w.index] & mask; twice != 0 {
		w.reportPair(finding.BadBarrier, o, bar.first, twice, func() string {
			return fmt.Sprintf("arrives at barrier %d a second time before it completes", id)
		})
	}
	b.changes++
	bar.lanes[w.index] |= mask
	bar.arrived += bits.OnesCount32(mask)
	if b.launch.options.Checks {
		w.clocks.Publish(&bar.clock, mask, w.alive)
		w.fences.HandOver(&w.clocks, &bar.handover, mask)
	}
	bar.reduce(w, o, mask)
	if o.sync.wait {
		w.save() // completing the barrier uses the lanes of the saved group
		w.group.wait = &wait{kind: waitBarrier, op: o, id: id}
		w.halted = true
		bar.waiters = append(bar.waiters, waiter{w, w.group, o})
	}
	b.completeIfReady(id, w, o)
}

// reduce adds the predicates of lanes to the reduction.
func (bar *barrier) reduce(w *warp, o *op, mask uint32) {
	s := o.sync
	if s.reduce == "" {
		return
	}
	p := w.Preds[s.value.index]
	if s.not {
		p = ^p
	}
	bar.popCount += bits.OnesCount32(p & mask)
	bar.all = bar.all && p&mask == mask
	bar.any = bar.any || p&mask != 0
}

// completeIfReady lets the waiting groups continue if all expected threads have arrived. w and o
// are the last arrival, or nil.
func (b *block) completeIfReady(id int, w *warp, o *op) {
	bar := &b.barriers[id]
	if !bar.active || !b.isComplete(bar, w, o) {
		return
	}
	exited := b.exitedFor(bar)
	for _, s := range bar.waiters {
		s.warp.exited |= exited
		if b.launch.options.Checks {
			s.warp.clocks.Learn(&bar.clock, s.group.lanes, s.warp.alive)
			if s.group.lanes == s.warp.alive {
				s.warp.clocks.Reunite()
			}
			s.warp.fences.TakeOver(&s.warp.clocks, &bar.handover, s.group.lanes, s.warp.alive)
		}
		bar.result(s)
		s.group.wait = nil
		if s.warp.group == s.group {
			s.warp.halted = false
		}
	}
	b.changes++
	bar.active = false
	if bar.count != 0 {
		if bar.met != nil && !slices.Equal(bar.met, bar.lanes) {
			b.launch.sharesBarrier.Store(true)
		}
		bar.met = bar.lanes
	}
}

// exitedFor returns the warps that count towards a barrier of all threads because they have ended. PTX
// gives the barrier no meaning for what they did. Hardware completes their accesses first.
func (b *block) exitedFor(bar *barrier) (warps uint32) {
	if bar.count != 0 {
		return 0
	}
	for i, w := range b.warps {
		if w.alive == 0 && bar.lanes[i] == 0 {
			warps |= 1 << i
		}
	}
	return warps
}

// isComplete reports whether all expected threads have arrived. Ended threads are not expected.
func (b *block) isComplete(bar *barrier, w *warp, o *op) bool {
	here, missing := 0, false
	for i, other := range b.warps {
		if other.alive == 0 && bar.lanes[i] == 0 {
			continue
		}
		if bar.lanes[i]&other.alive == other.alive && bar.lanes[i] != 0 {
			here += 32
		} else {
			missing = true
		}
	}
	if bar.count == 0 {
		return !missing && here > 0
	}
	if here > bar.count && w != nil {
		w.reportPair(finding.BadBarrier, o, bar.first, w.lanes, func() string {
			return fmt.Sprintf("%d threads have arrived at a barrier for %d", here, bar.count)
		})
	}
	return here >= bar.count
}

// result gives a waiter the result of the reduction.
func (bar *barrier) result(s waiter) {
	value := uint32(0)
	switch s.op.sync.reduce {
	case "":
		return
	case "popc":
		value = uint32(bar.popCount)
	case "and":
		value = boolBit(bar.all)
	case "or":
		value = boolBit(bar.any)
	}
	f := s.group.frame
	d := s.op.sync.dst
	for m := s.group.lanes; m != 0; m &= m - 1 {
		lane := firstLane(m)
		if d.file == filePred {
			f.Preds[d.index] = f.Preds[d.index]&^(1<<lane) | value<<lane
		} else {
			f.R32[d.index][lane] = value
		}
	}
}

func boolBit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// checkBarriers checks every barrier again, after threads have ended.
func (b *block) checkBarriers() {
	for id := range b.barriers {
		b.completeIfReady(id, nil, nil)
	}
}
