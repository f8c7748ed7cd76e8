package sim

import (
	"fmt"
	"slices"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/mem"
	"attune/internal/sim/order"
)

// cluster is blocks that run together and access each other's shared memory.
//
// The address of another block's shared memory is the address in that block, with the block's rank
// plus one in the bits from rankShift on. An address without these bits is in the block's own.
type cluster struct {
	blocks []*block // by rank

	// The cluster barrier.
	phase     uint64
	arrived   [][]uint32       // lanes that have arrived in this phase, by rank and warp
	published [2]order.Blocks  // what they have published, by the parity of the phase
	own       [2][]order.Clock // the same as clocks of each block, by the parity of the phase
	waiters   []waiter
}

const rankShift = 24

// maxCluster is the largest number of blocks of a cluster.
const maxCluster = 16

func newCluster(size int) *cluster {
	return &cluster{blocks: make([]*block, size), arrived: make([][]uint32, size), own: [2][]order.Clock{make([]order.Clock, size), make([]order.Clock, size)}}
}

// join adds a block to the cluster.
func (c *cluster) join(b *block, rank int) {
	b.cluster, b.rank = c, rank
	c.blocks[rank] = b
	c.arrived[rank] = make([]uint32, len(b.warps))
	c.own[0][rank], c.own[1][rank] = b.newClock(), b.newClock()
}

func (r *launch) clusterSize() int { return r.cluster[0] * r.cluster[1] * r.cluster[2] }

// inClusters returns the index and the rank of the block that is started as the n-th. The blocks of
// a cluster are started one after another.
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

// checkCluster returns the extents of the clusters of a launch.
func checkCluster(f *ptx.Function, l Launch) ([3]int, error) {
	c := l.Cluster
	for i := range c {
		if c[i] < 0 || c[i] > 1<<20 { // the product of larger extents may overflow
			return c, fmt.Errorf("clusters of %v blocks; every extent must be at least 1, and a cluster has %d blocks at most", l.Cluster, maxCluster)
		}
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
		return c, fmt.Errorf("it must be launched in clusters (.explicitcluster), and the launch has no cluster size")
	}
	if n := c[0] * c[1] * c[2]; n > maxCluster {
		return c, fmt.Errorf("clusters of %d blocks; %d are allowed", n, maxCluster)
	}
	for i := range c {
		if l.Grid[i]%c[i] != 0 {
			return c, fmt.Errorf("a grid of %v blocks cannot be divided into clusters of %v", l.Grid, c)
		}
	}
	return c, nil
}

// ownerBlock returns the block whose shared memory an address is in, and the address there. It
// returns nil where the cluster has no such block.
func (b *block) ownerBlock(address uint64) (*block, uint64) {
	rank := int(address >> rankShift)
	switch {
	case rank == 0 || rank-1 == b.rank:
		return b, address & (1<<rankShift - 1)
	case b.cluster == nil || rank-1 >= len(b.cluster.blocks):
		return nil, address
	}
	return b.cluster.blocks[rank-1], address & (1<<rankShift - 1)
}

// ownerOf is ownerBlock for an access. It reports an access to a block that does not exist, may not
// have started or has ended.
func (w *warp) ownerOf(o *op, a accessInfo, address uint64, lane int, d mem.Direction) (*block, uint64) {
	if address>>rankShift == 0 || address>>32 != 0 {
		return w.block, address
	}
	owner, local := w.block.ownerBlock(address)
	if owner == nil {
		w.report(finding.OutOfBounds, o, w.laneBit(lane), func() string {
			return fmt.Sprintf("%s %d bytes of the shared memory of block %d of its cluster, which has no such block", d, a.bytes, address>>rankShift-1)
		})
		return nil, 0
	}
	if why := w.notResident(owner, lane); why != "" {
		w.add(outsideLife, o, position{}, w.laneBit(lane), func() string {
			return fmt.Sprintf("%s %d bytes at %#x of the shared memory of block %v, %s", d, a.bytes, local, owner.at, why)
		})
	}
	if owner != w.block && d != mem.Read {
		owner.changes++
	}
	return owner, local
}

// outsideLife is an access to the shared memory of a block that may not have started, or may have ended.
var outsideLife = finding.Occurrence{Kind: finding.Race, Severity: finding.Error, Missing: finding.ClusterSync}

// notResident says why a block of the cluster may not exist when a lane accesses its shared memory. The
// lane knows that the block has started after a cluster barrier, or if it has learned anything of it.
func (w *warp) notResident(owner *block, lane int) string {
	c := w.block.cluster
	switch {
	case owner.ended:
		return "which may have ended: nothing orders the two"
	case owner == w.block || !w.block.launch.options.Checks || c.phase > 0 && w.clusterPhase[lane%32] != 1 || w.clocks.KnowsBlock(uint32(owner.index), lane):
		return ""
	}
	return "which may not have started: no cluster barrier precedes the access"
}

// reportCopy reports a copy to a block of the cluster that may not have started or has ended.
func (w *warp) reportCopy(o *op, owner *block, lane int) {
	if why := w.notResident(owner, lane); why != "" {
		w.add(outsideLife, o, position{}, w.laneBit(lane), func() string {
			return fmt.Sprintf("copies to the shared memory of block %v, %s", owner.at, why)
		})
	}
}

// checkAfterEnd reports accesses of other blocks to the shared memory of a block that nothing
// orders before its end.
func (b *block) checkAfterEnd() {
	b.ended = true
	if b.cluster == nil || b.aborted || !b.launch.options.Checks {
		return
	}
	end := b.newClock()
	for _, w := range b.warps {
		w.clocks.JoinInto(&end)
	}
	me := order.BlockObserver(uint32(b.index), &end)
	b.checkOutgoing(&me)
	last := position{b.launch.code, int32(len(b.launch.code.ops) - 1)}
	b.shared.Shadow.Each(0, len(b.shared.Data), func(a *order.Access, lanes uint32) {
		if a.Flags&order.Present == 0 || a.Block == uint32(b.index) || b.launch.program.signalsBarrier(a.Op) || me.After(a, lanes) {
			return
		}
		b.add(outsideLife, b.launch.program.ops[a.Op], last, func(f *finding.Finding) {
			f.Detail = fmt.Sprintf("block %v accesses the shared memory of block %v, which may have ended: nothing orders the access before its end",
				b.launch.blockAt(uint64(a.Block)), b.at)
		})
	})
}

// signalsBarrier reports whether an operation is a copy that signals an mbarrier. finishStores
// checks whether the block that owns the mbarrier has waited for it.
func (p *Program) signalsBarrier(number int32) bool {
	o := p.ops[number].op()
	return o.sync != nil && o.sync.bulk != nil
}

// lowerClusterBarrier lowers barrier.cluster.arrive and wait.
func (c *code) lowerClusterBarrier(in *ptx.Instruction, o *op) error {
	s := &syncOp{release: true, acquire: true}
	o.sync, o.class = s, count.Sync
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
			s.release = false
		default:
			return fmt.Errorf("unsupported modifier .%s", m)
		}
	}
	return nil
}

// gatherAligned gathers the lanes of an aligned operation. It returns the lanes that execute it,
// and whether it can be executed now.
func (w *warp) gatherAligned(o *op, mask uint32) (uint32, bool) {
	if !o.sync.aligned {
		return mask, true
	}
	mask, ready := w.gatherWarp(o, mask)
	if ready && mask != w.alive {
		w.report(finding.DivergentBarrier, o, mask, func() string {
			return fmt.Sprintf("only %s of the warp execute an instruction that all remaining lanes (%#08x) must execute together", lanesText(mask), w.alive)
		})
	}
	return mask, ready
}

// clusterOrOwn returns the block's cluster. Where the launch has no clusters, it makes one of the
// block alone.
func (b *block) clusterOrOwn() *cluster {
	if b.cluster == nil {
		newCluster(1).join(b, 0)
	}
	return b.cluster
}

func runClusterArrive(w *warp, o *op, mask uint32) {
	mask, ready := w.gatherAligned(o, mask)
	if !ready {
		return
	}
	c := w.block.clusterOrOwn()
	if twice := c.arrived[w.block.rank][w.index] & mask; twice != 0 {
		w.report(finding.BadBarrier, o, twice, func() string { return "arrives at the cluster barrier a second time before it completes" })
	}
	c.arrived[w.block.rank][w.index] |= mask
	for m := mask; m != 0; m &= m - 1 {
		w.clusterPhase[firstLane(m)] = c.phase + 1
	}
	if w.block.launch.options.Checks {
		c.publish(w, mask, o.sync.release)
	}
	w.counters.Barriers++
	w.block.changes++
	c.completeIfReady()
}

// publish publishes what lanes have done to the threads that wait for the phase. A relaxed arrival
// publishes what precedes the last fence.
func (c *cluster) publish(w *warp, mask uint32, release bool) {
	near, far := w.block.newClock(), w.block.newClock()
	if release {
		w.clocks.Publish(&far, mask, w.alive)
	} else {
		w.publishFenced(&near, &far, mask)
	}
	parity := c.phase & 1
	c.published[parity] = c.published[parity].Join(far.Export(uint32(w.block.index)))
	c.own[parity][w.block.rank].Join(&near)
	c.own[parity][w.block.rank].Join(&far)
}

func runClusterWait(w *warp, o *op, mask uint32) {
	mask, ready := w.gatherAligned(o, mask)
	if !ready {
		return
	}
	w.detachRest(mask)
	c := w.block.clusterOrOwn()
	waits := false
	for m := mask; m != 0; m &= m - 1 {
		phase := w.clusterPhase[firstLane(m)]
		if phase == 0 {
			w.report(finding.BadBarrier, o, m&-m, func() string { return "waits at the cluster barrier without having arrived" })
			continue
		}
		waits = waits || phase > c.phase
	}
	if !waits {
		c.pass(w, mask)
		return
	}
	w.save()
	w.group.wait = &wait{kind: waitCluster, op: o}
	w.halted = true
	c.waiters = append(c.waiters, waiter{w, w.group, o})
}

// pass lets lanes continue past the barrier. They learn what the threads that arrived have
// published.
func (c *cluster) pass(w *warp, lanes uint32) {
	for m := lanes; m != 0; m &= m - 1 {
		w.clusterPhase[firstLane(m)] = 0
	}
	if !w.block.launch.options.Checks || c.phase == 0 {
		return
	}
	parity := (c.phase - 1) & 1
	w.clocks.Learn(&c.own[parity][w.block.rank], lanes, w.alive)
	if c.published[parity] != nil {
		w.clocks.LearnBlocks(c.published[parity], lanes, w.alive)
	}
}

// completeIfReady completes the phase if all threads of the cluster that have not ended have
// arrived.
func (c *cluster) completeIfReady() {
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
	c.published[next] = nil
	for rank, b := range c.blocks {
		clear(c.arrived[rank])
		c.own[next][rank] = b.newClock()
		b.changes++
	}
	for _, s := range c.waiters {
		s.group.wait = nil
		if s.warp.group == s.group {
			s.warp.halted = false
		}
		c.pass(s.warp, s.group.lanes)
	}
	c.waiters = c.waiters[:0]
}

// awaitsCluster reports whether a warp of the block waits for other blocks of its cluster.
func (b *block) awaitsCluster() bool {
	return b.cluster != nil && len(b.cluster.blocks) > 1 && slices.ContainsFunc(b.cluster.waiters, func(s waiter) bool { return s.warp.block == b })
}

// lowerMapa lowers mapa d, address, rank and getctarank d, address.
func (c *code) lowerMapa(in *ptx.Instruction, o *op) error {
	mods := readModifiers(in.Modifiers)
	operands := 3
	if in.Opcode == "getctarank" {
		operands = 2
	}
	if len(mods.rest) > 0 || mods.typed != ptx.U32 && mods.typed != ptx.U64 || len(in.Operands) != operands || mods.space != ptx.Generic && !mods.cluster {
		return fmt.Errorf("unsupported form")
	}
	result := mods.typed
	if operands == 2 {
		result = ptx.U32
	}
	d, err := c.register(in.Operands[0], result)
	if err != nil {
		return err
	}
	a, err := c.source(in.Operands[1], mods.typed)
	if err != nil {
		return err
	}
	o.class = count.Integer
	if operands == 2 {
		o.run = getRank(d, a, mods.space == ptx.Generic)
		return nil
	}
	rank, err := c.source(in.Operands[2], ptx.U32)
	o.run = mapAddress(d, a, rank, mods.space == ptx.Generic)
	return err
}

// getRank returns the operation getctarank: the rank of the block that an address belongs to.
func getRank(d, a slot, generic bool) func(*warp, *op, uint32) {
	return func(w *warp, _ *op, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			lane := firstLane(m)
			address := w.frame.lane(a, lane)
			if generic {
				_, address = mem.FromGeneric(address)
			}
			rank := uint64(w.block.rank)
			if coded := address >> rankShift; coded != 0 {
				rank = coded - 1
			}
			w.set(d, lane, rank)
		}
	}
}

// mapAddress returns the operation mapa: the same address in the block with a rank.
func mapAddress(d, a, rank slot, generic bool) func(*warp, *op, uint32) {
	return func(w *warp, _ *op, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			lane := firstLane(m)
			address := w.frame.lane(a, lane)
			if generic {
				_, address = mem.FromGeneric(address)
			}
			address = address&(1<<rankShift-1) | (w.frame.lane(rank, lane)&0x7F+1)<<rankShift
			if generic {
				address = mem.ToGeneric(ptx.Shared, address)
			}
			w.set(d, lane, address)
		}
	}
}

// lowerStoreAsync lowers st.async and red.async: [to], value, [mbarrier].
func (c *code) lowerStoreAsync(in *ptx.Instruction, o *op) error {
	name := ""
	mods := readModifiers(slices.DeleteFunc(slices.Clone(in.Modifiers), func(m string) bool {
		if in.Opcode == "red" && slices.Contains(atomicNames[:8], m) {
			name = m
			return true
		}
		return m == "async" || m == "mbarrier::complete_tx::bytes"
	}))
	if len(mods.rest) > 0 || mods.typed == ptx.NoType || mods.typed.Size() < 4 || !mods.cluster || len(in.Operands) != 3 || (in.Opcode == "red") != (name != "") {
		return fmt.Errorf("unsupported form")
	}
	b := &bulkOp{typed: mods.typed}
	b.bar = &memOp{space: ptx.Shared, bytes: 8}
	m := &memOp{space: ptx.Shared, size: mods.typed.Size()}
	o.sync, o.mem, o.class, o.run = &syncOp{bulk: b, addr: b.bar}, m, count.Memory, runStoreAsync
	if name != "" {
		a := &atomicOp{}
		if err := a.choose(name, mods.typed); err != nil {
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
	return c.lowerElements(m, in.Operands[1], mods.typed, mods.vector, true)
}

// runStoreAsync starts stores that signal an mbarrier. They use the generic proxy, unlike bulk
// copies.
func runStoreAsync(w *warp, o *op, mask uint32) {
	b, m := o.sync.bulk, o.mem
	to := w.addressesOf(m)
	w.computeAddresses(b.bar)
	w.eachBarrier(o, mask, func(bar *mbarrier, lanes uint32) {
		for l := lanes; l != 0; l &= l - 1 {
			lane := firstLane(l)
			owner, address := w.ownerOf(o, accessInfo{space: ptx.Shared, bytes: m.bytes}, to[lane], lane, mem.Write)
			if owner == nil {
				continue
			}
			w.checkAlignment(o, &accessInfo{space: ptx.Shared, bytes: m.bytes}, address, lane, mem.Write)
			w.putElements(m, lane, w.value[:])
			stored := &bulkLoad{
				op: o, owner: owner, bytes: m.bytes, stamp: bar.landingStamp(o.number), update: b.update, size: m.size, data: slices.Clone(w.value[:m.bytes]),
				pieces: []mem.Piece{{Shared: address, Size: m.bytes}},
			}
			stored.stamp.Flags = order.Present | order.Pending
			writes := asyncAccess{op: o, lane: lane, stamp: stored.stamp, writes: true, generic: true}
			if b.update != nil {
				writes.stamp.Flags |= order.Strong
			}
			data := w.accessAsyncShared(&writes, owner, address, m.bytes)
			if data == nil {
				stored.pieces = nil
			} else if b.update == nil && w.block.launch.options.Checks {
				mem.Fill(data, mem.Poison)
			}
			bar.loads = append(bar.loads, stored)
		}
	})
	w.block.changes++
}
