package tune

import (
	"slices"

	"attune/internal/spec"
)

// evo is an evolutionary search with a small set of elites. It makes a pool of children: moves of one
// or two knobs from an elite chosen by rank, crossovers, and random restarts. A model chooses the
// most promising child, except every few evaluations, when any child is taken: a model that is wrong
// cannot hold up the search.
//
// Macro knobs choose the algorithm, micro knobs tune it. With macro knobs each parent has another
// algorithm, moves change micro knobs only, and a macro move changes the algorithm with as few other
// changes as the constraints need.
type evo struct {
	*history
	elites int
	macro  []int // knobs
	micro  []int
	model  *model
	asks   int

	improved  int   // results before the best one
	suggested []int // micro knobs that moves prefer; none without a suggestion
}

const (
	evoStart = 5  // random variants before the first children
	evoPool  = 80 // children that the model chooses from
	// Every evoBlind-th child is not chosen by the model.
	evoBlind = 4
	// patience is the number of evaluations without a better result after which a search stagnates.
	patience = 40

	// Shares of the children, in percent; the others are moves.
	restartShare   = 10
	crossoverShare = 20
	macroShare     = 20
	// twoKnobShare is the share of the moves that change two knobs.
	twoKnobShare = 30
	// suggestedShare is the share of the moves that change suggested knobs only.
	suggestedShare = 40
)

func newEvo(h *history, o Options) Strategy {
	e := &evo{history: h, elites: o.Elites, model: newModel(h)}
	for _, knob := range h.free {
		if h.space.Knobs[knob].Layer == spec.Macro {
			e.macro = append(e.macro, knob)
		} else {
			e.micro = append(e.micro, knob)
		}
	}
	return e
}

func (e *evo) Ask() (Point, bool) {
	e.asks++
	elites := best(e.told, e.elites)
	if len(e.macro) > 0 {
		elites = e.bestAlgorithms()
	}
	if len(e.told) < evoStart || len(elites) == 0 {
		return e.restart()
	}
	size, child := evoPool, e.child
	switch {
	case e.stagnates() && e.asks%4 == 0: // the neighbourhood of the elites may be the wrong one
		return e.restart()
	case e.stagnates() && e.asks%2 == 0:
		size, child = 1, e.leap
	case e.asks%evoBlind == 0:
		size = 1
	}
	var pool []Point
	for tries := 0; tries < 3*size+maxDraws && len(pool) < size; tries++ {
		if p, ok := child(elites); ok && e.isNew(p) {
			pool = append(pool, p)
		}
	}
	switch len(pool) {
	case 0: // the neighbourhoods of the elites are exhausted
		return e.restart()
	case 1:
		return e.take(pool[0]), true
	}
	return e.take(e.model.pick(pool)), true
}

func (e *evo) Tell(p Point, r Result) {
	if r.OK() && r.Cost < e.lowest {
		e.improved = len(e.told)
	}
	e.tell(p, r)
}

// stagnates reports whether the search has not found anything better for a while. The model then
// deserves less trust.
func (e *evo) stagnates() bool { return len(e.told)-e.improved > patience }

func (e *evo) restart() (Point, bool) {
	p, ok := e.fresh()
	if !ok {
		return nil, false
	}
	return e.take(p), true
}

// bestAlgorithms returns the best result of each algorithm, of the best few.
func (e *evo) bestAlgorithms() []observation {
	var elites []observation
	for _, o := range best(e.told, len(e.told)) {
		same := func(elite observation) bool {
			return !slices.ContainsFunc(e.macro, func(knob int) bool { return elite.point[knob] != o.point[knob] })
		}
		if !slices.ContainsFunc(elites, same) {
			elites = append(elites, o)
		}
		if len(elites) == e.elites {
			break
		}
	}
	return elites
}

// child makes one child. It is false if the child is not allowed.
func (e *evo) child(elites []observation) (Point, bool) {
	kind := e.random.IntN(100)
	if kind -= restartShare; kind < 0 {
		return e.space.Random(e.random), true
	}
	parent := e.parent(elites)
	if kind -= crossoverShare; kind < 0 && len(elites) > 1 {
		return e.cross(parent, elites[e.random.IntN(len(elites))].point)
	}
	if kind -= macroShare; kind < 0 && len(e.macro) > 0 || len(e.micro) == 0 {
		return e.macroMove(parent)
	}
	n := 1
	if e.random.IntN(100) < twoKnobShare {
		n = 2
	}
	knobs := e.micro
	if len(e.suggested) > 0 && e.random.IntN(100) < suggestedShare {
		knobs = e.suggested
	}
	return e.move(parent, knobs, n)
}

// Suggest makes a share of the moves change these knobs. Macro moves are never suggested: they change
// the algorithm, and what limited the old one says little about the new one.
func (e *evo) Suggest(knobs []int) {
	e.suggested = nil
	for _, knob := range e.micro {
		if slices.Contains(knobs, knob) {
			e.suggested = append(e.suggested, knob)
		}
	}
}

// leap changes two micro knobs of an elite. All such neighbours are equally likely, so that a search
// that stagnates visits the whole neighbourhood of its elites.
func (e *evo) leap(elites []observation) (Point, bool) {
	q := slices.Clone(e.parent(elites))
	for range 2 {
		knob, weight := -1, 0
		for _, k := range e.micro {
			n := len(e.space.Knobs[k].Values) - 1
			if weight += n; e.random.IntN(weight) < n {
				knob = k
			}
		}
		if knob < 0 {
			return nil, false
		}
		q[knob] = uint16(e.random.IntN(len(e.space.Knobs[knob].Values)))
	}
	return q, e.space.Allowed(q)
}

// parent chooses an elite: the first half of the time, the second a quarter, and so on.
func (e *evo) parent(elites []observation) Point {
	rank := 0
	for rank < len(elites)-1 && e.random.IntN(2) == 0 {
		rank++
	}
	return elites[rank].point
}

// macroMove changes one macro knob.
func (e *evo) macroMove(p Point) (Point, bool) {
	if len(e.macro) == 0 {
		return nil, false
	}
	knob := e.macro[e.random.IntN(len(e.macro))]
	q := slices.Clone(p)
	e.change(q, knob)
	return e.space.near(p, knob, q[knob], e.random)
}
