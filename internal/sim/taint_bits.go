package sim

import (
	"fmt"

	"attune/internal/ptx"
	"attune/internal/sim/mem"
	"attune/internal/sim/mma"
)

// Tainted bits.
//
// Compilers pack a register that was never set with one that was (mov.b64 {unset, r}) and shift the
// first one out again, and they mask bytes of a word of which some were never written. What counts is
// therefore the bits of a register. Of most operations one tainted bit taints the whole result. Of
// bitwise operations, shifts, selections of bytes and conversions between integers the result is
// computed once more with the tainted bits flipped: the bits that differ are tainted. A sum or a
// product is tainted from the lowest tainted bit on.

// undefined returns the tainted bits of a register in a lane.
func (t *taint) undefined(s slot, lane int) uint64 {
	if t.lanes(s)>>lane&1 == 0 {
		return 0
	}
	if b := t.bits[s]; b != nil {
		return b[lane]
	}
	return ^uint64(0)
}

// setAllBits taints every bit of a register in some of its tainted lanes.
func (t *taint) setAllBits(s slot, lanes uint32) {
	if len(t.bits) == 0 {
		return
	}
	if b := t.bits[s]; b != nil {
		for m := lanes; m != 0; m &= m - 1 {
			b[firstLane(m)] = ^uint64(0)
		}
	}
}

// dropBits forgets the bits of a register that is not tainted any more.
func (t *taint) dropBits(s slot) {
	if len(t.bits) == 0 {
		return
	}
	if b := t.bits[s]; b != nil {
		t.spare = append(t.spare, b)
		delete(t.bits, s)
	}
}

// setBits sets the tainted bits of a register in some of its tainted lanes.
func (t *taint) setBits(s slot, lanes uint32, undefined *[32]uint64) {
	b := t.bits[s]
	for m := lanes; m != 0; m &= m - 1 {
		lane := firstLane(m)
		bits := undefined[lane]
		if s.file == file32 {
			bits |= 0xFFFFFFFF << 32
		}
		if b == nil {
			if bits == ^uint64(0) {
				continue
			}
			b = t.newBits(s)
		}
		b[lane] = bits
	}
}

// newBits makes the entry of a register. Every bit of its lanes is tainted.
func (t *taint) newBits(s slot) *[32]uint64 {
	var b *[32]uint64
	if n := len(t.spare); n > 0 {
		b, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		b = new([32]uint64)
	}
	for i := range b {
		b[i] = ^uint64(0)
	}
	if t.bits == nil {
		t.bits = map[slot]*[32]uint64{}
	}
	t.bits[s] = b
	return b
}

// taintLoaded leaves the bits of a loaded register tainted that come from unwritten bytes.
func (t *taint) taintLoaded(e *element, marks []byte, lanes uint32) {
	if len(marks) > 8 {
		return
	}
	var undefined [32]uint64
	bits := e.extend.apply(unwrittenBits(marks), e.slot.file)
	for m := lanes; m != 0; m &= m - 1 {
		undefined[firstLane(m)] = bits
	}
	t.setBits(e.slot, lanes, &undefined)
}

// unwrittenBits returns the bits of up to eight bytes that were never written.
func unwrittenBits(marks []byte) (bits uint64) {
	for i, m := range marks {
		if m == mem.Unwritten {
			bits |= 0xFF << (8 * i)
		}
	}
	return bits
}

// undefinedResult returns the tainted bits of the result of an operation in one lane.
func (w *warp) undefinedResult(t *taint, a *aluOp, f *flow, lane int) uint64 {
	var x, u [5]uint64
	last := -1 // tainted operand
	several := false
	for i := range a.n {
		x[i] = w.get(&a.args[i], lane)
		if u[i] = t.undefined(a.args[i].slot, lane) & a.args[i].mask; u[i] != 0 {
			several = several || last >= 0
			last = i
		}
	}
	switch {
	case last < 0: // the operation reads no tainted bit
		return 0
	case last < f.data:
		return a.flipped(x, u, f.data)
	case f.upward:
		lowest := (u[0] | u[1] | u[2]) & -(u[0] | u[1] | u[2])
		return -lowest
	case !several && f.combines != "" && last < 2:
		// Of setp: false and a comparison is false, true or a comparison is true.
		if f.combines == "and" && x[2] == 0 || f.combines == "or" && x[2] == 1 {
			return 0
		}
	}
	return ^uint64(0)
}

// flipped returns the bits of the result that depend on tainted bits of the data operands.
func (a *aluOp) flipped(x, u [5]uint64, data int) (differ uint64) {
	result := func(x [5]uint64) uint64 {
		x[3] |= x[4] << 8 // the predicate of lop3 follows its table
		return a.extend.apply(a.Func(x[0], x[1], x[2], x[3]), a.dst.file)
	}
	before := result(x)
	for which := 1; which < 1<<data; which++ {
		y := x
		for i := range data {
			if which>>i&1 != 0 {
				y[i] ^= u[i]
			}
		}
		differ |= before ^ result(y)
	}
	return differ
}

// gather is warp.gather for tainted bits.
func (t *taint) gather(v *movOp, lane int) (low, high uint64) {
	for _, p := range v.src {
		u := t.undefined(p.slot, lane)
		switch {
		case p.bits == 128:
			return u, u
		case p.bits < 64:
			u &= 1<<p.bits - 1
		}
		if p.at < 64 {
			low |= u << p.at
		} else {
			high |= u << (p.at - 64)
		}
	}
	return low, high
}

// scatter sets the taint of a register that a mov writes. low and high are the tainted bits of the
// value, and lanes those where any is tainted.
func (t *taint) scatter(p *piece, mask, lanes uint32, low, high *[32]uint64, from *unwrittenLoad) {
	var undefined [32]uint64
	var tainted uint32
	for m := lanes; m != 0; m &= m - 1 {
		lane := firstLane(m)
		u := low[lane]
		if p.at >= 64 {
			u = high[lane]
		}
		if u >>= p.at % 64; p.bits < 64 {
			u &= 1<<p.bits - 1
		}
		if undefined[lane] = u; u != 0 {
			tainted |= 1 << lane
		}
	}
	t.set(p.slot, mask, tainted, from)
	t.setBits(p.slot, tainted, &undefined)
}

// undefinedStore is a store of an undefined value to shared memory.
type undefinedStore struct {
	op     *op
	thread int
}

// maxUndefinedStores bounds how many bytes a block remembers. A finding about another byte does not
// name the store.
const maxUndefinedStores = 1 << 16

// noteUndefinedStore remembers which instruction has left a byte of the block's shared memory
// undefined.
func (w *warp) noteUndefinedStore(o *op, space ptx.Space, address uint64, lane int) {
	b := w.block
	if space != ptx.Shared || address>>rankShift != 0 || len(b.undefinedStores) >= maxUndefinedStores {
		return
	}
	if b.undefinedStores == nil {
		b.undefinedStores = map[uint32]undefinedStore{}
	}
	b.undefinedStores[uint32(address)] = undefinedStore{o, w.index*32 + lane}
}

// describeUnwritten says why a byte counts as unwritten.
func (w *warp) describeUnwritten(space ptx.Space, address uint64) string {
	text := w.describeByte(space, address)
	if store, found := w.block.undefinedStores[uint32(address)]; found && space == ptx.Shared && address>>rankShift == 0 {
		return fmt.Sprintf("thread %d has stored an undefined value to %s (%s)", store.thread, text, positionOf(w, store.op).place())
	}
	return text + " was never written"
}

// passMatrix handles tainted operands of an operation on matrices that passes taint on. It returns
// false for an operation whose tainted operands are used.
func (w *warp) passMatrix(t *taint, o *op, mask uint32) bool {
	switch o.mat.in.Op {
	case mma.MMASync, mma.WMMA:
		if mask == everyLane { // else the operation waits for the other lanes
			w.passProduct(t, o)
		}
		return true
	case mma.StoreMatrix: // runStoreMatrix decides
		for _, s := range o.guardAndAddress() {
			w.useTainted(s, mask, o, "its address")
		}
		return true
	}
	return false
}

// guardAndAddress returns the registers that decide whether and where an operation stores.
func (o *op) guardAndAddress() []slot {
	list := []slot{o.mat.addr.base}
	if o.guard >= 0 {
		list = append(list, slot{filePred, o.guard})
	}
	return list
}

// passProduct taints the elements of D whose row of A, column of B or element of C has a tainted bit.
func (w *warp) passProduct(t *taint, o *op) {
	m, p := o.mat, w.block.launch.plans[o.number]
	var rows, columns uint32
	var sums [32]uint32 // columns, by row
	var from *unwrittenLoad
	mark := func(registers []slot, f *mma.Fragment, visit func(row, column int)) {
		for i, s := range registers {
			lanes := t.lanes(s)
			if lanes == 0 {
				continue
			}
			_, origin := t.at(s)
			from = *origin
			t.eachElement(f, s, i, lanes, visit)
		}
	}
	mark(m.a, p.a, func(row, _ int) { rows |= 1 << row })
	mark(m.b, p.b, func(_, column int) { columns |= 1 << column })
	mark(m.c, p.c, func(row, column int) { sums[row&31] |= 1 << column })
	perRegister := p.d.Elements() / p.d.Registers
	width := uint(64 / perRegister)
	if m.d[0].file == file32 {
		width = uint(32 / perRegister)
	}
	for i, s := range m.d {
		var undefined [32]uint64
		var tainted uint32
		for lane := range 32 {
			for e := range perRegister {
				if row, column := p.d.At(lane, i*perRegister+e); rows>>row&1 != 0 || (columns|sums[row&31])>>column&1 != 0 {
					undefined[lane] |= (1<<width - 1) << (uint(e) * width)
					tainted |= 1 << lane
				}
			}
		}
		t.set(s, everyLane, tainted, from)
		t.setBits(s, tainted, &undefined)
	}
}

// eachElement visits the elements of a fragment that have a tainted bit in its i-th register.
func (t *taint) eachElement(f *mma.Fragment, s slot, i int, lanes uint32, visit func(row, column int)) {
	perRegister := f.Elements() / f.Registers
	width := uint(32 / perRegister)
	if s.file == file64 {
		width = 64
	}
	for l := lanes; l != 0; l &= l - 1 {
		lane := firstLane(l)
		undefined := t.undefined(s, lane)
		for e := range perRegister {
			if undefined>>(uint(e)*width)&(1<<width-1) != 0 {
				visit(f.At(lane, i*perRegister+e))
			}
		}
	}
}

// taintMatrix taints the registers of an ldmatrix that are loaded from unwritten bytes. unwritten has
// a bit for each byte of each row of the matrices.
func (w *warp) taintMatrix(o *op, unwritten *[32]uint16) {
	var from *unwrittenLoad
	t := w.frame.newTaint()
	registers := o.mat.d
	for i, s := range registers {
		var undefined [32]uint64
		var tainted uint32
		for row := range 8 {
			bytes := unwritten[8*i+row]
			if bytes == 0 {
				continue
			}
			if from == nil {
				address := w.addr[8*i+row] + uint64(firstLane(uint32(bytes)))
				from = t.load(w, o, everyLane, ptx.Shared, address, func() string {
					return "reads a row of 16 bytes; " + w.describeUnwritten(ptx.Shared, address)
				})
			}
			for column := range 8 {
				if bytes>>(2*column)&3 == 0 {
					continue
				}
				lane, half := 4*row+column/2, column%2
				if o.mat.in.Transposed {
					lane, half = 4*column+row/2, row%2
				}
				undefined[lane] |= 0xFFFF << (16 * half)
				tainted |= 1 << lane
			}
		}
		t.set(s, everyLane, tainted, from)
		t.setBits(s, tainted, &undefined)
	}
	w.taint = w.frame.liveTaint()
}

// storeTaintedMatrix leaves the bytes unwritten that a stmatrix stores from tainted bits.
func (w *warp) storeTaintedMatrix(o *op, f *mma.Fragment) {
	for i, s := range o.mat.d {
		lanes := w.taint.lanes(s)
		if lanes == 0 {
			continue
		}
		w.taint.eachElement(f, s, i, lanes, func(row, column int) {
			shared := &w.block.shared
			address := w.addr[row] + uint64(2*column)
			if !shared.Holds(address, 2) {
				return
			}
			for j := range uint64(2) {
				if mark := &shared.Marks[address+j-shared.First]; *mark == mem.Written {
					*mark = mem.Unwritten
					w.noteUndefinedStore(o, ptx.Shared, address+j, row)
				}
			}
		})
	}
}
