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
	dims := in.Shape.HeadDim
	return attention(ctx, quantizedRows(&in.Q, dims), quantizedRows(&in.K, dims), quantizedRows(&in.V, dims), in.Shape, rows)
}

func quantizedRows(t *tensor.Tensor, dims int) source {
	return func(into []float64, head, first int) { t.Dequantize(into, head, first*dims) }
}

// Original is attention over inputs before they were quantised, on these rows: [row, dim].
func Original(ctx context.Context, in *tensor.Inputs, rows Rows) ([]float64, error) {
	s := in.Shape
	a, err := attention(ctx, plainRows(in.Q.Original, s.SeqQ, s), plainRows(in.K.Original, s.SeqK, s), plainRows(in.V.Original, s.SeqK, s), s, rows)
	return a.out, err
}

// reach takes the longest query of the rows and the longest key of each head.
func reach(in *tensor.Inputs, rows Rows) float64 {
	shape := in.Shape
	keys := make([]float64, shape.KVHeadCount())
	onAllCores(len(keys), func() func(int) {
		length := lengths(&in.K, shape.HeadDim)
		return func(head int) {
			for key := range shape.SeqK {
				keys[head] = max(keys[head], length(head, key))
			}
		}
	})
	spans := rows.Spans(shape, shape.SeqQ)
	most := make([]float64, len(spans))
	onAllCores(len(spans), func() func(int) {
		length := lengths(&in.Q, shape.HeadDim)
		return func(span int) {
			s := spans[span]
			for place := s.From; place < s.To; place++ {
				most[span] = max(most[span], length(s.Head, rows.At(place)-s.Head*shape.SeqQ)*keys[s.Head/shape.Group()])
			}
		}
	})
	return slices.Max(most) / math.Sqrt(float64(shape.HeadDim))
}

// lengths measures rows of a tensor.
func lengths(t *tensor.Tensor, dims int) func(head, row int) float64 {
	values := make([]float64, dims)
	return func(head, row int) float64 {
		t.Dequantize(values, head, row*dims)
		sum := 0.0
		for _, x := range values {
			sum += x * x
		}
		return math.Sqrt(sum)
	}
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
