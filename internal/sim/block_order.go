package sim

import (
	"errors"
	"math/bits"
	"slices"
)

// ErrCommunicates is the error of a sample of blocks that communicate: one may wait for another that
// does not run.
var ErrCommunicates = errors.New("the blocks communicate, so that a sample of them cannot run")

// sample chooses blocks of a grid: its corners, where indices are the smallest and the largest, and
// others at random, one in each of n ranges at first. It returns the index of the n-th.
func (r *launch) sample(total uint64, n int) func(n uint64) uint64 {
	var chosen []uint64
	add := func(index uint64) {
		if len(chosen) < n && !slices.Contains(chosen, index) {
			chosen = append(chosen, index)
		}
	}
	x, y, z := uint64(r.grid[0]), uint64(r.grid[1]), uint64(r.grid[2])
	for corner := uint64(7); corner < 8; corner-- { // the last block first
		add((corner&1)*(x-1) + (corner>>1&1)*(y-1)*x + (corner>>2)*(z-1)*x*y)
	}
	for i := uint64(0); len(chosen) < n; i++ {
		from, to := i%uint64(n)*total/uint64(n), (i%uint64(n)+1)*total/uint64(n)
		add(from + scramble(i, r.options.Seed)%(to-from))
	}
	return func(n uint64) uint64 { return chosen[n] }
}

// blockOrder is the order in which the blocks of a grid, or its clusters, are started. Seed 0 is the
// order of their indices and seed 1 the reverse, so that two schedules swap every pair of blocks.
// Other seeds are permutations that need no table, because a grid may have any number of blocks.
type blockOrder struct {
	seed  uint64
	total uint64
	half  int // bits of a half of an index
}

func newBlockOrder(seed, total uint64) blockOrder {
	return blockOrder{seed, total, max((bits.Len64(total-1)+1)/2, 1)}
}

// at returns the index of the block that is started as the n-th.
func (o blockOrder) at(n uint64) uint64 {
	switch o.seed {
	case 0:
		return n
	case 1:
		return o.total - 1 - n
	}
	// The network permutes the powers of four from total on. An index outside of the grid is mapped
	// again until it is inside, which keeps the map a permutation.
	for n = o.mix(n); n >= o.total; {
		n = o.mix(n)
	}
	return n
}

// mix is a Feistel network on indices of two halves.
func (o blockOrder) mix(n uint64) uint64 {
	mask := uint64(1)<<o.half - 1
	left, right := n>>o.half, n&mask
	for round := range uint64(4) {
		left, right = right, left^scramble(right, o.seed<<2|round)&mask
	}
	return left<<o.half | right
}

// scramble is a hash of a number and a key: the finaliser of splitmix64.
func scramble(n, key uint64) uint64 {
	n += (key + 1) * 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}
