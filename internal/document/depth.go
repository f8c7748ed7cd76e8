package document

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/terminal"
)

// without is the document without the parts of a depth. Only blocks are replaced by their content, and
// sections without content are dropped, so that no renderer sees depths.
func (d *Document) without(depth Depth) *Document {
	shown := &Document{Title: d.Title, Headline: d.Headline, Brief: d.Brief, Narrow: d.Narrow, recorded: d.recorded}
	for _, s := range d.Sections {
		if s.Depth == depth {
			continue
		}
		if s.Blocks = blocksWithout(s.Blocks, depth); len(s.Blocks) > 0 {
			shown.Sections = append(shown.Sections, s)
		}
	}
	return shown
}

func blocksWithout(blocks []Block, depth Depth) []Block {
	var shown []Block
	for _, b := range blocks {
		switch b := b.(type) {
		case Only:
			if b.Depth != depth {
				shown = append(shown, blocksWithout(b.Blocks, depth)...)
			}
		case Details:
			shown = append(shown, Details{b.Summary, blocksWithout(b.Blocks, depth)})
		case Table:
			shown = append(shown, b.without(depth).bounded()...)
		case Fields:
			b.Fields = slices.DeleteFunc(slices.Clone(b.Fields), func(f Field) bool { return f.Depth == depth })
			more := len(b.Fields) - mostRows
			if b.Fields = b.Fields[:min(len(b.Fields), mostRows)]; len(b.Fields) > 0 {
				shown = append(shown, b)
			}
			if more > 0 {
				shown = append(shown, leftOutRows(more, ""))
			}
		default:
			shown = append(shown, b)
		}
	}
	return shown
}

func (t Table) without(depth Depth) Table {
	return t.keep(func(column int) bool { return t.Columns[column].Depth != depth })
}

// keep is the table with some of its columns.
func (t Table) keep(wanted func(column int) bool) Table {
	kept := Table{Rows: make([][]Text, len(t.Rows)), Notes: t.Notes, Indent: t.Indent, ID: t.ID, LeftOut: t.LeftOut}
	for column := range t.Columns {
		if !wanted(column) {
			continue
		}
		kept.Columns = append(kept.Columns, t.Columns[column])
		for i, row := range t.Rows {
			kept.Rows[i] = append(kept.Rows[i], row[column])
		}
	}
	return kept
}

// withoutEmpty drops the columns of a table in which all cells are missing or empty.
func withoutEmpty(t Table) Table {
	return t.keep(func(column int) bool {
		return slices.ContainsFunc(t.Rows, func(row []Text) bool { return !row[column].empty() })
	})
}

// empty reports whether a cell has nothing to show.
func (t Text) empty() bool {
	text := t.String()
	return text == "" || text == missing.Text
}

// paged is the document as Markdown and pages have it: fields are tables, and tables have no empty
// columns.
func (d *Document) paged() *Document {
	shown := d.without(Brief)
	for i := range shown.Sections {
		shown.Sections[i].Blocks = pagedBlocks(shown.Sections[i].Blocks)
	}
	return shown
}

func pagedBlocks(blocks []Block) []Block {
	var all []Block
	for _, b := range blocks {
		switch b := b.(type) {
		case Fields:
			all = append(all, b.paged()...)
		case Table:
			if len(b.Rows) > 0 {
				b = withoutEmpty(b)
			}
			all = append(all, b)
		case Details:
			all = append(all, Details{b.Summary, pagedBlocks(b.Blocks)})
		default:
			all = append(all, b)
		}
	}
	return all
}

// mostLines is how many lines of an output Markdown and pages have. The record has all.
const mostLines = 400

// mostFactLines is how many lines of a fact are in its cell, such as all that name lines of the source.
const mostFactLines = 6

// paged is a table of the fields, and the texts with more lines in full: of outcomes those with more than
// two, because reasons may be outputs of a compiler.
func (f Fields) paged() []Block {
	t := Table{Columns: columns(f.Head...)}
	var whole []Block
	name, colours := "", map[string]terminal.Colour{}
	for _, field := range f.Fields {
		if field.Name != "" {
			name = field.Name
		}
		first := Text{}
		most := mostFactLines
		if field.Outcome != nil {
			most = 2
		}
		for i, line := range field.Lines[:min(most, len(field.Lines))] {
			if i > 0 {
				first = append(first, say("; ")...)
			}
			first = append(first, line...)
		}
		if len(first) == 0 {
			first = cell(missing)
		}
		row := []Text{say(name), first}
		if len(f.Head) > len(row) {
			row = slices.Insert(row, 1, field.Outcome)
			colours[field.Outcome.String()] = field.Outcome[0].Colour
			t.Columns[1].Colour = func(outcome string) terminal.Colour { return colours[outcome] }
		}
		t.Rows = append(t.Rows, row)
		if len(field.Lines) > most {
			summary := say("All lines of ", name)
			if field.Outcome != nil {
				summary = say("All reasons of the ", f.Head[0], " ", name)
			}
			whole = append(whole, Details{Summary: summary, Blocks: []Block{codeOf(field.Lines)}})
		}
	}
	return append([]Block{t}, whole...)
}

// codeOf has texts as lines in a fixed font. Its source is that of the last.
func codeOf(lines []Text) Code {
	code := Code{}
	if last := lines[len(lines)-1]; len(last) > 0 {
		if file, key, found := strings.Cut(last[0].Source, "#"); found {
			code.Text.Source = record{file}.summary("", "%s", strings.TrimPrefix(key, "summary:")).Source
		}
	}
	for _, line := range lines[:min(len(lines), mostLines)] {
		code.Text.Text += line.String() + "\n"
	}
	if more := len(lines) - mostLines; more > 0 {
		code.Text.Text += fmt.Sprintf("and %d more\n", more)
	}
	return code
}
