package tensor

import (
	"cmp"
	"math"
)

// WithScale returns the same inputs with another softmax scale: the factor times the usual one. It
// shares the memory of in.
func (in *Inputs) WithScale(factor float64) *Inputs {
	scaled := *in
	scaled.ScaleFactor = factor
	return &scaled
}

// SoftmaxScale returns what scores are multiplied by: one over the root of the head dim, times the
// factor.
func (in *Inputs) SoftmaxScale() float64 {
	return in.factor() / math.Sqrt(float64(in.Shape.HeadDim))
}

func (in *Inputs) factor() float64 { return cmp.Or(in.ScaleFactor, 1) }

// FoldScale returns inputs with the usual softmax scale and the same scores: the factor goes into
// the values of Q.
func (in *Inputs) FoldScale() *Inputs {
	folded := *in
	folded.ScaleFactor = 0
	folded.Q.Descale, folded.Q.Original = times(in.Q.Descale, in.factor()), times(in.Q.Original, in.factor())
	return &folded
}

func times(values []float32, factor float64) []float32 {
	all := make([]float32, len(values))
	for i, x := range values {
		all[i] = float32(float64(x) * factor)
	}
	return all
}
