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
	stale        *finding.Finding // a load that has missed a write; nil for none
}

// sequence is the launches of a job in one memory, under one schedule: the job, its relaunches, and
// repetitions of both.
type sequence struct {
	*Device
	*resident
	outcome  *device.Outcome
	reported map[string]bool
}

// run launches the job and its relaunches. Outputs keep what the launch before has written, and the
// module's variables and scratch keep their values.
func (s *sequence) run(ctx context.Context) error {
	job := s.job
	first, err := s.launch(ctx, s.resident)
	if err != nil {
		return err
	}
	if s.schedule == 0 {
		s.outcome.Outputs, s.outcome.Counters = first.outputs, first.counters
		s.outcome.Schedules = s.schedules(first, s.hasState)
	}
	s.compareSchedule(first, 0, s.outcome.Outputs)
	s.add(s.outcome, first, s.reported)
	if err := s.repeat(ctx, first, 0); err != nil {
		return err
	}
	for i, further := range job.Relaunches {
		next, err := job.Relaunched(further)
		if err != nil {
			return err
		}
		if err := s.relaunch(ctx, next, first, i, sameInputs(job, next)); err != nil {
			return err
		}
	}
	return nil
}

// relaunch launches the job of the relaunch with an index. On the inputs of the first launch, the
// kernel must do the work of that; a launch on others is repeated.
func (s *sequence) relaunch(ctx context.Context, job device.Job, first *launched, index int, same bool) error {
	result, err := s.launchAgain(ctx, job)
	if err != nil {
		return err
	}
	if s.schedule == 0 {
		s.outcome.Relaunched = append(s.outcome.Relaunched, result.outputs)
	}
	s.compareSchedule(result, index+1, s.outcome.Relaunched[index])
	if same {
		s.compareWork(result, first)
	}
	s.add(s.outcome, result, s.reported)
	if same {
		return nil
	}
	return s.repeat(ctx, result, index+1)
}

// repeat launches a job again whose launch has left something that another one can read. The outputs
// count as unwritten and the inputs are the same, so the kernel must do the same work. Launches on
// inputs A and B are then in the order A, A, B, B, A: a kernel that keeps the result of the last launch
// skips work in the second and the fourth, one that keeps several does so in the last too.
func (s *sequence) repeat(ctx context.Context, of *launched, relaunch int) error {
	if !s.hasState {
		return nil
	}
	again, err := s.launchAgain(ctx, s.job)
	if err != nil {
		return err
	}
	f, differs := again.difference(&s.job, of.outputs, "between two launches on the same inputs")
	switch {
	case !differs:
	case s.job.Unordered && s.schedule == 0 && relaunch == 0:
		s.outcome.AddRepeated(again.outputs)
	case s.schedule == 0 && !s.job.Unordered:
		again.findings = append(again.findings, f)
	default:
		s.addDifference(again, f, relaunch)
	}
	s.compareWork(again, of)
	s.add(s.outcome, again, s.reported)
	return nil
}

// launchAgain launches a job in the memory of an earlier one. The outputs have the earlier result,
// and count as unwritten: the kernel may neither read them nor leave them as they are.
func (s *sequence) launchAgain(ctx context.Context, job device.Job) (*launched, error) {
	r := s.resident
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
		case arg.Scratch > 0:
			err = handOver(r.memory, r.buffers[i], arg)
		}
		if err != nil {
			return nil, err
		}
	}
	var err error
	if r.params, err = r.program.Params(job.Entry, r.values); err != nil {
		return nil, err
	}
	return s.launch(ctx, r)
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

// compareWork reports a launch that has executed markedly fewer instructions than an earlier one on
// the same inputs. It has found results of an earlier launch. Schedule 0 alone shows it: under others
// blocks wait for each other as long as chance has it.
func (s *sequence) compareWork(l, first *launched) {
	if s.schedule == 0 && float64(l.instructions)+workSlack < float64(first.instructions)*(1-workShare) {
		l.findings = append(l.findings, finding.New(finding.RemembersResults, fmt.Sprintf(
			"relaunched with the first inputs it executes %d warp instructions, in the first launch %d", l.instructions, first.instructions)))
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
