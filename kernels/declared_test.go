package kernels

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	simdevice "attune/internal/device/sim"
	"attune/internal/gate"
	"attune/internal/lab"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// declaredBuilder returns a declared kernel of this folder. It skips the test without the compiler or
// numpy.
func declaredBuilder(t *testing.T, folder string) (*spec.Kernel, *toolchain.Builder) {
	t.Helper()
	kernel, builder := pinnedBuilder(t, os.DirFS(folder))
	var err error
	if builder.Dir, err = filepath.Abs(folder); err != nil { // of -I
		t.Fatal(err)
	}
	needNumPy(t)
	return kernel, builder
}

// checkDeclared takes a variant of a declared kernel through the gates on the simulator, with all
// checkers, and through further checks of the run.
func checkDeclared(t *testing.T, kernel *spec.Kernel, builder *toolchain.Builder, folder, variant string, shapes []string, further ...func(*run.Run)) {
	t.Helper()
	parsed, err := kernel.Shapes(strings.Join(shapes, ","))
	if err != nil {
		t.Fatal(err)
	}
	l := &lab.Lab{
		Kernel: kernel, Builder: builder, Problem: lab.NewProblem(kernel, os.DirFS(folder), folder),
		Device: simulator(simdevice.Options{Checks: true, Strict: true}),
	}
	request := lab.Request{Variants: []spec.Variant{variantOf(t, kernel, variant)}, Shapes: parsed, Seeds: kernel.Run.SimSeeds, Samples: 10}
	err = l.Run(t.Context(), request, func(r *run.Run) {
		for _, check := range further {
			check(r)
		}
		if r.Gates.Resources != gate.Pass || r.Gates.Correctness != gate.Pass {
			t.Errorf("%s: resources %s, correctness %s\n%s", r.Variant, r.Gates.Resources, r.Gates.Correctness,
				strings.Join(append(r.Reasons.Resources, r.Reasons.Correctness...), "\n"))
		}
	})
	if err != nil {
		t.Error(err)
	}
}
