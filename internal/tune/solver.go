package tune

import (
	"math/rand/v2"
	"slices"
)

// solver finds the combinations of some knobs that obey all rules between them. It assigns one knob
// after the other, checks a rule as soon as all its knobs are assigned, and removes values that a
// rule excludes as soon as few combinations of its knobs are left. The search is complete. It is
// safe for concurrent use.
type solver struct {
	all   []Knob
	knobs []int // those that it assigns
	rules []*expression
	of    [][]*expression // by position in knobs: the rules that use the knob
	place map[int]int     // of a knob in knobs
	slots int
	alone []Point // by position: the values that the rules of one knob allow
}

// maxTried is the largest number of combinations that one propagation through a rule tries.
const maxTried = 256

func newSolver(all []Knob, rules []*expression, knobs []int) *solver {
	s := &solver{all: all, knobs: knobs, of: make([][]*expression, len(knobs)), place: map[int]int{}, slots: len(all)}
	for i, knob := range knobs {
		s.place[knob] = i
	}
	for _, rule := range rules {
		s.slots = max(s.slots, rule.slots)
		if len(rule.uses) == 0 { // a constant belongs to every component: if it is false, nothing is allowed
			s.rules = append(s.rules, rule)
			continue
		}
		if _, ok := s.place[rule.uses[0]]; !ok {
			continue
		}
		s.rules = append(s.rules, rule)
		for _, knob := range rule.uses {
			s.of[s.place[knob]] = append(s.of[s.place[knob]], rule)
		}
	}
	s.restrict()
	return s
}

// restrict finds the values that the rules of a single knob allow.
func (s *solver) restrict() {
	env := make([]Value, s.slots)
	constant := slices.ContainsFunc(s.rules, func(r *expression) bool { return len(r.uses) == 0 && !r.holds(env) })
	s.alone = make([]Point, len(s.knobs))
	for i, knob := range s.knobs {
		for v, value := range s.all[knob].Values {
			env[knob] = value
			broken := func(r *expression) bool { return len(r.uses) == 1 && !r.holds(env) }
			if !constant && !slices.ContainsFunc(s.of[i], broken) {
				s.alone[i] = append(s.alone[i], uint16(v))
			}
		}
	}
}

// allowed checks the solver's knobs of a point.
func (s *solver) allowed(p Point) bool {
	env := make([]Value, s.slots)
	for _, knob := range s.knobs {
		env[knob] = s.all[knob].Values[p[knob]]
	}
	return !slices.ContainsFunc(s.rules, func(r *expression) bool { return !r.holds(env) })
}

// enumerate returns all combinations, sorted. It is false if there are more than most, or if it
// visited as many nodes as allowed.
func (s *solver) enumerate(most, visits int) (rows []Point, complete bool) {
	e := enumeration{solver: s, row: make(Point, len(s.knobs)), env: make([]Value, s.slots), visits: visits}
	e.ready = s.ready()
	flat := []uint16{} // one array for many rows
	complete = e.step(0, func(row Point) bool {
		if len(rows) == most {
			return false
		}
		if len(flat)+len(row) > cap(flat) {
			flat = make([]uint16, 0, max(1024*len(row), len(row)))
		}
		flat = append(flat, row...)
		rows = append(rows, Point(flat[len(flat)-len(row):len(flat):len(flat)]))
		return true
	})
	return rows, complete
}

// visit yields all combinations in order, those from a row on if it is not nil. It is false if yield
// stopped it, or after as many visits as allowed; negative for no limit.
func (s *solver) visit(from Point, visits int, yield func(Point) bool) bool {
	e := enumeration{solver: s, row: make(Point, len(s.knobs)), env: make([]Value, s.slots), visits: visits, from: from}
	e.ready = s.ready()
	return e.step(0, yield)
}

// ready returns, for each position, the rules whose last knob it assigns.
func (s *solver) ready() [][]*expression {
	ready := make([][]*expression, len(s.knobs))
	for _, rule := range s.rules {
		if n := len(rule.uses); n > 1 {
			last := s.place[rule.uses[n-1]]
			ready[last] = append(ready[last], rule)
		}
	}
	return ready
}

// enumeration is a depth-first search in the order of the knobs, so that its results are sorted.
type enumeration struct {
	*solver
	row    Point
	env    []Value
	ready  [][]*expression
	visits int   // left; negative for no limit
	from   Point // combinations before it are skipped; nil for none
}

func (e *enumeration) step(at int, yield func(Point) bool) bool {
	if at == len(e.row) {
		return yield(e.row)
	}
	knob := e.knobs[at]
	onPath := e.from != nil && slices.Equal(e.row[:at], e.from[:at])
values:
	for _, value := range e.alone[at] {
		if onPath && value < e.from[at] {
			continue
		}
		if e.visits == 0 {
			return false
		}
		e.visits--
		e.env[knob] = e.all[knob].Values[value]
		for _, rule := range e.ready[at] {
			if !rule.holds(e.env) {
				continue values
			}
		}
		e.row[at] = value
		if !e.step(at+1, yield) {
			return false
		}
	}
	return true
}

// impossible reports whether it is certain that no combination obeys the rules.
func (s *solver) impossible() bool {
	if tree, ok := newDiagram(s); ok {
		return tree.size() == 0
	}
	row, gaveUp := s.draw(rand.New(rand.NewPCG(0, 0)), nil, -1)
	return row == nil && !gaveUp
}

// maxChecks ends a draw: about 20 ms. It is a number of checked rules and not a time, so that the
// same seed gives the same draws.
const maxChecks = 1 << 17

// draw returns a random combination, or nil if there is none. prefer, if not nil, has for each knob
// of the space the value to try first; a knob that is fixed, if not -1, has no other. It gives up
// after maxChecks.
func (s *solver) draw(random *rand.Rand, prefer Point, fixed int) (row Point, gaveUp bool) {
	left := make([]Point, len(s.knobs))
	for i, values := range s.alone {
		left[i] = values
		if s.knobs[i] == fixed {
			left[i] = Point{prefer[fixed]}
			if !slices.Contains(values, prefer[fixed]) {
				return nil, false
			}
		}
		if len(values) == 0 {
			return nil, false
		}
	}
	d := drawing{solver: s, random: random, prefer: prefer, env: make([]Value, s.slots), checks: maxChecks}
	if !d.propagate(left, s.rules) {
		return nil, d.checks <= 0
	}
	found := d.complete(left)
	if found == nil {
		return nil, d.checks <= 0
	}
	row = make(Point, len(s.knobs))
	for i, values := range found {
		row[i] = values[0]
	}
	return row, false
}

// drawing assigns the knobs in random order and random values, with backtracking.
type drawing struct {
	*solver
	random *rand.Rand
	prefer Point
	env    []Value
	checks int // left; at zero every branch is a dead end
}

// complete assigns the knobs that have several values left.
func (d *drawing) complete(left []Point) []Point {
	at := d.choose(left)
	if at < 0 {
		return left
	}
	values := slices.Clone(left[at])
	d.random.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
	if d.prefer != nil {
		if i := slices.Index(values, d.prefer[d.knobs[at]]); i > 0 {
			values[0], values[i] = values[i], values[0]
		}
	}
	for _, value := range values {
		next := slices.Clone(left)
		next[at] = Point{value}
		if d.propagate(next, d.of[at]) {
			if found := d.complete(next); found != nil {
				return found
			}
		}
	}
	return nil
}

// choose returns a random position among those with several values left, -1 if there is none.
func (d *drawing) choose(left []Point) int {
	chosen, open := -1, 0
	for i, values := range left {
		if len(values) > 1 {
			if open++; d.random.IntN(open) == 0 {
				chosen = i
			}
		}
	}
	return chosen
}

// propagate removes the values that the pending rules allow with no combination of their other
// knobs, then those of the rules of every knob that lost values. It is false at a dead end.
func (d *drawing) propagate(left []Point, rules []*expression) bool {
	pending := slices.Clone(rules)
	for len(pending) > 0 {
		rule := pending[0]
		pending = pending[1:]
		if d.checks--; d.checks <= 0 {
			return false
		}
		for _, at := range d.narrow(rule, left) {
			if len(left[at]) == 0 {
				return false
			}
			for _, other := range d.of[at] {
				if other != rule && !slices.Contains(pending, other) {
					pending = append(pending, other)
				}
			}
		}
	}
	return true
}

// narrow removes unsupported values of one rule's knobs. It returns the positions that lost values.
func (d *drawing) narrow(rule *expression, left []Point) []int {
	combinations := 1
	for _, knob := range rule.uses {
		if combinations *= len(left[d.place[knob]]); combinations > maxTried {
			return nil
		}
	}
	d.checks -= combinations
	supported := make([][]bool, len(rule.uses))
	at := make([]int, len(rule.uses))
	for i, knob := range rule.uses {
		supported[i] = make([]bool, len(left[d.place[knob]]))
	}
	for range combinations {
		for i, knob := range rule.uses {
			d.env[knob] = d.all[knob].Values[left[d.place[knob]][at[i]]]
		}
		if rule.holds(d.env) {
			for i, j := range at {
				supported[i][j] = true
			}
		}
		for i := range at { // the next combination
			if at[i]++; at[i] < len(supported[i]) {
				break
			}
			at[i] = 0
		}
	}
	return d.keep(rule, left, supported)
}

func (d *drawing) keep(rule *expression, left []Point, supported [][]bool) []int {
	var narrowed []int
	for i, knob := range rule.uses {
		if !slices.Contains(supported[i], false) {
			continue
		}
		place := d.place[knob]
		var kept Point
		for j, value := range left[place] {
			if supported[i][j] {
				kept = append(kept, value)
			}
		}
		left[place] = kept
		narrowed = append(narrowed, place)
	}
	return narrowed
}
