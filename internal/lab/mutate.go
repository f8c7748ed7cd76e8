package lab

import (
	"context"
	"fmt"

	"attune/internal/device"
	"attune/internal/gate"
	"attune/internal/mutate"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// MutationReport counts the mutants of a kernel that the correctness gate catches. Mutants that the
// compiler would refuse are not counted.
type MutationReport struct {
	Variant string `json:"variant"`
	Arch    string `json:"arch"`
	mutate.Report
}

// MutationRequest says which mutants to try.
type MutationRequest struct {
	Request        // one variant; shapes, seeds and architecture of the correctness gate
	Count   int    // of mutants to try; 0 for all
	Seed    uint64 // picks the mutants
	// Assemble returns the code hash of PTX. Without a compiler it is nil, and no mutant can be
	// shown to be equivalent.
	Assemble func(ctx context.Context, ptx []byte, arch string) (string, error)
}

// Mutate changes a variant one line at a time and takes each mutant through the correctness gate.
func (l *Lab) Mutate(ctx context.Context, m MutationRequest) (*MutationReport, error) {
	p, err := m.plan(l.Device.facts.Arch)
	if err != nil {
		return nil, err
	}
	variant := m.Variants[0]
	images, err := l.buildAudited(ctx, p.Arch, variant)
	if err != nil {
		return nil, err
	}
	image := images[variant.String()]
	all, err := mutate.All(image.PTX, l.Kernel.Name)
	if err != nil {
		return nil, err
	}
	t := &mutationTrial{lab: l, plan: p, variant: variant, image: image, refs: newReferences()}
	if t.original, err = t.checkOriginal(ctx, m); err != nil {
		return nil, err
	}
	report := &MutationReport{Variant: variant.String(), Arch: image.Record.Arch, Report: mutate.NewReport(len(all))}
	picked := mutate.Sample(all, m.Count, m.Seed)
	for i, mutant := range picked {
		step := fmt.Sprintf("mutant at line %d: %s", mutant.Line, mutant.Kind)
		l.progress(Progress{Subject: variant.String(), Step: step, Done: i, Total: len(picked)})
		if err := t.try(ctx, mutant, report); err != nil {
			return nil, err
		}
	}
	return report, nil
}

// mutationTrial runs mutants through the correctness gate.
type mutationTrial struct {
	lab      *Lab
	plan     *plan
	variant  spec.Variant
	image    *toolchain.Image
	refs     *references
	original *mutate.Original // nil without a compiler
}

// checkOriginal refuses a kernel that is wrong before any change, and assembles it for comparison
// with mutants. The code hash of the build record does not serve: another compiler may have made
// it.
func (t *mutationTrial) checkOriginal(ctx context.Context, m MutationRequest) (*mutate.Original, error) {
	t.lab.progress(Progress{Subject: t.variant.String(), Step: "correctness of the unchanged kernel"})
	p, wrong, err := t.firstWrong(ctx, t.image.PTX)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.variant, err)
	}
	if wrong != nil {
		return nil, notCorrect(t.variant, p, wrong.firstWrong(), wrong.failure)
	}
	if m.Assemble == nil {
		return nil, nil
	}
	assemble := func(ctx context.Context, ptx []byte) (string, error) {
		return m.Assemble(ctx, ptx, t.image.Record.Arch)
	}
	kernel := t.lab.Kernel.Name
	original, err := mutate.NewOriginal(ctx, assemble, t.image.PTX, kernel, parameterRanges(kernel, t.image.Record.Launch))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.variant, err)
	}
	return original, nil
}

// try runs one mutant and reports whether it was killed.
func (t *mutationTrial) try(ctx context.Context, mutant mutate.Mutant, report *MutationReport) error {
	text := mutant.Apply(t.image.PTX)
	_, wrong, err := t.firstWrong(ctx, text)
	if device.Classify(err) == device.KernelUnsupported {
		return nil // the mutant is not a program: the compiler would refuse it too
	}
	if err != nil {
		return err
	}
	if wrong != nil {
		report.Kill(mutant, "")
	} else {
		report.Survive(mutant, t.original.IsEquivalent(ctx, text))
	}
	return ctx.Err()
}

// firstWrong runs PTX through the correctness gate on a fresh device, and returns the first problem
// with something wrong, or nil.
func (t *mutationTrial) firstWrong(ctx context.Context, ptx []byte) (problem, *checked, error) {
	s := t.lab.newSession()
	defer s.close()
	image := &toolchain.Image{Record: t.image.Record, PTX: ptx}
	for _, p := range t.plan.problems(t.variant, t.plan.Shapes) {
		ref, err := t.refs.get(ctx, p)
		if err != nil {
			return p, nil, err
		}
		if err := t.refs.model(ctx, ref, t.variant); err != nil {
			return p, nil, err
		}
		c, err := t.lab.check(ctx, s, t.variant, image, ref, nil)
		if err != nil {
			return p, nil, err
		}
		limits := gate.LimitsOfExponentials(t.variant.Exponentials(), false)
		c.wrong = append(c.wrong, gate.ExponentialErrors(c.errors.exponentials, limits)...)
		if c.firstWrong() != "" {
			return p, c, nil
		}
	}
	return problem{}, nil, nil
}
