package terminal

import "testing"

func TestPrintable(t *testing.T) {
	const text = "k.cu(1): error: \x1b]0;title\x07\x1b[31mred\u009b2J\u202e\r\n\ttext é\n"
	if got := Printable(text); got != "k.cu(1): error: ]0;title[31mred2J\n\ttext é\n" {
		t.Errorf("%q", got)
	}
}
