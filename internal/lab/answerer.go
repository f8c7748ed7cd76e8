package lab

import (
	"context"
	"fmt"
	"slices"

	"attune/internal/device"
	"attune/internal/oracle"
	"attune/internal/problem"
	"attune/internal/problem/attention"
	"attune/internal/spec"
	"attune/internal/tensor"
)

// VariantRunner is a variant with a device of its own that computes outputs for any inputs. It passes no
// gate and writes no record.
type VariantRunner struct {
	build   problem.Build
	session *session
}

// NewVariantRunner builds a variant, for an architecture or, if that is empty, for the device, and opens a
// device. The caller closes the NewVariantRunner.
func (l *Lab) NewVariantRunner(ctx context.Context, v spec.Variant, arch string) (*VariantRunner, error) {
	builds, err := l.buildAudited(ctx, arch, v)
	if err != nil {
		return nil, err
	}
	a := &VariantRunner{builds[v.String()], l.newSession()}
	d, err := a.session.ready(ctx)
	if err != nil {
		return nil, err
	}
	_, a.build.Code = loadable(a.build.Image, d.Facts())
	return a, nil
}

// Output computes some rows of the output for inputs. A kernel with a finding or a failure returns
// a WrongError: the errors of its output would say nothing about its arithmetic.
func (a *VariantRunner) Output(ctx context.Context, in *tensor.Inputs, rows oracle.Rows) ([]float64, error) {
	d, err := a.session.ready(ctx)
	if err != nil {
		return nil, err
	}
	outcome, err := a.session.run(ctx, attention.Job(a.build, d.Facts(), in))
	wrong := ""
	switch {
	case device.Classify(err).LosesDevice():
		wrong = err.Error()
	case err != nil:
		return nil, fmt.Errorf("%s: %w", a.build.Variant, err)
	case len(outcome.Findings) > 0:
		wrong = outcome.Findings[0].String()
	default:
		o, _ := attention.Outputs(a.build.Image.Record.Launch, outcome.Outputs, rows, in.Shape.HeadDim)
		return o, nil
	}
	i := problem.Instance{Shape: in.Shape, Seed: in.Seed, Inputs: in.Options.Distribution.String()}
	return nil, notCorrect(a.build.Variant, i, wrong, err)
}

// Close closes the device.
func (a *VariantRunner) Close() error {
	a.session.close()
	return nil
}

// Arithmetics are the stages of a kernel that differ in their arithmetic, as far as the device can
// run them. Stages with equal error shares have the same arithmetic, and the last of them stands
// for all.
func Arithmetics(kernel *spec.Kernel, arch, deviceArch string) []spec.Variant {
	var last []*spec.Stage
	for _, stage := range kernel.Stages {
		if _, err := Arch(stage, arch, deviceArch); err != nil {
			continue
		}
		i := slices.IndexFunc(last, func(s *spec.Stage) bool { return s.ErrorShare == stage.ErrorShare })
		if i < 0 {
			last = append(last, stage)
		} else {
			last[i] = stage
		}
	}
	var variants []spec.Variant
	for _, stage := range last {
		variants = append(variants, stage.Variant())
	}
	return variants
}
