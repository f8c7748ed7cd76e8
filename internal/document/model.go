package document

import (
	"fmt"
	"math"
	"strings"

	"attune/internal/finding"
	"attune/internal/plot"
	"attune/internal/terminal"
)

// Document is what people read about records, in every form.
type Document struct {
	Title    Text
	Headline []Text // what to know if nothing else is read
	Brief    []Text // the first lines on a terminal, in place of title and headline; nil for these
	Sections []Section
	Narrow   bool // a narrow terminal shortens variants more
	recorded bool // a file of a record, whose plots have no prefix
}

// Depth says in which forms a part of a document is shown.
type Depth int

// The depths. A record has one document: a terminal shows less of it than Markdown and a page do.
const (
	Always Depth = iota
	Long         // in Markdown and pages only
	Brief        // on a terminal only, where the other forms have the same at greater length
)

// Section is a part of a document.
type Section struct {
	ID     string // of the section in the page, and of its plots' files
	Title  Text
	Blocks []Block
	Depth  Depth
	Label  Text // the title on a terminal, where a section needs none
}

// Block is a Text (a paragraph), a List, a Table, Fields, a Figure, a Code, Details or Only; on a
// terminal also a Line or a Finding.
type Block any

// Only are blocks of one depth.
type Only struct {
	Depth  Depth
	Blocks []Block
}

// only are blocks of one depth.
func only(d Depth, blocks ...Block) Only { return Only{d, blocks} }

// List is a list of paragraphs.
type List []Text

// Fields are named texts, such as the gates of a run.
type Fields struct {
	Head   []string // columns of Markdown and pages: names, outcomes unless no field has one, texts
	Fields []Field
	Width  int // of the names on a terminal; 0 for that of gates
	Most   int // lines of a field with an outcome on a terminal; 0 for mostFieldLines
}

// Field is a named text. A name that is empty stands for the one above.
type Field struct {
	Name    string
	Outcome Text // nil for a field without one
	Lines   []Text
	Depth   Depth
}

// Table is a table. Columns with figures are set at the right. The first column names the row.
type Table struct {
	Columns []Column
	Rows    [][]Text
	Notes   [][]Text // texts below each row on a terminal; may be nil
	Indent  int      // on a terminal, beside that of the section
	ID      string   // of the record that has all rows; may be empty
	LeftOut int      // rows that it has no room for
}

// mostRows is how many rows of a table are shown, in every form. The record has all, and a forged one
// has hundreds of thousands.
const mostRows = 2000

// full reports whether a table has no room for another row, and counts that row.
func (t *Table) full() bool {
	if len(t.Rows) < mostRows {
		return false
	}
	t.LeftOut++
	return true
}

// bounded is the table with the rows that are shown, and a text about the others.
func (t Table) bounded() []Block {
	n := min(len(t.Rows), mostRows)
	more := t.LeftOut + len(t.Rows) - n
	t.Rows, t.Notes, t.LeftOut = t.Rows[:n], t.Notes[:min(len(t.Notes), n)], 0
	if more == 0 {
		return []Block{t}
	}
	return []Block{t, leftOutRows(more, t.ID)}
}

// leftOutRows says where the rows are that a table leaves out.
func leftOutRows(n int, id string) Text {
	if id == "" {
		return say(fmt.Sprintf("%d more rows are in the record.", n))
	}
	return say(fmt.Sprintf("%d more rows are in the record; ", n), Span{Text: "attune show " + id + " --json", Code: true}, " prints all.")
}

// Column is a column of a table. What it says beside its name is about terminals, where the width is
// limited; see [terminal.Column].
type Column struct {
	Name     Text
	Depth    Depth
	Bare     bool // without its name
	Keep     bool
	Wrap     bool
	Names    bool // of digits and letters, never figures
	Optional int
	Colour   func(cell string) terminal.Colour
}

// columns are columns that a terminal always shows.
func columns(names ...string) []Column {
	var all []Column
	for _, name := range names {
		all = append(all, Column{Name: say(name), Keep: true})
	}
	return all
}

// named is a column with one name.
func named(name string, c Column) Column {
	c.Name = say(name)
	return c
}

// Figure is a plot. Its name is unique in the document.
type Figure struct {
	Name string
	Plot Plot
}

// Plot is a plot of internal/plot.
type Plot interface {
	Finding() string
	SVG() []byte
	Inline(id string) []byte
}

var (
	_ Plot = (*plot.Strips)(nil)
	_ Plot = (*plot.Ladder)(nil)
	_ Plot = (*plot.Lines)(nil)
	_ Plot = (*plot.Roofline)(nil)
	_ Plot = (*plot.Errors)(nil)
	_ Plot = (*plot.HeatMap)(nil)
	_ Plot = (*plot.Convergence)(nil)
)

// Code is a command or an output, set in a fixed font, with its lines.
type Code struct {
	Text     Span
	Language string // for Markdown; may be empty
	Excerpt  bool   // source lines with marks below, whose columns must stay
}

// Line is a line of a terminal that is cut at its end, not wrapped: such lines are columns that grow
// while a command runs. The start is whole on every screen, and the rest has at least some columns.
type Line struct {
	Start, Rest Text
	Least       int
}

// Finding is a finding as package finding writes it to a terminal. Reports have the same parts as texts
// with sources: see RunStudy.finding.
type Finding struct {
	Finding finding.Finding
	On      string          // the outputs that it appeared on
	Sources finding.Sources // for findings without their source lines; may be nil
	Verbose bool
}

// Details are blocks that a reader opens if they matter.
type Details struct {
	Summary Text
	Blocks  []Block
}

// Text is a sentence or the content of a cell.
type Text []Span

// Span is a piece of text. One with a source comes from a record.
type Span struct {
	Text   string
	Source string // such as ID/run.json#speedup.ratio, or a quotient of two
	Format string // of a number, as package fmt has it; empty for a text
	Code   bool   // set in a fixed font
	Output bool   // a message of the program, set in a fixed font too

	Link    string          // address, in a page
	Long    bool            // not on a terminal
	Variant bool            // a name that a terminal shortens if it is long
	Colour  terminal.Colour // of an outcome
}

// say makes a text of strings, spans and texts. What stands between backticks in a string is a
// command.
func say(parts ...any) Text {
	var t Text
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			for i, piece := range strings.Split(p, "`") {
				t = append(t, Span{Text: piece, Code: i%2 == 1})
			}
		case Span:
			t = append(t, p)
		case Text:
			t = append(t, p...)
		default:
			panic(fmt.Sprintf("document: %T is no text", p))
		}
	}
	return t
}

// String is the text without its sources.
func (t Text) String() string {
	text := ""
	for _, s := range t {
		text += s.Text
	}
	return text
}

// record is a file of the ledger that figures come from.
type record struct{ name string }

// runRecord, benchRecord and tuningRecord are the documents of records.
func runRecord(id string) record    { return record{id + "/run.json"} }
func benchRecord(id string) record  { return record{id + "/bench.json"} }
func tuningRecord(id string) record { return record{id + "/tuning.json"} }

// key is the place of a value in the record.
func (r record) key(format string, args ...any) string {
	return r.name + "#" + fmt.Sprintf(format, args...)
}

// figure is a number of the record.
func (r record) figure(format string, v float64, key string, args ...any) Span {
	return derived(format, v, r.key(key, args...))
}

// optional is a number that the record may lack.
func (r record) optional(format string, v *float64, key string, args ...any) Span {
	if v == nil {
		return missing
	}
	return r.figure(format, *v, key, args...)
}

// count is a whole number of the record.
func (r record) count(n int, key string, args ...any) Span {
	return Span{Text: fmt.Sprint(n), Source: r.key(key, args...), Format: "%.0f"}
}

// text is a text of the record.
func (r record) text(text, key string, args ...any) Span {
	return Span{Text: text, Source: r.key(key, args...)}
}

// variant is the name of a variant.
func (r record) variant(name, key string, args ...any) Span {
	return Span{Text: name, Source: r.key(key, args...), Code: true, Variant: true}
}

// summary is a text about a part of the record, such as the range of a figure over all shapes.
func (r record) summary(text, key string, args ...any) Span {
	return Span{Text: text, Source: r.key("summary:"+key, args...)}
}

// code is a text of the record in a fixed font.
func (r record) code(text, key string, args ...any) Span {
	return Span{Text: text, Source: r.key(key, args...), Code: true}
}

// derived is a number that follows from records. The source is an expression of keys and constants,
// with * and / from left to right.
func derived(format string, v float64, source string) Span {
	if math.IsNaN(v) || math.IsInf(v, 0) { // a quotient of damaged figures
		return missing
	}
	return Span{Text: fmt.Sprintf(format, v), Source: source, Format: format}
}

// interval is the two ends of an interval; missing if the record has none.
func (r record) interval(format string, low, high *float64, lowKey, highKey string) Text {
	if low == nil || high == nil {
		return cell(missing)
	}
	return say(r.figure(format, *low, "%s", lowKey), " to ", r.figure(format, *high, "%s", highKey))
}

// missing stands for a figure that a record does not have.
var missing = Span{Text: "-"}

// cell is a span in a table.
func cell(s Span) Text { return Text{s} }
