package lab

import (
	"context"
	"fmt"
	"slices"

	"attune/internal/device"
	"attune/internal/gate"
	"attune/internal/half"
	"attune/internal/oracle"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// checked is the result of one problem on one image.
type checked struct {
	failure error           // the kernel's fault, timeout or crash; the other fields are then empty
	outcome *device.Outcome // of the launch
	errors  outputErrors
	limits  gate.Limits
	further *run.Relaunch // nil without a second problem
	wrong   []string      // the findings, then the errors over their limits, then those of relaunches
}

// firstWrong is the first thing that is wrong with the kernel, or empty.
func (c *checked) firstWrong() string {
	switch {
	case c.failure != nil:
		return c.failure.Error()
	case len(c.wrong) > 0:
		return c.wrong[0]
	}
	return ""
}

// check runs the problem of a reference on an image and compares the output with the reference. If
// there is a second problem, it relaunches the image on that one and on the first again. The result
// has what the kernel did wrong; an error is not the kernel's fault.
func (l *Lab) check(ctx context.Context, s *session, v spec.Variant, image *toolchain.Image, ref, second *reference) (*checked, error) {
	var further []*tensor.Inputs
	if second != nil {
		further = []*tensor.Inputs{second.inputs, ref.inputs}
	}
	outcome, err := s.run(ctx, image, ref.inputs, further...)
	if err != nil {
		if s.lost && ctx.Err() == nil {
			return &checked{failure: err}, nil
		}
		return nil, err
	}
	launch := image.Record.Launch
	outcome.Findings = unallowed(v, outcome.Findings)
	c := &checked{outcome: outcome}
	if c.errors, err = compareOutputs(ref, launch, outcome.Outputs, l.Kernel.Tolerance); err != nil {
		return nil, err
	}
	share := v.Stage().ErrorShare
	if v.Exponentials() != "" && ref.exact != nil {
		c.errors.exponentials = compareExponentials(ref, launch, outcome.Outputs)
	}
	c.limits, c.wrong = applyLimits(ref, launch, c.errors, outcome.Findings, share, l.Kernel.Tolerance)
	if second != nil {
		if c.further, err = compareRelaunched(second, launch, outcome, l.Kernel.Tolerance); err != nil {
			return nil, err
		}
		c.wrong = append(c.wrong, relaunchWrong(second, launch, c.further, share, l.Kernel.Tolerance)...)
	}
	return c, nil
}

// run launches an image on inputs, and relaunches it on each of the further inputs.
func (s *session) run(ctx context.Context, image *toolchain.Image, in *tensor.Inputs, further ...*tensor.Inputs) (*device.Outcome, error) {
	d, err := s.ready(ctx)
	if err != nil {
		return nil, err
	}
	job := newJob(image, d.Facts(), in)
	for _, next := range further {
		job.Relaunches = append(job.Relaunches, contents(newJob(image, d.Facts(), next)))
	}
	outcome, err := d.Run(ctx, job)
	s.failed(err)
	return outcome, err
}

// outputErrors are the errors of one output: of O, and of the log-sum-exp if the kernel writes it.
type outputErrors struct {
	oracle.Errors
	lse *oracle.LSEErrors
	// exponentials is nil unless they were compared with a model.
	exponentials *oracle.Exponentials
}

// compareOutputs compares the outputs of a launch with the reference.
func compareOutputs(ref *reference, launch toolchain.Launch, written [][]byte, tolerance spec.Tolerance) (outputErrors, error) {
	o, lse := outputs(launch, written, ref.want.Rows, ref.inputs.Shape.HeadDim)
	errs, err := oracle.Compare(o, ref.want, oracle.Tolerance{Abs: tolerance.Atol, Rel: tolerance.Rtol})
	if err != nil || lse == nil {
		return outputErrors{Errors: errs}, err
	}
	lseErrors, err := oracle.CompareLSE(lse, ref.want)
	return outputErrors{Errors: errs, lse: &lseErrors}, err
}

// compareExponentials compares the errors of O with those of exact exponentials. A kernel may sum P
// before or after it is rounded; both are common.
func compareExponentials(ref *reference, launch toolchain.Launch, written [][]byte) *oracle.Exponentials {
	o, _ := outputs(launch, written, nil, ref.inputs.Shape.HeadDim)
	model := &oracle.Model{Rows: ref.exactRows}
	for _, out := range ref.exact {
		model.Outs = append(model.Outs, roundOutput(out, launch.Output))
	}
	return oracle.CompareModel(o, ref.want, model, ref.inputs.Options.Distribution == tensor.Uniform)
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

// applyLimits derives the limits of the errors and lists what is wrong with an output.
func applyLimits(ref *reference, launch toolchain.Launch, errs outputErrors, findings []device.Finding, share float64,
	tolerance spec.Tolerance,
) (gate.Limits, []string) {
	normal := ref.inputs.Options.Distribution == tensor.Normal
	want := ref.want
	if slices.Contains(tensor.Studied, ref.inputs.Options.Distribution) {
		want = ref.costOfP()
	}
	limits := gate.LimitsFor(want, launch.Output, share, tolerance, normal)
	var wrong []string // findings first: they are often the cause of the errors
	for _, f := range findings {
		wrong = append(wrong, findingText(f))
	}
	wrong = append(wrong, gate.Errors(errs.Errors, limits)...)
	if errs.lse != nil {
		limits.LSE = gate.LSEFor(ref.want, launch.LSE)
		wrong = append(wrong, gate.LSEErrors(*errs.lse, limits.LSE)...)
	}
	return limits, wrong
}

// costOfP is the reference with the error of rounding P where that is larger than the quantisation
// error. The inputs that study exponentials cost little or nothing to quantise. The factors leave
// room for another rounding of the same exponentials; the comparison with the model is stricter.
func (r *reference) costOfP() *oracle.Reference {
	const maxFactor, meanFactor = 2, 1.5
	want := *r.want
	reference := oracle.SelectRows(r.exactRows, want.Out, want.Shape.HeadDim)
	for _, out := range r.exact {
		cost := oracle.Difference(out, reference)
		want.InputError.Max = max(want.InputError.Max, maxFactor*cost.Max)
		want.InputError.Mean = max(want.InputError.Mean, meanFactor*cost.Mean)
	}
	return &want
}

// notCorrect is the error of a command that needs a correct kernel: a WrongError, or the timeout of
// a kernel that was not checked to the end.
func notCorrect(v spec.Variant, p problem, wrong string, failure error) error {
	if device.Classify(failure) == device.KernelTimeout {
		return fmt.Errorf("%s was not checked: %s: %w", v, p, failure)
	}
	return &WrongError{v.String(), p.String() + ": " + wrong}
}

// WrongError is the error of a command that needs a correct kernel and was given one that is not.
type WrongError struct {
	Variant string
	Wrong   string
}

func (e *WrongError) Error() string {
	return e.Variant + " itself does not pass the correctness gate: " + e.Wrong
}
