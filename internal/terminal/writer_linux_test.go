package terminal

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A message never begins behind the status line, and a long one is wrapped.
func TestMessagesClearTheStatusLine(t *testing.T) {
	file, written := newTerminal(t, 20)
	s := NewStatus(file)
	messages := s.MessageWriter(file)
	s.Set("working")
	fmt.Fprintln(messages, "a message that is longer than the line")
	s.Set("still working")
	fmt.Fprintln(s.Writer(file), "result")
	fmt.Fprintln(messages, `{"message": "JSON is one line"}`)
	want := "\r\x1b[Kworking\r\x1b[Ka message that is\r\n  longer than the\r\n  line\r\n" +
		"\r\x1b[Kstill working\r\x1b[Kresult\r\n" + `{"message": "JSON is one line"}` + "\r\n"
	for range 12_000 { // a minute: the machine may be loaded
		if written() == want {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("got  %q\nwant %q", written(), want)
}

// Without a status line the writers are the files themselves.
func TestWritersWithoutStatus(t *testing.T) {
	var s *Status
	var out strings.Builder
	fmt.Fprintln(s.Writer(&out), strings.Repeat("word ", 40))
	fmt.Fprintln(s.MessageWriter(&out), strings.Repeat("word ", 40))
	if got := strings.Count(out.String(), "\n"); got != 2 {
		t.Errorf("%d lines: %q", got, out.String())
	}
}

// The width and the colour of a terminal.
func TestScreenOfATerminal(t *testing.T) {
	file, _ := newTerminal(t, 72)
	t.Setenv("COLUMNS", "")
	t.Setenv("NO_COLOR", "")
	if got := ScreenOf(file, ColourAuto); got != (Screen{Width: 72, Height: 24, Colour: true}) {
		t.Errorf("got %+v", got)
	}
	if got := ScreenOf(file, ColourNever); got.Colour {
		t.Errorf("got %+v", got)
	}
	t.Setenv("NO_COLOR", "1")
	t.Setenv("COLUMNS", "90")
	if got := ScreenOf(file, ColourAuto); got != (Screen{Width: 90, Height: 24}) {
		t.Errorf("got %+v", got)
	}
}
