package ptx

import (
	"slices"
	"strings"
)

// opcode is an opcode cut into its words. Instructions of the same opcode share it.
type opcode struct {
	name      string
	modifiers []string
}

// String is the instruction as it was written, in one line, without comments and the semicolon.
func (in *Instruction) String() string { return squeeze(in.source) }

// Text is the instruction of this index as it was written, or "the end" for the place behind the last.
func (f *Function) Text(index int) string {
	if index >= len(f.Code) {
		return "the end"
	}
	return f.Code[index].String()
}

// instruction reads an instruction with its guard, up to the semicolon.
func (p *parser) instruction() {
	in := Instruction{Guard: -1, Location: p.location}
	start := p.tok.start
	if p.take('@') {
		in.GuardNot = p.take('!')
		line := p.tok.line
		name := p.name("a predicate")
		in.Guard = p.predicate(name, line)
	}
	in.Line = p.tok.line
	if p.tok.kind != word {
		p.unexpected("an instruction")
		return
	}
	opcode := p.opcode()
	in.Opcode, in.Modifiers = opcode.name, opcode.modifiers
	switch opcode.name {
	case "bra":
		p.branch(&in)
	case "brx":
		p.indexedBranch(&in)
	case "call":
		p.call(&in)
	default:
		p.operandsOf(&in)
	}
	in.source = p.text[start:max(p.last.end, start)]
	p.expect(';')
	p.code = append(p.code, in)
}

// predicate is the index of a predicate register.
func (p *parser) predicate(name string, line int) int {
	found := p.find(name)
	if found.kind == nothing {
		p.fail(line, "unknown register %s", name)
	}
	if found.kind != aRegister || p.function.Registers[found.register].Type != Pred {
		p.fail(line, "%s is no predicate", name)
	}
	return found.register
}

// opcode reads the token and the dotted words behind it. They may begin with a digit, as in .2d, and stand apart.
func (p *parser) opcode() *opcode {
	start := p.tok.start
	written := p.text[start:p.dottedWords(p.pos)]
	known, ok := p.opcodes[written]
	if !ok {
		words := strings.Split(written, ".")
		known = &opcode{name: words[0]}
		for _, modifier := range words[1:] {
			if modifier == "" {
				p.fail(p.tok.line, "a dot without a word after it in %s", written)
			}
			known.modifiers = append(known.modifiers, modifier)
		}
		p.opcodes[written] = known
	}
	p.pos = start + len(written)
	if p.ahead() == '.' {
		known = p.apart(known)
	}
	p.tok.end = p.pos
	p.next()
	return known
}

// dottedWords is the end of .word.word...
func (l *lexer) dottedWords(pos int) int {
	for l.at(pos) == '.' {
		pos = l.dottedEnd(pos + 1)
	}
	return pos
}

// apart reads more modifiers, which stand apart from the opcode.
func (p *parser) apart(known *opcode) *opcode {
	whole := &opcode{name: known.name, modifiers: slices.Clone(known.modifiers)}
	for p.ahead() == '.' {
		p.skip()
		start := p.pos
		p.pos = p.dottedEnd(start + 1)
		whole.modifiers = append(whole.modifiers, p.text[start+1:p.pos])
	}
	return whole
}

// branch reads the label of bra.
func (p *parser) branch(in *Instruction) {
	line := p.tok.line
	in.Targets = make([]int, 1)
	p.target(p.name("a label"), line, &in.Targets[0])
}

// indexedBranch reads the operands of brx.idx: an index, and the name of a list.
func (p *parser) indexedBranch(in *Instruction) {
	depth := len(p.scratch)
	p.scratch = append(p.scratch, p.operand())
	in.Operands = p.keep(depth)
	p.expect(',')
	line := p.tok.line
	name := p.name("a list of .branchtargets")
	list := p.find(name).list
	if list == nil || list.targets == nil {
		p.fail(line, "%s is no list of .branchtargets", name)
		return
	}
	in.Targets = list.targets
}

// call reads the operands of call. Whatever the text leaves out, there are three: the returns, the callee and the arguments.
func (p *parser) call(in *Instruction) {
	depth := len(p.scratch)
	returns, arguments := Operand{Kind: ListOperand}, Operand{Kind: ListOperand}
	if p.tok.kind == '(' {
		returns.Parts = p.parts(')')
		p.expect(',')
	}
	line := p.tok.line
	callee := p.operand()
	listed := ""
	if p.take(',') {
		if p.tok.kind == '(' {
			arguments.Parts = p.parts(')')
			if p.take(',') {
				listed = p.name("a list or a prototype")
			}
		} else {
			listed = p.name("a list or a prototype")
		}
	}
	p.scratch = append(p.scratch, returns, callee, arguments)
	in.Operands = p.keep(depth)
	p.resolveCall(in, listed, line)
}

// resolveCall finds out what a call may reach, and checks the number of what it passes.
func (p *parser) resolveCall(in *Instruction, listed string, line int) {
	if p.err != nil {
		return
	}
	callee := in.Operands[1]
	signature := callee.Symbol.Function
	switch {
	case callee.Kind == SymOperand && signature != nil && listed == "":
	case callee.Kind == RegOperand && listed != "":
		list := p.find(listed).list
		if list == nil || list.callees == nil && list.prototype == nil {
			p.fail(line, "%s is no list of .calltargets and no .callprototype", listed)
			return
		}
		in.Callees, in.Prototype = list.callees, list.prototype
		if signature = list.prototype; signature == nil {
			signature = list.callees[0]
		}
	default:
		p.fail(line, "a call needs a function, or a register with a list or a prototype")
		return
	}
	if len(in.Operands[0].Parts) != len(signature.Returns) || len(in.Operands[2].Parts) != len(signature.Params) {
		p.fail(line, "a call with %d arguments and %d returns of a function that has %d and %d",
			len(in.Operands[2].Parts), len(in.Operands[0].Parts), len(signature.Params), len(signature.Returns))
	}
}

// operandsOf reads the operands of other instructions.
func (p *parser) operandsOf(in *Instruction) {
	if p.tok.kind == ';' {
		return
	}
	depth := len(p.scratch)
	for {
		p.scratch = append(p.scratch, p.operand())
		if p.tok.kind == dotted && p.tok.text == ".unified" && p.last.kind == ']' {
			// It says something of the address, and stands behind it.
			in.Modifiers = append(slices.Clone(in.Modifiers), "unified")
			p.next()
		}
		if !p.take(',') {
			break
		}
	}
	in.Operands = p.keep(depth)
}

// keep takes the operands above a depth from the stack, and gives them a place of their own.
func (p *parser) keep(depth int) []Operand {
	const room = 1024
	taken := p.scratch[depth:]
	p.scratch = p.scratch[:depth]
	if len(p.operands) < len(taken) {
		p.operands = make([]Operand, max(room, len(taken)))
	}
	kept := p.operands[:len(taken):len(taken)]
	p.operands = p.operands[len(taken):]
	copy(kept, taken)
	return kept
}
