package kernels_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"attune/internal/device"
	"attune/internal/run"
)

// decodeFolder is the folder of the decode kernel. The program does not carry it.
const decodeFolder = "attention/decode"

// Every head dim is right with every number of rows, on all shapes of the simulator with all checkers,
// and so are other tiles and pipelines.
func TestDecodeIsCorrect(t *testing.T) {
	kernel, builder := declaredBuilder(t, decodeFolder)
	for i, name := range []string{
		"decode", "decode_r16", "decode_r32", "decode_r48", "decode_m64", "decode64", "decode64_r16", "decode64_r32", "decode64_m64", "decode_m128", "decode64_m128",
		"decode256", "decode256_r16", "decode256_r32", "decode_fp16", "decode_fp16_m128", "decode64_fp16", "decode64_fp16_m128", "decode256_fp16",
		"decode_bf16", "decode_bf16_m128", "decode64_bf16", "decode64_bf16_m128", "decode256_bf16",
		"decode+CONSUMERS=2+KV_STAGES=8", "decode64_r16+TILE_N=64+KV_STAGES=12",
	} {
		t.Run(name, func(t *testing.T) {
			skipUnlessSampled(t, i, sampled)
			t.Parallel()
			shapes := sampleOf(t, i, sampled, kernel.Run.SimShapes)
			checkDeclared(t, kernel, builder, decodeFolder, name, shapes, func(r *run.Run) {
				if r.Build != nil && r.Build.Resources.StackBytes > 0 {
					t.Errorf("the kernel uses %d bytes of stack", r.Build.Resources.StackBytes)
				}
			})
		})
	}
}

// A cache of K and V has anything behind the last key of a sequence, NaN too. No output may have it.
func TestDecodeIgnoresUnusedKeys(t *testing.T) {
	for i, name := range []string{"decode", "decode_m64", "decode_bf16", "decode_fp16_m128"} {
		t.Run(name, func(t *testing.T) {
			skipUnlessSampled(t, i, inputs)
			j := newDeclaredJob(t, decodeFolder, name, "many")
			spoilUnusedKeys(t, &j.Job)
			j.check(t)
		})
	}
}

// spoilUnusedKeys sets the keys behind the end of each sequence to NaN. The shape has one K/V head and
// 20 keys.
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
			used := min(max(length, 0)*len(keys)/20, len(keys))
			for i := range keys[used:] {
				keys[used+i] = 0xff // NaN of E4M3, BF16 and FP16
				spoilt++
			}
		}
		at(name).Input = data
	}
	if spoilt == 0 {
		t.Fatal("every sequence has all keys")
	}
}
