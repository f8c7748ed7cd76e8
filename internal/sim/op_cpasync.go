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

// copyOp is cp.async.
type copyOp struct {
	to, from *memOp
	size     int
	srcSize  slot // bytes that are read, the rest is zeros; noFile for all
	ignore   slot // predicate that replaces the source by zeros
	negated  bool // the negated predicate does
	keep     int  // of wait_group: groups that may stay pending; -1 for wait_all
	bypass   bool // .cg, which bypasses L1
}

// copyQueue is the asynchronous copies that threads of a warp have started.
type copyQueue struct {
	open     []pendingCopy
	groups   [32]int // committed by each lane
	arrivals []copyArrival
}

// copyArrival is an arrival at an mbarrier that happens when the copies of a lane have ended. They
// end when a thread waits at the mbarrier.
type copyArrival struct {
	lane    int
	barrier *mbarrier
	epoch   uint32 // of the copies, for threads that wait at the mbarrier
	phase   uint32 // of the mbarrier, which the arrival is for
	op      *op
}

// pendingCopy is a copy of one lane that no thread has waited for. It lands at the last moment that
// a wait allows. Until then its target is poisoned.
type pendingCopy struct {
	lane    int
	group   int // of the lane's groups
	offset  int // in shared memory
	size    int
	data    [16]byte
	from    []byte // the bytes that it has read
	source  *mem.Buffer
	at      int       // offset in the source
	barrier *mbarrier // that it signals; nil for none
	op      *op
}

// lowerCpAsync lowers the cp.* family.
func (c *code) lowerCpAsync(in *ptx.Instruction, o *op) error {
	o.sync, o.class = &syncOp{}, count.Memory
	modifiers := strings.Join(in.Modifiers, ".")
	switch {
	case modifiers == "async.commit_group":
		o.run = runCommit
		return nil
	case modifiers == "async.wait_all":
		o.sync.copy.keep = -1
		o.run = runWaitCopies
		return nil
	case modifiers == "async.wait_group":
		if len(in.Operands) != 1 || in.Operands[0].Kind != ptx.ImmOperand {
			return fmt.Errorf("it needs a number of groups")
		}
		o.sync.copy.keep = int(in.Operands[0].Value)
		o.run = runWaitCopies
		return nil
	case strings.HasPrefix(modifiers, "async.mbarrier.arrive"):
		return c.lowerCopyArrive(in, o)
	case strings.Contains(modifiers, "bulk"):
		return c.lowerBulk(in, o)
	}
	return c.lowerCopy(in, o)
}

func (c *code) lowerCopy(in *ptx.Instruction, o *op) error {
	mods := readModifiers(slices.DeleteFunc(slices.Clone(in.Modifiers), func(m string) bool {
		return m == "async" || m == "global" || strings.HasPrefix(m, "shared")
	}))
	n := len(in.Operands)
	if mods.hinted {
		n--
	}
	if len(mods.rest) > 0 || n < 3 || n > 4 || in.Operands[2].Kind != ptx.ImmOperand {
		return fmt.Errorf("unsupported form")
	}
	cp := &o.sync.copy
	cp.bypass = slices.Contains(in.Modifiers, "cg")
	cp.size = int(in.Operands[2].Value)
	if cp.size != 4 && cp.size != 8 && cp.size != 16 || cp.size != 16 && cp.bypass {
		return fmt.Errorf("it cannot copy %d bytes", cp.size)
	}
	cp.to = &memOp{space: ptx.Shared, bytes: cp.size}
	cp.from = &memOp{space: ptx.Global, bytes: cp.size}
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
	cp.srcSize = s
	return err
}

// runCopy starts copies. They read now. Their target is poisoned until a thread waits for them.
func runCopy(w *warp, o *op, mask uint32) {
	cp := &o.sync.copy
	w.computeAddresses(cp.to)
	to := w.addr
	w.computeAddresses(cp.from)
	readers := uint32(0)
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		n := cp.size
		if cp.srcSize.file == file32 {
			n = int(w.R32[cp.srcSize.index][lane])
		}
		if cp.ignore.file == filePred && (w.Preds[cp.ignore.index]>>lane&1 != 0) != cp.negated {
			n = 0
		}
		if n > cp.size {
			w.report(finding.Undefined, o, 1<<lane, func() string { return fmt.Sprintf("copies %d bytes but reads %d", cp.size, n) })
			n = cp.size
		}
		if n > 0 {
			readers |= 1 << lane
		}
		w.startCopy(o, lane, to[lane], w.addr[lane], n)
	}
	w.counters.Copy(&w.addr, &to, mask, readers, cp.size, cp.bypass)
	w.block.changes++
}

// startCopy starts the copy of a lane, which reads n bytes.
func (w *warp) startCopy(o *op, lane int, to, from uint64, n int) {
	cp := &o.sync.copy
	p := pendingCopy{lane: lane, group: w.copies.groups[lane], size: cp.size, op: o}
	if from%uint64(cp.size) != 0 {
		w.checkAlignment(o, &accessInfo{space: ptx.Global, bytes: cp.size}, from, lane, mem.Read)
	}
	if n > 0 {
		if data := w.accessBytes(o, from, n, lane); data != nil {
			copy(p.data[:], data)
			p.from, p.source = data, w.lastBuffer
			p.at = int(from - p.source.Base)
		}
	}
	s := &w.block.shared
	p.offset = int(to - s.First)
	a := accessInfo{space: ptx.Shared, bytes: cp.size}
	if !s.Holds(to, cp.size) {
		w.reportMemory(finding.Occurrence{Kind: finding.OutOfBounds}, o, position{}, lane, a.space, to,
			func() string { return w.outsideShared(a, to, mem.Write) })
		return
	}
	w.checkAlignment(o, &a, to, lane, mem.Write)
	w.counters.AsyncBytes += uint64(cp.size)
	if w.block.launch.options.Checks {
		if marks := s.Marks[p.offset : p.offset+cp.size]; !mem.IsPlain(marks) && !w.reportMarked(o, a, w.block, to, marks, lane, mem.Write) {
			return
		}
		me := w.observer(o, lane, order.Pending)
		if c, bad := s.Shadow.Write(p.offset, cp.size, &me, nil); bad {
			w.reportConflict(o, a, c, to, lane, mem.Write)
		}
		w.checkWritten(o, a, s.Marks[p.offset:p.offset+cp.size], to, lane, mem.Write, true)
		mem.Fill(s.Data[p.offset:p.offset+cp.size], mem.Poison)
	}
	w.copies.open = append(w.copies.open, p)
}

// accessBytes reads n bytes of global memory. n need not be a power of two.
func (w *warp) accessBytes(o *op, from uint64, n, lane int) []byte {
	for _, size := range []int{16, 8, 4, 2, 1} {
		if n == size {
			return w.accessGlobal(o, accessInfo{space: ptx.Global, bytes: n}, from, lane, mem.Read)
		}
	}
	var all []byte
	for i := range n {
		b := w.accessGlobal(o, accessInfo{space: ptx.Global, bytes: 1}, from+uint64(i), lane, mem.Read)
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

// runWaitCopies runs cp.async.wait_group and wait_all.
func runWaitCopies(w *warp, o *op, mask uint32) {
	keep := o.sync.copy.keep
	w.landIf(func(p *pendingCopy) bool {
		return mask>>p.lane&1 != 0 && (keep < 0 || p.group < w.copies.groups[p.lane]-keep)
	})
}

// landIf lands copies. From now on they count as writes of the thread that waited.
func (w *warp) landIf(which func(*pendingCopy) bool) {
	left := w.copies.open[:0]
	for i := range w.copies.open {
		p := &w.copies.open[i]
		if !which(p) {
			left = append(left, *p)
			continue
		}
		w.land(p, w.clocks.Epoch())
	}
	w.copies.open = left
}

// land writes a copy to its target, as a write of its thread in the given epoch.
func (w *warp) land(p *pendingCopy, epoch uint32) {
	s := &w.block.shared
	copy(s.Data[p.offset:], p.data[:p.size])
	w.block.changes++
	if !w.block.launch.options.Checks {
		return
	}
	me := w.observer(p.op, p.lane, 0)
	me.Epoch = epoch
	s.Shadow.SettleWrite(p.offset, p.size, &me)
	if p.source != nil {
		w.block.lockPages(p.source, p.at, len(p.from))
	}
	if !bytes.Equal(p.from, p.data[:len(p.from)]) {
		w.report(finding.MissingWait, p.op, 1<<p.lane, func() string {
			return "copies from global memory that was changed before a thread waited for the copy"
		})
	}
}

// dropCopies drops the copies that no thread has waited for when the block ends.
func (b *block) dropCopies() {
	for _, w := range b.warps {
		w.copies.open, w.copies.arrivals = w.copies.open[:0], w.copies.arrivals[:0]
	}
}

// lowerCopyArrive lowers cp.async.mbarrier.arrive{.noinc}.shared.b64 [addr].
func (c *code) lowerCopyArrive(in *ptx.Instruction, o *op) error {
	if len(in.Operands) != 1 {
		return fmt.Errorf("it needs the address of an mbarrier")
	}
	o.sync.addr = &memOp{space: ptx.Shared, bytes: 8}
	o.sync.mbar.noInc = slices.Contains(in.Modifiers, "noinc")
	o.run = runCopyArrive
	return c.lowerAddress(o.sync.addr, in.Operands[0])
}

// runCopyArrive makes lanes arrive at an mbarrier when the copies that they have started so far
// end.
func runCopyArrive(w *warp, o *op, mask uint32) {
	w.computeAddresses(o.sync.addr)
	w.eachBarrier(o, mask, func(b *mbarrier, lanes uint32) {
		epoch := w.clocks.Epoch()
		w.publishTo(b, lanes, false)
		for i := range w.copies.open {
			if p := &w.copies.open[i]; lanes>>p.lane&1 != 0 && p.barrier == nil {
				p.barrier = b
			}
		}
		for m := lanes; m != 0; m &= m - 1 {
			w.copies.arrivals = append(w.copies.arrivals, copyArrival{firstLane(m), b, epoch, b.phase, o})
			if !o.sync.mbar.noInc {
				b.pending++
			}
			b.pendingCopies++
		}
		b.store(&w.block.shared)
	})
}

// finishCopies lands the copies that signal an mbarrier, and makes the arrivals.
func (b *block) finishCopies(bar *mbarrier) {
	for _, w := range b.warps {
		left := w.copies.arrivals[:0]
		for _, a := range w.copies.arrivals {
			if a.barrier != bar {
				left = append(left, a)
				continue
			}
			w.copies.open = slices.DeleteFunc(w.copies.open, func(p pendingCopy) bool {
				ends := p.lane == a.lane && p.barrier == bar
				if ends {
					w.land(&p, a.epoch)
				}
				return ends
			})
			if bar.phase != a.phase {
				w.reportPair(finding.BadBarrier, a.op, bar.initialised, 1<<a.lane, func() string {
					return fmt.Sprintf("arrives in phase %d of an mbarrier, which has completed without it: the mbarrier expects %d arrivals and more are made; "+
						"a waiting thread may continue too early or never", a.phase, bar.expected)
				})
			}
			w.arriveOn(a.op, bar, 1, a.lane)
		}
		w.copies.arrivals = left
	}
	bar.pendingCopies = 0
}
