package sim

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/mem"
	"attune/internal/sim/order"
)

// bulkStore is a copy out of shared memory that no thread has waited for. It reads, and writes, at
// the last moment that a wait allows.
type bulkStore struct {
	op     *op
	lane   int
	group  int
	pieces []mem.Piece
	data   []byte // what it has read
	done   bool   // it has read
	stamp  order.Access
	update func(old, b, c uint64) uint64
	size   int // of an element
}

// bulkQueue is the copies out of shared memory that threads of a warp have started.
type bulkQueue struct {
	open   []*bulkStore
	groups [32]int // committed by each lane
}

// lowerBulkStore lowers [to], [from], size, and with a tensor [map, {coordinates}], [from].
func (c *code) lowerBulkStore(o *op, operands []ptx.Operand) error {
	b := o.sync.bulk
	want := 3
	if b.rank > 0 {
		want = 2
	}
	if len(operands) != want {
		return fmt.Errorf("it has %d operands, want %d", len(operands), want)
	}
	b.to = &memOp{space: ptx.Global}
	b.from = &memOp{space: ptx.Shared}
	o.run = runBulkStore
	if err := c.lowerAddress(b.from, operands[1]); err != nil {
		return err
	}
	return c.lowerBulkSource(b, b.to, operands[0], operands[want-1])
}

// runBulkStore starts copies out of shared memory.
func runBulkStore(w *warp, o *op, mask uint32) {
	b := o.sync.bulk
	to, from := w.addressesOf(b.to), w.addressesOf(b.from)
	for m := mask; m != 0; m &= m - 1 {
		w.startStore(o, firstLane(m), to[firstLane(m)], from[firstLane(m)])
	}
	w.block.changes++
}

func (w *warp) startStore(o *op, lane int, to, from uint64) {
	b := o.sync.bulk
	pieces, tensor, total := w.bulkPieces(o, lane, from, to, nil)
	me := w.observer(o, lane, order.Async|order.Pending)
	s := &bulkStore{op: o, lane: lane, group: w.bulk.groups[lane], pieces: pieces, stamp: me.Access, update: b.update, size: b.typed.Size()}
	if tensor != nil && b.reduce != "" {
		s.update, s.size = tensorReduction(tensor, b.reduce), tensor.ElementBytes()
		if s.update == nil {
			w.report(finding.Undefined, o, 1<<lane, func() string { return fmt.Sprintf("there is no reduction %s of .%s", b.reduce, tensor.Type) })
			return
		}
	}
	w.counters.AsyncBytes += uint64(total)
	w.counters.BulkStores++
	sector := ^uint64(0)
	reads := asyncAccess{op: o, lane: lane, stamp: me.Access}
	writes := asyncAccess{op: o, lane: lane, stamp: me.Access, writes: true}
	same := &repeatedStore{block: w.block} // of the piece at hand
	if b.reduce != "" {
		writes.stamp.Flags |= order.Strong
	} else {
		writes.same = same
	}
	for i := range pieces {
		p := &pieces[i]
		if p.Outside {
			continue
		}
		source := w.accessAsyncShared(&reads, w.block, p.Shared, p.Size)
		if source == nil {
			p.Outside = true
			continue
		}
		same.at, same.source = p.Global, source
		sector = count.AddBulk(&w.counters.BulkStoreBytes, p.Global, p.Size, sector)
		data, _ := w.accessAsyncGlobal(&writes, p.Global, p.Size)
		if data == nil {
			p.Outside = true
		} else if w.block.launch.options.Checks && b.reduce == "" {
			mem.Fill(data, mem.Poison)
		}
	}
	w.bulk.open = append(w.bulk.open, s)
}

// repeatedStore decides whether a piece of a copy to global memory repeats an earlier write, as when
// two warpgroups have computed the same tile and both store it.
type repeatedStore struct {
	block  *block
	at     uint64 // in global memory
	source []byte
}

// WriteSame reports whether the bytes are those that the earlier operation has written or, while its
// copy is pending, will write.
func (r *repeatedStore) WriteSame(earlier, now int32) bool {
	if !r.block.launch.program.WriteSame(earlier, now) {
		return false
	}
	buffer := r.block.launch.memory.Find(r.at)
	offset := int(r.at - buffer.Base)
	if bytes.Equal(buffer.Data[offset:offset+len(r.source)], r.source) {
		return true
	}
	for _, w := range r.block.warps {
		for _, s := range w.bulk.open {
			if s.op.number == earlier && bytes.Equal(w.pendingBytes(s, r.at), r.source) {
				return true
			}
		}
	}
	return false
}

// pendingBytes returns what a copy will write to an address, from the start of a piece; nil if no
// piece begins there.
func (w *warp) pendingBytes(s *bulkStore, address uint64) []byte {
	at := 0
	for _, p := range s.pieces {
		switch {
		case p.Outside:
			continue
		case p.Global != address:
			at += p.Size
			continue
		case s.done:
			return s.data[at : at+p.Size]
		}
		offset := int(p.Shared - w.block.shared.First)
		return w.block.shared.Data[offset : offset+p.Size]
	}
	return nil
}

func runBulkCommit(w *warp, _ *op, mask uint32) {
	for m := mask; m != 0; m &= m - 1 {
		w.bulk.groups[firstLane(m)]++
	}
}

// lowerBulkWait lowers cp.async.bulk.wait_group{.read}.
func (c *code) lowerBulkWait(in *ptx.Instruction, o *op) error {
	b := o.sync.bulk
	b.read = slices.Contains(in.Modifiers, "read")
	if len(in.Operands) != 1 || in.Operands[0].Kind != ptx.ImmOperand {
		return fmt.Errorf("it needs a number of groups")
	}
	b.keep = int(in.Operands[0].Value)
	o.run = runBulkWait
	return nil
}

func runBulkWait(w *warp, o *op, mask uint32) {
	b := o.sync.bulk
	w.bulk.open = slices.DeleteFunc(w.bulk.open, func(s *bulkStore) bool {
		if mask>>s.lane&1 == 0 || s.group >= w.bulk.groups[s.lane]-b.keep {
			return false
		}
		w.readStore(s)
		if !b.read {
			w.landStore(s)
		}
		return !b.read
	})
}

// readStore has a copy read shared memory, if it has not done so yet.
func (w *warp) readStore(s *bulkStore) {
	if s.done {
		return
	}
	s.done = true
	shared := &w.block.shared
	for _, p := range s.pieces {
		if p.Outside {
			continue
		}
		offset := int(p.Shared - shared.First)
		s.data = append(s.data, shared.Data[offset:offset+p.Size]...)
		if w.block.launch.options.Checks {
			shared.Shadow.SettleAsync(offset, p.Size, s.stamp, w.clocks.Epoch())
		}
	}
}

// landStore writes what a copy has read to global memory.
func (w *warp) landStore(s *bulkStore) {
	at := 0
	for _, p := range s.pieces {
		if p.Outside {
			continue
		}
		data := s.data[at : at+p.Size]
		at += p.Size
		buffer := w.block.launch.memory.Find(p.Global)
		if buffer == nil || !buffer.Holds(p.Global, p.Size) {
			continue // the buffer has been freed
		}
		offset := int(p.Global - buffer.Base)
		w.block.lockPages(buffer, offset, p.Size)
		if w.block.launch.options.Checks {
			buffer.Shadow.SettleAsync(offset, p.Size, s.stamp, w.clocks.Epoch())
		}
		merge(buffer.Data[offset:offset+p.Size], data, s.update, s.size)
	}
	w.block.changes++
}

// finishStores lands the copies that no thread has waited for when the block ends, and reports
// copies that may read shared memory after the end. Hardware keeps the shared memory until committed
// copies have read it: on an H200 none of 6.3e9 words of such copies was wrong (2026-11-17).
func (b *block) finishStores() {
	for _, w := range b.warps {
		for _, s := range w.bulk.open {
			if !s.done && !b.aborted {
				severity := finding.Error
				if s.group < w.bulk.groups[s.lane] {
					severity = finding.Strict
				}
				w.reportAs(severity, finding.MissingWait, s.op, position{}, 1<<s.lane, func() string {
					return "copies from shared memory, and the block ends without waiting until the copy has read it"
				})
			}
			w.readStore(s)
			w.landStore(s)
		}
		w.bulk.open = nil
	}
	if b.aborted {
		return
	}
	for _, address := range slices.Sorted(maps.Keys(b.mbarriers)) {
		bar := b.mbarriers[address]
		for _, l := range bar.loads {
			w := b.warps[0]
			w.reportPair(finding.MissingWait, l.op, bar.initialised, 1, func() string { return "copies to shared memory, and the block ends without waiting for the copy" })
		}
	}
}

// tensorReduction returns the function of a reduction of a tensor's elements; nil where the type
// has none.
func tensorReduction(t *mem.TensorMap, name string) func(old, b, c uint64) uint64 {
	typed, _ := ptx.ParseType(t.Type)
	switch name {
	case "and", "or", "xor":
		typed = map[int]ptx.Type{4: ptx.B32, 8: ptx.B64}[t.ElementBytes()]
	}
	a := &atomicOp{}
	if typed == ptx.NoType || t.ElementBytes() < 2 || a.choose(name, typed) != nil {
		return nil
	}
	return a.update
}
