package sim

import "slices"

// Detection of waits without end.
//
// block.changes counts the events that a waiting group may be waiting for: stores that change
// memory, arrivals, ends of copies and of lanes. A block is stuck when nothing changes although all
// of its warps have run. There are two cases. Either every group only polls something, or every
// group returns to the same instruction with the same registers.

// stall is what a block remembers while nothing changes. Each counter is valid for the value of
// block.changes beside it.
type stall struct {
	lastChange     uint64 // value of block.changes
	lastChangeStep uint64 // steps at that time
	nextLoopCheck  uint64 // steps at which to look for endless loops

	pollChange uint64 // value of block.changes
	pollRounds int    // rounds since then in which all groups only polled

	clockReadAt  uint64 // value of block.changes, plus 1, when a group last read the clock
	clockOffset  uint64 // that has been added to the clock (advanceClock)
	clockStepsAt uint64 // value of block.changes
	clockSteps   int    // times that the clock was advanced since then

	yieldsAt uint64 // value of block.changes
	yields   int    // time slices given up since then in favour of other blocks of the cluster
}

// notePoll notes that the running group has polled something without success: the phase of an
// mbarrier, a flag, a lock.
func (w *warp) notePoll() {
	g := w.group
	if g.pollsAt != w.block.changes {
		g.pollsAt, g.polls = w.block.changes, 0
	}
	g.polls++
}

// pollLimit is how often a group may poll, with nothing changing, before it counts as only polling.
const pollLimit = 8

// onlyPolls reports whether every runnable group of the warp does nothing but poll.
func (w *warp) onlyPolls() bool {
	polls := func(g *laneGroup) bool { return g.polls >= pollLimit && g.pollsAt == w.block.changes }
	if w.group != nil && !polls(w.group) {
		return false
	}
	for _, g := range w.groups {
		if g.wait == nil && !polls(g) {
			return false
		}
	}
	return true
}

// onlyPolls reports whether every runnable group of the block does nothing but poll.
func (b *block) onlyPolls() bool {
	for _, w := range b.warps {
		if w.alive != 0 && !w.onlyPolls() {
			return false
		}
	}
	return true
}

// maxPollRounds bounds the rounds of polling where no endless loop can be shown, because lanes
// diverge and reconverge on the way.
const maxPollRounds = 20_000

// pollsForever reports whether the groups that only poll do so in endless loops.
func (b *block) pollsForever() bool {
	if !b.clockWasRead() && b.loopsForever(maxLoop) {
		return true
	}
	s := &b.stall
	if b.changes != s.pollChange {
		s.pollChange, s.pollRounds = b.changes, 0
	}
	s.pollRounds++
	return s.pollRounds > maxPollRounds || b.clockWasRead() && s.pollRounds > clockRounds
}

// clockWasRead reports whether a group has read the clock since anything changed.
func (b *block) clockWasRead() bool { return b.stall.clockReadAt == b.changes+1 }

// The clock is advanced after clockRounds rounds of polling. As a global timer in nanoseconds, the
// first step is a millisecond, each further step twice as long, and all steps together exceed an
// hour.
const (
	clockRounds    = 4
	firstClockStep = 1 << 20
	maxClockSteps  = 22
)

// advanceClock advances the clock where groups that only poll also read the clock. A wait with a
// timeout then times out, and a wait that only sleeps longer and longer is recognised as endless.
// It reports whether the clock was advanced.
func (b *block) advanceClock() bool {
	s := &b.stall
	if s.clockStepsAt != b.changes {
		s.clockStepsAt, s.clockSteps = b.changes, 0
	}
	if !b.clockWasRead() || s.clockSteps == maxClockSteps {
		return false
	}
	s.clockOffset += firstClockStep << s.clockSteps
	s.clockSteps++
	s.pollRounds = 0
	return true
}

// maxYields is how many time slices a block that only polls gives up before it may count as stuck.
const maxYields = 64

// yieldsToCluster reports whether a block that only polls gives up its time slice: other blocks of
// its cluster may change what it polls.
func (b *block) yieldsToCluster() bool {
	if b.cluster == nil || len(b.cluster.blocks) == 1 {
		return false
	}
	s := &b.stall
	if s.yieldsAt != b.changes {
		s.yieldsAt, s.yields = b.changes, 0
	}
	s.yields++
	return s.yields <= maxYields
}

// loopCheckSteps is how many warp instructions a block may execute with nothing changing before the
// first look for endless loops. Most kernels store something before.
const loopCheckSteps = 250_000

// isLoopCheckDue reports whether it is time to look for endless loops.
func (b *block) isLoopCheckDue() bool {
	s := &b.stall
	if b.changes != s.lastChange {
		s.lastChangeStep, s.lastChange, s.nextLoopCheck = b.steps, b.changes, b.steps+loopCheckSteps
		return false
	}
	return b.steps >= s.nextLoopCheck
}

// loopLimit is how many instructions of each group a look for endless loops may take: a sixteenth of
// those that the block has executed with nothing changing, so that the looks cost little.
func (b *block) loopLimit() int {
	return int(min((b.steps-b.stall.lastChangeStep)/16, maxLoop))
}

// loopsForever reports whether every runnable group returns to the same instruction with the same
// registers while nothing changes in memory, within a number of instructions. Such a group never
// leaves its loop.
func (b *block) loopsForever(limit int) bool {
	for _, w := range b.warps {
		if w.alive == 0 || !w.runnable() {
			continue
		}
		if !w.loopsForever(limit) {
			b.stall.nextLoopCheck = b.steps + (b.steps - b.stall.lastChangeStep) // the interval doubles
			return false
		}
	}
	return true
}

// loopsForever runs each runnable group until it returns to its present state, and reports whether
// all did.
func (w *warp) loopsForever(limit int) bool {
	park := func() {
		if w.group != nil {
			w.save()
			w.groups = append(w.groups, w.group)
			w.group = nil
		}
	}
	park()
	for range len(w.groups) {
		g := w.groups[0]
		w.groups = append(w.groups[:0], w.groups[1:]...)
		if g.wait != nil {
			w.groups = append(w.groups, g)
			continue
		}
		returned := w.returnsToState(g, limit)
		park()
		if !returned {
			return false
		}
	}
	return true
}

// maxLoop is the longest loop that returnsToState recognises, in instructions.
const maxLoop = 100_000

// returnsToState runs a group until it is at its present instruction with its present registers and
// local memory, and reports whether it got there with nothing changed.
func (w *warp) returnsToState(g *laneGroup, limit int) bool {
	w.load(g)
	pc, mask, before := w.pc, w.lanes, w.snapshot()
	changes := w.block.changes
	for range limit {
		w.runGroup(1)
		switch {
		case w.group != g || w.halted || w.block.changes != changes || w.block.stopped():
			return false
		case w.pc == pc && w.lanes == mask && w.frame.code == before.frames[0].code && before.equal(w):
			return true
		}
	}
	return false
}

// snapshot is the state of the running group.
type snapshot struct {
	frames []frame // the innermost first
	local  [32][]byte
}

func (w *warp) snapshot() *snapshot {
	s := &snapshot{}
	for f := w.frame; f != nil; f = f.caller {
		s.frames = append(s.frames, frame{code: f.code, Registers: f.Clone(), params: slices.Clone(f.params), back: f.back})
	}
	for m := w.lanes; m != 0; m &= m - 1 {
		lane := firstLane(m)
		s.local[lane] = slices.Clone(w.local[lane].Data)
	}
	return s
}

func (s *snapshot) equal(w *warp) bool {
	f := w.frame
	for i := range s.frames {
		was := &s.frames[i]
		if f == nil || f.code != was.code || f.back != was.back || !f.Equal(&was.Registers) || !slices.Equal(f.params, was.params) {
			return false
		}
		f = f.caller
	}
	for m := w.lanes; m != 0; m &= m - 1 {
		if lane := firstLane(m); !slices.Equal(w.local[lane].Data, s.local[lane]) {
			return false
		}
	}
	return f == nil
}

// unblock lets lanes continue that wait for lanes of their own warp, and reports whether there were
// any. The measures are in the order of how far they depart from what compilers arrange.
func (b *block) unblock() bool {
	for _, measure := range []func(*warp) bool{
		(*warp).releaseAllReturning, (*warp).proceedWhereAwaited, (*warp).releaseArrived, (*warp).proceed,
	} {
		found := false
		for _, w := range b.warps {
			found = measure(w) || found
		}
		if found {
			return true
		}
	}
	return false
}
