package lab

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/finding"
	"attune/internal/gate"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// cheats lists the kernels of testdata/cheats and what must find each.
var cheats = []struct {
	stage string
	audit []finding.Kind // static findings
	// sim is part of a reason of the simulator where all static findings are allowed. It is empty if
	// every output is right there; then timing must find the kernel, which times launches on inputs
	// that change and compares their outputs.
	sim string
}{
	{"counter", kinds(finding.ModuleMemory), "bytes not written, the first at byte"},
	{"counter_late", kinds(finding.ModuleMemory), ""},
	{"pointer_cache", kinds(finding.ModuleMemory), "it depends on earlier launches: max_err"},
	{"result_cache", kinds(finding.ModuleMemory), "it depends on earlier launches: max_err"},
	{"hash_cache", kinds(finding.ModuleMemory), "remembers-results: relaunched with the first inputs it executes "},
	{"heap_cache", kinds(finding.ModuleMemory, finding.Allocation), "out-of-bounds at heap_cache.cu:"},
	{"signed_output", kinds(finding.OutputRead), "uninitialized at signed_output.cu:"},
	{"skip_if_written", kinds(finding.OutputRead), "uninitialized at skip_if_written.cu:"},
	{"timer", kinds(finding.ModuleMemory, finding.Clock), "it depends on earlier launches: max_err"},
	{"clock_phase", kinds(finding.Clock), ""},
	{"grid_id", kinds(finding.LaunchID), ""},
	{"graph", kinds(finding.LaunchID), "unsupported"},
	{"shared_leftover", nil, "uninitialized at shared_leftover.cu:"},
	{"local_leftover", kinds(finding.UnsetLocal), "uninitialized at local_leftover.cu:"},
	{"local_at_end", kinds(finding.UnsetLocal), "uninitialized at local_at_end.cu:"},
	{"local_loop", kinds(finding.UnsetLocal), "uninitialized at local_loop.cu:"},
	{"local_callee", kinds(finding.UnsetLocal), "uninitialized at local_callee.cu:"},
	{"local_branch", kinds(finding.UnsetLocal), "uninitialized at local_branch.cu:"},
	{"register_leftover", kinds(finding.UnsetRegister), "uninitialized at register_leftover.cu:"},
	{"behind_the_end", kinds(finding.OutputRead), "out-of-bounds at behind_the_end.cu:"},
	{"in_the_input", nil, "input-changed at in_the_input.cu:7"},
	{"fixed_address", kinds(finding.AbsoluteAddress), "called from fixed_address.cu:5, attention.cuh:26) (10 times): thread 0 of block [0 0 0]: updates 4 bytes"},
	{"nothing", nil, "unwritten: argument 3"},
	{"zeros", nil, "max_err"},
	{"mean_of_v", nil, "max_err"},
	{"first_head", nil, "max_err"},
	{"half_the_keys", nil, "max_err"},
	{"small_weights", nil, "max_err"},
	{"low_precision", nil, "mean_err"},
	{"large_shapes", nil, "max_err"},
	{"known_inputs", nil, "max_err"},
	{"laundered_cache", kinds(finding.ModuleMemory), "remembers-results: relaunched with the first inputs it executes "},
	{"laundered_output", kinds(finding.OutputRead), "uninitialized at laundered_output.cu:"},
	{"large_cache", kinds(finding.ModuleMemory), "remembers-results: relaunched with the first inputs it executes "},
	{"fixed_scale", nil, " times the usual softmax scale: max_err"},
	{"simulator", nil, "unwritten: argument 3"},
}

func kinds(all ...finding.Kind) []finding.Kind { return all }

const cheatFolder = "testdata/cheats"

// allowAll is a kernel folder whose kernel.toml allows every finding of the audit.
type allowAll struct{ fs.FS }

func (f allowAll) Open(name string) (fs.File, error) {
	if name != spec.File {
		return f.FS.Open(name)
	}
	text, err := fs.ReadFile(f.FS, name)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, kind := range finding.AllowableKinds() {
		names = append(names, fmt.Sprintf("%q", kind))
	}
	text = fmt.Appendf(nil, "allow = [%s]\n%s", strings.Join(names, ", "), text)
	return fstest.MapFS{name: {Data: text}}.Open(name)
}

// newCheats is a lab for the cheats on the simulator, from their shipped PTX.
func newCheats(t *testing.T, folder fs.FS) *setup {
	t.Helper()
	s := newSetupOf(t, folder, nil, t.TempDir())
	options := simdevice.Options{Checks: true, Limit: time.Minute, AddressSeed: 1}
	open := func(context.Context) (device.Device, error) { return simdevice.Open(options), nil }
	s.Device = Simulator(simdevice.Open(options).Facts(), open, run.Simulation{Schedules: 1, Checks: true, Tensor: run.ExactTensor})
	return s
}

// runCheat takes a stage through the gates on the small shapes.
func (s *setup) runCheat(stage string) *run.Run {
	s.t.Helper()
	r := s.request(stage)
	var err error
	if r.Shapes, err = s.Kernel.Shapes("small"); err != nil {
		s.t.Fatal(err)
	}
	r.Seeds, r.NormalOnly = []uint64{0}, r.Shapes
	return s.runOne(r)
}

// No cheat passes on the simulator: by its PTX, or by what it does where kernel.toml allows what its
// PTX shows. The exceptions are right in every launch on the simulator, and only timing finds them.
func TestCheatsOnTheSimulator(t *testing.T) {
	t.Parallel()
	folder := os.DirFS(cheatFolder)
	t.Run("honest", func(t *testing.T) {
		t.Parallel()
		expectOutcome(t, newCheats(t, folder).runCheat("honest"), "not-measured pass/pass/not-measured/not-measured")
	})
	for i, c := range cheats {
		if testing.Short() && i%4 != 0 {
			continue // all of them take seconds
		}
		t.Run(c.stage, func(t *testing.T) {
			t.Parallel()
			got := newCheats(t, folder).runCheat(c.stage)
			if got.Gates.Correctness == gate.Pass || c.audit != nil && got.Verdict != gate.Incorrect {
				t.Errorf("the verdict is %s", got.Verdict)
			}
			var found []finding.Kind
			for _, f := range got.Audit {
				if found = append(found, f.Kind); !strings.Contains(f.Where.File, ".cu") {
					t.Errorf("the finding %s has no source line", f)
				}
			}
			if !slices.Equal(slices.Compact(found), c.audit) {
				t.Errorf("the audit found %v, want %v", got.Audit, c.audit)
			}
		})
		t.Run(c.stage+" allowed", func(t *testing.T) {
			t.Parallel()
			got := newCheats(t, allowAll{folder}).runCheat(c.stage)
			if c.sim == "" {
				expectOutcome(t, got, "not-measured pass/pass/not-measured/not-measured")
				return
			}
			if got.Gates.Correctness == gate.Pass {
				t.Error("it passes the correctness gate")
			}
			expectReason(t, got.Reasons.Correctness, c.sim)
		})
	}
}

// Every cheat is in the list, and its PTX is that of its source: the checksums of all are compared, and
// one of eight is compiled.
func TestCheatsAreListed(t *testing.T) {
	t.Parallel()
	folder := os.DirFS(cheatFolder)
	kernel, err := spec.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"honest"}
	for _, c := range cheats {
		want = append(want, c.stage)
	}
	var got []string
	for _, s := range kernel.Stages {
		got = append(got, s.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("kernel.toml has %v, the list %v", got, want)
	}
	c, cacheDir := compiler(t)
	shipped := toolchain.NewBuilder(folder, nil, t.TempDir())
	for i, target := range ShippedTargets(kernel) {
		image, _, err := shipped.Build(t.Context(), target)
		if err != nil {
			t.Fatalf("%v\nif the sources have changed, run `make ship`", err)
		}
		if c == nil || i%8 != 0 {
			continue
		}
		fresh, _, err := toolchain.NewBuilder(folder, c, cacheDir).Build(t.Context(), target)
		if err != nil || string(fresh.PTX) != string(image.PTX) {
			t.Errorf("%s: the shipped PTX differs from a fresh build (%v); run `make ship`", target, err)
		}
	}
}
