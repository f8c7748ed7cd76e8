package tuner

import (
	"context"
	"fmt"
	"math"
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
func (s *selectionSearch) measureForms(ctx context.Context) (*tune.Measured, error) {
	forms, err := s.forms()
	if err != nil {
		return nil, err
	}
	m := &tune.Measured{Selection: s.request.Selection, Shapes: s.request.Search.Shapes, Holdout: s.request.Holdout, Forms: forms}
	for range forms {
		m.Costs = append(m.Costs, slices.Repeat([]float64{math.NaN()}, len(m.Shapes)))
	}
	for i, shape := range m.Shapes {
		costs, err := s.measuredShape(ctx, i, forms)
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
func (s *selectionSearch) measuredShape(ctx context.Context, i int, forms []spec.Variant) ([]float64, error) {
	if s.folder.path == "" {
		return s.measureShape(ctx, i, forms)
	}
	name := shapeFolder(i, s.request.Search.Shapes[i]) + "-forms.json"
	var kept []run.MeasuredForm
	if s.folder.read(name, &kept) == nil && slices.EqualFunc(kept, forms, isOf) {
		costs := slices.Repeat([]float64{math.NaN()}, len(forms))
		for form, f := range kept {
			if f.Costs[0] != nil {
				costs[form] = *f.Costs[0]
			}
		}
		return costs, nil
	}
	costs, err := s.measureShape(ctx, i, forms)
	if err != nil {
		return nil, err
	}
	kept = nil
	for form, v := range forms {
		kept = append(kept, run.MeasuredForm{Variant: v.String(), Costs: []*float64{known(costs[form])}})
	}
	return costs, s.folder.write(name, kept)
}

func isOf(f run.MeasuredForm, v spec.Variant) bool {
	return f.Variant == v.String() && len(f.Costs) == 1
}

// measureShape measures the forms that take a shape and are correct on it; the cost of others is NaN.
func (s *selectionSearch) measureShape(ctx context.Context, i int, forms []spec.Variant) ([]float64, error) {
	r, err := s.requestFor(i)
	if err != nil {
		return nil, err
	}
	r.Folder, r.Small = "", r.Shapes
	h, err := newHarness(ctx, s.lab, r)
	if err != nil {
		return nil, err
	}
	defer h.pipeline.Close()
	if err := h.loadInputs(ctx); err != nil {
		return nil, err
	}
	costs := slices.Repeat([]float64{math.NaN()}, len(forms))
	all, at, standard, err := h.checkForms(ctx, forms)
	if err != nil {
		return nil, err
	}
	measured, err := h.costs(ctx, standard, all)
	for j, cost := range measured {
		costs[at[j]] = cost
	}
	return costs, err
}

// checkForms builds and checks the forms that take the shape of the request. It returns the correct
// ones, the index of each in forms, and the present form, which must be correct.
func (h *harness) checkForms(ctx context.Context, forms []spec.Variant) (correct []*Candidate, at []int, standard *Candidate, err error) {
	takes := func(v spec.Variant) bool { return h.lab.Problem.CheckShapes(v, h.request.Shapes) == nil }
	for _, v := range forms {
		if takes(v) {
			h.pipeline.Start(v)
		}
	}
	for form, v := range forms {
		if !takes(v) {
			continue
		}
		c := Candidate{Variant: v, Origin: "form", isDefault: v.String() == h.request.Variant.String()}.start(h.request.Objective)
		if err := h.walk(ctx, c, []step{{"building", h.build}, {"resources", h.fits}, {"correctness", h.checkForm}}); err != nil {
			return nil, nil, nil, err
		}
		if c.isDefault {
			if standard = c; !c.ok() {
				return nil, nil, nil, c.mustRun()
			}
		}
		if c.ok() {
			correct, at = append(correct, c), append(at, form)
		}
	}
	return correct, at, standard, nil
}

// checkForm checks a form on the shape of the request. Its PTX was audited by the search.
func (h *harness) checkForm(ctx context.Context, c *Candidate) error {
	return h.check(ctx, c, h.request.Shapes, h.request.Seeds[:1])
}

// costs are those of correct candidates on the one shape of the request; NaN for one that turns out to
// be wrong. All are measured for a few rounds, and those near the best for more.
func (h *harness) costs(ctx context.Context, standard *Candidate, all []*Candidate) ([]float64, error) {
	costs := slices.Repeat([]float64{math.NaN()}, len(all))
	if h.request.Objective == run.ObjectiveCost {
		for i, c := range all {
			if err := h.simulate(ctx, c, nil); err != nil {
				return nil, err
			}
			if c.ok() {
				costs[i] = *c.result.Cost
			}
		}
		return costs, nil
	}
	left := all
	for _, rounds := range []int{h.request.byObjective(screenRounds, energyCalls), h.request.finalRounds()} {
		medians, err := h.medians(ctx, rounds, standard, left)
		if err != nil {
			return nil, err
		}
		best := math.Inf(1)
		for i, c := range all {
			cost, ok := medians[c]
			if ok {
				costs[i], best = cost, min(best, cost)
			} else if slices.Contains(left, c) {
				costs[i] = math.NaN() // wrong while it was timed
			}
		}
		left = slices.DeleteFunc(slices.Clone(left), func(c *Candidate) bool {
			cost, ok := medians[c]
			return !ok || cost > near*best && c != standard
		})
	}
	return costs, nil
}

// medians measures candidates interleaved, among them the default. Those that turn out to be wrong
// are not in the result.
func (h *harness) medians(ctx context.Context, rounds int, standard *Candidate, all []*Candidate) (map[*Candidate]float64, error) {
	others := slices.DeleteFunc(slices.Clone(all), func(c *Candidate) bool { return c == standard })
	for {
		h.step(fmt.Sprintf("%d forms", len(others)+1), fmt.Sprintf("%d rounds of %s", rounds, h.request.Shapes[0]))
		samples, wrong, err := h.timeTogether(ctx, h.request.Shapes[0], rounds, standard, others)
		if err != nil {
			return nil, err
		}
		if wrong != nil {
			others = slices.DeleteFunc(others, func(c *Candidate) bool { return c == wrong })
			continue
		}
		medians := map[*Candidate]float64{standard: measure.Summarize(samples[0]).P50}
		for i, c := range others {
			medians[c] = measure.Summarize(samples[i+1]).P50
		}
		return medians, nil
	}
}
