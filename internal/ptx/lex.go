package ptx

import (
	"fmt"
	"strings"
)

// SyntaxError is an error in a PTX text, with its line.
type SyntaxError struct {
	Line int
	Text string // the source line
	Msg  string
}

// Error returns the message with the line number and the source line, cut after 200 bytes.
func (e *SyntaxError) Error() string {
	const maxQuoted = 200
	text := strings.Join(strings.Fields(e.Text), " ")
	if len(text) > maxQuoted {
		text = text[:maxQuoted] + " ..."
	}
	return fmt.Sprintf("line %d: %s (in %q)", e.Line, e.Msg, text)
}

// tokenKind is the kind of a token. Punctuation of one character is its own kind.
type tokenKind uint8

const (
	eof        tokenKind = iota // end of the text; also every token after an error
	identifier                  // a name or an opcode: add, %r1, $L__BB0_2, _
	directive                   // a word after a dot: .reg, .b32, .x
	number
	quotedString // "text"; token.text is without the quotes
)

// Punctuation of two characters.
const (
	shiftLeft tokenKind = 128 + iota
	shiftRight
	lessEqual
	greaterEqual
	equal
	notEqual
	andAnd
	orOr
)

type token struct {
	kind       tokenKind
	line       int
	start, end int // byte offsets in the text
	text       string
}

// lexer splits a text into tokens, one token ahead of the parser. After the first error every token
// is eof, so the parser's loops terminate without checking for errors.
type lexer struct {
	text     string
	pos      int // after tok
	line     int // of pos
	tok      token
	previous token // the one before tok
	err      *SyntaxError
}

// The classes of characters.
const (
	classNameStart = 1 << iota
	className
	classDigit
	classHexDigit
)

var characterClasses = func() (class [256]uint8) {
	for c := range class {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			class[c] = classNameStart | className
		case c >= '0' && c <= '9':
			class[c] = className | classDigit | classHexDigit
		case c == '_', c == '$':
			class[c] = classNameStart | className
		case c == '%':
			class[c] = classNameStart
		}
		if c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' {
			class[c] |= classHexDigit
		}
	}
	return class
}()

func isDigit(c byte) bool { return characterClasses[c]&classDigit != 0 }

// fail records the first error and moves to the end of the text.
func (l *lexer) fail(line int, format string, args ...any) {
	if l.err == nil {
		l.err = &SyntaxError{Line: line, Text: lineOf(l.text, line), Msg: fmt.Sprintf(format, args...)}
	}
	l.pos = len(l.text)
	l.tok = token{kind: eof, line: line}
}

// lineOf returns a line of the text, counted from 1, without surrounding space.
func lineOf(text string, line int) string {
	for ; line > 1; line-- {
		_, text, _ = strings.Cut(text, "\n")
	}
	text, _, _ = strings.Cut(text, "\n")
	return strings.TrimSpace(text)
}

// byteAt returns the byte at an offset; 0 past the end.
func (l *lexer) byteAt(pos int) byte {
	if pos < len(l.text) {
		return l.text[pos]
	}
	return 0
}

// skipSpace moves past space and comments.
func (l *lexer) skipSpace() {
	for l.pos < len(l.text) {
		switch c := l.text[l.pos]; {
		case c == '\n':
			l.line++
			l.pos++
		case c == ' ' || c == '\t' || c == '\r':
			l.pos++
		case c == '/' && l.byteAt(l.pos+1) == '/':
			length := strings.IndexByte(l.text[l.pos:], '\n')
			if length < 0 {
				length = len(l.text) - l.pos
			}
			l.pos += length
		case c == '/' && l.byteAt(l.pos+1) == '*':
			length := strings.Index(l.text[l.pos+2:], "*/")
			if length < 0 {
				l.fail(l.line, "unterminated comment; close it with */")
				return
			}
			comment := l.text[l.pos : l.pos+2+length+2]
			l.line += strings.Count(comment, "\n")
			l.pos += len(comment)
		default:
			return
		}
	}
}

// next reads the next token into tok.
func (l *lexer) next() {
	l.previous = l.tok
	l.skipSpace()
	if l.pos >= len(l.text) || l.err != nil {
		l.tok = token{kind: eof, line: l.line, start: l.pos, end: l.pos}
		return
	}
	start := l.pos
	c := l.text[start]
	l.tok = token{line: l.line, start: start}
	switch class := characterClasses[c]; {
	case class&classNameStart != 0:
		l.pos = l.nameEnd(start + 1)
		l.tok.kind = identifier
		if c == '%' && l.pos == start+1 {
			l.tok.kind = tokenKind(c) // the operator
		}
	case class&classDigit != 0 || c == '.' && isDigit(l.byteAt(start+1)):
		l.number()
	case c == '.':
		l.pos = l.dottedEnd(start + 1)
		l.tok.kind = directive
	case c == '"':
		l.quoted()
		return
	default:
		l.punctuation(c)
	}
	if l.err != nil {
		return
	}
	l.tok.end = l.pos
	l.tok.text = l.text[start:l.pos]
}

// peekByte returns the first byte of the token after tok.
func (l *lexer) peekByte() byte {
	pos, line := l.pos, l.line
	l.skipSpace()
	first := l.byteAt(l.pos)
	if l.err == nil {
		l.pos, l.line = pos, line
	}
	return first
}

func (l *lexer) nameEnd(pos int) int {
	for pos < len(l.text) && characterClasses[l.text[pos]]&className != 0 {
		pos++
	}
	return pos
}

// dottedEnd returns the end of the word after a dot. The word may have parts, as in shared::cta.
func (l *lexer) dottedEnd(pos int) int {
	for {
		pos = l.nameEnd(pos)
		if !strings.HasPrefix(l.text[pos:], "::") {
			return pos
		}
		pos += 2
	}
}

// number scans a numeric constant. It decides only the extent; numberToken computes the value.
func (l *lexer) number() {
	l.tok.kind = number
	start := l.pos
	digits := func(pos int, class uint8) int {
		for pos < len(l.text) && characterClasses[l.text[pos]]&class != 0 {
			pos++
		}
		return pos
	}
	pos := digits(start, classDigit)
	if pos == start+1 && l.text[start] == '0' {
		switch l.byteAt(pos) {
		case 'x', 'X', 'f', 'F', 'd', 'D':
			pos = digits(pos+1, classHexDigit)
		case 'b', 'B':
			pos = digits(pos+1, classDigit)
		}
	}
	if pos == digits(start, classDigit) { // decimal or octal, so a fraction may follow
		if l.byteAt(pos) == '.' {
			pos = digits(pos+1, classDigit)
		}
		if c := l.byteAt(pos); c == 'e' || c == 'E' {
			exponent := pos + 1
			if c := l.byteAt(exponent); c == '+' || c == '-' {
				exponent++
			}
			if after := digits(exponent, classDigit); after > exponent {
				pos = after
			}
		}
	}
	if l.byteAt(pos) == 'U' {
		pos++
	}
	if l.pos = l.nameEnd(pos); l.pos > pos {
		l.fail(l.line, "%s is not a valid number", l.text[start:l.pos])
	}
}

func (l *lexer) quoted() {
	text, _, closed := strings.Cut(l.text[l.pos+1:], `"`)
	if !closed || strings.Contains(text, "\n") {
		l.fail(l.line, "unterminated string; close it with a quote")
		return
	}
	l.tok.kind = quotedString
	l.tok.text = text
	l.pos += len(text) + 2
	l.tok.end = l.pos
}

// punctuation reads punctuation and operators.
func (l *lexer) punctuation(c byte) {
	l.pos++
	l.tok.kind = tokenKind(c)
	switch c {
	case '{', '}', '[', ']', '(', ')', ',', ';', ':', '@', '+', '-', '*', '/', '~', '^', '?':
		return
	case '<', '>', '=', '!', '&', '|':
		if kind := twoCharacterKind(c, l.byteAt(l.pos)); kind != eof {
			l.pos++
			l.tok.kind = kind
		}
		return
	}
	l.fail(l.line, "PTX has no token that starts with %q", c)
}

// twoCharacterKind returns the kind of a two-character operator, or eof if the pair is none.
func twoCharacterKind(first, second byte) tokenKind {
	switch [2]byte{first, second} {
	case [2]byte{'<', '<'}:
		return shiftLeft
	case [2]byte{'>', '>'}:
		return shiftRight
	case [2]byte{'<', '='}:
		return lessEqual
	case [2]byte{'>', '='}:
		return greaterEqual
	case [2]byte{'=', '='}:
		return equal
	case [2]byte{'!', '='}:
		return notEqual
	case [2]byte{'&', '&'}:
		return andAnd
	case [2]byte{'|', '|'}:
		return orOr
	}
	return eof
}

// is reports whether tok has this kind and text.
func (l *lexer) is(kind tokenKind, text string) bool { return l.tok.kind == kind && l.tok.text == text }

// accept consumes tok if it has this kind, and reports whether it did.
func (l *lexer) accept(kind tokenKind) bool {
	if l.tok.kind != kind {
		return false
	}
	l.next()
	return true
}

// expect consumes tok, which must be this punctuation mark.
func (l *lexer) expect(mark tokenKind) {
	if !l.accept(mark) {
		l.failExpected(fmt.Sprintf("'%c'", mark))
	}
}

// failExpected fails at tok because another token is required there. If tok starts a later line,
// the error names the line before, where the required token is missing.
func (l *lexer) failExpected(wanted string) {
	if l.tok.kind == eof || l.tok.line > l.previous.line && l.previous.kind != eof {
		l.fail(max(l.previous.line, 1), "expected %s, found the end of the line", wanted)
		return
	}
	l.failFound(wanted)
}

// failFound fails at tok, in the line of tok.
func (l *lexer) failFound(wanted string) {
	l.fail(l.tok.line, "expected %s, found '%s'", wanted, l.text[l.tok.start:l.tok.end])
}

// name consumes an identifier. what describes it in the error message.
func (l *lexer) name(what string) string {
	name := l.tok.text
	if l.tok.kind != identifier {
		l.failExpected(what)
		return ""
	}
	l.next()
	return name
}

// collapseSpace removes comments and replaces every run of white space by one blank.
func collapseSpace(text string) string {
	l := lexer{text: text, line: 1}
	var out strings.Builder
	for {
		before := l.pos
		l.skipSpace()
		if l.pos >= len(text) {
			return out.String()
		}
		if l.pos > before && out.Len() > 0 {
			out.WriteByte(' ')
		}
		out.WriteByte(text[l.pos])
		l.pos++
	}
}
