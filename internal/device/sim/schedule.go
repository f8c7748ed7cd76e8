package sim

import (
	"fmt"
	"slices"

	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/sim"
)

// schedules returns how many schedules a job runs under, after its first launch: as many as the
// options say, or as many as the launch needs. A launch that is wrong already needs no more.
func (d *Device) schedules(first *launched) int {
	switch {
	case d.options.Schedules > 0:
		return d.options.Schedules
	case slices.ContainsFunc(first.findings, func(f finding.Finding) bool { return !d.isNote(f) }):
		return 1
	case first.instructions > sim.MaxRescheduled: // a smaller problem shows the same orders
		return first.schedules
	}
	return max(first.schedules, d.options.Least)
}

// compareSchedule compares the outputs of a launch with those under schedule 0. Bits that differ
// under a schedule that the user asked for are a finding. Where the simulator has chosen to run
// several, or where sums have no order, the caller decides: a correct scan of floating-point numbers
// adds what the order of blocks gives it.
func (d *Device) compareSchedule(job *device.Job, outcome *device.Outcome, l *launched, seed int) {
	f, differs := l.difference(job, outcome.Outputs, fmt.Sprintf("between schedule 0 and schedule %d", seed))
	switch {
	case !differs:
	case d.options.Schedules == 0 || job.Unordered:
		outcome.Rescheduled = append(outcome.Rescheduled, device.Rescheduled{Outputs: l.outputs, Difference: f})
	default:
		l.findings = append(l.findings, f)
	}
}
