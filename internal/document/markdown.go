package document

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"attune/internal/terminal"
)

// Mark is in every file of a report, so that a later report replaces only such files.
const Mark = "attune report"

// Markdown is the document in the dialect of GitHub. Plots are files beside it.
func (d *Document) Markdown() []byte {
	d = d.paged()
	out := &bytes.Buffer{}
	if len(d.Title) > 0 {
		fmt.Fprintf(out, "# %s\n", markdownText(d.Title))
	}
	if len(d.Headline) > 0 {
		out.WriteString("\n")
	}
	for _, line := range d.Headline {
		fmt.Fprintf(out, "- %s\n", markdownText(line))
	}
	for _, s := range d.Sections {
		if len(s.Title) > 0 {
			fmt.Fprintf(out, "\n## %s\n", markdownText(s.Title))
		}
		for _, b := range s.Blocks {
			d.markdownBlock(out, b)
		}
	}
	return bytes.TrimLeft(out.Bytes(), "\n")
}

func (d *Document) markdownBlock(out *bytes.Buffer, b Block) {
	out.WriteString("\n")
	switch b := b.(type) {
	case Text:
		fmt.Fprintf(out, "%s\n", markdownText(b))
	case List:
		for _, item := range b {
			fmt.Fprintf(out, "- %s\n", markdownText(item))
		}
	case Table:
		markdownTable(out, b)
	case Figure:
		fmt.Fprintf(out, "![%s](%s)\n", inMarkdown(b.Plot.Finding()), d.file(b))
	case Code:
		text := plainLines(b.Text.Text)
		fence := strings.Repeat("`", max(3, longestRun(text)+1))
		fmt.Fprintf(out, "%s%s\n%s\n%s\n", fence, b.Language, text, fence)
	case Details:
		fmt.Fprintf(out, "<details><summary>%s</summary>\n", inHTML(b.Summary.String()))
		for _, inner := range b.Blocks {
			d.markdownBlock(out, inner)
		}
		out.WriteString("\n</details>\n")
	}
}

// file is the name of a plot's file. Names are chosen by this package, never by a record.
func (d *Document) file(f Figure) string {
	if d.recorded {
		return f.Name + ".svg"
	}
	return "report-" + f.Name + ".svg"
}

// inRecord is the document as a file of a record, beside its plots.
func (d *Document) inRecord() *Document {
	recorded := *d
	recorded.recorded = true
	return &recorded
}

func markdownTable(out *bytes.Buffer, t Table) {
	line := func(cells []string) { fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | ")) }
	header, rule, numeric := []string{}, []string{}, t.numeric()
	for i, c := range t.Columns {
		header = append(header, markdownText(c.Name))
		if numeric[i] {
			rule = append(rule, "--:")
		} else {
			rule = append(rule, "---")
		}
	}
	line(header)
	fmt.Fprintf(out, "|%s|\n", strings.Join(rule, "|"))
	for _, row := range t.Rows {
		cells := []string{}
		for _, c := range row {
			cells = append(cells, markdownText(c))
		}
		line(cells)
	}
}

// numeric reports for each column whether its cells are figures, apart from missing ones.
func (t Table) numeric() []bool {
	numeric := make([]bool, len(t.Columns))
	for column := range numeric {
		numeric[column] = !t.Columns[column].Names && terminal.Numeric(func(yield func(string) bool) {
			for _, row := range t.Rows {
				if !yield(row[column].String()) {
					return
				}
			}
		})
	}
	return numeric
}

func markdownText(t Text) string {
	out := &strings.Builder{}
	for _, s := range t {
		if s.Code || s.Output {
			out.WriteString(codeSpan(s.Text))
		} else {
			out.WriteString(inMarkdown(s.Text))
		}
	}
	return out.String()
}

// oneLine is a text without line ends, control characters and characters that reorder text.
func oneLine(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r) || unicode.IsControl(r):
			return ' '
		case unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, text))
}

// plainLines is a text of several lines without control characters, as oneLine. Spaces that align a
// line stay.
func plainLines(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, line := range lines {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		lines[i] = line[:indent] + oneLine(line)
	}
	return strings.Join(lines, "\n")
}

// keepSpace is oneLine for a piece of a sentence, whose ends may be spaces.
func keepSpace(text string) string {
	inner := oneLine(text)
	if inner == "" {
		if text != "" {
			return " "
		}
		return ""
	}
	if first := rune(text[0]); unicode.IsSpace(first) {
		inner = " " + inner
	}
	if last := rune(text[len(text)-1]); unicode.IsSpace(last) {
		inner += " "
	}
	return inner
}

// special are the characters that Markdown could take for markup, and the beginnings of links that
// GitHub makes of bare addresses.
var special = regexp.MustCompile("[\\\\`*_{}\\[\\]<>|~#&@]|://|www\\.")

// inMarkdown escapes a text.
func inMarkdown(text string) string {
	return special.ReplaceAllStringFunc(keepSpace(text), func(s string) string {
		switch s {
		case "://":
			return `\://`
		case "www.":
			return `www\.`
		case "&":
			return "&amp;"
		case "<":
			return "&lt;"
		case "@":
			return "&#64;"
		}
		return `\` + s
	})
}

// inCode escapes what Markdown would take for markup inside an element of HTML.
var inCode = strings.NewReplacer("|", "&#124;", "`", "&#96;", "*", "&#42;", "_", "&#95;", "~", "&#126;", "\\", "&#92;", "[", "&#91;")

// codeSpan sets a text in a fixed font. A bar would end a cell even there, so a text with one is set
// as HTML.
func codeSpan(text string) string {
	text = oneLine(text)
	switch {
	case text == "":
		return ""
	case strings.ContainsAny(text, "|`\\"):
		return "<code>" + inCode.Replace(inHTML(text)) + "</code>"
	}
	return "`" + text + "`"
}

// longestRun is the length of the longest run of backticks.
func longestRun(text string) int {
	longest, run := 0, 0
	for _, r := range text {
		if run++; r != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}
