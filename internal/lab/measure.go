package lab

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"attune/internal/device"
	"attune/internal/oracle"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// built is a variant and its image.
type built struct {
	variant spec.Variant
	image   *toolchain.Image
}

// timed is the timing of one image.
type timed struct {
	device.Series
	wrong []string // with the launches that were timed; the times of a wrong kernel mean nothing
}

// time measures images on the inputs of a reference, interleaved, and checks the timed launches.
func (l *Lab) time(ctx context.Context, s *session, ref *reference, plan device.Plan, images ...built) ([]timed, error) {
	d, err := s.ready(ctx)
	if err != nil {
		return nil, err
	}
	plan.Secret = secret()
	var jobs []device.Job
	for _, b := range images {
		jobs = append(jobs, newJob(b.image, d.Facts(), ref.inputs))
	}
	series, err := d.Time(ctx, jobs, plan)
	s.failed(err)
	if err != nil {
		return nil, err
	}
	all := make([]timed, len(series))
	for i, one := range series {
		all[i].Series = one
		if one.Check == nil {
			continue
		}
		if all[i].wrong, err = l.checkTimed(ctx, images[i], jobs[i], ref, one.Check); err != nil {
			return nil, err
		}
		one.Check.Launches = nil // they are large, and their result is known
	}
	return all, nil
}

// secret is a number that no kernel can know.
func secret() uint64 {
	var random [8]byte
	rand.Read(random[:]) // never fails
	return binary.LittleEndian.Uint64(random[:])
}

const (
	// timedWork limits the multiply-adds of the reference of one timed launch. Its output was already
	// compared with that of an untimed launch, so a small sample of rows is enough.
	timedWork = 5e8
	// timedLimit widens the limits of the errors: they are derived from the inputs of the gate, and
	// the largest error on other inputs is another.
	timedLimit = 1.5
)

// checkTimed lists what is wrong with the timed launches of an image.
func (l *Lab) checkTimed(ctx context.Context, b built, job device.Job, ref *reference, check *device.TimedCheck) ([]string, error) {
	var wrong []string
	for _, f := range check.Findings {
		wrong = append(wrong, findingText(f))
	}
	launch := b.image.Record.Launch
	for _, timed := range check.Launches {
		inputs := rotatedInputs(job, launch, ref.inputs, timed.Rotation)
		want, err := oracle.ComputeLike(ctx, inputs, oracle.Sample(inputs.Shape, secret(), timedWork), ref.want)
		if err != nil {
			return nil, err
		}
		rotated := &reference{inputs: inputs, want: want}
		errs, err := compareOutputs(rotated, launch, timed.Outputs, l.Kernel.Tolerance)
		if err != nil {
			return nil, err
		}
		_, over := applyLimits(rotated, launch, errs, nil, timedLimit*b.variant.Stage().ErrorShare, l.Kernel.Tolerance)
		for _, text := range over {
			wrong = append(wrong, "a timed launch: "+text)
		}
	}
	return wrong, nil
}

// timedWrong is the error of a kernel whose timed launches were wrong on a shape.
func timedWrong(b built, shape fmt.Stringer, wrong string) error {
	return &WrongError{b.variant.String(), fmt.Sprintf("timed on %s: %s", shape, wrong)}
}
