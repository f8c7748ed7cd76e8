package order

import "slices"

// The generic and the async proxy.
//
// Tensor cores and bulk copies access memory through the async proxy. They do not see what a thread
// stored through the generic proxy until a fence.proxy.async stands between the two. The writer may
// execute the fence before it publishes its writes, or the reader after it has learned of them.
//
// Clock.fenced is therefore the part of a clock that precedes a proxy fence. Everything that
// carries a clock from one thread to another carries both parts. An access of the async proxy
// checks that the last write to its bytes is in the fenced part.
//
// The other direction needs no fence: a thread that has waited for an asynchronous operation may
// write what the operation has read.

// FenceProxy puts everything that lanes have done and know before a proxy fence.
func (w *Warp) FenceProxy(mask, alive uint32) {
	if mask&alive == alive {
		w.common.fence(w.index, component{all: w.epoch})
		for m := w.separate; m != 0; m &= m - 1 {
			w.lanes[firstLane(m)].fence(w.index, component{all: w.epoch})
		}
		w.epoch++
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		var own component
		own.joinLanes(m&-m, w.epoch)
		w.separateLane(firstLane(m)).fence(w.index, own)
	}
	w.epoch++
	if w.separate&alive == alive {
		w.raiseCommon(alive)
	}
}

// fence makes the fenced part of a clock equal to what the clock knows, plus own, which is about
// the warp with the given index.
func (c *Clock) fence(index int, own component) {
	c.fenced = slices.Clone(c.warps)
	c.fenced[index].join(own)
	c.blocks = c.blocks.fence()
}

// fence returns the same knowledge with all of it before a proxy fence.
func (b Blocks) fence() Blocks {
	if len(b) == 0 {
		return b
	}
	both := make(Blocks, 2*len(b))
	for key, warps := range b {
		switch {
		case key == key&indexBits:
			both[key], both[fencedKey(key)] = warps, warps
		case key == strongKey(key&indexBits):
			both[key] = warps
		}
	}
	return both
}

// joinParts merges two parts of clocks. It makes a new slice only where neither of the two suffices.
func joinParts(a, b []component) []component {
	switch {
	case len(b) == 0:
		return a
	case len(a) == 0 || includesParts(b, a):
		return b
	case includesParts(a, b):
		return a
	}
	both := slices.Clone(a)
	for i := range both {
		both[i].join(b[i])
	}
	return both
}

// intersectParts keeps what is in both parts.
func intersectParts(a, b []component) []component {
	switch {
	case len(a) == 0 || len(b) == 0:
		return nil
	case includesParts(b, a):
		return a
	case includesParts(a, b):
		return b
	}
	both := slices.Clone(a)
	for i := range both {
		both[i].intersect(b[i])
	}
	return both
}

// indexBits are the bits of a key of Blocks that are the index of a block. No run gets as far as a
// billion blocks.
const indexBits = 1<<30 - 1

// fencedKey is the key of a block's fenced part in Blocks, and strongKey that of its strong writes.
func fencedKey(block uint32) uint32 { return block | 1<<31 }

func strongKey(block uint32) uint32 { return block | 1<<30 }
