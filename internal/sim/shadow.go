package sim

import "sync"

// access is one access to memory, as the shadow remembers it.
type access struct {
	epoch uint32
	op    int32 // number of the operation in the program
	block uint32
	warp  uint16
	lane  uint8 // allLanes where a warp made it as a whole, or several lanes did
	flags uint8
}

const (
	present uint8 = 1 << iota
	strong        // atomic, volatile, relaxed, acquire or release: two such do not race
	pending       // of an asynchronous copy that nobody has waited for
)

// cell remembers the accesses to four bytes, or, in a split cell, to one.
type cell struct {
	write  access // the last that was not strong
	update access // the last strong one since
	read   access
	many   int32 // index in the table of readers, plus 1, when more than one warp has read since the write
	parts  int32 // index in the table of split cells, plus 1
}

// shadow remembers the accesses to a piece of memory.
type shadow struct {
	cells   []cell
	readers [][]access // tables of cells with several readers
	freeR   []int32
	split   [][4]cell
	freeS   []int32
}

// reset forgets everything, for memory of a number of bytes.
func (s *shadow) reset(size int) {
	n := (size + 3) / 4
	if cap(s.cells) < n {
		s.cells = make([]cell, n)
	} else {
		s.cells = s.cells[:n]
		clear(s.cells)
	}
	s.readers, s.freeR, s.split, s.freeS = s.readers[:0], s.freeR[:0], s.split[:0], s.freeS[:0]
}

// mostReaders bounds the readers remembered of one cell. Of more, the oldest is forgotten: a race with it alone may be missed.
const mostReaders = 32

// conflict is an earlier access that nothing orders before this one.
type conflict struct {
	earlier access
	reading bool // the earlier one was a read
}

// observer is who makes an access: its stamp, and what it knows.
type observer struct {
	access
	clock *clock
}

// after says whether an earlier access is ordered before the observer.
func (o *observer) after(earlier *access) bool {
	if earlier.flags&pending != 0 {
		return false
	}
	if earlier.block != o.block {
		warps := o.clock.blocks[earlier.block]
		return warps != nil && warps[earlier.warp].covers(earlier.lane, earlier.epoch)
	}
	if earlier.warp == o.warp && earlier.lane == o.lane && o.lane < allLanes {
		return true
	}
	return o.clock.warps[earlier.warp].covers(earlier.lane, earlier.epoch)
}

// races says whether an earlier access and the observer's are a race.
func (o *observer) races(earlier *access) bool {
	if earlier.flags&present == 0 || earlier.flags&o.flags&strong != 0 {
		return false
	}
	return !o.after(earlier)
}

// readBytes notes a read of size bytes at an offset and gives the first conflict.
func (s *shadow) readBytes(offset, size int, o *observer) (conflict, bool) {
	var found conflict
	bad := false
	s.each(offset, size, func(c *cell) {
		if w := c.unorderedWrite(o); w != nil && !bad {
			found, bad = conflict{*w, false}, true
		}
		s.noteRead(c, o.access)
	})
	return found, bad
}

// writeBytes notes a write. same says whether the bytes written are those that were there: two lanes that write one value in one instruction do
// no harm.
func (s *shadow) writeBytes(offset, size int, o *observer, same bool) (conflict, bool) {
	var found conflict
	bad := false
	s.each(offset, size, func(c *cell) {
		if w := c.unorderedWrite(o); w != nil && !bad && !(same && sameInstruction(w, &o.access)) {
			found, bad = conflict{*w, false}, true
		}
		if r, races := s.unordered(c, o); races && !bad {
			found, bad = conflict{r, true}, true
		}
		if o.flags&strong != 0 {
			c.update = o.access // what was written before still has to be ordered before whoever comes
			return
		}
		c.write, c.update = o.access, access{}
		s.forgetReads(c)
	})
	return found, bad
}

// unorderedWrite is a write, or a strong one, that nothing orders before the observer; nil where there is none.
func (c *cell) unorderedWrite(o *observer) *access {
	if o.races(&c.write) {
		return &c.write
	}
	if o.races(&c.update) {
		return &c.update
	}
	return nil
}

// updateBytes notes a read and a write in one: an atomic operation.
func (s *shadow) updateBytes(offset, size int, o *observer) (conflict, bool) {
	return s.writeBytes(offset, size, o, false)
}

// settle turns the pending write of an asynchronous copy into one that its thread made now.
func (s *shadow) settle(offset, size int, o *observer) {
	s.each(offset, size, func(c *cell) {
		if c.write.flags&pending != 0 && c.write.op == o.op && sameWarp(&c.write, &o.access) && c.write.lane == o.lane {
			c.write = o.access
		}
	})
}

// each visits the cells of a range: whole ones where the range covers them, split ones elsewhere.
func (s *shadow) each(offset, size int, visit func(*cell)) {
	for end := offset + size; offset < end; {
		word := offset / 4
		c := &s.cells[word]
		next := min((word+1)*4, end)
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

// splitCell gives each byte of a cell a cell of its own.
func (s *shadow) splitCell(c *cell) {
	whole := *c
	var parts [4]cell
	for i := range parts {
		parts[i] = cell{write: whole.write, update: whole.update, read: whole.read}
		if whole.many != 0 {
			table := s.newReaders()
			s.readers[table] = append(s.readers[table], s.readers[whole.many-1]...)
			parts[i].many = table + 1
		}
	}
	s.forgetReads(c)
	if n := len(s.freeS); n > 0 {
		c.parts = s.freeS[n-1] + 1
		s.freeS = s.freeS[:n-1]
		s.split[c.parts-1] = parts
	} else {
		s.split = append(s.split, parts)
		c.parts = int32(len(s.split))
	}
}

// uniteCell makes one cell of four that remember the same.
func (s *shadow) uniteCell(c *cell) {
	parts := &s.split[c.parts-1]
	for i := range parts {
		if parts[i].many != 0 || parts[i].write != parts[0].write || parts[i].update != parts[0].update || parts[i].read != parts[0].read {
			return
		}
	}
	s.freeS = append(s.freeS, c.parts-1)
	*c = parts[0]
}

func (s *shadow) newReaders() int32 {
	if n := len(s.freeR); n > 0 {
		index := s.freeR[n-1]
		s.freeR = s.freeR[:n-1]
		s.readers[index] = s.readers[index][:0]
		return index
	}
	s.readers = append(s.readers, nil)
	return int32(len(s.readers) - 1)
}

// noteRead remembers a read: one entry for each warp, the latest; several lanes of one warp count as the whole of it.
func (s *shadow) noteRead(c *cell, a access) {
	if c.many == 0 {
		if c.read == a {
			return
		}
		if c.read.flags&present == 0 || sameWarp(&c.read, &a) {
			c.read = laterRead(c.read, a)
			return
		}
		table := s.newReaders()
		s.readers[table] = append(s.readers[table], c.read, a)
		c.many = table + 1
		return
	}
	list := s.readers[c.many-1]
	for i := range list {
		if sameWarp(&list[i], &a) {
			list[i] = laterRead(list[i], a)
			return
		}
	}
	if len(list) == mostReaders {
		copy(list, list[1:])
		list = list[:mostReaders-1]
	}
	s.readers[c.many-1] = append(list, a)
}

func laterRead(before, now access) access {
	if before.flags&present == 0 {
		return now
	}
	if before.lane != now.lane {
		now.lane = allLanes
	}
	now.flags &= before.flags | ^strong // strong only if both are
	return now
}

// unordered gives a read since the last write that nothing orders before the observer.
func (s *shadow) unordered(c *cell, o *observer) (access, bool) {
	if c.many == 0 {
		return c.read, o.races(&c.read)
	}
	for _, r := range s.readers[c.many-1] {
		if o.races(&r) {
			return r, true
		}
	}
	return access{}, false
}

func (s *shadow) forgetReads(c *cell) {
	c.read = access{}
	if c.many != 0 {
		s.freeR = append(s.freeR, c.many-1)
		c.many = 0
	}
}

func sameWarp(a, b *access) bool { return a.warp == b.warp && a.block == b.block }

func sameInstruction(a, b *access) bool { return sameWarp(a, b) && a.op == b.op && a.epoch == b.epoch }

// globalShadow is the shadow of an allocation, page by page, made when a page is first touched. Blocks that run at the same time take turns at a page.
type globalShadow struct {
	size  int
	pages []globalPage
}

type globalPage struct {
	mu     sync.Mutex
	shadow *shadow
}

const pageBytes = 4096

func newGlobalShadow(size int) *globalShadow {
	return &globalShadow{size: size, pages: make([]globalPage, (size+pageBytes-1)/pageBytes)}
}

// forget drops what was remembered, between launches.
func (g *globalShadow) forget() {
	for i := range g.pages {
		g.pages[i].shadow = nil
	}
}

// do runs f on the part of each page that a range covers.
func (g *globalShadow) do(offset, size int, f func(s *shadow, offset, size int)) {
	for end := offset + size; offset < end; {
		page := &g.pages[offset/pageBytes]
		first := offset / pageBytes * pageBytes
		next := min(first+pageBytes, end)
		page.mu.Lock()
		if page.shadow == nil {
			page.shadow = &shadow{}
			page.shadow.reset(min(pageBytes, g.size-first))
		}
		f(page.shadow, offset-first, next-offset)
		page.mu.Unlock()
		offset = next
	}
}
