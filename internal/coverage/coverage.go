package coverage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"attune/internal/ptx"
)

// Mark is what an instruction has done in the lanes of all warps.
type Mark uint8

// The marks. An instruction with a condition (a guard) may have both.
const (
	Ran     Mark = 1 << iota // in some lane
	Skipped                  // a running lane did not meet its condition
)

// What instructions are.
const (
	Reachable   Mark = 1 << (6 + iota) // of a function that the launched entry may call, or of the entry
	Conditional                        // with a condition
)

// Launches are the marks of the instructions of a program, over one or several launches.
type Launches struct {
	*Code
	Marks []Mark
	// Executed is how often warps have executed each instruction; nil if that was not counted.
	Executed []uint64
}

// Code is where the instructions of a program are.
type Code struct {
	Lines  []int         // in the PTX; 0 for none
	Frames [][]ptx.Frame // source lines, from the inside outwards
}

// Add adds the marks of other launches of the same program.
func (l *Launches) Add(other *Launches) {
	if other == nil {
		return
	}
	if l.Marks == nil {
		l.Code, l.Marks = other.Code, make([]Mark, len(other.Marks))
	}
	for i, m := range other.Marks {
		l.Marks[i] |= m
	}
	if l.Executed == nil && other.Executed != nil {
		l.Executed = make([]uint64, len(other.Executed))
	}
	for i, n := range other.Executed {
		l.Executed[i] += n
	}
}

// Clone returns a copy to which other launches can be added.
func (l *Launches) Clone() *Launches {
	return &Launches{l.Code, slices.Clone(l.Marks), slices.Clone(l.Executed)}
}

// Summary is the coverage of a run in its record.
type Summary struct {
	Lines  int     `json:"lines"`             // with code
	Never  []Range `json:"never,omitempty"`   // that no launch has executed
	Partly []Range `json:"partly,omitempty"`  // of which a part behind a condition was not executed
	OneWay []Range `json:"one_way,omitempty"` // whose conditions have had one outcome only, of the others

	// Shapes reach further lines. They were found by trying neighbours of the run's shapes.
	Shapes []Reaching `json:"shapes,omitempty"`
}

// Range is a range of lines of a file, both included.
type Range struct {
	File string `json:"file"`
	From int    `json:"from"`
	To   int    `json:"to"`
}

// String is file:line, or file:from-to.
func (r Range) String() string {
	if r.From == r.To {
		return fmt.Sprintf("%s:%d", r.File, r.From)
	}
	return fmt.Sprintf("%s:%d-%d", r.File, r.From, r.To)
}

// Reaching is a shape that executes lines that the run's shapes do not.
type Reaching struct {
	Shape string  `json:"shape"`
	Lines []Range `json:"lines"` // that it executes, or whose condition it gives the other outcome
}

// At returns the source line of the instruction at a line of the PTX, or of the last one before it that
// has one, and whether the instruction has been executed. Code that the compiler has added to a
// function has line 0 there; its line is then that of the call.
func (l *Launches) At(ptxLine int) (at ptx.Frame, ran bool) {
	last, from := 0, 0 // lines of the PTX
	for i, line := range l.Lines {
		if line > last && line <= ptxLine {
			last, ran = line, l.Marks[i]&Ran != 0
		}
		own := slices.IndexFunc(l.Frames[i], func(f ptx.Frame) bool { return f.Line > 0 })
		if own >= 0 && line > from && line <= ptxLine {
			from, at = line, l.Frames[i][own]
		}
	}
	return at, ran
}

// line is what the instructions of a source line have done.
type line struct {
	ran, left bool // some have run, some have not
	condition Mark // of those inside the line, not in a function that it calls
}

func (l line) never() bool { return !l.ran }
func (l line) oneWay() bool {
	return l.ran && l.condition&Conditional != 0 && l.condition&(Ran|Skipped) != Ran|Skipped
}
func (l line) partly() bool { return l.oneWay() && l.left }

// lines are the source lines that have code. The column of a Frame is 0.
func (l *Launches) lines() map[ptx.Frame]line {
	all := map[ptx.Frame]line{}
	if l.Code == nil {
		return all
	}
	for i, frames := range l.Frames {
		if l.Marks[i]&Reachable == 0 {
			continue
		}
		for depth, f := range frames {
			if f.Line == 0 { // code that the compiler has added
				continue
			}
			f.Column = 0
			at := all[f]
			at.ran, at.left = at.ran || l.Marks[i]&Ran != 0, at.left || l.Marks[i]&Ran == 0
			if depth == 0 && l.Marks[i]&Conditional != 0 {
				at.condition |= l.Marks[i]
			}
			all[f] = at
		}
	}
	return all
}

// Summary lists what is not covered. It is nil without line information.
func (l *Launches) Summary() *Summary {
	lines := l.lines()
	if len(lines) == 0 {
		return nil
	}
	return &Summary{
		Lines: len(lines), Never: ranges(lines, line.never), Partly: ranges(lines, line.partly),
		OneWay: ranges(lines, func(l line) bool { return l.oneWay() && !l.partly() }),
	}
}

// Complete reports whether every line is executed, and every condition has had both outcomes.
func (s *Summary) Complete() bool { return len(s.Never)+len(s.Partly)+len(s.OneWay) == 0 }

// Reached lists the lines that are not covered without another launch, and are with it.
func (l *Launches) Reached(other *Launches) []Range {
	with := l.Clone()
	with.Add(other)
	before, after := l.lines(), with.lines()
	for f, at := range after {
		gained := before[f].never() && !at.never() || before[f].oneWay() && !at.oneWay()
		after[f] = line{ran: gained}
	}
	return ranges(after, func(l line) bool { return l.ran })
}

// ranges are the lines of a kind. What has no code between two of them is in their range as well.
func ranges(lines map[ptx.Frame]line, is func(line) bool) []Range {
	var all []Range
	last := ptx.Frame{}
	for _, f := range slices.SortedFunc(maps.Keys(lines), compare) {
		if is(lines[f]) {
			if n := len(all); n > 0 && all[n-1].File == f.File && all[n-1].To == last.Line {
				all[n-1].To = f.Line
			} else {
				all = append(all, Range{f.File, f.Line, f.Line})
			}
		}
		last = f
	}
	return all
}

func compare(a, b ptx.Frame) int {
	return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
}
