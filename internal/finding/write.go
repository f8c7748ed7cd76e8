package finding

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"attune/internal/ptx"
	"attune/internal/terminal"
)

// Sources reads a source file that a place names; nil for one that is not there.
type Sources func(file string) []byte

// line returns a line of a file, or an empty text.
func (s Sources) line(at ptx.Frame) string {
	if s == nil {
		return ""
	}
	lines := bytes.Split(s(at.File), []byte("\n"))
	if at.Line < 1 || at.Line > len(lines) {
		return ""
	}
	return strings.TrimRight(string(lines[at.Line-1]), " \t\r")
}

// Form is how findings are written to a terminal.
type Form struct {
	Screen  terminal.Screen
	Indent  string
	Sources Sources
	On      string // the outputs that the finding appeared on; may be empty
	Verbose bool   // with all calls, instructions and details
}

// most is how many lines a finding takes that is not verbose.
const most = 11

// Write writes a finding as compilers write errors: a headline, the source lines of its places, what
// happened first, and the remedy. It takes at most 11 lines, unless it is verbose.
func (f Finding) Write(w io.Writer, form Form) {
	out := &writer{Form: form}
	colour := terminal.Yellow
	if f.Severity == Error {
		colour = terminal.Red
	}
	out.text("", f.headline(), 2, colour)
	note := f.times()
	if form.On != "" {
		note += ", on " + form.On
	}
	located := out.place(f.Where, note)
	if f.Other != nil && (form.Verbose || !sameLine(f.Where, *f.Other)) {
		out.place(*f.Other, "")
	}
	clauses := strings.Split(strings.TrimSpace(f.Detail), "; ")
	if !located {
		clauses[0] += " (" + note + ")"
	}
	if !form.Verbose {
		clauses = clauses[:1] // the others repeat what the headline says
	}
	help := &writer{Form: form}
	if remedy := f.Remedy(); remedy != "" {
		help.text("  ", "help: "+remedy, 2, terminal.Plain)
	}
	for _, clause := range clauses {
		out.text("  ", clause, min(2, most-len(out.lines)-len(help.lines)), terminal.Plain)
	}
	for _, line := range append(out.lines, help.lines...) {
		fmt.Fprintln(w, line)
	}
}

// headline is the severity, the kind, the variable and what the kind means.
func (f Finding) headline() string {
	text := fmt.Sprintf("%s: %s", f.Severity, f.Kind)
	if v := f.Variable.phrase(); v != "" {
		text += " on " + v
	}
	if short := explanations[f.Kind].short; short != "" {
		text += ": " + short
	}
	if f.Severity == Strict {
		text += "; it works on hardware"
	}
	return text
}

// phrase names the variable and the element that is accessed.
func (v Variable) phrase() string {
	text := v.Name
	switch {
	case v.Space == Argument && v.Name == "":
		text = fmt.Sprintf("argument %d", v.Index)
	case v.Space == Argument:
		text = "argument " + v.Name
	case v.Space == Shared && strings.Contains(v.Name, " "): // it has no name
	case v.Space != "":
		text = fmt.Sprintf("%s variable %s", v.Space, v.Name)
	}
	element, known := v.Element()
	switch {
	case text == "" || v.Space == "":
	case known && v.Bytes > 0 && (v.Offset < 0 || v.Offset >= v.Bytes):
		text += fmt.Sprintf(", element %d of %d", element, v.Bytes/v.ElementBytes)
	case known:
		text += fmt.Sprintf(", element %d", element)
	case v.Offset != 0:
		text += fmt.Sprintf(", byte %d", v.Offset)
	}
	return text
}

// sameLine reports whether two places show the same source line.
func sameLine(a, b Place) bool {
	one, known := a.Own()
	other, _ := b.Own()
	return known && one.File == other.File && one.Line == other.Line
}

// writer collects the lines of a finding.
type writer struct {
	Form
	lines []string
}

// text adds a paragraph of at most some lines, of any number if the form is verbose. The colour is
// that of its first word.
func (w *writer) text(indent, text string, most int, c terminal.Colour) {
	margin := w.Indent + indent
	word, rest, _ := strings.Cut(printable(text), " ")
	var out strings.Builder
	w.Screen.Paragraph(&out, margin+w.Screen.Paint(c, word), strings.TrimRight(" "+rest, " "), len(margin)+2)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if !w.Verbose && len(lines) > most {
		lines = lines[:most]
		lines[most-1] = cut(lines[most-1]+" …", w.Screen.Width)
	}
	w.lines = append(w.lines, lines...)
}

// cut shortens a text to a width, with an ellipsis at its end.
func cut(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		return strings.TrimRight(string(runes[:max(width-1, 0)]), " …") + "…"
	}
	return text
}

// printable replaces what a terminal would obey.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// place adds where an instruction is: the source line with a mark, or else the instruction.
func (w *writer) place(p Place, note string) (located bool) {
	own, known := p.Own()
	if !known && p.PTXLine == 0 {
		return false
	}
	at := fmt.Sprintf("%s: %s", p, strings.Join(strings.Fields(p.PTX), " "))
	if known && !w.Verbose {
		at = own.String()
		if inner := p.Frames()[0]; inner != own {
			at += ", in " + inner.String()
		}
	}
	if note != "" {
		at += " (" + note + ")"
	}
	w.text("  ", at, 1, terminal.Plain)
	if source := w.Sources.line(own); known && source != "" {
		w.excerpt(own, source)
	}
	return true
}

// excerpt adds a source line without its indentation and, below, a mark.
func (w *writer) excerpt(at ptx.Frame, source string) {
	text := strings.TrimLeft(source, " \t")
	start := markAt(text, at.Column-1-(len(source)-len(text)))
	number := fmt.Sprintf("%s  %6d | ", w.Indent, at.Line)
	room := max(w.Screen.Width-len(number), 20)
	w.lines = append(w.lines, number+cut(printable(text), room))
	if start < room-1 {
		w.lines = append(w.lines, fmt.Sprintf("%s%8s | %*s%s", w.Indent, "", start, "", w.Screen.Paint(terminal.Red, "^")))
	}
}

// markAt is the column of a mark in a line, for the position that the PTX has: that of a statement
// after macros are expanded. A position that is not at the start of a word means nothing in the
// source, so the mark is then at the start of the line.
func markAt(text string, position int) int {
	isWord := func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }
	if position <= 0 || position >= len(text) || !isWord(rune(text[position])) || isWord(rune(text[position-1])) {
		return 0
	}
	return utf8.RuneCountInString(text[:position])
}
