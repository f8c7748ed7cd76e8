package sim

import "slices"

// Happens-before, by vector clocks.
//
// Time is counted a warp at a time: each warp has an epoch, and every access of one of its lanes is stamped with it. Whenever lanes of a warp
// publish what they have done (a barrier, an arrival, a release), the epoch moves on, so that what follows is told from what was published.
//
// What somebody knows of a warp is an epoch up to which all its lanes are known, and for single lanes that have published alone, later ones (known).
// A clock is that for every warp. The lanes of a warp know the same things most of the time and share one clock; a lane that has learned something
// alone has one of its own until the warp meets again (bar.warp.sync or a barrier): what one elected lane has waited for, the others do not know
// of.

// allLanes stands for the lane of an access that a warp makes as a whole, or that several of its lanes have made.
const allLanes = 32

// known is how far the accesses of one warp are known.
type known struct {
	full  uint32      // every lane's, up to and including this epoch
	lanes *[32]uint32 // single lanes', up to these epochs; shared, never written once it stands here
}

// covers says whether an access of some lanes is among what is known.
func (k *known) covers(lanes, epoch uint32) bool {
	if k.full >= epoch {
		return true
	}
	if k.lanes == nil {
		return false
	}
	for m := lanes; m != 0; m &= m - 1 {
		if k.lanes[firstLane(m)] < epoch {
			return false
		}
	}
	return true
}

// coversOne says whether what a lane, whichever, did at an epoch is among what is known.
func (k *known) coversOne(epoch uint32) bool {
	return k.full >= epoch || k.lanes != nil && slices.Max(k.lanes[:]) >= epoch
}

// join adds what other knows.
func (k *known) join(other known) {
	k.full = max(k.full, other.full)
	switch {
	case other.lanes == nil || other.lanes == k.lanes:
	case k.lanes == nil:
		k.lanes = other.lanes
	default:
		merged := *k.lanes
		for i, e := range other.lanes {
			merged[i] = max(merged[i], e)
		}
		k.lanes = &merged
	}
	if k.lanes != nil && k.lanesBehind() {
		k.lanes = nil
	}
}

func (k *known) lanesBehind() bool {
	for _, e := range k.lanes {
		if e > k.full {
			return false
		}
	}
	return true
}

// joinLanes adds single lanes, up to an epoch.
func (k *known) joinLanes(mask, epoch uint32) {
	lanes := [32]uint32{}
	if k.lanes != nil {
		lanes = *k.lanes
	}
	for i := range lanes {
		if mask>>i&1 != 0 {
			lanes[i] = max(lanes[i], epoch)
		}
	}
	k.lanes = &lanes
}

// clock is what is known of every warp of a block, and of other blocks where blocks have spoken to each other.
type clock struct {
	warps  []known
	blocks map[uint32][]known // of other blocks; shared, never written once it stands here
	fenced []known            // of the warps, what stands before a fence between the proxies (proxy.go); shared like blocks
}

func newClock(warps int) clock { return clock{warps: make([]known, warps)} }

func (c *clock) clone() clock {
	return clock{warps: append([]known(nil), c.warps...), blocks: c.blocks, fenced: c.fenced}
}

// join adds what another clock of the same block knows.
func (c *clock) join(other *clock) {
	for i := range other.warps {
		c.warps[i].join(other.warps[i])
	}
	c.blocks = joinBlocks(c.blocks, other.blocks)
	c.fenced = joinFenced(c.fenced, other.fenced)
}

// joinBlocks merges what is known of other blocks, into a new map unless one of the two will do.
func joinBlocks(a, b map[uint32][]known) map[uint32][]known {
	if len(b) == 0 {
		return a
	}
	if len(a) == 0 {
		return b
	}
	merged := make(map[uint32][]known, len(a))
	for block, warps := range a {
		merged[block] = warps
	}
	for block, warps := range b {
		have := merged[block]
		if have == nil {
			merged[block] = warps
			continue
		}
		both := append([]known(nil), have...)
		for i := range warps {
			both[i].join(warps[i])
		}
		merged[block] = both
	}
	return merged
}

// global is the clock as another block is told it: this block's warps among all others.
func (c *clock) global(block uint32) map[uint32][]known {
	own := map[uint32][]known{block: append([]known(nil), c.warps...)}
	if c.fenced != nil {
		own[fencedOf(block)] = c.fenced
	}
	return joinBlocks(own, c.blocks)
}

// learn adds what a place in global memory tells to a block.
func (c *clock) learn(block uint32, told map[uint32][]known) {
	if own := told[block]; own != nil {
		for i := range own {
			c.warps[i].join(own[i])
		}
		c.fenced = joinFenced(c.fenced, told[fencedOf(block)])
		others := make(map[uint32][]known, len(told))
		for b, warps := range told {
			if b != block && b != fencedOf(block) {
				others[b] = warps
			}
		}
		told = others
	}
	c.blocks = joinBlocks(c.blocks, told)
}

// knowledge is the clocks of one warp.
type knowledge struct {
	index  int    // of the warp
	epoch  uint32 // of its accesses now
	common clock  // what all lanes know
	lanes  [32]*clock
	alone  uint32 // lanes that have a clock of their own
	gone   uint32 // lanes that have ended since the warp last met: nobody has published what they did
}

func newKnowledge(index, warps int) knowledge {
	return knowledge{index: index, epoch: 1, common: newClock(warps)}
}

// of is what a lane knows.
func (k *knowledge) of(lane uint8) *clock {
	if lane < allLanes && k.alone>>lane&1 != 0 {
		return k.lanes[lane]
	}
	return &k.common
}

// publish adds to a clock what lanes of the warp have done and know. alive are all lanes that are left.
func (k *knowledge) publish(to *clock, mask, alive uint32) {
	to.join(&k.common)
	for m := mask & k.alone; m != 0; m &= m - 1 {
		to.join(k.lanes[firstLane(m)])
	}
	if mask&alive == alive {
		to.warps[k.index].join(known{full: k.epoch})
	} else {
		to.warps[k.index].joinLanes(mask, k.epoch)
	}
	k.epoch++
}

// learn adds a clock to what lanes know.
func (k *knowledge) learn(from *clock, mask, alive uint32) {
	if mask&alive == alive {
		k.common.join(from)
		for m := k.alone; m != 0; m &= m - 1 {
			k.lanes[firstLane(m)].join(from)
		}
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		k.single(firstLane(m)).join(from)
	}
	if k.alone&alive == alive {
		k.raise(alive)
	}
}

// raise makes common what every lane has learned by itself.
func (k *knowledge) raise(alive uint32) {
	least := k.lanes[firstLane(alive)].clone()
	for m := alive & (alive - 1); m != 0; m &= m - 1 {
		least.limit(k.lanes[firstLane(m)])
	}
	k.common.join(&least)
}

// limit takes away what another clock does not know.
func (c *clock) limit(other *clock) {
	for i := range c.warps {
		c.warps[i].limit(other.warps[i])
	}
	c.fenced = limitFenced(c.fenced, other.fenced)
	if len(c.blocks) == 0 || len(other.blocks) == 0 {
		c.blocks = nil
		return
	}
	both := map[uint32][]known{}
	for block, warps := range c.blocks {
		if others := other.blocks[block]; others != nil {
			both[block] = append([]known(nil), warps...)
			for i := range warps {
				both[block][i].limit(others[i])
			}
		}
	}
	c.blocks = both
}

func (k *known) limit(other known) {
	if k.lanes == nil && other.lanes == nil {
		k.full = min(k.full, other.full)
		return
	}
	var lanes [32]uint32
	for i := range lanes {
		lanes[i] = min(k.lane(i), other.lane(i))
	}
	k.full = min(k.full, other.full)
	k.lanes = &lanes
}

// lane is the epoch up to which a lane's accesses are known.
func (k *known) lane(i int) uint32 {
	if k.lanes == nil {
		return k.full
	}
	return max(k.full, k.lanes[i])
}

// gathered ends the lanes' own clocks, where they all have met at a barrier whose clock is now common.
func (k *knowledge) gathered() { k.alone, k.gone = 0, 0 }

// stamp is what a lane has done and knows at this moment, for it to publish later: a clock that is never written, and the epoch of its own accesses.
type stamp struct {
	clock *clock
	epoch uint32
}

// stamps gives lanes their stamps.
func (k *knowledge) stamps(into *[32]stamp, mask uint32) {
	var shared *clock
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		if k.alone>>lane&1 != 0 {
			own := k.lanes[lane].clone()
			into[lane] = stamp{&own, k.epoch}
			continue
		}
		if shared == nil {
			common := k.common.clone()
			shared = &common
		}
		into[lane] = stamp{shared, k.epoch}
	}
	k.epoch++
}

// of is the whole of a lane's stamp.
func (s stamp) of(warp, lane int) clock {
	c := s.clock.clone()
	c.warps[warp].joinLanes(1<<lane, s.epoch)
	return c
}

// single gives a lane a clock of its own.
func (k *knowledge) single(lane int) *clock {
	if k.alone>>lane&1 == 0 {
		own := k.common.clone()
		k.lanes[lane] = &own
		k.alone |= 1 << lane
	}
	return k.lanes[lane]
}

// meet is bar.warp.sync: the lanes of mask learn from each other.
func (k *knowledge) meet(mask, alive uint32) {
	if mask&alive != alive {
		together := newClock(len(k.common.warps))
		k.publish(&together, mask, alive)
		k.learn(&together, mask, alive)
		return
	}
	for m := k.alone; m != 0; m &= m - 1 {
		k.common.join(k.lanes[firstLane(m)])
	}
	k.alone, k.gone = 0, 0
	k.common.warps[k.index] = known{full: k.epoch}
	k.epoch++
}
