package oracle

import (
	"context"
	"math"
	"slices"

	"attune/internal/tensor"
)

// Reference is the right answer for a set of inputs.
type Reference struct {
	Shape tensor.Shape
	// Out is [batch, head, row, dim]: attention over the FP8 inputs as the kernel gets them, in float64.
	Out []float64
	// LSE is [batch, head, row]: the natural logarithm of the sum of exp(score), -Inf for a row that sees no key.
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

// Compute gives the reference for inputs.
func Compute(ctx context.Context, in *tensor.Inputs) (*Reference, error) {
	a, err := attention(ctx, in.Q.Dequantize, in.K.Dequantize, in.V.Dequantize, in.Shape)
	if err != nil {
		return nil, err
	}
	originals, err := Original(ctx, in)
	if err != nil {
		return nil, err
	}
	return &Reference{Shape: in.Shape, Out: a.out, LSE: a.lse, Reach: reach(in), InputCost: cost(a.out, originals)}, nil
}

// Quantized is attention over inputs as a kernel gets them.
func Quantized(ctx context.Context, in *tensor.Inputs) ([]float64, error) {
	a, err := attention(ctx, in.Q.Dequantize, in.K.Dequantize, in.V.Dequantize, in.Shape)
	return a.out, err
}

// Original is attention over inputs before they were quantised.
func Original(ctx context.Context, in *tensor.Inputs) ([]float64, error) {
	a, err := attention(ctx, widened(in.Q.Original), widened(in.K.Original), widened(in.V.Original), in.Shape)
	return a.out, err
}

func widened(values []float32) source {
	return func(into []float64, head int) {
		for i, v := range values[head*len(into):][:len(into)] {
			into[i] = float64(v)
		}
	}
}

// reach takes the longest query and the longest key of each head.
func reach(in *tensor.Inputs) float64 {
	longest := func(t *tensor.Tensor, head int) float64 {
		values := make([]float64, len(t.Codes)/len(t.Descale))
		t.Dequantize(values, head)
		most := 0.0
		for row := range slices.Chunk(values, in.Shape.HeadDim) {
			sum := 0.0
			for _, x := range row {
				sum += x * x
			}
			most = max(most, math.Sqrt(sum))
		}
		return most
	}
	keys := make([]float64, in.Shape.KVHeadCount())
	for head := range keys {
		keys[head] = longest(&in.K, head)
	}
	most := 0.0
	for head := range in.Shape.HeadCount() {
		most = max(most, longest(&in.Q, head)*keys[head/in.Shape.Group()])
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
