package ptx

import (
	"slices"
	"strconv"
)

// scope is what one pair of braces declares. Its names hide those of the scopes around it.
type scope struct {
	names    map[string]found
	families map[string]family // by what stands before the number
	labels   map[string]int    // the instructions they stand before
	pending  int               // where the branches of the scope begin in the list of those that wait
}

// found is what a name in a function stands for: a register, a symbol, or a list after a label. A scope that does not have the
// name gives the zero.
type found struct {
	kind     foundKind
	vector   int // 2 or 4 for a vector register, whose parts follow each other
	register int
	symbol   Symbol
	list     *list
}

type foundKind uint8

const (
	nothing foundKind = iota
	aRegister
	aSymbol
	aList
)

// family is the registers that name<n> declares.
type family struct {
	first, count, vector int
}

// list is what .branchtargets, .calltargets or .callprototype declares.
type list struct {
	targets   []int
	callees   []*Function
	prototype *Function
}

// pending is a branch to a label that may still come, in this scope or in one around it.
type pending struct {
	label  string
	line   int
	target *int
}

// openScope begins a scope; what a closed one has left is used again.
func (p *parser) openScope() {
	p.deeper()
	if len(p.scopes) < cap(p.scopes) {
		p.scopes = p.scopes[:len(p.scopes)+1]
	} else {
		p.scopes = append(p.scopes, scope{})
	}
	p.scope().pending = len(p.pending)
}

func (p *parser) scope() *scope { return &p.scopes[len(p.scopes)-1] }

// closeScope ends the innermost scope: branches find its labels, or wait for those of the scope around it.
func (p *parser) closeScope() {
	s := p.scope()
	if len(s.labels) > 0 {
		waiting := p.pending[s.pending:]
		p.pending = p.pending[:s.pending]
		for _, branch := range waiting {
			if target, ok := s.labels[branch.label]; ok {
				*branch.target = target
			} else {
				p.pending = append(p.pending, branch)
			}
		}
	}
	s.names, s.families, s.labels = emptied(s.names), emptied(s.families), emptied(s.labels)
	p.scopes = p.scopes[:len(p.scopes)-1]
	p.nested--
}

// emptied is the map without its entries, or a new one where emptying would take long each time.
func emptied[V any](m map[string]V) map[string]V {
	if len(m) > 100 {
		return nil
	}
	clear(m)
	return m
}

// define gives a name of the innermost scope its meaning.
func (p *parser) define(name string, line int, meaning found) {
	if meaning.kind = aSymbol; meaning.list != nil {
		meaning.kind = aList
	} else if meaning.symbol == (Symbol{}) {
		meaning.kind = aRegister
	}
	s := p.scope()
	if s.find(name).kind != nothing {
		p.fail(line, "%s is declared twice in this scope", name)
		return
	}
	if s.names == nil {
		s.names = map[string]found{}
	}
	s.names[name] = meaning
}

// find is what a name stands for here: in the innermost scope that has it, or in the module.
func (p *parser) find(name string) found {
	for i := len(p.scopes) - 1; i >= 0; i-- {
		if found := p.scopes[i].find(name); found.kind != nothing {
			return found
		}
	}
	if symbol, ok := p.names[name]; ok {
		return found{kind: aSymbol, symbol: symbol}
	}
	return found{}
}

func (s *scope) find(name string) found {
	if len(s.families) > 0 && name != "" && isDigit(name[len(name)-1]) {
		if found := s.findNumbered(name); found.kind != nothing {
			return found
		}
	}
	return s.names[name]
}

// findNumbered looks for a register of a family: %r12 of %r<20>. The number has no leading zero, and few digits because of the
// limit.
func (s *scope) findNumbered(name string) found {
	cut := len(name)
	for cut > 1 && isDigit(name[cut-1]) {
		cut--
	}
	for cut = max(cut, len(name)-7); cut < len(name); cut++ {
		if name[cut] == '0' && cut+1 < len(name) {
			continue
		}
		family, ok := s.families[name[:cut]]
		if !ok {
			continue
		}
		if number, _ := decimal(name[cut:]); int(number) < family.count {
			return found{kind: aRegister, register: family.first + int(number)*family.vector, vector: family.vector}
		}
	}
	return found{}
}

// numbered are the names name0 to name(n-1).
func numbered(name string, count int) []string {
	var text []byte
	ends := make([]int, count)
	for i := range count {
		text = append(text, name...)
		text = strconv.AppendInt(text, int64(i), 10)
		ends[i] = len(text)
	}
	all := string(text)
	names := make([]string, count)
	start := 0
	for i, end := range ends {
		names[i] = all[start:end]
		start = end
	}
	return names
}

// registers reads .reg type name, name<n>, ...;
func (p *parser) registers() {
	d := p.declarator(linkage{})
	for {
		line := p.tok.line
		name := p.name("the name of a register")
		if p.take('<') {
			p.registerFamily(d, name, line)
		} else if p.count(line, d.vector) {
			p.define(name, line, found{register: p.addRegister(name, d.kind, d.vector), vector: d.vector})
		}
		if !p.take(',') {
			break
		}
	}
	p.expect(';')
}

// registerFamily reads the rest of name<n>.
func (p *parser) registerFamily(d declarator, name string, line int) {
	count := p.integer("the number of registers", maxRegisters)
	p.expect('>')
	s := p.scope()
	if _, known := s.families[name]; known {
		p.fail(line, "%s<n> is declared twice in this scope", name)
	}
	if p.err != nil || !p.count(line, count*d.vector) {
		return
	}
	first := len(p.function.Registers)
	p.function.Registers = slices.Grow(p.function.Registers, count*d.vector)
	for _, name := range numbered(name, count) {
		if s.names[name].kind != nothing {
			p.fail(line, "%s is declared twice in this scope", name)
			return
		}
		p.addRegister(name, d.kind, d.vector)
	}
	if s.families == nil {
		s.families = map[string]family{}
	}
	s.families[name] = family{first: first, count: count, vector: d.vector}
}

var components = [...]string{".x", ".y", ".z", ".w"}

// addRegister adds a register to the function, or the parts of a vector register, and says the index of the first.
func (p *parser) addRegister(name string, kind Type, vector int) int {
	f := p.function
	index := len(f.Registers)
	if vector == 1 {
		f.Registers = append(f.Registers, Register{Name: name, Type: kind})
		return index
	}
	for _, component := range components[:vector] {
		f.Registers = append(f.Registers, Register{Name: name + component, Type: kind})
	}
	return index
}

// label reads a label: a place in the code, or the name of a list.
func (p *parser) label() {
	name, line := p.tok.text, p.tok.line
	p.next()
	p.expect(':')
	if p.tok.kind == dotted {
		switch p.tok.text {
		case ".branchtargets":
			p.define(name, line, found{list: &list{targets: p.branchTargets()}})
			return
		case ".calltargets":
			p.define(name, line, found{list: &list{callees: p.callTargets()}})
			return
		case ".callprototype":
			p.define(name, line, found{list: &list{prototype: p.prototype()}})
			return
		}
	}
	s := p.scope()
	if _, known := s.labels[name]; known {
		p.fail(line, "the label %s stands twice in this scope", name)
	}
	if s.labels == nil {
		s.labels = map[string]int{}
	}
	s.labels[name] = len(p.code)
}

// target is a branch to a label, which is filled in when the scope of the label ends.
func (p *parser) target(label string, line int, target *int) {
	p.pending = append(p.pending, pending{label: label, line: line, target: target})
}

// branchTargets reads .branchtargets a, b, c<n>;
func (p *parser) branchTargets() []int {
	p.next()
	var labels []string
	line := p.tok.line
	for {
		name := p.name("a label")
		if p.take('<') {
			number := p.integer("the number of labels", maxRegisters)
			p.expect('>')
			if !p.count(line, number) {
				return nil
			}
			labels = append(labels, numbered(name, number)...)
		} else {
			labels = append(labels, name)
		}
		if !p.take(',') {
			break
		}
	}
	p.expect(';')
	if len(labels) == 0 {
		p.fail(line, "a list without labels")
	}
	targets := make([]int, len(labels))
	for i, label := range labels {
		p.target(label, line, &targets[i])
	}
	return targets
}

// callTargets reads .calltargets f, g;
func (p *parser) callTargets() (callees []*Function) {
	p.next()
	for {
		line := p.tok.line
		name := p.name("a function")
		function := p.find(name).symbol.Function
		if function == nil {
			p.fail(line, "unknown function %s", name)
			return nil
		}
		callees = append(callees, function)
		if !p.take(',') {
			break
		}
	}
	p.expect(';')
	return callees
}

// prototype reads .callprototype (returns) _ (parameters);
func (p *parser) prototype() *Function {
	f := &Function{Line: p.tok.line}
	p.next()
	if p.tok.kind == '(' {
		f.Returns = p.parameters()
	}
	if p.name("_") != "_" {
		p.fail(f.Line, "a prototype has _ in the place of a name")
	}
	if p.tok.kind == '(' {
		f.Params = p.parameters()
	}
	p.directives(f)
	p.expect(';')
	return f
}
