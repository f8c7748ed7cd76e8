package lab

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"strings"

	"attune/internal/device"
	"attune/internal/device/sim"
	"attune/internal/oracle"
	"attune/internal/problem"
	"attune/internal/problem/attention"
	"attune/internal/problem/declared"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// problem is what the kernel computes: the problem that its spec declares, unless the lab has
// another one.
func (l *Lab) problem() problem.Problem {
	switch {
	case l.Problem != nil:
		return l.Problem
	case l.Builder == nil:
		return NewProblem(l.Kernel, nil, "")
	}
	return NewProblem(l.Kernel, l.Builder.Folder(), l.Builder.Dir)
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
	o.Memory, o.Device = l.Device.facts.MemoryBytes, l.Device.facts.Name
	if o.Device == "" { // a prediction has no device; the simulator counts its work
		o.Device = "the simulator"
	}
	if l.Device.Simulated() {
		o.Memory, o.Device = int64(sim.BufferBytes(l.Device.simulation.MemoryMiB<<20)), "the simulator (see --memory)"
	}
	return l.problem().References(o)
}

// launchTrusted runs a kernel that computes a reference, on a device of its own. What the checkers
// find is an error.
func (l *Lab) launchTrusted(ctx context.Context, t toolchain.Target, makeJob func(*toolchain.Image) (device.Job, error)) ([][]byte, error) {
	var err error
	if t.Arch == "" {
		if t.Arch, err = Arch(l.Kernel.Stages[0], "", l.Device.facts.Arch); err != nil {
			return nil, err
		}
	}
	builder := l.Builder
	if l.trusted != nil {
		builder = l.trusted
	}
	image, _, err := builder.Build(ctx, t)
	if err != nil {
		return nil, err
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
	if err != nil {
		return nil, err
	}
	if len(outcome.Findings) > 0 {
		return nil, errors.New(outcome.Findings[0].String())
	}
	return outcome.Outputs, nil
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

// LongShape is the longest text of a shape, in bytes, that messages print where it has a name.
const LongShape = 40

// instanceName names an instance in messages. Many axes would hide what the message says, so a shape
// with many has the name that kernel.toml gives it.
func (l *Lab) instanceName(i problem.Instance) string {
	name := l.shapeName(i.Shape)
	if shape := i.Shape.String(); name != "" && len(shape) > LongShape {
		return strings.Replace(i.String(), shape, name, 1)
	}
	return i.String()
}

// NewProblem returns what a kernel computes. The folder is the kernel's, and dir its path on disk,
// empty for an embedded kernel.
func NewProblem(k *spec.Kernel, folder fs.FS, dir string) problem.Problem {
	if k == nil || k.Declared == nil {
		return attention.New(k)
	}
	return declared.New(k, folder, dir)
}
