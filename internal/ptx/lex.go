package ptx

import (
	"fmt"
	"strings"
)

// SyntaxError says what is wrong with a text, and where.
type SyntaxError struct {
	Line int
	Text string // the line
	Msg  string
}

// Error is the message with the line quoted.
func (e *SyntaxError) Error() string {
	const most = 200
	text := strings.Join(strings.Fields(e.Text), " ")
	if len(text) > most {
		text = text[:most] + " ..."
	}
	return fmt.Sprintf("line %d: %s (in %q)", e.Line, e.Msg, text)
}

// kind is the kind of a token. A mark of one character is its own kind.
type kind uint8

const (
	end    kind = iota // of the text, and whatever follows an error
	word               // a name or an opcode: add, %r1, $L__BB0_2, _
	dotted             // a directive or a type: .reg, .b32, .x
	number
	quoted // "text"; its text is without the quotes
)

// The marks of two characters.
const (
	shiftLeft kind = 128 + iota
	shiftRight
	lessEqual
	greaterEqual
	equal
	notEqual
	andAnd
	orOr
)

type token struct {
	kind       kind
	line       int
	start, end int // in the text
	text       string
}

// lexer cuts a text into tokens, one ahead of the parser. The first error stops it: from then on every token is the end, so that
// the loops of the parser stop by themselves.
type lexer struct {
	text string
	pos  int // behind tok
	line int // of pos
	tok  token
	last token // the one before tok
	err  *SyntaxError
}

// The classes of characters.
const (
	startsName = 1 << iota
	inName
	digit
	hexDigit
)

var classes = func() (class [256]uint8) {
	for c := range class {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			class[c] = startsName | inName
		case c >= '0' && c <= '9':
			class[c] = inName | digit | hexDigit
		case c == '_', c == '$':
			class[c] = startsName | inName
		case c == '%':
			class[c] = startsName
		}
		if c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' {
			class[c] |= hexDigit
		}
	}
	return class
}()

func isDigit(c byte) bool { return classes[c]&digit != 0 }

// fail keeps the first error and ends the text.
func (l *lexer) fail(line int, format string, args ...any) {
	if l.err == nil {
		l.err = &SyntaxError{Line: line, Text: lineOf(l.text, line), Msg: fmt.Sprintf(format, args...)}
	}
	l.pos = len(l.text)
	l.tok = token{kind: end, line: line}
}

// lineOf is a line of a text, counted from 1, without the space around it.
func lineOf(text string, line int) string {
	for ; line > 1; line-- {
		_, text, _ = strings.Cut(text, "\n")
	}
	text, _, _ = strings.Cut(text, "\n")
	return strings.TrimSpace(text)
}

// at is the character at a position, 0 behind the end.
func (l *lexer) at(pos int) byte {
	if pos < len(l.text) {
		return l.text[pos]
	}
	return 0
}

// skip passes over space and comments.
func (l *lexer) skip() {
	for l.pos < len(l.text) {
		switch c := l.text[l.pos]; {
		case c == '\n':
			l.line++
			l.pos++
		case c == ' ' || c == '\t' || c == '\r':
			l.pos++
		case c == '/' && l.at(l.pos+1) == '/':
			length := strings.IndexByte(l.text[l.pos:], '\n')
			if length < 0 {
				length = len(l.text) - l.pos
			}
			l.pos += length
		case c == '/' && l.at(l.pos+1) == '*':
			length := strings.Index(l.text[l.pos+2:], "*/")
			if length < 0 {
				l.fail(l.line, "a comment without its end")
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
	l.last = l.tok
	l.skip()
	if l.pos >= len(l.text) || l.err != nil {
		l.tok = token{kind: end, line: l.line, start: l.pos, end: l.pos}
		return
	}
	start := l.pos
	c := l.text[start]
	l.tok = token{line: l.line, start: start}
	switch class := classes[c]; {
	case class&startsName != 0:
		l.pos = l.nameEnd(start + 1)
		l.tok.kind = word
		if c == '%' && l.pos == start+1 {
			l.tok.kind = kind(c) // the operator
		}
	case class&digit != 0 || c == '.' && isDigit(l.at(start+1)):
		l.number()
	case c == '.':
		l.pos = l.dottedEnd(start + 1)
		l.tok.kind = dotted
	case c == '"':
		l.quoted()
		return
	default:
		l.mark(c)
	}
	if l.err != nil {
		return
	}
	l.tok.end = l.pos
	l.tok.text = l.text[start:l.pos]
}

// ahead is the first character of the token after tok.
func (l *lexer) ahead() byte {
	pos, line := l.pos, l.line
	l.skip()
	first := l.at(l.pos)
	if l.err == nil {
		l.pos, l.line = pos, line
	}
	return first
}

func (l *lexer) nameEnd(pos int) int {
	for pos < len(l.text) && classes[l.text[pos]]&inName != 0 {
		pos++
	}
	return pos
}

// dottedEnd is the end of a word after a dot, which may have parts, such as shared::cta.
func (l *lexer) dottedEnd(pos int) int {
	for {
		pos = l.nameEnd(pos)
		if !strings.HasPrefix(l.text[pos:], "::") {
			return pos
		}
		pos += 2
	}
}

// number reads a constant. Its form is all that is decided here; value has the rest.
func (l *lexer) number() {
	l.tok.kind = number
	start := l.pos
	digits := func(pos int, class uint8) int {
		for pos < len(l.text) && classes[l.text[pos]]&class != 0 {
			pos++
		}
		return pos
	}
	pos := digits(start, digit)
	if pos == start+1 && l.text[start] == '0' {
		switch l.at(pos) {
		case 'x', 'X', 'f', 'F', 'd', 'D':
			pos = digits(pos+1, hexDigit)
		case 'b', 'B':
			pos = digits(pos+1, digit)
		}
	}
	if pos == digits(start, digit) { // decimal so far, or octal
		if l.at(pos) == '.' {
			pos = digits(pos+1, digit)
		}
		if c := l.at(pos); c == 'e' || c == 'E' {
			exponent := pos + 1
			if c := l.at(exponent); c == '+' || c == '-' {
				exponent++
			}
			if after := digits(exponent, digit); after > exponent {
				pos = after
			}
		}
	}
	if l.at(pos) == 'U' {
		pos++
	}
	if l.pos = l.nameEnd(pos); l.pos > pos {
		l.fail(l.line, "%s is no number", l.text[start:l.pos])
	}
}

func (l *lexer) quoted() {
	text, _, closed := strings.Cut(l.text[l.pos+1:], `"`)
	if !closed || strings.Contains(text, "\n") {
		l.fail(l.line, "a string without its end")
		return
	}
	l.tok.kind = quoted
	l.tok.text = text
	l.pos += len(text) + 2
	l.tok.end = l.pos
}

// mark reads punctuation and operators.
func (l *lexer) mark(c byte) {
	l.pos++
	l.tok.kind = kind(c)
	switch c {
	case '{', '}', '[', ']', '(', ')', ',', ';', ':', '@', '+', '-', '*', '/', '~', '^', '?':
		return
	case '<', '>', '=', '!', '&', '|':
		if kind := double(c, l.at(l.pos)); kind != end {
			l.pos++
			l.tok.kind = kind
		}
		return
	}
	l.fail(l.line, "a character that PTX does not have: %q", c)
}

// double is the kind of a mark of two characters; end where they are none.
func double(first, second byte) kind {
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
	return end
}

// is says whether the token is a word or a directive with this text.
func (l *lexer) is(kind kind, text string) bool { return l.tok.kind == kind && l.tok.text == text }

// take passes over a token of this kind, and says whether it was there.
func (l *lexer) take(kind kind) bool {
	if l.tok.kind != kind {
		return false
	}
	l.next()
	return true
}

// expect passes over a mark that has to be there.
func (l *lexer) expect(mark kind) {
	if !l.take(mark) {
		l.unexpected(fmt.Sprintf("'%c'", mark))
	}
}

// unexpected fails at the token, and says what should stand there. What is missing at the end of a line is said of that line.
func (l *lexer) unexpected(wanted string) {
	if l.tok.kind == end || l.tok.line > l.last.line && l.last.kind != end {
		l.fail(max(l.last.line, 1), "expected %s at the end of the line", wanted)
		return
	}
	l.misplaced(wanted)
}

// misplaced fails at the token, where something begins that cannot begin with it.
func (l *lexer) misplaced(wanted string) {
	l.fail(l.tok.line, "expected %s, not '%s'", wanted, l.text[l.tok.start:l.tok.end])
}

// name takes a name; what says of what.
func (l *lexer) name(what string) string {
	name := l.tok.text
	if l.tok.kind != word {
		l.unexpected(what)
		return ""
	}
	l.next()
	return name
}

// squeeze makes one line of a text: comments go, and every run of space becomes one blank.
func squeeze(text string) string {
	l := lexer{text: text, line: 1}
	var out strings.Builder
	for {
		before := l.pos
		l.skip()
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
