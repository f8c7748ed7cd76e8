package sim

import "fmt"

// heapBytes is the heap that kernels allocate from, as large as the driver makes it if nobody asks for more.
const heapBytes = 8 << 20

// runMalloc is malloc(size); without room it gives a null pointer.
func runMalloc(w *warp, o *op, mask uint32) {
	r := w.block.launch
	if len(o.ctl.args) != 1 || len(o.ctl.returns) != 1 {
		w.block.abort(fmt.Errorf("malloc at %s takes and gives one value", spotOf(w, o).place()))
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		size := fromLittleEndian(paramValue(w.frame, o.ctl.args[0], lane))
		address := uint64(0)
		if size <= heapBytes && r.take(int64(size)) {
			name := fmt.Sprintf("what thread %d of block %v allocated at %s", w.index*32+lane, w.block.at, spotOf(w, o).place())
			var err error
			if address, err = r.memory.Alloc(name, int(size)); err != nil {
				w.block.abort(err)
				return
			}
			r.mu.Lock()
			r.allocated = append(r.allocated, address)
			r.mu.Unlock()
		}
		setParam(w.frame, o.ctl.returns[0], lane, littleEndian(address, 8))
	}
}

// take takes bytes from the heap, if it has them.
func (r *launch) take(size int64) bool {
	if r.heap.Add(size) <= heapBytes {
		return true
	}
	r.heap.Add(-size)
	return false
}

// runFree is free(address).
func runFree(w *warp, o *op, mask uint32) {
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		address := fromLittleEndian(paramValue(w.frame, o.ctl.args[0], lane))
		if address == 0 {
			continue
		}
		a := w.block.launch.memory.find(address)
		if a == nil || a.base != address || !w.block.launch.isAllocated(address) || a.gone.Swap(true) {
			w.report(Undefined, o, 1<<lane, func() string { return fmt.Sprintf("frees %#x, where nothing is allocated", address) })
			continue
		}
		w.block.launch.heap.Add(-int64(len(a.data)))
	}
}
