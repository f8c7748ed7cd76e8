package clib

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/device/cuda"
	"attune/internal/form"
	"attune/internal/problem"
	"attune/internal/problem/attention"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/kernels"
)

// onGPU opens the first GPU, and compiles the probe for its driver. It skips the test without one.
func onGPU(t *testing.T) (*cuda.Machine, compiled, Library) {
	t.Helper()
	machine, err := cuda.Open(0)
	if err != nil {
		t.Skipf("this test needs a GPU: %v", err)
	}
	t.Cleanup(func() { machine.Close() })
	if arch := machine.Facts().Arch; arch != "sm_90" {
		t.Skipf("this test needs a GPU of sm_90, and this is %s", arch)
	}
	needGCC(t)
	c, err := whole()
	if err != nil {
		t.Fatal(err)
	}
	l := shippedLibrary(t)
	c.program, c.driver = filepath.Join(t.TempDir(), "probe"), os.Getenv("LD_LIBRARY_PATH")
	if err := c.link(c.program, probeSource, "-std=c11", "-O2"); err != nil {
		t.Fatal(err)
	}
	return machine, c, l
}

// A call of the library on a GPU: the lines of the probe that make it, the inputs and the outputs
// by their fields.
type gpuCall struct {
	lines   []string
	inputs  map[string][]byte
	outputs map[string]int // bytes
	updates []string       // inputs that are outputs too
}

// run makes the call twice with one workspace, in a process of its own, and returns the outputs.
func (g gpuCall) run(t *testing.T, c compiled) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	lines := append([]string{"gpu"}, g.lines...)
	size := g.outputs
	for name, data := range g.inputs {
		writeText(t, filepath.Join(dir, name), string(data))
		lines = append(lines, fmt.Sprintf("load %s %s", name, filepath.Join(dir, name)))
	}
	for name, bytes := range size {
		lines = append(lines, fmt.Sprintf("zero %s %d", name, bytes))
	}
	if bytes, _, _ := strings.Cut(c.ask(t, append(g.lines, "workspace")...)[0], " "); bytes != "0" {
		lines = append(lines, "zero workspace "+bytes, "set workspace_bytes "+bytes)
	}
	lines = append(lines, "call", "call")
	var names []string
	for name, bytes := range size {
		names = append(names, name)
		lines = append(lines, fmt.Sprintf("save %s %s %d", name, filepath.Join(dir, name+".out"), bytes))
	}
	for _, name := range g.updates {
		names = append(names, name)
		lines = append(lines, fmt.Sprintf("save %s %s %d", name, filepath.Join(dir, name+".out"), len(g.inputs[name])))
	}
	if got := c.ask(t, lines...); !slices.Equal(got, []string{ok, ok}) {
		t.Fatalf("%q: %q", g.lines, got)
	}
	outputs := map[string][]byte{}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name+".out"))
		if err != nil {
			t.Fatal(err)
		}
		outputs[name] = data
	}
	return outputs
}

// runJob is the outputs of a job of the lab, by argument.
func runJob(t *testing.T, machine *cuda.Machine, job device.Job) [][]byte {
	t.Helper()
	outcome, err := device.Run(machine, job)
	if err != nil {
		t.Fatal(err)
	}
	return outcome.Outputs
}

// On a GPU all outputs of the example are 1.
func TestExampleOnGPU(t *testing.T) {
	_, c, _ := onGPU(t)
	program := filepath.Join(t.TempDir(), "example")
	if err := c.link(program, filepath.Join(c.library, "example.c"), strict...); err != nil {
		t.Fatal(err)
	}
	t.Log(command(t, c.library, program)) // it exits with 1 if an output is not
}

// On a GPU the library, in a process of its own, has the bits of the lab.
func TestOutputsMatchLabOnGPU(t *testing.T) {
	machine, c, l := onGPU(t)
	for _, text := range []string{
		"1x1x32x64", "1x8x128x64", "1x8x512x64", "2x8x512x64", "1x8x2048x64", "2x3x127x64:causal", "32x8x512x64", "1x2x2049x64:causal", "2x3x33x64:kv=500",
		"2x4x33x64:kv=127:kvheads=1:causal", "1x8x512x128", "2x3x127x128:causal", "1x2x2049x128", "8x8x4096x128:causal", "1x4x512x256", "8x8x1024x256:causal",
	} {
		shape, err := tensor.ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		in := tensor.Draw(shape, 1, tensor.Options{})
		call := gpuCall{
			lines: append([]string{"reset"}, setShape(shape)...),
			inputs: map[string][]byte{
				"q": in.Q.Codes, "k": in.K.Codes, "v": in.V.Codes,
				"descale_q": floatBytes(in.Q.Descale), "descale_k": floatBytes(in.K.Descale), "descale_v": floatBytes(in.V.Descale),
			},
			outputs: map[string]int{"o": 2 * len(in.Q.Codes)},
		}
		if !slices.Equal(call.run(t, c)["o"], denseOutput(t, machine, l, in)) {
			t.Errorf("%s: the output differs from the lab's", text)
		}
	}
}

// denseOutput is O of the lab, by the form of the selection.
func denseOutput(t *testing.T, machine *cuda.Machine, l Library, in *tensor.Inputs) []byte {
	t.Helper()
	choice, err := l.Selection.Choose(in.Shape)
	if err != nil {
		t.Fatal(err)
	}
	index := slices.IndexFunc(l.Selection.Choices, func(other spec.Choice) bool { return other.When == choice.When })
	image := l.Images[index][0]
	_, code := form.Dense(image).Code()
	return runJob(t, machine, attention.Job(problem.Build{Image: image, Code: code}, machine.Facts(), in))[0]
}

// fieldOf is the field of the C library for an argument of a declared kernel.
func fieldOf(kernel, argument string) string {
	switch {
	case argument == "o_bf16":
		return "o"
	case argument == "q_fp16" || argument == "q_bf16":
		return "q"
	case argument == "lengths" && kernel != "append":
		return "key_lengths"
	}
	return argument
}

// The kernels beside the selection have the bits of the lab too, on all shapes of the simulator and
// a large one each.
func TestCompanionsMatchLabOnGPU(t *testing.T) {
	machine, c, l := onGPU(t)
	large := map[string]string{"decode": "b8", "prefill": "b2048_paged", "quantize": "image", "append": "prefill"}
	for _, companion := range l.Companions {
		record := companion.Image.Record
		folder := companionFolders[record.Kernel]
		if folder == nil {
			continue // a part of forward calls, which other tests compare
		}
		kernel, err := spec.Load(folder)
		if err != nil {
			t.Fatal(err)
		}
		shapes, err := kernel.Shapes(strings.Join(append(slices.Clone(kernel.Run.SimShapes), large[record.Kernel]), ","))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(record.Variant, func(t *testing.T) {
			for _, s := range shapes {
				shape := librarysShape(s, companion, min(132, machine.Facts().Multiprocessors))
				if !isChosen(companion, l.Companions, shape) {
					continue
				}
				job := labJob(t, folder, companion, shape)
				call := gpuCall{lines: append(asked[record.Kernel](shape, record.Knobs[form.HeadDimKnob]), halfTensors(companion, shape)...), inputs: map[string][]byte{}, outputs: map[string]int{}}
				var names []string
				for _, arg := range job.Args {
					field := fieldOf(record.Kernel, arg.Name)
					switch {
					case arg.Input != nil:
						call.inputs[field] = arg.Input
					case arg.InOut != nil:
						call.inputs[field], call.updates, names = arg.InOut, append(call.updates, field), append(names, field)
					case arg.Output > 0:
						call.outputs[field], names = arg.Output, append(names, field)
					}
				}
				got := call.run(t, c)
				for i, want := range runJob(t, machine, job) {
					if !slices.Equal(got[names[i]], want) {
						t.Errorf("%s, %s: %s differs from the lab's", record.Variant, shape, names[i])
					}
				}
			}
		})
	}
}

// BF16 inputs give the bits of the lab's quantiser followed by the lab's attention.
func TestQuantisedInputsMatchLabOnGPU(t *testing.T) {
	machine, c, l := onGPU(t)
	for i, text := range []string{"2x8x500x64:kvheads=4:causal", "1x3x1000x128", "1x2x200x256:kv=300", "2x8x500x64:kvheads=4", "1x3x1000x128:causal"} {
		const sizes = "batch=%d,heads=%d,kv_heads=%d,q_rows=%d,kv_rows=%d,dim=%d,bf16=1,bshd=0"
		name, folder, hadamard, axes := "cast", kernels.Cast(), 0, sizes+",span=3,pad=0,copies=1"
		if i%2 == 0 {
			name, folder, hadamard, axes = "quantize", kernels.Quantize(), 1, sizes+",smooth=0,hadamard=1,span=3,copies=1,mean=0,pad=0"
		}
		quantiser := companionOf(t, l, name)
		shape, err := tensor.ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		job := labJob(t, folder, quantiser, spec.Axes(fmt.Sprintf(axes, shape.Batch, shape.Heads, shape.Heads/shape.Group(), shape.SeqQ, shape.SeqK, shape.HeadDim)))
		quantised := runJob(t, machine, job)
		in := &tensor.Inputs{Shape: shape}
		for i, to := range []*tensor.Tensor{&in.Q, &in.K, &in.V} {
			to.Codes, to.Descale = quantised[i], floatsOf(quantised[3+i])
		}
		call := gpuCall{
			lines: slices.Concat([]string{"reset"}, setShape(shape), []string{
				"set dtype 3", setting("hadamard", hadamard), "set descale_q 0", "set descale_k 0", "set descale_v 0",
			}),
			inputs:  map[string][]byte{"q": job.Args[0].Input, "k": job.Args[1].Input, "v": job.Args[2].Input},
			outputs: map[string]int{"o": 2 * len(in.Q.Codes)},
		}
		if !slices.Equal(call.run(t, c)["o"], denseOutput(t, machine, l, in)) {
			t.Errorf("%s: the output differs from the lab's", text)
		}
	}
}

// Packed sequences in BF16 give the bits of the lab's quantiser, whose factors are those of all
// sequences, followed by the lab's prefill kernel. O is stored by strides, heads before rows.
func TestPackedInputsMatchLabOnGPU(t *testing.T) {
	machine, c, l := onGPU(t)
	const batch, heads, kvHeads, queries, keys = 5, 4, 2, 700, 900
	for _, prefill := range l.Companions {
		if prefill.Image.Record.Kernel != "prefill" {
			continue
		}
		dim := prefill.Image.Record.Knobs[form.HeadDimKnob]
		quantise := labJob(t, kernels.Cast(), companionOf(t, l, "cast"), spec.Axes(fmt.Sprintf(
			"batch=1,heads=%d,kv_heads=%d,q_rows=%d,kv_rows=%d,dim=%d,bf16=1,bshd=1,span=3,pad=0,copies=%d",
			heads, kvHeads, queries, keys, dim, batch)))
		attend := labJob(t, kernels.Prefill(), prefill, spec.Axes(fmt.Sprintf(
			"batch=%d,kv_heads=%d,group=%d,queries=%d,keys=%d,blocks=%d,causal=1,left=0,right=0,rows_first=0,packed=1,packed_keys=1,pages=0,page_size=64,lengths=0,sinks=0,lse=1,bf16=1",
			batch, kvHeads, heads/kvHeads, queries, keys, min(machine.Facts().Multiprocessors, batch*heads*((queries+127)/128)))))
		offsets := map[string][]byte{}
		quantised := runJob(t, machine, quantise)
		for i := range attend.Args {
			arg := &attend.Args[i]
			switch place := slices.Index([]string{"q", "k", "v", "descale_q", "descale_k", "descale_v"}, arg.Name); {
			case place >= 0:
				arg.Input = quantised[place]
			case strings.HasPrefix(arg.Name, "cu_"):
				offsets[arg.Name] = arg.Input
			}
		}
		want := runJob(t, machine, attend)
		lines := []string{
			"reset", setting("batch", batch), setting("heads", heads), setting("kv_heads", kvHeads), setting("queries", queries), setting("keys", keys), setting("head_dim", dim),
			setting("total_queries", queries), setting("total_keys", keys), setting("dtype", 3), setting("out_dtype", 3), setting("causal", 1), setting("lse", addressOf["lse"]),
			setting("cu_queries", addressOf["cu_queries"]), setting("cu_keys", addressOf["cu_keys"]), setting("descale_q", 0), setting("descale_k", 0), setting("descale_v", 0),
		}
		call := gpuCall{
			lines: append(lines, strides("o_stride", 0, queries*dim, dim)...),
			inputs: map[string][]byte{
				"q": quantise.Args[0].Input, "k": quantise.Args[1].Input, "v": quantise.Args[2].Input,
				"cu_queries": offsets["cu_queries"], "cu_keys": offsets["cu_keys"],
			},
			outputs: map[string]int{"o": len(want[0]), "lse": len(want[1])},
		}
		got := call.run(t, c)
		if !slices.Equal(got["o"], want[0]) || !slices.Equal(got["lse"], want[1]) {
			t.Errorf("head dim %d: the outputs differ from the lab's", dim)
		}
	}
}

func companionOf(t *testing.T, l Library, kernel string) *form.Form {
	t.Helper()
	i := slices.IndexFunc(l.Companions, func(c *form.Form) bool { return c.Image.Record.Kernel == kernel })
	if i < 0 {
		t.Fatalf("the library has no %s", kernel)
	}
	return l.Companions[i]
}

// nativeSize is a shape of kernels/attention/native, or of pingpong with head dims above 64. It has two
// K/V heads and four query heads.
type nativeSize struct{ batch, queries, keys, headDim, causal, dtype, lse int }

func (s nativeSize) isPingpong() bool { return s.headDim > 64 }

func (s nativeSize) folder() fs.FS {
	if s.isPingpong() {
		return kernels.Pingpong()
	}
	return kernels.Native()
}

// axes are those of the shape, with the scale that a probe sets.
func (s nativeSize) axes(rowsFirst int) spec.Axes {
	axes := fmt.Sprintf("batch=%d,kv_heads=2,group=2,queries=%d,keys=%d,blocks=132,causal=%d,rows_first=%d,lse=%d,q_max=1,k_max=1,v_max=1,spread=1",
		s.batch, s.queries, s.keys, s.causal, rowsFirst, s.lse)
	if s.isPingpong() {
		axes += fmt.Sprintf(",packed=%d,dynamic=1", 1+toInt(s.queries <= 64)) // the group fits into a tile
	}
	return spec.Axes(axes)
}

func toInt(b bool) int { return map[bool]int{true: 1}[b] }

// Values of attune_sdpa_dtype.
const fp16Code, bf16Code = 2, 3

// nativeStages are the stages of kernels/attention/native and pingpong that a library chooses.
var nativeStages = map[nativeSize]string{
	{3, 300, 197, 64, 1, bf16Code, 0}:   "native64",
	{12, 512, 700, 64, 0, bf16Code, 0}:  "native",
	{33, 256, 120, 64, 0, bf16Code, 0}:  "native256",
	{20, 190, 197, 64, 1, bf16Code, 0}:  "native192",
	{20, 190, 180, 64, 1, bf16Code, 0}:  "native192_n64",
	{3, 300, 197, 64, 1, fp16Code, 0}:   "native64_fp16",
	{12, 512, 600, 64, 0, fp16Code, 0}:  "native_fp16",
	{33, 256, 120, 64, 0, fp16Code, 0}:  "native256_fp16",
	{20, 190, 197, 64, 0, fp16Code, 0}:  "native192_fp16",
	{20, 190, 180, 64, 0, fp16Code, 0}:  "native192_n64_fp16",
	{12, 512, 600, 64, 1, bf16Code, 1}:  "native_lse",
	{12, 512, 600, 64, 1, fp16Code, 1}:  "native_lse_fp16",
	{8, 500, 500, 128, 1, bf16Code, 0}:  "pingpong_d128",
	{8, 500, 1024, 128, 0, bf16Code, 0}: "pingpong_d128",
	{8, 500, 700, 128, 0, bf16Code, 0}:  "pingpong_d128_n64",
	{90, 40, 60, 128, 1, bf16Code, 0}:   "pingpong_d128_n64",
	{8, 500, 500, 128, 1, fp16Code, 0}:  "pingpong_d128_fp16",
	{8, 500, 700, 128, 0, fp16Code, 0}:  "pingpong_d128_n64_fp16",
	{8, 500, 500, 128, 1, bf16Code, 1}:  "pingpong_d128_exact",
	{90, 40, 60, 128, 0, fp16Code, 1}:   "pingpong_d128_exact_fp16",
	{8, 500, 500, 256, 1, bf16Code, 0}:  "pingpong_d256",
	{8, 500, 500, 256, 1, bf16Code, 1}:  "pingpong_d256",
	{90, 40, 60, 256, 1, fp16Code, 0}:   "pingpong_d256_fp16",
}

// stageOf returns a stage of a library.
func stageOf(t *testing.T, l Library, name string) *form.Form {
	t.Helper()
	i := slices.IndexFunc(l.Companions, func(c *form.Form) bool { return c.Image.Record.Variant == name })
	if i < 0 {
		t.Fatalf("the library has no %s", name)
	}
	return l.Companions[i]
}

// Problems in 16 bits have the bits of kernels/attention/native and pingpong in the lab.
func TestNativeMatchesLabOnGPU(t *testing.T) {
	machine, c, l := onGPU(t)
	for size, stage := range nativeStages {
		for rowsFirst := range 2 {
			job := labJob(t, size.folder(), stageOf(t, l, stage), size.axes(rowsFirst))
			want := runJob(t, machine, job)
			call := gpuCall{
				lines:   size.lines(rowsFirst),
				inputs:  map[string][]byte{"q": job.Args[0].Input, "k": job.Args[1].Input, "v": job.Args[2].Input},
				outputs: map[string]int{"o": len(want[0])},
			}
			if size.lse == 1 {
				call.outputs["lse"] = len(want[1])
			}
			got := call.run(t, c)
			if !slices.Equal(got["o"], want[0]) || size.lse == 1 && !slices.Equal(got["lse"], want[1]) {
				t.Errorf("%s, rows_first=%d: the output differs from the lab's", stage, rowsFirst)
			}
		}
	}
}

// With Q in BF16 or FP16 and K and V in E4M3 long problems have the bits of kernels/attention/mixed in the lab.
func TestMixedMatchesLabOnGPU(t *testing.T) {
	machine, c, l := onGPU(t)
	for qFP16 := range 2 {
		job := mixedJob(t, l, qFP16, 1-qFP16)
		want := runJob(t, machine, job)[0]
		inputs := map[string][]byte{}
		for _, arg := range job.Args {
			if slices.Contains([]string{"q", "k", "v", "descale_k", "descale_v"}, arg.Name) {
				inputs[arg.Name] = arg.Input
			}
		}
		call := gpuCall{lines: mixedLines(qFP16, 1-qFP16), inputs: inputs, outputs: map[string]int{"o": len(want)}}
		if !slices.Equal(call.run(t, c)["o"], want) {
			t.Errorf("q_fp16=%d: the output differs from the lab's", qFP16)
		}
	}
}

// A cast of K and V and kernels/attention/mixed have the bits of both in the lab. The second launch may begin
// before the end of the first: it must wait for the codes.
func TestCastMixedMatchesLabOnGPU(t *testing.T) {
	machine, c, l := onGPU(t)
	quantise := labJob(t, kernels.Cast(), companionOf(t, l, "cast"), spec.Axes("batch=3,heads=1,kv_heads=2,q_rows=1,kv_rows=3200,dim=64,bf16=1,bshd=0,span=3,pad=0,copies=1"))
	quantised := runJob(t, machine, quantise)
	attend := mixedJob(t, l, 0, 1)
	inputs := map[string][]byte{"k": quantise.Args[1].Input, "v": quantise.Args[2].Input}
	for i := range attend.Args {
		switch arg := &attend.Args[i]; arg.Name {
		case "q":
			inputs["q"] = arg.Input
		case "k", "v", "descale_k", "descale_v":
			arg.Input = quantised[slices.Index([]string{"q", "k", "v", "descale_q", "descale_k", "descale_v"}, arg.Name)]
		}
	}
	want := runJob(t, machine, attend)[0]
	lines := append(mixedLines(0, 1), "set dtype 3", "set descale_k 0", "set descale_v 0")
	call := gpuCall{lines: lines, inputs: inputs, outputs: map[string]int{"o": len(want)}}
	if !slices.Equal(call.run(t, c)["o"], want) {
		t.Error("the output differs from the lab's")
	}
}

var companionFolders = map[string]fs.FS{"decode": kernels.Decode(), "prefill": kernels.Prefill(), "prefill16": kernels.Prefill16(), "quantize": kernels.Quantize(), "append": kernels.Append()}

func floatBytes(values []float32) []byte {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

func floatsOf(data []byte) []float32 {
	var values []float32
	for i := 0; i < len(data); i += 4 {
		values = append(values, math.Float32frombits(binary.LittleEndian.Uint32(data[i:])))
	}
	return values
}
