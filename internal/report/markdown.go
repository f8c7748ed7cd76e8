package report

import (
	"bytes"
	"fmt"
	"strings"

	"attune/internal/gate"
	"attune/internal/run"
)

// Markdown writes one run as a document.
func Markdown(r *run.Run) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# %s: %s\n\n", r.Variant, r.Verdict)
	fmt.Fprintf(&out, "Run `%s` of kernel %s on %s (%s).\n\n", r.ID, r.Kernel, deviceName(r), r.Arch)
	if r.Hypothesis != "" {
		fmt.Fprintf(&out, "Hypothesis: %s.\n", strings.TrimSuffix(r.Hypothesis, "."))
	}
	if r.Parent != "" {
		fmt.Fprintf(&out, "Measured against `%s`; %.2fx is needed.\n", r.Parent, r.RequiredSpeedup)
	}
	out.WriteString("\n## Gates\n\n")
	markdownTable(&out, []string{"gate", "outcome", "because"}, [][]string{
		gateRow("resources", r.Gates.Resources, r.Reasons.Resources),
		gateRow("correctness", r.Gates.Correctness, r.Reasons.Correctness),
		gateRow("performance", r.Gates.Performance, r.Reasons.Performance),
		gateRow("profile", r.Gates.Profile, r.Reasons.Profile),
	})
	if r.Failure != "" {
		fmt.Fprintf(&out, "\n## Failure\n\n```\n%s\n```\n", strings.TrimRight(r.Failure, "\n"))
	}
	if r.Build != nil {
		markdownBuild(&out, r)
	}
	if len(r.Correctness) > 0 {
		fmt.Fprintf(&out, "\n## Correctness\n\n%s.\n\n", correctnessLine(r))
		markdownTable(&out, correctnessHeader, correctnessRows(r))
	}
	if len(r.Performance) > 0 {
		fmt.Fprintf(&out, "\n## Performance\n\n%s.\n\n", r.Asked.Timing)
		markdownTable(&out, performanceHeader, performanceRows(r))
	}
	markdownProvenance(&out, r)
	return out.Bytes()
}

func gateRow(name string, status gate.Status, reasons []string) []string {
	first := ""
	if len(reasons) > 0 {
		first, _, _ = strings.Cut(reasons[0], "\n")
	}
	if len(reasons) > 1 {
		first += fmt.Sprintf(" (and %d more)", len(reasons)-1)
	}
	return []string{name, statusWord(status), first}
}

func markdownBuild(out *bytes.Buffer, r *run.Run) {
	need := r.Build.Resources
	out.WriteString("\n## Build\n\n")
	markdownTable(out, []string{"registers", "static shared", "dynamic shared", "spill stores", "spill loads", "stack", "barriers"}, [][]string{{
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
	rows := [][]string{{"attune", r.Attune}, {"git", strings.TrimSpace(r.Git.SHA + " " + r.Git.Branch + dirty)}}
	if r.Facts != nil {
		rows = append(rows, []string{"device", fmt.Sprintf("%s, %s, %d SMs, driver %s", r.Facts.Name, r.Facts.UUID, r.Facts.Multiprocessors, r.Facts.Driver)})
	}
	rows = append(rows, []string{"again", "`" + Command(r) + "`"})
	markdownTable(out, []string{"", ""}, rows)
}

// Command is the command line that does a run again.
func Command(r *run.Run) string {
	seeds := make([]string, len(r.Asked.Seeds))
	for i, s := range r.Asked.Seeds {
		seeds[i] = fmt.Sprint(s)
	}
	command := fmt.Sprintf("attune run %s --shapes %s --seeds %s", r.Variant, strings.Join(r.Asked.Shapes, ","), strings.Join(seeds, ","))
	if r.Asked.Samples > 0 {
		command += fmt.Sprintf(" --iters %d", r.Asked.Samples)
	}
	if r.Asked.Against != "" {
		command += " --against " + r.Asked.Against
	}
	if r.Asked.Sanitizer != "" {
		command += " --sanitizer " + r.Asked.Sanitizer
	}
	return command
}

// markdownTable writes a table; bars in cells are escaped.
func markdownTable(out *bytes.Buffer, header []string, rows [][]string) {
	line := func(cells []string) {
		for _, cell := range cells {
			out.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
		}
		out.WriteString("|\n")
	}
	line(header)
	out.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, row := range rows {
		line(row)
	}
}
