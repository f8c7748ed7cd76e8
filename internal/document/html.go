package document

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"strings"

	"attune/internal/plot"
	"attune/internal/terminal"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageCSS string

// CSS has the rules of a document and its plots, in a page of its own or another. Colours follow the
// system's theme, or the attribute data-theme of the root element.
var CSS = pageCSS + plot.CSS

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"kind": kindOf, "oneLine": keepSpace, "figure": inlineFigure, "numeric": Table.numeric, "lines": plainLines, "tone": tone, "cellTone": cellTone,
}).Parse(pageText))

// Page is the document as one HTML file with everything in it.
func (d *Document) Page() ([]byte, error) {
	out := &bytes.Buffer{}
	err := page.ExecuteTemplate(out, "page", struct {
		*Document
		Mark string
		CSS  template.CSS
	}{d.paged(), Mark, template.CSS(CSS)})
	if err != nil {
		return nil, fmt.Errorf("render a report: %w", err)
	}
	return out.Bytes(), nil
}

// Body is the content of the page's main element, for a page that has the rules of [CSS].
func (d *Document) Body() (template.HTML, error) {
	out := &strings.Builder{}
	if err := page.ExecuteTemplate(out, "body", d.paged()); err != nil {
		return "", fmt.Errorf("render a report: %w", err)
	}
	return template.HTML(out.String()), nil
}

// kindOf names a block for the template.
func kindOf(b Block) string {
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", b), "document."))
}

// cellTone is the class of a cell with an outcome.
func cellTone(c Column, content Text) string {
	if c.Colour == nil {
		return ""
	}
	return tone(c.Colour(content.String()))
}

// tone is the class of an outcome, by its colour on a terminal.
func tone(c terminal.Colour) string {
	switch c {
	case terminal.Green:
		return "good"
	case terminal.Yellow:
		return "warn"
	case terminal.Red:
		return "bad"
	}
	return ""
}

// VerdictTone is the class of a verdict that [VerdictInList] shows: good, warn, bad, or empty for what
// was not checked.
func VerdictTone(shown string) string { return tone(verdictColour(shown)) }

// inlineFigure is a plot's SVG. internal/plot escapes all text in it.
func inlineFigure(f Figure) template.HTML { return template.HTML(f.Plot.Inline("figure-" + f.Name)) }

// inHTML escapes a text.
func inHTML(text string) string { return template.HTMLEscapeString(keepSpace(text)) }
