package lab

import (
	"context"
	"fmt"
	"slices"

	"attune/internal/device"
	"attune/internal/finding"
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
	c := &checked{outcome: outcome}
	if err := c.compare(b, job.Unordered, ref); err != nil {
		return nil, err
	}
	if err := recompute(ctx, b, ref, len(c.wrong) > len(outcome.Findings)); err != nil {
		return nil, err
	}
	if second != nil {
		if c.further, err = compareRelaunched(b, ref, second, outcome, job.Unordered); err != nil {
			return nil, err
		}
	}
	if err := c.judgeRescheduled(b, job.Unordered, append([]problem.Reference{ref}, further...)); err != nil {
		return nil, err
	}
	if second != nil {
		if err := l.repeatAlone(ctx, b, second, c); err != nil {
			return nil, err
		}
		c.wrong = append(c.wrong, relaunchWrong(b, second, c.further, c.wrong)...)
	}
	l.quote(b, outcome.Findings, outcome.Notes)
	return c, nil
}

// compare compares the first launch of an outcome with a reference, and the launches of an unordered
// job that differ from it.
func (c *checked) compare(b problem.Build, unordered bool, ref problem.Reference) error {
	outcome := c.outcome
	outcome.Findings = explained(unallowed(b.Variant, outcome.Findings))
	if unordered {
		outcome.Notes = append(outcome.Notes, unorderedNote(b))
	}
	var err error
	if c.result, err = ref.Compare(b, outcome.Outputs); err != nil {
		return err
	}
	c.limits, c.wrong = judge(b, ref, c.result, outcome.Findings)
	if len(c.wrong) > 0 {
		return nil
	}
	for _, outputs := range outcome.Repeated {
		repeated, err := ref.Compare(b, outputs)
		if err != nil {
			return err
		}
		if _, over := ref.Judge(b, repeated, 1); len(over) > 0 {
			f := finding.New(finding.NotRepeatable, "launched again on the same inputs, "+over[0])
			outcome.Findings, c.wrong = append(outcome.Findings, f), append(c.wrong, f.String())
			return nil
		}
	}
	return nil
}

// recompute computes a reference again that a kernel does not agree with. A reference that is not a
// function of its inputs is at fault, not the kernel.
func recompute(ctx context.Context, b problem.Build, ref problem.Reference, wrong bool) error {
	if again, ok := ref.(problem.Recomputed); ok && wrong {
		return again.Recompute(ctx, b)
	}
	return nil
}

// unorderedNote explains why launches of a kernel are not compared bit for bit.
func unorderedNote(b problem.Build) finding.Finding {
	text := "unordered floating-point atomics: launches need not agree bit for bit"
	if where := firstUnorderedSum(b); where != "" {
		text = "unordered floating-point atomics at " + where + ": launches need not agree bit for bit"
	} else if excused(b.Variant) {
		text = fmt.Sprintf("%s allows %s: launches and schedules are compared with the reference, not bit for bit", spec.File, finding.NotRepeatable)
	}
	return finding.Finding{Kind: finding.UnorderedSums, Severity: finding.Note, Count: 1, Detail: text}
}

// firstUnorderedSum is the place of the first atomic sum of floats; empty without one.
func firstUnorderedSum(b problem.Build) string {
	module, err := ptx.Parse(b.Image.PTX)
	if err != nil {
		return ""
	}
	return module.FirstUnorderedSum()
}

// excused reports whether kernel.toml allows the outputs of a variant to differ between launches.
func excused(v spec.Variant) bool { return slices.Contains(v.Allowed(), finding.NotRepeatable) }

// unorderedHelp ends the message about outputs that differ between launches.
var unorderedHelp = fmt.Sprintf("; if the order of its sums is free by design, write allow = [%q] in %s", finding.NotRepeatable, spec.File)

// explained adds to findings about outputs that differ between launches how they can be allowed.
func explained(findings []finding.Finding) []finding.Finding {
	all := slices.Clone(findings)
	for i, f := range all {
		if f.Is(finding.NotRepeatable, finding.TimedOutputDiffers) {
			all[i].Detail += unorderedHelp
		}
	}
	return all
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
		job.Relaunches = append(job.Relaunches, contents(other, next.Instance()))
	}
	job.Unordered = job.Unordered || excused(b.Variant)
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
func judge(b problem.Build, ref problem.Reference, result problem.Result, findings []finding.Finding) (gate.Limits, []string) {
	var wrong []string
	for _, f := range findings {
		wrong = append(wrong, f.String())
	}
	limits, over := ref.Judge(b, result, 1)
	return limits, append(wrong, over...)
}

// judgeRescheduled compares the results of other schedules with the references of the launch and its
// relaunches, unless the kernel is wrong already. A wrong one is a finding. One within the limits is a
// note; that of unordered sums has one already.
func (c *checked) judgeRescheduled(b problem.Build, unordered bool, refs []problem.Reference) error {
	if len(c.wrong) > 0 {
		return nil
	}
	for _, other := range c.outcome.Rescheduled {
		ref, slack := refs[other.Relaunch], 1.0
		if other.Relaunch == 1 { // on other inputs; the second has those of the launch again
			slack = slackOf(c.further)
		}
		result, err := ref.Compare(b, other.Outputs)
		if err != nil {
			return err
		}
		f := other.Difference
		switch _, over := ref.Judge(b, result, slack); {
		case len(over) > 0:
			f.Detail += "; the latter is wrong: " + over[0]
			if other.Cause != nil {
				c.outcome.Findings, c.wrong = append(c.outcome.Findings, *other.Cause), append(c.wrong, other.Cause.String())
			}
			c.outcome.Findings, c.wrong = append(c.outcome.Findings, f), append(c.wrong, f.String())
		case !unordered:
			f.Detail += "; both are within the limits of the reference"
			f.Severity = finding.Note
			c.outcome.Notes = append(c.outcome.Notes, f)
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

// UncheckedError is the error of a command that needs a correct kernel, about one whose outputs could
// not be checked.
type UncheckedError struct {
	Variant string
	Why     string
}

func (e *UncheckedError) Error() string { return e.Variant + " could not be checked: " + e.Why }
