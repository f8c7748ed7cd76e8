package order

import (
	"sync"
	"sync/atomic"
)

// Pages is the shadow of a buffer in global memory. Each page is made when it is first accessed.
// Blocks that run at the same time lock the pages that they access (Held).
type Pages struct {
	size  int
	pages []page
	held  *atomic.Int64 // bytes of the shadows of all buffers
}

type page struct {
	mu     sync.RWMutex // of the bytes of the page and of its shadow
	shadow *Shadow
	dirty  atomic.Bool // the page has been written
}

// PageBytes is the size of a page.
const PageBytes = 4096

// NewPages makes the shadow of a buffer with a number of bytes. The bytes that it takes are added to held.
func NewPages(size int, held *atomic.Int64) *Pages {
	return &Pages{size: size, pages: make([]page, (size+PageBytes-1)/PageBytes), held: held}
}

// Forget drops what was remembered, between launches.
func (p *Pages) Forget() {
	for i := range p.pages {
		if s := p.pages[i].shadow; s != nil {
			p.held.Add(-p.bytesOf(i))
			spare.Put(s)
		}
		p.pages[i].shadow = nil
		p.pages[i].dirty.Store(false)
	}
}

// spare has the shadows of pages that were forgotten: a launch mostly accesses as many as the one before.
var spare = sync.Pool{New: func() any { return &Shadow{global: true} }}

// bytesOf returns the size of the shadow of a page.
func (p *Pages) bytesOf(i int) int64 {
	return int64(min(PageBytes, p.size-i*PageBytes) * ShadowBytes)
}

// Dirty reports whether the page at an offset has been written. The caller need not hold the page.
func (p *Pages) Dirty(offset int) bool { return p.pages[offset/PageBytes].dirty.Load() }

// MarkDirty notes a write to a range.
func (p *Pages) MarkDirty(offset, size int) {
	for i := offset / PageBytes; i <= (offset+size-1)/PageBytes; i++ {
		if page := &p.pages[i]; !page.dirty.Load() {
			page.dirty.Store(true)
		}
	}
}

// FirstWrite finds a write to a range in this launch.
func (p *Pages) FirstWrite(offset, size int) (earlier Access, found bool) {
	p.do(offset, size, func(s *Shadow, offset, size int) {
		s.each(offset, size, func(c *cell) {
			switch {
			case found:
			case c.write.Flags&Present != 0:
				earlier, found = c.write, true
			case c.since.Flags&wrote != 0:
				earlier, found = c.since.Access, true
			}
		})
	})
	return earlier, found
}

// Read is Shadow.Read.
func (p *Pages) Read(offset, size int, o *Observer) (first Conflict, bad bool) {
	if s, at := p.Within(offset, size); s != nil && s.ReadInOrder(at, size, o) {
		return first, false
	}
	p.do(offset, size, func(s *Shadow, offset, size int) {
		if c, races := s.Read(offset, size, o); races && !bad {
			first, bad = c, true
		}
	})
	return first, bad
}

// Write is Shadow.Write.
func (p *Pages) Write(offset, size int, o *Observer, same Repeats) (first Conflict, bad bool) {
	p.MarkDirty(offset, size)
	if s, at := p.Within(offset, size); s != nil && s.WriteInOrder(at, size, o) {
		return first, false
	}
	p.do(offset, size, func(s *Shadow, offset, size int) {
		if c, races := s.Write(offset, size, o, same); races && !bad {
			first, bad = c, true
		}
	})
	return first, bad
}

// Async is Shadow.Async.
func (p *Pages) Async(offset, size int, o *Observer, stamp Access, writes bool, same Repeats) AsyncResult {
	if writes {
		p.MarkDirty(offset, size)
	}
	var v AsyncResult
	if s, at := p.Within(offset, size); s != nil && s.asyncInOrder(at, size, o, &stamp, writes) {
		return v
	}
	p.do(offset, size, func(s *Shadow, offset, size int) {
		if found := s.Async(offset, size, o, stamp, writes, same); !v.Races && !v.Unfenced {
			v = found
		}
	})
	return v
}

// AsyncInOrder records a read of the async proxy under a stamp, if a short check shows that it is in
// order. Otherwise it records nothing.
func (p *Pages) AsyncInOrder(offset, size int, o *Observer, stamp *Access) bool {
	s, at := p.Within(offset, size)
	return s != nil && s.asyncInOrder(at, size, o, stamp, false)
}

// SettleAsync is Shadow.SettleAsync.
func (p *Pages) SettleAsync(offset, size int, stamp Access, epoch uint32) {
	p.do(offset, size, func(s *Shadow, offset, size int) { s.SettleAsync(offset, size, stamp, epoch) })
}

// Within returns the shadow of the page that holds a range, and the offset in it; nil where the range
// has parts of several pages, or the page has no shadow yet. The caller holds the page.
func (p *Pages) Within(offset, size int) (*Shadow, int) {
	if offset/PageBytes != (offset+size-1)/PageBytes {
		return nil, 0
	}
	return p.pages[offset/PageBytes].shadow, offset % PageBytes
}

// do calls f for the part of each page that a range covers. The caller holds the pages.
func (p *Pages) do(offset, size int, f func(s *Shadow, offset, size int)) {
	for end := offset + size; offset < end; {
		page := &p.pages[offset/PageBytes]
		first := offset / PageBytes * PageBytes
		next := min(first+PageBytes, end)
		if page.shadow == nil {
			page.shadow = spare.Get().(*Shadow)
			page.shadow.Reset(min(PageBytes, p.size-first))
			p.held.Add(p.bytesOf(first / PageBytes))
		}
		f(page.shadow, offset-first, next-offset)
		offset = next
	}
}

// Held is the pages that a block has locked. The zero value holds none.
type Held struct {
	pages     []*page
	of        *Pages // whose pages they are; nil for none
	low, high int    // the bytes of these pages
	shared    bool   // with blocks that only read
}

// Covers reports whether a range is locked already. The lanes of a warp mostly access one page, so
// this must be fast.
func (h *Held) Covers(p *Pages, offset, size int, shared bool) bool {
	return h.of == p && offset >= h.low && offset+size <= h.high && (shared || !h.shared)
}

// Lock locks the pages of a range and unlocks all others. The pages stay locked until the next Lock,
// Share or Unlock. Checking an access and changing the bytes are one step for other blocks in this
// way. Otherwise it would depend on timing whether two blocks that write the same value race.
func (h *Held) Lock(p *Pages, offset, size int) { h.hold(p, offset, size, false) }

// Share is Lock for a block that reads the bytes of a range and leaves its shadow alone. Other
// blocks may read at the same time.
func (h *Held) Share(p *Pages, offset, size int) { h.hold(p, offset, size, true) }

func (h *Held) hold(p *Pages, offset, size int, shared bool) {
	first, end := offset/PageBytes, (offset+size+PageBytes-1)/PageBytes
	h.Unlock()
	h.of, h.low, h.high, h.shared = p, first*PageBytes, end*PageBytes, shared
	pages := p.pages[first:end]
	for i := range pages {
		if shared {
			pages[i].mu.RLock()
		} else {
			pages[i].mu.Lock()
		}
		h.pages = append(h.pages, &pages[i])
	}
}

// Any reports whether any page is locked.
func (h *Held) Any() bool { return h.of != nil }

// Unlock unlocks all pages.
func (h *Held) Unlock() {
	for _, page := range h.pages {
		if h.shared {
			page.mu.RUnlock()
		} else {
			page.mu.Unlock()
		}
	}
	h.pages, h.of = h.pages[:0], nil
}
