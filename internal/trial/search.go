package trial

import (
	"context"
	"fmt"
	"time"

	"attune/internal/fleet"
	"attune/internal/run"
	"attune/internal/tune"
	"attune/internal/tuner"
)

// The kinds of jobs.
const (
	KindEvaluate = "evaluate"
	KindFinals   = "finals"
	KindCommand  = "command"
	KindRehearse = "rehearse"
)

// Setting is what every job has: the kernel, and the program that knows it.
type Setting struct {
	Kernel  Kernel `json:"kernel"`
	Version string `json:"version,omitempty"` // of the program, if the kernel is in it
}

type evaluation struct {
	Setting
	tuner.Trial
}

type finals struct {
	Setting
	tuner.Finals
}

// Limits of trials, whatever progress they show.
const (
	evaluationLimit = 30 * time.Minute
	finalsLimit     = 2 * time.Hour
)

// Searcher evaluates the candidates of searches on the workers of a class.
type Searcher struct {
	Fleet   *fleet.Coordinator
	Class   string
	Setting Setting
	Flight  int
	Repeats *Repeats // nil for none
}

// InFlight is how many candidates are evaluated at a time.
func (s *Searcher) InFlight() int { return s.Flight }

// Evaluate evaluates one candidate.
func (s *Searcher) Evaluate(ctx context.Context, t tuner.Trial) (found run.TuneEvaluation, err error) {
	j, err := fleet.NewJob(s.Class, KindEvaluate, evaluation{s.Setting, t}, evaluationLimit)
	if err != nil {
		return found, err
	}
	r, err := s.Fleet.Do(ctx, j)
	if err == nil {
		err = r.Decode(&found)
	}
	if err == nil && s.Repeats.due(&t, &found) {
		found, err = s.Repeats.repeat(ctx, s.Fleet, j, r.Worker, found)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s: %w", t.Variant, err)
	}
	return found, err
}

// Conclude does the finals of a search.
func (s *Searcher) Conclude(ctx context.Context, f tuner.Finals) (*tuner.Standing, error) {
	var found tuner.Standing
	if err := s.do(ctx, KindFinals, finals{s.Setting, f}, finalsLimit, &found); err != nil {
		return nil, fmt.Errorf("the finals: %w", err)
	}
	return &found, nil
}

func (s *Searcher) do(ctx context.Context, kind string, body any, limit time.Duration, found any) error {
	j, err := fleet.NewJob(s.Class, kind, body, limit)
	if err != nil {
		return err
	}
	r, err := s.Fleet.Do(ctx, j)
	if err != nil {
		return err
	}
	return r.Decode(found)
}

// Rehearsal is the evaluation of a recorded variant: the worker sleeps as long as it took.
type Rehearsal struct {
	Point  tune.Point    `json:"point"`
	Result tune.Result   `json:"result"`
	Sleep  time.Duration `json:"sleep_ns"`
	Search string        `json:"search"`
}

// rehearsalLimit is far above what a recorded evaluation takes.
const rehearsalLimit = time.Hour

// Rehearse evaluates a recorded variant on a worker.
func (s *Searcher) Rehearse(ctx context.Context, r Rehearsal) (found tune.Result, err error) {
	return found, s.do(ctx, KindRehearse, r, rehearsalLimit, &found)
}

// rehearse sleeps, and tells that it is alive.
func rehearse(ctx context.Context, r Rehearsal, progress func()) (tune.Result, error) {
	for left := r.Sleep; left > 0; left -= time.Second {
		progress()
		select {
		case <-ctx.Done():
			return tune.Result{}, ctx.Err()
		case <-time.After(min(left, time.Second)):
		}
	}
	return r.Result, nil
}
