package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"attune/internal/form"
	"attune/internal/gate"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// Refusal is the error of a run that is not evidence enough for a promotion.
type Refusal struct {
	Run      string
	Evidence string // missing, stale or negative
	Why      string
}

// What is wrong with the evidence.
const (
	missing  = "missing"
	stale    = "stale"
	negative = "negative"
)

func (e *Refusal) Error() string {
	return fmt.Sprintf("run %s cannot be promoted: its evidence is %s: %s", e.Run, e.Evidence, e.Why)
}

func refuse(r *run.Run, evidence, format string, args ...any) error {
	return &Refusal{r.ID, evidence, fmt.Sprintf(format, args...)}
}

// rerun names the command that makes new evidence.
func rerun(r *run.Run) string { return fmt.Sprintf("re-run `attune run %s` on a GPU", r.Variant) }

// CheckPromotion checks that a run is evidence enough to make its variant the champion of the run's
// device. The run must have the verdict merge, times from a GPU on all benchmark shapes, and the
// code that today's sources give. For a selection, the runs of its parts must be in the ledger, and
// today's table must assign each part its shapes. If not, the error is a [*Refusal]. The lab needs
// a kernel, a builder and a ledger.
func (l *Lab) CheckPromotion(ctx context.Context, r *run.Run) error {
	if r.Kernel != l.Kernel.Name {
		return refuse(r, missing, "its kernel is %s, and this one is %s; give its folder with --kernel", r.Kernel, l.Kernel.Name)
	}
	if r.Device != "cuda" || r.Facts == nil {
		return refuse(r, missing, "it ran on device %s, which takes no GPU times; %s", r.Device, rerun(r))
	}
	if r.Verdict == gate.Unknown || r.Verdict == gate.Merge && len(r.Performance) == 0 {
		return refuse(r, missing, "its performance was not measured: %s; %s", r.Cause(), rerun(r))
	}
	if r.Verdict != gate.Merge {
		return refuse(r, negative, "its verdict is %s: %s", r.Verdict.Explained(), r.Cause())
	}
	if r.Requested.NoSim {
		return refuse(r, missing, "it ran with %s, so that the simulator did not check it; %s", run.NoSimFlag, rerun(r))
	}
	untimed, err := untimedShapes(l.Kernel, r)
	if err != nil {
		return err
	}
	if len(untimed) > 0 {
		return refuse(r, missing, "it has no times of the benchmark shapes %s; %s", strings.Join(untimed, ", "), rerun(r))
	}
	if changed := l.changedProblem(r); changed != "" {
		return refuse(r, stale, "changed since then: %s; %s", changed, rerun(r))
	}
	if len(r.Parts) > 0 {
		return l.checkParts(ctx, r)
	}
	return l.checkCode(ctx, r, r)
}

// changedProblem names what the problem of a run depends on and has changed since, or is empty.
func (l *Lab) changedProblem(r *run.Run) string {
	if r.Problem == nil {
		return ""
	}
	var changed []string
	if d := l.Kernel.Declared; d == nil || d.SHA256 != r.Problem.SpecSHA256 {
		changed = append(changed, spec.File)
	}
	if p, ok := l.problem().(interface {
		Stale(map[string]string) []string
	}); ok {
		changed = append(changed, p.Stale(r.Problem.Facts)...)
	}
	return strings.Join(changed, ", ")
}

// checkCode compares the code of a run with the code that today's sources give. The run is the
// whole evidence or one part of it.
func (l *Lab) checkCode(ctx context.Context, whole, r *run.Run) error {
	variant, err := l.Kernel.Variant(r.Variant)
	if err != nil {
		return refuse(whole, missing, "%s is no variant of today's kernel.toml: %v", r.Variant, err)
	}
	if _, err := Arch(variant.Stage(), r.Arch, r.Facts.Arch); err != nil {
		return refuse(whole, missing, "it was built for %s: %v", r.Arch, err)
	}
	image, _, err := l.Builder.Build(ctx, form.Target(l.Kernel, variant, r.Arch))
	var compile *toolchain.CompileError
	var broken *toolchain.SourceError
	switch {
	case errors.As(err, &compile), errors.As(err, &broken):
		return refuse(whole, stale, "%v", err)
	case err != nil:
		return err
	case image.Record.CodeHash != r.CodeHash:
		return refuse(whole, stale, "today's sources give %s the code %.12s, and the run measured %.12s%s; %s",
			variant, image.Record.CodeHash, r.CodeHash, otherCompiler(&image.Record, r.Build), rerun(whole))
	}
	return nil
}

// checkParts checks the runs of a selection's parts.
func (l *Lab) checkParts(ctx context.Context, r *run.Run) error {
	s := l.Kernel.Selection(r.Variant)
	if s == nil {
		return refuse(r, missing, "%s is no selection of today's kernel.toml", r.Variant)
	}
	for _, p := range r.Parts {
		part, err := l.readPart(ctx, p)
		if err != nil {
			return refuse(r, missing, "the run of its part %s cannot be read: %v", p.Variant, err)
		}
		if part.Device != r.Device || part.Facts == nil || part.Variant != p.Variant || part.CodeHash != p.CodeHash ||
			part.Gates.Correctness != gate.Pass {
			return refuse(r, missing, "its part %s names run %s, which has variant %s, device %s, correctness %s; %s",
				p.Variant, p.Run, part.Variant, part.Device, part.Gates.Correctness, rerun(r))
		}
		if err := checkTable(l.Kernel, s, p.Shapes, presentName(l.Kernel, p.Variant)); err != nil {
			return refuse(r, stale, "%v; %s", err, rerun(r))
		}
		if err := l.checkCode(ctx, r, part); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) readPart(ctx context.Context, p run.Part) (*run.Run, error) {
	text, err := l.Ledger.Read(ctx, p.Run, "run.json")
	if err != nil {
		return nil, err
	}
	return run.Decode(text)
}

// checkTable checks that today's table assigns these shapes to a measured variant.
func checkTable(kernel *spec.Kernel, s *spec.Selection, shapes []string, measured string) error {
	for _, text := range shapes {
		shape, err := kernel.ParseShape(text)
		if err != nil {
			return err
		}
		c, err := s.Choose(shape)
		if err != nil {
			return err
		}
		if c.Variant.String() != measured {
			return fmt.Errorf("today's table assigns %s to %s, and %s was measured", shape, c.Variant, measured)
		}
	}
	return nil
}

// untimedShapes returns the benchmark shapes of the kernel without times in a run.
func untimedShapes(kernel *spec.Kernel, r *run.Run) ([]string, error) {
	shapes, err := kernel.Shapes(strings.Join(kernel.Run.Benchmark, ","))
	if err != nil {
		return nil, err
	}
	var untimed []string
	for _, shape := range shapes {
		timed := func(p run.Performance) bool { return p.Shape == shape.String() && p.Benchmark }
		if !slices.ContainsFunc(r.Performance, timed) {
			untimed = append(untimed, shape.String())
		}
	}
	return untimed, nil
}

// otherCompiler names both compilers if the sources are the same and only the compiler differs.
func otherCompiler(now, then *toolchain.Record) string {
	if then == nil || now.SourceHash != then.SourceHash || now.Compiler == then.Compiler {
		return ""
	}
	return fmt.Sprintf("; the sources are the same, the compiler was %s and is now %s", then.Compiler, now.Compiler)
}
