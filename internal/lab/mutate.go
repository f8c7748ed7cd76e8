package lab

import (
	"context"
	"errors"
	"fmt"

	"attune/internal/device"
	"attune/internal/mutate"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// MutationReport says how many breaks of a kernel the gates catch. What is no program, and the compiler would have refused too, is not among them.
type MutationReport struct {
	Variant string `json:"variant"`
	Arch    string `json:"arch"`
	mutate.Report
}

// MutationRequest is what to break, and how often.
type MutationRequest struct {
	Variant spec.Variant
	Request Request // shapes, seeds and architecture of the correctness gate
	Count   int     // of mutants to try; 0 for all
	Seed    uint64  // by which they are picked
	// Assemble gives the code hash of PTX; nil where there is no compiler, and nothing can then be shown equivalent.
	Assemble func(ctx context.Context, ptx []byte, arch string) (string, error)
}

// Mutate breaks a variant one line at a time and runs each mutant through the correctness gate.
func (l *Lab) Mutate(ctx context.Context, m MutationRequest) (*MutationReport, error) {
	m.Request.Variants = []spec.Variant{m.Variant}
	if err := m.Request.Check(); err != nil {
		return nil, err
	}
	arch, err := Arch(m.Variant.Stage(), m.Request.Arch, l.Facts.Arch)
	if err != nil {
		return nil, err
	}
	tell := func(doing string) { l.tell(Event{Variant: m.Variant.String(), Doing: doing}) }
	tell("compiling")
	image, _, err := l.Builder.Build(ctx, Target(l.Kernel, m.Variant, arch))
	if err != nil {
		return nil, err
	}
	all, err := mutate.All(image.PTX, l.Kernel.Name)
	if err != nil {
		return nil, err
	}
	t := &trial{lab: l, request: m, image: image, references: newReferences()}
	tell("correctness of the kernel itself")
	wrong, err := t.judge(ctx, image.PTX)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Variant, err)
	}
	if wrong != "" {
		return nil, &WrongError{m.Variant.String(), wrong}
	}
	if m.Assemble != nil {
		// Not the hash of its record, which another compiler may have made.
		assemble := func(ctx context.Context, ptx []byte) (string, error) { return m.Assemble(ctx, ptx, arch) }
		if t.original, err = mutate.NewOriginal(ctx, assemble, image.PTX, l.Kernel.Name, parameterRanges(l.Kernel.Name, image.Record.Launch)); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Variant, err)
		}
	}
	report := &MutationReport{Variant: m.Variant.String(), Arch: arch, Report: mutate.NewReport(len(all))}
	picked := mutate.Sample(all, m.Count, m.Seed)
	for i, mutant := range picked {
		l.tell(Event{Variant: m.Variant.String(), Doing: fmt.Sprintf("mutant at line %d: %s", mutant.Line, mutant.What), Done: i, Total: len(picked)})
		if err := t.try(ctx, mutant, report); err != nil {
			return nil, err
		}
	}
	return report, nil
}

// WrongError is the error of a kernel that is to be broken, and is broken before.
type WrongError struct {
	Variant string
	Wrong   string
}

func (e *WrongError) Error() string {
	return fmt.Sprintf("%s itself does not pass the correctness gate: %s", e.Variant, e.Wrong)
}

// trial is the court that mutants come before.
type trial struct {
	lab        *Lab
	request    MutationRequest
	image      *toolchain.Image
	references *references
	original   *mutate.Original // nil where there is no compiler
}

// try decides the fate of one mutant.
func (t *trial) try(ctx context.Context, mutant mutate.Mutant, report *MutationReport) error {
	text := mutant.Apply(t.image.PTX)
	wrong, err := t.judge(ctx, text)
	var unsupported *device.Unsupported
	if errors.As(err, &unsupported) {
		return nil // no program: the compiler would have refused it too
	}
	if err != nil {
		return err
	}
	if wrong != "" {
		report.Kill(mutant, "")
	} else {
		report.Spare(mutant, t.original.Is(ctx, text))
	}
	return ctx.Err()
}

// judge runs PTX through the correctness gate and gives the first thing that is wrong; empty when nothing is.
func (t *trial) judge(ctx context.Context, text []byte) (string, error) {
	d, err := t.lab.Open(ctx)
	if err != nil {
		return "", err
	}
	defer d.Close()
	image := &toolchain.Image{Record: t.image.Record, PTX: text}
	for _, p := range t.request.Request.problems() {
		ref, err := t.references.get(ctx, p)
		if err != nil {
			return "", err
		}
		outcome, err := d.Run(ctx, newJob(image, d.Facts(), ref.inputs))
		var fault *device.Fault
		var timeout *device.Timeout
		if errors.As(err, &fault) || errors.As(err, &timeout) {
			return fmt.Sprintf("%s: %v", p, err), nil
		}
		if err != nil {
			return "", err
		}
		_, wrong, err := t.lab.check(ref, t.request.Variant, image, outcome)
		if err != nil {
			return "", err
		}
		if len(wrong) > 0 {
			return fmt.Sprintf("%s: %s", p, wrong[0]), nil
		}
	}
	return "", nil
}
