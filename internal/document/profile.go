package document

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"attune/internal/profile"
	"attune/internal/run"
)

// Profile is the figures of one launch and the conclusions from them.
func Profile(variant string, p *profile.Profile) *Document {
	d := ProfileDocument(variant, []*profile.Profile{p})
	d.Brief = []Text{} // the label of the section has all
	return d
}

// ProfileDocument has the profiles of a variant, a section for each shape.
func ProfileDocument(variant string, profiles []*profile.Profile) *Document {
	d := &Document{Title: say("Profiles of ", Span{Text: variant, Code: true})}
	for i, p := range profiles {
		d.Sections = append(d.Sections, Section{
			ID: fmt.Sprintf("profile-%d", i), Title: say(variant, " on ", p.Shape), Label: say(fmt.Sprintf("%s on %s, seed %d", variant, p.Shape, p.Seed)),
			Blocks: profileBlocks(variant, p, record{}, i, run.FileName(variant, p.Shape)),
		})
	}
	return d
}

// profileBlocks are the counters of a launch, what follows from them, and the roofline. The figures come
// from the profile with this index in a file.
func profileBlocks(variant string, p *profile.Profile, from record, index int, figure string) []Block {
	sentences := List{}
	for _, text := range profileSentences(p) {
		sentences = append(sentences, cell(from.summary(text, "profiles.%d", index)))
	}
	var blocks []Block
	if table := profileTable(p, from, index); len(table.Rows) > 0 {
		blocks = append(blocks, Details{Summary: say("Counters"), Blocks: []Block{table}})
	}
	if len(sentences) > 0 {
		blocks = append(blocks, sentences)
	}
	if p.Roofline != nil {
		blocks = append(blocks, Figure{Name: figure, Plot: RooflinePlot(variant, p)})
	}
	return blocks
}

// profileTable has a column for the simulator, one for ncu, and the difference if both counted.
func profileTable(p *profile.Profile, from record, index int) Table {
	rows := p.Metrics
	if p.Sim != nil || p.Ncu != nil { // not read from a record
		rows = p.Rows()
	}
	counted := func(by func(profile.Row) *float64) bool {
		return slices.ContainsFunc(rows, func(r profile.Row) bool { return by(r) != nil })
	}
	sim := p.Sim != nil || counted(func(r profile.Row) *float64 { return r.Sim })
	ncu := p.Ncu != nil || counted(func(r profile.Row) *float64 { return r.Ncu })
	header := []string{"metric"}
	if sim {
		header = append(header, "sim")
	}
	if ncu {
		header = append(header, "ncu")
	}
	if sim && ncu {
		header = append(header, "difference")
	}
	t := Table{Columns: columns(header...)}
	stalls := false
	for j, r := range rows {
		stalls = stalls || strings.HasPrefix(r.Key, "stall_")
		at := fmt.Sprintf("profiles.%d.metrics.%d", index, j)
		row := []Text{cell(from.text(r.About, "%s.about", at))}
		if sim {
			row = append(row, from.counter(r.Sim, r.Unit, at+".sim"))
		}
		if ncu {
			row = append(row, from.counter(r.Ncu, r.Unit, at+".ncu"))
		}
		if sim && ncu {
			row = append(row, cell(from.summary(differenceText(r), "%s", at)))
		}
		t.Rows = append(t.Rows, row)
	}
	if !stalls && len(header) > 1 {
		t.Rows = append(t.Rows, append([]Text{say("warp stalls")}, slices.Repeat([]Text{say(notMeasured)}, len(header)-1)...))
	}
	return t
}

const notMeasured = "not measured"

// counter is a value with its unit.
func (r record) counter(value *float64, unit, key string) Text {
	switch {
	case value == nil:
		return say(notMeasured)
	case unit == "ns":
		return cell(derived("%.2f us", *value/1e3, r.key("%s", key)+" / 1000"))
	case unit == "%":
		return cell(r.figure("%.1f %%", *value, "%s", key))
	case *value == math.Trunc(*value):
		return cell(r.figure("%.0f", *value, "%s", key))
	}
	return cell(r.figure("%.2f", *value, "%s", key))
}

// figure is the same as a text.
func figure(value *float64, unit string) string { return record{}.counter(value, unit, "").String() }

func differenceText(r profile.Row) string {
	text := "all of it" // ncu counted 0
	if r.Difference != nil {
		text = fmt.Sprintf("%+.2f %%", *r.Difference)
	}
	switch {
	case !r.Compared():
		return "-"
	case !r.Exact: // the two need not agree
		return "(" + text + ")"
	}
	return text
}

// profileSentences are the position under the roofline, the limits of the launch, and the metrics
// that the profiler does not have.
func profileSentences(p *profile.Profile) []string {
	var all []string
	if r := p.Roofline; r != nil {
		all = append(all, fmt.Sprintf("roofline: %.1f TFLOP/s at %.0f FLOPs per byte, %.1f %% of the ceiling of %s (%s)",
			r.Point.PerSecond/1e12, r.Point.Intensity, 100*r.Point.PerSecond/r.Limit(r.Point.Intensity), r.Device, basis(r)))
	} else if p.NoRoofline != "" {
		all = append(all, "no roofline: "+p.NoRoofline)
	}
	for _, i := range p.Insights {
		text := i.Rule + ": " + i.Text
		if len(i.Knobs) > 0 {
			text += "; knobs: " + strings.Join(i.Knobs, ", ")
		}
		all = append(all, text)
	}
	if len(p.Unknown) > 0 {
		all = append(all, "metrics that ncu does not have on this chip: "+strings.Join(p.Unknown, ", "))
	}
	return append(all, agreementSentences(p)...)
}

// agreementSentences compare the counts of the simulator with those of a chip.
func agreementSentences(p *profile.Profile) []string {
	if p.Sim == nil || p.Ncu == nil {
		return nil
	}
	agree, differ, free := p.Agreement()
	all := []string{fmt.Sprintf("simulator and chip agree within %d %% on %d of the %d figures that PTX determines and both counted",
		profile.Tolerance, len(agree), len(agree)+len(differ))}
	for _, r := range differ {
		all = append(all, fmt.Sprintf("do not agree: %s, sim %s and ncu %s; ptxas may have merged, moved or dropped instructions of the PTX",
			r.About, figure(r.Sim, r.Unit), figure(r.Ncu, r.Unit)))
	}
	for _, r := range free {
		all = append(all, fmt.Sprintf("need not agree: %s, because %s", r.About, r.Why))
	}
	return append(all, "cannot agree: time, DRAM, caches, pipes, occupancy and stalls, which are not simulated; instructions and "+
		"registers, which the simulator counts in PTX and the chip in machine code")
}

// basis is the source of the ceilings: measured or computed.
func basis(r *profile.Roofline) string {
	word, _, _ := strings.Cut(r.Memory.Basis, ":")
	return word + " ceilings"
}
