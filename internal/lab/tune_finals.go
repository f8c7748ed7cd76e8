package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"attune/internal/device"
	"attune/internal/measure"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
)

const (
	finalRounds = 60 // of each shape, over all processes
	finalCalls  = 8  // measurements of the energy on each shape
)

// finals checks the best variants on all shapes and seeds, times them together with the default, and
// makes the record. A variant is called best only if it is better than the default beyond doubt.
func (t *tuning) finals(ctx context.Context) (*run.Tuning, error) {
	chosen, failed, err := t.finalists(ctx)
	if err != nil {
		return nil, err
	}
	var rows []run.TunedVariant // the default, then chosen
	for {
		var wrong *finalist
		if rows, wrong, err = t.compareFinalists(ctx, chosen); err != nil {
			return nil, err
		}
		if wrong == nil {
			break
		}
		failed = append(failed, wrong.row())
		chosen = slices.DeleteFunc(chosen, func(f *finalist) bool { return f == wrong })
	}
	elites := rows[1:]
	slices.SortStableFunc(elites, func(a, b run.TunedVariant) int { return -cmpRatio(a, b) })
	result := t.describe(rows[0], append(elites, failed...))
	if len(elites) > 0 && elites[0].Verdict == measure.Faster {
		result.Best, result.Faster = elites[0], true
	}
	return result, nil
}

func cmpRatio(a, b run.TunedVariant) int {
	switch {
	case a.Ratio.Ratio < b.Ratio.Ratio:
		return -1
	case a.Ratio.Ratio > b.Ratio.Ratio:
		return 1
	}
	return 0
}

// finalist is a variant in the finals. Its trial collects what is wrong with it.
type finalist struct {
	*entrant
	trial *trial
}

// row describes the variant without its measurement.
func (f *finalist) row() run.TunedVariant {
	e := &f.TuneEvaluation
	return run.TunedVariant{
		Variant: e.Variant, CodeHash: e.CodeHash, Registers: e.Registers, SharedBytes: e.SharedBytes, Origin: e.Origin, Patch: e.Patch, Number: e.Number,
		Failure: f.trial.e.Failure, Reason: f.trial.e.Reason,
	}
}

// finalists checks the best variants, in their order, until enough are correct on all shapes and
// seeds. It also returns the wrong ones. The default must be correct.
func (t *tuning) finalists(ctx context.Context) (chosen []*finalist, failed []run.TunedVariant, err error) {
	standard, err := t.checkFinalist(ctx, t.standard)
	if err != nil {
		return nil, nil, err
	}
	if err := standard.trial.mustRun(); err != nil {
		return nil, nil, err
	}
	elites := t.request.Options.Elites
	for _, e := range t.ranked() {
		is := func(f *finalist) bool { return f.Name() == e.Name() } // a better one was simplified to it
		if e == t.standard || len(chosen) == elites || len(failed) == elites || slices.ContainsFunc(chosen, is) {
			continue
		}
		f, err := t.checkFinalist(ctx, e)
		if err != nil {
			return nil, nil, err
		}
		f.simplify()
		if f.trial.e.OK() && len(chosen) == 0 {
			if f, err = t.resetTies(ctx, f); err != nil {
				return nil, nil, err
			}
		}
		if f.trial.e.OK() {
			chosen = append(chosen, f)
		} else {
			failed = append(failed, f.row())
		}
	}
	return chosen, failed, nil
}

func (t *tuning) checkFinalist(ctx context.Context, e *entrant) (*finalist, error) {
	t.step(e.Variant, "correctness on all shapes")
	f := &finalist{e, t.newTrial(e.lab, e.variant, nil, e.Origin)}
	err := t.ready(e)
	if err != nil && f.trial.foreign() && ctx.Err() == nil {
		f.trial.fail(run.FailedCompile, err.Error(), err)
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	f.trial.build, f.trial.e.Arch = e.build, e.Arch
	shapes := slices.Clone(t.request.Shapes)
	for _, s := range t.request.Small {
		if !slices.Contains(shapes, s) {
			shapes = append(shapes, s)
		}
	}
	err = f.trial.checkInstances(ctx, shapes, t.request.Seeds)
	if err != nil && f.trial.foreign() && ctx.Err() == nil {
		f.trial.fail(run.FailedCrashed, err.Error(), err)
		err = nil
	}
	return f, err
}

// simplify resets the knobs of a finalist that change no code, so that the result names what matters.
// A patched kernel is kept as it was proposed.
func (f *finalist) simplify() {
	t := f.trial.tuning
	if f.lab != t.Lab {
		return
	}
	for _, setting := range strings.Split(f.Variant, "+")[1:] {
		v, err := f.without(setting)
		if err != nil {
			continue // the knob's own value breaks a constraint
		}
		b, err := t.builds.launchable(v)
		t.builds.forget(v)
		if err == nil && codeOf(t.problem(), b) == codeOf(t.problem(), f.build) {
			simpler := *f.entrant
			simpler.Variant, simpler.variant, simpler.build = v.String(), v, b
			f.entrant = &simpler
		}
	}
}

// resetTies resets the knobs of the best variant that do not change its simulated cost: the result
// names what matters. Times are never equal.
func (t *tuning) resetTies(ctx context.Context, f *finalist) (*finalist, error) {
	if t.request.Objective != run.ObjectiveCost || f.lab != t.Lab || *f.Cost >= *t.standard.Cost {
		return f, nil
	}
	for _, setting := range strings.Split(f.Variant, "+")[1:] {
		v, err := f.without(setting)
		if err != nil {
			continue // the knob's own value breaks a constraint
		}
		c := t.newTrial(nil, v, nil, f.Origin)
		if err := c.evaluate(ctx); err != nil {
			return nil, err
		}
		if !c.e.OK() || *c.e.Cost != *f.Cost {
			continue
		}
		c.e.Number, c.e.Best = f.Number, f.Best
		simpler, err := t.checkFinalist(ctx, &entrant{c.e, t.Lab, v, c.build})
		if err != nil {
			return nil, err
		}
		if simpler.trial.e.OK() {
			f = simpler
		}
	}
	return f, nil
}

// without is the variant with the stage's value of a knob.
func (f *finalist) without(setting string) (spec.Variant, error) {
	name := strings.Replace(f.Variant+"+", "+"+setting+"+", "+", 1)
	return f.trial.Kernel.Variant(strings.TrimSuffix(name, "+"))
}

// compareFinalists measures the default and the finalists. It returns the finalist that turned out to
// be wrong, if there is one.
func (t *tuning) compareFinalists(ctx context.Context, chosen []*finalist) ([]run.TunedVariant, *finalist, error) {
	if t.request.Objective == run.ObjectiveCost {
		return t.simulatedRows(chosen), nil, nil
	}
	samples := make([][]measure.Interleaved, len(chosen)+1) // by finalist, the default as B first; by shape
	for i := range samples {
		samples[i] = make([]measure.Interleaved, len(t.request.Shapes))
	}
	sessions := t.newSessions(t.request.Processes)
	defer sessions.close()
	t.session.close() // a GPU may allow only one process
	for process, s := range sessions {
		for at, shape := range t.request.Shapes {
			t.step(fmt.Sprintf("%d variants", len(chosen)+1), "finals on "+shape.String())
			rounds := share(t.finalRounds()/2, process, len(sessions)) * 2
			all, wrong, err := t.timeFinalists(ctx, s, shape, rounds, chosen)
			if err != nil || wrong != nil {
				return nil, wrong, err
			}
			control := all[len(all)-1]
			for i := range samples {
				joined := appendTurns(samples[i][at], [][]float64{all[0], all[i], control})
				joined.Processes = samples[i][at].Processes
				if len(sessions) > 1 && len(control) > 1 {
					joined.Processes = append(joined.Processes, len(control))
				}
				samples[i][at] = joined
			}
		}
		s.close()
	}
	rows := []run.TunedVariant{t.timedRow(&finalist{t.standard, t.newTrial(nil, t.standard.variant, nil, "")}, samples[0])}
	rows[0].Ratio, rows[0].Verdict = &measure.Speedup{Ratio: 1, Low: 1, High: 1}, measure.Same
	for i, f := range chosen {
		rows = append(rows, t.timedRow(f, samples[i+1]))
	}
	return rows, nil, nil
}

func (t *tuning) finalRounds() int {
	if t.request.Objective == run.ObjectiveEnergy {
		return max(finalCalls, 2*t.request.Processes)
	}
	return max(finalRounds, 4*t.request.Processes)
}

// timeFinalists measures the default, all finalists and the default again, interleaved. If the device
// is lost, it looks for the finalist that loses it alone.
func (t *tuning) timeFinalists(ctx context.Context, s *session, shape spec.Shape, rounds int, chosen []*finalist) ([][]float64, *finalist, error) {
	ref := t.inputs[shape]
	builds := []problem.Build{t.standard.build}
	for _, f := range chosen {
		builds = append(builds, f.build)
	}
	builds = append(builds, t.standard.build)
	samples := make([][]float64, len(builds))
	for _, plan := range t.plans(0, rounds) {
		all, err := t.time(ctx, s, ref, plan, builds...)
		if err != nil && ctx.Err() == nil && device.Classify(err).LosesDevice() {
			wrong, alone := t.loses(ctx, s, ref, plan, chosen)
			if wrong == nil && alone == nil {
				wrong = blame(chosen, err)
			}
			return nil, wrong, errors.Join(alone, missingCulprit(wrong, err))
		}
		if err != nil {
			return nil, nil, fmt.Errorf("finals on %s: %w", shape, err)
		}
		for i, one := range all {
			if len(one.wrong) == 0 {
				continue
			}
			if i == 0 || i == len(all)-1 {
				wrong := timedWrong(t.standard.build, shape, one.wrong[0])
				if f := blame(chosen, wrong); f != nil {
					return nil, f, nil
				}
				return nil, nil, wrong
			}
			f := chosen[i-1]
			f.trial.fail(run.FailedIncorrect, fmt.Sprintf("timing %s: %s", shape, one.wrong[0]), nil)
			return nil, f, nil
		}
		more, err := t.observations(all)
		if err != nil {
			return nil, nil, err
		}
		for i := range samples {
			samples[i] = append(samples[i], more[i]...)
		}
	}
	return samples, nil, nil
}

// blame fails the first patched kernel of the finals for an error that the others did not have
// without it; nil if there is none.
func blame(chosen []*finalist, err error) *finalist {
	for _, f := range chosen {
		if f.trial.foreign() {
			f.trial.fail(run.FailedIncorrect, "timed beside it, "+err.Error(), err)
			return f
		}
	}
	return nil
}

// missingCulprit is the error of a lost device that no finalist loses alone.
func missingCulprit(found *finalist, err error) error {
	if found != nil {
		return nil
	}
	return fmt.Errorf("the device was lost in the finals, and by no variant alone: %w; --resume repeats the finals", err)
}

// loses returns the first finalist that loses the device when it is timed alone.
func (t *tuning) loses(ctx context.Context, s *session, ref problem.Reference, plan device.Plan, chosen []*finalist) (*finalist, error) {
	for _, f := range chosen {
		_, err := t.time(ctx, s, ref, plan, f.build)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil && f.trial.failOnDevice(err) {
			return f, nil
		}
	}
	return nil, nil
}

// timedRow compares a variant with the default on all shapes.
func (t *tuning) timedRow(f *finalist, samples []measure.Interleaved) run.TunedVariant {
	row := f.row()
	floor, logs := 0.0, 0.0
	mean := measure.Speedup{Ratio: 1, Low: 1, High: 1}
	n := float64(len(samples))
	for i, c := range measure.Compare(samples) {
		cost := measure.Summarize(samples[i].B).P50
		logs += math.Log(cost) / n
		floor += math.Log(1+c.Floor) / n
		one := measure.Speedup{Ratio: c.Ratio, Low: c.Low, High: c.High}
		mean.Ratio *= math.Pow(one.Ratio, 1/n)
		mean.Low *= math.Pow(one.Low, 1/n)
		mean.High *= math.Pow(one.High, 1/n)
		row.Shapes = append(row.Shapes, t.shapeResult(t.request.Shapes[i], cost, &one))
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
func (t *tuning) simulatedRows(chosen []*finalist) []run.TunedVariant {
	standard := &finalist{t.standard, t.newTrial(nil, t.standard.variant, nil, "")}
	var rows []run.TunedVariant
	for _, f := range append([]*finalist{standard}, chosen...) {
		row := f.row()
		ratio := *t.standard.Cost / *f.Cost
		row.Cost, row.Shapes, row.Shape = f.Cost, f.Shapes, f.Shapes[0].Shape
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

// describe makes the record of the search. The best is the default until a variant is better.
func (t *tuning) describe(standard run.TunedVariant, elites []run.TunedVariant) *run.Tuning {
	r := &run.Tuning{
		SchemaVersion: run.TuningSchemaVersion, MessageType: "tuning", ID: t.document.ID, Time: t.document.Time,
		Kernel: t.Kernel.Name, Stage: t.request.Variant.Stage().Name,
		Objective: t.request.Objective, Unit: run.ObjectiveUnit(t.request.Objective), Identity: t.document.Identity,
		Best: standard, Default: standard, Elites: append([]run.TunedVariant{}, elites...),
		Evaluations: t.counted, EqualCode: len(t.evaluations) - t.counted, Failures: map[string]int{}, Ended: t.ended,
		Seconds: t.spent().Seconds(), Facts: t.Device.facts, Git: t.Git, GitSHA: t.Git.SHA, Attune: t.Version,
	}
	if n, exact := t.space.Size(); exact {
		r.Variants = &n
	}
	for _, e := range t.evaluations {
		if e.OK() || e.SameAs != "" {
			continue
		}
		if r.Failures[e.Failure]++; r.Failures[e.Failure] == 1 {
			r.FirstFailures = append(r.FirstFailures, run.TuneFailure{Kind: e.Failure, Variant: e.Name(), Reason: e.Reason})
		}
	}
	r.Effects = t.effects()
	return r
}

// effects are those of the knobs. An evaluation whose variant was found to be wrong later is a failure.
func (t *tuning) effects() []tune.KnobEffect {
	all := slices.Clone(t.searcher.Evaluations())
	for i := range all {
		all[i].Failure = tune.Failure(t.evaluations[i].Failure)
	}
	return tune.Effects(t.space, all)
}

// finish writes the record into the ledger, or into the folder of the search if there is no ledger.
func (t *tuning) finish(ctx context.Context, result *run.Tuning) error {
	if t.folder == "" {
		return nil
	}
	files, err := t.files(result)
	if err != nil {
		return err
	}
	if t.Ledger == nil || t.request.Folder != "" {
		return writeAll(t.folder, files)
	}
	if err := t.Ledger.RecordTuning(ctx, files); err != nil {
		return fmt.Errorf("%w; --resume records it", err)
	}
	return t.Ledger.RemoveUnfinishedTuning(t.document.ID)
}

// files are those of the record.
func (t *tuning) files(result *run.Tuning) (map[string][]byte, error) {
	files, err := t.folderFiles()
	if err != nil {
		return nil, err
	}
	if files[run.TuningFile], err = result.Document(); err != nil {
		return nil, err
	}
	return files, t.addDescription(files, run.FinishedSearch{Tuning: result, Evaluations: t.evaluations})
}
