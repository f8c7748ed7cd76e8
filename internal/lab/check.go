package lab

import (
	"context"
	"fmt"

	"attune/internal/device"
	"attune/internal/gate"
	"attune/internal/problem"
	"attune/internal/ptx"
	"attune/internal/run"
	"attune/internal/spec"
)

// checked is the result of one instance on one build.
type checked struct {
	failure error           // the kernel's fault, timeout or crash; the other fields are then empty
	outcome *device.Outcome // of the launch
	result  problem.Result
	limits  gate.Limits
	further *run.Relaunch // nil without a second instance
	wrong   []string      // the findings, then the errors over their limits, then those of relaunches
}

// firstWrong is the first thing that is wrong with the kernel, or empty.
func (c *checked) firstWrong() string {
	switch {
	case c.failure != nil:
		return c.failure.Error()
	case len(c.wrong) > 0:
		return c.wrong[0]
	}
	return ""
}

// check runs the instance of a reference on a build and compares the outputs with the reference. If
// there is a second reference, it relaunches the build on that one and on the first again. The result
// has what the kernel did wrong; an error is not the kernel's fault.
func (l *Lab) check(ctx context.Context, s *session, b problem.Build, ref, second problem.Reference) (*checked, error) {
	var further []problem.Reference
	if second != nil {
		further = []problem.Reference{second, ref}
	}
	job, err := s.job(ctx, &b, ref, further...)
	if err != nil {
		return nil, err
	}
	outcome, err := s.run(ctx, job)
	if err != nil {
		if s.lost && ctx.Err() == nil {
			return &checked{failure: err}, nil
		}
		return nil, err
	}
	outcome.Findings = unallowed(b.Variant, outcome.Findings)
	if job.Unordered {
		outcome.Notes = append(outcome.Notes, unorderedNote(b))
	}
	c := &checked{outcome: outcome}
	if c.result, err = ref.Compare(b, outcome.Outputs); err != nil {
		return nil, err
	}
	if err := judgeRescheduled(b, ref, outcome, job.Unordered); err != nil {
		return nil, err
	}
	c.limits, c.wrong = judge(b, ref, c.result, outcome.Findings)
	if second != nil {
		if c.further, err = compareRelaunched(b, ref, second, outcome, job.Unordered); err != nil {
			return nil, err
		}
		c.wrong = append(c.wrong, relaunchWrong(b, second, c.further, c.wrong)...)
	}
	return c, nil
}

// unorderedNote explains why launches of a kernel are not compared bit for bit.
func unorderedNote(b problem.Build) device.Finding {
	where := ""
	if module, err := ptx.Parse(b.Image.PTX); err == nil && module.UnorderedSums() {
		where = " at " + module.FirstUnorderedSum()
	}
	return device.Finding{Kind: run.UnorderedSums, Text: "unordered floating-point atomics" + where + ": launches need not agree bit for bit"}
}

// job is the launch of a build on the inputs of a reference, and its relaunches on those of others.
// It sets the code of the build to what the device loads.
func (s *session) job(ctx context.Context, b *problem.Build, ref problem.Reference, further ...problem.Reference) (device.Job, error) {
	d, err := s.ready(ctx)
	if err != nil {
		return device.Job{}, err
	}
	_, b.Code = loadable(b.Image, d.Facts())
	job, err := ref.Job(*b, d.Facts())
	if err != nil {
		return device.Job{}, err
	}
	for _, next := range further {
		other, err := next.Job(*b, d.Facts())
		if err != nil {
			return device.Job{}, err
		}
		job.Relaunches = append(job.Relaunches, contents(other))
	}
	return job, nil
}

// run runs a job.
func (s *session) run(ctx context.Context, job device.Job) (*device.Outcome, error) {
	d, err := s.ready(ctx)
	if err != nil {
		return nil, err
	}
	outcome, err := d.Run(ctx, job)
	s.failed(err)
	return outcome, err
}

// judge derives the limits of the errors and lists what is wrong with a launch. Findings come first:
// they are often the cause of the errors.
func judge(b problem.Build, ref problem.Reference, result problem.Result, findings []device.Finding) (gate.Limits, []string) {
	var wrong []string
	for _, f := range findings {
		wrong = append(wrong, findingText(f))
	}
	limits, over := ref.Judge(b, result, 1)
	return limits, append(wrong, over...)
}

// judgeRescheduled compares the results of other schedules with the reference. A wrong one is a
// finding. One within the limits is a note; that of unordered sums has one already.
func judgeRescheduled(b problem.Build, ref problem.Reference, outcome *device.Outcome, unordered bool) error {
	for _, other := range outcome.Rescheduled {
		result, err := ref.Compare(b, other.Outputs)
		if err != nil {
			return err
		}
		f := device.Finding{Kind: device.NotRepeatable, Text: other.Difference}
		switch _, over := ref.Judge(b, result, 1); {
		case len(over) > 0:
			f.Text += "; the latter is wrong: " + over[0]
			outcome.Findings = append(outcome.Findings, f)
		case !unordered:
			f.Text += "; both are within the limits of the reference"
			outcome.Notes = append(outcome.Notes, f)
		}
	}
	return nil
}

// notCorrect is the error of a command that needs a correct kernel: a WrongError, or the timeout of
// a kernel that was not checked to the end.
func notCorrect(v spec.Variant, i problem.Instance, wrong string, failure error) error {
	if device.Classify(failure) == device.KernelTimeout {
		return fmt.Errorf("%s was not checked: %s: %w", v, i, failure)
	}
	return &WrongError{v.String(), i.String() + ": " + wrong}
}

// WrongError is the error of a command that needs a correct kernel and was given one that is not.
type WrongError struct {
	Variant string
	Wrong   string
}

func (e *WrongError) Error() string {
	return e.Variant + " itself does not pass the correctness gate: " + e.Wrong
}
