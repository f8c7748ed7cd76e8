package lab

import (
	"context"
	"fmt"

	"attune/internal/device"
	"attune/internal/gate"
	"attune/internal/oracle"
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
	wrong   []string // the findings, then the errors over their limits
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

// check runs the problem of a reference on an image and compares the output with the reference. The
// result has what the kernel did wrong; an error is not the kernel's fault.
func (l *Lab) check(ctx context.Context, s *session, v spec.Variant, image *toolchain.Image, ref *reference) (*checked, error) {
	outcome, err := s.run(ctx, image, ref.inputs)
	if err != nil {
		if s.lost && ctx.Err() == nil {
			return &checked{failure: err}, nil
		}
		return nil, err
	}
	launch := image.Record.Launch
	c := &checked{outcome: outcome}
	if c.errors, err = compareOutputs(ref, launch, outcome.Outputs, l.Kernel.Tolerance); err != nil {
		return nil, err
	}
	c.limits, c.wrong = applyLimits(ref, launch, c.errors, outcome.Findings, v.Stage().ErrorShare, l.Kernel.Tolerance)
	return c, nil
}

// run launches an image on inputs.
func (s *session) run(ctx context.Context, image *toolchain.Image, in *tensor.Inputs) (*device.Outcome, error) {
	d, err := s.ready(ctx)
	if err != nil {
		return nil, err
	}
	outcome, err := d.Run(ctx, newJob(image, d.Facts(), in))
	s.failed(err)
	return outcome, err
}

// outputErrors are the errors of one output: of O, and of the log-sum-exp if the kernel writes it.
type outputErrors struct {
	oracle.Errors
	lse *oracle.LSEErrors
}

// compareOutputs compares the outputs of a launch with the reference.
func compareOutputs(ref *reference, launch toolchain.Launch, written [][]byte, tolerance spec.Tolerance) (outputErrors, error) {
	o, lse := outputs(launch, written, ref.want.Rows, ref.inputs.Shape.HeadDim)
	errs, err := oracle.Compare(o, ref.want, oracle.Tolerance{Abs: tolerance.Atol, Rel: tolerance.Rtol})
	if err != nil || lse == nil {
		return outputErrors{Errors: errs}, err
	}
	lseErrors, err := oracle.CompareLSE(lse, ref.want)
	return outputErrors{errs, &lseErrors}, err
}

// applyLimits derives the limits of the errors and lists what is wrong with an output.
func applyLimits(ref *reference, launch toolchain.Launch, errs outputErrors, findings []device.Finding, share float64,
	tolerance spec.Tolerance,
) (gate.Limits, []string) {
	normal := ref.inputs.Options.Distribution == tensor.Normal
	limits := gate.LimitsFor(ref.want, launch.Output, share, tolerance, normal)
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
