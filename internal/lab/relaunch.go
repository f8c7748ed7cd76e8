package lab

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"attune/internal/device"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// second is the problem of a relaunch after another problem, with its reference; nil if there is
// none. Only the smallest of the shapes has one, with its first seed and normal inputs: it shows
// that a kernel keeps a result or counts launches as well as a large one. The inputs are drawn from
// a seed that no kernel can know.
func (r *references) second(ctx context.Context, p problem, shapes []tensor.Shape, firstSeed uint64) (*reference, error) {
	smallest := slices.MinFunc(shapes, func(a, b tensor.Shape) int { return cmp.Compare(a.FLOPs(), b.FLOPs()) })
	if p != (problem{smallest, firstSeed, tensor.Normal}) {
		return nil, nil
	}
	seed := r.secret
	if seed == firstSeed {
		seed++
	}
	return r.get(ctx, problem{p.shape, seed, tensor.Normal})
}

// contents are the bytes of a job's buffers that are not outputs.
func contents(job device.Job) device.Relaunch {
	var r device.Relaunch
	for _, arg := range job.Args {
		if all := append(arg.Input, arg.InOut...); all != nil { // at most one of the two is set
			r.Inputs = append(r.Inputs, all)
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
	r := &run.Relaunch{Seed: second.inputs.Seed, Errors: errs.Errors, LSE: errs.lse, Repeats: true}
	for i, output := range outcome.Outputs {
		r.Repeats = r.Repeats && bytes.Equal(output, outcome.Relaunched[1][i])
	}
	return r, nil
}

// relaunchWrong lists what is wrong with the relaunches, and records whether anything is.
func relaunchWrong(second *reference, launch toolchain.Launch, r *run.Relaunch, share float64, tolerance spec.Tolerance) []string {
	_, wrong := applyLimits(second, launch, outputErrors{r.Errors, r.LSE, nil}, nil, share, tolerance)
	for i, text := range wrong {
		wrong[i] = fmt.Sprintf("relaunched with the inputs of seed %d, it depends on earlier launches: %s", r.Seed, text)
	}
	if !r.Repeats {
		wrong = append(wrong, device.NotRepeatable+": relaunched with the first inputs, its output differs from that of the first launch")
	}
	r.Pass = len(wrong) == 0
	return wrong
}
