package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestKernelOutput(t *testing.T) {
	for _, c := range []struct {
		name  string
		texts []string
		width int
		json  bool
		step  bool
		want  string
	}{
		{name: "lines", texts: []string{"a\nb\n"}, want: "kernel: a\nkernel: b\n"},
		{name: "parts of a line", texts: []string{"a ", "b", "\n", "c"}, want: "kernel: a b\nkernel: c\n"},
		{name: "an empty line", texts: []string{"\n"}, want: "kernel: \n"},
		{name: "nothing"},
		{name: "escapes", texts: []string{"\x1b[2Jred\r\x00\ttab\u202e\u0085\n"}, want: "kernel: \\x1b[2Jred\\r\\x00\ttab\\u202e\\u0085\n"},
		{name: "no UTF-8", texts: []string{"\xff\xc3", "\xa9\n"}, want: "kernel: \\xffé\n"},
		{name: "a terminal", texts: []string{"0123456789\n"}, width: 12, want: "kernel: 0123\nkernel: 4567\nkernel: 89\n"},
		{name: "a command", texts: []string{"a ##[error]b\n::error::c\n"}, step: true, want: "kernel: a # #[error]b\nkernel: ::error::c\n"},
		{
			name: "JSON", texts: []string{"stage2  ok\n", `"`}, json: true,
			want: `{"message":"stage2  ok","message_type":"kernel_output"}` + "\n" + `{"message":"\"","message_type":"kernel_output"}` + "\n",
		},
		{
			name: "a long line", texts: []string{strings.Repeat("x", maxKernelLine+1)},
			want: "kernel: " + strings.Repeat("x", maxKernelLine) + "\nkernel: x\n",
		},
	} {
		var written bytes.Buffer
		k := &kernelOutput{w: &written, width: c.width, json: &c.json, step: c.step}
		for _, text := range c.texts {
			if n, err := k.Write([]byte(text)); n != len(text) || err != nil {
				t.Errorf("%s: %d, %v", c.name, n, err)
			}
		}
		k.flush()
		if written.String() != c.want {
			t.Errorf("%s: %q, want %q", c.name, written.String(), c.want)
		}
	}
}

func FuzzKernelOutput(f *testing.F) {
	f.Add("\x1b[2J\xff\n\u202e")
	f.Fuzz(func(t *testing.T, text string) {
		var written bytes.Buffer
		k := &kernelOutput{w: &written, json: new(bool)}
		k.Write([]byte(text)) //nolint:errcheck // it returns none
		k.flush()
		for line := range strings.Lines(written.String()) {
			content := strings.TrimSuffix(line, "\n")
			if !strings.HasPrefix(content, kernelPrefix) || content != printable(content) || content == line {
				t.Errorf("%q prints the line %q", text, line)
			}
		}
	})
}
