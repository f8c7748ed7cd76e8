package tune

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"testing"

	"attune/internal/rule"
	"attune/internal/spec"
)

// landscape is a synthetic objective.
type landscape struct {
	space *Space
	cost  func(Point) Result
}

// noise is a number from 0 to 1 that depends on the point only.
func noiseOf(p Point) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.Key()))
	return float64(h.Sum64()%10007) / 10007
}

func mustSpace(t *testing.T, knobs []Knob, rules ...string) *Space {
	t.Helper()
	s, err := NewSpace("synthetic", knobs, rules)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// valley is lowest at 40 % of each knob's range.
func valley(s *Space, weight func(knob int) float64) func(Point) float64 {
	return func(p Point) float64 {
		cost := 1.0
		for i, v := range p {
			if n := len(s.Knobs[i].Values); n > 1 {
				x := float64(v)/float64(n-1) - 0.4
				cost += weight(i) * x * x
			}
		}
		return cost
	}
}

// landscapes are unlike each other: few and many knobs, rugged ones, failing variants, one knob that
// dominates, tiny and huge spaces, costs that are not positive.
func landscapes(t *testing.T) map[string]landscape {
	equal := func(int) float64 { return 1 }
	ok := func(f func(Point) float64) func(Point) Result {
		return func(p Point) Result { return Result{Cost: f(p)} }
	}
	all := map[string]landscape{}
	var eight, binary []Knob
	for i := range 8 {
		eight = append(eight, steps(fmt.Sprint("k", i), 1, 6, 1))
	}
	for i := range 14 {
		binary = append(binary, ints(fmt.Sprint("k", i), 0, 1))
	}
	huge := mustSpace(t, eight, "k0 + k1 < 12") // 1.6 million variants
	all["huge"] = landscape{huge, ok(valley(huge, equal))}
	flags := mustSpace(t, binary)
	flagCost := func(p Point) float64 {
		cost := 1.0
		for i, v := range p {
			if int(v) != i%2 {
				cost += 0.1
			}
		}
		return cost
	}
	all["flags"] = landscape{flags, ok(flagCost)}
	middle := mustSpace(t, []Knob{steps("a", 16, 256, 16), ints("b", 1, 2, 4, 8, 16), steps("c", 1, 8, 1), steps("d", 1, 8, 1)}, "a * b <= 1024")
	smooth := valley(middle, equal)
	all["rugged"] = landscape{middle, ok(func(p Point) float64 { return smooth(p) * (1 + 0.3*noiseOf(p)) })}
	all["failing"] = landscape{middle, func(p Point) Result {
		if p[0]%2 == 1 || p[3] > 5 || noiseOf(p) < 0.3 {
			return Result{Failure: FailedRuntime}
		}
		return Result{Cost: smooth(p)}
	}}
	all["dominating"] = landscape{middle, ok(valley(middle, func(knob int) float64 { return math.Pow(10, 2-float64(knob)) }))}
	all["negative"] = landscape{middle, ok(func(p Point) float64 { return smooth(p) - 3 })}
	texts := mustSpace(t, []Knob{
		{Name: "layout", Values: []rule.Value{rule.Text("nhwc"), rule.Text("nchw"), rule.Text("tiled"), rule.Text("packed")}, Default: -1},
		steps("a", 1, 20, 1), steps("b", 1, 20, 1),
	})
	textCost := valley(texts, func(int) float64 { return 8 })
	all["texts"] = landscape{texts, ok(func(p Point) float64 { return textCost(p) + float64((p[0]*3)%4) })}
	tiny := mustSpace(t, []Knob{steps("a", 1, 6, 1), steps("b", 1, 7, 1)})
	all["tiny"] = landscape{tiny, ok(valley(tiny, equal))}
	macro := []Knob{ints("algorithm", 0, 1, 2), ints("staged", 0, 1), steps("tile", 1, 12, 1), steps("unroll", 1, 12, 1), steps("warps", 1, 8, 1)}
	macro[0].Layer, macro[1].Layer = spec.Macro, spec.Macro
	layers := mustSpace(t, macro, "staged == 0 or tile % 2 == 0", "algorithm != 2 or unroll > 6")
	layerCost := valley(layers, func(knob int) float64 { return []float64{0, 0, 2, 2, 1}[knob] })
	all["layers"] = landscape{layers, ok(func(p Point) float64 { return layerCost(p) + math.Abs(float64(p[0])-2) + float64(1-p[1]) })}
	return all
}

// optimum enumerates a landscape.
func (l landscape) optimum() (best float64, near float64) {
	best = inf
	var costs []float64
	for p := range l.space.All() {
		if r := l.cost(p); r.OK() {
			costs = append(costs, r.Cost)
			best = min(best, r.Cost)
		}
	}
	for _, c := range costs {
		if c <= best+Within*math.Abs(best) {
			near++
		}
	}
	return best, near
}

func evaluationsTo(t *testing.T, l landscape, strategy string, best float64, seed uint64) float64 {
	t.Helper()
	s, err := NewStrategy(strategy, l.space, Options{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= DefaultBudget; n++ {
		p, ok := s.Ask()
		if !ok {
			break
		}
		r := l.cost(p)
		if r.OK() && r.Cost <= best+Within*math.Abs(best) {
			return float64(n)
		}
		s.Tell(p, r)
	}
	return inf
}

// The default finds every synthetic optimum, in fewer evaluations than a random search.
func TestDefaultOnSyntheticSpaces(t *testing.T) {
	repeats := 20
	if testing.Short() {
		repeats = 5
	}
	for name, l := range landscapes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			best, near := l.optimum()
			size, _ := l.space.Size()
			var needed []float64
			for i := range repeats {
				n := evaluationsTo(t, l, DefaultStrategy, best, uint64(i))
				if math.IsInf(n, 1) {
					t.Errorf("seed %d: not within %d evaluations", i, DefaultBudget)
				}
				needed = append(needed, n)
			}
			median := quantile(needed, 0.5)
			random := math.Ln2 * size / near
			t.Logf("%.0f variants, %.0f near: median %.0f, random %.0f", size, near, *median, random)
			if *median > 0.6*max(random, 20) {
				t.Errorf("median %.0f evaluations, a random search needs about %.0f", *median, random)
			}
		})
	}
}

// A search that stagnates takes a quarter of its variants at random, so that it leaves a valley from
// which nothing leads to the optimum.
func TestStagnatingSearchDrawsAtRandom(t *testing.T) {
	l := landscapes(t)["flags"]
	created, err := NewStrategy("evo", l.space, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	e := created.(*evo)
	far, all := 0, 0
	for range 200 {
		elites := best(e.told, e.elites)
		p, _ := e.Ask()
		if e.stagnates() {
			all++
			near := func(elite observation) bool {
				differ := 0
				for knob := range p {
					if p[knob] != elite.point[knob] {
						differ++
					}
				}
				return differ <= 3
			}
			if e.asks%4 == 0 && !slices.ContainsFunc(elites, near) {
				far++
			}
		}
		e.Tell(p, Result{Cost: 1})
	}
	if share := float64(far) / float64(all); share < 0.2 || all < 100 {
		t.Errorf("%.2f of %d variants are far from the elites", share, all)
	}
}

// Every strategy proposes only allowed variants, none twice, and all of a small space. The same seed
// gives the same sequence. Several may be in flight.
func TestStrategies(t *testing.T) {
	all := landscapes(t)
	spaces := []string{"tiny", "failing", "layers"}
	if testing.Short() {
		spaces = spaces[:2] // the largest takes most of the time
	}
	for _, name := range Strategies {
		for _, space := range spaces {
			t.Run(name+"/"+space, func(t *testing.T) {
				t.Parallel()
				first := propose(t, name, all[space], 1)
				if !slices.Equal(first, propose(t, name, all[space], 1)) {
					t.Error("the same seed gives other variants")
				}
				if name != "grid" && slices.Equal(first, propose(t, name, all[space], 2)) {
					t.Error("another seed gives the same variants")
				}
				if size, _ := all[space].space.Size(); len(first) != min(int(size), 150) {
					t.Errorf("%d variants of %v", len(first), size)
				}
			})
		}
	}
}

func propose(t *testing.T, strategy string, l landscape, seed uint64) []string {
	t.Helper()
	s, err := NewStrategy(strategy, l.space, Options{Seed: seed, Budget: 300})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	seen := map[string]bool{}
	var flight []Point
	for len(keys) < 150 {
		p, ok := s.Ask()
		if !ok {
			break
		}
		if !l.space.Allowed(p) || seen[p.Key()] {
			t.Fatalf("%v is not allowed or comes twice", p)
		}
		seen[p.Key()] = true
		keys = append(keys, p.Key())
		if flight = append(flight, p); len(flight) == 3 {
			s.Tell(flight[1], l.cost(flight[1])) // out of order
			flight = slices.Delete(flight, 1, 2)
		}
	}
	return keys
}

// A space where nothing runs is searched to its end.
func TestAllVariantsFail(t *testing.T) {
	l := landscapes(t)["tiny"]
	l.cost = func(Point) Result { return Result{Failure: FailedCompile} }
	for _, name := range Strategies {
		if got := propose(t, name, l, 1); len(got) != 42 {
			t.Errorf("%s: %d variants", name, len(got))
		}
	}
}

// The caller may report variants of its own, which are then not proposed.
func TestOwnVariants(t *testing.T) {
	one := mustSpace(t, []Knob{ints("x", 1)})
	pair := mustSpace(t, []Knob{{Name: "x", Layer: spec.Macro, Values: []rule.Value{rule.Int(1), rule.Int(2)}, Default: -1}})
	for _, name := range Strategies {
		for _, s := range []*Space{one, pair} {
			st, err := NewStrategy(name, s, Options{})
			if err != nil {
				t.Fatal(err)
			}
			st.Tell(Point{0}, Result{Cost: 1})
			size, _ := s.Size()
			for range int(size) - 1 {
				if p, ok := st.Ask(); !ok || p[0] == 0 {
					t.Errorf("%s: %v %v", name, p, ok)
				}
			}
			if p, ok := st.Ask(); ok {
				t.Errorf("%s: %v after the last", name, p)
			}
		}
	}
	if got := one.Format(Point{0}); got != "the only variant" {
		t.Error(got)
	}
}

func TestUnknownStrategy(t *testing.T) {
	for name, want := range map[string]string{"evolution": `did you mean "evo"`, "q": "there are evo, bayes"} {
		if _, err := NewStrategy(name, nil, Options{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := NewSearch(nil, "q", "", Options{}); err == nil {
		t.Error("no error")
	}
}
