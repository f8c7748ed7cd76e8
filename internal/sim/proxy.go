package sim

import (
	"fmt"
	"slices"

	"attune/internal/ptx"
)

// The two ways to memory.
//
// Tensor cores read shared memory by another way than loads and stores do, the async proxy, and what was stored by the generic one is not there for them
// before somebody has fenced it (fence.proxy.async): whoever wrote it, before telling others, or whoever has learned of it, before the reading. So a clock
// has a second part: of what is known, that which stands before a fence between the two. Everything that carries a clock from one thread to another
// carries both parts. A read by the async proxy asks whether the last write to its bytes stands in the second part.
//
// The other direction needs no fence: who has waited for an asynchronous operation may write what it has read.

// fenceProxy puts all that lanes have done and know before a fence.
func (k *knowledge) fenceProxy(mask, alive uint32) {
	if mask&alive == alive {
		k.common.fence(k.index, known{full: k.epoch})
		for m := k.alone; m != 0; m &= m - 1 {
			k.lanes[firstLane(m)].fence(k.index, known{full: k.epoch})
		}
		k.epoch++
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		var own known
		own.joinLanes(m&-m, k.epoch)
		k.single(firstLane(m)).fence(k.index, own)
	}
	k.epoch++
	if k.alone&alive == alive {
		k.raise(alive)
	}
}

// fence puts what a clock knows, and some of its own warp, into its second part.
func (c *clock) fence(index int, own known) {
	c.fenced = slices.Clone(c.warps)
	c.fenced[index].join(own)
	c.blocks = fenceBlocks(c.blocks)
}

// fenceBlocks puts what is known of other blocks into the second parts of their clocks.
func fenceBlocks(blocks map[uint32][]known) map[uint32][]known {
	if len(blocks) == 0 {
		return blocks
	}
	both := make(map[uint32][]known, 2*len(blocks))
	for block, warps := range blocks {
		if !isFenced(block) {
			both[block], both[fencedOf(block)] = warps, warps
		}
	}
	return both
}

// joinFenced merges the second parts of two clocks, into a new slice unless one of the two will do.
func joinFenced(a, b []known) []known {
	switch {
	case len(b) == 0:
		return a
	case len(a) == 0 || &a[0] == &b[0]:
		return b
	}
	both := slices.Clone(a)
	for i := range both {
		both[i].join(b[i])
	}
	return both
}

// limitFenced keeps what both have.
func limitFenced(a, b []known) []known {
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	both := slices.Clone(a)
	for i := range both {
		both[i].limit(b[i])
	}
	return both
}

// fencedOf is the name under which places in memory tell the second part of a block's clock; blocks themselves have smaller ones.
func fencedOf(block uint32) uint32 { return block | 1<<31 }

func isFenced(name uint32) bool { return name>>31 != 0 }

// unfenced is a write of the generic proxy that is ordered before the observer and stands before no fence between the proxies.
func (s *shadow) unfenced(c *cell, o *observer) (access, bool) {
	if o.misses(&c.write, lanesOf(&c.write)) {
		return c.write, true
	}
	if c.many == 0 {
		return c.since.access, c.since.flags&wrote != 0 && o.misses(&c.since.access, c.since.lanes)
	}
	list := s.uses[c.many-1]
	for i := range list {
		if u := &list[i]; u.flags&wrote != 0 && o.misses(&u.access, u.lanes) {
			return u.access, true
		}
	}
	return access{}, false
}

// misses says whether the async proxy does not see an earlier write of some lanes that the observer knows of.
func (o *observer) misses(earlier *access, lanes uint32) bool {
	if earlier.flags&present == 0 || earlier.flags&(async|pending) != 0 || !o.after(earlier, lanes) {
		return false
	}
	fenced := o.clock.fenced
	if earlier.block != o.block {
		fenced = o.clock.blocks[fencedOf(earlier.block)]
	}
	return len(fenced) == 0 || !fenced[earlier.warp].covers(lanes, earlier.epoch)
}

// settleReads turns the pending reads that a warp has begun in one epoch into reads of another.
func (s *shadow) settleReads(offset, size int, me *access, now uint32) {
	if c := &s.cells[offset/granule*granuleCells]; offset%granule == 0 && size == granule && !c.apart {
		s.settleCell(c, me, now)
		return
	}
	s.each(offset, size, func(c *cell) { s.settleCell(c, me, now) })
}

func (s *shadow) settleCell(c *cell, me *access, now uint32) {
	if c.many == 0 {
		c.since.settleRead(me, now)
		return
	}
	list := s.uses[c.many-1]
	for i := range list {
		list[i].settleRead(me, now)
	}
}

func (u *use) settleRead(me *access, now uint32) {
	if u.flags&pending != 0 && u.flags&wrote == 0 && u.epoch == me.epoch && sameWarp(&u.access, me) {
		u.flags &^= pending
		u.epoch = now
	}
}

// readGranule notes a read of 16 bytes by the async proxy, if it is plain that nothing is wrong with it: else it does nothing and says so. clean is a write
// that such a read has found in order.
func (s *shadow) readGranule(number int, o *observer, clean *access) bool {
	c := &s.cells[number*granuleCells]
	if c.apart || s.wroteSince(c) {
		return false
	}
	if c.write != *clean {
		if lanes := lanesOf(&c.write); o.races(&c.write, lanes) || o.misses(&c.write, lanes) {
			return false
		}
		*clean = c.write
	}
	s.note(c, o, 0)
	return true
}

// wroteSince says whether there are strong writes that a cell remembers.
func (s *shadow) wroteSince(c *cell) bool {
	if c.many == 0 {
		return c.since.flags&wrote != 0
	}
	for i := range s.uses[c.many-1] {
		if s.uses[c.many-1][i].flags&wrote != 0 {
			return true
		}
	}
	return false
}

// asyncRead says how a warp reads by the async proxy.
const asyncRead = whole | pending | async

// readAsync notes that the warp begins to read bytes of shared memory by the async proxy, and gives them; nil where there are none.
func (w *warp) readAsync(o *op, what string, address uint64, size int) []byte {
	a := accessOf{what: what, space: ptx.Shared, bytes: size, flags: asyncRead}
	data := w.reachShared(o, a, address, allLanes, reading)
	if data == nil || !w.block.launch.options.Checks {
		return data
	}
	s := &w.block.shared
	me := w.observer(o, allLanes, a.flags)
	var e access
	found := false
	s.shadow.each(int(address-s.first), size, func(c *cell) {
		if !found {
			e, found = s.shadow.unfenced(c, &me)
		}
	})
	if found {
		w.reportPair(MissingFence, o, w.block.launch.program.ops[e.op], w.lanes, func() string {
			return fmt.Sprintf("%s reads %d bytes at %#x of shared memory, which %s stored, with no fence.proxy.async between the two", what, size, address,
				w.otherThread(&e))
		})
	}
	return data
}

// runProxyFence is fence.proxy.async.
func runProxyFence(w *warp, _ *op, mask uint32) {
	if w.block.launch.options.Checks {
		w.knows.fenceProxy(mask, w.alive)
	}
}
