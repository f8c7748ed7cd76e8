package tune

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"attune/internal/rule"
)

// Within is how near to the optimum a search must come: 5 %.
const Within = 0.05

// Replay is a recording as the objective of searches.
type Replay struct {
	Recording *Recording
	Space     *Space
	Recorded  int     // variants that are allowed and recorded
	Failing   int     // of these
	Missing   int     // allowed and not recorded; they count as failed. -1 if unknown
	Outside   int     // recorded and not allowed
	Optimum   float64 // the best value of the objective
	Near      int     // variants within 5 % of it

	limit   float64 // cost within 5 % of the optimum
	entries map[string]*Entry
}

// NewReplay returns the replay of a recording in its own space, or in the given one.
func NewReplay(r *Recording, s *Space) (*Replay, error) {
	replay := &Replay{Recording: r, Space: s, entries: map[string]*Entry{}}
	translate := func(p Point) (Point, bool) { return p, true }
	if s == nil {
		replay.Space = r.Space
	} else {
		var err error
		if translate, err = translation(r.Space, s); err != nil {
			return nil, err
		}
	}
	for i := range r.Entries {
		p, ok := translate(r.Entries[i].Point)
		if !ok || !replay.Space.Allowed(p) {
			replay.Outside++
			continue
		}
		replay.entries[p.Key()] = &r.Entries[i]
	}
	replay.Recorded = len(replay.entries)
	replay.Missing = -1
	if n, exact := replay.Space.Size(); exact && n <= 1<<53 { // the integers that a float holds exactly
		replay.Missing = int(n) - replay.Recorded
	}
	return replay, replay.measure()
}

// measure finds the optimum.
func (r *Replay) measure() error {
	best := math.Inf(1)
	for _, e := range r.entries {
		if e.Failure != "" {
			r.Failing++
			continue
		}
		best = min(best, r.Recording.Cost(e))
	}
	if r.Recorded == 0 {
		return errors.New("no recorded variant is allowed by the space")
	}
	if r.Failing == r.Recorded {
		if r.Recording.Impossible > 0 {
			return fmt.Errorf("no recorded variant ran: there is no optimum to search for; a %s of zero or below counts as failed", r.Recording.Objective)
		}
		return errors.New("no recorded variant ran: there is no optimum to search for")
	}
	r.Optimum = r.Value(best)
	r.limit = best + Within*math.Abs(best)
	for _, e := range r.entries {
		if e.Failure == "" && r.Recording.Cost(e) <= r.limit {
			r.Near++
		}
	}
	return nil
}

// translation maps points of one space to another with the same knobs, in any order. It is false for
// a value that the other space does not have.
func translation(from, to *Space) (func(Point) (Point, bool), error) {
	place := make([]int, len(to.Knobs))
	values := make([][]int, len(to.Knobs))
	for i, k := range to.Knobs {
		place[i] = slices.IndexFunc(from.Knobs, func(other Knob) bool { return other.Name == k.Name })
		if place[i] < 0 {
			return nil, fmt.Errorf("the recording has no knob %q of the space", k.Name)
		}
		for _, v := range from.Knobs[place[i]].Values {
			values[i] = append(values[i], slices.IndexFunc(k.Values, func(w rule.Value) bool { return equal(v, w) }))
		}
	}
	for _, k := range from.Knobs {
		if !slices.ContainsFunc(to.Knobs, func(other Knob) bool { return other.Name == k.Name }) {
			return nil, fmt.Errorf("the space has no knob %q of the recording", k.Name)
		}
	}
	return func(p Point) (Point, bool) {
		q := make(Point, len(to.Knobs))
		for i, from := range place {
			v := values[i][p[from]]
			if v < 0 {
				return nil, false
			}
			q[i] = uint16(v)
		}
		return q, true
	}, nil
}

// Fingerprint identifies the recorded results, so that a journal is never resumed with others.
func (r *Replay) Fingerprint() string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q\n", r.Recording.Objective)
	for _, key := range slices.Sorted(maps.Keys(r.entries)) {
		e := r.entries[key]
		fmt.Fprintf(h, "%q %v %q\n", key, e.Value, e.Failure)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// Evaluate returns the recorded result of a variant, and the seconds that it took.
func (r *Replay) Evaluate(p Point) (Result, float64) {
	e := r.entries[p.Key()]
	if e == nil {
		return Result{Failure: notRecorded}, 0
	}
	return Result{r.Recording.Cost(e), e.Failure}, e.Seconds()
}

// Reached reports whether a result is within 5 % of the optimum.
func (r *Replay) Reached(result Result) bool { return result.OK() && result.Cost <= r.limit }

// Value returns the objective of a cost.
func (r *Replay) Value(cost float64) float64 {
	if r.Recording.maximises() {
		return -cost
	}
	return cost
}

// Count returns the number of allowed variants and how many of them fail, those that are not recorded
// among both. If the space is too large to count it is the recorded ones.
func (r *Replay) Count() (variants, failing int) {
	missing := max(r.Missing, 0)
	return r.Recorded + missing, r.Failing + missing
}

// RandomMedian returns the median number of evaluations that a random search needs to come within
// 5 %, computed from the number of such variants; 0 if the space is too large to count.
func (r *Replay) RandomMedian() int {
	if r.Missing < 0 {
		return 0
	}
	total := r.Recorded + r.Missing
	return 1 + sort.Search(total-1, func(i int) bool {
		missed := 1.0 // probability that i+1 draws without repetition have none of them
		for j := 0; j < r.Near && missed > 0; j++ {
			missed *= max(0, float64(total-i-1-j)) / float64(total-j)
		}
		return missed <= 0.5
	})
}

// Summary is what repeated searches needed to come within 5 % of the optimum. Repeats that did not
// within the budget count as infinitely many evaluations; a quantile that is infinite is nil.
type Summary struct {
	Strategy    string   `json:"strategy"`
	Repeats     int      `json:"repeats"`
	Median      *float64 `json:"median_evaluations_to_5pct"`
	SuccessRate float64  `json:"success_rate"`
	P10         *float64 `json:"p10_evaluations_to_5pct"`
	P90         *float64 `json:"p90_evaluations_to_5pct"`
	Seconds     *float64 `json:"median_recorded_s_to_5pct"` // compilation, verification and timing as recorded
	Budget      int      `json:"budget"`
	InFlight    int      `json:"in_flight"` // candidates at a time, each on a machine of its own
}

// Repeats are what to repeat.
type Repeats struct {
	Strategy string
	Options  Options // the seeds of the repeats derive from Seed
	Count    int
	Progress func(done int) // called after each repeat, from several goroutines
}

// Run repeats a search with different seeds, on all cores. Each repeat ends within 5 % of the
// optimum or at the budget.
func (r *Replay) Run(ctx context.Context, repeats Repeats) (*Summary, error) {
	evaluations := make([]float64, repeats.Count)
	seconds := make([]float64, repeats.Count)
	errs := make([]error, repeats.Count)
	var next, done atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), repeats.Count) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= repeats.Count {
					return
				}
				o := repeats.Options
				o.Seed = repeatSeed(o.Seed, i)
				evaluations[i], seconds[i], errs[i] = r.repeat(ctx, repeats.Strategy, o)
				if ctx.Err() == nil { // else the repeat was cut off
					repeats.Progress(int(done.Add(1)))
				}
			}
		})
	}
	workers.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if int(done.Load()) < repeats.Count {
		return nil, ctx.Err()
	}
	s := &Summary{Strategy: repeats.Strategy, Repeats: repeats.Count, Budget: repeats.Options.Budget, InFlight: max(1, repeats.Options.InFlight)}
	for _, n := range evaluations {
		if !math.IsInf(n, 1) {
			s.SuccessRate += 1 / float64(repeats.Count)
		}
	}
	s.SuccessRate = math.Round(s.SuccessRate*1e9) / 1e9
	s.Median, s.P10, s.P90 = quantile(evaluations, 0.5), quantile(evaluations, 0.1), quantile(evaluations, 0.9)
	s.Seconds = quantile(seconds, 0.5)
	return s, nil
}

// repeatSeed mixes the seed and the number of a repeat, so that no two seeds have a repeat in common.
func repeatSeed(seed uint64, i int) uint64 { return rand.NewPCG(seed, uint64(i)).Uint64() }

// Search runs a search up to a number of evaluations, those of its journal included.
func (r *Replay) Search(ctx context.Context, s *Search, budget int, progress func(done int)) error {
	here := func(_ context.Context, p Point) (Result, error) {
		result, _ := r.Evaluate(p)
		return result, nil
	}
	return s.Drive(ctx, budget, 1, here, progress)
}

// quantile interpolates between the two nearest values. It is nil if that is infinite.
func quantile(values []float64, q float64) *float64 {
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low, high := sorted[int(math.Floor(at))], sorted[int(math.Ceil(at))]
	x := low
	if high != low {
		x += (high - low) * (at - math.Floor(at))
	}
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return nil
	}
	return &x
}

// Subset returns a recording of some evaluations of the replay, for export.
func (r *Replay) Subset(evaluations []Evaluation) *Recording {
	out := *r.Recording
	out.Space, out.Entries, out.index, out.Truncated = r.Space, nil, map[string]int{}, false
	for _, e := range evaluations {
		entry := Entry{Failure: notRecorded}
		if recorded := r.entries[e.Point.Key()]; recorded != nil {
			entry = *recorded
		}
		entry.Point = e.Point
		out.index[e.Point.Key()] = len(out.Entries)
		out.Entries = append(out.Entries, entry)
	}
	return &out
}
