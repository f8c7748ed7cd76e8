package lab

import (
	"fmt"

	"attune/internal/finding"
	"attune/internal/run"
)

// failureReasons collects what is wrong with the outputs of a variant. A finding at one place of
// the code is listed once, with the first problem that showed it and the number of the others.
type failureReasons struct {
	list  []failureReason
	index map[string]int // in list, by finding.Finding.Key
}

type failureReason struct {
	first, last string // problems
	others      int    // problems after the first
	text        string
	finding     *finding.Finding // nil for an error over its limit
}

func (r *failureReasons) add(name string, row *run.Correctness) {
	if r.index == nil {
		r.index = map[string]int{}
	}
	for _, f := range row.Findings {
		key := f.Key()
		if i, known := r.index[key]; known {
			if r.list[i].last != name {
				r.list[i].last = name
				r.list[i].others++
			}
			continue
		}
		r.index[key] = len(r.list)
		r.list = append(r.list, failureReason{first: name, last: name, text: f.String(), finding: &f})
	}
	for _, text := range row.Wrong[len(row.Findings):] {
		r.list = append(r.list, failureReason{first: name, text: text})
	}
}

func (r *failureReasons) texts() []string {
	var all []string
	for _, reason := range r.list {
		where := reason.first
		if reason.others > 0 {
			where += fmt.Sprintf(" and %d more", reason.others)
		}
		all = append(all, where+": "+reason.text)
	}
	return all
}
