package order

// AllLanes is the lane of an access that a warp makes as a whole, or that several of its lanes
// make.
const AllLanes = 32

// Warp has the clocks of one warp.
//
// Methods take the mask of the lanes that act, and the mask of the lanes of the warp that have not
// ended. Where the two are equal, the lanes act on their common clock.
type Warp struct {
	block    uint32
	index    int
	epoch    uint32 // of the accesses that the warp makes now
	common   Clock
	lanes    [32]*Clock
	separate uint32 // lanes that have a clock of their own
	ended    uint32 // lanes that ended since the warp last synchronised: their accesses are unpublished

	shuffled      *Clock // what single lanes knew when they took part in a shuffle since the warp last synchronised
	shuffledLanes uint32 // that took part
}

// NewWarp makes the clocks of a warp. Its clocks have one component for each of the given number of
// warps.
func NewWarp(block uint32, index, warps int) Warp {
	return Warp{block: block, index: index, epoch: 1, common: NewClock(warps)}
}

// Epoch returns the epoch of the accesses that the warp makes now.
func (w *Warp) Epoch() uint32 { return w.epoch }

// Start makes a clock of what all lanes of the warp have done and know now. It reuses the memory of
// the clock.
func (w *Warp) Start(c *Clock, alive uint32) {
	if len(c.warps) != len(w.common.warps) {
		c.warps = make([]component, len(w.common.warps))
	}
	clear(c.warps)
	c.blocks, c.fenced, c.strong = nil, nil, nil
	w.Publish(c, alive, alive)
}

// LearnEpoch tells all lanes of the accesses of an agent up to an epoch.
func (w *Warp) LearnEpoch(agent int, epoch uint32) {
	w.common.warps[agent].join(component{all: epoch})
	for m := w.separate; m != 0; m &= m - 1 {
		w.lanes[firstLane(m)].warps[agent].join(component{all: epoch})
	}
}

// Separate returns the lanes that have a clock of their own.
func (w *Warp) Separate() uint32 { return w.separate }

// EndLanes notes that lanes have ended without publishing their accesses.
func (w *Warp) EndLanes(mask uint32) { w.ended |= mask }

// EndedLanes returns the lanes that have ended since the warp last synchronised.
func (w *Warp) EndedLanes() uint32 { return w.ended }

// of returns the clock of a lane.
func (w *Warp) of(lane uint8) *Clock {
	if lane < AllLanes && w.separate>>lane&1 != 0 {
		return w.lanes[lane]
	}
	return &w.common
}

// KnowsBlock reports whether a lane has learned anything of another block.
func (w *Warp) KnowsBlock(block uint32, lane int) bool { return w.of(uint8(lane)).blocks[block] != nil }

// newClock makes an empty clock of the warp's block.
func (w *Warp) newClock() Clock { return NewClock(len(w.common.warps)) }

// JoinInto adds what any lane of the warp knows to a clock.
func (w *Warp) JoinInto(c *Clock) {
	c.Join(&w.common)
	for m := w.separate; m != 0; m &= m - 1 {
		c.Join(w.lanes[firstLane(m)])
	}
}

// Publish adds to a clock what lanes of the warp have done and know.
func (w *Warp) Publish(to *Clock, mask, alive uint32) {
	to.Join(&w.common)
	for m := mask & w.separate; m != 0; m &= m - 1 {
		to.Join(w.lanes[firstLane(m)])
	}
	if mask&alive == alive {
		to.warps[w.index].join(component{all: w.epoch})
	} else {
		to.warps[w.index].joinLanes(mask, w.epoch)
	}
	w.epoch++
}

// Learn adds a clock to what lanes know.
func (w *Warp) Learn(from *Clock, mask, alive uint32) {
	if mask&alive == alive {
		w.common.Join(from)
		for m := w.separate; m != 0; m &= m - 1 {
			w.lanes[firstLane(m)].Join(from)
		}
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		w.separateLane(firstLane(m)).Join(from)
	}
	if w.separate&alive == alive {
		w.raiseCommon(alive)
	}
}

// Knowing returns the lanes of the mask that know everything that a clock knows.
func (w *Warp) Knowing(c *Clock, mask, alive uint32) uint32 {
	var knowing uint32
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		others := alive &^ (1 << lane) // a lane knows its own accesses
		if w.of(uint8(lane)).coversFor(c, w.index, others) {
			knowing |= 1 << lane
		}
	}
	return knowing
}

// LearnBlocks adds what is known of several blocks to what lanes know.
func (w *Warp) LearnBlocks(from Blocks, mask, alive uint32) {
	c := w.newClock()
	c.Import(w.block, from)
	w.Learn(&c, mask, alive)
}

// raiseCommon adds to the common clock what every lane knows by itself.
func (w *Warp) raiseCommon(alive uint32) {
	least := w.lanes[firstLane(alive)].clone()
	for m := alive & (alive - 1); m != 0; m &= m - 1 {
		least.intersect(w.lanes[firstLane(m)])
	}
	w.common.Join(&least)
}

// separateLane returns a clock of a lane's own, and makes it where the lane has none.
func (w *Warp) separateLane(lane int) *Clock {
	if w.separate>>lane&1 == 0 {
		own := w.common.clone()
		w.lanes[lane] = &own
		w.separate |= 1 << lane
	}
	return w.lanes[lane]
}

// Shuffle notes that lanes have exchanged values. That orders no accesses to memory, but what a
// single lane has acquired before it is visible to the others on today's chips.
func (w *Warp) Shuffle(mask uint32) {
	if mask&w.separate == 0 {
		return
	}
	if w.shuffled == nil {
		c := w.newClock()
		w.shuffled = &c
	}
	for m := mask & w.separate; m != 0; m &= m - 1 {
		w.shuffled.Join(w.lanes[firstLane(m)])
	}
	w.shuffledLanes |= mask
}

// KnowsByShuffle reports whether a lane has shuffled with one that knows of an earlier access.
func (w *Warp) KnowsByShuffle(earlier *Access, lane uint8) bool {
	if w.shuffled == nil || lane >= AllLanes || w.shuffledLanes>>lane&1 == 0 {
		return false
	}
	o := w.Observer(0, lane, 0, 0)
	o.clock = w.shuffled
	return o.After(earlier, earlier.Lanes())
}

// Reunite drops the clocks of single lanes. The caller has added the clock of a barrier that all
// lanes have passed to the common clock, and that clock covers them.
func (w *Warp) Reunite() {
	w.separate, w.ended = 0, 0
	w.shuffled, w.shuffledLanes = nil, 0
}

// Sync is bar.warp.sync: the lanes of the mask learn from each other.
func (w *Warp) Sync(mask, alive uint32) {
	if mask&alive != alive {
		together := w.newClock()
		w.Publish(&together, mask, alive)
		w.Learn(&together, mask, alive)
		return
	}
	for m := w.separate; m != 0; m &= m - 1 {
		w.common.Join(w.lanes[firstLane(m)])
	}
	w.Reunite()
	w.common.warps[w.index] = component{all: w.epoch}
	w.epoch++
}

// Snapshot is what a lane has done and knows at one moment, to be published later: a clock that is
// never written, and the epoch of the lane's own accesses.
type Snapshot struct {
	clock *Clock
	epoch uint32
}

// Snapshots takes a snapshot of each lane of the mask.
func (w *Warp) Snapshots(into *[32]Snapshot, mask uint32) {
	var shared *Clock
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		if w.separate>>lane&1 != 0 {
			own := w.lanes[lane].clone()
			into[lane] = Snapshot{&own, w.epoch}
			continue
		}
		if shared == nil {
			common := w.common.clone()
			shared = &common
		}
		into[lane] = Snapshot{shared, w.epoch}
	}
	w.epoch++
}

// exportStrong returns a lane's snapshot, and its strong writes of the current epoch, in the form
// that other blocks can import.
func (w *Warp) exportStrong(s Snapshot, lane int) Blocks {
	c := s.clock.clone()
	c.warps[w.index].joinLanes(1<<lane, s.epoch)
	own := make([]component, len(c.warps))
	own[w.index].joinLanes(1<<lane, w.epoch)
	c.strong = joinParts(c.strong, own)
	return c.Export(w.block)
}
