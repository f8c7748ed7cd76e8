package sim

import (
	"fmt"
	"math/bits"
	"slices"

	"attune/internal/ptx"
)

// syncOp is an operation of synchronisation, or one that the lanes of a warp do together.
type syncOp struct {
	id, count slot // of a barrier; count is noFile where all threads take part
	aligned   bool
	wait      bool   // sync and red wait; arrive does not
	reduce    string // and, or, popc
	value     slot   // the predicate that a reduction is over
	not       bool
	dst       slot

	wide    bool   // a fence that reaches other blocks too
	publish bool   // a fence that releases
	heed    bool   // a fence that acquires
	member  slot   // mask of the lanes that take part
	meeting string // operations with the same are one for lanes that come to them with the same mask
	kind    string
	a, b    slot
	mask    slot // clamp and segment mask of a shuffle
	pair    int32

	addr  *memOp
	mbar  mbarrierOp
	copy  copyOp
	bulk  *bulkOp
	extra int64
}

// barrier is one of the sixteen barriers of a block.
type barrier struct {
	active   bool
	count    int // threads that are wanted; 0 for all
	arrived  int // threads, for messages
	lanes    []uint32
	clock    clock
	first    spot
	pop      int
	all, any bool
	passed   passedOn
	sleepers []sleeper
}

// sleeper is a group that waits at a barrier.
type sleeper struct {
	warp  *warp
	group *group
	op    *op
}

func (bar *barrier) wanted(b *block) int {
	if bar.count != 0 {
		return bar.count
	}
	return b.launch.threads[0] * b.launch.threads[1] * b.launch.threads[2]
}

// lowerBarrier turns bar and barrier into operations.
func (c *code) lowerBarrier(in *ptx.Instruction, o *op) error {
	s := &syncOp{aligned: in.Opcode == "bar"}
	o.sync, o.class = s, classSync
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
		o.class = classWarp
		return c.lowerMember(in, o, 0, runWarpSync)
	case "sync":
		s.wait = true
	case "arrive":
		if len(in.Operands) != 2 {
			return fmt.Errorf("it wants a barrier and a number of threads")
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

// lowerBarrierReduction is bar.red: d, barrier {, threads}, {!}p.
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
	if s.aligned {
		var all bool
		if mask, all = w.assemble(o, mask); !all {
			return
		}
	}
	if s.aligned && mask != w.alive {
		w.report(DivergentBarrier, o, mask, func() string {
			return fmt.Sprintf("%s of the warp are here; the barrier is for all lanes that are left (%#08x) together", lanesText(mask), w.alive)
		})
	}
	lane := firstLane(mask)
	id := int(w.r32[s.id.index][lane])
	count := 0
	if s.count.file != noFile {
		count = int(w.r32[s.count.index][lane])
	}
	if id >= len(w.block.barriers) || count%32 != 0 {
		w.report(BadBarrier, o, mask, func() string {
			return fmt.Sprintf("barrier %d for %d threads; there are barriers 0 to 15, and threads come by 32", id, count)
		})
		return
	}
	w.leaveRest(mask)
	w.count.Barriers++
	w.block.arriveAt(id, count, w, o, mask)
}

// leaveRest lets the lanes of the group that do not take part in an operation go on by themselves.
func (w *warp) leaveRest(mask uint32) {
	if rest := w.lanes &^ mask; rest != 0 {
		w.groups = append(w.groups, &group{pc: w.pc, lanes: rest, frame: w.frame, join: w.join})
		w.lanes = mask
	}
}

// arriveAt brings lanes of a warp to a barrier; those that wait sleep until it opens.
func (b *block) arriveAt(id, count int, w *warp, o *op, mask uint32) {
	bar := &b.barriers[id]
	if !bar.active {
		*bar = barrier{active: true, count: count, lanes: make([]uint32, len(b.warps)), clock: b.newClock(), first: spotOf(w, o), all: true}
	}
	if bar.count != count {
		w.reportPair(BadBarrier, o, bar.first, mask, func() string {
			return fmt.Sprintf("barrier %d is waited for by %d threads here and by %d elsewhere (0 means all)", id, count, bar.count)
		})
	}
	if twice := bar.lanes[w.index] & mask; twice != 0 {
		w.reportPair(BadBarrier, o, bar.first, twice, func() string {
			return fmt.Sprintf("comes to barrier %d a second time before it has opened", id)
		})
	}
	b.changes++
	bar.lanes[w.index] |= mask
	bar.arrived += bits.OnesCount32(mask)
	if b.launch.options.Checks {
		w.knows.publish(&bar.clock, mask, w.alive)
		w.passOn(&bar.passed, mask)
	}
	bar.reduce(w, o, mask)
	if o.sync.wait {
		w.save() // what others do when it opens is for the lanes that are here
		w.group.wait = &wait{what: waitBarrier, op: o, id: id}
		w.halted = true
		bar.sleepers = append(bar.sleepers, sleeper{w, w.group, o})
	}
	b.openIfComplete(id, w, o)
}

// reduce adds the predicates of lanes to a barrier's reduction.
func (bar *barrier) reduce(w *warp, o *op, mask uint32) {
	s := o.sync
	if s.reduce == "" {
		return
	}
	p := w.preds[s.value.index]
	if s.not {
		p = ^p
	}
	bar.pop += bits.OnesCount32(p & mask)
	bar.all = bar.all && p&mask == mask
	bar.any = bar.any || p&mask != 0
}

// openIfComplete lets everybody go on when all that are wanted have come.
func (b *block) openIfComplete(id int, w *warp, o *op) {
	bar := &b.barriers[id]
	if !bar.active || !b.complete(bar, w, o) {
		return
	}
	for _, s := range bar.sleepers {
		if b.launch.options.Checks {
			s.warp.knows.learn(&bar.clock, s.group.lanes, s.warp.alive)
			if s.group.lanes == s.warp.alive {
				s.warp.knows.gathered()
			}
			s.warp.takeOver(&bar.passed, s.group.lanes)
		}
		bar.result(s)
		s.group.wait = nil
		if s.warp.group == s.group {
			s.warp.halted = false
		}
	}
	b.changes++
	bar.active = false
}

// complete says whether a barrier has all it wants.
func (b *block) complete(bar *barrier, w *warp, o *op) bool {
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
		w.reportPair(BadBarrier, o, bar.first, w.lanes, func() string {
			return fmt.Sprintf("%d threads have come to a barrier for %d", here, bar.count)
		})
	}
	return here >= bar.count
}

// result gives a sleeper the outcome of a reduction.
func (bar *barrier) result(s sleeper) {
	value := uint32(0)
	switch s.op.sync.reduce {
	case "":
		return
	case "popc":
		value = uint32(bar.pop)
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
			f.preds[d.index] = f.preds[d.index]&^(1<<lane) | value<<lane
		} else {
			f.r32[d.index][lane] = value
		}
	}
}

func boolBit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// checkBarriers looks at every barrier again, after threads have ended: nobody waits for those.
func (b *block) checkBarriers() {
	for id := range b.barriers {
		b.openIfComplete(id, nil, nil)
	}
}
