package order

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
	settle := func(a *Access) {
		if a.Flags&Pending != 0 && a.Op == stamp.Op && sameWarp(a, &stamp) && (a.Lane == stamp.Lane || a.Lane == AllLanes) {
			a.Epoch, a.Flags = epoch, a.Flags&^Pending
		}
	}
	s.each(offset, size, func(c *cell) {
		settle(&c.write)
		settle(&c.since.Access)
		if c.many != 0 {
			list := s.uses[c.many-1]
			for i := range list {
				settle(&list[i].Access)
			}
		}
	})
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

// SettleReads ends the pending reads of a product that were recorded under a stamp.
func (s *Shadow) SettleReads(offset, size int, stamp *Access) {
	if c := &s.cells[offset/Granule]; offset%Granule == 0 && size == Granule && c.isOne() {
		s.settleReads(c, stamp)
		return
	}
	s.each(offset, size, func(c *cell) { s.settleReads(c, stamp) })
}

func (s *Shadow) settleReads(c *cell, stamp *Access) {
	if c.many == 0 {
		c.since.settleRead(stamp)
		return
	}
	list := s.uses[c.many-1]
	for i := range list {
		list[i].settleRead(stamp)
	}
}

func (u *use) settleRead(stamp *Access) {
	if u.Flags&Pending != 0 && u.Flags&wrote == 0 && u.Epoch == stamp.Epoch && sameWarp(&u.Access, stamp) {
		u.Flags &^= Pending
	}
}

// ReadGranule records a read of one granule through the async proxy if a short check shows that the
// read is in order. Otherwise it records nothing and returns false. ordered is a write that an
// earlier read of the same observer found to be in order. The stamp says as whose read it is
// remembered.
func (s *Shadow) ReadGranule(number int, o *Observer, stamp, ordered *Access) bool {
	c := &s.cells[number]
	if !c.isOne() || s.wroteSince(c) {
		return false
	}
	if c.write != *ordered {
		if lanes := c.write.Lanes(); o.races(&c.write, lanes) || o.unfenced(&c.write, lanes) {
			return false
		}
		*ordered = c.write
	}
	s.record(c, &Observer{Access: *stamp, clock: o.clock}, 0)
	return true
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
	list := s.uses[c.many-1]
	for i := range list {
		if list[i].Flags&wrote != 0 {
			return true
		}
	}
	return false
}
