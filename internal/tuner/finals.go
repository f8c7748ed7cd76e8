package tuner

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"attune/internal/device"
	"attune/internal/lab"
	"attune/internal/measure"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
)

const (
	finalRounds = 60 // of each shape, over all processes
	finalCalls  = 8  // measurements of the energy on each shape
)

// finals makes the record of the search. A candidate is called best only if it is better than the
// default beyond doubt.
func (s *search) finals(ctx context.Context) (*run.Tuning, error) {
	standing, err := s.concludeSomewhere(ctx)
	if err != nil {
		return nil, err
	}
	elites := standing.Rows[1:]
	slices.SortStableFunc(elites, func(a, b run.TunedVariant) int { return cmp.Compare(b.Ratio.Ratio, a.Ratio.Ratio) })
	result := s.describe(standing.Rows[0], append(elites, standing.Failed...))
	if len(elites) > 0 && elites[0].Verdict == measure.Faster {
		result.Best, result.Faster = elites[0], true
	}
	return result, nil
}

// concludeSomewhere does the finals here, or elsewhere.
func (s *search) concludeSomewhere(ctx context.Context) (*Standing, error) {
	if s.request.Elsewhere == nil {
		return s.conclude(ctx)
	}
	f := Finals{Plan: s.request.asPlan(), Candidates: []run.TuneEvaluation{s.standings.standard.result}, Search: s.document.ID}
	for _, c := range s.standings.ranked() {
		if c != s.standings.standard && len(f.Candidates) <= 2*s.request.Options.Elites {
			f.Candidates = append(f.Candidates, c.result)
		}
	}
	s.harness.step(fmt.Sprintf("%d variants", len(f.Candidates)), "finals on the fleet")
	return s.request.Elsewhere.Conclude(ctx, f)
}

// conclude checks the best candidates on all shapes and seeds, and times them together with the
// default.
func (s *search) conclude(ctx context.Context) (*Standing, error) {
	standard, chosen, failed, err := s.choose(ctx)
	if err != nil {
		return nil, err
	}
	for {
		rows, wrong, err := s.compare(ctx, standard, chosen)
		if err != nil {
			return nil, err
		}
		if wrong == nil {
			return &Standing{Rows: rows, Failed: failed}, nil
		}
		failed = append(failed, wrong.row())
		chosen = slices.DeleteFunc(chosen, func(c *Candidate) bool { return c == wrong })
	}
}

// choose checks the best candidates, in their order, until enough are correct on all shapes and
// seeds. It also returns the wrong ones. The default must be correct. Candidates of the finals are
// copies: their failures do not change the standings.
func (s *search) choose(ctx context.Context) (standard *Candidate, chosen []*Candidate, failed []run.TunedVariant, err error) {
	if standard, err = s.checkAll(ctx, s.standings.standard); err == nil {
		err = standard.mustRun()
	}
	if err != nil {
		return nil, nil, nil, err
	}
	elites := s.request.Options.Elites
	for _, one := range s.standings.ranked() {
		same := func(c *Candidate) bool { return c.name() == one.name() } // a better one was simplified to it
		if one == s.standings.standard || len(chosen) == elites || len(failed) == elites || slices.ContainsFunc(chosen, same) {
			continue
		}
		c, err := s.checkAll(ctx, one)
		if err != nil {
			return nil, nil, nil, err
		}
		s.simplify(c)
		if c.ok() && len(chosen) == 0 {
			if c, err = s.resetTies(ctx, c); err != nil {
				return nil, nil, nil, err
			}
		}
		if c.ok() {
			chosen = append(chosen, c)
		} else {
			failed = append(failed, c.row())
		}
	}
	return standard, chosen, failed, nil
}

// checkAll checks a copy of a candidate on all shapes and seeds, and on the simulator beside a GPU.
func (s *search) checkAll(ctx context.Context, of *Candidate) (*Candidate, error) {
	s.harness.step(of.result.Variant, "correctness on all shapes")
	err := s.harness.rebuild(ctx, of)
	c := of.copy()
	if err != nil && c.Patch != nil && ctx.Err() == nil {
		c.fail(run.FailedCompile, err.Error(), err)
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	shapes := slices.Clone(s.request.Shapes)
	for _, small := range s.request.Small {
		if !slices.Contains(shapes, small) {
			shapes = append(shapes, small)
		}
	}
	s.harness.pipeline.Simulate(c.build)
	err = s.harness.check(ctx, c, shapes, s.request.Seeds)
	if err == nil && c.ok() {
		err = s.harness.prove(ctx, c)
	}
	if err != nil && c.Patch != nil && ctx.Err() == nil {
		c.fail(run.FailedCrashed, err.Error(), err)
		err = nil
	}
	return c, err
}

// simpler are the variants of a candidate with the stage's value of one more knob, each made from the
// last one that keep accepted.
func (s *search) simpler(c *Candidate, keep func(spec.Variant) (accepted bool, err error)) error {
	name := c.result.Variant
	for _, setting := range strings.Split(name, "+")[1:] {
		shorter := strings.TrimSuffix(strings.Replace(name+"+", "+"+setting+"+", "+", 1), "+")
		v, err := s.harness.lab.Kernel.Variant(shorter)
		if err != nil {
			continue // the knob's own value breaks a constraint
		}
		accepted, err := keep(v)
		if err != nil {
			return err
		}
		if accepted {
			name = v.String()
		}
	}
	return nil
}

// simplify resets the knobs of a candidate that change no code, so that the result names what
// matters. A patched kernel is kept as it was proposed.
func (s *search) simplify(c *Candidate) {
	if c.Patch != nil {
		return
	}
	_ = s.simpler(c, func(v spec.Variant) (bool, error) { // it returns no error
		b, err := s.harness.pipeline.Build(v)
		if err != nil || lab.CodeOf(s.harness.lab.Problem, b) != lab.CodeOf(s.harness.lab.Problem, c.build) {
			return false, nil
		}
		c.Variant, c.build, c.result.Variant = v, b, v.String()
		return true, nil
	})
}

// resetTies resets the knobs of the best candidate that do not change its simulated cost: the result
// names what matters. Times are never equal.
func (s *search) resetTies(ctx context.Context, best *Candidate) (*Candidate, error) {
	if s.request.Objective != run.ObjectiveCost || best.Patch != nil || *best.result.Cost >= *s.standings.standard.result.Cost {
		return best, nil
	}
	err := s.simpler(best, func(v spec.Variant) (bool, error) {
		c := Candidate{Variant: v, Origin: best.result.Origin}.start(s.request.Objective)
		if err := s.evaluate(ctx, c); err != nil {
			return false, err
		}
		if !c.ok() || *c.result.Cost != *best.result.Cost {
			return false, nil
		}
		c.result.Number, c.result.Best = best.result.Number, best.result.Best
		checked, err := s.checkAll(ctx, c)
		if err != nil || !checked.ok() {
			return false, err
		}
		best = checked
		return true, nil
	})
	return best, err
}

// compare measures the default and the chosen candidates. It returns the candidate that turned out to
// be wrong, if there is one.
func (s *search) compare(ctx context.Context, standard *Candidate, chosen []*Candidate) ([]run.TunedVariant, *Candidate, error) {
	if s.request.Objective == run.ObjectiveCost {
		return simulatedRows(standard, chosen), nil, nil
	}
	samples := make([][]measure.Interleaved, len(chosen)+1) // by candidate, the default as B first; by shape
	for i := range samples {
		samples[i] = make([]measure.Interleaved, len(s.request.Shapes))
	}
	processes := max(1, s.request.Processes)
	for process := range processes {
		s.harness.pipeline.Release() // the next timing opens a fresh process; a GPU may allow only one
		for at, shape := range s.request.Shapes {
			s.harness.step(fmt.Sprintf("%d variants", len(chosen)+1), "finals on "+shape.String())
			rounds := measure.Share(s.request.finalRounds()/2, process, processes) * 2
			all, wrong, err := s.harness.timeTogether(ctx, shape, rounds, standard, chosen)
			if err != nil || wrong != nil {
				return nil, wrong, err
			}
			control := all[len(all)-1]
			for i := range samples {
				joined := samples[i][at].Append([][]float64{all[0], all[i], control})
				if processes > 1 && len(control) > 1 {
					joined.Processes = append(joined.Processes, len(control))
				}
				samples[i][at] = joined
			}
		}
	}
	s.harness.pipeline.Release()
	rows := []run.TunedVariant{s.request.timedRow(standard, samples[0])}
	rows[0].Ratio, rows[0].Verdict = &measure.Speedup{Ratio: 1, Low: 1, High: 1}, measure.Same
	for i, c := range chosen {
		rows = append(rows, s.request.timedRow(c, samples[i+1]))
	}
	return rows, nil, nil
}

// finalRounds is the number of rounds or measurements of each shape.
func (r *Request) finalRounds() int {
	return max(r.byObjective(finalRounds, finalCalls), r.byObjective(4, 2)*r.Processes)
}

// timeTogether measures the default, some candidates and the default again, interleaved. If the
// device is lost, it looks for the candidate that loses it alone.
func (h *harness) timeTogether(ctx context.Context, shape spec.Shape, rounds int, standard *Candidate, others []*Candidate) ([][]float64, *Candidate, error) {
	builds := []problem.Build{standard.build}
	for _, c := range others {
		builds = append(builds, c.build)
	}
	builds = append(builds, standard.build)
	samples := make([][]float64, len(builds))
	for _, plan := range h.request.timings(0, rounds) {
		all, err := h.pipeline.Time(ctx, h.inputs[shape], plan, builds...)
		if err != nil && ctx.Err() == nil && device.Classify(err).LosesDevice() {
			culprit, err := h.culprit(ctx, shape, plan, others, err)
			return nil, culprit, err
		}
		if err != nil {
			return nil, nil, fmt.Errorf("finals on %s: %w", shape, err)
		}
		if wrong, err := failWrong(shape, all, standard, others); wrong != nil || err != nil {
			return nil, wrong, err
		}
		more, err := h.request.observations(all)
		if err != nil {
			return nil, nil, err
		}
		for i := range samples {
			samples[i] = append(samples[i], more[i]...)
		}
	}
	return samples, nil, nil
}

// failWrong fails and returns the first candidate whose timed launches were wrong. A patched one is
// blamed for wrong launches of the default.
func failWrong(shape spec.Shape, all []lab.Timed, standard *Candidate, others []*Candidate) (*Candidate, error) {
	for i, one := range all {
		switch {
		case len(one.Wrong) == 0:
			continue
		case i == 0 || i == len(all)-1:
			wrong := lab.TimedWrong(standard.build, shape, one.Wrong[0])
			if c := blame(others, wrong); c != nil {
				return c, nil
			}
			return nil, wrong
		}
		others[i-1].fail(run.FailedIncorrect, fmt.Sprintf("timing %s: %s", shape, one.Wrong[0]), nil)
		return others[i-1], nil
	}
	return nil, nil
}

// blame fails the first patched candidate for an error that the others did not have without it; nil
// if there is none.
func blame(all []*Candidate, err error) *Candidate {
	for _, c := range all {
		if c.Patch != nil {
			c.fail(run.FailedIncorrect, "timed beside it, "+err.Error(), err)
			return c
		}
	}
	return nil
}

// culprit is the first candidate that loses the device when it is timed alone, or else a patched one.
func (h *harness) culprit(ctx context.Context, shape spec.Shape, plan device.Plan, all []*Candidate, lost error) (*Candidate, error) {
	for _, c := range all {
		_, err := h.pipeline.Time(ctx, h.inputs[shape], plan, c.build)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil && c.failOnDevice(err) {
			return c, nil
		}
	}
	if c := blame(all, lost); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("the device was lost in the finals, and by no variant alone: %w; --resume repeats the finals", lost)
}

// timedRow compares a candidate with the default on all shapes.
func (r *Request) timedRow(c *Candidate, samples []measure.Interleaved) run.TunedVariant {
	row := c.row()
	floor, logs := 0.0, 0.0
	mean := measure.Speedup{Ratio: 1, Low: 1, High: 1}
	n := float64(len(samples))
	for i, found := range measure.Compare(samples) {
		cost := measure.Summarize(samples[i].B).P50
		logs += math.Log(cost) / n
		floor += math.Log(1+found.Floor) / n
		one := measure.Speedup{Ratio: found.Ratio, Low: found.Low, High: found.High}
		mean.Ratio *= math.Pow(one.Ratio, 1/n)
		mean.Low *= math.Pow(one.Low, 1/n)
		mean.High *= math.Pow(one.High, 1/n)
		row.Shapes = append(row.Shapes, r.shapeResult(r.Shapes[i], cost, &one))
	}
	cost := math.Exp(logs)
	row.Cost, row.Ratio = &cost, &mean
	row.Shape, row.P50US = row.Shapes[0].Shape, row.Shapes[0].P50US
	switch floor = math.Exp(floor); {
	case mean.Low > floor:
		row.Verdict = measure.Faster
	case mean.High < 1/floor:
		row.Verdict = measure.Slower
	default:
		row.Verdict = measure.Ambiguous
	}
	return row
}

// simulatedRows are the costs of the search: a cost is the same each time.
func simulatedRows(standard *Candidate, chosen []*Candidate) []run.TunedVariant {
	var rows []run.TunedVariant
	for _, c := range append([]*Candidate{standard}, chosen...) {
		row := c.row()
		ratio := *standard.result.Cost / *c.result.Cost
		row.Cost, row.Shapes, row.Shape = c.result.Cost, c.result.Shapes, c.result.Shapes[0].Shape
		row.Ratio, row.Verdict = &measure.Speedup{Ratio: ratio, Low: ratio, High: ratio}, measure.Same
		if ratio > 1 {
			row.Verdict = measure.Faster
		} else if ratio < 1 {
			row.Verdict = measure.Slower
		}
		rows = append(rows, row)
	}
	return rows
}
