package examples

import (
	"context"
	"flag"
	"io/fs"
	"os/exec"
	"strings"
	"testing"
	"time"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/gate"
	"attune/internal/lab"
	"attune/internal/python"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// load reads the kernel.toml of an example.
func load(t *testing.T, name string) (*spec.Kernel, fs.FS) {
	t.Helper()
	folder, ok := Folder(name)
	if !ok {
		t.Fatalf("there is no example %s", name)
	}
	kernel, err := spec.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return kernel, folder
}

func TestNames(t *testing.T) {
	for _, name := range Names() {
		kernel, folder := load(t, name)
		if kernel.Name != name || kernel.Declared == nil {
			t.Errorf("%s: the kernel is called %s", name, kernel.Name)
		}
		for _, peer := range kernel.Declared.Peers {
			if text, err := fs.ReadFile(folder, peer.File); err != nil || !strings.Contains(string(text), "\ndef "+peer.Function+"(axes, inputs):") {
				t.Errorf("%s: %s has no %s: %v", name, peer.File, peer.Function, err)
			}
		}
	}
	if _, ok := Folder("matmul"); ok {
		t.Error("matmul has no kernel.toml")
	}
}

// newLab makes a lab on the simulator with all checkers, strict ones too. A launch may take as long
// as limit. It skips the test without the compiler or numpy.
func newLab(t *testing.T, name string, limit time.Duration) (*lab.Lab, *toolchain.Compiler) {
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
	path, err := python.Find("")
	if err == nil {
		err = exec.Command(path, "-c", "import numpy").Run()
	}
	if err != nil {
		t.Skipf("needs python3 with numpy: %v", err)
	}
	kernel, folder := load(t, name)
	options := simdevice.Options{Checks: true, Strict: true, Limit: limit}
	open := func(context.Context) (device.Device, error) { return simdevice.Open(options), nil }
	return &lab.Lab{
		Kernel: kernel, Builder: toolchain.NewBuilder(folder, compiler, cacheDir), Problem: lab.NewProblem(kernel, folder, name),
		Device: lab.Simulator(simdevice.Open(options).Facts(), open, run.Simulation{Schedules: 1, Checks: true, Tensor: run.ExactTensor}),
	}, compiler
}

// request asks for variants on the shapes that a simulator runs by default.
func request(t *testing.T, kernel *spec.Kernel, variants ...string) lab.Request {
	t.Helper()
	r := lab.Request{Seeds: kernel.Run.SimSeeds, Samples: 10}
	for _, text := range variants {
		v, err := kernel.Variant(text)
		if err != nil {
			t.Fatal(err)
		}
		r.Variants = append(r.Variants, v)
	}
	var err error
	if r.Shapes, err = kernel.Shapes(strings.Join(kernel.Run.SimShapes, ",")); err != nil {
		t.Fatal(err)
	}
	return r
}

// Every stage, and variants whose knobs change what the code does, are right and free of findings.
func TestExamplesAreCorrect(t *testing.T) {
	for name, more := range map[string][]string{
		"blank":   {"blank"},
		"gelu":    {"gelu", "gelu+BLOCKS=4"},
		"rmsnorm": {"rmsnorm", "rmsnorm+THREADS=64+CHUNKS=1", "rmsnorm+EARLY_WEIGHTS=0"},
		"softmax": {"softmax", "softmax+THREADS=64+CHUNKS=1"},
		"reduce":  {"reduce", "reduce+BLOCKS=3"},
		"gemm":    {"wmma", "wgmma", "wgmma+GROUP_M=1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, _ := newLab(t, name, time.Minute)
			err := l.Run(t.Context(), request(t, l.Kernel, more...), func(r *run.Run) {
				if r.Gates.Resources != gate.Pass || r.Gates.Correctness != gate.Pass {
					t.Errorf("%s: resources %s, correctness %s\n%s", r.Variant, r.Gates.Resources, r.Gates.Correctness,
						strings.Join(append(r.Reasons.Resources, r.Reasons.Correctness...), "\n"))
				}
				if r.Build != nil && r.Build.Resources.StackBytes > 0 {
					t.Errorf("%s uses %d bytes of stack", r.Variant, r.Build.Resources.StackBytes)
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

var mutants = flag.Int("mutants", 10, "`number` of mutants to try of a variant, 0 for all; other than 10 it tries those of every variant")

// A sample of the mutants of a kernel is found by the checkers or by the reference. Less than 90 %
// is required where a change does no harm or needs sizes that the simulator does not reach: softmax
// is right with any number near the maximum, wmma with more steps of zeros, and the last block of
// reduce has work for all its warps beyond four million elements.
func TestMutantsOfExamplesAreKilled(t *testing.T) {
	for _, test := range []struct {
		example, variant string
		rate             float64
		slow             bool
	}{
		{"blank", "blank", 0.9, false},
		{"rmsnorm", "rmsnorm", 0.9, false},
		{"gelu", "gelu", 0.9, true},
		{"softmax", "softmax", 0.85, true},
		{"reduce", "reduce", 0.85, true},
		{"gemm", "wmma", 0.85, true},
		{"gemm", "wgmma", 0.9, true},
	} {
		t.Run(test.variant, func(t *testing.T) {
			if test.slow && *mutants == 10 {
				t.Skip("-mutants 60 tries it")
			}
			l, compiler := newLab(t, test.example, 4*time.Second) // mutants may run for ever
			r := lab.MutationRequest{Request: request(t, l.Kernel, test.variant), Count: *mutants}
			r.Assemble = func(ctx context.Context, ptx []byte, arch string) (string, error) {
				return toolchain.Assemble(ctx, compiler, ptx, arch)
			}
			report, err := l.Mutate(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d of %d mutants are killed, %d are equivalent", report.Killed, report.Mutants, report.Equivalent)
			if report.KillRate < test.rate {
				t.Errorf("the kill rate is %.3f: %+v", report.KillRate, report.Survivors)
			}
		})
	}
}
