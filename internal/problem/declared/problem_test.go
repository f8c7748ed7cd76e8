package declared

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/mutate"
	"attune/internal/problem"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// scale is a kernel.toml with an input, an output and a scalar.
const scale = `name = "scale"
[shapes]
small = { rows = 2, n = 3 }
[[arg]]
name = "x"
type = "f32"
shape = ["rows", "n"]
[[arg]]
name = "y"
type = "f32"
shape = ["rows", "n"]
out = true
[[arg]]
name = "n"
type = "i32"
value = "n"
[launch]
grid = ["rows"]
block = ["THREADS"]
[reference]
python = "reference.py"
[[knob]]
name = "THREADS"
values = [32, 64]
default = 32
`

// load loads a kernel from texts of files. A kernel.toml begins with its name; sources are empty.
func load(t *testing.T, toml string, files map[string]string) *Problem {
	t.Helper()
	folder := fstest.MapFS{spec.File: {Data: []byte(toml)}, "scale.cu": {Data: []byte("\n")}}
	for name, text := range files {
		folder[name] = &fstest.MapFile{Data: []byte(text)}
	}
	kernel, err := spec.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return New(kernel, folder, "")
}

// instance is the first shape of a kernel.
func (p *Problem) instance(seed uint64) problem.Instance {
	return p.Plain(p.kernel.Groups[0].Shapes[0], seed)
}

// stop closes references at the end of a test.
func stop(t *testing.T, r problem.References) problem.References {
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// forms is a kernel.toml with every form of argument and launch.
const forms = `name = "scale"
[shapes]
small = { rows = 8, n = 64 }
same = { rows = 8, n = 64 }
large = { rows = 16, n = 128 }
[[arg]]
name = "x"
type = "f16"
shape = ["rows", "n"]
[[arg]]
name = "bytes"
type = "u8"
shape = [3]
fill = "integers(0, n)"
[[arg]]
name = "order"
type = "i32"
shape = ["n"]
fill = "iota"
[[arg]]
name = "wide"
type = "f64"
shape = [3]
fill = "uniform(0, n)"
[[arg]]
name = "state"
type = "f32"
shape = [1]
inout = true
[[arg]]
name = "y"
type = "f16"
shape = ["rows", "n"]
out = true
[[arg]]
name = "n"
type = "i32"
value = "n"
[[arg]]
name = "rows"
type = "u8"
value = "rows"
[[arg]]
name = "seven"
type = "i64"
value = 7
[[arg]]
name = "twice"
type = "i64"
value = "2 * n"
[[arg]]
name = "eps"
type = "f32"
value = "1 / n"
[[arg]]
name = "y_map"
tensormap = { arg = "y", box = [32, "THREADS // 32"], swizzle = "64B", oob = "nan" }
[launch]
grid = ["rows", 2]
block = ["THREADS"]
cluster = [2]
shared = "4 * THREADS + n"
cooperative = true
[reference]
source = "naive.cu"
[work]
bytes = "rows * n * THREADS // THREADS"
flops = "rows * n / 4"
[[knob]]
name = "THREADS"
values = [32, 64]
default = 64
[[knob]]
name = "UNUSED"
values = [0, 1]
default = 0
`

// trusted answers a launch of a trusted kernel.
type trusted struct {
	targets []toolchain.Target
	jobs    []device.Job
	image   *toolchain.Image
	err     error
}

// launch returns zeros for every output.
func (l *trusted) launch(_ context.Context, t toolchain.Target, job func(*toolchain.Image) (device.Job, error)) ([][]byte, error) {
	l.targets = append(l.targets, t)
	if l.err != nil {
		return nil, l.err
	}
	made, err := job(l.image)
	if err != nil {
		return nil, err
	}
	l.jobs = append(l.jobs, made)
	var outputs [][]byte
	for _, a := range made.Args {
		if a.Output > 0 || a.InOut != nil {
			outputs = append(outputs, make([]byte, a.BufferBytes()))
		}
	}
	return outputs, nil
}

func newTrusted() *trusted {
	image := &toolchain.Image{PTX: []byte("no PTX")}
	image.Record.SourceHash, image.Record.Entry = "abc", "scale"
	return &trusted{image: image}
}

func TestProblem(t *testing.T) {
	p := load(t, forms, map[string]string{"naive.cu": ""})
	v := p.kernel.Stages[0].Variant()
	other, err := p.kernel.Variant("scale+THREADS=32")
	if err != nil {
		t.Fatal(err)
	}
	small, large := p.kernel.Groups[0].Shapes[0], p.kernel.Groups[2].Shapes[0]
	if p.Name() != "declared" || p.DType(spec.Variant{}) != "f16, u8, i32, f64, f32" || !p.Common(v, other) || !p.Budget(v).Unlimited() || p.Hints() != nil {
		t.Errorf("%s %s %v", p.Name(), p.DType(spec.Variant{}), p.Budget(v))
	}
	if got := p.Instances([]spec.Shape{small, large}, []uint64{0, 5}); len(got) != 4 || got[1].String() != "rows=8,n=64 seed 5" {
		t.Errorf("%v", got)
	}
	if got := p.Size(small); got != 2*512+3+64+3+1 {
		t.Errorf("%g elements", got)
	}
	if got, err := p.Work(v, small, ""); err != nil || got != (problem.Work{FLOPs: 128, Bytes: 512}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := p.Work(spec.Variant{}, small, ""); err != nil || got.Bytes != 512 {
		t.Errorf("%v, %v of a peer", got, err)
	}
	b := problem.Build{Variant: other}
	if got := p.LaunchKey(b); got != "THREADS=32" {
		t.Errorf("%q", got)
	}
	if got, err := p.SharedBytes(b, []spec.Shape{large, small}); err != nil || got != 4*32+128 {
		t.Errorf("%d, %v", got, err)
	}
	if !slices.Equal(p.Allowed(), []finding.Kind{finding.LaunchID}) || !strings.Contains(p.ParameterHelp(), "[[arg]] of kernel.toml") {
		t.Errorf("%v, %s", p.Allowed(), p.ParameterHelp())
	}
	if err := p.CheckShapes(v, []spec.Shape{small, large}); err != nil {
		t.Error(err)
	}
	const want = `scale: kernel.toml:42: "value" in [[arg]] "rows" ("rows") for rows=256,n=64: it is 256; u8 has 0 to 255`
	if err := p.CheckShapes(v, []spec.Shape{small, spec.Axes("rows=256,n=64")}); err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

// A knob with an axis builds variants for the shapes that have its value there.
func TestVariantsOfAnAxis(t *testing.T) {
	p := load(t, strings.Replace(forms, "name = \"THREADS\"\n", "name = \"THREADS\"\naxis = \"n\"\n", 1), map[string]string{"naive.cu": ""})
	v, other := p.kernel.Stages[0].Variant(), p.kernel.Stages[0].Variant()
	for _, value := range p.kernel.Knobs[0].Values {
		if own, _ := v.Value("THREADS"); value != own {
			var err error
			if other, err = p.kernel.Variant(fmt.Sprintf("%s+THREADS=%d", v, value)); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, sizes := v.BuiltFor()
	shape := spec.Axes(fmt.Sprintf("rows=8,n=%d", sizes[0]))
	if err := p.CheckShapes(v, []spec.Shape{shape}); err != nil || p.Common(v, other) || !p.Common(v, v) {
		t.Errorf("%v; %s and %s", err, v, other)
	}
	want := fmt.Sprintf("shape rows=8,n=7 has n 7, and %s is built for %d", v, sizes[0])
	if err := p.CheckShapes(v, []spec.Shape{shape, spec.Axes("rows=8,n=7")}); fmt.Sprint(err) != want {
		t.Errorf("%v; want %s", err, want)
	}
}

func TestParameters(t *testing.T) {
	p := load(t, forms, map[string]string{"naive.cu": ""})
	var got []string
	for _, a := range p.Parameters(problem.Build{}) {
		text := fmt.Sprintf("%s %s %d", a.Name, a.Is, a.Bytes)
		if a.Float {
			text += " float"
		}
		if a.Output {
			text += " output"
		}
		if a.Range != nil {
			text += fmt.Sprintf(" %d..%d", a.Range.Min, a.Range.Max)
		}
		got = append(got, text)
	}
	want := []string{
		"x pointer to f16 8", "bytes pointer to u8 8", "order pointer to i32 8", "wide pointer to f64 8", "state pointer to f32 8",
		"y pointer to f16 8 output", "n i32 4 1..2147483647", "rows u8 1 1..255", "seven i64 8 7..7", "twice i64 8", "eps f32 4 float",
		"y_map CUtensorMap of y 128 output",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
	if r := p.scalarRange(spec.Arg{Type: array.F32}); r != (*mutate.Range)(nil) {
		t.Errorf("%v", r)
	}
}

func TestJob(t *testing.T) {
	p := load(t, forms, map[string]string{"naive.cu": ""})
	l := newTrusted()
	refs := stop(t, p.References(problem.Options{Launch: l.launch}))
	ref, err := refs.Get(t.Context(), p.instance(3))
	if err != nil {
		t.Fatal(err)
	}
	image := &toolchain.Image{PTX: []byte(atomicSum)}
	image.Record.Kernel = "scale"
	v, err := p.kernel.Variant("scale+THREADS=32")
	if err != nil {
		t.Fatal(err)
	}
	job, err := ref.Job(problem.Build{Variant: v, Image: image, Code: []byte("code")}, device.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if job.Grid != [3]int{8, 2, 1} || job.Block != [3]int{32, 1, 1} || job.Cluster != [3]int{2, 1, 1} || job.DynamicSharedBytes != 192 ||
		!job.Cooperative || !job.Unordered || job.Entry != "scale" || string(job.Image) != "code" {
		t.Errorf("%+v", job)
	}
	var units []int
	for _, a := range job.Args {
		units = append(units, a.Unit)
	}
	// x; bytes of 3; iota; three f64; in-out, output, scalars and the map.
	if !slices.Equal(units, []int{16, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) {
		t.Errorf("rotation units %v", units)
	}
	if a := job.Args; a[0].Name != "x" || a[11].Name != "y_map" || len(a[0].Input) != 1024 || a[5].Output != 1024 || len(a[4].InOut) != 4 || !bytes.Equal(a[6].Scalar, []byte{64, 0, 0, 0}) ||
		!bytes.Equal(a[7].Scalar, []byte{8}) || !bytes.Equal(a[10].Scalar, []byte{0, 0, 0x80, 0x3c}) {
		t.Errorf("%+v", a)
	}
	m := job.Args[11].TensorMap
	if m.Arg != 5 || m.Type != "f16" || !slices.Equal(m.Dims, []int{64, 8}) || !slices.Equal(m.Strides, []int{128}) || !slices.Equal(m.Box, []int{32, 1}) ||
		m.Swizzle != "64B" || m.OOB != "nan" || m.L2Promotion != "128B" {
		t.Errorf("%+v", m)
	}
	if err := job.Check(); err != nil {
		t.Error(err)
	}
	if again, err := ref.Job(problem.Build{Variant: v, Image: image}, device.Facts{}); err != nil || !again.Unordered {
		t.Errorf("%v, %v", again.Unordered, err)
	}
	alone, err := p.Job(problem.Build{Variant: v, Image: image, Code: []byte("code")}, p.instance(3))
	if alone.Unordered = true; err != nil || !reflect.DeepEqual(alone, job) {
		t.Errorf("without a reference: %v\n%+v, want\n%+v", err, alone, job)
	}

	// The trusted kernel has the defaults of all knobs and no cluster.
	if len(l.jobs) != 1 || l.jobs[0].Block != [3]int{64, 1, 1} || l.jobs[0].Cluster != [3]int{} || !l.jobs[0].Cooperative || l.jobs[0].Unordered {
		t.Fatalf("%+v", l.jobs)
	}
	want := toolchain.Target{Kernel: "scale", Variant: "reference", Source: "naive.cu", Entry: "scale", Knobs: map[string]int{"THREADS": 64, "UNUSED": 0}}
	if !reflect.DeepEqual(l.targets[0], want) {
		t.Errorf("%+v; want %+v", l.targets[0], want)
	}
	if facts := refs.Facts(); facts["source_sha256"] != "abc" || facts["sha256:naive.cu"] == "" || facts["reference"] != "source" {
		t.Errorf("%v", facts)
	}
}

// atomicSum is a kernel with an atomic sum of floats.
const atomicSum = `.version 8.0
.target sm_90
.address_size 64
.visible .entry scale(.param .u64 out)
{
	.reg .f32 %f<2>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [out];
	red.global.add.f32 [%rd1], %f1;
	ret;
}
`

func TestGetComputesOnce(t *testing.T) {
	p := load(t, forms, map[string]string{"naive.cu": ""})
	l := newTrusted()
	refs := stop(t, p.References(problem.Options{Launch: l.launch}))
	get := func(seed uint64) problem.Reference {
		ref, err := refs.Get(t.Context(), p.instance(seed))
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	first := get(1)
	if get(1) != first || len(l.jobs) != 1 {
		t.Errorf("%d launches", len(l.jobs))
	}
	get(2)
	refs.KeepOnly(p.instance(1))
	if get(1) != first || len(l.jobs) != 2 {
		t.Errorf("%d launches", len(l.jobs))
	}
	get(2)
	if len(l.jobs) != 3 || bytes.Equal(l.jobs[0].Args[0].Input, l.jobs[1].Args[0].Input) || !bytes.Equal(l.jobs[1].Args[0].Input, l.jobs[2].Args[0].Input) {
		t.Errorf("%d launches", len(l.jobs))
	}
}

func TestTrustedKernelFails(t *testing.T) {
	p := load(t, forms, map[string]string{"naive.cu": ""})
	fault := errors.New("race: a text\nand more")
	for err, want := range map[error]string{
		fault: "naive.cu: race: a text",
		&toolchain.CompileError{Output: "naive.cu(3): error: no\nmore"}: "naive.cu: naive.cu(3): error: no",
		fmt.Errorf("open: %w", device.ErrNoDevice):                      "",
		fmt.Errorf("build: %w", toolchain.ErrNoCompiler):                "",
		context.Canceled: "",
		fmt.Errorf("%w", &device.Timeout{Limit: time.Second}):                                     "naive.cu: no result within 1s: the kernel hangs, or needs a longer --timeout; it was ended",
		&device.Fault{Code: "simulator", Text: "global access", Operation: "run the kernel"}:      "naive.cu: run the kernel: simulator (global access)",
		&device.Crash{How: "signal: segmentation fault"}:                                          "naive.cu: the process that ran the kernel died: signal: segmentation fault",
		&device.Unsupported{Why: "the simulator cannot run the PTX: line 7: no such instruction"}: "naive.cu: the simulator cannot run the PTX: line 7: no such instruction",
	} {
		l := newTrusted()
		l.err = err
		_, got := p.References(problem.Options{Launch: l.launch}).Get(t.Context(), p.instance(0))
		known := new(*problem.ReferenceError)
		if isReference := errors.As(got, known); isReference != (want != "") || want != "" && got.Error() != want || want == "" && got != err {
			t.Errorf("%v: %v; want %s", err, got, want)
		}
	}
	_, err := p.References(problem.Options{}).Get(t.Context(), p.instance(0))
	if err == nil || err.Error() != "naive.cu: there is no device for the trusted kernel" {
		t.Error(err)
	}
	_, err = p.References(problem.Options{Launch: func(context.Context, toolchain.Target, func(*toolchain.Image) (device.Job, error)) ([][]byte, error) {
		return [][]byte{{1, 2}}, nil
	}}).Get(t.Context(), p.instance(0))
	if err == nil || err.Error() != `naive.cu: the launch returned no "state"` {
		t.Error(err)
	}
}

func TestTrustedKernelWithItsOwnLaunch(t *testing.T) {
	p := load(t, strings.Replace(forms, "source = \"naive.cu\"\n", "source = \"naive.cu\"\nentry = \"naive\"\ngrid = [1]\nblock = [\"n\"]\nshared = 12\n", 1),
		map[string]string{"naive.cu": ""})
	l := newTrusted()
	if _, err := p.References(problem.Options{Launch: l.launch}).Get(t.Context(), p.instance(0)); err != nil {
		t.Fatal(err)
	}
	if j := l.jobs[0]; j.Grid != [3]int{1, 1, 1} || j.Block != [3]int{64, 1, 1} || j.DynamicSharedBytes != 12 || j.Cooperative || l.targets[0].Entry != "naive" {
		t.Errorf("%+v", j)
	}
}

// The reference of a timed launch is that of its rotated inputs.
func TestTimed(t *testing.T) {
	p := load(t, forms, map[string]string{"naive.cu": ""})
	l := newTrusted()
	refs := p.References(problem.Options{Launch: l.launch})
	ref, err := refs.Get(t.Context(), p.instance(0))
	if err != nil {
		t.Fatal(err)
	}
	b := problem.Build{Variant: p.kernel.Stages[0].Variant(), Image: l.image}
	job, err := ref.Job(b, device.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	rotation := device.Rotation{Secret: 5, Count: 3}
	timed, err := ref.Timed(t.Context(), b, job, rotation)
	if err != nil || timed == ref || len(l.jobs) != 2 {
		t.Fatalf("%v, %v, %d launches", timed, err, len(l.jobs))
	}
	again, err := timed.Job(b, device.Facts{})
	if want := job.Rotate(rotation); err != nil || !bytes.Equal(again.Args[0].Input, want.Args[0].Input) || !bytes.Equal(l.jobs[1].Args[0].Input, want.Args[0].Input) ||
		bytes.Equal(again.Args[0].Input, job.Args[0].Input) {
		t.Errorf("other inputs than those of the launch: %v", err)
	}
	if result, err := timed.Compare(b, [][]byte{make([]byte, 4), make([]byte, 1024)}); err != nil || result.Bad > 0 {
		t.Errorf("%+v, %v", result, err)
	}

	l.err = errors.New("race")
	if _, err := ref.Timed(t.Context(), b, job, rotation); err == nil || err.Error() != "naive.cu: race" {
		t.Error(err)
	}
	for _, a := range ref.(*reference).answers {
		a.took = time.Minute
	}
	if slow, err := ref.Timed(t.Context(), b, job, rotation); err != nil || slow != nil {
		t.Errorf("a slow reference: %v, %v", slow, err)
	}
	for i := range job.Args {
		job.Args[i].Unit = 0
	}
	if same, err := ref.Timed(t.Context(), b, job, rotation); err != nil || same != ref {
		t.Errorf("without rotation: %v, %v", same, err)
	}
}

// Files and expressions that fail.
func TestFiles(t *testing.T) {
	toml := strings.Replace(scale, `python = "reference.py"`, `files = "expected"`, 1)
	toml = strings.Replace(toml, "shape = [\"rows\", \"n\"]\n[[arg]]\nname = \"y\"", "shape = [\"rows\", \"n\"]\nfile = \"in/{shape}.safetensors\"\n[[arg]]\nname = \"y\"", 1)
	x := array.FromFloats(array.F64, []int{2, 3}, []float64{1, 2, 3, 4, 5, 6})
	file := func(arrays ...*array.Array) string {
		var text bytes.Buffer
		if err := array.WriteSafetensors(&text, arrays); err != nil {
			t.Fatal(err)
		}
		return text.String()
	}
	named := func(name string, a *array.Array) *array.Array {
		renamed := *a
		renamed.Name = name
		return &renamed
	}
	right := map[string]string{
		"in/small.safetensors":         file(named("x", x), named("z", x)),
		"expected/small-0.safetensors": file(named("y", x)),
	}
	flat := array.FromFloats(array.F32, []int{6}, make([]float64, 6))
	for name, c := range map[string]struct {
		change     map[string]string
		seed       uint64
		want       string
		isSeedless bool
	}{
		"right":       {},
		"by axes":     {change: map[string]string{"expected/small-0.safetensors": "", "expected/rows=2,n=3-0.safetensors": right["expected/small-0.safetensors"]}},
		"no seed":     {seed: 99, want: "there is no file expected/small-99.safetensors or expected/rows=2,n=3-99.safetensors; save the outputs by name, or leave the shape or the seed out", isSeedless: true},
		"a lost seed": {seed: 1, want: "there is no file expected/small-1.safetensors or expected/rows=2,n=3-1.safetensors; save the outputs by name, or leave the shape or the seed out"},
		"no input":    {change: map[string]string{"in/small.safetensors": ""}, want: `the input "x" for rows=2,n=3 seed 0: there is no file in/small.safetensors or in/rows=2,n=3.safetensors`},
		"input shape": {change: map[string]string{"in/small.safetensors": file(flat)}, want: `the input "x" for rows=2,n=3 seed 0: in/small.safetensors has shape (6,); kernel.toml declares (2, 3)`},
		"input type": {
			change: map[string]string{"in/small.safetensors": file(&array.Array{Name: "x", Type: array.I32, Shape: []int{2, 3}, Data: make([]byte, 24)})},
			want:   `the input "x" for rows=2,n=3 seed 0: in/small.safetensors: its elements are i32, not f32; save the array as f32`,
		},
		"input names": {change: map[string]string{"in/small.safetensors": file(named("a", x), named("b", x))}, want: `the input "x" for rows=2,n=3 seed 0: in/small.safetensors: it has 2 tensors (a, b); name one by FILE#TENSOR`},
		"no output":   {change: map[string]string{"expected/small-0.safetensors": file(named("z", x))}, want: `expected/small-0.safetensors: it has no tensor "y"; it has z`},
		"shape":       {change: map[string]string{"expected/small-0.safetensors": file(named("y", flat))}, want: `expected/small-0.safetensors: "y" has shape (6,); kernel.toml declares (2, 3)`},
		"no file":     {change: map[string]string{"expected/small-0.safetensors": "not one"}, want: "expected/small-0.safetensors: "},
	} {
		files := map[string]string{"expected/readme": "a folder"}
		for _, all := range []map[string]string{right, c.change} {
			for name, text := range all {
				files[name] = text
				if text == "" {
					delete(files, name)
				}
			}
		}
		p := load(t, toml, files)
		refs := p.References(problem.Options{})
		ref, err := refs.Get(t.Context(), p.instance(c.seed))
		if c.want != "" {
			known := new(*problem.ReferenceError)
			if !errors.As(err, known) || err.Error() != c.want && !(strings.HasSuffix(c.want, ": ") && strings.HasPrefix(err.Error(), c.want)) || errors.Is(err, problem.ErrNoSeed) != c.isSeedless {
				t.Errorf("%s: %v, without a seed %v; want %s", name, err, errors.Is(err, problem.ErrNoSeed), c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		b := problem.Build{Variant: p.kernel.Stages[0].Variant(), Image: &toolchain.Image{}}
		result, err := ref.Compare(b, [][]byte{array.FromFloats(array.F32, x.Shape, x.Floats()).Data})
		if err != nil || result.Bad > 0 || len(refs.Facts()) != 4 {
			t.Errorf("%s: %+v, %v, %v", name, result, err, refs.Facts())
		}
		// The inputs come from a file, whose order has a meaning.
		job, err := ref.Job(b, device.Facts{})
		if timed, second := ref.Timed(t.Context(), b, job, device.Rotation{}); err != nil || second != nil || timed != ref {
			t.Errorf("%s: %v, %v, %v", name, timed, err, second)
		}
	}
}

// Outputs in 8-bit floats may be saved as codes.
func TestFilesOfCodes(t *testing.T) {
	toml := strings.Replace(strings.ReplaceAll(scale, `"f32"`, `"e4m3"`), `python = "reference.py"`, `files = "."`, 1)
	var text bytes.Buffer
	codes := &array.Array{Name: "y", Type: array.U8, Shape: []int{2, 3}, Data: []byte{0x38, 0, 0, 0, 0, 0x7e}}
	if err := array.WriteSafetensors(&text, []*array.Array{codes}); err != nil {
		t.Fatal(err)
	}
	p := load(t, toml, map[string]string{"small-0.safetensors": text.String()})
	ref, err := p.References(problem.Options{}).Get(t.Context(), p.instance(0))
	if err != nil {
		t.Fatal(err)
	}
	result, err := ref.Compare(problem.Build{Variant: p.kernel.Stages[0].Variant()}, [][]byte{codes.Data})
	if err != nil || result.Bad > 0 || result.Worst.Element != "y[0, 0]" {
		t.Errorf("%+v, %v", result, err)
	}
	// Random inputs are rotated while the kernel is timed, and files have no outputs for them.
	b := problem.Build{Variant: p.kernel.Stages[0].Variant(), Image: &toolchain.Image{}}
	job, err := ref.Job(b, device.Facts{})
	if timed, second := ref.Timed(t.Context(), b, job, device.Rotation{}); err != nil || second != nil || timed != nil {
		t.Errorf("%v, %v, %v", timed, err, second)
	}
}

// An expression can fail for a shape of the command line. The error has its line.
func TestExpressionsThatFail(t *testing.T) {
	for key, want := range map[string]string{
		`shape = ["rows", "n"]|shape = ["rows", "6 // (n - 1)"]`:                                                             `kernel.toml:7: "shape" in [[arg]] "x" ("6 // (n - 1)") for rows=2,n=1: `,
		`value = "n"|value = "6 // (n - 1)"`:                                                                                 `kernel.toml:16: "value" in [[arg]] "n" ("6 // (n - 1)") for rows=2,n=1: `,
		`grid = ["rows"]|grid = ["6 // (n - 1)"]`:                                                                            `kernel.toml:18: "grid" in [launch] ("6 // (n - 1)") for rows=2,n=1: `,
		`["THREADS"]|["THREADS"]` + "\nshared = \"6 // (n - 1)\"":                                                            `kernel.toml:20: "shared" in [launch] ("6 // (n - 1)") for rows=2,n=1: `,
		`type = "i32"` + "\nvalue = \"n\"|type = \"f32\"\nvalue = \"6 / (n - 1)\"":                                           `kernel.toml:16: "value" in [[arg]] "n" ("6 / (n - 1)") for rows=2,n=1: `,
		`type = "i32"` + "\nvalue = \"n\"|type = \"u8\"\nvalue = \"n - 2\"":                                                  `kernel.toml:16: "value" in [[arg]] "n" ("n - 2") for rows=2,n=1: -1 does not fit u8`,
		"[launch]|[work]\nbytes = \"6 // (n - 1)\"\n[launch]":                                                                `kernel.toml:18: "bytes" in [work] ("6 // (n - 1)") for rows=2,n=1: `,
		"[launch]|[work]\nflops = \"6 // (n - 1)\"\n[launch]":                                                                `kernel.toml:18: "flops" in [work] ("6 // (n - 1)") for rows=2,n=1: `,
		"shape = [\"rows\", \"n\"]\n|shape = [\"rows\", \"n\"]\nfill = \"uniform(0, 6 // (n - 1))\"\n":                       `kernel.toml:8: "fill" in [[arg]] "x" ("6 // (n - 1)") for rows=2,n=1: `,
		"[launch]|[[arg]]\nname = \"m\"\ntensormap = { arg = \"x\", box = [4, \"6 // (n - 1)\"] }\n[launch]":                 `kernel.toml:19: "box" in tensormap of [[arg]] "m" ("6 // (n - 1)") for rows=2,n=1: `,
		"[launch]|[[arg]]\nname = \"m\"\ntensormap = { arg = \"x\", box = [4, 1], order = [0, \"3 // (n - 1)\"] }\n[launch]": `kernel.toml:19: "order" in tensormap of [[arg]] "m" ("3 // (n - 1)") for rows=2,n=1: `,
		"[launch]|[[arg]]\nname = \"m\"\ntensormap = { arg = \"x\", box = [4, 1], order = [0, \"n // 4\"] }\n[launch]":       `kernel.toml:19: "order" in tensormap of [[arg]] "m" ("0") for rows=2,n=1: the order of the dimensions is [0 0]`,
	} {
		old, replacement, _ := strings.Cut(key, "|")
		toml := strings.Replace(scale, old, replacement, 1)
		if strings.Contains(replacement, "tensormap") {
			toml = strings.ReplaceAll(toml, "n = 3", "n = 4")
		}
		toml = strings.Replace(toml, `python = "reference.py"`, `source = "naive.cu"`, 1)
		p := load(t, toml, map[string]string{"naive.cu": ""})
		if got := failing(t, p); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q; want %q", key, got, want)
		}
	}
}

// failing returns the first error of a shape for which an expression fails.
func failing(t *testing.T, p *Problem) string {
	t.Helper()
	shape := spec.Axes("rows=2,n=1")
	v := p.kernel.Stages[0].Variant()
	b := problem.Build{Variant: v, Image: newTrusted().image}
	refs := p.References(problem.Options{Launch: newTrusted().launch}).(*references)
	if _, err := p.buffers(p.defaults(shape), shape); err != nil {
		if size := p.Size(shape); size < 1e300 {
			t.Errorf("its size is %g", size)
		}
	}
	if _, err := p.Work(v, shape, ""); err != nil {
		return err.Error()
	}
	if _, err := p.SharedBytes(b, []spec.Shape{shape}); err != nil {
		return err.Error()
	}
	_, alone := p.Job(b, p.Plain(shape, 0))
	if _, err := refs.Get(t.Context(), p.Plain(shape, 0)); err != nil {
		if alone == nil || !strings.Contains(err.Error(), alone.Error()) {
			t.Errorf("without a reference: %v, want %v", alone, err)
		}
		return strings.TrimPrefix(err.Error(), "naive.cu: ")
	}
	return ""
}

// The extents of a buffer may depend on a knob. A variant then has inputs and a reference of its
// own.
func TestBuffersThatDependOnAKnob(t *testing.T) {
	toml := strings.Replace(scale, `shape = ["rows", "n"]`, `shape = ["THREADS", "n"]`, 1)
	p := load(t, strings.Replace(toml, `python = "reference.py"`, `source = "naive.cu"`, 1), map[string]string{"naive.cu": ""})
	l := newTrusted()
	ref, err := p.References(problem.Options{Launch: l.launch}).Get(t.Context(), p.instance(0))
	if err != nil {
		t.Fatal(err)
	}
	for variant, bytes := range map[string]int{"scale": 32 * 3 * 4, "scale+THREADS=64": 64 * 3 * 4} {
		v, err := p.kernel.Variant(variant)
		if err != nil {
			t.Fatal(err)
		}
		b := problem.Build{Variant: v, Image: l.image}
		job, err := ref.Job(b, device.Facts{})
		if err != nil || len(job.Args[0].Input) != bytes {
			t.Errorf("%s: %d bytes, %v", v, len(job.Args[0].Input), err)
		}
	}
	if len(l.jobs) != 2 {
		t.Errorf("%d launches of the trusted kernel", len(l.jobs))
	}
	l.err = errors.New("race")
	other := &reference{ref.(*reference).refs, t.Context(), p.instance(1), map[string]*answer{}}
	b := problem.Build{Variant: p.kernel.Stages[0].Variant(), Image: l.image}
	if _, err := other.Job(b, device.Facts{}); err == nil {
		t.Error("a job without a reference")
	}
	if _, err := other.Compare(b, nil); err == nil {
		t.Error("a comparison without a reference")
	}
	if _, err := other.CompareValues(nil); err == nil {
		t.Error("a comparison of values without a reference")
	}
	if _, wrong := other.Judge(b, problem.Result{}, 1); !slices.Equal(wrong, []string{"naive.cu: race"}) {
		t.Errorf("%q", wrong)
	}
	if other.Coverage().Of != 0 || other.Peer().Arrays != nil {
		t.Error("a peer without a reference")
	}
}

func TestWorstOutput(t *testing.T) {
	toml := strings.Replace(forms, "cooperative = true\n", "", 1)
	p := load(t, toml, map[string]string{"naive.cu": ""})
	ref, err := p.References(problem.Options{Launch: newTrusted().launch}).Get(t.Context(), p.instance(0))
	if err != nil {
		t.Fatal(err)
	}
	b := problem.Build{Variant: p.kernel.Stages[0].Variant(), Image: newTrusted().image}
	y := array.FromFloats(array.F16, []int{512}, append([]float64{5}, make([]float64, 511)...)).Data
	state := array.FromFloats(array.F32, []int{1}, []float64{3}).Data
	result, err := ref.Compare(b, [][]byte{state, y})
	if err != nil || result.Worst.Element != "state[0]" || len(result.Outputs) != 2 || result.BadFraction != 1 || p.Allowed() != nil {
		t.Errorf("%+v, %v", result, err)
	}
	result, err = ref.Compare(b, [][]byte{make([]byte, 4), y})
	if err != nil || result.Worst.Element != "y[0, 0]" {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestUnknownKindOfReference(t *testing.T) {
	p := load(t, scale, map[string]string{"reference.py": ""})
	p.Declaration.Reference.Kind = "oracle"
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	_, _ = p.References(problem.Options{}).Get(t.Context(), p.instance(0))
}

// A scalar of type u64 has all 64 bits.
func TestUnsignedScalar(t *testing.T) {
	p := load(t, strings.Replace(scale, "type = \"i32\"\nvalue = \"n\"", "type = \"u64\"\nvalue = \"18446744073709551618 - n\"", 1), map[string]string{"reference.py": ""})
	shape := p.kernel.Groups[0].Shapes[0]
	arg, err := p.arg(&p.Args[2], p.defaults(shape), shape, nil)
	if err != nil || !bytes.Equal(arg.Scalar, bytes.Repeat([]byte{0xff}, 8)) {
		t.Errorf("%x, %v", arg.Scalar, err)
	}
	_, err = p.arg(&p.Args[2], p.defaults(spec.Axes("rows=2,n=2")), spec.Axes("rows=2,n=2"), nil)
	if err == nil || !strings.Contains(err.Error(), "it is 18446744073709551616; u64 has 0 to 18446744073709551615") {
		t.Error(err)
	}
}

// Buffers beyond the memory of the device are refused before the inputs are drawn: those of this
// shape would take 12 GB.
func TestMemory(t *testing.T) {
	p := load(t, scale, map[string]string{"reference.py": "raise SystemExit"})
	refs := stop(t, p.References(problem.Options{Memory: 1 << 30, Device: "the simulator"}))
	_, err := refs.Get(t.Context(), p.Plain(spec.Axes("rows=3,n=500000000"), 0))
	const want = "the buffers of rows=3,n=500000000 have 12000 MB, x alone 6000 MB; the simulator holds 1074 MB of buffers; choose a smaller shape"
	if known := new(*problem.ReferenceError); !errors.As(err, known) || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
	if got := p.Size(spec.Axes("rows=2147483647,n=2147483647")); got != 2*float64(2147483647)*2147483647 {
		t.Errorf("%g elements", got)
	}
	if got := elements([]int{1 << 31, 1 << 31, 1 << 31}); got != math.MaxInt {
		t.Errorf("%d elements", got)
	}
}
