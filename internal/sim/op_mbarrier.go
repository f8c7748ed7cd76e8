package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/mem"
	"attune/internal/sim/order"
)

// mbarrier is an mbarrier object in shared memory.
type mbarrier struct {
	owner       *block
	offset      int      // in its shared memory
	initialised position // by this instruction

	phase    uint32         // number of completed phases
	expected uint32         // arrivals of a phase
	pending  uint32         // arrivals that are missing in this phase
	tx       int32          // transaction count: bytes that are missing in this phase
	clocks   [2]order.Clock // of the threads that arrived, by the parity of the phase

	pendingCopies int         // arrivals that wait for cp.async copies
	loads         []*bulkLoad // bulk copies that signal it and have not landed
	agentLane     uint8       // the lane of the block's agent for these copies (access_async.go)
	landed        bool        // a bulk copy has landed in this phase
	refusals      []refusal   // by warp; nil until a poll is refused (op_poll.go)
}

// mbarrierOp is an instruction on an mbarrier.
type mbarrierOp struct {
	kind       string
	noInc      bool
	noComplete bool
	expectTx   bool
	drop       bool
	parity     bool
	relaxed    bool
	count      slot // operand: arrivals, bytes, parity or state
	state      slot // destination of the state
	p          slot // destination of a wait
	blocks     bool // threads leave a wait only when the phase is complete (op_poll.go)
	ignored    bool // no instruction reads the result of a wait
}

// Limits of the counts of an mbarrier.
const (
	maxArrivals = 1<<20 - 1
	maxTx       = 1<<20 - 1
)

// lowerMbarrier lowers mbarrier.*.
func (c *code) lowerMbarrier(in *ptx.Instruction, o *op, pc int) error {
	if len(in.Modifiers) == 0 {
		return fmt.Errorf("unsupported form")
	}
	o.sync, o.class = &syncOp{}, count.Sync
	b := &o.sync.mbar
	b.kind = in.Modifiers[0]
	for _, m := range in.Modifiers[1:] {
		switch m {
		case "b64", "shared", "shared::cta", "shared::cluster", "cta", "acquire", "release", "cluster":
		case "noComplete":
			b.noComplete = true
		case "expect_tx":
			b.expectTx = true
		case "parity":
			b.parity = true
		case "relaxed":
			b.relaxed = true
		default:
			return fmt.Errorf("unsupported modifier .%s", m)
		}
	}
	switch b.kind {
	case "init":
		return c.lowerMbarrierAddress(in, o, 0, 1, runMbarrierInit)
	case "inval":
		return c.lowerMbarrierAddress(in, o, 0, -1, runMbarrierInval)
	case "expect_tx":
		b.expectTx = true
		return c.lowerMbarrierAddress(in, o, 0, 1, runMbarrierTx)
	case "complete_tx":
		return c.lowerMbarrierAddress(in, o, 0, 1, runMbarrierTx)
	case "arrive", "arrive_drop":
		b.drop = b.kind == "arrive_drop"
		return c.lowerArrive(in, o)
	case "test_wait", "try_wait":
		return c.lowerWait(in, o, pc)
	case "pending_count":
		return c.lowerPendingCount(in, o)
	}
	return fmt.Errorf("unsupported instruction")
}

func (c *code) lowerMbarrierAddress(in *ptx.Instruction, o *op, address, count int, run func(*warp, *op, uint32)) error {
	o.sync.addr = &memOp{space: ptx.Shared, bytes: 8}
	if !slices.ContainsFunc(in.Modifiers, func(m string) bool { return m == "shared" || strings.HasPrefix(m, "shared::") }) {
		o.sync.addr.space = ptx.Generic
	}
	if address >= len(in.Operands) || count >= len(in.Operands) {
		return fmt.Errorf("it has %d operands", len(in.Operands))
	}
	o.run = run
	if count >= 0 {
		s, err := c.source(in.Operands[count], ptx.B32)
		if err != nil {
			return err
		}
		o.sync.mbar.count = s
	}
	return c.lowerAddress(o.sync.addr, in.Operands[address])
}

// lowerArrive lowers mbarrier.arrive {state,} [addr] {, count}.
func (c *code) lowerArrive(in *ptx.Instruction, o *op) error {
	address := 0
	if len(in.Operands) > 0 && in.Operands[0].Kind != ptx.AddrOperand {
		address = 1
		if state := in.Operands[0]; state.Kind == ptx.RegOperand {
			o.sync.mbar.state = c.regs[state.Register]
		}
	}
	count := -1
	if len(in.Operands) > address+1 {
		count = address + 1
	}
	return c.lowerMbarrierAddress(in, o, address, count, runMbarrierArrive)
}

// lowerWait lowers mbarrier.test_wait and try_wait: p, [addr], state, or with .parity p, [addr],
// parity. A time limit of try_wait is ignored.
func (c *code) lowerWait(in *ptx.Instruction, o *op, pc int) error {
	if len(in.Operands) < 3 {
		return fmt.Errorf("it has %d operands, want 3", len(in.Operands))
	}
	p, err := c.predicate(in.Operands[0])
	if err != nil {
		return err
	}
	o.sync.mbar.p = p
	o.sync.mbar.ignored = !c.isTested(in.Operands[0].Register)
	o.sync.mbar.blocks = c.fn.LoopsUntil(pc, in.Operands[0].Register)
	if err := c.lowerMbarrierAddress(in, o, 1, -1, runMbarrierWait); err != nil {
		return err
	}
	t := ptx.B64
	if o.sync.mbar.parity {
		t = ptx.B32
	}
	o.sync.mbar.count, err = c.source(in.Operands[2], t)
	return err
}

func (c *code) lowerPendingCount(in *ptx.Instruction, o *op) error {
	if len(in.Operands) != 2 {
		return fmt.Errorf("unsupported form")
	}
	d, err := c.register(in.Operands[0], ptx.B32)
	if err != nil {
		return err
	}
	from, err := c.source(in.Operands[1], ptx.B64)
	if err != nil {
		return err
	}
	o.d, o.a = d.index, from.index
	o.run = func(w *warp, o *op, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			lane := firstLane(m)
			w.R32[o.d][lane] = uint32(w.R64[o.a][lane] & maxArrivals)
		}
	}
	return nil
}

// idle reports whether nothing has happened in the current phase.
func (b *mbarrier) idle() bool {
	return b.pending == b.expected && b.tx == 0 && b.pendingCopies == 0 && len(b.loads) == 0
}

// misuse is the severity of a use of the mbarrier's bytes that PTX does not define. To the chip an
// mbarrier is 8 bytes of memory, which may be used for anything else between two phases.
func (b *mbarrier) misuse() finding.Severity {
	if b.idle() {
		return finding.Strict
	}
	return finding.Error
}

// state returns the token that an arrival returns: the arrivals that are missing, and the phase.
func (b *mbarrier) state() uint64 { return uint64(b.phase)<<32 | uint64(b.pending) }

// stored returns the state as the mbarrier's bytes have it.
func (b *mbarrier) stored() uint64 { return b.state() | 1<<31 }

// store writes the state to the mbarrier's bytes.
func (b *mbarrier) store(s *mem.Shared) {
	binary.LittleEndian.PutUint64(s.Data[b.offset:], b.stored())
}

// eachBarrier calls f for every mbarrier that lanes of the operation access, with these lanes. It
// reports an address without an mbarrier.
func (w *warp) eachBarrier(o *op, mask uint32, f func(b *mbarrier, lanes uint32)) {
	w.toShared(o.sync.addr, mask)
	for left := mask; left != 0; {
		address := w.addr[firstLane(left)]
		lanes := uint32(0)
		for m := left; m != 0; m &= m - 1 {
			if lane := firstLane(m); w.addr[lane] == address {
				lanes |= 1 << lane
			}
		}
		left &^= lanes
		owner, local := w.ownerOf(o, accessInfo{bytes: 8}, address, firstLane(lanes), mem.Update)
		if owner == nil {
			continue
		}
		b := owner.mbarriers[uint32(local)]
		if b == nil {
			w.report(finding.BadBarrier, o, lanes, func() string {
				return fmt.Sprintf("there is no initialised mbarrier at address %#x of shared memory", address)
			})
			continue
		}
		w.touchBarrier(o, b, lanes)
		f(b, lanes)
	}
}

// toShared converts generic addresses in w.addr to addresses of shared memory.
func (w *warp) toShared(m *memOp, mask uint32) {
	if m.space != ptx.Generic {
		return
	}
	for l := mask; l != 0; l &= l - 1 {
		lane := firstLane(l)
		_, w.addr[lane] = mem.FromGeneric(w.addr[lane])
	}
}

// touchBarrier records the access to the mbarrier's bytes. It is strong, so that only the
// initialisation must be ordered before it. A wait reads. A bulk copy counts as a read too: its bytes
// are counted when it lands, before the phase completes.
func (w *warp) touchBarrier(o *op, b *mbarrier, lanes uint32) {
	if !w.block.launch.options.Checks {
		return
	}
	d := mem.Update
	if o.sync.mbar.p.file != noFile || o.sync.bulk != nil {
		d = mem.Read
	}
	shadow := &b.owner.shared.Shadow
	if d == mem.Read && lanes&(lanes-1) != 0 && w.clocks.Separate() == 0 {
		me := w.clocks.Observer(o.number, allLanes, lanes, order.Strong)
		if _, bad := shadow.Read(b.offset, 8, &me); !bad {
			return
		}
	}
	for m := lanes; m != 0; m &= m - 1 {
		lane := firstLane(m)
		me := w.observer(o, lane, order.Strong)
		var c order.Conflict
		var bad bool
		if d == mem.Read {
			c, bad = shadow.Read(b.offset, 8, &me)
		} else {
			c, bad = shadow.Write(b.offset, 8, &me, nil)
		}
		if bad {
			w.reportConflict(o, accessInfo{space: ptx.Shared, bytes: 8, flags: order.Strong}, c, w.addr[lane], lane, d)
		}
	}
}

func runMbarrierInit(w *warp, o *op, mask uint32) {
	w.computeAddresses(o.sync.addr)
	w.toShared(o.sync.addr, mask)
	s := &w.block.shared
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		address, arrivals := w.addr[lane], w.R32[o.sync.mbar.count.index][lane]
		offset := int(address - s.First)
		a := accessInfo{space: ptx.Shared, bytes: 8}
		if !s.Holds(address, 8) {
			w.reportMemory(finding.Occurrence{Kind: finding.OutOfBounds}, o, position{}, lane, a.space, address,
				func() string { return w.outsideShared(a, address, mem.Write) })
			continue
		}
		w.checkAlignment(o, &a, address, lane, mem.Write)
		if arrivals < 1 || arrivals > maxArrivals {
			w.report(finding.BadBarrier, o, 1<<lane, func() string {
				return fmt.Sprintf("an mbarrier for %d arrivals; the count must be from 1 to %d", arrivals, maxArrivals)
			})
		}
		if old := w.block.mbarriers[uint32(address)]; old != nil {
			w.reportAs(old.misuse(), finding.BadBarrier, o, old.initialised, 1<<lane, func() string {
				return fmt.Sprintf("initialises the mbarrier at address %#x, which is live already: no mbarrier.inval precedes it", address)
			})
		}
		marks := s.Marks[offset : offset+8]
		if bytes.IndexByte(marks, mem.Gap) >= 0 {
			w.reportMarked(o, a, w.block, address, marks, lane, mem.Write)
			continue
		}
		b := &mbarrier{offset: offset, expected: arrivals, pending: arrivals, initialised: positionOf(w, o), owner: w.block, agentLane: uint8(len(w.block.mbarriers) % 32)}
		b.clocks = [2]order.Clock{w.block.newClock(), w.block.newClock()}
		mem.Fill(marks, mem.Written)
		binary.LittleEndian.PutUint64(w.value[:], b.stored())
		w.accessShared(o, a, address, lane, mem.Write)
		w.stampInit(o, offset, lane)
		mem.Fill(marks, mem.Barrier)
		w.block.mbarriers[uint32(address)] = b
		b.store(s)
	}
	w.block.changes++
}

// initializations are the mbarriers that a warp has initialised. They are accesses of an agent of
// their own, whose lanes stand for warps. A fence.mbarrier_init publishes them with the next
// relaxed arrival, and nothing else that the thread has done.
type initializations struct {
	count  uint32     // so far; the number of one is its epoch
	last   [32]uint32 // of each lane
	fenced [32]uint32 // of each lane before its last fence.mbarrier_init
}

func (i *initializations) fence(mask uint32) {
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		i.fenced[lane] = i.last[lane]
	}
}

// stampInit makes the write of an initialisation one of the agent, which the lane knows of.
func (w *warp) stampInit(o *op, offset, lane int) {
	if !w.block.launch.options.Checks {
		return
	}
	agent := w.block.initAgent()
	w.inits.count++
	w.inits.last[lane] = w.inits.count
	w.block.shared.Shadow.Restamp(offset, 8, order.Access{
		Epoch: w.inits.count, Op: o.number, Block: uint32(w.block.index), Warp: uint16(agent), Lane: uint8(w.index), Flags: order.Present,
	})
	known := w.block.newClock()
	known.JoinLanes(agent, 1<<w.index, w.inits.count)
	w.clocks.Learn(&known, 1<<lane, w.alive)
}

// publishFenced adds to clocks what precedes the fences of lanes, for a relaxed arrival: near for
// threads of the block, far for other blocks.
func (w *warp) publishFenced(near, far *order.Clock, lanes uint32) {
	var h order.Handover
	w.fences.HandOver(&w.clocks, &h, lanes)
	if h.Near() != nil {
		near.Join(h.Near())
	}
	if h.Far() != nil {
		far.Join(h.Far())
	}
	for m := lanes; m != 0; m &= m - 1 {
		if n := w.inits.fenced[firstLane(m)]; n > 0 {
			near.JoinLanes(w.block.initAgent(), 1<<w.index, n)
			far.JoinLanes(w.block.initAgent(), 1<<w.index, n)
		}
	}
}

func runMbarrierInval(w *warp, o *op, mask uint32) {
	w.computeAddresses(o.sync.addr)
	w.eachBarrier(o, mask, func(b *mbarrier, lanes uint32) {
		if len(b.loads) > 0 {
			w.reportPair(finding.BadBarrier, o, positionOf(w, b.loads[0].op), lanes, func() string {
				return "invalidates an mbarrier that a bulk copy has still to signal"
			})
		}
		delete(w.block.mbarriers, uint32(uint64(b.offset)+w.block.shared.First))
		clear(w.block.shared.Marks[b.offset : b.offset+8])
	})
	w.block.changes++
}

// runMbarrierTx runs expect_tx and complete_tx.
func runMbarrierTx(w *warp, o *op, mask uint32) {
	w.computeAddresses(o.sync.addr)
	w.eachBarrier(o, mask, func(b *mbarrier, lanes uint32) {
		for m := lanes; m != 0; m &= m - 1 {
			lane := firstLane(m)
			n := int32(w.R32[o.sync.mbar.count.index][lane])
			if o.sync.mbar.expectTx {
				w.addTx(o, b, n, lane)
			} else {
				w.addTx(o, b, -n, lane)
				w.endPhase(b)
			}
		}
		b.store(&b.owner.shared)
	})
	w.block.changes++
}

func (w *warp) addTx(o *op, b *mbarrier, n int32, lane int) {
	b.tx += n
	if b.tx > maxTx || b.tx < -maxTx {
		w.report(finding.BadBarrier, o, 1<<lane, func() string {
			return fmt.Sprintf("the transaction count of the mbarrier is %d; the limit is %d", b.tx, maxTx)
		})
	}
}

// endPhase completes the phase if no arrival and no byte is missing.
func (w *warp) endPhase(b *mbarrier) {
	if b.pending != 0 || b.tx != 0 {
		return
	}
	b.publishLanded()
	b.phase++
	b.pending = b.expected
	b.clocks[b.phase&1] = w.block.newClock()
	b.owner.changes++
}

func runMbarrierArrive(w *warp, o *op, mask uint32) {
	op := &o.sync.mbar
	w.computeAddresses(o.sync.addr)
	w.eachBarrier(o, mask, func(b *mbarrier, lanes uint32) {
		phase := b.phase
		w.publishTo(b, lanes, op.relaxed)
		for m := lanes; m != 0; m &= m - 1 {
			lane := firstLane(m)
			n := uint32(1)
			if op.count.file != noFile {
				n = w.R32[op.count.index][lane]
			}
			if op.state.file == file64 {
				w.R64[op.state.index][lane] = b.state()
			}
			if op.expectTx {
				w.addTx(o, b, int32(n), lane)
				n = 1
			}
			if b.phase != phase { // the lanes before this one ended the phase
				phase = b.phase
				w.report(finding.BadBarrier, o, lanes, func() string {
					return fmt.Sprintf("%d lanes arrive together and a phase completes between them: a waiting thread may continue too early or never", bits.OnesCount32(lanes))
				})
				b.clocks[phase&1].Join(&b.clocks[phase&1^1])
			}
			w.arriveOn(o, b, n, lane)
		}
	})
	w.block.changes++
}

// publishTo publishes what lanes have done to the threads that wait for the phase. A relaxed
// arrival publishes what precedes the last fence.
func (w *warp) publishTo(b *mbarrier, lanes uint32, relaxed bool) {
	if !w.block.launch.options.Checks {
		return
	}
	if b.owner == w.block && !relaxed {
		w.clocks.Publish(&b.clocks[b.phase&1], lanes, w.alive|w.clocks.EndedLanes())
		return
	}
	near, far := w.block.newClock(), w.block.newClock()
	if relaxed {
		w.publishFenced(&near, &far, lanes)
	} else {
		w.clocks.Publish(&far, lanes, w.alive|w.clocks.EndedLanes())
	}
	if b.owner == w.block {
		b.clocks[b.phase&1].Join(&near)
		return
	}
	b.clocks[b.phase&1].Import(uint32(b.owner.index), far.Export(uint32(w.block.index)))
}

// arriveOn counts arrivals.
func (w *warp) arriveOn(o *op, b *mbarrier, n uint32, lane int) {
	op := &o.sync.mbar
	switch {
	case n < 1 || n > b.pending:
		w.reportPair(finding.BadBarrier, o, b.initialised, 1<<lane, func() string {
			return fmt.Sprintf("arrives %d times at an mbarrier that expects %d more arrivals in this phase", n, b.pending)
		})
		n = min(n, b.pending)
	case op.noComplete && n == b.pending && b.tx == 0:
		w.report(finding.BadBarrier, o, 1<<lane, func() string { return "completes a phase with .noComplete" })
	}
	b.pending -= n
	if op.drop {
		b.expected -= min(n, b.expected)
	}
	w.endPhase(b)
	b.store(&b.owner.shared)
}
