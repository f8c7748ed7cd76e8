package lab

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/problem"
	"attune/internal/python"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// The kernels of package declared, and the RMSNorm of the documentation.
const (
	declaredKernels = "../problem/declared/testdata/kernels"
	declaredRMSNorm = "../problem/declared/testdata/rmsnorm"
)

// numpy reports whether the Python of references has numpy, which takes 0.15 s.
var numpy = sync.OnceValue(func() error {
	path, err := python.Find("")
	if err != nil {
		return err
	}
	return exec.Command(path, "-c", "import numpy").Run()
})

// newDeclared is a lab for the declared kernel of a folder on the simulator.
func newDeclared(t *testing.T, dir string) *setup {
	t.Helper()
	c, cacheDir := compiler(t)
	if c == nil {
		t.Skip(needsCompiler)
	}
	if err := numpy(); err != nil {
		t.Skipf("needs python3 with numpy: %v", err)
	}
	s := newSetupOf(t, os.DirFS(dir), c, cacheDir)
	s.Builder.Dir = dir
	s.Problem = NewProblem(s.Kernel, os.DirFS(dir), dir)
	o := simdevice.Options{Checks: true, Limit: time.Minute}
	open := func(context.Context) (device.Device, error) { return simdevice.Open(o), nil }
	s.Device = Simulator(simdevice.Open(o).Facts(), open, run.Simulation{Schedules: 1, Checks: o.Checks, Tensor: run.ExactTensor})
	return s
}

// declaredRequest asks for variants on the shapes of the simulator.
func (s *setup) declaredRequest(variants ...string) Request {
	s.t.Helper()
	r := Request{Seeds: s.Kernel.Run.SimSeeds, Samples: 10}
	for _, text := range variants {
		r.Variants = append(r.Variants, s.variant(text))
	}
	var err error
	if r.Shapes, err = s.Kernel.Shapes(strings.Join(s.Kernel.Run.SimShapes, ",")); err != nil {
		s.t.Fatal(err)
	}
	return r
}

const rightOnTheSimulator = "not-measured pass/pass/not-measured/not-measured"

// Kernels of every form go through the gates: parameters, audit, launch, relaunch on secret inputs,
// comparison and record.
func TestRunDeclaredKernels(t *testing.T) {
	t.Parallel()
	folders, err := filepath.Glob(declaredKernels + "/*")
	if err != nil || len(folders) < 12 {
		t.Fatal(folders, err)
	}
	for _, dir := range folders {
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDeclared(t, dir)
			r := s.runOne(s.declaredRequest(name))
			if len(r.Reasons.Correctness) > 0 {
				t.Errorf("%q", r.Reasons.Correctness)
			}
			expectOutcome(t, r, rightOnTheSimulator)
			if r.Problem == nil || r.Problem.Kind != "declared" || r.Problem.SpecSHA256 == "" || r.Problem.Facts["reference"] == "" || r.ReferenceError != "" {
				t.Errorf("the record has the problem %+v, error %q", r.Problem, r.ReferenceError)
			}
			for _, c := range r.Correctness {
				if len(c.Outputs) == 0 || c.ShapeName == "" || c.Bad > 0 {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

// newRMSNorm is a lab for the RMSNorm of the documentation with one text of a file replaced. Its
// headers are those of the original, so that variants with another reference only are not compiled
// again.
func newRMSNorm(t *testing.T, file, old, replacement string) *setup {
	t.Helper()
	original := filepath.Join(declaredRMSNorm, "rmsnorm")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(original)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, file)
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), old) {
		t.Fatalf("%s has no %q: %v", path, old, err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, replacement, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newDeclared(t, dir)
	s.Builder.Dir = original
	return s
}

func TestRunFaultyRMSNorm(t *testing.T) {
	t.Parallel()
	const source = "rmsnorm.cu"
	for name, c := range map[string]struct{ old, replacement, outcome, reason string }{
		"right":         {"", "", rightOnTheSimulator, ""},
		"race":          {"  __syncthreads();\n", "\n", incorrect, "race at rmsnorm.cu:"},
		"epsilon":       {"+ eps", "+ 3000 * eps", incorrect, " of 2048 elements are bad (0 allowed), the worst y["},
		"out of bounds": {"x + blockIdx.x * n", "x + (blockIdx.x + 1) * n", incorrect, "out-of-bounds at rmsnorm.cu:11"},
		"uninitialised": {"threadIdx.x % 32 == 0", "threadIdx.x == 0", incorrect, "uninitialized at rmsnorm.cu:18"},
		"lazy":          {"y[blockIdx.x * n + i] =", "if (i > 0) y[blockIdx.x * n + i] =", incorrect, `unwritten: argument 2 "y": `},
		"reads y":       {"float sum = 0;", "float sum = __half2float(y[0]);", incorrect, `reads an output (y), which has the result of an earlier launch at rmsnorm.cu:9 (ptx:45); write inout = true in its [[arg]] if the kernel updates it, scratch = true if it is a workspace, or allow = ["output-read"] if it reads only what it has written`},
		"rare address":  {"y[blockIdx.x * n + i] =", "y[blockIdx.x * n + i + (__half2float(x[blockIdx.x * n + i]) > 4.5f) * 4096] =", incorrect, " times in relaunch 1 on seed "},
		"rare value":    {"y[blockIdx.x * n + i] =", "y[blockIdx.x * n + i] = __half2float(x[blockIdx.x * n + i]) < -4.5f ? __half() :", incorrect, "seed 0: wrong on the inputs of seed "},
		"rare trap":     {"y[blockIdx.x * n + i] =", "if (__half2float(row[i]) > 4.5f) __trap();\n    y[blockIdx.x * n + i] =", incorrect, "run the kernel in relaunch 1 on seed "},
		"no compile":    {"float total", "flot total", "over-budget fail/not-measured/not-measured/not-measured", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRMSNorm(t, source, c.old, c.replacement)
			r := s.runOne(s.declaredRequest("rmsnorm"))
			expectOutcome(t, r, c.outcome)
			if c.reason != "" {
				expectReason(t, r.Reasons.Correctness, c.reason)
			}
			if r.ReferenceError != "" {
				t.Errorf("the reference failed: %s", r.ReferenceError)
			}
		})
	}
}

// A kernel whose parameters are not those of kernel.toml fails its resource gate.
func TestRunDeclaredKernelWithOtherParameters(t *testing.T) {
	t.Parallel()
	s := newRMSNorm(t, "rmsnorm.cu", "int n, float eps", "float eps, int n")
	got := s.runOne(s.declaredRequest("rmsnorm"))
	expectOutcome(t, got, "over-budget fail/not-measured/not-measured/not-measured")
	const want = "declare its parameters in this order: x, w, y, n, eps; the parameters are the [[arg]] of kernel.toml, in their order"
	if reasons := strings.Join(got.Reasons.Resources, "\n"); !strings.Contains(reasons, want) {
		t.Errorf("got %s, want %s", reasons, want)
	}
}

// A reference that fails leaves correctness unmeasured. Nothing of it is the kernel's fault, and
// the next variant runs.
func TestRunWithAFailingReference(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ old, replacement, want string }{
		"an exception": {"return {", "raise ValueError('no luck')\n    return {", "reference.py: ValueError: no luck (line 7)"},
		"dies":         {"return {", "import os; os._exit(3)\n    return {", "reference.py: python3 exited (exit status 3)"},
		"hangs":        {"return {", "import time; time.sleep(60)\n    return {", "reference.py: no result for rows=8,n=256 seed 0 within 10s; --reference-timeout gives it more"},
		"a shape":      {"x = inputs[\"x\"]", "x = inputs[\"x\"][:-1]", `reference.py: "y" has shape (7, 256); kernel.toml declares (8, 256)`},
		"NaN":          {"+ 1e-5)", "- 1e5)", "reference.py: returned NaN for y[0, 0], where the kernel has "},
		"no function":  {"def reference(", "def refrence(", "reference.py: it defines no function reference(axes, inputs)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRMSNorm(t, "reference.py", c.old, c.replacement)
			if name == "hangs" {
				s.ReferenceLimit = 10 * time.Second // more than a loaded machine needs to import numpy
			}
			if err := s.run(s.declaredRequest("rmsnorm", "rmsnorm+THREADS=64")); err != nil {
				t.Fatal(err)
			}
			if len(s.runs) != 2 {
				t.Fatalf("%d runs", len(s.runs))
			}
			for _, r := range s.runs {
				expectOutcome(t, r, "not-measured pass/not-measured/not-measured/not-measured")
				if !strings.HasPrefix(r.ReferenceError, c.want) || r.Failure != "" || strings.Contains(r.ReferenceError, "\n") {
					t.Errorf("%q, failure %q; want %q", r.ReferenceError, r.Failure, c.want)
				}
				expectReason(t, r.Reasons.Correctness, "reference: "+r.ReferenceError)
			}
		})
	}
}

// A trusted kernel with a fault is no fault of the kernel that is checked.
func TestRunWithAFaultyTrustedKernel(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS(declaredKernels+"/transpose")); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"y[c * rows + blockIdx.x + 5000]": "naive.cu: out-of-bounds at naive.cu:2",
		"y[c * rows]":                     "naive.cu: race at naive.cu:2",
		"y[c * rows + ]":                  "naive.cu: ",
	} {
		source, err := os.ReadFile(declaredKernels + "/transpose/naive.cu")
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(source), "y[c * rows + blockIdx.x]", text, 1)
		if err := os.WriteFile(filepath.Join(root, "naive.cu"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := newDeclared(t, root)
		r := s.runOne(s.declaredRequest("transpose"))
		expectOutcome(t, r, "not-measured pass/not-measured/not-measured/not-measured")
		if !strings.HasPrefix(r.ReferenceError, want) || strings.Contains(r.ReferenceError, "\n") || r.Failure != "" {
			t.Errorf("%q, failure %q; want %q", r.ReferenceError, r.Failure, want)
		}
	}
}

// The mutants of a declared kernel are killed by its reference and the checkers.
func TestMutateDeclared(t *testing.T) {
	t.Parallel()
	s := newDeclared(t, declaredKernels+"/add")
	c, _ := compiler(t)
	report, err := s.Mutate(t.Context(), MutationRequest{
		Request: s.declaredRequest("add"),
		Assemble: func(ctx context.Context, ptx []byte, arch string) (string, error) {
			return toolchain.Assemble(ctx, c, ptx, arch)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if report.KillRate < 0.9 {
		t.Errorf("%d of %d mutants are killed: %+v", report.Killed, report.Mutants, report.Survivors)
	}
}

// A command that needs a correct kernel returns the error of the reference.
func TestMutateWithAFailingReference(t *testing.T) {
	t.Parallel()
	s := newRMSNorm(t, "reference.py", "return {", "raise ValueError('no luck')\n    return {")
	_, err := s.Mutate(t.Context(), MutationRequest{Request: s.declaredRequest("rmsnorm"), Count: 1})
	if known := new(*problem.ReferenceError); !errors.As(err, known) || !strings.HasSuffix(err.Error(), "reference.py: ValueError: no luck (line 7)") {
		t.Error(err)
	}
	if names := s.recorded(); len(names) > 0 {
		t.Errorf("recorded %v", names)
	}
}

// A shape with many axes has its name in messages, a short one or one without a name its axes.
func TestInstanceNames(t *testing.T) {
	t.Parallel()
	few, many := spec.Axes("rows=8,n=256"), spec.Axes("batch=1,heads=2,queries=300,keys=500,causal=1")
	unnamed := spec.Axes("batch=1,heads=2,queries=300,keys=501,causal=1")
	l := &Lab{Kernel: &spec.Kernel{
		Declared: &spec.Declaration{},
		Groups:   []spec.Group{{Name: "few", Shapes: []spec.Shape{few}}, {Name: "many", Shapes: []spec.Shape{many}}},
	}}
	for shape, want := range map[spec.Axes]string{few: "rows=8,n=256 seed 3", many: "many seed 3", unnamed: unnamed.String() + " seed 3"} {
		if got := l.instanceName(problem.Instance{Shape: shape, Seed: 3}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
