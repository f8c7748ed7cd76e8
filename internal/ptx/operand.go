package ptx

import "strings"

// operand reads one operand.
func (p *parser) operand() Operand {
	switch p.tok.kind {
	case word:
		if p.tok.text != "WARP_SZ" {
			return p.pair(p.named())
		}
	case '{':
		return Operand{Kind: VecOperand, Parts: p.vector()}
	case '[':
		return p.memory()
	case '!':
		if classes[p.ahead()]&startsName != 0 {
			p.next()
			line, name := p.tok.line, p.name("a predicate")
			return Operand{Kind: RegOperand, Register: p.predicate(name, line), Negated: true}
		}
	}
	switch p.tok.kind {
	case number, word, '(', '+', '-', '~', '!':
	default:
		p.unexpected("an operand")
	}
	value := p.constant()
	return Operand{Kind: ImmOperand, Number: value.number, Value: value.bits}
}

// pair reads the rest of p|q, if there is one.
func (p *parser) pair(first Operand) Operand {
	if p.tok.kind != '|' {
		return first
	}
	depth := len(p.scratch)
	p.scratch = append(p.scratch, first)
	p.next()
	if p.tok.kind != word {
		p.unexpected("a register")
	}
	p.scratch = append(p.scratch, p.named())
	return Operand{Kind: PairOperand, Parts: p.keep(depth)}
}

// named reads what begins with a name: a register, a symbol with an offset, a special register, or the sink.
func (p *parser) named() Operand {
	line, name := p.tok.line, p.tok.text
	if name == "_" {
		p.next()
		return Operand{Kind: SinkOperand}
	}
	p.next()
	switch what := p.find(name); what.kind {
	case aRegister:
		if what.vector > 1 {
			return p.vectorRegister(what, line)
		}
		if p.tok.kind == dotted {
			p.fail(line, "%s%s: selectors of bytes and halves are not read", name, p.tok.text)
		}
		return Operand{Kind: RegOperand, Register: what.register}
	case aSymbol:
		if p.tok.kind == '[' {
			p.fail(line, "the form %s[i] is not read; write [%s+offset]", name, name)
		}
		return Operand{Kind: SymOperand, Symbol: what.symbol, Offset: p.offset()}
	}
	return p.special(name, line)
}

// component is the number of a selector such as .y, or .g as it is also called, of a vector of so many parts.
func component(selector string, parts int) (index int, ok bool) {
	if len(selector) != 2 {
		return 0, false
	}
	index = strings.IndexByte("xyzwrgba", selector[1])
	if index >= 4 {
		index -= 4
	}
	return index, index >= 0 && index < parts
}

// vectorRegister reads the rest of v.x, or makes {v.x, v.y, ...} of v.
func (p *parser) vectorRegister(v found, line int) Operand {
	if p.tok.kind == dotted {
		index, ok := component(p.tok.text, v.vector)
		if !ok {
			p.fail(line, "a vector register of %d parts has no part %s", v.vector, p.tok.text)
		}
		p.next()
		return Operand{Kind: RegOperand, Register: v.register + index}
	}
	depth := len(p.scratch)
	for i := range v.vector {
		p.scratch = append(p.scratch, Operand{Kind: RegOperand, Register: v.register + i})
	}
	return Operand{Kind: VecOperand, Parts: p.keep(depth)}
}

// special reads the rest of a special register; a whole vector becomes {x, y, z, w}.
func (p *parser) special(name string, line int) Operand {
	plain, isRegister := strings.CutPrefix(name, "%")
	parts, known := specials[plain]
	switch {
	case !isRegister:
		p.fail(line, "unknown name %s", name)
	case !known:
		p.fail(line, "unknown register %s", name)
	case parts == nil:
		return Operand{Kind: SpecialOperand, Special: plain}
	case p.tok.kind == dotted:
		index, ok := component(p.tok.text, len(parts))
		if !ok {
			p.fail(line, "the special register %s has no part %s", name, p.tok.text)
			break
		}
		p.next()
		return Operand{Kind: SpecialOperand, Special: parts[index]}
	}
	depth := len(p.scratch)
	for _, part := range parts {
		p.scratch = append(p.scratch, Operand{Kind: SpecialOperand, Special: part})
	}
	return Operand{Kind: VecOperand, Parts: p.keep(depth)}
}

// vector reads {a, b, ...}: registers, constants and sinks, but no braces or brackets.
func (p *parser) vector() []Operand {
	p.next()
	depth := len(p.scratch)
	for {
		if p.tok.kind == '{' || p.tok.kind == '[' || p.tok.kind == '}' {
			p.unexpected("a part of a vector")
			break
		}
		p.scratch = append(p.scratch, p.operand())
		if !p.take(',') {
			break
		}
	}
	p.expect('}')
	return p.keep(depth)
}

// parts reads the list of a call, (a, b), which may be empty.
func (p *parser) parts(close kind) []Operand {
	p.next()
	depth := len(p.scratch)
	for p.tok.kind != close {
		if p.tok.kind == '{' || p.tok.kind == '[' {
			p.unexpected("a parameter")
			break
		}
		p.scratch = append(p.scratch, p.operand())
		if !p.take(',') {
			break
		}
	}
	p.expect(close)
	return p.keep(depth)
}

// memory reads [base+offset] and what may follow the base after commas.
func (p *parser) memory() Operand {
	p.next()
	depth := len(p.scratch)
	address := Operand{Kind: AddrOperand}
	line := p.tok.line
	if p.tok.kind == '[' || p.tok.kind == '{' {
		p.unexpected("an address")
	}
	base := p.operand()
	switch base.Kind {
	case RegOperand:
		address.Offset = p.offset()
	case SymOperand:
		address.Offset, base.Offset = base.Offset, 0
	case ImmOperand:
	default:
		p.fail(line, "an address is a register, a name or a number")
	}
	p.scratch = append(p.scratch, base)
	for p.take(',') {
		if p.tok.kind == '[' {
			p.unexpected("a register or a vector")
		}
		p.scratch = append(p.scratch, p.operand())
	}
	p.expect(']')
	address.Parts = p.keep(depth)
	return address
}

// specials are the special registers without %, with the names of their parts where they are vectors.
var specials = func() map[string][]string {
	all := map[string][]string{}
	for _, name := range strings.Fields(`laneid warpid nwarpid smid nsmid gridid is_explicit_cluster cluster_ctarank cluster_nctarank
		lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt clock clock_hi clock64 globaltimer globaltimer_lo globaltimer_hi
		dynamic_smem_size total_smem_size aggr_smem_size current_graph_exec
		reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap reserved_smem_offset_0 reserved_smem_offset_1`) {
		all[name] = nil
	}
	for _, name := range numbered("envreg", 32) {
		all[name] = nil
	}
	for _, name := range numbered("pm", 8) {
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
