package ptx

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// inlinedName is a location whose function name is an offset into .debug_str. That section follows
// the code, so resolveInlinedNames runs last.
type inlinedName struct {
	location *Location
	label    string
	offset   int
	line     int
}

// file reads .file index "name" and skips the optional timestamp and size.
func (p *parser) file() {
	p.next()
	index := p.integer("a file index", math.MaxInt32)
	if p.tok.kind != quotedString {
		p.failExpected("a quoted file name")
		return
	}
	p.module.Files[index] = p.tok.text
	p.next()
	for p.accept(',') {
		p.integer("a timestamp or file size", math.MaxInt64)
	}
}

// sourcePosition reads the file, line and column of a location.
func (p *parser) sourcePosition() (at [3]int) {
	for i, what := range [...]string{"a file index", "a line number", "a column number"} {
		at[i] = p.integer(what, math.MaxInt32)
	}
	return at
}

// loc reads .loc file line column, optionally followed by ", function_name label[+offset],
// inlined_at file line column".
func (p *parser) loc() {
	line := p.tok.line
	p.next()
	at := p.sourcePosition()
	location := &Location{File: at[0], Line: at[1], Column: at[2]}
	for p.accept(',') {
		switch clause := p.name("function_name or inlined_at"); clause {
		case "function_name":
			named := inlinedName{location: location, label: p.name("a label of .debug_str"), line: line}
			if p.accept('+') {
				named.offset = p.integer("an offset", math.MaxInt32)
			}
			p.inlinedNames = append(p.inlinedNames, named)
		case "inlined_at":
			from := p.sourcePosition()
			// The call site had a .loc of its own, which records where the call site was inlined.
			if location.Inlined = p.locations[from]; location.Inlined == nil {
				location.Inlined = &Location{File: from[0], Line: from[1], Column: from[2]}
			}
		default:
			p.fail(line, "unknown .loc attribute %s; expected function_name or inlined_at", clause)
		}
	}
	p.location = location
	p.locations[at] = location
}

// section reads .debug_str and skips every other section.
func (p *parser) section() {
	p.next()
	names := p.is(directive, ".debug_str")
	if p.tok.kind != directive {
		p.failExpected("a section name such as .debug_str")
		return
	}
	p.next()
	p.expect('{')
	for p.tok.kind != '}' && p.tok.kind != eof {
		switch {
		case names && p.is(directive, ".b8"):
			p.byteList()
		case names && p.tok.kind == identifier:
			label := p.name("a label")
			if p.tok.kind == ':' {
				p.debugLabels[label] = len(p.debugStrings)
			}
		default:
			p.next()
		}
	}
	p.expect('}')
}

// byteList appends the bytes of .b8 1, 2, ... to debugStrings.
func (p *parser) byteList() {
	p.next()
	for {
		p.debugStrings = append(p.debugStrings, byte(p.integer("a byte", math.MaxUint8)))
		if !p.accept(',') {
			return
		}
	}
}

// resolveInlinedNames looks up the names of inlined functions once .debug_str is complete.
func (p *parser) resolveInlinedNames() {
	names := string(p.debugStrings)
	for _, named := range p.inlinedNames {
		start, ok := p.debugLabels[named.label]
		if start += named.offset; !ok || start > len(names) {
			p.fail(named.line, "function_name %s+%d is not in .debug_str", named.label, named.offset)
			return
		}
		named.location.Function, _, _ = strings.Cut(names[start:], "\x00")
	}
}

// toolkit begins the names of NVIDIA's headers.
const toolkit = "cuda/"

// Frame is a source line of an instruction: inside an inlined function, or of a call of one.
type Frame struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column,omitempty"` // from 1; 0 if it is not known
}

func (f Frame) String() string { return fmt.Sprintf("%s:%d", f.File, f.Line) }

// Frames returns the source lines of a location from the innermost inlined function outwards, without
// those of NVIDIA's headers.
func (m *Module) Frames(l *Location) []Frame {
	return slices.DeleteFunc(m.allFrames(l), func(f Frame) bool { return strings.HasPrefix(f.File, toolkit) })
}

func (m *Module) allFrames(l *Location) []Frame {
	var all []Frame
	for ; l != nil; l = l.Inlined {
		all = append(all, Frame{m.Files[l.File], l.Line, l.Column})
	}
	return all
}

// LineKey identifies the source lines of a location, those of NVIDIA's headers included. It is empty
// for none.
func (m *Module) LineKey(l *Location) string {
	if l == nil {
		return ""
	}
	return fmt.Sprint(m.allFrames(l))
}

// calledFrom stands between a line inside an inlined function and those of the calls.
const calledFrom = ", called from "

// SourceLine returns file:line of a location; empty for none. The lines of the calls follow that of an
// inlined function, from the inside outwards: "b.cuh:5, called from a.cuh:9, k.cu:20". Lines of
// NVIDIA's headers are left out, unless there are no others.
func (m *Module) SourceLine(l *Location) string {
	frames := m.Frames(l)
	if len(frames) == 0 {
		frames = m.allFrames(l)
	}
	if len(frames) == 0 {
		return ""
	}
	text := frames[0].String()
	for i, f := range frames[1:] {
		separator := ", "
		if i == 0 {
			separator = calledFrom
		}
		text += separator + f.String()
	}
	return text
}

// Place describes an instruction by the text of SourceLine, which may be empty, and its line in the
// PTX: "b.cuh:5 (ptx:54, called from a.cuh:9, k.cu:20)".
func Place(source string, ptxLine int) string {
	if source == "" {
		return fmt.Sprintf("ptx:%d", ptxLine)
	}
	line, calls, inlined := strings.Cut(source, calledFrom)
	if inlined {
		calls = calledFrom + calls
	}
	return fmt.Sprintf("%s (ptx:%d%s)", line, ptxLine, calls)
}
