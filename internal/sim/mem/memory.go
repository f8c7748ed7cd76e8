package mem

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"attune/internal/finding"
	"attune/internal/sim/order"
)

// Memory is the global memory of the machine. A buffer lives until it is freed. Wide gaps lie
// between buffers, so that an address slightly outside of one belongs to no other.
type Memory struct {
	mu     sync.RWMutex
	sorted []*Buffer // by base address
	next   uint64
	limit  int
	used   int          // of the limit by buffers, in bytes
	shadow atomic.Int64 // of the limit by what the checkers remember of the buffers
	random *rand.Rand   // of the addresses; nil for the same ones in every memory
	arena  *Arena       // that the buffers lie in; nil for the garbage collector's memory
	freed  []*Buffer    // of an arena, by base address, for messages: its addresses are not used again

	textures []*Texture // by their handles; nil for removed ones
}

// Arena is memory that another process maps too. Its buffers have the addresses of that mapping.
type Arena struct {
	Base    uint64            // address of the first byte
	Data    []byte            // as many bytes as addresses; the system provides a page when it is accessed
	Release func(data []byte) // takes back the bytes of a buffer that is freed
}

// largePoison is the size in bytes from which on a new buffer of an arena is not poisoned: a program
// may allocate much more than it uses, and a page that is written takes memory.
const largePoison = 256 << 20

// DefaultLimit bounds the memory of a simulation, in bytes: buffers with the marks of the checkers,
// registers, shared memory and what the checkers remember. With the garbage of half as much, a program
// that runs one simulation stays below 1 GB.
const DefaultLimit = 640 << 20

// LimitFlag is the flag of the commands that sets another limit, in MiB.
const LimitFlag = "--memory"

// A buffer takes its bytes, as many marks, and this much besides.
const bufferOverhead = 512

const (
	bufferAlign = 256
	bufferGap   = 1 << 20

	scatterBytes = 1 << 38 // the range of the first address
)

// Buffer is an allocation in global memory.
type Buffer struct {
	Variable finding.Variable
	Base     uint64
	Data     []byte
	Marks    []byte // Unwritten or Written for each byte; nil where all of them are written
	Shadow   *order.Pages
	ReadOnly bool        // the kernel must not write it
	Carried  bool        // launches leave it to later ones; it was zero before the first
	isFreed  atomic.Bool // a kernel has freed it
	adopted  bool        // the caller has chosen its address
}

// Start is the address of the buffer; 0 for none.
func (b *Buffer) Start() uint64 {
	if b == nil {
		return 0
	}
	return b.Base
}

// end is the address behind the buffer.
func (b *Buffer) end() uint64 { return b.Base + uint64(len(b.Data)) }

// Holds reports whether a range of addresses lies inside the buffer.
func (b *Buffer) Holds(address uint64, size int) bool {
	at := address - b.Base
	return address >= b.Base && at <= uint64(len(b.Data)) && at+uint64(size) <= uint64(len(b.Data)) && !b.isFreed.Load()
}

// Free marks the buffer as freed by a kernel and reports whether it was live.
func (b *Buffer) Free() bool { return !b.isFreed.Swap(true) }

// NewMemory makes an empty memory with the default limit.
func NewMemory() *Memory { return NewLimited(DefaultLimit) }

// NewLimited makes an empty memory with a limit in bytes; 0 is the default.
func NewLimited(limit int) *Memory {
	return &Memory{next: globalBase, limit: cmp.Or(limit, DefaultLimit)}
}

// NewArena makes an empty memory with a limit in bytes whose buffers lie in an arena.
func NewArena(limit int, arena *Arena) *Memory {
	m := NewLimited(limit)
	m.arena, m.next = arena, arena.Base
	return m
}

// Scatter makes the addresses of an empty memory, and the distances between its buffers, those of a
// seed. A kernel that knows the addresses of the simulator could behave well there alone.
func (m *Memory) Scatter(seed, stream uint64) {
	m.random = rand.New(rand.NewPCG(seed, stream))
	m.next = globalBase + m.random.Uint64N(scatterBytes/bufferAlign)*bufferAlign
}

// Limit returns the limit in bytes.
func (m *Memory) Limit() int { return m.limit }

// Used returns how many bytes of the limit the buffers take. A byte of a buffer takes two, and a
// buffer that a kernel has freed counts until the end of the launch.
func (m *Memory) Used() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.used
}

// Held returns how many bytes of the limit the buffers take, with what the checkers remember of them.
func (m *Memory) Held() int { return m.Used() + int(m.shadow.Load()) }

// Alloc makes a buffer of a variable whose bytes are unwritten.
func (m *Memory) Alloc(v finding.Variable, size int) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if size < 0 {
		return 0, fmt.Errorf("allocate %d bytes of simulated memory for %s: the size must be at least 0", size, v)
	}
	if err := cmp.Or(m.room(v, size), m.fits(size)); err != nil {
		return 0, err
	}
	b := m.buffer(v, m.next, size)
	if size < largePoison || m.arena == nil {
		Fill(b.Data, Poison)
	}
	m.used += cost(size)
	m.insert(b)
	m.advance(size)
	return b.Base, nil
}

// room fails if the limit has no room for a buffer.
func (m *Memory) room(v finding.Variable, size int) error {
	if left := m.limit - m.used - bufferOverhead; size > left/2 {
		return fmt.Errorf("allocate %d bytes of simulated memory for %s: a byte takes two, %d are in use already, and the limit is %d (%d MiB); %s MIB sets another",
			size, v, m.used, m.limit, m.limit>>20, LimitFlag)
	}
	return nil
}

// fits fails if the arena has no addresses for the next buffer.
func (m *Memory) fits(size int) error {
	if m.arena == nil {
		return nil
	}
	at := m.next - m.arena.Base
	if left := uint64(len(m.arena.Data)); at >= left || uint64(size) > left-at {
		return fmt.Errorf("allocate %d bytes of simulated memory: all addresses of the device have been used", size)
	}
	return nil
}

// advance makes the addresses of the next buffer those behind a buffer.
func (m *Memory) advance(size int) {
	m.next += (uint64(size)+bufferGap+bufferAlign-1)/bufferAlign*bufferAlign + bufferGap
	if m.random != nil {
		m.next += m.random.Uint64N(bufferGap/bufferAlign) * bufferAlign
	}
}

// buffer makes a buffer whose bytes are unwritten. It is not in the list, and takes nothing of the limit.
func (m *Memory) buffer(v finding.Variable, base uint64, size int) *Buffer {
	v.Bytes = size
	b := &Buffer{Variable: v, Base: base, Marks: make([]byte, size), Shadow: order.NewPages(size, &m.shadow)}
	if m.arena == nil {
		b.Data = make([]byte, size)
	} else {
		at := base - m.arena.Base
		b.Data = m.arena.Data[at : at+uint64(size) : at+uint64(size)]
	}
	return b
}

// Adopt makes a buffer at an address that the caller chooses, of bytes that count as written. It is
// not moved, and FreeFrom leaves it.
func (m *Memory) Adopt(v finding.Variable, base uint64, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, _ := m.index(base)
	if i > 0 && m.sorted[i-1].end() > base || i < len(m.sorted) && m.sorted[i].Base < base+uint64(len(data)) {
		return fmt.Errorf("a buffer of %d bytes at %#x overlaps another", len(data), base)
	}
	v.Bytes = len(data)
	m.used += cost(len(data))
	m.insert(&Buffer{Variable: v, Base: base, Data: data, Shadow: order.NewPages(len(data), &m.shadow), adopted: true})
	return nil
}

func (m *Memory) insert(b *Buffer) {
	i, _ := m.index(b.Base)
	m.sorted = slices.Insert(m.sorted, i, b)
}

// remove is what remains to be done for a buffer that is no longer in the list.
func (m *Memory) remove(b *Buffer) {
	m.forget(b)
	if m.arena != nil && !b.adopted {
		m.arena.Release(b.Data)
	}
}

// forget gives back what a buffer takes of the limit.
func (m *Memory) forget(b *Buffer) {
	m.used -= cost(len(b.Data))
	b.Shadow.Forget()
}

// CopyWithin copies bytes from one place of the memory to another, with what is known of them: bytes
// that were never written stay so.
func (m *Memory) CopyWithin(to, from uint64, size int) error {
	target, at, err := m.inside(to, size)
	if err != nil {
		return fmt.Errorf("copy simulated memory: %w", err)
	}
	source, start, err := m.inside(from, size)
	if err != nil {
		return fmt.Errorf("copy simulated memory: %w", err)
	}
	copy(target.Data[at:at+size], source.Data[start:start+size])
	if source.Marks == nil && target.Marks == nil {
		return nil
	}
	if target.Marks == nil {
		target.Marks = make([]byte, len(target.Data))
		Fill(target.Marks, Written)
	}
	if source.Marks == nil {
		Fill(target.Marks[at:at+size], Written)
		return nil
	}
	copy(target.Marks[at:at+size], source.Marks[start:start+size])
	return nil
}

// MarkWritten makes bytes that the caller changes itself count as written.
func (m *Memory) MarkWritten(address uint64, size int) error {
	b, at, err := m.inside(address, size)
	if err != nil {
		return fmt.Errorf("write simulated memory: %w", err)
	}
	if b.Marks != nil && at == 0 && size == len(b.Data) {
		b.Marks = nil
	}
	if b.Marks != nil {
		Fill(b.Marks[at:at+size], Written)
	}
	return nil
}

// FirstUnwritten returns the first of some bytes of a buffer that was never written, or -1.
func (m *Memory) FirstUnwritten(address uint64, size int) int {
	b, at, err := m.inside(address, size)
	if err != nil || b.Marks == nil {
		return -1
	}
	return bytes.IndexByte(b.Marks[at:at+size], Unwritten)
}

// Hash is a hash of all bytes of the memory, with their addresses.
func (m *Memory) Hash(seed maphash.Seed) uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var h maphash.Hash
	h.SetSeed(seed)
	for _, b := range m.sorted {
		var word [16]byte
		binary.LittleEndian.PutUint64(word[:], b.Base)
		binary.LittleEndian.PutUint64(word[8:], maphash.Bytes(seed, b.Data))
		h.Write(word[:])
	}
	return h.Sum64()
}

// MarkAllWritten makes all bytes count as written: of memory that a launch without checkers has
// changed, nothing is known.
func (m *Memory) MarkAllWritten() {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, b := range m.sorted {
		b.Marks = nil
	}
}

// Free removes a buffer.
func (m *Memory) Free(base uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, found := m.index(base)
	if !found {
		return fmt.Errorf("free simulated memory: no buffer at %#x", base)
	}
	b := m.sorted[i]
	m.remove(b)
	m.sorted = slices.Delete(m.sorted, i, i+1)
	if m.arena != nil && !b.adopted {
		m.keepFreed(b)
	}
	return nil
}

// mostFreed bounds the freed buffers that are remembered. Beyond it the older half is forgotten.
const mostFreed = 1 << 16

// keepFreed remembers where a buffer was, so that a use after the free names it.
func (m *Memory) keepFreed(b *Buffer) {
	if len(m.freed) == mostFreed {
		m.freed = slices.Delete(m.freed, 0, mostFreed/2)
	}
	left := &Buffer{Variable: b.Variable, Base: b.Base, Data: b.Data}
	left.isFreed.Store(true)
	i, _ := index(m.freed, b.Base)
	m.freed = slices.Insert(m.freed, i, left)
}

func cost(size int) int { return 2*size + bufferOverhead }

// index finds the buffer with a base address.
func (m *Memory) index(base uint64) (int, bool) { return index(m.sorted, base) }

func index(sorted []*Buffer, base uint64) (int, bool) {
	return slices.BinarySearchFunc(sorted, base, func(b *Buffer, base uint64) int { return cmp.Compare(b.Base, base) })
}

// FreeFrom removes all buffers from a base address on, those that were allocated since, but keeps the
// live allocations of a heap. It also removes what kernels have freed of the heap. The heap may be nil.
func (m *Memory) FreeFrom(base uint64, heap *Heap) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.sorted[:0]
	for _, b := range m.sorted {
		onHeap := heap.Has(b.Base)
		freed := onHeap && b.isFreed.Load()
		if freed {
			heap.remove(b.Base)
		}
		if !freed && (onHeap || b.adopted || b.Base < base) {
			kept = append(kept, b)
			continue
		}
		m.remove(b)
	}
	clear(m.sorted[len(kept):])
	m.sorted = kept
}

// Next returns the base address that the next buffer will have.
func (m *Memory) Next() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.next
}

// Len returns the number of buffers.
func (m *Memory) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.sorted)
}

// Write copies bytes into a buffer from outside. They count as written.
func (m *Memory) Write(to uint64, data []byte) error {
	b, offset, err := m.inside(to, len(data))
	if err != nil {
		return fmt.Errorf("write simulated memory: %w", err)
	}
	copy(b.Data[offset:], data)
	if b.Marks != nil {
		Fill(b.Marks[offset:offset+len(data)], Written)
		if offset == 0 && len(data) == len(b.Data) {
			b.Marks = nil
		}
	}
	return nil
}

// Initialise sets all bytes of a buffer from outside: the first ones to data, the others to zero.
func (m *Memory) Initialise(base uint64, data []byte) error {
	b, _, err := m.inside(base, len(data))
	if err != nil {
		return fmt.Errorf("write simulated memory: %w", err)
	}
	clear(b.Data[copy(b.Data, data):])
	b.Marks = nil
	return nil
}

// Outlive makes the marks of a buffer tell which launch has written a byte. The buffer has been
// initialised and will be used by several launches.
func (m *Memory) Outlive(base uint64) error {
	b, _, err := m.inside(base, 0)
	if err != nil {
		return fmt.Errorf("mark simulated memory: %w", err)
	}
	b.Marks = make([]byte, len(b.Data))
	Fill(b.Marks, Initial)
	return nil
}

// Keep marks what a launch has written to such a buffer as written by an earlier one. It reports
// whether there is any.
func (m *Memory) Keep(base uint64) bool {
	b := m.Find(base)
	if b == nil || b.Base != base {
		return false
	}
	found := false
	for i, mark := range b.Marks {
		if mark == Written {
			b.Marks[i], found = Kept, true
		}
	}
	return found
}

// Protect forbids kernels to write a buffer.
func (m *Memory) Protect(base uint64) error {
	b, _, err := m.inside(base, 0)
	if err != nil {
		return fmt.Errorf("protect simulated memory: %w", err)
	}
	b.ReadOnly = true
	return nil
}

// AllocScratch makes a buffer that is zero before the first launch. Unless it is cleared before every
// launch, a launch finds what earlier ones have left.
func (m *Memory) AllocScratch(v finding.Variable, size int, cleared bool) (uint64, error) {
	base, err := m.Alloc(v, size)
	if err != nil {
		return 0, err
	}
	if err := m.Initialise(base, nil); err != nil || cleared {
		return base, err
	}
	m.Find(base).carry()
	return base, nil
}

// HandOver prepares scratch for the next launch.
func (m *Memory) HandOver(base uint64) error {
	b, _, err := m.inside(base, 0)
	if err != nil {
		return fmt.Errorf("mark simulated memory: %w", err)
	}
	if !b.Carried {
		return m.Initialise(base, nil)
	}
	b.carry()
	return nil
}

// carry marks the bytes as those that the caller, or an earlier launch, has left.
func (b *Buffer) carry() {
	if b.Carried = true; b.Marks == nil {
		b.Marks = make([]byte, len(b.Data))
	}
	Fill(b.Marks, Kept)
}

// LeftInScratch reports whether a launch has left scratch that a later one finds other than zero.
func (m *Memory) LeftInScratch() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.ContainsFunc(m.sorted, func(b *Buffer) bool {
		return b.Carried && slices.ContainsFunc(b.Data, func(x byte) bool { return x != 0 })
	})
}

// Forget marks all bytes of a buffer as unwritten. They keep their values.
func (m *Memory) Forget(base uint64) error {
	b, _, err := m.inside(base, 0)
	if err != nil {
		return fmt.Errorf("mark simulated memory: %w", err)
	}
	b.Marks = make([]byte, len(b.Data))
	return nil
}

// Read copies bytes out of a buffer.
func (m *Memory) Read(data []byte, from uint64) error {
	b, offset, err := m.inside(from, len(data))
	if err != nil {
		return fmt.Errorf("read simulated memory: %w", err)
	}
	copy(data, b.Data[offset:])
	return nil
}

// Unwritten counts the bytes of a buffer that were never written, and returns the first.
func (m *Memory) Unwritten(base uint64) (count, first int) {
	b := m.Find(base)
	if b == nil {
		return 0, 0
	}
	for i, mark := range b.Marks {
		if mark == Unwritten {
			if count == 0 {
				first = i
			}
			count++
		}
	}
	return count, first
}

func (m *Memory) inside(address uint64, size int) (*Buffer, int, error) {
	b := m.Find(address)
	if b == nil || !b.Holds(address, size) {
		return nil, 0, fmt.Errorf("%d bytes at %#x are not inside of a buffer", size, address)
	}
	return b, int(address - b.Base), nil
}

// Find returns the buffer that an address is in. Where the address is in none, it returns for messages
// the freed buffer that it was in, else the nearest buffer. It returns nil only where there is none.
func (m *Memory) Find(address uint64) *Buffer {
	m.mu.RLock()
	defer m.mu.RUnlock()
	below, above := around(m.sorted, address)
	if below.contains(address) {
		return below
	}
	if freed, _ := around(m.freed, address); freed.contains(address) {
		return freed
	}
	switch {
	case below == nil:
		return above
	case above != nil && above.Base-address < address-below.Base-uint64(len(below.Data)):
		return above
	}
	return below
}

// around returns the last buffer that starts at or below an address and the first one above it; nil
// for none.
func around(sorted []*Buffer, address uint64) (below, above *Buffer) {
	i := sort.Search(len(sorted), func(i int) bool { return sorted[i].Base > address })
	if i > 0 {
		below = sorted[i-1]
	}
	if i < len(sorted) {
		above = sorted[i]
	}
	return below, above
}

// contains reports whether an address is that of a byte of the buffer, which may be freed or nil.
func (b *Buffer) contains(address uint64) bool {
	return b != nil && address >= b.Base && address-b.Base < uint64(len(b.Data))
}

// ForgetAccesses forgets the accesses that the checkers remember, between launches.
func (m *Memory) ForgetAccesses() {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, b := range m.sorted {
		b.Shadow.Forget()
	}
}

// Near reports whether an address is in the buffer or in the gaps around it.
func (b *Buffer) Near(address uint64) bool {
	return address+bufferGap >= b.Base && address < b.Base+uint64(len(b.Data))+bufferGap
}

// DescribeOutside describes where an address lies that is not in a buffer. nearest is the result of
// Find.
func DescribeOutside(nearest *Buffer, address uint64, size int) string {
	switch {
	case nearest == nil:
		return "but there is no buffer at all"
	case address < min(globalBase, nearest.Base)-bufferGap || address > nearest.Base && address-nearest.Base > 1<<windowShift:
		return "which is not an address of global memory"
	}
	end := nearest.Base + uint64(len(nearest.Data))
	switch {
	case nearest.isFreed.Load() && address >= nearest.Base && address < end:
		return fmt.Sprintf("byte %d of %s, which has been freed", address-nearest.Base, nearest.Variable)
	case address < nearest.Base:
		return fmt.Sprintf("%d bytes before %s", nearest.Base-address, nearest.Variable)
	}
	return fmt.Sprintf("%d bytes past the end of %s (%d bytes)", address+uint64(size)-end, nearest.Variable, len(nearest.Data))
}
