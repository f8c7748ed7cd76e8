package kernels

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/gate"
	"attune/internal/lab"
	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// Wherever two knobs meet, the kernel must compile without spilling, fit the chip, and be right on the simulator under all checkers.
func TestCoverIsRight(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and simulates some dozens of variants")
	}
	testCover(t, SDPA())
}

// coverArch is the smallest chip that a source is tuned for, and what a block can have there.
func coverArch(stage *spec.Stage) (string, spec.Budget) {
	if slices.Contains(stage.Archs, "sm_89") {
		return "sm_89", spec.Budget{Registers: 255, SharedBytes: 101376, SpillBytes: 0}
	}
	return "sm_90a", spec.Budget{Registers: 255, SharedBytes: 232448, SpillBytes: 0}
}

// coverShapes are small and ragged: a tile that is cut off, more tiles than one, more keys than queries and fewer, rows that see no key at all,
// heads that share K and V. The head dim is the variant's.
var coverShapes = []string{"1x1x33x%d:kv=77", "1x2x17x%d:causal", "2x6x9x%d:kv=40:kvheads=2", "1x1x70x%d", "1x1x40x%d:kv=9:causal", "1x1x5x%d:kv=1100:causal"}

func testCover(t *testing.T, folder fs.FS) {
	kernel, builder := pinnedBuilder(t, folder)
	for _, stage := range kernel.Stages {
		_, stage.Budget = coverArch(stage) // in place of what each stage has promised of itself
	}
	for _, v := range kernel.Cover() {
		v = judgedAs(t, kernel, v)
		arch, _ := coverArch(v.Stage())
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			underAllCheckers(t, kernel, builder, v, arch, coverShapes)
		})
	}
}

// eachChosen gives every variant that a selection chooses to a test of its own, with what travels in the program to build it.
func eachChosen(t *testing.T, test func(t *testing.T, kernel *spec.Kernel, builder *toolchain.Builder, v spec.Variant, arch string)) {
	t.Helper()
	if testing.Short() {
		t.Skip("it simulates a dozen variants")
	}
	kernel, err := spec.Load(SDPA())
	if err != nil {
		t.Fatal(err)
	}
	builder := toolchain.NewBuilder(SDPA(), nil, t.TempDir())
	for _, s := range kernel.Selections {
		for _, v := range s.Variants() {
			t.Run(v.String(), func(t *testing.T) {
				t.Parallel()
				test(t, kernel, builder, v, s.Archs[0])
			})
		}
	}
}

// What a selection chooses must be right as it travels, on several tiles too.
func TestChosenVariantsAreRight(t *testing.T) {
	eachChosen(t, func(t *testing.T, kernel *spec.Kernel, builder *toolchain.Builder, v spec.Variant, arch string) {
		underAllCheckers(t, kernel, builder, v, arch, chosenShapes)
	})
}

// chosenShapes have several tiles a head of every size, heads that share K and V, rows that see no key, and steps of which all queries see all keys.
var chosenShapes = []string{"1x4x300x%d:kv=410:kvheads=2:causal", "1x1x530x%d:kv=520", "1x4x128x%d", "1x1x40x%d:kv=9:causal"}

// A key that is NaN must show in every row that sees it and in no other, however its weight is taken: a clamp would make it 0, and the answer look right.
func TestChosenVariantsKeepNaN(t *testing.T) {
	eachChosen(t, func(t *testing.T, kernel *spec.Kernel, builder *toolchain.Builder, v spec.Variant, arch string) {
		l := &lab.Lab{
			Kernel: kernel, Builder: builder, Device: simulator(simdevice.Options{}),
		}
		answerer, err := l.NewVariantRunner(t.Context(), v, arch)
		if err != nil {
			t.Fatal(err)
		}
		defer answerer.Close()
		shape := shapesFor(t, v, []string{"1x1x80x%d:kv=80:causal"})[0]
		for key := 40; key < 72; key++ { // all places of two products of 16 keys
			in := tensor.Draw(shape, 0, tensor.Options{})
			in.K.Codes[key*shape.HeadDim] = 0x7F
			o, err := answerer.Output(t.Context(), in, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range o {
				if row := i / shape.HeadDim; math.IsNaN(x) != (row >= key) {
					t.Fatalf("key %d is NaN, and row %d has %v", key, row, x)
				}
			}
		}
	})
}

// simulator is the device of a lab.
func simulator(o simdevice.Options) lab.Device {
	open := func(context.Context) (device.Device, error) { return simdevice.Open(o), nil }
	return lab.Simulator(simdevice.Open(o).Facts(), open, run.Simulation{Schedules: 1, Checks: o.Checks, Tensor: run.ExactTensor})
}

// underAllCheckers takes a variant through the gates on the simulator, on shapes of its head dim.
func underAllCheckers(t *testing.T, kernel *spec.Kernel, builder *toolchain.Builder, v spec.Variant, arch string, shapes []string) {
	t.Helper()
	kept, err := ledger.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	options := simdevice.Options{Checks: true}
	l := &lab.Lab{
		Kernel: kernel, Builder: builder, Ledger: kept, Device: simulator(options),
	}
	// Against itself: its stage may be for another head dim, and nothing is timed.
	request := lab.Request{Variants: []spec.Variant{v}, Shapes: shapesFor(t, v, shapes), Seeds: []uint64{0}, Arch: arch, Against: &v}
	err = l.Run(t.Context(), request, func(r *run.Run) {
		// printf has a frame; anything else that has one indexes registers at run time, which are then in memory.
		if r.Build != nil && r.Build.Resources.StackBytes > 0 && valueOf(v, "DEBUG_PRINT") == 0 {
			t.Errorf("%d bytes of stack", r.Build.Resources.StackBytes)
		}
		if r.Gates.Resources != gate.Pass || r.Gates.Correctness != gate.Pass {
			t.Errorf("resources %s, correctness %s\n%s", r.Gates.Resources, r.Gates.Correctness,
				strings.Join(append(r.Reasons.Resources, r.Reasons.Correctness...), "\n"))
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// pinnedBuilder builds with the pinned compiler, through the cache of the machine.
func pinnedBuilder(t *testing.T, folder fs.FS) (*spec.Kernel, *toolchain.Builder) {
	t.Helper()
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	compiler, err := toolchain.Installed(t.Context(), cacheDir)
	if err != nil {
		t.Skipf("the pinned compiler is needed: %v", err)
	}
	kernel, err := spec.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return kernel, toolchain.NewBuilder(folder, compiler, cacheDir)
}

// judgedAs writes a variant with E4M3 products as a departure from a stage that has them, whose share of error is made for that.
func judgedAs(t *testing.T, kernel *spec.Kernel, v spec.Variant) spec.Variant {
	t.Helper()
	const knob = "USE_FP8_MMA"
	if valueOf(v, knob) == 0 {
		return v
	}
	for _, stage := range kernel.Stages {
		if stage.Source != v.Stage().Source || valueOf(stage.Variant(), knob) == 0 {
			continue
		}
		text := stage.Name
		for _, s := range v.Values() {
			text += "+" + s.String()
		}
		same, err := kernel.Variant(text)
		if err != nil {
			t.Fatal(err)
		}
		return same
	}
	t.Fatalf("no stage has %s, and %s must be held against one that does", knob, v)
	return v
}

// valueOf is the value of a knob, 0 where the kernel has no such knob.
func valueOf(v spec.Variant, knob string) int {
	value, _ := v.Value(knob)
	return value
}

func shapesFor(t *testing.T, v spec.Variant, forms []string) []tensor.Shape {
	t.Helper()
	var shapes []tensor.Shape
	for _, form := range forms {
		shape, err := tensor.ParseShape(fmt.Sprintf(form, valueOf(v, "HEAD_DIM")))
		if err != nil {
			t.Fatal(err)
		}
		shapes = append(shapes, shape)
	}
	return shapes
}

// Every knob must reach the machine code.
func TestNoKnobIsDead(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds some dozens of variants")
	}
	kernel, builder := pinnedBuilder(t, SDPA())
	l := &lab.Lab{Kernel: kernel, Builder: builder}
	proof, err := l.Prove(t.Context(), lab.ProofRequest{Brief: true})
	if err != nil {
		t.Fatal(err)
	}
	if proof.Failed() {
		for _, k := range proof.Knobs {
			t.Errorf("%s is %s: %+v", k.Knob, k.Fate, k.Values)
		}
	}
}
