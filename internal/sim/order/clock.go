package order

import (
	"math/bits"
	"reflect"
	"slices"
)

// component is the part of a vector clock that is about one warp.
type component struct {
	all   uint32      // the accesses of every lane up to and including this epoch are known
	lanes *[32]uint32 // later epochs of single lanes; shared between clocks, so never written
}

// covers reports whether the accesses of some lanes at an epoch are known.
func (c *component) covers(lanes, epoch uint32) bool {
	if c.all >= epoch {
		return true
	}
	if c.lanes == nil {
		return false
	}
	for m := lanes; m != 0; m &= m - 1 {
		if c.lanes[firstLane(m)] < epoch {
			return false
		}
	}
	return true
}

// join adds what other knows.
func (c *component) join(other component) {
	c.all = max(c.all, other.all)
	switch {
	case other.lanes == nil || other.lanes == c.lanes:
	case c.lanes == nil:
		c.lanes = other.lanes
	default:
		merged := *c.lanes
		for i, e := range other.lanes {
			merged[i] = max(merged[i], e)
		}
		c.lanes = &merged
	}
	if c.lanes != nil && c.lanesAreOld() {
		c.lanes = nil
	}
}

// lanesAreOld reports whether no single lane is known beyond the common epoch.
func (c *component) lanesAreOld() bool {
	for _, e := range c.lanes {
		if e > c.all {
			return false
		}
	}
	return true
}

// joinLanes adds the accesses of single lanes up to an epoch.
func (c *component) joinLanes(mask, epoch uint32) {
	lanes := [32]uint32{}
	if c.lanes != nil {
		lanes = *c.lanes
	}
	for i := range lanes {
		if mask>>i&1 != 0 {
			lanes[i] = max(lanes[i], epoch)
		}
	}
	c.lanes = &lanes
}

// intersect keeps what both components know.
func (c *component) intersect(other component) {
	if c.lanes == nil && other.lanes == nil {
		c.all = min(c.all, other.all)
		return
	}
	var lanes [32]uint32
	for i := range lanes {
		lanes[i] = min(c.lane(i), other.lane(i))
	}
	c.all = min(c.all, other.all)
	c.lanes = &lanes
}

// lane returns the epoch up to which the accesses of a lane are known.
func (c *component) lane(i int) uint32 {
	if c.lanes == nil {
		return c.all
	}
	return max(c.all, c.lanes[i])
}

// Clock is a vector clock of a block. It covers the block's own warps and, where blocks have
// synchronised, the warps of other blocks.
type Clock struct {
	warps  []component
	blocks Blocks      // other blocks; shared between clocks, so never written
	fenced []component // what precedes a proxy fence (proxy.go); shared like blocks
	strong []component // strong writes that are known by themselves (release.go); shared like blocks

	// The last value of another clock that this one's blocks include: all warps of a block bring the same one
	// to a barrier.
	compared struct{ of, included Blocks }
}

// Blocks is what is known of several blocks, by block index. Its values are never written once
// they are in a map. The key fencedKey(block) has the part of a block that precedes a proxy fence, and
// strongKey(block) its strong writes.
type Blocks map[uint32][]component

// NewClock makes a clock that knows nothing, of a block with a number of warps.
func NewClock(warps int) Clock { return Clock{warps: make([]component, warps)} }

func (c *Clock) clone() Clock {
	return Clock{warps: slices.Clone(c.warps), blocks: c.blocks, fenced: c.fenced, strong: c.strong}
}

// Join adds what another clock of the same block knows.
func (c *Clock) Join(other *Clock) {
	for i := range other.warps {
		c.warps[i].join(other.warps[i])
	}
	c.joinBlocks(other)
	c.fenced = joinParts(c.fenced, other.fenced)
	c.strong = joinParts(c.strong, other.strong)
}

func (c *Clock) joinBlocks(other *Clock) {
	if len(c.blocks) == 0 || len(other.blocks) == 0 {
		c.blocks = c.blocks.Join(other.blocks)
		return
	}
	if last := &other.compared; last.of.isSame(other.blocks) && last.included.isSame(c.blocks) {
		c.blocks = other.blocks
		return
	}
	joined := c.blocks.Join(other.blocks)
	if joined.isSame(other.blocks) {
		other.compared.of, other.compared.included = joined, c.blocks
	}
	c.blocks = joined
}

// JoinLanes adds the accesses of single lanes of a warp up to an epoch.
func (c *Clock) JoinLanes(warp int, mask, epoch uint32) { c.warps[warp].joinLanes(mask, epoch) }

// intersect keeps what both clocks know.
func (c *Clock) intersect(other *Clock) {
	for i := range c.warps {
		c.warps[i].intersect(other.warps[i])
	}
	c.fenced = intersectParts(c.fenced, other.fenced)
	c.strong = intersectParts(c.strong, other.strong)
	c.blocks = c.blocks.intersect(other.blocks)
}

// intersect returns what both values know. It makes a new map only where neither value is that.
func (b Blocks) intersect(other Blocks) Blocks {
	switch {
	case len(b) == 0 || len(other) == 0:
		return nil
	case b.isSame(other) || other.includes(b):
		return b
	case b.includes(other):
		return other
	}
	both := Blocks{}
	for block, warps := range b {
		if others := other[block]; others != nil {
			both[block] = intersectParts(warps, others)
		}
	}
	return both
}

// Join returns what either of two values knows. It makes a new map only where neither value
// suffices: after a barrier of a grid all warps of a block then share one.
func (b Blocks) Join(other Blocks) Blocks {
	switch {
	case len(other) == 0 || b.isSame(other):
		return b
	case len(b) == 0 || other.includes(b):
		return other
	case b.includes(other):
		return b
	}
	merged := make(Blocks, len(b))
	for block, warps := range b {
		merged[block] = warps
	}
	for block, warps := range other {
		have := merged[block]
		if have == nil || includesParts(warps, have) {
			merged[block] = warps
			continue
		}
		if includesParts(have, warps) {
			continue
		}
		both := slices.Clone(have)
		for i := range warps {
			both[i].join(warps[i])
		}
		merged[block] = both
	}
	return merged
}

// isSame reports whether two values are one map.
func (b Blocks) isSame(other Blocks) bool {
	return reflect.ValueOf(b).Pointer() == reflect.ValueOf(other).Pointer()
}

// includes reports whether a value knows all that another knows.
func (b Blocks) includes(other Blocks) bool {
	if len(b) < len(other) {
		return false
	}
	for block, warps := range other {
		if have := b[block]; have == nil || !includesParts(have, warps) {
			return false
		}
	}
	return true
}

// includesParts reports whether the components of one block know all that others of it know.
func includesParts(have, other []component) bool {
	if len(have) < len(other) {
		return false
	}
	if len(other) == 0 || &have[0] == &other[0] {
		return true
	}
	for i := range other {
		if !have[i].includes(&other[i]) {
			return false
		}
	}
	return true
}

// includes reports whether joining another component would add nothing.
func (c *component) includes(other *component) bool {
	if c.all < other.all {
		return false
	}
	if other.lanes != nil && other.lanes != c.lanes {
		for i, e := range other.lanes {
			if c.lane(i) < e {
				return false
			}
		}
	}
	return true
}

// coversFor reports whether the clock knows everything that another clock knows. Of one warp only
// the given lanes count.
func (c *Clock) coversFor(other *Clock, warp int, lanes uint32) bool {
	for i := range other.warps {
		counted := ^uint32(0)
		if i == warp {
			counted = lanes
		}
		if !c.warps[i].coversAll(&other.warps[i], counted) {
			return false
		}
	}
	for block, warps := range other.blocks {
		known := c.blocks[block]
		for i := range warps {
			if known == nil || !known[i].coversAll(&warps[i], ^uint32(0)) {
				return false
			}
		}
	}
	return true
}

// coversAll reports whether a component knows what another knows of some lanes.
func (c *component) coversAll(other *component, lanes uint32) bool {
	if other.lanes == nil && c.all >= other.all {
		return true
	}
	for m := lanes; m != 0; m &= m - 1 {
		if i := firstLane(m); c.lane(i) < other.lane(i) {
			return false
		}
	}
	return true
}

// Export returns a clock of the given block in the form that other blocks can import.
func (c *Clock) Export(block uint32) Blocks {
	own := Blocks{block: slices.Clone(c.warps)}
	if c.fenced != nil {
		own[fencedKey(block)] = c.fenced
	}
	if c.strong != nil {
		own[strongKey(block)] = c.strong
	}
	return own.Join(c.blocks)
}

// Import adds what is known of several blocks to a clock of the given block.
func (c *Clock) Import(block uint32, blocks Blocks) {
	if own := blocks[block]; own != nil {
		for i := range own {
			c.warps[i].join(own[i])
		}
		c.fenced = joinParts(c.fenced, blocks[fencedKey(block)])
		c.strong = joinParts(c.strong, blocks[strongKey(block)])
		others := make(Blocks, len(blocks))
		for b, warps := range blocks {
			if b&indexBits != block {
				others[b] = warps
			}
		}
		blocks = others
	}
	c.blocks = c.blocks.Join(blocks)
}

func firstLane(mask uint32) int { return bits.TrailingZeros32(mask) }
