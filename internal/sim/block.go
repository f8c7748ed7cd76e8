package sim

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
)

// block is a block of threads that runs: its warps, its shared memory and its barriers. One goroutine runs it, warp after warp.
type block struct {
	launch *launch
	index  uint64 // in the grid
	at     [3]int

	warps    []*warp
	left     int // warps with lanes left
	shared   sharedMemory
	barriers [16]barrier
	mbars    map[uint32]*mbarrier // by offset in shared memory
	syncs    syncPlaces           // clocks that places in shared memory hold
	landed   [32]uint32           // epochs of the bulk copies into shared memory (asyncproxy.go)

	sent []sentCopy // from its shared memory to that of other blocks of its cluster

	warpgroups []warpgroup
	tiles      tiles

	held []*globalPage // of global memory, while one access to it lasts

	random  *rand.Rand
	changes uint64 // counts what others may be waiting for
	steps   uint64 // warp instructions so far

	quietFrom   uint64 // steps at the last change
	quietCount  uint64 // changes by then
	vainCount   uint64 // changes when everybody began to look in vain
	vainRounds  int    // since then
	nextCircles uint64 // steps at which to look whether everything goes round in circles

	timedAt uint64 // changes, plus 1, when somebody last looked at the clock
	ahead   uint64 // that the clock has been put on (leap)
	leapsAt uint64 // changes when it was
	leaps   int    // since then

	cluster *cluster // nil for none
	rank    int      // in it
	over    bool     // it has ended
	yielded int      // turns that it has left to others of the cluster since anything changed
	changed uint64   // changes then

	freeRegisters int // that warps have given back (registers.go)

	progressed bool // something other than waiting has happened in this turn
	aborted    bool
}

func (r *launch) newBlock() *block {
	threads := r.threads[0] * r.threads[1] * r.threads[2]
	b := &block{launch: r, mbars: map[uint32]*mbarrier{}, tiles: tiles{}}
	n := (threads + 31) / 32
	for i := range n {
		b.warps = append(b.warps, newWarp(b, i, n))
	}
	b.warpgroups = make([]warpgroup, (n+groupWarps-1)/groupWarps)
	return b
}

func newWarp(b *block, index, warps int) *warp {
	w := &warp{block: b, index: index}
	w.frame = b.newFrame(w, b.launch.code, nil)
	return w
}

// start makes the block ready to run as one of the grid.
func (b *block) start(index uint64) {
	r := b.launch
	b.index = index
	b.at = [3]int{
		int(index % uint64(r.grid[0])), int(index / uint64(r.grid[0]) % uint64(r.grid[1])), int(index / uint64(r.grid[0]) / uint64(r.grid[1])),
	}
	b.random = rand.New(rand.NewPCG(r.options.Seed, index))
	b.shared.reset(r)
	clear(b.mbars)
	b.syncs, b.sent = syncPlaces{}, b.sent[:0]
	clear(b.warpgroups)
	b.landed, b.over, b.freeRegisters = [32]uint32{}, false, 0
	for i := range b.barriers {
		b.barriers[i] = barrier{}
	}
	b.changes, b.steps, b.aborted, b.left = 0, 0, false, len(b.warps)
	b.quietFrom, b.quietCount, b.nextCircles = 0, 0, quietSteps
	b.vainCount, b.vainRounds = 0, 0
	b.timedAt, b.ahead, b.leapsAt, b.leaps = 0, 0, 0, 0
	for _, w := range b.warps {
		w.start()
	}
}

// start makes a warp ready at the first instruction.
func (w *warp) start() {
	b := w.block
	threads := b.launch.threads[0] * b.launch.threads[1] * b.launch.threads[2]
	w.alive = everyLane
	if rest := threads - w.index*32; rest < 32 {
		w.alive = 1<<rest - 1
	}
	w.registers = registersAtLaunch(b.launch.code.fn)
	entry := w.entryFrame()
	clear(entry.r32[:entry.code.tail32])
	clear(entry.r64[:entry.code.tail64])
	clear(entry.preds)
	w.fillSpecials(entry)
	w.groups, w.carry, w.count, w.retired = w.groups[:0], 0, Counters{}, 0
	w.knows = newKnowledge(w.index, b.agents())
	w.order, w.waitsFor, w.lastGlobal = order{}, nil, nil
	w.copies, w.bulk = copyQueue{}, bulkQueue{}
	w.wgmma = productQueue{spare: w.wgmma.spare, sums: w.wgmma.sums}
	clear(entry.products)
	w.clusterPhase = [32]uint64{}
	w.local = [32]localMemory{}
	w.load(&group{pc: 0, lanes: w.alive, frame: entry})
}

func (w *warp) entryFrame() *frame {
	f := w.frame
	for f.caller != nil {
		f = f.caller
	}
	return f
}

// tail is the part of a frame behind its registers: constants, the same for every warp.
type tail struct {
	t32 []v32
	t64 []v64
}

func (r *launch) newTail(c *code) *tail {
	t := &tail{make([]v32, c.n32-c.tail32), make([]v64, c.n64-c.tail64)}
	for _, k := range c.constants {
		value := k.value
		switch k.from {
		case fromShared:
			value += uint64(r.shared + max(r.layout.at[k.index], 0))
		case fromDynamic:
			value += uint64(r.shared + r.layout.dynamicAt())
		case fromGlobal:
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

// localGap lies between the local variables of functions that call each other.
const localGap = 64

// newFrame makes a frame for a call, or for the entry where there is no caller.
func (b *block) newFrame(w *warp, c *code, caller *frame) *frame {
	t := b.launch.tails[c]
	f := &frame{
		code: c, caller: caller, r32: make([]v32, c.n32), r64: make([]v64, c.n64), preds: make([]uint32, c.nPred),
		params: make([]byte, 32*c.paramSize),
	}
	if len(c.products) > 0 {
		f.products = make([]asyncRegister, c.n32)
	}
	if caller != nil {
		f.local = alignUp(caller.local+caller.code.localSize+localGap, max(c.localAlign, 16))
	}
	copy(f.r32[c.tail32:], t.t32)
	copy(f.r64[c.tail64:], t.t64)
	for _, k := range c.constants {
		if k.from == fromLocal {
			for lane := range 32 {
				f.setLane(k.slot, lane, k.value+uint64(f.local))
			}
		}
	}
	if caller != nil {
		w.fillSpecials(f)
	}
	return f
}

// setLane writes a value to a register in one lane; with no register, nothing.
func (f *frame) setLane(s slot, lane int, value uint64) {
	switch s.file {
	case file32:
		f.r32[s.index][lane] = uint32(value)
	case file64:
		f.r64[s.index][lane] = value
	case filePred:
		f.preds[s.index] = f.preds[s.index]&^(1<<lane) | uint32(value&1)<<lane
	}
}

// lane reads a register in one lane.
func (f *frame) lane(s slot, lane int) uint64 {
	if s.file == file32 {
		return uint64(f.r32[s.index][lane])
	}
	return f.r64[s.index][lane]
}

// forever lets a block run to its end.
func (b *block) forever() int { return math.MaxInt }

// turn is a block's turn when blocks take turns.
func (b *block) turn() int { return 20_000 }

// quantum is how long a warp runs before the next one does: always the same with seed 0, anything with others.
func (b *block) quantum() int {
	if b.launch.options.Seed == 0 {
		return 512
	}
	return 1 + b.random.IntN(700)
}

// coin decides what nothing else decides.
func (b *block) coin() bool { return b.launch.options.Seed != 0 && b.random.IntN(2) == 1 }

// run gives warps their turns until all have ended, nothing can go on, or the budget is used up.
func (b *block) run(ctx context.Context, budget func() int) {
	b.progressed = false
	for left := budget(); left > 0 && b.left > 0 && !b.stopped() && ctx.Err() == nil; {
		before := b.changes
		ran := b.round(&left, b.launch.options.Seed != 0)
		if b.changes == before && b.launch.options.Seed != 0 {
			ran += b.round(&left, false) // chance may have passed over the warp that can do something
		}
		if b.changes == before && b.onlyLooks() && b.yields() {
			b.progressed = true
			return
		}
		stuck := b.changes == before && (b.onlyLooks() && b.confirmed() || b.quiet() && b.circles())
		b.progressed = b.progressed || !stuck
		if b.left == 0 || b.stopped() {
			return
		}
		if b.steps > b.launch.options.MaxSteps {
			b.abort(fmt.Errorf("block %v has executed more than %d warp instructions: an endless loop? %s", b.at, b.launch.options.MaxSteps, b.describe("running")))
			return
		}
		if stuck {
			if (ran != 0 || b.awaitsCluster()) && b.launch.layout.talks {
				return // another block may bring what this one waits for
			}
			if !b.leap() && !b.loosen() {
				b.reportStuck()
				return
			}
		}
	}
}

// quietSteps is how many warp instructions a block may execute with nothing changing before it is looked at more closely.
const quietSteps = 20_000_000

// quiet says whether it is time to look for circles.
func (b *block) quiet() bool {
	if b.changes != b.quietCount {
		b.quietFrom, b.quietCount, b.nextCircles = b.steps, b.changes, b.steps+quietSteps
		return false
	}
	return b.steps >= b.nextCircles
}

// confirmed says whether what only looks does so in circles. Where that cannot be seen, because lanes part and meet on the way, enough rounds of it will do.
func (b *block) confirmed() bool {
	if !b.timed() && b.circles() {
		return true
	}
	if b.changes != b.vainCount {
		b.vainCount, b.vainRounds = b.changes, 0
	}
	b.vainRounds++
	return b.vainRounds > mostVainRounds || b.timed() && b.vainRounds > leapRounds
}

const mostVainRounds = 20_000

// timed says whether somebody has looked at the clock since anything changed.
func (b *block) timed() bool { return b.timedAt == b.changes+1 }

// leap puts the clock on where whoever looks in vain looks at the clock too: a wait that gives up after a while does so, and one that only sleeps longer and
// longer between its looks is seen to be one without end. It says whether there was any use in it.
func (b *block) leap() bool {
	if b.leapsAt != b.changes {
		b.leapsAt, b.leaps = b.changes, 0
	}
	if !b.timed() || b.leaps == mostLeaps {
		return false
	}
	b.ahead += firstLeap << b.leaps
	b.leaps++
	b.vainRounds = 0
	return true
}

// A leap comes after so many rounds. The first is a millisecond, each of the next ones twice the last, and all of them together more than an hour.
const (
	leapRounds = 4
	firstLeap  = 1 << 20
	mostLeaps  = 22
)

// circles says whether every group that can run comes back to the same instruction with the same registers while nothing changes in memory: then it
// does so for ever.
func (b *block) circles() bool {
	for _, w := range b.warps {
		if w.alive == 0 || !w.runnable() {
			continue
		}
		if !w.circles() {
			b.nextCircles = b.steps + (b.steps - b.quietFrom) // less and less often
			return false
		}
	}
	return true
}

// round gives every warp that can run a turn, or as many warps as there are that chance has picked, and says how many could.
func (b *block) round(left *int, pick bool) int {
	ran := 0
	for i := range b.warps {
		w := b.warps[i]
		if pick {
			w = b.warps[b.random.IntN(len(b.warps))]
		}
		if w.alive == 0 || !w.runnable() {
			continue
		}
		ran++
		before := w.retired
		w.run(b.quantum())
		b.steps += w.retired - before
		*left -= int(w.retired - before)
		if b.stopped() {
			break
		}
	}
	return ran
}

// onlyLooks says whether nothing in the block can do anything but look for what does not come.
func (b *block) onlyLooks() bool {
	for _, w := range b.warps {
		if w.alive != 0 && !w.onlyLooks() {
			return false
		}
	}
	return true
}

// loosen lets lanes go on that wait for lanes of their own warp, and says whether there were any.
func (b *block) loosen() bool {
	for _, step := range []func(*warp) bool{(*warp).sendAllHome, (*warp).insistWhereAwaited, (*warp).release, (*warp).insist} {
		found := false
		for _, w := range b.warps {
			found = step(w) || found
		}
		if found {
			return true
		}
	}
	return false
}

func (b *block) done() bool    { return b.left == 0 || b.aborted }
func (b *block) stopped() bool { return b.aborted || b.launch.failed.Load() != nil }

// abort ends the launch with an error.
func (b *block) abort(err error) {
	b.aborted = true
	b.launch.fail(err)
}

// finish adds what the block has counted to the launch's counters.
func (b *block) finish() {
	b.checkCopiesLeft()
	b.endStores()
	b.endShared()
	b.letGo()
	b.launch.mu.Lock()
	defer b.launch.mu.Unlock()
	for _, w := range b.warps {
		b.launch.counters.add(&w.count)
	}
}

// hold keeps other blocks from the pages of a range, until the next access of this block or the end of its instruction: what the checkers remember of an
// access and what it does to the bytes are one step. Two blocks that write one value are else told of a race or not, as chance will have it.
func (b *block) hold(al *allocation, offset, size int) {
	if !b.launch.parallel {
		return
	}
	pages := al.shadow.pages[offset/pageBytes : (offset+size+pageBytes-1)/pageBytes]
	if len(pages) == 1 && len(b.held) == 1 && b.held[0] == &pages[0] {
		return // lanes of a warp mostly go to one page
	}
	b.letGo()
	for i := range pages {
		pages[i].mu.Lock()
		b.held = append(b.held, &pages[i])
	}
}

// letGo ends hold.
func (b *block) letGo() {
	for _, page := range b.held {
		page.mu.Unlock()
	}
	b.held = b.held[:0]
}

// lanesEnded is told that lanes of a warp have ended.
func (b *block) lanesEnded(w *warp) {
	b.changes++
	if w.alive == 0 {
		b.left--
		w.leaveGroup()
	}
	b.checkBarriers()
	if b.cluster != nil {
		b.cluster.openIfComplete()
	}
}

// reportStuck reports a deadlock: what each warp that is left waits for.
func (b *block) reportStuck() {
	var first spot
	for _, w := range b.warps {
		for _, g := range w.waiting() {
			if first.code == nil {
				first = g.spot()
			}
		}
	}
	b.launch.found.add(Deadlock, first, spot{}, b.index, func() string {
		return fmt.Sprintf("block %v cannot go on: %s", b.at, b.describe("goes round a loop in which nothing changes"))
	})
	b.aborted = true
}

// waiting lists the groups of a warp that have not ended.
func (w *warp) waiting() []*group {
	var list []*group
	if w.group != nil {
		w.save()
		list = append(list, w.group)
	}
	list = append(list, w.groups...)
	for _, j := range w.junctions() {
		if j.have != 0 {
			list = append(list, &group{pc: j.pc, lanes: j.have, frame: j.frame})
		}
	}
	return list
}

// spot is the instruction a group is at: the one it waits in, or the next.
func (g *group) spot() spot {
	pc := g.pc
	if g.wait != nil && g.wait.op != nil {
		pc = g.wait.op.number - g.frame.code.base
	}
	return spot{g.frame.code, pc}
}

// describe says where every warp that is left is, and what it waits for; running is what to say of one that does not wait.
func (b *block) describe(running string) string {
	var parts []string
	for _, w := range b.warps {
		for _, g := range w.waiting() {
			what := running
			if g.wait != nil {
				what = b.describeWait(g.wait)
			} else if text := b.describeSpin(g); text != "" {
				what = text
			}
			parts = append(parts, fmt.Sprintf("warp %d (%s) at %s: %s", w.index, lanesText(g.lanes), g.spot().place(), what))
		}
	}
	const most = 12
	if len(parts) > most {
		parts = append(parts[:most], fmt.Sprintf("and %d more", len(parts)-most))
	}
	return strings.Join(parts, "; ")
}

func (b *block) describeWait(wt *wait) string {
	switch wt.what {
	case waitBarrier:
		bar := &b.barriers[wt.id]
		return fmt.Sprintf("waits at barrier %d, where %d of %d threads have come", wt.id, bar.arrived, bar.wanted(b))
	case waitCluster:
		return "waits at the cluster's barrier"
	case waitLanes:
		return fmt.Sprintf("waits for the other lanes of the mask %#08x", wt.member)
	case waitWarpgroup:
		return "waits for the other warps of its warpgroup to come to the wgmma.mma_async that it waits for"
	case waitRegisters:
		return fmt.Sprintf("waits for %d registers more than other warps have given back", wt.id)
	}
	return "waits"
}

// lanesText names lanes.
func lanesText(lanes uint32) string {
	n := bits.OnesCount32(lanes)
	switch {
	case lanes == everyLane:
		return "all lanes"
	case n == 1:
		return fmt.Sprintf("lane %d", firstLane(lanes))
	}
	return fmt.Sprintf("lanes %#08x", lanes)
}

// threads names threads for a message: the block, the warp and the lanes.
func (w *warp) threads(lanes uint32) string {
	if bits.OnesCount32(lanes) == 1 {
		return fmt.Sprintf("thread %d of block %v", w.index*32+firstLane(lanes), w.block.at)
	}
	return fmt.Sprintf("warp %d (%s) of block %v", w.index, lanesText(lanes), w.block.at)
}

func spotOf(w *warp, o *op) spot { return w.block.launch.program.ops[o.number] }

// report adds a finding about an operation.
func (w *warp) report(kind Kind, o *op, lanes uint32, detail func() string) {
	w.reportPair(kind, o, spot{}, lanes, detail)
}

func (w *warp) reportPair(kind Kind, o *op, other spot, lanes uint32, detail func() string) {
	if !w.block.launch.options.Checks {
		return
	}
	w.block.launch.found.add(kind, spotOf(w, o), other, w.block.index, func() string {
		return w.threads(lanes) + ": " + detail()
	})
}

// specialNames are the special registers that stay the same while a thread runs.
var specialNames = map[string]bool{
	"tid.x": true, "tid.y": true, "tid.z": true, "ntid.x": true, "ntid.y": true, "ntid.z": true,
	"ctaid.x": true, "ctaid.y": true, "ctaid.z": true, "nctaid.x": true, "nctaid.y": true, "nctaid.z": true,
	"laneid": true, "warpid": true, "nwarpid": true, "smid": true, "nsmid": true, "gridid": true,
	"lanemask_eq": true, "lanemask_le": true, "lanemask_lt": true, "lanemask_ge": true, "lanemask_gt": true,
	"reserved_smem_offset_begin": true, "reserved_smem_offset_end": true, "reserved_smem_offset_cap": true,
	"reserved_smem_offset_0": true, "reserved_smem_offset_1": true,
	"envreg1": true, "envreg2": true,
	"dynamic_smem_size": true, "total_smem_size": true, "aggr_smem_size": true,
	"is_explicit_cluster": true, "cluster_ctarank": true, "cluster_nctarank": true,
	"cluster_ctaid.x": true, "cluster_ctaid.y": true, "cluster_ctaid.z": true,
	"cluster_nctaid.x": true, "cluster_nctaid.y": true, "cluster_nctaid.z": true,
	"clusterid.x": true, "clusterid.y": true, "clusterid.z": true,
	"nclusterid.x": true, "nclusterid.y": true, "nclusterid.z": true,
}

func knownSpecial(name string) bool { return specialNames[name] }

// runningClock says whether a special register changes while a thread runs.
func runningClock(name string) bool {
	switch name {
	case "clock", "clock64", "clock_hi", "globaltimer", "globaltimer_lo", "globaltimer_hi":
		return true
	}
	return false
}

// readClock gives a time that goes on: the instructions the warp has executed.
func (w *warp) readClock(name string) uint64 {
	w.block.timedAt = w.block.changes + 1
	now := max((w.block.steps+w.retired)*4+w.block.ahead, w.lastClock+4)
	w.lastClock = now
	switch name {
	case "clock_hi", "globaltimer_hi":
		return now >> 32
	case "clock", "globaltimer_lo":
		return uint64(uint32(now))
	}
	return now
}

// fillSpecials writes the special registers that a function reads.
func (w *warp) fillSpecials(f *frame) {
	for _, s := range f.code.specials {
		for lane := range 32 {
			f.r32[s.index][lane] = w.special(s.name, lane)
		}
	}
}

func (w *warp) special(name string, lane int) uint32 {
	b := w.block
	r := b.launch
	thread := w.index*32 + lane
	component := func(v [3]int) uint32 { return uint32(v[name[len(name)-1]-'x']) }
	base, _, _ := strings.Cut(name, ".")
	switch base {
	case "tid":
		return component([3]int{thread % r.threads[0], thread / r.threads[0] % r.threads[1], thread / r.threads[0] / r.threads[1]})
	case "ntid":
		return component(r.threads)
	case "ctaid":
		return component(b.at)
	case "nctaid":
		return component(r.grid)
	case "clusterid", "nclusterid", "cluster_ctaid", "cluster_ctarank", "cluster_nctaid", "cluster_nctarank", "is_explicit_cluster":
		return b.clusterSpecial(base, component)
	case "laneid":
		return uint32(lane)
	case "warpid":
		return uint32(w.index)
	case "nwarpid":
		return uint32(len(b.warps))
	case "nsmid":
		return 132
	case "smid":
		return uint32(b.index % 132)
	case "lanemask_eq":
		return 1 << lane
	case "lanemask_le":
		return uint32(1<<(lane+1) - 1)
	case "lanemask_lt":
		return 1<<lane - 1
	case "lanemask_ge":
		return ^uint32(1<<lane - 1)
	case "lanemask_gt":
		return ^uint32(1<<(lane+1) - 1)
	case "envreg1": // where the driver keeps the barrier of the grid
		return uint32(r.workspace >> 32)
	case "envreg2":
		return uint32(r.workspace)
	case "reserved_smem_offset_end", "reserved_smem_offset_cap":
		return reservedShared
	case "dynamic_smem_size":
		return uint32(r.dynamic)
	case "total_smem_size", "aggr_smem_size":
		return uint32(alignUp(r.layout.plain, r.layout.dynamic) + r.dynamic + reservedShared)
	}
	return 0 // gridid
}
