package document

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"attune/internal/finding"
	"attune/internal/terminal"
)

// Terminal writes the document for a screen: the first lines, then each section after an empty line.
// Plots have no form there.
func (d *Document) Terminal(w io.Writer, s terminal.Screen) error {
	t := &terminalWriter{screen: s, names: newShortNames()}
	if s.Width < wideScreen && d.Narrow {
		t.names.longest = narrowVariantName
	}
	d = d.without(Long)
	lines := d.Brief
	if lines == nil {
		lines = append([]Text{d.Title}, d.Headline...)
	}
	for _, line := range lines {
		t.paragraph("", line, 2)
	}
	t.defineNames()
	for _, section := range d.Sections {
		if t.out.Len() > 0 {
			t.out.WriteString("\n")
		}
		indent := 0
		if section.Label != nil {
			t.paragraph("", section.Label, 2)
			indent = 2
		}
		t.blocks(section.Blocks, indent)
	}
	_, err := w.Write(t.out.Bytes())
	return err
}

// writeBlocks writes blocks as a section without a label has them.
func writeBlocks(w io.Writer, s terminal.Screen, blocks ...Block) error {
	return (&Document{Brief: []Text{}, Sections: []Section{{Blocks: blocks}}}).Terminal(w, s)
}

// wideScreen is the width of a screen that has room for the names of variants.
const wideScreen = 120

type terminalWriter struct {
	screen terminal.Screen
	out    bytes.Buffer
	names  *shortNames
	since  int // end of the text in which short names are defined
}

// defineNames writes the full names of variants that were shortened since the last call. A name may
// be missing from the text, because its column did not fit.
func (t *terminalWriter) defineNames() {
	text := t.out.String()[t.since:]
	t.names.write(&t.out, t.screen, text)
	t.since = t.out.Len()
}

func (t *terminalWriter) blocks(blocks []Block, indent int) {
	margin := strings.Repeat(" ", indent)
	for _, b := range blocks {
		switch b := b.(type) {
		case Text:
			t.paragraph(margin, b, indent+2)
		case List:
			for _, item := range b {
				t.paragraph("  - ", item, 4)
			}
		case Fields:
			t.fields(b)
		case Table:
			t.table(b, indent)
		case Code:
			t.code(b)
		case Line:
			t.line(margin, b)
		case Finding:
			b.Finding.Write(&t.out, finding.Form{Screen: t.screen, Indent: "  ", Sources: b.Sources, On: b.On, Verbose: b.Verbose})
		case Details:
			t.blocks(b.Blocks, indent)
		}
	}
}

// code writes lines as they are. An excerpt is an output, which is indented like fields.
func (t *terminalWriter) code(c Code) {
	margin := ""
	if c.Excerpt {
		margin = "  "
	}
	for line := range strings.Lines(c.Text.Text) {
		fmt.Fprintln(&t.out, strings.TrimRight(margin+terminal.Printable(strings.TrimSuffix(line, "\n")), " "))
	}
}

// line writes a line that is cut where the screen ends.
func (t *terminalWriter) line(margin string, l Line) {
	width := len(margin)
	t.out.WriteString(margin)
	for _, s := range l.Start {
		width += utf8.RuneCountInString(s.Text)
		t.out.WriteString(t.screen.Paint(s.Colour, s.Text))
	}
	fmt.Fprintln(&t.out, cut(l.Rest.String(), max(t.screen.Width-width, l.Least)))
}

// text is a text on the screen. Commands have their backticks, and long variants their short names.
func (t *terminalWriter) text(text Text) string {
	out := &strings.Builder{}
	for _, s := range text {
		out.WriteString(t.span(s))
	}
	return out.String()
}

func (t *terminalWriter) span(s Span) string {
	switch {
	case s.Long:
		return ""
	case s.Variant:
		return t.names.add(s.Text)
	case s.Code && s.Source == "":
		return "`" + s.Text + "`"
	}
	return s.Text
}

// paragraph writes a text, wrapped. What stands before and in its first coloured span is the margin
// of the first line.
func (t *terminalWriter) paragraph(margin string, text Text, hang int) {
	rest := ""
	coloured := false
	for _, s := range text {
		piece := t.span(s)
		switch {
		case coloured:
			rest += piece
		case s.Colour != terminal.Plain:
			margin += rest + t.screen.Paint(s.Colour, piece)
			rest, coloured = "", true
		default:
			rest += piece
		}
	}
	t.screen.Paragraph(&t.out, margin, rest, hang)
}

// The columns of fields: names, then outcomes.
const fieldWidth, outcomeWidth = 12, 13

// mostFieldLines is how many lines of a field with an outcome a terminal shows. The record has all.
const mostFieldLines = 13

func (t *terminalWriter) fields(f Fields) {
	width := fieldWidth
	if f.Width > 0 {
		width = f.Width + 1
	}
	for _, field := range f.Fields {
		margin := fmt.Sprintf("  %-*s ", width, field.Name)
		lines := field.Lines
		if field.Outcome != nil {
			word, colour := field.Outcome.String(), field.Outcome[0].Colour
			margin += t.screen.Paint(colour, word) + strings.Repeat(" ", max(0, outcomeWidth-len(word))+1)
			most := cmp.Or(f.Most, mostFieldLines)
			if more := len(lines) - most; more > 0 {
				lines = append(lines[:most:most], say(fmt.Sprintf("and %d more", more)))
			}
		}
		if len(lines) == 0 {
			lines = []Text{nil}
		}
		hang := 2 + width + 1
		if field.Outcome != nil {
			hang += outcomeWidth + 1
		}
		for _, line := range lines {
			t.screen.Paragraph(&t.out, margin, t.text(line), hang+2)
			margin = strings.Repeat(" ", hang)
		}
	}
}

func (t *terminalWriter) table(b Table, indent int) {
	table := terminal.Table{Indent: indent + b.Indent}
	for _, c := range b.Columns {
		column := terminal.Column{Name: c.Name.String(), Keep: c.Keep, Wrap: c.Wrap, Names: c.Names, Optional: c.Optional, Colour: c.Colour}
		if c.Bare {
			column.Name = ""
		}
		table.Columns = append(table.Columns, column)
	}
	shown := func(texts []Text) (all []string) {
		for _, text := range texts {
			all = append(all, t.text(text))
		}
		return all
	}
	for _, row := range b.Rows {
		table.Rows = append(table.Rows, shown(row))
	}
	for _, notes := range b.Notes {
		table.Notes = append(table.Notes, shown(notes))
	}
	table.Write(&t.out, t.screen)
	t.defineNames()
}
