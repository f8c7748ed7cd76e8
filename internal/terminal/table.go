package terminal

import (
	"fmt"
	"io"
	"iter"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Column describes a column of a table.
type Column struct {
	Name string
	// Wrap allows to break cells into lines.
	Wrap bool
	// Keep prevents that a column with equal cells moves into the line above the table. Columns
	// without any value are always dropped.
	Keep bool
	// Optional columns are shown if they fit, the lowest number first. 0 is always shown.
	Optional int
	// Names are never set at the right, though an id of digits alone looks like a number.
	Names bool
	// Colour is the colour of a cell; may be nil.
	Colour func(cell string) Colour
}

// Table is a table of text. The first column names the row.
type Table struct {
	Indent  int
	Columns []Column
	Rows    [][]string
	Notes   [][]string // texts below each row; may be nil
}

// separator is the space between columns.
const separator = 2

// noteIndent is the indentation of the texts below a row.
const noteIndent = 4

// Write writes the table. No line is wider than the screen.
//
// Columns whose cells are all equal become a line above the table. If the rest is too wide, cells
// and headings wrap, then optional columns are dropped, then further columns follow in a second
// table with the first column repeated.
func (t Table) Write(w io.Writer, s Screen) {
	indent := strings.Repeat(" ", min(t.Indent, s.Width/4))
	width := s.Width - len(indent)
	columns, common := t.constants()
	if common != "" {
		s.Paragraph(w, indent, common, len(indent)+2)
	}
	for i, group := range t.fit(columns, width) {
		if i > 0 {
			fmt.Fprintln(w)
		}
		t.writeColumns(w, s, indent, group, i == 0)
	}
}

// constants returns the columns to show, and a line with the others, whose cells are all equal.
func (t Table) constants() (columns []int, common string) {
	var words []string
	for i, c := range t.Columns {
		switch {
		case i == 0 || len(t.Rows) == 0 || !t.constant(i):
			columns = append(columns, i)
		case t.Rows[0][i] == "" || t.Rows[0][i] == "-": // the column has nothing to show
		case c.Keep || len(t.Rows) == 1:
			columns = append(columns, i)
		default:
			words = append(words, strings.TrimSpace(c.Name+" "+t.Rows[0][i]))
		}
	}
	return columns, strings.Join(words, ", ")
}

func (t Table) constant(column int) bool {
	return !slices.ContainsFunc(t.Rows, func(row []string) bool { return row[column] != t.Rows[0][column] })
}

// layout is a column with its width.
type layout struct {
	column, width int
}

// fit lays the columns out: in one group if they fit, else in several.
func (t Table) fit(columns []int, width int) [][]layout {
	if group, ok := t.shrink(columns, width); ok {
		return [][]layout{group}
	}
	var shown, optional []int
	for _, c := range columns {
		if t.Columns[c].Optional == 0 {
			shown = append(shown, c)
		} else {
			optional = append(optional, c)
		}
	}
	best, ok := t.shrink(shown, width)
	if !ok {
		return t.split(shown, width)
	}
	slices.SortStableFunc(optional, func(a, b int) int { return t.Columns[a].Optional - t.Columns[b].Optional })
	for _, c := range optional {
		more := slices.Sorted(slices.Values(append(slices.Clone(shown), c)))
		if group, ok := t.shrink(more, width); ok {
			best, shown = group, more
		}
	}
	return [][]layout{best}
}

// split makes groups of columns that fit. Each begins with the first column.
func (t Table) split(columns []int, width int) [][]layout {
	var groups [][]layout
	for rest := columns[1:]; ; {
		var group []layout
		n := len(rest)
		for ; n > 0; n-- {
			var ok bool
			if group, ok = t.shrink(slices.Concat(columns[:1], rest[:n]), width); ok {
				break
			}
		}
		if n == 0 { // not even one column fits beside the first
			n = min(1, len(rest))
			group = t.squeeze(slices.Concat(columns[:1], rest[:n]), width)
		}
		groups = append(groups, group)
		if rest = rest[n:]; len(rest) == 0 {
			return groups
		}
	}
}

// shrink gives each column its width. It narrows headings, then cells that wrap, until all fit. It
// reports whether they do.
func (t Table) shrink(columns []int, width int) ([]layout, bool) {
	group := make([]layout, len(columns))
	cells, least := make([]int, len(columns)), make([]int, len(columns))
	total := separator * (len(columns) - 1)
	for i, c := range columns {
		var natural int
		natural, cells[i], least[i] = t.widths(c)
		group[i] = layout{c, natural}
		total += natural
	}
	for _, limits := range [][]int{cells, least} {
		for total > width {
			widest := -1
			for i, l := range group {
				if l.width > limits[i] && (widest < 0 || l.width > group[widest].width) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			group[widest].width--
			total--
		}
	}
	return group, total <= width
}

// squeeze gives columns that do not fit equal shares of the width.
func (t Table) squeeze(columns []int, width int) []layout {
	group := make([]layout, len(columns))
	share := max(1, (width-separator*(len(columns)-1))/len(columns))
	for i, c := range columns {
		natural, _, _ := t.widths(c)
		group[i] = layout{c, min(natural, share)}
	}
	return group
}

// widths returns the width of a column in which nothing wraps, the width in which no cell wraps, and
// the least width. Headings wrap between words, and cells only in columns that allow it.
func (t Table) widths(column int) (natural, unwrapped, least int) {
	const narrowest = 14 // of text that wraps
	c := t.Columns[column]
	cells := 0
	for _, row := range t.Rows {
		for line := range strings.SplitSeq(row[column], "\n") {
			cells = max(cells, runes(line))
		}
	}
	word := 0
	for _, w := range strings.Fields(c.Name) {
		word = max(word, runes(w))
	}
	natural, unwrapped = max(cells, runes(c.Name)), max(cells, word)
	if c.Wrap {
		cells = min(cells, narrowest)
	}
	return natural, unwrapped, max(cells, word)
}

func runes(text string) int { return utf8.RuneCountInString(text) }

func (t Table) writeColumns(w io.Writer, s Screen, indent string, group []layout, notes bool) {
	header := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		header[i] = c.Name
	}
	right := make([]bool, len(group))
	for i, l := range group {
		right[i] = t.numeric(l.column)
	}
	if strings.Join(header, "") != "" {
		t.writeRow(w, s, indent, group, right, header, false)
	}
	for i, row := range t.Rows {
		t.writeRow(w, s, indent, group, right, row, true)
		if !notes || i >= len(t.Notes) {
			continue
		}
		for _, note := range t.Notes[i] {
			margin := indent + strings.Repeat(" ", noteIndent)
			s.Paragraph(w, margin, note, len(margin)+2)
		}
	}
}

// writeRow writes the cells of a row, on several lines if one of them wraps.
func (t Table) writeRow(w io.Writer, s Screen, indent string, group []layout, right []bool, cells []string, coloured bool) {
	wrapped := make([][]string, len(group))
	height := 1
	for i, l := range group {
		for line := range strings.SplitSeq(cells[l.column], "\n") {
			wrapped[i] = append(wrapped[i], Wrap(line, l.width)...)
		}
		height = max(height, len(wrapped[i]))
	}
	for n := range height {
		line := &strings.Builder{}
		line.WriteString(indent)
		gap := 0 // columns of space before the next text
		for i, l := range group {
			text := ""
			if n < len(wrapped[i]) {
				text = wrapped[i][n]
			}
			space := l.width - runes(text)
			if right[i] {
				gap, space = gap+space, 0
			}
			if text != "" {
				line.WriteString(strings.Repeat(" ", gap))
				gap = 0
				if colour := t.Columns[l.column].Colour; coloured && colour != nil {
					text = s.Paint(colour(cells[l.column]), text)
				}
				line.WriteString(text)
			} else if right[i] {
				space = 0
			}
			gap += space + separator
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// numberPattern matches a number with its unit, interval or ratio: 12.3, +1.4 % ±0.2, 0.99 to 1.01,
// 5.26 (102), 1.25x, 3.84~.
var numberPattern = regexp.MustCompile(`^[-+±]?\d[\d.]*(e[-+]?\d+)?( ?(x|%|us|ms|KB|MB))?~?( ± ?\S+| to \S+| \([\d.]+( to [\d.]+)?\))?$`)

// numeric reports whether the cells of a column are numbers.
func (t Table) numeric(column int) bool {
	return !t.Columns[column].Names && Numeric(func(yield func(string) bool) {
		for _, row := range t.Rows {
			if !yield(row[column]) {
				return
			}
		}
	})
}

// Numeric reports whether all cells of a column are numbers, or stand for a missing one. Such columns are
// set at the right.
func Numeric(cells iter.Seq[string]) bool {
	found := false
	for cell := range cells {
		switch {
		case numberPattern.MatchString(cell):
			found = true
		case !slices.Contains([]string{"", "-", "best", "not finite", "not measured", "not checked", "WRONG"}, cell):
			return false
		}
	}
	return found
}
