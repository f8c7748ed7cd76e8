package terminal

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// screen is the line that a terminal shows after the given output.
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

// inMemory is a status line that writes to a buffer.
func inMemory() (*Status, *bytes.Buffer) {
	out := &bytes.Buffer{}
	return &Status{out: out, width: func() int { return 80 }}, out
}

// Not every text of fast work is drawn, but the newest one appears after minInterval at the latest.
func TestNewestTextIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := inMemory()
		s.Set("first")
		if got := screen(out.String()); got != "first" {
			t.Errorf("the first text is not shown at once: %q", got)
		}
		for i := range 1000 {
			s.Set("step %d", i)
		}
		time.Sleep(minInterval)
		synctest.Wait()
		if got := screen(out.String()); got != "step 999" {
			t.Errorf("after minInterval the line is %q", got)
		}
		if draws := strings.Count(out.String(), "\r"); draws != 2 {
			t.Errorf("drawn %d times; want twice", draws)
		}
		time.Sleep(minInterval)
		s.Set("at once")
		if got := screen(out.String()); got != "at once" {
			t.Errorf("a later text is not shown at once: %q", got)
		}
	})
}

func TestClearCancelsPendingDraw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := inMemory()
		s.Clear()
		if out.Len() != 0 {
			t.Errorf("Clear without a line writes %q", out)
		}
		s.Set("first")
		s.Set("second")
		s.Clear()
		s.Clear()
		time.Sleep(10 * minInterval)
		synctest.Wait()
		if got := out.String(); got != "\r\x1b[Kfirst\r\x1b[K" {
			t.Errorf("written %q", got)
		}
		// The next text is shown at once, even if the old timer fires too late to be stopped.
		s.Set("third")
		s.drawPending()
		if got := screen(out.String()); got != "third" {
			t.Errorf("the line is %q", got)
		}
	})
}

func TestFit(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 5, ""},
		{"abcde", 5, "abcde"},
		{"abcdef", 5, "abcde"},
		{"äöüäöü", 5, "äöüäö"},
		{"a\nb\tc\x1b[2J", 79, "a b c [2J"},
	} {
		if got := fit(c.text, c.limit); got != c.want {
			t.Errorf("fit(%q, %d) = %q; want %q", c.text, c.limit, got, c.want)
		}
	}
}
