package lab

import (
	"context"

	"attune/internal/device"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// time measures images on the same inputs, interleaved, and returns one series for each.
func (s *session) time(ctx context.Context, in *tensor.Inputs, plan device.Plan, images ...*toolchain.Image) ([]device.Series, error) {
	d, err := s.ready(ctx)
	if err != nil {
		return nil, err
	}
	var jobs []device.Job
	for _, image := range images {
		jobs = append(jobs, newJob(image, d.Facts(), in))
	}
	series, err := d.Time(ctx, jobs, plan)
	s.failed(err)
	return series, err
}
