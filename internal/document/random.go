package document

import (
	"fmt"

	"attune/internal/run"
	"attune/internal/spec"
)

// rivalName is what times on random problems are compared with.
func rivalName(r *run.Random) string {
	if r.Against == spec.AgainstCopy {
		return "a copy"
	}
	return "the fastest peer"
}

// randomText is one variant on random problems in a sentence.
func randomText(b *run.Bench, i int) Text {
	r, from, at := b.Random.Results[i], benchRecord(b.ID), fmt.Sprintf("random.results.%d.", i)
	text := say(from.variant(r.Name, "%sname", at), ": ")
	if r.Problems == 0 {
		return append(text, say("no random problem could be compared")...)
	}
	return append(text, say(from.count(r.Held, "%sheld", at), " of ", from.count(r.Problems, "%sproblems", at), " random problems at ",
		from.figure("%.2f", b.Random.Required, "random.required_ratio"), "x ", rivalName(b.Random), " or more; mean ", from.optional("%.3f", r.Mean, "%smean", at),
		"x (geometric), lowest tenth ", from.optional("%.3f", r.LowestTenth, "%slowest_tenth", at), "x, ", from.count(r.Failed, "%sfailed", at), " failed")...)
}

// randomTexts has a sentence for each variant.
func randomTexts(b *run.Bench) []Text {
	var all []Text
	for i := range b.Random.Results {
		all = append(all, randomText(b, i))
	}
	return all
}

// randomSections are the figures of every variant on random problems, and its worst problems.
func randomSections(b *run.Bench) []Section {
	if b.Random == nil {
		return nil
	}
	all := []Section{{ID: "random", Title: say("Random problems"), Blocks: []Block{only(Long, randomOrigin(b)), randomTable(b)}}}
	for i, r := range b.Random.Results {
		if len(r.Worst) == 0 {
			continue
		}
		title := say("Worst problems of ", benchRecord(b.ID).variant(r.Name, "random.results.%d.name", i))
		all = append(all, Section{ID: fmt.Sprintf("worst-%d", i), Title: title, Label: title, Blocks: []Block{worstTable(b, i)}})
	}
	return all
}

// randomOrigin says how the problems were drawn and what a ratio is.
func randomOrigin(b *run.Bench) Text {
	r, from := b.Random, benchRecord(b.ID)
	text := say(from.count(r.Count, "random.count"), " problems were drawn from seed ", from.summary(fmt.Sprint(r.Seed), "random.seed"), " by [random] of kernel.toml. ")
	if r.Refused > 0 {
		text = append(text, say("Of the draws ", from.count(r.Refused, "random.refused"), " are left out, such as: ", from.text(r.RefusedWhy, "random.refused_why"), ". ")...)
	}
	if r.Against == spec.AgainstCopy {
		return append(text, say("A ratio is the time that a copy of the problem's bytes takes at the measured rate, plus ",
			from.figure("%g", r.OverheadUS, "random.overhead_us"), " us, over ours.")...)
	}
	return append(text, say("A ratio is the time of the fastest peer on the problem over ours.")...)
}

// randomTable has a row for each variant.
func randomTable(b *run.Bench) Table {
	from := benchRecord(b.ID)
	t := Table{Columns: []Column{
		named("name", Column{Keep: true}),
		named("problems", Column{Keep: true}),
		named("fast enough", Column{Keep: true}),
		named("share", Column{Optional: 3}),
		named("mean", Column{Keep: true}),
		named("median", Column{Optional: 2}),
		named("lowest tenth", Column{Keep: true}),
		named("failed", Column{Optional: 1}),
		named("not compared", Column{Optional: 4}),
	}}
	for i, r := range b.Random.Results {
		at := fmt.Sprintf("random.results.%d.", i)
		share := cell(missing)
		if r.Share != nil {
			share = cell(derived("%.1f %%", 100**r.Share, "100 * "+from.key("%sshare", at)))
		}
		t.Rows = append(t.Rows, []Text{
			cell(from.variant(r.Name, "%sname", at)), cell(from.count(r.Problems, "%sproblems", at)), cell(from.count(r.Held, "%sheld", at)), share,
			cell(from.optional("%.3fx", r.Mean, "%smean", at)), cell(from.optional("%.3fx", r.Median, "%smedian", at)),
			cell(from.optional("%.3fx", r.LowestTenth, "%slowest_tenth", at)), cell(from.count(r.Failed, "%sfailed", at)), cell(missing),
		})
		if r.Uncompared > 0 {
			t.Rows[i][8] = cell(from.count(r.Uncompared, "%suncompared", at))
		}
	}
	return t
}

// worstTable has the problems of the lowest ratios of one variant.
func worstTable(b *run.Bench, result int) Table {
	from := benchRecord(b.ID)
	t := Table{Columns: []Column{
		named("ratio", Column{Keep: true, Colour: wordColour}),
		named("shape", Column{Keep: true, Wrap: true}),
		named("p50 us", Column{Keep: true}),
		named("beside", Column{Keep: true}),
		named("its us", Column{Keep: true}),
		named("max_err", Column{Optional: 2}),
		named("variant", Column{Optional: 1}),
	}}
	for i, p := range b.Random.Results[result].Worst {
		at := fmt.Sprintf("random.results.%d.worst.%d.", result, i)
		mark := bestMark(b, run.BestRow{Shape: p.Shape, Variant: b.Random.Results[result].Name})
		row := []Text{
			say(from.optional("%.3fx", p.Ratio, "%sratio", at), mark), cell(from.text(p.Shape, "%sshape", at)), cell(from.optional("%.2f", p.P50US, "%sp50_us", at)),
			cell(missing), cell(from.optional("%.2f", p.AgainstUS, "%sagainst_us", at)), cell(from.optional("%.3g", p.MaxErr, "%smax_err", at)), cell(missing),
		}
		if p.Wrong != "" {
			row[0] = say("FAIL")
		}
		if p.Against != "" {
			row[3] = cell(from.text(p.Against, "%sagainst", at))
		}
		if p.Variant != "" {
			row[6] = cell(from.variant(p.Variant, "%svariant", at))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// sampledText says on how many random problems a sample of the rows was checked.
func sampledText(b *run.Bench) string {
	sampled := 0
	for _, c := range b.Checked {
		if !c.Whole() {
			sampled++
		}
	}
	if sampled == 0 {
		return ""
	}
	return fmt.Sprintf("checked: a sample of the rows on %d of %d problems, all rows on the others", sampled, len(b.Checked))
}
