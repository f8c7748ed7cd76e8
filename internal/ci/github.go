package ci

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// Step collects what a step of GitHub Actions reports. A nil step collects nothing, so commands call
// it wherever they run.
type Step struct {
	summaryFile string // empty if the runner has none
	issues      []Issue
	summary     strings.Builder
}

// NewStep returns the step that the process runs in, or nil outside of GitHub Actions.
func NewStep() *Step {
	if os.Getenv("GITHUB_ACTIONS") != "true" {
		return nil
	}
	return &Step{summaryFile: os.Getenv("GITHUB_STEP_SUMMARY")}
}

// Add collects issues.
func (s *Step) Add(issues ...Issue) {
	if s != nil {
		s.issues = append(s.issues, issues...)
	}
}

// HasIssues reports whether issues were collected.
func (s *Step) HasIssues() bool { return s != nil && len(s.issues) > 0 }

// Summarize collects a part of the summary, in Markdown.
func (s *Step) Summarize(markdown string) {
	if s != nil && markdown != "" {
		s.summary.WriteString(strings.TrimRight(markdown, "\n") + "\n\n")
	}
}

// Report writes the annotations to w and appends the summary to the file of the step.
func (s *Step) Report(w io.Writer) error {
	if s == nil {
		return nil
	}
	err := Annotate(w, s.issues)
	if s.summaryFile == "" || s.summary.Len() == 0 {
		return err
	}
	if failed := appendSummary(s.summaryFile, s.summary.String()); failed != nil {
		return errors.Join(err, fmt.Errorf("write the summary of the step: %w", failed))
	}
	return err
}

// GitHub shows this many annotations of a level per step, and ignores the others.
const mostAnnotations = 10

// mostMessage is the length of the message of an annotation in bytes. Details belong to the log.
const mostMessage = 4000

// Annotate writes issues as workflow commands. Of many at one level, the last line counts the others.
func Annotate(w io.Writer, issues []Issue) error {
	issues = Merge(issues)
	out := &strings.Builder{}
	for _, level := range []Level{Error, Warning, Notice} {
		var all []Issue
		for _, i := range issues {
			if i.Level == level {
				all = append(all, i)
			}
		}
		for n, i := range all {
			if n == mostAnnotations-1 && len(all) > mostAnnotations {
				fmt.Fprintf(out, "::%s title=attune::%d more are in the log\n", level, len(all)-n)
				break
			}
			out.WriteString(command(i))
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// command is the workflow command of an issue. Runners read one command a line, from standard output
// and standard error.
func command(i Issue) string {
	var properties []string
	if i.Location.InTree() {
		properties = append(properties, "file="+inProperty.Replace(oneLine(i.Location.File)))
		if i.Location.Line > 0 {
			properties = append(properties, fmt.Sprintf("line=%d", i.Location.Line))
		}
	}
	properties = append(properties, "title="+inProperty.Replace(shortened(oneLine("attune: "+i.title()), 200)))
	return fmt.Sprintf("::%s %s::%s\n", i.Level, strings.Join(properties, ","), inMessage.Replace(shortened(printable(i.Message), mostMessage)))
}

// The escapes of workflow commands. A comma ends a property, and two colons end them all.
var (
	inMessage  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	inProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// mostSummary is the limit of the summary of a step in bytes. GitHub rejects a larger file as a whole.
const mostSummary = 1 << 20

const cutNote = "\n\n**The summary ends here: a step has 1 MiB.** The log has the rest.\n"

// appendSummary appends to the summary of a step, which earlier commands of the step may have begun.
func appendSummary(path, text string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil {
		_, err = io.WriteString(file, fitted(text, mostSummary-info.Size()))
	}
	return errors.Join(err, file.Close())
}

// fitted cuts a text behind a line, with a note, so that it fits.
func fitted(text string, room int64) string {
	if int64(len(text)) <= room {
		return text
	}
	const fence = "```\n"
	room -= int64(len(cutNote) + len(fence))
	if room <= 0 {
		return ""
	}
	text = text[:strings.LastIndexByte(text[:room], '\n')+1]
	if strings.Count(text, fence[:3])%2 == 1 {
		text += fence
	}
	return text + cutNote
}

// Markdown escapes a text, so that it is shown as it is in a paragraph or in a cell of a table.
func Markdown(text string) string { return inMarkdown.Replace(oneLine(text)) }

var inMarkdown = strings.NewReplacer(
	"&", "&amp;", "<", "&lt;", ">", "&gt;", "|", `\|`, `\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "#", `\#`, "~", `\~`, "@", "&#64;",
)

// Code is a name in Markdown, such as that of a variant.
func Code(name string) string {
	if text := oneLine(name); text == name && name != "" && !strings.ContainsAny(name, "`|\\") {
		return "`" + name + "`"
	}
	return Markdown(name)
}

// Table is a Markdown table. Its cells are Markdown.
func Table(header []string, rows [][]string) string {
	out := &strings.Builder{}
	line := func(cells []string) { fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | ")) }
	line(header)
	out.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, row := range rows {
		line(row)
	}
	return out.String()
}
