package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// documentWidth is the width of documents in columns.
const documentWidth = 100

// shortID is the random end of an id, which `attune show` accepts.
func shortID(id string) string {
	return id[strings.LastIndexByte(id, '-')+1:]
}

// paragraph writes a paragraph, wrapped.
func paragraph(out *bytes.Buffer, format string, args ...any) {
	out.WriteString(wrapText(fmt.Sprintf(format, args...), "", ""))
}

// listItem writes an item of a Markdown list, wrapped.
func listItem(out *bytes.Buffer, text string) {
	out.WriteString(wrapText(text, "- ", "  "))
}

// wrapText breaks a text between words into lines of at most documentWidth.
func wrapText(text, first, rest string) string {
	var out strings.Builder
	line, empty := first, true
	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > documentWidth {
			out.WriteString(line + "\n")
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	return out.String() + line + "\n"
}

// wrapMarkdown wraps the paragraphs and list items of a document. Headings and comments are single
// lines.
func wrapMarkdown(text string) string {
	var out strings.Builder
	for i, block := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			out.WriteString("\n")
		}
		if !strings.HasPrefix(block, "- ") {
			out.WriteString(wrapText(block, "", ""))
			continue
		}
		for _, item := range strings.Split(strings.TrimPrefix(block, "- "), "\n- ") {
			out.WriteString(wrapText(item, "- ", "  "))
		}
	}
	return out.String()
}

// wrapCommand breaks a command at spaces and after commas, with a backslash before each break. A
// line that continues a list begins in the first column, because a space would end the list.
func wrapCommand(command string) string {
	var out strings.Builder
	for len(command) > documentWidth {
		at := strings.LastIndexAny(command[:documentWidth-1], " ,")
		if at < 0 {
			break
		}
		if command[at] == ',' {
			out.WriteString(command[:at+1] + "\\\n")
			command = command[at+1:]
			continue
		}
		out.WriteString(command[:at] + " \\\n")
		command = "  " + command[at+1:]
	}
	return out.String() + command
}

// inCell escapes a text for a cell of a table.
var inCell = strings.NewReplacer("|", `\|`, "<", "&lt;", "\r", "", "\n", " ")

// alignedTable writes a Markdown table whose columns are aligned in the source too: figures to the
// right, words to the left. A table that would be too wide is not padded.
func alignedTable(out *bytes.Buffer, header []string, rows [][]string) {
	widths, right := make([]int, len(header)), make([]bool, len(header))
	for i := range header {
		widths[i] = max(3, utf8.RuneCountInString(header[i]))
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
			right[i] = isFigure(row[i]) // the last row: the first ones may describe the column
		}
	}
	total := 1
	for _, w := range widths {
		total += w + len("|  ")
	}
	if total > documentWidth {
		clear(widths)
	}
	line := func(cells []string) {
		for i, cell := range cells {
			fill := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell)))
			if right[i] {
				out.WriteString("| " + fill + inCell.Replace(cell) + " ")
			} else {
				out.WriteString("| " + inCell.Replace(cell) + fill + " ")
			}
		}
		out.WriteString("|\n")
	}
	line(header)
	for i := range header {
		if right[i] {
			out.WriteString("|" + strings.Repeat("-", max(2, widths[i]+1)) + ":")
		} else {
			out.WriteString("|" + strings.Repeat("-", max(3, widths[i]+2)))
		}
	}
	out.WriteString("|\n")
	for _, row := range rows {
		line(row)
	}
}

// isFigure reports whether a cell is a number, a ratio such as 1.25x, a marked figure or empty.
func isFigure(cell string) bool {
	number := strings.TrimSuffix(strings.TrimSuffix(cell, "~"), "x")
	_, err := strconv.ParseFloat(number, 64)
	return cell == "-" || err == nil
}
