package sim

import (
	"fmt"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/mem"
	"attune/internal/sim/order"
)

// Accesses of the async proxy: bulk copies, and the operands of wgmma in shared memory.
//
// A copy into shared memory signals an mbarrier. Threads that have waited for the phase know of the
// copy. The thread that started it does not, unless it waits too. Such copies are therefore
// accesses of an agent of their own, which has the component after the last warp in the clocks of
// the block. The lanes of the agent stand for mbarriers, and each phase that copies complete in is
// an epoch. A copy out of shared memory is an access of its thread, from the moment when the thread
// waits for it.
//
// Clocks have further agents. The initialisations of mbarriers belong to one, so that a
// fence.mbarrier_init can publish them and nothing else (op_mbarrier.go). The reads of wgmma belong
// to two agents of the warpgroup (tile.go).

// agents returns the number of components in the clocks of a block: its warps, and the agents.
func (b *block) agents() int {
	n := b.initAgent() + 1
	if b.launch.usesWgmma {
		n += 2 * len(b.warpgroups)
	}
	return n
}

// initAgent returns the index of the agent of initialisations.
func (b *block) initAgent() int { return len(b.warps) + 1 }

func (b *block) newClock() order.Clock { return order.NewClock(b.agents()) }

// readAgent returns the index of the agent of a warpgroup's reads that have ended. The agent after
// it is that of the reads that have begun.
func (w *warp) readAgent() int { return w.block.initAgent() + 1 + w.index/groupWarps*2 }

// readAsync records that a warpgroup starts to read bytes of shared memory through the async proxy,
// as an operand of wgmma. The stamp says as whose access the read is remembered.
func (w *warp) readAsync(o *op, address uint64, size int, me *order.Observer, stamp order.Access) {
	s := &w.block.shared
	a := accessInfo{space: ptx.Shared, bytes: size, flags: order.WarpRead}
	if !s.Holds(address, size) {
		w.reportMemory(finding.Occurrence{Kind: finding.OutOfBounds}, o, position{}, allLanes, a.space, address,
			func() string { return w.outsideShared(a, address, mem.Read) })
		return
	}
	offset := int(address - s.First)
	marks := s.Marks[offset : offset+size]
	if !mem.IsPlain(marks) && !w.reportMarked(o, a, w.block, address, marks, allLanes, mem.Read) {
		return
	}
	result := s.Shadow.Async(offset, size, me, stamp, false, nil)
	e := result.Earlier
	switch {
	case result.Races:
		w.reportConflict(o, a, result.Conflict, address, allLanes, mem.Read)
	case result.Unfenced:
		writer, severity := w.block.launch.program.ops[e.Op], finding.Error
		if writer.isCopy() { // NVIDIA's own kernels have no fence between cp.async and wgmma
			severity = finding.Strict
		}
		occurrence := finding.Occurrence{Kind: finding.MissingFence, Severity: severity, Missing: finding.ProxyFence}
		w.reportMemory(occurrence, o, writer, allLanes, a.space, address, func() string {
			return fmt.Sprintf("wgmma reads %d bytes at %#x of shared memory, which %s stored, with no fence.proxy.async between the two", size, address,
				w.threadOf(&e))
		})
	}
	w.checkWritten(o, a, marks, address, allLanes, mem.Read, result.Races)
}

// asyncAccess is an access of a bulk copy.
type asyncAccess struct {
	op      *op
	lane    int          // that started the copy
	stamp   order.Access // as which it is remembered
	writes  bool
	generic bool // st.async and red.async: they use the generic proxy

	known []byte // global memory of a run of pieces that are checked already (checkRun)
	at    uint64 // its address

	same order.Repeats // for a store to global memory: decides whether it repeats an earlier one
}

func (a *asyncAccess) info(space ptx.Space, n int) (accessInfo, mem.Direction) {
	d := mem.Read
	if a.writes {
		d = mem.Write
	}
	return accessInfo{space: space, bytes: n, aligned: true}, d
}

// markDirection is the direction for the check of unwritten bytes: a reduction reads its target.
func (a *asyncAccess) markDirection(d mem.Direction) mem.Direction {
	if a.stamp.Flags&order.Strong != 0 {
		return mem.Update
	}
	return d
}

// accessAsyncShared checks an access to the shared memory of a block and returns its bytes, or nil.
func (w *warp) accessAsyncShared(a *asyncAccess, owner *block, address uint64, n int) []byte {
	s := &owner.shared
	info, d := a.info(ptx.Shared, n)
	if !s.Holds(address, n) {
		w.reportMemory(finding.Occurrence{Kind: finding.OutOfBounds}, a.op, position{}, a.lane, info.space, address,
			func() string { return w.outsideShared(info, address, d) })
		return nil
	}
	offset := int(address - s.First)
	data := s.Data[offset : offset+n]
	if !w.block.launch.options.Checks {
		return data
	}
	marks := s.Marks[offset : offset+n]
	if !mem.IsPlain(marks) && !w.reportMarked(a.op, info, owner, address, marks, a.lane, d) {
		return nil
	}
	me := w.observer(a.op, a.lane, a.stamp.Flags&order.Strong)
	result := s.Shadow.Async(offset, n, &me, a.stamp, a.writes, nil)
	w.reportAsync(a, info, result, address, d)
	w.checkWritten(a.op, info, marks, address, a.lane, a.markDirection(d), result.Races)
	return data
}

// accessAsyncGlobal is accessAsyncShared for global memory. It also returns the buffer.
func (w *warp) accessAsyncGlobal(a *asyncAccess, address uint64, n int) ([]byte, *mem.Buffer) {
	b := w.lastBuffer
	if first, size := address-a.at, uint64(len(a.known)); first < size && uint64(n) <= size-first {
		return a.known[first : first+uint64(n)], b
	}
	a.known = nil // other pages will be locked
	if b == nil || !b.Holds(address, n) {
		b = w.block.launch.memory.Find(address)
	}
	info, d := a.info(ptx.Global, n)
	if b == nil || !b.Holds(address, n) {
		w.reportMemory(finding.Occurrence{Kind: finding.OutOfBounds}, a.op, position{}, a.lane, info.space, address,
			func() string { return w.outsideGlobal(b, info, address, d) })
		return nil, nil
	}
	w.lastBuffer = b
	offset := int(address - b.Base)
	data := b.Data[offset : offset+n]
	if !w.block.launch.options.Checks {
		w.block.lockUnchecked(b, offset, n, d)
		return data, b
	}
	w.block.lockPages(b, offset, n)
	me := w.observer(a.op, a.lane, a.stamp.Flags&order.Strong)
	result := b.Shadow.Async(offset, n, &me, a.stamp, a.writes, a.same)
	result.Unfenced = result.Unfenced && !w.block.launch.hasFencedGlobal(uint32(w.block.index), result.Earlier.Block)
	w.reportAsync(a, info, result, address, d)
	w.checkProtected(a.op, b, offset, n, a.lane, a.markDirection(d))
	if b.Marks != nil {
		w.checkKept(a.op, b, offset, n, a.lane, a.markDirection(d), false)
		w.checkWritten(a.op, info, b.Marks[offset:offset+n], address, a.lane, a.markDirection(d), result.Races)
	}
	return data, b
}

// checkRun checks the reads of the first pieces of a load that are one run of global memory, if a short
// check shows that nothing is wrong with any of them. Otherwise it does nothing, and each piece is
// checked by itself.
func (w *warp) checkRun(a *asyncAccess, pieces []mem.Piece) {
	a.known = nil
	n := runLength(pieces)
	b, address := w.lastBuffer, pieces[0].Global
	if n <= mem.UnitBytes {
		return
	}
	if b == nil || !b.Holds(address, n) {
		b = w.block.launch.memory.Find(address)
	}
	if b == nil || !b.Holds(address, n) {
		return
	}
	w.lastBuffer = b
	if !w.block.launch.options.Checks {
		w.block.lockUnchecked(b, int(address-b.Base), n, mem.Read)
		a.known, a.at = b.Data[address-b.Base:][:n], address
		return
	}
	offset := int(address - b.Base)
	if b.Marks != nil && !mem.IsWritten(b.Marks[offset:offset+n]) {
		return
	}
	w.block.lockPages(b, offset, n)
	me := w.observer(a.op, a.lane, 0)
	if b.Shadow.AsyncInOrder(offset, n, &me, &a.stamp) {
		a.known, a.at = b.Data[offset:offset+n], address
	}
}

// checkTarget checks the writes of a load as one write, and poisons the target, if a short check shows
// that nothing is wrong with any of them. Otherwise it does nothing and returns false, and each piece is
// checked by itself.
func (w *warp) checkTarget(a *asyncAccess, l *bulkLoad) bool {
	s := &l.owner.shared
	if l.update != nil || l.op.sync.bulk.fromShared || !l.isContiguous() || !s.Holds(l.first, l.bytes) {
		return false
	}
	if !w.block.launch.options.Checks {
		return true
	}
	offset := int(l.first - s.First)
	marks := s.Marks[offset : offset+l.bytes]
	me := w.observer(a.op, a.lane, 0)
	if !mem.IsPlain(marks) || !s.Shadow.AsyncWriteInOrder(offset, l.bytes, &me, &a.stamp) {
		return false
	}
	mem.Fill(marks, mem.Written)
	mem.Fill(s.Data[offset:offset+l.bytes], mem.Poison)
	return true
}

// isContiguous reports whether the targets of the pieces, which do not overlap, are one range. It sets the
// first address.
func (l *bulkLoad) isContiguous() bool {
	first, end := ^uint64(0), uint64(0)
	size := 0
	for i := range l.pieces {
		p := &l.pieces[i]
		first, end = min(first, p.Shared), max(end, p.Shared+uint64(p.Size))
		size += p.Size
	}
	l.first = first
	return size > 0 && size == l.bytes && end-first == uint64(size)
}

// maxRun bounds the bytes of a run: pieces whose run is not in order are all looked at again.
const maxRun = 256

// runLength returns how many bytes the first pieces have that are one run of global memory.
func runLength(pieces []mem.Piece) int {
	n := 0
	for i := range pieces {
		if p := &pieces[i]; n >= maxRun || p.Outside || p.Global != pieces[0].Global+uint64(n) {
			break
		}
		n += pieces[i].Size
	}
	return n
}

// fenceGlobal is fence.proxy.async.global. The simulator does not record which writes precede it.
// After one such fence in a block, no missing fence is reported for copies that the block starts,
// nor for copies of what the block has written.
func (b *block) fenceGlobal() {
	r := b.launch
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fencedGlobal == nil {
		r.fencedGlobal = map[uint32]bool{}
	}
	r.fencedGlobal[uint32(b.index)] = true
}

func (r *launch) hasFencedGlobal(one, other uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fencedGlobal[one] || r.fencedGlobal[other]
}

func (w *warp) reportAsync(a *asyncAccess, info accessInfo, result order.AsyncResult, address uint64, d mem.Direction) {
	switch {
	case result.Races:
		w.reportConflict(a.op, info, result.Conflict, address, a.lane, d)
	case result.Unfenced && !a.generic:
		e := result.Earlier
		occurrence := finding.Occurrence{Kind: finding.MissingFence, Missing: finding.ProxyFence}
		w.reportMemory(occurrence, a.op, w.block.launch.program.ops[e.Op], a.lane, info.space, address, func() string {
			return fmt.Sprintf("%s %d bytes at %#x of .%s through the async proxy, which %s wrote, with no fence.proxy.async between the two",
				d, info.bytes, address, info.space, w.threadOf(&e))
		})
	}
}

// publishLanded adds the bulk copies that landed in the phase that ends to the clock of the phase.
func (b *mbarrier) publishLanded() {
	if !b.landed {
		return
	}
	b.landed = false
	agent := len(b.owner.warps)
	b.clocks[b.phase&1].JoinLanes(agent, 1<<b.agentLane, b.owner.landings[b.agentLane]+1)
	b.owner.landings[b.agentLane]++
}

// landingStamp returns the access of copies that land in the current phase.
func (b *mbarrier) landingStamp(number int32) order.Access {
	return order.Access{
		Epoch: b.owner.landings[b.agentLane] + 1, Op: number, Block: uint32(b.owner.index), Warp: uint16(len(b.owner.warps)), Lane: b.agentLane,
		Flags: order.Present | order.Async,
	}
}
