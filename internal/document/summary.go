package document

import (
	"fmt"
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
func RunLine(r *run.Run, names RunNames) *Document {
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
	line := Line{
		Start: say(fmt.Sprintf("%-*s  ", names.width, names.of(r.Variant)), Span{Text: word, Colour: outcomeColour(word)}),
		Rest:  say(strings.TrimRight(fmt.Sprintf("%*s %7s  %-17s  %s", 4-len(word), "", outputs, resources, lineEnd(r)), " ")),
	}
	if names.width > maxName {
		line.Least = leastRoom
	}
	return listDocument(line)
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

// Failure has the details of a run that failed or is unchecked: the gates that failed, or else the
// correctness gate, with their reasons. Findings have the lines of the sources.
func Failure(r *run.Run, sources finding.Sources) *Document {
	section := Section{Label: Text{{Text: r.Variant + ": " + verdictText(r)}}}
	if refused := refusal(r, mostBriefOutput); refused != nil {
		section.Label, section.Blocks = Text{{Text: r.Variant + ": " + refusedText(r)}}, refused
	} else {
		for _, g := range r.GateOutcomes() {
			if g.Status == gate.Fail || Unchecked(r) && g.Name == "correctness" {
				section.Blocks = append(section.Blocks, gateBlocks(r, g, sources)...)
			}
		}
	}
	if r.ID != "" { // the command is never wrapped, so that it can be copied
		section.Blocks = append(section.Blocks, Line{Start: say(fmt.Sprintf("%-*s attune show %s", fieldWidth, "details", r.ID))})
	}
	return &Document{Brief: []Text{}, Sections: []Section{section}}
}

// refusedText says that a run does not compile, without the compiler's error.
func refusedText(r *run.Run) string {
	return fmt.Sprintf("%s (%s)", strings.TrimPrefix(run.NotCompiled, "it "), r.Verdict)
}

// mostBriefOutput is how many lines of a compiler the end of a run and a watched screen show.
const mostBriefOutput = 20

// refusal is what the compiler printed about a run that does not compile, up to a number of lines, and
// the advice on it. It is nil for other runs. The lines stay as they are: a wrapped line would move
// its caret away from what it points at.
func refusal(r *run.Run, most int) []Block {
	output, advice, refused := r.CompilerOutput()
	if !refused {
		return nil
	}
	lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
	if more := len(lines) - most; more > 0 {
		lines = append(lines[:most], fmt.Sprintf("and %d more lines", more))
	}
	last := len(r.Reasons.Resources) - 1
	blocks := []Block{Code{Text: runRecord(r.ID).text(strings.Join(lines, "\n"), "reasons.resources.%d", last), Excerpt: true}}
	for _, line := range advice {
		blocks = append(blocks, say("help: ", Span{Text: line}))
	}
	return blocks
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

// gateBlocks are a gate of a run with the first lines of its reasons, and with the first findings that
// failed it. The record has all of them.
func gateBlocks(r *run.Run, g run.GateOutcome, sources finding.Sources) []Block {
	const mostLines, mostFound = 6, 3
	found := failedFindings(r)
	if g.Name != "correctness" || g.Status != gate.Fail {
		found = nil
	}
	if len(found) > 0 {
		g.Reasons = findingReasons(g.Reasons, found)
	}
	blocks := []Block{Fields{Fields: []Field{gateField(g, runRecord(r.ID), nil)}, Most: mostLines}}
	shown := found[:min(mostFound, len(found))]
	blocks = append(blocks, findingBlocks(r, shown, sources, false)...)
	if more := len(found) - mostFound; more > 0 {
		blocks = append(blocks, say(fmt.Sprintf("and %d more", more)))
	}
	if len(shown) > 0 {
		var kinds []finding.Kind
		for _, f := range shown {
			kinds = append(kinds, f.Kind)
		}
		blocks = append(blocks, say("explained in "+FindingPages(kinds)))
	}
	return blocks
}

// Summary is the end of a command that ran variants.
type Summary struct {
	Runs    []*run.Run // without the parts of selections
	Elapsed time.Duration
	Ledger  string // folder
	Quick   string // what a quick run took, and how to take more; empty for another run
	LeftOut string // shapes that did not run, and how to run them; may be empty
}

// Document has the outcomes of each gate, for more than one run, and the totals.
func (s Summary) Document() *Document {
	var blocks []Block
	if len(s.Runs) > 1 {
		blocks = append(blocks, s.gates())
	}
	for _, line := range []string{s.totals(), s.Quick, s.LeftOut} {
		if line != "" {
			blocks = append(blocks, Text{{Text: line}})
		}
	}
	return listDocument(blocks...)
}

// gates is how many runs passed, failed and were not measured at each gate. The last column has the
// reason if all runs that were not measured have the same.
func (s Summary) gates() Table {
	t := Table{Columns: append(columns("gate", "pass", "fail", "not measured"), Column{Keep: true, Wrap: true})}
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
		row := []Text{say(g.Name)}
		for _, status := range []gate.Status{gate.Pass, gate.Fail, gate.NotMeasured} {
			row = append(row, say(fmt.Sprint(count[status])))
		}
		t.Rows = append(t.Rows, append(row, Text{{Text: reason}}))
	}
	return t
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

// Gates is a run on a screen that is drawn again and again: its line, and the gates with their first
// reasons.
func Gates(r *run.Run, s terminal.Screen, sources finding.Sources) *Document {
	d := RunLine(r, NewRunNames([]string{r.Variant}, s))
	refused := refusal(r, mostBriefOutput)
	var blocks []Block
	for _, g := range r.GateOutcomes() {
		if refused != nil && g.Name == "resources" {
			g.Reasons = []string{run.NotCompiled}
			blocks = append(append(blocks, gateBlocks(r, g, sources)...), refused...)
			continue
		}
		blocks = append(blocks, gateBlocks(r, g, sources)...)
	}
	d.Sections = append(d.Sections, Section{Blocks: blocks})
	return d
}
