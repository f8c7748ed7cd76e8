package finding

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"attune/internal/ptx"
)

// Severity says whether a finding matters on a chip.
type Severity string

// The severities.
const (
	Error  Severity = "error"  // the kernel is wrong on hardware, or may be
	Strict Severity = "strict" // PTX does not define it, but it works on hardware
	Note   Severity = "note"   // it is allowed, or explains a difference that is accepted
)

// Launch is the launch of a job in which a finding appeared. The zero value is the first launch under
// schedule 0. A finding about the difference of two launches names both in its detail.
type Launch struct {
	Relaunch int    `json:"relaunch,omitempty"` // further launches count from 1
	Inputs   string `json:"inputs,omitempty"`   // of a relaunch, if their seed repeats them
	Schedule int    `json:"schedule,omitempty"` // of the simulator
}

// String names the launch; it is empty for the first.
func (l Launch) String() string {
	var parts []string
	if l.Relaunch > 0 {
		parts = append(parts, strings.TrimSuffix(fmt.Sprintf("relaunch %d on %s", l.Relaunch, l.Inputs), " on "))
	}
	if l.Schedule > 0 {
		parts = append(parts, fmt.Sprintf("schedule %d", l.Schedule))
	}
	return strings.Join(parts, ", ")
}

// Place is an instruction in PTX and in the source that it was compiled from.
type Place struct {
	PTXLine int    `json:"ptx_line"`
	PTX     string `json:"ptx"`              // the instruction
	Source  string `json:"source,omitempty"` // file:line and those of the calls, where the module has line information
	File    string `json:"file,omitempty"`   // of the line inside inlined functions, with its path
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"` // from 1; 0 if it is not known

	Callers []ptx.Frame `json:"callers,omitempty"` // the calls of inlined functions, from the inside outwards
	Excerpt string      `json:"excerpt,omitempty"` // the source line of Own, as it was compiled; empty if it is not known
}

// PlaceOf describes an instruction of a module.
func PlaceOf(module *ptx.Module, in *ptx.Instruction) Place {
	p := Place{PTXLine: in.Line, PTX: in.String(), Source: module.SourceLine(in.Location)}
	if frames := module.Frames(in.Location); len(frames) > 0 {
		p.setFrames(frames)
	}
	return p
}

func (p *Place) setFrames(frames []ptx.Frame) {
	p.File, p.Line, p.Column, p.Callers = frames[0].File, frames[0].Line, frames[0].Column, frames[1:]
	if len(p.Callers) == 0 {
		p.Callers = nil
	}
}

// String returns the source line, if known, and the PTX line.
func (p Place) String() string {
	if p.PTXLine == 0 {
		return ""
	}
	return ptx.Place(p.Source, p.PTXLine)
}

// Frames are the source lines of the instruction, from the innermost inlined function outwards. There
// are none without line information.
func (p Place) Frames() []ptx.Frame {
	if p.File == "" {
		return nil
	}
	return append([]ptx.Frame{{File: p.File, Line: p.Line, Column: p.Column}}, p.Callers...)
}

// Own is the innermost source line in the kernel's own folder, or else the innermost. Headers of -I
// begin with .. or -I. Code that the compiler has added has line 0, which shows nothing.
func (p Place) Own() (at ptx.Frame, known bool) {
	frames := p.Frames()
	if len(frames) == 0 {
		return ptx.Frame{}, false
	}
	if inSource := slices.IndexFunc(frames, func(f ptx.Frame) bool { return f.Line > 0 }); inSource > 0 {
		frames = frames[inSource:]
	}
	own := slices.IndexFunc(frames, func(f ptx.Frame) bool {
		return f.Line > 0 && filepath.IsLocal(filepath.FromSlash(f.File)) && !strings.HasPrefix(f.File, "-")
	})
	return frames[max(own, 0)], true
}

// Variable is what an instruction accesses: an argument of the kernel, a variable, a register.
type Variable struct {
	Name  string `json:"name"`            // empty for an argument without a name
	Space Space  `json:"space,omitempty"` // empty for what is no memory
	Index int    `json:"index,omitempty"` // of an argument, from 0
	Bytes int    `json:"bytes,omitempty"` // its size; 0 if it is not known

	// Offset is the first byte of the access. It is not in the variable if the access is out of bounds.
	Offset       int `json:"offset,omitempty"`
	ElementBytes int `json:"element_bytes,omitempty"` // of the type of the instruction; 0 if it is not known
}

// String names the variable in messages.
func (v Variable) String() string {
	switch {
	case v.Space == Argument && v.Name == "":
		return fmt.Sprintf("argument %d", v.Index)
	case v.Space == Argument:
		return fmt.Sprintf("argument %d %q", v.Index, v.Name)
	case v.Space == Global:
		return "the variable " + v.Name
	}
	return v.Name
}

// Element is the index of the element that is accessed, in elements of the instruction's type.
func (v Variable) Element() (index int, known bool) {
	if v.ElementBytes == 0 || v.Offset%v.ElementBytes != 0 {
		return 0, false
	}
	return v.Offset / v.ElementBytes, true
}

// Space is the memory that a variable is in.
type Space string

// The spaces.
const (
	Argument Space = "argument" // a buffer that the kernel gets the address of
	Shared   Space = "shared"
	Global   Space = "global"
	Constant Space = "constant"
	Local    Space = "local"
)

// Finding is one defect. It is reported once for each pair of places, with a count.
type Finding struct {
	Kind     Kind     `json:"kind"`
	Severity Severity `json:"severity"`
	Launch   Launch   `json:"launch,omitzero"`
	Where    Place    `json:"where,omitzero"`  // zero for a finding about a buffer as a whole
	Other    *Place   `json:"other,omitempty"` // the access that it conflicts with
	Variable Variable `json:"variable,omitzero"`
	Missing  Sync     `json:"missing,omitempty"` // what would order the two places
	Count    int      `json:"count"`
	Detail   string   `json:"detail"` // of the first occurrence: threads, address, and what is missing
}

// New returns an error about no instruction.
func New(kind Kind, detail string) Finding {
	return Finding{Kind: kind, Severity: Error, Count: 1, Detail: detail}
}

// Of returns an error about a variable as a whole.
func Of(kind Kind, v Variable, detail string) Finding {
	f := New(kind, detail)
	f.Variable = v
	return f
}

// Text describes the finding in one line, with its places. A finding about no instruction is its
// detail; one of the audit is found once for each variable, with the first place.
func (f Finding) Text() string {
	switch where := f.Where.String(); {
	case where == "":
		if f.Launch != (Launch{}) {
			return fmt.Sprintf("in %s: %s", f.Launch, f.Detail)
		}
		return f.Detail
	case f.Kind.isAudited():
		text := f.Detail + " at " + where
		if f.Count > 1 {
			text += fmt.Sprintf(" and %d more", f.Count-1)
		}
		return text
	default:
		return fmt.Sprintf("%s (%s): %s", f.places(), f.times(), f.Detail)
	}
}

// places is the kind with the places of a finding about an instruction.
func (f Finding) places() string {
	text := fmt.Sprintf("%s at %s", f.Kind, f.Where)
	if f.Other != nil && f.Other.PTXLine > 0 {
		text += " with " + f.Other.String()
	}
	return text
}

// times says how often the finding occurred, and in which launch if it was not the first.
func (f Finding) times() string {
	text := fmt.Sprintf("%d times", f.Count)
	if f.Count == 1 {
		text = "once"
	}
	if f.Launch != (Launch{}) {
		text += " in " + f.Launch.String()
	}
	return text
}

// String returns the finding in one line that begins with its kind.
func (f Finding) String() string {
	text, kind := f.Text(), string(f.Kind)
	switch {
	case strings.HasPrefix(text, kind+" "):
		return text
	case f.Launch != (Launch{}):
		return kind + " " + text // "unwritten in relaunch 1: ..."
	}
	return kind + ": " + text
}

// Key identifies a finding across launches and jobs: the kind, the severity, and the two places in
// either order. Addresses and counts differ between launches. A finding about no instruction is
// identified by its variable.
func (f Finding) Key() string {
	where, other := f.Where.String(), ""
	if f.Other != nil {
		other = f.Other.String()
		if other < where {
			where, other = other, where
		}
	}
	if where+other == "" {
		if where = f.Variable.String(); where == "" {
			where = f.Detail
		}
	}
	return strings.Join([]string{string(f.Kind), string(f.Severity), where, other}, "\x00")
}

// Is reports whether a finding is of one of some kinds.
func (f Finding) Is(kinds ...Kind) bool { return slices.Contains(kinds, f.Kind) }
