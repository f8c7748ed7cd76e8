package tuner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"attune/internal/lab"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/internal/tune"
)

// harness builds, checks and times candidates for a planned request.
type harness struct {
	lab      *lab.Lab
	request  Request
	space    *tune.Space
	pipeline *lab.Pipeline
	record   toolchain.Record                 // of the default's image
	inputs   map[spec.Shape]problem.Reference // on which candidates are timed
}

// newHarness plans a request for a frozen lab and builds the default. The caller closes it.
func newHarness(ctx context.Context, l *lab.Lab, r Request) (*harness, error) {
	planned, space, err := r.plan(l)
	if err != nil {
		return nil, err
	}
	h := &harness{lab: l, request: planned, space: space, pipeline: l.NewPipeline(ctx, r.Arch, r.MaxWork, r.Shapes)}
	h.step(r.Variant.String(), "building")
	standard, err := h.pipeline.Build(r.Variant)
	if err != nil {
		return nil, errors.Join(err, h.pipeline.Close())
	}
	h.record = standard.Image.Record
	return h, nil
}

// loadInputs computes the references of the plain instances of all shapes.
func (h *harness) loadInputs(ctx context.Context) error {
	h.inputs = map[spec.Shape]problem.Reference{}
	for _, shape := range slices.Concat(h.request.Small, h.request.Shapes) {
		h.step(h.request.Variant.String(), "reference of "+shape.String())
		ref, err := h.pipeline.Reference(ctx, h.lab.Problem.Plain(shape, h.request.Seeds[0]))
		if err != nil {
			return err
		}
		h.inputs[shape] = ref
	}
	return nil
}

// step reports a step of the work.
func (h *harness) step(subject, step string) {
	if h.lab.Progress != nil {
		h.lab.Progress(lab.Progress{Subject: subject, Step: step})
	}
}

// A step takes a candidate further or fails it. An error is not the candidate's fault.
type step struct {
	name string
	do   func(context.Context, *Candidate) error
}

// walk takes a candidate through steps until one fails it or knows its result.
func (h *harness) walk(ctx context.Context, c *Candidate, steps []step) error {
	for _, s := range steps {
		h.step(c.result.Variant, s.name)
		if err := s.do(ctx, c); err != nil {
			return err
		}
		if c.result.SameAs != "" || !c.ok() {
			return nil
		}
	}
	return nil
}

// compile builds the code of a candidate.
func (h *harness) compile(ctx context.Context, c *Candidate) (problem.Build, error) {
	if c.Patch != nil {
		return c.Patch.Lab.BuildOne(ctx, h.request.Arch, c.Variant)
	}
	return h.pipeline.Build(c.Variant)
}

// build builds a candidate, or waits for the build that was started earlier.
func (h *harness) build(ctx context.Context, c *Candidate) error {
	build, err := h.compile(ctx, c)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return c.failToBuild(err)
	}
	now, then := build.Image.Record.SourceHash, h.record.SourceHash
	if now != then && c.Patch == nil {
		// The sources of the kernel's folder are read once. Headers of -I are not.
		return lab.RequestError(fmt.Sprintf("a header of a folder of -I changed during the search: the sources of %s have the hash %.8s, those of the default %.8s; search again",
			c.result.Variant, now, then))
	}
	h.takeBuild(c, build)
	return nil
}

// takeBuild notes what the candidate is built to.
func (h *harness) takeBuild(c *Candidate, b problem.Build) {
	own := lab.CodeOf(h.lab.Problem, b)
	c.build = b
	c.result.Arch, c.result.CodeHash, c.result.LaunchKey, c.result.Registers = own.Arch, own.Hash, own.Launch, b.Image.Record.Resources.Registers
}

// failToBuild fails a candidate that does not compile. It returns the error if the machine is at
// fault.
func (c *Candidate) failToBuild(err error) error {
	var refused *toolchain.CompileError
	var broken *toolchain.SourceError
	var mistake lab.RequestError
	switch {
	case errors.As(err, &refused):
		c.fail(run.FailedCompile, firstError(refused.Output), err)
	case errors.As(err, &broken):
		c.fail(run.FailedCompile, broken.Problem, err)
	case errors.As(err, &mistake) && !c.isDefault:
		c.fail(run.FailedCompile, mistake.Error(), err)
	case c.Patch != nil: // it may crash the compiler
		c.fail(run.FailedCompile, err.Error(), err)
	default:
		return err
	}
	return nil
}

// firstError is the first line of a compiler's output that reports an error, or else its first line.
func firstError(output string) string {
	for _, line := range strings.Split(output, "\n") {
		if strings.Contains(line, "error") {
			return line
		}
	}
	return output
}

// rebuild builds a candidate of the journal, which has no build.
func (h *harness) rebuild(ctx context.Context, c *Candidate) (err error) {
	if c.build.Image == nil {
		c.build, err = h.compile(ctx, c)
	}
	return err
}

// fits compares the launches on all shapes with the limits of the chip, without opening the device.
func (h *harness) fits(_ context.Context, c *Candidate) error {
	shapes := slices.Concat(h.request.Small, h.request.Shapes)
	if err := h.lab.Problem.CheckShapes(c.Variant, shapes); err != nil {
		c.fail(run.FailedResources, err.Error(), lab.RequestError(err.Error()))
		return nil
	}
	facts := h.lab.Device.Facts()
	for _, shape := range shapes {
		job, err := h.inputs[shape].Job(c.build, facts)
		if err != nil {
			return err
		}
		needs := needsOf(c.build, job)
		c.result.SharedBytes = max(c.result.SharedBytes, needs.shared)
		if over := needs.over(c.result.Arch, facts.SharedBlockLimit); over != "" {
			c.fail(run.FailedResources, fmt.Sprintf("%s: %s", shape, over), nil)
			return nil
		}
	}
	return nil
}

// checkSmall audits the PTX and compares the outputs on the small shapes with the reference.
func (h *harness) checkSmall(ctx context.Context, c *Candidate) error {
	if reason := h.pipeline.Audit(c.build); reason != "" {
		c.fail(run.FailedIncorrect, reason, nil)
		return nil
	}
	return h.check(ctx, c, h.request.Small, h.request.Seeds[:1])
}

// check compares the outputs on shapes and seeds with the reference.
func (h *harness) check(ctx context.Context, c *Candidate, shapes []spec.Shape, seeds []uint64) error {
	found, err := h.pipeline.Check(ctx, c.build, shapes, seeds)
	if err != nil {
		return err
	}
	c.takeCorrectness(found)
	return nil
}

// prove fails a candidate that the simulator beside the GPU finds wrong, or does not finish.
func (h *harness) prove(ctx context.Context, c *Candidate) error {
	found, err := h.pipeline.Simulated(ctx, c.build)
	var wrong *lab.WrongError
	var unchecked *lab.UncheckedError
	switch {
	case errors.As(err, &wrong):
		c.fail(run.FailedIncorrect, wrong.Wrong, nil)
		err = nil
	case errors.As(err, &unchecked):
		c.fail(run.FailedUnsupported, unchecked.Why, err)
		err = nil
	}
	c.simulated = found
	return err
}
