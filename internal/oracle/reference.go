package oracle

import (
	"context"
	"math"

	"attune/internal/tensor"
)

// Reference is the right answer for a set of inputs.
type Reference struct {
	Shape tensor.Shape
	// Out is [batch, head, row, dim]: attention over the FP8 inputs as the kernel gets them, in float64.
	Out []float64
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
	out, err := Quantized(ctx, in)
	if err != nil {
		return nil, err
	}
	originals, err := Original(ctx, in)
	if err != nil {
		return nil, err
	}
	return &Reference{Shape: in.Shape, Out: out, InputCost: cost(out, originals)}, nil
}

// Quantized is attention over inputs as a kernel gets them.
func Quantized(ctx context.Context, in *tensor.Inputs) ([]float64, error) {
	return attention(ctx, in.Q.Dequantize, in.K.Dequantize, in.V.Dequantize, in.Shape)
}

// Original is attention over inputs before they were quantised.
func Original(ctx context.Context, in *tensor.Inputs) ([]float64, error) {
	return attention(ctx, widened(in.Q.Original), widened(in.K.Original), widened(in.V.Original), in.Shape)
}

func widened(values []float32) source {
	return func(into []float64, head int) {
		for i, v := range values[head*len(into):][:len(into)] {
			into[i] = float64(v)
		}
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
