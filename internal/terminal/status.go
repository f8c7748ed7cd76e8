package terminal

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// Status is a status line. A nil Status writes nothing.
type Status struct {
	mu      sync.Mutex
	out     io.Writer
	width   func() int
	text    string
	shown   bool
	last    time.Time   // time of the last draw
	pending *time.Timer // draws a text that was set too soon after the last draw
}

// NewStatus returns a status line on a terminal, or nil if file is not a terminal or a dumb one.
func NewStatus(file *os.File) *Status {
	if _, _, ok := terminalSize(file); !ok || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &Status{out: file, width: func() int {
		width, _, _ := terminalSize(file)
		return width
	}}
}

// minInterval is the minimum time between two draws, so that fast work does not wait for the
// terminal.
const minInterval = 50 * time.Millisecond

// Set replaces the text: at once, or after minInterval if the line was drawn just before.
func (s *Status) Set(format string, args ...any) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = fmt.Sprintf(format, args...)
	wait := minInterval - time.Since(s.last)
	switch {
	case s.pending != nil:
	case s.shown && wait > 0:
		s.pending = time.AfterFunc(wait, s.drawPending)
	default:
		s.draw()
	}
}

// drawPending draws the newest text, unless Clear was called meanwhile.
func (s *Status) drawPending() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending != nil {
		s.draw()
	}
}

func (s *Status) draw() {
	fmt.Fprintf(s.out, "\r\x1b[K%s", fit(s.text, s.width()-1))
	s.shown, s.last, s.pending = true, time.Now(), nil
}

// fit makes a text one line of at most limit runes.
func fit(text string, limit int) string {
	line := make([]rune, 0, min(limit, utf8.RuneCountInString(text)))
	for _, r := range text {
		if len(line) == limit {
			break
		}
		if unicode.IsControl(r) {
			r = ' '
		}
		line = append(line, r)
	}
	return string(line)
}

// Clear removes the line. Writers of the status call it before each write; call it at the end.
func (s *Status) Clear() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
}

// clear removes the line. The caller holds the mutex.
func (s *Status) clear() {
	if s.pending != nil {
		s.pending.Stop()
		s.pending = nil
	}
	if s.shown {
		fmt.Fprint(s.out, "\r\x1b[K")
		s.shown = false
	}
}
