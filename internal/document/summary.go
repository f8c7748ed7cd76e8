package document

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"attune/internal/finding"
	"attune/internal/gate"
	"attune/internal/run"
	"attune/internal/terminal"
)

// leastRoom is the room behind a long name and an outcome. Such lines may be wider than 80 columns.
const leastRoom = 54

// RunLine is a finished run in one line that fits the screen: the outcome, the correct outputs, the
// resources and the time.
func RunLine(r *run.Run, names RunNames, s terminal.Screen) string {
	resources := ""
	switch {
	case len(r.Parts) == 1:
		resources = "1 variant"
	case len(r.Parts) > 1:
		resources = fmt.Sprintf("%d variants", len(r.Parts))
	case r.Build != nil:
		need := r.Build.Resources
		resources = fmt.Sprintf("%3d regs %5.1f KB", need.Registers, float64(need.SharedBytes())/1000)
	}
	passed, all := correctCount(r)
	outputs := fmt.Sprintf("%d/%d", passed, all)
	if r.Gates.Resources == gate.Fail { // nothing ran
		outputs = "-"
	}
	word := outcomeWord(r)
	before := fmt.Sprintf("%-*s  ", names.width, names.of(r.Variant))
	after := fmt.Sprintf("%*s %7s  %-17s  %s", 4-len(word), "", outputs, resources, lineEnd(r))
	room := s.Width - utf8.RuneCountInString(before) - len(word)
	if names.width > maxName {
		room = max(room, leastRoom)
	}
	return before + s.Paint(outcomeColour(word), word) + cut(strings.TrimRight(after, " "), room)
}

func outcomeColour(word string) terminal.Colour {
	switch word {
	case okWord:
		return terminal.Green
	case failedWord:
		return terminal.Red
	case slowWord:
		return terminal.Yellow
	}
	return terminal.Plain
}

// The outcomes of a run in a word.
const (
	okWord     = "ok"
	slowWord   = "slow" // the performance gate failed
	failedWord = "FAIL"
	openWord   = "-" // the outputs could not be checked
)

func outcomeWord(r *run.Run) string {
	g := r.Gates
	switch {
	case g.Resources == gate.Fail || g.Correctness == gate.Fail || g.Profile == gate.Fail:
		return failedWord
	case g.Performance == gate.Fail:
		return slowWord
	case g.Correctness == gate.NotMeasured:
		return openWord
	}
	return okWord
}

// lineEnd is the end of a run's line: why it failed, or its time.
func lineEnd(r *run.Run) string {
	for _, g := range r.GateOutcomes() {
		if g.Status == gate.Fail && g.Name != "performance" {
			if _, _, refused := r.CompilerOutput(); refused {
				return g.Name + ": " + run.NotCompiled // the error is below, once
			}
			return g.Name + ": " + kindFirst(r, r.Cause())
		}
	}
	end := ""
	switch h := r.Headline; {
	case r.Gates.Correctness == gate.NotMeasured:
		return "not checked: " + r.Cause()
	case h == nil:
		end = "time: " + untimed(r)
	case r.Speedup != nil:
		end = fmt.Sprintf("%.2f us  %.2fx %s", h.P50US, r.Speedup.Ratio, r.Parent)
	default:
		end = fmt.Sprintf("%.2f us", h.P50US)
	}
	if why := r.NotSimulated(); why != "" {
		end += "  not simulated: " + firstLine(why)
	}
	return end
}

// kindFirst is the cause of a failed run with the kind and the source line of its finding before the
// problem, because a line may be cut. Causes that are no findings stay as they are.
func kindFirst(r *run.Run, cause string) string {
	first := slices.IndexFunc(r.Correctness, func(c run.Correctness) bool { return !c.Pass })
	if first >= 0 && len(r.Correctness[first].Findings) == 0 {
		return cause
	}
	found := r.Reported()
	i := slices.IndexFunc(found, func(f run.Reported) bool {
		return f.Failed && (f.Simulated || len(f.Rows) > 0 && f.Rows[0] == first)
	})
	if i < 0 {
		return cause
	}
	return shortFinding(found[i].Finding) + ", " + r.Outputs(found[i])
}

// shortFinding is the kind of a finding and its innermost source line in the kernel's folder.
func shortFinding(f finding.Finding) string {
	if own, known := f.Where.Own(); known {
		return fmt.Sprintf("%s at %s", f.Kind, own)
	}
	if f.Where.PTXLine > 0 {
		return fmt.Sprintf("%s at %s", f.Kind, f.Where)
	}
	return f.String()
}

// untimed is why a run has no time, in two words.
func untimed(r *run.Run) string {
	if r.Requested.Simulation != nil {
		return "no GPU"
	}
	return "not measured"
}

// cut shortens a text to a number of columns.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

// correctCount is the number of correct outputs, and of requested ones.
func correctCount(r *run.Run) (passed, all int) {
	for _, c := range r.Correctness {
		if c.Pass {
			passed++
		}
	}
	if r.Requested.Problems == 0 { // an old record, with normal inputs only
		return passed, len(r.Requested.Shapes) * len(r.Requested.Seeds)
	}
	return passed, r.Requested.Problems
}

// Failed reports whether a gate of a run failed.
func Failed(r *run.Run) bool {
	return slices.ContainsFunc(r.GateOutcomes(), func(g run.GateOutcome) bool { return g.Status == gate.Fail })
}

// Unchecked reports whether the outputs of a run could not be checked, and no gate failed.
func Unchecked(r *run.Run) bool { return outcomeWord(r) == openWord }

// Failure writes the details of a run that failed or is unchecked: the gates that failed, or else the
// correctness gate, with their reasons. Findings are written with the lines of the sources.
func Failure(w io.Writer, r *run.Run, s terminal.Screen, sources finding.Sources) error {
	out := &strings.Builder{}
	if output, advice, refused := r.CompilerOutput(); refused {
		writeRefused(out, r, s, output, advice)
		_, err := io.WriteString(w, out.String())
		return err
	}
	s.Paragraph(out, "", r.Variant+": "+verdictText(r), 2)
	for _, g := range r.GateOutcomes() {
		if g.Status == gate.Fail || Unchecked(r) && g.Name == "correctness" {
			writeGate(out, r, g, s, sources)
		}
	}
	writeDetails(out, r)
	_, err := io.WriteString(w, out.String())
	return err
}

// writeDetails names the command that prints all of a run.
func writeDetails(w io.Writer, r *run.Run) {
	if r.ID != "" {
		fmt.Fprintf(w, "  %-12s attune show %s\n", "details", r.ID)
	}
}

// writeRefused writes a run that does not compile. The compiler's lines stay as they are: a wrapped
// line would move its caret away from what it points at.
func writeRefused(w io.Writer, r *run.Run, s terminal.Screen, output string, advice []string) {
	const most = 20 // lines
	s.Paragraph(w, "", fmt.Sprintf("%s: %s (%s)", r.Variant, strings.TrimPrefix(run.NotCompiled, "it "), r.Verdict), 2)
	lines := strings.Split(output, "\n")
	if more := len(lines) - most; more > 0 {
		lines = append(lines[:most], fmt.Sprintf("and %d more lines", more))
	}
	for _, line := range lines {
		fmt.Fprintln(w, strings.TrimRight("  "+terminal.Printable(line), " "))
	}
	for _, line := range advice {
		s.Paragraph(w, "  help: ", line, 4)
	}
	writeDetails(w, r)
}

// Excused is the note of a run about differences that its gates accept: floating-point atomics have
// no order, so that launches need not agree bit for bit. It is empty for a run without such a note.
func Excused(r *run.Run) string {
	for _, c := range r.Correctness {
		for _, f := range c.Notes {
			if f.Kind == finding.UnorderedSums {
				return "note: " + r.Variant + ": " + f.Text()
			}
		}
	}
	return ""
}

// writeGate writes a gate of a run with the first lines of its reasons, and with the first findings
// that failed it. The record has all of them.
func writeGate(w io.Writer, r *run.Run, g run.GateOutcome, s terminal.Screen, sources finding.Sources) {
	found := failedFindings(r)
	if g.Name != "correctness" || g.Status != gate.Fail || len(found) == 0 {
		writeReasons(w, g, s)
		return
	}
	const most = 3
	g.Reasons = findingReasons(g.Reasons, found)
	writeReasons(w, g, s)
	writeFindings(w, r, found[:min(most, len(found))], finding.Form{Screen: s, Sources: sources})
	if more := len(found) - most; more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
}

func writeReasons(w io.Writer, g run.GateOutcome, s terminal.Screen) {
	const most = 6 // lines
	first := fmt.Sprintf("  %-12s %-13s ", g.Name, statusWord(g.Status))
	lines := strings.Split(strings.TrimRight(strings.Join(g.Reasons, "\n"), "\n"), "\n")
	if more := len(lines) - most; more > 0 {
		lines = append(lines[:most], fmt.Sprintf("and %d more", more))
	}
	for _, line := range lines {
		s.Paragraph(w, first, line, len(first)+2)
		first = strings.Repeat(" ", len(first))
	}
}

// Summary is the end of a command that ran variants.
type Summary struct {
	Runs    []*run.Run // without the parts of selections
	Elapsed time.Duration
	Ledger  string // folder
	Quick   string // what a quick run took, and how to take more; empty for another run
	LeftOut string // shapes that did not run, and how to run them; may be empty
	Screen  terminal.Screen
}

// Write writes the outcomes of each gate, for more than one run, and the totals.
func (s Summary) Write(w io.Writer) error {
	out := &strings.Builder{}
	if len(s.Runs) > 1 {
		out.WriteString("\n")
		s.gates(out)
	}
	for _, line := range []string{s.totals(), s.Quick, s.LeftOut} {
		if line != "" {
			s.Screen.Paragraph(out, "", line, 2)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// gates writes how many runs passed, failed and were not measured at each gate. The last column has
// the reason if all runs that were not measured have the same.
func (s Summary) gates(w io.Writer) {
	fmt.Fprintf(w, "%-11s  %4s  %4s  %12s\n", "gate", "pass", "fail", "not measured")
	for i, g := range s.Runs[0].GateOutcomes() {
		count, reasons := map[gate.Status]int{}, []string{}
		for _, r := range s.Runs {
			outcome := r.GateOutcomes()[i]
			count[outcome.Status]++
			if outcome.Status == gate.NotMeasured && len(outcome.Reasons) > 0 && !slices.Contains(reasons, outcome.Reasons[0]) {
				reasons = append(reasons, outcome.Reasons[0])
			}
		}
		reason := ""
		if len(reasons) == 1 {
			reason = reasons[0]
		}
		line := fmt.Sprintf("%-11s  %4d  %4d  %12d  %s", g.Name, count[gate.Pass], count[gate.Fail], count[gate.NotMeasured], reason)
		fmt.Fprintln(w, cut(strings.TrimRight(line, " "), s.Screen.Width))
	}
}

func (s Summary) totals() string {
	count := map[string]int{}
	for _, r := range s.Runs {
		count[outcomeWord(r)]++
	}
	what := "variants"
	if len(s.Runs) == 1 {
		what = "variant"
	}
	parts := fmt.Sprintf("%d %s: %d ok, %d failed", len(s.Runs), what, count[okWord], count[failedWord])
	if n := count[slowWord]; n > 0 {
		parts += fmt.Sprintf(", %d slower than required", n)
	}
	if n := count[openWord]; n > 0 {
		parts += fmt.Sprintf(", %d not checked", n)
	}
	if simulated := func(r *run.Run) bool { return r.Requested.Simulation != nil }; slices.ContainsFunc(s.Runs, simulated) {
		parts += "; time: no GPU"
	}
	show := "; details: attune show ID"
	switch {
	case len(s.Runs) == 1 && (Failed(s.Runs[0]) || Unchecked(s.Runs[0])):
		show = "" // the line above names it
	case len(s.Runs) == 1:
		show = "; details: attune show " + s.Runs[0].ID
	}
	return fmt.Sprintf("%s; took %.1f s; records in %s%s", parts, s.Elapsed.Seconds(), s.Ledger, show)
}

// Gates writes a run for a screen that is drawn again and again: its line, and the gates with their
// first reasons.
func Gates(w io.Writer, r *run.Run, s terminal.Screen, sources finding.Sources) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, "%s\n\n", RunLine(r, NewRunNames([]string{r.Variant}, s), s))
	for _, g := range r.GateOutcomes() {
		writeGate(out, r, g, s, sources)
	}
	_, err := io.WriteString(w, out.String())
	return err
}
