package sim

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/mem"
	"attune/internal/sim/order"
)

// bulkOp is cp.async.bulk, with or without a tensor map, and cp.reduce.async.bulk.
type bulkOp struct {
	to, from    *memOp // for a tensor, one of them is the address of the tensor map
	bar         *memOp // mbarrier that a copy into shared memory signals
	size        slot
	mask        slot // of the blocks that a multicast goes to; noFile for one block
	load        bool // into shared memory
	multicast   bool
	fromShared  bool // of a copy into shared memory
	rank        int  // of the tensor; 0 for none
	coordinates []slot
	reduce      string // name of a reduction; empty for a copy
	typed       ptx.Type
	update      func(old, b, c uint64) uint64 // of the reduction

	read bool // wait_group.read: waits until the copies have read their source
	keep int  // of wait_group: groups that may stay pending
}

// bulkLoad is a copy into shared memory that has not landed. Its target is poisoned until then.
type bulkLoad struct {
	op     *op
	owner  *block // of the target
	pieces []mem.Piece
	data   []byte
	bytes  int    // that the mbarrier counts
	whole  bool   // the target was checked as one range
	first  uint64 // address of the target
	stamp  order.Access
	landed order.Access                  // as which it has landed; zero before
	update func(old, b, c uint64) uint64 // of a reduction
	size   int                           // of an element
}

// lowerBulk lowers the bulk copies.
func (c *code) lowerBulk(in *ptx.Instruction, o *op) error {
	b := &bulkOp{}
	o.sync.bulk, o.class = b, count.Memory
	modifiers := in.Modifiers
	reduces := modifiers[0] == "reduce"
	if reduces {
		modifiers = modifiers[1:]
	}
	if len(modifiers) < 3 || modifiers[0] != "async" || modifiers[1] != "bulk" {
		return fmt.Errorf("unsupported form")
	}
	modifiers = modifiers[2:]
	switch modifiers[0] {
	case "commit_group":
		o.run = runBulkCommit
		return nil
	case "wait_group":
		return c.lowerBulkWait(in, o)
	case "prefetch":
		o.run = func(*warp, *op, uint32) {}
		return nil
	}
	spaces, hinted, err := b.readModifiers(modifiers)
	if err != nil {
		return err
	}
	if reduces == (b.reduce == "") {
		return fmt.Errorf("unsupported form")
	}
	if b.reduce != "" && b.rank == 0 {
		if err := b.chooseReduction(); err != nil {
			return err
		}
	}
	operands := in.Operands
	if hinted && len(operands) > 0 {
		operands = operands[:len(operands)-1]
	}
	switch spaces {
	case "shared::cluster.global", "shared::cta.global":
		b.load = true
	case "global.shared::cta":
		c.communicates = c.communicates || b.reduce != ""
		return c.lowerBulkStore(o, operands)
	case "shared::cluster.shared::cta":
		b.load, b.fromShared = true, true
	default:
		return fmt.Errorf("unsupported form")
	}
	return c.lowerBulkLoad(o, operands)
}

// chooseReduction finds the function of a reduction without a tensor.
func (b *bulkOp) chooseReduction() error {
	if size := b.typed.Size(); size != 2 && size != 4 && size != 8 {
		return fmt.Errorf("unsupported form")
	}
	a := &atomicOp{}
	if err := a.choose(b.reduce, b.typed); err != nil {
		return err
	}
	b.update = a.update
	return nil
}

// readModifiers reads the modifiers after cp.async.bulk. spaces is the target and the source.
func (b *bulkOp) readModifiers(modifiers []string) (spaces string, hinted bool, err error) {
	var where []string
	for _, m := range modifiers {
		t, isType := ptx.ParseType(m)
		switch {
		case m == "global" || m == "shared::cta" || m == "shared::cluster":
			where = append(where, m)
		case m == "tensor" || m == "tile" || m == "mbarrier::complete_tx::bytes" || m == "bulk_group" || m == "noftz":
		case len(m) == 2 && m[1] == 'd' && m[0] >= '1' && m[0] <= '5':
			b.rank = int(m[0] - '0')
		case m == "L2::cache_hint":
			hinted = true
		case m == "multicast::cluster":
			b.multicast = true
		case isType:
			b.typed = t
		case slices.Contains(atomicNames[:8], m):
			b.reduce = m
		default:
			return "", false, fmt.Errorf("unsupported modifier .%s", m)
		}
	}
	return strings.Join(where, "."), hinted, nil
}

// lowerBulkLoad lowers [to], [from], size, [mbarrier], and with a tensor [to], [map,
// {coordinates}], [mbarrier].
func (c *code) lowerBulkLoad(o *op, operands []ptx.Operand) error {
	b := o.sync.bulk
	want := 4
	if b.rank > 0 {
		want = 3
	}
	if b.multicast && len(operands) == want+1 {
		s, err := c.source(operands[want], ptx.U16)
		if err != nil {
			return err
		}
		b.mask = s
		operands = operands[:want]
	}
	if len(operands) != want || b.multicast != (b.mask.file != noFile) {
		return fmt.Errorf("it has %d operands, want %d", len(operands), want)
	}
	source := ptx.Global
	if b.fromShared {
		source = ptx.Shared
	}
	b.to = &memOp{space: ptx.Shared}
	b.from = &memOp{space: source}
	b.bar = &memOp{space: ptx.Shared, bytes: 8}
	o.sync.addr = b.bar
	o.run = runBulkLoad
	if err := c.lowerAddress(b.to, operands[0]); err != nil {
		return err
	}
	if err := c.lowerAddress(b.bar, operands[want-1]); err != nil {
		return err
	}
	return c.lowerBulkSource(b, b.from, operands[1], operands[want-2])
}

// lowerBulkSource lowers the side of a copy that may be a tensor. Without a tensor it also lowers
// the size.
func (c *code) lowerBulkSource(b *bulkOp, m *memOp, at, size ptx.Operand) (err error) {
	if b.rank == 0 {
		if b.size, err = c.source(size, ptx.U32); err != nil {
			return err
		}
		return c.lowerAddress(m, at)
	}
	m.space = ptx.Generic
	if at.Kind != ptx.AddrOperand || len(at.Parts) != 2 {
		return fmt.Errorf("it needs a tensor map and %d coordinates", b.rank)
	}
	list := []ptx.Operand{at.Parts[1]}
	if at.Parts[1].Kind == ptx.VecOperand {
		list = at.Parts[1].Parts
	}
	if len(list) != b.rank {
		return fmt.Errorf("it has %d coordinates, want %d", len(list), b.rank)
	}
	for _, p := range list {
		s, err := c.source(p, ptx.S32)
		if err != nil {
			return err
		}
		b.coordinates = append(b.coordinates, s)
	}
	base := at
	base.Parts = at.Parts[:1]
	return c.lowerAddress(m, base)
}

// addressesOf returns the addresses of an operand in every lane.
func (w *warp) addressesOf(m *memOp) [32]uint64 {
	w.computeAddresses(m)
	return w.addr
}

// bulkPieces returns what a lane's copy moves: one piece, or the pieces of a tensor's box. total is
// the number of bytes that an mbarrier counts. The pieces may take the place of a spare list.
func (w *warp) bulkPieces(o *op, lane int, shared, global uint64, spare []mem.Piece) (pieces []mem.Piece, tensor *mem.TensorMap, total int) {
	b := o.sync.bulk
	if b.rank > 0 {
		tensor = w.tensorMap(o, global, lane)
		if tensor == nil {
			return nil, nil, 0
		}
		var at [5]int64
		for i, s := range b.coordinates {
			at[i] = int64(int32(w.R32[s.index][lane]))
		}
		w.checkBox(o, tensor, at, shared, lane)
		if w.exceedsShared(o, tensor.BoxBytes(), lane) {
			return nil, nil, 0
		}
		if b.load {
			if list, ok := tensor.AppendRows(spare, at, shared); ok {
				return list, tensor, tensor.BoxBytes()
			}
		}
		return tensor.Pieces(at, shared, !b.load), tensor, tensor.BoxBytes()
	}
	n := int(w.R32[b.size.index][lane])
	for _, a := range []struct {
		what  string
		value uint64
	}{{"shared address", shared}, {"other address", global}, {"size", uint64(n)}} {
		if a.value%16 != 0 {
			w.report(finding.Misaligned, o, 1<<lane, func() string {
				return fmt.Sprintf("the %s %#x of a bulk copy is not a multiple of 16", a.what, a.value)
			})
		}
	}
	if n == 0 || w.exceedsShared(o, n, lane) {
		return nil, nil, 0
	}
	return []mem.Piece{{Shared: shared, Global: global, Size: n}}, nil, n
}

// exceedsShared reports a copy that no shared memory can hold. A box may have 2^43 bytes.
func (w *warp) exceedsShared(o *op, n, lane int) bool {
	most := maxShared(w.block.launch.program.arch)
	if n <= most {
		return false
	}
	w.report(finding.OutOfBounds, o, 1<<lane, func() string {
		return fmt.Sprintf("a bulk copy of %d bytes; a block has at most %d bytes of shared memory", n, most)
	})
	return true
}

// tensorMap reads the tensor map at a lane's address. It reports and returns nil if there is none.
func (w *warp) tensorMap(o *op, address uint64, lane int) *mem.TensorMap {
	space, inside := mem.FromGeneric(address)
	data := w.accessTensorMap(o, space, inside, lane, mem.Read)
	if data == nil {
		return nil
	}
	if space == ptx.Global && w.block.changedMaps[inside] && w.block.launch.options.Checks {
		w.report(finding.MissingFence, o, 1<<lane, func() string {
			return fmt.Sprintf("uses the tensor map at %#x, which the block has changed, with no fence.proxy.tensormap::generic.acquire between the two", address)
		})
	}
	t, err := mem.DecodeTensorMap(data)
	if err == nil && len(t.Dims) != o.sync.bulk.rank {
		err = fmt.Errorf("the tensor map has %d dimensions, and the copy %d", len(t.Dims), o.sync.bulk.rank)
	}
	if err != nil {
		w.report(finding.Undefined, o, 1<<lane, err.Error)
		return nil
	}
	return t
}

// checkBox reports what the chips answer with an illegal instruction.
func (w *warp) checkBox(o *op, t *mem.TensorMap, at [5]int64, shared uint64, lane int) {
	if shared%128 != 0 {
		w.report(finding.Misaligned, o, 1<<lane, func() string {
			return fmt.Sprintf("the shared address %#x of a box is not a multiple of 128", shared)
		})
	}
	if n := at[0] * int64(t.ElementBytes()); n%16 != 0 {
		w.report(finding.Misaligned, o, 1<<lane, func() string {
			return fmt.Sprintf("a box begins at byte %d of the innermost dimension, which is not a multiple of 16", n)
		})
	}
	if o.sync.bulk.load {
		return
	}
	for i := range t.Dims {
		if at[i] < 0 {
			w.report(finding.Undefined, o, 1<<lane, func() string {
				return fmt.Sprintf("stores a box at coordinate %d in dimension %d", at[i], i)
			})
		}
	}
}

// runBulkLoad starts copies into shared memory. They read now. Their target is poisoned until a
// thread waits at the mbarrier.
func runBulkLoad(w *warp, o *op, mask uint32) {
	b := o.sync.bulk
	to, from := w.addressesOf(b.to), w.addressesOf(b.from)
	w.computeAddresses(b.bar)
	w.eachBarrier(o, mask, func(bar *mbarrier, lanes uint32) {
		for m := lanes; m != 0; m &= m - 1 {
			lane := firstLane(m)
			w.startLoads(o, lane, bar, to[lane], from[lane])
		}
	})
	w.block.changes++
}

// startLoads starts a copy to one block, or a copy to each block of a multicast.
func (w *warp) startLoads(o *op, lane int, bar *mbarrier, to, from uint64) {
	b := o.sync.bulk
	if b.mask.file == noFile {
		if owner, local := w.ownerOf(o, accessInfo{bytes: 16}, to, lane, mem.Write); owner != nil {
			w.startLoad(o, lane, bar, owner, local, from)
		}
		return
	}
	c := w.block.clusterOrOwn()
	for left := w.R32[b.mask.index][lane] & 0xFFFF; left != 0; left &= left - 1 {
		rank := firstLane(left)
		if rank >= len(c.blocks) {
			w.report(finding.OutOfBounds, o, 1<<lane, func() string {
				return fmt.Sprintf("copies to block %d of its cluster, which has %d blocks", rank, len(c.blocks))
			})
			continue
		}
		owner := c.blocks[rank]
		there := owner.mbarriers[uint32(bar.offset)+uint32(owner.shared.First)]
		if there == nil {
			w.report(finding.BadBarrier, o, 1<<lane, func() string {
				return fmt.Sprintf("there is no initialised mbarrier at offset %d of the shared memory of block %v", bar.offset, owner.at)
			})
			continue
		}
		if owner != w.block {
			w.reportCopy(o, owner, lane)
			w.touchBarrier(o, there, 1<<lane)
			owner.changes++
		}
		w.startLoad(o, lane, there, owner, to&(1<<rankShift-1), from)
	}
}

// newLoad returns a load without pieces.
func (b *block) newLoad() *bulkLoad {
	n := len(b.spareLoads)
	if n == 0 {
		return &bulkLoad{}
	}
	l := b.spareLoads[n-1]
	b.spareLoads = b.spareLoads[:n-1]
	*l = bulkLoad{pieces: l.pieces[:0], data: l.data[:0]}
	return l
}

// startLoad starts a copy into the shared memory of a block.
func (w *warp) startLoad(o *op, lane int, bar *mbarrier, owner *block, to, from uint64) {
	b, l := o.sync.bulk, w.block.newLoad()
	l.op, l.owner, l.stamp, l.update, l.size = o, owner, bar.landingStamp(o.number), b.update, b.typed.Size()
	l.pieces, _, l.bytes = w.bulkPieces(o, lane, to, from, l.pieces)
	l.stamp.Flags |= order.Pending
	w.counters.AsyncBytes += uint64(l.bytes)
	w.counters.BulkLoads++
	reads := asyncAccess{op: o, lane: lane, stamp: w.observer(o, lane, order.Async).Access}
	writes := asyncAccess{op: o, lane: lane, stamp: l.stamp, writes: true}
	if b.update != nil {
		writes.stamp.Flags |= order.Strong
	}
	if l.whole = w.checkTarget(&writes, l); !l.whole {
		l.divideRows(0, len(l.pieces))
	}
	l.data = slices.Grow(l.data, l.bytes)
	sector := ^uint64(0)
	for i := 0; i < len(l.pieces); i++ {
		sector = w.readPiece(l, i, &reads, sector)
		if l.whole {
			continue
		}
		p := &l.pieces[i]
		data := w.accessAsyncShared(&writes, owner, p.Shared, p.Size)
		if data == nil {
			p.Size = -p.Size // the piece has no target
		} else if w.block.launch.options.Checks && b.update == nil {
			mem.Fill(data, mem.Poison)
		}
	}
	bar.loads = append(bar.loads, l)
	if b.fromShared && owner != w.block && w.block.launch.options.Checks {
		w.block.outgoing = append(w.block.outgoing, outgoingCopy{l, lane + w.index*32})
	}
}

// readPiece reads a piece of a load. A row whose read is not in order is divided into units first. sector
// is the last sector of global memory that was read.
func (w *warp) readPiece(l *bulkLoad, i int, reads *asyncAccess, sector uint64) uint64 {
	p := &l.pieces[i]
	if !p.Outside && !l.op.sync.bulk.fromShared && p.Global-reads.at >= uint64(len(reads.known)) {
		if w.checkRun(reads, l.pieces[i:]); len(reads.known) == 0 && p.Size > mem.UnitBytes {
			l.divideRows(i, i+1)
			p = &l.pieces[i]
		}
	}
	at := len(l.data)
	l.data = l.data[:at+p.Size]
	into := l.data[at:]
	switch {
	case p.Outside:
		copy(into, p.From)
		p.From = nil
		return sector
	case l.op.sync.bulk.fromShared:
		p.From = w.accessAsyncShared(reads, w.block, p.Global, p.Size)
	default:
		sector = count.AddBulk(&w.counters.BulkLoadBytes, p.Global, p.Size, sector)
		p.From, p.Source = w.accessAsyncGlobal(reads, p.Global, p.Size)
	}
	if copy(into, p.From) < len(into) {
		clear(into)
	}
	return sector
}

// divideRows divides the rows in a range of the pieces into their units.
func (l *bulkLoad) divideRows(first, end int) {
	if l.op.sync.bulk.rank == 0 || first == end || l.pieces[first].Size <= mem.UnitBytes {
		return
	}
	var units []mem.Piece
	for i := first; i < end; i++ {
		units = l.pieces[i].AppendUnits(units)
	}
	l.pieces = slices.Replace(l.pieces, first, end, units...)
}

// outgoingCopy is a copy from a block's shared memory to another block of its cluster, and the
// thread that started it.
type outgoingCopy struct {
	load   *bulkLoad
	thread int
}

// checkOutgoing reports copies that may still read the shared memory of a block when it ends. Its
// own threads cannot wait for such a copy. Threads of the target block can, and can signal this
// block.
func (b *block) checkOutgoing(end *order.Observer) {
	for _, s := range b.outgoing {
		if s.load.landed.Flags&order.Present != 0 && end.After(&s.load.landed, s.load.landed.Lanes()) {
			continue
		}
		b.report(finding.MissingWait, b.launch.program.ops[s.load.op.number], position{}, func() string {
			return fmt.Sprintf("thread %d of block %v: copies from its shared memory to block %v, and its block may end before the copy has read it: "+
				"nothing orders the end of the copy before the end of the block", s.thread, b.at, s.load.owner.at)
		})
	}
}

// finishLoads lands the copies that signal an mbarrier, if only they are missing in the phase.
func (w *warp) finishLoads(o *op, bar *mbarrier) {
	for phase := bar.phase; len(bar.loads) > 0 && bar.pending == 0 && bar.phase == phase; {
		l := bar.loads[0]
		bar.loads = slices.Delete(bar.loads, 0, 1)
		w.landLoad(l, bar)
		bar.tx -= int32(l.bytes)
		if bar.tx < 0 {
			w.reportPair(finding.BadBarrier, o, positionOf(w, l.op), w.lanes, func() string {
				return fmt.Sprintf("%d more bytes have landed at the mbarrier than were expected in this phase", -bar.tx)
			})
			bar.tx = 0
		}
		if !l.op.sync.bulk.fromShared {
			w.block.spareLoads = append(w.block.spareLoads, l)
		}
		w.endPhase(bar)
		bar.store(&bar.owner.shared)
		bar.owner.changes++
	}
}

// landLoad writes a copy to its target.
func (w *warp) landLoad(l *bulkLoad, bar *mbarrier) {
	s := &l.owner.shared
	bar.landed = true
	l.landed = bar.landingStamp(l.op.number)
	at, changed := 0, false
	if l.whole && w.block.launch.options.Checks {
		s.Shadow.SettleAsync(int(l.first-s.First), l.bytes, l.stamp, l.landed.Epoch)
	}
	for i := range l.pieces {
		p := &l.pieces[i]
		if p.Size < 0 {
			at -= p.Size
			continue
		}
		offset := int(p.Shared - s.First)
		data := l.data[at : at+p.Size]
		at += p.Size
		if p.Swizzle != 0 {
			for unit := 0; unit < p.Size; unit += mem.UnitBytes {
				copy(s.Data[p.Unit(unit)-s.First:][:mem.UnitBytes], data[unit:unit+mem.UnitBytes])
			}
		} else {
			merge(s.Data[offset:offset+p.Size], data, l.update, l.size)
		}
		if w.block.launch.options.Checks {
			if !l.whole {
				s.Shadow.SettleAsync(offset, p.Size, l.stamp, l.landed.Epoch)
			}
			if p.Source != nil {
				w.block.lockPages(p.Source, int(p.Global-p.Source.Base), p.Size)
			}
			changed = changed || p.From != nil && !bytes.Equal(p.From, data)
		}
	}
	if changed {
		w.report(finding.MissingWait, l.op, w.lanes, func() string { return "copies from memory that was changed before a thread waited for the copy" })
	}
}

// merge writes data, or combines each element by a reduction.
func merge(to, data []byte, update func(old, b, c uint64) uint64, size int) {
	if update == nil {
		copy(to, data)
		return
	}
	for i := range len(data) / size {
		old, _ := readElement(to, size, i)
		b, _ := readElement(data, size, i)
		writeElement(to, size, i, update(old, b, 0))
	}
}
