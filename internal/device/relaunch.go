package device

import (
	"bytes"
	"fmt"
	"slices"

	"attune/internal/finding"
)

// Relaunch is a further launch of a job with other contents of its buffers, at the same addresses.
// A kernel that keeps a result from launch to launch, or counts launches, is wrong in it.
type Relaunch struct {
	Inputs  [][]byte // of each input and in-out buffer, in argument order
	Scalars [][]byte // of each scalar, in argument order; nil for those of the job
	Name    string   // of the contents, for findings; empty for those of the job
}

// Relaunched is the job of a relaunch: the same arguments with other contents.
func (j *Job) Relaunched(r Relaunch) (Job, error) {
	next := *j
	next.Args, next.Relaunches, next.Inputs = append([]Arg(nil), j.Args...), nil, r.Name
	used, scalars := 0, r.Scalars
	for i := range next.Args {
		arg := &next.Args[i]
		if arg.Scalar != nil && r.Scalars != nil {
			if len(scalars) == 0 || len(scalars[0]) != len(arg.Scalar) {
				return next, fmt.Errorf("job %s: a relaunch needs a scalar of %d bytes for argument %d", j.Entry, len(arg.Scalar), i)
			}
			arg.Scalar, scalars = scalars[0], scalars[1:]
		}
		content := &arg.Input
		if arg.InOut != nil {
			content = &arg.InOut
		}
		if *content == nil {
			continue
		}
		if used == len(r.Inputs) || len(r.Inputs[used]) != len(*content) {
			return next, fmt.Errorf("job %s: a relaunch needs %d bytes for argument %d", j.Entry, len(*content), i)
		}
		*content = r.Inputs[used]
		used++
	}
	if len(scalars) > 0 {
		return next, fmt.Errorf("job %s: a relaunch has %d scalars; the job has %d", j.Entry, len(r.Scalars), len(r.Scalars)-len(scalars))
	}
	if used < len(r.Inputs) {
		return next, fmt.Errorf("job %s: a relaunch has %d buffers; the job has %d that are not outputs", j.Entry, len(r.Inputs), used)
	}
	return next, nil
}

// relaunch launches a job that is bound and has run, once for each of its relaunches. Outputs keep
// what the launch before has written: a kernel that skips its work leaves a result of other inputs.
func relaunch(m Machine, f Function, job *Job, buffers []*Buffer, values [][]byte, outcome *Outcome) error {
	for i, r := range job.Relaunches {
		next, err := job.Relaunched(r)
		if err != nil {
			return err
		}
		for _, b := range buffers {
			arg := next.Args[b.argument]
			if b.initial = append(arg.Input, arg.InOut...); b.initial == nil { // at most one of the two is set
				continue
			}
			if err := m.Write(b.base+guardBytes, b.initial); err != nil {
				return err
			}
		}
		if err := Clear(m, buffers); err != nil {
			return err
		}
		if err := m.Launch(f, &next, withScalars(values, &next)); err != nil {
			return err
		}
		var outputs [][]byte
		for _, b := range buffers {
			whole := make([]byte, b.size+2*guardBytes)
			if err := m.Read(whole, b.base); err != nil {
				return err
			}
			for _, f := range b.inspectRelaunched(whole) {
				f.Launch.Relaunch, f.Launch.Inputs = i+1, r.Name
				outcome.Findings = append(outcome.Findings, f)
			}
			if b.isOutput() {
				outputs = append(outputs, b.inner(whole))
			}
		}
		outcome.Relaunched = append(outcome.Relaunched, outputs)
	}
	return nil
}

// withScalars are the values of arguments with the scalars of a job.
func withScalars(values [][]byte, job *Job) [][]byte {
	values = slices.Clone(values)
	for i, arg := range job.Args {
		if arg.Scalar != nil {
			values[i] = arg.Scalar
		}
	}
	return values
}

// inspectRelaunched reports the findings in a buffer after a relaunch. The guards still have the
// bytes of the second launch.
func (b *Buffer) inspectRelaunched(whole []byte) []finding.Finding {
	var findings []finding.Finding
	guard := fills[len(fills)-1].guard
	touched := func(i int) bool { return whole[i] != guard }
	end := guardBytes + b.size
	if m := find(end, end+guardBytes, touched); m.count > 0 {
		findings = append(findings, b.found(finding.WroteOutside, "%d bytes written past its end", m.count))
	}
	if m := find(0, guardBytes, touched); m.count > 0 {
		findings = append(findings, b.found(finding.WroteOutside, "%d bytes written before its start", m.count))
	}
	if b.role == input && !bytes.Equal(b.inner(whole), b.initial) {
		findings = append(findings, b.found(finding.InputChanged, "bytes of an input changed"))
	}
	return findings
}
