package sim

import (
	"strings"

	"attune/internal/sim/mem"
)

// specialNames are the special registers that do not change while a thread runs.
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

// isClock reports whether a special register changes while a thread runs.
func isClock(name string) bool {
	switch name {
	case "clock", "clock64", "clock_hi", "globaltimer", "globaltimer_lo", "globaltimer_hi":
		return true
	}
	return false
}

// readClock returns a time that only increases. It is derived from the number of instructions that
// the block has executed.
func (w *warp) readClock(name string) uint64 {
	s := &w.block.stall
	s.clockReadAt = w.block.changes + 1
	now := max((w.block.steps+w.retired)*4+s.clockOffset, w.lastClock+4)
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
		values := &f.R32[s.index]
		if !dependsOnLane(s.name) {
			value := w.special(s.name, 0)
			for lane := range values {
				values[lane] = value
			}
			continue
		}
		for lane := range values {
			values[lane] = w.special(s.name, lane)
		}
	}
}

// dependsOnLane reports whether a special register may differ between the lanes of a warp.
func dependsOnLane(name string) bool {
	return strings.HasPrefix(name, "tid.") || strings.HasPrefix(name, "lane")
}

// sharedBytes returns the static and dynamic shared memory of a block.
func (r *launch) sharedBytes() int {
	if r.dynamic == 0 {
		return r.layout.Bytes
	}
	return mem.AlignUp(r.layout.Bytes, r.layout.DynamicAlign) + r.dynamic
}

// multiprocessors is the number of multiprocessors of an H100 or H200.
const multiprocessors = 132

// special returns the value of a special register in a lane.
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
		return multiprocessors
	case "smid":
		return uint32(b.index % multiprocessors)
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
	case "envreg1": // the driver puts the address of the grid's barrier into envreg1 and envreg2
		return uint32(r.workspace >> 32)
	case "envreg2":
		return uint32(r.workspace)
	case "reserved_smem_offset_end":
		return reservedEnd
	case "reserved_smem_offset_cap":
		return reservedShared
	case "dynamic_smem_size":
		return uint32(r.dynamic)
	case "total_smem_size": // in units of allocation, without what the system reserves
		return uint32(mem.AlignUp(r.sharedBytes(), 128))
	case "aggr_smem_size":
		return uint32(r.sharedBytes() + reservedShared)
	}
	return 0 // gridid, and the offsets of reserved shared memory, which begins at address 0
}

// clusterSpecial returns the value of a special register about the block's place among clusters.
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
		return boolBit(r.explicitCluster)
	}
	return uint32(b.rank) // cluster_ctarank
}
