package terminal

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Writer returns a writer to w that clears the status line first, so that no text runs into it. If
// w is a terminal for messages, use [Status.MessageWriter].
func (s *Status) Writer(w io.Writer) io.Writer {
	if s == nil {
		return w
	}
	return clearingWriter{s, w}
}

type clearingWriter struct {
	status *Status
	w      io.Writer
}

func (c clearingWriter) Write(text []byte) (int, error) {
	c.status.mu.Lock()
	defer c.status.mu.Unlock()
	c.status.clear()
	return c.w.Write(text)
}

// MessageWriter returns a writer to w that clears the status line first. On a terminal it wraps
// lines that are wider than it.
func (s *Status) MessageWriter(w io.Writer) io.Writer {
	if _, _, ok := terminalSize(w); ok {
		w = wrappingWriter{w}
	}
	return s.Writer(w)
}

type wrappingWriter struct{ w io.Writer }

func (m wrappingWriter) Write(text []byte) (int, error) {
	screen := ScreenOf(m.w, ColourNever)
	var out bytes.Buffer
	for line := range strings.Lines(string(text)) {
		content, ended := strings.CutSuffix(line, "\n")
		if strings.HasPrefix(content, "{") { // a JSON document
			out.WriteString(line)
			continue
		}
		for i, part := range wrapFrom(content, screen.Width, screen.Width-2) {
			if i > 0 {
				out.WriteString("\n  ")
			}
			out.WriteString(part)
		}
		if ended {
			fmt.Fprintln(&out)
		}
	}
	if _, err := m.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Printable is a text that is safe on a terminal: without control characters other than line ends
// and tabs, and without characters that reorder text. A compiler quotes whatever a source has.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if controls(r) {
			return -1
		}
		return r
	}, text)
}

// controls reports whether a character may do something else on a terminal than to appear.
func controls(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
}

// PrintableWriter returns a writer to w that leaves out what Printable does: records, recordings and
// kernel.toml have text of other people. It keeps the escapes of Paint if colour reports true.
func PrintableWriter(w io.Writer, colour func() bool) io.Writer { return printableWriter{w, colour} }

type printableWriter struct {
	w      io.Writer
	colour func() bool
}

func (p printableWriter) Write(text []byte) (int, error) {
	if !bytes.ContainsFunc(text, controls) {
		return p.w.Write(text)
	}
	colour := p.colour()
	out := make([]byte, 0, len(text))
	for rest := text; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if painted := paint.Find(rest); colour && painted != nil {
			size = len(painted)
		} else if controls(r) {
			rest = rest[size:]
			continue
		}
		out = append(out, rest[:size]...)
		rest = rest[size:]
	}
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(text), nil
}

// paint is an escape sequence of Paint at the start of a text.
var paint = regexp.MustCompile("^\x1b\\[(?:0|1|31|32|33)m")
