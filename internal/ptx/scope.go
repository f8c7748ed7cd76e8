package ptx

import (
	"slices"
	"strconv"
)

// scope holds the names that one pair of braces declares. They hide the names of outer scopes.
type scope struct {
	names        map[string]binding
	ranges       map[string]registerRange // by the name before the number
	labels       map[string]int           // index of the instruction after the label
	firstPending int                      // index of the scope's first branch in pendingBranches
}

// binding is the meaning of a name inside a function: a register, a symbol, or a labelled list. The
// zero value means that the scope does not declare the name.
type binding struct {
	kind     bindingKind
	vector   int // 2 or 4 for a vector register, whose components have consecutive indexes
	register int
	symbol   Symbol
	list     *labelList
}

type bindingKind uint8

const (
	unbound bindingKind = iota
	registerBinding
	symbolBinding
	listBinding
)

// registerRange is the range of registers that name<n> declares (PTX ISA, Parameterized Variable
// Names).
type registerRange struct {
	first, count, vector int
}

// labelList is the list that .branchtargets, .calltargets or .callprototype declares.
type labelList struct {
	targets   []int
	callees   []*Function
	prototype *Function
}

// pendingBranch is a branch whose label may still follow, in its own scope or in an outer one.
type pendingBranch struct {
	label  string
	line   int
	target *int
}

// openScope begins a scope. It reuses the maps of a closed scope.
func (p *parser) openScope() {
	p.enterNesting()
	if len(p.scopes) < cap(p.scopes) {
		p.scopes = p.scopes[:len(p.scopes)+1]
	} else {
		p.scopes = append(p.scopes, scope{})
	}
	p.scope().firstPending = len(p.pendingBranches)
}

func (p *parser) scope() *scope { return &p.scopes[len(p.scopes)-1] }

// closeScope ends the innermost scope. Pending branches resolve to its labels; the others stay
// pending for the outer scope.
func (p *parser) closeScope() {
	s := p.scope()
	if len(s.labels) > 0 {
		waiting := p.pendingBranches[s.firstPending:]
		p.pendingBranches = p.pendingBranches[:s.firstPending]
		for _, branch := range waiting {
			if target, ok := s.labels[branch.label]; ok {
				*branch.target = target
			} else {
				p.pendingBranches = append(p.pendingBranches, branch)
			}
		}
	}
	s.names, s.ranges, s.labels = cleared(s.names), cleared(s.ranges), cleared(s.labels)
	p.scopes = p.scopes[:len(p.scopes)-1]
	p.depth--
}

// cleared returns the map without its entries. It drops a large map, because clear takes time
// proportional to the map's capacity on every later call.
func cleared[V any](m map[string]V) map[string]V {
	if len(m) > 100 {
		return nil
	}
	clear(m)
	return m
}

// defineName binds a name in the innermost scope.
func (p *parser) defineName(name string, line int, meaning binding) {
	if meaning.kind = symbolBinding; meaning.list != nil {
		meaning.kind = listBinding
	} else if meaning.symbol == (Symbol{}) {
		meaning.kind = registerBinding
	}
	s := p.scope()
	if s.lookup(name).kind != unbound {
		p.fail(line, "%s is already declared in this scope", name)
		return
	}
	if s.names == nil {
		s.names = map[string]binding{}
	}
	s.names[name] = meaning
}

// lookup returns the meaning of a name: of the innermost scope that declares it, else of the
// module.
func (p *parser) lookup(name string) binding {
	for i := len(p.scopes) - 1; i >= 0; i-- {
		if found := p.scopes[i].lookup(name); found.kind != unbound {
			return found
		}
	}
	if symbol, ok := p.names[name]; ok {
		return binding{kind: symbolBinding, symbol: symbol}
	}
	return binding{}
}

func (s *scope) lookup(name string) binding {
	if len(s.ranges) > 0 && name != "" && isDigit(name[len(name)-1]) {
		if found := s.lookupParameterized(name); found.kind != unbound {
			return found
		}
	}
	return s.names[name]
}

// lookupParameterized finds a register of a range: %r12 of %r<20>. The number has no leading zero
// and, because of maxRegisters, at most 7 digits.
func (s *scope) lookupParameterized(name string) binding {
	cut := len(name)
	for cut > 1 && isDigit(name[cut-1]) {
		cut--
	}
	for cut = max(cut, len(name)-7); cut < len(name); cut++ {
		if name[cut] == '0' && cut+1 < len(name) {
			continue
		}
		family, ok := s.ranges[name[:cut]]
		if !ok {
			continue
		}
		if number, _ := decimal(name[cut:]); int(number) < family.count {
			return binding{kind: registerBinding, register: family.first + int(number)*family.vector, vector: family.vector}
		}
	}
	return binding{}
}

// parameterizedNames returns the names name0 to name(n-1). They share one backing string.
func parameterizedNames(name string, count int) []string {
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
		name := p.name("a register name")
		if p.accept('<') {
			p.parameterizedRegisters(d, name, line)
		} else if p.countRegisters(line, d.vector) {
			p.defineName(name, line, binding{register: p.addRegister(name, d.kind, d.vector), vector: d.vector})
		}
		if !p.accept(',') {
			break
		}
	}
	p.expect(';')
}

// parameterizedRegisters reads the rest of name<n>.
func (p *parser) parameterizedRegisters(d declarator, name string, line int) {
	count := p.integer("a register count", maxRegisters)
	p.expect('>')
	s := p.scope()
	if _, known := s.ranges[name]; known {
		p.fail(line, "%s<n> is already declared in this scope", name)
	}
	if p.err != nil || !p.countRegisters(line, count*d.vector) {
		return
	}
	first := len(p.function.Registers)
	p.function.Registers = slices.Grow(p.function.Registers, count*d.vector)
	for _, name := range parameterizedNames(name, count) {
		if s.names[name].kind != unbound {
			p.fail(line, "%s is already declared in this scope", name)
			return
		}
		p.addRegister(name, d.kind, d.vector)
	}
	if s.ranges == nil {
		s.ranges = map[string]registerRange{}
	}
	s.ranges[name] = registerRange{first: first, count: count, vector: d.vector}
}

var components = [...]string{".x", ".y", ".z", ".w"}

// addRegister adds a register, or the components of a vector register, to the function. It returns
// the index of the first.
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

// label reads a label: a position in the code, or the name of a list.
func (p *parser) label() {
	name, line := p.tok.text, p.tok.line
	p.next()
	p.expect(':')
	if p.tok.kind == directive {
		switch p.tok.text {
		case ".branchtargets":
			p.defineName(name, line, binding{list: &labelList{targets: p.branchTargets()}})
			return
		case ".calltargets":
			p.defineName(name, line, binding{list: &labelList{callees: p.callTargets()}})
			return
		case ".callprototype":
			p.defineName(name, line, binding{list: &labelList{prototype: p.prototype()}})
			return
		}
	}
	s := p.scope()
	if _, known := s.labels[name]; known {
		p.fail(line, "label %s is already defined in this scope", name)
	}
	if s.labels == nil {
		s.labels = map[string]int{}
	}
	s.labels[name] = len(p.code)
}

// addPendingBranch records a branch to a label. The end of the label's scope fills in target.
func (p *parser) addPendingBranch(label string, line int, target *int) {
	p.pendingBranches = append(p.pendingBranches, pendingBranch{label: label, line: line, target: target})
}

// branchTargets reads .branchtargets a, b, c<n>;
func (p *parser) branchTargets() []int {
	p.next()
	var labels []string
	line := p.tok.line
	for {
		name := p.name("a label")
		if p.accept('<') {
			number := p.integer("a label count", maxRegisters)
			p.expect('>')
			if !p.countRegisters(line, number) {
				return nil
			}
			labels = append(labels, parameterizedNames(name, number)...)
		} else {
			labels = append(labels, name)
		}
		if !p.accept(',') {
			break
		}
	}
	p.expect(';')
	if len(labels) == 0 {
		p.fail(line, "expected at least one label in .branchtargets")
	}
	targets := make([]int, len(labels))
	for i, label := range labels {
		p.addPendingBranch(label, line, &targets[i])
	}
	return targets
}

// callTargets reads .calltargets f, g;
func (p *parser) callTargets() (callees []*Function) {
	p.next()
	for {
		line := p.tok.line
		name := p.name("a function name")
		function := p.lookup(name).symbol.Function
		if function == nil {
			p.fail(line, "unknown function %s; declare it before its use", name)
			return nil
		}
		callees = append(callees, function)
		if !p.accept(',') {
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
		f.Returns = scalarParameters(p.parameters())
	}
	if name := p.name("_"); name != "_" {
		p.fail(f.Line, "expected _ in place of the function name, found %s", name)
	}
	if p.tok.kind == '(' {
		f.Params = scalarParameters(p.parameters())
	}
	p.functionDirectives(f)
	p.expect(';')
	return f
}
