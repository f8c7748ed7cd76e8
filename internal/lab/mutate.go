package lab

import (
	"context"
	"fmt"

	"attune/internal/coverage"
	"attune/internal/device"
	"attune/internal/mutate"
	"attune/internal/problem"
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
	Part    int    // of the picked mutants: those whose place, modulo Parts, is Part
	Parts   int    // 0 for all of them
	// Assemble returns the code hash of PTX. Without a compiler it is nil, and no mutant can be
	// shown to be equivalent.
	Assemble func(ctx context.Context, ptx []byte, arch string) (string, error)
}

// Mutate changes a variant one line at a time and takes each mutant through the correctness gate.
// If it is interrupted, the report has the mutants that were tried.
func (l *Lab) Mutate(ctx context.Context, m MutationRequest) (*MutationReport, error) {
	m.Problem = l.problem()
	p, err := m.plan(l.Device.facts.Arch)
	if err != nil {
		return nil, err
	}
	variant := m.Variants[0]
	builds, err := l.buildAudited(ctx, p.Arch, variant)
	if err != nil {
		return nil, err
	}
	build := builds[variant.String()]
	record := &build.Image.Record
	all, err := mutate.All(build.Image.PTX, record.EntryName())
	if err != nil {
		return nil, err
	}
	t := &mutationTrial{lab: l, plan: p, build: build, refs: l.references(everyRow, nil)}
	defer t.refs.Close()
	if t.original, err = t.checkOriginal(ctx, m); err != nil {
		return nil, err
	}
	report := &MutationReport{Variant: variant.String(), Arch: record.Arch, Report: mutate.NewReport(len(all))}
	picked := partOf(mutate.Sample(all, m.Count, m.Seed), m.Part, m.Parts)
	for i, mutant := range picked {
		step := fmt.Sprintf("mutant at line %d: %s", mutant.Line, mutant.Kind)
		l.progress(Progress{Subject: variant.String(), Step: step, Done: i, Total: len(picked)})
		if err := t.try(ctx, mutant, report); err != nil {
			return report, err
		}
	}
	return report, nil
}

// partOf are the elements whose place, modulo parts, is i. Neighbours are in different parts.
func partOf[T any](all []T, i, parts int) []T {
	if parts < 2 {
		return all
	}
	var kept []T
	for ; i < len(all); i += parts {
		kept = append(kept, all[i])
	}
	return kept
}

// mutationTrial runs mutants through the correctness gate.
type mutationTrial struct {
	lab      *Lab
	plan     *plan
	build    problem.Build
	refs     problem.References
	original *mutate.Original  // nil without a compiler
	covered  coverage.Launches // of the unchanged kernel
}

// checkOriginal refuses a kernel that is wrong before any change, and assembles it for comparison
// with mutants. The code hash of the build record does not serve: another compiler may have made
// it.
func (t *mutationTrial) checkOriginal(ctx context.Context, m MutationRequest) (*mutate.Original, error) {
	v, image := t.build.Variant, t.build.Image
	t.lab.progress(Progress{Subject: v.String(), Step: "correctness of the unchanged kernel"})
	p, wrong, err := t.firstWrong(ctx, image.PTX, &t.covered)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v, err)
	}
	if wrong != nil {
		return nil, notCorrect(v, p, wrong.firstWrong(), wrong.failure)
	}
	if m.Assemble == nil {
		return nil, nil
	}
	assemble := func(ctx context.Context, ptx []byte) (string, error) {
		return m.Assemble(ctx, ptx, image.Record.Arch)
	}
	original, err := mutate.NewOriginal(ctx, assemble, image.PTX, image.Record.EntryName(), parameterRanges(t.lab.problem(), t.build))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v, err)
	}
	return original, nil
}

// parameterRanges are the ranges of a kernel's integer arguments, by PTX parameter name. The
// compiler names a parameter after the entry function and its index.
func parameterRanges(p problem.Problem, b problem.Build) map[string]mutate.Range {
	all := map[string]mutate.Range{}
	for i, parameter := range p.Parameters(b) {
		if parameter.Range != nil {
			all[fmt.Sprintf("%s_param_%d", b.Image.Record.EntryName(), i)] = *parameter.Range
		}
	}
	return all
}

// try runs one mutant and reports whether it was killed.
func (t *mutationTrial) try(ctx context.Context, mutant mutate.Mutant, report *MutationReport) error {
	text := mutant.Apply(t.build.Image.PTX)
	_, wrong, err := t.firstWrong(ctx, text, nil)
	if device.Classify(err) == device.KernelUnsupported {
		return nil // the mutant is not a program: the compiler would refuse it too
	}
	if err != nil {
		return err
	}
	if wrong != nil {
		report.Kill(mutant, "")
		return nil
	}
	equivalent := t.original.IsEquivalent(ctx, text)
	if ctx.Err() != nil {
		return ctx.Err() // the compiler was stopped, and says nothing about the mutant
	}
	report.Survive(mutant.Located(&t.covered), equivalent)
	return nil
}

// firstWrong runs PTX through the correctness gate on a fresh device, and returns the first instance
// with something wrong, or nil. It adds what was executed to covered, unless that is nil.
func (t *mutationTrial) firstWrong(ctx context.Context, ptx []byte, covered *coverage.Launches) (problem.Instance, *checked, error) {
	s := t.lab.newSession()
	defer s.close()
	mutant := t.build
	mutant.Image = &toolchain.Image{Record: t.build.Image.Record, PTX: ptx}
	for _, i := range t.plan.instances(mutant.Variant, t.plan.Shapes) {
		ref, err := t.lab.modelled(ctx, t.refs, i, mutant.Variant)
		if err != nil {
			return i, nil, err
		}
		c, err := t.lab.check(ctx, s, mutant, ref, nil)
		if err != nil {
			return i, nil, err
		}
		if c.firstWrong() != "" {
			return i, c, nil
		}
		if covered != nil {
			covered.Add(c.outcome.Covered)
		}
	}
	return problem.Instance{}, nil, nil
}
