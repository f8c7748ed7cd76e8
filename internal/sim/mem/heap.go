package mem

import "sync/atomic"

// HeapBytes is the size of the heap that kernels allocate from: the driver's default.
const HeapBytes = 8 << 20

// Heap counts the bytes that a kernel has allocated.
type Heap struct {
	used atomic.Int64
}

// heapUnit is what an allocation takes at least, in bytes, so that a kernel cannot allocate for ever.
const heapUnit = 16

// Take takes bytes from the heap and reports whether it had them.
func (h *Heap) Take(size uint64) bool {
	if size > HeapBytes {
		return false
	}
	size = max(size, heapUnit)
	if h.used.Add(int64(size)) <= HeapBytes {
		return true
	}
	h.used.Add(-int64(size))
	return false
}

// Give returns bytes to the heap.
func (h *Heap) Give(size int) { h.used.Add(-int64(max(size, heapUnit))) }
