package run

import (
	"cmp"
	"slices"

	"attune/internal/finding"
)

// Simulated is what the simulator found on code that ran on a GPU too.
type Simulated struct {
	Instances int               `json:"instances"` // that it ran to their end
	Shapes    []string          `json:"shapes,omitempty"`
	Sampled   []string          `json:"sampled,omitempty"`   // shapes of which some blocks ran
	Schedules int               `json:"schedules,omitempty"` // at most for one instance
	Findings  []finding.Finding `json:"findings"`            // that fail the correctness gate
	// Wrong lists the findings with their instances, and errors over their limits.
	Wrong []string `json:"wrong,omitempty"`
	// Refused is what the simulator cannot run, such as tcgen05; Why is the whole message.
	Refused string `json:"refused,omitempty"`
	Why     string `json:"why,omitempty"`
	// Unfinished is the first instance without a result, and why it has none.
	Unfinished string `json:"unfinished,omitempty"`
	// Sanitized are the tools of compute-sanitizer that checked a kernel which the simulator refuses.
	Sanitized []string `json:"sanitized,omitempty"`
}

// Add joins what was found on the parts of a selection. A nil receiver has none yet.
func (s *Simulated) Add(part *Simulated) *Simulated {
	if s == nil || part == nil {
		return cmp.Or(s, part)
	}
	joined := *s
	joined.Instances += part.Instances
	joined.Schedules = max(s.Schedules, part.Schedules)
	joined.Shapes, joined.Sampled = union(s.Shapes, part.Shapes), union(s.Sampled, part.Sampled)
	joined.Findings = slices.Concat(s.Findings, part.Findings)
	joined.Wrong = union(s.Wrong, part.Wrong)
	joined.Sanitized = union(s.Sanitized, part.Sanitized)
	joined.Refused, joined.Why = cmp.Or(s.Refused, part.Refused), cmp.Or(s.Why, part.Why)
	joined.Unfinished = cmp.Or(s.Unfinished, part.Unfinished)
	return &joined
}

// union has the texts of both lists, each once.
func union(a, b []string) []string {
	all := slices.Clone(a)
	for _, text := range b {
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// NotSimulated is why the code of a run on a GPU was not simulated; empty if it was, and for records
// of programs that did not simulate beside a GPU.
func (r *Run) NotSimulated() string {
	switch s := r.Simulated; {
	case r.Requested.NoSim:
		return NoSimFlag
	case s != nil && s.Refused != "":
		return s.Refused
	}
	return ""
}

// NoSimFlag is the flag of a run on a GPU without the simulator.
const NoSimFlag = "--no-sim"
