package tune

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// Search drives a strategy and keeps its evaluations, in memory and in a journal.
type Search struct {
	space    *Space
	strategy Strategy
	identity string // what a journal must agree with
	done     []Evaluation
	best     int     // index into done; -1 before the first result
	asked    int     // answers of the strategy
	pending  []Point // asked for and without a result
	again    []Point // pending when the journal ended; they are handed out first
	journal  *journal
}

// Evaluation is one reported result.
type Evaluation struct {
	Point Point // nil for a variant outside of the space, which the strategy does not learn about
	Result
	// Suggest are knobs whose moves are promising from now on, by an explanation of this result. nil
	// keeps the earlier suggestion.
	Suggest []int
	Detail  json.RawMessage // of the caller, for the journal; may be nil
}

// NewSearch starts a search by the strategy of a name. subject identifies what is measured, for
// example a kernel and a device: a journal of another subject is not resumed.
func NewSearch(s *Space, strategy, subject string, o Options) (*Search, error) {
	created, err := NewStrategy(strategy, s, o)
	if err != nil {
		return nil, err
	}
	identity := fmt.Sprintf("strategy %s, seed %d, elites %d, space %s, %s", strategy, o.Seed, max(o.Elites, 0), s.Fingerprint(), subject)
	if strategy == "anneal" { // its temperature depends on the budget
		identity += fmt.Sprintf(", budget %d", o.Budget)
	}
	return &Search{space: s, strategy: created, identity: identity, best: -1}, nil
}

// Ask returns the next variant to evaluate; false if every variant was asked for. After a resume
// these are first the variants whose results were lost.
func (s *Search) Ask() (Point, bool) {
	if len(s.again) > 0 {
		p := s.again[0]
		s.again = s.again[1:]
		return p, true
	}
	p, ok := s.strategy.Ask()
	if ok {
		s.asked++
		s.pending = append(s.pending, p)
	}
	return p, ok
}

// Tell reports a result and writes it to the journal. The variant may be one of the caller's.
func (s *Search) Tell(p Point, r Result) error { return s.Record(Evaluation{Point: p, Result: r}) }

// Record reports an evaluation and writes it to the journal as one line.
func (s *Search) Record(e Evaluation) error {
	own := !s.isPending(e.Point)
	s.record(e)
	if s.journal == nil {
		return nil
	}
	return s.journal.write(s.asked, own, e)
}

func (s *Search) isPending(p Point) bool {
	return slices.ContainsFunc(s.pending, func(q Point) bool { return slices.Equal(p, q) })
}

func (s *Search) record(e Evaluation) {
	if e.Point != nil {
		s.pending = slices.DeleteFunc(s.pending, func(q Point) bool { return slices.Equal(e.Point, q) })
		s.strategy.Tell(e.Point, e.Result)
	}
	if suggester, ok := s.strategy.(Suggester); ok && e.Suggest != nil {
		suggester.Suggest(e.Suggest)
	}
	s.done = append(s.done, e)
	if e.OK() && (s.best < 0 || e.Cost < s.done[s.best].Cost) {
		s.best = len(s.done) - 1
	}
}

// Drive evaluates candidates up to a number of evaluations, those of the journal included, several at a
// time. The strategy gets results in the order in which it chose the candidates, so that the search does
// not depend on which is done first.
func (s *Search) Drive(ctx context.Context, budget, ahead int, evaluate func(context.Context, Point) (Result, error), progress func(done int)) error {
	type evaluated struct {
		point  Point
		result Result
		err    error
		done   chan struct{}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // what is in flight after an error
	var flight []*evaluated
	for ctx.Err() == nil && len(s.done) < budget {
		for len(flight) < min(ahead, budget-len(s.done)) {
			p, ok := s.Ask()
			if !ok {
				break
			}
			one := &evaluated{point: p, done: make(chan struct{})}
			flight = append(flight, one)
			go func() {
				defer close(one.done)
				one.result, one.err = evaluate(ctx, one.point)
			}()
		}
		if len(flight) == 0 {
			return nil
		}
		first := flight[0]
		flight = flight[1:]
		<-first.done
		if first.err != nil {
			return first.err
		}
		if err := s.Tell(first.point, first.result); err != nil {
			return err
		}
		progress(len(s.done))
	}
	return ctx.Err()
}

// Evaluations returns the results so far, in their order.
func (s *Search) Evaluations() []Evaluation { return s.done }

// Best returns the best result; false if no variant ran.
func (s *Search) Best() (Evaluation, bool) {
	if s.best < 0 {
		return Evaluation{}, false
	}
	return s.done[s.best], true
}
