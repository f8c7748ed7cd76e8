package tuner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"time"

	"attune/internal/lab"
	"attune/internal/ledger"
	"attune/internal/profile"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
)

// search is a Request in progress.
type search struct {
	harness  *harness
	request  Request // planned
	space    *tune.Space
	strategy *tune.Search
	folder   folder
	document run.TuneSearch
	done     func(run.TuneEvaluation)

	standings *standings
	flight    []*Candidate      // asked for and compiling, in the order of the strategy
	insights  []profile.Insight // of the best so far
	leftOut   int               // patched candidates of a resumed search that cannot be made again
	started   time.Time         // of this session
	earlier   time.Duration     // in evaluations of earlier sessions
	ended     string            // why the search ended
}

// Search searches the knobs of a variant. Each evaluation is passed to done after it was written to
// the journal. An interrupted search can be resumed. An error means that the default or the lab
// failed; failures of other candidates are results.
func Search(ctx context.Context, l *lab.Lab, r Request, done func(run.TuneEvaluation)) (*run.Tuning, error) {
	defer l.Freeze()()
	return searchFrozen(ctx, l, r, done)
}

func searchFrozen(ctx context.Context, l *lab.Lab, r Request, done func(run.TuneEvaluation)) (*run.Tuning, error) {
	s, err := newSearch(ctx, l, r)
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.done = done
	result, err := s.conduct(ctx)
	if err != nil && ctx.Err() == nil && s.folder.isNew && len(s.standings.evaluations) == 0 { // there is nothing to resume
		return nil, errors.Join(err, l.Ledger.RemoveUnfinishedTuning(s.document.ID))
	}
	if s.folder.path != "" && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) {
		err = fmt.Errorf("the disk is full; free some space, then the same command with --resume continues: %w", err)
	}
	return result, err
}

// newSearch plans a request, builds the default and describes the search. The caller closes it.
func newSearch(ctx context.Context, l *lab.Lab, r Request) (*search, error) {
	h, err := newHarness(ctx, l, r)
	if err != nil {
		return nil, err
	}
	s := &search{harness: h, request: h.request, space: h.space, standings: newStandings(), started: time.Now()}
	started := s.started.UTC().Truncate(time.Millisecond)
	s.document = run.TuneSearch{
		SchemaVersion: run.TuningSchemaVersion, ID: ledger.NewID(started, r.Variant.Stage().Name), Time: started, Ahead: s.request.ahead(), Identity: h.identity(),
	}
	return s, nil
}

func (s *search) close() error {
	err := s.harness.pipeline.Close()
	if s.strategy != nil {
		err = errors.Join(err, s.strategy.Close())
	}
	s.folder.close()
	return err
}

// conduct carries out the search and the finals, and records them.
func (s *search) conduct(ctx context.Context) (*run.Tuning, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	if s.request.Elsewhere == nil {
		if err := s.harness.loadInputs(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.evaluateAll(ctx); err != nil {
		return nil, err
	}
	if keeper, ok := s.request.Proposer.(Keeper); ok {
		if err := keeper.Close(); err != nil {
			return nil, err
		}
	}
	result, err := s.finals(ctx)
	if err != nil {
		return nil, err
	}
	return result, s.finish(ctx, result)
}

// maxFree limits the candidates of equal code, which are not counted against a budget of
// evaluations: so many for each evaluation. A space of knobs that change nothing would never end.
const maxFree = 10

// evaluateAll evaluates the default, then candidates of the strategy and of the proposer until the
// budget is spent.
func (s *search) evaluateAll(ctx context.Context) error {
	if s.standings.standard == nil {
		if err := s.evaluateDefault(ctx); err != nil {
			return err
		}
	}
	for empty := 0; ; {
		proposed, err := s.evaluateProposals(ctx)
		if err != nil {
			return err
		}
		if s.ended = s.over(); s.ended != "" {
			return nil
		}
		next, err := s.next(ctx)
		if err != nil {
			return err
		}
		if empty++; proposed > 0 {
			empty = 0
		}
		if next == nil && s.mayPropose(empty) {
			s.pause(ctx, empty)
			continue
		}
		if next == nil {
			s.ended = "every variant was evaluated"
			return nil
		}
		if err := s.try(ctx, next); err != nil {
			return err
		}
	}
}

// maxEmpty is how many answers without a proposal end a search whose strategy has no more
// candidates. They are a second apart.
const maxEmpty = 10

// mayPropose reports whether a proposer may still have something, after some answers without an
// evaluation: patched kernels have variants when the strategy has none left.
func (s *search) mayPropose(empty int) bool {
	if ender, ok := s.request.Proposer.(interface{ Ended() bool }); ok {
		return empty < maxEmpty && !ender.Ended()
	}
	return s.request.Proposer != nil && empty == 0
}

// pause waits before a proposer that had nothing is asked again.
func (s *search) pause(ctx context.Context, empty int) {
	if empty == 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

// over is why the budget is spent; empty if it is not.
func (s *search) over() string {
	b, counted := s.request.Budget, s.standings.counted
	free := len(s.standings.evaluations) - counted
	switch {
	case b.Evaluations > 0 && counted >= b.Evaluations:
		return fmt.Sprintf("the budget of %d evaluations is spent", b.Evaluations)
	case b.Evaluations > 0 && free >= maxFree*b.Evaluations:
		return fmt.Sprintf("%d variants had machine code that was evaluated before", free)
	case b.Time > 0 && s.spent() >= b.Time:
		return fmt.Sprintf("the budget of %s is spent", b.Time)
	}
	return ""
}

// spent is the time of all sessions.
func (s *search) spent() time.Duration { return s.earlier + time.Since(s.started) }

// evaluateDefault evaluates the default, which must run.
func (s *search) evaluateDefault(ctx context.Context) error {
	point, ok := tune.PointOf(s.space, s.request.Variant)
	if !ok {
		return lab.RequestError(fmt.Sprintf("%s itself is not in the space of %s", s.request.Variant, s.request.Variant.Stage().Name))
	}
	c := Candidate{Variant: s.request.Variant, Origin: "default", isDefault: true, point: point}
	return s.try(ctx, c.start(s.request.Objective))
}

// next is the strategy's next candidate; nil if the space is exhausted. Those behind it begin to
// compile.
func (s *search) next(ctx context.Context) (*Candidate, error) {
	for len(s.flight) < s.document.Ahead {
		point, ok := s.strategy.Ask()
		if !ok {
			break
		}
		v, err := tune.VariantOf(s.request.Variant.Stage(), s.space, point)
		if err != nil {
			return nil, fmt.Errorf("BUG: the strategy proposed a variant that the kernel does not allow: %w", err)
		}
		c := Candidate{Variant: v, Origin: s.request.Strategy, point: point}.start(s.request.Objective)
		if s.request.Elsewhere != nil {
			s.send(ctx, c)
		} else {
			s.harness.pipeline.Start(v)
		}
		s.flight = append(s.flight, c)
	}
	if len(s.flight) == 0 {
		return nil, nil
	}
	first := s.flight[0]
	s.flight = s.flight[1:]
	return first, nil
}

// evaluateProposals evaluates what the proposer suggests, except for candidates that were evaluated
// or that the strategy has asked for. It returns the number of evaluations.
func (s *search) evaluateProposals(ctx context.Context) (evaluated int, err error) {
	if s.request.Proposer == nil || s.over() != "" {
		return 0, nil
	}
	s.harness.step(s.request.Variant.String(), "waiting for the proposer")
	proposed, err := s.request.Proposer.Propose(ctx, s.state())
	if err != nil {
		return 0, err
	}
	for _, one := range proposed {
		one.Origin = cmp.Or(one.Origin, "proposer")
		c := one.start(s.request.Objective)
		if s.over() != "" || s.standings.tried[key(c.result)] || c.Patch == nil && s.inFlight(c.Variant) {
			continue
		}
		if c.Patch == nil {
			c.point, _ = tune.PointOf(s.space, c.Variant)
		}
		if err := s.try(ctx, c); err != nil {
			return evaluated, err
		}
		evaluated++
	}
	return evaluated, nil
}

// inFlight reports whether the strategy has asked for a variant.
func (s *search) inFlight(v spec.Variant) bool {
	return slices.ContainsFunc(s.flight, func(c *Candidate) bool { return c.result.Variant == v.String() })
}

// state is what a proposer knows.
func (s *search) state() State {
	return State{
		Space: s.space, Default: s.standings.standard.result, Best: s.standings.best.result, Elites: s.standings.elites(s.request.Options.Elites),
		Evaluations: s.standings.counted, Insights: s.insights, LeftOut: s.leftOut,
	}
}

// try evaluates a candidate, writes the result to the journal and reports it. An interrupted
// evaluation leaves no trace, so that a resumed search repeats it.
func (s *search) try(ctx context.Context, c *Candidate) error {
	began := time.Now()
	err := s.evaluate(ctx, c)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && c.Patch != nil {
		// Foreign code can break anything beside it. If the lab itself is broken, the next variant of
		// the kernel shows it.
		c.fail(run.FailedCrashed, err.Error(), err)
		err = nil
	}
	if err == nil && c.isDefault {
		err = c.mustRun()
	}
	if err != nil {
		return err
	}
	c.result.Seconds = time.Since(began).Seconds()
	if c.result.SameAs == "" { // others have the number of the evaluation that they repeat
		c.result.Number = s.standings.counted + 1
	}
	if c.result.Best && s.request.Elsewhere == nil {
		s.explain(ctx, c)
	}
	if ctx.Err() != nil { // without its suggestion the sequence would be another one
		return ctx.Err()
	}
	c.counters = nil
	return s.record(c)
}

// record writes the evaluation of a candidate to the folder and takes it into the standings.
func (s *search) record(c *Candidate) error {
	if err := c.Patch.save(s.folder.path); err != nil {
		return err
	}
	detail, err := json.Marshal(c.result)
	if err != nil {
		return fmt.Errorf("the journal: %w", err)
	}
	result := tune.Result{Failure: tune.Failure(c.result.Failure)}
	if c.ok() {
		result.Cost = *c.result.Cost
	}
	if err := s.strategy.Record(tune.Evaluation{Point: c.point, Result: result, Suggest: c.suggest, Detail: detail}); err != nil {
		return err
	}
	s.standings.add(c.result, c)
	if err := s.writeElites(); err != nil {
		return err
	}
	s.done(c.result)
	return nil
}

// ahead is how many variants compile while one is measured: one a core, at least 2. More would let
// the strategy choose with fewer results. Elsewhere it is how many are evaluated at a time.
func (r *Request) ahead() int {
	if r.Elsewhere != nil {
		return r.Elsewhere.InFlight()
	}
	return min(max(2, runtime.GOMAXPROCS(0)), 8)
}
