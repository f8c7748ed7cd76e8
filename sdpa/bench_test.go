package sdpa

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"attune/internal/tensor"
)

// BenchmarkForward reports GFLOP/s of the CPU, by the usual count of FLOPs.
func BenchmarkForward(b *testing.B) { benchmarkForward(b, Problem{}) }

// BenchmarkSoftcap is BenchmarkForward with capped scores.
func BenchmarkSoftcap(b *testing.B) { benchmarkForward(b, Problem{Softcap: 30}) }

func benchmarkForward(b *testing.B, p Problem) {
	b.Helper()
	for _, set := range vectorSets() {
		for _, text := range []string{"1x8x512x64", "1x8x2048x64", "1x32x2048x128:kvheads=8:causal", "1x32x1x128:kv=8192:kvheads=8"} {
			for _, t := range []DType{E4M3, FP32} {
				b.Run(fmt.Sprintf("%s/%s/%s", set.name, t, text), func(b *testing.B) {
					defer useVectors(set)()
					shape, err := tensor.ParseShape(text)
					if err != nil {
						b.Fatal(err)
					}
					q, k, v, o := randomInputs(b, shape, t, FP32)
					p.Causal = shape.Causal
					dev := CPU()
					b.ReportAllocs()
					for b.Loop() {
						if err := Forward(context.Background(), dev, p, q, k, v, o); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(shape.FLOPs()*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}

// vectorSets are the implementations that this processor can run, the fastest first.
func vectorSets() []vectorSet {
	var sets []vectorSet
	for set := &vectors; set != nil; set = set.narrower {
		one := *set
		one.narrower = nil
		sets = append(sets, one)
	}
	if vectors.name != goVectors.name {
		sets = append(sets, goVectors)
	}
	return sets
}

// useVectors selects an implementation until the returned function is called.
func useVectors(set vectorSet) (restore func()) {
	old := vectors
	vectors = set
	return func() { vectors = old }
}

// randomInputs are normal tensors of a shape in a format, and an output.
func randomInputs(tb testing.TB, s tensor.Shape, t, out DType) (q, k, v, o *Tensor) {
	tb.Helper()
	random := rand.New(rand.NewPCG(1, uint64(s.SeqK)))
	kv := s.KVHeadCount() / s.Batch
	q = randomTensor(tb, random, t, [4]int{s.Batch, s.Heads, s.SeqQ, s.HeadDim})
	k = randomTensor(tb, random, t, [4]int{s.Batch, kv, s.SeqK, s.HeadDim})
	v = randomTensor(tb, random, t, [4]int{s.Batch, kv, s.SeqK, s.HeadDim})
	o, err := NewTensor(out, q.Shape)
	if err != nil {
		tb.Fatal(err)
	}
	return q, k, v, o
}

// randomTensor has normal elements; those of E4M3 are quantised with random factors.
func randomTensor(tb testing.TB, random *rand.Rand, t DType, shape [4]int) *Tensor {
	tb.Helper()
	values := make([]float32, shape[0]*shape[1]*shape[2]*shape[3])
	for i := range values {
		values[i] = float32(random.NormFloat64())
		if t == E4M3 {
			values[i] *= 64
		}
	}
	x, err := FromFloat32(t, shape, values)
	if err != nil {
		tb.Fatal(err)
	}
	if t == E4M3 {
		for range x.heads() {
			x.Descale = append(x.Descale, (1+random.Float32())/96)
		}
	}
	return x
}

// BenchmarkProduct is the product alone, for the share of the processor's peak.
func BenchmarkProduct(b *testing.B) {
	for _, set := range vectorSets() {
		for _, n := range []int{64, 128} {
			b.Run(fmt.Sprintf("%s/%d", set.name, n), func(b *testing.B) {
				keys := scoreElements / set.lanes
				c, a, x := make([]float32, keys*set.lanes), make([]float32, keys*n), make([]float32, n*set.lanes)
				for b.Loop() {
					set.product(c, a, n, 1, tileRows*n, x, n, keys/tileRows, false)
				}
				b.ReportMetric(float64(2*keys*set.lanes*n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
