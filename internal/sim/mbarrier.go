package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"attune/internal/ptx"
)

// mbarrier is a barrier object in shared memory.
type mbarrier struct {
	offset   int    // in shared memory
	phase    uint32 // phases that have ended
	expected uint32 // arrivals a phase wants
	pending  uint32 // arrivals that are still wanted
	tx       int32  // bytes that are still to come
	clocks   [2]clock
	made     spot // where it was initialised
	copies   int  // arrivals that wait for copies
	home     *block
	agent    uint8       // under which the bulk copies that it is told of are known
	loads    []*bulkLoad // bulk copies that it is to be told of
	fed      bool        // a bulk copy has landed in this phase
}

// mbarrierOp is an operation on one.
type mbarrierOp struct {
	what       string
	noInc      bool
	noComplete bool
	expectTx   bool
	drop       bool
	parity     bool
	relaxed    bool
	count      slot // operand: arrivals, bytes, parity or state
	state      slot // where the state goes
	p          slot
}

// Bounds of an mbarrier's counts.
const (
	mostArrivals = 1<<20 - 1
	mostTx       = 1<<20 - 1
)

// lowerMbarrier turns mbarrier.* into operations.
func (c *code) lowerMbarrier(in *ptx.Instruction, o *op) error {
	if len(in.Modifiers) == 0 {
		return fmt.Errorf("unsupported form")
	}
	o.sync, o.class = &syncOp{}, classSync
	b := &o.sync.mbar
	b.what = in.Modifiers[0]
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
	switch b.what {
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
		b.drop = b.what == "arrive_drop"
		return c.lowerArrive(in, o)
	case "test_wait", "try_wait":
		return c.lowerWait(in, o)
	case "pending_count":
		return c.lowerPendingCount(in, o)
	}
	return fmt.Errorf("unsupported instruction")
}

func (c *code) lowerMbarrierAddress(in *ptx.Instruction, o *op, address, count int, run func(*warp, *op, uint32)) error {
	o.sync.addr = &memOp{what: "mbarrier." + o.sync.mbar.what, space: ptx.Shared, bytes: 8}
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

// lowerArrive is mbarrier.arrive state, [addr]{, count}, with the state left out for a sink.
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

// lowerWait is mbarrier.test_wait p, [addr], state and with .parity p, [addr], parity; try_wait may have a time behind.
func (c *code) lowerWait(in *ptx.Instruction, o *op) error {
	if len(in.Operands) < 3 {
		return fmt.Errorf("it has %d operands, want 3", len(in.Operands))
	}
	p, err := c.predicate(in.Operands[0])
	if err != nil {
		return err
	}
	o.sync.mbar.p = p
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
			w.r32[o.d][lane] = uint32(w.r64[o.a][lane] & mostArrivals)
		}
	}
	return nil
}

// state is the token that an arrival gives: the arrivals that were wanted before it, and the phase.
func (b *mbarrier) state() uint64 { return uint64(b.phase)<<32 | uint64(b.pending) }

// store writes the barrier's state to the bytes it lies in.
func (b *mbarrier) store(s *sharedMemory) {
	binary.LittleEndian.PutUint64(s.data[b.offset:], b.state()|1<<31)
}

// eachBarrier calls f for every barrier that lanes of an operation go to. An address where none is, is reported.
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
		home, local := w.homeOf(o, accessOf{what: o.sync.addr.what, bytes: 8}, address, firstLane(lanes), updating)
		if home == nil {
			continue
		}
		b := home.mbars[uint32(local)]
		if b == nil {
			w.report(BadBarrier, o, lanes, func() string {
				return fmt.Sprintf("there is no initialised barrier at address %#x of shared memory", address)
			})
			continue
		}
		w.touchBarrier(o, b, lanes)
		f(b, lanes)
	}
}

// toShared takes generic addresses to shared memory.
func (w *warp) toShared(m *memOp, mask uint32) {
	if m.space != ptx.Generic {
		return
	}
	for l := mask; l != 0; l &= l - 1 {
		lane := firstLane(l)
		_, w.addr[lane] = ofGeneric(w.addr[lane])
	}
}

// touchBarrier notes the access to the barrier's bytes: strong, so that only its initialisation has to be ordered before it.
func (w *warp) touchBarrier(o *op, b *mbarrier, lanes uint32) {
	if !w.block.launch.options.Checks {
		return
	}
	for m := lanes; m != 0; m &= m - 1 {
		lane := firstLane(m)
		me := w.observer(o, lane, strong)
		if c, bad := b.home.shared.shadow.updateBytes(b.offset, 8, &me); bad {
			w.reportConflict(o, accessOf{what: o.sync.addr.what, space: ptx.Shared, bytes: 8, flags: strong}, c, w.addr[lane], lane, updating)
		}
	}
}

func runMbarrierInit(w *warp, o *op, mask uint32) {
	w.addresses(o.sync.addr, mask)
	w.toShared(o.sync.addr, mask)
	s := &w.block.shared
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		address, count := w.addr[lane], w.r32[o.sync.mbar.count.index][lane]
		offset := int(address - s.first)
		a := accessOf{what: "mbarrier.init", space: ptx.Shared, bytes: 8}
		if address < s.first || address-s.first > uint64(len(s.data)) || offset+8 > len(s.data) {
			w.report(OutOfBounds, o, 1<<lane, func() string { return w.outsideShared(a, address, writing) })
			continue
		}
		w.aligned(o, a, address, lane, writing)
		if count < 1 || count > mostArrivals {
			w.report(BadBarrier, o, 1<<lane, func() string { return fmt.Sprintf("a barrier for %d arrivals; 1 to %d can be", count, mostArrivals) })
		}
		if old := w.block.mbars[uint32(address)]; old != nil {
			w.reportPair(BadBarrier, o, old.made, 1<<lane, func() string {
				return fmt.Sprintf("initialises the barrier at address %#x again, which is live", address)
			})
		}
		marks := s.marks[offset : offset+8]
		if bytes.IndexByte(marks, gapBit) >= 0 {
			w.touchesMarked(o, a, address, marks, lane, writing)
			continue
		}
		b := &mbarrier{offset: offset, expected: count, pending: count, made: spotOf(w, o), home: w.block, agent: uint8(len(w.block.mbars) % 32)}
		b.clocks = [2]clock{w.block.newClock(), w.block.newClock()}
		fill(marks, written)
		binary.LittleEndian.PutUint64(w.value[:], b.state())
		w.reachShared(o, a, address, lane, writing)
		fill(marks, barrierBit)
		w.block.mbars[uint32(address)] = b
		b.store(s)
	}
	w.block.changes++
}

func runMbarrierInval(w *warp, o *op, mask uint32) {
	w.addresses(o.sync.addr, mask)
	w.eachBarrier(o, mask, func(b *mbarrier, lanes uint32) {
		if len(b.loads) > 0 {
			w.reportPair(BadBarrier, o, spotOf(w, b.loads[0].op), lanes, func() string {
				return "ends a barrier that a bulk copy has yet to be told to"
			})
		}
		delete(w.block.mbars, uint32(uint64(b.offset)+w.block.shared.first))
		clear(w.block.shared.marks[b.offset : b.offset+8])
	})
	w.block.changes++
}

// runMbarrierTx is expect_tx and complete_tx.
func runMbarrierTx(w *warp, o *op, mask uint32) {
	w.addresses(o.sync.addr, mask)
	w.eachBarrier(o, mask, func(b *mbarrier, lanes uint32) {
		for m := lanes; m != 0; m &= m - 1 {
			lane := firstLane(m)
			n := int32(w.r32[o.sync.mbar.count.index][lane])
			if o.sync.mbar.expectTx {
				w.addTx(o, b, n, lane)
			} else {
				w.addTx(o, b, -n, lane)
				w.endPhase(b)
			}
		}
		b.store(&b.home.shared)
	})
	w.block.changes++
}

func (w *warp) addTx(o *op, b *mbarrier, n int32, lane int) {
	b.tx += n
	if b.tx > mostTx || b.tx < -mostTx {
		w.report(BadBarrier, o, 1<<lane, func() string {
			return fmt.Sprintf("the barrier's count of bytes is %d; it can hold %d", b.tx, mostTx)
		})
	}
}

// endPhase ends the phase when everything has come.
func (w *warp) endPhase(b *mbarrier) {
	if b.pending != 0 || b.tx != 0 {
		return
	}
	b.tellLanded()
	b.phase++
	b.pending = b.expected
	b.clocks[b.phase&1] = w.block.newClock()
	b.home.changes++
}

func runMbarrierArrive(w *warp, o *op, mask uint32) {
	op := &o.sync.mbar
	w.addresses(o.sync.addr, mask)
	w.eachBarrier(o, mask, func(b *mbarrier, lanes uint32) {
		phase := b.phase
		if !op.relaxed {
			w.publishTo(b, lanes)
		}
		for m := lanes; m != 0; m &= m - 1 {
			lane := firstLane(m)
			n := uint32(1)
			if op.count.file != noFile {
				n = w.r32[op.count.index][lane]
			}
			if op.state.file == file64 {
				w.r64[op.state.index][lane] = b.state()
			}
			if op.expectTx {
				w.addTx(o, b, int32(n), lane)
				n = 1
			}
			if b.phase != phase { // the lanes before this one ended the phase
				phase = b.phase
				w.report(BadBarrier, o, lanes, func() string {
					return fmt.Sprintf("%d lanes arrive at once: a phase ends in their midst, and those who wait for it may go on before, or never", bits.OnesCount32(lanes))
				})
				if !op.relaxed {
					b.clocks[phase&1].join(&b.clocks[phase&1^1])
				}
			}
			w.arriveOn(o, b, n, lane)
		}
	})
	w.block.changes++
}

// publishTo tells a barrier what lanes have done, for those who wait for the phase.
func (w *warp) publishTo(b *mbarrier, lanes uint32) {
	if !w.block.launch.options.Checks {
		return
	}
	if b.home == w.block {
		w.knows.publish(&b.clocks[b.phase&1], lanes, w.alive|w.knows.gone)
		return
	}
	now := w.block.newClock()
	w.knows.publish(&now, lanes, w.alive|w.knows.gone)
	b.clocks[b.phase&1].learn(uint32(b.home.index), now.global(uint32(w.block.index)))
}

// arriveOn counts arrivals.
func (w *warp) arriveOn(o *op, b *mbarrier, n uint32, lane int) {
	op := &o.sync.mbar
	switch {
	case n < 1 || n > b.pending:
		w.reportPair(BadBarrier, o, b.made, 1<<lane, func() string {
			return fmt.Sprintf("arrives %d times at a barrier that waits for %d more in this phase", n, b.pending)
		})
		n = min(n, b.pending)
	case op.noComplete && n == b.pending && b.tx == 0:
		w.report(BadBarrier, o, 1<<lane, func() string { return "ends a phase with .noComplete" })
	}
	b.pending -= n
	if op.drop {
		b.expected -= min(n, b.expected)
	}
	w.endPhase(b)
	b.store(&b.home.shared)
}

func runMbarrierWait(w *warp, o *op, mask uint32) {
	op := &o.sync.mbar
	w.count.Waits++
	w.addresses(o.sync.addr, mask)
	w.preds[op.p.index] &^= mask
	w.eachBarrier(o, mask, func(b *mbarrier, lanes uint32) {
		if b.home != w.block {
			w.report(Undefined, o, lanes, func() string { return "waits at a barrier of another block; only its own block can" })
		}
		if b.copies > 0 {
			w.block.endCopies(b)
		}
		w.endLoads(o, b)
		var done [2]uint32 // by the parity of the phase that was waited for
		for m := lanes; m != 0; m &= m - 1 {
			lane := firstLane(m)
			phase := uint32(0)
			if op.parity {
				phase = w.r32[op.count.index][lane] & 1
			} else {
				phase = uint32(w.r64[op.count.index][lane] >> 32)
			}
			if op.parity && b.phase&1 != phase || !op.parity && b.phase != phase {
				done[phase&1] |= 1 << lane
			}
		}
		w.preds[op.p.index] |= done[0] | done[1]
		for parity, lanes := range done {
			if lanes != 0 && !op.relaxed && w.block.launch.options.Checks {
				w.knows.learn(&b.clocks[parity], lanes, w.alive)
			}
		}
		if done[0]|done[1] != lanes {
			w.lookedInVain()
			w.waitsFor = b
		}
	})
}

// describeSpin says what barrier a group looks at again and again.
func (b *block) describeSpin(g *group) string {
	for _, w := range b.warps {
		if w.waitsFor != nil && g.looked > 0 && (w.group == g || slices.Contains(w.groups, g)) {
			bar := w.waitsFor
			return fmt.Sprintf("waits for the barrier at address %#x of shared memory: phase %d, %d arrivals and %d bytes are missing",
				uint64(bar.offset)+b.shared.first, bar.phase, bar.pending, bar.tx)
		}
	}
	return ""
}
