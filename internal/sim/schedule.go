package sim

import (
	"fmt"

	"attune/internal/finding"
)

// Schedules of blocks that communicate.
//
// With seed 0 a block runs to its end before the next one does much, as long as nothing makes it
// wait. Defects between blocks hide in that order: no block ever reads what another has published
// half-way. With an odd seed every block therefore gives up its time slice after each access by
// which blocks communicate. All blocks then stand at the same access at the same time, and each of
// them sees the others' flags, counters and locks in every intermediate state. With seed 2 every other
// block does so, in the order in which they start: the blocks between run ahead, and find what the block
// before has not yet written in this launch. With other even seeds a block does so at random.
//
// With seed 0 a block also runs alone, unless the launch is cooperative: the next one starts when it has
// ended. A block that waits there waits for one that starts after it. CUDA promises neither that both
// are resident at once nor that the other one starts at all before the first has ended.

// communicatingSchedules is how many schedules, from seed 0 on, show the known defects of blocks that
// communicate: the order of indices, and the reverse in lockstep.
const communicatingSchedules = 2

// StatefulSchedules is the least number of schedules of a launch that needs several and leaves something
// to later launches. Under the third, every other block overtakes the one before, and finds what that
// block has not yet written in this launch.
const StatefulSchedules = 3

// MaxRescheduled is the length of a launch, in warp instructions, up to which several schedules are
// worth their time. A smaller problem shows the same orders of blocks. In the tests of kernels/ 127 of
// 2724 launches are such repeats, and add 4 % to the warp instructions.
const MaxRescheduled = 500_000

// schedules returns how many schedules the launch needs, after its end. Its result may depend on the
// order of blocks if it is cooperative, uses the result of an atomic operation, accesses global
// memory by volatile, relaxed, acquire or release operations, or executes a fence beyond the cluster;
// and on the order of warps if different groups of them complete one named barrier.
func (r *launch) schedules() int {
	depends := r.exchanges && r.grid != [3]int{1, 1, 1} || r.sharesBarrier.Load()
	if !depends || r.counters.WarpInstructions() > MaxRescheduled {
		return 1
	}
	return communicatingSchedules
}

// yieldsAfterAccess ends the time slice of the block after an access by which blocks communicate, if
// the schedule asks for it, and reports whether it does.
func (b *block) yieldsAfterAccess() bool {
	if b.launch.options.Seed == 0 || !b.launch.communicates || !b.isSlow() {
		return false
	}
	b.yielded = true
	return true
}

// isSlow reports whether the block lets others go first after an access.
func (b *block) isSlow() bool {
	const overtaking = 2
	switch seed := b.launch.options.Seed; {
	case seed == overtaking:
		return b.turn%2 == 0
	case seed%2 == 0:
		return b.coinFlip()
	}
	return true
}

// laterBlock is what a block waits for that can only come from a block that starts after it.
type laterBlock struct {
	where  position
	detail string
}

// noteLaterBlocks notes that the first blocks, which are alone, poll in loops that only a later block can
// end. A poll that may time out is no such loop.
func (s *interleaving) noteLaterBlocks() {
	for _, b := range s.resident {
		if b.clockWasRead() || !b.loopsForever(maxLoop) {
			return
		}
	}
	for _, b := range s.resident {
		b.later = &laterBlock{b.firstUnfinished(), fmt.Sprintf("block %v waits for a block that starts after it: %s; "+
			"only a cooperative launch guarantees that both are resident", b.at, b.describe("runs a loop in which nothing changes"))}
	}
}

// forgetLaterBlocks forgets what blocks wait for, because something else than a block may end the wait.
func (s *interleaving) forgetLaterBlocks() {
	for _, b := range s.resident {
		b.later = nil
	}
}

// reportLaterBlock reports a wait that a later block has ended.
func (b *block) reportLaterBlock() {
	if b.later == nil || b.aborted || !b.launch.options.Checks || !b.launch.options.Residency {
		return
	}
	occurrence := finding.Occurrence{Kind: finding.Deadlock, Severity: finding.Error, Missing: finding.CooperativeLaunch}
	b.add(occurrence, b.later.where, position{}, func(f *finding.Finding) { f.Detail = b.later.detail })
}
