package ptx

import (
	"math"
	"strings"
)

// inlined is a location whose function is named by a place in .debug_str, a section that comes after the code.
type inlined struct {
	location *Location
	label    string
	offset   int
	line     int
}

// file reads .file index "name", and passes over the time and the size that may follow.
func (p *parser) file() {
	p.next()
	index := p.integer("the number of a file", math.MaxInt32)
	if p.tok.kind != quoted {
		p.unexpected("the name of a file")
		return
	}
	p.module.Files[index] = p.tok.text
	p.next()
	for p.take(',') {
		p.integer("the time or the size of a file", math.MaxInt64)
	}
}

// place reads the three numbers of a location.
func (p *parser) place() (at [3]int) {
	for i, what := range [...]string{"the number of a file", "a line", "a column"} {
		at[i] = p.integer(what, math.MaxInt32)
	}
	return at
}

// loc reads .loc file line column, with , function_name label[+offset], inlined_at file line column.
func (p *parser) loc() {
	line := p.tok.line
	p.next()
	at := p.place()
	location := &Location{File: at[0], Line: at[1], Column: at[2]}
	for p.take(',') {
		switch clause := p.name("function_name or inlined_at"); clause {
		case "function_name":
			named := inlined{location: location, label: p.name("a label of .debug_str"), line: line}
			if p.take('+') {
				named.offset = p.integer("an offset", math.MaxInt32)
			}
			p.inlined = append(p.inlined, named)
		case "inlined_at":
			from := p.place()
			// The place has had its own .loc, which says where that was inlined in turn.
			if location.Inlined = p.locations[from]; location.Inlined == nil {
				location.Inlined = &Location{File: from[0], Line: from[1], Column: from[2]}
			}
		default:
			p.fail(line, "unknown part of .loc: %s", clause)
		}
	}
	p.location = location
	p.locations[at] = location
}

// section reads .debug_str and passes over other sections.
func (p *parser) section() {
	p.next()
	names := p.is(dotted, ".debug_str")
	if p.tok.kind != dotted {
		p.unexpected("the name of a section")
		return
	}
	p.next()
	p.expect('{')
	for p.tok.kind != '}' && p.tok.kind != end {
		switch {
		case names && p.is(dotted, ".b8"):
			p.byteList()
		case names && p.tok.kind == word:
			label := p.name("a label")
			if p.tok.kind == ':' {
				p.strings[label] = len(p.bytes)
			}
		default:
			p.next()
		}
	}
	p.expect('}')
}

// byteList reads the rest of .b8 1, 2, ... into the bytes of .debug_str.
func (p *parser) byteList() {
	p.next()
	for {
		p.bytes = append(p.bytes, byte(p.integer("a byte", math.MaxUint8)))
		if !p.take(',') {
			return
		}
	}
}

// nameInlined gives the functions of inlined code their names, when .debug_str is known.
func (p *parser) nameInlined() {
	names := string(p.bytes)
	for _, named := range p.inlined {
		start, ok := p.strings[named.label]
		if start += named.offset; !ok || start > len(names) {
			p.fail(named.line, "unknown place %s+%d in .debug_str", named.label, named.offset)
			return
		}
		named.location.Function, _, _ = strings.Cut(names[start:], "\x00")
	}
}
