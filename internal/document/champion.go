package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"attune/internal/ledger"
	"attune/internal/run"
)

// Champion is a champion with the run that it was promoted on and the verdict of that run. The verdict is
// empty if the ledger does not have the run.
func Champion(c ledger.Champion, verdict string) *Document {
	before := "none"
	if c.Previous != nil {
		before = c.Previous.Variant + ", by run " + c.Previous.Run
	}
	f := Fields{Head: []string{"what", "value"}, Width: 9}
	for _, field := range [][2]string{
		{"run", c.Run},
		{"verdict", cmp.Or(verdict, "unknown: the run is not in the ledger")},
		{"code", shortHash(c.CodeHash)},
		{"since", c.Since.UTC().Format(dateLayout) + ", by " + string(c.Change)},
		{"before", before},
		{"record", c.ID},
	} {
		f.Fields = append(f.Fields, Field{Name: field[0], Lines: []Text{say(field[1])}})
	}
	title := say(fmt.Sprintf("champion of %s on %s: %s", c.Kernel, c.Arch, c.Variant))
	return &Document{Title: title, Brief: []Text{}, Sections: []Section{{ID: "champion", Title: say("Champion"), Label: title, Blocks: []Block{f}}}}
}

// ChangelogEntry is the changelog entry of a new champion, with the figures of its run.
func ChangelogEntry(c ledger.Champion, r *run.Run) string {
	did := "Champion of " + c.Arch + ": `" + c.Variant + "`"
	if c.Change == ledger.Rollback {
		did = "Champion of " + c.Arch + " rolled back to `" + c.Variant + "`"
	}
	if c.Previous != nil {
		did += ", before it `" + c.Previous.Variant + "`"
	}
	return fmt.Sprintf("- %s. %s (run `%s`, verdict %s).", did, Figures(r), c.Run, r.Verdict)
}

// Figures is the result of a run in one line.
func Figures(r *run.Run) string {
	var parts []string
	if r.Headline != nil {
		parts = append(parts, fmt.Sprintf("%.2f us on %s", r.Headline.P50US, r.Headline.Shape))
	}
	if r.Speedup != nil {
		s := r.Speedup
		parts = append(parts, fmt.Sprintf("%.3fx %s (%.3f to %.3f), %s", s.Ratio, r.Parent, s.Low, s.High, requiredText(r)))
	}
	if r.Build != nil {
		need := r.Build.Resources
		parts = append(parts, fmt.Sprintf("%d registers, %d bytes of shared memory", need.Registers, need.SharedBytes()))
	}
	if line := correctnessLine(r); line != "" {
		parts = append(parts, line)
	}
	return strings.Join(append(parts, deviceName(r)), "; ")
}

// AddToChangelog adds an entry at the end of the section Unreleased, and the section if it is
// missing.
func AddToChangelog(text, entry string) string {
	const title, section = "# Changelog", "## Unreleased"
	if strings.TrimSpace(text) == "" {
		text = title
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	start := slices.IndexFunc(lines, func(line string) bool {
		name := strings.NewReplacer("[", "", "]", "").Replace(strings.TrimSpace(line))
		return strings.EqualFold(name, section)
	})
	isSection := func(line string) bool { return strings.HasPrefix(line, "## ") }
	if start < 0 {
		first := slices.IndexFunc(append(slices.Clone(lines), "## "), isSection)
		return AddToChangelog(strings.Join(insert(lines[:first], []string{"", section}, lines[first:]), "\n"), entry)
	}
	end := start + 1 + slices.IndexFunc(append(slices.Clone(lines[start+1:]), "## "), isSection)
	before, added := trimEnd(lines[:end]), []string{entry}
	if last := before[len(before)-1]; !strings.HasPrefix(last, "- ") && !strings.HasPrefix(last, "  ") { // Markdown needs an empty line before a list
		added = []string{"", entry}
	}
	return strings.Join(insert(before, added, lines[end:]), "\n") + "\n"
}

// insert puts lines between others. Empty lines before them go, and one comes after them.
func insert(before, lines, after []string) []string {
	all := slices.Concat(trimEnd(before), lines)
	if len(after) > 0 {
		all = slices.Concat(all, []string{""}, after)
	}
	return all
}

// trimEnd drops empty lines at the end.
func trimEnd(lines []string) []string {
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func shortHash(hash string) string { return hash[:min(12, len(hash))] }
