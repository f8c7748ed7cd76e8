package spec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"attune/internal/array"
)

func declaredText(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "declared", File))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// loadDeclared loads a text beside the files that the kernels of these tests name.
func loadDeclared(text string) (*Kernel, error) {
	files := fstest.MapFS{File: {Data: []byte(text)}, "expected": {Mode: os.ModeDir}}
	for _, name := range []string{"rmsnorm.cu", "other.cu", "naive.cu", "reference.py", "peers.py", "x.npy", "x.safetensors"} {
		files[name] = &fstest.MapFile{}
	}
	return Load(files)
}

func mustLoadDeclared(t testing.TB, text string) *Kernel {
	t.Helper()
	k, err := loadDeclared(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestLoadDeclared(t *testing.T) {
	k := mustLoadDeclared(t, declaredText(t))
	text := cmp.Transformer("text", func(e *Expr) string {
		if e == nil {
			return "nil"
		}
		return e.text
	})
	e := func(text string) *Expr { return &Expr{text: text} }
	one := e("1")
	want := &Declaration{
		Source: "rmsnorm.cu", Entry: "rmsnorm", Flags: []string{"-I../include"}, FlagsAt: "kernel.toml:4", Axes: []string{"rows", "n"},
		Args: []Arg{
			{Name: "x", Type: array.F16, Line: 11, Shape: []*Expr{e("rows"), e("n")}, Fill: Fill{Kind: "normal"}},
			{Name: "w", Type: array.F16, Line: 16, Shape: []*Expr{e("n")}, Fill: Fill{Kind: "uniform", A: e("0.5"), B: e("1.5")}},
			{Name: "y", Role: Out, Type: array.F16, Line: 21, Shape: []*Expr{e("rows"), e("n")}},
			{Name: "n", Role: Scalar, Type: array.I32, Line: 26, Value: e("n")},
			{Name: "eps", Role: Scalar, Type: array.F32, Line: 30, Value: e("1e-5")},
		},
		Grid: [3]*Expr{e("rows"), one, one}, Block: [3]*Expr{e("THREADS"), one, one}, Shared: e("THREADS // 32 * 4"),
		Reference: Reference{Kind: "python", Path: "reference.py", Line: 40},
		Tolerance: map[string]OutputTolerance{"y": {Abs: 2e-3, Rel: 1e-3, Given: true}},
		FLOPs:     e("4 * rows * n"), Bytes: e("2 * (2 * rows * n + n)"),
		SHA256: k.Declared.SHA256,
	}
	if diff := cmp.Diff(want, k.Declared, text); diff != "" {
		t.Error(diff)
	}
	if k.Problem != DeclaredProblem || len(k.Declared.SHA256) != 64 {
		t.Errorf("the problem is %q, the hash %q", k.Problem, k.Declared.SHA256)
	}
	run := Run{
		Shapes: []string{"small", "main"}, Benchmark: []string{"main"}, Seeds: []uint64{0, 1},
		SimShapes: []string{"small"}, SimSeeds: []uint64{0}, Quick: []string{"small", "main"}, SimQuick: []string{"small"},
	}
	if diff := cmp.Diff(run, k.Run); diff != "" {
		t.Error(diff)
	}
	groups := []Group{{"small", []Shape{Axes("rows=8,n=256")}}, {"main", []Shape{Axes("rows=4096,n=4096")}}}
	if diff := cmp.Diff(groups, k.Groups); diff != "" {
		t.Error(diff)
	}
	v, err := k.Variant("rmsnorm+THREADS=128")
	if err != nil {
		t.Fatal(err)
	}
	d := k.Declared
	if bytes, err := d.Shared.Int(d.Values(v, Axes("rows=8,n=256"))); bytes != 16 || err != nil {
		t.Errorf("%s is %d, %v", d.Shared, bytes, err)
	}
	s := k.Stages[0]
	if len(k.Stages) != 1 || s.Source != "rmsnorm.cu" || !s.Budget.Unlimited() || strings.Join(s.Archs, " ") != "sm_80 sm_89 sm_90a" {
		t.Errorf("%+v", s)
	}
	if k.Knobs[0].Layer != Micro {
		t.Errorf("%+v", k.Knobs[0])
	}
}

// declaredSwap is toySwap for the declared kernel of the tests.
func declaredSwap(t *testing.T) func(old, text string, want ...string) {
	whole := declaredText(t)
	return func(old, text string, want ...string) {
		t.Helper()
		if strings.Count(whole, old) == 0 {
			t.Fatalf("the kernel has no %q", old)
		}
		_, err := loadDeclared(strings.Replace(whole, old, text, 1))
		if diff := cmp.Diff(strings.Join(want, "\n"), fmt.Sprint(err)); diff != "" {
			t.Errorf("with %q for %q:\n%s", text, old, diff)
		}
	}
}

// Every form of DESIGN's format that the example above does not have.
func TestDeclaredForms(t *testing.T) {
	const head = "name = 'k'\nsource = 'other.cu'\n"
	const tail = "\n[reference]\npython = 'reference.py'\n"
	const output = "[[arg]]\nname = 'y'\ntype = 'f32'\nshape = ['n']\nout = true\n"
	shape := Axes("n=64")
	words := func(items ...any) string { return strings.TrimSpace(fmt.Sprintln(items...)) }
	for _, c := range []struct {
		name, text string
		check      func(k *Kernel, d *Declaration) any
		want       any
	}{
		{
			"numbers for expressions", head + "[shapes]\none = { n = 64 }\n" + output + "[launch]\ngrid = 32\nblock = [128, 2]\nshared = 1024\ncluster = 2" + tail,
			func(k *Kernel, d *Declaration) any {
				return words(d.Grid, d.Block, d.Shared, d.Cluster, k.Archs)
			},
			"[32 1 1] [128 2 1] 1024 [2 1 1] [sm_90a]",
		},
		{
			"expressions over axes", head + "[shapes]\none = { n = 64 }\n" + output +
				"[[arg]]\nname = 'x'\ntype = 'f32'\nshape = 'n'\nfill = 'uniform(-1.0 / n, sqrt(n))'\n[launch]\ngrid = 'ceil(n / 48)'\nblock = 'min(n, 32)'" + tail,
			func(k *Kernel, d *Declaration) any {
				values := d.Values(k.Stages[0].Variant(), shape)
				a, err := d.Args[1].Fill.A.Real(values)
				b, err2 := d.Args[1].Fill.B.Real(values)
				grid, err3 := d.Grid[0].Int(values)
				return words(d.Args[1].Fill.Kind, a, b, grid, err, err2, err3)
			},
			"uniform -0.015625 8 2 <nil> <nil> <nil>",
		},
		{
			"no axes", head + strings.ReplaceAll(output, "'n'", "64") + "[launch]\ngrid = 1\nblock = 1" + tail,
			func(k *Kernel, d *Declaration) any {
				all, err := k.Shapes("default")
				return words(all, err, k.Run, k.ShapeNames(all[0]), d.Values(k.Stages[0].Variant(), all[0]))
			},
			"[default] <nil> {[default] [default] [0 1] [default] [0] [default] [default]} [default] []",
		},
		{
			"in place, integers and files", head + "[shapes]\none = { n = 64 }\n" +
				"[[arg]]\nname = 'count'\ntype = 'u32'\nshape = ['n']\ninout = true\nout = false\n" +
				"[[arg]]\nname = 'x'\ntype = 'i8'\nshape = ['n']\nfill = 'integers(-128, 128)'\n" +
				"[[arg]]\nname = 'a'\ntype = 'bf16'\nshape = ['n']\nfile = './x.safetensors#layer.0'\n" +
				"[[arg]]\nname = 'b'\ntype = 'e4m3'\nshape = ['n']\nfile = 'in/{shape}-{seed}.npy'\n" +
				"[[arg]]\nname = 'low'\ntype = 'f64'\nvalue = -inf\n[[arg]]\nname = 'none'\ntype = 'f32'\nvalue = 'nan'\n" +
				"[[arg]]\nname = 'flag'\ntype = 'u8'\nvalue = 'n > 3'\n[[arg]]\nname = 'half'\ntype = 'f16'\nvalue = 0.5\n" +
				"[[arg]]\nname = 'two'\ntype = 'f32'\nvalue = 2.0\n" +
				"[launch]\ngrid = 1\nblock = 1\ncooperative = true" + tail,
			func(k *Kernel, d *Declaration) any {
				var text []string
				values := d.Values(k.Stages[0].Variant(), shape)
				for _, a := range d.Args {
					item := words(a.Role, a.Fill.Kind+a.File)
					if a.Value != nil {
						value, err := a.Value.Real(values)
						item += " " + words("is", value, err)
					}
					text = append(text, item)
				}
				return words(strings.Join(text, ", "), d.Cooperative)
			},
			"2 zeros, 0 integers, 0 x.safetensors#layer.0, 0 in/{shape}-{seed}.npy, 4 is -Inf <nil>, 4 is NaN <nil>, 4 is 1 <nil>, 4 is 0.5 <nil>, 4 is 2 <nil> true",
		},
		{
			"a tensor map above its buffer", head + "[shapes]\none = { n = 64 }\n" +
				"[[arg]]\nname = 'm'\ntensormap = { arg = 'y', box = 'n' }\n" + output + "[launch]\ngrid = 1\nblock = 1" + tail,
			func(k *Kernel, d *Declaration) any {
				m := d.Args[0].Map
				return words(d.Args[0].Role, d.Args[0].Type, m.Arg, m.Box, m.Swizzle, m.OOB, k.Stages[0].Archs)
			},
			"5 f32 1 [n] none zero [sm_90a]",
		},
		{
			"a source as reference", head + "entry = 'my_kernel'\n[shapes]\none = { n = 64 }\n" + output +
				"[launch]\ngrid = 1\nblock = 1\n[reference]\nsource = './naive.cu'\ngrid = ['n']\nshared = 4\n",
			func(_ *Kernel, d *Declaration) any {
				r := d.Reference
				return words(r.Kind, r.Path, r.Entry, r.Grid, r.Block[0] == nil, r.Shared)
			},
			"source naive.cu my_kernel [n 1 1] true 4",
		},
		{
			"files as reference, tolerances", head + "[shapes]\none = { n = 64 }\n" + output +
				"[launch]\ngrid = 1\nblock = 1\n[reference]\nfiles = 'expected'\n[tolerance]\ny = { bad_fraction = 0.25 }\n[[peer]]\npython = 'peers.py:torch_sum'\n[work]\n",
			func(_ *Kernel, d *Declaration) any {
				return words(d.Reference.Kind, d.Tolerance, d.Peers, d.FLOPs == nil)
			},
			"files map[y:{7.006492321624085e-46 5.960464477539063e-08 0.25 true true}] [{torch_sum peers.py torch_sum}] true",
		},
	} {
		k, err := loadDeclared(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(c.want, c.check(k, k.Declared)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestDeclaredStages(t *testing.T) {
	text := declaredText(t) + `
[[stage]]
name = "rmsnorm"
[[stage]]
name = "wide"
source = "./other.cu"
knobs = { THREADS = 512 }
parent = "rmsnorm"
budget = { registers = 64 }
archs = ["sm_90a"]
[[constraint]]
rule = "THREADS >= 128"
[[selection]]
name = "best"
parent = "rmsnorm"
[[selection.predicate]]
name = "elements"
rule = "rows * n"
[[selection.choice]]
when = "elements > 4096"
variant = "wide"
[[selection.choice]]
variant = "rmsnorm+THREADS=128"
`
	k := mustLoadDeclared(t, text)
	wide, err := k.Variant("wide")
	if err != nil {
		t.Fatal(err)
	}
	parent, ok := wide.Parent()
	if !ok || parent.String() != "rmsnorm" || wide.RequiredSpeedup() != 0 || wide.Stage().Source != "other.cu" {
		t.Errorf("%s over %s, required %g", wide, parent, wide.RequiredSpeedup())
	}
	if b := wide.Stage().Budget; b.Registers != 64 || b.Unlimited() || b.SpillBytes != unlimited.SpillBytes {
		t.Errorf("%+v", b)
	}
	best := k.Selection("best")
	for shape, want := range map[Shape]string{Axes("rows=8,n=256"): "rmsnorm+THREADS=128", Axes("rows=4096,n=4096"): "wide"} {
		if c, err := best.Choose(shape); err != nil || c.Variant.String() != want {
			t.Errorf("%s: %s, %v", shape, c.Variant, err)
		}
	}
	if strings.Join(best.Archs, " ") != "sm_90a" || best.Speedup != 0 {
		t.Errorf("%+v", best)
	}
	if _, err := k.Variant("rmsnorm+THREADS=64"); err == nil || !strings.HasSuffix(err.Error(), "with THREADS=64") {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff([]Setting{{"THREADS", 512}}, k.Declared.Settings(wide)); diff != "" {
		t.Error(diff)
	}
}

// Check finds what the shapes and stages of the file do not have.
func TestCheckDeclaration(t *testing.T) {
	k := mustLoadDeclared(t, strings.Replace(declaredText(t), `grid = ["rows"]`, `grid = ["rows", "n // THREADS"]`, 1))
	v, err := k.Variant("rmsnorm+THREADS=512")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Declared.Check(v, Axes("rows=8,n=512")); err != nil {
		t.Error(err)
	}
	err = k.Declared.Check(v, Axes("rows=0,n=256"))
	want := `kernel.toml:14: "shape" in [[arg]] "x" ("rows") for rows=0,n=256: it is 0; want 1 to 2147483647
kernel.toml:24: "shape" in [[arg]] "y" ("rows") for rows=0,n=256: it is 0; want 1 to 2147483647
kernel.toml:36: "grid" in [launch] ("rows") for rows=0,n=256: it is 0; want 1 to 2147483647
kernel.toml:36: "grid" in [launch] ("n // THREADS") for rows=0,n=256 with THREADS=512: it is 0; want 1 to 65535`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Error(diff)
	}
}

func TestDeclaredShapes(t *testing.T) {
	k := mustLoadDeclared(t, declaredText(t))
	for _, c := range []struct{ text, want string }{
		{"small", "[rows=8,n=256]"},
		{"small,rows=8,n=256", "[rows=8,n=256]"},
		{"n=4,rows=2,main", "[rows=2,n=4 rows=4096,n=4096]"},
		{" rows = 1 , n=2, n=3,rows=4,small", "[rows=1,n=2 rows=4,n=3 rows=8,n=256]"},
		{"smal", `unknown shape "smal"; did you mean "small"?`},
		{"1x8x512x64", `unknown shape "1x8x512x64"; there are small, main, and any other such as rows=8,n=256`},
		{"", `unknown shape ""; there are small, main, and any other such as rows=8,n=256`},
		{"rows=8", `shape "rows=8" has no n; the axes are rows, n`},
		{"rows=8,rows=9,n=1", `shape "rows=8" has no n; the axes are rows, n`},
		{"rows=8,n=1,m=1", `shape "m=1": unknown axis "m"; there are rows, n`},
		{"row=8,n=1", `shape "row=8,n=1": unknown axis "row"; did you mean "rows"?`},
		{"rows=x,n=1", `shape "rows=x,n=1": rows is "x"; want an integer from 0 to 2147483647`},
		{"rows=-1,n=1", `shape "rows=-1,n=1": rows is "-1"; want an integer from 0 to 2147483647`},
		{"rows=8,small", `shape "rows=8" has no n; the axes are rows, n`},
	} {
		shapes, err := k.Shapes(c.text)
		got := fmt.Sprint(shapes)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q: %s; want %s", c.text, got, c.want)
		}
	}
	fixed := mustLoadDeclared(t, "name = 'rmsnorm'\n[[arg]]\nname = 'y'\ntype = 'u64'\nshape = 4\nout = true\n"+
		"[[arg]]\nname = 'n'\ntype = 'u64'\nvalue = 4\n[launch]\ngrid = 1\nblock = 1\n[reference]\npython = 'reference.py'\n")
	for text, want := range map[string]string{
		"defalt": `unknown shape "defalt"; did you mean "default"?`,
		"small":  `unknown shape "small"; there are default`,
		"n=4":    `unknown shape "n=4"; the kernel has no axes and the one shape default`,
	} {
		if _, err := fixed.Shapes(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v", text, err)
		}
	}
	named := mustLoadDeclared(t, "name = 'rmsnorm'\nshapes = { one = {} }\n[[arg]]\nname = 'y'\ntype = 'u8'\nshape = 4\nout = true\n"+
		"[launch]\ngrid = 1\nblock = 1\n[reference]\npython = 'reference.py'\n")
	if shapes, err := named.Shapes("one,default"); err != nil || len(shapes) != 1 || shapes[0] != Shape(noAxes) {
		t.Errorf("%v, %v", shapes, err)
	}
	if shape, err := fixed.ParseShape("default"); shape != Shape(noAxes) || err != nil {
		t.Errorf("%v, %v", shape, err)
	}
	for text, want := range map[string]string{
		"rows=8,rows=9": `shape "rows=8,rows=9" sets rows twice; the axes are rows, n`,
		"small":         `shape "small": "small" is no axis=value; the axes are rows, n`,
	} {
		if _, err := k.ParseShape(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v", text, err)
		}
	}
	shape, err := k.ParseShape("n=256,rows=8")
	if err != nil || shape != Shape(Axes("rows=8,n=256")) {
		t.Errorf("%v, %v", shape, err)
	}
}

// The simulator takes small shapes, and the smallest if there is none.
func TestDeclaredRun(t *testing.T) {
	check := func(shapes, more string, want Run) {
		t.Helper()
		text := declaredText(t)
		start, end := strings.Index(text, "small ="), strings.Index(text, "[[arg]]")
		k := mustLoadDeclared(t, text[:start]+shapes+"\n"+text[end:]+more)
		if diff := cmp.Diff(want, k.Run); diff != "" {
			t.Error(diff)
		}
	}
	seeds, first := []uint64{0, 1}, []uint64{0}
	check("a = { rows = 4096, n = 512 }\nb = { rows = 4096, n = 256 }", "", Run{
		Shapes: []string{"a", "b"}, Benchmark: []string{"a", "b"}, Seeds: seeds,
		SimShapes: []string{"b"}, SimSeeds: first, Quick: []string{"a"}, SimQuick: []string{"b"},
	})
	check("a = { rows = 4, n = 2 }\nb = { rows = 4, n = 5 }\nc = { rows = 4, n = 3 }", "", Run{
		Shapes: []string{"a", "b", "c"}, Benchmark: []string{"a", "b", "c"}, Seeds: seeds,
		SimShapes: []string{"a", "b", "c"}, SimSeeds: first, Quick: []string{"a", "b"}, SimQuick: []string{"a", "b", "c"},
	})
	check("a = { rows = 4, n = 5 }\nb = { rows = 4, n = 2 }\nbenchmark = 'b'", "[run]\nseeds = [3, 4]\nshapes = ['a', 'b', 'rows=1,n=1']\n", Run{
		Shapes: []string{"a", "b", "rows=1,n=1"}, Benchmark: []string{"b"}, Seeds: []uint64{3, 4},
		SimShapes: []string{"a", "b", "rows=1,n=1"}, SimSeeds: []uint64{3}, Quick: []string{"a", "b"}, SimQuick: []string{"a", "b", "rows=1,n=1"},
	})
	check("a = { rows = 4, n = 5 }\nb = { rows = 4, n = 2 }", "[run]\nbenchmark = ['a']\nsim_shapes = ['b']\nsim_seeds = [7]\nquick = ['b']\n", Run{
		Shapes: []string{"a", "b"}, Benchmark: []string{"a"}, Seeds: seeds,
		SimShapes: []string{"b"}, SimSeeds: []uint64{7}, Quick: []string{"b"}, SimQuick: []string{"b"},
	})
	// The simulator leaves out what is too large of a quick run.
	check("a = { rows = 4, n = 5 }\nb = { rows = 4096, n = 4096 }", "[run]\nquick = ['a', 'b']\n", Run{
		Shapes: []string{"a", "b"}, Benchmark: []string{"a", "b"}, Seeds: seeds,
		SimShapes: []string{"a"}, SimSeeds: first, Quick: []string{"a", "b"}, SimQuick: []string{"a"},
	})
	check("a = { rows = 4, n = 5 }\nb = { rows = 4096, n = 4096 }", "[run]\nquick = ['b']\n", Run{
		Shapes: []string{"a", "b"}, Benchmark: []string{"a", "b"}, Seeds: seeds,
		SimShapes: []string{"a"}, SimSeeds: first, Quick: []string{"b"}, SimQuick: []string{"a"},
	})
}

// A default of [axes] is a part of every shape that does not give the axis, under the same name as if
// it did.
func TestAxisDefaults(t *testing.T) {
	text := strings.Replace(declaredText(t), "small = { rows = 8, n = 256 }", "small = { n = 1, rows = 2 }\nfew = { rows = 3 }\npadded = { rows = 4, pad = 8 }", 1) +
		"\n[axes]\npad = 0\nn = 256\n"
	k := mustLoadDeclared(t, text)
	want := []string{"n=1,rows=2,pad=0", "n=256,rows=3,pad=0", "n=256,rows=4,pad=8"}
	for i, w := range want {
		if got := k.Groups[i].Shapes[0].String(); got != w {
			t.Errorf("%s is %s, want %s", k.Groups[i].Name, got, w)
		}
	}
	for text, w := range map[string]string{
		"rows=7": "n=256,rows=7,pad=0", "pad=1,rows=7": "n=256,rows=7,pad=1", "rows=7,rows=8": "n=256,rows=7,pad=0 n=256,rows=8,pad=0",
		"n=256,rows=3,pad=0": "n=256,rows=3,pad=0",
	} {
		shapes, err := k.Shapes(text)
		if got := strings.Trim(fmt.Sprint(shapes), "[]"); err != nil || got != w {
			t.Errorf("%s is %s, %v; want %s", text, got, err, w)
		}
	}
	if _, err := k.Shapes("n=2"); err == nil || !strings.Contains(err.Error(), `shape "n=2" has no rows`) {
		t.Errorf("a shape without an axis that has no default: %v", err)
	}
}

func TestAxisDefaultErrors(t *testing.T) {
	swap := declaredSwap(t)
	swap("[shapes]", "[axes]\nrows = -1\n2x = 3\n[shapes]",
		`kernel.toml:7: "rows" in [axes] is -1; want an integer from 0 to 2147483647`,
		`kernel.toml:8: axis "2x" in [axes] is no name of an axis; want a letter, then letters, digits or _`)
	swap("[shapes]", "[axes]\nn = 3\n[shape]", `kernel.toml:6: [axes] gives defaults to the axes of [shapes], which the file does not have`,
		`kernel.toml:8: unknown key "shape" in the file; did you mean "shapes"?`,
		`kernel.toml:16: "shape" in [[arg]] "x" is "rows": unknown axis or knob "rows"; there are THREADS; [shapes] declares no axis`,
		`kernel.toml:16: "shape" in [[arg]] "x" is "n": unknown axis or knob "n"; there are THREADS; [shapes] declares no axis`)
}
