package order

import "slices"

// AsyncResult is the result of checking an access of the async proxy. At most one of Races and
// Unfenced is set.
type AsyncResult struct {
	Conflict
	Races    bool
	Unfenced bool // no proxy fence stands between the earlier write and the access
}

// Async records an access of the async proxy under a stamp, and compares it with earlier accesses
// as the observer knows them. The observer is the thread that starts the copy. The stamp says as
// whose access it is remembered. same decides whether a write repeats an earlier one; it may be nil.
func (s *Shadow) Async(offset, size int, o *Observer, stamp Access, writes bool, same Repeats) AsyncResult {
	if s.asyncInOrder(offset, size, o, &stamp, writes) {
		return AsyncResult{}
	}
	return s.checkAsync(offset, size, o, stamp, writes, same)
}

func (s *Shadow) checkAsync(offset, size int, o *Observer, stamp Access, writes bool, same Repeats) AsyncResult {
	var v AsyncResult
	s.each(offset, size, func(c *cell) {
		if !v.Races && !v.Unfenced {
			if e, races := s.unorderedWrite(c, o); races && !(same != nil && same.WriteSame(e.Op, o.Op)) {
				v = AsyncResult{Conflict{e, false, e.Lanes()}, true, false}
			} else if e, lanes, races := s.unorderedRead(c, o); races && writes {
				v = AsyncResult{Conflict{e, true, lanes}, true, false}
			} else if e, unfenced := s.unfencedWrite(c, o); unfenced {
				v = AsyncResult{Conflict{e, false, e.Lanes()}, false, true}
			}
		}
		if writes && stamp.Flags&Strong == 0 {
			c.write = stamp
			s.forgetUses(c)
			return
		}
		extra := Flags(0)
		if writes {
			extra = wrote
		}
		s.record(c, &Observer{Access: stamp, clock: o.clock}, extra)
	})
	return v
}

// SettleAsync ends the pending accesses of a bulk copy that were recorded under a stamp. From now
// on they belong to the given epoch.
func (s *Shadow) SettleAsync(offset, size int, stamp Access, epoch uint32) {
	is := func(a *Access) bool {
		return a.Flags&Pending != 0 && a.Op == stamp.Op && sameWarp(a, &stamp) && (a.Lane == stamp.Lane || a.Lane == AllLanes)
	}
	settle := func(a *Access) { a.Epoch, a.Flags = epoch, a.Flags&^Pending }
	m := memo{shadow: s}
	s.each(offset, size, func(c *cell) {
		if m.repeat(c) {
			return
		}
		m.begin(c)
		if is(&c.write) {
			settle(&c.write)
		}
		s.settleUses(c, is, settle)
		m.end(c)
	})
	m.forget()
}

// settleUses changes the uses of a cell for which is holds.
func (s *Shadow) settleUses(c *cell, is func(a *Access) bool, settle func(a *Access)) {
	if c.many == 0 {
		if is(&c.since.Access) {
			settle(&c.since.Access)
		}
		return
	}
	if !slices.ContainsFunc(s.uses[c.many-1], func(u use) bool { return is(&u.Access) }) {
		return
	}
	list := s.ownUses(c)
	for i := range list {
		if is(&list[i].Access) {
			settle(&list[i].Access)
		}
	}
}

// Restamp makes the last write to a range one of another agent.
func (s *Shadow) Restamp(offset, size int, stamp Access) {
	s.each(offset, size, func(c *cell) { c.write = stamp })
}

// SettleWrite turns the pending write of a cp.async into a write that its thread makes now.
func (s *Shadow) SettleWrite(offset, size int, o *Observer) {
	s.each(offset, size, func(c *cell) {
		if c.write.Flags&Pending != 0 && c.write.Op == o.Op && sameWarp(&c.write, &o.Access) && c.write.Lane == o.Lane {
			c.write = o.Access
		}
	})
}

// Reads are the reads of granules through the async proxy that one observer makes under one stamp.
// Granules that remember the same accesses before such a read do so after it.
type Reads struct {
	observer *Observer
	by       Observer // as which they are remembered
	ordered  Access   // a write that is in order
	memo     memo
}

// NewReads returns reads of an observer that are remembered under a stamp. Close ends them.
func (s *Shadow) NewReads(o *Observer, stamp *Access) Reads {
	return Reads{observer: o, by: Observer{Access: *stamp, clock: o.clock}, memo: memo{shadow: s}}
}

// Close ends the reads.
func (r *Reads) Close() { r.memo.forget() }

// Granule records a read of one granule if a short check shows that it is in order. Otherwise it
// records nothing and returns false.
func (r *Reads) Granule(number int) bool {
	s, o := r.memo.shadow, r.observer
	c := &s.cells[number]
	if r.memo.repeat(c) {
		return true
	}
	if !c.isOne() || s.wroteSince(c) {
		return false
	}
	if c.write != r.ordered {
		if lanes := c.write.Lanes(); o.races(&c.write, lanes) || o.unfenced(&c.write, lanes) {
			return false
		}
		r.ordered = c.write
	}
	r.memo.begin(c)
	s.record(c, &r.by, 0)
	r.memo.end(c)
	return true
}

// Settled are reads of a product, recorded under a stamp, that are no longer pending.
type Settled struct {
	is   func(a *Access) bool
	memo memo
}

// NewSettled returns the reads with a stamp. Close ends them.
func (s *Shadow) NewSettled(stamp Access) Settled {
	is := func(a *Access) bool {
		return a.Flags&Pending != 0 && a.Flags&wrote == 0 && a.Epoch == stamp.Epoch && sameWarp(a, &stamp)
	}
	return Settled{is, memo{shadow: s}}
}

// Close ends the reads.
func (r *Settled) Close() { r.memo.forget() }

// Range ends the reads of a range.
func (r *Settled) Range(offset, size int) {
	s := r.memo.shadow
	if c := &s.cells[offset/Granule]; offset%Granule == 0 && size == Granule && c.isOne() {
		r.settle(c)
		return
	}
	s.each(offset, size, r.settle)
}

func (r *Settled) settle(c *cell) {
	if r.memo.repeat(c) {
		return
	}
	r.memo.begin(c)
	r.memo.shadow.settleUses(c, r.is, func(a *Access) { a.Flags &^= Pending })
	r.memo.end(c)
}

// unfencedWrite finds a write of the generic proxy that the observer knows of and that no proxy
// fence follows.
func (s *Shadow) unfencedWrite(c *cell, o *Observer) (Access, bool) {
	if o.unfenced(&c.write, c.write.Lanes()) {
		return c.write, true
	}
	if c.many == 0 {
		return c.since.Access, c.since.Flags&wrote != 0 && o.unfenced(&c.since.Access, c.since.lanes)
	}
	list := s.uses[c.many-1]
	for i := range list {
		if u := &list[i]; u.Flags&wrote != 0 && o.unfenced(&u.Access, u.lanes) {
			return u.Access, true
		}
	}
	return Access{}, false
}

// wroteSince reports whether a cell remembers strong writes.
func (s *Shadow) wroteSince(c *cell) bool {
	if c.many == 0 {
		return c.since.Flags&wrote != 0
	}
	if !s.wrote[c.many-1] {
		return false
	}
	list := s.uses[c.many-1]
	for i := range list {
		if list[i].Flags&wrote != 0 {
			return true
		}
	}
	return false
}
