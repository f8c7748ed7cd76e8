package mutate

import (
	"reflect"
	"testing"
)

// TestAdd joins the reports of parts: the whole is that of one machine.
func TestAdd(t *testing.T) {
	mutants := []Mutant{{Kind: "add", Line: 3}, {Kind: "ld", Line: 9}, {Kind: "add", Line: 5}, {Kind: "bar", Line: 1}, {Kind: "ld", Line: 7}}
	count := func(r *Report, which ...int) {
		for _, i := range which {
			switch m := mutants[i]; i {
			case 0, 3:
				r.Kill(m, "incorrect")
			case 1:
				r.Survive(m, true)
			case 4:
				r.Kill(m, "")
			default:
				r.Survive(m, false)
			}
		}
	}
	whole, sum := NewReport(9), NewReport(9)
	count(&whole, 0, 1, 2, 3, 4)
	for _, part := range [][]int{{4, 2}, {0}, {}, {3, 1}} {
		one := NewReport(9)
		count(&one, part...)
		sum.Add(one)
	}
	if !reflect.DeepEqual(sum, whole) {
		t.Errorf("the sum is %+v, want %+v", sum, whole)
	}
	if sum.KillRate != 0.75 || sum.KilledBy["incorrect"] != 2 || len(sum.Survivors) != 1 {
		t.Errorf("%+v", sum)
	}
	first, second := NewReport(2), NewReport(2)
	first.Survive(Mutant{Kind: "add", Line: 8}, false)
	second.Survive(Mutant{Kind: "add", Line: 2}, false)
	first.Add(second)
	if first.Survivors[0].Line != 2 || first.KillRate != 0 {
		t.Errorf("survivors are not in the order of lines: %+v", first)
	}
}
