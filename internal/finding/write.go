package finding

import (
	"bytes"
	"fmt"
	"io"
	"slices"
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

// longestExcerpt limits a source line in a record.
const longestExcerpt = 400

// Quote adds the source lines of the finding's places, so that it can be shown without the files.
func (f *Finding) Quote(sources Sources) {
	f.Where.quote(sources)
	if f.Other != nil {
		other := *f.Other // findings may share a place
		other.quote(sources)
		f.Other = &other
	}
}

func (p *Place) quote(sources Sources) {
	if own, known := p.Own(); known && p.Excerpt == "" {
		line := strings.ToValidUTF8(sources.line(own), "?")
		for len(line) > longestExcerpt {
			_, size := utf8.DecodeLastRuneInString(line)
			line = line[:len(line)-size]
		}
		p.Excerpt = line
	}
}

// Description is a finding as people read it, in every form.
type Description struct {
	Headline string
	Places   []Located
	Clauses  []string // what happened; the first says most, the others repeat parts of the headline
	Remedy   string   // may be empty
}

// Located is a place of a finding.
type Located struct {
	At   string    // source lines, or the PTX line and its instruction
	Own  ptx.Frame // zero if it is not known
	Text string    // the source line without its indentation; empty if it is not known
	Mark int       // column of the mark below the text, from 0
}

// Describe describes the finding with the source lines that it has. A verbose description has both
// places even on one line, with their instructions. Places that are in two calls of inlined functions
// have the lines of the calls: the barrier that is missing is between these.
func (f Finding) Describe(on string, verbose bool) Description {
	d := Description{Headline: f.headline(), Clauses: strings.Split(strings.TrimSpace(f.Detail), "; "), Remedy: f.Remedy()}
	note := f.times()
	if on != "" {
		note += ", on " + on
	}
	calls := !verbose && f.Other != nil && f.Where.call() != "" && f.Other.call() != "" && f.Where.call() != f.Other.call()
	add := func(p Place, note string) {
		if at, known := p.located(verbose); known {
			if calls {
				at.At += p.call()
			}
			if note != "" {
				at.At += " (" + note + ")"
			}
			d.Places = append(d.Places, at)
		}
	}
	add(f.Where, note)
	if len(d.Places) == 0 {
		d.Clauses[0] += " (" + note + ")"
	}
	if f.Other != nil && (verbose || calls || !sameLine(f.Where, *f.Other)) {
		add(*f.Other, "")
	}
	return d
}

// call names the call of the inlined function that has the place's own line; empty for another place.
func (p Place) call() string {
	own, _ := p.Own()
	frames := p.Frames()
	if i := slices.Index(frames, own); i >= 0 && i+1 < len(frames) {
		return ", called from " + frames[i+1].String()
	}
	return ""
}

// located is where an instruction is: the source line with a mark, or else the instruction.
func (p Place) located(verbose bool) (at Located, known bool) {
	own, inSource := p.Own()
	if !inSource && p.PTXLine == 0 {
		return at, false
	}
	at.At, at.Own = fmt.Sprintf("%s: %s", p, strings.Join(strings.Fields(p.PTX), " ")), own
	if inSource && !verbose {
		at.At = own.String()
		if inner := p.Frames()[0]; inner != own {
			at.At += ", in " + inner.String()
		}
	}
	if inSource && p.Excerpt != "" {
		at.Text = strings.TrimLeft(p.Excerpt, " \t")
		at.Mark = markAt(at.Text, own.Column-1-(len(p.Excerpt)-len(at.Text)))
		at.Text = printable(at.Text)
	}
	return at, true
}

// Form is how findings are written to a terminal.
type Form struct {
	Screen  terminal.Screen
	Indent  string
	Sources Sources // of findings without their source lines; may be nil
	On      string  // the outputs that the finding appeared on; may be empty
	Verbose bool    // with all calls, instructions and details
}

// most is how many lines a finding takes that is not verbose.
const most = 11

// Write writes a finding as compilers write errors: a headline, the source lines of its places, what
// happened first, and the remedy. It takes at most 11 lines, unless it is verbose.
func (f Finding) Write(w io.Writer, form Form) {
	f.Quote(form.Sources)
	d := f.Describe(form.On, form.Verbose)
	out := &writer{Form: form}
	colour := terminal.Yellow
	if f.Severity == Error {
		colour = terminal.Red
	}
	out.text("", d.Headline, 2, colour)
	for _, p := range d.Places {
		out.text("  ", p.At, 1, terminal.Plain)
		if p.Text != "" {
			out.excerpt(p)
		}
	}
	clauses := d.Clauses
	if !form.Verbose {
		clauses = clauses[:1]
	}
	help := &writer{Form: form}
	if d.Remedy != "" {
		help.text("  ", "help: "+d.Remedy, 2, terminal.Plain)
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

// excerpt adds a source line and, below, a mark.
func (w *writer) excerpt(at Located) {
	number := fmt.Sprintf("%s  %6d | ", w.Indent, at.Own.Line)
	room := max(w.Screen.Width-len(number), 20)
	w.lines = append(w.lines, number+cut(at.Text, room))
	if at.Mark < room-1 {
		w.lines = append(w.lines, fmt.Sprintf("%s%8s | %*s%s", w.Indent, "", at.Mark, "", w.Screen.Paint(terminal.Red, "^")))
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
