package attention

import (
	"math"
	"strings"
	"testing"

	"attune/internal/gate"
	"attune/internal/oracle"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

func TestLimits(t *testing.T) {
	tolerance := spec.Tolerance{MaxErr: 0.06, MeanErr: 0.02, BadFraction: 0.01}
	const rounding = 1.0 / 2048
	compare := func(what string, got gate.Limits, want gate.Limits) {
		t.Helper()
		if math.Abs(got.MaxErr-want.MaxErr) > 1e-15 || math.Abs(got.MeanErr-want.MeanErr) > 1e-15 || got.BadFraction != want.BadFraction {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	check := func(what string, out []float64, cost oracle.ErrorSize, share float64, want gate.Limits) {
		t.Helper()
		want.BadFraction = 0.01
		compare(what, limitsFor(&oracle.Reference{Out: out, InputError: cost}, toolchain.FP16, share, tolerance, true), want)
	}
	check("a share of the quantisation error", []float64{1, -1}, oracle.ErrorSize{Max: 0.5, Mean: 0.1}, 0.05, gate.Limits{MaxErr: 0.025, MeanErr: 0.005})
	check("never below the rounding of an FP16 output", []float64{1, -3}, oracle.ErrorSize{}, 0.05, gate.Limits{MaxErr: 3 * rounding, MeanErr: 2 * rounding})
	check("each limit on its own", []float64{1, -3}, oracle.ErrorSize{Max: 1}, 0.05, gate.Limits{MaxErr: 0.05, MeanErr: 2 * rounding})
	check("never above the tolerance", []float64{1}, oracle.ErrorSize{Max: 10, Mean: 10}, 0.05, gate.Limits{MaxErr: 0.06, MeanErr: 0.02})
	check("the mean error has an outer bound too", []float64{1000}, oracle.ErrorSize{}, 0.05, gate.Limits{MaxErr: 1000 * rounding, MeanErr: 0.02})
	check("relative to the largest output", []float64{0, -3}, oracle.ErrorSize{Max: 10, Mean: 10}, 0.05, gate.Limits{MaxErr: 0.18, MeanErr: 0.02})
	bf16 := limitsFor(&oracle.Reference{Out: []float64{1, -3}}, toolchain.BF16, 0.05, tolerance, true)
	compare("never below the rounding of a BF16 output", bf16, gate.Limits{MaxErr: 3.0 / 256, MeanErr: 2.0 / 256, BadFraction: 0.01})
	hard := func(what string, out []float64, cost oracle.ErrorSize, want gate.Limits) {
		t.Helper()
		want.BadFraction = 0.005
		compare("harder inputs: "+what, limitsFor(&oracle.Reference{Out: out, InputError: cost}, toolchain.FP16, 0.5, tolerance, false), want)
	}
	hard("relative to the largest output", []float64{-30}, oracle.ErrorSize{Max: 10, Mean: 10}, gate.Limits{MaxErr: 1.8, MeanErr: 0.02})
	hard("small outputs do not lower the limit", []float64{0.5}, oracle.ErrorSize{Max: 10, Mean: 10}, gate.Limits{MaxErr: 0.06, MeanErr: 0.02})
	hard("a share of the quantisation error", []float64{30}, oracle.ErrorSize{Max: 1, Mean: 0.02}, gate.Limits{MaxErr: 0.5, MeanErr: 30 * rounding})
	check("an output of zeros must be exact", []float64{0, 0}, oracle.ErrorSize{}, 0.05, gate.Limits{MaxErr: 0, MeanErr: 0})
}

// The gate fails on what oracle.Compare finds in a complete output.
func TestErrorsOfAnOutputWithOneNaN(t *testing.T) {
	shape := tensor.Shape{Batch: 1, Heads: 1, SeqQ: 64, SeqK: 64, HeadDim: 64}
	ref := &oracle.Reference{Shape: shape, Out: make([]float64, 64*64)}
	output := make([]float64, 64*64)
	output[65] = math.NaN()
	found, err := oracle.Compare(output, ref, oracle.Tolerance{Abs: 0.06, Rel: 0.06})
	if err != nil {
		t.Fatal(err)
	}
	got := gate.Errors(found, limitsFor(ref, toolchain.FP16, 0.05, spec.Tolerance{MaxErr: 0.06, MeanErr: 0.02, BadFraction: 0.01}, true))
	if len(got) != 1 || !strings.Contains(got[0], "row 1 dim 1") {
		t.Errorf("one NaN of 4096 gave %q", got)
	}
}

func TestLimitsOfLSE(t *testing.T) {
	ref := &oracle.Reference{Shape: tensor.Shape{Batch: 1, Heads: 1, SeqQ: 4, SeqK: 1 << 12, HeadDim: 64}, ScoreBound: 8}
	exact, rounded := lseFor(ref, toolchain.LSEInFP32), lseFor(ref, toolchain.LSERounded)
	check := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-4 {
			t.Errorf("%s: %g, want %g", what, got, want)
		}
	}
	// Two instructions of 33 addends, each with an error of at most 8·2^-13.
	check("sums in FP32, maximum", exact.MaxErr, 66*8.0/8192+1.0/4096)
	check("sums in FP32, mean", exact.MeanErr, 8.124*8.0/8192+1.0/4096)
	// 1/16 and 8·33·2^-13 of the sum, and 2^12 keys that may underflow, 2^-18 each.
	check("sums of rounded exponentials, maximum", rounded.MaxErr-exact.MaxErr, 0.09952+1.0/64)
	check("sums of rounded exponentials, mean", rounded.MeanErr-exact.MeanErr, 0.05999+1.0/64)
}
