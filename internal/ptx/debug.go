package ptx

import (
	"fmt"
	"math"
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

// InnerLine returns the file and line of a location, inside all inlined functions but those of
// NVIDIA's headers. The file is empty for none.
func (m *Module) InnerLine(l *Location) (file string, line int) {
	for ; l != nil; l = l.Inlined {
		if file = m.Files[l.File]; !strings.HasPrefix(file, toolkit) {
			return file, l.Line
		}
	}
	return "", 0
}

// SourceLine returns file:line of a location; empty for none. For an inlined function that is the
// line of the call, followed by the line inside the function.
func (m *Module) SourceLine(l *Location) string {
	text := ""
	for ; l != nil; l = l.Inlined {
		line := fmt.Sprintf("%s:%d", m.Files[l.File], l.Line)
		if text != "" {
			line += " in " + text[strings.LastIndexByte(text, '/')+1:]
		}
		text = line
	}
	return text
}
