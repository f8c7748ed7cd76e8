package form

import (
	"fmt"

	"attune/internal/device"
	"attune/internal/tensor"
)

// maxGridYZ is CUDA's limit of a grid in y, and in z.
const maxGridYZ = 65535

// CheckGrid refuses a shape that exceeds the grid of a dense form.
func CheckGrid(shape tensor.Shape) error {
	if shape.Group() > 1 && max(shape.Group(), shape.KVHeadCount()) > maxGridYZ {
		return fmt.Errorf("shape %s has %d K/V heads over all batches, each for %d heads; "+
			"a grid of grouped heads holds at most %d of either",
			shape, shape.KVHeadCount(), shape.Group(), maxGridYZ)
	}
	return nil
}

// grid is the grid of a form of attention. A decode form also takes the blocks for sequences that
// are equally long: only the kernel knows whether they are.
func (f *Form) grid(p *Problem, facts device.Facts) (grid [3]int, even int) {
	switch f.Kernel {
	case Decode:
		multiprocessors := max(facts.Multiprocessors, 1)
		tiles := ceilDiv(p.Keys, f.StepKeys)
		return [3]int{multiprocessors, 1, 1}, evenBlocks(f.units(p), tiles, 2*f.StepKeys*f.HeadDim*f.Cache.Bytes(), f.HeadDim, multiprocessors)
	case DenseKernel:
		return f.denseGrid(p.shape(), facts), 0
	case Warp, Warp8:
		return [3]int{int(f.warpTiles(p)) * max(p.splits, 1), 1, 1}, 0
	}
	packed := max(p.packed, 1)
	tiles := p.Batch * p.Heads / packed * ceilDiv(p.Queries*packed, f.QueryRows)
	return [3]int{min(tiles, max(f.BlocksPerMultiprocessor, 1)*max(facts.Multiprocessors, 1)), 1, 1}, 0
}

// maxEvenBytes are the bytes of K and V that a block may read beyond its equal share, so that no
// block has parts of two units. A byte of a smaller head dim costs more, because the softmax of its key
// does (docs/experiments.md, D43 and D48).
func maxEvenBytes(headDim int) int {
	switch headDim {
	case 64:
		return 96 << 10
	case 128:
		return 448 << 10
	}
	return 512 << 10
}

// evenBlocks are the blocks of a decode form for units of as many tiles, if that is not known to be
// otherwise on the device: each unit has as many blocks, or each block as many units. It is 0 where
// equal shares of all tiles are better.
func evenBlocks(units, tiles, tileBytes, headDim, multiprocessors int) int {
	blocks, longest := 0, 0
	if each := multiprocessors / units; each > 0 {
		blocks, longest = each*units, ceilDiv(tiles, each)
	} else {
		each = ceilDiv(units, multiprocessors)
		blocks, longest = ceilDiv(units, each), each*tiles
	}
	if (longest*multiprocessors-units*tiles)*tileBytes > maxEvenBytes(headDim)*multiprocessors {
		return 0
	}
	return blocks
}

// denseGrid has a block for each tile of query rows of each head. Tiles are in x, in whole clusters.
// Heads are in y, and also in z if there are too many. With grouped heads, y has the heads of a group
// and z the K/V heads, so that a block needs no division to find its own. A persistent form gets as
// many blocks as the device holds at once.
func (f *Form) denseGrid(shape tensor.Shape, facts device.Facts) [3]int {
	heads, tiles := shape.HeadCount(), ceilDiv(shape.SeqQ, f.QueryRows)
	cluster := max(f.Cluster, 1)
	if f.BlocksPerMultiprocessor > 0 {
		wanted := ceilDiv(heads*tiles, cluster)
		room := max(f.BlocksPerMultiprocessor*max(facts.Multiprocessors, 1)/cluster, 1)
		return [3]int{min(wanted, room) * cluster, 1, 1}
	}
	y, z := shape.Group(), shape.KVHeadCount()
	if y == 1 {
		z = ceilDiv(heads, maxGridYZ)
		y = ceilDiv(heads, z)
	}
	return [3]int{ceilDiv(tiles, cluster) * cluster, y, z}
}
