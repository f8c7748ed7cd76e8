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
// all judged shapes, its verdict is merge, and the sources of today still give the code that was measured. Otherwise the error is a
// [*Refusal].
func CheckPromotion(ctx context.Context, kernel *spec.Kernel, builder *toolchain.Builder, r *run.Run) error {
	refuse := func(evidence, format string, args ...any) error {
		return &Refusal{r.ID, evidence, fmt.Sprintf(format, args...)}
	}
	again := fmt.Sprintf("`attune run %s` on a GPU gives new evidence", r.Variant)
	if r.Device != "cuda" || r.Facts == nil {
		return refuse(missing, "it was made on device %s, which says nothing of a GPU's times; %s", r.Device, again)
	}
	if r.Kernel != kernel.Name {
		return refuse(missing, "it is of kernel %s, and the one at hand is %s; give its folder with --kernel", r.Kernel, kernel.Name)
	}
	variant, err := kernel.Variant(r.Variant)
	if err != nil {
		return refuse(missing, "%s is no variant of today's spec: %v", r.Variant, err)
	}
	if _, err := Arch(variant.Stage(), r.Arch, r.Facts.Arch); err != nil {
		return refuse(missing, "it was built for %s: %v", r.Arch, err)
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
	image, _, err := builder.Build(ctx, Target(kernel, variant, r.Arch))
	var refused *toolchain.CompileError
	switch {
	case errors.As(err, &refused):
		return refuse(stale, "%v", refused)
	case err != nil:
		return err
	case image.Record.CodeHash != r.CodeHash:
		return refuse(stale, "today's sources give other code (%.12s, and %.12s was measured%s); %s",
			image.Record.CodeHash, r.CodeHash, otherCompiler(&image.Record, r.Build), again)
	}
	return nil
}

// untimedShapes are the judged shapes of the kernel that a run has no times of.
func untimedShapes(kernel *spec.Kernel, r *run.Run) ([]string, error) {
	judged, err := kernel.Shapes(strings.Join(kernel.Run.Judged, ","))
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
