package oracle

import (
	"context"
	"testing"

	"attune/internal/tensor"
)

func BenchmarkAttention(b *testing.B) {
	for _, text := range []string{"1x8x512x64", "2x8x2048x64", "2x8x2048x64:causal"} {
		b.Run(text, func(b *testing.B) { benchmarkAttention(b, text) })
	}
}

func BenchmarkPortableAttention(b *testing.B) {
	chosen := tile
	defer func() { tile = chosen }()
	tile = tileGo
	benchmarkAttention(b, "2x8x2048x64")
}

func benchmarkAttention(b *testing.B, text string) {
	p := drawProblem(mustShape(b, text), 0, 1)
	for b.Loop() {
		p.attention(b)
	}
	b.ReportMetric(p.shape.FLOPs()*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

func BenchmarkCompute(b *testing.B) {
	in := tensor.Draw(mustShape(b, "2x8x2048x64"), 0, tensor.Options{})
	for b.Loop() {
		if _, err := Compute(context.Background(), in, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// The preparation of a timing run of a large problem: inputs, and the reference for a sample of
// rows.
func BenchmarkSampledReference(b *testing.B) {
	for _, text := range []string{"1x32x16384x64", "1x16x16384x128:causal", "2x8x8192x256"} {
		shape := mustShape(b, text)
		b.Run(text, func(b *testing.B) {
			for b.Loop() {
				in := tensor.Draw(shape, 0, tensor.Options{})
				if _, err := Compute(context.Background(), in, Sample(shape, 0, MaxWork)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
