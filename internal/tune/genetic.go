package tune

import (
	"cmp"
	"math"
	"slices"
)

// genetic is a steady-state genetic algorithm: each child replaces the worst of the population, if
// it is better.
type genetic struct {
	*history
	population []observation // best first
}

const (
	populationSize = 24
	mutationRate   = 0.1 // of each knob of a child
)

func newGenetic(h *history, _ Options) Strategy { return &genetic{history: h} }

func (g *genetic) Ask() (Point, bool) {
	for tries := 0; len(g.population) == populationSize && tries < maxDraws; tries++ {
		child, ok := g.cross(g.parent(), g.parent())
		if !ok {
			continue
		}
		child = slices.Clone(child)
		for _, knob := range g.free {
			if g.random.Float64() < mutationRate {
				g.change(child, knob)
			}
		}
		if g.isNew(child) && g.space.Allowed(child) {
			return g.take(child), true
		}
	}
	p, ok := g.fresh()
	if !ok {
		return nil, false
	}
	return g.take(p), true
}

// parent chooses by rank; the best half is chosen three times out of four.
func (g *genetic) parent() Point {
	x := g.random.Float64()
	return g.population[int(math.Pow(x, 2.4)*float64(len(g.population)))].point
}

func (g *genetic) Tell(p Point, r Result) {
	g.tell(p, r)
	if !r.OK() {
		return
	}
	at, _ := slices.BinarySearchFunc(g.population, r.Cost, func(o observation, cost float64) int { return cmp.Compare(o.Cost, cost) })
	g.population = slices.Insert(g.population, at, observation{p, r})
	g.population = g.population[:min(len(g.population), populationSize)]
}
