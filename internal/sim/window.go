package sim

import (
	"encoding/binary"

	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/mem"
	"attune/internal/sim/order"
)

// Lanes that access one region of memory in the plain way.
//
// Most loads and stores are plain, aligned, within shared memory or within one page of a buffer, and
// in order by what all lanes of the warp know. What the checkers need for such accesses is found once
// for the warp: the window. An access of a lane that needs more goes the long way (access.go).

// window is the memory that all lanes of a load or a store access.
type window struct {
	first  uint64 // address of the first byte
	data   []byte
	marks  []byte        // nil where every byte counts as written
	shadow *order.Shadow // nil for memory that no thread writes
	me     order.Observer
	size   int // of an access
}

// open finds the window of a load or a store. It returns nil where there is none, or where each lane
// must be checked by itself.
func (w *warp) openWindow(o *op, space ptx.Space, mask uint32, d mem.Direction) *window {
	m, win := o.mem, &w.window
	if m.strong || m.expected || !w.block.launch.options.Checks || w.clocks.Separate() != 0 || d == mem.Write && w.taint != nil {
		return nil
	}
	if n := m.bytes; n != 4 && n != 8 && n != 16 {
		return nil
	}
	low, high, all := ^uint64(0), uint64(0), uint64(0)
	for l := mask; l != 0; l &= l - 1 {
		a := w.addr[firstLane(l)&31]
		low, high, all = min(low, a), max(high, a), all|a
	}
	if all&uint64(m.bytes-1) != 0 {
		return nil
	}
	switch space {
	case ptx.Shared:
		s := &w.block.shared
		if n := int(high-low) + m.bytes; high-low > uint64(len(s.Data)) || !s.Holds(low, n) {
			return nil
		}
		win.first, win.data, win.marks, win.shadow = s.First, s.Data, s.Marks, &s.Shadow
	case ptx.Global:
		if !w.openPage(m, low, high, d) {
			return nil
		}
	default:
		return nil
	}
	win.size = m.bytes
	win.me = w.observer(o, 0, order.Present)
	return win
}

// openRows is openWindow for the rows of a matrix in shared memory, which the warp loads as a whole.
func (w *warp) openRows(o *op, rows int) *window {
	if !w.block.launch.options.Checks {
		return nil
	}
	s, low, high, all := &w.block.shared, ^uint64(0), uint64(0), uint64(0)
	for _, a := range w.addr[:rows] {
		low, high, all = min(low, a), max(high, a), all|a
	}
	if all%count.MatrixRowBytes != 0 || high-low > uint64(len(s.Data)) || !s.Holds(low, int(high-low)+count.MatrixRowBytes) {
		return nil
	}
	w.window = window{s.First, s.Data, s.Marks, &s.Shadow, w.observer(o, allLanes, order.WarpWide), count.MatrixRowBytes}
	return &w.window
}

// openPage makes the window one of a page of a buffer, and locks the page.
func (w *warp) openPage(m *memOp, low, high uint64, d mem.Direction) bool {
	if high-low >= order.PageBytes {
		return false
	}
	b, n := w.lastBuffer, int(high-low)+m.bytes
	if b == nil || !b.Holds(low, n) {
		if b = w.block.launch.memory.Find(low); b == nil || !b.Holds(low, n) {
			return false
		}
		w.lastBuffer = b
	}
	if d == mem.Write && b.ReadOnly {
		return false
	}
	at := int(low - b.Base)
	win, page := &w.window, at/order.PageBytes*order.PageBytes
	if at+n > page+order.PageBytes {
		return false
	}
	end := min(page+order.PageBytes, len(b.Data))
	if m.readOnly {
		w.block.sharePages(b, at, n)
		if b.Shadow.Dirty(at) {
			return false
		}
		win.shadow = nil
	} else {
		w.block.lockPages(b, at, n)
		if win.shadow, _ = b.Shadow.Within(at, n); win.shadow == nil {
			return false
		}
		if d == mem.Write {
			b.Shadow.MarkDirty(at, n)
		}
	}
	win.first, win.data, win.marks = b.Base+uint64(page), b.Data[page:end], nil
	if b.Marks != nil {
		win.marks = b.Marks[page:end]
	}
	return true
}

// read checks the load of a lane and returns its bytes; nil where the lane must go the long way.
func (win *window) read(address uint64, lane int) []byte {
	at := int(address - win.first)
	if win.marks != nil && !allWritten(win.marks[at:at+win.size]) {
		return nil
	}
	if win.me.Lane = uint8(lane); win.shadow != nil && !win.shadow.ReadInOrder(at, win.size, &win.me) {
		return nil
	}
	return win.data[at : at+win.size]
}

// write is read for a store. It marks the bytes as written.
func (win *window) write(address uint64, lane int) []byte {
	at := int(address - win.first)
	if win.marks != nil && !mem.IsPlain(win.marks[at:at+win.size]) {
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
