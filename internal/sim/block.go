package sim

import (
	"context"
	"fmt"
	"math/rand/v2"

	"attune/internal/sim/count"
	"attune/internal/sim/lanes"
	"attune/internal/sim/mem"
	"attune/internal/sim/order"
)

// block is a running block: its warps, its shared memory and its barriers. One goroutine runs it,
// one warp at a time.
type block struct {
	launch *launch
	index  uint64 // in the grid
	at     [3]int

	warps       []*warp
	running     *warp // that runs, or ran last
	left        int   // warps with lanes left
	shared      mem.Shared
	reserved    *mem.Shared // reserved.go; nil until the block accesses it
	barriers    [16]barrier
	mbarriers   map[uint32]*mbarrier // by address in shared memory
	changedMaps map[uint64]bool      // tensor maps in global memory that the block has changed since the last fence
	locations   order.Locations      // what strong accesses have published in shared memory
	landings    [32]uint32           // epochs of the bulk copies into shared memory (access_async.go)
	spareLoads  []*bulkLoad          // to be used again
	outgoing    []outgoingCopy       // from its shared memory to other blocks of its cluster

	warpgroups []warpgroup
	tiles      tiles
	moment     uint64 // in which products are computed (tile.go)
	operands   *keptOperands
	fragments  map[countedFragment]*count.Counters // of one wmma.load or wmma.store each

	undefinedStores map[uint32]undefinedStore // by the address of a byte of shared memory

	held order.Held // pages of global memory, for the duration of one instruction

	random  *rand.Rand
	changes uint64 // number of events that another group may be waiting for
	steps   uint64 // warp instructions so far
	stall   stall

	turn  uint64      // how many blocks were started before it
	later *laterBlock // schedule.go; nil for none

	cluster *cluster // nil for none
	rank    int      // in the cluster
	ended   bool

	freeRegisters int // that warps have released (op_warpgroup.go)

	progressed bool // something other than waiting has happened in this time slice
	yielded    bool // a warp has ended the time slice of the block (schedule.go)
	aborted    bool

	marks    marks
	executed []uint64 // as the launch's
}

func (r *launch) newBlock() *block {
	threads := r.threads[0] * r.threads[1] * r.threads[2]
	b := &block{launch: r, mbarriers: map[uint32]*mbarrier{}, tiles: tiles{}, operands: &keptOperands{}, fragments: map[countedFragment]*count.Counters{}, marks: make(marks, len(r.program.ops)), executed: make([]uint64, len(r.executed))}
	n := (threads + 31) / 32
	for i := range n {
		w := &warp{block: b, index: i, sharing: everyLane, isNew: true}
		w.frame = w.newFrame(r.code, nil)
		b.warps = append(b.warps, w)
	}
	b.warpgroups = make([]warpgroup, (n+groupWarps-1)/groupWarps)
	return b
}

// blockAt returns the coordinates of a block.
func (r *launch) blockAt(index uint64) [3]int {
	x, y := uint64(r.grid[0]), uint64(r.grid[1])
	return [3]int{int(index % x), int(index / x % y), int(index / x / y)}
}

// start prepares the block to run as the one with an index of the grid.
func (b *block) start(index uint64) {
	r := b.launch
	b.index = index
	b.at = r.blockAt(index)
	b.random = rand.New(rand.NewPCG(r.options.Seed, index))
	b.shared.Reset(r.layout, r.dynamic, uint64(r.shared), r.options.Checks)
	clear(b.mbarriers)
	clear(b.undefinedStores)
	b.reserved = nil
	b.locations, b.outgoing = order.Locations{}, b.outgoing[:0]
	clear(b.warpgroups)
	b.landings, b.ended, b.freeRegisters = [32]uint32{}, false, 0
	for i := range b.barriers {
		b.barriers[i] = barrier{}
	}
	b.changes, b.steps, b.aborted, b.left, b.later = 0, 0, false, len(b.warps), nil
	b.stall = stall{nextLoopCheck: loopCheckSteps}
	for _, w := range b.warps {
		w.start()
	}
}

// start prepares a warp to run from the first instruction.
func (w *warp) start() {
	b := w.block
	threads := b.launch.threads[0] * b.launch.threads[1] * b.launch.threads[2]
	w.alive = everyLane
	if rest := threads - w.index*32; rest < 32 {
		w.alive = 1<<rest - 1
	}
	w.registers = registersAtLaunch(b.launch.code.fn)
	entry := w.entryFrame()
	if !w.isNew { // registers of a new warp are zero; most pages of them are never touched
		clear(entry.R32[:entry.code.tail32])
		clear(entry.R64[:entry.code.tail64])
		clear(entry.Preds)
		clear(entry.products)
	}
	w.isNew = false
	w.fillSpecials(entry)
	w.groups, w.carry, w.counters, w.retired, w.exited = w.groups[:0], 0, count.Counters{}, 0, 0
	w.clocks = order.NewWarp(uint32(b.index), w.index, b.agents())
	w.fences, w.polledBarrier, w.lastBuffer = order.Fences{}, nil, nil
	w.copies, w.bulk, w.inits = copyQueue{}, bulkQueue{}, initializations{}
	w.wgmma = productQueue{spare: w.wgmma.spare, accumulators: w.wgmma.accumulators}
	entry.taint.reset()
	w.taintUnset(entry, w.alive)
	w.clusterPhase = [32]uint64{}
	w.local = [32]mem.Local{}
	w.load(&laneGroup{pc: 0, lanes: w.alive, frame: entry})
}

func (w *warp) entryFrame() *frame {
	f := w.frame
	for f.caller != nil {
		f = f.caller
	}
	return f
}

// tail is the part of a frame after its registers: constants, which are the same in every warp.
type tail struct {
	t32 []lanes.V32
	t64 []lanes.V64
}

func (r *launch) newTail(c *code) *tail {
	t := &tail{make([]lanes.V32, c.n32-c.tail32), make([]lanes.V64, c.n64-c.tail64)}
	for _, k := range c.constants {
		value := k.value
		switch k.base {
		case baseShared:
			value += uint64(r.shared + r.layout.At(k.index))
		case baseDynamic:
			value += uint64(r.shared + r.layout.DynamicAt())
		case baseGlobal:
			value += r.globals[k.index]
		}
		for lane := range 32 {
			if k.slot.file == file32 {
				t.t32[int(k.slot.index)-c.tail32][lane] = uint32(value)
			} else {
				t.t64[int(k.slot.index)-c.tail64][lane] = value
			}
		}
	}
	return t
}

// timeSlice returns how many instructions a warp runs before the next one: always the same with
// seed 0, a random number otherwise.
func (b *block) timeSlice() int {
	if b.launch.options.Seed == 0 {
		return 512
	}
	return 1 + b.random.IntN(700)
}

// coinFlip decides what PTX leaves open. With seed 0 it is always false.
func (b *block) coinFlip() bool { return b.launch.options.Seed != 0 && b.random.IntN(2) == 1 }

// run runs the block's warps until all have ended, none can continue, or the number of warp
// instructions is used up.
func (b *block) run(ctx context.Context, budget int) {
	b.progressed = false
	for left := budget; left > 0 && b.left > 0 && !b.stopped() && ctx.Err() == nil; {
		before := b.changes
		b.yielded = false
		ran := b.round(&left, b.launch.options.Seed != 0)
		if b.changes == before && b.launch.options.Seed != 0 && !b.yielded {
			// The random choice may have skipped the only warp that can change something.
			ran += b.round(&left, false)
		}
		if b.changes == before && b.onlyPolls() && b.yieldsToCluster() {
			b.progressed = true
			return
		}
		yielded := b.yielded
		stuck := b.changes == before && (b.onlyPolls() && b.pollsForever() || b.isLoopCheckDue() && b.loopsForever(b.loopLimit()))
		b.progressed = b.progressed || !stuck
		if b.left == 0 || b.stopped() {
			return
		}
		if b.steps > b.launch.options.MaxSteps {
			b.abort(fmt.Errorf("block %v has executed more than %d warp instructions: an endless loop? %s", b.at, b.launch.options.MaxSteps, b.describe("running")))
			return
		}
		if stuck {
			if (ran != 0 || b.awaitsCluster()) && b.launch.communicates {
				return // another block may change what this one waits for
			}
			if !b.advanceClock() && !b.unblock() {
				b.reportDeadlock()
				return
			}
		}
		if yielded {
			return
		}
	}
}

// round gives each runnable warp a time slice and returns how many were runnable. With random it
// picks a warp at random, as often as there are warps.
func (b *block) round(left *int, random bool) int {
	ran := 0
	for i := range b.warps {
		w := b.warps[i]
		if random {
			w = b.warps[b.random.IntN(len(b.warps))]
		}
		if w.alive == 0 || !w.runnable() {
			continue
		}
		ran++
		b.running = w
		before := w.retired
		w.run(b.timeSlice())
		b.steps += w.retired - before
		*left -= int(w.retired - before)
		if b.stopped() || b.yielded {
			break
		}
	}
	return ran
}

func (b *block) done() bool    { return b.left == 0 || b.aborted }
func (b *block) stopped() bool { return b.aborted || b.launch.halt.Load() }

// abort ends the launch with an error.
func (b *block) abort(err error) {
	b.aborted = true
	b.launch.fail(err)
}

// finish checks what is left when the block ends, and adds its counters to the launch's.
func (b *block) finish() {
	b.dropCopies()
	b.finishStores()
	b.checkAfterEnd()
	b.reportLaterBlock()
	b.held.Unlock()
	b.launch.mu.Lock()
	defer b.launch.mu.Unlock()
	b.addCounters()
	for i, m := range b.marks {
		b.launch.marks[i] |= m
	}
	for i, n := range b.executed {
		b.launch.executed[i] += n
	}
	clear(b.marks)
	clear(b.executed)
}

// addCounters adds the counters of the block's warps to those of the launch.
func (b *block) addCounters() {
	for _, w := range b.warps {
		b.launch.counters.Add(&w.counters)
	}
}

// lockPages locks the pages of a range of a buffer until the next lock, or until the end of the
// instruction. It does nothing while one block runs at a time. Blocks that run at the same time may
// access the same bytes, in a kernel with a race too, so every access to global memory needs a lock.
func (b *block) lockPages(buffer *mem.Buffer, offset, size int) {
	if b.launch.parallel && !b.held.Covers(buffer.Shadow, offset, size, false) {
		b.held.Lock(buffer.Shadow, offset, size)
	}
}

// sharePages is lockPages for an access that reads the bytes and records nothing.
func (b *block) sharePages(buffer *mem.Buffer, offset, size int) {
	if b.launch.parallel && !b.held.Covers(buffer.Shadow, offset, size, true) {
		b.held.Share(buffer.Shadow, offset, size)
	}
}

// lockUnchecked locks the pages of an access that the checkers do not look at.
func (b *block) lockUnchecked(buffer *mem.Buffer, offset, size int, d mem.Direction) {
	if d == mem.Read {
		b.sharePages(buffer, offset, size)
	} else {
		b.lockPages(buffer, offset, size)
	}
}

// lanesEnded updates the block after lanes of a warp have ended.
func (b *block) lanesEnded(w *warp) {
	b.changes++
	if w.alive == 0 {
		b.left--
		w.endInWarpgroup()
	}
	b.checkBarriers()
	if b.cluster != nil {
		b.cluster.completeIfReady()
	}
}
