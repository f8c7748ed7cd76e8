package ptx

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// declarator holds the properties that all variables of one declaration share.
type declarator struct {
	linkage
	space   Space
	kind    Type
	vector  int
	align   int
	managed bool
}

var spaces = map[string]Space{
	".reg": Reg, ".const": Const, ".global": Global, ".local": Local, ".param": Param, ".shared": Shared,
}

// variables reads a declaration of variables at module or function scope.
func (p *parser) variables(linkage linkage) {
	d := p.declarator(linkage)
	for {
		line := p.tok.line
		name := p.name("a variable name")
		if p.accept('<') {
			p.parameterizedVariables(d, name, line)
		} else {
			v := d.variable(name, line)
			dimensions := p.dimensions(v)
			if p.accept('=') {
				p.initialiser(v, dimensions)
			}
			if v.Count == 0 && !v.Extern {
				p.fail(line, "array %s has no size; give one or declare the array .extern", name)
			}
			p.declareVariable(v)
		}
		if !p.accept(',') {
			break
		}
	}
	p.expect(';')
}

// parameterizedVariables reads the rest of name<n>, which declares name0 to name(n-1).
func (p *parser) parameterizedVariables(d declarator, name string, line int) {
	number := p.integer("a variable count", maxRegisters)
	p.expect('>')
	if !p.countRegisters(line, number) {
		return
	}
	for _, name := range parameterizedNames(name, number) {
		p.declareVariable(d.variable(name, line))
	}
}

// declarator reads the state space and all attributes before the first name.
func (p *parser) declarator(linkage linkage) declarator {
	d := declarator{linkage: linkage, space: spaces[p.tok.text], vector: 1}
	line := p.tok.line
	p.next()
	for p.tok.kind == directive {
		switch word := p.tok.text; word {
		case ".align":
			p.next()
			if d.align = p.integer("an alignment", maxSize); bits.OnesCount(uint(d.align)) != 1 {
				p.fail(line, "expected an alignment that is a power of two, found %d", d.align)
			}
			continue
		case ".attribute":
			d.managed = p.attribute() || d.managed
			continue
		case ".v2", ".v4":
			d.vector = int(word[2] - '0')
		case ".ptr":
			p.pointerAttribute()
			continue
		case ".texref", ".samplerref", ".surfref":
			p.fail(line, "%s is not supported: textures, samplers and surfaces; use global memory", word)
		default:
			kind, ok := ParseType(word[1:])
			if !ok {
				p.fail(line, "unknown type %s; expected one such as .b32", word)
			}
			if d.kind != NoType {
				p.fail(line, "a declaration has one type, found .%s and .%s", d.kind, kind)
			}
			d.kind = kind
		}
		p.next()
	}
	if d.kind == NoType {
		p.fail(line, "the declaration has no type; add one such as .b32")
	}
	if d.kind == Pred && (d.space != Reg || d.vector > 1) {
		p.fail(line, "only scalar registers can have type .pred; use an integer type")
	}
	return d
}

// pointerAttribute skips .ptr with its optional space and alignment, which describe the memory that
// a kernel parameter points to.
func (p *parser) pointerAttribute() {
	p.next()
	if p.tok.kind == directive && spaces[p.tok.text] != Generic {
		p.next()
	}
	if p.is(directive, ".align") {
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
		Name: name, Space: d.space, Type: d.kind, Vector: d.vector, Count: 1, Align: align, Extern: d.extern, Visible: d.visible, Managed: d.managed,
		Line: line, Register: -1,
	}
}

// dimensions reads [a][b]... and sets v.Count. The first dimension may be empty, which gives 0.
func (p *parser) dimensions(v *Variable) (dimensions []int) {
	line := p.tok.line
	for p.accept('[') {
		v.IsArray = true
		size := 0
		if p.tok.kind != ']' || len(dimensions) > 0 {
			size = p.integer("an array size", maxSize)
		}
		p.expect(']')
		if size == 0 && len(dimensions) > 0 {
			p.fail(line, "only the first dimension of an array may be empty or 0")
		}
		if dimensions = append(dimensions, size); len(dimensions) > maxDimensions {
			p.fail(line, "array %s has more than %d dimensions", v.Name, maxDimensions)
		}
		v.Count *= size
		if max(dimensions[0], 1)*elementCount(dimensions[1:])*v.Vector*max(v.Type.Size(), 1) > maxSize {
			p.fail(line, "array %s is larger than %d bytes", v.Name, maxSize)
			return nil
		}
	}
	if len(dimensions) > 1 {
		p.manyDimensions[v] = dimensions
	}
	return dimensions
}

func elementCount(dimensions []int) int {
	count := 1
	for _, size := range dimensions {
		count *= size
	}
	return count
}

// initialiser reads an initial value. The braces nest as deep as the variable has dimensions; a
// vector counts as one dimension.
func (p *parser) initialiser(v *Variable, dimensions []int) {
	if v.Space != Global && v.Space != Const {
		p.fail(p.tok.line, "%s in .%s cannot have an initialiser; only .global and .const can", v.Name, v.Space)
		return
	}
	if v.Extern {
		p.fail(p.tok.line, "%s is .extern and has an initialiser; remove one of the two", v.Name)
		return
	}
	v.Init = []byte{}
	counts := dimensions
	if v.Vector > 1 {
		counts = append(slices.Clip(counts), v.Vector)
	}
	read := p.initialValues(v, counts, 0)
	if v.IsArray && v.Count == 0 {
		if v.Count = read * elementCount(dimensions[1:]); v.Size() > maxSize {
			p.fail(v.Line, "array %s is larger than %d bytes", v.Name, maxSize)
		}
	}
}

// initialValues reads the values of an array with these dimensions, or one scalar if there are
// none. It returns the number of values in the first dimension.
func (p *parser) initialValues(v *Variable, dimensions []int, offset int) (read int) {
	if len(dimensions) == 0 {
		p.initialElement(v, offset)
		return 1
	}
	line := p.tok.line
	p.expect('{')
	stride := elementCount(dimensions[1:]) * v.Type.Size()
	for p.tok.kind != '}' && p.tok.kind != eof {
		if dimensions[0] > 0 && read == dimensions[0] { // 0: the initialiser sets the size
			p.fail(p.tok.line, "too many values for %s: this dimension has size %d", v.Name, read)
		}
		p.initialValues(v, dimensions[1:], offset+read*stride)
		read++
		if p.tok.kind != '}' {
			p.expect(',')
			if p.tok.kind == '}' {
				p.failExpected("a value")
			}
		}
	}
	if p.tok.kind == eof {
		p.fail(line, "unterminated initialiser; close it with '}'")
	}
	p.expect('}')
	return read
}

// initialElement reads the value of one element: a constant or an address.
func (p *parser) initialElement(v *Variable, offset int) {
	line := p.tok.line
	size := v.Type.Size()
	if grown := offset + size - len(v.Init); grown > 0 {
		if p.initBytes += grown; p.initBytes > maxInit {
			p.fail(line, "the module has more than %d bytes of initialisers", maxInit)
			return
		}
		v.Init = append(v.Init, make([]byte, grown)...)
	}
	masked := p.tok.kind == number && p.peekByte() == '('
	if masked || p.tok.kind == identifier && p.tok.text != "WARP_SZ" {
		p.initialAddress(v, offset, masked)
		return
	}
	value := p.constant()
	code, ok := encode(value, v.Type)
	if !ok {
		p.fail(line, "cannot initialise type .%s with %s", v.Type, value.describe())
		return
	}
	var bytes [8]byte
	binary.LittleEndian.PutUint64(bytes[:], code)
	copy(v.Init[offset:offset+size], bytes[:])
	if size > 8 && value.bits>>63 == 1 && !value.unsigned {
		copy(v.Init[offset+8:offset+size], "\xff\xff\xff\xff\xff\xff\xff\xff")
	}
}

// encode returns the encoding of a constant in a type. Like ptxas, it takes the bits of
// floating-point constants as they are for bit types, truncates integers, and converts between f32
// and f64.
func encode(value constant, to Type) (code uint64, ok bool) {
	double := value.float()
	single := math.Float32bits(float32(double))
	if value.form == Float32 {
		double = float64(math.Float32frombits(uint32(value.bits)))
		single = uint32(value.bits)
	}
	switch to {
	case F32:
		return uint64(single), value.form != Integer
	case F64:
		return math.Float64bits(double), value.form != Integer
	case B32:
		if value.form != Integer {
			return uint64(single), true
		}
	case B64:
		if value.form != Integer {
			return math.Float64bits(double), true
		}
	case F16, F16x2, BF16, BF16x2, TF32, E4M3, E5M2, E4M3x2, E5M2x2:
		return 0, false
	}
	return value.bits, value.form == Integer
}

// initialAddress reads an address as the value of an element: name, name+n, generic(name) or
// generic(name)+n. mask(address) selects one byte of it.
func (p *parser) initialAddress(v *Variable, offset int, masked bool) {
	line := p.tok.line
	at := Relocation{Offset: offset, Size: v.Type.Size()}
	if masked {
		mask := p.numberToken().bits
		at.Shift = bits.TrailingZeros64(mask)
		if mask == 0 || at.Shift%8 != 0 || mask>>at.Shift != 0xFF || at.Size != 1 {
			p.fail(line, "an address mask must select one byte, such as 0xFF00, for a 1-byte element")
		}
		p.expect('(')
	} else if at.Size != 4 && at.Size != 8 {
		p.fail(line, "an address does not fit into type .%s; use a 4-byte or 8-byte type", v.Type)
	}
	name := p.name("an address")
	if at.Generic = name == "generic" && p.tok.kind == '('; at.Generic {
		p.next()
		name = p.name("a variable name")
		p.expect(')')
	}
	at.Symbol = p.symbol(name, line)
	at.Addend = p.offset()
	if masked {
		p.expect(')')
	}
	v.Relocations = append(v.Relocations, at)
}

// symbol returns the variable or function with this name.
func (p *parser) symbol(name string, line int) Symbol {
	found := p.lookup(name)
	if found.symbol == (Symbol{}) {
		p.fail(line, "unknown name %s; declare it before its use", name)
	}
	return found.symbol
}

// offset reads any number of +n and -n after a name or a register, and returns their sum.
func (p *parser) offset() (sum int64) {
	for p.tok.kind == '+' || p.tok.kind == '-' {
		minus := p.tok.kind == '-'
		line := p.tok.line
		p.next()
		if p.tok.kind == identifier && p.tok.text != "WARP_SZ" {
			p.fail(line, "expected a constant offset, found %s; compute the address in a register", p.tok.text)
			return 0
		}
		value := p.binaryExpression(precedence('*'))
		if value.form != Integer {
			p.fail(line, "expected an integer offset, found a floating-point constant")
		}
		if minus {
			value.bits = -value.bits
		}
		sum += int64(value.bits)
	}
	return sum
}

// declareVariable adds a variable to the current scope.
func (p *parser) declareVariable(v *Variable) {
	if p.function != nil {
		p.function.Variables = append(p.function.Variables, v)
		p.defineName(v.Name, v.Line, binding{symbol: Symbol{Variable: v}})
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
		p.fail(v.Line, "%s is already declared in line %d", v.Name, old.line())
	}
}
