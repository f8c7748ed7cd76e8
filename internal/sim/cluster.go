package sim

import (
	"fmt"
	"slices"

	"attune/internal/ptx"
)

// cluster is blocks that run together and reach each other's shared memory.
//
// An address of another block's shared memory is the address in that block with the block's rank, plus one, in the bits above. An address without is one of
// the block's own.
type cluster struct {
	blocks []*block // by rank

	// The barrier: who has come in this phase, and what they have told.
	phase    uint64
	arrived  [][]uint32 // by rank and warp
	told     [2]told    // by the parity of the phase
	own      [2][]clock // of each block, with what the async proxy sees of it
	sleepers []sleeper
}

const rankShift = 24

// mostCluster is how many blocks a cluster may have.
const mostCluster = 16

func newCluster(size int) *cluster {
	return &cluster{blocks: make([]*block, size), arrived: make([][]uint32, size), own: [2][]clock{make([]clock, size), make([]clock, size)}}
}

// join makes a block one of the cluster.
func (c *cluster) join(b *block, rank int) {
	b.cluster, b.rank = c, rank
	c.blocks[rank] = b
	c.arrived[rank] = make([]uint32, len(b.warps))
	c.own[0][rank], c.own[1][rank] = b.newClock(), b.newClock()
}

func (r *launch) clusterSize() int { return r.cluster[0] * r.cluster[1] * r.cluster[2] }

// inClusters gives the index of the block that is started as the n-th, and its rank: the blocks of a cluster come one after another.
func (r *launch) inClusters(n uint64) (index uint64, rank int) {
	size := uint64(r.clusterSize())
	rank = int(n % size)
	number := n / size
	var at [3]uint64
	inside := uint64(rank)
	for i := range at {
		extent := uint64(r.cluster[i])
		clusters := uint64(r.grid[i]) / extent
		at[i] = number%clusters*extent + inside%extent
		number /= clusters
		inside /= extent
	}
	return at[0] + uint64(r.grid[0])*(at[1]+uint64(r.grid[1])*at[2]), rank
}

// checkCluster finds the extents of a launch's clusters.
func checkCluster(f *ptx.Function, l Launch) ([3]int, error) {
	c := l.Cluster
	for i := range c {
		c[i] = max(c[i], 1)
	}
	want := f.ClusterBlocks
	for i := range want {
		want[i] = max(want[i], 1)
	}
	switch {
	case f.ClusterBlocks[0] > 0 && l.Cluster == [3]int{}:
		c = want
	case f.ClusterBlocks[0] > 0 && c != want:
		return c, fmt.Errorf("clusters of %v blocks; the kernel is compiled for %v (.reqnctapercluster)", c, want)
	case f.ExplicitCluster && f.ClusterBlocks[0] == 0 && l.Cluster == [3]int{}:
		return c, fmt.Errorf("it is to be launched in clusters (.explicitcluster), and the launch does not say of how many blocks")
	}
	if n := c[0] * c[1] * c[2]; n > mostCluster {
		return c, fmt.Errorf("clusters of %d blocks; %d are allowed", n, mostCluster)
	}
	for i := range c {
		if l.Grid[i]%c[i] != 0 {
			return c, fmt.Errorf("a grid of %v blocks is not made of clusters of %v", l.Grid, c)
		}
	}
	return c, nil
}

// home is the block whose shared memory an address is in, and the address there. There is none where the cluster has no such block.
func (b *block) home(address uint64) (*block, uint64) {
	rank := int(address >> rankShift)
	switch {
	case rank == 0 || rank-1 == b.rank:
		return b, address & (1<<rankShift - 1)
	case b.cluster == nil || rank-1 >= len(b.cluster.blocks):
		return nil, address
	}
	return b.cluster.blocks[rank-1], address & (1<<rankShift - 1)
}

// homeOf is home for an access: an access to a block that is not there, or no more, is reported.
func (w *warp) homeOf(o *op, a accessOf, address uint64, lane int, d direction) (*block, uint64) {
	if address>>rankShift == 0 || address>>32 != 0 {
		return w.block, address
	}
	home, local := w.block.home(address)
	if home == nil {
		w.report(OutOfBounds, o, w.laneBit(lane), func() string {
			return fmt.Sprintf("%s %d bytes of the shared memory of block %d of its cluster, which has none", directionNames[d], a.bytes, address>>rankShift-1)
		})
		return nil, 0
	}
	if home.over {
		w.report(Race, o, w.laneBit(lane), func() string {
			return fmt.Sprintf("%s %d bytes at %#x of the shared memory of block %v, which may have ended: nothing orders the two", directionNames[d], a.bytes,
				local, home.at)
		})
	}
	if home != w.block && d != reading {
		home.changes++
	}
	return home, local
}

// reportOver reports a copy to a block of the cluster that has ended.
func (w *warp) reportOver(o *op, home *block, lane int) {
	if home.over {
		w.report(Race, o, w.laneBit(lane), func() string {
			return fmt.Sprintf("copies to the shared memory of block %v, which may have ended: nothing orders the two", home.at)
		})
	}
}

// endShared looks, when a block has ended, for accesses of other blocks to its shared memory that nothing orders before its end.
func (b *block) endShared() {
	b.over = true
	if b.cluster == nil || b.aborted || !b.launch.options.Checks {
		return
	}
	end := b.newClock()
	for _, w := range b.warps {
		end.join(&w.knows.common)
		for m := w.knows.alone; m != 0; m &= m - 1 {
			end.join(w.knows.lanes[firstLane(m)])
		}
	}
	me := observer{access: access{block: uint32(b.index), lane: allLanes}, clock: &end}
	b.endSent(&me)
	last := spot{b.launch.code, int32(len(b.launch.code.ops) - 1)}
	late := func(a *access, lanes uint32) {
		if a.flags&present == 0 || a.block == uint32(b.index) || b.launch.program.tellsOfBytes(a.op) || me.after(a, lanes) {
			return
		}
		b.launch.found.add(Race, b.launch.program.ops[a.op], last, b.index, func() string {
			return fmt.Sprintf("block %v accesses the shared memory of block %v, which may have ended: nothing orders the access before its end",
				b.launch.blockAt(uint64(a.block)), b.at)
		})
	}
	s := &b.shared.shadow
	s.each(0, len(b.shared.data), func(c *cell) {
		late(&c.write, lanesOf(&c.write))
		if c.many == 0 {
			late(&c.since.access, c.since.lanes)
			return
		}
		for i := range s.uses[c.many-1] {
			u := &s.uses[c.many-1][i]
			late(&u.access, u.lanes)
		}
	})
}

// tellsOfBytes says whether an operation is a copy that has told a barrier of its bytes. Whether the block of the barrier has waited for them is looked at
// by itself (checkCopiesLeft); the thread that began the copy has nothing more to do with it.
func (p *Program) tellsOfBytes(number int32) bool {
	o := p.ops[number].op()
	return o.sync != nil && o.sync.bulk != nil
}

// clusterSpecial is a special register that says where a block is among clusters.
func (b *block) clusterSpecial(name string, component func([3]int) uint32) uint32 {
	r := b.launch
	var id, inside, count [3]int
	for i := range id {
		id[i], inside[i], count[i] = b.at[i]/r.cluster[i], b.at[i]%r.cluster[i], r.grid[i]/r.cluster[i]
	}
	switch name {
	case "clusterid":
		return component(id)
	case "nclusterid":
		return component(count)
	case "cluster_ctaid":
		return component(inside)
	case "cluster_nctaid":
		return component(r.cluster)
	case "cluster_nctarank":
		return uint32(r.clusterSize())
	case "is_explicit_cluster":
		return boolBit(r.explicit)
	}
	return uint32(b.rank) // cluster_ctarank
}

// lowerClusterBarrier is barrier.cluster.arrive and wait.
func (c *code) lowerClusterBarrier(in *ptx.Instruction, o *op) error {
	s := &syncOp{publish: true, heed: true}
	o.sync, o.class = s, classSync
	if len(in.Modifiers) < 2 || len(in.Operands) != 0 {
		return fmt.Errorf("unsupported form")
	}
	switch in.Modifiers[1] {
	case "arrive":
		o.run = runClusterArrive
	case "wait":
		o.run = runClusterWait
	default:
		return fmt.Errorf("unsupported form")
	}
	for _, m := range in.Modifiers[2:] {
		switch m {
		case "aligned":
			s.aligned = true
		case "release", "acquire":
		case "relaxed":
			s.publish = false
		default:
			return fmt.Errorf("unsupported modifier .%s", m)
		}
	}
	return nil
}

// gatherLanes brings the lanes of an aligned operation together.
func (w *warp) gatherLanes(o *op, mask uint32) (uint32, bool) {
	if !o.sync.aligned {
		return mask, true
	}
	mask, all := w.assemble(o, mask)
	if all && mask != w.alive {
		w.report(DivergentBarrier, o, mask, func() string {
			return fmt.Sprintf("%s of the warp are here; the barrier is for all lanes that are left (%#08x) together", lanesText(mask), w.alive)
		})
	}
	return mask, all
}

// theCluster is the block's cluster; one of its own where the launch has none.
func (b *block) theCluster() *cluster {
	if b.cluster == nil {
		newCluster(1).join(b, 0)
	}
	return b.cluster
}

func runClusterArrive(w *warp, o *op, mask uint32) {
	mask, all := w.gatherLanes(o, mask)
	if !all {
		return
	}
	c := w.block.theCluster()
	if twice := c.arrived[w.block.rank][w.index] & mask; twice != 0 {
		w.report(BadBarrier, o, twice, func() string { return "comes to the cluster's barrier a second time before it has opened" })
	}
	c.arrived[w.block.rank][w.index] |= mask
	for m := mask; m != 0; m &= m - 1 {
		w.clusterPhase[firstLane(m)] = c.phase + 1
	}
	if o.sync.publish && w.block.launch.options.Checks {
		now := w.block.newClock()
		w.knows.publish(&now, mask, w.alive)
		parity := c.phase & 1
		c.told[parity] = joinBlocks(c.told[parity], now.global(uint32(w.block.index)))
		c.own[parity][w.block.rank].join(&now)
	}
	w.count.Barriers++
	w.block.changes++
	c.openIfComplete()
}

func runClusterWait(w *warp, o *op, mask uint32) {
	mask, all := w.gatherLanes(o, mask)
	if !all {
		return
	}
	w.leaveRest(mask)
	c := w.block.theCluster()
	waits := false
	for m := mask; m != 0; m &= m - 1 {
		phase := w.clusterPhase[firstLane(m)]
		if phase == 0 {
			w.report(BadBarrier, o, m&-m, func() string { return "waits at the cluster's barrier, where it has not arrived" })
			continue
		}
		waits = waits || phase > c.phase
	}
	if !waits {
		c.let(w, mask)
		return
	}
	w.save()
	w.group.wait = &wait{what: waitCluster, op: o}
	w.halted = true
	c.sleepers = append(c.sleepers, sleeper{w, w.group, o})
}

// let has lanes go on past the barrier, with what those have told who came to it.
func (c *cluster) let(w *warp, lanes uint32) {
	for m := lanes; m != 0; m &= m - 1 {
		w.clusterPhase[firstLane(m)] = 0
	}
	if !w.block.launch.options.Checks || c.phase == 0 {
		return
	}
	parity := (c.phase - 1) & 1
	w.knows.learn(&c.own[parity][w.block.rank], lanes, w.alive)
	if c.told[parity] != nil {
		w.learnTold(c.told[parity], lanes)
	}
}

// openIfComplete lets everybody go on when all threads of the cluster that have not ended have come.
func (c *cluster) openIfComplete() {
	some := false
	for rank, b := range c.blocks {
		for i, w := range b.warps {
			if w.alive&^c.arrived[rank][i] != 0 {
				return
			}
			some = some || c.arrived[rank][i] != 0
		}
	}
	if !some {
		return
	}
	c.phase++
	next := c.phase & 1
	c.told[next] = nil
	for rank, b := range c.blocks {
		clear(c.arrived[rank])
		c.own[next][rank] = b.newClock()
		b.changes++
	}
	for _, s := range c.sleepers {
		s.group.wait = nil
		if s.warp.group == s.group {
			s.warp.halted = false
		}
		c.let(s.warp, s.group.lanes)
	}
	c.sleepers = c.sleepers[:0]
}

// mostYields is how many turns a block that only looks leaves to the others of its cluster before it counts as one that may be stuck.
const mostYields = 64

// yields says whether a block that only looks is to leave its turn to others of its cluster: they may bring what it looks for.
func (b *block) yields() bool {
	if b.cluster == nil || len(b.cluster.blocks) == 1 {
		return false
	}
	if b.changed != b.changes {
		b.changed, b.yielded = b.changes, 0
	}
	b.yielded++
	return b.yielded <= mostYields
}

// awaitsCluster says whether a warp waits for other blocks of its cluster.
func (b *block) awaitsCluster() bool {
	return b.cluster != nil && len(b.cluster.blocks) > 1 && slices.ContainsFunc(b.cluster.sleepers, func(s sleeper) bool { return s.warp.block == b })
}

// lowerMapa is mapa d, address, rank and getctarank d, address.
func (c *code) lowerMapa(in *ptx.Instruction, o *op) error {
	w := readWords(in.Modifiers)
	operands := 3
	if in.Opcode == "getctarank" {
		operands = 2
	}
	if len(w.rest) > 0 || w.typed != ptx.U32 && w.typed != ptx.U64 || len(in.Operands) != operands || w.space != ptx.Generic && !w.cluster {
		return fmt.Errorf("unsupported form")
	}
	result := w.typed
	if operands == 2 {
		result = ptx.U32
	}
	d, err := c.register(in.Operands[0], result)
	if err != nil {
		return err
	}
	a, err := c.source(in.Operands[1], w.typed)
	if err != nil {
		return err
	}
	generic := w.space == ptx.Generic
	o.class = classInteger
	if operands == 2 {
		o.run = func(w *warp, o *op, mask uint32) {
			for m := mask; m != 0; m &= m - 1 {
				lane := firstLane(m)
				address := w.frame.lane(a, lane)
				if generic {
					_, address = ofGeneric(address)
				}
				rank := uint64(w.block.rank)
				if coded := address >> rankShift; coded != 0 {
					rank = coded - 1
				}
				w.set(d, lane, rank)
			}
		}
		return nil
	}
	rank, err := c.source(in.Operands[2], ptx.U32)
	if err != nil {
		return err
	}
	o.run = func(w *warp, o *op, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			lane := firstLane(m)
			address := w.frame.lane(a, lane)
			if generic {
				_, address = ofGeneric(address)
			}
			address = address&(1<<rankShift-1) | (w.frame.lane(rank, lane)&0x7F+1)<<rankShift
			if generic {
				address = toGeneric(ptx.Shared, address)
			}
			w.set(d, lane, address)
		}
	}
	return nil
}

// lowerStoreAsync is st.async and red.async: [to], value, [barrier].
func (c *code) lowerStoreAsync(in *ptx.Instruction, o *op) error {
	name := ""
	w := readWords(slices.DeleteFunc(slices.Clone(in.Modifiers), func(m string) bool {
		if in.Opcode == "red" && slices.Contains(atomicNames[:8], m) {
			name = m
			return true
		}
		return m == "async" || m == "mbarrier::complete_tx::bytes"
	}))
	if len(w.rest) > 0 || w.typed == ptx.NoType || w.typed.Size() < 4 || !w.cluster || len(in.Operands) != 3 || (in.Opcode == "red") != (name != "") {
		return fmt.Errorf("unsupported form")
	}
	b := &bulkOp{what: in.Opcode + ".async", typed: w.typed}
	b.bar = &memOp{what: b.what, space: ptx.Shared, bytes: 8}
	m := &memOp{what: b.what, space: ptx.Shared, size: w.typed.Size()}
	o.sync, o.mem, o.class, o.run = &syncOp{bulk: b, addr: b.bar}, m, classMemory, runStoreAsync
	if name != "" {
		a := &atomicOp{}
		if err := a.choose(name, w.typed); err != nil {
			return err
		}
		b.update = a.update
	}
	if err := c.lowerAddress(m, in.Operands[0]); err != nil {
		return err
	}
	if err := c.lowerAddress(b.bar, in.Operands[2]); err != nil {
		return err
	}
	return c.lowerElements(m, in.Operands[1], w.typed, w.vector, true)
}

// runStoreAsync begins stores that a barrier is told of. They go the way of all stores, and not that of bulk copies.
func runStoreAsync(w *warp, o *op, mask uint32) {
	b, m := o.sync.bulk, o.mem
	to := w.addressesOf(m, mask)
	w.addresses(b.bar, mask)
	w.eachBarrier(o, mask, func(bar *mbarrier, lanes uint32) {
		for l := lanes; l != 0; l &= l - 1 {
			lane := firstLane(l)
			home, address := w.homeOf(o, accessOf{what: b.what, space: ptx.Shared, bytes: m.bytes}, to[lane], lane, writing)
			if home == nil {
				continue
			}
			w.aligned(o, accessOf{space: ptx.Shared, bytes: m.bytes}, address, lane, writing)
			w.putElements(m, lane, w.value[:])
			stored := &bulkLoad{
				op: o, home: home, bytes: m.bytes, stamp: bar.landing(o.number), update: b.update, size: m.size, data: slices.Clone(w.value[:m.bytes]),
				pieces: []bulkPiece{{shared: address, size: m.bytes}},
			}
			stored.stamp.flags = present | pending
			writes := asyncAccess{op: o, lane: lane, what: b.what, stamp: stored.stamp, writes: true, generic: true}
			if b.update != nil {
				writes.stamp.flags |= strong
			}
			data, _ := w.reachAsyncShared(&writes, home, address, m.bytes)
			if data == nil {
				stored.pieces = nil
			} else if b.update == nil && w.block.launch.options.Checks {
				fill(data, unsetByte)
			}
			bar.loads = append(bar.loads, stored)
		}
	})
	w.block.changes++
}

// syncHome is the block that keeps what a place tells, and the place's address there.
func (w *warp) syncHome(space ptx.Space, address uint64) (*block, uint64) {
	if space != ptx.Shared {
		return w.block, address
	}
	if home, local := w.block.home(address); home != nil {
		return home, local
	}
	return w.block, address
}
