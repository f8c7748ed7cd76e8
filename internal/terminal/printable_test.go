package terminal

import (
	"strings"
	"testing"
)

func TestPrintable(t *testing.T) {
	const text = "k.cu(1): error: \x1b]0;title\x07\x1b[31mred\u009b2J\u202e\r\n\ttext é\n"
	if got := Printable(text); got != "k.cu(1): error: ]0;title[31mred2J\n\ttext é\n" {
		t.Errorf("%q", got)
	}
}

// What other people wrote is printed without escapes; the colours of this package stay.
func TestPrintableWriter(t *testing.T) {
	text := Screen{Colour: true}.Paint(Red, "é\x1b]0;title\a") + "\u009b2J\u202e\xff\x1b[8mhidden\n"
	for colour, want := range map[bool]string{
		true:  "\x1b[31mé]0;title\x1b[0m2J\xff[8mhidden\n",
		false: "[31mé]0;title[0m2J\xff[8mhidden\n",
	} {
		var out strings.Builder
		n, err := PrintableWriter(&out, func() bool { return colour }).Write([]byte(text))
		if err != nil || n != len(text) || out.String() != want {
			t.Errorf("%v: %d, %v, %q", colour, n, err, out.String())
		}
	}
}
