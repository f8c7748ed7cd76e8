package ptx

import (
	"slices"
	"strings"
)

// opcode is an opcode split at its dots. Instructions with the same opcode text share it.
type opcode struct {
	name      string
	modifiers []string
}

// String returns the source text on one line, without comments and the semicolon.
func (in *Instruction) String() string { return collapseSpace(in.source) }

// Text returns the source text of an instruction; "the end" for the index len(Code).
func (f *Function) Text(index int) string {
	if index >= len(f.Code) {
		return "the end"
	}
	return f.Code[index].String()
}

// instruction reads an instruction with its guard and the semicolon.
func (p *parser) instruction() {
	in := Instruction{Guard: -1, Location: p.location}
	start := p.tok.start
	if p.accept('@') {
		in.GuardNot = p.accept('!')
		line := p.tok.line
		name := p.name("a predicate")
		in.Guard = p.predicate(name, line)
	}
	in.Line = p.tok.line
	if p.tok.kind != identifier {
		p.failExpected("an instruction")
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
		p.plainOperands(&in)
	}
	in.source = p.text[start:max(p.previous.end, start)]
	p.expect(';')
	p.code = append(p.code, in)
}

// predicate returns the index of a predicate register.
func (p *parser) predicate(name string, line int) int {
	found := p.lookup(name)
	if found.kind == unbound {
		p.fail(line, "unknown register %s; declare it with .reg", name)
	}
	if found.kind != registerBinding || p.function.Registers[found.register].Type != Pred {
		p.fail(line, "expected a predicate register, found %s", name)
	}
	return found.register
}

// opcode reads the opcode and its modifiers. A modifier may start with a digit, as in .2d, and
// space may precede its dot.
func (p *parser) opcode() *opcode {
	start := p.tok.start
	written := p.text[start:p.dottedWords(p.pos)]
	known, ok := p.opcodes[written]
	if !ok {
		words := strings.Split(written, ".")
		known = &opcode{name: words[0]}
		for _, modifier := range words[1:] {
			if modifier == "" {
				p.fail(p.tok.line, "expected a modifier after the dot in %s", written)
			}
			known.modifiers = append(known.modifiers, modifier)
		}
		p.opcodes[written] = known
	}
	p.pos = start + len(written)
	if p.peekByte() == '.' {
		known = p.detachedModifiers(known)
	}
	p.tok.end = p.pos
	p.next()
	return known
}

// dottedWords returns the end of .word.word...
func (l *lexer) dottedWords(pos int) int {
	for l.byteAt(pos) == '.' {
		pos = l.dottedEnd(pos + 1)
	}
	return pos
}

// detachedModifiers reads modifiers that space separates from the opcode. The shared opcode stays
// unchanged.
func (p *parser) detachedModifiers(known *opcode) *opcode {
	whole := &opcode{name: known.name, modifiers: slices.Clone(known.modifiers)}
	for p.peekByte() == '.' {
		p.skipSpace()
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
	p.addPendingBranch(p.name("a label"), line, &in.Targets[0])
}

// indexedBranch reads the operands of brx.idx: an index and the name of a .branchtargets list.
func (p *parser) indexedBranch(in *Instruction) {
	depth := len(p.operandStack)
	p.operandStack = append(p.operandStack, p.operand())
	in.Operands = p.popOperands(depth)
	p.expect(',')
	line := p.tok.line
	name := p.name("the name of a .branchtargets list")
	list := p.lookup(name).list
	if list == nil || list.targets == nil {
		p.fail(line, "%s is not a .branchtargets list; declare the list before brx.idx", name)
		return
	}
	in.Targets = list.targets
}

// call reads the operands of call. The result always has three operands: returns, callee and
// arguments.
func (p *parser) call(in *Instruction) {
	depth := len(p.operandStack)
	returns, arguments := Operand{Kind: ListOperand}, Operand{Kind: ListOperand}
	if p.tok.kind == '(' {
		returns.Parts = p.callList(')')
		p.expect(',')
	}
	line := p.tok.line
	callee := p.operand()
	listed := ""
	if p.accept(',') {
		if p.tok.kind == '(' {
			arguments.Parts = p.callList(')')
			if p.accept(',') {
				listed = p.name("a .calltargets list or a .callprototype")
			}
		} else {
			listed = p.name("a .calltargets list or a .callprototype")
		}
	}
	p.operandStack = append(p.operandStack, returns, callee, arguments)
	in.Operands = p.popOperands(depth)
	p.resolveCall(in, listed, line)
}

// resolveCall finds the possible callees and checks the number of arguments and return values.
func (p *parser) resolveCall(in *Instruction, listed string, line int) {
	if p.err != nil {
		return
	}
	callee := in.Operands[1]
	signature := callee.Symbol.Function
	switch {
	case callee.Kind == SymOperand && signature != nil && listed == "":
	case callee.Kind == RegOperand && listed != "":
		list := p.lookup(listed).list
		if list == nil || list.callees == nil && list.prototype == nil {
			p.fail(line, "%s is not a .calltargets list or .callprototype; declare it before the call", listed)
			return
		}
		in.Callees, in.Prototype = list.callees, list.prototype
		if signature = list.prototype; signature == nil {
			signature = list.callees[0]
		}
	default:
		p.fail(line, "expected a function, or a register with a .calltargets list or a .callprototype")
		return
	}
	if len(in.Operands[0].Parts) != len(signature.Returns) || len(in.Operands[2].Parts) != len(signature.Params) {
		p.fail(line, "the call has %d arguments and %d return values; the function has %d and %d",
			len(in.Operands[2].Parts), len(in.Operands[0].Parts), len(signature.Params), len(signature.Returns))
	}
}

// plainOperands reads the operands of all instructions other than branches and calls.
func (p *parser) plainOperands(in *Instruction) {
	if p.tok.kind == ';' {
		return
	}
	depth := len(p.operandStack)
	for {
		p.operandStack = append(p.operandStack, p.operand())
		if p.tok.kind == directive && p.tok.text == ".unified" && p.previous.kind == ']' {
			// .unified modifies the address but follows it in the text.
			in.Modifiers = append(slices.Clone(in.Modifiers), "unified")
			p.next()
		}
		if !p.accept(',') {
			break
		}
	}
	in.Operands = p.popOperands(depth)
}

// popOperands removes the operands above a stack depth and returns a copy in the arena.
func (p *parser) popOperands(depth int) []Operand {
	const arenaSize = 1024
	taken := p.operandStack[depth:]
	p.operandStack = p.operandStack[:depth]
	if len(p.operandArena) < len(taken) {
		p.operandArena = make([]Operand, max(arenaSize, len(taken)))
	}
	kept := p.operandArena[:len(taken):len(taken)]
	p.operandArena = p.operandArena[len(taken):]
	copy(kept, taken)
	return kept
}
