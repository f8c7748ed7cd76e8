package lab

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"strings"

	"attune/internal/device"
	"attune/internal/oracle"
	"attune/internal/problem"
	"attune/internal/problem/attention"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// problem is what the kernel computes: attention unless the lab has another problem.
func (l *Lab) problem() problem.Problem {
	if l.Problem != nil {
		return l.Problem
	}
	return attention.New(l.Kernel)
}

// everyRow is the work limit of references that have every row.
var everyRow = math.Inf(1)

// references computes the references of a command, with a sample of the rows of those above maxWork
// multiply-adds. The seed of the sample is random unless it is given, to repeat an earlier one. The
// caller closes them.
func (l *Lab) references(maxWork float64, seed *uint64) problem.References {
	o := problem.Options{MaxWork: maxWork, Secret: oracle.RandomSeed(), Launch: l.launchTrusted, Limit: l.ReferenceLimit, Python: l.Python}
	if seed != nil {
		o.Secret = *seed
	}
	return l.problem().References(o)
}

// launchTrusted runs a kernel that computes a reference, on a device of its own. What goes wrong with
// it is a ReferenceError, because it says nothing about the kernel under test.
func (l *Lab) launchTrusted(ctx context.Context, t toolchain.Target, makeJob func(*toolchain.Image) (device.Job, error)) ([][]byte, error) {
	if t.Arch == "" {
		arch, err := Arch(l.Kernel.Stages[0], "", l.Device.facts.Arch)
		if err != nil {
			return nil, trustedError(t, err.Error())
		}
		t.Arch = arch
	}
	image, _, err := l.Builder.Build(ctx, t)
	if err != nil {
		return nil, trustedBuildError(t, err)
	}
	s := l.newSession()
	defer s.close()
	d, err := s.ready(ctx)
	if err != nil {
		return nil, err
	}
	job, err := makeJob(image)
	if err != nil {
		return nil, err
	}
	_, job.Image = loadable(image, d.Facts())
	outcome, err := s.run(ctx, job)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, trustedError(t, err.Error())
	case len(outcome.Findings) > 0:
		return nil, trustedError(t, findingText(outcome.Findings[0]))
	}
	return outcome.Outputs, nil
}

// trustedError is the failure of a trusted kernel, in one line. It hides the error of the device,
// which would count as a failure of the kernel under test.
func trustedError(t toolchain.Target, text string) error {
	first, _, _ := strings.Cut(text, "\n")
	return &problem.ReferenceError{Why: t.Source + ": " + first}
}

// trustedBuildError describes a trusted kernel that the compiler or attune refuses. Other errors
// stay as they are.
func trustedBuildError(t toolchain.Target, err error) error {
	var refused *toolchain.CompileError
	var broken *toolchain.SourceError
	switch {
	case errors.As(err, &refused):
		return trustedError(t, "it does not compile: "+firstDiagnosis(refused.Output))
	case errors.As(err, &broken):
		return trustedError(t, broken.Problem)
	}
	return err
}

// firstDiagnosis is the first line of a compiler's output that reports an error, or the first line.
func firstDiagnosis(output string) string {
	for line := range strings.Lines(output) {
		if strings.Contains(line, "error") {
			return strings.TrimSpace(line)
		}
	}
	return strings.TrimSpace(output)
}

// recordProblem describes the problem of a declared kernel in a record. Attention has none.
func (l *Lab) recordProblem(refs problem.References) *run.Problem {
	p := l.problem()
	if p.Name() == spec.Attention {
		return nil
	}
	record := &run.Problem{Kind: p.Name(), Facts: refs.Facts()}
	if l.Kernel.Declared != nil {
		record.SpecSHA256 = l.Kernel.Declared.SHA256
	}
	return record
}

// shapeName is the first label of a shape in kernel.toml; empty for a shape without one.
func (l *Lab) shapeName(s spec.Shape) string {
	if names := l.Kernel.ShapeNames(s); len(names) > 0 {
		return names[0]
	}
	return ""
}

// NewProblem returns what a kernel computes. The folder is the kernel's, and dir its path on disk,
// empty for an embedded kernel.
func NewProblem(k *spec.Kernel, folder fs.FS, dir string) problem.Problem {
	return attention.New(k)
}
