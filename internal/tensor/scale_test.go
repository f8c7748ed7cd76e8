package tensor_test

import (
	"math"
	"testing"

	"attune/internal/oracle"
	"attune/internal/tensor"
)

// Another softmax scale has the same scores as the usual one with other queries.
func TestScale(t *testing.T) {
	t.Parallel()
	shape, err := tensor.ParseShape("1x2x5x64")
	if err != nil {
		t.Fatal(err)
	}
	in := tensor.Draw(shape, 1, tensor.Options{})
	if in.SoftmaxScale() != 0.125 {
		t.Errorf("the usual scale is %g", in.SoftmaxScale())
	}
	double := in.WithScale(2)
	folded := double.FoldScale()
	if double.SoftmaxScale() != 0.25 || folded.SoftmaxScale() != 0.125 || in.SoftmaxScale() != 0.125 {
		t.Errorf("the scales are %g, %g and %g", double.SoftmaxScale(), folded.SoftmaxScale(), in.SoftmaxScale())
	}
	if folded.Q.Descale[1] != 2*in.Q.Descale[1] || folded.Q.Original[7] != 2*in.Q.Original[7] || &folded.K.Codes[0] != &in.K.Codes[0] {
		t.Error("the factor is not in the queries alone")
	}
	usual, err := oracle.Compute(t.Context(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := oracle.Compute(t.Context(), folded, nil)
	if err != nil || math.Abs(other.ScoreBound-2*usual.ScoreBound) > 1e-9 {
		t.Errorf("the score bounds are %g and %g, %v", usual.ScoreBound, other.ScoreBound, err)
	}
}
