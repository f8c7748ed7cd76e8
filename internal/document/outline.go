package document

import (
	"fmt"

	"attune/internal/run"
)

// Outline is what a bench would time, for people. It has no source: nothing is recorded.
func Outline(o *run.Outline) *Document {
	lead := say(fmt.Sprintf("%d problems of %s", len(o.Problems), o.Kernel))
	if o.Random != nil {
		lead = append(lead, say(fmt.Sprintf(", drawn from seed %d", o.Random.Seed))...)
	}
	lead = append(lead, say("; nothing was run")...)
	d := &Document{Title: say("Plan of a bench"), Headline: []Text{lead}, Brief: []Text{lead}}
	t := Table{Columns: []Column{
		named("no", Column{Keep: true}), named("GFLOP", Column{Keep: true}), named("MB", Column{Keep: true}), named("shape", Column{Keep: true, Wrap: true}),
	}}
	for _, name := range o.Names {
		t.Columns = append(t.Columns, named(name, Column{Optional: 1}))
	}
	for i, p := range o.Problems {
		row := []Text{say(fmt.Sprint(i + 1)), workCell(p.GFLOP), workCell(p.MB), say(p.Shape)}
		for i, v := range p.Variants {
			if v == o.Names[i] {
				row = append(row, cell(missing))
			} else {
				row = append(row, cell(Span{Text: v, Code: true, Variant: true}))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	d.Sections = []Section{{ID: "problems", Title: say("Problems"), Blocks: []Block{t}}}
	if o.Random != nil && o.Random.Refused > 0 {
		d.Sections = append(d.Sections, Section{ID: "refused", Title: say("Left out"), Blocks: []Block{say(leftOutText(o.Random))}})
	}
	return d
}

// leftOutText says how many draws are left out, and why.
func leftOutText(r *run.Random) string {
	return fmt.Sprintf("Left out: %d of the draws, such as: %s", r.Refused, r.RefusedWhy)
}

// workCell is an amount of work; missing if it is not known.
func workCell(amount float64) Text {
	if amount == 0 {
		return cell(missing)
	}
	return say(fmt.Sprintf("%.4g", amount))
}
