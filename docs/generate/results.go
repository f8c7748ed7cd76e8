package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"attune/internal/document"
	"attune/internal/gate"
	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/tensor"
)

// results is the content of docs/results.md.
type results struct {
	Ladder     []*run.Run          // the newest timed run of each stage and selection
	Parts      map[string]*run.Run // the runs of the parts of selections, by id
	Champions  []championRun
	Benches    []*run.Bench // of attention, with their samples
	Examples   []*run.Bench // of declared kernels
	Tunings    []*run.Tuning
	Sanitizers []sanitized
}

// championRun is a present champion with the run that it was promoted on.
type championRun struct {
	ledger.Champion
	Promoted *run.Run
}

// sanitized is the outcome of one tool of compute-sanitizer on one variant.
type sanitized struct {
	Variant  string   `json:"variant"`
	Tool     string   `json:"tool"`
	Outcome  string   `json:"outcome"`
	Date     string   `json:"date"`
	Device   string   `json:"device"`
	Driver   string   `json:"driver"`
	Arch     string   `json:"arch"`
	CodeHash string   `json:"code_hash"`
	Shapes   []string `json:"shapes"`
	Problems int      `json:"problems"`
	Attune   string   `json:"attune"`
	Run      string   `json:"run"`
}

const resultsIntro = `# Results

<!-- Generated from results/ by "make docs". Do not edit it. -->

Every figure on this page comes from a record in ` + "`results/`" + `, which is a ledger like any other. The run
or bench is named by the last six digits of its id: ` + "`attune show ID --ledger results`" + ` prints it whole, and
` + "`attune ledger verify --ledger results`" + ` checks that no record was changed.

- **Times** are device times of one launch, in microseconds (us), the median (p50) over the samples.
  They are taken by CUDA graph replay with inputs warm in L2. [timing.md](timing.md) describes the method.
- **inputs** is the number format of Q, K and V: e4m3 is FP8, with one float32 descale factor per head; fp16 and
  bf16 have 16 bits. Compare rows of equal formats, or keep the difference in mind.
- **exp2** is how a kernel of attune computes the exponentials of the softmax. **exact**: to at least 13 bits, on
  the special-function unit or by a cubic polynomial. **segments**: half of them as a sum of two linear functions
  per octave, at most 1.1 % off, less than E4M3 rounds away: the mean errors below are at most 2.2 % larger than
  FlashAttention-3's. **linear**: a part of them by one linear function per octave, at most 4 % low and 2 % high; the mean
  error is some 11 % larger, and figures of such kernels are marked with **~**. **mixed**: it depends on the shape.
  Peers are exact.
- **Shapes** are batch x heads x sequence x head dim.
`

// resultsMarkdown writes docs/results.md.
func resultsMarkdown(r results) []byte {
	out := &bytes.Buffer{}
	out.WriteString(wrapMarkdown(resultsIntro))
	r.ladder(out)
	for _, b := range r.sortedBenches() {
		benchSection(out, b)
	}
	r.examples(out)
	r.tunings(out)
	r.ceilings(out)
	r.sanitizers(out)
	return out.Bytes()
}

// ladder writes the stages with their times, speedups and verdicts.
func (r results) ladder(out *bytes.Buffer) {
	if len(r.Ladder) == 0 {
		return
	}
	var shapes []string
	for _, p := range r.Ladder[0].Performance {
		if p.Benchmark {
			shapes = append(shapes, p.Shape)
		}
	}
	out.WriteString("\n## The ladder of stages\n\n")
	paragraph(out, "Each stage is timed interleaved with its parent. \"Over parent\" is the geometric mean of the speedups "+
		"on the benchmark shapes, %s, with its 95 %% interval. \"Required\" was fixed before the stage ran. "+
		"The verdict `%s` means slower than required; the experiment is valid, the output is correct, and the figures are kept.",
		strings.Join(shapes, " and "), gate.ValidNegative)
	out.WriteString("\n")
	header := slices.Concat([]string{"stage", "exp2"}, shapes, []string{"over parent", "required", "verdict", "run"})
	var rows, resources [][]string
	for _, run := range r.Ladder {
		rows = append(rows, r.ladderRow(run, shapes))
		if run.Build != nil {
			need := run.Build.Resources
			resources = append(resources, []string{
				run.Variant, fmt.Sprint(need.Registers), fmt.Sprint(need.SharedBytes()), fmt.Sprint(need.SpillBytes()),
				run.Arch, fmt.Sprintf("%.12s", run.CodeHash), run.Build.Compiler,
			})
		}
	}
	alignedTable(out, header, rows)
	r.champions(out)
	out.WriteString("\n")
	paragraph(out, "The change of each stage from its parent, and what was expected of it. Knobs have the names of the record; "+
		"kernel.toml lists former names under `formerly` and removed knobs under `[[retired]]`.")
	out.WriteString("\n")
	for _, run := range r.Ladder {
		listItem(out, ladderItem(run))
	}
	out.WriteString("\nResources per thread (registers, spill) and per block (shared memory):\n\n")
	alignedTable(out, []string{"stage", "registers", "shared bytes", "spill bytes", "arch", "code hash", "compiler"}, resources)
	first := r.Ladder[0]
	if first.Facts != nil {
		out.WriteString("\n")
		paragraph(out, "Device: %s. Any stage can be run again with `attune run STAGE`, or with the shapes, seeds and samples "+
			"of its record with `attune reproduce ID --from results`.", deviceLine(first.Facts.Name, first.Facts.Arch, first.Facts.Multiprocessors, first.Facts.Driver))
	}
}

// champions names the variants in production.
func (r results) champions(out *bytes.Buffer) {
	for _, c := range r.Champions {
		text := fmt.Sprintf("Champion of %s: `%s`, since %s, by run `%s` with the verdict `%s`.",
			c.Arch, c.Variant, c.Since.Format(time.DateOnly), shortID(c.Run), c.Promoted.Verdict)
		for _, newer := range r.Ladder {
			if newer.Variant == c.Variant && newer.CodeHash != c.CodeHash && c.Promoted.Build != nil {
				text += fmt.Sprintf(" Its code (hash %.12s, %d registers) is older than that of the table's run.",
					c.CodeHash, c.Promoted.Build.Resources.Registers)
			}
		}
		out.WriteString("\n")
		paragraph(out, "%s", text)
	}
}

func (r results) ladderRow(record *run.Run, shapes []string) []string {
	kinds := map[string]document.Exponentials{}
	row := []string{record.Variant, ""}
	for _, shape := range shapes {
		cell := "-"
		for _, p := range record.Performance {
			if p.Shape == shape {
				kinds[shape] = r.exponentials(record, shape)
				cell = fmt.Sprintf("%.2f", p.P50US) + kinds[shape].Mark()
			}
		}
		row = append(row, cell)
	}
	row[1] = exp2Kind(kinds)
	speedup, required := "-", "-"
	if s := record.Speedup; s != nil {
		speedup = fmt.Sprintf("%.3fx (%.3f to %.3f)", s.Ratio, s.Low, s.High)
	}
	if record.Parent != "" {
		required = fmt.Sprintf("%.2fx", record.RequiredSpeedup)
	}
	return append(row, speedup, required, string(record.Verdict), shortID(record.ID))
}

// ladderItem describes the change of a stage.
func ladderItem(r *run.Run) string {
	text := "**" + r.Variant + "**"
	if r.Parent != "" {
		text += ", parent `" + r.Parent + "`"
	}
	switch {
	case len(r.Parts) > 0:
		text += ", a selection"
	case r.Change != "":
		settings := strings.Split(strings.TrimPrefix(r.Change, "+"), "+")
		text += ": `" + strings.Join(settings, "`, `") + "`"
	}
	if r.Hypothesis == "" {
		return text + "."
	}
	return text + ". " + strings.ToUpper(r.Hypothesis[:1]) + strings.TrimSuffix(r.Hypothesis[1:], ".") + "."
}

// exponentials says how a run computes exponentials on a shape.
func (r results) exponentials(record *run.Run, shape string) document.Exponentials {
	for _, p := range record.Parts {
		if part := r.Parts[p.Run]; part != nil && slices.Contains(p.Shapes, shape) {
			record = part
		}
	}
	if record.Build == nil {
		return document.ExactExponentials
	}
	return document.ExponentialsOf(record.Build.Knobs)
}

// exp2Kind names the exponentials of an implementation over several shapes.
func exp2Kind(kinds map[string]document.Exponentials) string {
	all := slices.Compact(slices.Sorted(maps.Values(kinds)))
	switch len(all) {
	case 0:
		return string(document.ExactExponentials)
	case 1:
		return string(all[0])
	}
	return "mixed"
}

// sortedBenches orders benches: those with peers first, then by rests, then by time.
func (r results) sortedBenches() []*run.Bench {
	return slices.SortedStableFunc(slices.Values(r.Benches), func(a, b *run.Bench) int {
		peers := func(b *run.Bench) int {
			if b.Peers == nil {
				return 1
			}
			return 0
		}
		return cmp.Or(peers(a)-peers(b), cmp.Compare(restOf(a), restOf(b)), strings.Compare(a.ID, b.ID))
	})
}

func (r results) ceilings(out *bytes.Buffer) {
	type best struct {
		row   run.BenchRow
		bench *run.Bench
	}
	devices := map[string]best{}
	var ceilings []*run.Ceilings
	for _, b := range r.sortedBenches() {
		if b.Ceilings == nil {
			continue
		}
		if _, known := devices[b.Ceilings.Device]; !known {
			ceilings = append(ceilings, b.Ceilings)
			devices[b.Ceilings.Device] = best{}
		}
		for _, row := range b.Rows {
			top := devices[b.Ceilings.Device]
			if !row.Peer && row.Shares != nil && (top.bench == nil || row.Shares.FP8 > top.row.Shares.FP8) {
				devices[b.Ceilings.Device] = best{row, b}
			}
		}
	}
	if len(ceilings) == 0 {
		return
	}
	out.WriteString("\n## Ceilings\n\n")
	paragraph(out, "The best rates that were measured on a device with kernels that do nothing else. "+
		"Data sheets have larger figures, which no kernel reaches.")
	out.WriteString("\n")
	var rows [][]string
	for _, c := range ceilings {
		rows = append(rows, []string{
			c.Device, fmt.Sprintf("%g TFLOP/s", c.BF16), fmt.Sprintf("%g TFLOP/s", c.FP8), fmt.Sprintf("%g TB/s", c.CopyTBps), c.Measured,
		})
	}
	alignedTable(out, []string{"device", "GEMM, bf16", "GEMM, e4m3", "copy, read + written", "measured with"}, rows)
	for _, c := range ceilings {
		top := devices[c.Device]
		if top.bench == nil {
			continue
		}
		out.WriteString("\n")
		paragraph(out, "The highest share of the e4m3 ceiling on this page (%s): %.0f %%, with %s%s TFLOP/s of `%s` on %s, %s (bench `%s`).",
			c.Device, 100*top.row.Shares.FP8, document.OrMissing("%.0f", top.row.TFLOPS), document.BenchExponentials(top.bench, top.row).Mark(), top.row.Name, top.row.Shape,
			loadText(top.bench), shortID(top.bench.ID))
	}
}

func (r results) sanitizers(out *bytes.Buffer) {
	if len(r.Sanitizers) == 0 {
		return
	}
	var tools, variants, shapes, devices []string
	add := func(list *[]string, text string) {
		if !slices.Contains(*list, text) {
			*list = append(*list, text)
		}
	}
	outcomes := map[[2]string]sanitized{}
	for _, s := range r.Sanitizers {
		add(&tools, s.Tool)
		add(&variants, s.Variant)
		add(&devices, s.Device+", driver "+s.Driver)
		for _, shape := range s.Shapes {
			add(&shapes, shape)
		}
		outcomes[[2]string{s.Variant, s.Tool}] = s
	}
	slices.Sort(tools)
	out.WriteString("\n## compute-sanitizer\n\n")
	paragraph(out, "Each stage went through the correctness gate under NVIDIA's compute-sanitizer (`attune run STAGE --sanitizer TOOL`). "+
		"A cell has the outcome and the number of checked problems. Shapes, by head dim and stage: %s. Device: %s. "+
		"`results/sanitizers.json` has the details.",
		strings.Join(shapes, ", "), strings.Join(devices, "; "))
	out.WriteString("\n")
	var rows [][]string
	var others []string
	unused := 0
	for _, v := range variants {
		row := []string{v}
		var last sanitized
		for _, tool := range tools {
			cell := "-"
			if s, ok := outcomes[[2]string{v, tool}]; ok {
				cell, last = fmt.Sprintf("%s, %d", s.Outcome, s.Problems), s
			}
			row = append(row, cell)
		}
		if !strings.Contains(v, "+") {
			rows = append(rows, append(row, fmt.Sprintf("%.12s", last.CodeHash), last.Date))
			continue
		}
		if !r.uses(last.CodeHash) {
			unused++
			continue
		}
		others = append(others, sanitizedItem(v, tools, row[1:], last))
	}
	alignedTable(out, slices.Concat([]string{"stage"}, tools, []string{"code hash", "date"}), rows)
	if len(others) > 0 {
		out.WriteString("\nVariants that are no stage and have times on this page, with the knob names of the record:\n\n")
	}
	for _, text := range others {
		listItem(out, text)
	}
	if unused > 0 {
		fmt.Fprintf(out, "\nVariants in the file that have no times on this page: %d.\n", unused)
	}
	if missing := r.unsanitized(); len(missing) > 0 {
		out.WriteString("\nVariants with times on this page and no outcome:\n\n")
		for _, variant := range missing {
			listItem(out, spelledOut(variant))
		}
	}
}

// unsanitized lists the variants whose code was timed for the page and went through no tool.
func (r results) unsanitized() []string {
	var variants []string
	add := func(variant, codeHash string) {
		known := slices.ContainsFunc(r.Sanitizers, func(s sanitized) bool { return s.CodeHash == codeHash })
		if !known && codeHash != "" && !slices.Contains(variants, variant) {
			variants = append(variants, variant)
		}
	}
	for _, ladder := range r.Ladder {
		if len(ladder.Parts) == 0 {
			add(ladder.Variant, ladder.CodeHash)
		}
		for _, p := range ladder.Parts {
			add(p.Variant, p.CodeHash)
		}
	}
	for _, b := range r.Benches {
		for _, build := range b.Builds {
			add(build.Variant, build.CodeHash)
		}
	}
	return variants
}

// spelledOut writes a variant with spaces, so that it can be wrapped.
func spelledOut(variant string) string {
	stage, knobs, changed := strings.Cut(variant, "+")
	if !changed {
		return stage
	}
	return stage + " with " + strings.ReplaceAll(knobs, "+", ", ")
}

// uses reports whether code with this hash was timed for the page.
func (r results) uses(codeHash string) bool {
	for _, part := range r.Parts {
		if part.CodeHash == codeHash {
			return true
		}
	}
	for _, b := range r.Benches {
		for _, build := range b.Builds {
			if build.CodeHash == codeHash {
				return true
			}
		}
	}
	return false
}

// sanitizedItem describes the outcomes of a variant that is no stage. Its name is too long for a
// table.
func sanitizedItem(variant string, tools, cells []string, s sanitized) string {
	outcomes := make([]string, len(tools))
	for i, tool := range tools {
		outcomes[i] = tool + " " + cells[i]
	}
	text := strings.Join(outcomes, "; ")
	if len(slices.Compact(slices.Clone(cells))) == 1 {
		text = "all tools " + cells[0]
	}
	return fmt.Sprintf("%s: %s; code %.12s, %s", spelledOut(variant), text, s.CodeHash, s.Date)
}

// sweepTokens and sweepHidden define a sweep over sequence lengths at constant work per token, as
// FlashAttention's own figures are: batch times sequence, and heads times head dim.
const (
	sweepTokens = 16384
	sweepHidden = 2048
)

func inSweep(s tensor.Shape) bool {
	return s.Batch*s.SeqQ == sweepTokens && s.Heads*s.HeadDim == sweepHidden && s.SeqQ == s.SeqK && s.Group() == 1
}
