package trial

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"attune/internal/fleet"
	"attune/internal/run"
	"attune/internal/tuner"
)

const (
	repeatedShare = 50   // one of so many evaluations is repeated by another worker, beside each new best
	apart         = 1.10 // ratio of the costs of two GPUs of a class above which one of them is named
)

// Repeats has each new best of a search, and some other evaluations, repeated by another worker of the
// class. A worker that is wrong, or whose GPU is throttled, does not decide alone.
type Repeats struct {
	Note func(string)

	mu    sync.Mutex
	least float64 // cost of a simulated search; 0 before the first
	done  int     // repeated
	open  int     // that no other worker has taken
	noted time.Time
}

// due reports whether an evaluation is repeated.
func (r *Repeats) due(t *tuner.Trial, found *run.TuneEvaluation) bool {
	if r == nil || found.Cost == nil {
		return false
	}
	best := found.Best
	if found.Objective == run.ObjectiveCost { // which has no competitor on its worker
		r.mu.Lock()
		if best = r.least == 0 || *found.Cost < r.least; best {
			r.least = *found.Cost
		}
		r.mu.Unlock()
	}
	h := fnv.New32a()
	h.Write([]byte(t.Variant))
	return best || h.Sum32()%repeatedShare == 0
}

// repeat has a job done again by another worker than the first one, and returns the result that counts:
// the worse one. Simulated costs are equal on all machines, or one of them is wrong.
func (r *Repeats) repeat(ctx context.Context, f *fleet.Coordinator, j fleet.Job, first string, found run.TuneEvaluation) (run.TuneEvaluation, error) {
	j.Not = first
	waiting := time.AfterFunc(repeatNote, r.noteWait)
	answer, err := f.Do(ctx, j)
	waiting.Stop()
	if errors.As(err, new(*fleet.LostError)) {
		r.mu.Lock()
		r.open++
		r.mu.Unlock()
		return found, nil
	}
	if err != nil {
		return found, err
	}
	var again run.TuneEvaluation
	if err := answer.Decode(&again); err != nil {
		return found, err
	}
	r.mu.Lock()
	r.done++
	r.mu.Unlock()
	return r.worse(first, found, answer.Worker, again)
}

// repeatNote is how long a repetition may take before that is noted.
const repeatNote = 5 * time.Second

// noteWait says, once a minute, why a search stands still.
func (r *Repeats) noteWait() {
	r.mu.Lock()
	seldom := r.noted.IsZero() || time.Since(r.noted) > time.Minute
	if seldom {
		r.noted = time.Now()
	}
	r.mu.Unlock()
	if seldom {
		r.Note("a result waits for another worker to repeat it; while there is none, for 25 s at most")
	}
}

func (r *Repeats) worse(first string, found run.TuneEvaluation, second string, again run.TuneEvaluation) (run.TuneEvaluation, error) {
	if found.Objective == run.ObjectiveCost {
		if again.Cost == nil || *again.Cost != *found.Cost {
			return found, fmt.Errorf("%s finds %s and %s %s, although a simulated cost depends on no machine; drain the wrong one (attune fleet drain), then --resume",
				first, costOf(&found), second, costOf(&again))
		}
		return found, nil
	}
	switch {
	case again.Cost == nil:
		r.Note(fmt.Sprintf("%s: %s by %s, but %s by %s; the latter counts", found.Variant, costOf(&found), first, costOf(&again), second))
		return again, nil
	case max(*again.Cost / *found.Cost, *found.Cost / *again.Cost) > apart:
		r.Note(fmt.Sprintf("%s: %s by %s and %s by %s; the larger counts", found.Variant, costOf(&found), first, costOf(&again), second))
	}
	if *again.Cost > *found.Cost {
		return again, nil
	}
	return found, nil
}

// costOf is what an evaluation says of its variant.
func costOf(e *run.TuneEvaluation) string {
	if e.Cost == nil {
		return fmt.Sprintf("%s (%s)", e.Failure, e.Reason)
	}
	return fmt.Sprintf("the %s %.4g", e.Objective, *e.Cost)
}

// Summary says how much was repeated; empty if nothing was.
func (r *Repeats) Summary() string {
	if r == nil || r.done+r.open == 0 {
		return ""
	}
	text := fmt.Sprintf("%d evaluations were repeated by another worker", r.done)
	if r.done == 1 {
		text = "1 evaluation was repeated by another worker"
	}
	if r.open > 0 {
		text += fmt.Sprintf("; for %d there was none", r.open)
	}
	return text
}
