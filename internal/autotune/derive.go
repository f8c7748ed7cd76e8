package autotune

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"attune/internal/form"
	"attune/internal/tune"
)

// Table is what was found for the problems that share a table.
type Table struct {
	Name     string  `json:"name"`
	Problems int     `json:"problems"`
	Held     int     `json:"held_out"`
	Rule     float64 `json:"rule_over_best"`  // time of the rule's form over the best one, all problems
	Worst    float64 `json:"rule_worst"`      // the largest
	Tuned    float64 `json:"table_over_best"` // of the held-out problems; 0 without a table
	RuleHeld float64 `json:"rule_over_best_held_out"`
	Lines    int     `json:"lines"` // of the table; 0 if the rule stays
	Why      string  `json:"why"`   // that a table is left out, or taken
}

// tolerance is the time over the best form that a table may cost. Times of one process differ by
// about as much.
const tolerance = 0.03

// Limits of the libraries' reader.
const (
	maxChoices     = 64
	maxComparisons = 8
)

// Derive derives the choices of a selection from its times.
func Derive(m *Measurement, problems []Problem) []Table {
	m.Choices = []form.MeasuredChoice{} // the readers want a list
	byName := map[string]Problem{}
	for _, p := range problems {
		byName[p.String()] = p
	}
	rows := map[string][]row{}
	var names []string
	for _, t := range m.Times {
		p, known := byName[t.Problem]
		if !known || len(t.Forms) == 0 {
			continue
		}
		name := p.table()
		if rows[name] == nil {
			names = append(names, name)
		}
		rows[name] = append(rows[name], row{p, t})
	}
	slices.SortStableFunc(names, func(a, b string) int { // head dims in their order
		return cmp.Compare(rows[a][0].HeadDim, rows[b][0].HeadDim)
	})
	var tables []Table
	for _, name := range names {
		table, choices := deriveGroup(name, rows[name])
		if len(m.Choices)+len(choices) > maxChoices {
			table.Lines, table.Why, choices = 0, "the libraries read at most 64 lines", nil
		}
		m.Choices = append(m.Choices, choices...)
		tables = append(tables, table)
	}
	return tables
}

// row is a problem with its times.
type row struct {
	Problem
	Time
}

// best is the time of the fastest form.
func (r row) best() float64 {
	best := math.Inf(1)
	for _, f := range r.Forms {
		best = min(best, f.US)
	}
	return best
}

// over is the time of a form over the best one; infinite if it was not timed.
func (r row) over(variant string) float64 {
	for _, f := range r.Forms {
		if f.Variant == variant {
			return f.US / r.best()
		}
	}
	return math.Inf(1)
}

// deriveGroup derives a table from the problems that are not held out, and tests it on the others.
func deriveGroup(name string, rows []row) (Table, []form.MeasuredChoice) {
	t := Table{Name: name, Problems: len(rows), Worst: 1}
	var fitted, held []row
	for _, r := range rows {
		t.Worst = max(t.Worst, r.over(r.Rule))
		if r.Problem.Held {
			held = append(held, r)
		} else {
			fitted = append(fitted, r)
		}
	}
	byRule := func(r row) string { return r.Rule }
	t.Held, t.Rule, t.RuleHeld = len(held), mean(rows, byRule), mean(held, byRule)
	if len(held) < leastHeld {
		t.Why = "too few problems were timed"
		return t, nil
	}
	choices, err := choicesOf(fitted)
	if err != nil {
		t.Why = err.Error()
		return t, nil
	}
	tuned := func(r row) string { return chosen(choices, r) }
	t.Tuned = mean(held, tuned)
	gain := mean(fitted, byRule) / mean(fitted, tuned)
	switch {
	case math.IsInf(t.Tuned, 1) || t.RuleHeld/t.Tuned < 1+least:
		t.Why = "the rule is as good on the held-out problems"
	case gain < 1+least:
		t.Why = "the rule is as good on the other problems"
	default:
		t.Lines, t.Why = len(choices), "faster than the rule on the held-out problems"
		return t, choices
	}
	return t, nil
}

// least is the gain over the rule that a table must have, and leastHeld the problems that show it.
const (
	least     = 0.005
	leastHeld = 2
)

// mean is the geometric mean of the times of chosen forms over the best ones.
func mean(rows []row, choose func(row) string) float64 {
	if len(rows) == 0 {
		return 0
	}
	logs := 0.0
	for _, r := range rows {
		logs += math.Log(r.over(choose(r)))
	}
	return math.Round(1e4*math.Exp(logs/float64(len(rows)))) / 1e4
}

// chosen is the variant of the first choice that holds for a problem.
func chosen(choices []form.MeasuredChoice, r row) string {
	p := r.problem()
	for _, c := range choices {
		if c.Holds(&p) && !math.IsInf(r.over(c.Variant), 1) {
			return c.Variant
		}
	}
	return ""
}

// choicesOf is the table of some problems of a head dim.
func choicesOf(rows []row) ([]form.MeasuredChoice, error) {
	names := form.MeasuredNames[1:] // all have the same head dim
	var variants []string
	for _, r := range rows {
		for _, f := range r.Forms {
			if !slices.Contains(variants, f.Variant) {
				variants = append(variants, f.Variant)
			}
		}
	}
	costs, values := make([][]float64, len(variants)), [][]int{}
	for _, r := range rows {
		p := r.problem()
		values = append(values, p.Properties()[1:])
		for i, v := range variants {
			costs[i] = append(costs[i], r.over(v))
		}
	}
	rules, err := tune.Rules(names, values, costs, tolerance)
	if err != nil {
		return nil, err
	}
	var choices []form.MeasuredChoice
	for _, rule := range rules {
		when := fmt.Sprintf("head_dim == %d", rows[0].HeadDim)
		if rule.When != "" {
			when += " and " + rule.When
		}
		c := form.MeasuredChoice{When: when, Variant: variants[rule.Form], Selection: Selection}
		if c.Comparisons() > maxComparisons {
			return nil, fmt.Errorf("a line of the table would have more than %d comparisons", maxComparisons)
		}
		choices = append(choices, c)
	}
	return choices, nil
}

// Selection is the name of the libraries' selection on other GPUs than Hopper's.
const Selection = "warp"
