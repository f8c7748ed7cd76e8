package lab

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/problem"
	"attune/internal/problem/declared"
	"attune/internal/run"
	"attune/internal/spec"
)

// second is the reference of a relaunch after another instance; nil if there is none. Only the
// smallest of the shapes has one, with its first seed and plain inputs: it shows that a kernel keeps
// a result or counts launches as well as a large one. The inputs are drawn from a seed that no kernel
// can know. A reference that has the outputs of some seeds only has none.
func second(ctx context.Context, refs problem.References, p problem.Problem, i problem.Instance, shapes []spec.Shape, firstSeed uint64) (problem.Reference, error) {
	smallest := slices.MinFunc(shapes, func(a, b spec.Shape) int { return cmp.Compare(p.Size(a), p.Size(b)) })
	if i != p.Plain(smallest, firstSeed) {
		return nil, nil
	}
	seed := refs.Secret()
	if seed == firstSeed {
		seed++
	}
	next := p.Plain(smallest, seed)
	next.Relaunch = true
	ref, err := refs.Get(ctx, next)
	if errors.Is(err, problem.ErrNoSeed) {
		return nil, nil
	}
	return ref, err
}

// contents are the bytes of a job's buffers that are not outputs, and its scalars. Those with edges have a
// name: their seed repeats them.
func contents(job device.Job, of problem.Instance) device.Relaunch {
	var r device.Relaunch
	if of.Inputs == declared.Edges {
		r.Name = fmt.Sprintf("seed %d %s", of.Seed, of.Inputs)
	}
	for _, arg := range job.Args {
		if all := append(arg.Input, arg.InOut...); all != nil { // at most one of the two is set
			r.Inputs = append(r.Inputs, all)
		}
		if arg.Scalar != nil {
			r.Scalars = append(r.Scalars, arg.Scalar)
		}
	}
	return r
}

// compareRelaunched compares the relaunches of an outcome: the first with the second reference, the
// last, on the first inputs again, with the first launch. The outputs of unordered sums are within
// the limits of the first reference instead.
func compareRelaunched(b problem.Build, ref, second problem.Reference, outcome *device.Outcome, unordered bool) (*run.Relaunch, error) {
	if len(outcome.Relaunched) != 2 {
		return nil, errors.New("BUG: the device has ignored the relaunches of a job")
	}
	found, err := second.Compare(b, outcome.Relaunched[0])
	if err != nil {
		return nil, err
	}
	r := &run.Relaunch{Seed: second.Instance().Seed, Errors: found.Errors, LSE: found.LSE, Outputs: found.Outputs, Repeats: true}
	if in := second.Peer().Attention; in != nil {
		r.ScaleFactor = in.ScaleFactor
	} else {
		r.Inputs = second.Instance().Inputs
	}
	if unordered {
		repeated, err := ref.Compare(b, outcome.Relaunched[1])
		if err != nil {
			return nil, err
		}
		_, wrong := ref.Judge(b, repeated, 1)
		r.Repeats = len(wrong) == 0
		return r, nil
	}
	for i, output := range outcome.Outputs {
		r.Repeats = r.Repeats && bytes.Equal(output, outcome.Relaunched[1][i])
	}
	return r, nil
}

// relaunchSlack widens the limits of a relaunch with another softmax scale: they hold for the usual
// scale, and with a smaller one weights are more alike, so that their errors are too. A result of
// other inputs, or of another scale, is off by far more.
const relaunchSlack = 2

// slackOf is the slack of a relaunch. The limits of a declared kernel are fixed, and the inputs of a
// relaunch are other ones in every run: without slack, chance would decide about a kernel whose
// errors are close to its tolerance.
func slackOf(r *run.Relaunch) float64 {
	if r.ScaleFactor != 0 {
		return relaunchSlack
	}
	return problem.TimedSlack
}

// repeatAlone launches a build on the inputs of a relaunch that was wrong, on a fresh device, and
// records whether it is wrong there too. If so, the earlier launches are not the cause.
func (l *Lab) repeatAlone(ctx context.Context, b problem.Build, second problem.Reference, c *checked) error {
	r := c.further
	_, wrong := second.Judge(b, result(r), slackOf(r))
	if len(wrong) == 0 || silent(r, c.wrong) {
		return nil
	}
	if err := recompute(ctx, b, second, true); err != nil {
		return err
	}
	s := l.newSession()
	defer s.close()
	job, err := s.job(ctx, &b, second)
	if err != nil {
		return err
	}
	outcome, err := s.run(ctx, job)
	if err != nil && s.lost && ctx.Err() == nil { // a fault or a hang on these inputs alone
		r.Alone = true
		return nil
	}
	if err != nil {
		return err
	}
	result, err := second.Compare(b, outcome.Outputs)
	if err != nil {
		return err
	}
	_, wrong = second.Judge(b, result, slackOf(r))
	r.Alone = len(wrong) > 0
	return nil
}

// silent reports whether a relaunch says nothing new: that of a declared kernel that was wrong before.
func silent(r *run.Relaunch, before []string) bool { return len(before) > 0 && r.ScaleFactor == 0 }

// cause begins what is wrong with a relaunch on other inputs.
func cause(r *run.Relaunch) string {
	inputs := fmt.Sprintf("the inputs of seed %d", r.Seed)
	if r.Inputs != "" {
		inputs += " " + r.Inputs
	}
	switch {
	case r.Alone && r.ScaleFactor != 0:
		return fmt.Sprintf("wrong on %s with %.3g times the usual softmax scale", inputs, r.ScaleFactor)
	case r.Alone:
		return "wrong on " + inputs
	case r.ScaleFactor != 0:
		return fmt.Sprintf("relaunched with %s and %.3g times the softmax scale, it depends on earlier launches", inputs, r.ScaleFactor)
	}
	return fmt.Sprintf("relaunched with %s, it depends on earlier launches", inputs)
}

// relaunchWrong lists what is wrong with the relaunches, and records whether anything is. The
// relaunch of a declared kernel that was wrong before says nothing new.
func relaunchWrong(b problem.Build, second problem.Reference, r *run.Relaunch, before []string) []string {
	_, wrong := second.Judge(b, result(r), slackOf(r))
	for i, text := range wrong {
		wrong[i] = cause(r) + ": " + text
	}
	if !r.Repeats {
		wrong = append(wrong, notRepeated(b))
	}
	r.Pass = len(wrong) == 0
	if silent(r, before) {
		return nil
	}
	return wrong
}

// result is the errors of a relaunch.
func result(r *run.Relaunch) problem.Result {
	return problem.Result{Errors: r.Errors, LSE: r.LSE, Outputs: r.Outputs}
}

// notRepeated describes a second launch on the first inputs with another output. That of an unordered
// kernel is beyond its limits.
func notRepeated(b problem.Build) string {
	const what = string(finding.NotRepeatable) + ": relaunched with the first inputs, its output "
	if excused(b.Variant) || firstUnorderedSum(b) != "" {
		return what + "is wrong, and that of the first launch is right"
	}
	return what + "differs from that of the first launch" + unorderedHelp
}
