package trial

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/document"
	"attune/internal/lab"
	"attune/internal/python"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/internal/tuner"
)

// TestEvaluate takes candidates of a search and its finals through a worker, with the kernel's files. The
// references are computed once.
func TestEvaluate(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the pinned compiler, which -short leaves out")
	}
	t.Parallel()
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	compiler, err := toolchain.Installed(t.Context(), cacheDir)
	if err != nil {
		t.Skip("needs the pinned compiler, which is not installed")
	}
	path, err := python.Find("")
	if err != nil || exec.Command(path, "-c", "import numpy").Run() != nil {
		t.Skip("needs python3 with numpy")
	}
	var labs atomic.Int32
	b := &Bench{Cache: t.TempDir(), Lab: func(_ context.Context, folder string) (*lab.Lab, error) {
		labs.Add(1)
		files := os.DirFS(folder)
		kernel, err := spec.Load(files)
		if err != nil {
			return nil, err
		}
		o := simdevice.Options{Checks: true, Limit: time.Minute}
		l := &lab.Lab{
			Kernel: kernel, Builder: toolchain.NewBuilder(files, compiler, cacheDir), Problem: lab.NewProblem(kernel, files, folder), Version: "0.0.0", Describe: document.Describe,
			Device: lab.Simulator(simdevice.Open(o).Facts(), func(context.Context) (device.Device, error) { return simdevice.Open(o), nil }, run.Simulation{Schedules: 1, Checks: true, Tensor: run.ExactTensor}),
		}
		l.Builder.Dir = folder
		return l, nil
	}}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &Searcher{Fleet: here(t, b), Class: "sim"}
	folder, err := filepath.Abs("../tuner/testdata/tuned")
	if err != nil {
		t.Fatal(err)
	}
	if s.Setting.Kernel, err = Send(t.Context(), s.Fleet.Objects(), folder); err != nil {
		t.Fatal(err)
	}
	plan := tuner.Plan{Variant: "tuned", Shapes: []string{"small"}, Small: []string{"small"}, Seeds: []uint64{0}, Objective: run.ObjectiveCost, MaxWork: 1e12, Processes: 1, Elites: 1}
	var all []run.TuneEvaluation
	for _, variant := range []string{"tuned", "tuned+THREADS=256", "tuned+MODE=1", "tuned+THREADS=256"} {
		found, err := s.Evaluate(t.Context(), tuner.Trial{Plan: plan, Variant: variant, Origin: "test"})
		if err != nil {
			t.Fatal(err)
		}
		if wrong := variant == "tuned+MODE=1"; wrong != (found.Failure != "") || wrong != (found.Cost == nil) {
			t.Errorf("%s: %+v", variant, found)
		}
		if found.Cost != nil && len(all) < 2 {
			all = append(all, found)
		}
	}
	standing, err := s.Conclude(t.Context(), tuner.Finals{Plan: plan, Candidates: all})
	if err != nil || len(standing.Rows) != 2 || standing.Rows[0].Variant != "tuned" {
		t.Errorf("the finals: %+v, %v", standing, err)
	}
	if n := labs.Load(); n != 1 {
		t.Errorf("the kernel was opened %d times", n)
	}
	plan.Seeds = []uint64{1} // another search
	if _, err := s.Evaluate(t.Context(), tuner.Trial{Plan: plan, Variant: "tuned"}); err != nil || labs.Load() != 2 {
		t.Errorf("another search: %v, %d labs", err, labs.Load())
	}
	if _, err := s.Evaluate(t.Context(), tuner.Trial{Plan: plan, Variant: "nothing"}); err == nil {
		t.Error("a variant that there is not")
	}
}
