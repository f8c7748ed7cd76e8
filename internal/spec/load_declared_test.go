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
		Source: "rmsnorm.cu", Entry: "rmsnorm", Flags: []string{"-I../include"}, Axes: []string{"rows", "n"},
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
