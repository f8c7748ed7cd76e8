package ptx

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// declarator is what the variables of one declaration have in common.
type declarator struct {
	linkage
	space  Space
	kind   Type
	vector int
	align  int
}

var spaces = map[string]Space{
	".reg": Reg, ".const": Const, ".global": Global, ".local": Local, ".param": Param, ".shared": Shared,
}

// variables reads a declaration of variables of the module or of a function.
func (p *parser) variables(linkage linkage) {
	d := p.declarator(linkage)
	for {
		line := p.tok.line
		name := p.name("the name of a variable")
		if p.take('<') {
			p.variableFamily(d, name, line)
		} else {
			v := d.variable(name, line)
			dimensions := p.dimensions(v)
			if p.take('=') {
				p.initialiser(v, dimensions)
			}
			if v.Count == 0 && !v.Extern {
				p.fail(line, "the array %s has no size", name)
			}
			p.declare(v)
		}
		if !p.take(',') {
			break
		}
	}
	p.expect(';')
}

// variableFamily reads the rest of name<n>, which declares name0 to name(n-1).
func (p *parser) variableFamily(d declarator, name string, line int) {
	number := p.integer("the number of variables", maxRegisters)
	p.expect('>')
	if !p.count(line, number) {
		return
	}
	for _, name := range numbered(name, number) {
		p.declare(d.variable(name, line))
	}
}

// declarator reads the space and what follows up to the first name.
func (p *parser) declarator(linkage linkage) declarator {
	d := declarator{linkage: linkage, space: spaces[p.tok.text], vector: 1}
	line := p.tok.line
	p.next()
	for p.tok.kind == dotted {
		switch word := p.tok.text; word {
		case ".align":
			p.next()
			if d.align = p.integer("an alignment", maxSize); bits.OnesCount(uint(d.align)) != 1 {
				p.fail(line, "an alignment has to be a power of two")
			}
			continue
		case ".attribute":
			p.attribute()
			continue
		case ".v2", ".v4":
			d.vector = int(word[2] - '0')
		case ".ptr":
			p.pointer()
			continue
		case ".texref", ".samplerref", ".surfref":
			p.fail(line, "textures, samplers and surfaces (%s) are not read", word)
		default:
			kind, ok := ParseType(word[1:])
			if !ok {
				p.fail(line, "unknown type %s", word)
			}
			if d.kind != NoType {
				p.fail(line, "a declaration with two types, .%s and .%s", d.kind, kind)
			}
			d.kind = kind
		}
		p.next()
	}
	if d.kind == NoType || d.kind == Pred && (d.space != Reg || d.vector > 1) {
		p.fail(line, "a declaration without a type that a variable can have")
	}
	return d
}

// pointer passes over .ptr, an optional space, and an optional alignment: what a kernel's parameter points to.
func (p *parser) pointer() {
	p.next()
	if p.tok.kind == dotted && spaces[p.tok.text] != Generic {
		p.next()
	}
	if p.is(dotted, ".align") {
		p.next()
		p.integer("an alignment", maxSize)
	}
}

func (d declarator) variable(name string, line int) *Variable {
	align := d.align
	if align == 0 {
		align = max(d.kind.Size()*d.vector, 1)
	}
	return &Variable{
		Name: name, Space: d.space, Type: d.kind, Vector: d.vector, Count: 1, Align: align, Extern: d.extern, Visible: d.visible,
		Line: line, Register: -1,
	}
}

// dimensions reads [a][b]... and sets the size; the first may be empty, which is 0.
func (p *parser) dimensions(v *Variable) (dimensions []int) {
	line := p.tok.line
	for p.take('[') {
		v.IsArray = true
		size := 0
		if p.tok.kind != ']' || len(dimensions) > 0 {
			size = p.integer("the size of an array", maxSize)
		}
		p.expect(']')
		if size == 0 && len(dimensions) > 0 {
			p.fail(line, "only the first size of an array may be left out")
		}
		if dimensions = append(dimensions, size); len(dimensions) > maxDimensions {
			p.fail(line, "an array of more than %d dimensions", maxDimensions)
		}
		v.Count *= size
		if max(dimensions[0], 1)*elements(dimensions[1:])*v.Vector*max(v.Type.Size(), 1) > maxSize {
			p.fail(line, "the array %s has more than %d bytes", v.Name, maxSize)
			return nil
		}
	}
	return dimensions
}

func elements(dimensions []int) int {
	count := 1
	for _, size := range dimensions {
		count *= size
	}
	return count
}

// initialiser reads a value: as many levels of braces as the variable has dimensions, a vector being one.
func (p *parser) initialiser(v *Variable, dimensions []int) {
	if v.Space != Global && v.Space != Const || v.Extern {
		p.fail(p.tok.line, "a variable of space %s, or an external one, takes no value", v.Space)
		return
	}
	v.Init = []byte{}
	counts := dimensions
	if v.Vector > 1 {
		counts = append(slices.Clip(counts), v.Vector)
	}
	read := p.values(v, counts, 0)
	if v.IsArray && v.Count == 0 {
		if v.Count = read * elements(dimensions[1:]); v.Size() > maxSize {
			p.fail(v.Line, "the array %s has more than %d bytes", v.Name, maxSize)
		}
	}
}

// values reads the values of an array with these dimensions, or of a scalar where there are none, and says how many there were
// in the first.
func (p *parser) values(v *Variable, dimensions []int, offset int) (read int) {
	if len(dimensions) == 0 {
		p.element(v, offset)
		return 1
	}
	line := p.tok.line
	p.expect('{')
	stride := elements(dimensions[1:]) * v.Type.Size()
	for p.tok.kind != '}' && p.tok.kind != end {
		if dimensions[0] > 0 && read == dimensions[0] { // 0 is an array that takes its size from here
			p.fail(p.tok.line, "more values than the %d that %s has room for", read, v.Name)
		}
		p.values(v, dimensions[1:], offset+read*stride)
		read++
		if p.tok.kind != '}' {
			p.expect(',')
			if p.tok.kind == '}' {
				p.unexpected("a value")
			}
		}
	}
	if p.tok.kind == end {
		p.fail(line, "a value without its closing brace")
	}
	p.expect('}')
	return read
}

// element reads the value of one element: a constant, or an address.
func (p *parser) element(v *Variable, offset int) {
	line := p.tok.line
	size := v.Type.Size()
	if grown := offset + size - len(v.Init); grown > 0 {
		if p.initials += grown; p.initials > maxInit {
			p.fail(line, "initialisers of more than %d bytes", maxInit)
			return
		}
		v.Init = append(v.Init, make([]byte, grown)...)
	}
	masked := p.tok.kind == number && p.ahead() == '('
	if masked || p.tok.kind == word && p.tok.text != "WARP_SZ" {
		p.address(v, offset, masked)
		return
	}
	value := p.constant()
	code, ok := encode(value, v.Type)
	if !ok {
		p.fail(line, "no value of this kind for type %s", v.Type)
		return
	}
	var bytes [8]byte
	binary.LittleEndian.PutUint64(bytes[:], code)
	copy(v.Init[offset:offset+size], bytes[:])
	if size > 8 && value.bits>>63 == 1 && !value.unsigned {
		copy(v.Init[offset+8:offset+size], "\xff\xff\xff\xff\xff\xff\xff\xff")
	}
}

// encode is the code of a constant in a type. ptxas takes bits as they are, cuts integers off, and converts between the
// floating-point types.
func encode(value constant, to Type) (code uint64, ok bool) {
	double := value.float()
	single := math.Float32bits(float32(double))
	if value.number == Float32 {
		double = float64(math.Float32frombits(uint32(value.bits)))
		single = uint32(value.bits)
	}
	switch to {
	case F32:
		return uint64(single), value.number != Integer
	case F64:
		return math.Float64bits(double), value.number != Integer
	case B32:
		if value.number != Integer {
			return uint64(single), true
		}
	case B64:
		if value.number != Integer {
			return math.Float64bits(double), true
		}
	case F16, F16x2, BF16, BF16x2, TF32, E4M3, E5M2, E4M3x2, E5M2x2:
		return 0, false
	}
	return value.bits, value.number == Integer
}

// address reads an address as the value of an element: name, name+n, generic(name), generic(name)+n, or one byte of those as
// mask(address).
func (p *parser) address(v *Variable, offset int, masked bool) {
	line := p.tok.line
	at := Relocation{Offset: offset, Size: v.Type.Size()}
	if masked {
		mask := p.value().bits
		at.Shift = bits.TrailingZeros64(mask)
		if mask == 0 || at.Shift%8 != 0 || mask>>at.Shift != 0xFF || at.Size != 1 {
			p.fail(line, "a mask has to select one byte, for an element of one byte")
		}
		p.expect('(')
	} else if at.Size != 4 && at.Size != 8 {
		p.fail(line, "an address does not fit into type %s", v.Type)
	}
	name := p.name("an address")
	if at.Generic = name == "generic" && p.tok.kind == '('; at.Generic {
		p.next()
		name = p.name("the name of a variable")
		p.expect(')')
	}
	at.Symbol = p.symbol(name, line)
	at.Addend = p.offset()
	if masked {
		p.expect(')')
	}
	v.Pointed = append(v.Pointed, at)
}

// symbol is the variable or function of this name.
func (p *parser) symbol(name string, line int) Symbol {
	found := p.find(name)
	if found.symbol == (Symbol{}) {
		p.fail(line, "unknown name %s", name)
	}
	return found.symbol
}

// offset reads +n or -n after a name or a register, as often as it stands there.
func (p *parser) offset() (sum int64) {
	for p.tok.kind == '+' || p.tok.kind == '-' {
		minus := p.tok.kind == '-'
		line := p.tok.line
		p.next()
		if p.tok.kind == word && p.tok.text != "WARP_SZ" {
			p.fail(line, "an offset has to be a constant, not %s", p.tok.text)
			return 0
		}
		value := p.binary(precedence('*'))
		if value.number != Integer {
			p.fail(line, "an offset has to be an integer")
		}
		if minus {
			value.bits = -value.bits
		}
		sum += int64(value.bits)
	}
	return sum
}

// declare adds a variable to the scope.
func (p *parser) declare(v *Variable) {
	if p.function != nil {
		p.function.Variables = append(p.function.Variables, v)
		p.define(v.Name, v.Line, found{symbol: Symbol{Variable: v}})
		return
	}
	old, known := p.names[v.Name]
	switch {
	case !known:
		p.names[v.Name] = Symbol{Variable: v}
		p.module.Variables = append(p.module.Variables, v)
	case old.Variable != nil && (old.Variable.Extern || v.Extern) && old.Variable.Space == v.Space && old.Variable.Type == v.Type:
		if !v.Extern {
			*old.Variable = *v
		}
	default:
		p.fail(v.Line, "%s is declared twice", v.Name)
	}
}
