package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"attune/internal/device"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/internal/tune"
)

// trial is the evaluation of one variant, in steps of which the cheapest come first.
type trial struct {
	*tuning
	lab       *Lab // that builds it
	variant   spec.Variant
	point     tune.Point // nil for a variant outside of the space
	patch     []byte     // of a proposal
	kept      string     // file of the patch, if the proposer keeps it
	isDefault bool

	build    problem.Build
	counters map[problem.Instance]device.Counters // of the simulator
	failure  error                                // of the device or the build
	e        run.TuneEvaluation
	suggest  []int // knobs, by the profile of a new best
	finished bool  // the result is known, no further step is needed
}

func (t *tuning) newTrial(of *Lab, v spec.Variant, p tune.Point, origin string) *trial {
	if of == nil {
		of = t.Lab
	}
	return &trial{
		tuning: t, lab: of, variant: v, point: p, counters: map[problem.Instance]device.Counters{},
		e: run.TuneEvaluation{
			SchemaVersion: run.TuningSchemaVersion, MessageType: "evaluation", Variant: v.String(), Origin: origin, Objective: t.request.Objective,
		},
	}
}

// key identifies the variant among those that were evaluated. A patched kernel has variants of its
// own.
func (c *trial) key() string { return trialKey(c.e.Variant, c.patchFile()) }

func trialKey(variant, patch string) string { return variant + "\x00" + patch }

// patchFile is the name of the patch's file in the folder of the search; empty without a patch.
func (c *trial) patchFile() string {
	if len(c.patch) == 0 || c.kept != "" {
		return c.kept
	}
	sum := sha256.Sum256(c.patch)
	return hex.EncodeToString(sum[:6]) + ".patch"
}

// foreign reports whether the variant is one of a patched kernel, which nobody has reviewed.
func (c *trial) foreign() bool { return c.lab != c.Lab }

// savePatch keeps the patch beside the journal.
func (c *trial) savePatch() error {
	if c.e.Patch = c.patchFile(); c.e.Patch == "" || c.kept != "" || c.folder == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(c.folder, c.e.Patch), c.patch, 0o644)
}

// evaluate takes the variant through the steps until one fails or knows the result. An error is not
// the variant's fault.
func (c *trial) evaluate(ctx context.Context) error {
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"building", c.compile},
		{"comparing its code", c.compareCode},
		{"resources", c.fits},
		{"correctness", c.check},
		{"measuring", c.measure},
	} {
		c.step(c.e.Variant, step.name)
		if err := step.do(ctx); err != nil {
			return err
		}
		if c.finished || !c.e.OK() {
			return nil
		}
	}
	return nil
}

// fail ends the evaluation with a failure of the variant.
func (c *trial) fail(kind, reason string, err error) {
	c.e.Failure, c.failure = kind, err
	c.e.Reason, _, _ = strings.Cut(strings.TrimSpace(reason), "\n")
	c.e.Cost = nil
}

// failOnDevice ends the evaluation with an error of the device, and reports whether it is the
// variant's.
func (c *trial) failOnDevice(err error) bool {
	switch device.Classify(err) {
	case device.KernelTimeout:
		c.fail(run.FailedTimeout, err.Error(), err)
	case device.KernelFault, device.KernelCrash:
		c.fail(run.FailedCrashed, err.Error(), err)
	case device.KernelUnsupported:
		c.fail(run.FailedUnsupported, err.Error(), err)
	default:
		return false
	}
	return true
}

// mustRun is the error of a default without a result.
func (c *trial) mustRun() error {
	switch {
	case c.e.OK():
		return nil
	case c.e.Failure == run.FailedIncorrect:
		return &WrongError{c.e.Variant, c.e.Reason}
	case c.failure != nil:
		return fmt.Errorf("the default %s: %w", c.e.Variant, c.failure)
	}
	return RequestError(fmt.Sprintf("the default %s: %s; a search starts from a variant that runs", c.e.Variant, c.e.Reason))
}

// compile waits for the build, which may have been started earlier.
func (c *trial) compile(ctx context.Context) error {
	builds := c.builds
	if c.foreign() {
		builds = c.lab.startBuilds(ctx, c.request.Arch, c.variant)
		defer builds.stop()
	}
	build, err := builds.launchable(c.variant)
	var refused *toolchain.CompileError
	var broken *toolchain.SourceError
	var mistake RequestError
	switch {
	case errors.As(err, &refused):
		c.fail(run.FailedCompile, firstError(refused.Output), err)
		return nil
	case errors.As(err, &broken):
		c.fail(run.FailedCompile, broken.Problem, err)
		return nil
	case errors.As(err, &mistake) && !c.isDefault:
		c.fail(run.FailedCompile, mistake.Error(), err)
		return nil
	case err != nil && c.foreign() && ctx.Err() == nil: // it may crash the compiler
		c.fail(run.FailedCompile, err.Error(), err)
		return nil
	case err != nil:
		return err
	}
	if now, then := build.Image.Record.SourceHash, c.document.Identity.Sources; now != then && !c.foreign() {
		// The sources of the kernel's folder are read once. Headers of -I are not.
		return RequestError(fmt.Sprintf("a header of a folder of -I changed during the search: the sources of %s have the hash %.8s, those of the default %.8s; search again",
			c.e.Variant, now, then))
	}
	if c.build = build; c.foreign() {
		c.dropPatch()
	}
	return nil
}

// dropPatch makes the trial one of the kernel itself if the patch changes no machine code. If that
// variant was evaluated before, the patched one takes its result instead.
func (c *trial) dropPatch() {
	own, err := c.builds.launchable(c.variant)
	c.builds.forget(c.variant)
	same := codeOf(c.problem(), c.build)
	if _, evaluated := c.known[same]; evaluated || err != nil || codeOf(c.problem(), own) != same {
		return
	}
	c.lab, c.build, c.patch, c.kept = c.Lab, own, nil, ""
	if !c.inFlight(c.variant) {
		c.point, _ = tune.PointOf(c.space, c.variant)
	}
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

// compareCode looks for an evaluated variant with the same machine code, whose result is this one's.
func (c *trial) compareCode(context.Context) error {
	record := &c.build.Image.Record
	own := codeOf(c.problem(), c.build)
	c.e.Arch, c.e.CodeHash, c.e.LaunchKey, c.e.Registers = own.arch, own.hash, own.launch, record.Resources.Registers
	i, known := c.known[own]
	if !known {
		return nil
	}
	same := &c.evaluations[i]
	c.e.SameAs, c.e.Failure, c.e.Reason, c.e.Cost, c.e.Shapes = same.Name(), same.Failure, same.Reason, same.Cost, same.Shapes
	c.e.SharedBytes, c.e.Number = same.SharedBytes, same.Number
	c.finished = true
	return nil
}

// check audits the PTX and compares the outputs on the small shapes with the reference.
func (c *trial) check(ctx context.Context) error {
	if _, reasons := c.lab.auditBuild(c.build); len(reasons) > 0 {
		c.fail(run.FailedIncorrect, reasons[0], nil)
		return nil
	}
	return c.checkInstances(ctx, c.request.Small, c.request.Seeds[:1])
}

// checkInstances checks the variant on shapes and seeds.
func (c *trial) checkInstances(ctx context.Context, shapes []spec.Shape, seeds []uint64) error {
	request := Request{Problem: c.problem(), Variants: []spec.Variant{c.variant}, Shapes: shapes, Seeds: seeds}
	all := request.instances(c.variant, shapes)
	for _, i := range all {
		ref, err := c.modelled(ctx, c.refs, i, c.variant)
		if err != nil {
			return err
		}
		second, err := second(ctx, c.refs, c.problem(), i, shapes, seeds[0])
		if err != nil {
			return err
		}
		if err := c.checkInstance(ctx, i, ref, second); err != nil || !c.e.OK() {
			return err
		}
	}
	return nil
}

func (c *trial) checkInstance(ctx context.Context, i problem.Instance, ref, second problem.Reference) error {
	result, err := c.Lab.check(ctx, c.session, c.build, ref, second)
	if err != nil && ctx.Err() == nil && c.failOnDevice(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if result.failure != nil {
		c.failOnDevice(result.failure)
		c.e.Reason = i.String() + ": " + c.e.Reason
		return nil
	}
	if wrong := result.firstWrong(); wrong != "" {
		c.fail(run.FailedIncorrect, i.String()+": "+wrong, nil)
		return nil
	}
	if result.outcome.Counters != nil {
		c.counters[i] = result.outcome.Counters
	}
	return nil
}

// measure finds the cost of a correct variant.
func (c *trial) measure(ctx context.Context) error {
	switch {
	case c.request.Objective == run.ObjectiveCost:
		return c.simulate(ctx)
	case c.best == nil:
		return c.timeAlone(ctx)
	}
	return c.screen(ctx)
}

// setCost sets the cost and, if the variant is better beyond doubt, makes it the best so far.
func (c *trial) setCost(cost float64, better bool) {
	c.e.Cost, c.e.Best = &cost, better
}
