package tune

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"attune/internal/rule"
)

// model predicts the cost of variants from the results so far: a Gaussian process over the logarithm
// of the cost. A failed variant counts as a slow one, so that the model avoids its neighbourhood.
type model struct {
	history  *history
	columns  []column
	process  process
	trained  int // results that are in the process, or were left out of it
	selected int // results at the last selection
	adapted  int // results at the last choice of lengths
	slow     float64
	scratch  []float64
}

// column is one feature of a knob, by value.
type column struct {
	knob   int
	values []float64
}

const (
	// maxTrained is the number of results that the process is trained on after a selection. More
	// predict better and take longer: 100 results and a pool of 80 variants take about 1 ms.
	maxTrained = 96
	// maxAdded is the number of results that are added before the next selection.
	maxAdded = 24
	// noise is the variance of a measurement, relative to that of the costs.
	noise = 1e-3
)

func newModel(h *history) *model {
	m := &model{history: h, process: process{noise: noise}}
	for _, knob := range h.free {
		m.columns = append(m.columns, features(knob, h.space.Knobs[knob].Values)...)
	}
	for range m.columns {
		m.process.scales = append(m.process.scales, 1)
	}
	return m
}

// features describes the values of a knob. The first feature is the position: the values of most
// knobs are in a natural order, and those of tiles in a logarithmic one. Sizes that are not all
// powers of two have a second one, the power of two that divides them, because of alignment. Texts
// have one for each value.
func features(knob int, values []rule.Value) []column {
	last := float64(len(values) - 1)
	position := column{knob: knob}
	alignment := column{knob: knob}
	numbers := true
	for i, v := range values {
		position.values = append(position.values, float64(i)/last)
		alignment.values = append(alignment.values, float64(bits.TrailingZeros64(uint64(sizeOf(v)))))
		_, isNumber := v.Float()
		numbers = numbers && isNumber
	}
	if !numbers && len(values) > 2 {
		columns := make([]column, len(values))
		for i := range values {
			columns[i] = column{knob, make([]float64, len(values))}
			columns[i].values[i] = 1
		}
		return columns
	}
	if len(values) < 4 || slices.ContainsFunc(values, func(v rule.Value) bool { return sizeOf(v) <= 0 }) || slices.IsSorted(alignment.values) {
		return []column{position}
	}
	most := slices.Max(alignment.values)
	if most == 0 {
		return []column{position}
	}
	for i := range alignment.values {
		alignment.values[i] /= most
	}
	return []column{position, alignment}
}

func (m *model) row(p Point) []float64 {
	row := make([]float64, len(m.columns))
	for i, c := range m.columns {
		row[i] = c.values[p[c.knob]]
	}
	return row
}

// target turns a result into what the process is trained on.
func (m *model) target(r Result) float64 {
	if !r.OK() {
		return m.slow
	}
	return m.scaled(r.Cost)
}

// scaled is the logarithm, because differences of costs are relative. Costs of zero or less, which
// no time has, stay as they are.
func (m *model) scaled(cost float64) float64 {
	if m.history.lowest > 0 {
		return math.Log(cost)
	}
	return cost
}

// update trains the process with the results since the last call.
func (m *model) update() {
	told := m.history.told
	if len(told)-m.selected >= maxAdded || len(told) <= maxAdded {
		m.choose()
	} else {
		for _, o := range told[m.trained:] {
			m.process.add(m.row(o.point), m.target(o.Result))
		}
	}
	m.trained = len(told)
	m.process.solve()
	if len(told) >= m.adapted+max(4, m.adapted/8) {
		m.adapted = len(told)
		m.adapt()
	}
	m.scratch = slices.Grow(m.scratch[:0], len(m.process.rows))
}

// choose trains the process from the start: with all results while they are few, then with the best
// half and the latest half.
func (m *model) choose() {
	told := m.history.told
	m.selected = len(told)
	var costs []float64
	for _, o := range told {
		if o.OK() {
			costs = append(costs, o.Cost)
		}
	}
	slices.Sort(costs)
	m.slow = m.scaled(costs[len(costs)*9/10])
	chosen := told
	if len(told) > maxTrained {
		chosen = slices.Clone(told)
		slices.SortStableFunc(chosen, func(a, b observation) int {
			return cmp.Or(cmp.Compare(len(a.Failure), len(b.Failure)), cmp.Compare(a.Cost, b.Cost))
		})
		rest := chosen[maxTrained/2:]
		m.history.random.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
		chosen = chosen[:maxTrained]
	}
	m.process.reset()
	for _, o := range chosen {
		m.process.add(m.row(o.point), m.target(o.Result))
	}
}

// The limits of what adapt may choose, as inverse squared lengths: a feature of length 8 hardly
// matters, one of length 1/16 changes everything.
const (
	minScale = 1.0 / 64
	maxScale = 256
)

// adapt changes one length after the other where that makes the results more likely.
func (m *model) adapt() {
	g := &m.process
	best := m.likelihood()
	try := func(parameter *float64, factors ...float64) {
		for _, factor := range factors {
			old := *parameter
			*parameter = old * factor
			if l := m.likelihood(); l > best {
				best = l
				return
			}
			*parameter = old
		}
	}
	for i := range g.scales {
		if g.scales[i] < maxScale {
			try(&g.scales[i], 4)
		}
		if g.scales[i] > minScale {
			try(&g.scales[i], 0.25)
		}
	}
	m.likelihood()
}

// likelihood fits the process again and adds a prior that keeps lengths near 1: with few results
// several lengths explain them equally well.
func (m *model) likelihood() float64 {
	g := &m.process
	rows, targets := slices.Clone(g.rows), slices.Clone(g.targets)
	g.reset()
	for i, row := range rows {
		g.add(row, targets[i])
	}
	prior := 0.0
	for _, s := range g.scales {
		x := math.Log(s)
		prior += x * x / 16
	}
	return g.solve() - prior
}

// pick returns the variant of a pool with the highest expected improvement over the best result.
func (m *model) pick(pool []Point) Point {
	m.update()
	best := m.scaled(m.history.lowest)
	var chosen Point
	most := math.Inf(-1)
	for _, p := range pool {
		mean, deviation := m.process.predict(m.row(p), m.scratch[:len(m.process.rows)])
		if gain := improvement(best-mean, deviation); gain > most {
			chosen, most = p, gain
		}
	}
	return chosen
}

// improvement is the expectation of max(x, 0) for a normally distributed x.
func improvement(mean, deviation float64) float64 {
	z := mean / deviation
	return mean*0.5*math.Erfc(-z/math.Sqrt2) + deviation*math.Exp(-z*z/2)/math.Sqrt(2*math.Pi)
}

// sizeOf is an integer value; 0 for a value that is none.
func sizeOf(v rule.Value) int64 {
	if n, _ := v.Int64(); v == rule.Int(n) {
		return n
	}
	return 0
}
