package document

import (
	"bytes"
	"fmt"
	"strings"

	"attune/internal/device"
	"attune/internal/gate"
	"attune/internal/run"
)

// Markdown renders one run as a document.
func Markdown(r *run.Run) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# %s: %s\n\n", r.Variant, verdictText(r))
	fmt.Fprintf(&out, "Run `%s` of kernel %s on %s (%s).\n\n", r.ID, r.Kernel, recordDevice(r), r.Arch)
	if r.Hypothesis != "" {
		fmt.Fprintf(&out, "Hypothesis: %s.\n", strings.TrimSuffix(r.Hypothesis, "."))
	}
	if r.Parent != "" {
		fmt.Fprintf(&out, "Measured against `%s`; %s.\n", r.Parent, strings.Replace(requiredText(r), " required", " is required", 1))
	}
	if r.Change != "" {
		fmt.Fprintf(&out, "Change from it: `%s`.\n", r.Change)
	}
	if r.MeasuredAs != nil {
		fmt.Fprintf(&out, "Measured as %s.\n", measuredAsText(r.MeasuredAs))
	}
	if r.PartOf != "" {
		fmt.Fprintf(&out, "It is a part of `%s`, on the shapes that the selection chose it for.\n", r.PartOf)
	}
	if r.Reproduces != "" {
		fmt.Fprintf(&out, "It repeats run `%s`.\n", r.Reproduces)
	}
	out.WriteString("\n## Gates\n\n")
	var gates [][]string
	for _, g := range r.GateOutcomes() {
		gates = append(gates, []string{g.Name, statusWord(g.Status), firstReason(g.Reasons)})
	}
	stringTable(&out, []string{"gate", "outcome", "because"}, gates)
	markdownFailure(&out, r)
	markdownParts(&out, r)
	markdownBuild(&out, r)
	if len(r.Correctness) > 0 {
		fmt.Fprintf(&out, "\n## Correctness\n\n%s.\n\n", correctnessLine(r))
		header, rows := correctnessHeader, correctnessRows(r)
		if r.Problem != nil {
			header, rows = withoutEmptyColumns(declaredHeader, declaredRows(r))
		}
		header, rows = byVariant(r, header, rows)
		stringTable(&out, header, rows)
		if allowed := allowedTexts(r); len(allowed) > 0 {
			fmt.Fprintf(&out, "\nFindings of the audit that kernel.toml allows:\n\n- %s\n", strings.Join(allowed, "\n- "))
		}
		if notes := r.Notes(); len(notes) > 0 {
			fmt.Fprintf(&out, "\nPTX does not define these, and they work on hardware:\n\n- %s\n", strings.Join(notes, "\n- "))
		}
	}
	if len(r.Performance) > 0 {
		fmt.Fprintf(&out, "\n## Performance\n\n%s.\n\n", r.Requested.Timing)
		header, rows := performanceHeader, performanceRows(r)
		if r.Problem != nil {
			header, rows = withoutEmptyColumns(withRates(r, header, rows))
		}
		header, rows = byVariant(r, header, rows)
		stringTable(&out, header, rows)
		for _, line := range timingLines(r) {
			fmt.Fprintf(&out, "\n%s.\n", line)
		}
	}
	markdownProvenance(&out, r)
	return out.Bytes()
}

// firstReason is the first line of the first reason, and the number of further reasons.
func firstReason(reasons []string) string {
	first := ""
	if len(reasons) > 0 {
		first, _, _ = strings.Cut(reasons[0], "\n")
	}
	if len(reasons) > 1 {
		first += fmt.Sprintf(" (and %d more)", len(reasons)-1)
	}
	return first
}

// markdownFailure writes all reasons of a failed gate. The table of gates has only the first line.
func markdownFailure(out *bytes.Buffer, r *run.Run) {
	for _, g := range r.GateOutcomes() {
		if g.Status == gate.Fail {
			fmt.Fprintf(out, "\n## Why it failed\n\n```\n%s\n```\n", strings.TrimRight(strings.Join(g.Reasons, "\n"), "\n"))
		}
	}
}

func markdownParts(out *bytes.Buffer, r *run.Run) {
	if len(r.Parts) == 0 {
		return
	}
	out.WriteString("\n## Parts\n\n")
	var rows [][]string
	for _, p := range r.Parts {
		rows = append(rows, []string{p.Variant, p.Verdict.Explained(), p.Run, strings.Join(p.Shapes, " "), p.CodeHash})
	}
	stringTable(out, []string{"variant", "verdict", "run", "shapes", "machine code"}, rows)
}

func markdownBuild(out *bytes.Buffer, r *run.Run) {
	if r.Build == nil {
		return
	}
	need := r.Build.Resources
	out.WriteString("\n## Build\n\n")
	stringTable(out, []string{"registers", "static shared", "dynamic shared", "spill stores", "spill loads", "stack", "barriers"}, [][]string{{
		fmt.Sprint(need.Registers), fmt.Sprint(need.StaticSharedBytes), fmt.Sprint(need.DynamicSharedBytes), fmt.Sprint(need.SpillStoreBytes),
		fmt.Sprint(need.SpillLoadBytes), fmt.Sprint(need.StackBytes), fmt.Sprint(need.Barriers),
	}})
	fmt.Fprintf(out, "\n%s, flags `%s`, machine code `%s`.\n", r.Build.Compiler, strings.Join(r.Build.Flags, " "), r.CodeHash)
}

func markdownProvenance(out *bytes.Buffer, r *run.Run) {
	out.WriteString("\n## Provenance\n\n")
	dirty := ""
	if r.Git.Dirty {
		dirty = " with uncommitted changes"
	}
	git := "unknown"
	if r.Git.SHA != "" {
		git = strings.TrimSpace(r.Git.SHA+" "+r.Git.Branch) + dirty
	} else if r.Git.Unknown != "" {
		git += ": " + r.Git.Unknown
	}
	rows := [][]string{{"attune", r.Attune}, {"git", git}}
	if r.Facts != nil {
		rows = append(rows, []string{"device", factsLine(r.Facts)})
	}
	if r.Problem != nil && len(r.Problem.Facts) > 0 {
		rows = append(rows, []string{"reference", problemText(r.Problem)})
	}
	rows = append(rows, []string{"command", "`" + r.Command() + "`"})
	stringTable(out, []string{"", ""}, rows)
}

// factsLine describes a device by its known facts.
func factsLine(f *device.Facts) string {
	parts := []string{f.Name}
	if f.UUID != "" {
		parts = append(parts, f.UUID)
	}
	if f.Multiprocessors > 0 {
		parts = append(parts, fmt.Sprintf("%d SMs", f.Multiprocessors))
	}
	if f.Driver != "" {
		parts = append(parts, "driver "+f.Driver)
	}
	return strings.Join(parts, ", ")
}

// inCell escapes a text for a cell of a table.
var inCell = strings.NewReplacer("|", `\|`, "<", "&lt;", "\r", "", "\n", " ")

func stringTable(out *bytes.Buffer, header []string, rows [][]string) {
	line := func(cells []string) {
		for _, cell := range cells {
			out.WriteString("| " + inCell.Replace(cell) + " ")
		}
		out.WriteString("|\n")
	}
	line(header)
	out.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, row := range rows {
		line(row)
	}
}
