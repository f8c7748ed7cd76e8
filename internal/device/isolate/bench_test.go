//go:build linux

package isolate

import (
	"testing"

	"attune/internal/device"
)

// largeJobs are variants on one shape of 32 heads with 16384 rows of 64 numbers: all have the same
// inputs.
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

// What the host does for an answer of a large problem, beside the kernel.
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

// What the host does for a turn of two variants on a large problem, beside what is timed.
func BenchmarkTimeLarge(b *testing.B) {
	d, _ := start(b, "binds", long)
	jobs := largeJobs(2)
	for b.Loop() {
		if _, err := d.Time(b.Context(), jobs, device.Plan{Samples: 1}); err != nil {
			b.Fatal(err)
		}
	}
}
