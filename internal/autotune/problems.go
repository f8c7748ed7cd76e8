package autotune

import (
	"fmt"
	"math"
	"math/rand/v2"

	"attune/internal/array"
	"attune/internal/form"
	"attune/internal/tensor"
)

// group are problems that have a table of their own: of a head dim, and a type of K and V. Caches have
// few query rows over many keys; the other problems are self-attention.
type group struct {
	headDim int
	kv      array.DType
	cache   bool
	count   int
}

// groups are in the order of their tables. Problems of a cache in BF16 and of self-attention share one,
// because the same forms compute them.
var groups = []group{
	{64, array.BF16, false, 48},
	{64, array.BF16, true, 12},
	{96, array.BF16, false, 12},
	{128, array.BF16, false, 64},
	{128, array.BF16, true, 24},
	{256, array.BF16, false, 28},
	{256, array.BF16, true, 16},
	{64, array.E4M3, true, 8},
	{128, array.E4M3, true, 8},
	{256, array.E4M3, true, 8},
}

// Limits of a problem, so that the smallest cards hold it and a launch takes milliseconds.
const (
	maxBytes = 192 << 20
	maxFLOPs = 6e11
)

// Problem is a problem whose forms are timed.
type Problem struct {
	tensor.Shape
	KV   array.DType
	Held bool // it tests the table
}

// String is the shape, and the type of a cache that is not BF16.
func (p Problem) String() string {
	if p.KV != array.BF16 {
		return p.Shape.String() + ":" + string(p.KV)
	}
	return p.Shape.String()
}

// Problems are a random sample of what the libraries are called with. Groups take turns, so that any
// first part of them spans all.
func Problems(seed uint64) []Problem {
	random := rand.New(rand.NewPCG(seed, 39)) //nolint:gosec // a sample
	var all []Problem
	most := 0
	for _, g := range groups {
		most = max(most, g.count)
	}
	for turn := range most {
		for _, g := range groups {
			if turn*g.count/most == (turn+1)*g.count/most { // evenly over the turns
				continue
			}
			p := Problem{Shape: g.sample(random), KV: g.kv}
			p.Held = turn*g.count/most%holdout == holdout-1
			all = append(all, p)
		}
	}
	return all
}

// holdout: every so many problems of a group are held out.
const holdout = 4

// sample draws a problem that is within the limits.
func (g group) sample(random *rand.Rand) tensor.Shape {
	between := func(low, high float64) int {
		return int(math.Round(math.Exp(math.Log(low) + random.Float64()*math.Log(high/low))))
	}
	for {
		s := tensor.Shape{HeadDim: g.headDim, Batch: between(1, 32)}
		if g.cache {
			s.Batch, s.Heads = between(1, 64), []int{8, 16, 32}[random.IntN(3)]
			s.KVHeads = s.Heads / []int{1, 2, 4, 8}[random.IntN(4)]
			s.SeqQ, s.SeqK = []int{1, 1, 1, 2, 4, 8, 16}[random.IntN(7)], between(256, 65536)
		} else {
			s.Heads = []int{8, 12, 16, 24, 32}[random.IntN(5)]
			if random.IntN(4) == 0 && s.Heads%4 == 0 {
				s.KVHeads = s.Heads / 4
			}
			s.SeqQ = between(64, 16384)
			s.SeqK, s.Causal = s.SeqQ, random.IntN(2) == 0
		}
		if s.KVHeads == s.Heads {
			s.KVHeads = 0
		}
		bytes := float64(s.Batch*s.HeadDim) * (4*float64(s.Heads*s.SeqQ) + 2*float64(g.kv.Bytes())*float64(s.Heads/s.Group()*s.SeqK))
		if bytes <= maxBytes && s.FLOPs() <= maxFLOPs {
			return s
		}
	}
}

// problem is what the libraries plan, with tensors at addresses that are not real.
func (p Problem) problem() form.Problem {
	f := form.Problem{
		Batch: p.Batch, Heads: p.Heads, KVHeads: p.Heads / p.Group(), Queries: p.SeqQ, Keys: p.SeqK, HeadDim: p.HeadDim,
		Causal: p.Causal, WindowLeft: -1, WindowRight: -1,
	}
	f.Q.Type, f.K.Type, f.V.Type, f.O.Type = array.BF16, p.KV, p.KV, array.BF16
	for i, t := range []*form.Tensor{&f.Q, &f.K, &f.V, &f.O} {
		t.Address = firstAddress << i
	}
	return f
}

const firstAddress = 1 << 40

// table names the problems that share a table.
func (p Problem) table() string {
	kind := "BF16"
	if p.KV != array.BF16 {
		kind = "E4M3 cache"
	}
	return fmt.Sprintf("head dim %d, %s", p.HeadDim, kind)
}
