package tuner

import (
	"context"
	"fmt"
	"slices"

	"attune/internal/lab"
	"attune/internal/measure"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
)

// Elsewhere evaluates candidates on other machines of one class.
type Elsewhere interface {
	// InFlight is how many candidates are evaluated at a time. It is part of what a search depends on: the
	// strategy chooses a candidate without the results of those in flight.
	InFlight() int
	// Evaluate takes a candidate through the steps of a search. The error is not the candidate's fault.
	Evaluate(ctx context.Context, t Trial) (run.TuneEvaluation, error)
	// Conclude does the finals, on one machine.
	Conclude(ctx context.Context, f Finals) (*Standing, error)
}

// Plan is a request as data: all that the result of a trial depends on besides the kernel.
type Plan struct {
	Variant   string   `json:"variant"` // the default
	Fixed     []string `json:"fixed,omitempty"`
	Shapes    []string `json:"shapes"`
	Small     []string `json:"small_shapes"`
	Seeds     []uint64 `json:"seeds"`
	Objective string   `json:"objective"`
	Arch      string   `json:"arch,omitempty"`
	MaxWork   float64  `json:"max_work"`
	Processes int      `json:"processes"`
	Elites    int      `json:"elites"`
}

// Trial is the evaluation of one candidate. On a GPU it is timed interleaved with another one, by the
// same machine: only their ratio is compared with others.
type Trial struct {
	Plan    Plan   `json:"plan"`
	Variant string `json:"variant"`
	Origin  string `json:"origin"`
	// Against is the best so far, and its cost; empty for the default, which is timed alone.
	Against     string  `json:"against,omitempty"`
	AgainstCost float64 `json:"against_cost,omitempty"`
	// Search tells one search's times from another's. A simulated cost is the same in all.
	Search string `json:"search,omitempty"`
}

// Finals are the finals of a search: its candidates with a cost, the default first, then the best ones.
type Finals struct {
	Plan       Plan                 `json:"plan"`
	Candidates []run.TuneEvaluation `json:"candidates"`
	Search     string               `json:"search"`
}

// Standing is the outcome of finals.
type Standing struct {
	Rows   []run.TunedVariant `json:"rows"` // the default, then those that were compared with it
	Failed []run.TunedVariant `json:"failed"`
}

// plan is the planned request as data.
func (r *Request) asPlan() Plan {
	p := Plan{
		Variant: r.Variant.String(), Fixed: r.Fixed, Seeds: r.Seeds, Objective: r.Objective, Arch: r.Arch, MaxWork: r.MaxWork,
		Processes: r.Processes, Elites: r.Options.Elites,
	}
	for _, s := range r.Shapes {
		p.Shapes = append(p.Shapes, s.String())
	}
	for _, s := range r.Small {
		p.Small = append(p.Small, s.String())
	}
	return p
}

// request is the request of a plan on this machine.
func (p *Plan) request(k *spec.Kernel) (r Request, err error) {
	r = Request{
		Fixed: p.Fixed, Seeds: p.Seeds, Objective: p.Objective, Arch: p.Arch, MaxWork: p.MaxWork, Processes: p.Processes,
		Budget: Budget{Evaluations: 1},
	}
	r.Options.Elites = p.Elites
	if r.Variant, err = k.Variant(p.Variant); err != nil {
		return r, err
	}
	for _, list := range []struct {
		names []string
		to    *[]spec.Shape
	}{{p.Shapes, &r.Shapes}, {p.Small, &r.Small}} {
		for _, name := range list.names {
			shapes, err := k.Shapes(name)
			if err != nil {
				return r, err
			}
			*list.to = append(*list.to, shapes...)
		}
	}
	return r, nil
}

// Site evaluates candidates of one plan on this machine, for a search elsewhere.
type Site struct {
	search *search
	thaw   func()
	best   *Candidate // the last one that candidates were timed against
}

// NewSite builds the default and computes the references of a plan. The caller closes the site.
func NewSite(ctx context.Context, l *lab.Lab, p Plan) (*Site, error) {
	r, err := p.request(l.Kernel)
	if err != nil {
		return nil, err
	}
	thaw := l.Freeze()
	s, err := newSearch(ctx, l, r)
	if err != nil {
		thaw()
		return nil, err
	}
	if err := s.harness.loadInputs(ctx); err != nil {
		s.close()
		thaw()
		return nil, err
	}
	return &Site{search: s, thaw: thaw}, nil
}

// Close ends the builds, the device and the references.
func (s *Site) Close() error {
	defer s.thaw()
	return s.search.close()
}

// Evaluate takes a candidate through the steps of a search.
func (s *Site) Evaluate(ctx context.Context, t Trial) (run.TuneEvaluation, error) {
	v, err := s.search.harness.lab.Kernel.Variant(t.Variant)
	if err != nil {
		return run.TuneEvaluation{}, err
	}
	c := Candidate{Variant: v, Origin: t.Origin, isDefault: t.Variant == t.Plan.Variant}.start(s.search.request.Objective)
	if s.search.standings.best, err = s.against(ctx, t); err != nil {
		return c.result, err
	}
	h := s.search.harness
	err = h.walk(ctx, c, []step{
		{"building", h.build},
		{"resources", h.fits},
		{"correctness", h.checkSmall},
		{"measuring", s.search.measure},
	})
	if err == nil && c.ok() && c.result.Best {
		s.search.explain(ctx, c)
	}
	return c.result, err
}

// against is the candidate that this one is timed beside; nil if there is none.
func (s *Site) against(ctx context.Context, t Trial) (*Candidate, error) {
	if t.Against == "" || s.search.request.Objective == run.ObjectiveCost {
		return nil, nil
	}
	if s.best == nil || s.best.result.Variant != t.Against {
		v, err := s.search.harness.lab.Kernel.Variant(t.Against)
		if err != nil {
			return nil, err
		}
		s.best = Candidate{Variant: v}.start(s.search.request.Objective)
		if err := s.search.harness.build(ctx, s.best); err != nil {
			return nil, err
		}
		if !s.best.ok() {
			return nil, fmt.Errorf("the best so far, %s, does not build here: %s", t.Against, s.best.result.Reason)
		}
	}
	s.best.setCost(t.AgainstCost, true)
	return s.best, nil
}

// Conclude does the finals.
func (s *Site) Conclude(ctx context.Context, f Finals) (*Standing, error) {
	s.search.standings = newStandings()
	for _, e := range f.Candidates {
		v, err := s.search.harness.lab.Kernel.Variant(e.Variant)
		if err != nil {
			return nil, err
		}
		c := Candidate{Variant: v, Origin: e.Origin, isDefault: e.Variant == f.Plan.Variant}.start(s.search.request.Objective)
		c.result = e
		s.search.standings.add(e, c)
	}
	return s.search.conclude(ctx)
}

// elsewhere is the evaluation of a candidate on another machine.
type elsewhere struct {
	done   chan struct{}
	result run.TuneEvaluation
	err    error
}

// send begins to evaluate a candidate elsewhere, beside the best so far.
func (s *search) send(ctx context.Context, c *Candidate) {
	t := Trial{Plan: s.request.asPlan(), Variant: c.Variant.String(), Origin: c.Origin}
	if s.request.Objective != run.ObjectiveCost {
		t.Search = s.document.ID
		if best := s.standings.best; best != nil {
			t.Against, t.AgainstCost = best.result.Variant, *best.result.Cost
		}
	}
	sent := &elsewhere{done: make(chan struct{})}
	c.elsewhere = sent
	go func() {
		defer close(sent.done)
		sent.result, sent.err = s.request.Elsewhere.Evaluate(ctx, t)
	}()
}

// receive waits for the evaluation of a candidate, and compares it with the best so far. Candidates are
// received in the order in which they were asked for, so that the search does not depend on which
// machine is faster.
func (s *search) receive(ctx context.Context, c *Candidate) error {
	if c.elsewhere == nil {
		s.send(ctx, c)
	}
	for {
		s.harness.step(c.result.Variant, "waiting for the fleet")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.elsewhere.done:
		}
		if c.elsewhere.err != nil {
			return c.elsewhere.err
		}
		own := c.result
		c.result = c.elsewhere.result
		c.result.Patch, c.result.Parent = own.Patch, own.Parent
		best := c.result.Best
		c.result.Best = false // a variant with the machine code of an earlier one is not compared
		if err := s.compareCode(ctx, c); err != nil || c.result.SameAs != "" || !c.ok() {
			return err
		}
		c.result.Best = best
		if s.rank(c) {
			s.takeSuggestion(c)
			return nil
		}
		s.send(ctx, c) // beside the newer best: two ratios of two machines prove nothing
	}
}

// takeSuggestion passes the knobs that the explanation of a new best names to the strategy.
func (s *search) takeSuggestion(c *Candidate) {
	if !c.result.Best {
		c.result.Suggested = nil
		return
	}
	c.suggest = []int{}
	for _, name := range c.result.Suggested {
		c.suggest = append(c.suggest, slices.IndexFunc(s.space.Knobs, func(k tune.Knob) bool { return k.Name == name }))
	}
}

// rank says whether a candidate is the best so far. It is false if that is open: the candidate was timed
// beside an earlier best and seems better than the present one.
func (s *search) rank(c *Candidate) bool {
	best := s.standings.best
	switch {
	case best == nil:
		c.result.Best = true
	case s.request.Objective == run.ObjectiveCost:
		ratio := *best.result.Cost / *c.result.Cost
		c.result.Against, c.result.Ratio = best.name(), &measure.Speedup{Ratio: ratio, Low: ratio, High: ratio}
		c.result.Best = ratio > 1
	case c.result.Against != best.name():
		if *c.result.Cost < *best.result.Cost {
			return false
		}
		c.result.Best = false
	}
	return true
}
