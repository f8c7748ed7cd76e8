package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"attune/internal/gate"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// Refusal says why a run does not make its variant the champion.
type Refusal struct {
	Run      string
	Evidence string // missing, stale or negative
	Why      string
}

// What evidence may be instead of good.
const (
	missing  = "missing"
	stale    = "stale"
	negative = "negative"
)

func (e *Refusal) Error() string {
	return fmt.Sprintf("run %s promotes nothing: its evidence is %s: %s", e.Run, e.Evidence, e.Why)
}

// CheckPromotion says whether a run is evidence enough for its variant to be the champion of the run's device: it was timed on a GPU on
// all judged shapes, its verdict is merge, and the sources of today still give the code that was measured. A selection is as good as its parts: their
// runs must be in the ledger, and today's table must give each its shapes. Otherwise the error is a [*Refusal]. The lab needs kernel, builder and
// ledger.
func (l *Lab) CheckPromotion(ctx context.Context, r *run.Run) error {
	refuse, again := refusalOf(r)
	kernel := l.Kernel
	if r.Device != "cuda" || r.Facts == nil {
		return refuse(missing, "it was made on device %s, which says nothing of a GPU's times; %s", r.Device, again)
	}
	if r.Kernel != kernel.Name {
		return refuse(missing, "it is of kernel %s, and the one at hand is %s; give its folder with --kernel", r.Kernel, kernel.Name)
	}
	if r.Verdict == gate.Unknown || r.Verdict == gate.Merge && len(r.Performance) == 0 {
		return refuse(missing, "its performance was not measured: %s; %s", r.Cause(), again)
	}
	if r.Verdict != gate.Merge {
		return refuse(negative, "its verdict is %s: %s", r.Verdict, r.Cause())
	}
	if untimed, err := untimedShapes(kernel, r); err != nil {
		return err
	} else if len(untimed) > 0 {
		return refuse(missing, "it was not timed on %s, on which champions are judged; %s", strings.Join(untimed, ", "), again)
	}
	if len(r.Parts) > 0 {
		return l.checkParts(ctx, r)
	}
	return l.checkCode(ctx, r, r)
}

// refusalOf gives what refuses a run, and the way to new evidence.
func refusalOf(r *run.Run) (refuse func(evidence, format string, args ...any) error, again string) {
	return func(evidence, format string, args ...any) error {
		return &Refusal{r.ID, evidence, fmt.Sprintf(format, args...)}
	}, fmt.Sprintf("`attune run %s` on a GPU gives new evidence", r.Variant)
}

// checkCode says whether today's sources still give the code of one variant's run, which is the whole of the evidence or a part of it.
func (l *Lab) checkCode(ctx context.Context, whole, r *run.Run) error {
	refuse, again := refusalOf(whole)
	variant, err := l.Kernel.Variant(r.Variant)
	if err != nil {
		return refuse(missing, "%s is no variant of today's spec: %v", r.Variant, err)
	}
	if _, err := Arch(variant.Stage(), r.Arch, r.Facts.Arch); err != nil {
		return refuse(missing, "it was built for %s: %v", r.Arch, err)
	}
	image, _, err := l.Builder.Build(ctx, Target(l.Kernel, variant, r.Arch))
	var refused *toolchain.CompileError
	switch {
	case errors.As(err, &refused):
		return refuse(stale, "%v", refused)
	case err != nil:
		return err
	case image.Record.CodeHash != r.CodeHash:
		return refuse(stale, "today's sources give other code of %s (%.12s, and %.12s was measured%s); %s",
			variant, image.Record.CodeHash, r.CodeHash, otherCompiler(&image.Record, r.Build), again)
	}
	return nil
}

// checkParts says whether the parts of a selection's run are there and fresh.
func (l *Lab) checkParts(ctx context.Context, r *run.Run) error {
	refuse, again := refusalOf(r)
	s := l.Kernel.Selection(r.Variant)
	if s == nil {
		return refuse(missing, "%s is no selection of today's spec", r.Variant)
	}
	for _, p := range r.Parts {
		text, err := l.Ledger.Read(ctx, p.Run, "run.json")
		if err != nil {
			return refuse(missing, "the run of its part %s cannot be read: %v", p.Variant, err)
		}
		part, err := run.Decode(text)
		if err != nil {
			return refuse(missing, "the run of its part %s cannot be read: %v", p.Variant, err)
		}
		if part.Device != r.Device || part.Facts == nil || part.Variant != p.Variant || part.CodeHash != p.CodeHash || part.Gates.Correctness != gate.Pass {
			return refuse(missing, "its part %s is said to be run %s, which is of %s on device %s, correctness %s; %s",
				p.Variant, p.Run, part.Variant, part.Device, part.Gates.Correctness, again)
		}
		if err := l.checkTable(s, p); err != nil {
			return refuse(stale, "%v; %s", err, again)
		}
		if err := l.checkCode(ctx, r, part); err != nil {
			return err
		}
	}
	return nil
}

// checkTable says whether today's table gives a part its shapes.
func (l *Lab) checkTable(s *spec.Selection, p run.Part) error {
	for _, text := range p.Shapes {
		shape, err := tensor.ParseShape(text)
		if err != nil {
			return err
		}
		c, err := s.Choose(shape)
		if err != nil {
			return err
		}
		if c.Variant.String() != p.Variant {
			return fmt.Errorf("today's table gives %s to %s, and %s was measured", shape, c.Variant, p.Variant)
		}
	}
	return nil
}

// untimedShapes are the judged shapes of the kernel that a run has no times of.
func untimedShapes(kernel *spec.Kernel, r *run.Run) ([]string, error) {
	judged, err := kernel.Shapes(strings.Join(kernel.Run.Benchmark, ","))
	if err != nil {
		return nil, err
	}
	var untimed []string
	for _, shape := range judged {
		if !slices.ContainsFunc(r.Performance, func(p run.Performance) bool { return p.Shape == shape.String() && p.Judged }) {
			untimed = append(untimed, shape.String())
		}
	}
	return untimed, nil
}

// otherCompiler names the compilers of two builds of which the sources are the same and the code is not.
func otherCompiler(now, then *toolchain.Record) string {
	if then == nil || now.SourceHash != then.SourceHash || now.Compiler == then.Compiler {
		return ""
	}
	return fmt.Sprintf("; the sources are the same, and the compiler was %s and is %s", then.Compiler, now.Compiler)
}
