package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"attune/internal/arch"
	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/form"
	"attune/internal/predict"
	"attune/internal/problem"
	"attune/internal/sim/mma"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// Limits of the simulation behind a prediction.
const (
	predictedBytes  = 1 << 30 // of buffers
	predictedMemory = 3 << 30 // of the simulator
	predictedSteps  = 8e6     // warp instructions of a sample
	equalSteps      = 0.001   // blocks whose instructions differ by less are all alike
	predictedRows   = 1e6     // multiply-adds of the reference, of which only the inputs are used
)

// Prediction is a predicted time, with the work that it follows from.
type Prediction struct {
	Kernel  string       `json:"kernel,omitempty"` // if it is another than that of the command
	Variant string       `json:"variant"`
	Shape   string       `json:"shape"`
	Time    predict.Time `json:"predicted"`
	TFLOPS  float64      `json:"predicted_tflops,omitempty"` // of the problem
	Work    predict.Work `json:"work"`
}

// Predict predicts the time of a variant on a shape and a chip.
func (l *Lab) Predict(ctx context.Context, compiler *toolchain.Compiler, v spec.Variant, shape spec.Shape, c arch.Chip) (*Prediction, error) {
	work, err := l.Work(ctx, compiler, v, shape, c)
	if err != nil {
		return nil, err
	}
	p := &Prediction{Variant: v.String(), Shape: shape.String(), Work: *work, Time: predict.Recorded().Model.Time(*work, c)}
	if w, err := l.problem().Work(v, shape, l.problem().DType(v)); err == nil {
		p.TFLOPS = w.FLOPs / p.Time.Microseconds / 1e6
	}
	return p, nil
}

// Work is what a variant does on a shape when it is built for a chip. No GPU is needed: the machine
// code is disassembled, and the simulator runs some of the blocks, or all of them if they communicate.
func (l *Lab) Work(ctx context.Context, compiler *toolchain.Compiler, v spec.Variant, shape spec.Shape, c arch.Chip) (*predict.Work, error) {
	target, err := targetOn(v, c)
	if err != nil {
		return nil, err
	}
	if compiler == nil {
		return nil, fmt.Errorf("%w on this machine: a prediction needs the machine code for %s", toolchain.ErrNoCompiler, target)
	}
	l.progress(Progress{Subject: v.String(), Step: "building for " + target})
	image, _, err := l.Builder.Build(ctx, form.Target(l.Kernel, v, target))
	if err != nil {
		return nil, err
	}
	sass, err := toolchain.Disassemble(ctx, compiler, image.Cubin, toolchain.SourceLines)
	if err != nil {
		return nil, err
	}
	l.progress(Progress{Subject: v.String(), Step: "counting on the simulator"})
	b := problem.Build{Variant: v, Image: image, Code: image.PTX}
	job, err := l.predictedJob(ctx, b, shape, c)
	if err != nil {
		return nil, err
	}
	counts, err := sampled(ctx, job)
	if err != nil {
		return nil, fmt.Errorf("predict %s on %s: %w", v, shape, err)
	}
	r := image.Record.Resources
	work := predict.NewWork(sass, counts, job, r.Registers, r.StaticSharedBytes+job.DynamicSharedBytes)
	return &work, nil
}

// targetOn is the architecture that a variant is built for to run on a chip.
func targetOn(v spec.Variant, c arch.Chip) (string, error) {
	archs := v.Stage().Archs
	target := c.Best(archs)
	if target == "" {
		return "", RequestError(fmt.Sprintf("%s is for %s, and %s is %s", v, strings.Join(archs, ", "), c.Name, c.Arch))
	}
	return target, nil
}

// predictedJob is the launch of a shape on a chip, without its reference if the problem allows that.
func (l *Lab) predictedJob(ctx context.Context, b problem.Build, shape spec.Shape, c arch.Chip) (device.Job, error) {
	if err := l.problem().CheckShapes(b.Variant, []spec.Shape{shape}); err != nil {
		return device.Job{}, RequestError(err.Error())
	}
	refs := l.references(predictedRows, nil)
	defer refs.Close()
	instance := l.problem().Plain(shape, l.Kernel.Run.SimSeeds[0])
	if launcher, ok := refs.(problem.Launcher); ok {
		return launcher.Launch(b, instance, predictedBytes)
	}
	ref, err := refs.Get(ctx, instance)
	if err != nil {
		return device.Job{}, err
	}
	return ref.Job(b, device.Facts{Arch: c.Arch, Multiprocessors: c.Multiprocessors})
}

// sampled counts some blocks of a job, or all if they communicate.
func sampled(ctx context.Context, job device.Job) (predict.Sampled, error) {
	simulator := simdevice.Open(simdevice.Options{Schedules: 1, Memory: predictedMemory, Executed: true, Tensor: mma.Skip})
	all := job.Grid[0] * job.Grid[1] * job.Grid[2]
	run := func(blocks int) (predict.Sampled, error) {
		job.Sample = blocks
		outcome, err := simulator.Run(ctx, job)
		if err != nil {
			return predict.Sampled{}, err
		}
		ran := all
		if blocks > 0 {
			ran = min(blocks, all)
		}
		return predict.Sampled{Blocks: ran, Covered: outcome.Covered, Counters: outcome.Counters}, nil
	}
	few, err := run(2)
	var unsupported *device.Unsupported
	if errors.As(err, &unsupported) {
		return run(0)
	}
	if err != nil || few.Blocks == all {
		return few, err
	}
	some, err := run(5)
	if err != nil || some.Blocks == all || math.Abs(some.Steps()/few.Steps()-1) < equalSteps {
		return some, err
	}
	more, err := run(max(some.Blocks, min(all, int(predictedSteps/some.Steps()))))
	more.Uneven = true
	return more, err
}
