package tune

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// token is a word of an expression: a name, a number, a text or an operator.
type token struct {
	kind   tokenKind
	text   string // of a name or an operator; what a text contains
	value  Value  // of a number
	column int    // from 1, in bytes
}

type tokenKind uint8

const (
	endToken tokenKind = iota
	nameToken
	numberToken
	textToken
	operatorToken // with the keywords
)

var (
	keywords = []string{"and", "or", "not", "in", "if", "else", "for", "is"}
	// operators has longer ones first.
	operators = []string{
		"**", "//", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||",
		"+", "-", "*", "/", "%", "<", ">", "&", "|", "^", "~", "(", ")", "[", "]", ",", ".", "!",
	}
)

// lex splits an expression into tokens.
func lex(text string) ([]token, error) {
	var tokens []token
	for at := 0; ; {
		for at < len(text) && strings.IndexByte(" \t\r\n", text[at]) >= 0 {
			at++
		}
		if at == len(text) {
			return append(tokens, token{kind: endToken, text: "the end", column: at + 1}), nil
		}
		next, length, err := scan(text[at:])
		if err != nil {
			return nil, fmt.Errorf("column %d: %w", at+1, err)
		}
		next.column = at + 1
		tokens = append(tokens, next)
		at += length
	}
}

// scan reads the token at the start of a text, and returns its length.
func scan(text string) (token, int, error) {
	switch c := text[0]; {
	case c >= '0' && c <= '9', c == '.' && len(text) > 1 && isDigit(text[1]):
		return scanNumber(text)
	case c == '"' || c == '\'':
		end := strings.IndexByte(text[1:], c)
		if end < 0 {
			return token{}, 0, fmt.Errorf("the text %s has no end", text)
		}
		return token{kind: textToken, text: text[1 : 1+end]}, end + 2, nil
	case isLetter(c):
		n := 1
		for n < len(text) && (isLetter(text[n]) || isDigit(text[n])) {
			n++
		}
		kind := nameToken
		if slices.Contains(keywords, text[:n]) {
			kind = operatorToken
		}
		return token{kind: kind, text: text[:n]}, n, nil
	}
	for _, operator := range operators {
		if strings.HasPrefix(text, operator) {
			return token{kind: operatorToken, text: operator}, len(operator), nil
		}
	}
	return token{}, 0, fmt.Errorf("unexpected %q", []rune(text)[0])
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

// scanNumber reads an integer, in any base of Python, or a real.
func scanNumber(text string) (token, int, error) {
	n := 0
	for n < len(text) && (isLetter(text[n]) || isDigit(text[n]) || text[n] == '.' ||
		(text[n] == '+' || text[n] == '-') && (text[n-1] == 'e' || text[n-1] == 'E') && !strings.HasPrefix(text, "0x")) {
		n++
	}
	if i, err := strconv.ParseInt(text[:n], 0, 64); err == nil {
		return token{kind: numberToken, value: Int(i)}, n, nil
	}
	x, err := strconv.ParseFloat(strings.ReplaceAll(text[:n], "_", ""), 64)
	if err != nil {
		return token{}, 0, fmt.Errorf("%q is not a number", text[:n])
	}
	return token{kind: numberToken, value: Real(x)}, n, nil
}
