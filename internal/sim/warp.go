package sim

import "slices"

// warp is 32 lanes with their registers.
//
// The lanes that stand at one instruction together are a group. Most of the time a warp is one group, and its state stands in the fields below; the
// other groups of a warp that has diverged wait in a list.
type warp struct {
	block *block
	index int
	alive uint32 // lanes that exist and have not ended

	// The group that runs.
	group *group
	pc    int32
	lanes uint32 // of the group
	frame *frame
	join  *junction
	joins int32 // where the group joins others: join.pc in this frame, or -1

	// Of the frame that runs.
	ops     []op
	laneOps []laneOp
	r32     []v32
	r64     []v64
	preds   []uint32
	carry   uint32

	groups []*group // all groups that are not the running one
	halted bool     // the running group cannot go on now

	parties []party // of the collective operation that runs

	knows     knowledge
	copies    copyQueue
	wgmma     productQueue
	registers int // of a thread; 0 where nobody knows
	bulk      bulkQueue

	clusterPhase [32]uint64 // of the cluster's barrier at which each lane has arrived, plus 1; 0 for none

	mats     matrices
	count    Counters
	local    [32]localMemory
	value    [256]byte // that a lane stores
	nothing  [32]byte  // zeros
	order    order
	waitsFor *mbarrier // that the last wait found not ready
	// lastGlobal is the buffer of the last access to global memory; the next is likely to be to the same.
	lastGlobal *allocation
	addr       v64    // addresses of an access, for the memory operations
	warpAddr   uint64 // of an access that lanes make together
	sharing    uint32 // these lanes; zero for the whole group
	whole      bool   // all lanes that are left make the access that runs
	retired    uint64
	lastClock  uint64
}

// group is lanes that stand at one instruction.
type group struct {
	pc    int32
	lanes uint32
	frame *frame
	join  *junction
	wait  *wait // nil for a group that can run

	looked int    // how often it has looked for something that had not come, since anything changed
	seen   uint64 // the block's changes when it did

	insists bool // it does operations of the whole warp without the lanes that do not come
}

// lookedInVain notes that the running group has looked for something that has not come: a barrier's phase, a flag, a lock.
func (w *warp) lookedInVain() {
	g := w.group
	if g.seen != w.block.changes {
		g.seen, g.looked = w.block.changes, 0
	}
	g.looked++
}

// onlyLooks says whether every group of the warp that can run does nothing but look for what does not come.
func (w *warp) onlyLooks() bool {
	vain := func(g *group) bool { return g.looked >= patience && g.seen == w.block.changes }
	if w.group != nil && !vain(w.group) {
		return false
	}
	for _, g := range w.groups {
		if g.wait == nil && !vain(g) {
			return false
		}
	}
	return true
}

// patience is how often a group looks in vain, with nothing changing, before it counts as stuck.
const patience = 8

// wait is why a group cannot go on.
type wait struct {
	what   waitKind
	op     *op
	member uint32 // lanes that a collective operation wants
	id     int    // of a barrier

	aligned bool // the operation is one of the whole warp
}

type waitKind uint8

const (
	waitLanes     waitKind = iota // for other lanes of the warp at the same instruction
	waitBarrier                   // for other warps
	waitWarpgroup                 // for the other warps of the warpgroup to begin a product
	waitCluster                   // for other blocks
	waitRegisters                 // for other warps to give registers back
)

// junction is where groups that parted at a branch meet again.
type junction struct {
	pc      int32
	frame   *frame
	want    uint32 // lanes that will come
	have    uint32 // lanes that have come
	outside *junction
}

// frame is a call of a function.
type frame struct {
	code   *code
	r32    []v32
	r64    []v64
	preds  []uint32
	params []byte // variables of space .param, lane by lane
	local  int    // where its local variables begin
	caller *frame
	back   int32 // instruction to return to
	call   *controlOp

	products []asyncRegister // of the 32-bit registers; nil where no wgmma.mma_async uses any
}

// load makes a group the running one.
func (w *warp) load(g *group) {
	w.group, w.pc, w.lanes, w.join = g, g.pc, g.lanes, g.join
	w.enter(g.frame)
	w.setJoin()
	w.halted = false
}

// enter makes a frame the running one.
func (w *warp) enter(f *frame) {
	w.frame, w.ops, w.laneOps, w.r32, w.r64, w.preds = f, f.code.ops, f.code.lanes, f.r32, f.r64, f.preds
}

func (w *warp) setJoin() {
	w.joins = -1
	if w.join != nil && w.join.frame == w.frame {
		w.joins = w.join.pc
	}
}

// save puts the running group's state away.
func (w *warp) save() {
	g := w.group
	g.pc, g.lanes, g.frame, g.join = w.pc, w.lanes, w.frame, w.join
}

// run runs the warp for a number of operations, or until none of its groups can go on.
func (w *warp) run(quantum int) {
	for quantum > 0 {
		if w.group == nil && !w.next() {
			return
		}
		quantum = w.runGroup(quantum)
		if w.group == nil {
			continue
		}
		w.save()
		if w.halted || len(w.groups) > 0 {
			// Another group's turn: also when this one could go on, because it may be waiting for the other in a loop.
			w.groups = append(w.groups, w.group)
			w.group = nil
		}
		if w.block.stopped() {
			return
		}
	}
}

// groupTurn bounds a group's turn, so that lanes which wait for other lanes of their warp in a loop do not keep them from running.
const groupTurn = 4096

func (w *warp) runGroup(quantum int) int {
	turn := quantum
	if len(w.groups) > 0 {
		turn = min(turn, groupTurn)
	}
	left := turn
	for left > 0 {
		if w.pc == w.joins {
			w.arrive()
			if w.group == nil {
				break
			}
			continue
		}
		o := &w.ops[w.pc]
		if o.runLength > 0 && w.lanes == everyLane {
			n := min(int(o.runLength), left)
			w.doRun(o, n)
			left -= n
			continue
		}
		w.pc++
		mask := w.lanes
		if o.guard >= 0 {
			p := w.preds[o.guard]
			if o.guardNot {
				p = ^p
			}
			mask &= p
		}
		left--
		if mask == 0 {
			continue
		}
		w.count.class[o.class]++
		o.run(w, o, mask)
		if len(w.block.held) > 0 {
			w.block.letGo()
		}
		if w.halted || w.group == nil {
			break
		}
	}
	w.retired += uint64(turn - left)
	return quantum - (turn - left)
}

// next takes the first group that can go on.
func (w *warp) next() bool {
	for i, g := range w.groups {
		if g.wait == nil {
			w.groups = append(w.groups[:i], w.groups[i+1:]...)
			w.load(g)
			return true
		}
	}
	return false
}

// circles runs each group that can run until it is where it was, with the same registers, and says whether all came back.
func (w *warp) circles() bool {
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
		came := w.comesBack(g)
		park()
		if !came {
			return false
		}
	}
	return true
}

// longestCircle is the longest that is looked for, in instructions.
const longestCircle = 100_000

// comesBack runs one group until it stands at the instruction where it stands now, with the registers and the local memory it has now.
func (w *warp) comesBack(g *group) bool {
	w.load(g)
	pc, lanes, before := w.pc, w.lanes, w.snapshot()
	changes := w.block.changes
	for range longestCircle {
		w.runGroup(1)
		switch {
		case w.group != g || w.halted || w.block.changes != changes || w.block.stopped():
			return false
		case w.pc == pc && w.lanes == lanes && w.frame.code == before.frames[0].code && before.equal(w):
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
		s.frames = append(s.frames, frame{
			code: f.code, r32: slices.Clone(f.r32), r64: slices.Clone(f.r64), preds: slices.Clone(f.preds), params: slices.Clone(f.params), back: f.back,
		})
	}
	for m := w.lanes; m != 0; m &= m - 1 {
		lane := firstLane(m)
		s.local[lane] = slices.Clone(w.local[lane].data)
	}
	return s
}

func (s *snapshot) equal(w *warp) bool {
	f := w.frame
	for i := range s.frames {
		was := &s.frames[i]
		if f == nil || f.code != was.code || f.back != was.back || !slices.Equal(f.preds, was.preds) || !slices.Equal(f.r32, was.r32) ||
			!slices.Equal(f.r64, was.r64) || !slices.Equal(f.params, was.params) {
			return false
		}
		f = f.caller
	}
	for m := w.lanes; m != 0; m &= m - 1 {
		if lane := firstLane(m); !slices.Equal(w.local[lane].data, s.local[lane]) {
			return false
		}
	}
	return f == nil
}

// runnable says whether any group can go on.
func (w *warp) runnable() bool {
	if w.group != nil {
		return true
	}
	for _, g := range w.groups {
		if g.wait == nil {
			return true
		}
	}
	return false
}

// halt stops the running group at the operation it is at, which it will try again.
func (w *warp) halt(why wait) {
	w.pc--
	w.group.wait = &why
	w.halted = true
}

// split parts the running group: lanes go to one place, the rest to another, and both meet at a third.
func (w *warp) split(taken uint32, target int32, meet int32) {
	rest := w.lanes &^ taken
	w.joinAt(meet)
	other := &group{pc: w.pc, lanes: rest, frame: w.frame, join: w.join}
	w.lanes, w.pc = taken, target
	if w.block.coin() { // neither side has a right to be first
		other.pc, other.lanes, w.pc, w.lanes = w.pc, w.lanes, other.pc, other.lanes
	}
	w.groups = append(w.groups, other)
}

// arrive brings the running group to its junction, where it waits for the others or goes on with them.
func (w *warp) arrive() {
	j := w.join
	if j.want == w.lanes { // all of them are here
		w.join = j.outside
		w.setJoin()
		return
	}
	j.have |= w.lanes
	w.leaveJunction(j)
}

// leaveJunction ends the running group, and lets a new one go on from the junction when everybody has come.
func (w *warp) leaveJunction(j *junction) {
	w.group = nil
	w.openJunction(j)
}

func (w *warp) openJunction(j *junction) {
	if j.have != j.want || j.have == 0 {
		return
	}
	together := &group{pc: j.pc, lanes: j.have, frame: j.frame, join: j.outside}
	j.have = 0
	if w.group == nil {
		w.load(together)
		return
	}
	w.groups = append(w.groups, together)
}

// end takes lanes of the running group out of the warp.
func (w *warp) end(mask uint32) {
	w.alive &^= mask
	w.lanes &^= mask
	w.knows.gone |= mask
	w.dropFromJunctions(mask)
	if w.lanes == 0 {
		w.group = nil
	}
	w.retryCollectives()
	w.block.lanesEnded(w)
}

// junctions lists every junction that a group of the warp is on its way to, inner ones first.
func (w *warp) junctions() []*junction {
	var list []*junction
	visit := func(j *junction) {
		for ; j != nil && !slices.Contains(list, j); j = j.outside {
			list = append(list, j)
		}
	}
	if w.group != nil {
		visit(w.join)
	}
	for _, g := range w.groups {
		visit(g.join)
	}
	return list
}

// dropFromJunctions tells every junction that lanes will not come, and opens those that were waiting for them.
func (w *warp) dropFromJunctions(mask uint32) {
	for _, j := range w.junctions() {
		j.want &^= mask
		j.have &^= mask
		if j.have != 0 && j.have == j.want {
			w.groups = append(w.groups, &group{pc: j.pc, lanes: j.have, frame: j.frame, join: j.outside})
			j.have = 0
		}
	}
}

// release lets lanes go on that wait at a junction for lanes which may be waiting for them: threads of a warp are promised progress
// independent of each other. It says whether there were any.
func (w *warp) release() bool {
	found := false
	for _, j := range w.junctions() {
		if j.have != 0 {
			w.groups = append(w.groups, &group{pc: j.pc, lanes: j.have, frame: j.frame, join: j.outside})
			j.want &^= j.have
			j.have = 0
			found = true
		}
	}
	return found
}

// retryCollectives lets groups that wait for other lanes look again, after lanes have ended.
func (w *warp) retryCollectives() {
	for _, g := range w.groups {
		if g.wait != nil && g.wait.what == waitLanes {
			g.wait = nil
		}
	}
}
