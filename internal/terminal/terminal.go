// Package terminal writes a status line: one line of progress on a terminal that results push aside and that is gone in the end.
//
// The rules of attune's output: results go to standard output, everything else to standard error. Where standard error is no
// terminal, there is no status line at all.
package terminal

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// Status is a status line. The zero value of its methods on nil is silence.
type Status struct {
	mu    sync.Mutex
	out   io.Writer
	width func() int
	shown bool
	last  time.Time
}

// NewStatus gives a status line on a terminal, and nil where file is none (or a dumb one).
func NewStatus(file *os.File) *Status {
	fd := int(file.Fd())
	if !term.IsTerminal(fd) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &Status{out: file, width: func() int {
		width, _, err := term.GetSize(fd)
		if err != nil || width < 10 {
			return 80
		}
		return width
	}}
}

// often keeps fast work from spending its time on the terminal.
const often = 50 * time.Millisecond

// Set shows a text in place of the last one.
func (s *Status) Set(format string, args ...any) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown && time.Since(s.last) < often {
		return
	}
	text := fmt.Sprintf(format, args...)
	if most := s.width() - 1; utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most])
	}
	fmt.Fprintf(s.out, "\r\x1b[K%s", text)
	s.shown, s.last = true, time.Now()
}

// Clear takes the line away, before anything else is written and at the end.
func (s *Status) Clear() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown {
		fmt.Fprint(s.out, "\r\x1b[K")
		s.shown = false
	}
}
