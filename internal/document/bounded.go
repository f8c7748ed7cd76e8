package document

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// Bounded is the document as Markdown and pages have it, with at most so many rows in a table and items
// in a list, and so many characters in a text. Records may have names of any length. It names no sources,
// which would be most of a page.
func (d *Document) Bounded(rows, length int) *Document {
	b := bound{rows, length}
	bounded := d.paged()
	bounded.Title, bounded.Headline = b.text(bounded.Title), b.texts(bounded.Headline)
	for i, s := range bounded.Sections {
		s.Title, s.Blocks = b.text(s.Title), b.blocks(s.Blocks)
		bounded.Sections[i] = s
	}
	return bounded
}

type bound struct{ rows, length int }

func (b bound) blocks(blocks []Block) []Block {
	var all []Block
	for _, block := range blocks {
		switch block := block.(type) {
		case Text:
			all = append(all, b.text(block))
		case List:
			all = append(all, List(b.texts(block[:min(len(block), b.rows)])))
			all = append(all, b.more(len(block), "items")...)
		case Table:
			all = append(all, b.table(block))
			all = append(all, b.more(len(block.Rows), "rows")...)
		case Code:
			block.Text = b.span(block.Text, 10*b.length)
			all = append(all, block)
		case Details:
			all = append(all, Details{b.text(block.Summary), b.blocks(block.Blocks)})
		default:
			all = append(all, block)
		}
	}
	return all
}

// more says how many rows or items are left out.
func (b bound) more(n int, what string) []Block {
	if n <= b.rows {
		return nil
	}
	return []Block{say(Span{Text: fmt.Sprintf("%d more %s are in the record.", n-b.rows, what)})}
}

func (b bound) table(t Table) Table {
	bounded := Table{Columns: make([]Column, len(t.Columns))}
	for i, c := range t.Columns {
		c.Name = b.text(c.Name)
		bounded.Columns[i] = c
	}
	for _, row := range t.Rows[:min(len(t.Rows), b.rows)] {
		bounded.Rows = append(bounded.Rows, b.texts(row))
	}
	return bounded
}

func (b bound) texts(texts []Text) []Text {
	all := make([]Text, len(texts))
	for i, t := range texts {
		all[i] = b.text(t)
	}
	return all
}

func (b bound) text(t Text) Text {
	all := make(Text, len(t))
	for i, s := range t {
		all[i] = b.span(s, b.length)
	}
	return all
}

func (b bound) span(s Span, length int) Span {
	if s.Source = ""; len(s.Text) > length && utf8.RuneCountInString(s.Text) > length {
		s.Text = string([]rune(s.Text)[:length-1]) + "…"
	}
	return s
}

// WithoutDetails is the document as pages have it, without what a reader opens if it matters: long tables
// of single outputs.
func (d *Document) WithoutDetails() *Document {
	short := d.paged()
	for i, s := range short.Sections {
		short.Sections[i].Blocks = slices.DeleteFunc(s.Blocks, func(b Block) bool { _, is := b.(Details); return is })
	}
	return short
}
