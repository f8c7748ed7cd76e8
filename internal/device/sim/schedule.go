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
func (d *Device) schedules(first *launched, hasState bool) int {
	needed := first.schedules
	if needed > 1 && hasState {
		needed = max(needed, sim.StatefulSchedules)
	}
	switch {
	case d.options.Schedules > 0:
		return d.options.Schedules
	case slices.ContainsFunc(first.findings, func(f finding.Finding) bool { return !d.isNote(f) }):
		return 1
	case first.instructions > sim.MaxRescheduled: // a smaller problem shows the same orders
		return needed
	}
	return max(needed, d.options.Least)
}

// compareSchedule compares the outputs of a launch with those under schedule 0. The launch is that of
// the job, or of a relaunch from 1 on.
func (s *sequence) compareSchedule(l *launched, relaunch int, outputs [][]byte) {
	if f, differs := l.difference(&s.job, outputs, fmt.Sprintf("between schedule 0 and schedule %d", s.schedule)); differs {
		s.addDifference(l, f, relaunch)
	}
}

// addDifference adds the difference of a launch from one under schedule 0, or from one that it repeats.
// Bits that differ under a schedule that the user asked for are a finding. Where the simulator has
// chosen to run several, or where sums have no order, the caller decides: a correct scan of
// floating-point numbers adds what the order of blocks gives it.
func (s *sequence) addDifference(l *launched, f finding.Finding, relaunch int) {
	if s.relaunches > 0 {
		f.Launch = s.current()
	}
	if s.options.Schedules == 0 || s.job.Unordered {
		s.outcome.Rescheduled = append(s.outcome.Rescheduled, device.Rescheduled{Relaunch: relaunch, Outputs: l.outputs, Difference: f, Cause: l.stale})
		return
	}
	if l.stale != nil {
		l.findings = append(l.findings, *l.stale)
	}
	l.findings = append(l.findings, f)
}
