package tune

import (
	"testing"
)

// The bounds of an expression contain its value for every assignment of the knobs that are left, and
// an expression with certain bounds never fails.
func TestBoundsAreSound(t *testing.T) {
	knobs := []Knob{
		ints("x", -3, 0, 2, 7), ints("y", 1, 2, 5),
		{Name: "f", Values: []Value{Real(-0.5), Real(0.25), Int(3)}},
		ints("z", 0, 1<<40, 1<<62, -1<<62),
		{Name: "s", Values: []Value{Text(""), Text("t")}},
	}
	names := []string{"x", "y", "f", "z", "s"}
	for _, text := range []string{
		"x + y - f", "x * y * f", "x / y", "x // y", "f // y", "x % y", "y % 9", "f % y", "y / x", "z * z", "z + z - z", "z * 0", "z * z * z < x",
		"x < y", "x <= f", "x > y", "x >= f", "x == y", "x != 2", "y == y", "not x", "not s", "not (x < 100)", "x or y", "x and y", "y > 0 or 1 // x",
		"x < -9 and 1 // x", "y if x > 0 else f", "y if x > -9 else f", "y if x < -9 else f", "y if s else f", "y if 1 // x else f", "s == 't'", "s < 't' or x",
		"x in [2, y]", "max(x, y)", "abs(x) ** y", "x << y", "-x", "~y", "1 // x + y", "(1 // x) < y",
	} {
		terms, err := compile(text, names)
		if err != nil {
			t.Fatal(err)
		}
		for _, term := range terms {
			for assigned := range 1 << len(knobs) {
				checkBounds(t, knobs, term, assigned)
			}
		}
	}
}

// checkBounds compares the bounds after each assignment of some knobs with all completions.
func checkBounds(t *testing.T, knobs []Knob, term *expression, assigned int) {
	t.Helper()
	a := &assignment{assigned: make([]bool, len(knobs)), ranges: make([]bounds, len(knobs))}
	for i, k := range knobs {
		a.assigned[i] = assigned>>i&1 != 0
		a.ranges[i] = rangeOfValues(k.Values)
	}
	all := mustSpace(t, knobs)
	for p := range all.All() {
		a.env = all.Values(p)
		b, failed := a.bounds(term.value)
		v := term.value.eval(a.env)
		x, isNumber := v.Float()
		switch {
		case failed && v.kind != badKind:
			t.Fatalf("%s fails at %v and is %v", term.text, a.env, v)
		case b.known && (!isNumber || x < b.low || x > b.high || b.whole && v.kind == realKind):
			t.Fatalf("%s: %+v at %v, and is %v", term.text, b, a.env, v)
		case b.isTrue() && !v.truth(), b.isFalse() && v.truth():
			t.Fatalf("%s: the truth of %+v at %v is that of %v", term.text, b, a.env, v)
		}
	}
}
