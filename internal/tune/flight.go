package tune

import (
	"context"
	"math"
	"slices"
)

// flight is a search on several machines that take the recorded times. As many candidates are in
// flight as there are machines, and the strategy gets results in the order in which it chose the candidates.
type flight struct {
	asked []inFlight
	free  []float64 // when each machine has done its last candidate
	told  float64   // when the last result was told
}

type inFlight struct {
	point Point
	done  float64
	of    Result
}

// repeat returns the evaluations and the recorded seconds until a search came within 5 %, both
// infinite if it did not.
func (r *Replay) repeat(ctx context.Context, strategy string, o Options) (evaluations, seconds float64, err error) {
	s, err := NewStrategy(strategy, r.Space, o)
	if err != nil {
		return 0, 0, err
	}
	f := flight{free: make([]float64, max(1, o.InFlight))}
	for n := 1; n <= o.Budget && ctx.Err() == nil; n++ {
		if !f.fill(r, s) {
			break
		}
		next := f.asked[0]
		f.asked = f.asked[1:]
		f.told = max(f.told, next.done)
		if r.Reached(next.of) {
			return float64(n), f.told, nil
		}
		s.Tell(next.point, next.of)
	}
	return math.Inf(1), math.Inf(1), nil
}

// fill asks for candidates until each machine has one. It is false if there are no more.
func (f *flight) fill(r *Replay, s Strategy) bool {
	for len(f.asked) < len(f.free) {
		p, ok := s.Ask()
		if !ok {
			break
		}
		result, took := r.Evaluate(p)
		machine := slices.Index(f.free, slices.Min(f.free))
		f.free[machine] = max(f.free[machine], f.told) + took
		f.asked = append(f.asked, inFlight{p, f.free[machine], result})
	}
	return len(f.asked) > 0
}
