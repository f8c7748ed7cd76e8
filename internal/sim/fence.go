package sim

import (
	"fmt"
	"strings"

	"attune/internal/ptx"
)

// Fences, and what strong accesses tell each other.
//
// A release publishes what its thread has done and knows at a place in memory, and an acquire that reads there learns it. A fence splits both: what was
// done before a fence is published by the strong writes behind it, and what strong reads have heard is learned at the fence behind them. Atomic
// operations without a word about order, as old code has them, learn at once: code that takes a ticket and reads is right on every chip. With the
// scope of the block, nothing of it reaches other blocks.
//
// Threads that meet at a barrier take over each other's fences: what somebody has fenced before a barrier is visible to all when one of the others
// writes a flag behind it.

// order is a lane's part in that.
type order struct {
	fenced [32]stamp // at a lane's last fence, for threads of the same block
	wide   [32]stamp // for threads of other blocks too
	heard  [32]told  // by strong reads that have acquired nothing yet
	any    uint32    // lanes that have any of these

	// What a lane has published and heard last, so as not to do the same again and again in a loop that waits.
	last [32]struct {
		address   uint64
		near, far stamp
		from      hearing
	}
}

// hearing is what a lane has heard at a place.
type hearing struct {
	near, far     *place
	times, timesF uint64
	learned       bool
}

// told is what places in memory tell: clocks, by block.
type told = map[uint32][]known

// lowerFence turns membar and fence into operations.
func (c *code) lowerFence(in *ptx.Instruction, o *op) error {
	s := &syncOp{publish: true, heed: true}
	o.sync, o.class = s, classSync
	words := strings.Join(in.Modifiers, ".")
	switch {
	case strings.HasPrefix(words, "proxy."), strings.HasPrefix(words, "mbarrier_init"):
		return c.lowerProxyFence(in, o)
	}
	for _, m := range in.Modifiers {
		switch m {
		case "cta", "level::cta":
		case "gl", "gpu", "sys", "cluster":
			s.wide = true
			c.talks = true
		case "sc", "acq_rel":
		case "acquire":
			s.publish = false
		case "release":
			s.heed = false
		default:
			return fmt.Errorf("unsupported modifier .%s", m)
		}
	}
	o.run = runFence
	return nil
}

// runFence has lanes learn what they have heard, and makes what they have done and know ready to be published by their next strong write.
func runFence(w *warp, o *op, mask uint32) {
	if !w.block.launch.options.Checks {
		return
	}
	if o.sync.heed {
		w.heed(mask, o.sync.wide)
	}
	if !o.sync.publish {
		return
	}
	w.order.any |= mask
	w.knows.stamps(&w.order.fenced, mask)
	if o.sync.wide {
		for m := mask; m != 0; m &= m - 1 {
			lane := firstLane(m)
			w.order.wide[lane] = w.order.fenced[lane]
		}
	}
}

// heed has lanes learn what they have heard: all of it, or what threads of the block have said.
func (w *warp) heed(mask uint32, wide bool) {
	for m := mask & w.order.any; m != 0; m &= m - 1 {
		lane := firstLane(m)
		heard := w.order.heard[lane]
		if heard == nil {
			continue
		}
		if !wide {
			own := heard[uint32(w.block.index)]
			if own == nil {
				continue
			}
			heard = told{uint32(w.block.index): own, fencedOf(uint32(w.block.index)): heard[fencedOf(uint32(w.block.index))]}
		} else {
			w.order.heard[lane] = nil
		}
		w.learnTold(heard, 1<<lane)
	}
}

func (w *warp) learnTold(what told, lanes uint32) {
	c := w.block.newClock()
	c.learn(uint32(w.block.index), what)
	w.knows.learn(&c, lanes, w.alive)
}

// passedOn is what threads that meet at a barrier take over from each other.
type passedOn struct {
	fenced, wide *clock
	heard        told
}

// passOn adds what lanes have fenced and heard.
func (w *warp) passOn(to *passedOn, mask uint32) {
	for m := mask & w.order.any; m != 0; m &= m - 1 {
		lane := firstLane(m)
		add := func(s stamp, to **clock) {
			if s.clock == nil {
				return
			}
			if *to == nil {
				c := w.block.newClock()
				*to = &c
			}
			(*to).join(s.clock)
			(*to).warps[w.index].joinLanes(1<<lane, s.epoch)
		}
		add(w.order.fenced[lane], &to.fenced)
		add(w.order.wide[lane], &to.wide)
		to.heard = joinBlocks(to.heard, w.order.heard[lane])
	}
}

// takeOver gives lanes what was passed on.
func (w *warp) takeOver(from *passedOn, mask uint32) {
	if from.fenced == nil && from.heard == nil {
		return
	}
	w.order.any |= mask
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		if from.fenced != nil {
			w.order.fenced[lane].clock = from.fenced
		}
		if from.wide != nil {
			w.order.wide[lane].clock = from.wide
		}
		w.order.heard[lane] = from.heard
	}
	w.heed(mask, false) // a barrier is a fence for the block
}

// syncPlaces are the clocks that places in memory hold: whoever reads what a strong operation has written there hears them.
type syncPlaces struct {
	at map[uint64]*place
}

// place is one of them.
type place struct {
	tells told
	times uint64 // that it was told something
}

func (p *syncPlaces) join(address uint64, what told) {
	if p.at == nil {
		p.at = map[uint64]*place{}
	}
	at := p.at[address]
	if at == nil {
		at = &place{}
		p.at[address] = at
	}
	at.tells = joinBlocks(at.tells, what)
	at.times++
}

func (p *place) tell() (told, uint64) {
	if p == nil {
		return nil, 0
	}
	return p.tells, p.times
}

// beforeStrong publishes what a strong write releases: all of it for release, what was fenced before for others.
func (w *warp) beforeStrong(m *memOp, mask uint32) {
	if !w.block.launch.options.Checks {
		return
	}
	var now [32]stamp
	if m.release {
		w.knows.stamps(&now, mask)
	}
	for l := mask & (w.order.any | releases(m)); l != 0; l &= l - 1 {
		lane := firstLane(l)
		near, far := w.order.fenced[lane], w.order.wide[lane]
		if m.release {
			near, far = now[lane], now[lane]
		}
		space, address := w.placeOf(m, lane)
		if space == ptx.Shared || m.narrow {
			far = stamp{}
		}
		last := &w.order.last[lane]
		if last.address == address && last.near == near && last.far == far {
			continue
		}
		last.address, last.near, last.far = address, near, far
		if far.clock != nil {
			c := far.of(w.index, lane)
			w.block.launch.syncs.join(address, c.global(uint32(w.block.index)))
		}
		if near.clock != nil && near != far {
			c := near.of(w.index, lane)
			home, local := w.syncHome(space, address)
			home.syncs.join(local, c.global(uint32(w.block.index)))
		}
	}
}

// releases is every lane for an operation that releases by itself.
func releases(m *memOp) uint32 {
	if m.release {
		return everyLane
	}
	return 0
}

// afterStrong has lanes hear what was published where they read; those that acquire learn it.
func (w *warp) afterStrong(m *memOp, mask uint32, waiting bool) {
	if waiting {
		w.lookedInVain()
	}
	if !w.block.launch.options.Checks {
		return
	}
	for left := mask; left != 0; {
		space, address := w.placeOf(m, firstLane(left))
		lanes := uint32(0)
		for l := left; l != 0; l &= l - 1 {
			lane := firstLane(l)
			if s, a := w.placeOf(m, lane); s == space && a == address {
				lanes |= 1 << lane
			}
		}
		left &^= lanes
		home, local := w.syncHome(space, address)
		from := hearing{near: home.syncs.at[local], learned: m.acquire || m.atomic != nil && !m.ordered}
		if space != ptx.Shared && !m.narrow {
			from.far = w.block.launch.syncs.at[address]
		}
		if from.near != nil || from.far != nil {
			w.hear(from, lanes)
		}
	}
}

// hear has lanes hear, and perhaps learn, what a place tells.
func (w *warp) hear(from hearing, lanes uint32) {
	var what, more told
	what, from.times = from.near.tell()
	more, from.timesF = from.far.tell()
	fresh := uint32(0)
	for l := lanes; l != 0; l &= l - 1 {
		lane := firstLane(l)
		if last := &w.order.last[lane].from; *last != from {
			*last = from
			fresh |= 1 << lane
		}
	}
	if fresh == 0 {
		return
	}
	what = joinBlocks(what, more)
	if from.learned {
		w.learnTold(what, fresh)
		return
	}
	w.order.any |= fresh
	for l := fresh; l != 0; l &= l - 1 {
		lane := firstLane(l)
		w.order.heard[lane] = joinBlocks(w.order.heard[lane], what)
	}
}

// placeOf is the state space and the address that a lane's strong access is to, whether or not inSpaces has been over it.
func (w *warp) placeOf(m *memOp, lane int) (ptx.Space, uint64) {
	if m.space != ptx.Generic {
		return m.space, w.addr[lane]
	}
	space, address := ofGeneric(w.addr[lane])
	if space == ptx.Global && address < globalBase {
		space = ptx.Shared // already taken to its space
	}
	return space, address
}
