package ptx

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits on the input. They are far beyond the output of a compiler for one kernel. They bound the
// memory for malformed input: the parsed form takes up to a few hundred times the size of the text.
const (
	maxText       = 16 << 20 // bytes of a module's text, unless the caller sets another limit
	maxRegisters  = 1 << 20  // registers and other names of the form name<n>, per module
	maxSize       = 1 << 30  // bytes of a variable
	maxInit       = 64 << 20 // bytes of initialisers, per module
	maxDimensions = 8        // of an array
	maxNesting    = 100      // of scopes and parentheses
)

// parser reads a module. Its methods stop at the first error, which the lexer records.
type parser struct {
	lexer
	module *Module
	names  map[string]Symbol // module scope

	manyDimensions map[*Variable][]int // of arrays with several

	function        *Function       // the function being read, or nil
	scopes          []scope         // innermost last; the first one also holds the parameters
	pendingBranches []pendingBranch // branches whose label is not resolved yet
	depth           int             // nesting of scopes and expressions, limited by maxNesting
	registerCount   int             // declared so far, limited by maxRegisters
	initBytes       int             // bytes of initialisers so far, limited by maxInit

	code         []Instruction      // of the current function
	opcodes      map[string]*opcode // interned by source text
	operandStack []Operand          // operands of lists whose length is not known yet
	operandArena []Operand          // backing store for the operands of many instructions

	location     *Location            // of the last .loc in the current function
	locations    map[[3]int]*Location // in the current function, by file, line and column
	inlinedNames []inlinedName        // locations whose function name is not resolved yet
	debugLabels  map[string]int       // labels of .debug_str, as offsets into debugStrings
	debugStrings []byte               // contents of .debug_str
}

// Parse parses the text of a PTX module. A malformed text gives a *SyntaxError.
func Parse(text []byte) (*Module, error) { return ParseUpTo(text, maxText) }

// ParseUpTo is Parse with another limit on the bytes of the text.
func ParseUpTo(text []byte, limit int) (*Module, error) {
	if len(text) > limit {
		msg := fmt.Sprintf("the text has %d bytes; the limit is %d bytes", len(text), limit)
		return nil, &SyntaxError{Line: 1, Text: lineOf(string(text[:200]), 1), Msg: msg}
	}
	p := &parser{
		lexer:   lexer{text: strings.TrimRight(string(text), "\x00"), line: 1},
		module:  &Module{Files: map[int]string{}},
		names:   map[string]Symbol{},
		opcodes: map[string]*opcode{},

		manyDimensions: map[*Variable][]int{},
		debugLabels:    map[string]int{},
	}
	p.next()
	p.header()
	for p.tok.kind != eof {
		p.declaration()
	}
	p.resolveInlinedNames()
	for _, function := range p.module.Functions {
		function.External = function.Code == nil
	}
	if p.err != nil {
		return nil, p.err
	}
	return p.module, nil
}

// header reads .version and .target, which must come first, and the optional .address_size.
func (p *parser) header() {
	if !p.is(directive, ".version") {
		p.failExpected(".version as the first directive")
		return
	}
	p.next()
	major, minor, ok := strings.Cut(p.tok.text, ".")
	for i, text := range []string{major, minor} {
		value, err := strconv.ParseUint(text, 10, 16)
		if err != nil || !ok || p.tok.kind != number {
			p.failExpected("a version such as 9.0")
			return
		}
		p.module.Version[i] = int(value)
	}
	p.next()
	if !p.is(directive, ".target") {
		p.failExpected(".target")
		return
	}
	p.next()
	p.module.Target = p.name("a target such as sm_90a")
	for p.accept(',') {
		p.name("a target")
	}
	if p.is(directive, ".address_size") {
		p.next()
		if !p.is(number, "64") {
			p.fail(p.tok.line, "%s-bit addresses are not supported; use .address_size 64", p.tok.text)
		}
		p.next()
	}
}

// declaration reads one declaration of module scope: a variable, a function or a directive.
func (p *parser) declaration() {
	var linkage linkage
	for p.tok.kind == directive {
		switch p.tok.text {
		case ".visible", ".weak", ".common":
			linkage.visible = true
		case ".extern":
			linkage.extern = true
		case ".entry", ".func":
			p.parseFunction(linkage)
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
			p.fail(p.tok.line, ".reg outside a function; declare registers in a function body")
		case ".alias":
			p.fail(p.tok.line, ".alias is not supported; call the function by its own name")
		default:
			p.fail(p.tok.line, "unknown directive %s at module scope", p.tok.text)
		}
		p.next()
	}
	if p.tok.kind == eof {
		p.failExpected("a declaration")
	}
	p.failFound("a directive")
}

// linkage is the set of linking directives before a declaration.
type linkage struct {
	extern, visible bool
}

// pragma skips .pragma, which is advice to ptxas.
func (p *parser) pragma() {
	p.next()
	for {
		if p.tok.kind != quotedString {
			p.failExpected("a string")
			return
		}
		p.next()
		if !p.accept(',') {
			break
		}
	}
	p.expect(';')
}

// attribute skips .attribute(...) and reports whether it has .managed.
func (p *parser) attribute() (managed bool) {
	p.next()
	p.expect('(')
	for open := 1; open > 0; p.next() {
		managed = managed || p.is(directive, ".managed")
		switch p.tok.kind {
		case '(':
			open++
		case ')':
			open--
		case eof:
			p.failExpected("')'")
			return managed
		}
	}
	return managed
}

// countRegisters adds to the number of declared names and reports whether it is within the limit.
func (p *parser) countRegisters(line, number int) bool {
	if p.registerCount += number; p.registerCount > maxRegisters {
		p.fail(line, "the module declares more than %d registers and numbered names", maxRegisters)
		return false
	}
	return true
}
