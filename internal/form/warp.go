package form

import (
	"math"

	"attune/internal/arch"
	"attune/internal/array"
	"attune/internal/device"
)

// attune_warp.c has the same choice.

const (
	blockSharedBytes = 1024 // that a block reserves beside its own

	minSplitSteps = 2 // of a block that divides the keys of a tile with others (docs/warp.md)

	// Blocks fill the multiprocessors this often at most where they divide the keys of tiles: causal
	// ones are shorter than the longest.
	mostFillings = 2

	mostShortKeys = 320 // of heads that need not be in sections

	// Packed heads are for few rows over more keys.
	mostPackedRows = 128

	// A step takes the time of its rows and of the loads of K and V by every four warps, which is that of a
	// share of the head dim in rows more, and that of its keys and of some more. A block takes that of some
	// keys more, and the merge of its part too. Fitted to times of an H200 (docs/experiments.md, W7).
	rowsOfLoads = 20 // with head dim 64
	keysOfStep  = 24
	keysOfBlock = 192
	keysOfMerge = 256
	keysOfPart  = 64

	mostBlocks = 1 << 26 // in the sum of times, which 64 bits hold

	// Times are in fifteenths of those of a multiprocessor that its blocks keep busy. A block alone on one
	// has 3/4 of that rate, unless it has more than four warps.
	busy      = 15
	alone     = 20
	fourWarps = 128 // threads

	mostAmpere = 128 // multiprocessors of a GPU of sm_80
)

// sharedBytes is the shared memory of a multiprocessor. More multiprocessors than there are on sm_80
// are of a Hopper GPU, which ATTUNE_ARCH names so.
func sharedBytes(facts device.Facts) int {
	switch number, _ := arch.Number(facts.Arch); {
	case number == 80 && facts.Multiprocessors <= mostAmpere || number == 87:
		return 164 << 10
	case number == 80 || number >= 90 && number < 120:
		return 228 << 10
	}
	return 100 << 10
}

// hasTypes reports whether the tensors have the types of the form: q and o one of 16 bits, k and v that
// or E4M3.
func (f *Form) hasTypes(p *Problem) bool {
	return f.BF16 == (p.Q.Type == array.BF16) && (f.Cache == array.E4M3) == (p.K.Type == array.E4M3)
}

// hasColumns reports whether the form has all columns, and without options no others.
func (f *Form) hasColumns(p *Problem) bool {
	if !f.HasOptions {
		return f.HeadDim == p.HeadDim && f.HeadDim == p.VHeadDim
	}
	unit := columnUnit * 2 / p.K.Type.Bytes()
	return f.HeadDim >= max(p.HeadDim, p.VHeadDim) && p.HeadDim%unit == 0 && p.VHeadDim%unit == 0
}

// blocksOn are the blocks that a multiprocessor holds.
func (f *Form) blocksOn(facts device.Facts) int {
	return min(f.BlocksPerMultiprocessor, sharedBytes(facts)/(f.SharedBytes+blockSharedBytes))
}

// warpTiles are the tiles of query rows. With packed heads a tile has rows of all query heads of a K/V
// head.
func (f *Form) warpTiles(p *Problem) float64 {
	packed := 1
	if f.PacksHeads {
		packed = p.Heads / p.KVHeads
	}
	return float64(p.Batch) * float64(p.Heads/packed) * float64(ceilDiv(p.Queries*packed, f.QueryRows))
}

// hasFewRows reports whether the query heads of a K/V head have so few rows that they share tiles.
func (p *Problem) hasFewRows() bool {
	rows := p.Heads / p.KVHeads * p.Queries
	return rows <= mostPackedRows && 2*rows <= p.Keys
}

// splits are the blocks that divide the keys of a tile, each with some steps, and the cost of the
// problem with them. Few rows are read at the rate of the memory: as many blocks as the multiprocessors
// hold at once are best. Other problems have the number of the least cost.
func (f *Form) splits(p *Problem, facts device.Facts) (splits, cost int) {
	tiles, most := f.warpTiles(p), p.Keys/(minSplitSteps*f.StepKeys)
	if !f.Splits || tiles > maxDecodeCounters {
		return 1, f.cost(p, 1, facts)
	}
	room := facts.Multiprocessors * f.blocksOn(facts)
	if f.PacksHeads {
		splits = max(min(room/int(tiles), most), 1)
		return splits, f.cost(p, splits, facts)
	}
	splits, cost = 1, f.cost(p, 1, facts)
	for n := 2; n <= min(mostFillings*room/int(tiles), most); n += 1 + n/8 {
		if c := f.cost(p, n, facts); c < cost {
			splits, cost = n, c
		}
	}
	return splits, cost
}

// cost is the time of a problem with some blocks for each tile, in units that are the same for all
// forms of a GPU.
func (f *Form) cost(p *Problem, splits int, facts device.Facts) int {
	blocks, steps := min(int(f.warpTiles(p))*splits, mostBlocks), ceilDiv(p.Keys, f.StepKeys)
	var time int
	if p.Causal && p.Keys/2 < p.Queries {
		time = f.triangleTime(blocks, steps*f.stepTime()/splits+keysOfBlock, facts)
	} else {
		time = f.wavesTime(blocks, ceilDiv(steps, splits)*f.stepTime()+keysOfBlock, facts)
	}
	if splits > 1 && !f.PacksHeads {
		time += busy * (keysOfMerge + keysOfPart*splits)
	}
	if f.PacksHeads && !p.hasFewRows() {
		time *= 4
	}
	if f.HasOptions {
		time += time / 16 // their instructions
	}
	loads := rowsOfLoads * f.HeadDim / 64 * max(f.Threads/fourWarps, 1)
	return time * ((f.QueryRows + loads) / 4) * (f.HeadDim / 32)
}

// stepTime is the time of a step of each row, in keys. Of short steps a smaller share is not that of keys.
func (f *Form) stepTime() int {
	return f.StepKeys + min(keysOfStep, f.StepKeys/2)
}

// wavesTime is the time of equal blocks: of those that fill the multiprocessors, and of the rest.
func (f *Form) wavesTime(blocks, keys int, facts device.Facts) int {
	resident := f.blocksOn(facts)
	wave := facts.Multiprocessors * resident
	rest := ceilDiv(blocks%wave, facts.Multiprocessors)
	return (blocks/wave*resident*f.rate(resident) + rest*f.rate(rest)) * keys
}

// triangleTime is the time of causal blocks. On average they have half the keys of the longest, and half
// as many as a tile has rows more. Long ones come first, so that the time is that of the longest or of
// all, and some of the other.
func (f *Form) triangleTime(blocks, longest int, facts device.Facts) int {
	all := blocks * ((longest + keysOfBlock + f.QueryRows) / 2) / facts.Multiprocessors
	return max(f.rate(1)*longest, f.rate(f.blocksOn(facts))*4/5*all) + busy/3*min(longest, all)
}

// rate is the time of a block on a multiprocessor that has some at a time.
func (f *Form) rate(resident int) int {
	if resident == 1 && f.Threads <= fourWarps {
		return alone
	}
	return busy
}

// planWarp plans a problem on a GPU that the other kernels are not for.
func (t *Table) planWarp(p Problem) (*Call, error) {
	if p.O.Type != p.Q.Type {
		return nil, unsupported("q is %s and o %s; on %s both are F16 or both BF16", p.Q.Type, p.O.Type, t.facts.Arch)
	}
	c := &Call{problem: p}
	var ofHeadDim *Form
	least, first := math.MaxInt, math.MaxInt
	for _, f := range t.declared {
		if f.Kernel != Warp || !f.hasTypes(&p) || !f.hasColumns(&p) || f.blocksOn(t.facts) < 1 {
			continue
		}
		if ofHeadDim == nil || f.HasOptions {
			ofHeadDim = f
		}
		if f.warpTiles(&p) > math.MaxInt32 || p.hasOptions() && !f.HasOptions {
			continue
		}
		splits, cost := f.splits(&p, t.facts)
		rank := t.measured.rank(&p, f)
		if rank < first || rank == first && cost < least {
			first, least, c.Form, c.problem.splits = rank, cost, f, splits
		}
	}
	switch {
	case ofHeadDim == nil:
		return nil, unsupported("k is %s, the head dim %d and that of v %d; no form for %s has them", p.K.Type, p.HeadDim, p.VHeadDim, t.facts.Arch)
	case c.Form == nil && p.hasOptions() && !ofHeadDim.HasOptions:
		return nil, unsupported("no form for %s has this option", t.facts.Arch)
	case c.Form == nil:
		return nil, unsupported("%d batches of %d heads and %d queries are more than 2^31 tiles; no form for %s has them", p.Batch, p.Heads, p.Queries, t.facts.Arch)
	}
	if n := c.problem.splits; n > 1 {
		c.parts = ZeroedBytes
		c.WorkspaceBytes = c.parts + c.Form.warpPartBytes(&p)*n
	}
	return c, nil
}

// warpPartBytes are the bytes of a part of each tile: rows of O with the max and the sum of each.
func (f *Form) warpPartBytes(p *Problem) int {
	return int(f.warpTiles(p)) * f.QueryRows * (f.HeadDim + 2) * 4
}

// section are the heads whose tiles follow each other. With a causal mask their K and V fill three
// quarters of the L2 cache at most, and sections are equally large: blocks of the last one end together
// where it has many tiles. Heads of few keys have few tiles, and one follows the other.
func (f *Form) section(p *Problem, facts device.Facts) int {
	if !p.Causal {
		return 1
	}
	group := p.Heads / p.KVHeads
	if f.PacksHeads {
		group = 1
	}
	heads := p.Batch * p.KVHeads
	headBytes := (p.K.Type.Bytes()*p.HeadDim + p.V.Type.Bytes()*p.VHeadDim) * p.Keys
	sections := heads
	if fillings := float64(headBytes) * float64(heads) * 4 / 3 / float64(facts.L2Bytes); fillings < float64(heads) {
		sections = int(fillings) + 1
	}
	if sections > 1 && p.Keys <= mostShortKeys {
		return 1
	}
	return ceilDiv(heads, sections) * group
}
