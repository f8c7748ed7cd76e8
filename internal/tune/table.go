package tune

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// term is a name that conditions may use, such as an axis of the problem.
type term struct {
	name string
	axis bool // not a predicate; preferred where both separate the same shapes
	used bool // by the present table
}

// example is a tuned shape that a table must give a good form.
type example struct {
	values []int     // of the terms
	loss   []float64 // of each form: its time over the best; infinite if it is too slow for the shape
}

// line is one line of a table. The last line has no condition.
type line struct {
	when  string
	form  int
	takes []int // the examples that it takes
}

// maxExamples is the size of an exampleSet.
const maxExamples = 256

// exampleSet is a set of examples by their index.
type exampleSet [maxExamples / 64]uint64

func (s *exampleSet) add(i int) { s[i/64] |= 1 << (i % 64) }

func (s exampleSet) and(t exampleSet) exampleSet {
	for i := range s {
		s[i] &= t[i]
	}
	return s
}

func (s exampleSet) without(t exampleSet) exampleSet {
	for i := range s {
		s[i] &^= t[i]
	}
	return s
}

func (s exampleSet) count() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

func (s exampleSet) list() (all []int) {
	for i := range maxExamples {
		if s[i/64]>>(i%64)&1 != 0 {
			all = append(all, i)
		}
	}
	return all
}

// condition is a conjunction of comparisons, and the examples for which it holds.
type condition struct {
	text   string
	holds  exampleSet
	terms  int     // comparisons
	margin float64 // logarithm of the smallest gap between the values that it separates
	axes   bool    // it has no predicate
}

// simpler orders conditions that hold for the same examples. A wide gap comes before a narrow one,
// because the next shape is less likely to fall on the wrong side.
func (c condition) simpler(d condition) bool {
	a := cmp.Or(c.terms-d.terms, yes(d.axes)-yes(c.axes), cmp.Compare(d.margin, c.margin))
	return a < 0
}

func yes(is bool) int {
	if is {
		return 1
	}
	return 0
}

// deriveTable returns a short table that gives every example a form without an infinite loss. It
// prefers few lines, then few comparisons, then small losses. Terms that the present table does not
// use are left out, unless they make the table shorter: the present ones were chosen by someone who
// knew what a form depends on, and a few shapes are separated by many other terms too, by accident.
func deriveTable(terms []term, examples []example) ([]line, error) {
	all, err := deriveFrom(terms, examples)
	if err != nil {
		return nil, err
	}
	var used []term
	kept := slices.Clone(examples)
	for i := range kept {
		kept[i].values = nil
	}
	for t, term := range terms {
		if !term.used {
			continue
		}
		used = append(used, term)
		for i := range kept {
			kept[i].values = append(kept[i].values, examples[i].values[t])
		}
	}
	if fewer, err := deriveFrom(used, kept); err == nil && len(fewer) <= len(all) {
		return fewer, nil
	}
	return all, nil
}

// deriveFrom returns a short table over these terms.
func deriveFrom(terms []term, examples []example) ([]line, error) {
	if len(examples) == 0 {
		return nil, errors.New("there is no shape to derive a table from")
	}
	if len(examples) > maxExamples {
		return nil, fmt.Errorf("a table is derived from at most %d shapes; got %d", maxExamples, len(examples))
	}
	d := &derivation{examples: examples, accept: make([]exampleSet, len(examples[0].loss))}
	for i, e := range examples {
		for form, loss := range e.loss {
			if !math.IsInf(loss, 1) {
				d.accept[form].add(i)
			}
		}
	}
	single := thresholds(terms, examples)
	d.conditions = conjunctions(single, single)
	if lines := d.search(); lines != nil {
		return lines, nil
	}
	// No two comparisons separate some shape. A conjunction of all its values does, if anything does.
	d.conditions = append(conjunctions(d.conditions, single), equalities(terms, examples)...)
	if lines := d.search(); lines != nil {
		return lines, nil
	}
	return nil, fmt.Errorf("shapes with equal terms need different forms: no condition over %s separates them", names(terms))
}

func names(terms []term) string {
	var all []string
	for _, t := range terms {
		all = append(all, t.name)
	}
	return strings.Join(all, ", ")
}

// thresholds returns the conditions of one comparison that separate some examples from others. Of
// those that separate the same ones it has the simplest.
func thresholds(terms []term, examples []example) []condition {
	var all []condition
	for t, term := range terms {
		var values []int
		for _, e := range examples {
			values = append(values, e.values[t])
		}
		slices.Sort(values)
		values = slices.Compact(values)
		for i := range len(values) - 1 {
			low, high := values[i], values[i+1]
			bound := between(low, high)
			below := condition{text: fmt.Sprintf("%s <= %d", term.name, bound), terms: 1, axes: term.axis, margin: gap(low, high)}
			above := below
			above.text = fmt.Sprintf("%s > %d", term.name, bound)
			if values[0] == 0 && values[len(values)-1] == 1 { // a property that holds or not
				below.text, above.text = "not "+term.name, term.name
			}
			for j, e := range examples {
				if e.values[t] <= bound {
					below.holds.add(j)
				} else {
					above.holds.add(j)
				}
			}
			all = append(all, below, above)
		}
	}
	return distinct(all)
}

// between returns the bound of two values, low included: near their geometric mean, and a power of two
// if there is one.
func between(low, high int) int {
	middle := math.Sqrt(float64(max(low, 1)) * float64(max(high, 1)))
	best, distance := low, math.Inf(1)
	for power := 1; power < high && power > 0; power *= 2 {
		if apart := math.Abs(math.Log(float64(power) / middle)); power >= low && apart < distance-1e-9 {
			best, distance = power, apart
		}
	}
	return best
}

func gap(low, high int) float64 {
	return math.Log(float64(max(high, 1)) / float64(max(low, 1)))
}

// distinct keeps the simplest of the conditions that hold for the same examples, in their order.
func distinct(all []condition) []condition {
	index := map[exampleSet]int{}
	var kept []condition
	for _, c := range all {
		i, known := index[c.holds]
		switch {
		case !known:
			index[c.holds] = len(kept)
			kept = append(kept, c)
		case c.simpler(kept[i]):
			kept[i] = c
		}
	}
	return kept
}

// conjunctions returns the first conditions, and each of them together with one of the second.
func conjunctions(first, second []condition) []condition {
	all := slices.Clone(first)
	for _, a := range first {
		for _, b := range second {
			both := a.holds.and(b.holds)
			if both == a.holds || both == b.holds || both == (exampleSet{}) {
				continue
			}
			all = append(all, condition{
				text: a.text + " and " + b.text, holds: both, terms: a.terms + b.terms, margin: min(a.margin, b.margin), axes: a.axes && b.axes,
			})
		}
	}
	return distinct(all)
}

// equalities returns, for each example, the condition that all axes have its values.
func equalities(terms []term, examples []example) []condition {
	var all []condition
	for _, e := range examples {
		var parts []string
		for t, term := range terms {
			if term.axis {
				parts = append(parts, fmt.Sprintf("%s == %d", term.name, e.values[t]))
			}
		}
		c := condition{text: strings.Join(parts, " and "), terms: len(parts), axes: true}
		for j, other := range examples {
			if slices.Equal(e.values, other.values) {
				c.holds.add(j)
			}
		}
		if len(parts) > 0 {
			all = append(all, c)
		}
	}
	return all
}

// derivation is a beam search for a short table.
type derivation struct {
	examples   []example
	accept     []exampleSet // of each form: the examples that may have it
	conditions []condition
}

// partial is the beginning of a table.
type partial struct {
	lines []line
	left  exampleSet // examples that no line takes yet
	terms int
	loss  float64
	gap   float64 // the smallest of its conditions
	place int     // of its last condition, in their order
}

// order compares beginnings of the same number of lines.
func (p *partial) order(q *partial) int {
	return cmp.Or(p.left.count()-q.left.count(), p.terms-q.terms, cmp.Compare(p.loss, q.loss), cmp.Compare(q.gap, p.gap),
		p.place-q.place)
}

const (
	beamWidth = 64 // beginnings of each length that are continued
	perForm   = 16 // continuations of a beginning by the lines of one form
)

// search returns the table; nil if the conditions cannot separate the examples.
func (d *derivation) search() []line {
	start := &partial{gap: math.Inf(1)}
	for i := range d.examples {
		start.left.add(i)
	}
	for beam := []*partial{start}; len(beam) > 0; {
		var finished *partial
		for _, p := range beam {
			if q := d.finish(p); q != nil && (finished == nil || q.order(finished) < 0) {
				finished = q
			}
		}
		if finished != nil {
			return finished.lines
		}
		beam = d.extend(beam)
	}
	return nil
}

// finish adds the last line, if one form is accepted by all that is left. A table without a last line
// does not occur: a line takes some examples only while others need another form.
func (d *derivation) finish(p *partial) *partial {
	best, least := -1, math.Inf(1)
	for form, accepted := range d.accept {
		if p.left.without(accepted) != (exampleSet{}) {
			continue
		}
		if loss := d.loss(form, p.left); loss < least {
			best, least = form, loss
		}
	}
	if best < 0 {
		return nil
	}
	q := *p
	q.lines = append(slices.Clone(p.lines), line{form: best, takes: p.left.list()})
	q.left, q.loss = exampleSet{}, p.loss+least
	return &q
}

func (d *derivation) loss(form int, of exampleSet) (sum float64) {
	for _, i := range of.list() {
		sum += d.examples[i].loss[form]
	}
	return sum
}

// extend returns the best beginnings with one line more.
func (d *derivation) extend(beam []*partial) []*partial {
	best := map[exampleSet]*partial{}
	for _, p := range beam {
		for form := range d.accept {
			for _, q := range d.continuations(p, form) {
				if known := best[q.left]; known == nil || q.order(known) < 0 {
					best[q.left] = q
				}
			}
		}
	}
	var all []*partial
	for _, p := range best {
		all = append(all, p)
	}
	// Maps have no order. Beginnings that are equal otherwise differ in what is left.
	slices.SortFunc(all, func(p, q *partial) int {
		return cmp.Or(p.order(q), slices.Compare(p.left[:], q.left[:]))
	})
	return all[:min(len(all), beamWidth)]
}

// continuations returns the beginnings with one more line for a form. The line takes examples that all
// accept the form.
func (d *derivation) continuations(p *partial, form int) []*partial {
	accepted := d.accept[form].and(p.left)
	var found []*partial
	for i := range d.conditions {
		c := &d.conditions[i]
		takes := c.holds.and(p.left)
		if takes == (exampleSet{}) || takes.without(accepted) != (exampleSet{}) || takes == p.left {
			continue
		}
		found = append(found, &partial{
			lines: []line{{c.text, form, nil}}, left: p.left.without(takes), terms: p.terms + c.terms, gap: min(p.gap, c.margin), loss: p.loss,
			place: i,
		})
	}
	slices.SortStableFunc(found, (*partial).order)
	found = found[:min(len(found), perForm)]
	for _, q := range found {
		takes := p.left.without(q.left)
		q.lines[0].takes = takes.list()
		q.lines = append(slices.Clone(p.lines), q.lines...)
		q.loss += d.loss(form, takes)
	}
	return found
}
