package sim

import (
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
)

// Memory is the global memory of a machine. Allocations live until they are freed; between them lie wide gaps, so that an address a little outside
// of one belongs to no other.
type Memory struct {
	mu     sync.RWMutex
	sorted []*allocation // by base
	next   uint64
}

// Where things lie in the generic address space. A window is 1 TB wide, and what is in it does not begin at its start: the low half of a generic address
// is no address of its state space, and who takes it for one is found out.
const (
	windowShift  = 40
	windowStart  = 0x5a000000
	sharedWindow = 1<<windowShift + windowStart
	localWindow  = 2<<windowShift + windowStart
	constWindow  = 3<<windowShift + windowStart
	paramWindow  = 4<<windowShift + windowStart
	globalBase   = 0x7f << windowShift
)

const (
	allocationAlign = 256
	allocationGap   = 1 << 20
)

// allocation is one buffer.
type allocation struct {
	name string
	base uint64
	data []byte
	// written has a byte for each byte of data, not zero when somebody has written it; nil when all of it is.
	written []byte
	shadow  *globalShadow
	gone    atomic.Bool // a kernel has freed it
}

// holds says whether bytes lie inside.
func (a *allocation) holds(address uint64, size int) bool {
	at := address - a.base
	return address >= a.base && at <= uint64(len(a.data)) && at+uint64(size) <= uint64(len(a.data)) && !a.gone.Load()
}

// NewMemory makes an empty memory.
func NewMemory() *Memory { return &Memory{next: globalBase} }

// Alloc makes a buffer that nobody has written. The name is for findings.
func (m *Memory) Alloc(name string, size int) (uint64, error) {
	const most = 8 << 30
	if size < 0 || size > most {
		return 0, fmt.Errorf("take %d bytes of simulated memory for %s: from 0 to %d can be had", size, name, most)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &allocation{name: name, base: m.next, data: make([]byte, size), written: make([]byte, size)}
	fill(a.data, unsetByte)
	a.shadow = newGlobalShadow(size)
	m.sorted = append(m.sorted, a)
	m.next += (uint64(size)+allocationGap+allocationAlign-1)/allocationAlign*allocationAlign + allocationGap
	return a.base, nil
}

// Free forgets a buffer.
func (m *Memory) Free(base uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, a := range m.sorted {
		if a.base == base {
			m.sorted = append(m.sorted[:i:i], m.sorted[i+1:]...)
			return nil
		}
	}
	return fmt.Errorf("free simulated memory: no buffer at %#x", base)
}

// Write puts bytes into a buffer from outside; they count as written.
func (m *Memory) Write(to uint64, data []byte) error {
	a, offset, err := m.inside(to, len(data))
	if err != nil {
		return fmt.Errorf("write simulated memory: %w", err)
	}
	copy(a.data[offset:], data)
	if a.written != nil {
		fill(a.written[offset:offset+len(data)], 1)
		if offset == 0 && len(data) == len(a.data) {
			a.written = nil
		}
	}
	return nil
}

// Read takes bytes out of a buffer.
func (m *Memory) Read(data []byte, from uint64) error {
	a, offset, err := m.inside(from, len(data))
	if err != nil {
		return fmt.Errorf("read simulated memory: %w", err)
	}
	copy(data, a.data[offset:])
	return nil
}

// Unwritten counts the bytes of a buffer that nobody has written, and gives the first.
func (m *Memory) Unwritten(base uint64) (count, first int) {
	a := m.find(base)
	if a == nil {
		return 0, 0
	}
	for i, w := range a.written {
		if w == 0 {
			if count == 0 {
				first = i
			}
			count++
		}
	}
	return count, first
}

func (m *Memory) inside(address uint64, size int) (*allocation, int, error) {
	a := m.find(address)
	if a == nil || !a.holds(address, size) {
		return nil, 0, fmt.Errorf("%d bytes at %#x are not inside of a buffer", size, address)
	}
	return a, int(address - a.base), nil
}

// find gives the allocation that an address is in, or else the nearest below or above, for messages; nil when there is none at all.
func (m *Memory) find(address uint64) *allocation {
	m.mu.RLock()
	defer m.mu.RUnlock()
	i := sort.Search(len(m.sorted), func(i int) bool { return m.sorted[i].base > address })
	if i == 0 {
		if len(m.sorted) == 0 {
			return nil
		}
		return m.sorted[0]
	}
	below := m.sorted[i-1]
	if i < len(m.sorted) && address >= below.base+uint64(len(below.data)) {
		if above := m.sorted[i]; above.base-address < address-below.base-uint64(len(below.data)) {
			return above
		}
	}
	return below
}

func fill(data []byte, value byte) {
	for i := range data {
		data[i] = value
	}
}
