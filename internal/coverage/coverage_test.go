package coverage

import (
	"fmt"
	"testing"

	"attune/internal/ptx"
)

// frames are the source lines of an instruction: one of a.cu, or one of b.cuh called from a.cu.
func frames(lines ...int) []ptx.Frame {
	if len(lines) == 1 {
		return []ptx.Frame{{File: "a.cu", Line: lines[0], Column: 7}}
	}
	return []ptx.Frame{{File: "b.cuh", Line: lines[0]}, {File: "a.cu", Line: lines[1]}}
}

const reached = Reachable | Ran

// launches has a condition at a.cu:2 in front of b.cuh:9, which line 2 calls; a loop of lines 4 and 5;
// and a mask at line 7. Line 8 is of another entry.
func launches(condition, body, loop, mask Mark) *Launches {
	return &Launches{
		Code: &Code{
			Lines:  []int{10, 11, 12, 13, 14, 15, 16},
			Frames: [][]ptx.Frame{frames(1), frames(2), frames(9, 2), frames(4), frames(5), frames(7), frames(8)},
		},
		Marks: []Mark{reached, Reachable | Conditional | condition, Reachable | body, Reachable | loop, Reachable | loop, Reachable | Conditional | mask, 0},
	}
}

func TestSummary(t *testing.T) {
	for name, c := range map[string]struct {
		l    *Launches
		want string
	}{
		"everything":      {launches(Ran|Skipped, Ran, Ran, Ran|Skipped), "6 lines, never [], partly [], one way []"},
		"a branch not on": {launches(Ran, 0, Ran, Ran|Skipped), "6 lines, never [b.cuh:9], partly [a.cu:2], one way []"},
		"a loop not run":  {launches(Ran|Skipped, Ran, 0, Ran|Skipped), "6 lines, never [a.cu:4-5], partly [], one way []"},
		"a mask that never masks": {
			launches(Ran|Skipped, Ran, Ran, Ran), "6 lines, never [], partly [], one way [a.cu:7]",
		},
		"a mask that masks all": {
			launches(Ran|Skipped, Ran, Ran, Skipped), "6 lines, never [a.cu:7], partly [], one way []",
		},
	} {
		s := c.l.Summary()
		if got := fmt.Sprintf("%d lines, never %v, partly %v, one way %v", s.Lines, s.Never, s.Partly, s.OneWay); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if s.Complete() != (name == "everything") {
			t.Errorf("%s: complete is %t", name, s.Complete())
		}
	}
	if s := (&Launches{}).Summary(); s != nil {
		t.Errorf("without launches: %+v", s)
	}
}

func TestAddAndReached(t *testing.T) {
	var all Launches
	all.Add(nil)
	all.Add(launches(Ran, 0, Ran, Ran))
	other := launches(Skipped, Ran, 0, Skipped)
	before := fmt.Sprint(all.Marks)
	if got := fmt.Sprint(all.Reached(other)); got != "[a.cu:2 a.cu:7 b.cuh:9]" {
		t.Errorf("reached %s", got)
	}
	if got := fmt.Sprint(all.Reached(launches(Ran, 0, Ran, Ran))); got != "[]" {
		t.Errorf("the same launch again reaches %s", got)
	}
	if fmt.Sprint(all.Marks) != before {
		t.Error("Reached changes the marks")
	}
	if all.Executed != nil {
		t.Errorf("executions that no launch has counted: %v", all.Executed)
	}
	other.Executed = []uint64{1, 2, 3, 4, 5, 6, 7}
	all.Add(other)
	all.Add(other)
	if got := fmt.Sprint(all.Clone().Executed); got != "[2 4 6 8 10 12 14]" {
		t.Errorf("executed %s", got)
	}
	if !all.Summary().Complete() {
		t.Errorf("both: %+v", all.Summary())
	}
}

func TestAt(t *testing.T) {
	l := launches(Ran, 0, Ran, Ran)
	for line, want := range map[int]string{9: ":0 false", 10: "a.cu:1 true", 12: "b.cuh:9 false", 40: "a.cu:8 false"} {
		at, ran := l.At(line)
		if got := fmt.Sprint(at, " ", ran); got != want {
			t.Errorf("line %d: %s, want %s", line, got, want)
		}
	}
	l.Frames[2], l.Frames[3] = frames(0, 2), frames(0) // added by the compiler: in an inlined function, and in the kernel
	for line, want := range map[int]string{12: "a.cu:2 false", 13: "a.cu:2 true"} {
		at, ran := l.At(line)
		if got := fmt.Sprint(at, " ", ran); got != want {
			t.Errorf("line %d of added code: %s, want %s", line, got, want)
		}
	}
}
