package sim

// Schedules of blocks that communicate.
//
// With seed 0 a block runs to its end before the next one does much, as long as nothing makes it
// wait. Defects between blocks hide in that order: no block ever reads what another has published
// half-way. With an odd seed every block therefore gives up its time slice after each access by
// which blocks communicate. All blocks then stand at the same access at the same time, and each of
// them sees the others' flags, counters and locks in every intermediate state. With an even seed a
// block does so at random, so that some blocks are far ahead of others.

// communicatingSchedules is how many schedules, from seed 0 on, show the known defects of blocks that
// communicate: the order of indices, and the reverse in lockstep.
const communicatingSchedules = 2

// MaxRescheduled is the length of a launch, in warp instructions, up to which several schedules are
// worth their time. A smaller problem shows the same orders of blocks. In the tests of kernels/ 127 of
// 2724 launches are such repeats, and add 4 % to the warp instructions.
const MaxRescheduled = 500_000

// schedules returns how many schedules the launch needs, after its end. Its result may depend on the
// order of blocks if it is cooperative, uses the result of an atomic operation, accesses global
// memory by volatile, relaxed, acquire or release operations, or executes a fence beyond the cluster.
func (r *launch) schedules() int {
	if r.grid == [3]int{1, 1, 1} || !r.exchanges || r.counters.WarpInstructions() > MaxRescheduled {
		return 1
	}
	return communicatingSchedules
}

// yieldsAfterAccess ends the time slice of the block after an access by which blocks communicate, if
// the schedule asks for it, and reports whether it does.
func (b *block) yieldsAfterAccess() bool {
	seed := b.launch.options.Seed
	if seed == 0 || !b.launch.communicates || seed%2 == 0 && !b.coinFlip() {
		return false
	}
	b.yielded = true
	return true
}
