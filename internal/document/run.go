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
		Title:    say(from.text(r.Variant, "variant"), ": ", verdictSpan(r)),
		Headline: s.headline(),
		Brief:    s.brief(),
	}
	d.Sections = s.sections("")
	return d
}

// sections are the sections of a run's report. The prefix makes their ids and plots unique in a
// document with several runs.
func (s *RunStudy) sections(prefix string) []Section {
	all := []Section{
		s.verdict(), s.refusal(), s.findings(), s.resources(), s.shapes(), s.correctness(prefix), s.performance(prefix), s.comparison(prefix), s.profile(prefix),
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
	r := s.Run
	shown := verdictSpan(r)
	verdict := say("Verdict: ", shown)
	if meaning, first := strings.CutPrefix(verdictText(r), shown.Text); first {
		verdict = append(verdict, say(meaning)...)
	}
	if cause := causeOf(r); cause.Text != "" {
		label := ". Cause: "
		if shown.Text == correctUntimed {
			label = ". No times: "
		}
		verdict = append(verdict, say(label, cause)...)
	}
	return []Text{append(verdict, say(".")...), s.timeLine(), s.evidenceLine()}
}

// brief is the run on a terminal: the variant with its verdict and speedup, the device and the date.
func (s *RunStudy) brief() []Text {
	r, from := s.Run, runRecord(s.Run.ID)
	word := verdictSpan(r)
	text, first := strings.CutPrefix(verdictText(r), word.Text)
	if !first { // it is at the end of the text, which may be long
		word.Text = ""
	}
	line := say(from.variant(r.Variant, "variant"), ": ", word, text)
	if r.Speedup != nil {
		line = append(line, say(", ", from.figure("%.3f", r.Speedup.Ratio, "speedup.ratio"), "x ", from.variant(r.Parent, "parent"))...)
		if r.RequiredSpeedup > 0 {
			line = append(line, say(" (", from.figure("%.2f", r.RequiredSpeedup, "required_speedup"), "x required)")...)
		}
	}
	return []Text{line, say(fmt.Sprintf("%s, %s, %s", deviceName(r), r.Arch, r.Time.UTC().Format(dateLayout)))}
}

// dateLayout is how dates are printed.
const dateLayout = "2006-01-02 15:04:05"

// causeOf is why the verdict is not merge: the kind and place of the first finding, or the first line of
// the reason. It is empty without a reason.
func causeOf(r *run.Run) Span {
	cause, from := r.Cause(), runRecord(r.ID)
	for _, g := range r.GateOutcomes() {
		if cause == "" || g.Status == gate.Pass || len(g.Reasons) == 0 || firstLine(g.Reasons[0]) != strings.TrimSpace(cause) {
			continue
		}
		if short := kindFirst(r, cause); g.Name == "correctness" && g.Status == gate.Fail && short != cause && !strings.Contains(short, "\n") {
			return from.summary(short, "reasons.correctness")
		}
		return from.text(firstLine(cause), "reasons.%s.0", g.Name)
	}
	return Span{}
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
		line = append(line, say(correct(r, from), " of ", counted(from, len(r.Correctness), "correctness", nil), " outputs are correct")...)
	}
	if r.Build != nil {
		need := r.Build.Resources
		line = append(line, say("; ", from.count(need.Registers, "build.resources.registers"), " registers per thread, ", sharedBytes(r, from),
			" bytes of shared memory per block")...)
	}
	switch {
	case r.Facts != nil && r.Facts.Name != "":
		line = append(line, say("; ", from.text(r.Facts.Name, "device_facts.name"))...)
	case r.Device != "":
		line = append(line, say("; ", from.text(r.Device, "device"))...)
	}
	return append(line, say(".")...)
}

// deviceName is the device that a run was on.
func deviceName(r *run.Run) string {
	if r.Facts == nil {
		return "no device"
	}
	return r.Facts.Name
}

// verdict has the gates, and what else is known of the run.
func (s *RunStudy) verdict() Section {
	return Section{ID: "verdict", Title: say("Verdict and cause"), Blocks: []Block{s.claim(), s.gates(), s.facts()}}
}

// claim is what the run was to show.
func (s *RunStudy) claim() Block {
	r, from := s.Run, runRecord(s.Run.ID)
	var blocks []Block
	if r.Hypothesis != "" {
		text := say("Hypothesis: ", from.text(r.Hypothesis, "hypothesis"))
		if !strings.HasSuffix(r.Hypothesis, ".") {
			text = append(text, say(".")...)
		}
		blocks = append(blocks, text)
	}
	if r.Parent != "" {
		text := say("Measured against ", from.code(r.Parent, "parent"))
		if r.RequiredSpeedup > 0 {
			text = append(text, say("; ", from.figure("%.2f", r.RequiredSpeedup, "required_speedup"), "x is required")...)
		}
		if r.Change != "" {
			text = append(text, say(". Change from it: ", from.code(r.Change, "change"))...)
		}
		blocks = append(blocks, append(text, say(".")...))
	}
	return only(Long, blocks...)
}

// gates are the outcomes of the gates with their reasons.
func (s *RunStudy) gates() Fields {
	r, from := s.Run, runRecord(s.Run.ID)
	summaries := map[string]Text{"resources": resourceLine(r, from), "correctness": correctLine(r, from)}
	fields := Fields{Head: []string{"gate", "outcome", "because"}}
	for _, g := range r.GateOutcomes() {
		field := gateField(g, from, summaries[g.Name])
		if found := failedFindings(r); g.Name == "correctness" && g.Status == gate.Fail && len(found) > 0 {
			field = gateField(run.GateOutcome{Name: g.Name, Status: g.Status}, from, summaries[g.Name])
			field.Lines = append(field.Lines, from.summaries(findingReasons(g.Reasons, found), "reasons."+g.Name)...)
		}
		if _, advice, refused := r.CompilerOutput(); refused && g.Name == "resources" {
			field = gateField(run.GateOutcome{Name: g.Name, Status: g.Status}, from, cell(from.summary(run.NotCompiled, "reasons."+g.Name)))
			field.Lines = append(field.Lines, from.summaries(advice, "reasons."+g.Name)...)
		}
		fields.Fields = append(fields.Fields, field)
	}
	return fields
}

// refusal has what the compiler printed, outside the table of gates: a cell would wrap it.
func (s *RunStudy) refusal() Section {
	blocks := refusal(s.Run, mostLines)
	return Section{ID: "compiler", Title: say("Compiler"), Label: say("compiler"), Blocks: blocks[:min(1, len(blocks))]}
}

// gateField is a gate with a summary, which may be empty, and the lines of its reasons.
func gateField(g run.GateOutcome, from record, summary Text) Field {
	f := Field{Name: g.Name, Outcome: say(Span{Text: statusWord(g.Status), Source: from.key("summary:gates.%s", g.Name), Colour: statusColour(g.Status)})}
	if len(summary) > 0 {
		f.Lines = append(f.Lines, summary)
	}
	for i, reason := range g.Reasons {
		for n, line := range strings.Split(strings.TrimRight(reason, "\n"), "\n") {
			span := from.summary(line, "reasons.%s.%d", g.Name, i)
			if n == 0 {
				span = from.text(line, "reasons.%s.%d", g.Name, i)
			}
			f.Lines = append(f.Lines, cell(span))
		}
	}
	return f
}

// facts are what else is known of a run. A new field of the record is shown everywhere by a line here.
func (s *RunStudy) facts() Fields {
	r, from := s.Run, runRecord(s.Run.ID)
	f := Fields{Head: []string{"what", "value"}}
	add := func(name string, depth Depth, lines ...Text) {
		if len(lines) > 0 && lines[0].String() != "" {
			f.Fields = append(f.Fields, Field{Name: name, Lines: lines, Depth: depth})
		}
	}
	if r.MeasuredAs != nil {
		add("measured as", Always, cell(from.summary(measuredAsText(r.MeasuredAs), "measured_as")))
	}
	add("allowed", Always, from.summaries(allowedTexts(r), "audit")...)
	add("notes", Brief, from.summaries(r.Notes(), "correctness")...)
	var lines []Text
	for _, text := range lineTexts(r) {
		lines = append(lines, from.sentence(text, "lines"))
	}
	add("lines", Always, lines...)
	add("parts", Brief, partTexts(r)...)
	if r.Simulated != nil {
		add("simulated", Always, cell(from.summary(simulatedText(r.Simulated), "simulated")))
	} else if r.Requested.NoSim {
		add("simulated", Always, cell(from.summary("no: "+run.NoSimFlag, "asked.no_sim")))
	}
	add("part of", Always, cell(from.code(r.PartOf, "part_of")))
	add("reproduces", Always, cell(from.code(r.Reproduces, "reproduces")))
	if r.Problem != nil {
		add("kernel", Always, cell(from.code(r.Kernel, "kernel")))
		if len(r.Problem.Facts) > 0 {
			add("reference", Always, cell(from.summary(problemText(r.Problem), "problem.facts")))
		}
	}
	add("ran", Always, cell(from.text(r.Ran, "ran")))
	add("run", Always, cell(from.code(r.ID, "id")))
	add("started", Long, cell(from.summary(r.Time.UTC().Format(dateLayout)+" UTC", "time")))
	return f
}

// summaries are several summaries of one part of the record.
func (r record) summaries(texts []string, key string) []Text {
	var all []Text
	for _, text := range texts {
		all = append(all, cell(r.summary(text, "%s", key)))
	}
	return all
}

// sentence is a summary with commands between backticks.
func (r record) sentence(text, key string) Text {
	var all Text
	for i, piece := range strings.Split(text, "`") {
		if i%2 == 1 {
			all = append(all, Span{Text: piece, Code: true})
		} else if piece != "" {
			all = append(all, r.summary(piece, "%s", key))
		}
	}
	return all
}

// partTexts are the parts of a selection on a terminal.
func partTexts(r *run.Run) []Text {
	var all []Text
	for _, p := range r.Parts {
		all = append(all, say(fmt.Sprintf("%s, %s by run %s: %s", p.Variant, p.Verdict.Explained(), shortID(p.Run), strings.Join(p.Shapes, " "))))
	}
	return all
}

// resourceLine is what the code needs, in a line.
func resourceLine(r *run.Run, from record) Text {
	if r.Build == nil {
		return nil
	}
	return say(from.count(r.Build.Resources.Registers, "build.resources.registers"), " registers, ", sharedBytes(r, from), " bytes of shared memory, ",
		spilledBytes(r, from), " of spill; ", from.text(r.Build.Compiler, "build.compiler"))
}

// correctLine is the outcome of the correctness gate, in a line.
func correctLine(r *run.Run, from record) Text {
	if line := correctnessLine(r); line != "" {
		return cell(from.summary(line, "correctness"))
	}
	return nil
}

// sharedBytes is the shared memory of a block.
func sharedBytes(r *run.Run, from record) Span {
	need := r.Build.Resources
	return Span{
		Text: fmt.Sprint(need.SharedBytes()), Format: "%.0f",
		Source: from.key("build.resources.static_shared_bytes") + " + " + from.key("build.resources.dynamic_shared_bytes"),
	}
}

// spilledBytes is what the code stores to and loads from local memory, because registers do not do.
func spilledBytes(r *run.Run, from record) Span {
	return Span{
		Text: fmt.Sprint(r.Build.Resources.SpillBytes()), Format: "%.0f",
		Source: from.key("build.resources.spill_store_bytes") + " + " + from.key("build.resources.spill_load_bytes"),
	}
}

// resources has what the code needs, or the parts of a selection.
func (s *RunStudy) resources() Section {
	r, from := s.Run, runRecord(s.Run.ID)
	section := Section{ID: "resources", Title: say("Resources"), Depth: Long}
	if r.Build != nil {
		need := r.Build.Resources
		section.Blocks = append(section.Blocks, Table{
			Columns: columns("resource", "amount"),
			Rows: [][]Text{
				{say("registers per thread"), cell(from.count(need.Registers, "build.resources.registers"))},
				{say("shared memory per block, bytes"), cell(sharedBytes(r, from))},
				{say("static shared memory per block, bytes"), cell(from.count(need.StaticSharedBytes, "build.resources.static_shared_bytes"))},
				{say("dynamic shared memory per block, bytes"), cell(from.count(need.DynamicSharedBytes, "build.resources.dynamic_shared_bytes"))},
				{say("spilled, bytes stored and loaded"), cell(spilledBytes(r, from))},
				{say("spilled, bytes stored"), cell(from.count(need.SpillStoreBytes, "build.resources.spill_store_bytes"))},
				{say("spilled, bytes loaded"), cell(from.count(need.SpillLoadBytes, "build.resources.spill_load_bytes"))},
				{say("stack, bytes"), cell(from.count(need.StackBytes, "build.resources.stack_bytes"))},
				{say("barriers"), cell(from.count(need.Barriers, "build.resources.barriers"))},
			},
		})
	}
	if len(r.Parts) > 0 {
		t := Table{Columns: columns("part", "verdict", "shapes", "run", "machine code")}
		t.Columns[1].Colour = verdictColour
		for i, p := range r.Parts {
			hash := cell(missing)
			if p.CodeHash != "" {
				hash = cell(from.code(p.CodeHash, "parts.%d.code_hash", i))
			}
			t.Rows = append(t.Rows, []Text{
				cell(from.code(p.Variant, "parts.%d.variant", i)), cell(from.text(string(p.Verdict), "parts.%d.verdict", i)),
				cell(from.summary(strings.Join(p.Shapes, " "), "parts.%d.shapes", i)), cell(from.code(p.Run, "parts.%d.run", i)), hash,
			})
		}
		section.Blocks = append(section.Blocks, say("A selection has no code of its own. Its parts:"), t)
	}
	return section
}

// build is the record of the compiler, the device and the sources.
func (s *RunStudy) build() Section {
	r, from := s.Run, runRecord(s.Run.ID)
	f := Fields{Head: []string{"what", "value"}}
	add := func(what, value, key string) {
		if value != "" {
			f.Fields = append(f.Fields, Field{Name: what, Lines: []Text{cell(from.code(value, "%s", key))}})
		}
	}
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
	if d := r.Facts; d != nil {
		add("device", d.Name, "device_facts.name")
		add("UUID", d.UUID, "device_facts.uuid")
		if d.Multiprocessors > 0 {
			add("multiprocessors", fmt.Sprint(d.Multiprocessors), "device_facts.sms")
		}
		add("driver", d.Driver, "device_facts.driver")
	}
	add("git", r.Git.SHA, "git.sha")
	add("branch", r.Git.Branch, "git.branch")
	if r.Git.SHA == "" {
		add("git", "unknown"+strings.TrimSuffix(": "+r.Git.Unknown, ": "), "summary:git")
	}
	add("attune", r.Attune, "attune")
	blocks := []Block{f}
	if r.Git.Dirty {
		blocks = append(blocks, say("The checkout had uncommitted changes."))
	}
	return Section{ID: "build", Title: say("Build record"), Depth: Long, Blocks: blocks}
}

// reproduce has the commands that repeat the run.
func (s *RunStudy) reproduce() Section {
	r := s.Run
	blocks := []Block{s.Commands.reproduce(r.ID, r.Kernel), Code{Text: Span{Text: r.Command() + s.Commands.kernelFlag(r.Kernel)}}}
	blocks = append(blocks, s.Commands.unknownKernel(runRecord(r.ID).code(r.Kernel, "kernel"))...)
	return Section{ID: "reproduce", Title: say("Reproduce it"), Depth: Long, Blocks: append(blocks, leftOut(s.LeftOut)...)}
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
