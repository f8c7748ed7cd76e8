package declared

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"attune/internal/device"
	"attune/internal/device/sim"
	"attune/internal/problem"
	"attune/internal/python"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// numpy reports whether the Python of references has numpy, which takes 0.15 s.
var numpy = sync.OnceValue(func() error {
	path, err := python.Find("")
	if err != nil {
		return err
	}
	return exec.Command(path, "-c", "import numpy").Run()
})

// needsNumPy skips a test that runs a real reference.
func needsNumPy(t *testing.T) {
	t.Helper()
	if err := numpy(); err != nil {
		t.Skipf("needs python3 with numpy: %v", err)
	}
}

// bench is a kernel of a folder with a compiler and the simulator.
type bench struct {
	*testing.T
	*Problem
	builder *toolchain.Builder
	device  *sim.Device
	arch    string
}

// newBench loads the kernel of a folder. The test skips without a compiler.
func newBench(t *testing.T, dir string) *bench {
	t.Helper()
	if testing.Short() {
		t.Skip("runs NVIDIA's compiler, which -short leaves out")
	}
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	compiler, err := toolchain.Installed(t.Context(), cacheDir)
	if err != nil {
		t.Skipf("needs the pinned compiler: %v", err)
	}
	kernel, err := spec.Load(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	builder := toolchain.NewBuilder(os.DirFS(dir), compiler, cacheDir)
	builder.Dir = dir
	return &bench{
		t, New(kernel, os.DirFS(dir), dir), builder,
		sim.Open(sim.Options{Schedules: 2, Checks: true}), kernel.Archs[len(kernel.Archs)-1],
	}
}

// build builds a variant.
func (b *bench) build(v spec.Variant) problem.Build {
	b.Helper()
	t := toolchain.Target{
		Kernel: b.kernel.Name, Variant: v.String(), Source: v.Stage().Source, Arch: b.arch, Entry: b.Entry, Flags: b.Flags, Knobs: map[string]int{},
	}
	for _, s := range v.Values() {
		t.Knobs[s.Knob] = s.Value
	}
	image, _, err := b.builder.Build(b.Context(), t)
	if err != nil {
		b.Fatal(err)
	}
	return problem.Build{Variant: v, Image: image, Code: image.PTX}
}

// launch is problem.Options.Launch on the simulator.
func (b *bench) launch(ctx context.Context, t toolchain.Target, job func(*toolchain.Image) (device.Job, error)) ([][]byte, error) {
	t.Arch = b.arch
	image, _, err := b.builder.Build(ctx, t)
	if err != nil {
		return nil, err
	}
	made, err := job(image)
	if err != nil {
		return nil, err
	}
	outcome, err := b.device.Run(ctx, made)
	if err != nil {
		return nil, err
	}
	if len(outcome.Findings) > 0 {
		return nil, &device.Fault{Code: string(outcome.Findings[0].Kind), Text: outcome.Findings[0].Text(), Operation: "check"}
	}
	return outcome.Outputs, nil
}

// check runs a variant on the shapes of the simulator and returns everything that is wrong.
func (b *bench) check(v spec.Variant) []string {
	b.Helper()
	build := b.build(v)
	refs := b.References(problem.Options{Launch: b.launch})
	defer refs.Close()
	var wrong []string
	for _, name := range b.kernel.Run.SimShapes {
		shapes, err := b.kernel.Shapes(name)
		if err != nil {
			b.Fatal(err)
		}
		for _, i := range b.Instances(shapes, b.kernel.Run.SimSeeds) {
			ref, err := refs.Get(b.Context(), i)
			if err != nil {
				return append(wrong, err.Error())
			}
			job, err := ref.Job(build, b.device.Facts())
			if err != nil {
				return append(wrong, err.Error())
			}
			outcome, err := b.device.Run(b.Context(), job)
			if err != nil {
				return append(wrong, err.Error())
			}
			for _, f := range outcome.Findings {
				wrong = append(wrong, f.String())
			}
			result, err := ref.Compare(build, outcome.Outputs)
			if err != nil {
				return append(wrong, err.Error())
			}
			_, over := ref.Judge(build, result, 1)
			wrong = append(wrong, over...)
		}
	}
	return wrong
}

// Kernels of every form are right on the simulator with all checkers, with every value of every
// knob.
func TestKernelsAreCorrect(t *testing.T) {
	needsNumPy(t)
	folders, err := filepath.Glob("testdata/kernels/*")
	if err != nil || len(folders) < 12 {
		t.Fatal(folders, err)
	}
	for _, dir := range folders {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			b := newBench(t, dir)
			variants := []spec.Variant{b.kernel.Stages[0].Variant()}
			for _, knob := range b.kernel.Knobs {
				for _, value := range knob.Values {
					v, err := b.kernel.Variant(b.kernel.Stages[0].Name + "+" + spec.Setting{Knob: knob.Name, Value: value}.String())
					if err != nil {
						t.Fatal(err)
					}
					if !slices.ContainsFunc(variants, func(other spec.Variant) bool { return other.String() == v.String() }) {
						variants = append(variants, v)
					}
				}
			}
			for _, v := range variants {
				wrong := b.check(v)
				if v.String() == "cooperative+BLOCKS=2" {
					// A reference cannot know the extent of an output that depends on a knob.
					want := `reference.py: "partial" has shape (4,); kernel.toml declares (2,)`
					if !slices.Equal(wrong, []string{want}) {
						t.Errorf("%s: %q; want %q", v, wrong, want)
					}
					continue
				}
				if v.String() == "i8_scalar+SHIFT=2" { // the reference has the default
					if len(wrong) != 1 || !strings.Contains(wrong[0], "elements are bad (0 allowed), the worst y[") {
						t.Errorf("%s: %q", v, wrong)
					}
					continue
				}
				if len(wrong) > 0 {
					t.Errorf("%s: %s", v, strings.Join(wrong, "\n"))
				}
			}
		})
	}
}

// rmsnormWith copies the RMSNorm of the documentation, with one text of its source replaced.
func rmsnormWith(t *testing.T, old, replacement string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("testdata/rmsnorm")); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "rmsnorm")
	file := filepath.Join(dir, "rmsnorm.cu")
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), old) {
		t.Fatalf("%s has no %q: %v", file, old, err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), old, replacement, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPlantedFaultsAreFound(t *testing.T) {
	needsNumPy(t)
	for name, c := range map[string]struct {
		old, replacement string
		want             []string // all in one line of what is wrong
	}{
		"right":         {"", "", nil},
		"race":          {"  __syncthreads();\n", "\n", []string{"race", "rmsnorm.cu:15", "rmsnorm.cu:18"}},
		"epsilon":       {"+ eps", "+ 3000 * eps", []string{"y: ", " of 2048 elements are bad (0 allowed), the worst y[", "want", "tolerance"}},
		"out of bounds": {"x + blockIdx.x * n", "x + (blockIdx.x + 1) * n", []string{"out-of-bounds", "rmsnorm.cu:11"}},
		"uninitialised": {"threadIdx.x % 32 == 0", "threadIdx.x == 0", []string{"uninitialized", "rmsnorm.cu:18"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, rmsnormWith(t, c.old, c.replacement))
			v := b.kernel.Stages[0].Variant()
			wrong := b.check(v)
			found := len(c.want) == 0 && len(wrong) == 0 || slices.ContainsFunc(wrong, func(text string) bool {
				return len(c.want) > 0 && !slices.ContainsFunc(c.want, func(part string) bool { return !strings.Contains(text, part) })
			})
			if !found {
				t.Errorf("%q; want %q", wrong, c.want)
			}
		})
	}
}
