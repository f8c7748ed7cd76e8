package oracle

import (
	"context"
	"math"
	"slices"

	"attune/internal/tensor"
)

// Reference is attention in float64 for a set of inputs, for all rows or some of them.
type Reference struct {
	Shape tensor.Shape
	Rows  Rows // the rows it covers
	// Out is attention over the quantised inputs that the kernel gets: [row, dim].
	Out []float64
	// LSE is the natural logarithm of each row's sum of exp(score), -Inf for a row that sees no
	// key.
	LSE []float64
	// ScoreBound is the largest |q|·|k|/√HeadDim over the queries and keys. It bounds every score and
	// every partial sum of one.
	ScoreBound float64
	// InputError is the quantisation error of the inputs: the distance of Out from attention over
	// the original values.
	InputError ErrorSize
}

// ErrorSize is the maximum and the mean magnitude of a difference.
type ErrorSize struct {
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// Compute returns the reference for inputs on the given rows.
func Compute(ctx context.Context, in *tensor.Inputs, rows Rows) (*Reference, error) {
	r, err := quantized(ctx, in, rows)
	if err != nil {
		return nil, err
	}
	originals, err := Original(ctx, in, rows)
	if err != nil {
		return nil, err
	}
	return &Reference{
		Shape: in.Shape, Rows: rows, Out: r.out, LSE: r.lse,
		ScoreBound: reach(in, rows), InputError: Difference(r.out, originals),
	}, nil
}

// ComputeLike is Compute for inputs without original values. Their quantisation error is taken from
// the reference of other inputs of the same shape and distribution.
func ComputeLike(ctx context.Context, in *tensor.Inputs, rows Rows, other *Reference) (*Reference, error) {
	r, err := quantized(ctx, in, rows)
	if err != nil {
		return nil, err
	}
	return &Reference{
		Shape: in.Shape, Rows: rows, Out: r.out, LSE: r.lse, ScoreBound: reach(in, rows), InputError: other.InputError,
	}, nil
}

// Quantized returns attention over the quantised inputs on the given rows: [row, dim].
func Quantized(ctx context.Context, in *tensor.Inputs, rows Rows) ([]float64, error) {
	r, err := quantized(ctx, in, rows)
	return r.out, err
}

func quantized(ctx context.Context, in *tensor.Inputs, rows Rows) (result, error) {
	dims := in.Shape.HeadDim
	return attention(ctx, quantizedRows(&in.Q, dims), quantizedRows(&in.K, dims), quantizedRows(&in.V, dims), in.Shape, rows)
}

func quantizedRows(t *tensor.Tensor, dims int) source {
	return func(into []float64, head, first int) { t.Dequantize(into, head, first*dims) }
}

// Original returns attention over the original values of inputs on the given rows: [row, dim].
func Original(ctx context.Context, in *tensor.Inputs, rows Rows) ([]float64, error) {
	s := in.Shape
	q, k, v := floatRows(in.Q.Original, s.SeqQ, s), floatRows(in.K.Original, s.SeqK, s), floatRows(in.V.Original, s.SeqK, s)
	r, err := attention(ctx, q, k, v, s, rows)
	return r.out, err
}

// reach multiplies the longest query among the rows of each head by the longest key of that head.
func reach(in *tensor.Inputs, rows Rows) float64 {
	shape := in.Shape
	longestKey := make([]float64, shape.KVHeadCount())
	onAllCores(len(longestKey), func() func(int) {
		length := rowLength(&in.K, shape.HeadDim)
		return func(head int) {
			for key := range shape.SeqK {
				longestKey[head] = max(longestKey[head], length(head, key))
			}
		}
	})
	spans := rows.Spans(shape, shape.SeqQ)
	largest := make([]float64, len(spans))
	onAllCores(len(spans), func() func(int) {
		length := rowLength(&in.Q, shape.HeadDim)
		return func(span int) {
			s := spans[span]
			for i := s.From; i < s.To; i++ {
				query := length(s.Head, rows.At(i)-s.Head*shape.SeqQ)
				largest[span] = max(largest[span], query*longestKey[s.Head/shape.Group()])
			}
		}
	})
	return slices.Max(largest) / math.Sqrt(float64(shape.HeadDim))
}

// rowLength returns a function that computes the Euclidean length of a dequantised row.
func rowLength(t *tensor.Tensor, dims int) func(head, row int) float64 {
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

// Difference measures the difference of two outputs.
func Difference(a, b []float64) ErrorSize {
	var c ErrorSize
	for i := range a {
		d := math.Abs(a[i] - b[i])
		c.Max = max(c.Max, d)
		c.Mean += d
	}
	c.Mean /= float64(len(a))
	return c
}
