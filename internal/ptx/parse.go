package ptx

import (
	"fmt"
	"strconv"
	"strings"
)

// The limits. They are far beyond what a compiler prints for a kernel, and keep a broken text from taking all memory: what is
// read takes up to some hundred times the room of the text.
const (
	maxText       = 16 << 20 // bytes of a text
	maxRegisters  = 1 << 20  // registers, and other names of the form name<n>, in all functions together
	maxSize       = 1 << 30  // bytes of a variable
	maxInit       = 64 << 20 // bytes of initialisers in all variables together
	maxDimensions = 8        // of an array
	maxNesting    = 100      // of scopes and of parentheses
)

// parser reads a module. Its methods stop at the first error, which the lexer keeps.
type parser struct {
	lexer
	module *Module
	names  map[string]Symbol // of the module

	function *Function // the one being read
	scopes   []scope   // the innermost last; the first has the parameters too
	pending  []pending // branches whose labels are not yet known
	nested   int
	counted  int // registers so far, for the limit
	initials int // bytes of initialisers so far

	code     []Instruction      // of the function
	opcodes  map[string]*opcode // by their text
	scratch  []Operand          // a stack of operands whose number is not yet known
	operands []Operand          // room for operands of many instructions

	location  *Location            // of the last .loc of the function
	locations map[[3]int]*Location // the last ones of the function, by file, line and column
	inlined   []inlined            // locations whose function is not yet known
	strings   map[string]int       // labels of .debug_str
	bytes     []byte               // of .debug_str
}

// Parse reads the text of a PTX module. An error of the text is a *SyntaxError.
func Parse(text []byte) (*Module, error) {
	if len(text) > maxText {
		msg := fmt.Sprintf("a text of %d bytes; the limit is %d", len(text), maxText)
		return nil, &SyntaxError{Line: 1, Text: lineOf(string(text[:200]), 1), Msg: msg}
	}
	p := &parser{
		lexer:   lexer{text: strings.TrimRight(string(text), "\x00"), line: 1},
		module:  &Module{Files: map[int]string{}},
		names:   map[string]Symbol{},
		opcodes: map[string]*opcode{},
		strings: map[string]int{},
	}
	p.next()
	p.header()
	for p.tok.kind != end {
		p.declaration()
	}
	p.nameInlined()
	for _, function := range p.module.Functions {
		function.External = function.Code == nil
	}
	if p.err != nil {
		return nil, p.err
	}
	return p.module, nil
}

// header reads .version and .target, which have to come first, and .address_size.
func (p *parser) header() {
	if !p.is(dotted, ".version") {
		p.fail(p.tok.line, "a module begins with .version")
		return
	}
	p.next()
	major, minor, ok := strings.Cut(p.tok.text, ".")
	for i, text := range []string{major, minor} {
		value, err := strconv.ParseUint(text, 10, 16)
		if err != nil || !ok || p.tok.kind != number {
			p.unexpected("a version such as 9.0")
			return
		}
		p.module.Version[i] = int(value)
	}
	p.next()
	if !p.is(dotted, ".target") {
		p.unexpected(".target")
		return
	}
	p.next()
	p.module.Target = p.name("a target such as sm_90a")
	for p.take(',') {
		p.name("a target")
	}
	if p.is(dotted, ".address_size") {
		p.next()
		if !p.is(number, "64") {
			p.fail(p.tok.line, "addresses of %s bits are not read, only those of 64", p.tok.text)
		}
		p.next()
	}
}

// declaration reads what stands in a module: a variable, a function, or a directive.
func (p *parser) declaration() {
	var linkage linkage
	for p.tok.kind == dotted {
		switch p.tok.text {
		case ".visible", ".weak", ".common":
			linkage.visible = true
		case ".extern":
			linkage.extern = true
		case ".entry", ".func":
			p.functionOf(linkage)
			return
		case ".global", ".const", ".shared", ".local":
			p.variables(linkage)
			return
		case ".file":
			p.file()
			return
		case ".section":
			p.section()
			return
		case ".pragma":
			p.pragma()
			return
		case ".reg":
			p.fail(p.tok.line, "a register outside of a function")
		case ".alias":
			p.fail(p.tok.line, ".alias is not read")
		default:
			p.fail(p.tok.line, "unknown directive %s", p.tok.text)
		}
		p.next()
	}
	if p.tok.kind == end {
		p.unexpected("a declaration")
	}
	p.misplaced("a directive")
}

// linkage is what stands before a declaration.
type linkage struct {
	extern, visible bool
}

// pragma passes over .pragma, which is advice to ptxas.
func (p *parser) pragma() {
	p.next()
	for {
		if p.tok.kind != quoted {
			p.unexpected("a string")
			return
		}
		p.next()
		if !p.take(',') {
			break
		}
	}
	p.expect(';')
}

// attribute passes over .attribute(...), such as that of managed variables.
func (p *parser) attribute() {
	p.next()
	p.expect('(')
	for open := 1; open > 0; p.next() {
		switch p.tok.kind {
		case '(':
			open++
		case ')':
			open--
		case end:
			p.unexpected("')'")
			return
		}
	}
}

// count takes some registers or names from the limit.
func (p *parser) count(line, number int) bool {
	if p.counted += number; p.counted > maxRegisters {
		p.fail(line, "more than %d registers", maxRegisters)
		return false
	}
	return true
}
