package run

import (
	"fmt"

	"attune/internal/finding"
)

// Reported is a finding of a run, once for all outputs that it appeared on.
type Reported struct {
	finding.Finding
	Failed    bool  // it fails the correctness gate; others are notes
	Rows      []int // in Correctness
	Simulated bool  // by the simulator beside a GPU, on shapes that are not in Correctness
}

// Reported lists what the checkers have found on the outputs of a run. One place fails on many shapes.
func (r *Run) Reported() []Reported {
	type key struct {
		finding string
		failed  bool
	}
	var all []Reported
	known := map[key]int{}
	add := func(row int, found []finding.Finding, failed bool) {
		for _, f := range found {
			k := key{f.Key(), failed}
			i, ok := known[k]
			if !ok {
				i = len(all)
				known[k] = i
				all = append(all, Reported{Finding: f, Failed: failed})
			}
			if rows := all[i].Rows; len(rows) == 0 || rows[len(rows)-1] != row {
				all[i].Rows = append(rows, row)
			}
		}
	}
	for i := range r.Correctness {
		add(i, r.Correctness[i].Findings, true)
		add(i, r.Correctness[i].Notes, false)
	}
	if r.Simulated != nil {
		for _, f := range r.Simulated.Findings {
			all = append(all, Reported{Finding: f, Failed: true, Simulated: true})
		}
	}
	return all
}

// Outputs names the outputs that a finding appeared on: the first, and how many more.
func (r *Run) Outputs(f Reported) string {
	switch {
	case f.Simulated && len(r.Simulated.Sanitized) > 0:
		return "compute-sanitizer"
	case f.Simulated:
		return "the simulator"
	case len(f.Rows) == 0:
		return ""
	}
	text := r.Correctness[f.Rows[0]].Name()
	if more := len(f.Rows) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Name is the shape, the seed and the distribution of the inputs.
func (c *Correctness) Name() string {
	text := fmt.Sprintf("%s seed %d", c.Shape, c.Seed)
	if c.Inputs != "" && c.Inputs != "normal" {
		text += " " + c.Inputs
	}
	return text
}
