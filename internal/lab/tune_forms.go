package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"attune/internal/measure"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
)

// near is how much slower than the best of a shape, after a few rounds, a form may be to be measured
// further.
const near = 1.1

// measureForms measures all forms on all shapes that they take, those of a shape interleaved.
func (t *selectionTuning) measureForms(ctx context.Context) (*tune.Measured, error) {
	forms, err := t.forms()
	if err != nil {
		return nil, err
	}
	m := &tune.Measured{Selection: t.Selection, Shapes: t.Search.Shapes, Holdout: t.Holdout, Forms: forms}
	for range forms {
		m.Costs = append(m.Costs, slices.Repeat([]float64{math.NaN()}, len(m.Shapes)))
	}
	for i, shape := range m.Shapes {
		costs, err := t.measuredShape(ctx, i, forms)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", shape, err)
		}
		for form, cost := range costs {
			m.Costs[form][i] = cost
		}
	}
	return m, nil
}

// known is a cost, nil if there is none.
func known(cost float64) *float64 {
	if math.IsNaN(cost) || math.IsInf(cost, 0) {
		return nil
	}
	return &cost
}

// measuredShape measures the forms on a shape, or reads what was measured before an interruption. The
// forms of a shape are always measured together.
func (t *selectionTuning) measuredShape(ctx context.Context, i int, forms []spec.Variant) ([]float64, error) {
	if t.folder == "" {
		return t.measureShape(ctx, i, forms)
	}
	path := filepath.Join(t.folder, shapeFolder(i, t.Search.Shapes[i])+"-forms.json")
	var kept []run.MeasuredForm
	text, err := os.ReadFile(path)
	if err == nil && json.Unmarshal(text, &kept) == nil && slices.EqualFunc(kept, forms, isOf) {
		costs := slices.Repeat([]float64{math.NaN()}, len(forms))
		for form, f := range kept {
			if f.Costs[0] != nil {
				costs[form] = *f.Costs[0]
			}
		}
		return costs, nil
	}
	costs, err := t.measureShape(ctx, i, forms)
	if err != nil {
		return nil, err
	}
	kept = nil
	for form, v := range forms {
		kept = append(kept, run.MeasuredForm{Variant: v.String(), Costs: []*float64{known(costs[form])}})
	}
	return costs, replaceJSON(path, kept)
}

func isOf(f run.MeasuredForm, v spec.Variant) bool {
	return f.Variant == v.String() && len(f.Costs) == 1
}

// measureShape measures the forms that take a shape and are correct on it; the cost of others is NaN.
func (t *selectionTuning) measureShape(ctx context.Context, i int, forms []spec.Variant) ([]float64, error) {
	r, err := t.requestFor(i)
	if err != nil {
		return nil, err
	}
	r.Folder, r.Small = "", r.Shapes
	one, err := t.newTuning(ctx, r)
	if err != nil {
		return nil, err
	}
	defer one.close()
	if err := one.loadInputs(ctx); err != nil {
		return nil, err
	}
	costs := slices.Repeat([]float64{math.NaN()}, len(forms))
	var all []*finalist
	var at []int // index in forms of each
	for _, v := range forms {
		if one.problem().CheckShapes(v, r.Shapes) == nil {
			one.builds.start(v)
		}
	}
	for form, v := range forms {
		if one.problem().CheckShapes(v, r.Shapes) != nil {
			continue
		}
		f, err := one.checkForm(ctx, v)
		if err != nil {
			return nil, err
		}
		if f.trial.e.OK() {
			all, at = append(all, f), append(at, form)
		} else if v.String() == r.Variant.String() {
			return nil, f.trial.mustRun()
		}
	}
	measured, err := one.compareForms(ctx, all)
	for j, cost := range measured {
		costs[at[j]] = cost
	}
	return costs, err
}

// checkForm builds a form and checks it on the shape.
func (t *tuning) checkForm(ctx context.Context, v spec.Variant) (*finalist, error) {
	c := t.newTrial(nil, v, nil, "form")
	c.isDefault = v.String() == t.request.Variant.String()
	f := &finalist{&entrant{variant: v, lab: t.Lab}, c}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"building", c.compile},
		{"comparing its code", c.compareCode}, // with nothing; it notes the architecture
		{"resources", c.fits},
		{"correctness", func(ctx context.Context) error { return c.checkInstances(ctx, t.request.Shapes, t.request.Seeds[:1]) }},
	} {
		t.step(v.String(), step.name)
		if err := step.do(ctx); err != nil {
			return nil, err
		}
		if !c.e.OK() {
			break
		}
	}
	f.build, f.entrant.Variant = c.build, v.String()
	if c.isDefault {
		t.standard = f.entrant
	}
	return f, nil
}

// compareForms returns the costs of correct forms on the one shape of the request; NaN for a form that
// turns out to be wrong. All are measured for a few rounds, and those near the best for more.
func (t *tuning) compareForms(ctx context.Context, all []*finalist) ([]float64, error) {
	costs := slices.Repeat([]float64{math.NaN()}, len(all))
	if t.request.Objective == run.ObjectiveCost {
		for i, f := range all {
			if err := f.trial.simulate(ctx); err != nil {
				return nil, err
			}
			if f.trial.e.OK() {
				costs[i] = *f.trial.e.Cost
			}
		}
		return costs, nil
	}
	left := all
	for _, rounds := range []int{t.firstRounds(), t.finalRounds()} {
		medians, err := t.medians(ctx, left, rounds)
		if err != nil {
			return nil, err
		}
		best := math.Inf(1)
		for i, f := range all {
			cost, ok := medians[f]
			if ok {
				costs[i], best = cost, min(best, cost)
			} else if slices.Contains(left, f) {
				costs[i] = math.NaN() // wrong while it was timed
			}
		}
		left = slices.DeleteFunc(slices.Clone(left), func(f *finalist) bool {
			cost, ok := medians[f]
			return !ok || cost > near*best && f.entrant != t.standard
		})
	}
	return costs, nil
}

func (t *tuning) firstRounds() int {
	if t.request.Objective == run.ObjectiveEnergy {
		return energyCalls
	}
	return screenRounds
}

// medians measures forms interleaved. Those that turn out to be wrong are not in the result.
func (t *tuning) medians(ctx context.Context, forms []*finalist, rounds int) (map[*finalist]float64, error) {
	forms = slices.Clone(forms)
	standard := slices.IndexFunc(forms, func(f *finalist) bool { return f.entrant == t.standard })
	own := forms[standard]
	forms = slices.Delete(forms, standard, standard+1)
	for {
		t.step(fmt.Sprintf("%d forms", len(forms)+1), fmt.Sprintf("%d rounds of %s", rounds, t.request.Shapes[0]))
		samples, wrong, err := t.timeFinalists(ctx, t.session, t.request.Shapes[0], rounds, forms)
		if err != nil {
			return nil, err
		}
		if wrong != nil {
			forms = slices.DeleteFunc(forms, func(f *finalist) bool { return f == wrong })
			continue
		}
		medians := map[*finalist]float64{own: measure.Summarize(samples[0]).P50}
		for i, f := range forms {
			medians[f] = measure.Summarize(samples[i+1]).P50
		}
		return medians, nil
	}
}
