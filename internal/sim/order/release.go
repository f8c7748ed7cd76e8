package order

// Fences and strong accesses.
//
// A release publishes at a memory location what its thread has done and knows. An acquire that
// reads the location learns it. A fence separates the two steps. What a thread did before a fence
// is published by its strong writes after the fence. What its strong reads have observed is learned
// at the next fence. Atomic operations without a memory order, as in old code, learn at once: code
// that takes a ticket and then reads is correct on every chip. With block scope, nothing of this
// reaches other blocks.
//
// A strong write after a fence is part of the release itself. A thread that has acquired what was
// published at the location may therefore overwrite the location with a plain store, although other
// accesses between the fence and the strong write are not published. Clocks have a part of their
// own for such writes.
//
// Threads that synchronise at a barrier hand over their fences to each other. What one thread has
// fenced before a barrier is visible to every thread that sees a flag which another thread writes
// after the barrier.

// Fences is the part of the lanes of one warp in releases and acquires.
type Fences struct {
	near     [32]Snapshot // at a lane's last fence, for threads of the same block
	far      [32]Snapshot // at a lane's last fence that reaches other blocks
	observed [32]Blocks   // read by strong reads, and not acquired yet
	any      uint32       // lanes that have any of these

	// What a lane published and observed last. A loop that waits repeats both without effect.
	last [32]struct {
		address   uint64
		epoch     uint32 // of the strong write
		near, far Snapshot
		from      observation
	}
}

// observation identifies what a lane has observed at a location.
type observation struct {
	near, far               *location
	nearVersion, farVersion uint64
	acquired                bool
}

// Lanes returns the lanes that have executed a fence or observed something.
func (f *Fences) Lanes() uint32 { return f.any }

// AtFence returns what a lane had done and known at its last fence: for threads of its block, and
// for threads of other blocks.
func (f *Fences) AtFence(lane int) (near, far Snapshot) { return f.near[lane], f.far[lane] }

// Release is the releasing half of a fence. It keeps what lanes have done and know for their next
// strong writes. A wide fence reaches other blocks.
func (f *Fences) Release(w *Warp, mask uint32, wide bool) {
	f.any |= mask
	w.Snapshots(&f.near, mask)
	if !wide {
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		f.far[lane] = f.near[lane]
	}
}

// Acquire is the acquiring half of a fence: lanes learn what their strong reads have observed. A
// fence that is not wide acquires only what threads of the own block have published.
func (f *Fences) Acquire(w *Warp, mask, alive uint32, wide bool) {
	for m := mask & f.any; m != 0; m &= m - 1 {
		lane := firstLane(m)
		observed := f.observed[lane]
		if observed == nil {
			continue
		}
		if !wide {
			own := observed[w.block]
			if own == nil {
				continue
			}
			observed = Blocks{w.block: own, fencedKey(w.block): observed[fencedKey(w.block)], strongKey(w.block): observed[strongKey(w.block)]}
		} else {
			f.observed[lane] = nil
		}
		w.LearnBlocks(observed, 1<<lane, alive)
	}
}

// Handover is what threads that synchronise at a barrier take over from each other.
type Handover struct {
	near, far *Clock
	observed  Blocks
}

// HandOver adds the fences of lanes, and what they have observed, to a handover.
func (f *Fences) HandOver(w *Warp, to *Handover, mask uint32) {
	for m := mask & f.any; m != 0; m &= m - 1 {
		lane := firstLane(m)
		add := func(s Snapshot, to **Clock) {
			if s.clock == nil {
				return
			}
			if *to == nil {
				c := w.newClock()
				*to = &c
			}
			(*to).Join(s.clock)
			(*to).warps[w.index].joinLanes(1<<lane, s.epoch)
		}
		add(f.near[lane], &to.near)
		add(f.far[lane], &to.far)
		to.observed = to.observed.Join(f.observed[lane])
	}
}

// Near returns what precedes the fences for threads of the same block; nil for nothing.
func (h *Handover) Near() *Clock { return h.near }

// Far returns what precedes the fences for threads of other blocks; nil for nothing.
func (h *Handover) Far() *Clock { return h.far }

// TakeOver gives lanes the fences of a handover. The barrier itself is a fence for the block.
func (f *Fences) TakeOver(w *Warp, from *Handover, mask, alive uint32) {
	if from.near == nil && from.observed == nil {
		return
	}
	f.any |= mask
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		if from.near != nil {
			f.near[lane].clock = from.near
		}
		if from.far != nil {
			f.far[lane].clock = from.far
		}
		f.observed[lane] = from.observed
	}
	f.Acquire(w, mask, alive, false)
}

// Locations has what strong accesses have published, by the address of the location. The zero
// value is empty.
type Locations struct {
	at map[uint64]*location
}

type location struct {
	published Blocks
	version   uint64 // number of times that something was published
}

func (l *Locations) publish(address uint64, what Blocks) {
	if l.at == nil {
		l.at = map[uint64]*location{}
	}
	at := l.at[address]
	if at == nil {
		at = &location{}
		l.at[address] = at
	}
	at.published = at.published.Join(what)
	at.version++
}

func (l *location) read() (Blocks, uint64) {
	if l == nil {
		return nil, 0
	}
	return l.published, l.version
}

// Target is the location of a strong access.
type Target struct {
	Address uint64     // in its state space
	Local   uint64     // in the block that has it
	Near    *Locations // of that block
	Far     *Locations // of the grid; nil where the access has block scope
}

// Publish makes visible at a location what a strong write of a lane releases. Only near reaches
// other threads where the access has block scope.
func (f *Fences) Publish(w *Warp, lane int, t Target, near, far Snapshot) {
	if t.Far == nil {
		far = Snapshot{}
	}
	last := &f.last[lane]
	if last.address == t.Address && last.epoch == w.epoch && last.near == near && last.far == far {
		return
	}
	last.address, last.epoch, last.near, last.far = t.Address, w.epoch, near, far
	if far.clock != nil {
		t.Far.publish(t.Address, w.exportStrong(far, lane))
	}
	if near.clock != nil && near != far {
		t.Near.publish(t.Local, w.exportStrong(near, lane))
	}
}

// Observe has lanes observe what was published at a location that they have read. With acquire they
// learn it at once, otherwise at their next fence.
func (f *Fences) Observe(w *Warp, t Target, lanes, alive uint32, acquire bool) {
	from := observation{near: t.Near.at[t.Local], acquired: acquire}
	if t.Far != nil {
		from.far = t.Far.at[t.Address]
	}
	if from.near == nil && from.far == nil {
		return
	}
	var what, more Blocks
	what, from.nearVersion = from.near.read()
	more, from.farVersion = from.far.read()
	fresh := uint32(0)
	for l := lanes; l != 0; l &= l - 1 {
		lane := firstLane(l)
		if last := &f.last[lane].from; *last != from {
			*last = from
			fresh |= 1 << lane
		}
	}
	if fresh == 0 {
		return
	}
	what = what.Join(more)
	if acquire {
		w.LearnBlocks(what, fresh, alive)
		return
	}
	f.ObserveBlocks(what, fresh)
}

// ObserveBlocks has lanes observe what is known of several blocks. They learn it at their next
// fence.
func (f *Fences) ObserveBlocks(what Blocks, lanes uint32) {
	f.any |= lanes
	for l := lanes; l != 0; l &= l - 1 {
		lane := firstLane(l)
		f.observed[lane] = f.observed[lane].Join(what)
	}
}
