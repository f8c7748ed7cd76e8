package kernels

import (
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/gate"
	"attune/internal/lab"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// decodeFolder is the folder of the decode kernel. The program does not carry it.
const decodeFolder = "decode"

// decodeBuilder returns the decode kernel. It skips the test without the compiler or numpy.
func decodeBuilder(t *testing.T) (*spec.Kernel, *toolchain.Builder) {
	t.Helper()
	kernel, builder := pinnedBuilder(t, os.DirFS(decodeFolder))
	needNumPy(t)
	return kernel, builder
}

// Every head dim is right on all shapes of the simulator with all checkers, from E4M3 queries and from
// FP16 and BF16, and so are other tiles: smaller ones have a box each, and two blocks of a
// multiprocessor more parts.
func TestDecodeIsCorrect(t *testing.T) {
	kernel, builder := decodeBuilder(t)
	shapes, err := kernel.Shapes(strings.Join(kernel.Run.SimShapes, ","))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{
		"decode", "decode64", "decode256", "decode+TILE_N=64+BLOCKS_PER_SM=2",
		"decode_q16", "decode64_q16", "decode256_q16", "decode_q16+TILE_N=64+USE_Q_IN_SHARED=1",
	} {
		t.Run(name, func(t *testing.T) {
			skipUnlessFourth(t, i)
			t.Parallel()
			v, err := kernel.Variant(name)
			if err != nil {
				t.Fatal(err)
			}
			l := &lab.Lab{
				Kernel: kernel, Builder: builder, Problem: lab.NewProblem(kernel, os.DirFS(decodeFolder), decodeFolder),
				Device: simulator(simdevice.Options{Checks: true, Strict: true}),
			}
			request := lab.Request{Variants: []spec.Variant{v}, Shapes: shapes, Seeds: kernel.Run.SimSeeds, Samples: 10}
			err = l.Run(t.Context(), request, func(r *run.Run) {
				if r.Build != nil && r.Build.Resources.StackBytes > 0 {
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
		})
	}
}

// A cache of K and V has anything behind the last key of a sequence, NaN too. No output may have it.
func TestDecodeIgnoresUnusedKeys(t *testing.T) {
	kernel, builder := decodeBuilder(t)
	shapes, err := kernel.Shapes("many")
	if err != nil {
		t.Fatal(err)
	}
	v := kernel.Stages[0].Variant()
	image, _, err := builder.Build(t.Context(), lab.Target(kernel, v, "sm_90a"))
	if err != nil {
		t.Fatal(err)
	}
	p := lab.NewProblem(kernel, os.DirFS(decodeFolder), decodeFolder)
	refs := p.References(problem.Options{})
	defer refs.Close()
	ref, err := refs.Get(t.Context(), p.Plain(shapes[0], 0))
	if err != nil {
		t.Fatal(err)
	}
	build := problem.Build{Variant: v, Image: image, Code: image.PTX}
	job, err := ref.Job(build, device.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	spoilUnusedKeys(t, &job)
	outcome, err := simdevice.Open(simdevice.Options{Checks: true, Strict: true}).Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	result, err := ref.Compare(build, outcome.Outputs)
	if err != nil {
		t.Fatal(err)
	}
	if _, wrong := ref.Judge(build, result, 1); len(wrong) > 0 || len(outcome.Findings) > 0 {
		t.Errorf("%v, findings %v", wrong, outcome.Findings)
	}
}

// spoilUnusedKeys sets the keys behind the end of each sequence to NaN. The shape has one K/V head.
func spoilUnusedKeys(t *testing.T, job *device.Job) {
	t.Helper()
	at := func(name string) *device.Arg {
		return &job.Args[slices.IndexFunc(job.Args, func(a device.Arg) bool { return a.Name == name })]
	}
	lengths := at("lengths").Input
	sequences := len(lengths) / 4
	spoilt := 0
	for _, name := range []string{"k", "v"} {
		data := slices.Clone(at(name).Input)
		for s := range sequences {
			keys := data[s*len(data)/sequences:][:len(data)/sequences]
			length := int(int32(binary.LittleEndian.Uint32(lengths[4*s:])))
			used := min(max(length, 0)*128, len(keys)) // 128 bytes for each key
			for i := range keys[used:] {
				keys[used+i] = 0x7f
				spoilt++
			}
		}
		at(name).Input = data
	}
	if spoilt == 0 {
		t.Fatal("every sequence has all keys")
	}
}
