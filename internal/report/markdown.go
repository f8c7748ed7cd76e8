package report

import (
	"bytes"
	"fmt"
	"strings"

	"attune/internal/device"
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
	if r.Change != "" {
		fmt.Fprintf(&out, "What is changed in it: `%s`.\n", r.Change)
	}
	if r.MeasuredAs != nil {
		fmt.Fprintf(&out, "Measured as %s.\n", measuredAsText(r.MeasuredAs))
	}
	if r.PartOf != "" {
		fmt.Fprintf(&out, "It is a part of `%s`: the shapes that the selection has chosen it for.\n", r.PartOf)
	}
	if r.Reproduces != "" {
		fmt.Fprintf(&out, "It does run `%s` again.\n", r.Reproduces)
	}
	out.WriteString("\n## Gates\n\n")
	markdownTable(&out, []string{"gate", "outcome", "because"}, [][]string{
		gateRow("resources", r.Gates.Resources, r.Reasons.Resources),
		gateRow("correctness", r.Gates.Correctness, r.Reasons.Correctness),
		gateRow("performance", r.Gates.Performance, r.Reasons.Performance),
		gateRow("profile", r.Gates.Profile, r.Reasons.Profile),
	})
	markdownFailure(&out, r)
	if len(r.Parts) > 0 {
		out.WriteString("\n## Parts\n\n")
		var rows [][]string
		for _, p := range r.Parts {
			rows = append(rows, []string{p.Variant, string(p.Verdict), p.Run, strings.Join(p.Shapes, " "), p.CodeHash})
		}
		markdownTable(&out, []string{"variant", "verdict", "run", "shapes", "machine code"}, rows)
	}
	if r.Build != nil {
		markdownBuild(&out, r)
	}
	if len(r.Correctness) > 0 {
		fmt.Fprintf(&out, "\n## Correctness\n\n%s.\n\n", correctnessLine(r))
		header, rows := byVariant(r, correctnessHeader, correctnessRows(r))
		markdownTable(&out, header, rows)
	}
	if len(r.Performance) > 0 {
		fmt.Fprintf(&out, "\n## Performance\n\n%s.\n\n", r.Asked.Timing)
		header, rows := byVariant(r, performanceHeader, performanceRows(r))
		markdownTable(&out, header, rows)
		for _, line := range timingLines(r) {
			fmt.Fprintf(&out, "\n%s.\n", line)
		}
	}
	markdownProvenance(&out, r)
	return out.Bytes()
}

func gateRow(name string, status gate.Status, reasons []string) []string {
	return []string{name, statusWord(status), inShort(reasons)}
}

// inShort is the first line of the first reason, and how many more there are.
func inShort(reasons []string) string {
	first := ""
	if len(reasons) > 0 {
		first, _, _ = strings.Cut(reasons[0], "\n")
	}
	if len(reasons) > 1 {
		first += fmt.Sprintf(" (and %d more)", len(reasons)-1)
	}
	return first
}

// markdownFailure gives all the reasons of the gate that failed, of which the table of gates has the first line only.
func markdownFailure(out *bytes.Buffer, r *run.Run) {
	for _, g := range []struct {
		status  gate.Status
		reasons []string
	}{
		{r.Gates.Resources, r.Reasons.Resources},
		{r.Gates.Correctness, r.Reasons.Correctness},
		{r.Gates.Performance, r.Reasons.Performance},
		{r.Gates.Profile, r.Reasons.Profile},
	} {
		if g.status == gate.Fail {
			fmt.Fprintf(out, "\n## Why it failed\n\n```\n%s\n```\n", strings.TrimRight(strings.Join(g.reasons, "\n"), "\n"))
		}
	}
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
	git := "unknown"
	if r.Git.SHA != "" {
		git = strings.TrimSpace(r.Git.SHA+" "+r.Git.Branch) + dirty
	}
	rows := [][]string{{"attune", r.Attune}, {"git", git}}
	if r.Facts != nil {
		rows = append(rows, []string{"device", factsLine(r.Facts)})
	}
	rows = append(rows, []string{"again", "`" + Command(r) + "`"})
	markdownTable(out, []string{"", ""}, rows)
}

// factsLine describes a device by what is known of it.
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

// Command is the command line that does a run again.
func Command(r *run.Run) string {
	seeds := make([]string, len(r.Asked.Seeds))
	for i, s := range r.Asked.Seeds {
		seeds[i] = fmt.Sprint(s)
	}
	verb, seedFlag := "run", "--seeds"
	if r.Asked.Profile {
		verb, seedFlag = "profile", "--seed"
	}
	command := fmt.Sprintf("attune %s %s --shapes %s %s %s", verb, r.Variant, strings.Join(r.Asked.Shapes, ","), seedFlag, strings.Join(seeds, ","))
	if s := r.Asked.Simulation; s != nil {
		command += simulationFlags(s)
	} else if r.Asked.Samples > 0 {
		command += fmt.Sprintf(" --iters %d", r.Asked.Samples)
	}
	if r.Asked.Arch != "" {
		command += " --arch " + r.Asked.Arch
	}
	if r.Asked.Against != "" {
		command += " --against " + r.Asked.Against
	}
	if r.Asked.L2 == run.Cold {
		command += " --l2 cold"
	}
	if r.Asked.Sanitizer != "" {
		command += " --sanitizer " + r.Asked.Sanitizer
	}
	return command
}

func simulationFlags(s *run.Simulation) string {
	flags := " --device sim"
	if s.Schedules > 1 {
		flags += fmt.Sprintf(" --schedules %d", s.Schedules)
	}
	if !s.Checks {
		flags += " --checks off"
	}
	if s.Tensor != exactTensor {
		flags += " --tensor " + s.Tensor
	}
	return flags
}

// inCell keeps a text within its cell of a table.
var inCell = strings.NewReplacer("|", `\|`, "\r", "", "\n", " ")

// markdownTable writes a table.
func markdownTable(out *bytes.Buffer, header []string, rows [][]string) {
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
