package ptx

import "math"

// functionOf reads .entry or .func: a declaration, or a definition with its body.
func (p *parser) functionOf(linkage linkage) {
	f := &Function{Entry: p.tok.text == ".entry", Line: p.tok.line}
	p.next()
	if p.is(dotted, ".attribute") {
		p.attribute()
	}
	p.function = f
	p.location, p.locations = nil, map[[3]int]*Location{}
	p.openScope()
	if p.tok.kind == '(' && !f.Entry {
		f.Returns = p.parameters()
		p.defineParameters(f.Returns)
	}
	f.Name = p.name("the name of a function")
	if p.tok.kind == '(' {
		f.Params = p.parameters()
		p.defineParameters(f.Params)
	}
	p.directives(f)
	defined := p.tok.kind == '{'
	f = p.introduce(f, defined)
	if p.function = f; defined {
		p.body(linkage)
	} else {
		p.expect(';')
		p.closeScope()
	}
	p.function = nil
}

// introduce adds a function to the module, or completes the one that has been declared.
func (p *parser) introduce(f *Function, defined bool) *Function {
	old := p.names[f.Name]
	switch {
	case old == (Symbol{}):
		p.names[f.Name] = Symbol{Function: f}
		p.module.Functions = append(p.module.Functions, f)
		return f
	case old.Function == nil:
		p.fail(f.Line, "%s is declared twice", f.Name)
		return f
	case old.Function.Code != nil && defined:
		p.fail(f.Line, "the function %s is defined twice", f.Name)
		return f
	case f.Entry != old.Function.Entry || !sameKind(f.Params, old.Function.Params) || !sameKind(f.Returns, old.Function.Returns):
		p.fail(f.Line, "the function %s was declared with other parameters in line %d", f.Name, old.Function.Line)
		return f
	}
	if defined {
		*old.Function = *f
	}
	return old.Function
}

func sameKind(a, b []*Variable) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Space != b[i].Space || a[i].Type != b[i].Type || a[i].Vector != b[i].Vector || a[i].Count != b[i].Count {
			return false
		}
	}
	return true
}

// parameters reads (.param .b32 a, .reg .b32 b, ...).
func (p *parser) parameters() (params []*Variable) {
	p.next()
	for p.tok.kind != ')' {
		if !p.is(dotted, ".param") && !p.is(dotted, ".reg") {
			p.unexpected("a parameter, .param or .reg")
			return params
		}
		d := p.declarator(linkage{})
		v := d.variable(p.tok.text, p.tok.line)
		p.name("the name of a parameter")
		p.dimensions(v)
		if v.Space == Reg && (v.IsArray || v.Vector > 1) {
			p.fail(v.Line, "the parameter %s is a register; it has to have a single value", v.Name)
		}
		params = append(params, v)
		if p.tok.kind != ')' {
			p.expect(',')
		}
	}
	p.expect(')')
	return params
}

// defineParameters makes the names of parameters known in the body.
func (p *parser) defineParameters(params []*Variable) {
	for _, v := range params {
		meaning := found{symbol: Symbol{Variable: v}}
		if v.Space == Reg {
			if p.function.Entry || !p.count(v.Line, 1) {
				p.fail(v.Line, "the parameter %s of a kernel cannot be a register", v.Name)
			}
			v.Register = p.addRegister(v.Name, v.Type, 1)
			meaning = found{register: v.Register, vector: 1}
		}
		p.define(v.Name, v.Line, meaning)
	}
}

// directives reads what stands between the parameters and the body.
func (p *parser) directives(f *Function) {
	for p.tok.kind == dotted {
		switch word := p.tok.text; word {
		case ".maxntid":
			f.MaxThreads = p.three()
		case ".reqntid":
			f.RequiredThreads = p.three()
		case ".reqnctapercluster":
			f.ClusterBlocks = p.three()
		case ".minnctapersm":
			f.MinBlocks = p.one()
		case ".maxnreg":
			f.MaxRegisters = p.one()
		case ".maxnctapersm", ".maxclusterrank", ".abi_preserve", ".abi_preserve_control":
			p.one()
		case ".explicitcluster":
			f.ExplicitCluster = true
			p.next()
		case ".noreturn", ".blocksareclusters":
			p.next()
		case ".pragma":
			p.pragma()
		case ".attribute":
			p.attribute()
		default:
			p.fail(p.tok.line, "unknown directive %s", word)
		}
	}
}

func (p *parser) one() int {
	p.next()
	return p.integer("the number of this directive", math.MaxInt32)
}

// three reads up to three numbers; what is left out is 1.
func (p *parser) three() [3]int {
	all := [3]int{p.one(), 1, 1}
	for i := 1; i < 3 && p.tok.kind == ','; i++ {
		all[i] = p.one()
	}
	return all
}

// body reads the statements of a function, whose scope is open.
func (p *parser) body(linkage linkage) {
	f := p.function
	if linkage.extern {
		p.fail(f.Line, "the function %s is external and has a body", f.Name)
	}
	p.code = p.code[:0]
	p.next()
	for len(p.scopes) > 0 && p.err == nil {
		p.statement()
	}
	for _, branch := range p.pending {
		p.fail(branch.line, "unknown label %s", branch.label)
	}
	p.pending = p.pending[:0]
	f.Code = append(make([]Instruction, 0, len(p.code)), p.code...)
}

func (p *parser) statement() {
	switch p.tok.kind {
	case '{':
		p.openScope()
		p.next()
	case '}':
		p.closeScope()
		p.next()
	case dotted:
		p.bodyDirective()
	case '@':
		p.instruction()
	case word:
		if p.ahead() == ':' {
			p.label()
		} else {
			p.instruction()
		}
	case end:
		p.fail(p.function.Line, "the function %s has no end", p.function.Name)
	default:
		p.misplaced("an instruction")
	}
}

func (p *parser) bodyDirective() {
	switch p.tok.text {
	case ".loc":
		p.loc()
	case ".reg":
		p.registers()
	case ".shared", ".local", ".param", ".global", ".const":
		p.variables(linkage{})
	case ".pragma":
		p.pragma()
	case ".branchtargets", ".calltargets", ".callprototype":
		p.fail(p.tok.line, "%s without a label before it", p.tok.text)
	default:
		p.fail(p.tok.line, "unknown directive %s", p.tok.text)
	}
}
