package kernels_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/form"
	"attune/internal/gate"
	"attune/internal/lab"
	"attune/internal/problem"
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

// withoutCompiler returns a builder that has the shipped PTX of a target, which takes no time, or the
// given one if the target is not shipped. With -all everything is compiled.
func withoutCompiler(t *testing.T, builder *toolchain.Builder, target toolchain.Target) *toolchain.Builder {
	t.Helper()
	if *all {
		return builder
	}
	shipped := toolchain.NewBuilder(builder.Folder(), nil, t.TempDir())
	shipped.Dir = builder.Dir
	if _, _, err := shipped.Build(t.Context(), target); err != nil {
		return builder
	}
	return shipped
}

// checkDeclared takes a variant of a declared kernel through the gates on the simulator, with all
// checkers, and through further checks of the run.
func checkDeclared(t *testing.T, kernel *spec.Kernel, builder *toolchain.Builder, folder, variant string, shapes []string, further ...func(*run.Run)) {
	t.Helper()
	checkDeclaredOn(t, kernel, builder, folder, variant, "", shapes, further...)
}

// checkDeclaredOn is checkDeclared for an architecture, which replaces the newest of the kernel.
func checkDeclaredOn(t *testing.T, kernel *spec.Kernel, builder *toolchain.Builder, folder, variant, arch string, shapes []string, further ...func(*run.Run)) {
	t.Helper()
	parsed, err := kernel.Shapes(strings.Join(shapes, ","))
	if err != nil {
		t.Fatal(err)
	}
	v := variantOf(t, kernel, variant)
	target, err := lab.Arch(v.Stage(), arch, "")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab.Lab{
		Kernel: kernel, Builder: withoutCompiler(t, builder, form.Target(kernel, v, target)), Problem: lab.NewProblem(kernel, os.DirFS(folder), folder),
		Device: simulator(simdevice.Options{Checks: true, Strict: true}),
	}
	request := lab.Request{Variants: []spec.Variant{v}, Shapes: parsed, Seeds: kernel.Run.SimSeeds, Samples: 10, Arch: arch}
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

// jobMaker makes launches of a declared kernel. Its references are computed once for each shape, by one
// process.
type jobMaker struct {
	kernel  *spec.Kernel
	builder *toolchain.Builder
	problem problem.Problem

	mutex      sync.Mutex // references are for one goroutine
	references problem.References
}

// jobMakers has those of all tests, by folder.
var jobMakers = struct {
	sync.Mutex
	byFolder map[string]*jobMaker
}{byFolder: map[string]*jobMaker{}}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, maker := range jobMakers.byFolder {
		maker.references.Close()
	}
	os.Exit(code)
}

// jobMakerOf skips the test without the compiler or numpy.
func jobMakerOf(t *testing.T, folder string) *jobMaker {
	t.Helper()
	jobMakers.Lock()
	defer jobMakers.Unlock()
	if m := jobMakers.byFolder[folder]; m != nil {
		return m
	}
	m := &jobMaker{}
	m.kernel, m.builder = declaredBuilder(t, folder)
	m.problem = lab.NewProblem(m.kernel, os.DirFS(folder), folder)
	m.references = m.problem.References(problem.Options{})
	jobMakers.byFolder[folder] = m
	return m
}

// declaredJob is a launch of a declared kernel, and the reference of its shape.
type declaredJob struct {
	device.Job
	maker *jobMaker
	build problem.Build
	ref   problem.Reference
}

func newDeclaredJob(t *testing.T, folder, stage, shape string) *declaredJob {
	t.Helper()
	return newDeclaredJobOn(t, folder, stage, "sm_90a", shape)
}

// newDeclaredJobOn is newDeclaredJob for another architecture.
func newDeclaredJobOn(t *testing.T, folder, stage, arch, shape string) *declaredJob {
	t.Helper()
	m := jobMakerOf(t, folder)
	shapes, err := m.kernel.Shapes(shape)
	if err != nil {
		t.Fatal(err)
	}
	v := variantOf(t, m.kernel, stage)
	target := form.Target(m.kernel, v, arch)
	image, _, err := withoutCompiler(t, m.builder, target).Build(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	j := &declaredJob{maker: m, build: problem.Build{Variant: v, Image: image, Code: image.PTX}}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if j.ref, err = m.references.Get(context.Background(), m.problem.Plain(shapes[0], 0)); err != nil { // for other tests too
		t.Fatal(err)
	}
	if j.Job, err = j.ref.Job(j.build, device.Facts{}); err != nil {
		t.Fatal(err)
	}
	return j
}

// arg is an argument by name.
func (j *declaredJob) arg(name string) *device.Arg {
	return &j.Args[slices.IndexFunc(j.Args, func(a device.Arg) bool { return a.Name == name })]
}

// run returns the outputs on the simulator, with all checkers.
func (j *declaredJob) run(t *testing.T) [][]byte {
	t.Helper()
	outcome, err := simdevice.Open(simdevice.Options{Checks: true, Strict: true}).Run(t.Context(), j.Job)
	if err != nil {
		t.Fatal(err)
	}
	if len(outcome.Findings) > 0 {
		t.Errorf("findings %v", outcome.Findings)
	}
	return outcome.Outputs
}

// check runs it and compares the outputs with the reference.
func (j *declaredJob) check(t *testing.T) {
	t.Helper()
	j.compare(t, j.run(t))
}

// compare compares outputs with the reference.
func (j *declaredJob) compare(t *testing.T, outputs [][]byte) {
	t.Helper()
	j.maker.mutex.Lock()
	defer j.maker.mutex.Unlock()
	result, err := j.ref.Compare(j.build, outputs)
	if err != nil {
		t.Fatal(err)
	}
	if _, wrong := j.ref.Judge(j.build, result, 1); len(wrong) > 0 {
		t.Errorf("%v", wrong)
	}
}
