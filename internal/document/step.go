package document

import (
	"fmt"
	"strings"

	"attune/internal/ci"
	"attune/internal/gate"
	"attune/internal/mutate"
	"attune/internal/run"
)

// RunsStep summarises runs for a step of GitHub Actions: a row each, and the reasons of those that
// failed or could not be checked.
func RunsStep(runs []*run.Run) string {
	if len(runs) == 0 {
		return ""
	}
	var rows [][]string
	var failed []string
	for _, r := range runs {
		row := []string{ci.Code(r.Variant), ci.Markdown(verdictText(r))}
		for _, g := range r.GateOutcomes() {
			row = append(row, stepStatus(r, g))
			if g.Status == gate.Fail || g.Name == "correctness" && Unchecked(r) {
				failed = append(failed, failedGate(r, g)...)
			}
		}
		time, speedup := none, none
		if h := r.Headline; h != nil {
			time = fmt.Sprintf("%.2f us on %s", h.P50US, ci.Markdown(h.Shape))
			if h.ParentRatio != nil {
				speedup = fmt.Sprintf("%.3fx", *h.ParentRatio)
			}
		}
		rows = append(rows, append(row, time, speedup))
	}
	first := runs[0]
	out := fmt.Sprintf("### attune run: %s on %s\n\n", ci.Markdown(first.Kernel), ci.Markdown(deviceName(first)))
	out += ci.Table([]string{"variant", "verdict", "resources", "correctness", "performance", "profile", "median", "over parent"}, rows)
	if len(failed) > 0 {
		out += "\n" + strings.Join(failed, "\n") + "\n"
	}
	return out
}

// failedGate lists the first lines of a gate's reasons.
func failedGate(r *run.Run, g run.GateOutcome) []string {
	const most = 10
	lines := []string{fmt.Sprintf("- %s, %s:", ci.Code(r.Variant), g.Name)}
	for i, reason := range g.Reasons {
		if i == most {
			lines = append(lines, fmt.Sprintf("  - and %d more", len(g.Reasons)-most))
			break
		}
		reason, _, _ = strings.Cut(reason, "\n")
		lines = append(lines, "  - "+ci.Markdown(reason))
	}
	return lines
}

// stepStatus is the outcome of a gate. A failure, and outputs that could not be checked, are found at
// a glance.
func stepStatus(r *run.Run, g run.GateOutcome) string {
	switch {
	case g.Status == gate.Fail:
		return "**fail**"
	case g.Name == "correctness" && Unchecked(r):
		return "**not checked**"
	}
	return statusWord(g.Status)
}

// Step is the document as the summary of a step of GitHub Actions: what a terminal and a page both
// show, without plots, whose files the step has not.
func (d *Document) Step(command string) string {
	short := d.without(Long).WithoutFigures()
	short.Title = say("attune ", command, ": ", short.Title)
	return "##" + strings.ReplaceAll(string(short.Markdown()), "\n## ", "\n#### ")
}

// MutationStep summarises the mutants of a kernel.
func MutationStep(kernel string, r *mutate.Report) string {
	out := &strings.Builder{}
	fmt.Fprintf(out, "### attune mutate: %s\n\n%d of %d possible mutants tried: %d killed, %d survived, %d equivalent",
		ci.Markdown(kernel), r.Mutants, r.Possible, r.Killed, r.Survived, r.Equivalent)
	if r.Killed+r.Survived > 0 {
		fmt.Fprintf(out, ", kill rate %.1f %%", 100*r.KillRate)
	}
	out.WriteString(".\n")
	var rows [][]string
	for _, m := range r.Survivors {
		rows = append(rows, []string{fmt.Sprint(m.Line), ci.Markdown(m.Kind), ci.Code(PTXLine(m.Before)), ci.Code(PTXLine(m.After))})
	}
	if len(rows) > 0 {
		out.WriteString("\n" + ci.Table([]string{"PTX line", "survivor", "was", "is"}, rows))
	}
	return out.String()
}
