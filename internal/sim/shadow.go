package sim

import (
	"sync"
	"sync/atomic"
)

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
	narrow        // strong for threads of the same block only (.cta)
	loud          // volatile, of shared memory: two lanes of a warp that have nothing else between them do race
	wrote         // of a use: it has changed memory
	whole         // of a read that a warp makes as one instruction: it is over for all its lanes when one of them goes on
	async         // of a tensor core or a bulk copy: it goes by the async proxy (proxy.go)
)

// use is a read, or a strong write, and the lanes of its warp that have made it.
type use struct {
	access
	lanes uint32
}

// cell remembers the accesses to four bytes, or, in a split cell, to one. What happens to 16 bytes together is remembered once, by the first of their four
// cells, until something happens to a part of them.
type cell struct {
	write access // the last that was not strong
	since use    // a read or a strong write since
	many  int32  // index in the table of uses, plus 1, when there are more
	parts int32  // index in the table of split cells, plus 1
	apart bool   // of the first of four: each speaks for itself
}

// granule is how many bytes are remembered together, where everything happens to all of them.
const (
	granule      = 16
	granuleCells = granule / 4
)

// shadow remembers the accesses to a piece of memory.
type shadow struct {
	cells []cell
	uses  [][]use // tables of cells with several
	freeU []int32
	split [][4]cell
	freeS []int32

	global bool // of global memory
}

// reset forgets everything, for memory of a number of bytes.
func (s *shadow) reset(size int) {
	n := (size + granule - 1) / granule * granuleCells
	if cap(s.cells) < n {
		s.cells = make([]cell, n)
	} else {
		s.cells = s.cells[:n]
		clear(s.cells)
	}
	s.uses, s.freeU, s.split, s.freeS = s.uses[:0], s.freeU[:0], s.split[:0], s.freeS[:0]
}

// conflict is an earlier access that nothing orders before this one.
type conflict struct {
	earlier access
	reading bool // the earlier one was a read
}

// observer is who makes an access: its stamp, and what it knows.
type observer struct {
	access
	clock *clock
	lanes uint32 // that make it together; those of the stamp where it is zero
	heeds bool   // an atomic operation whose old value is used: it stands behind what others have done to the place by such
}

func (o *observer) mask() uint32 {
	switch {
	case o.lanes != 0:
		return o.lanes
	case o.lane < allLanes:
		return 1 << o.lane
	}
	return everyLane
}

// after says whether an earlier access of some lanes is ordered before the observer.
func (o *observer) after(earlier *access, lanes uint32) bool {
	if earlier.flags&pending != 0 {
		return false
	}
	if earlier.block != o.block {
		warps := o.clock.blocks[earlier.block]
		return warps != nil && earlier.among(&warps[earlier.warp], lanes)
	}
	if earlier.warp == o.warp {
		if earlier.flags&whole != 0 {
			return true
		}
		if o.lane < allLanes {
			lanes &^= 1 << o.lane
		} else if lanes == o.lanes && lanes&(lanes-1) == 0 {
			lanes = 0
		}
	}
	return lanes == 0 || earlier.among(&o.clock.warps[earlier.warp], lanes)
}

// among says whether an access of some lanes is among what is known of their warp. What a tensor core has read for the warp is over for all lanes by
// the wait that each of them has executed: one lane may tell of it for all.
func (a *access) among(k *known, lanes uint32) bool {
	if a.flags&(whole|async) == whole|async && k.coversOne(a.epoch) {
		return true
	}
	return k.covers(lanes, a.epoch)
}

// races says whether an earlier access of some lanes and the observer's are a race.
func (o *observer) races(earlier *access, lanes uint32) bool {
	if earlier.flags&present == 0 || o.agrees(earlier) {
		return false
	}
	return !o.after(earlier, lanes)
}

// agrees says whether two accesses are strong for each other, so that their order does not matter.
func (o *observer) agrees(earlier *access) bool {
	both := earlier.flags & o.flags
	switch {
	case both&strong == 0:
		return false
	case both&loud != 0 && sameWarp(earlier, &o.access):
		return false
	}
	return earlier.block == o.block || (earlier.flags|o.flags)&narrow == 0
}

func lanesOf(a *access) uint32 {
	if a.lane < allLanes {
		return 1 << a.lane
	}
	return everyLane
}

// readBytes notes a read of size bytes at an offset and gives the first conflict.
func (s *shadow) readBytes(offset, size int, o *observer) (conflict, bool) {
	var found conflict
	bad := false
	s.each(offset, size, func(c *cell) {
		if w, races := s.unorderedWrite(c, o); races && !bad {
			found, bad = conflict{w, false}, true
		}
		s.note(c, o, 0)
	})
	return found, bad
}

// writeBytes notes a write. same is the program where the bytes written are those that were there, else nil: threads that write one value by instructions
// that are alike do no harm.
func (s *shadow) writeBytes(offset, size int, o *observer, same *Program) (conflict, bool) {
	var found conflict
	bad := false
	s.each(offset, size, func(c *cell) {
		if w, races := s.unorderedWrite(c, o); races && !bad && !(same != nil && same.writesAlike(w.op, o.op)) {
			found, bad = conflict{w, false}, true
		}
		if r, races := s.unorderedRead(c, o); races && !bad {
			found, bad = conflict{r, true}, true
		}
		if o.flags&strong != 0 {
			s.note(c, o, wrote) // what was written before still has to be ordered before whoever comes
			return
		}
		c.write = o.access
		s.forgetUses(c)
	})
	return found, bad
}

// unorderedWrite is a write, plain or strong, that nothing orders before the observer.
func (s *shadow) unorderedWrite(c *cell, o *observer) (access, bool) {
	if o.races(&c.write, lanesOf(&c.write)) {
		return c.write, true
	}
	if c.many == 0 {
		return c.since.access, c.since.flags&wrote != 0 && o.races(&c.since.access, c.since.lanes)
	}
	list := s.uses[c.many-1]
	for i := range list {
		if u := &list[i]; u.flags&wrote != 0 && o.races(&u.access, u.lanes) {
			return u.access, true
		}
	}
	return access{}, false
}

// unorderedRead is a read since the last plain write that nothing orders before the observer.
func (s *shadow) unorderedRead(c *cell, o *observer) (access, bool) {
	if c.many == 0 {
		return c.since.access, c.since.flags&wrote == 0 && o.races(&c.since.access, c.since.lanes)
	}
	list := s.uses[c.many-1]
	for i := range list {
		if u := &list[i]; u.flags&wrote == 0 && o.races(&u.access, u.lanes) {
			return u.access, true
		}
	}
	return access{}, false
}

// updateBytes notes a read and a write in one: an atomic operation.
func (s *shadow) updateBytes(offset, size int, o *observer) (conflict, bool) {
	return s.writeBytes(offset, size, o, nil)
}

// settle turns the pending write of an asynchronous copy into one that its thread made now.
func (s *shadow) settle(offset, size int, o *observer) {
	s.each(offset, size, func(c *cell) {
		if c.write.flags&pending != 0 && c.write.op == o.op && sameWarp(&c.write, &o.access) && c.write.lane == o.lane {
			c.write = o.access
		}
	})
}

// each visits the cells of a range: those of 16 bytes and whole ones where the range covers them, split ones elsewhere.
func (s *shadow) each(offset, size int, visit func(*cell)) {
	for end := offset + size; offset < end; {
		first := offset / granule * granuleCells
		next := min(offset/granule*granule+granule, end)
		if next-offset < granule {
			s.separate(first)
			s.eachWord(offset, next, visit)
		} else if c := &s.cells[first]; !c.apart {
			visit(c)
		} else {
			s.eachWord(offset, next, visit)
			s.bring(first)
		}
		offset = next
	}
}

// eachWord visits the cells of a range within a granule whose cells are apart.
func (s *shadow) eachWord(offset, end int, visit func(*cell)) {
	for offset < end {
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

// separate has each of the four cells of a granule speak for itself.
func (s *shadow) separate(first int) {
	c := &s.cells[first]
	if c.apart {
		return
	}
	for i := 1; i < granuleCells; i++ {
		s.cells[first+i] = s.copyOf(c)
	}
	c.apart = true
}

// bring has the first of four cells speak for all, where they remember the same.
func (s *shadow) bring(first int) {
	cells := s.cells[first:][:granuleCells]
	for i := range cells {
		if c := &cells[i]; c.parts != 0 || c.many != 0 || c.write != cells[0].write || c.since != cells[0].since {
			return
		}
	}
	cells[0].apart = false
}

// copyOf is a cell that remembers what another does.
func (s *shadow) copyOf(c *cell) cell {
	other := cell{write: c.write, since: c.since}
	if c.many != 0 {
		table := s.newUses()
		s.uses[table] = append(s.uses[table], s.uses[c.many-1]...)
		other.many = table + 1
	}
	return other
}

// splitCell gives each byte of a cell a cell of its own.
func (s *shadow) splitCell(c *cell) {
	var parts [4]cell
	for i := range parts {
		parts[i] = s.copyOf(c)
	}
	s.forgetUses(c)
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
		if parts[i].many != 0 || parts[i].write != parts[0].write || parts[i].since != parts[0].since {
			return
		}
	}
	s.freeS = append(s.freeS, c.parts-1)
	whole := parts[0]
	whole.apart = c.apart
	*c = whole
}

func (s *shadow) newUses() int32 {
	if n := len(s.freeU); n > 0 {
		index := s.freeU[n-1]
		s.freeU = s.freeU[:n-1]
		s.uses[index] = s.uses[index][:0]
		return index
	}
	if len(s.uses) < cap(s.uses) {
		s.uses = s.uses[:len(s.uses)+1]
		s.uses[len(s.uses)-1] = s.uses[len(s.uses)-1][:0]
	} else {
		s.uses = append(s.uses, nil)
	}
	return int32(len(s.uses) - 1)
}

// note remembers a read or a strong write.
func (s *shadow) note(c *cell, o *observer, as uint8) {
	now := use{o.access, o.mask()}
	now.flags |= as
	if o.heeds {
		s.forgetPassed(c, o, &now)
	}
	if c.many == 0 {
		switch {
		case c.since.flags&present == 0:
			c.since = now
		case c.since.unites(&now):
			c.since.unite(&now)
		case o.replaces(&now, &c.since):
			c.since = now
		default:
			table := s.newUses()
			s.uses[table] = append(s.uses[table], c.since, now)
			c.many = table + 1
		}
		return
	}
	list := s.uses[c.many-1]
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].unites(&now) {
			list[i].unite(&now)
			return
		}
	}
	// What the new one stands for as well need not be kept; one place is enough for it.
	for i := range list {
		if o.replaces(&now, &list[i]) {
			list[i] = now
			return
		}
	}
	if most := s.most(); len(list) >= most {
		list[(int(now.block)*7+int(now.warp))%most] = now
		return
	}
	s.uses[c.many-1] = append(list, now)
}

// forgetPassed forgets the strong writes that an atomic operation stands behind. It has seen what they left, and they are over for whoever comes after it:
// the block that draws the last ticket may set the counter back with a plain store, though nothing but the tickets orders the others before it.
func (s *shadow) forgetPassed(c *cell, o *observer, now *use) {
	passed := func(u *use) bool {
		return u.flags&(wrote|strong) == wrote|strong && u.flags&(narrow|loud)&^now.flags == 0 && o.agrees(&u.access)
	}
	if c.many == 0 {
		if passed(&c.since) {
			c.since = use{}
		}
		return
	}
	list := s.uses[c.many-1]
	kept := list[:0]
	for i := range list {
		if !passed(&list[i]) {
			kept = append(kept, list[i])
		}
	}
	s.uses[c.many-1] = kept
}

// most bounds the uses remembered of one cell. Of more, one is forgotten: a race with it alone may be missed. All warps of a block find room.
func (s *shadow) most() int {
	if s.global {
		return 12
	}
	return 32
}

// unites says whether two uses are of one warp and one moment.
func (u *use) unites(now *use) bool {
	return u.epoch == now.epoch && sameWarp(&u.access, &now.access) && u.flags == now.flags
}

func (u *use) unite(now *use) {
	u.op = now.op
	u.lanes |= now.lanes
	if u.lane != now.lane {
		u.lane = allLanes
	}
}

// replaces says whether whoever is to be ordered after the earlier use has to be ordered after the new one, which is itself ordered after the earlier.
func (o *observer) replaces(now, earlier *use) bool {
	switch {
	case earlier.block != o.block && o.clock.blocks == nil:
		return false
	case earlier.flags&(wrote|narrow|loud)&^now.flags != 0, now.flags&strong&^earlier.flags != 0:
		return false
	}
	return o.after(&earlier.access, earlier.lanes)
}

func (s *shadow) forgetUses(c *cell) {
	c.since = use{}
	if c.many != 0 {
		s.freeU = append(s.freeU, c.many-1)
		c.many = 0
	}
}

func sameWarp(a, b *access) bool { return a.warp == b.warp && a.block == b.block }

// globalShadow is the shadow of an allocation, page by page, made when a page is first touched. Blocks that run at the same time take turns at a page
// (block.hold).
type globalShadow struct {
	size  int
	pages []globalPage
}

type globalPage struct {
	mu     sync.Mutex
	shadow *shadow
	dirty  atomic.Bool // somebody has written to it
}

const pageBytes = 4096

func newGlobalShadow(size int) *globalShadow {
	return &globalShadow{size: size, pages: make([]globalPage, (size+pageBytes-1)/pageBytes)}
}

// forget drops what was remembered, between launches.
func (g *globalShadow) forget() {
	for i := range g.pages {
		g.pages[i].shadow = nil
		g.pages[i].dirty.Store(false)
	}
}

// dirty says whether there are writes near an offset; that there are none may be said of a page that nobody holds.
func (g *globalShadow) dirty(offset int) bool { return g.pages[offset/pageBytes].dirty.Load() }

// changed finds a write to a range in this launch.
func (g *globalShadow) changed(offset, size int) (earlier access, found bool) {
	g.do(offset, size, func(s *shadow, offset, size int) {
		s.each(offset, size, func(c *cell) {
			switch {
			case found:
			case c.write.flags&present != 0:
				earlier, found = c.write, true
			case c.since.flags&wrote != 0:
				earlier, found = c.since.access, true
			}
		})
	})
	return earlier, found
}

// wrote notes that there are writes to a range.
func (g *globalShadow) wrote(offset int) {
	if page := &g.pages[offset/pageBytes]; !page.dirty.Load() {
		page.dirty.Store(true)
	}
}

// do runs f on the part of each page that a range covers. The block that asks holds them.
func (g *globalShadow) do(offset, size int, f func(s *shadow, offset, size int)) {
	for end := offset + size; offset < end; {
		page := &g.pages[offset/pageBytes]
		first := offset / pageBytes * pageBytes
		next := min(first+pageBytes, end)
		if page.shadow == nil {
			page.shadow = &shadow{global: true}
			page.shadow.reset(min(pageBytes, g.size-first))
		}
		f(page.shadow, offset-first, next-offset)
		offset = next
	}
}
