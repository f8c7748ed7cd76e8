package child

import (
	"io"
	"strings"
	"sync"
	"unicode"
)

// OneLine makes foreign text a single printable line of at most limit characters.
func OneLine(text string, limit int) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == unicode.ReplacementChar
	}), " ")
	if runes := []rune(text); len(runes) > limit {
		text = string(runes[:limit]) + "…"
	}
	return text
}

// tail keeps the last bytes that a process prints, and passes all of them on.
type tail struct {
	mutex sync.Mutex
	text  []byte
	next  io.Writer // may be nil
}

const tailBytes = 4096

func (t *tail) Write(data []byte) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.text = append(t.text, data...)
	t.text = t.text[max(0, len(t.text)-tailBytes):]
	if t.next != nil {
		_, _ = t.next.Write(data) // a full disk must not block the process
	}
	return len(data), nil
}

// lastLine is the last non-empty line. Python ends a traceback with the error.
func (t *tail) lastLine() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	return OneLine(lines[len(lines)-1], 300)
}
