package cases

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/sim"
)

func TestParseArgument(t *testing.T) {
	dir := t.TempDir()
	var file bytes.Buffer
	if err := array.WriteNPY(&file, array.FromFloats(array.F64, []int{2, 1}, []float64{1, 2})); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "x.npy")
	if err := os.WriteFile(path, file.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text  string
		role  Role
		dtype array.DType
		shape []int
		want  []float64 // nil for an output
		name  string
	}{
		{"f32:in:" + path, In, array.F32, []int{2, 1}, []float64{1, 2}, ""},
		{"x=bf16:inout:" + path, InOut, array.BF16, []int{2, 1}, []float64{1, 2}, "x"},
		{"f16:in:[1, -2.5,3]", In, array.F16, []int{3}, []float64{1, -2.5, 3}, ""},
		{"u8:in:iota:2x3", In, array.U8, []int{2, 3}, []float64{0, 1, 2, 3, 4, 5}, ""},
		{"f32:in:uniform(2, 2):2", In, array.F32, []int{2}, []float64{2, 2}, ""},
		{"i64:in:integers(-3,-2):1", In, array.I64, []int{1}, []float64{-3}, ""},
		{"y_1=e4m3:out:4x2", Out, array.E4M3, []int{4, 2}, nil, "y_1"},
		{"i32:-7", Scalar, array.I32, nil, []float64{-7}, ""},
		{"u32:0xff", Scalar, array.U32, nil, []float64{255}, ""},
		{"u64:18446744073709551615", Scalar, array.U64, nil, []float64{0x1p64}, ""},
		{"eps=f32:1e-5", Scalar, array.F32, nil, []float64{float64(float32(1e-5))}, "eps"},
		{"f64:-inf", Scalar, array.F64, nil, []float64{math.Inf(-1)}, ""},
	} {
		got, err := ParseArgument(c.text, 0, 0)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		a := got.Array
		if got.Role != c.role || a.Type != c.dtype || !slices.Equal(a.Shape, c.shape) || a.Name != c.name || c.want == nil && a.Data != nil ||
			c.want != nil && !slices.Equal(a.Floats(), c.want) {
			t.Errorf("%s: %s, %+v", c.text, got.Role, a)
		}
	}
	for text, want := range map[string]string{
		"f32":                   "want TYPE:in:SOURCE, TYPE:inout:SOURCE, TYPE:out:SHAPE, TYPE:scratch:SHAPE or TYPE:VALUE",
		"f8:1":                  `unknown type "f8"`,
		"1x=f32:1":              `"1x" is no name; use letters, digits and _`,
		"=f32:1":                `"" is no name`,
		"i32:1.5":               `"1.5" is no i32; want TYPE:in:`,
		"u64:-1":                `"-1" is no u64`,
		"u8:256":                "256 does not fit u8",
		"f32:x.npy":             `"x.npy" is no f32; want TYPE:in:`,
		"f32:out:0":             `"0" is no shape; want extents such as 1024 or 1024x64`,
		"f32:out:65536x65536":   "at most 2^31 elements",
		"f32:in:x.bin":          `"x.bin" is neither a file (.npy, .safetensors) nor values in brackets nor a fill`,
		"f32:in:normal:x":       `"x" is no shape`,
		"f32:in:gauss:2":        `"gauss" is no fill; there are normal, uniform(a,b), zeros, ones, iota, integers(a,b), offsets(a,b)`,
		"f32:in:uniform:2":      `"uniform" is no fill`,
		"f32:in:uniform(1:2":    `"uniform(1" is no fill`,
		"f32:in:normal(1,2):2":  `"normal(1,2)" is no fill`,
		"i32:in:normal:2":       "normal draws real numbers",
		"f32:in:[1":             "the bracket is not closed",
		"f32:in:[]":             `"" is no f32`,
		"f32:in:none.npy":       "open none.npy: no such file or directory",
		"i32:in:" + path:        "x.npy: its elements are f64, not i32; save the array as i32",
		"f32:in:" + path + "#t": "a .npy file has one array without a name",
	} {
		_, err := ParseArgument(text, 0, 0)
		if err == nil || !strings.HasPrefix(err.Error(), "--arg "+text+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
	// An empty file array is no buffer.
	if err := (LaunchArg{Role: In, Array: &array.Array{Type: array.F32, Shape: []int{0}}}).checkSize(); err == nil {
		t.Error("an empty buffer is accepted")
	}
}

// Arguments without a name have random streams of their own.
func TestParseArgumentStreams(t *testing.T) {
	draw := func(text string, index int, seed uint64) []byte {
		t.Helper()
		arg, err := ParseArgument(text, index, seed)
		if err != nil {
			t.Fatal(err)
		}
		return arg.Array.Data
	}
	base := draw("f32:in:normal:8", 0, 0)
	if bytes.Equal(base, draw("f32:in:normal:8", 1, 0)) || bytes.Equal(base, draw("f32:in:normal:8", 0, 1)) || !bytes.Equal(base, draw("f32:in:normal:8", 0, 0)) {
		t.Error("the contents do not depend on the index and the seed alone")
	}
	if !bytes.Equal(draw("a=f32:in:normal:8", 0, 0), draw("a=f32:in:normal:8", 5, 0)) {
		t.Error("the contents of a named argument depend on its place")
	}
}

func FuzzParseArgument(f *testing.F) {
	for _, text := range []string{"f32:in:[1,2]", "x=f16:in:normal:4x4", "i32:in:integers(0,9):3", "u8:out:7", "f64:1e-5", "f32:in:a.safetensors#t"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "npy") || strings.Contains(text, "safetensors") || len(text) > 40 {
			return
		}
		for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ':' || r == 'x' }) {
			if len(part) > 4 && strings.Trim(part, "0123456789") == "" {
				return // a buffer that takes seconds to draw
			}
		}
		arg, err := ParseArgument(text, 0, 0)
		if err == nil && arg.Role != Scalar && arg.bytes() < 1 {
			t.Errorf("%q is a buffer of %d bytes", text, arg.bytes())
		}
	})
}

// directPTX writes n to out[0], adds 1 to sum[0], and reads in[0].
const directPTX = `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out, .param .u64 sum, .param .u8 n)
{
	.reg .b16 %h<2>;
	.reg .b32 %r<3>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [in];
	ld.param.u64 %rd2, [out];
	ld.param.u64 %rd3, [sum];
	ld.param.u8 %h1, [n];
	st.global.u8 [%rd2], %h1;
	ld.global.u32 %r1, [%rd3];
	add.u32 %r1, %r1, 1;
	st.global.u32 [%rd3], %r1;
	MORE
	ret;
}
`

func direct(t *testing.T, more string, args ...string) Launch {
	t.Helper()
	if len(args) == 0 {
		args = []string{"i32:in:[5]", "out=u8:out:1", "i32:inout:[1]", "i8:-1"}
	}
	l := Launch{Name: "k.ptx", PTX: []byte(strings.Replace(directPTX, "MORE", more, 1)), Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}}
	for i, text := range args {
		arg, err := ParseArgument(text, i, 0)
		if err != nil {
			t.Fatal(err)
		}
		l.Args = append(l.Args, arg)
	}
	return l
}

// runDirect runs a launch of directPTX with all checkers, and returns the kinds of its findings too.
func runDirect(t *testing.T, name string, l Launch) (*Outcome, []finding.Kind) {
	t.Helper()
	if err := l.Resolve(); err != nil || l.Entry != "k" {
		t.Fatalf("%s: %v", name, err)
	}
	got, err := FromLaunch(l).Run(t.Context(), sim.Options{Checks: true})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []finding.Kind
	for _, f := range got.Findings {
		kinds = append(kinds, f.Kind)
	}
	return got, kinds
}

func TestDirectRun(t *testing.T) {
	for _, c := range []struct {
		name, more string
		args       []string
		kinds      []finding.Kind
	}{
		{"right", "", nil, nil},
		{"an output that is too large", "", []string{"i32:in:[5]", "u8:out:2", "i32:inout:[1]", "i8:-1"}, []finding.Kind{finding.Unwritten}},
		{"a changed input", "st.global.u32 [%rd1], 7;", nil, []finding.Kind{finding.InputChanged}},
		{"out of bounds", "st.global.u32 [%rd1+4], 7;", nil, []finding.Kind{finding.OutOfBounds}},
	} {
		got, kinds := runDirect(t, c.name, direct(t, c.more, c.args...))
		if !slices.Equal(kinds, c.kinds) || got.Pass != (len(c.kinds) == 0) {
			t.Errorf("%s: %+v", c.name, got)
		}
		if len(got.Outputs) != 2 || got.Outputs[0].First[0] != "255" || got.Outputs[1].First[0] != "2" || *got.Outputs[1].Max != 2 {
			t.Errorf("%s: the outputs are %+v", c.name, got.Outputs)
		}
	}
}

// A kernel that leaves something in scratch is launched again, on what it has left. That it reads it is a
// finding of both launches.
func TestDirectRunAgain(t *testing.T) {
	for _, c := range []struct {
		name, more string
		kinds      []finding.Kind
	}{
		{"a counter", "", nil},
		{"an output that is the counter", "st.global.u8 [%rd2], %r1;", []finding.Kind{finding.NotRepeatable}},
		{"an address that is right the first time only", "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd1, %rd1, %rd3; ld.global.u32 %r2, [%rd1+-4];", []finding.Kind{finding.OutOfBounds}},
	} {
		got, kinds := runDirect(t, c.name, direct(t, c.more, "i32:in:[5]", "out=u8:out:1", "i32:scratch:1", "i8:-1"))
		if !slices.Equal(kinds, append([]finding.Kind{finding.KeptMemory, finding.KeptMemory}, c.kinds...)) || got.Pass {
			t.Errorf("%s: %v, %+v", c.name, kinds, got)
		}
	}
}

func TestResolve(t *testing.T) {
	for _, c := range []struct {
		change func(*Launch)
		want   string
	}{
		{func(l *Launch) { l.PTX = []byte("nothing") }, "k.ptx: "},
		{func(l *Launch) { l.PTX = []byte(".version 8.0\n.target sm_80\n.address_size 64\n") }, "k.ptx has no entry function; declare one with __global__"},
		{func(l *Launch) { l.Entry = "none" }, `k.ptx has no entry function "none"; it has k`},
		{func(l *Launch) { l.Args = l.Args[1:] }, "k takes 4 parameters (u64, u64, u64, u8); there are 3 --arg"},
		{func(l *Launch) { l.Args[3] = l.Args[0] }, "argument 3 is a buffer, 8 bytes; parameter 3 of k has 1 bytes (u8)"},
		{func(l *Launch) { l.Args[0] = l.Args[3] }, "argument 0 is a scalar, 1 bytes; parameter 0 of k has 8 bytes (u64)"},
		{func(l *Launch) {
			l.PTX = []byte(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry n()\n{\nret;\n}\n")
		}, "n takes 0 parameters; there are 4 --arg"},
		{func(l *Launch) {
			l.PTX = []byte(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry n(.param .align 64 .b8 m[128])\n{\nret;\n}\n")
			l.Args = l.Args[:1]
		}, "parameter 0 of n has 128 bytes (b8[128])"},
	} {
		l := direct(t, "")
		c.change(&l)
		if err := l.Resolve(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v; want %s", err, c.want)
		}
	}
}

// A C++ function is found by its name without parameters, unless there are several.
func TestResolveMangled(t *testing.T) {
	const header, body = ".version 8.0\n.target sm_80\n.address_size 64\n", "()\n{\nret;\n}\n"
	l := Launch{Name: "k.cu", Entry: "f", PTX: []byte(header + ".visible .entry _Z1fv" + body + ".visible .entry _Z2ffv" + body)}
	if err := l.Resolve(); err != nil || l.Entry != "_Z1fv" {
		t.Errorf("%s, %v", l.Entry, err)
	}
	l.Entry, l.PTX = "f", append(l.PTX, ".visible .func g"+body+".visible .entry _Z1fIfEvv"+body...)
	if err := l.Resolve(); err == nil || err.Error() != "k.cu has 3 entry functions; choose one by --entry: _Z1fv, _Z2ffv, _Z1fIfEvv" {
		t.Errorf("%v", err)
	}
}

func TestDirectJob(t *testing.T) {
	l := direct(t, "red.global.add.f32 [%rd2], 0f00000000;")
	l.Cooperative = true
	c := FromLaunch(l)
	job, err := c.Job(0)
	if err != nil || !job.Cooperative || !job.Unordered || job.Check() != nil {
		t.Fatalf("%+v, %v", job, err)
	}
	if a := job.Args; len(a[0].Input) != 4 || a[1].Output != 1 || len(a[2].InOut) != 4 || len(a[3].Scalar) != 1 {
		t.Errorf("the arguments are %+v", a)
	}
	got, err := c.DeviceOutcome(&device.Outcome{
		Outputs:  [][]byte{{3}, {4, 0, 0, 0}},
		Findings: []finding.Finding{finding.New(finding.WroteOutside, "argument 1: 4 bytes")},
	})
	if err != nil || got.Pass || got.Findings[0].Kind != finding.WroteOutside || got.Outputs[1].Arg != 2 || *got.Outputs[1].Min != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := new(Case).DeviceOutcome(&device.Outcome{}); err == nil {
		t.Error("a case from a file has the outcome of a device")
	}
}

func TestCheckRepeat(t *testing.T) {
	outcome := func(value byte) *Outcome {
		return &Outcome{Pass: true, Outputs: []Output{{Arg: 1, Array: &array.Array{Type: array.U8, Shape: []int{1}, Data: []byte{value}}}}}
	}
	const different = "argument 1 \"out\": 1 of 1 elements differ between schedule 0 and schedule 3, the first at 0 (1 and 2)"
	for _, c := range []struct {
		more string
		next byte
		pass bool
	}{{"", 1, true}, {"", 2, false}, {"red.global.add.f32 [%rd2], 0f00000000;", 2, true}} {
		first, next := outcome(1), outcome(c.next)
		for range 2 { // the second time the note is known
			FromLaunch(direct(t, c.more)).CheckRepeat(first, next, 3, false)
		}
		if next.Pass != c.pass || !c.pass && next.Findings[0].Detail != different {
			t.Errorf("%q %d: %+v", c.more, c.next, next)
		}
		if noted := strings.Join(first.Notes, "; "); c.more != "" && !strings.HasPrefix(noted, different+"; the floating-point atomics at ptx:") {
			t.Errorf("%q: the notes are %q", c.more, noted)
		}
	}
	new(Case).CheckRepeat(nil, outcome(1), 1, false)

	// A load that has missed a write is the cause of a difference, and otherwise nothing.
	for _, value := range []byte{1, 2} {
		next := outcome(value)
		cause := finding.New(finding.Race, "cause")
		next.stale = &cause
		FromLaunch(direct(t, "")).CheckRepeat(outcome(1), next, 3, false)
		if want := 2 * int(value-1); len(next.Findings) != want || want > 0 && next.Findings[0].Kind != finding.Race {
			t.Errorf("%d: %+v", value, next.Findings)
		}
	}

	// Automatic schedules leave floats to a reference. Integers must be equal.
	for _, c := range []struct {
		typed array.DType
		pass  bool
	}{{array.U8, false}, {array.E4M3, true}} {
		first, next := outcome(1), outcome(2)
		first.Outputs[0].Array.Type, next.Outputs[0].Array.Type = c.typed, c.typed
		FromLaunch(direct(t, "")).CheckRepeat(first, next, 1, true)
		if next.Pass != c.pass || len(first.Notes) > 0 != c.pass {
			t.Errorf("%s: %+v, notes %q", c.typed, next, first.Notes)
		}
	}
}

func TestOutputText(t *testing.T) {
	for _, c := range []struct {
		a    *array.Array
		want string
	}{
		{array.FromFloats(array.F64, []int{2}, []float64{0.1, math.NaN()}), "0.1 NaN"},
		{array.FromFloats(array.F32, []int{1}, []float64{0.1}), "0.1"},
		{&array.Array{Type: array.U64, Shape: []int{1}, Data: bytes.Repeat([]byte{0xff}, 8)}, "18446744073709551615"},
		{&array.Array{Type: array.I64, Shape: []int{1}, Data: bytes.Repeat([]byte{0xff}, 8)}, "-1"},
	} {
		o := newOutput(0, LaunchArg{Role: Out, Array: c.a}, c.a.Data)
		if got := strings.Join(o.First, " "); got != c.want {
			t.Errorf("%s; want %s", got, c.want)
		}
	}
	empty := array.FromFloats(array.F32, []int{1}, []float64{math.Inf(1)})
	if o := newOutput(0, LaunchArg{Role: Out, Array: empty}, empty.Data); o.Min != nil || o.NonFinite != 1 {
		t.Errorf("an output without a finite element: %+v", o)
	}
}

// A launch that does not fit into the memory of the simulator is an error.
func TestDirectRunTooLarge(t *testing.T) {
	l := direct(t, "", "i32:in:[5]", "f64:out:2000000000", "i32:inout:[1]", "i8:-1")
	if _, err := FromLaunch(l).Run(t.Context(), sim.Options{}); err == nil || !strings.Contains(err.Error(), "argument 1") {
		t.Errorf("%v", err)
	}
}

// Arguments that are not the parameters of the kernel are named, with what the parameter is.
func TestMistakenArguments(t *testing.T) {
	const scalars = `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .f32 x, .param .s32 n)
{
	ret;
}
`
	for _, test := range []struct {
		ptx  string
		args []string
		want string
	}{
		{scalars, []string{"f32:0.5", "i32:3"}, ""},
		{scalars, []string{"i32:3", "f32:0.5"}, "argument 0 is an integer; parameter 0 of k is a floating-point number (f32); check the order of --arg"},
		{scalars, []string{"f32:0.5", "f32:0.5"}, "argument 1 is a floating-point number; parameter 1 of k is an integer (s32); check the order of --arg"},
		{scalars, []string{"f32:0.5"}, "k takes 2 parameters (f32, s32); there is 1 --arg"},
		{strings.Replace(scalars, ", .param .s32 n", "", 1), nil, "k takes 1 parameter (f32); there are 0 --arg"},
		{scalars, []string{"f64:0.5", "i32:3"}, "argument 0 is a scalar, 8 bytes; parameter 0 of k has 4 bytes (f32)"},
	} {
		l := Launch{Name: "k.ptx", PTX: []byte(test.ptx), Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}}
		for i, text := range test.args {
			arg, err := ParseArgument(text, i, 0)
			if err != nil {
				t.Fatal(err)
			}
			l.Args = append(l.Args, arg)
		}
		if err := l.Resolve(); (err == nil) != (test.want == "") || err != nil && err.Error() != test.want {
			t.Errorf("%q: %v, want %q", test.args, err, test.want)
		}
	}
}

// A file that is no case is not recorded into, and stays as it is.
func TestRecordRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "case.json")
	if err := Record(file, nil, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"[":                                   "unexpected end of JSON input",
		"[]":                                  "found []; expected a JSON object",
		`{"expect": 1}`:                       "expect: found 1; expected a JSON object",
		`{"expect": {"args": []}}`:            "expect.args: found []; expected a JSON object",
		`{"expect": {"args": {"out": "00"}}}`: `expect.args.out: found "00"; expected a JSON object`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := Record(file, nil, nil); err == nil || !strings.HasSuffix(err.Error(), "case.json: "+want) {
			t.Errorf("%s: %v", text, err)
		}
		if left, err := os.ReadFile(file); err != nil || string(left) != text {
			t.Errorf("%s became %s, %v", text, left, err)
		}
	}
}
