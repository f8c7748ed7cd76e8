package ptx

import "math"

// parseFunction reads .entry or .func: a declaration, or a definition with its body.
func (p *parser) parseFunction(linkage linkage) {
	f := &Function{Entry: p.tok.text == ".entry", Line: p.tok.line}
	p.next()
	if p.is(directive, ".attribute") {
		p.attribute()
	}
	p.function = f
	p.location, p.locations = nil, map[[3]int]*Location{}
	p.openScope()
	if p.tok.kind == '(' && !f.Entry {
		f.Returns = p.parameters()
		p.defineParameters(f.Returns)
		f.Returns = scalarParameters(f.Returns)
	}
	f.Name = p.name("a function name")
	if p.tok.kind == '(' {
		f.Params = p.parameters()
		p.defineParameters(f.Params)
		f.Params = scalarParameters(f.Params)
	}
	p.functionDirectives(f)
	defined := p.tok.kind == '{'
	f = p.addFunction(f, defined)
	if p.function = f; defined {
		p.body(linkage)
	} else {
		p.expect(';')
		p.closeScope()
	}
	p.function = nil
}

// addFunction adds a function to the module. If the function is declared already, it completes that
// declaration and returns the earlier *Function, because symbols point to it.
func (p *parser) addFunction(f *Function, defined bool) *Function {
	old := p.names[f.Name]
	switch {
	case old == (Symbol{}):
		p.names[f.Name] = Symbol{Function: f}
		p.module.Functions = append(p.module.Functions, f)
		return f
	case old.Function == nil:
		p.fail(f.Line, "%s is already declared in line %d", f.Name, old.line())
		return f
	case old.Function.Code != nil && defined:
		p.fail(f.Line, "function %s is already defined in line %d", f.Name, old.line())
		return f
	case f.Entry != old.Function.Entry || !sameSignature(f.Params, old.Function.Params) || !sameSignature(f.Returns, old.Function.Returns):
		p.fail(f.Line, "the parameters of function %s differ from its declaration in line %d", f.Name, old.Function.Line)
		return f
	}
	if defined {
		*old.Function = *f
	}
	return old.Function
}

// sameSignature reports whether two parameter lists agree in space, type, vector width and count.
func sameSignature(a, b []*Variable) bool {
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
		if !p.is(directive, ".param") && !p.is(directive, ".reg") {
			p.failExpected("a parameter (.param or .reg)")
			return params
		}
		d := p.declarator(linkage{})
		v := d.variable(p.tok.text, p.tok.line)
		p.name("a parameter name")
		p.dimensions(v)
		if v.Space == Reg && v.IsArray {
			p.fail(v.Line, "register parameter %s must not be an array; use .param for arrays", v.Name)
		}
		params = append(params, v)
		if p.tok.kind != ')' {
			p.expect(',')
		}
	}
	p.expect(')')
	return params
}

// scalarParameters replaces each vector register by its components. Calls pass them one by one.
func scalarParameters(params []*Variable) (scalars []*Variable) {
	for _, v := range params {
		if v.Space != Reg || v.Vector == 1 {
			scalars = append(scalars, v)
			continue
		}
		for i, component := range components[:v.Vector] {
			one := *v
			one.Name, one.Vector, one.Register = v.Name+component, 1, v.Register+i
			scalars = append(scalars, &one)
		}
	}
	return scalars
}

// defineParameters makes the parameter names visible in the body.
func (p *parser) defineParameters(params []*Variable) {
	for _, v := range params {
		meaning := binding{symbol: Symbol{Variable: v}}
		if v.Space == Reg {
			if p.function.Entry || !p.countRegisters(v.Line, v.Vector) {
				p.fail(v.Line, "parameter %s of an .entry cannot be a register; use .param", v.Name)
			}
			v.Register = p.addRegister(v.Name, v.Type, v.Vector)
			meaning = binding{register: v.Register, vector: v.Vector}
		}
		p.defineName(v.Name, v.Line, meaning)
	}
}

// functionDirectives reads the directives between the parameters and the body (PTX ISA,
// Performance-Tuning Directives).
func (p *parser) functionDirectives(f *Function) {
	for p.tok.kind == directive {
		switch word := p.tok.text; word {
		case ".maxntid":
			f.MaxThreads = p.threeIntegers()
		case ".reqntid":
			f.RequiredThreads = p.threeIntegers()
		case ".reqnctapercluster":
			f.ClusterBlocks = p.threeIntegers()
		case ".minnctapersm":
			f.MinBlocks = p.oneInteger()
		case ".maxnreg":
			f.MaxRegisters = p.oneInteger()
		case ".maxnctapersm", ".maxclusterrank", ".abi_preserve", ".abi_preserve_control":
			p.oneInteger()
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
			p.fail(p.tok.line, "unknown directive %s of a function", word)
		}
	}
}

func (p *parser) oneInteger() int {
	p.next()
	return p.integer("an integer", math.MaxInt32)
}

// threeIntegers reads up to three integers; missing ones are 1.
func (p *parser) threeIntegers() [3]int {
	all := [3]int{p.oneInteger(), 1, 1}
	for i := 1; i < 3 && p.tok.kind == ','; i++ {
		all[i] = p.oneInteger()
	}
	return all
}

// body reads the statements of a function, whose outermost scope is already open.
func (p *parser) body(linkage linkage) {
	f := p.function
	if linkage.extern {
		p.fail(f.Line, "function %s is .extern and has a body; remove one of the two", f.Name)
	}
	p.code = p.code[:0]
	p.next()
	for len(p.scopes) > 0 && p.err == nil {
		p.statement()
	}
	for _, branch := range p.pendingBranches {
		p.fail(branch.line, "unknown label %s; no scope around the branch defines it", branch.label)
	}
	p.pendingBranches = p.pendingBranches[:0]
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
	case directive:
		p.bodyDirective()
	case '@':
		p.instruction()
	case identifier:
		if p.peekByte() == ':' {
			p.label()
		} else {
			p.instruction()
		}
	case eof:
		p.fail(p.function.Line, "function %s has no closing brace", p.function.Name)
	default:
		p.failFound("an instruction")
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
		p.fail(p.tok.line, "%s has no label; write it as NAME: %s ...;", p.tok.text, p.tok.text)
	default:
		p.fail(p.tok.line, "unknown directive %s in a function body", p.tok.text)
	}
}
