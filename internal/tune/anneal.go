package tune

import "math"

// anneal is simulated annealing. A worse neighbour is accepted with a probability that falls with
// the relative difference of the costs and with the temperature.
type anneal struct {
	*history
	budget  int
	current *observation
	stuck   int // moves since the last acceptance
}

// The temperatures are relative differences of costs: at first a variant that is 10 % slower is
// often accepted, at last none is.
const (
	hot  = 0.1
	cold = 1e-4
)

func newAnneal(h *history, o Options) Strategy { return &anneal{history: h, budget: o.Budget} }

// maxSteps is how many known variants a walk may cross on its way to an unknown one.
const maxSteps = 100

func (a *anneal) Ask() (Point, bool) {
	for range maxSteps {
		if a.current == nil {
			break
		}
		p, ok := a.move(a.current.point, a.free, 1+a.random.IntN(4)/3)
		if !ok {
			break
		}
		if a.isNew(p) {
			return a.take(p), true
		}
		if r, ok := a.result(p); ok { // known: the step costs nothing
			a.step(p, r)
		}
	}
	p, ok := a.fresh()
	if !ok {
		return nil, false
	}
	return a.take(p), true
}

func (a *anneal) Tell(p Point, r Result) {
	a.tell(p, r)
	a.step(p, r)
}

// restartAfter is the number of refused moves after which the walk starts elsewhere.
const restartAfter = 60

func (a *anneal) step(p Point, r Result) {
	a.stuck++
	switch {
	case !r.OK():
	case a.current == nil || a.accepts(r.Cost):
		a.current, a.stuck = &observation{p, r}, 0
	}
	if a.stuck > restartAfter {
		a.current, a.stuck = nil, 0
	}
}

func (a *anneal) accepts(cost float64) bool {
	worse := (cost - a.current.Cost) / math.Max(math.Abs(a.current.Cost), math.SmallestNonzeroFloat64)
	if worse <= 0 {
		return true
	}
	done := min(float64(len(a.told))/float64(a.budget), 1)
	temperature := hot * math.Pow(cold/hot, done)
	return a.random.Float64() < math.Exp(-worse/temperature)
}
