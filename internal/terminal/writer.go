package terminal

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
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
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, text)
}
