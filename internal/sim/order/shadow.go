package order

import (
	"slices"
	"unsafe"
)

// use is a read, or a strong write, and the lanes of its warp that made it. Several warps that make
// the same plain read in epochs of one number are one use.
type use struct {
	Access
	lanes uint32
	warps uint32 // that made the read, each with these lanes; 0 for the warp of the access alone
}

// cell remembers the accesses to 16 bytes while they are only accessed together, else to four of them
// or, in a split cell, to one byte. The cell of 16 bytes also remembers the accesses of four neighbouring
// lanes, each to one word (spread.go).
type cell struct {
	write Access // the last write that was not strong
	since use    // a read or a strong write since
	many  int32  // index in Shadow.uses, plus 1, where there are several

	// Of a granule, index in Shadow.apart, plus 1, where its words remember their own accesses; else the
	// bits of spread.go. Of a word, index in Shadow.split, plus 1, where its bytes do so.
	parts uint32
}

// isApart reports whether the words of a granule remember their own accesses.
func (c *cell) isApart() bool { return c.parts&^spreadBits != 0 }

// Granule is the number of bytes that one cell remembers while they are only accessed together.
const Granule = 16

const granuleCells = Granule / 4

// ShadowBytes is the size of the shadow of one byte whose word is accessed by itself, while no word is split
// or used by many.
const ShadowBytes = int(unsafe.Sizeof(cell{})) / 4

// Shadow remembers the accesses to a range of memory.
type Shadow struct {
	cells     []cell               // of granules
	apart     [][granuleCells]cell // of the words of granules
	freeApart []uint32
	uses      [][]use // tables of cells with several uses
	holders   []int32 // of each table: the cells that have it; one that several have never changes
	wrote     []bool  // of each table: it may have strong writes
	freeUses  []int32
	split     [][4]cell
	freeSplit []uint32

	global bool // of global memory
}

// Reset forgets all accesses, and makes the shadow one of memory with a number of bytes.
func (s *Shadow) Reset(size int) {
	n := (size + Granule - 1) / Granule
	if cap(s.cells) < n {
		s.cells = make([]cell, n)
	} else {
		s.cells = s.cells[:n]
		clear(s.cells)
	}
	s.uses, s.holders, s.wrote, s.freeUses, s.split, s.freeSplit = s.uses[:0], s.holders[:0], s.wrote[:0], s.freeUses[:0], s.split[:0], s.freeSplit[:0]
	s.apart, s.freeApart = s.apart[:0], s.freeApart[:0]
}

// Read records a read and returns the first conflict.
func (s *Shadow) Read(offset, size int, o *Observer) (Conflict, bool) {
	if s.ReadInOrder(offset, size, o) {
		return Conflict{}, false
	}
	return s.checkRead(offset, size, o)
}

func (s *Shadow) checkRead(offset, size int, o *Observer) (Conflict, bool) {
	var found Conflict
	bad := false
	s.each(offset, size, func(c *cell) {
		if w, races := s.unorderedWrite(c, o); races && !bad {
			found, bad = Conflict{w, false, w.Lanes()}, true
		}
		s.record(c, o, 0)
	})
	return found, bad
}

// Repeats decides whether two instructions that write the same bytes do so on purpose.
type Repeats interface {
	WriteSame(a, b int32) bool
}

// Write records a write, or an atomic operation, and returns the first conflict. same is not nil
// where the bytes written equal those that were there. Two such writes do not conflict if same
// says so for their instructions.
func (s *Shadow) Write(offset, size int, o *Observer, same Repeats) (Conflict, bool) {
	if s.WriteInOrder(offset, size, o) {
		return Conflict{}, false
	}
	return s.checkWrite(offset, size, o, same)
}

func (s *Shadow) checkWrite(offset, size int, o *Observer, same Repeats) (Conflict, bool) {
	var found Conflict
	bad := false
	s.each(offset, size, func(c *cell) {
		if w, races := s.unorderedWrite(c, o); races && !bad && !(same != nil && same.WriteSame(w.Op, o.Op)) {
			found, bad = Conflict{w, false, w.Lanes()}, true
		}
		if r, lanes, races := s.unorderedRead(c, o); races && !bad {
			found, bad = Conflict{r, true, lanes}, true
		}
		if o.Flags&Strong != 0 {
			s.record(c, o, wrote) // later accesses must still be ordered after the last plain write
			return
		}
		c.write = o.Access
		s.forgetUses(c)
	})
	return found, bad
}

// unorderedWrite finds a write, plain or strong, that races with the observer.
func (s *Shadow) unorderedWrite(c *cell, o *Observer) (Access, bool) {
	if o.races(&c.write, c.write.Lanes()) {
		return c.write, true
	}
	if c.many == 0 {
		return c.since.Access, c.since.Flags&wrote != 0 && o.races(&c.since.Access, c.since.lanes)
	}
	list := s.uses[c.many-1]
	for i := range list {
		if u := &list[i]; u.Flags&wrote != 0 && o.races(&u.Access, u.lanes) {
			return u.Access, true
		}
	}
	return Access{}, false
}

// unorderedRead finds a read since the last plain write that races with the observer, and its lanes.
func (s *Shadow) unorderedRead(c *cell, o *Observer) (Access, uint32, bool) {
	if c.many == 0 {
		e, races := o.racesWithRead(&c.since)
		return e, c.since.lanes, races
	}
	list := s.uses[c.many-1]
	for i := range list {
		if e, races := o.racesWithRead(&list[i]); races {
			return e, list[i].lanes, true
		}
	}
	return Access{}, 0, false
}

// Each calls visit for every access that the shadow remembers, with the lanes that made it.
func (s *Shadow) Each(offset, size int, visit func(a *Access, lanes uint32)) {
	s.each(offset, size, func(c *cell) {
		visit(&c.write, c.write.Lanes())
		if c.many == 0 {
			c.since.each(visit)
			return
		}
		list := s.uses[c.many-1]
		for i := range list {
			list[i].each(visit)
		}
	})
}

// each visits the cells of a range. A granule that the range covers has one cell if its bytes are
// only accessed together, and four otherwise. Words that the range covers in part are split.
func (s *Shadow) each(offset, size int, visit func(*cell)) {
	for end := offset + size; offset < end; {
		c := &s.cells[offset/Granule]
		next := min(offset/Granule*Granule+Granule, end)
		if whole := next-offset == Granule; whole && c.isOne() {
			visit(c)
		} else {
			s.eachWord(s.separate(c), offset, next, visit)
			if whole {
				s.unite(c)
			}
		}
		offset = next
	}
}

// eachWord visits the cells of a range within a granule, of which words are the cells.
func (s *Shadow) eachWord(words *[granuleCells]cell, offset, end int, visit func(*cell)) {
	for offset < end {
		c := &words[offset/4%granuleCells]
		next := min(offset/4*4+4, end)
		if c.parts == 0 && next-offset < 4 {
			s.splitCell(c)
		}
		if c.parts == 0 {
			visit(c)
		} else {
			for i := offset % 4; i < offset%4+next-offset; i++ {
				visit(&s.split[c.parts-1][i])
			}
			if next-offset == 4 {
				s.uniteCell(c)
			}
		}
		offset = next
	}
}

// separate has each of the four words of a granule remember its own accesses, and returns their cells.
// They are valid until another granule is separated.
func (s *Shadow) separate(c *cell) *[granuleCells]cell {
	if !c.isApart() {
		number := s.newApart()
		words := &s.apart[number]
		for i := range words {
			words[i] = s.copyOf(c)
			c.spreadTo(&words[i], i)
		}
		s.forgetUses(c)
		c.parts = number + 1
	}
	return s.words(c)
}

// words returns the cells of the words of a granule.
func (s *Shadow) words(c *cell) *[granuleCells]cell { return &s.apart[c.parts-1] }

func (s *Shadow) newApart() uint32 {
	if n := len(s.freeApart); n > 0 {
		number := s.freeApart[n-1]
		s.freeApart = s.freeApart[:n-1]
		return number
	}
	if n := len(s.apart); n == 0 && cap(s.apart) == 0 { // first for a quarter of the granules, then for all
		s.apart = slices.Grow(s.apart, (len(s.cells)+3)/4)
	} else if n == cap(s.apart) {
		s.apart = slices.Grow(s.apart, len(s.cells)-n)
	}
	s.apart = s.apart[:len(s.apart)+1]
	return uint32(len(s.apart) - 1)
}

// forgetAll forgets what the cell of a granule, or those of its words, remember.
func (s *Shadow) forgetAll(c *cell) {
	if c.isApart() {
		words := s.words(c)
		for i := range words {
			s.forgetUses(&words[i])
		}
	} else {
		s.forgetUses(c)
	}
	s.replace(c, cell{})
}

// replace has a granule remember what a cell of it says, and nothing of its words.
func (s *Shadow) replace(c *cell, by cell) {
	if c.isApart() {
		s.freeApart = append(s.freeApart, c.parts-1)
	}
	*c = by
}

// unite has the cell of a granule remember the accesses for all of it, if those of its words are equal.
func (s *Shadow) unite(c *cell) {
	words := s.words(c)
	for i := range words {
		if w := &words[i]; w.parts != 0 || w.many != 0 || w.write != words[0].write || w.since != words[0].since {
			return
		}
	}
	s.replace(c, words[0])
}

// copyOf makes a cell that remembers the same accesses as another.
func (s *Shadow) copyOf(c *cell) cell {
	s.hold(c.many)
	return cell{write: c.write, since: c.since, many: c.many}
}

// splitCell gives each byte of a word its own cell.
func (s *Shadow) splitCell(c *cell) {
	var parts [4]cell
	for i := range parts {
		parts[i] = s.copyOf(c)
	}
	s.forgetUses(c)
	var number uint32
	if n := len(s.freeSplit); n > 0 {
		number = s.freeSplit[n-1]
		s.freeSplit = s.freeSplit[:n-1]
		s.split[number] = parts
	} else {
		number = uint32(len(s.split))
		s.split = append(s.split, parts)
	}
	c.parts = number + 1
}

// uniteCell merges the cells of the bytes of a word, if they are equal.
func (s *Shadow) uniteCell(c *cell) {
	parts := &s.split[c.parts-1]
	for i := range parts {
		if parts[i].many != 0 || parts[i].write != parts[0].write || parts[i].since != parts[0].since {
			return
		}
	}
	s.freeSplit = append(s.freeSplit, c.parts-1)
	*c = parts[0]
}

func (s *Shadow) newUses() int32 {
	if n := len(s.freeUses); n > 0 {
		index := s.freeUses[n-1]
		s.freeUses = s.freeUses[:n-1]
		s.uses[index], s.holders[index], s.wrote[index] = s.uses[index][:0], 1, false
		return index
	}
	s.holders, s.wrote = append(s.holders, 1), append(s.wrote, false)
	if len(s.uses) < cap(s.uses) {
		s.uses = s.uses[:len(s.uses)+1]
		s.uses[len(s.uses)-1] = s.uses[len(s.uses)-1][:0]
	} else {
		s.uses = append(s.uses, nil)
	}
	return int32(len(s.uses) - 1)
}

// record remembers a read or a strong write.
func (s *Shadow) record(c *cell, o *Observer, extra Flags) {
	now := use{Access: o.Access, lanes: o.mask()}
	now.Flags |= extra
	if o.UsesOld {
		s.forgetPassed(c, o, &now)
	}
	if c.many == 0 {
		switch {
		case c.since.Flags&Present == 0:
			c.since = now
		case c.since.merge(&now):
		case o.replaces(&now, &c.since):
			c.since = now
		default:
			table := s.newUses()
			s.uses[table] = append(s.uses[table], c.since, now)
			s.wrote[table] = (c.since.Flags|now.Flags)&wrote != 0
			c.many = table + 1
		}
		return
	}
	list := s.ownUses(c)
	if now.Flags&wrote != 0 {
		s.wrote[c.many-1] = true
	}
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].merge(&now) {
			return
		}
	}
	// A use that the new one replaces gives up its place. Others that it replaces may stay.
	for i := range list {
		if (list[i].Block == o.Block || o.clock.blocks != nil) && o.replaces(&now, &list[i]) {
			list[i] = now
			return
		}
	}
	if most := s.maxUses(); len(list) >= most {
		list[(int(now.Block)*7+int(now.Warp))%most] = now
		return
	}
	s.uses[c.many-1] = append(list, now)
}

// forgetPassed forgets the strong writes that an atomic operation is ordered after because it has
// read what they left. The block that draws the last ticket may therefore reset the counter with a
// plain store, although only the tickets order the other blocks before it.
func (s *Shadow) forgetPassed(c *cell, o *Observer, now *use) {
	passed := func(u *use) bool {
		return u.Flags&(wrote|Strong) == wrote|Strong && u.Flags&(BlockScope|Volatile)&^now.Flags == 0 && o.bothStrong(&u.Access)
	}
	if c.many == 0 {
		if passed(&c.since) {
			c.since = use{}
		}
		return
	}
	list := s.ownUses(c)
	kept := list[:0]
	for i := range list {
		if !passed(&list[i]) {
			kept = append(kept, list[i])
		}
	}
	s.uses[c.many-1] = kept
}

// maxUses bounds the uses remembered of one cell. Beyond it one use is forgotten, and a race with
// that use alone may be missed. In shared memory all 32 warps of a block fit.
func (s *Shadow) maxUses() int {
	if s.global {
		return 12
	}
	return 32
}

// groupWarpLimit is the number of warps whose reads may be one use. A block has no more.
const groupWarpLimit = 32

// merge makes a new use part of an earlier one and reports whether it could: uses of one warp in one
// epoch, or the same plain read of several warps in epochs of one number.
func (u *use) merge(now *use) bool {
	switch {
	case u.Epoch != now.Epoch || u.Block != now.Block || u.Flags != now.Flags:
		return false
	case u.warps == 0 && u.Warp == now.Warp:
		u.Op = now.Op
		u.lanes |= now.lanes
		if u.Lane != now.Lane {
			u.Lane = AllLanes
		}
		return true
	case u.Flags&^WarpWide != Present || u.lanes != now.lanes || u.Lane != now.Lane || u.Warp >= groupWarpLimit || now.Warp >= groupWarpLimit:
		return false
	case u.warps>>now.Warp&1 != 0:
		return true
	case u.Op != now.Op:
		return false
	case u.warps == 0:
		u.warps = 1 << u.Warp
	}
	u.warps |= 1 << now.Warp
	return true
}

// each calls visit for the access of each warp of a use.
func (u *use) each(visit func(a *Access, lanes uint32)) {
	if u.warps == 0 {
		visit(&u.Access, u.lanes)
		return
	}
	one := u.Access
	for m := u.warps; m != 0; m &= m - 1 {
		one.Warp = uint16(firstLane(m))
		visit(&one, u.lanes)
	}
}

// racesWithRead finds a read of a use that races with the observer's access.
func (o *Observer) racesWithRead(u *use) (Access, bool) {
	switch {
	case u.Flags&wrote != 0:
		return Access{}, false
	case u.warps == 0:
		return u.Access, o.races(&u.Access, u.lanes)
	}
	one := u.Access
	for m := u.warps; m != 0; m &= m - 1 {
		one.Warp = uint16(firstLane(m))
		if o.races(&one, u.lanes) {
			return one, true
		}
	}
	return Access{}, false
}

// afterUse reports whether a use of earlier accesses happens before the observer's access.
func (o *Observer) afterUse(u *use) bool {
	if u.warps == 0 {
		return o.After(&u.Access, u.lanes)
	}
	one := u.Access
	for m := u.warps; m != 0; m &= m - 1 {
		one.Warp = uint16(firstLane(m))
		if !o.After(&one, u.lanes) {
			return false
		}
	}
	return true
}

// replaces reports whether the new use makes the earlier one redundant. The new use is ordered
// after the earlier one, and every access that must be ordered after the earlier must be after the
// new.
func (o *Observer) replaces(now, earlier *use) bool {
	switch {
	case earlier.Block != o.Block && o.clock.blocks == nil:
		return false
	case earlier.Flags&(wrote|BlockScope|Volatile)&^now.Flags != 0, now.Flags&Strong&^earlier.Flags != 0:
		return false
	}
	return o.afterUse(earlier)
}

func (s *Shadow) forgetUses(c *cell) {
	c.since = use{}
	s.drop(c.many)
	c.many = 0
}

// hold adds a holder to the table with a number, and drop removes one. They do nothing for 0.
func (s *Shadow) hold(many int32) {
	if many != 0 {
		s.holders[many-1]++
	}
}

func (s *Shadow) drop(many int32) {
	if many == 0 {
		return
	}
	if s.holders[many-1]--; s.holders[many-1] == 0 {
		s.freeUses = append(s.freeUses, many-1)
	}
}

// ownUses returns the table of a cell with several uses as one that no other cell has.
func (s *Shadow) ownUses(c *cell) []use {
	if shared := c.many; s.holders[shared-1] > 1 {
		c.many = s.newUses() + 1
		s.uses[c.many-1] = append(s.uses[c.many-1], s.uses[shared-1]...)
		s.wrote[c.many-1] = s.wrote[shared-1]
		s.drop(shared)
	}
	return s.uses[c.many-1]
}
