package sim

import (
	"context"

	"attune/internal/device"
)

// relaunch launches a job that has run, once for each of its relaunches, in the same memory. Outputs
// keep what the launch before has written, and the module's variables keep their values.
func (d *Device) relaunch(ctx context.Context, r *resident, outcome *device.Outcome, reported map[string]bool) error {
	first := r.job
	for _, next := range first.Relaunches {
		job, err := first.Relaunched(next)
		if err != nil {
			return err
		}
		r.job = job
		for i, arg := range job.Args {
			if arg.Input == nil && arg.InOut == nil {
				continue
			}
			if err := r.memory.Write(r.buffers[i], append(arg.Input, arg.InOut...)); err != nil { // at most one of the two is set
				return err
			}
		}
		outputs, findings, _, err := d.launch(ctx, r, 0)
		if err != nil {
			return err
		}
		addFindings(outcome, findings, reported)
		outcome.Relaunched = append(outcome.Relaunched, outputs)
	}
	return nil
}
