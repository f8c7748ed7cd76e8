package tuner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"attune/internal/device"
	"attune/internal/lab"
	"attune/internal/measure"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
)

const (
	// aloneRounds are the samples of the default on each shape.
	aloneRounds = 12
	// A screening starts with screenRounds on each shape, interleaved with the best so far. The rounds
	// double while the candidate may still be better, up to maxScreenRounds.
	screenRounds, maxScreenRounds = 6, 48
	// screenFloor is by how much a candidate must be better to replace the best so far. The finals
	// decide by the noise of their session.
	screenFloor = 0.005
	// hopeless is the estimated ratio of times above which a candidate is not timed further.
	hopeless = 3
	// The energy of a launch is one figure of a whole measurement, so that a screening of energy takes
	// several of them, with few samples each.
	energyCalls, maxEnergyCalls, energySamples = 2, 6, 2
)

// observations are what the objective is computed from: samples of the time, or energies of launches.
func (r *Request) observations(all []lab.Timed) ([][]float64, error) {
	series := make([]device.Series, len(all))
	for i, one := range all {
		series[i] = one.Series
	}
	if r.Objective == run.ObjectiveTime {
		kept, _, _ := device.Steady(2, series...)
		return kept, nil
	}
	joules := make([][]float64, len(series))
	for i, one := range series {
		if one.Joules <= 0 {
			return nil, lab.RequestError("this GPU does not report energy; use --objective time")
		}
		joules[i] = []float64{one.Joules}
	}
	return joules, nil
}

// timings are the measurements of a shape that take it from some rounds to more. The first one times
// launches on new inputs too.
func (r *Request) timings(from, to int) []device.Plan {
	if r.Objective == run.ObjectiveTime {
		return []device.Plan{{Samples: to - from, Fresh: from == 0}}
	}
	var all []device.Plan
	for i := from; i < to; i++ {
		all = append(all, device.Plan{Samples: energySamples, Energy: true, Fresh: i == 0})
	}
	return all
}

// byObjective is a number of rounds for time, or of measurements for energy.
func (r *Request) byObjective(time, energy int) int {
	if r.Objective == run.ObjectiveEnergy {
		return energy
	}
	return time
}

// shapeResult is the result on a shape, whose cost is a time unless the objective is energy.
func (r *Request) shapeResult(shape spec.Shape, cost float64, ratio *measure.Speedup) run.TuneShape {
	s := run.TuneShape{Shape: shape.String(), Cost: cost, Ratio: ratio}
	if r.Objective == run.ObjectiveTime {
		us := 1e6 * cost
		s.P50US = &us
	}
	return s
}

// timeAlone times the default, with which a search starts.
func (h *harness) timeAlone(ctx context.Context, c *Candidate) error {
	rounds := h.request.byObjective(aloneRounds, energyCalls)
	logs := 0.0
	for _, shape := range h.request.Shapes {
		samples, err := h.sample(ctx, c, nil, shape, h.request.timings(0, rounds))
		if err != nil || !c.ok() {
			return err
		}
		cost := measure.Summarize(samples[0]).P50
		c.result.Shapes = append(c.result.Shapes, h.request.shapeResult(shape, cost, nil))
		logs += math.Log(cost)
	}
	c.result.Rounds = rounds
	c.setCost(math.Exp(logs/float64(len(h.request.Shapes))), true)
	return nil
}

// sample measures a candidate on a shape, interleaved with the best so far unless that is nil. The
// samples of the candidate are the last ones. A failure of the candidate ends its evaluation. Wrong
// launches of the best so far are a WrongError.
func (h *harness) sample(ctx context.Context, c, best *Candidate, shape spec.Shape, timings []device.Plan) ([][]float64, error) {
	builds := []problem.Build{c.build}
	if best != nil {
		builds = []problem.Build{best.build, c.build}
	}
	samples := make([][]float64, len(builds))
	for _, plan := range timings {
		all, err := h.pipeline.Time(ctx, h.inputs[shape], plan, builds...)
		if err != nil {
			return nil, c.timingFailed(ctx, err, "timing", shape)
		}
		if wrong := all[len(all)-1].Wrong; len(wrong) > 0 {
			c.fail(run.FailedIncorrect, fmt.Sprintf("timing %s: %s", shape, wrong[0]), nil)
			return nil, nil
		}
		if wrong := all[0].Wrong; len(wrong) > 0 {
			return nil, lab.TimedWrong(best.build, shape, wrong[0])
		}
		more, err := h.request.observations(all)
		if err != nil {
			return nil, err
		}
		for i := range samples {
			samples[i] = append(samples[i], more[i]...)
		}
	}
	return samples, nil
}

// timingFailed fails the candidate for an error of the device that is its fault, and returns others.
func (c *Candidate) timingFailed(ctx context.Context, err error, what string, shape spec.Shape) error {
	if ctx.Err() == nil && c.failOnDevice(err) {
		c.result.Reason = fmt.Sprintf("%s %s: %s", what, shape, c.result.Reason)
		return nil
	}
	return fmt.Errorf("time %s on %s: %w", c.result.Variant, shape, err)
}

// screen compares the candidate with the best so far. If that one turns out to be wrong, the next
// best takes its place and the screening starts again.
func (s *search) screen(ctx context.Context, c *Candidate) error {
	for {
		best := s.standings.best
		if err := s.harness.rebuild(ctx, best); err != nil {
			return err
		}
		err := s.harness.screenAgainst(ctx, c, best)
		if !errors.As(err, new(*lab.WrongError)) || best == s.standings.standard {
			return err
		}
		if c.Patch != nil { // it may have written what the other launches read
			c.fail(run.FailedIncorrect, fmt.Sprintf("launches of %s that were timed beside it were wrong", best.name()), nil)
			return nil
		}
		c.result.Demoted = append(c.result.Demoted, best.name())
		s.standings.demote(best.name())
		c.result.Shapes, c.result.Ratio = nil, nil
	}
}

// screenAgainst estimates the candidate by a few launches, then takes rounds while it may still win.
func (h *harness) screenAgainst(ctx context.Context, c, best *Candidate) error {
	c.result.Against = best.name()
	ratio, err := h.estimate(ctx, c, best)
	if err != nil || !c.ok() {
		return err
	}
	if ratio > hopeless {
		c.result.Ratio = &measure.Speedup{Ratio: 1 / ratio, Low: 1 / ratio, High: 1 / ratio}
		c.setCost(ratio**best.result.Cost, false)
		return nil
	}
	first, most := h.request.byObjective(screenRounds, energyCalls), h.request.byObjective(maxScreenRounds, maxEnergyCalls)
	pairs := make([]measure.Pair, len(h.request.Shapes))
	for from, to := 0, first; ; from, to = to, min(2*to, most) {
		for i, shape := range h.request.Shapes {
			h.step(c.result.Variant, fmt.Sprintf("%d rounds of %s", to, shape))
			samples, err := h.sample(ctx, c, best, shape, h.request.timings(from, to))
			if err != nil || !c.ok() {
				return err
			}
			pairs[i].Parent, pairs[i].Variant = append(pairs[i].Parent, samples[0]...), append(pairs[i].Variant, samples[1]...)
		}
		c.result.Rounds = to
		speedup := measure.CompareSpeed(pairs)
		if speedup.Low > 1+screenFloor || speedup.High <= 1+screenFloor || to == most {
			h.decide(c, best, pairs, speedup)
			return nil
		}
	}
}

// decide sets the result of a screening: the ratio times the cost of the best so far, so that a drift
// of the clocks since then cancels.
func (h *harness) decide(c, best *Candidate, pairs []measure.Pair, speedup measure.Speedup) {
	c.result.Ratio, c.result.Shapes = &speedup, nil
	for i, shape := range h.request.Shapes {
		one := measure.CompareSpeed(pairs[i : i+1])
		cost := measure.Summarize(pairs[i].Variant).P50
		c.result.Shapes = append(c.result.Shapes, h.request.shapeResult(shape, cost, &one))
	}
	c.setCost(*best.result.Cost/speedup.Ratio, speedup.Low > 1+screenFloor)
}

// estimate is the candidate's time over that of the best so far, by one timed launch on each shape.
// Launches include the host's overhead, so that it understates large ratios of short kernels.
func (h *harness) estimate(ctx context.Context, c, best *Candidate) (float64, error) {
	logs := 0.0
	for _, shape := range h.request.Shapes {
		all, err := h.pipeline.Time(ctx, h.inputs[shape], device.Plan{Samples: 1, Estimate: true}, best.build, c.build)
		if err != nil {
			return 0, c.timingFailed(ctx, err, "a launch of", shape)
		}
		logs += math.Log(slices.Min(all[1].Single) / slices.Min(all[0].Single))
	}
	return math.Exp(logs / float64(len(h.request.Shapes))), nil
}
