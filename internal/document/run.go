package document

import (
	"cmp"
	"fmt"
	"strings"

	"attune/internal/gate"
	"attune/internal/run"
)

// Document is the report on a run.
func (s *RunStudy) Document() *Document {
	r, from := s.Run, runRecord(s.Run.ID)
	d := &Document{
		Title:    say(from.text(r.Variant, "variant"), ": ", from.text(string(r.Verdict), "verdict")),
		Headline: s.headline(),
	}
	d.Sections = s.sections("")
	return d
}

// sections are the sections of a run's report. The prefix makes their ids and plots unique in a
// document with several runs.
func (s *RunStudy) sections(prefix string) []Section {
	all := []Section{
		s.verdict(), s.resources(), s.correctness(prefix), s.performance(prefix), s.comparison(prefix), s.profile(prefix),
		s.history(prefix), s.lessons(), s.nextSteps(), s.build(), s.reproduce(),
	}
	kept := all[:0]
	for _, section := range all {
		if len(section.Blocks) > 0 {
			section.ID = prefix + section.ID
			kept = append(kept, section)
		}
	}
	return kept
}

// headline is the run in three lines: the verdict, the time, and what it is worth.
func (s *RunStudy) headline() []Text {
	r, from := s.Run, runRecord(s.Run.ID)
	verdict := say("Verdict: ", from.text(string(r.Verdict), "verdict"))
	if meaning := r.Verdict.Meaning(); meaning != "" {
		verdict = append(verdict, say(" (", meaning, ")")...)
	}
	if key, line := causeOf(r); line != "" {
		verdict = append(verdict, say(". Cause: ", from.text(line, "%s", key))...)
	}
	return []Text{append(verdict, say(".")...), s.timeLine(), s.evidenceLine()}
}

// causeOf is the first line of the reason why the verdict is not merge, with its key.
func causeOf(r *run.Run) (key, line string) {
	if r.Verdict == gate.Merge {
		return "", ""
	}
	for _, status := range []gate.Status{gate.Fail, gate.NotMeasured} {
		for _, g := range r.GateOutcomes() {
			if g.Status == status && len(g.Reasons) > 0 {
				return "reasons." + g.Name + ".0", firstLine(g.Reasons[0])
			}
		}
	}
	return "", ""
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// timeLine is the headline time and the speedup.
func (s *RunStudy) timeLine() Text {
	r, from := s.Run, runRecord(s.Run.ID)
	if r.Headline == nil {
		return say("Time: not measured.")
	}
	line := say("Time: ", from.figure("%.2f", r.Headline.P50US, "headline.p50_us"), s.Approximate.mark(r), " us on ", from.text(r.Headline.Shape, "headline.shape"))
	if r.Headline.ParentRatio != nil && r.Parent != "" {
		line = append(line, say(", ", from.figure("%.3f", *r.Headline.ParentRatio, "headline.parent_ratio"), "x as fast as ", from.text(r.Parent, "parent"), " there")...)
	}
	if r.Speedup != nil {
		line = append(line, say("; ", s.speedup(), " over all benchmark shapes")...)
		if r.RequiredSpeedup > 0 {
			line = append(line, say(", ", from.figure("%.2f", r.RequiredSpeedup, "required_speedup"), "x required")...)
		}
	}
	return append(line, say(".")...)
}

// speedup is the speedup over the parent with its interval.
func (s *RunStudy) speedup() Text {
	r, from := s.Run, runRecord(s.Run.ID)
	return say(from.figure("%.3f", r.Speedup.Ratio, "speedup.ratio"), "x (", from.figure("%.3f", r.Speedup.Low, "speedup.low"), " to ",
		from.figure("%.3f", r.Speedup.High, "speedup.high"), ")")
}

// evidenceLine says what was checked and what the code needs.
func (s *RunStudy) evidenceLine() Text {
	r, from := s.Run, runRecord(s.Run.ID)
	line := say("Evidence: ")
	if len(r.Correctness) == 0 {
		line = append(line, say("no output was checked")...)
	} else {
		line = append(line, say(passed(r, from, nil), " of ", counted(from, len(r.Correctness), "correctness", nil), " outputs are correct")...)
	}
	if r.Build != nil {
		need := r.Build.Resources
		line = append(line, say("; ", from.count(need.Registers, "build.resources.registers"), " registers per thread, ", sharedBytes(r, from),
			" bytes of shared memory per block")...)
	}
	if name := deviceName(r); name != "" {
		line = append(line, say("; ", from.text(name, "%s", deviceKey(r)))...)
	}
	return append(line, say(".")...)
}

func deviceName(r *run.Run) string {
	if r.Facts != nil && r.Facts.Name != "" {
		return r.Facts.Name
	}
	return r.Device
}

func deviceKey(r *run.Run) string {
	if r.Facts != nil && r.Facts.Name != "" {
		return "device_facts.name"
	}
	return "device"
}

// verdict has the gates.
func (s *RunStudy) verdict() Section {
	r, from := s.Run, runRecord(s.Run.ID)
	t := Table{Header: headers("gate", "outcome", "because")}
	var failures []Block
	for _, g := range r.GateOutcomes() {
		because := Text{missing}
		if len(g.Reasons) > 0 {
			because = cell(from.text(firstLine(g.Reasons[0]), "reasons.%s.0", g.Name))
		}
		t.Rows = append(t.Rows, []Text{say(g.Name), cell(from.text(string(g.Status), "gates.%s", g.Name)), because})
		if g.Status == gate.Fail && len(g.Reasons) > 1 {
			list := List{}
			for i, reason := range g.Reasons {
				list = append(list, cell(from.text(firstLine(reason), "reasons.%s.%d", g.Name, i)))
			}
			failures = append(failures, Details{Summary: say("All reasons of the gate ", g.Name), Blocks: []Block{list}})
		}
	}
	blocks := []Block{}
	if r.Hypothesis != "" {
		blocks = append(blocks, say("Hypothesis: ", from.text(r.Hypothesis, "hypothesis"), "."))
	}
	return Section{ID: "verdict", Title: say("Verdict and cause"), Blocks: append(append(blocks, t), failures...)}
}

// sharedBytes is the shared memory of a block.
func sharedBytes(r *run.Run, from record) Span {
	need := r.Build.Resources
	return Span{
		Text: fmt.Sprint(need.SharedBytes()), Format: "%.0f",
		Source: from.key("build.resources.static_shared_bytes") + " + " + from.key("build.resources.dynamic_shared_bytes"),
	}
}

// resources has what the code needs, or the parts of a selection.
func (s *RunStudy) resources() Section {
	r, from := s.Run, runRecord(s.Run.ID)
	section := Section{ID: "resources", Title: say("Resources")}
	if r.Build != nil {
		need := r.Build.Resources
		spill := Span{
			Text: fmt.Sprint(need.SpillBytes()), Format: "%.0f",
			Source: from.key("build.resources.spill_store_bytes") + " + " + from.key("build.resources.spill_load_bytes"),
		}
		section.Blocks = append(section.Blocks, Table{
			Header: headers("resource", "amount"),
			Rows: [][]Text{
				{say("registers per thread"), cell(from.count(need.Registers, "build.resources.registers"))},
				{say("shared memory per block, bytes"), cell(sharedBytes(r, from))},
				{say("spilled, bytes stored and loaded"), cell(spill)},
				{say("stack, bytes"), cell(from.count(need.StackBytes, "build.resources.stack_bytes"))},
				{say("barriers"), cell(from.count(need.Barriers, "build.resources.barriers"))},
			},
		})
	}
	if len(r.Parts) > 0 {
		t := Table{Header: headers("part", "verdict", "shapes", "run")}
		for i, p := range r.Parts {
			t.Rows = append(t.Rows, []Text{
				cell(from.code(p.Variant, "parts.%d.variant", i)), cell(from.text(string(p.Verdict), "parts.%d.verdict", i)),
				cell(counted(from, len(p.Shapes), fmt.Sprintf("parts.%d.shapes", i), nil)), cell(from.code(p.Run, "parts.%d.run", i)),
			})
		}
		section.Blocks = append(section.Blocks, say("A selection has no code of its own. Its parts:"), t)
	}
	return section
}

// build is the record of the compiler.
func (s *RunStudy) build() Section {
	r, from := s.Run, runRecord(s.Run.ID)
	var rows [][]Text
	add := func(what, value, key string) {
		if value != "" {
			rows = append(rows, []Text{say(what), cell(from.code(value, "%s", key))})
		}
	}
	add("run", r.ID, "id")
	add("kernel", r.Kernel, "kernel")
	add("architecture", r.Arch, "arch")
	add("machine code", r.CodeHash, "code_hash")
	if b := r.Build; b != nil {
		add("source", b.Source, "build.source")
		add("compiler", b.Compiler, "build.compiler")
		for i, flag := range b.Flags {
			add("flag", flag, fmt.Sprintf("build.flags.%d", i))
		}
		add("sources, SHA-256", b.SourceHash, "build.source_sha256")
	}
	if r.Facts != nil {
		add("device", r.Facts.Name, "device_facts.name")
		add("driver", r.Facts.Driver, "device_facts.driver")
	}
	add("git", r.Git.SHA, "git.sha")
	add("attune", r.Attune, "attune")
	blocks := []Block{Table{Header: headers("what", "value"), Rows: rows}}
	if r.Git.Dirty {
		blocks = append(blocks, say("The checkout had uncommitted changes."))
	}
	return Section{ID: "build", Title: say("Build record"), Blocks: blocks}
}

// reproduce has the commands that repeat the run.
func (s *RunStudy) reproduce() Section {
	r := s.Run
	blocks := []Block{s.Commands.reproduce(r.ID, r.Kernel), Code{Span{Text: r.Command() + s.Commands.kernelFlag(r.Kernel)}}}
	blocks = append(blocks, s.Commands.unknownKernel(runRecord(r.ID).code(r.Kernel, "kernel"))...)
	return Section{ID: "reproduce", Title: say("Reproduce it"), Blocks: append(blocks, leftOut(s.LeftOut)...)}
}

// leftOut names what could not be read.
func leftOut(texts []string) []Block {
	if len(texts) == 0 {
		return nil
	}
	list := List{}
	for _, text := range texts {
		list = append(list, Text{Span{Text: text, Output: true}})
	}
	return []Block{say("Left out of this report, because it could not be read:"), list}
}

// shapeOf is the name of a shape in a table: the label of a declared shape, or its axes.
func shapeOf(from record, shape, name, key string, index int) Text {
	if name != "" {
		return cell(from.text(name, "%s.%d.shape_name", key, index))
	}
	return cell(from.text(shape, "%s.%d.shape", key, index))
}

// shapeLabel is the same as a text.
func shapeLabel(shape, name string) string { return cmp.Or(name, shape) }

// withoutEmpty drops the columns of a table in which all cells are missing.
func withoutEmpty(t Table) Table {
	kept := Table{Rows: make([][]Text, len(t.Rows))}
	for column, name := range t.Header {
		filled := false
		for _, row := range t.Rows {
			filled = filled || row[column].String() != missing.Text
		}
		if !filled {
			continue
		}
		kept.Header = append(kept.Header, name)
		for i, row := range t.Rows {
			kept.Rows[i] = append(kept.Rows[i], row[column])
		}
	}
	return kept
}
