package sim

import (
	"bytes"
	"encoding/binary"
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
	data   []byte
	marks  []byte // what is known of each byte
	shadow shadow
	first  uint64 // address of data[0]
}

// What a byte of memory may be marked as.
const (
	unwritten  byte = iota // nobody has written it
	written                // somebody has
	barrierBit             // it belongs to a live mbarrier
	gapBit                 // it lies between variables
)

func (s *sharedMemory) reset(r *launch) {
	n := r.sharedBytes()
	if cap(s.data) < n {
		s.data, s.marks = make([]byte, n), make([]byte, n)
	}
	s.data, s.marks = s.data[:n], s.marks[:n]
	fill(s.data, unsetByte)
	clear(s.marks)
	r.layout.mark(r.program, s.marks)
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
	data, marks []byte
}

// reach checks one lane's access and gives the bytes it is to, or nil when there are none.
func (w *warp) reach(o *op, m *memOp, space ptx.Space, lane int, d direction) []byte {
	address := w.warpAddr
	if lane < allLanes {
		address = w.addr[lane]
	}
	return w.reachAt(o, accessOf{
		what: m.what, space: space, bytes: m.bytes, flags: w.flags(m, space), fixed: m.fixed, copies: m.copies, releases: m.release, heeds: m.heeds,
	}, address, lane, d)
}

// flags say how strong an access is.
func (w *warp) flags(m *memOp, space ptx.Space) uint8 {
	if m.guess {
		return present | strong
	}
	if !m.strong {
		return present
	}
	flags := present | strong
	if m.narrow {
		flags |= narrow
	}
	if m.loud && w.whole && space == ptx.Shared {
		flags |= loud
	}
	return flags
}

// accessOf is what a check needs to know of an access.
type accessOf struct {
	what   string
	space  ptx.Space
	bytes  int
	flags  uint8 // strong and the like; zero for a plain access
	fixed  bool  // what is read does not change: races are not looked for
	copies bool  // what it reads only moves on
	loose  bool  // its alignment has been looked at already

	releases bool // it has published what its thread did, and belongs to that itself
	heeds    bool // an atomic operation whose old value is used
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
	home, address := w.homeOf(o, a, address, lane, d)
	if home == nil {
		return nil
	}
	s := &home.shared
	if address < s.first || address-s.first+uint64(a.bytes) > uint64(len(s.data)) || address-s.first > uint64(len(s.data)) {
		w.report(OutOfBounds, o, w.laneBit(lane), func() string { return w.outsideShared(a, address, d) })
		return nil
	}
	offset := int(address - s.first)
	w.aligned(o, a, address, lane, d)
	data := s.data[offset : offset+a.bytes]
	if !w.block.launch.options.Checks {
		return data
	}
	marks := s.marks[offset : offset+a.bytes]
	if !ordinary(marks) && !w.touchesMarked(o, a, address, marks, lane, d) {
		return nil
	}
	me := w.observer(o, lane, a.flags)
	me.amend(&a)
	var c conflict
	var bad bool
	if d == reading {
		c, bad = s.shadow.readBytes(offset, a.bytes, &me)
	} else {
		c, bad = s.shadow.writeBytes(offset, a.bytes, &me, w.unchanged(data, d))
	}
	if bad {
		w.reportConflict(o, a, c, address, lane, d)
	}
	w.checkWritten(o, a, marks, lane, d, bad, func(i int) string {
		return fmt.Sprintf("byte %d of shared memory (%s)", offset+i, w.sharedName(offset+i, 0))
	})
	return data
}

// ordinary says whether bytes are such as anybody may read and write.
func ordinary(marks []byte) bool {
	for len(marks) >= 8 {
		if binary.LittleEndian.Uint64(marks)&0xFEFEFEFEFEFEFEFE != 0 {
			return false
		}
		marks = marks[8:]
	}
	for _, m := range marks {
		if m > written {
			return false
		}
	}
	return true
}

// touchesMarked reports an access to a live barrier or between variables, and says whether there is memory to access at all.
func (w *warp) touchesMarked(o *op, a accessOf, address uint64, marks []byte, lane int, d direction) bool {
	if i := bytes.IndexByte(marks, gapBit); i >= 0 {
		w.report(OutOfBounds, o, w.laneBit(lane), func() string {
			return fmt.Sprintf("%s %d bytes at address %#x of shared memory, %s", directionNames[d], a.bytes, address,
				w.sharedName(int(address-w.block.shared.first)+i, a.bytes-i))
		})
		return false
	}
	w.report(BadBarrier, o, w.laneBit(lane), func() string {
		return fmt.Sprintf("%s the bytes of a live barrier at address %#x", directionNames[d], address)
	})
	return true
}

// observer is this lane as the shadow sees it.
func (w *warp) observer(o *op, lane int, flags uint8) observer {
	me := observer{
		access: access{epoch: w.knows.epoch, op: o.number, block: uint32(w.block.index), warp: uint16(w.index), lane: uint8(lane), flags: flags | present},
		clock:  w.knows.of(uint8(lane)),
	}
	if lane == allLanes {
		if me.lanes = w.sharing; me.lanes == 0 {
			me.lanes = w.lanes
		}
	}
	return me
}

// amend tells the observer what is special about an atomic operation or a release. A release has moved the epoch on; whoever learns what it published has
// seen the release itself too.
func (o *observer) amend(a *accessOf) {
	o.heeds = a.heeds
	if a.releases {
		o.epoch--
	}
}

// unchanged is the program where a store writes what is there already, else nil.
func (w *warp) unchanged(data []byte, d direction) *Program {
	if d == writing && bytes.Equal(data, w.value[:len(data)]) {
		return w.block.launch.program
	}
	return nil
}

// checkWritten looks for bytes that nobody has written, and notes those that are written now.
func (w *warp) checkWritten(o *op, a accessOf, marks []byte, lane int, d direction, told bool, name func(int) string) {
	if marks == nil {
		return
	}
	if d != writing && !told {
		if i := bytes.IndexByte(marks, unwritten); i >= 0 {
			w.report(Uninitialized, o, w.laneBit(lane), func() string {
				return fmt.Sprintf("%s %d bytes, of which nobody has written %s", directionNames[d], a.bytes, name(i))
			})
		}
	}
	if d != reading {
		for i, m := range marks {
			if m == unwritten {
				marks[i] = written
			}
		}
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
	if address-end > 1<<32 {
		return what + ", where none can be: it is not an address of shared memory"
	}
	return fmt.Sprintf("%s, which ends at %#x: %d bytes past the end of %d", what, end, address+uint64(a.bytes)-end, len(s.data))
}

func (w *warp) reachGlobal(o *op, a accessOf, address uint64, lane int, d direction) []byte {
	al := w.lastGlobal
	if al == nil || !al.holds(address, a.bytes) {
		al = w.block.launch.memory.find(address)
		if al == nil || !al.holds(address, a.bytes) {
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
	if a.fixed && d == reading {
		bad = w.checkFixed(o, a, al, offset, lane)
	} else {
		bad = w.checkGlobal(o, a, al, offset, lane, d, data)
	}
	if al.written != nil {
		w.checkWritten(o, a, al.written[offset:offset+a.bytes], lane, d, bad, func(i int) string {
			return fmt.Sprintf("byte %d of %s", offset+i, al.name)
		})
	}
	return data
}

// checkFixed looks whether somebody has written what is read as if nobody did while the kernel runs (ld.global.nc).
func (w *warp) checkFixed(o *op, a accessOf, al *allocation, offset, lane int) bool {
	if !al.shadow.dirty(offset) {
		return false
	}
	w.block.hold(al, offset, a.bytes)
	e, changed := al.shadow.changed(offset, a.bytes)
	if !changed {
		return false
	}
	w.reportPair(Undefined, o, w.block.launch.program.ops[e.op], w.laneBit(lane), func() string {
		return fmt.Sprintf("reads byte %d of %s with .nc, which is for memory that stays as it is while the kernel runs; %s wrote it", offset, al.name,
			w.otherThread(&e))
	})
	return true
}

func (w *warp) checkGlobal(o *op, a accessOf, al *allocation, offset, lane int, d direction, data []byte) bool {
	w.block.hold(al, offset, a.bytes)
	me := w.observer(o, lane, a.flags)
	me.amend(&a)
	same := w.unchanged(data, d)
	if d != reading {
		al.shadow.wrote(offset)
	}
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
	switch {
	case al == nil:
		return what + ", where there is no buffer at all"
	case address < globalBase-allocationGap || address > al.base && address-al.base > 1<<windowShift:
		return what + ", where no buffer can be: it is not an address of global memory"
	}
	end := al.base + uint64(len(al.data))
	if al.gone.Load() && address >= al.base && address < end {
		return fmt.Sprintf("%s, byte %d of %s, which has been freed", what, address-al.base, al.name)
	}
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
	if e.flags&pending != 0 && (e.flags&(async|whole) == async || w.knowsOf(&e, lane)) {
		kind = MissingWait // whoever does not know of the copy could not have waited for it: that is a race
	}
	w.reportPair(kind, o, w.block.launch.program.ops[e.op], w.laneBit(lane), func() string {
		who := w.otherThread(&e)
		if kind == MissingWait {
			way, what := "to", "copy"
			if c.reading {
				way = "from"
			}
			if e.flags&whole != 0 { // a bulk copy is begun by one lane
				what = "product"
			}
			return fmt.Sprintf("%s %d bytes at %#x of .%s, %s which %s has begun an asynchronous %s that nobody has waited for", directionNames[d],
				a.bytes, address, a.space, way, who, what)
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
	return me.after(&begun, lanesOf(&begun))
}

// otherThread names who made an earlier access.
func (w *warp) otherThread(e *access) string {
	who := fmt.Sprintf("thread %d", int(e.warp)*32+int(e.lane))
	if e.lane == allLanes {
		who = fmt.Sprintf("warp %d", e.warp)
	}
	if int(e.warp) == len(w.block.warps) {
		who = "some thread"
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
	if !w.frame.holdsLocal(address, a.bytes) {
		w.report(OutOfBounds, o, w.laneBit(lane), func() string {
			return fmt.Sprintf("%s %d bytes at address %#x of local memory, where no function that runs has variables; those of %s are %d bytes from %#x on",
				directionNames[d], a.bytes, address, w.frame.code.fn.Name, w.frame.code.localSize, w.frame.local)
		})
		return nil
	}
	w.aligned(o, a, address, lane, d)
	l := &w.local[lane]
	if grow := w.frame.local + w.frame.code.localSize - len(l.data); grow > 0 {
		l.data = append(l.data, bytes.Repeat([]byte{unsetByte}, grow)...)
		l.marks = append(l.marks, make([]byte, grow)...)
	}
	if w.block.launch.options.Checks {
		w.checkWritten(o, a, l.marks[address:address+uint64(a.bytes)], lane, d, a.copies, func(i int) string {
			return fmt.Sprintf("byte %d of local memory", int(address)+i)
		})
	}
	return l.data[address : address+uint64(a.bytes)]
}

// holdsLocal says whether bytes of local memory are variables of a function or of one that called it.
func (f *frame) holdsLocal(address uint64, size int) bool {
	for ; f != nil; f = f.caller {
		if at := address - uint64(f.local); address >= uint64(f.local) && at <= uint64(f.code.localSize) && at+uint64(size) <= uint64(f.code.localSize) {
			return true
		}
	}
	return false
}

// constantName says where an address of constants lies that is in no variable.
func (p *Program) constantName(address int) string {
	text, nearest := "before all variables", -1
	for v, at := range p.constantAt {
		if at <= address && at > nearest {
			nearest, text = at, fmt.Sprintf("%d bytes behind the start of %s, which has %d bytes", address-at, v.Name, v.Size())
		}
	}
	return text
}

// forget makes the local variables of a function that is called unwritten.
func (l *localMemory) forget(f *frame) {
	first, end := min(f.local, len(l.data)), min(f.local+f.code.localSize, len(l.data))
	fill(l.data[first:end], unsetByte)
	clear(l.marks[first:end])
}

// reachFixed is an access to constants or to the kernel's parameters.
func (w *warp) reachFixed(o *op, a accessOf, address uint64, lane int, d direction) []byte {
	data, marks := w.block.launch.constants, w.block.launch.program.constantMarks
	if a.space == ptx.Param {
		data, marks = w.block.launch.params, nil
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
	if marks != nil && bytes.IndexByte(marks[address:address+uint64(a.bytes)], gapBit) >= 0 {
		w.report(OutOfBounds, o, w.laneBit(lane), func() string {
			return fmt.Sprintf("reads %d bytes at address %#x of .const, %s", a.bytes, address, w.block.launch.program.constantName(int(address)))
		})
		return nil
	}
	w.aligned(o, a, address, lane, d)
	return data[address : address+uint64(a.bytes)]
}
