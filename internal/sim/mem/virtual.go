package mem

import (
	"fmt"
	"slices"

	"attune/internal/finding"
	"attune/internal/sim/order"
)

// Reserve takes a range of addresses of the arena. It has no memory until Map gives it some.
func (m *Memory) Reserve(size int) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fits(size); err != nil {
		return 0, err
	}
	base := m.next
	m.advance(size)
	return base, nil
}

// Map gives reserved addresses memory whose bytes are unwritten. Memory at neighbouring addresses
// becomes one buffer with it, so that an access may cross from one to the other.
func (m *Memory) Map(v finding.Variable, base uint64, size int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.room(v, size); err != nil {
		return err
	}
	i, found := m.index(base)
	if found || i > 0 && m.sorted[i-1].end() > base || i < len(m.sorted) && m.sorted[i].Base < base+uint64(size) {
		return fmt.Errorf("map %d bytes at %#x: some of them have memory already", size, base)
	}
	first, last := i, i
	if i > 0 && m.sorted[i-1].end() == base {
		first--
	}
	if i < len(m.sorted) && m.sorted[i].Base == base+uint64(size) {
		last++
	}
	added := m.buffer(v, base, size)
	if size < largePoison {
		Fill(added.Data, Poison)
	}
	parts := slices.Insert(slices.Clone(m.sorted[first:last]), i-first, added)
	for _, b := range m.sorted[first:last] {
		m.forget(b)
	}
	m.sorted = slices.Delete(m.sorted, first, last)
	m.join(parts)
	return nil
}

// join makes one buffer of neighbours that are not in the list.
func (m *Memory) join(parts []*Buffer) {
	size := 0
	for _, b := range parts {
		size += len(b.Data)
	}
	joined := m.buffer(parts[0].Variable, parts[0].Base, size)
	at := 0
	for _, b := range parts {
		if b.Marks == nil {
			Fill(joined.Marks[at:at+len(b.Data)], Written)
		} else {
			copy(joined.Marks[at:], b.Marks)
		}
		at += len(b.Data)
	}
	m.used += cost(size)
	m.insert(joined)
}

// Unmap takes back the memory of reserved addresses, whatever Map has given them. The parts of a buffer
// that lie outside of the range stay.
func (m *Memory) Unmap(base uint64, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	end := base + uint64(size)
	for _, b := range slices.Clone(m.sorted) {
		if b.end() <= base || b.Base >= end {
			continue
		}
		m.forget(b)
		m.sorted = slices.DeleteFunc(m.sorted, func(other *Buffer) bool { return other == b })
		from, to := max(base, b.Base)-b.Base, min(end, b.end())-b.Base
		m.arena.Release(b.Data[from:to])
		m.keep(b, 0, from)
		m.keep(b, to, uint64(len(b.Data)))
	}
}

// keep makes a part of a buffer that is no longer in the list a buffer of its own.
func (m *Memory) keep(b *Buffer, from, to uint64) {
	if from == to {
		return
	}
	part := &Buffer{Variable: b.Variable, Base: b.Base + from, Data: b.Data[from:to:to]}
	part.Variable.Bytes = len(part.Data)
	if b.Marks != nil {
		part.Marks = b.Marks[from:to:to]
	}
	part.Shadow = order.NewPages(len(part.Data), &m.shadow)
	m.used += cost(len(part.Data))
	m.insert(part)
}

// Mapped reports whether some addresses of a range have memory.
func (m *Memory) Mapped(base uint64, size int) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	i, found := m.index(base)
	return found || i > 0 && m.sorted[i-1].end() > base || i < len(m.sorted) && m.sorted[i].Base < base+uint64(size)
}
