package spec

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/tensor"
)

func TestAxes(t *testing.T) {
	shape := Axes("rows=8,n=256")
	names, values := shape.Axes()
	if diff := cmp.Diff([]string{"rows", "n"}, names) + cmp.Diff([]int{8, 256}, values); diff != "" {
		t.Error(diff)
	}
	if shape.String() != "rows=8,n=256" || shape.Value("n") != 256 || shape.Value("m") != 0 {
		t.Errorf("%s has n=%d, m=%d", shape, shape.Value("n"), shape.Value("m"))
	}
	defer func() {
		if recover() == nil {
			t.Error("a text that is no shape was accepted")
		}
	}()
	Axes("rows").Axes()
}

// A map with a key of another dynamic type panics if the type cannot be compared.
func TestShapesAreKeysOfMaps(t *testing.T) {
	attention, err := tensor.ParseShape("1x8x512x64")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[Shape]int{attention: 1, Axes("n=4"): 2}
	if seen[attention] != 1 || seen[Axes("n=4")] != 2 || seen[Axes("n=5")] != 0 {
		t.Errorf("the map is %v", seen)
	}
}

func TestShapeNames(t *testing.T) {
	k := &Kernel{
		Declared: new(Declaration),
		Groups: []Group{
			{"small", []Shape{Axes("n=4")}}, {"main", []Shape{Axes("n=8")}}, {"first", []Shape{Axes("n=4")}},
		},
	}
	if diff := cmp.Diff([]string{"small", "first"}, k.ShapeNames(Axes("n=4"))); diff != "" {
		t.Error(diff)
	}
	k.Declared = nil
	if names := k.ShapeNames(Axes("n=4")); names != nil {
		t.Errorf("a shape of attention has the names %v", names)
	}
}

func TestUnlimitedBudget(t *testing.T) {
	if !unlimited.Unlimited() || (Budget{Registers: 255}).Unlimited() || (Budget{}).Unlimited() {
		t.Error("only the budget that a stage does not declare is unlimited")
	}
}

func TestExpr(t *testing.T) {
	k := loadToy(t)
	d := &Declaration{Axes: []string{"rows", "n"}}
	v, err := k.Variant("stage2")
	if err != nil {
		t.Fatal(err)
	}
	shape := Axes("rows=8,n=256")
	values := d.Values(v, shape)
	names := vocabulary{one: "axis or knob", many: "axes, knobs", names: append(d.Axes, k.knobNames()...)}
	parse := func(text string) *Expr {
		t.Helper()
		rule, wrong := compile(text, names)
		if wrong != nil {
			t.Fatal(wrong)
		}
		return &Expr{text: text, line: 41, key: `"grid" in [launch]`, rule: rule}
	}
	for _, c := range []struct {
		text    string
		integer int
		real    float64
		wrong   string // of Int
	}{
		{"rows * n // TILE_N", 64, 64, ""},
		{"rows > 4", 1, 1, ""},
		{"rows > 8", 0, 0, ""},
		{"128", 128, 128, ""},
		{"1 / rows", 0, 0.125, "the result is a float; want a boolean or an integer (// divides without a fraction)"},
	} {
		e := parse(c.text)
		real, err := e.Real(values)
		if err != nil || real != c.real || e.String() != c.text {
			t.Errorf("%s is %g, %v; want %g", e, real, err, c.real)
		}
		integer, err := e.Int(values)
		if integer != c.integer || (err == nil) != (c.wrong == "") || err != nil && err.Error() != c.wrong {
			t.Errorf("%s is %d, %v; want %d, %s", e, integer, err, c.integer, c.wrong)
		}
	}
	e := parse("rows // 0")
	if _, err := e.Real(values); err == nil {
		t.Error("a division by zero has a result")
	}
	err = d.EvalError(e, shape, errors.New("division by zero"))
	if want := `kernel.toml:41: "grid" in [launch] ("rows // 0") for rows=8,n=256: division by zero`; err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}
