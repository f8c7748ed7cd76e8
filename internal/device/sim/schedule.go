package sim

import (
	"fmt"

	"attune/internal/device"
)

// schedules returns how many schedules a job runs under, after its first launch: as many as the
// options say, or as many as the launch needs. A launch that is wrong already needs no more.
func (d *Device) schedules(first *launched) int {
	switch {
	case d.options.Schedules > 0:
		return d.options.Schedules
	case first.isWrong():
		return 1
	}
	return first.schedules
}

// isWrong reports whether a launch has findings that are no notes.
func (l *launched) isWrong() bool {
	for _, f := range l.findings {
		if !f.note {
			return true
		}
	}
	return false
}

// compareSchedule compares the outputs of a launch with those under schedule 0. Bits that differ
// under a schedule that the user asked for are a finding. Where the simulator has chosen to run
// several, or where sums have no order, the caller decides: a correct scan of floating-point numbers
// adds what the order of blocks gives it.
func (d *Device) compareSchedule(job *device.Job, outcome *device.Outcome, l *launched, seed int) {
	text := l.difference(job, outcome.Outputs, fmt.Sprintf("between schedule 0 and schedule %d", seed))
	switch {
	case text == "":
	case d.options.Schedules == 0 || job.Unordered:
		outcome.Rescheduled = append(outcome.Rescheduled, device.Rescheduled{Outputs: l.outputs, Difference: text})
	default:
		l.add(device.NotRepeatable, text)
	}
}
