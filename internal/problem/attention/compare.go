package attention

import (
	"slices"

	"attune/internal/gate"
	"attune/internal/half"
	"attune/internal/oracle"
	"attune/internal/problem"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// Outputs decodes some rows of a kernel's output: O, and the log-sum-exp if the kernel writes it.
func Outputs(launch toolchain.Launch, written [][]byte, rows oracle.Rows, dims int) (o, lse []float64) {
	codes := oracle.SelectRows(rows, written[0], 2*dims)
	if launch.Output == toolchain.BF16 {
		o = half.DecodeBFloat16(codes)
	} else {
		o = half.DecodeFloat16(codes)
	}
	if launch.LSE != "" {
		for _, x := range decodeFloats(oracle.SelectRows(rows, written[1], 4)) {
			lse = append(lse, float64(x))
		}
	}
	return o, lse
}

// Compare compares the outputs of a launch with the reference, and with the model if there is one.
func (r *reference) Compare(b problem.Build, written [][]byte) (problem.Result, error) {
	launch := b.Image.Record.Launch
	o, lse := Outputs(launch, written, r.want.Rows, r.inputs.Shape.HeadDim)
	result, err := r.compareO(o)
	if err == nil && lse != nil {
		var errs oracle.LSEErrors
		errs, err = oracle.CompareLSE(lse, r.want)
		result.LSE = &errs
	}
	if r.exact != nil && b.Variant.Exponentials() != "" {
		result.Exponentials = r.compareExponentials(launch, written)
	}
	return result, err
}

// CompareValues compares the output "o" of a peer with the reference.
func (r *reference) CompareValues(outputs map[string][]float64) (problem.Result, error) {
	return r.compareO(oracle.SelectRows(r.want.Rows, outputs["o"], r.inputs.Shape.HeadDim))
}

// compareO compares the rows of O that the reference has.
func (r *reference) compareO(o []float64) (problem.Result, error) {
	tolerance := r.problem.kernel.Tolerance
	errs, err := oracle.Compare(o, r.want, oracle.Tolerance{Abs: tolerance.Atol, Rel: tolerance.Rtol})
	return problem.Result{Errors: errs}, err
}

// compareExponentials compares the errors of O with those of exact exponentials. A kernel may sum P
// before or after it is rounded; both are common.
func (r *reference) compareExponentials(launch toolchain.Launch, written [][]byte) *oracle.Exponentials {
	o, _ := Outputs(launch, written, r.want.Rows, r.inputs.Shape.HeadDim)
	model := &oracle.Model{Rows: r.exactRows}
	for _, out := range r.exact {
		model.Outs = append(model.Outs, roundOutput(out, launch.Output))
	}
	return oracle.CompareModel(o, r.want, model, r.inputs.Options.Distribution == tensor.Uniform)
}

// roundOutput rounds an output to its number format.
func roundOutput(values []float64, format toolchain.Output) []float64 {
	rounded := make([]float64, len(values))
	for i, x := range values {
		if format == toolchain.BF16 {
			rounded[i] = float64(half.BFloat16FromFloat32(float32(x)).Float32())
		} else {
			rounded[i] = float64(half.Float16FromFloat64(x).Float32())
		}
	}
	return rounded
}

// peerShare limits the error of a peer, as a share of the quantisation error of FP8 inputs. It
// equals the share of variants with E4M3 products.
const peerShare = 1

// Judge derives the limits of the errors and lists what is wrong with an output. The slack widens
// the share of the stage.
func (r *reference) Judge(b problem.Build, result problem.Result, slack float64) (gate.Limits, []string) {
	share, launch := float64(peerShare), toolchain.Launch{}
	if b.Image != nil {
		share, launch = b.Variant.Stage().ErrorShare, b.Image.Record.Launch
	}
	limits, wrong := r.limits(launch, result, slack*share)
	if result.Exponentials != nil {
		// On near-uniform rows a linear approximation is 2 % high for all keys alike. If half of them
		// have it, that does not cancel.
		strict := b.Selected && r.inputs.Options.Distribution != tensor.Uniform
		wrong = append(wrong, gate.ExponentialErrors(result.Exponentials, gate.LimitsOfExponentials(b.Variant.Exponentials(), strict))...)
	}
	return limits, wrong
}

// limits derives the limits of the errors from a share, and lists what is over them.
func (r *reference) limits(launch toolchain.Launch, result problem.Result, share float64) (gate.Limits, []string) {
	distribution, want := r.inputs.Options.Distribution, r.want
	if slices.Contains(tensor.Studied, distribution) {
		want = r.costOfP()
	}
	limits := limitsFor(want, launch.Output, share, r.problem.kernel.Tolerance, distribution == tensor.Normal)
	wrong := gate.Errors(result.Errors, limits)
	if result.LSE != nil {
		limits.LSE = lseFor(r.want, launch.LSE)
		wrong = append(wrong, gate.LSEErrors(*result.LSE, limits.LSE)...)
	}
	return limits, wrong
}

// costOfP is the reference with the error of rounding P where that is larger than the quantisation
// error. The inputs that study exponentials cost little or nothing to quantise. The factors leave
// room for another rounding of the same exponentials; the comparison with the model is stricter.
func (r *reference) costOfP() *oracle.Reference {
	const maxFactor, meanFactor = 2, 1.5
	want := *r.want
	rows := oracle.SelectRows(r.exactRows.Positions(want.Rows), want.Out, want.Shape.HeadDim)
	for _, out := range r.exact {
		cost := oracle.Difference(out, rows)
		want.InputError.Max = max(want.InputError.Max, maxFactor*cost.Max)
		want.InputError.Mean = max(want.InputError.Mean, meanFactor*cost.Mean)
	}
	return &want
}
