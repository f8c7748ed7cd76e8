package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"attune/internal/device"
	"attune/internal/measure"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
)

const (
	// aloneRounds are the samples of the default on each shape.
	aloneRounds = 12
	// A screening starts with screenRounds on each shape, interleaved with the best variant so far. The
	// rounds double while the candidate may still be better, up to maxScreenRounds.
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

// loadInputs computes the references of the plain instances, on which variants are timed.
func (t *tuning) loadInputs(ctx context.Context) error {
	t.inputs = map[spec.Shape]problem.Reference{}
	for _, shape := range slices.Concat(t.request.Small, t.request.Shapes) {
		t.step(t.request.Variant.String(), "reference of "+shape.String())
		ref, err := t.refs.Get(ctx, t.problem().Plain(shape, t.request.Seeds[0]))
		if err != nil {
			return err
		}
		t.inputs[shape] = ref
	}
	return nil
}

// observations are what the objective is computed from: samples of the time, or energies of launches.
func (t *tuning) observations(all []timed) ([][]float64, error) {
	series := make([]device.Series, len(all))
	for i, one := range all {
		series[i] = one.Series
	}
	if t.request.Objective == run.ObjectiveTime {
		kept, _, _ := device.Steady(2, series...)
		return kept, nil
	}
	joules := make([][]float64, len(series))
	for i, one := range series {
		if one.Joules <= 0 {
			return nil, RequestError("this GPU does not report energy; use --objective time")
		}
		joules[i] = []float64{one.Joules}
	}
	return joules, nil
}

// plans are the measurements of a shape that take it from some rounds to more. The first one times
// launches on new inputs too.
func (t *tuning) plans(from, to int) []device.Plan {
	if t.request.Objective == run.ObjectiveTime {
		return []device.Plan{{Samples: to - from, Fresh: from == 0}}
	}
	var all []device.Plan
	for i := from; i < to; i++ {
		all = append(all, device.Plan{Samples: energySamples, Energy: true, Fresh: i == 0})
	}
	return all
}

// timeAlone times the default, with which the search starts.
func (c *trial) timeAlone(ctx context.Context) error {
	rounds := aloneRounds
	if c.request.Objective == run.ObjectiveEnergy {
		rounds = energyCalls
	}
	logs := 0.0
	for _, shape := range c.request.Shapes {
		samples, err := c.sample(ctx, shape, c.plans(0, rounds), c.build)
		if err != nil || !c.e.OK() {
			return err
		}
		cost := measure.Summarize(samples[0]).P50
		c.e.Shapes = append(c.e.Shapes, c.shapeResult(shape, cost, nil))
		logs += math.Log(cost)
	}
	c.e.Rounds = rounds
	c.setCost(math.Exp(logs/float64(len(c.request.Shapes))), true)
	return nil
}

// shapeResult is the result on a shape, whose cost is a time unless the objective is energy.
func (t *tuning) shapeResult(shape spec.Shape, cost float64, ratio *measure.Speedup) run.TuneShape {
	s := run.TuneShape{Shape: shape.String(), Cost: cost, Ratio: ratio}
	if t.request.Objective == run.ObjectiveTime {
		us := 1e6 * cost
		s.P50US = &us
	}
	return s
}

// sample measures builds on a shape, interleaved; the last one is the candidate. A failure of the
// candidate ends the evaluation.
func (c *trial) sample(ctx context.Context, shape spec.Shape, plans []device.Plan, builds ...problem.Build) ([][]float64, error) {
	samples := make([][]float64, len(builds))
	for _, plan := range plans {
		all, err := c.time(ctx, c.session, c.inputs[shape], plan, builds...)
		if err != nil {
			if ctx.Err() == nil && c.failOnDevice(err) {
				c.e.Reason = fmt.Sprintf("timing %s: %s", shape, c.e.Reason)
				return nil, nil
			}
			return nil, fmt.Errorf("time %s on %s: %w", c.e.Variant, shape, err)
		}
		if err := c.wrongTimes(shape, all); err != nil || !c.e.OK() {
			return nil, err
		}
		more, err := c.observations(all)
		if err != nil {
			return nil, err
		}
		for i := range samples {
			samples[i] = append(samples[i], more[i]...)
		}
	}
	return samples, nil
}

// errDemoted ends a screening whose incumbent was wrong.
var errDemoted = errors.New("the best variant so far is wrong")

// wrongTimes fails a candidate whose timed launches were wrong. An incumbent whose launches are
// wrong this time loses its place.
func (c *trial) wrongTimes(shape spec.Shape, all []timed) error {
	last := len(all) - 1
	if wrong := all[last].wrong; len(wrong) > 0 {
		c.fail(run.FailedIncorrect, fmt.Sprintf("timing %s: %s", shape, wrong[0]), nil)
		return nil
	}
	for _, one := range all[:last] {
		if len(one.wrong) == 0 {
			continue
		}
		if c.best == c.standard {
			return timedWrong(c.best.build, shape, one.wrong[0])
		}
		return errDemoted
	}
	return nil
}

// screen compares the candidate with the best variant so far. If that one turns out to be wrong, the
// next best takes its place and the screening starts again.
func (c *trial) screen(ctx context.Context) error {
	for {
		if err := c.ready(c.best); err != nil {
			return err
		}
		err := c.screenOnce(ctx)
		if !errors.Is(err, errDemoted) {
			return err
		}
		if c.foreign() { // it may have written what the other launches read
			c.fail(run.FailedIncorrect, fmt.Sprintf("launches of %s that were timed beside it were wrong", c.best.Name()), nil)
			return nil
		}
		c.e.Demoted = append(c.e.Demoted, c.best.Name())
		c.demote(c.best.Name())
		c.e.Shapes, c.e.Ratio = nil, nil
	}
}

// screenOnce estimates the candidate by a few launches, then takes rounds while it may still win.
func (c *trial) screenOnce(ctx context.Context) error {
	c.e.Against = c.best.Name()
	ratio, err := c.estimate(ctx)
	if err != nil || !c.e.OK() {
		return err
	}
	if ratio > hopeless {
		c.e.Ratio = &measure.Speedup{Ratio: 1 / ratio, Low: 1 / ratio, High: 1 / ratio}
		c.setCost(ratio**c.best.Cost, false)
		return nil
	}
	first, most := screenRounds, maxScreenRounds
	if c.request.Objective == run.ObjectiveEnergy {
		first, most = energyCalls, maxEnergyCalls
	}
	pairs := make([]measure.Pair, len(c.request.Shapes))
	for from, to := 0, first; ; from, to = to, min(2*to, most) {
		for i, shape := range c.request.Shapes {
			c.step(c.e.Variant, fmt.Sprintf("%d rounds of %s", to, shape))
			samples, err := c.sample(ctx, shape, c.plans(from, to), c.best.build, c.build)
			if err != nil || !c.e.OK() {
				return err
			}
			pairs[i].Parent, pairs[i].Variant = append(pairs[i].Parent, samples[0]...), append(pairs[i].Variant, samples[1]...)
		}
		c.e.Rounds = to
		s := measure.CompareSpeed(pairs)
		if s.Low > 1+screenFloor || s.High <= 1+screenFloor || to == most {
			c.decide(pairs, s)
			return nil
		}
	}
}

// decide sets the result of a screening: the ratio times the cost of the best so far, so that a drift
// of the clocks since then cancels.
func (c *trial) decide(pairs []measure.Pair, s measure.Speedup) {
	c.e.Ratio, c.e.Shapes = &s, nil
	for i, shape := range c.request.Shapes {
		one := measure.CompareSpeed(pairs[i : i+1])
		cost := measure.Summarize(pairs[i].Variant).P50
		c.e.Shapes = append(c.e.Shapes, c.shapeResult(shape, cost, &one))
	}
	c.setCost(*c.best.Cost/s.Ratio, s.Low > 1+screenFloor)
}

// estimate is the candidate's time over that of the best so far, by one timed launch on each shape.
// Launches include the host's overhead, so that it understates large ratios of short kernels.
func (c *trial) estimate(ctx context.Context) (float64, error) {
	logs := 0.0
	for _, shape := range c.request.Shapes {
		all, err := c.time(ctx, c.session, c.inputs[shape], device.Plan{Samples: 1, Estimate: true}, c.best.build, c.build)
		if err != nil {
			if ctx.Err() == nil && c.failOnDevice(err) {
				c.e.Reason = fmt.Sprintf("a launch of %s: %s", shape, c.e.Reason)
				return 0, nil
			}
			return 0, fmt.Errorf("time %s on %s: %w", c.e.Variant, shape, err)
		}
		logs += math.Log(slices.Min(all[1].Single) / slices.Min(all[0].Single))
	}
	return math.Exp(logs / float64(len(c.request.Shapes))), nil
}

// ready makes the build of an entrant again, if it comes from the journal.
func (t *tuning) ready(e *entrant) error {
	if e.build.Image != nil {
		return nil
	}
	if e.lab != t.Lab {
		builds := e.lab.startBuilds(context.Background(), t.request.Arch, e.variant)
		defer builds.stop()
		build, err := builds.launchable(e.variant)
		e.build = build
		return err
	}
	build, err := t.builds.launchable(e.variant)
	e.build = build
	t.builds.forget(e.variant)
	return err
}
