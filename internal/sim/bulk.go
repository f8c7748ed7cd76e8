package sim

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"attune/internal/ptx"
)

// bulkOp is cp.async.bulk, with or without a tensor map, and cp.reduce.async.bulk.
type bulkOp struct {
	what        string
	to, from    *memOp // one of them is the map's address where there is a tensor
	bar         *memOp // that is told of a copy into shared memory
	size        slot
	mask        slot // of the blocks that it goes to; noFile for one
	load        bool // into shared memory
	several     bool // to several blocks
	fromShared  bool // of a copy into shared memory
	rank        int  // of the tensor; 0 for none
	coordinates []slot
	reduce      string // of a reduction: what it does with each element
	typed       ptx.Type
	update      func(old, b, c uint64) uint64

	read bool // of a wait: until the copies have read is enough
	keep int  // of a wait: groups that may be left
}

// bulkPiece is bytes of a copy that lie together in both memories. Outside of a tensor, there is no global memory.
type bulkPiece struct {
	shared  uint64
	global  uint64
	size    int
	outside bool
	from    []byte      // where it was read
	source  *allocation // whose bytes these are; nil for shared memory
}

// bulkLoad is a copy into shared memory that its barrier has not been told of. Its target holds poison until then.
type bulkLoad struct {
	op     *op
	home   *block // whose memory it writes to
	pieces []bulkPiece
	data   []byte
	bytes  int // that the barrier is told
	stamp  access
	landed access                        // as which it has landed, once it has
	update func(old, b, c uint64) uint64 // of a reduction
	size   int                           // of an element
}

// bulkStore is a copy out of shared memory that nobody has waited for. It reads, and writes, at the last moment that a wait allows.
type bulkStore struct {
	op     *op
	lane   int
	group  int
	pieces []bulkPiece
	data   []byte // once it has been read
	done   bool   // it has been read
	stamp  access
	update func(old, b, c uint64) uint64
	size   int
}

// bulkQueue is the copies out of shared memory that threads of a warp have begun.
type bulkQueue struct {
	open   []*bulkStore
	groups [32]int
}

// lowerBulk turns the bulk copies into operations.
func (c *code) lowerBulk(in *ptx.Instruction, o *op) error {
	b := &bulkOp{what: "cp." + strings.Join(in.Modifiers[:min(3, len(in.Modifiers))], ".")}
	o.sync.bulk, o.class = b, classMemory
	words := slices.Clone(in.Modifiers)
	reduces := words[0] == "reduce"
	if reduces {
		words = words[1:]
	}
	if len(words) < 3 || words[0] != "async" || words[1] != "bulk" {
		return fmt.Errorf("unsupported form")
	}
	words = words[2:]
	switch {
	case words[0] == "commit_group":
		o.run = runBulkCommit
		return nil
	case words[0] == "wait_group":
		b.read = slices.Contains(words, "read")
		if len(in.Operands) != 1 || in.Operands[0].Kind != ptx.ImmOperand {
			return fmt.Errorf("it wants a number of groups")
		}
		b.keep = int(in.Operands[0].Value)
		o.run = runBulkWait
		return nil
	case words[0] == "prefetch":
		o.run = func(*warp, *op, uint32) {}
		return nil
	}
	spaces, hinted, err := b.readWords(words)
	if err != nil {
		return err
	}
	if reduces == (b.reduce == "") {
		return fmt.Errorf("unsupported form")
	}
	operands := in.Operands
	if hinted && len(operands) > 0 {
		operands = operands[:len(operands)-1]
	}
	if b.reduce != "" && b.rank == 0 {
		if size := b.typed.Size(); size != 2 && size != 4 && size != 8 {
			return fmt.Errorf("unsupported form")
		}
		a := &atomicOp{}
		if err := a.choose(b.reduce, b.typed); err != nil {
			return err
		}
		b.update = a.update
	}
	switch spaces {
	case "shared::cluster.global", "shared::cta.global":
		b.load = true
	case "global.shared::cta":
		c.talks = c.talks || b.reduce != ""
		return c.lowerBulkStore(o, operands)
	case "shared::cluster.shared::cta":
		b.load, b.fromShared = true, true
	default:
		return fmt.Errorf("unsupported form")
	}
	return c.lowerBulkLoad(o, operands)
}

// readWords reads the modifiers behind cp.async.bulk.
func (b *bulkOp) readWords(words []string) (spaces string, hinted bool, err error) {
	var where []string
	for _, m := range words {
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
			b.several = true
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

// lowerBulkLoad is [to], [from], size, [barrier] and, with a tensor, [to], [map, {coordinates}], [barrier].
func (c *code) lowerBulkLoad(o *op, operands []ptx.Operand) error {
	b := o.sync.bulk
	want := 4
	if b.rank > 0 {
		want = 3
	}
	if b.several && len(operands) == want+1 {
		s, err := c.source(operands[want], ptx.U16)
		if err != nil {
			return err
		}
		b.mask = s
		operands = operands[:want]
	}
	if len(operands) != want || b.several != (b.mask.file != noFile) {
		return fmt.Errorf("it has %d operands, want %d", len(operands), want)
	}
	source := ptx.Global
	if b.fromShared {
		source = ptx.Shared
	}
	b.to = &memOp{what: b.what, space: ptx.Shared}
	b.from = &memOp{what: b.what, space: source}
	b.bar = &memOp{what: b.what, space: ptx.Shared, bytes: 8}
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

// lowerBulkSource is the side of a copy that may be a tensor, and the size of one that is not.
func (c *code) lowerBulkSource(b *bulkOp, m *memOp, at, size ptx.Operand) (err error) {
	if b.rank == 0 {
		if b.size, err = c.source(size, ptx.U32); err != nil {
			return err
		}
		return c.lowerAddress(m, at)
	}
	m.space = ptx.Generic
	if at.Kind != ptx.AddrOperand || len(at.Parts) != 2 {
		return fmt.Errorf("it wants a tensor map and %d coordinates", b.rank)
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

// lowerBulkStore is [to], [from], size and, with a tensor, [map, {coordinates}], [from].
func (c *code) lowerBulkStore(o *op, operands []ptx.Operand) error {
	b := o.sync.bulk
	want := 3
	if b.rank > 0 {
		want = 2
	}
	if len(operands) != want {
		return fmt.Errorf("it has %d operands, want %d", len(operands), want)
	}
	b.to = &memOp{what: b.what, space: ptx.Global}
	b.from = &memOp{what: b.what, space: ptx.Shared}
	o.run = runBulkStore
	if err := c.lowerAddress(b.from, operands[1]); err != nil {
		return err
	}
	return c.lowerBulkSource(b, b.to, operands[0], operands[want-1])
}

// addressesOf is the addresses of an operand, lane by lane.
func (w *warp) addressesOf(m *memOp, mask uint32) [32]uint64 {
	w.addresses(m, mask)
	return w.addr
}

// bulkPieces is what a lane's copy moves: one piece, or those of a tensor's box. It gives the bytes that a barrier is told.
func (w *warp) bulkPieces(o *op, lane int, shared, global uint64) (pieces []bulkPiece, tensor *TensorMap, total int) {
	b := o.sync.bulk
	if b.rank > 0 {
		tensor = w.tensorMap(o, global, lane)
		if tensor == nil {
			return nil, nil, 0
		}
		var at [5]int64
		for i, s := range b.coordinates {
			at[i] = int64(int32(w.r32[s.index][lane]))
		}
		w.checkBox(o, tensor, at, shared, lane)
		return tensor.pieces(at, shared, !b.load), tensor, tensor.BoxBytes()
	}
	n := int(w.r32[b.size.index][lane])
	for _, a := range []struct {
		what  string
		value uint64
	}{{"shared address", shared}, {"address on the other side", global}, {"size", uint64(n)}} {
		if a.value%16 != 0 {
			w.report(Misaligned, o, 1<<lane, func() string {
				return fmt.Sprintf("a bulk copy whose %s is %#x, which is not a multiple of 16", a.what, a.value)
			})
		}
	}
	if most := mostShared(w.block.launch.program.arch); n > most {
		w.report(OutOfBounds, o, 1<<lane, func() string {
			return fmt.Sprintf("a bulk copy of %d bytes; a block has %d of shared memory at most", n, most)
		})
		return nil, nil, 0
	}
	if n == 0 {
		return nil, nil, 0
	}
	return []bulkPiece{{shared: shared, global: global, size: n}}, nil, n
}

// runBulkLoad begins copies into shared memory. What they read is read now; where they write holds poison until somebody waits at the barrier.
func runBulkLoad(w *warp, o *op, mask uint32) {
	b := o.sync.bulk
	to, from := w.addressesOf(b.to, mask), w.addressesOf(b.from, mask)
	w.addresses(b.bar, mask)
	w.eachBarrier(o, mask, func(bar *mbarrier, lanes uint32) {
		for m := lanes; m != 0; m &= m - 1 {
			lane := firstLane(m)
			w.beginLoads(o, lane, bar, to[lane], from[lane])
		}
	})
	w.block.changes++
}

// beginLoads begins a copy to one block, or one to each of several.
func (w *warp) beginLoads(o *op, lane int, bar *mbarrier, to, from uint64) {
	b := o.sync.bulk
	if b.mask.file == noFile {
		if home, local := w.homeOf(o, accessOf{what: b.what, bytes: 16}, to, lane, writing); home != nil {
			w.beginLoad(o, lane, bar, home, local, from)
		}
		return
	}
	c := w.block.theCluster()
	for left := w.r32[b.mask.index][lane] & 0xFFFF; left != 0; left &= left - 1 {
		rank := firstLane(left)
		if rank >= len(c.blocks) {
			w.report(OutOfBounds, o, 1<<lane, func() string {
				return fmt.Sprintf("copies to block %d of its cluster, which has %d", rank, len(c.blocks))
			})
			continue
		}
		home := c.blocks[rank]
		there := home.mbars[uint32(bar.offset)+uint32(home.shared.first)]
		if there == nil {
			w.report(BadBarrier, o, 1<<lane, func() string {
				return fmt.Sprintf("there is no initialised barrier at offset %d of the shared memory of block %v", bar.offset, home.at)
			})
			continue
		}
		if home != w.block {
			w.reportOver(o, home, lane)
			w.touchBarrier(o, there, 1<<lane)
			home.changes++
		}
		w.beginLoad(o, lane, there, home, to&(1<<rankShift-1), from)
	}
}

// beginLoad begins one.
func (w *warp) beginLoad(o *op, lane int, bar *mbarrier, home *block, to, from uint64) {
	b := o.sync.bulk
	pieces, _, total := w.bulkPieces(o, lane, to, from)
	l := &bulkLoad{op: o, home: home, pieces: pieces, bytes: total, stamp: bar.landing(o.number), update: b.update, size: b.typed.Size()}
	l.stamp.flags |= pending
	w.count.AsyncBytes += uint64(total)
	w.count.BulkLoads++
	sector := ^uint64(0)
	now := w.observer(o, lane, async)
	reads := asyncAccess{op: o, lane: lane, what: b.what, stamp: now.access}
	writes := asyncAccess{op: o, lane: lane, what: b.what, stamp: l.stamp, writes: true}
	if b.update != nil {
		writes.stamp.flags |= strong
	}
	if total > 0 {
		l.data = make([]byte, 0, total)
	}
	for i := range pieces {
		p := &pieces[i]
		l.data = append(l.data, make([]byte, p.size)...)
		into := l.data[len(l.data)-p.size:]
		switch {
		case p.outside:
			copy(into, p.from)
			p.from = nil
		case b.fromShared:
			p.from, _ = w.reachAsyncShared(&reads, w.block, p.global, p.size)
			copy(into, p.from)
		default:
			sector = countBulk(&w.count.BulkLoadBytes, p, sector)
			p.from, p.source = w.reachAsyncGlobal(&reads, p.global, p.size)
			copy(into, p.from)
		}
		data, _ := w.reachAsyncShared(&writes, home, p.shared, p.size)
		if data == nil {
			p.size = -p.size // it goes nowhere
		} else if w.block.launch.options.Checks && b.update == nil {
			fill(data, unsetByte)
		}
	}
	bar.loads = append(bar.loads, l)
	if b.fromShared && home != w.block && w.block.launch.options.Checks {
		w.block.sent = append(w.block.sent, sentCopy{l, lane + w.index*32})
	}
}

// sentCopy is a copy from a block's shared memory to that of another block of its cluster, and the thread that began it.
type sentCopy struct {
	load   *bulkLoad
	thread int
}

// endSent looks for copies that may still read the shared memory of a block when it ends: its own threads cannot wait for them, but those of the block they
// go to can tell it.
func (b *block) endSent(end *observer) {
	for _, s := range b.sent {
		if s.load.landed.flags&present != 0 && end.after(&s.load.landed, lanesOf(&s.load.landed)) {
			continue
		}
		b.launch.found.add(MissingWait, b.launch.program.ops[s.load.op.number], spot{}, b.index, func() string {
			return fmt.Sprintf("thread %d of block %v: copies from its shared memory to that of block %v, and its block may end before the copy has read it: nobody "+
				"has told it that the copy is over", s.thread, b.at, s.load.home.at)
		})
	}
}

// endLoads lands the copies that a barrier waits for, when nothing else is missing, and tells it.
func (w *warp) endLoads(o *op, bar *mbarrier) {
	for phase := bar.phase; len(bar.loads) > 0 && bar.pending == 0 && bar.phase == phase; {
		l := bar.loads[0]
		bar.loads = bar.loads[1:]
		w.landLoad(l, bar)
		bar.tx -= int32(l.bytes)
		if bar.tx < 0 {
			w.reportPair(BadBarrier, o, spotOf(w, l.op), w.lanes, func() string {
				return fmt.Sprintf("%d bytes more have come to the barrier than were expected in this phase", -bar.tx)
			})
			bar.tx = 0
		}
		w.endPhase(bar)
		bar.store(&bar.home.shared)
		bar.home.changes++
	}
}

// landLoad brings a copy to its target.
func (w *warp) landLoad(l *bulkLoad, bar *mbarrier) {
	s := &l.home.shared
	bar.fed = true
	l.landed = bar.landing(l.op.number)
	at, changed := 0, false
	for _, p := range l.pieces {
		if p.size < 0 {
			at -= p.size
			continue
		}
		offset := int(p.shared - s.first)
		data := l.data[at : at+p.size]
		at += p.size
		merge(s.data[offset:offset+p.size], data, l.update, l.size)
		if w.block.launch.options.Checks {
			s.shadow.settleAsync(offset, p.size, l.stamp, l.landed)
			if p.source != nil {
				w.block.hold(p.source, int(p.global-p.source.base), p.size)
			}
			changed = changed || p.from != nil && !bytes.Equal(p.from, data)
		}
	}
	if changed {
		w.report(MissingWait, l.op, w.lanes, func() string { return "copies from memory that was changed before the copy was waited for" })
	}
}

// merge writes data, or does with each element what a reduction does.
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

// runBulkStore begins copies out of shared memory.
func runBulkStore(w *warp, o *op, mask uint32) {
	b := o.sync.bulk
	to, from := w.addressesOf(b.to, mask), w.addressesOf(b.from, mask)
	for m := mask; m != 0; m &= m - 1 {
		w.beginStore(o, firstLane(m), to[firstLane(m)], from[firstLane(m)])
	}
	w.block.changes++
}

func (w *warp) beginStore(o *op, lane int, to, from uint64) {
	b := o.sync.bulk
	pieces, tensor, total := w.bulkPieces(o, lane, from, to)
	me := w.observer(o, lane, async|pending)
	s := &bulkStore{op: o, lane: lane, group: w.bulk.groups[lane], pieces: pieces, stamp: me.access, update: b.update, size: b.typed.Size()}
	if tensor != nil && b.reduce != "" {
		s.update, s.size = tensor.reduction(b.reduce), tensor.ElementBytes()
		if s.update == nil {
			w.report(Undefined, o, 1<<lane, func() string { return fmt.Sprintf("there is no %s of .%s", b.reduce, tensor.Type) })
			return
		}
	}
	w.count.AsyncBytes += uint64(total)
	w.count.BulkStores++
	sector := ^uint64(0)
	reads := asyncAccess{op: o, lane: lane, what: b.what, stamp: me.access}
	writes := asyncAccess{op: o, lane: lane, what: b.what, stamp: me.access, writes: true}
	if b.reduce != "" {
		writes.stamp.flags |= strong
	}
	for i := range pieces {
		p := &pieces[i]
		if p.outside {
			continue
		}
		if data, _ := w.reachAsyncShared(&reads, w.block, p.shared, p.size); data == nil {
			p.outside = true
			continue
		}
		sector = countBulk(&w.count.BulkStoreBytes, p, sector)
		data, _ := w.reachAsyncGlobal(&writes, p.global, p.size)
		if data == nil {
			p.outside = true
		} else if w.block.launch.options.Checks && b.reduce == "" {
			fill(data, unsetByte)
		}
	}
	w.bulk.open = append(w.bulk.open, s)
}

func runBulkCommit(w *warp, _ *op, mask uint32) {
	for m := mask; m != 0; m &= m - 1 {
		w.bulk.groups[firstLane(m)]++
	}
}

// runBulkWait is cp.async.bulk.wait_group.
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

// readStore has a copy read shared memory, if it has not yet.
func (w *warp) readStore(s *bulkStore) {
	if s.done {
		return
	}
	s.done = true
	now := s.stamp
	now.epoch = w.knows.epoch
	shared := &w.block.shared
	for _, p := range s.pieces {
		if p.outside {
			continue
		}
		offset := int(p.shared - shared.first)
		s.data = append(s.data, shared.data[offset:offset+p.size]...)
		if w.block.launch.options.Checks {
			shared.shadow.settleAsync(offset, p.size, s.stamp, now)
		}
	}
}

// landStore brings what was read to global memory.
func (w *warp) landStore(s *bulkStore) {
	now := s.stamp
	now.epoch = w.knows.epoch
	at := 0
	for _, p := range s.pieces {
		if p.outside {
			continue
		}
		data := s.data[at : at+p.size]
		at += p.size
		al := w.block.launch.memory.find(p.global)
		if al == nil || !al.holds(p.global, p.size) {
			continue // it has been freed
		}
		offset := int(p.global - al.base)
		if w.block.launch.options.Checks {
			w.block.hold(al, offset, p.size)
			al.shadow.do(offset, p.size, func(sh *shadow, offset, size int) { sh.settleAsync(offset, size, s.stamp, now) })
		}
		merge(al.data[offset:offset+p.size], data, s.update, s.size)
	}
	w.block.changes++
}

// endStores ends the copies that nobody has waited for when the block ends: they reach global memory all the same, if their source lives long enough.
func (b *block) endStores() {
	for _, w := range b.warps {
		for _, s := range w.bulk.open {
			if !s.done && !b.aborted {
				w.report(MissingWait, s.op, 1<<s.lane, func() string {
					return "copies from shared memory, and the block ends without a wait for the copy to have read it"
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
	for _, address := range slices.Sorted(maps.Keys(b.mbars)) {
		bar := b.mbars[address]
		for _, l := range bar.loads {
			w := b.warps[0]
			w.reportPair(MissingWait, l.op, bar.made, 1, func() string { return "copies to shared memory, and the block ends without a wait for the copy" })
		}
	}
}
