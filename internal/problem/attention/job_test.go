package attention

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/form"
	"attune/internal/mutate"
	"attune/internal/oracle"
	"attune/internal/problem"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/tensormap"
	"attune/internal/toolchain"
	"attune/kernels"
)

// parse reads a shape.
func parse(t *testing.T, text string) tensor.Shape {
	t.Helper()
	shape, err := tensor.ParseShape(text)
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

func shapes(t *testing.T, texts ...string) []spec.Shape {
	t.Helper()
	var all []spec.Shape
	for _, text := range texts {
		all = append(all, parse(t, text))
	}
	return all
}

// variant returns a variant of the shipped kernel.
func variant(t *testing.T, text string) spec.Variant {
	t.Helper()
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	v, err := kernel.Variant(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestNewJob(t *testing.T) {
	image := &toolchain.Image{PTX: []byte("ptx"), Cubin: []byte("cubin")}
	image.Record.Kernel, image.Record.Arch = "sdpa", "sm_89"
	image.Record.Launch = toolchain.Launch{Threads: 256, QueryRows: 32, DynamicSharedBytes: 1024}
	in := tensor.Draw(tensor.Shape{Batch: 2, Heads: 3, SeqQ: 33, SeqK: 7, HeadDim: 64, Causal: true}, 5, tensor.Options{})
	job := Job(problem.Build{Image: image, Code: image.Cubin}, device.Facts{Arch: "sm_89"}, in)

	if string(job.Image) != "cubin" || job.Entry != "sdpa" || job.DynamicSharedBytes != 1024 {
		t.Errorf("image %s, entry %s, %d bytes", job.Image, job.Entry, job.DynamicSharedBytes)
	}
	// 33 rows are two tiles of 32, for each of six heads.
	if diff := cmp.Diff([2][3]int{{2, 6, 1}, {256, 1, 1}}, [2][3]int{job.Grid, job.Block}); diff != "" {
		t.Errorf("grid and block:\n%s", diff)
	}
	for i, want := range [][]byte{in.Q.Codes, in.K.Codes, in.V.Codes} {
		if !bytes.Equal(job.Args[i].Input, want) {
			t.Errorf("argument %d is not the codes of its tensor", i)
		}
	}
	if len(job.Args[0].Input) != 6*33*64 || len(job.Args[1].Input) != 6*7*64 || job.Args[3].Output != 2*6*33*64 {
		t.Errorf("q has %d bytes, k %d, o %d", len(job.Args[0].Input), len(job.Args[1].Input), job.Args[3].Output)
	}
	for i, want := range [][]float32{in.Q.Descale, in.K.Descale, in.V.Descale} {
		var bytes []byte
		for _, factor := range want {
			bytes = append(bytes, device.Float32(factor).Scalar...)
		}
		if diff := cmp.Diff(device.Rotating(bytes, 4), job.Args[4+i]); diff != "" || len(bytes) != 24 {
			t.Errorf("descale factors %d:\n%s", i, diff)
		}
	}
	scalars := [][]byte{{6, 0, 0, 0}, {1, 0, 0, 0}, {33, 0, 0, 0}, {7, 0, 0, 0}, {1, 0, 0, 0}, {0, 0, 0, 0x3E}} // the last is 0.125
	for i, want := range scalars {
		if diff := cmp.Diff(device.Arg{Scalar: want}, job.Args[7+i]); diff != "" {
			t.Errorf("argument %d:\n%s", 7+i, diff)
		}
	}
	if len(job.Args) != 13 || job.Cluster != [3]int{} {
		t.Errorf("%d arguments, clusters of %v", len(job.Args), job.Cluster)
	}
	plain := tensor.Draw(tensor.Shape{Batch: 1, Heads: 1, SeqQ: 32, SeqK: 32, HeadDim: 64}, 5, tensor.Options{})
	job = Job(problem.Build{Image: image, Code: image.Cubin}, device.Facts{Arch: "sm_89"}, plain)
	if job.Grid[0] != 1 || !bytes.Equal(job.Args[11].Scalar, []byte{0, 0, 0, 0}) {
		t.Errorf("32 rows without a mask: grid %v, causal %v", job.Grid, job.Args[11].Scalar)
	}
	grouped := tensor.Draw(parse(t, "2x6x33x64:kv=7:kvheads=2"), 5, tensor.Options{})
	job = Job(problem.Build{Image: image, Code: image.Cubin}, device.Facts{Arch: "sm_89"}, grouped)
	// Three heads share each of four K/V heads.
	if job.Grid != [3]int{2, 3, 4} || !bytes.Equal(job.Args[7].Scalar, []byte{12, 0, 0, 0}) || !bytes.Equal(job.Args[8].Scalar, []byte{3, 0, 0, 0}) {
		t.Errorf("grouped heads: grid %v, %v heads in groups of %v", job.Grid, job.Args[7].Scalar, job.Args[8].Scalar)
	}
	if len(job.Args[1].Input) != 4*7*64 || len(job.Args[5].Input) != 16 || job.Args[3].Output != 2*12*33*64 {
		t.Errorf("grouped heads: k has %d bytes, its descale factors %d, o %d", len(job.Args[1].Input), len(job.Args[5].Input), job.Args[3].Output)
	}
}

// The ranges are those of the integer arguments of a job, by their index.
func TestParameterRanges(t *testing.T) {
	check := func(lse toolchain.LSE) {
		t.Helper()
		image := &toolchain.Image{}
		image.Record.Launch = toolchain.Launch{Threads: 128, QueryRows: 32, LSE: lse}
		ranges := map[int]mutate.Range{}
		parameters := New(nil).Parameters(problem.Build{Image: image})
		for i, p := range parameters {
			if p.Range != nil {
				ranges[i] = *p.Range
			}
		}
		in := tensor.Draw(tensor.Shape{Batch: 1, Heads: 6, KVHeads: 2, SeqQ: 5, SeqK: 7, HeadDim: 64, Causal: true}, 0, tensor.Options{})
		values := map[int64]bool{}
		for i, arg := range Job(problem.Build{Image: image}, device.Facts{}, in).Args {
			r, known := ranges[i]
			if !known {
				continue
			}
			if len(arg.Scalar) != 4 {
				t.Fatalf("argument %d is no scalar", i)
			}
			n := int64(int32(binary.LittleEndian.Uint32(arg.Scalar)))
			if values[n] = true; n < r.Min || n > r.Max {
				t.Errorf("argument %d is %d, outside %+v", i, n, r)
			}
		}
		if diff := cmp.Diff(map[int64]bool{6: true, 3: true, 5: true, 7: true, 1: true}, values); diff != "" || len(ranges) != 5 {
			t.Errorf("heads, group, queries, keys and causal:\n%s", diff)
		}
		if causal := ranges[form.ArgumentO+8+len(lse)/max(len(lse), 1)]; causal.Max != 1 {
			t.Errorf("causal is %+v", causal)
		}
	}
	check("")
	check(toolchain.LSERounded)
}

// The list of parameters describes the job that is launched.
func TestParametersOfJob(t *testing.T) {
	for _, launch := range []toolchain.Launch{
		{Threads: 32, QueryRows: 16},
		{Threads: 32, QueryRows: 16, LSE: toolchain.LSEInFP32, TensorMaps: []toolchain.TensorMap{
			{Argument: 0, Rows: 8, InnerBytes: 64}, {Argument: 3, Rows: 8, InnerBytes: 64},
		}},
	} {
		image := &toolchain.Image{Record: toolchain.Record{Launch: launch}}
		job := Job(problem.Build{Image: image}, device.Facts{}, tensor.Draw(parse(t, "1x1x32x64"), 0, tensor.Options{}))
		passed := New(nil).Parameters(problem.Build{Image: image})
		if len(passed) != len(job.Args) {
			t.Fatalf("%d arguments are listed, %d are passed", len(passed), len(job.Args))
		}
		for i, arg := range job.Args {
			size := 8
			switch {
			case arg.Scalar != nil:
				size = len(arg.Scalar)
			case arg.TensorMap != nil:
				size = 128
			}
			if passed[i].Bytes != size {
				t.Errorf("argument %d: %+v is listed, %d bytes are passed", i, passed[i], size)
			}
		}
	}
}

// A kernel that writes the log-sum-exp has its buffer after o. Tensor maps count arguments from q.
func TestNewJobWithLSE(t *testing.T) {
	image := &toolchain.Image{PTX: []byte("ptx")}
	image.Record.Launch = toolchain.Launch{
		Threads: 128, QueryRows: 32, LSE: toolchain.LSEInFP32, TensorMaps: []toolchain.TensorMap{{Argument: 3, Rows: 16, InnerBytes: 128}},
	}
	in := tensor.Draw(parse(t, "2x3x33x64:kv=7"), 5, tensor.Options{})
	job := Job(problem.Build{Image: image, Code: image.Cubin}, device.Facts{}, in)
	sizes := []int{len(job.Args), job.Args[3].Output, job.Args[4].Output, len(job.Args[5].Input), job.Args[14].TensorMap.Arg}
	if diff := cmp.Diff([]int{15, 2 * 6 * 33 * 64, 4 * 6 * 33, 24, 3}, sizes); diff != "" {
		t.Errorf("arguments, bytes of o, of lse and of factors, and the mapped argument:\n%s", diff)
	}
	if err := job.Check(); err != nil {
		t.Error(err)
	}
	outcome := &device.Outcome{Outputs: [][]byte{{0x00, 0x3C}, {0, 0, 0x80, 0xFF, 0, 0, 0x20, 0x41}}}
	o, lse := Outputs(image.Record.Launch, outcome.Outputs, nil, 1)
	if diff := cmp.Diff([][]float64{{1}, {math.Inf(-1), 10}}, [][]float64{o, lse}); diff != "" {
		t.Error(diff)
	}
	three := &device.Outcome{Outputs: [][]byte{{0, 0x3C, 0, 0x40, 0, 0x42, 0, 0x44, 0, 0x45, 0, 0x46}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40}}}
	o, lse = Outputs(image.Record.Launch, three.Outputs, oracle.Rows{0, 2}, 2)
	if diff := cmp.Diff([][]float64{{1, 2, 5, 6}, {1, 3}}, [][]float64{o, lse}); diff != "" {
		t.Errorf("the first and the last of three rows: %s", diff)
	}
	bf16 := &device.Outcome{Outputs: [][]byte{{0x80, 0x3F, 0x00, 0xC0}}}
	if o, _ := Outputs(toolchain.Launch{Output: toolchain.BF16}, bf16.Outputs, nil, 2); !slices.Equal(o, []float64{1, -2}) {
		t.Errorf("1 and -2 in BF16 are %v", o)
	}
	image.Record.Launch.Output = toolchain.BF16
	if job := Job(problem.Build{Image: image, Code: image.Cubin}, device.Facts{}, in); job.Args[14].TensorMap.Type != "bf16" || job.Args[3].Output != 2*6*33*64 {
		t.Errorf("o of BF16 is mapped as %s, in %d bytes", job.Args[14].TensorMap.Type, job.Args[3].Output)
	}
	if _, lse := Outputs(toolchain.Launch{}, outcome.Outputs, nil, 1); lse != nil {
		t.Errorf("a kernel without log-sum-exp has %v", lse)
	}
}

// A Hopper kernel has clusters, and tensor maps in the order of its launch contract.
func TestNewJobOfHopper(t *testing.T) {
	image := &toolchain.Image{PTX: []byte("ptx")}
	image.Record.Launch = toolchain.Launch{
		Threads: 256, QueryRows: 32, Cluster: 2,
		TensorMaps: []toolchain.TensorMap{
			{Argument: 2, Rows: 128, InnerBytes: 64, SwizzleBytes: 64},
			{Argument: 0, Rows: 32, InnerBytes: 32},
			{Argument: 3, Rows: 16, InnerBytes: 128, SwizzleBytes: 128},
		},
	}
	in := tensor.Draw(tensor.Shape{Batch: 2, Heads: 3, KVHeads: 1, SeqQ: 33, SeqK: 7, HeadDim: 64}, 5, tensor.Options{})
	job := Job(problem.Build{Image: image, Code: image.Cubin}, device.Facts{}, in)
	if job.Cluster != [3]int{2, 1, 1} {
		t.Errorf("clusters of %v", job.Cluster)
	}
	want := []device.Arg{
		{TensorMap: &device.TensorMap{Arg: 2, Map: tensormap.Map{
			Type: "u8", Dims: []int{64, 7, 2}, Strides: []int{64, 448}, Box: []int{64, 128, 1}, Swizzle: "64B", OOB: "zero", L2Promotion: "256B",
		}}},
		{TensorMap: &device.TensorMap{Arg: 0, Map: tensormap.Map{
			Type: "u8", Dims: []int{64, 33, 6}, Strides: []int{64, 2112}, Box: []int{32, 32, 1}, Swizzle: "none", OOB: "zero", L2Promotion: "256B",
		}}},
		{TensorMap: &device.TensorMap{Arg: 3, Map: tensormap.Map{
			Type: "f16", Dims: []int{64, 33, 6}, Strides: []int{128, 4224}, Box: []int{64, 16, 1}, Swizzle: "128B", OOB: "zero", L2Promotion: "256B",
		}}},
	}
	if diff := cmp.Diff(want, job.Args[13:]); diff != "" {
		t.Errorf("the tensor maps (-want +got):\n%s", diff)
	}
	if err := job.Check(); err != nil {
		t.Error(err)
	}
}
