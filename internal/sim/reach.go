package sim

import (
	"bytes"
	"fmt"

	"attune/internal/ptx"
)

// direction is what an access does.
type direction uint8

const (
	reading direction = iota
	writing
	updating // an atomic operation: both
)

var directionNames = [...]string{"reads", "writes", "updates"}

// sharedMemory is a block's shared memory.
type sharedMemory struct {
	data    []byte
	written []byte // not zero for bytes that somebody has written
	shadow  shadow
	first   uint64 // address of data[0]
}

func (s *sharedMemory) reset(r *launch) {
	n := r.sharedBytes()
	if cap(s.data) < n {
		s.data, s.written = make([]byte, n), make([]byte, n)
	}
	s.data, s.written = s.data[:n], s.written[:n]
	fill(s.data, unsetByte)
	clear(s.written)
	s.first = uint64(r.shared)
	if r.options.Checks {
		s.shadow.reset(n)
	}
}

// unsetByte is what memory holds that nobody has written, and what the target of an asynchronous copy holds until the copy is waited for. As halves and
// floats it is NaN.
const unsetByte = 0xFF

// localMemory is the local memory of one thread.
type localMemory struct {
	data, written []byte
}

// reach checks one lane's access and gives the bytes it is to, or nil when there are none.
func (w *warp) reach(o *op, m *memOp, space ptx.Space, lane int, d direction) []byte {
	address := w.warpAddr
	if lane < allLanes {
		address = w.addr[lane]
	}
	return w.reachAt(o, accessOf{what: m.what, space: space, bytes: m.bytes, strong: m.strong, fixed: m.fixed}, address, lane, d)
}

// accessOf is what a check needs to know of an access.
type accessOf struct {
	what   string
	space  ptx.Space
	bytes  int
	strong bool
	fixed  bool // what is read does not change: races are not looked for
	loose  bool // its alignment has been looked at already
}

func (w *warp) reachAt(o *op, a accessOf, address uint64, lane int, d direction) []byte {
	switch a.space {
	case ptx.Shared:
		return w.reachShared(o, a, address, lane, d)
	case ptx.Global:
		return w.reachGlobal(o, a, address, lane, d)
	case ptx.Local:
		return w.reachLocal(o, a, address, lane, d)
	}
	return w.reachFixed(o, a, address, lane, d)
}

// laneBit is a lane as a mask; for an access of the whole warp all its lanes.
func (w *warp) laneBit(lane int) uint32 {
	if lane == allLanes {
		return w.lanes
	}
	return 1 << lane
}

// aligned checks the alignment that the width of an access asks for.
func (w *warp) aligned(o *op, a accessOf, address uint64, lane int, d direction) {
	if !a.loose && address%uint64(a.bytes) != 0 && w.block.launch.options.Checks {
		w.report(Misaligned, o, w.laneBit(lane), func() string {
			return fmt.Sprintf("%s %d bytes at address %#x of .%s, which is not a multiple of %d", directionNames[d], a.bytes, address, a.space, a.bytes)
		})
	}
}

func (w *warp) reachShared(o *op, a accessOf, address uint64, lane int, d direction) []byte {
	s := &w.block.shared
	offset := int(address - s.first)
	if address < s.first || offset+a.bytes > len(s.data) {
		w.report(OutOfBounds, o, w.laneBit(lane), func() string { return w.outsideShared(a, address, d) })
		return nil
	}
	w.aligned(o, a, address, lane, d)
	data := s.data[offset : offset+a.bytes]
	if !w.block.launch.options.Checks {
		return data
	}
	w.touchesBarrier(o, offset, a, lane, d)
	me := w.observer(o, lane, a.strong)
	var c conflict
	var bad bool
	if d == reading {
		c, bad = s.shadow.readBytes(offset, a.bytes, &me)
	} else {
		c, bad = s.shadow.writeBytes(offset, a.bytes, &me, d == writing && bytes.Equal(data, w.value[:a.bytes]))
	}
	if bad {
		w.reportConflict(o, a, c, address, lane, d)
	}
	w.checkWritten(o, a, s.written[offset:offset+a.bytes], lane, d, bad, func(i int) string {
		return fmt.Sprintf("byte %d of shared memory (%s)", offset+i, w.sharedName(offset+i))
	})
	return data
}

// observer is this lane as the shadow sees it.
func (w *warp) observer(o *op, lane int, isStrong bool) observer {
	flags := present
	if isStrong {
		flags |= strong
	}
	return observer{
		access: access{epoch: w.knows.epoch, op: o.number, block: uint32(w.block.index), warp: uint16(w.index), lane: uint8(lane), flags: flags},
		clock:  w.knows.of(uint8(lane)),
	}
}

// checkWritten looks for bytes that nobody has written, and notes those that are written now.
func (w *warp) checkWritten(o *op, a accessOf, written []byte, lane int, d direction, told bool, name func(int) string) {
	if written == nil {
		return
	}
	if d != writing && !told {
		if i := bytes.IndexByte(written, 0); i >= 0 {
			w.report(Uninitialized, o, w.laneBit(lane), func() string {
				return fmt.Sprintf("%s %d bytes, of which nobody has written %s", directionNames[d], a.bytes, name(i))
			})
		}
	}
	if d != reading {
		fill(written, 1)
	}
}

// outsideShared describes an access outside of the block's shared memory.
func (w *warp) outsideShared(a accessOf, address uint64, d direction) string {
	s := &w.block.shared
	end := s.first + uint64(len(s.data))
	what := fmt.Sprintf("%s %d bytes at address %#x of shared memory", directionNames[d], a.bytes, address)
	if address < s.first {
		return fmt.Sprintf("%s, %d bytes before its start", what, s.first-address)
	}
	return fmt.Sprintf("%s, which ends at %#x: %d bytes past the end of %d", what, end, address+uint64(a.bytes)-end, len(s.data))
}

// sharedName is the variable that a byte of shared memory belongs to.
func (w *warp) sharedName(offset int) string {
	p := w.block.launch.program
	if offset >= w.block.launch.dynamicAt() {
		return fmt.Sprintf("byte %d of the dynamic part", offset-w.block.launch.dynamicAt())
	}
	for v, at := range p.sharedAt {
		if at >= 0 && offset >= at && offset < at+v.Size() {
			return fmt.Sprintf("%s+%d", v.Name, offset-at)
		}
	}
	return "between variables"
}

func (w *warp) reachGlobal(o *op, a accessOf, address uint64, lane int, d direction) []byte {
	al := w.lastGlobal
	if al == nil || address < al.base || address+uint64(a.bytes) > al.base+uint64(len(al.data)) {
		al = w.block.launch.memory.find(address)
		if al == nil || address < al.base || address+uint64(a.bytes) > al.base+uint64(len(al.data)) {
			w.report(OutOfBounds, o, w.laneBit(lane), func() string { return outsideGlobal(al, a, address, d) })
			return nil
		}
		w.lastGlobal = al
	}
	w.aligned(o, a, address, lane, d)
	offset := int(address - al.base)
	data := al.data[offset : offset+a.bytes]
	if !w.block.launch.options.Checks {
		return data
	}
	bad := false
	if !a.fixed || d != reading {
		bad = w.checkGlobal(o, a, al, offset, lane, d, data)
	}
	if al.written != nil {
		w.checkWritten(o, a, al.written[offset:offset+a.bytes], lane, d, bad, func(i int) string {
			return fmt.Sprintf("byte %d of %s", offset+i, al.name)
		})
	}
	return data
}

func (w *warp) checkGlobal(o *op, a accessOf, al *allocation, offset, lane int, d direction, data []byte) bool {
	me := w.observer(o, lane, a.strong)
	same := d == writing && bytes.Equal(data, w.value[:a.bytes])
	bad := false
	var c conflict
	al.shadow.do(offset, a.bytes, func(s *shadow, offset, size int) {
		var found conflict
		var races bool
		if d == reading {
			found, races = s.readBytes(offset, size, &me)
		} else {
			found, races = s.writeBytes(offset, size, &me, same)
		}
		if races && !bad {
			c, bad = found, true
		}
	})
	if bad {
		w.reportConflict(o, a, c, al.base+uint64(offset), lane, d)
	}
	return bad
}

func outsideGlobal(al *allocation, a accessOf, address uint64, d direction) string {
	what := fmt.Sprintf("%s %d bytes at address %#x of global memory", directionNames[d], a.bytes, address)
	if al == nil {
		return what + ", where there is no buffer at all"
	}
	end := al.base + uint64(len(al.data))
	if address < al.base {
		return fmt.Sprintf("%s, %d bytes before %s", what, al.base-address, al.name)
	}
	return fmt.Sprintf("%s, %d bytes past the end of %s (%d bytes)", what, address+uint64(a.bytes)-end, al.name, len(al.data))
}

// reportConflict reports a race, or an asynchronous copy that was not waited for.
func (w *warp) reportConflict(o *op, a accessOf, c conflict, address uint64, lane int, d direction) {
	kind := Race
	e := c.earlier
	verb := "wrote"
	if c.reading {
		verb = "read"
	}
	if e.flags&pending != 0 && w.knowsOf(&e, lane) {
		kind = MissingWait // whoever does not know of the copy could not have waited for it: that is a race
	}
	w.reportPair(kind, o, w.block.launch.program.ops[e.op], w.laneBit(lane), func() string {
		who := w.otherThread(&e)
		if kind == MissingWait {
			return fmt.Sprintf("%s %d bytes at %#x of .%s, to which %s has begun an asynchronous copy that nobody has waited for", directionNames[d],
				a.bytes, address, a.space, who)
		}
		return fmt.Sprintf("%s %d bytes at %#x of .%s, which %s %s; nothing orders the two%s", directionNames[d], a.bytes, address, a.space, who, verb,
			w.missingOrder(&e))
	})
}

// knowsOf says whether the beginning of an asynchronous copy is ordered before a lane.
func (w *warp) knowsOf(e *access, lane int) bool {
	begun := *e
	begun.flags &^= pending
	me := observer{access: access{block: uint32(w.block.index), warp: uint16(w.index), lane: uint8(lane)}, clock: w.knows.of(uint8(lane))}
	return me.after(&begun)
}

// otherThread names who made an earlier access.
func (w *warp) otherThread(e *access) string {
	who := fmt.Sprintf("thread %d", int(e.warp)*32+int(e.lane))
	if e.lane == allLanes {
		who = fmt.Sprintf("warp %d", e.warp)
	}
	if uint64(e.block) != w.block.index {
		who += fmt.Sprintf(" of block %v", w.block.launch.blockAt(uint64(e.block)))
	}
	return who
}

func (r *launch) blockAt(index uint64) [3]int {
	return [3]int{int(index % uint64(r.grid[0])), int(index / uint64(r.grid[0]) % uint64(r.grid[1])), int(index / uint64(r.grid[0]) / uint64(r.grid[1]))}
}

// missingOrder says what would order two accesses.
func (w *warp) missingOrder(e *access) string {
	switch {
	case uint64(e.block) != w.block.index:
		return " (blocks need an atomic operation, or a fence and a flag)"
	case int(e.warp) == w.index:
		return " (lanes of one warp need bar.warp.sync)"
	}
	return " (warps need a barrier)"
}

func (w *warp) reachLocal(o *op, a accessOf, address uint64, lane int, d direction) []byte {
	size := uint64(w.frame.local + w.frame.code.localSize)
	if address+uint64(a.bytes) > size || address > size {
		w.report(OutOfBounds, o, w.laneBit(lane), func() string {
			return fmt.Sprintf("%s %d bytes at address %#x of local memory, which has %d bytes", directionNames[d], a.bytes, address, size)
		})
		return nil
	}
	w.aligned(o, a, address, lane, d)
	l := &w.local[lane]
	if grow := int(size) - len(l.data); grow > 0 {
		l.data = append(l.data, bytes.Repeat([]byte{unsetByte}, grow)...)
		l.written = append(l.written, make([]byte, grow)...)
	}
	if w.block.launch.options.Checks {
		w.checkWritten(o, a, l.written[address:address+uint64(a.bytes)], lane, d, false, func(i int) string {
			return fmt.Sprintf("byte %d of local memory", int(address)+i)
		})
	}
	return l.data[address : address+uint64(a.bytes)]
}

// reachFixed is an access to constants or to the kernel's parameters.
func (w *warp) reachFixed(o *op, a accessOf, address uint64, lane int, d direction) []byte {
	data := w.block.launch.program.constants
	if a.space == ptx.Param {
		data = w.block.launch.params
	}
	if d != reading {
		w.report(OutOfBounds, o, w.laneBit(lane), func() string { return fmt.Sprintf("%s .%s, which cannot be written", directionNames[d], a.space) })
		return nil
	}
	if address+uint64(a.bytes) > uint64(len(data)) || address > uint64(len(data)) {
		w.report(OutOfBounds, o, w.laneBit(lane), func() string {
			return fmt.Sprintf("reads %d bytes at address %#x of .%s, which has %d bytes", a.bytes, address, a.space, len(data))
		})
		return nil
	}
	w.aligned(o, a, address, lane, d)
	return data[address : address+uint64(a.bytes)]
}
