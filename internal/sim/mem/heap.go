package mem

import (
	"sync"
	"sync/atomic"
)

// HeapBytes is the size of the heap that kernels allocate from: the driver's default.
const HeapBytes = 8 << 20

// Heap is what kernels have allocated in one memory and not freed: as on a GPU, allocations outlive
// the launch if its caller keeps the heap. The zero value is an empty heap of HeapBytes.
type Heap struct {
	// Bytes is the size of the heap; 0 for HeapBytes.
	Bytes int64

	used atomic.Int64

	mu        sync.Mutex
	allocated map[uint64]bool // addresses of the buffers
}

func (h *Heap) size() int64 {
	if h.Bytes > 0 {
		return h.Bytes
	}
	return HeapBytes
}

// Add notes the address of an allocation.
func (h *Heap) Add(address uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.allocated == nil {
		h.allocated = map[uint64]bool{}
	}
	h.allocated[address] = true
}

// Has reports whether an address is one that malloc has returned. A nil heap has none.
func (h *Heap) Has(address uint64) bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.allocated[address]
}

// remove forgets an allocation.
func (h *Heap) remove(address uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.allocated, address)
}

// heapUnit is what an allocation takes at least, in bytes, so that a kernel cannot allocate for ever.
const heapUnit = 16

// Take takes bytes from the heap and reports whether it had them.
func (h *Heap) Take(size uint64) bool {
	if size > uint64(h.size()) {
		return false
	}
	size = max(size, heapUnit)
	if h.used.Add(int64(size)) <= h.size() {
		return true
	}
	h.used.Add(-int64(size))
	return false
}

// Give returns bytes to the heap.
func (h *Heap) Give(size int) { h.used.Add(-int64(max(size, heapUnit))) }
