package lab

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"attune/internal/device"
	"attune/internal/oracle"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// second is the problem of a relaunch after another problem, with its reference; nil if there is
// none. Only the smallest of the shapes has one, with its first seed and normal inputs: it shows
// that a kernel keeps a result or counts launches as well as a large one. The inputs are drawn from
// a seed that no kernel can know, and so is the softmax scale.
func (r *references) second(ctx context.Context, p problem, shapes []tensor.Shape, firstSeed uint64) (*reference, error) {
	smallest := slices.MinFunc(shapes, func(a, b tensor.Shape) int { return cmp.Compare(a.FLOPs(), b.FLOPs()) })
	if p != (problem{smallest, firstSeed, tensor.Normal}) {
		return nil, nil
	}
	seed := r.secret
	if seed == firstSeed {
		seed++
	}
	second := problem{p.shape, seed, tensor.Normal}
	if known := r.computed[second]; known != nil {
		return known, nil
	}
	inputs := r.inputs(second).WithScale(secretScale(seed))
	want, err := oracle.Compute(ctx, inputs.FoldScale(), oracle.Sample(p.shape, r.secret, r.maxWork))
	if err != nil {
		return nil, err
	}
	r.computed[second] = &reference{inputs: inputs, want: want}
	return r.computed[second], nil
}

// secretScale is the softmax scale of a relaunch, in units of the usual one: 0.6 to 0.8, or 1.2 to
// 1.5. A kernel that ignores the scale is off by more than the limits on scores of that size.
func secretScale(seed uint64) float64 {
	const unit = 64.0 // an exact FP32
	first := 38 + seed>>1%13
	if seed&1 == 1 {
		first += 42
	}
	return float64(first) / unit
}

// contents are the bytes of a job's buffers that are not outputs, and its scalars.
func contents(job device.Job) device.Relaunch {
	var r device.Relaunch
	for _, arg := range job.Args {
		if all := append(arg.Input, arg.InOut...); all != nil { // at most one of the two is set
			r.Inputs = append(r.Inputs, all)
		}
		if arg.Scalar != nil {
			r.Scalars = append(r.Scalars, arg.Scalar)
		}
	}
	return r
}

// compareRelaunched compares the relaunches of an outcome: the first with the reference of the
// second problem, the last, on the first inputs again, with the first launch.
func compareRelaunched(second *reference, launch toolchain.Launch, outcome *device.Outcome, tolerance spec.Tolerance) (*run.Relaunch, error) {
	if len(outcome.Relaunched) != 2 {
		return nil, errors.New("BUG: the device has ignored the relaunches of a job")
	}
	errs, err := compareOutputs(second, launch, outcome.Relaunched[0], tolerance)
	if err != nil {
		return nil, err
	}
	r := &run.Relaunch{Seed: second.inputs.Seed, ScaleFactor: second.inputs.ScaleFactor, Errors: errs.Errors, LSE: errs.lse, Repeats: true}
	for i, output := range outcome.Outputs {
		r.Repeats = r.Repeats && bytes.Equal(output, outcome.Relaunched[1][i])
	}
	return r, nil
}

// relaunchLimit widens the limits of a relaunch: they hold for the usual scale, and with a smaller one
// weights are more alike, so that their errors are too. A result of other inputs, or of another
// scale, is off by far more.
const relaunchLimit = 2

// relaunchWrong lists what is wrong with the relaunches, and records whether anything is.
func relaunchWrong(second *reference, launch toolchain.Launch, r *run.Relaunch, share float64, tolerance spec.Tolerance) []string {
	_, wrong := applyLimits(second, launch, outputErrors{r.Errors, r.LSE, nil}, nil, relaunchLimit*share, tolerance)
	for i, text := range wrong {
		wrong[i] = fmt.Sprintf("relaunched with the inputs of seed %d and %.3g times the softmax scale, it depends on earlier launches or on the usual scale: %s",
			r.Seed, r.ScaleFactor, text)
	}
	if !r.Repeats {
		wrong = append(wrong, device.NotRepeatable+": relaunched with the first inputs, its output differs from that of the first launch")
	}
	r.Pass = len(wrong) == 0
	return wrong
}
