package sim

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"attune/internal/coverage"
	"attune/internal/device"
	"attune/internal/finding"
)

// launched is the result of one launch.
type launched struct {
	outputs      [][]byte
	findings     []finding.Finding
	counters     device.Counters
	instructions uint64 // that warps have executed
	schedules    int    // that the launch needs
	covered      *coverage.Launches
}

// repeat launches a job again if its first launch has written variables of the module. The outputs
// count as unwritten and the inputs are the same, so the kernel must do the same work.
func (d *Device) repeat(ctx context.Context, r *resident, first *launched, outcome *device.Outcome, reported map[string]bool) error {
	if !r.instance.EndLaunch(r.memory) {
		return nil
	}
	again, err := d.launchAgain(ctx, r, r.job)
	if err != nil {
		return err
	}
	again.compareOutputs(&r.job, outcome, "between two launches on the same inputs")
	again.compareWork(first)
	d.add(outcome, again, reported)
	return nil
}

// relaunch launches a job that has run, once for each of its relaunches, in the same memory. Outputs
// keep what the launch before has written, and the module's variables keep their values.
func (d *Device) relaunch(ctx context.Context, r *resident, first *launched, outcome *device.Outcome, reported map[string]bool) error {
	job := r.job
	for _, further := range job.Relaunches {
		next, err := job.Relaunched(further)
		if err != nil {
			return err
		}
		r.instance.EndLaunch(r.memory)
		result, err := d.launchAgain(ctx, r, next)
		if err != nil {
			return err
		}
		if sameInputs(job, next) {
			result.compareWork(first)
		}
		d.add(outcome, result, reported)
		outcome.Relaunched = append(outcome.Relaunched, result.outputs)
	}
	return nil
}

// launchAgain launches a job in the memory of an earlier one. The outputs have the earlier result,
// and count as unwritten: the kernel may neither read them nor leave them as they are.
func (d *Device) launchAgain(ctx context.Context, r *resident, job device.Job) (*launched, error) {
	r.job = job
	r.relaunches++
	for i, arg := range job.Args {
		if arg.Scalar != nil {
			r.values[i] = arg.Scalar
		}
		var err error
		switch content := append(arg.Input, arg.InOut...); { // at most one of the two is set
		case content != nil:
			err = r.memory.Write(r.buffers[i], content)
		case arg.Output > 0:
			err = r.memory.Forget(r.buffers[i])
		}
		if err != nil {
			return nil, err
		}
	}
	var err error
	if r.params, err = r.program.Params(job.Entry, r.values); err != nil {
		return nil, err
	}
	return d.launch(ctx, r, 0)
}

// sameInputs reports whether two jobs with the same arguments have the same contents.
func sameInputs(a, b device.Job) bool {
	return slices.EqualFunc(a.Args, b.Args, func(x, y device.Arg) bool {
		return bytes.Equal(x.Input, y.Input) && bytes.Equal(x.InOut, y.InOut) && bytes.Equal(x.Scalar, y.Scalar)
	})
}

// Launches of a kernel on the same inputs may differ by this share of the warp instructions, and by
// these few besides: a tile counter may give the blocks other tiles.
const (
	workShare = 0.02
	workSlack = 64
)

// compareWork reports a launch that has executed markedly fewer instructions than the first one on
// the same inputs. It has found results of an earlier launch.
func (l *launched) compareWork(first *launched) {
	if float64(l.instructions)+workSlack < float64(first.instructions)*(1-workShare) {
		l.findings = append(l.findings, finding.New(finding.RemembersResults, fmt.Sprintf(
			"relaunched with the first inputs it executes %d warp instructions, in the first launch %d", l.instructions, first.instructions)))
	}
}

// compareOutputs reports the first output that is not the same as in the first launch. The outputs
// of an unordered job are left to the caller.
func (l *launched) compareOutputs(job *device.Job, outcome *device.Outcome, between string) {
	if job.Unordered {
		outcome.AddRepeated(l.outputs)
		return
	}
	if f, differs := l.difference(job, outcome.Outputs, between); differs {
		l.findings = append(l.findings, f)
	}
}

// difference is the finding about the first output that is not the same as in an earlier launch.
func (l *launched) difference(job *device.Job, earlier [][]byte, between string) (f finding.Finding, differs bool) {
	next := 0
	for argument, arg := range job.Args {
		if !arg.IsBuffer() || arg.Input != nil || arg.Scratch > 0 {
			continue
		}
		one, other := earlier[next], l.outputs[next]
		next++
		if bytes.Equal(one, other) {
			continue
		}
		first, count := -1, 0
		for i := range one {
			if one[i] != other[i] {
				if first < 0 {
					first = i
				}
				count++
			}
		}
		text := fmt.Sprintf("%s: %d of %d bytes differ %s, the first at byte %d", arg.Variable(argument), count, len(one), between, first)
		return finding.Of(finding.NotRepeatable, arg.Variable(argument), text), true
	}
	return finding.Finding{}, false
}
