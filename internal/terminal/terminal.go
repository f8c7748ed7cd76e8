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
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Status is a status line. A nil one is silent.
type Status struct {
	mu    sync.Mutex
	out   io.Writer
	width func() int
	text  string
	shown bool
	last  time.Time   // it was drawn
	later *time.Timer // draws what came too soon after that
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

// Set shows a text in place of the last one, at once or, where that has only just come, a moment later.
func (s *Status) Set(format string, args ...any) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = fmt.Sprintf(format, args...)
	wait := often - time.Since(s.last)
	switch {
	case s.later != nil:
	case s.shown && wait > 0:
		s.later = time.AfterFunc(wait, s.catchUp)
	default:
		s.draw()
	}
}

// catchUp draws the newest text, unless it was cleared meanwhile.
func (s *Status) catchUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.later != nil {
		s.draw()
	}
}

func (s *Status) draw() {
	fmt.Fprintf(s.out, "\r\x1b[K%s", fit(s.text, s.width()-1))
	s.shown, s.last, s.later = true, time.Now(), nil
}

// fit makes a text one line of at most so many runes.
func fit(text string, most int) string {
	line := make([]rune, 0, min(most, utf8.RuneCountInString(text)))
	for _, r := range text {
		if len(line) == most {
			break
		}
		if unicode.IsControl(r) {
			r = ' '
		}
		line = append(line, r)
	}
	return string(line)
}

// Clear takes the line away, before anything else is written and at the end.
func (s *Status) Clear() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.later != nil {
		s.later.Stop()
		s.later = nil
	}
	if s.shown {
		fmt.Fprint(s.out, "\r\x1b[K")
		s.shown = false
	}
}
