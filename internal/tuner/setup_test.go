package tuner

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"attune/internal/device"
	"attune/internal/device/devicetest"
	simdevice "attune/internal/device/sim"
	"attune/internal/document"
	"attune/internal/form"
	"attune/internal/lab"
	"attune/internal/ledger"
	"attune/internal/python"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

type behaviour = devicetest.Behaviour

// setup is a lab for a declared kernel with a ledger of its own, and a fake GPU that it may use.
type setup struct {
	*lab.Lab
	t   *testing.T
	gpu *devicetest.GPU
	dir string // of the ledger
}

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
	if testing.Short() {
		t.Skip("needs the pinned compiler, which -short leaves out")
	}
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	c, err := toolchain.Installed(t.Context(), cacheDir)
	if err != nil {
		t.Skip("needs the pinned compiler, which is not installed")
	}
	if err := numpy(); err != nil {
		t.Skipf("needs python3 with numpy: %v", err)
	}
	folder := os.DirFS(dir)
	kernel, err := spec.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	s := &setup{t: t, gpu: devicetest.NewGPU("sm_89", double), dir: t.TempDir()}
	kept, err := ledger.Open(t.Context(), s.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	s.Lab = &lab.Lab{
		Kernel: kernel, Builder: toolchain.NewBuilder(folder, c, cacheDir), Ledger: kept, Problem: lab.NewProblem(kernel, folder, dir),
		Device: s.simulator(),
		Git:    toolchain.Git{SHA: "0123abc", Branch: "main"}, Version: "0.0.0", Describe: document.Describe,
	}
	s.Builder.Dir = dir
	return s
}

// simulator is the simulator with all checkers.
func (s *setup) simulator() lab.Device {
	o := simdevice.Options{Checks: true, Limit: time.Minute}
	open := func(context.Context) (device.Device, error) { return simdevice.Open(o), nil }
	return lab.Simulator(simdevice.Open(o).Facts(), open, run.Simulation{Schedules: 1, Checks: o.Checks, Tensor: run.ExactTensor})
}

// onGPU replaces the simulator by the fake GPU.
func (s *setup) onGPU() { s.Device = lab.GPU(s.gpu.Facts, s.gpu.Open) }

func (s *setup) variant(text string) spec.Variant {
	s.t.Helper()
	v, err := s.Kernel.Variant(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

// declare tells the fake GPU what the kernel of a variant does.
func (s *setup) declare(text string, b behaviour) {
	s.t.Helper()
	s.declareAs(text, s.Lab, text, b)
}

// declareAs tells the fake GPU what the variant of a lab does, under a name.
func (s *setup) declareAs(name string, of *lab.Lab, variant string, b behaviour) {
	s.t.Helper()
	image, _, err := of.Builder.Build(s.t.Context(), form.Target(s.Kernel, s.variant(variant), s.gpu.Facts.Arch))
	if err != nil {
		s.t.Fatal(err)
	}
	s.gpu.Variants[string(image.PTX)], s.gpu.Variants[string(image.Cubin)] = name, name
	s.gpu.Behaviours[name] = b
}

func shapes(t *testing.T, texts ...string) []spec.Shape {
	t.Helper()
	var all []spec.Shape
	for _, text := range texts {
		shape, err := tensor.ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, shape)
	}
	return all
}
