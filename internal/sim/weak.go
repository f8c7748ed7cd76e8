package sim

import (
	"bytes"
	"fmt"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/mem"
	"attune/internal/sim/order"
)

// Weak memory.
//
// Volatile and relaxed accesses do not race, but nothing orders two of them to different addresses: a
// thread that has seen a flag may still read the value from before the flag was set. A chip mostly does
// not show that. Under seeds other than 0 a strong load of global memory therefore returns, a few times,
// the bytes from before the last write, as far as PTX allows it:
//
//   - the write happens before the load by no barrier, fence, release or acquire, and is by another warp;
//   - no thread has read the written value yet, so that no reader goes back to an older one;
//   - fence.sc and membar have one order: a write before such a fence of its block is visible behind a
//     later one of the reader's, if the two reach each other.
//
// Atomic operations always see the last value. A kernel that polls gets it after a few loads.

// weakMemory has the last strong writes to global memory that loads may not see yet.
type weakMemory struct {
	writes map[uint64][]*weakWrite // by the number of their granule
	blocks map[uint32]*weakBlock
	count  int              // of the writes since all were forgotten
	now    uint64           // strong writes and fences so far
	stale  *finding.Finding // the load that best explains a wrong output; nil for none
}

// weakBlock is the part of a block in a weak memory. Times are values of weakMemory.now.
type weakBlock struct {
	seen     map[uint32]uint64 // by block: the last write of that one which it has read
	fence    [2]uint64         // its last fence.sc for its own threads, and for other blocks
	unfenced [2][]*weakWrite   // writes since
}

// weakWrite is the last strong write to an address.
type weakWrite struct {
	order.Access
	address uint64
	before  []byte
	at      uint64    // value of weakMemory.now
	fenced  [2]uint64 // its values at the next fence.sc of the block; 0 for none yet
	left    int       // loads that may still return the bytes before
	late    bool      // a block that reads it has read a later write of its block
}

// Strong accesses are aligned to their size, so that none is in two granules.
const weakGranule = 32

const (
	// maxWeakWrites bounds the writes that are remembered. Beyond it all of them become visible.
	maxWeakWrites = 1 << 16
	// earlyReads is how many loads miss a write of which nothing can be known yet, for half of all
	// addresses. The others show at once whatever a thread does right behind it.
	earlyReads = 2
	// lateReads is how many more loads miss a write if their block has read a later one of its block.
	lateReads = 2
)

// newWeakMemory makes the weak memory of a launch; nil where every load sees the last write.
func (r *launch) newWeakMemory() *weakMemory {
	if r.options.Seed == 0 || !r.options.Checks || !r.communicates {
		return nil
	}
	for f := range r.reachable {
		if r.program.codes[f].loadsStrong {
			k := &weakMemory{}
			k.forget()
			return k
		}
	}
	return nil
}

// forget makes all writes visible.
func (k *weakMemory) forget() {
	k.writes, k.blocks, k.count = map[uint64][]*weakWrite{}, map[uint32]*weakBlock{}, 0
}

func (k *weakMemory) block(index uint32) *weakBlock {
	b := k.blocks[index]
	if b == nil {
		b = &weakBlock{seen: map[uint32]uint64{}}
		k.blocks[index] = b
	}
	return b
}

// explanation returns the load that best explains a wrong output; nil for none.
func (k *weakMemory) explanation() *finding.Finding {
	if k == nil {
		return nil
	}
	return k.stale
}

// isWeak reports whether a strong access to a space is one of the launch's weak memory.
func (w *warp) isWeak(space ptx.Space) bool { return w.block.launch.weak != nil && space == ptx.Global }

// weaken returns the bytes that a strong load of a lane gets in place of those in memory. A plain load of
// the value that a compare-and-swap expects sees the last one.
func (w *warp) weaken(o *op, space ptx.Space, address uint64, lane int, data []byte) []byte {
	if !w.isWeak(space) || data == nil {
		return data
	}
	k := w.block.launch.weak
	for _, x := range k.overlapping(address, len(data)) {
		me := w.observer(o, lane, order.Strong)
		if x.isOf(w) || me.After(&x.Access, x.Lanes()) {
			continue
		}
		if o.mem.strong && x.address == address && len(x.before) == len(data) && k.hides(x, uint32(w.block.index)) {
			x.left--
			w.block.changes++ // the next load has another result, so the loop around it is not endless
			k.explain(w, o, x, lane)
			return x.before
		}
		k.see(x, uint32(w.block.index))
	}
	return data
}

// overwrite notes that a strong store or an atomic operation of a lane replaces bytes.
func (w *warp) overwrite(o *op, address uint64, lane int, before, after []byte) {
	k, m := w.block.launch.weak, o.mem
	for _, x := range k.overlapping(address, len(before)) {
		if m.atomic != nil {
			k.see(x, uint32(w.block.index))
		} else {
			k.remove(x)
		}
	}
	if bytes.Equal(before, after) {
		return
	}
	if k.count++; k.count > maxWeakWrites {
		k.forget()
	}
	me := w.observer(o, lane, w.accessFlags(m, ptx.Global))
	(&accessInfo{releases: m.release}).adjust(&me)
	k.now++
	x := &weakWrite{Access: me.StrongWrite(), address: address, before: bytes.Clone(before), at: k.now}
	if scramble(address, w.block.launch.options.Seed)&1 != 0 {
		x.left = earlyReads
	}
	k.writes[address/weakGranule] = append(k.writes[address/weakGranule], x)
	b := k.block(x.Block)
	for reach := range b.unfenced {
		b.unfenced[reach] = append(b.unfenced[reach], x)
	}
}

// Reaches of a fence.sc, as indices.
const (
	ownBlock = iota
	otherBlocks
)

// fence notes a fence.sc of a block. Such fences have the order of the run.
func (k *weakMemory) fence(index uint32, wide bool) {
	k.now++
	b := k.block(index)
	for reach := range b.fence {
		if reach == otherBlocks && !wide {
			continue
		}
		b.fence[reach] = k.now
		for _, x := range b.unfenced[reach] {
			x.fenced[reach] = k.now
		}
		b.unfenced[reach] = b.unfenced[reach][:0]
	}
}

// hides reports whether a load of a block that nothing orders after a write may miss it.
func (k *weakMemory) hides(x *weakWrite, reader uint32) bool {
	b, reach := k.block(reader), otherBlocks
	if x.Block == reader {
		reach = ownBlock
	}
	if x.fenced[reach] != 0 && x.fenced[reach] < b.fence[reach] {
		return false
	}
	if !x.late && b.seen[x.Block] > x.at {
		x.late = true
		x.left += lateReads
	}
	return x.left > 0
}

// see makes a write visible to all threads, because one of a block has read it.
func (k *weakMemory) see(x *weakWrite, reader uint32) {
	b := k.block(reader)
	b.seen[x.Block] = max(b.seen[x.Block], x.at)
	k.remove(x)
}

// overlapping lists the writes that have bytes of a range. The list may be changed while it is used.
func (k *weakMemory) overlapping(address uint64, size int) []*weakWrite {
	var found []*weakWrite
	for _, x := range k.writes[address/weakGranule] {
		if x.address < address+uint64(size) && address < x.address+uint64(len(x.before)) {
			found = append(found, x)
		}
	}
	return found
}

func (k *weakMemory) remove(x *weakWrite) {
	granule := x.address / weakGranule
	list := k.writes[granule]
	for i := range list {
		if list[i] == x {
			list[i] = list[len(list)-1]
			k.writes[granule] = list[:len(list)-1]
			break
		}
	}
	if len(k.writes[granule]) == 0 {
		delete(k.writes, granule)
	}
}

// isOf reports whether a warp has made the write.
func (x *weakWrite) isOf(w *warp) bool {
	return uint64(x.Block) == w.block.index && int(x.Warp) == w.index
}

// explain remembers the load of a lane that has missed a write. One that has seen a later write of the
// same block explains more than the poll of a flag.
func (k *weakMemory) explain(w *warp, o *op, x *weakWrite, lane int) {
	const late = finding.DeviceFence
	if k.stale != nil && (k.stale.Missing == late || !x.late) {
		return
	}
	where, other := positionOf(w, o).place(), w.block.launch.program.ops[x.Op].place()
	k.stale = &finding.Finding{
		Kind: finding.Race, Severity: finding.Error, Count: 1, Where: where, Other: &other, Variable: w.block.variable(o, ptx.Global, x.address),
		Missing: w.missingOrder(&x.Access, ptx.Global),
		Detail: fmt.Sprintf("%s: %s %d bytes that %s wrote, and may get the value from before that write; both are volatile or relaxed, and nothing orders the two",
			w.threads(w.laneBit(lane)), mem.Read, len(x.before), w.threadOf(&x.Access)),
	}
	if x.late {
		k.stale.Missing = late
	}
}
