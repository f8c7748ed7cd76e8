package rule

import "testing"

// parseImported compiles a rule of the widest language.
func parseImported(t *testing.T, text string, names ...string) *Rule {
	t.Helper()
	r, wrong := Parse(text, Vocabulary{Names: names, Language: Imported})
	if len(wrong) > 0 {
		t.Fatalf("%s: %v", text, wrong)
	}
	return r
}

// The bounds of a rule contain its value for every assignment of the names that are left, and a rule
// with bounds never fails.
func TestBoundsAreSound(t *testing.T) {
	values := [][]Value{
		{Int(-3), Int(0), Int(2), Int(7)},
		{Int(1), Int(2), Int(5)},
		{Real(-0.5), Real(0.25), Real(3)},
		{Int(0), Int(1 << 40), Int(1 << 62), Int(-1 << 62)},
		{Text(""), Text("t")},
		{Bool(false), Bool(true)},
	}
	names := []string{"x", "y", "f", "z", "s", "b"}
	for _, text := range []string{
		"x + y - f", "x * y * f", "x / y", "x // y", "f // y", "x % y", "y % 9", "f % y", "y / x", "z * z", "z + z - z", "z * 0", "z * z * z < x",
		"x < y", "x <= f", "x > y", "x >= f", "x == y", "x != 2", "y == y", "not x", "not s", "not (x < 100)", "x or y", "x and y", "y > 0 or 1 // x",
		"x < -9 and 1 // x", "y if x > 0 else f", "y if x > -9 else f", "y if x < -9 else f", "y if s else f", "y if 1 // x else f", "s == 't'", "s < 't' or x",
		"x in [2, y]", "max(x, y)", "min(x, f)", "pow(abs(x), y)", "x << y", "-x", "+f", "~y", "1 // x + y", "(1 // x) < y", "abs(f)", "abs(x) % 2",
		"b == 1", "b != 1", "(x < y) != 1", "b == (x < y)", "b < (x < y)", "x and b", "b and x < -9", "(x and x < -9) == False", "x and y - y", "b + 1", "-b", "abs(b)",
		"min(x, y, f)", "y % -3", "x // -2", "f * 1e308 * 1e308 * f", "b or y", "not b", "(y if b else x) * f", "number(b) + x", "x % f", "max(b, x < y)", "x & y",
	} {
		r := parseImported(t, text, names...)
		for assigned := range 1 << len(r.Uses()) {
			checkBounds(t, r, values, assigned)
		}
	}
}

// checkBounds compares the bounds after each assignment of some names of the rule with all completions.
func checkBounds(t *testing.T, r *Rule, values [][]Value, assigned int) {
	t.Helper()
	NewSolver(values, nil, r.Uses()).Each(nil, -1, func(row []uint16) bool {
		env, ranges := make([]Value, len(values)), make([]Range, len(values))
		for i, name := range r.Uses() {
			env[name], ranges[name] = values[name][row[i]], rangeOf(values[name])
			if assigned>>i&1 != 0 {
				ranges[name] = rangeOf(env[name : name+1])
			}
		}
		limits, known := bound(r.root, ranges)
		v := r.Eval(env)
		if !known {
			return true
		}
		if low, ok := compare(limits.low, v); !ok || low > 0 {
			t.Fatalf("%s is %v at %v, below %v", r, v, env, limits)
		}
		if high, ok := compare(limits.high, v); !ok || high < 0 {
			t.Fatalf("%s is %v at %v, above %v", r, v, env, limits)
		}
		if limits.isTrue() && !v.Truth() || limits.isFalse() && v.Truth() {
			t.Fatalf("%s is %v at %v, and its bounds are %v", r, v, env, limits)
		}
		return true
	})
}
