package ptx

import (
	"math"
	"strconv"
	"strings"
)

// constant is the value of a constant expression. Integers are 64 bits wide and the operators are
// those of C (PTX ISA, Constant Expressions).
type constant struct {
	form     Number
	bits     uint64
	unsigned bool
}

func (c constant) float() float64 { return math.Float64frombits(c.bits) }

// describe names the form of the constant for error messages.
func (c constant) describe() string {
	if c.form == Integer {
		return "an integer constant"
	}
	return "a floating-point constant"
}

func floatConstant(x float64) constant { return constant{form: Float64, bits: math.Float64bits(x)} }

func boolConstant(b bool) constant {
	if b {
		return constant{bits: 1}
	}
	return constant{}
}

// constant reads a constant expression.
func (p *parser) constant() constant {
	value := p.binaryExpression(1)
	if p.tok.kind != '?' {
		return value
	}
	line := p.tok.line
	p.next()
	p.enterNesting()
	yes := p.constant()
	p.expect(':')
	no := p.constant()
	p.depth--
	if value.form != Integer || yes.form != Integer || no.form != Integer {
		p.fail(line, "expected integer operands of ?:, found a floating-point constant")
	}
	if value.bits != 0 {
		return yes
	}
	return no
}

// enterNesting counts a level of nesting, of scopes and expressions, and fails beyond maxNesting.
func (p *parser) enterNesting() {
	if p.depth++; p.depth > maxNesting {
		p.fail(p.tok.line, "scopes and expressions are nested deeper than %d levels", maxNesting)
	}
}

// precedence returns the precedence of a binary operator; 0 for any other token.
func precedence(operator tokenKind) int {
	switch operator {
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

// binaryExpression reads operators of at least this precedence.
func (p *parser) binaryExpression(minPrecedence int) constant {
	left := p.unaryExpression()
	for {
		operator := p.tok
		level := precedence(operator.kind)
		if level == 0 || level < minPrecedence {
			return left
		}
		p.next()
		left = p.applyBinary(operator, left, p.binaryExpression(level+1))
	}
}

func (p *parser) unaryExpression() constant {
	operator := p.tok
	switch operator.kind {
	case '+', '-', '~', '!':
	default:
		return p.primaryExpression()
	}
	p.next()
	p.enterNesting()
	value := p.unaryExpression()
	p.depth--
	switch {
	case value.form == Float32, value.form == Float64 && (operator.kind == '~' || operator.kind == '!'):
		p.fail(operator.line, "operator %s does not apply to this floating-point constant", operator.text)
	case operator.kind == '!':
		return boolConstant(value.bits == 0)
	case operator.kind == '~':
		value.bits = ^value.bits
	case operator.kind == '-' && value.form == Float64:
		return floatConstant(-value.float())
	case operator.kind == '-':
		value.bits = -value.bits
	}
	return value
}

// primaryExpression reads a number, WARP_SZ, an expression in parentheses, or a cast.
func (p *parser) primaryExpression() constant {
	switch {
	case p.tok.kind == number:
		return p.numberToken()
	case p.is(identifier, "WARP_SZ"):
		p.next()
		return constant{bits: 32}
	case p.tok.kind != '(':
		p.failExpected("a constant")
		return constant{}
	}
	p.next()
	p.enterNesting()
	defer func() { p.depth-- }()
	if p.tok.kind != directive {
		value := p.constant()
		p.expect(')')
		return value
	}
	to := p.tok
	p.next()
	p.expect(')')
	value := p.unaryExpression()
	if to.text != ".s64" && to.text != ".u64" || value.form != Integer {
		p.fail(to.line, "cannot cast this constant to %s; integers can be cast to .s64 and .u64", to.text)
	}
	value.unsigned = to.text == ".u64"
	return value
}

// numberToken reads the value of a number.
func (p *parser) numberToken() constant {
	text, line := p.tok.text, p.tok.line
	p.next()
	if len(text) == 1 {
		return constant{bits: uint64(text[0] - '0')}
	}
	if text[0] == '0' {
		switch text[1] {
		case 'f', 'F':
			return p.floatBits(text, line, Float32, 8)
		case 'd', 'D':
			return p.floatBits(text, line, Float64, 16)
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
			p.fail(line, "%s is not a valid number", text)
		}
		return floatConstant(x)
	}
	bits, err := strconv.ParseUint(digits, 0, 64)
	if err != nil {
		if bits == math.MaxUint64 {
			p.fail(line, "%s does not fit into 64 bits", text)
		}
		p.fail(line, "%s is not a valid number", text)
	}
	return constant{bits: bits, unsigned: unsigned || bits > math.MaxInt64}
}

// decimal is a fast path for plain decimal digits, the form of most numbers. The caller passes at
// most 18 digits, so the value cannot overflow.
func decimal(digits string) (value uint64, ok bool) {
	for i := range len(digits) {
		if !isDigit(digits[i]) {
			return 0, false
		}
		value = value*10 + uint64(digits[i]-'0')
	}
	return value, true
}

// floatBits reads the hexadecimal encoding of a floating-point number, 0f... or 0d...
func (p *parser) floatBits(text string, line int, number Number, digits int) constant {
	bits, err := strconv.ParseUint(text[2:], 16, 64)
	if err != nil || len(text) != 2+digits {
		p.fail(line, "%s is not a valid number: %s takes %d hexadecimal digits", text, text[:2], digits)
	}
	return constant{form: number, bits: bits}
}

// applyBinary evaluates a binary operator.
func (p *parser) applyBinary(operator token, a, b constant) constant {
	if a.form != b.form || a.form == Float32 {
		p.fail(operator.line, "operator %s needs two integers or two decimal fractions", operator.text)
		return constant{}
	}
	if a.form == Float64 {
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
		return boolConstant(less(a, b))
	case '>':
		return boolConstant(less(b, a))
	case lessEqual:
		return boolConstant(!less(b, a))
	case greaterEqual:
		return boolConstant(!less(a, b))
	case equal:
		return boolConstant(a.bits == b.bits)
	case notEqual:
		return boolConstant(a.bits != b.bits)
	case andAnd:
		return boolConstant(a.bits != 0 && b.bits != 0)
	case orOr:
		return boolConstant(a.bits != 0 || b.bits != 0)
	}
	panic("BUG: no such operator " + operator.text)
}

func (p *parser) divide(operator token, a, b constant, unsigned bool) constant {
	if b.bits == 0 {
		p.fail(operator.line, "division by zero in a constant expression")
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
		return floatConstant(a + b)
	case '-':
		return floatConstant(a - b)
	case '*':
		return floatConstant(a * b)
	case '/':
		return floatConstant(a / b)
	case '<':
		return boolConstant(a < b)
	case '>':
		return boolConstant(a > b)
	case lessEqual:
		return boolConstant(a <= b)
	case greaterEqual:
		return boolConstant(a >= b)
	case equal:
		return boolConstant(a == b)
	case notEqual:
		return boolConstant(a != b)
	}
	p.fail(operator.line, "operator %s does not apply to floating-point constants", operator.text)
	return constant{}
}

// integer reads an integer from 0 to limit, such as a size. what describes it in the error message.
func (p *parser) integer(what string, limit int) int {
	text, line := p.tok.text, p.tok.line
	if p.tok.kind != number {
		p.failExpected(what)
		return 0
	}
	value := p.numberToken()
	if value.form != Integer || value.bits > uint64(limit) {
		p.fail(line, "expected %s from 0 to %d, found %s", what, limit, text)
		return 0
	}
	return int(value.bits)
}
