package kernels_test

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/gate"
	"attune/internal/lab"
	"attune/internal/ledger"
	"attune/internal/python"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
	"attune/kernels"
)

// For every pair of knob values some variant must compile without spills, fit the chip, and pass the
// correctness gate on the simulator with all checkers.
func TestCoverIsCorrect(t *testing.T) {
	testCover(t, kernels.SDPA())
}

// coverArch returns the smallest architecture that a stage is tuned for, and the limits of a block
// there.
func coverArch(stage *spec.Stage) (string, spec.Budget) {
	if slices.Contains(stage.Archs, "sm_89") {
		return "sm_89", spec.Budget{Registers: 255, SharedBytes: 101376, SpillBytes: 0}
	}
	return "sm_90a", spec.Budget{Registers: 255, SharedBytes: 232448, SpillBytes: 0}
}

// coverShapes are small and ragged: incomplete tiles, several tiles, more keys than queries and
// fewer, rows that attend to no key, heads that share K and V. The last shape refills every stage of
// the pipeline, and ends with a partial tile under a causal mask.
func coverShapes(v spec.Variant) []string {
	return []string{
		"2x2x17x%d:kv=77:kvheads=1", "1x1x70x%d:kv=40:causal",
		fmt.Sprintf("1x1x5x%%d:kv=%d:causal", refillingKeys(v)),
	}
}

// refillingKeys returns a number of keys for which every warpgroup uses a stage of the pipeline twice.
// The last tile of keys is partial.
func refillingKeys(v spec.Variant) int {
	stages := max(valueOf(v, "KV_STAGES"), 2+valueOf(v, "USE_THREE_STAGE_PIPE"))
	return (stages+max(valueOf(v, "KEY_GROUPS"), 1))*valueOf(v, "TILE_N") + 24
}

func testCover(t *testing.T, folder fs.FS) {
	kernel, builder := pinnedBuilder(t, folder)
	for _, stage := range kernel.Stages {
		_, stage.Budget = coverArch(stage) // replaces the tighter budget of the stage itself
	}
	for i, v := range kernel.Cover() {
		v = withFP8Stage(t, kernel, v)
		arch, _ := coverArch(v.Stage())
		t.Run(v.String(), func(t *testing.T) {
			skipUnlessSampled(t, i, sampled)
			t.Parallel()
			shapes := shapesFor(t, v, coverShapes(v))
			// The harder inputs run on the last shape: it has every mask and the most tiles.
			testVariant(t, kernel, builder, v, lab.Request{Arch: arch, Shapes: shapes, NormalOnly: shapes[:len(shapes)-1]})
		})
	}
}

// variantTest is a test of one variant.
type variantTest func(t *testing.T, kernel *spec.Kernel, builder *toolchain.Builder, v spec.Variant, arch string)

// forEachSelected runs a subtest for every variant of every selection. Its builder has only the shipped
// images.
func forEachSelected(t *testing.T, test variantTest) {
	t.Helper()
	kernel, builder := shippedBuilder(t)
	done := map[string]bool{}
	for _, s := range kernel.Selections {
		for _, v := range s.Variants() {
			if done[v.String()] {
				continue
			}
			done[v.String()] = true
			t.Run(v.String(), func(t *testing.T) {
				skipUnlessSampled(t, len(done)-1, sampled)
				t.Parallel()
				test(t, kernel, builder, v, s.Archs[0])
			})
		}
	}
}

// shippedBuilder returns a builder that has only the shipped images. It skips the test under -short.
func shippedBuilder(t *testing.T) (*spec.Kernel, *toolchain.Builder) {
	t.Helper()
	if testing.Short() {
		t.Skip("simulates more than a dozen variants")
	}
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	return kernel, toolchain.NewBuilder(kernels.SDPA(), nil, t.TempDir())
}

// The shipped image of every variant must be correct, on several tiles too. Of the images of a variant
// the one for the newest architecture runs.
func TestShippedVariantsAreCorrect(t *testing.T) {
	kernel, builder := shippedBuilder(t)
	newest := newestArchs(lab.ShippedTargets(kernel))
	for i, name := range slices.Sorted(maps.Keys(newest)) {
		arch := newest[name]
		t.Run(name, func(t *testing.T) {
			skipUnlessSampled(t, i, sampled)
			t.Parallel()
			v, err := kernel.Variant(name)
			if err != nil {
				t.Fatal(err)
			}
			shapes := shapesFor(t, v, shippedShapes(v))
			// TestCoverIsCorrect refills the pipeline with the harder inputs. Here they run on the
			// first shape, which is also that of the study of exponentials.
			testVariant(t, kernel, builder, v, lab.Request{Arch: arch, Shapes: shapes, NormalOnly: shapes[1:2]})
		})
	}
}

// shippedShapes are the smallest that reach every loop of a variant, so they follow its tiles. The
// causal shape has two tiles for each of four heads, which makes the scheduler pair tiles on the two
// multiprocessors of the simulator. Its heads share K and V. The next shape refills every stage of the
// pipeline and ends with a partial tile of keys. The last two have whole tiles without a mask, and
// rows that attend to no key.
func shippedShapes(v spec.Variant) []string {
	m, n := valueOf(v, "TILE_M"), valueOf(v, "TILE_N")
	return []string{
		fmt.Sprintf("1x4x%dx%%d:kv=%d:kvheads=2:causal", m+5, max(m+5, n+24)),
		fmt.Sprintf("1x1x%dx%%d:kv=%d", m, refillingKeys(v)),
		fmt.Sprintf("1x1x%dx%%d:kv=%d", m, n),
		"1x1x40x%d:kv=9:causal",
	}
}

// A NaN key must make every row that attends to it NaN, and no other. An exponential that clamps would
// turn its weight into 0 and hide it.
func TestSelectedVariantsPropagateNaN(t *testing.T) {
	forEachSelected(t, func(t *testing.T, kernel *spec.Kernel, builder *toolchain.Builder, v spec.Variant, arch string) {
		l := &lab.Lab{
			Kernel: kernel, Builder: builder, Device: simulator(simdevice.Options{}),
		}
		answerer, err := l.NewVariantRunner(t.Context(), v, arch)
		if err != nil {
			t.Fatal(err)
		}
		defer answerer.Close()
		shape := shapesFor(t, v, []string{"1x1x80x%d:kv=80:causal"})[0].(tensor.Shape)
		for key := 40; key < 72; key++ { // every position in two products of 16 keys
			in := tensor.Draw(shape, 0, tensor.Options{})
			in.K.Codes[key*shape.HeadDim] = 0x7F
			o, err := answerer.Output(t.Context(), in, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range o {
				if row := i / shape.HeadDim; math.IsNaN(x) != (row >= key) {
					t.Fatalf("with NaN in key %d row %d has %v", key, row, x)
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

// testVariant runs the resource and correctness gates of a variant on the simulator with all checkers,
// on the shapes of a request.
func testVariant(t *testing.T, kernel *spec.Kernel, builder *toolchain.Builder, v spec.Variant, request lab.Request) {
	t.Helper()
	records, err := ledger.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	options := simdevice.Options{Checks: true, Strict: true}
	l := &lab.Lab{
		Kernel: kernel, Builder: builder, Ledger: records, Device: simulator(options),
	}
	// Against itself, because its parent may have another head dim. Nothing is timed.
	request.Variants, request.Against, request.Seeds = []spec.Variant{v}, &v, []uint64{0}
	err = l.Run(t.Context(), request, func(r *run.Run) {
		// printf needs a stack frame. In any other variant a frame means an array that is indexed at
		// run time and lives in local memory.
		if r.Build != nil && r.Build.Resources.StackBytes > 0 && valueOf(v, "DEBUG_PRINT") == 0 {
			t.Errorf("the kernel uses %d bytes of stack", r.Build.Resources.StackBytes)
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

// pinnedCompiler returns the pinned compiler and the cache of the machine. It skips the test under
// -short and if the compiler is not installed.
func pinnedCompiler(t *testing.T) (*toolchain.Compiler, string) {
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
	return compiler, cacheDir
}

// numpy reports whether the Python of references has numpy, which takes 0.15 s.
var numpy = sync.OnceValue(func() error {
	path, err := python.Find("")
	if err != nil {
		return err
	}
	return exec.Command(path, "-c", "import numpy").Run()
})

// needNumPy skips the test if there is no Python with numpy.
func needNumPy(t *testing.T) {
	t.Helper()
	if err := numpy(); err != nil {
		t.Skipf("needs python3 with numpy: %v", err)
	}
}

// pinnedBuilder returns a builder with the pinned compiler and the build cache of the machine.
func pinnedBuilder(t *testing.T, folder fs.FS) (*spec.Kernel, *toolchain.Builder) {
	t.Helper()
	compiler, cacheDir := pinnedCompiler(t)
	kernel, err := spec.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return kernel, toolchain.NewBuilder(folder, compiler, cacheDir)
}

// withFP8Stage rewrites a variant with E4M3 products as a departure from a stage that has them, whose
// error_share allows their error.
func withFP8Stage(t *testing.T, kernel *spec.Kernel, v spec.Variant) spec.Variant {
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
	t.Fatalf("no stage has %s=1, which %s needs for its error_share", knob, v)
	return v
}

// valueOf returns the value of a knob, or 0 if the variant does not have it.
func valueOf(v spec.Variant, knob string) int {
	value, _ := v.Value(knob)
	return value
}

// shapesFor fills the head dim of a variant into shapes.
func shapesFor(t *testing.T, v spec.Variant, forms []string) []spec.Shape {
	t.Helper()
	var shapes []spec.Shape
	for _, form := range forms {
		shape, err := tensor.ParseShape(fmt.Sprintf(form, valueOf(v, "HEAD_DIM")))
		if err != nil {
			t.Fatal(err)
		}
		shapes = append(shapes, shape)
	}
	return shapes
}

func TestEveryKnobReachesMachineCode(t *testing.T) {
	skipIfVerified(t) // the digest has all that it depends on: sources, knobs and compiler
	kernel, builder := pinnedBuilder(t, kernels.SDPA())
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
