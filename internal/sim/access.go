package sim

import (
	"bytes"
	"fmt"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/mem"
	"attune/internal/sim/order"
)

// allLanes is the lane of an access that a warp makes as a whole.
const allLanes = order.AllLanes

// accessInfo is what the checkers need to know of an access.
type accessInfo struct {
	space   ptx.Space
	bytes   int
	flags   order.Flags // zero for a plain access
	aligned bool        // the alignment needs no check

	readOnly   bool // ld.global.nc: no race check, because the bytes must not change at all
	onlyCopied bool // the value read is only copied, so unwritten bytes are no defect
	taints     bool // unwritten bytes taint the registers that they are loaded to (taint.go)
	carries    bool // unwritten bytes are no defect: the caller carries them on, or overwrites them unread
	releases   bool // it has published what its thread did, and is part of that itself
	usesOld    bool // an atomic operation whose old value is used
}

// accessLane checks one lane's access of a memory instruction and returns its bytes, or nil where
// there is no memory. With allLanes it is one access of several lanes to the same address.
func (w *warp) accessLane(o *op, m *memOp, space ptx.Space, lane int, d mem.Direction) []byte {
	address := w.warpAddr
	if lane < allLanes {
		address = w.addr[lane]
	}
	return w.access(o, accessInfo{
		space: space, bytes: m.bytes, flags: w.accessFlags(m, space), readOnly: m.readOnly, onlyCopied: m.onlyCopied, releases: m.release, usesOld: m.usesOld,
		taints: m.taints, carries: m.overwrites,
	}, address, lane, d)
}

// accessFlags returns how strong an access is. A load of the value that a compare-and-swap expects
// counts as strong: if the value changes meanwhile, the swap fails and the loop repeats.
func (w *warp) accessFlags(m *memOp, space ptx.Space) order.Flags {
	if m.expected {
		return order.Present | order.Strong
	}
	if !m.strong {
		return order.Present
	}
	flags := order.Present | order.Strong
	if m.blockScope {
		flags |= order.BlockScope
	}
	if m.volatile && w.whole && space == ptx.Shared {
		flags |= order.Volatile
	}
	return flags
}

// access checks an access and returns its bytes, or nil where there is no memory.
func (w *warp) access(o *op, a accessInfo, address uint64, lane int, d mem.Direction) []byte {
	switch a.space {
	case ptx.Shared:
		return w.accessShared(o, a, address, lane, d)
	case ptx.Global:
		return w.accessGlobal(o, a, address, lane, d)
	case ptx.Local:
		return w.accessLocal(o, a, address, lane, d)
	}
	return w.accessConstant(o, a, address, lane, d)
}

// laneBit returns a lane as a mask. For allLanes it is the mask of the running group.
func (w *warp) laneBit(lane int) uint32 {
	if lane == allLanes {
		return w.lanes
	}
	return 1 << lane
}

// checkAlignment checks that the address is a multiple of the width.
func (w *warp) checkAlignment(o *op, a *accessInfo, address uint64, lane int, d mem.Direction) {
	n := uint64(a.bytes)
	if a.aligned || n&(n-1) == 0 && address&(n-1) == 0 { // no division on the way of most accesses
		return
	}
	if address%n != 0 {
		w.reportMisaligned(o, *a, address, lane, d)
	}
}

func (w *warp) reportMisaligned(o *op, a accessInfo, address uint64, lane int, d mem.Direction) {
	occurrence := finding.Occurrence{Kind: finding.Misaligned, Access: finding.Access{Direction: uint8(d), Memory: uint64(a.space)}}
	w.reportMemory(occurrence, o, position{}, lane, a.space, address, func() string {
		return fmt.Sprintf("%s %d bytes at address %#x of .%s, which is not a multiple of %d", d, a.bytes, address, a.space, a.bytes)
	})
}

func (w *warp) accessShared(o *op, a accessInfo, address uint64, lane int, d mem.Direction) []byte {
	owner := w.block
	if address>>rankShift != 0 {
		if owner, address = w.ownerOf(o, a, address, lane, d); owner == nil {
			return nil
		}
	}
	s := &owner.shared
	if !s.Holds(address, a.bytes) {
		if s = owner.reservedAt(address, a.bytes); s == nil {
			occurrence := finding.Occurrence{Kind: finding.OutOfBounds, Access: finding.Access{Direction: uint8(d)}}
			w.reportMemory(occurrence, o, position{}, lane, a.space, address, func() string { return w.outsideShared(a, address, d) })
			return nil
		}
	}
	offset := int(address - s.First)
	w.checkAlignment(o, &a, address, lane, d)
	data := s.Data[offset : offset+a.bytes]
	if !w.block.launch.options.Checks {
		return data
	}
	marks := s.Marks[offset : offset+a.bytes]
	if !mem.IsPlain(marks) && !w.reportMarked(o, a, owner, address, marks, lane, d) {
		return nil
	}
	me := w.observer(o, lane, a.flags)
	a.adjust(&me)
	var c order.Conflict
	var bad bool
	if d == mem.Read {
		c, bad = s.Shadow.Read(offset, a.bytes, &me)
	} else {
		c, bad = s.Shadow.Write(offset, a.bytes, &me, w.ifUnchanged(data, d))
	}
	if bad {
		w.reportConflict(o, a, c, address, lane, d)
	}
	w.checkWritten(o, a, marks, address, lane, d, bad)
	if w.taint != nil && d == mem.Write {
		w.storeTainted(o, ptx.Shared, address, marks, lane)
	}
	return data
}

// reportMarked reports an access to a live mbarrier or between variables. It returns whether there
// is memory to access.
func (w *warp) reportMarked(o *op, a accessInfo, owner *block, address uint64, marks []byte, lane int, d mem.Direction) bool {
	if i := bytes.IndexByte(marks, mem.Gap); i >= 0 {
		w.reportMemory(finding.Occurrence{Kind: finding.OutOfBounds}, o, position{}, lane, a.space, address, func() string {
			return fmt.Sprintf("%s %d bytes at address %#x of shared memory, %s", d, a.bytes, address,
				w.block.launch.layout.Describe(int(address-w.block.shared.First)+i, a.bytes-i))
		})
		return false
	}
	w.reportBarrierBytes(o, owner, address, a.bytes, lane, d)
	return true
}

// reportBarrierBytes reports an ordinary access to the bytes of live mbarriers. A read is harmless
// on a chip. After a write between two phases the memory is no mbarrier any more: if an instruction
// uses it as one, that is an error.
func (w *warp) reportBarrierBytes(o *op, owner *block, address uint64, size, lane int, d mem.Direction) {
	for first := address &^ 7; first < address+uint64(size); first += 8 {
		b := owner.mbarriers[uint32(first)]
		if b == nil {
			continue
		}
		severity := finding.Strict
		if d != mem.Read {
			severity = b.misuse()
		}
		w.reportAs(severity, finding.BadBarrier, o, position{}, w.laneBit(lane), func() string {
			return fmt.Sprintf("%s the bytes of a live mbarrier at address %#x", d, first)
		})
		if d != mem.Read && severity == finding.Strict {
			delete(owner.mbarriers, uint32(first))
			mem.Fill(owner.shared.Marks[b.offset:b.offset+8], mem.Written)
		}
	}
}

// observer returns a lane, or the lanes that share an access, as the maker of an access.
func (w *warp) observer(o *op, lane int, flags order.Flags) order.Observer {
	return w.clocks.Observer(o.number, uint8(lane), w.sharing&w.lanes, flags)
}

// adjust completes the observer of an atomic operation or a release. A release has already advanced
// the epoch. A thread that learns what was published has also seen the release itself, so the
// release belongs to the epoch before.
func (a *accessInfo) adjust(me *order.Observer) {
	me.UsesOld = a.usesOld
	if a.releases {
		me.Epoch--
	}
}

// ifUnchanged returns the program where a store writes the bytes that are there already, else nil.
func (w *warp) ifUnchanged(data []byte, d mem.Direction) order.Repeats {
	if d == mem.Write && bytes.Equal(data, w.value[:len(data)]) {
		return w.block.launch.program
	}
	return nil
}

// checkWritten handles a read of bytes that were never written, and marks written bytes. skip
// suppresses the report, for an access that was reported already.
func (w *warp) checkWritten(o *op, a accessInfo, marks []byte, address uint64, lane int, d mem.Direction, skip bool) {
	if marks == nil {
		return
	}
	if d != mem.Write && !skip && !a.carries {
		if bytes.IndexByte(marks, mem.Unwritten) >= 0 {
			w.readUnwritten(o, a, marks, address, lane, d)
		}
	}
	if d != mem.Read {
		mem.MarkWritten(marks)
	}
}

// checkKept reports a read of bytes that an earlier launch has left in a variable of the module or in
// a carried buffer. A kernel that depends on them remembers that launch.
func (w *warp) checkKept(o *op, b *mem.Buffer, offset, size, lane int, d mem.Direction, readOnly bool) {
	if d == mem.Write {
		return
	}
	i := bytes.IndexByte(b.Marks[offset:offset+size], mem.Kept)
	switch {
	case i < 0:
	case b.Carried:
		w.checkCarried(o, b, offset, size, lane, d, readOnly)
	default:
		w.reportMemory(finding.Occurrence{Kind: finding.KeptMemory}, o, position{}, lane, ptx.Global, b.Base+uint64(offset), func() string {
			return fmt.Sprintf("%s %d bytes; an earlier launch has written byte %d of %s", d, size, offset+i, b.Variable)
		})
	}
}

// checkCarried reports a read of bytes of a carried buffer that the launch has not written, each byte
// once. A launch that finds the zeros of the first one does what the first would do, so that this is a
// note. A launch that finds another value depends on an earlier one.
func (w *warp) checkCarried(o *op, b *mem.Buffer, offset, size, lane int, d mem.Direction, readOnly bool) {
	at, severity := offset, finding.Note
	for i, mark := range b.Marks[offset : offset+size] {
		if mark != mem.Kept {
			continue
		}
		if b.Data[offset+i] != 0 && severity == finding.Note {
			at, severity = offset+i, finding.Error
		}
		if !readOnly { // whose pages other blocks read at the same time
			b.Marks[offset+i] = mem.Noted
		}
	}
	occurrence := finding.Occurrence{Kind: finding.KeptMemory, Severity: severity, Access: finding.Access{Memory: b.Base}}
	w.reportMemory(occurrence, o, position{}, lane, ptx.Global, b.Base+uint64(offset), func() string {
		if severity == finding.Note {
			return fmt.Sprintf("%s %d bytes of %s that this launch has not written; they are zero, as before the first launch", d, size, b.Variable)
		}
		return fmt.Sprintf("%s %d bytes that this launch has not written; an earlier launch has left %#02x in byte %d of %s", d, size, b.Data[at], at, b.Variable)
	})
}

// checkProtected reports a write to a buffer that the kernel must not change. It is reported even if
// the bytes have their values again at the end of the launch: another kernel may read them meanwhile.
func (w *warp) checkProtected(o *op, b *mem.Buffer, offset, size, lane int, d mem.Direction) {
	if !b.ReadOnly || d == mem.Read {
		return
	}
	w.reportMemory(finding.Occurrence{Kind: finding.InputChanged, Access: finding.Access{Memory: b.Base}}, o, position{}, lane, ptx.Global,
		b.Base+uint64(offset), func() string { return fmt.Sprintf("%s %d bytes of %s, an input", d, size, b.Variable) })
}

// outsideShared describes an access outside of the block's shared memory.
func (w *warp) outsideShared(a accessInfo, address uint64, d mem.Direction) string {
	return fmt.Sprintf("%s %d bytes at address %#x of shared memory, %s", d, a.bytes, address, w.block.shared.DescribeOutside(address, a.bytes))
}

func (w *warp) accessGlobal(o *op, a accessInfo, address uint64, lane int, d mem.Direction) []byte {
	b := w.lastBuffer
	if b == nil || !b.Holds(address, a.bytes) {
		b = w.block.launch.memory.Find(address)
		if b == nil || !b.Holds(address, a.bytes) {
			occurrence := finding.Occurrence{Kind: finding.OutOfBounds, Access: finding.Access{Direction: uint8(d), Memory: b.Start()}}
			w.reportMemory(occurrence, o, position{}, lane, a.space, address, func() string { return w.outsideGlobal(b, a, address, d) })
			return nil
		}
		w.lastBuffer = b
	}
	w.checkAlignment(o, &a, address, lane, d)
	offset := int(address - b.Base)
	data := b.Data[offset : offset+a.bytes]
	if !w.block.launch.options.Checks {
		w.block.lockUnchecked(b, offset, a.bytes, d)
		return data
	}
	bad := false
	if a.readOnly && d == mem.Read {
		bad = w.checkReadOnly(o, a, b, offset, lane)
	} else {
		bad = w.checkOrder(o, a, b, offset, lane, d, data)
	}
	w.checkProtected(o, b, offset, a.bytes, lane, d)
	if b.Marks != nil {
		w.checkKept(o, b, offset, a.bytes, lane, d, a.readOnly)
		w.checkWritten(o, a, b.Marks[offset:offset+a.bytes], address, lane, d, bad)
	}
	if w.taint != nil && d == mem.Write {
		w.storeTainted(o, ptx.Global, address, nil, lane)
	}
	return data
}

// checkReadOnly reports a read by ld.global.nc of bytes that were written in this launch.
func (w *warp) checkReadOnly(o *op, a accessInfo, b *mem.Buffer, offset, lane int) bool {
	w.block.sharePages(b, offset, a.bytes)
	if !b.Shadow.Dirty(offset) {
		return false
	}
	w.block.lockPages(b, offset, a.bytes)
	e, changed := b.Shadow.FirstWrite(offset, a.bytes)
	if !changed {
		return false
	}
	other := w.block.launch.program.ops[e.Op]
	w.reportMemory(finding.Occurrence{Kind: finding.Undefined}, o, other, lane, a.space, b.Base+uint64(offset), func() string {
		how := "with .nc"
		if o.texture != nil {
			how = "through a texture"
		}
		return fmt.Sprintf("reads byte %d of %s %s, which is only for memory that the kernel does not write; %s wrote it", offset, b.Variable, how, w.threadOf(&e))
	})
	return true
}

// checkOrder compares an access to global memory with earlier ones, and reports whether it races.
func (w *warp) checkOrder(o *op, a accessInfo, b *mem.Buffer, offset, lane int, d mem.Direction, data []byte) bool {
	w.block.lockPages(b, offset, a.bytes)
	me := w.observer(o, lane, a.flags)
	a.adjust(&me)
	var c order.Conflict
	var bad bool
	if d == mem.Read {
		c, bad = b.Shadow.Read(offset, a.bytes, &me)
	} else {
		c, bad = b.Shadow.Write(offset, a.bytes, &me, w.ifUnchanged(data, d))
	}
	if bad {
		w.reportConflict(o, a, c, b.Base+uint64(offset), lane, d)
	}
	return bad
}

// nullPage is the size of the addresses around null, in bytes. A field of a struct that a null
// pointer points to is there.
const nullPage = 4096

// outsideGlobal describes an access outside of all buffers.
func (w *warp) outsideGlobal(nearest *mem.Buffer, a accessInfo, address uint64, d mem.Direction) string {
	text := fmt.Sprintf("%s %d bytes at address %#x of global memory, %s", d, a.bytes, address, mem.DescribeOutside(nearest, address, a.bytes))
	if address < nullPage {
		text += w.block.launch.missingGrid()
	}
	return text
}

// reportConflict reports a race, or the use of an asynchronous copy that no thread has waited for.
// A thread that does not know of the copy could not have waited for it, so that is a race.
//
// A load of global memory that races with a store of its own block is strict if no instruction uses
// the value (taint.go).
func (w *warp) reportConflict(o *op, a accessInfo, c order.Conflict, address uint64, lane int, d mem.Direction) {
	kind := finding.Race
	e := c.Earlier
	if e.Flags&order.Pending != 0 && (e.Flags&(order.Async|order.WarpWide) == order.Async || w.knowsStart(&e, lane)) {
		kind = finding.MissingWait
	}
	severity, relation := finding.Error, "nothing orders the two"
	switch {
	case kind != finding.Race:
	case w.clocks.KnowsByShuffle(&e, uint8(lane)): // cooperative groups do so
		severity, relation = finding.Strict, "only a shuffle with a lane that has acquired it orders the two"
	case a.space == ptx.Global && w.onlyStored(c, o, lane):
		severity, relation = finding.Strict, unusedValue
	case uint64(e.Block) == w.block.index && int(e.Warp) < len(w.block.warps) && w.exited>>e.Warp&1 != 0:
		severity, relation = finding.Strict, "only a barrier that completed after its warp had ended orders the two"
	}
	other := w.block.launch.program.ops[e.Op]
	occurrence := finding.Occurrence{Kind: kind, Missing: w.missingOrder(&e, a.space)}
	switch {
	case kind == finding.MissingWait:
		occurrence.Missing = missingWait(&e, other)
	case w.isOtherWarp(&e): // __syncthreads() mends these and those within a warp
		occurrence.Rank = 1
	}
	report := func(severity finding.Severity, relation string) {
		occurrence.Severity = severity
		w.reportMemory(occurrence, o, other, lane, a.space, address, func() string {
			what := fmt.Sprintf("%s %d bytes at %#x of .%s, %s", d, a.bytes, address, a.space, w.describeConflict(c, kind))
			if kind == finding.Race {
				what += fmt.Sprintf("; %s%s", relation, needs[occurrence.Missing])
			}
			return what
		})
	}
	if kind == finding.Race && severity == finding.Error && a.taints && a.space == ptx.Global && uint64(e.Block) == w.block.index {
		w.racingLoad(o, lane, &e, func() { report(finding.Error, "nothing orders the two") })
		severity, relation = finding.Strict, unusedValue
	}
	report(severity, relation)
}

const unusedValue = "nothing orders the two, and no instruction uses the value"

// describeConflict says what the earlier of two accesses was.
func (w *warp) describeConflict(c order.Conflict, kind finding.Kind) string {
	thread := w.threadOf(&c.Earlier)
	if kind == finding.MissingWait {
		role := "the target of an asynchronous copy"
		switch {
		case c.Earlier.Flags&order.WarpWide != 0:
			role = "an operand of an asynchronous product"
		case c.Read:
			role = "the source of an asynchronous copy"
		}
		return fmt.Sprintf("%s that %s started and no thread has waited for", role, thread)
	}
	if c.Read {
		return "which " + thread + " read"
	}
	return "which " + thread + " wrote"
}

// needs says in a detail what would order two accesses.
var needs = map[finding.Sync]string{
	finding.WarpSync:    " (lanes of one warp need __syncwarp())",
	finding.BlockSync:   " (warps need a barrier)",
	finding.ClusterSync: " (blocks of a cluster need its barrier)",
	finding.DeviceSync:  " (blocks need an atomic operation, or a fence and a flag)",
}

// knowsStart reports whether the start of an asynchronous copy is ordered before a lane.
func (w *warp) knowsStart(e *order.Access, lane int) bool {
	me := w.clocks.Observer(0, uint8(lane), 0, 0)
	return me.KnowsStart(e)
}

// threadOf names the thread or the warp that made an earlier access.
func (w *warp) threadOf(e *order.Access) string {
	name := fmt.Sprintf("thread %d", int(e.Warp)*32+int(e.Lane))
	switch agent := int(e.Warp) - len(w.block.warps); {
	case agent == 0: // the agent of bulk copies
		name = "some thread"
	case agent == 1: // the agent of initialisations
		name = fmt.Sprintf("warp %d", e.Lane)
	case agent > 1:
		name = fmt.Sprintf("warpgroup %d", (agent-2)/2)
	case e.Lane == allLanes:
		name = fmt.Sprintf("warp %d", e.Warp)
	}
	if uint64(e.Block) != w.block.index {
		name += fmt.Sprintf(" of block %v", w.block.launch.blockAt(uint64(e.Block)))
	}
	return name
}

// missingOrder returns what would order an access after an earlier one.
func (w *warp) missingOrder(e *order.Access, space ptx.Space) finding.Sync {
	switch {
	case uint64(e.Block) != w.block.index && space == ptx.Shared:
		return finding.ClusterSync
	case uint64(e.Block) != w.block.index:
		return finding.DeviceSync
	case w.isOtherWarp(e):
		return finding.BlockSync
	}
	return finding.WarpSync
}

// missingWait returns what waits for the end of an asynchronous access, of the instruction that
// started it.
func missingWait(e *order.Access, started position) finding.Sync {
	switch {
	case e.Flags&order.WarpWide != 0:
		return finding.ProductWait
	case started.isCopy() && started.op().sync != nil && started.op().sync.bulk != nil:
		return finding.BulkWait
	}
	return finding.CopyWait
}

// isOtherWarp reports whether another warp of the block made an earlier access.
func (w *warp) isOtherWarp(e *order.Access) bool {
	warp := int(e.Warp)
	if warp == w.block.initAgent() {
		warp = int(e.Lane)
	}
	return uint64(e.Block) == w.block.index && warp != w.index
}

func (w *warp) accessLocal(o *op, a accessInfo, address uint64, lane int, d mem.Direction) []byte {
	if !w.frame.holdsLocal(address, a.bytes) {
		w.report(finding.OutOfBounds, o, w.laneBit(lane), func() string {
			return fmt.Sprintf("%s %d bytes at address %#x of local memory, outside of the variables of all active functions; %s", d, a.bytes, address, w.frame.describeLocals())
		})
		return nil
	}
	w.checkAlignment(o, &a, address, lane, d)
	l := &w.local[lane]
	l.Grow(w.frame.local + w.frame.code.localSize)
	if w.block.launch.options.Checks {
		marks := l.Marks[address : address+uint64(a.bytes)]
		w.checkWritten(o, a, marks, address, lane, d, a.onlyCopied)
		if w.taint != nil && d == mem.Write {
			w.storeTainted(o, ptx.Local, address, marks, lane)
		}
	}
	return l.Data[address : address+uint64(a.bytes)]
}

// holdsLocal reports whether bytes of local memory belong to a variable of the frame or its callers.
func (f *frame) holdsLocal(address uint64, size int) bool {
	for ; f != nil; f = f.caller {
		if address < uint64(f.local) || address-uint64(f.local) > uint64(f.code.localSize) {
			continue
		}
		at := int(address) - f.local
		for _, v := range f.code.locals {
			if at >= v.at && at+size <= v.at+v.size {
				return true
			}
		}
	}
	return false
}

// describeLocals lists the local variables of the frame's function.
func (f *frame) describeLocals() string {
	const most = 4
	text := f.code.fn.Name + " has no local variables"
	for i, v := range f.code.locals {
		switch {
		case i == 0:
			text = fmt.Sprintf("%s has %d bytes at %#x (%s)", f.code.fn.Name, v.size, f.local+v.at, v.name)
		case i < most:
			text += fmt.Sprintf(", %d at %#x (%s)", v.size, f.local+v.at, v.name)
		case i == most:
			text += " and more"
		}
	}
	return text
}

// accessConstant checks an access to constants or to the kernel's parameters.
func (w *warp) accessConstant(o *op, a accessInfo, address uint64, lane int, d mem.Direction) []byte {
	constants := &w.block.launch.program.constants
	data, marks := w.block.launch.constants, constants.Marks
	if a.space == ptx.Param {
		data, marks = w.block.launch.params, nil
	}
	if d != mem.Read {
		w.report(finding.OutOfBounds, o, w.laneBit(lane), func() string { return fmt.Sprintf("%s .%s, which is read-only", d, a.space) })
		return nil
	}
	if address+uint64(a.bytes) > uint64(len(data)) || address > uint64(len(data)) {
		w.report(finding.OutOfBounds, o, w.laneBit(lane), func() string {
			return fmt.Sprintf("reads %d bytes at address %#x of .%s, which has %d bytes", a.bytes, address, a.space, len(data))
		})
		return nil
	}
	if marks != nil && bytes.IndexByte(marks[address:address+uint64(a.bytes)], mem.Gap) >= 0 {
		w.reportMemory(finding.Occurrence{Kind: finding.OutOfBounds}, o, position{}, lane, a.space, address, func() string {
			return fmt.Sprintf("reads %d bytes at address %#x of .const, %s", a.bytes, address, constants.Describe(int(address)))
		})
		return nil
	}
	w.checkAlignment(o, &a, address, lane, d)
	return data[address : address+uint64(a.bytes)]
}
