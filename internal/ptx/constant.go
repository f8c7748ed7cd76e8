package ptx

import (
	"math"
	"strconv"
	"strings"
)

// constant is the value of a constant expression. Integers have 64 bits; the operators are those of C.
type constant struct {
	number   Number
	bits     uint64
	unsigned bool
}

func (c constant) float() float64 { return math.Float64frombits(c.bits) }

func fraction(x float64) constant { return constant{number: Float64, bits: math.Float64bits(x)} }

func truth(b bool) constant {
	if b {
		return constant{bits: 1}
	}
	return constant{}
}

// constant reads a constant expression.
func (p *parser) constant() constant {
	value := p.binary(1)
	if p.tok.kind != '?' {
		return value
	}
	line := p.tok.line
	p.next()
	p.deeper()
	yes := p.constant()
	p.expect(':')
	no := p.constant()
	p.nested--
	if value.number != Integer || yes.number != Integer || no.number != Integer {
		p.fail(line, "the operands of ?: have to be integers")
	}
	if value.bits != 0 {
		return yes
	}
	return no
}

// deeper counts a level of nesting, of scopes and of expressions, and fails where there are too many.
func (p *parser) deeper() {
	if p.nested++; p.nested > maxNesting {
		p.fail(p.tok.line, "nested deeper than %d levels", maxNesting)
	}
}

// precedence of a binary operator; 0 for what is none.
func precedence(mark kind) int {
	switch mark {
	case orOr:
		return 1
	case andAnd:
		return 2
	case '|':
		return 3
	case '^':
		return 4
	case '&':
		return 5
	case equal, notEqual:
		return 6
	case '<', '>', lessEqual, greaterEqual:
		return 7
	case shiftLeft, shiftRight:
		return 8
	case '+', '-':
		return 9
	case '*', '/', '%':
		return 10
	}
	return 0
}

// binary reads operators that bind at least so tightly.
func (p *parser) binary(least int) constant {
	left := p.unary()
	for {
		operator := p.tok
		binding := precedence(operator.kind)
		if binding == 0 || binding < least {
			return left
		}
		p.next()
		left = p.apply(operator, left, p.binary(binding+1))
	}
}

func (p *parser) unary() constant {
	operator := p.tok
	switch operator.kind {
	case '+', '-', '~', '!':
	default:
		return p.primary()
	}
	p.next()
	p.deeper()
	value := p.unary()
	p.nested--
	switch {
	case value.number == Float32, value.number == Float64 && (operator.kind == '~' || operator.kind == '!'):
		p.fail(operator.line, "the operator %s does not apply to this constant", operator.text)
	case operator.kind == '!':
		return truth(value.bits == 0)
	case operator.kind == '~':
		value.bits = ^value.bits
	case operator.kind == '-' && value.number == Float64:
		return fraction(-value.float())
	case operator.kind == '-':
		value.bits = -value.bits
	}
	return value
}

// primary reads a number, WARP_SZ, an expression in parentheses, or a cast.
func (p *parser) primary() constant {
	switch {
	case p.tok.kind == number:
		return p.value()
	case p.is(word, "WARP_SZ"):
		p.next()
		return constant{bits: 32}
	case p.tok.kind != '(':
		p.unexpected("a constant")
		return constant{}
	}
	p.next()
	p.deeper()
	defer func() { p.nested-- }()
	if p.tok.kind != dotted {
		value := p.constant()
		p.expect(')')
		return value
	}
	to := p.tok
	p.next()
	p.expect(')')
	value := p.unary()
	if to.text != ".s64" && to.text != ".u64" || value.number != Integer {
		p.fail(to.line, "no cast of this constant to %s; there are .s64 and .u64, of integers", to.text)
	}
	value.unsigned = to.text == ".u64"
	return value
}

// value reads a number.
func (p *parser) value() constant {
	text, line := p.tok.text, p.tok.line
	p.next()
	if len(text) == 1 {
		return constant{bits: uint64(text[0] - '0')}
	}
	if text[0] == '0' {
		switch text[1] {
		case 'f', 'F':
			return p.bitsOf(text, line, Float32, 8)
		case 'd', 'D':
			return p.bitsOf(text, line, Float64, 16)
		}
	}
	if text[0] != '0' && len(text) < 19 {
		if bits, ok := decimal(text); ok {
			return constant{bits: bits}
		}
	}
	digits, unsigned := strings.CutSuffix(text, "U")
	if strings.ContainsAny(digits, ".eE") && !strings.HasPrefix(digits, "0x") && !strings.HasPrefix(digits, "0X") {
		x, err := strconv.ParseFloat(digits, 64)
		if err != nil && !math.IsInf(x, 0) || unsigned {
			p.fail(line, "%s is no number", text)
		}
		return fraction(x)
	}
	bits, err := strconv.ParseUint(digits, 0, 64)
	if err != nil {
		if bits == math.MaxUint64 {
			p.fail(line, "%s does not fit into 64 bits", text)
		}
		p.fail(line, "%s is no number", text)
	}
	return constant{bits: bits, unsigned: unsigned || bits > math.MaxInt64}
}

// decimal is the value of plain digits, of which most numbers consist; there are few enough of them not to overflow.
func decimal(digits string) (value uint64, ok bool) {
	for i := range len(digits) {
		if !isDigit(digits[i]) {
			return 0, false
		}
		value = value*10 + uint64(digits[i]-'0')
	}
	return value, true
}

// bitsOf reads the bits of a floating-point number.
func (p *parser) bitsOf(text string, line int, number Number, digits int) constant {
	bits, err := strconv.ParseUint(text[2:], 16, 64)
	if err != nil || len(text) != 2+digits {
		p.fail(line, "%s is no number: %s takes %d hexadecimal digits", text, text[:2], digits)
	}
	return constant{number: number, bits: bits}
}

// apply is the value of a binary operator.
func (p *parser) apply(operator token, a, b constant) constant {
	if a.number != b.number || a.number == Float32 {
		p.fail(operator.line, "the operator %s does not apply to constants of these types", operator.text)
		return constant{}
	}
	if a.number == Float64 {
		return p.applyFloat(operator, a.float(), b.float())
	}
	unsigned := a.unsigned || b.unsigned
	number := func(bits uint64) constant { return constant{bits: bits, unsigned: unsigned} }
	less := func(a, b constant) bool {
		if unsigned {
			return a.bits < b.bits
		}
		return int64(a.bits) < int64(b.bits)
	}
	switch operator.kind {
	case '+':
		return number(a.bits + b.bits)
	case '-':
		return number(a.bits - b.bits)
	case '*':
		return number(a.bits * b.bits)
	case '/', '%':
		return p.divide(operator, a, b, unsigned)
	case shiftLeft:
		return constant{bits: a.bits << b.bits, unsigned: a.unsigned}
	case shiftRight:
		if a.unsigned {
			return constant{bits: a.bits >> b.bits, unsigned: true}
		}
		return constant{bits: uint64(int64(a.bits) >> b.bits)}
	case '&':
		return number(a.bits & b.bits)
	case '^':
		return number(a.bits ^ b.bits)
	case '|':
		return number(a.bits | b.bits)
	case '<':
		return truth(less(a, b))
	case '>':
		return truth(less(b, a))
	case lessEqual:
		return truth(!less(b, a))
	case greaterEqual:
		return truth(!less(a, b))
	case equal:
		return truth(a.bits == b.bits)
	case notEqual:
		return truth(a.bits != b.bits)
	case andAnd:
		return truth(a.bits != 0 && b.bits != 0)
	case orOr:
		return truth(a.bits != 0 || b.bits != 0)
	}
	panic("BUG: no such operator " + operator.text)
}

func (p *parser) divide(operator token, a, b constant, unsigned bool) constant {
	if b.bits == 0 {
		p.fail(operator.line, "a division by zero")
		return constant{}
	}
	result := constant{unsigned: unsigned}
	switch {
	case unsigned && operator.kind == '/':
		result.bits = a.bits / b.bits
	case unsigned:
		result.bits = a.bits % b.bits
	case operator.kind == '/':
		result.bits = uint64(int64(a.bits) / int64(b.bits))
	default:
		result.bits = uint64(int64(a.bits) % int64(b.bits))
	}
	return result
}

func (p *parser) applyFloat(operator token, a, b float64) constant {
	switch operator.kind {
	case '+':
		return fraction(a + b)
	case '-':
		return fraction(a - b)
	case '*':
		return fraction(a * b)
	case '/':
		return fraction(a / b)
	case '<':
		return truth(a < b)
	case '>':
		return truth(a > b)
	case lessEqual:
		return truth(a <= b)
	case greaterEqual:
		return truth(a >= b)
	case equal:
		return truth(a == b)
	case notEqual:
		return truth(a != b)
	}
	p.fail(operator.line, "the operator %s does not apply to floating-point constants", operator.text)
	return constant{}
}

// integer reads a number that has to be an integer from 0 to most, such as a size; what says of what.
func (p *parser) integer(what string, most int) int {
	line := p.tok.line
	if p.tok.kind != number {
		p.unexpected(what)
		return 0
	}
	value := p.value()
	if value.number != Integer || value.bits > uint64(most) {
		p.fail(line, "%s has to be an integer from 0 to %d", what, most)
		return 0
	}
	return int(value.bits)
}
