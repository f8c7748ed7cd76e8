package lab

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"attune/internal/device"
	"attune/internal/problem"
)

// Timed is the timing of one build.
type Timed struct {
	device.Series
	Wrong []string // with the launches that were timed; the times of a wrong kernel mean nothing
}

// time measures builds on the inputs of a reference, interleaved, and checks the timed launches.
func (l *Lab) time(ctx context.Context, s *session, ref problem.Reference, plan device.Plan, builds ...problem.Build) ([]Timed, error) {
	d, err := s.ready(ctx)
	if err != nil {
		return nil, err
	}
	plan.Secret = secret()
	var jobs []device.Job
	for _, b := range builds {
		job, err := s.job(ctx, &b, ref)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, job)
	}
	series, err := d.Time(ctx, jobs, plan)
	s.failed(err)
	if err != nil {
		return nil, err
	}
	all := make([]Timed, len(series))
	for i, one := range series {
		all[i].Series = one
		if one.Check == nil {
			continue
		}
		if all[i].Wrong, err = checkTimed(ctx, builds[i], jobs[i], ref, one.Check); err != nil {
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

// checkTimed lists what is wrong with the timed launches of a build. Launches whose reference cannot
// be computed were compared with an untimed launch only.
func checkTimed(ctx context.Context, b problem.Build, job device.Job, ref problem.Reference, check *device.TimedCheck) ([]string, error) {
	var wrong []string
	for _, f := range explained(check.Findings) {
		wrong = append(wrong, f.String())
	}
	for _, timed := range check.Launches {
		want, err := ref.Timed(ctx, b, job, timed.Rotation)
		if err != nil {
			return nil, err
		}
		if want == nil {
			continue
		}
		result, err := want.Compare(b, timed.Outputs)
		if err != nil {
			return nil, err
		}
		_, over := want.Judge(b, result, problem.TimedSlack)
		for _, text := range over {
			wrong = append(wrong, "a timed launch: "+text)
		}
	}
	return wrong, nil
}

// TimedWrong is the error of a kernel whose timed launches were wrong on a shape.
func TimedWrong(b problem.Build, shape fmt.Stringer, wrong string) error {
	return &WrongError{b.Variant.String(), fmt.Sprintf("timed on %s: %s", shape, wrong)}
}
