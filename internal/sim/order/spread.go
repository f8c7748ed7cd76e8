package order

// Most warps access memory in the order of their lanes: four neighbouring lanes access the four words of
// a granule. The cell of such a granule remembers the accesses of all four lanes: the lane in it is the
// first one's. The state is the same as with a cell for each word.

// Bits of the parts of the cell of a granule that is not apart.
const (
	spreadWrite = 1 << 30 // the last write is of four lanes
	spreadRead  = 1 << 29 // the read since is of four lanes
	spreadPair  = 1 << 28 // the last write is of two lanes, each of two words
	spreadBits  = spreadWrite | spreadRead | spreadPair
)

// isOne reports whether the cell of a granule remembers the same accesses for all of it.
func (c *cell) isOne() bool { return c.parts == 0 }

// spreadTo makes a copy of the cell of a granule that of a word.
func (c *cell) spreadTo(other *cell, word int) {
	if c.parts&spreadWrite != 0 {
		other.write.Lane += uint8(word)
	}
	if c.parts&spreadPair != 0 {
		other.write.Lane += uint8(word / 2)
	}
	if c.parts&spreadRead != 0 {
		other.since.Lane += uint8(word)
		other.since.lanes <<= word
	}
}

// ReadFour records the reads of the words of a granule by four lanes, of which the observer is the first,
// if a short check shows that they are in order. Otherwise it may have recorded some of them; to record
// those twice is harmless.
func (s *Shadow) ReadFour(offset int, o *Observer) bool {
	c := &s.cells[offset/Granule]
	if c.isApart() {
		by, words := *o, s.words(c)
		for i := range words {
			if w := &words[i]; w.parts != 0 || !s.readInOrder(w, &by) {
				return false
			}
			by.Lane++
		}
		return true
	}
	if c.many != 0 || !o.knowsWriteOfFour(c) {
		return false
	}
	u := &c.since
	now := use{Access: o.Access, lanes: o.mask()}
	switch {
	case u.Flags&Present == 0:
	case u.Flags&wrote != 0:
		return false
	case c.parts&spreadRead != 0 && u.Lane == o.Lane && u.merge(&now):
		return true
	case u.Flags == now.Flags && u.Flags&Pending == 0 && o.knowsReadsOfFour(c):
	default:
		return false
	}
	*u = now
	c.parts |= spreadRead
	return true
}

// WriteFour is ReadFour for plain writes. It records nothing where it returns false.
func (s *Shadow) WriteFour(offset int, o *Observer) bool {
	c := &s.cells[offset/Granule]
	if c.isApart() {
		by, words := *o, s.words(c)
		for i := range words {
			if w := &words[i]; w.parts != 0 || !w.isBeforeWrite(&by) {
				return false
			}
			by.Lane++
		}
	} else {
		u := &c.since
		if c.many != 0 || !o.knowsWriteOfFour(c) || u.Flags&Present != 0 && (u.Flags&^WarpWide != Present || !o.knowsReadsOfFour(c)) {
			return false
		}
	}
	s.replace(c, cell{write: o.Access, parts: spreadWrite})
	return true
}

// WritePair is WriteFour for two lanes that write two words each.
func (s *Shadow) WritePair(offset int, o *Observer) bool {
	c := &s.cells[offset/Granule]
	if c.isApart() {
		by, words := *o, s.words(c)
		for i := range words {
			by.Lane = o.Lane + uint8(i/2)
			if w := &words[i]; w.parts != 0 || !w.isBeforeWrite(&by) {
				return false
			}
		}
	} else {
		known := o.warpKnowsWrite(&c.write) || c.parts&spreadPair != 0 && o.knowsWrite(&c.write)
		by := Observer{Access: o.Access, clock: o.clock}
		by.Lane = AllLanes // no lane alone
		if u := &c.since; c.many != 0 || !known || u.Flags&Present != 0 && (u.Flags&^WarpWide != Present || !by.knowsReads(u)) {
			return false
		}
	}
	s.replace(c, cell{write: o.Access, parts: spreadPair})
	return true
}

// knowsWriteOfFour is knowsWrite for four lanes, of which the observer is the first.
func (o *Observer) knowsWriteOfFour(c *cell) bool {
	if c.parts&spreadWrite != 0 {
		return o.knowsWrite(&c.write) // lane by lane
	}
	return o.warpKnowsWrite(&c.write)
}

// knowsReadsOfFour is knowsReads for four lanes, of which the observer is the first.
func (o *Observer) knowsReadsOfFour(c *cell) bool {
	if c.parts&spreadRead != 0 {
		return o.knowsReads(&c.since)
	}
	by := Observer{Access: o.Access, clock: o.clock}
	by.Lane = AllLanes // no lane alone
	return by.knowsReads(&c.since)
}

// warpKnowsWrite is knowsWrite for a write that is not of the observer's lane alone.
func (o *Observer) warpKnowsWrite(w *Access) bool {
	if w.Flags&Present == 0 {
		return true
	}
	return w.Flags&Pending == 0 && w.Block == o.Block && o.clock.warps[w.Warp].all >= w.Epoch
}

// readGranule records a read of a whole granule, if a short check shows that it is in order.
func (s *Shadow) readGranule(offset int, o *Observer) bool {
	c := &s.cells[offset/Granule]
	known := c.isOne() && o.knowsWrite(&c.write) || (c.parts == spreadWrite || c.parts == spreadPair) && o.warpKnowsWrite(&c.write)
	return known && s.recordInOrder(c, o)
}
