package order

// Most accesses are in order by what the observer's clock knows of whole warps, and each of their
// cells has one use at most. The functions below record such an access in one pass, without a visit
// of each cell by a function. They report false for every other access, which Read and Write check
// in full. A read may be recorded in some cells by then; to record it twice is harmless.

// ReadInOrder records a read, if a short check shows that it is in order.
func (s *Shadow) ReadInOrder(offset, size int, o *Observer) bool {
	if size == Granule && offset%Granule == 0 && s.readSpread(offset, o) {
		return true
	}
	cells := s.aligned(offset, size)
	for i := range cells {
		if cells[i].split() != 0 || !cells[i].readInOrder(o) {
			return false
		}
	}
	if len(cells) == granuleCells {
		s.unite(offset / Granule * granuleCells)
	}
	return len(cells) > 0
}

// WriteInOrder records a plain write, if a short check shows that it is in order.
func (s *Shadow) WriteInOrder(offset, size int, o *Observer) bool {
	if o.Flags&Strong != 0 {
		return false
	}
	cells := s.aligned(offset, size)
	for i := range cells {
		if cells[i].split() != 0 || !cells[i].isBeforeWrite(o) {
			return false
		}
	}
	for i := range cells {
		cells[i].write, cells[i].since = o.Access, use{}
	}
	if len(cells) == granuleCells {
		s.unite(offset / Granule * granuleCells)
	}
	return len(cells) > 0
}

// aligned returns the cells of a range of whole words within one granule; none for another range.
func (s *Shadow) aligned(offset, size int) []cell {
	if (offset|size)&3 != 0 || offset%Granule+size > Granule {
		return nil
	}
	first := offset / Granule * granuleCells
	if c := &s.cells[first]; c.isOne() && size == Granule {
		return s.cells[first : first+1]
	}
	s.separate(first)
	return s.cells[offset/4:][:size/4]
}

func (c *cell) readInOrder(o *Observer) bool {
	return c.many == 0 && o.knowsWrite(&c.write) && c.recordRead(o)
}

// recordRead records a read of the observer, unless the cell would have several uses then.
func (c *cell) recordRead(o *Observer) bool {
	u := &c.since
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

// asyncInOrder records a plain access of the async proxy under a stamp, if a short check shows that it
// is in order and that no write of the generic proxy precedes it.
func (s *Shadow) asyncInOrder(offset, size int, o *Observer, stamp *Access, writes bool) bool {
	if (offset|size)%Granule != 0 || o.together != nil || stamp.Flags&Strong != 0 {
		return false
	}
	first, end := offset/Granule*granuleCells, (offset+size)/Granule*granuleCells
	for g := first; g < end; g += granuleCells {
		n := 1
		if !s.cells[g].isOne() {
			s.separate(g)
			n = granuleCells
		}
		for i := range n {
			c := &s.cells[g+i]
			if c.many != 0 || c.split() != 0 || !o.knowsAsyncWrite(&c.write) || c.since.Flags&wrote != 0 {
				return false
			}
			if u := &c.since; writes && u.Flags&Present != 0 && (u.Flags&Pending != 0 || !o.knowsReads(u)) {
				return false
			}
		}
	}
	by := Observer{Access: *stamp, clock: o.clock}
	for g := first; g < end; g += granuleCells {
		switch c := &s.cells[g]; {
		case writes:
			*c = cell{write: *stamp}
		case c.isApart() || !c.recordRead(&by):
			return false // to record the others twice is harmless
		}
	}
	return true
}

// knowsAsyncWrite reports whether a write is none, or one of the async proxy that the observer's clock
// knows. A false result decides nothing.
func (o *Observer) knowsAsyncWrite(w *Access) bool {
	if w.Flags&Present == 0 {
		return true
	}
	return w.Flags&(Async|Pending) == Async && w.Block == o.Block && o.clock.warps[w.Warp].all >= w.Epoch
}
