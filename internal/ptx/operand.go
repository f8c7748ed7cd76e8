package ptx

import "strings"

// operand reads one operand.
func (p *parser) operand() Operand {
	switch p.tok.kind {
	case identifier:
		if p.tok.text != "WARP_SZ" {
			return p.pair(p.namedOperand())
		}
	case '{':
		return p.pair(Operand{Kind: VecOperand, Parts: p.vector()}) // tex may have a predicate
	case '[':
		return p.addressOperand()
	case '!':
		if characterClasses[p.peekByte()]&classNameStart != 0 {
			p.next()
			line, name := p.tok.line, p.name("a predicate")
			return Operand{Kind: RegOperand, Register: p.predicate(name, line), Negated: true}
		}
	}
	switch p.tok.kind {
	case number, identifier, '(', '+', '-', '~', '!':
	default:
		p.failExpected("an operand")
	}
	value := p.constant()
	return Operand{Kind: ImmOperand, Number: value.form, Value: value.bits}
}

// pair reads the rest of p|q, if there is one, and returns first otherwise.
func (p *parser) pair(first Operand) Operand {
	if p.tok.kind != '|' {
		return first
	}
	depth := len(p.operandStack)
	p.operandStack = append(p.operandStack, first)
	p.next()
	if p.tok.kind != identifier {
		p.failExpected("a register")
	}
	p.operandStack = append(p.operandStack, p.namedOperand())
	return Operand{Kind: PairOperand, Parts: p.popOperands(depth)}
}

// namedOperand reads an operand that starts with a name: a register, a symbol with an offset, a
// special register, or the sink _.
func (p *parser) namedOperand() Operand {
	line, name := p.tok.line, p.tok.text
	if name == "_" {
		p.next()
		return Operand{Kind: SinkOperand}
	}
	p.next()
	switch what := p.lookup(name); what.kind {
	case registerBinding:
		if what.vector > 1 {
			return p.vectorRegister(what, line)
		}
		if p.tok.kind == directive {
			p.fail(line, "%s%s: byte and halfword selectors are not supported; extract the part with bfe", name, p.tok.text)
		}
		return Operand{Kind: RegOperand, Register: what.register}
	case symbolBinding:
		if p.tok.kind == '[' {
			return p.element(what.symbol, line)
		}
		return Operand{Kind: SymOperand, Symbol: what.symbol, Offset: p.offset()}
	}
	return p.specialRegister(name, line)
}

// element reads the indexes of an element of an array, arr[i][j].
func (p *parser) element(s Symbol, line int) Operand {
	v := s.Variable
	if v == nil || !v.IsArray {
		p.fail(line, "only an array has elements")
		return Operand{}
	}
	o := Operand{Kind: SymOperand, Symbol: s, Element: true}
	rest := []int{v.Count}
	if many := p.manyDimensions[v]; many != nil {
		rest = many
	}
	dimensions := len(rest)
	for p.tok.kind == '[' {
		p.next()
		if len(rest) == 0 {
			p.fail(line, "the array %s has %d dimensions", v.Name, dimensions)
			return o
		}
		if p.tok.kind == identifier && p.tok.text != "WARP_SZ" {
			p.fail(line, "an index in a register is not supported; add it to the address of %s", v.Name)
			return o
		}
		rest = rest[1:]
		o.Offset += int64(p.integer("an index", maxSize)) * int64(elementCount(rest)*v.Vector*v.Type.Size())
		p.expect(']')
	}
	return o
}

// componentIndex returns the index of a selector such as .y, or its synonym .g, in a vector with
// the given number of components.
func componentIndex(selector string, count int) (index int, ok bool) {
	if len(selector) != 2 {
		return 0, false
	}
	index = strings.IndexByte("xyzwrgba", selector[1])
	if index >= 4 {
		index -= 4
	}
	return index, index >= 0 && index < count
}

// vectorRegister reads the rest of v.x, or expands v to {v.x, v.y, ...}.
func (p *parser) vectorRegister(v binding, line int) Operand {
	if p.tok.kind == directive {
		index, ok := componentIndex(p.tok.text, v.vector)
		if !ok {
			p.fail(line, "a vector register of %d components has no component %s", v.vector, p.tok.text)
		}
		p.next()
		return Operand{Kind: RegOperand, Register: v.register + index}
	}
	depth := len(p.operandStack)
	for i := range v.vector {
		p.operandStack = append(p.operandStack, Operand{Kind: RegOperand, Register: v.register + i})
	}
	return Operand{Kind: VecOperand, Parts: p.popOperands(depth)}
}

// specialRegister reads the rest of a special register. A vector without a component, such as %tid,
// becomes {x, y, z, w}.
func (p *parser) specialRegister(name string, line int) Operand {
	plain, isRegister := strings.CutPrefix(name, "%")
	parts, known := specialRegisters[plain]
	switch {
	case !isRegister:
		p.fail(line, "unknown name %s; declare it before its use", name)
	case !known:
		p.fail(line, "unknown register %s; declare it with .reg", name)
	case parts == nil:
		return Operand{Kind: SpecialOperand, Special: plain}
	case p.tok.kind == directive:
		index, ok := componentIndex(p.tok.text, len(parts))
		if !ok {
			p.fail(line, "the special register %s has no component %s", name, p.tok.text)
			break
		}
		p.next()
		return Operand{Kind: SpecialOperand, Special: parts[index]}
	}
	depth := len(p.operandStack)
	for _, part := range parts {
		p.operandStack = append(p.operandStack, Operand{Kind: SpecialOperand, Special: part})
	}
	return Operand{Kind: VecOperand, Parts: p.popOperands(depth)}
}

// vector reads {a, b, ...}: registers, constants and sinks, without nested braces or brackets.
func (p *parser) vector() []Operand {
	p.next()
	depth := len(p.operandStack)
	for {
		if p.tok.kind == '{' || p.tok.kind == '[' || p.tok.kind == '}' {
			p.failExpected("a vector component")
			break
		}
		p.operandStack = append(p.operandStack, p.operand())
		if !p.accept(',') {
			break
		}
	}
	p.expect('}')
	return p.popOperands(depth)
}

// callList reads the arguments or returns of a call, (a, b), which may be empty.
func (p *parser) callList(close tokenKind) []Operand {
	p.next()
	depth := len(p.operandStack)
	for p.tok.kind != close {
		if p.tok.kind == '{' || p.tok.kind == '[' {
			p.failExpected("a call argument")
			break
		}
		if o := p.operand(); o.Kind == VecOperand { // a vector register
			p.operandStack = append(p.operandStack, o.Parts...)
		} else {
			p.operandStack = append(p.operandStack, o)
		}
		if !p.accept(',') {
			break
		}
	}
	p.expect(close)
	return p.popOperands(depth)
}

// addressOperand reads [base+offset] and the optional operands after the base.
func (p *parser) addressOperand() Operand {
	p.next()
	depth := len(p.operandStack)
	address := Operand{Kind: AddrOperand}
	line := p.tok.line
	if p.tok.kind == '[' || p.tok.kind == '{' {
		p.failExpected("an address")
	}
	base := p.operand()
	switch base.Kind {
	case RegOperand:
		address.Offset = p.offset()
	case SymOperand:
		address.Offset, base.Offset = base.Offset, 0
	case ImmOperand:
	default:
		p.fail(line, "expected a register, a symbol or an integer as the address")
	}
	p.operandStack = append(p.operandStack, base)
	for p.accept(',') {
		if p.tok.kind == '[' {
			p.failExpected("a register or a vector")
		}
		p.operandStack = append(p.operandStack, p.operand())
	}
	p.expect(']')
	address.Parts = p.popOperands(depth)
	return address
}

// specialRegisters maps the special registers, without %, to the names of their components; nil for
// scalars (PTX ISA, Special Registers).
var specialRegisters = func() map[string][]string {
	all := map[string][]string{}
	for _, name := range strings.Fields(`laneid warpid nwarpid smid nsmid gridid is_explicit_cluster cluster_ctarank cluster_nctarank
		lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt clock clock_hi clock64 globaltimer globaltimer_lo globaltimer_hi
		dynamic_smem_size total_smem_size aggr_smem_size current_graph_exec
		reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap reserved_smem_offset_0 reserved_smem_offset_1`) {
		all[name] = nil
	}
	for _, name := range parameterizedNames("envreg", 32) {
		all[name] = nil
	}
	for _, name := range parameterizedNames("pm", 8) {
		all[name] = nil
		all[name+"_64"] = nil
	}
	for _, name := range strings.Fields("tid ntid ctaid nctaid clusterid nclusterid cluster_ctaid cluster_nctaid") {
		for _, component := range components {
			all[name] = append(all[name], name+component)
		}
	}
	return all
}()
