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
// are equally long.
func (f *Form) grid(p *Problem, facts device.Facts) (grid [3]int, even int) {
	switch f.Kernel {
	case Decode:
		multiprocessors := min(facts.Multiprocessors, h200Multiprocessors)
		even = evenBlocks(p.Batch*p.KVHeads, multiprocessors) * f.BlocksPerMultiprocessor
		if p.KeyLengths != 0 { // only the kernel knows whether they are equal
			return [3]int{multiprocessors * f.BlocksPerMultiprocessor, 1, 1}, even
		}
		return [3]int{even, 1, 1}, even
	case DenseKernel:
		return f.denseGrid(p.shape(), facts), 0
	}
	packed := max(p.packed, 1)
	tiles := p.Batch * p.Heads / packed * ceilDiv(p.Queries*packed, f.QueryRows)
	return [3]int{min(tiles, max(f.BlocksPerMultiprocessor, 1)*max(facts.Multiprocessors, 1)), 1, 1}, 0
}

// evenBlocks are the blocks of a decode form for heads of one length. A number that divides the
// heads, or is divided by them, gives a block one end of a head instead of two; that is worth a few
// idle multiprocessors (docs/experiments.md, D1).
func evenBlocks(heads, multiprocessors int) int {
	for blocks := multiprocessors; blocks > multiprocessors-multiprocessors/16; blocks-- {
		if heads%blocks == 0 || blocks%heads == 0 {
			return blocks
		}
	}
	return max(multiprocessors, 1)
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
