package sim

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"attune/internal/ptx"
)

// copyOp is cp.async.
type copyOp struct {
	to, from *memOp
	size     int
	have     slot // bytes that are read, the rest is zeros; noFile for all
	ignore   slot // predicate that makes it zeros
	negated  bool // the predicate's opposite does
	keep     int  // of wait_group: groups that may be left
	bypass   bool // .cg, past the first cache
}

// copyQueue is the asynchronous copies that threads of a warp have begun.
type copyQueue struct {
	open     []pendingCopy
	groups   [32]int // committed by each lane
	arrivals []copyArrival
}

// copyArrival is an arrival at a barrier that comes when the copies of a lane have ended. They end when somebody looks at the barrier.
type copyArrival struct {
	lane    int
	barrier *mbarrier
	epoch   uint32 // of the copies, as those who wait for the barrier know them
	op      *op
}

// pendingCopy is a copy of one lane that has not been waited for. It is delivered at the last moment a wait allows; until then its target holds
// poison.
type pendingCopy struct {
	lane   int
	group  int // of the lane's groups
	offset int // in shared memory
	size   int
	data   [16]byte
	from   []byte // where it was read, if all of it is there
	source *allocation
	at     int       // in the source
	told   *mbarrier // the barrier that its end is told
	op     *op
}

// lowerCpAsync turns the cp.async family, without the bulk copies, into operations.
func (c *code) lowerCpAsync(in *ptx.Instruction, o *op) error {
	o.sync, o.class = &syncOp{}, classMemory
	words := strings.Join(in.Modifiers, ".")
	switch {
	case words == "async.commit_group":
		o.run = runCommit
		return nil
	case words == "async.wait_all":
		o.sync.copy.keep = -1
		o.run = runWaitCopies
		return nil
	case words == "async.wait_group":
		if len(in.Operands) != 1 || in.Operands[0].Kind != ptx.ImmOperand {
			return fmt.Errorf("it wants a number of groups")
		}
		o.sync.copy.keep = int(in.Operands[0].Value)
		o.run = runWaitCopies
		return nil
	case strings.HasPrefix(words, "async.mbarrier.arrive"):
		return c.lowerCopyArrive(in, o)
	case strings.Contains(words, "bulk"):
		return c.lowerBulk(in, o)
	}
	return c.lowerCopy(in, o)
}

func (c *code) lowerCopy(in *ptx.Instruction, o *op) error {
	w := readWords(slices.DeleteFunc(slices.Clone(in.Modifiers), func(m string) bool {
		return m == "async" || m == "global" || strings.HasPrefix(m, "shared")
	}))
	n := len(in.Operands)
	if w.hinted {
		n--
	}
	if len(w.rest) > 0 || n < 3 || n > 4 || in.Operands[2].Kind != ptx.ImmOperand {
		return fmt.Errorf("unsupported form")
	}
	cp := &o.sync.copy
	cp.bypass = slices.Contains(in.Modifiers, "cg")
	cp.size = int(in.Operands[2].Value)
	if cp.size != 4 && cp.size != 8 && cp.size != 16 || cp.size != 16 && cp.bypass {
		return fmt.Errorf("it cannot copy %d bytes", cp.size)
	}
	cp.to = &memOp{what: "cp.async", space: ptx.Shared, bytes: cp.size}
	cp.from = &memOp{what: "cp.async", space: ptx.Global, bytes: cp.size}
	if err := c.lowerAddress(cp.to, in.Operands[0]); err != nil {
		return err
	}
	if err := c.lowerAddress(cp.from, in.Operands[1]); err != nil {
		return err
	}
	o.run = runCopy
	if n == 3 {
		return nil
	}
	if last := in.Operands[3]; last.Kind == ptx.RegOperand && c.regs[last.Register].file == filePred {
		cp.ignore, cp.negated = c.regs[last.Register], last.Negated
		return nil
	}
	s, err := c.source(in.Operands[3], ptx.U32)
	cp.have = s
	return err
}

// runCopy begins copies. What they read is read now; where they write holds poison until somebody waits.
func runCopy(w *warp, o *op, mask uint32) {
	cp := &o.sync.copy
	w.addresses(cp.to, mask)
	to := w.addr
	w.addresses(cp.from, mask)
	reads := uint32(0)
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		have := cp.size
		if cp.have.file == file32 {
			have = int(w.r32[cp.have.index][lane])
		}
		if cp.ignore.file == filePred && (w.preds[cp.ignore.index]>>lane&1 != 0) != cp.negated {
			have = 0
		}
		if have > cp.size {
			w.report(Undefined, o, 1<<lane, func() string { return fmt.Sprintf("copies %d bytes, and reads %d for it", cp.size, have) })
			have = cp.size
		}
		if have > 0 {
			reads |= 1 << lane
		}
		w.beginCopy(o, lane, to[lane], w.addr[lane], have)
	}
	w.countCopy(o, &to, mask, reads)
	w.block.changes++
}

func (w *warp) beginCopy(o *op, lane int, to, from uint64, have int) {
	cp := &o.sync.copy
	p := pendingCopy{lane: lane, group: w.copies.groups[lane], size: cp.size, op: o}
	if from%uint64(cp.size) != 0 {
		w.aligned(o, accessOf{what: "cp.async", space: ptx.Global, bytes: cp.size}, from, lane, reading)
	}
	if have > 0 {
		if data := w.reachBytes(o, from, have, lane); data != nil {
			copy(p.data[:], data)
			p.from, p.source = data, w.lastGlobal
			p.at = int(from - p.source.base)
		}
	}
	s := &w.block.shared
	p.offset = int(to - s.first)
	a := accessOf{what: "cp.async", space: ptx.Shared, bytes: cp.size}
	if to < s.first || to-s.first > uint64(len(s.data)) || p.offset+cp.size > len(s.data) {
		w.report(OutOfBounds, o, 1<<lane, func() string { return w.outsideShared(a, to, writing) })
		return
	}
	w.aligned(o, a, to, lane, writing)
	w.count.AsyncBytes += uint64(cp.size)
	if w.block.launch.options.Checks {
		if marks := s.marks[p.offset : p.offset+cp.size]; !ordinary(marks) && !w.touchesMarked(o, a, to, marks, lane, writing) {
			return
		}
		me := w.observer(o, lane, 0)
		me.flags |= pending
		if c, bad := s.shadow.writeBytes(p.offset, cp.size, &me, nil); bad {
			w.reportConflict(o, a, c, to, lane, writing)
		}
		w.checkWritten(o, a, s.marks[p.offset:p.offset+cp.size], lane, writing, true, nil)
		fill(s.data[p.offset:p.offset+cp.size], unsetByte)
	}
	w.copies.open = append(w.copies.open, p)
}

// reachBytes reads a number of bytes of global memory that need not be a power of two.
func (w *warp) reachBytes(o *op, from uint64, n, lane int) []byte {
	for _, size := range []int{16, 8, 4, 2, 1} {
		if n == size {
			return w.reachGlobal(o, accessOf{what: "cp.async", space: ptx.Global, bytes: n}, from, lane, reading)
		}
	}
	var all []byte
	for i := range n {
		b := w.reachGlobal(o, accessOf{what: "cp.async", space: ptx.Global, bytes: 1}, from+uint64(i), lane, reading)
		if b == nil {
			return nil
		}
		all = append(all, b[0])
	}
	return all
}

func runCommit(w *warp, _ *op, mask uint32) {
	for m := mask; m != 0; m &= m - 1 {
		w.copies.groups[firstLane(m)]++
	}
}

// runWaitCopies is cp.async.wait_group and wait_all.
func runWaitCopies(w *warp, o *op, mask uint32) {
	keep := o.sync.copy.keep
	w.deliver(func(p *pendingCopy) bool {
		return mask>>p.lane&1 != 0 && (keep < 0 || p.group < w.copies.groups[p.lane]-keep)
	})
}

// deliver brings copies to their targets; from now on they count as writes of the thread that waited.
func (w *warp) deliver(which func(*pendingCopy) bool) {
	left := w.copies.open[:0]
	for i := range w.copies.open {
		p := &w.copies.open[i]
		if !which(p) {
			left = append(left, *p)
			continue
		}
		w.land(p, w.knows.epoch)
	}
	w.copies.open = left
}

// land ends a copy, as a write of its thread in some epoch.
func (w *warp) land(p *pendingCopy, epoch uint32) {
	s := &w.block.shared
	copy(s.data[p.offset:], p.data[:p.size])
	w.block.changes++
	if !w.block.launch.options.Checks {
		return
	}
	me := w.observer(p.op, p.lane, 0)
	me.epoch = epoch
	s.shadow.settle(p.offset, p.size, &me)
	if p.source != nil {
		w.block.hold(p.source, p.at, len(p.from))
	}
	if !bytes.Equal(p.from, p.data[:len(p.from)]) {
		w.report(MissingWait, p.op, 1<<p.lane, func() string {
			return "copies from global memory that was changed before the copy was waited for"
		})
	}
}

// checkCopiesLeft ends the copies that nobody has waited for.
func (b *block) checkCopiesLeft() {
	for _, w := range b.warps {
		w.copies.open, w.copies.arrivals = w.copies.open[:0], w.copies.arrivals[:0]
	}
}

// lowerCopyArrive is cp.async.mbarrier.arrive{.noinc}.shared.b64 [addr].
func (c *code) lowerCopyArrive(in *ptx.Instruction, o *op) error {
	if len(in.Operands) != 1 {
		return fmt.Errorf("it wants the address of a barrier")
	}
	o.sync.addr = &memOp{what: "cp.async.mbarrier.arrive", space: ptx.Shared, bytes: 8}
	o.sync.mbar.noInc = slices.Contains(in.Modifiers, "noinc")
	o.run = runCopyArrive
	return c.lowerAddress(o.sync.addr, in.Operands[0])
}

// runCopyArrive has the barrier told when the copies begun so far have ended.
func runCopyArrive(w *warp, o *op, mask uint32) {
	w.addresses(o.sync.addr, mask)
	w.eachBarrier(o, mask, func(b *mbarrier, lanes uint32) {
		epoch := w.knows.epoch
		w.publishTo(b, lanes)
		for i := range w.copies.open {
			if p := &w.copies.open[i]; lanes>>p.lane&1 != 0 && p.told == nil {
				p.told = b
			}
		}
		for m := lanes; m != 0; m &= m - 1 {
			w.copies.arrivals = append(w.copies.arrivals, copyArrival{firstLane(m), b, epoch, o})
			if !o.sync.mbar.noInc {
				b.pending++
			}
			b.copies++
		}
		b.store(&w.block.shared)
	})
}

// endCopies ends the copies that a barrier is to be told of, and tells it.
func (b *block) endCopies(bar *mbarrier) {
	for _, w := range b.warps {
		left := w.copies.arrivals[:0]
		for _, a := range w.copies.arrivals {
			if a.barrier != bar {
				left = append(left, a)
				continue
			}
			w.copies.open = slices.DeleteFunc(w.copies.open, func(p pendingCopy) bool {
				ends := p.lane == a.lane && p.told == bar
				if ends {
					w.land(&p, a.epoch)
				}
				return ends
			})
			w.arriveOn(a.op, bar, 1, a.lane)
		}
		w.copies.arrivals = left
	}
	bar.copies = 0
}
