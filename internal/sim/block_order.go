package sim

import "math/bits"

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
