package document

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/finding"
	"attune/internal/run"
	"attune/internal/terminal"
)

// failedFindings are the findings that fail the correctness gate of a run: of the audit, or of the
// checkers.
func failedFindings(r *run.Run) []run.Reported {
	var all []run.Reported
	for _, f := range r.Audit {
		if f.Severity == finding.Error {
			all = append(all, run.Reported{Finding: f, Failed: true})
		}
	}
	for _, f := range r.Reported() {
		if f.Failed {
			all = append(all, f)
		}
	}
	return all
}

// findingReasons are why the correctness gate of a run with findings failed: how many there are, and
// the reasons that are no findings. A record has its reasons as texts only, so the text is the key:
// the gate writes "OUTPUT: FINDING", or "FINDING; REMEDY" for the audit.
func findingReasons(reasons []string, found []run.Reported) []string {
	text := "1 finding"
	if len(found) > 1 {
		text = fmt.Sprintf("%d findings", len(found))
	}
	isFinding := func(reason string) bool {
		return slices.ContainsFunc(found, func(f run.Reported) bool {
			return strings.HasSuffix(reason, ": "+f.String()) || strings.HasPrefix(reason, f.String()+"; ")
		})
	}
	return append([]string{text}, slices.DeleteFunc(slices.Clone(reasons), isFinding)...)
}

// FindingPages names the pages of the documentation about kinds of findings. Those of the audit share
// one.
func FindingPages(kinds []finding.Kind) string {
	const folder = "docs/findings/"
	general := slices.Concat(finding.Kinds(), finding.BufferKinds(), []finding.Kind{finding.Trapped, finding.AssertFailed})
	var pages []string
	for _, k := range kinds {
		page := folder + "audit.md"
		if slices.Contains(general, k) || k == finding.TimedOutputDiffers || k == finding.RemembersResults || k == finding.UnorderedSums {
			page = folder + string(k) + ".md"
		}
		if !slices.Contains(pages, page) {
			pages = append(pages, page)
		}
	}
	return strings.Join(pages, ", ")
}

// mostFindings is how many findings a report shows.
const mostFindings = 20

// mostDetailed is how many findings a terminal shows, each with all that is known of it.
const mostDetailed = 200

// findings shows each finding once, in every form: the headline, the source lines of its places, what
// happened and the remedy. A correct run may have notes, which a terminal has among the facts.
func (s *RunStudy) findings() Section {
	section := Section{ID: "findings", Title: say("Findings")}
	all := failedFindings(s.Run)
	detailed := only(Brief, findingBlocks(s.Run, all[:min(len(all), mostDetailed)], s.Sources, true)...)
	if more := len(all) - mostDetailed; more > 0 {
		detailed.Blocks = append(detailed.Blocks, say(fmt.Sprintf("%d more findings are in the record.", more)))
	}
	if len(all) == 0 {
		section.Title = say("Notes of the checkers")
	}
	var long []Block
	for _, f := range s.Run.Reported() {
		if !f.Failed {
			all = append(all, f)
		}
	}
	shown := map[string]bool{}
	for _, f := range all {
		if at := sourceKey(f); !shown[at] && len(shown) < mostFindings {
			shown[at] = true
			long = append(long, s.finding(f)...)
		}
	}
	if len(all) > len(shown) {
		long = append(long, say("The record has more, such as findings at the same source lines in other instances of the code."))
	}
	if len(long) > 0 {
		section.Blocks = []Block{detailed, only(Long, long...)}
	}
	return section
}

// sourceKey identifies a finding in the source: code that is compiled several times has one at each copy.
func sourceKey(f run.Reported) string {
	own, known := f.Where.Own()
	if !known {
		return f.Key()
	}
	text := fmt.Sprintf("%s %v %s", f.Kind, f.Failed, own)
	if f.Other != nil {
		other, _ := f.Other.Own()
		text += " " + other.String()
	}
	return text
}

// finding has the parts of a finding.
func (s *RunStudy) finding(f run.Reported) []Block {
	from, key := runRecord(s.Run.ID), "correctness"
	switch {
	case f.Simulated:
		key = "simulated.findings"
	case len(f.Rows) == 0:
		key = "audit"
	}
	d := f.Describe(s.Run.Outputs(f), false)
	word, rest, _ := strings.Cut(d.Headline, " ")
	severity := from.summary(word, "%s", key)
	severity.Colour = severityColour(f.Severity)
	blocks := []Block{say(severity, from.summary(" "+rest, "%s", key))}
	for _, p := range d.Places {
		at := from.summary(p.At, "%s", key)
		if s.SourceLink != nil && p.Own.File != "" {
			at.Link = s.SourceLink(p.Own)
		}
		blocks = append(blocks, cell(at))
		if p.Text != "" {
			text := fmt.Sprintf("%6d | %s\n%6s | %*s^", p.Own.Line, p.Text, "", min(p.Mark, len(p.Text)), "")
			blocks = append(blocks, Code{Text: from.summary(text, "%s", key), Excerpt: true})
		}
	}
	blocks = append(blocks, cell(from.summary(d.Clauses[0], "%s", key)))
	if d.Remedy != "" {
		blocks = append(blocks, say("Help: ", from.summary(d.Remedy, "%s", key)))
	}
	return blocks
}

func severityColour(s finding.Severity) terminal.Colour {
	if s == finding.Error {
		return terminal.Red
	}
	return terminal.Yellow
}

func findingBlocks(r *run.Run, found []run.Reported, sources finding.Sources, verbose bool) []Block {
	var blocks []Block
	for _, f := range found {
		blocks = append(blocks, Finding{Finding: f.Finding, On: r.Outputs(f), Sources: sources, Verbose: verbose})
	}
	return blocks
}
