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

	// A tile takes the time of its rows and of the loads of K and V, which is that of as many more: so
	// tiles of 64 rows have 0.83 of the rate of those of 128 (docs/experiments.md, W1: 0.84).
	rowsOfLoads   = 32
	costFractions = 840
)

// sharedBytes is the shared memory of a multiprocessor.
func sharedBytes(device string) int {
	switch number, _ := arch.Number(device); {
	case number == 80 || number == 87:
		return 164 << 10
	case number >= 90 && number < 120:
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
func (f *Form) blocksOn(device string) int {
	return min(f.BlocksPerMultiprocessor, sharedBytes(device)/(f.SharedBytes+blockSharedBytes))
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

// splits are the blocks that divide the keys of a tile: as many as the multiprocessors hold at once, each
// with some steps.
func (f *Form) splits(p *Problem, facts device.Facts) int {
	tiles := f.warpTiles(p)
	if !f.Splits || tiles > maxDecodeCounters {
		return 1
	}
	blocks := facts.Multiprocessors * f.blocksOn(facts.Arch)
	return max(min(blocks/int(tiles), p.Keys/(minSplitSteps*f.StepKeys)), 1)
}

// cost is the time of the multiprocessor that has the most tiles. Causal tiles have half the keys on
// average, and long ones come first, with short ones beside them.
func (f *Form) cost(p *Problem, splits int, facts device.Facts) int {
	blocks := int(f.warpTiles(p)) * splits
	if p.Causal && p.Keys/2 < p.Queries {
		blocks = ceilDiv(blocks, 2)
	}
	return ceilDiv(blocks, facts.Multiprocessors) * (f.QueryRows + rowsOfLoads) * f.HeadDim * costFractions / splits
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
		if f.Kernel != Warp || !f.hasTypes(&p) || !f.hasColumns(&p) || f.blocksOn(t.facts.Arch) < 1 {
			continue
		}
		if ofHeadDim == nil || f.HasOptions {
			ofHeadDim = f
		}
		if f.warpTiles(&p) > math.MaxInt32 || p.hasOptions() && !f.HasOptions {
			continue
		}
		splits := f.splits(&p, t.facts)
		cost, rank := f.cost(&p, splits, t.facts), t.measured.rank(&p, f)
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

// section are the heads whose tiles follow each other: with a causal mask, those whose K and V fill
// half of the L2 cache at most.
func (f *Form) section(p *Problem, facts device.Facts) int {
	group := p.Heads / p.KVHeads
	if f.PacksHeads {
		group = 1
	}
	fitting := int(facts.L2Bytes) / 2 / ((p.K.Type.Bytes()*p.HeadDim + p.V.Type.Bytes()*p.VHeadDim) * p.Keys) * group
	if !p.Causal || fitting < 1 {
		return 1
	}
	return min(fitting, p.Batch*p.KVHeads*group)
}
