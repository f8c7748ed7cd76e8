package lab

import (
	"context"
	"errors"
	"fmt"

	"attune/internal/device"
	"attune/internal/device/isolate"
	"attune/internal/oracle"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// Answerer is a variant on a device of its own that answers problems of any kind. It passes no gate and leaves no record.
type Answerer struct {
	variant spec.Variant
	image   *toolchain.Image
	device  device.Device
}

// Answerer builds a variant, for an architecture or, where that is empty, for the device, and opens its device. The caller
// closes it.
func (l *Lab) Answerer(ctx context.Context, v spec.Variant, arch string) (*Answerer, error) {
	l.tell(Event{Variant: v.String(), Doing: "compiling"})
	target, err := l.target(Request{Arch: arch}, v)
	if err != nil {
		return nil, err
	}
	image, _, err := l.Builder.Build(ctx, target)
	if err != nil {
		return nil, err
	}
	d, err := l.Open(ctx)
	if err != nil {
		return nil, err
	}
	return &Answerer{v, image, d}, nil
}

// Answer gives what the kernel makes of inputs, on these rows. A kernel that does what no right kernel does is refused with a WrongError:
// its errors would say nothing.
func (a *Answerer) Answer(ctx context.Context, in *tensor.Inputs, rows oracle.Rows) ([]float64, error) {
	outcome, err := a.device.Run(ctx, newJob(a.image, a.device.Facts(), in))
	var fault *device.Fault
	var timeout *device.Timeout
	var crash *isolate.Crash
	wrong := ""
	switch {
	case errors.As(err, &fault), errors.As(err, &timeout), errors.As(err, &crash):
		wrong = err.Error()
	case err != nil:
		return nil, fmt.Errorf("%s: %w", a.variant, err)
	case len(outcome.Findings) > 0:
		wrong = findingText(outcome.Findings[0])
	default:
		o, _ := outputs(a.image.Record.Launch, outcome, rows, in.Shape.HeadDim)
		return o, nil
	}
	return nil, &WrongError{a.variant.String(), fmt.Sprintf("%s: %s", problem{in.Shape, in.Seed, in.Options.Distribution}, wrong)}
}

// Close gives the device back.
func (a *Answerer) Close() error { return a.device.Close() }

// Arithmetics are the stages of a kernel that differ in their arithmetic, as far as the device can run them: of those that
// may be off by the same share, the last.
func Arithmetics(kernel *spec.Kernel, arch, deviceArch string) []spec.Variant {
	var shares []float64
	newest := map[float64]spec.Variant{}
	for _, stage := range kernel.Stages {
		if _, err := Arch(stage, arch, deviceArch); err != nil {
			continue
		}
		if _, known := newest[stage.ErrorShare]; !known {
			shares = append(shares, stage.ErrorShare)
		}
		newest[stage.ErrorShare] = stage.Variant()
	}
	var variants []spec.Variant
	for _, share := range shares {
		variants = append(variants, newest[share])
	}
	return variants
}

// HeadDim is the head dim that a variant is built for; 0 where any will do.
func HeadDim(v spec.Variant) int {
	dim, _ := v.Value(spec.HeadDimKnob)
	return dim
}
