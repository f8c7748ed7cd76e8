//go:build linux

package isolate

import (
	"testing"

	"attune/internal/device"
)

// largeJobs are variants on the same inputs: 32 heads of 16384 rows of 64 elements.
func largeJobs(variants int) []device.Job {
	const elements, rows = 32 * 16384 * 64, 32 * 16384
	inputs := make([][]byte, 3)
	for i := range inputs {
		inputs[i] = make([]byte, elements)
		for j := range inputs[i] {
			inputs[i][j] = byte(i + j*j)
		}
	}
	var jobs []device.Job
	for i := range variants {
		job := newJob("fill", 0)
		job.Image = make([]byte, 100_000+i)
		job.Args = []device.Arg{device.In(inputs[0]), device.In(inputs[1]), device.In(inputs[2]), device.Out(2 * elements), device.Out(4 * rows)}
		jobs = append(jobs, job)
	}
	return jobs
}

// BenchmarkRunLarge measures the host's overhead of a run on a large problem.
func BenchmarkRunLarge(b *testing.B) {
	d, _ := start(b, "serve", long)
	job := largeJobs(1)[0]
	for b.Loop() {
		got, err := d.Run(b.Context(), job)
		if err != nil || len(got.Findings) > 0 {
			b.Fatalf("%v, %v", got, err)
		}
	}
}

// BenchmarkTimeLarge measures the host's overhead of one timing of two variants on a large problem.
func BenchmarkTimeLarge(b *testing.B) {
	d, _ := start(b, "binds", long)
	jobs := largeJobs(2)
	for b.Loop() {
		if _, err := d.Time(b.Context(), jobs, device.Plan{Samples: 1}); err != nil {
			b.Fatal(err)
		}
	}
}
