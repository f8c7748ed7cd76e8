package tuner

import (
	"cmp"
	"slices"

	"attune/internal/lab"
	"attune/internal/run"
)

// standings are the results of a search so far.
type standings struct {
	evaluations []run.TuneEvaluation // all of them
	counted     int                  // those of the budget: the others have code that was evaluated before
	candidates  []*Candidate         // those with a cost, each code once
	known       map[lab.Code]int     // index in evaluations
	tried       map[string]bool      // by key
	standard    *Candidate           // the default
	best        *Candidate           // the best so far
}

func newStandings() *standings {
	return &standings{known: map[lab.Code]int{}, tried: map[string]bool{}}
}

// add takes in an evaluation: a new one, or one of the journal. The candidate is nil if it cannot be
// made again.
func (s *standings) add(e run.TuneEvaluation, c *Candidate) {
	s.evaluations = append(s.evaluations, e)
	s.tried[key(e)] = true
	for _, name := range e.Demoted {
		s.demote(name)
	}
	if e.SameAs != "" {
		s.unpatch(e, c)
		return
	}
	s.counted++
	if e.CodeHash != "" {
		s.known[code(e)] = len(s.evaluations) - 1
	}
	if !e.OK() || c == nil {
		return
	}
	s.candidates = append(s.candidates, c)
	if s.standard == nil {
		s.standard = c
	}
	if e.Best {
		s.best = c
	}
}

// unpatch lets a variant of the kernel itself take the place of a patched one with the same machine
// code: the patch changes nothing. A resumed search without the proposer has only the former.
func (s *standings) unpatch(e run.TuneEvaluation, c *Candidate) {
	if e.Patch != "" || !e.OK() {
		return
	}
	at := slices.IndexFunc(s.candidates, func(o *Candidate) bool { return code(o.result) == code(e) })
	switch {
	case at < 0:
		s.candidates = append(s.candidates, c)
		if *c.result.Cost < *s.best.result.Cost {
			s.best = c
		}
	case s.candidates[at].Patch != nil:
		if s.best == s.candidates[at] {
			s.best = c
		}
		s.candidates[at] = c
	}
}

// demote removes a candidate that turned out to be wrong while it was timed again.
func (s *standings) demote(name string) {
	s.candidates = slices.DeleteFunc(s.candidates, func(c *Candidate) bool { return c != s.standard && c.name() == name })
	for i := range s.evaluations {
		if e := &s.evaluations[i]; e.Name() == name && e.OK() {
			e.Failure, e.Reason, e.Cost = run.FailedIncorrect, "a timed launch was wrong when it was timed again", nil
		}
	}
	if s.best != nil && s.best.name() == name {
		s.best = s.ranked()[0]
	}
}

// ranked are the candidates with a cost, the best first.
func (s *standings) ranked() []*Candidate {
	ranked := slices.Clone(s.candidates)
	slices.SortStableFunc(ranked, func(a, b *Candidate) int { return cmp.Compare(*a.result.Cost, *b.result.Cost) })
	return ranked
}

// elites are the results of the best n candidates, the best first.
func (s *standings) elites(n int) []run.TuneEvaluation {
	elites := []run.TuneEvaluation{}
	for _, c := range s.ranked()[:min(len(s.candidates), n)] {
		elites = append(elites, c.result)
	}
	return elites
}
