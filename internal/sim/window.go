package sim

import (
	"encoding/binary"

	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/mem"
	"attune/internal/sim/order"
)

// Lanes that access memory in the plain way.
//
// Most loads and stores are plain, aligned, within shared memory or within one page of a buffer, and
// in order by what all lanes of the warp know. What the checkers need for such accesses is found once
// for the warp: the window. In global memory it moves to the page of each lane. An access of a lane
// that needs more goes the long way (access.go).

// window is the memory that lanes of a load or a store access.
type window struct {
	first  uint64 // address of the first byte
	data   []byte
	marks  []byte        // nil where every byte counts as written
	shadow *order.Shadow // nil for memory that no thread writes
	me     order.Observer
	size   int // of an access

	moves    bool // the window is of global memory
	readOnly bool // the access is ld.global.nc
	writes   bool
}

// openWindow finds the window of a load or a store. It returns nil where there is none, or where each
// lane must be checked by itself.
func (w *warp) openWindow(o *op, space ptx.Space, d mem.Direction) *window {
	m, win := o.mem, &w.window
	if m.strong || m.expected || !w.block.launch.options.Checks || w.clocks.Separate() != 0 || d == mem.Write && w.storesTaint(m) {
		return nil
	}
	if n := m.bytes; n != 4 && n != 8 && n != 16 {
		return nil
	}
	switch space {
	case ptx.Shared:
		s := &w.block.shared
		win.first, win.data, win.marks, win.shadow = s.First, s.Data, s.Marks, &s.Shadow
	case ptx.Global:
		win.data = nil // until the first lane moves it
	default:
		return nil
	}
	win.size, win.moves, win.readOnly, win.writes = m.bytes, space == ptx.Global, m.readOnly, d == mem.Write
	win.me = w.observer(o, 0, order.Present)
	return win
}

// offset returns the offset of an access in the window. It is negative where the access is misaligned
// or has no window.
func (w *warp) offset(win *window, address uint64) int {
	if address&uint64(win.size-1) != 0 {
		return -1
	}
	if at := address - win.first; at < uint64(len(win.data)) && at+uint64(win.size) <= uint64(len(win.data)) {
		return int(at)
	}
	if !win.moves || !w.moveWindow(address) {
		return -1
	}
	return int(address - win.first)
}

// openRows is openWindow for the rows of a matrix in shared memory, which the warp loads as a whole.
func (w *warp) openRows(o *op) *window {
	if !w.block.launch.options.Checks {
		return nil
	}
	s := &w.block.shared
	w.window = window{first: s.First, data: s.Data, marks: s.Marks, shadow: &s.Shadow, me: w.observer(o, allLanes, order.WarpWide), size: count.MatrixRowBytes}
	return &w.window
}

// readRow is readLane for n bytes, a multiple of 16, in a window of openRows.
func (win *window) readRow(address uint64, n int) []byte {
	at := int(address - win.first)
	if (address|uint64(n))%count.MatrixRowBytes != 0 || at < 0 || at > len(win.data)-n || !mem.IsWritten(win.marks[at:at+n]) || !win.shadow.ReadInOrder(at, n, &win.me) {
		return nil
	}
	return win.data[at : at+n]
}

// leave has a window of global memory move again before its next access. An access that went the long
// way may have locked other pages.
func (win *window) leave() {
	if win != nil && win.moves {
		win.data = nil
	}
}

// moveWindow moves the window to the page of a buffer that holds an access, and locks the page. It
// reports whether there is such a window.
func (w *warp) moveWindow(address uint64) bool {
	win, b := &w.window, w.lastBuffer
	win.data = nil
	if b == nil || !b.Holds(address, win.size) {
		if b = w.block.launch.memory.Find(address); b == nil || !b.Holds(address, win.size) {
			return false
		}
		w.lastBuffer = b
	}
	if win.writes && b.ReadOnly {
		return false
	}
	at := int(address - b.Base)
	page := at / order.PageBytes * order.PageBytes
	end := min(page+order.PageBytes, len(b.Data))
	if at+win.size > end {
		return false
	}
	if win.readOnly {
		w.block.sharePages(b, at, win.size)
		if b.Shadow.Dirty(at) {
			return false
		}
		win.shadow = nil
	} else {
		w.block.lockPages(b, at, win.size)
		if win.shadow, _ = b.Shadow.Within(at, win.size); win.shadow == nil {
			return false
		}
		if win.writes {
			b.Shadow.MarkDirty(at, win.size)
		}
	}
	win.first, win.data, win.marks = b.Base+uint64(page), b.Data[page:end], nil
	if b.Marks != nil {
		win.marks = b.Marks[page:end]
	}
	return true
}

// readLane checks the load of a lane in the window and returns its bytes; nil where the lane must go
// the long way.
func (w *warp) readLane(win *window, address uint64, lane int) []byte {
	at := w.offset(win, address)
	if at < 0 || win.marks != nil && !allWritten(win.marks[at:at+win.size]) {
		return nil
	}
	if win.me.Lane = uint8(lane); win.shadow != nil && !win.shadow.ReadInOrder(at, win.size, &win.me) {
		return nil
	}
	return win.data[at : at+win.size]
}

// writeLane is readLane for a store. It marks the bytes as written.
func (w *warp) writeLane(win *window, address uint64, lane int) []byte {
	at := w.offset(win, address)
	if at < 0 || win.marks != nil && !mem.IsPlain(win.marks[at:at+win.size]) {
		return nil
	}
	if win.me.Lane = uint8(lane); !win.shadow.WriteInOrder(at, win.size, &win.me) {
		return nil
	}
	if win.marks != nil {
		setWritten(win.marks[at : at+win.size])
	}
	return win.data[at : at+win.size]
}

// Four neighbouring lanes that access four neighbouring words are checked together.

// fourLanes returns the offset of the words that four lanes from the first lane of the mask on access
// together; negative where they do not.
func (w *warp) fourLanes(win *window, mask uint32) int {
	lane := firstLane(mask) & 31
	if win == nil || win.size != 4 || lane&3 != 0 || mask>>lane&15 != 15 {
		return -1
	}
	a := (*[4]uint64)(w.addr[lane : lane+4])
	if a[1] != a[0]+4 || a[2] != a[0]+8 || a[3] != a[0]+12 {
		return -1
	}
	at := w.offset(win, a[0])
	if at%order.Granule != 0 || at+order.Granule > len(win.data) {
		return -1
	}
	win.me.Lane = uint8(lane)
	return at
}

// readFour is readLane for the lanes of fourLanes.
func (win *window) readFour(at int) *[order.Granule]byte {
	if win.marks != nil && !mem.AllWritten16(win.marks[at:at+order.Granule]) || win.shadow != nil && !win.shadow.ReadFour(at, &win.me) {
		return nil
	}
	return (*[order.Granule]byte)(win.data[at:])
}

// writeFour is writeLane for the lanes of fourLanes.
func (win *window) writeFour(at int) *[order.Granule]byte {
	if win.marks != nil && !mem.IsPlain(win.marks[at:at+order.Granule]) || !win.shadow.WriteFour(at, &win.me) {
		return nil
	}
	if win.marks != nil {
		setWritten(win.marks[at : at+order.Granule])
	}
	return (*[order.Granule]byte)(win.data[at:])
}

// loadFour loads four words as fourLanes says, and reports whether it could.
func (w *warp) loadFour(win *window, m *memOp, mask uint32) bool {
	at := w.fourLanes(win, mask)
	if at < 0 {
		return false
	}
	data := win.readFour(at)
	if data == nil {
		return false
	}
	lane := firstLane(mask)
	if !m.isWord() {
		for i := range 4 {
			w.setElements(m, lane+i, data[4*i:4*i+4])
		}
		return true
	}
	to := w.R32[m.regs[0].slot.index][lane : lane+4]
	for i := range to {
		to[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	return true
}

// storeFour is loadFour for a store. It reports whether the bytes have changed.
func (w *warp) storeFour(win *window, m *memOp, mask uint32) (done, changed bool) {
	at := w.fourLanes(win, mask)
	if at < 0 {
		return false, false
	}
	data := win.writeFour(at)
	if data == nil {
		return false, false
	}
	before := *data
	for i, lane := 0, firstLane(mask); i < 4; i++ {
		w.putElements(m, lane+i, data[4*i:4*i+4])
	}
	return true, before != *data
}

// storePair is storeFour for two neighbouring lanes that store eight neighbouring bytes each.
func (w *warp) storePair(win *window, m *memOp, mask uint32) (done, changed bool) {
	lane := firstLane(mask) & 30
	if win == nil || win.size != 8 || mask>>lane&3 != 3 || w.addr[lane+1] != w.addr[lane]+8 {
		return false, false
	}
	at := w.offset(win, w.addr[lane])
	if at%order.Granule != 0 || at+order.Granule > len(win.data) {
		return false, false
	}
	if win.marks != nil && !mem.IsPlain(win.marks[at:at+order.Granule]) {
		return false, false
	}
	if win.me.Lane = uint8(lane); !win.shadow.WritePair(at, &win.me) {
		return false, false
	}
	if win.marks != nil {
		setWritten(win.marks[at : at+order.Granule])
	}
	data := (*[order.Granule]byte)(win.data[at:])
	before := *data
	w.putElements(m, lane, data[:8])
	w.putElements(m, lane+1, data[8:])
	return true, before != *data
}

const writtenWord = 0x01010101 * uint32(mem.Written)

// allWritten reports whether all marks of some words are Written.
func allWritten(marks []byte) bool {
	for ; len(marks) >= 4; marks = marks[4:] {
		if binary.LittleEndian.Uint32(marks) != writtenWord {
			return false
		}
	}
	return true
}

func setWritten(marks []byte) {
	for ; len(marks) >= 4; marks = marks[4:] {
		binary.LittleEndian.PutUint32(marks, writtenWord)
	}
}
