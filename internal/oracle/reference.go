package oracle

import (
	"context"
	"math"
	"slices"

	"attune/internal/tensor"
)

// Reference is the right answer for a set of inputs, whole or to some of its rows.
type Reference struct {
	Shape tensor.Shape
	Rows  Rows // which it has
	// Out is [row, dim], the rows by batch and head: attention over the FP8 inputs as the kernel gets them, in float64.
	Out []float64
	// LSE is of each row the natural logarithm of the sum of exp(score), -Inf for a row that sees no key.
	LSE []float64
	// Reach is the largest |q|·|k|/√HeadDim of a query and a key: no score, and no part of the sum that makes one, is larger.
	Reach float64
	// InputCost is how far Out is from attention over the inputs before they were quantised.
	InputCost Cost
}

// Cost is the largest and the mean magnitude of a difference.
type Cost struct {
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// Compute gives the reference for inputs, on these rows.
func Compute(ctx context.Context, in *tensor.Inputs, rows Rows) (*Reference, error) {
	a, err := quantized(ctx, in, rows)
	if err != nil {
		return nil, err
	}
	originals, err := Original(ctx, in, rows)
	if err != nil {
		return nil, err
	}
	return &Reference{Shape: in.Shape, Rows: rows, Out: a.out, LSE: a.lse, Reach: reach(in, rows), InputCost: cost(a.out, originals)}, nil
}

// Quantized is attention over inputs as a kernel gets them, on these rows: [row, dim].
func Quantized(ctx context.Context, in *tensor.Inputs, rows Rows) ([]float64, error) {
	a, err := quantized(ctx, in, rows)
	return a.out, err
}

func quantized(ctx context.Context, in *tensor.Inputs, rows Rows) (answer, error) {
	return attention(ctx, in.Q.Dequantize, in.K.Dequantize, in.V.Dequantize, in.Shape, rows)
}

// Original is attention over inputs before they were quantised, on these rows: [row, dim].
func Original(ctx context.Context, in *tensor.Inputs, rows Rows) ([]float64, error) {
	a, err := attention(ctx, widened(in.Q.Original), widened(in.K.Original), widened(in.V.Original), in.Shape, rows)
	return a.out, err
}

func widened(values []float32) source {
	return func(into []float64, head int) {
		for i, v := range values[head*len(into):][:len(into)] {
			into[i] = float64(v)
		}
	}
}

// reach takes the longest query of the rows and the longest key of each head.
func reach(in *tensor.Inputs, rows Rows) float64 {
	lengths := func(t *tensor.Tensor, head int) []float64 {
		values := make([]float64, len(t.Codes)/len(t.Descale))
		t.Dequantize(values, head)
		var all []float64
		for row := range slices.Chunk(values, in.Shape.HeadDim) {
			sum := 0.0
			for _, x := range row {
				sum += x * x
			}
			all = append(all, math.Sqrt(sum))
		}
		return all
	}
	keys := make([]float64, in.Shape.KVHeadCount())
	for head := range keys {
		keys[head] = slices.Max(lengths(&in.K, head))
	}
	most := 0.0
	for _, s := range rows.Spans(in.Shape, in.Shape.SeqQ) {
		queries := lengths(&in.Q, s.Head)
		for place := s.From; place < s.To; place++ {
			most = max(most, queries[rows.At(place)-s.Head*in.Shape.SeqQ]*keys[s.Head/in.Shape.Group()])
		}
	}
	return most / math.Sqrt(float64(in.Shape.HeadDim))
}

func cost(a, b []float64) Cost {
	var c Cost
	for i := range a {
		d := math.Abs(a[i] - b[i])
		c.Max = max(c.Max, d)
		c.Mean += d
	}
	c.Mean /= float64(len(a))
	return c
}
