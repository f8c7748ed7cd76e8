package order

// Most accesses are in order by what the observer's clock knows of whole warps, and each of their
// cells has one use at most. The functions below record such an access in one pass, without a visit
// of each cell by a function. They report false for every other access, which Read and Write check
// in full. A read may be recorded in some cells by then; to record it twice is harmless.

// ReadInOrder records a read, if a short check shows that it is in order.
func (s *Shadow) ReadInOrder(offset, size int, o *Observer) bool {
	if size == Granule && offset%Granule == 0 && s.readGranule(offset, o) {
		return true
	}
	if size > Granule {
		return s.readGranules(offset, size, o)
	}
	cells := s.aligned(offset, size)
	for i := range cells {
		if cells[i].parts != 0 || !s.readInOrder(&cells[i], o) {
			return false
		}
	}
	if len(cells) == granuleCells {
		s.unite(&s.cells[offset/Granule])
	}
	return len(cells) > 0
}

// readGranules is ReadInOrder for several whole granules.
func (s *Shadow) readGranules(offset, size int, o *Observer) bool {
	if (offset|size)%Granule != 0 {
		return false
	}
	for end := offset + size; offset < end; offset += Granule {
		if !s.ReadInOrder(offset, Granule, o) {
			return false
		}
	}
	return true
}

// writeGranules is WriteInOrder for several whole granules.
func (s *Shadow) writeGranules(offset, size int, o *Observer) bool {
	if (offset|size)%Granule != 0 {
		return false
	}
	granules := s.cells[offset/Granule : (offset+size)/Granule]
	for i := range granules {
		c := &granules[i]
		if !c.isApart() {
			if c.parts != 0 || !c.isBeforeWrite(o) {
				return false
			}
			continue
		}
		words := s.words(c)
		for j := range words {
			if words[j].parts != 0 || !words[j].isBeforeWrite(o) {
				return false
			}
		}
	}
	for i := range granules {
		s.replace(&granules[i], cell{write: o.Access})
	}
	return true
}

// WriteInOrder records a plain write, if a short check shows that it is in order.
func (s *Shadow) WriteInOrder(offset, size int, o *Observer) bool {
	if o.Flags&Strong != 0 {
		return false
	}
	if size > Granule {
		return s.writeGranules(offset, size, o)
	}
	cells := s.aligned(offset, size)
	for i := range cells {
		if cells[i].parts != 0 || !cells[i].isBeforeWrite(o) {
			return false
		}
	}
	if len(cells) == granuleCells {
		s.replace(&s.cells[offset/Granule], cell{write: o.Access})
		return true
	}
	for i := range cells {
		cells[i].write, cells[i].since = o.Access, use{}
	}
	return len(cells) > 0
}

// aligned returns the cells of a range of whole words within one granule; none for another range.
func (s *Shadow) aligned(offset, size int) []cell {
	if (offset|size)&3 != 0 || offset%Granule+size > Granule {
		return nil
	}
	at := offset / Granule
	c := &s.cells[at]
	if size == Granule && c.isOne() {
		return s.cells[at : at+1]
	}
	first := offset % Granule / 4
	return s.separate(c)[first : first+size/4]
}

func (s *Shadow) readInOrder(c *cell, o *Observer) bool {
	return o.knowsWrite(&c.write) && s.recordInOrder(c, o)
}

// recordInOrder records a read that is in order of all plain writes, unless the cell remembers strong ones.
func (s *Shadow) recordInOrder(c *cell, o *Observer) bool {
	if c.many == 0 && c.recordRead(o) {
		return true
	}
	if s.wroteSince(c) {
		return false
	}
	s.record(c, o, 0)
	return true
}

// recordRead records a read of the observer, unless the cell would have several uses then.
func (c *cell) recordRead(o *Observer) bool {
	u := &c.since
	if u.Epoch == o.Epoch && u.Warp == o.Warp && u.Lane == o.Lane && u.Flags == o.Flags && u.Block == o.Block && u.warps == 0 {
		u.Op = o.Op // as merge does
		u.lanes |= o.mask()
		return true
	}
	now := use{Access: o.Access, lanes: o.mask()}
	switch {
	case u.Flags&Present == 0:
		*u = now
	case u.Flags&wrote != 0:
		return false
	case u.merge(&now):
	case u.Flags == now.Flags && u.Flags&Pending == 0 && o.knowsReads(u):
		*u = now
	default:
		return false
	}
	return true
}

// isBeforeWrite reports whether all that the cell remembers is before a write of the observer.
func (c *cell) isBeforeWrite(o *Observer) bool {
	if c.many != 0 || !o.knowsWrite(&c.write) {
		return false
	}
	u := &c.since
	return u.Flags&Present == 0 || u.Flags&^WarpWide == Present && o.knowsReads(u)
}

// knowsWrite reports whether a write is none, or the lane's own, or one that the observer's clock
// knows with all lanes of its warp. A false result decides nothing.
func (o *Observer) knowsWrite(w *Access) bool {
	switch {
	case w.Flags&Present == 0:
		return true
	case w.Flags&Pending != 0 || w.Block != o.Block:
		return false
	}
	return o.clock.warps[w.Warp].all >= w.Epoch || w.Warp == o.Warp && w.Lane == o.Lane && o.Lane < AllLanes
}

// knowsReads is knowsWrite for plain reads.
func (o *Observer) knowsReads(u *use) bool {
	switch {
	case u.Block != o.Block:
		return false
	case u.warps == 0:
		return o.clock.warps[u.Warp].all >= u.Epoch || u.Warp == o.Warp && o.Lane < AllLanes && u.lanes == 1<<o.Lane
	}
	for m := u.warps; m != 0; m &= m - 1 {
		if w := firstLane(m); o.clock.warps[w].all < u.Epoch && !(w == int(o.Warp) && o.Lane < AllLanes && u.lanes == 1<<o.Lane) {
			return false
		}
	}
	return true
}

// AsyncWriteInOrder records a plain write of the async proxy under a stamp, if a short check shows that it
// is in order. Otherwise it records nothing.
func (s *Shadow) AsyncWriteInOrder(offset, size int, o *Observer, stamp *Access) bool {
	return s.asyncInOrder(offset, size, o, stamp, true)
}

// asyncInOrder records a plain access of the async proxy under a stamp, if a short check shows that it
// is in order and that no write of the generic proxy precedes it.
func (s *Shadow) asyncInOrder(offset, size int, o *Observer, stamp *Access, writes bool) bool {
	if (offset|size)%Granule != 0 || o.together != nil || stamp.Flags&Strong != 0 {
		return false
	}
	granules := s.cells[offset/Granule : (offset+size)/Granule]
	var known *cell // the last granule that is in order
	for i := range granules {
		if c := &granules[i]; c.isOne() {
			if known != nil && c.equals(known) {
				continue
			}
			if !s.isBeforeAsync(c, o, writes) {
				return false
			}
			known = c
			continue
		}
		words := s.separate(&granules[i])
		for j := range words {
			if c := &words[j]; c.parts != 0 || !s.isBeforeAsync(c, o, writes) {
				return false
			}
		}
	}
	if writes {
		for i := range granules {
			if c := &granules[i]; c.parts|uint32(c.many) != 0 {
				s.forgetAll(c)
			}
			granules[i] = cell{write: *stamp}
		}
		return true
	}
	by := Observer{Access: *stamp, clock: o.clock}
	m := memo{shadow: s}
	for i := range granules {
		c := &granules[i]
		if c.isOne() {
			if !m.repeat(c) {
				m.begin(c)
				s.record(c, &by, 0)
				m.end(c)
			}
			continue
		}
		words := s.words(c)
		for j := range words {
			s.record(&words[j], &by, 0)
		}
		s.unite(c)
	}
	m.forget()
	return true
}

// isBeforeAsync reports whether a write of the async proxy follows all that the cell remembers, or
// whether a read follows all writes.
func (s *Shadow) isBeforeAsync(c *cell, o *Observer, writes bool) bool {
	if !o.knowsAsyncWrite(&c.write) {
		return false
	}
	if !writes {
		return !s.wroteSince(c)
	}
	if c.many == 0 {
		return c.since.Flags&Present == 0 || o.knowsEndedReads(&c.since)
	}
	list := s.uses[c.many-1]
	for i := range list {
		if !o.knowsEndedReads(&list[i]) {
			return false
		}
	}
	return true
}

// knowsEndedReads is knowsReads for uses that may be writes, or reads that are pending.
func (o *Observer) knowsEndedReads(u *use) bool {
	return u.Flags&(Pending|wrote) == 0 && o.knowsReads(u)
}

// knowsAsyncWrite reports whether a write is none, or one of the async proxy that the observer's clock
// knows. A false result decides nothing.
func (o *Observer) knowsAsyncWrite(w *Access) bool {
	if w.Flags&Present == 0 {
		return true
	}
	return w.Flags&(Async|Pending) == Async && w.Block == o.Block && o.clock.warps[w.Warp].covers(w.Lanes(), w.Epoch)
}
