package sim

import (
	"fmt"

	"attune/internal/ptx"
)

// Bulk copies go by the async proxy, with the fences that proxy.go tells of.
//
// A copy into shared memory is told to a barrier, and known to whoever has waited for the phase: not to the thread that has begun it, unless it waits.
// Such copies are therefore accesses of an agent of their own, which has its place in the clocks behind the last warp; the lanes of that place stand for
// barriers, and a phase that copies were told to is an epoch. A copy out of shared memory is one of its thread, from the moment when that waits for it.

// agents is how many places the clocks of a block have: its warps, and the copies that barriers are told of.
func (b *block) agents() int { return len(b.warps) + 1 }

func (b *block) newClock() clock { return newClock(b.agents()) }

// verdictOf is what is wrong with an access of a bulk copy.
type verdictOf struct {
	conflict
	races, unfenced bool
}

// asyncBytes notes an access of the async proxy under a stamp, and compares it with earlier ones as its thread knows them.
func (s *shadow) asyncBytes(offset, size int, o *observer, stamp access, writes bool) verdictOf {
	var v verdictOf
	s.each(offset, size, func(c *cell) {
		if !v.races && !v.unfenced {
			if e, races := s.unorderedWrite(c, o); races {
				v = verdictOf{conflict{e, false}, true, false}
			} else if e, races := s.unorderedRead(c, o); races && writes {
				v = verdictOf{conflict{e, true}, true, false}
			} else if e, unfenced := s.unfenced(c, o); unfenced {
				v = verdictOf{conflict{e, false}, false, true}
			}
		}
		if writes && stamp.flags&strong == 0 {
			c.write = stamp
			s.forgetUses(c)
			return
		}
		as := uint8(0)
		if writes {
			as = wrote
		}
		s.note(c, &observer{access: stamp, clock: o.clock}, as)
	})
	return v
}

// settleAsync ends the accesses of a bulk copy that were noted under a stamp: from now on they are those of another.
func (s *shadow) settleAsync(offset, size int, from, to access) {
	is := func(a *access) bool {
		return a.flags&pending != 0 && a.op == from.op && sameWarp(a, &from) && (a.lane == from.lane || a.lane == allLanes)
	}
	settle := func(a *access) {
		if is(a) {
			a.epoch, a.flags = to.epoch, a.flags&^pending
		}
	}
	s.each(offset, size, func(c *cell) {
		settle(&c.write)
		settle(&c.since.access)
		if c.many != 0 {
			list := s.uses[c.many-1]
			for i := range list {
				settle(&list[i].access)
			}
		}
	})
}

// asyncAccess is what a bulk copy does with some bytes.
type asyncAccess struct {
	op     *op
	lane   int // that has begun it
	what   string
	stamp  access
	writes bool

	generic bool // it is none of the async proxy after all
}

func (a *asyncAccess) of(space ptx.Space, n int) (accessOf, direction) {
	d := reading
	if a.writes {
		d = writing
	}
	return accessOf{what: a.what, space: space, bytes: n, loose: true}, d
}

// reachAsyncShared checks an access to shared memory and gives its bytes, or nil.
func (w *warp) reachAsyncShared(a *asyncAccess, home *block, address uint64, n int) (data []byte, offset int) {
	s := &home.shared
	of, d := a.of(ptx.Shared, n)
	if address < s.first || address-s.first > uint64(len(s.data)) || address-s.first+uint64(n) > uint64(len(s.data)) {
		w.report(OutOfBounds, a.op, 1<<a.lane, func() string { return w.outsideShared(of, address, d) })
		return nil, 0
	}
	offset = int(address - s.first)
	data = s.data[offset : offset+n]
	if !w.block.launch.options.Checks {
		return data, offset
	}
	marks := s.marks[offset : offset+n]
	if !ordinary(marks) && !w.touchesMarked(a.op, of, address, marks, a.lane, d) {
		return nil, 0
	}
	me := w.observer(a.op, a.lane, a.stamp.flags&strong)
	v := s.shadow.asyncBytes(offset, n, &me, a.stamp, a.writes)
	w.reportAsync(a, of, v, address, d)
	if a.stamp.flags&strong != 0 {
		d = updating
	}
	w.checkWritten(a.op, of, marks, a.lane, d, v.races, func(i int) string {
		return fmt.Sprintf("byte %d of shared memory (%s)", offset+i, w.sharedName(offset+i, 0))
	})
	return data, offset
}

// reachAsyncGlobal is the same for global memory.
func (w *warp) reachAsyncGlobal(a *asyncAccess, address uint64, n int) (data []byte, al *allocation) {
	al = w.block.launch.memory.find(address)
	of, d := a.of(ptx.Global, n)
	if al == nil || !al.holds(address, n) {
		w.report(OutOfBounds, a.op, 1<<a.lane, func() string { return outsideGlobal(al, of, address, d) })
		return nil, nil
	}
	offset := int(address - al.base)
	data = al.data[offset : offset+n]
	if !w.block.launch.options.Checks {
		return data, al
	}
	w.block.hold(al, offset, n)
	if a.writes {
		for page := offset / pageBytes * pageBytes; page < offset+n; page += pageBytes {
			al.shadow.wrote(page)
		}
	}
	me := w.observer(a.op, a.lane, a.stamp.flags&strong)
	var v verdictOf
	al.shadow.do(offset, n, func(s *shadow, offset, size int) {
		if found := s.asyncBytes(offset, size, &me, a.stamp, a.writes); !v.races && !v.unfenced {
			v = found
		}
	})
	v.unfenced = v.unfenced && !w.block.launch.hasFencedGlobal(uint32(w.block.index), v.earlier.block)
	w.reportAsync(a, of, v, address, d)
	if al.written != nil {
		if a.stamp.flags&strong != 0 {
			d = updating
		}
		w.checkWritten(a.op, of, al.written[offset:offset+n], a.lane, d, v.races, func(i int) string {
			return fmt.Sprintf("byte %d of %s", offset+i, al.name)
		})
	}
	return data, al
}

// fenceGlobal is fence.proxy.async.global. Which writes it stands behind is not kept: with one of them, no copy from what the block has written is
// reported, nor any that it makes itself.
func (b *block) fenceGlobal() {
	r := b.launch
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fencedGlobal == nil {
		r.fencedGlobal = map[uint32]bool{}
	}
	r.fencedGlobal[uint32(b.index)] = true
}

func (r *launch) hasFencedGlobal(one, other uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fencedGlobal[one] || r.fencedGlobal[other]
}

// reportAsync reports what is wrong with an access.
func (w *warp) reportAsync(a *asyncAccess, of accessOf, v verdictOf, address uint64, d direction) {
	switch {
	case v.races:
		w.reportConflict(a.op, of, v.conflict, address, a.lane, d)
	case v.unfenced && !a.generic:
		e := v.earlier
		w.reportPair(MissingFence, a.op, w.block.launch.program.ops[e.op], 1<<a.lane, func() string {
			return fmt.Sprintf("%s %d bytes at %#x of .%s in the async proxy, which %s wrote; no fence.proxy.async stands between the two",
				directionNames[d], of.bytes, address, of.space, w.otherThread(&e))
		})
	}
}

// tellLanded adds to the clock of the phase that ends the bulk copies that have landed in it.
func (b *mbarrier) tellLanded() {
	if !b.fed {
		return
	}
	b.fed = false
	agent := len(b.home.warps)
	b.clocks[b.phase&1].warps[agent].joinLanes(1<<b.agent, b.home.landed[b.agent]+1)
	b.home.landed[b.agent]++
}

// landing is the stamp of the copies that land in the barrier's phase.
func (b *mbarrier) landing(number int32) access {
	return access{
		epoch: b.home.landed[b.agent] + 1, op: number, block: uint32(b.home.index), warp: uint16(len(b.home.warps)), lane: b.agent, flags: present | async,
	}
}
