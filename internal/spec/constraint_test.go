package spec

import (
	"strings"
	"sync"
	"testing"
)

var ruleKnobs = []string{"A", "B", "TILE_M"}

func TestConstraintHolds(t *testing.T) {
	check := func(rule string, a, b, tile int, want bool) {
		t.Helper()
		c, wrong := newConstraint(rule, "", ruleKnobs)
		if len(wrong) > 0 {
			t.Errorf("%q: %v", rule, wrong)
			return
		}
		if got, err := c.Holds([]int{a, b, tile}); err != nil || got != want {
			t.Errorf("%q with A=%d, B=%d, TILE_M=%d: %v, %v; want %v", rule, a, b, tile, got, err, want)
		}
	}
	check("not A or B", 0, 0, 0, true)
	check("not A or B", 1, 0, 0, false)
	check("not A or B", 1, 1, 0, true)
	check("A", 2, 0, 0, true) // any integer but 0 is true
	check("A", -1, 0, 0, true)
	check("A - A", 1, 0, 0, false)
	check("TILE_M * 2 == A", 64, 0, 32, true)
	check("A // 2 == 3 and A / 2 > 3.4", 7, 0, 0, true)
	check("-A // 2 == -4", 7, 0, 0, true)
	check("TILE_M in [16, 32, A]", 64, 0, 64, true)
	check("TILE_M in ((16, 32))", 0, 0, 64, false)
	check("TILE_M not in (16, 32)", 0, 0, 64, true)
	check("TILE_M == (64 if A else 32)", 0, 0, 32, true)
	check("TILE_M == (64 if A else 32)", 1, 0, 32, false)
	check("min(A, B) == 1 and max(A, B, TILE_M) == 9 and abs(-A) == 3", 3, 1, 9, true)
	check("True and (A == 0) == False", 1, 0, 0, true)
	check("A & 1 | B << 4 ^ 3", 1, 1, 0, true)
	check("(A or\n B)", 0, 1, 0, true)
	check("TILE_M * 4611686018427387904 > 0", 0, 0, 64, true) // no overflow
	check("B != 0 and A // B == 2", 4, 0, 0, false)           // the right side is not evaluated
}

func TestConstraintErrors(t *testing.T) {
	const notPlain = `a rule may contain only knobs, numbers, operators, min, max, abs, and lists after "in"`
	check := func(rule string, want ...string) {
		t.Helper()
		_, wrong := newConstraint(rule, "", ruleKnobs)
		var got []string
		for _, err := range wrong {
			got = append(got, err.Error())
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%q:\n%s\nwant:\n%s", rule, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	check("not A or", "column 9: got end of file, want primary expression")
	check("A = 1", "column 4: got '=' after expression, want EOF")
	check("0 < A < 3", "column 8: < does not associate with < (use parens)")
	check("TILE_N == 1", `unknown knob "TILE_N"; did you mean "TILE_M"?`)
	check("TILE_N or FOO", `unknown knob "TILE_N"; did you mean "TILE_M"?`, `unknown knob "FOO"; there are A, B, TILE_M`)
	check("1 < 2", "it names no knob")
	check("A == 'x'", "column 6: "+notPlain)
	check("A in B", "column 6: "+notPlain)
	check("A in [0] * B", "column 6: "+notPlain)
	check("[0] * 1000000000 or A", "column 1: "+notPlain)
	check("A, B", "column 1: "+notPlain)
	const written = "there are no comprehensions; write each item, as in N in [32, 64] or A > 0 and B > 0"
	check("any([x for x in [A, B]])", `column 1: there is no any(); join the conditions by "or"`)
	check("all([A % x == 0 for x in [1, 2]])", `column 1: there is no all(); join the conditions by "and"`)
	check("sum([A, B]) < 4", `column 1: there is no sum(); add the items by "+"`)
	check("A in range(8)", "column 6: there is no range(); write its bounds, as in 0 <= N and N < 8")
	check("A in [2 * x for x in [1, 2]]", "column 6: "+written)
	check("max([x for x in [A, B]])", "column 5: "+written)
	check("(lambda x: x)(A)", "column 1: "+notPlain)
	check("print(A)", "column 1: "+notPlain)
	check("A.real or B[0] or {}", "column 1: "+notPlain, "column 11: "+notPlain, "column 19: "+notPlain)
	check("max(*A)", "column 5: "+notPlain)
	check("max(A, key=B)", "column 8: "+notPlain)
	check("len", `unknown knob "len"; there are A, B, TILE_M`)
	check(strings.Repeat("A + ", 600)+"A", "column 1: the expression has 1201 operations and names; at most 1000 are supported")
	check(strings.Repeat("A + ", 400_000)+"A", "column 1: the expression has 1600001 bytes; at most 65536 are supported")
	check("min(A)", "column 1: min of 1 arguments")
}

func TestConstraintFails(t *testing.T) {
	check := func(rule, want string) {
		t.Helper()
		c, wrong := newConstraint(rule, "", ruleKnobs)
		if len(wrong) > 0 {
			t.Errorf("%q: %v", rule, wrong)
			return
		}
		_, err := c.Holds([]int{1, 0, 0})
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v; want %s", rule, err, want)
		}
	}
	check("A // B == 1", "floored division by zero")
	check("A % B", "integer modulo by zero")
	check("A + True", "unknown binary op: int + bool")
}

func TestConstraintConcurrently(t *testing.T) {
	c, wrong := newConstraint("A == B", "", ruleKnobs)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range 200 {
				if ok, err := c.Holds([]int{worker, i, 0}); err != nil || ok != (worker == i) {
					t.Errorf("%d == %d: %v, %v", worker, i, ok, err)
				}
			}
		})
	}
	group.Wait()
}

func BenchmarkConstraint(b *testing.B) {
	knobs := []string{"USE_CP_ASYNC", "USE_WMMA_QK", "USE_WMMA_PV", "TILE_M", "TILE_N"}
	values := []int{1, 1, 1, 32, 64}
	for _, rule := range []string{
		"not USE_WMMA_PV or USE_WMMA_QK",
		"TILE_M in (16, 32, 64) and TILE_M * TILE_N * 4 + (TILE_N * 72 if USE_CP_ASYNC else 0) <= 49152",
	} {
		b.Run(rule, func(b *testing.B) {
			c, wrong := newConstraint(rule, "", knobs)
			if len(wrong) > 0 {
				b.Fatal(wrong)
			}
			b.ReportAllocs()
			for b.Loop() {
				if ok, err := c.Holds(values); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}

func FuzzRule(f *testing.F) {
	f.Add("not A or B", 1, 0)
	f.Add("A in (1, 2, B) and TILE_M // B % 3 != -A", 4, 2)
	f.Add("min(A, 1 << B) if A else (B / 0.5 > 3)", 7, 100)
	f.Add("(1 << 511) * (1 << 511) * A", 1, 1)
	f.Add("(((A", 0, 0)
	f.Fuzz(func(t *testing.T, rule string, a, b int) {
		c, wrong := newConstraint(rule, "", ruleKnobs)
		if (c == nil) != (len(wrong) > 0) {
			t.Fatalf("%q: %v, %v", rule, c, wrong)
		}
		if c == nil {
			return
		}
		values := []int{a, b, 64}
		first, err := c.Holds(values)
		second, again := c.Holds(values)
		if first != second || (err == nil) != (again == nil) {
			t.Fatalf("%q: %v, %v and then %v, %v", rule, first, err, second, again)
		}
		if err != nil && first {
			t.Fatalf("%q holds despite an error: %v", rule, err)
		}
	})
}
