package tune

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Tolerance is how much slower than the best form of a shape a selection's form may be: 2 %.
const Tolerance = 0.02

// Cover is a choice of forms, one of which takes each shape.
type Cover struct {
	Forms []int // chosen; indices into the table, ascending
	Of    []int // of each shape: its fastest chosen form
	// Exact says that no smaller choice exists. It is false if the search was cut off: then the choice
	// is valid, but fewer forms may do.
	Exact bool
}

// maxCoverNodes ends the search for a smaller choice of forms: about a second.
const maxCoverNodes = 1 << 20

// FewestForms returns the fewest forms such that every shape has one within the tolerance of its best
// time. times has a row for each form and a column for each shape; a form that cannot take a shape
// has NaN or an infinite time there. Among choices of the same size it takes the one whose times,
// each relative to the best of its shape, have the smallest sum.
func FewestForms(times [][]float64, tolerance float64) (*Cover, error) {
	return fewestForms(times, tolerance, maxCoverNodes)
}

func fewestForms(times [][]float64, tolerance float64, nodes int) (*Cover, error) {
	loss, err := losses(times, tolerance)
	if err != nil {
		return nil, err
	}
	c := newCovering(loss)
	c.nodes = nodes
	c.greedy()
	c.branch(nil, 0, make([]bool, len(c.forms)))
	result := &Cover{Forms: slices.Sorted(slices.Values(c.best)), Exact: c.nodes > 0}
	for shape := range times[0] {
		result.Of = append(result.Of, slices.MinFunc(result.Forms, func(a, b int) int {
			return cmp.Compare(loss[a][shape], loss[b][shape])
		}))
	}
	return result, nil
}

// losses returns the times relative to the best of each shape, infinite beyond the tolerance.
func losses(times [][]float64, tolerance float64) ([][]float64, error) {
	if len(times) == 0 || len(times[0]) == 0 {
		return nil, errors.New("there are no times to choose forms by")
	}
	if !(tolerance >= 0) {
		return nil, fmt.Errorf("the tolerance is %v; want 0 or more", tolerance)
	}
	best := slices.Repeat([]float64{math.Inf(1)}, len(times[0]))
	for form, row := range times {
		if len(row) != len(best) {
			return nil, fmt.Errorf("form %d has times of %d shapes, form 0 of %d", form, len(row), len(best))
		}
		for shape, t := range row {
			if t <= 0 {
				return nil, fmt.Errorf("form %d takes %v on shape %d; a time is positive", form, t, shape)
			}
			if !math.IsNaN(t) {
				best[shape] = min(best[shape], t)
			}
		}
	}
	if shape := slices.IndexFunc(best, func(t float64) bool { return math.IsInf(t, 1) }); shape >= 0 {
		return nil, fmt.Errorf("no form takes shape %d", shape)
	}
	all := make([][]float64, len(times))
	for form, row := range times {
		all[form] = make([]float64, len(row))
		for shape, t := range row {
			if all[form][shape] = t / best[shape]; !(all[form][shape] <= 1+tolerance) {
				all[form][shape] = math.Inf(1)
			}
		}
	}
	return all, nil
}

// covering is a search for the fewest forms, by branch and bound.
type covering struct {
	loss  [][]float64
	forms []int   // those that no other dominates
	takes [][]int // of each shape: indices into forms of those within the tolerance
	best  []int   // indices into loss; the best choice so far
	total float64 // its losses
	nodes int     // left before the search is cut off
}

func newCovering(loss [][]float64) *covering {
	c := &covering{loss: loss}
	for form := range loss {
		if !slices.ContainsFunc(c.forms, func(other int) bool { return dominates(loss[other], loss[form]) }) {
			c.forms = slices.DeleteFunc(c.forms, func(other int) bool { return dominates(loss[form], loss[other]) })
			c.forms = append(c.forms, form)
		}
	}
	for shape := range loss[0] {
		var takes []int
		for i, form := range c.forms {
			if !math.IsInf(loss[form][shape], 1) {
				takes = append(takes, i)
			}
		}
		c.takes = append(c.takes, takes)
	}
	return c
}

// dominates reports whether a form is at least as good as another on every shape. The other is then
// in no choice that is better than all without it.
func dominates(a, b []float64) bool {
	for shape := range a {
		if a[shape] > b[shape] {
			return false
		}
	}
	return true
}

// sum returns the losses of a choice over all shapes; infinite if it leaves a shape without a form.
func (c *covering) sum(chosen []int) float64 {
	total := 0.0
	for shape := range c.takes {
		least := math.Inf(1)
		for _, form := range chosen {
			least = min(least, c.loss[form][shape])
		}
		total += least
	}
	return total
}

// greedy takes the form that covers most uncovered shapes, until all are: the bound that the search
// starts from.
func (c *covering) greedy() {
	covered := make([]bool, len(c.takes))
	for slices.Contains(covered, false) {
		gain := func(form int) (n int) {
			for shape, done := range covered {
				if !done && !math.IsInf(c.loss[form][shape], 1) {
					n++
				}
			}
			return n
		}
		form := slices.MaxFunc(c.forms, func(a, b int) int { return gain(a) - gain(b) })
		c.best = append(c.best, form)
		for shape := range covered {
			covered[shape] = covered[shape] || !math.IsInf(c.loss[form][shape], 1)
		}
	}
	c.total = c.sum(c.best)
}

// branch tries every form of the uncovered shape that has the fewest. Forms tried before are excluded
// from the branches of later ones, so that no choice occurs twice.
func (c *covering) branch(chosen []int, depth int, excluded []bool) {
	if c.nodes--; c.nodes <= 0 {
		return
	}
	shape, need := c.next(chosen, excluded)
	if need == 0 {
		if total := c.sum(chosen); depth < len(c.best) || total < c.total {
			c.best, c.total = slices.Clone(chosen), total
		}
		return
	}
	if shape < 0 || depth+need > len(c.best) {
		return
	}
	excluded = slices.Clone(excluded)
	for _, i := range c.takes[shape] {
		if !excluded[i] {
			c.branch(append(chosen, c.forms[i]), depth+1, excluded)
			excluded[i] = true
		}
	}
}

// next returns the uncovered shape with the fewest forms that are not excluded, -1 if one has none,
// and a lower bound of the forms that are still needed: uncovered shapes of which no two share a form.
func (c *covering) next(chosen []int, excluded []bool) (shape, need int) {
	used := make([]bool, len(c.forms))
	fewest := len(c.forms) + 1
	shape = -1
	for s, takes := range c.takes {
		if slices.ContainsFunc(chosen, func(form int) bool { return !math.IsInf(c.loss[form][s], 1) }) {
			continue
		}
		left, apart := 0, true
		for _, i := range takes {
			if !excluded[i] {
				left++
				apart = apart && !used[i]
			}
		}
		if left == 0 {
			return -1, 1
		}
		if left < fewest {
			shape, fewest = s, left
		}
		if apart {
			need++
			for _, i := range takes {
				used[i] = used[i] || !excluded[i]
			}
		}
	}
	return shape, need
}
