package terminal

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// screen is the line that somebody in front of a terminal sees after all that was written to it.
func screen(written string) string {
	var line []rune
	at := 0
	for written != "" {
		switch {
		case strings.HasPrefix(written, "\r"):
			at, written = 0, written[1:]
		case strings.HasPrefix(written, "\x1b[K"):
			line, written = line[:at], written[3:]
		default:
			r, size := utf8.DecodeRuneInString(written)
			line = append(line[:at], r)
			at, written = at+1, written[size:]
		}
	}
	return string(line)
}

// page is a status line that writes to memory.
func page() (*Status, *bytes.Buffer) {
	out := &bytes.Buffer{}
	return &Status{out: out, width: func() int { return 80 }}, out
}

// Fast work does not draw each text, but the newest one is shown soon, and not only when the next one comes.
func TestNewestTextIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := page()
		s.Set("first")
		if got := screen(out.String()); got != "first" {
			t.Errorf("the first text is not shown at once: %q", got)
		}
		for i := range 1000 {
			s.Set("step %d", i)
		}
		time.Sleep(often)
		synctest.Wait()
		if got := screen(out.String()); got != "step 999" {
			t.Errorf("after a moment the line is %q", got)
		}
		if draws := strings.Count(out.String(), "\r"); draws != 2 {
			t.Errorf("drawn %d times; want twice", draws)
		}
		time.Sleep(often)
		s.Set("at once")
		if got := screen(out.String()); got != "at once" {
			t.Errorf("a text that comes late is not shown at once: %q", got)
		}
	})
}

func TestClearStopsWhatIsToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := page()
		s.Clear()
		if out.Len() != 0 {
			t.Errorf("Clear of nothing writes %q", out)
		}
		s.Set("first")
		s.Set("second")
		s.Clear()
		s.Clear()
		time.Sleep(10 * often)
		synctest.Wait()
		if got := out.String(); got != "\r\x1b[Kfirst\r\x1b[K" {
			t.Errorf("written %q", got)
		}
		// What is set after that is shown at once, also when the timer of before comes too late to be stopped.
		s.Set("third")
		s.catchUp()
		if got := screen(out.String()); got != "third" {
			t.Errorf("the line is %q", got)
		}
	})
}

func TestFit(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"", 5, ""},
		{"abcde", 5, "abcde"},
		{"abcdef", 5, "abcde"},
		{"äöüäöü", 5, "äöüäö"},
		{"a\nb\tc\x1b[2J", 79, "a b c [2J"},
	} {
		if got := fit(c.text, c.most); got != c.want {
			t.Errorf("fit(%q, %d) = %q; want %q", c.text, c.most, got, c.want)
		}
	}
}
