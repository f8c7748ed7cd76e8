package tune

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"attune/internal/spec"
)

// Strategy decides which variant to evaluate next. A caller may ask for several variants before it
// reports the first result, for example to compile ahead. The same calls in the same order give the
// same answers.
type Strategy interface {
	// Ask returns an allowed variant that was not asked for before; false if there is none left.
	Ask() (Point, bool)
	// Tell reports the result of a variant: one that Ask returned, or one that the caller chose, such
	// as the default. It is called at most once for a variant.
	Tell(Point, Result)
}

// Suggester is a strategy that prefers moves of some knobs, such as those that a profile names.
type Suggester interface {
	Strategy
	// Suggest replaces the preferred knobs, which are indices into those of the space.
	Suggest(knobs []int)
}

// Result is the result of one evaluation.
type Result struct {
	Cost    float64 // to be minimised; undefined after a failure
	Failure Failure // why there is no cost; empty if there is one
}

// OK reports whether the variant ran.
func (r Result) OK() bool { return r.Failure == "" }

// Options configure a strategy. Zero values mean the defaults.
type Options struct {
	Seed   uint64
	Budget int // evaluations that the caller intends; annealing cools down over them
	Elites int // of evo
	// InFlight is how many candidates of a replay are evaluated at a time; 0 for one.
	InFlight int
}

// The defaults of Options.
const (
	DefaultBudget = 1000
	DefaultElites = 3
)

// DefaultStrategy is the strategy of a search that names none.
const DefaultStrategy = "evo"

var strategies = map[string]func(*history, Options) Strategy{
	"evo":     newEvo,
	"bayes":   newBayes,
	"genetic": newGenetic,
	"anneal":  newAnneal,
	"random":  newRandom,
	"grid":    newGrid,
}

// Strategies are the names of all strategies, the default first.
var Strategies = []string{"evo", "bayes", "genetic", "anneal", "random", "grid"}

// CheckStrategy returns an error if there is no strategy of a name.
func CheckStrategy(name string) error {
	if strategies[name] != nil {
		return nil
	}
	hint := "; there are " + strings.Join(Strategies, ", ")
	if near := spec.Nearest(name, Strategies); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return fmt.Errorf("unknown strategy %q%s", name, hint)
}

// NewStrategy returns a strategy by its name.
func NewStrategy(name string, s *Space, o Options) (Strategy, error) {
	if err := CheckStrategy(name); err != nil {
		return nil, err
	}
	if o.Budget <= 0 {
		o.Budget = DefaultBudget
	}
	if o.Elites <= 0 {
		o.Elites = DefaultElites
	}
	return strategies[name](newHistory(s, o.Seed), o), nil
}

// history is what all strategies keep: what was asked for, and the results so far.
type history struct {
	space  *Space
	random *rand.Rand
	asked  map[string]bool
	told   []observation
	known  map[string]int // index into told
	lowest float64        // cost of the best result; infinite before the first
	free   []int          // knobs with more than one value
	rest   []Point        // variants that were not asked for, shuffled; filled when draws get rare
	listed bool           // rest is filled
}

// observation is a reported result.
type observation struct {
	point Point
	Result
}

func newHistory(s *Space, seed uint64) *history {
	h := &history{space: s, random: rand.New(rand.NewPCG(seed, 0x7475_6e65)), asked: map[string]bool{}, known: map[string]int{}, lowest: math.Inf(1)}
	for i, k := range s.Knobs {
		if len(k.Values) > 1 {
			h.free = append(h.free, i)
		}
	}
	return h
}

func (h *history) isNew(p Point) bool { return !h.asked[p.Key()] }

// take marks a variant as asked for.
func (h *history) take(p Point) Point {
	h.asked[p.Key()] = true
	return p
}

// tell keeps a result.
func (h *history) tell(p Point, r Result) {
	key := p.Key()
	h.asked[key] = true
	h.known[key] = len(h.told)
	if r.OK() {
		h.lowest = min(h.lowest, r.Cost)
	}
	h.told = append(h.told, observation{p, r})
}

// result returns the reported result of a variant.
func (h *history) result(p Point) (Result, bool) {
	i, ok := h.known[p.Key()]
	if !ok {
		return Result{}, false
	}
	return h.told[i].Result, true
}

// maxDraws is how many draws in a row may give known variants before the unknown ones are listed, and
// maxGivenUp how many may give up.
const (
	maxDraws   = 200
	maxGivenUp = 5
)

// fresh draws a variant that was not asked for, uniformly; false if there is none left.
func (h *history) fresh() (Point, bool) {
	for draws, given := 0, 0; draws < maxDraws && given < maxGivenUp && !h.listed; draws++ {
		p, gaveUp := h.space.draw(h.random)
		if h.isNew(p) {
			return p, true
		}
		if gaveUp {
			given++
		}
	}
	if !h.listed {
		h.list()
	}
	for len(h.rest) > 0 {
		p := h.rest[len(h.rest)-1]
		h.rest = h.rest[:len(h.rest)-1]
		if h.isNew(p) {
			return p, true
		}
	}
	return nil, false
}

// list fills rest with the variants that are left. Draws repeat themselves only in a small space, or
// in an open component where constraints leave few combinations; more than maxTable are never kept,
// and the visits are limited, so that a strategy answers within seconds.
func (h *history) list() {
	h.listed = true
	for p := range h.space.all(maxVisits) {
		if h.isNew(p) {
			h.rest = append(h.rest, p)
		}
		if len(h.rest) == maxTable {
			break
		}
	}
	h.random.Shuffle(len(h.rest), func(i, j int) { h.rest[i], h.rest[j] = h.rest[j], h.rest[i] })
}

// move returns an allowed neighbour of a variant with n of the knobs changed; false after too many
// tries.
func (h *history) move(p Point, knobs []int, n int) (Point, bool) {
	for range 20 {
		q := slices.Clone(p)
		for _, i := range h.pick(knobs, n) {
			h.change(q, i)
		}
		if h.space.Allowed(q) && !slices.Equal(p, q) {
			return q, true
		}
	}
	return nil, false
}

// pick chooses n different knobs.
func (h *history) pick(knobs []int, n int) []int {
	n = min(n, len(knobs))
	chosen := make([]int, 0, n)
	for len(chosen) < n {
		if i := knobs[h.random.IntN(len(knobs))]; !slices.Contains(chosen, i) {
			chosen = append(chosen, i)
		}
	}
	return chosen
}

// change gives a knob another value: half of the time one beside it in the order of its values, as
// a tile of twice the size, else any.
func (h *history) change(p Point, knob int) {
	n := len(h.space.Knobs[knob].Values)
	if h.random.IntN(2) == 0 {
		step := 1 - 2*h.random.IntN(2)
		if at := int(p[knob]) + step; at >= 0 && at < n {
			p[knob] = uint16(at)
			return
		}
	}
	v := h.random.IntN(n - 1)
	if v >= int(p[knob]) {
		v++
	}
	p[knob] = uint16(v)
}

// best returns the n best of some results.
func best(told []observation, n int) []observation {
	var best []observation
	for _, o := range told {
		if !o.OK() || len(best) == n && o.Cost >= best[n-1].Cost {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, o.Cost, func(b observation, cost float64) int {
			return cmp.Or(cmp.Compare(b.Cost, cost), -1) // behind equal ones
		})
		best = slices.Insert(best, at, o)
		best = best[:min(len(best), n)]
	}
	return best
}

// cross takes each knob from one of two variants; false if the child is not allowed.
func (h *history) cross(a, b Point) (Point, bool) {
	for range 10 {
		child := slices.Clone(a)
		for _, knob := range h.free {
			if h.random.IntN(2) == 0 {
				child[knob] = b[knob]
			}
		}
		if h.space.Allowed(child) {
			return child, true
		}
	}
	return nil, false
}
