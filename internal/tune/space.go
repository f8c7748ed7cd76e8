package tune

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"

	"attune/internal/rule"
	"attune/internal/spec"
)

// Knob is one choice of a search space.
type Knob struct {
	Name    string
	Layer   spec.Layer   // the layer of evo's moves; micro if empty
	Values  []rule.Value // distinct, in the order of the definition
	Default int          // index into Values, -1 if the definition has none
}

// Point is a variant of a search space: for each knob the index of its value. A Point is immutable.
type Point []uint16

// Key returns the point as a map key.
func (p Point) Key() string {
	b := make([]byte, 0, 2*len(p))
	for _, v := range p {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	return string(b)
}

// with returns the point with another value of one knob.
func (p Point) with(knob int, value uint16) Point {
	q := slices.Clone(p)
	q[knob] = value
	return q
}

// Space is a set of allowed variants. It is immutable and safe for concurrent use.
//
// Knobs that no constraint connects are independent, so a space is the product of components. A
// component whose allowed combinations are few is a sorted table. One with more than maxTable is a
// decision diagram. One whose diagram would be too large is open: its combinations are drawn and
// checked by the solver.
type Space struct {
	Name       string
	Knobs      []Knob
	components []component
	rules      []*rule.Rule
}

// component is a set of connected knobs.
type component struct {
	knobs  []int
	rows   []Point       // sorted; over knobs, not all knobs of the space
	tree   *rule.Diagram // of a component that is too large for rows; else nil
	solver *rule.Solver  // of a component with neither rows nor a diagram; else nil
	first  Point         // of an open component: a row that was found
}

// Limits of a space.
const (
	maxKnobs  = 1000
	maxValues = 1 << 16
	// maxTable is the largest number of combinations of a component that are kept in memory.
	maxTable = 1 << 20
	// maxVisits ends the enumeration of a component: about a second. quickVisits ends the first try,
	// before that of a diagram: less than a tenth of a second.
	maxVisits   = 1 << 21
	quickVisits = 1 << 17
	// maxChecks ends a draw: about 20 ms. It is a number of checked rules and not a time, so that the
	// same seed gives the same draws.
	maxChecks = 1 << 17
)

// ErrEmpty is the error of a space without any allowed variant. ErrHard is that of a space in which
// none was found, although there may be one.
var (
	ErrEmpty = errors.New("no variant is allowed")
	ErrHard  = errors.New("gave up looking for an allowed variant")
)

// NewSpace returns the space of the knobs' values that obey all rules. A rule is a Python expression
// over knobs; a value that makes it fail, for example by a division by zero, is not allowed.
func NewSpace(name string, knobs []Knob, rules []string) (*Space, error) {
	var compiled []*rule.Rule
	for _, text := range rules {
		terms, err := parsePython(text, knobs)
		if err != nil {
			return nil, fmt.Errorf("the constraint %q: %w", clip(text), err)
		}
		compiled = append(compiled, terms...)
	}
	return newSpace(name, knobs, compiled)
}

// clip cuts a constraint for a message.
func clip(text string) string {
	const most = 200
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// newSpace returns the space of the knobs' values that obey all rules.
func newSpace(name string, knobs []Knob, rules []*rule.Rule) (*Space, error) {
	s := &Space{Name: name, Knobs: knobs, rules: rules}
	if err := s.checkKnobs(); err != nil {
		return nil, err
	}
	for _, group := range s.groups() {
		c, err := s.component(group)
		if err != nil {
			return nil, err
		}
		s.components = append(s.components, c)
	}
	return s, nil
}

// newListed returns the space of exactly these points.
func newListed(name string, knobs []Knob, points []Point) (*Space, error) {
	s := &Space{Name: name, Knobs: knobs}
	if err := s.checkKnobs(); err != nil {
		return nil, err
	}
	if len(points) == 0 {
		return nil, ErrEmpty
	}
	all := make([]int, len(knobs))
	for i := range all {
		all[i] = i
	}
	rows := slices.SortedFunc(slices.Values(points), slices.Compare[Point])
	s.components = []component{{knobs: all, rows: slices.CompactFunc(rows, slices.Equal[Point])}}
	return s, nil
}

func (s *Space) checkKnobs() error {
	if len(s.Knobs) == 0 {
		return errors.New("the space has no knobs")
	}
	if len(s.Knobs) > maxKnobs {
		return fmt.Errorf("the space has %d knobs; at most %d are supported", len(s.Knobs), maxKnobs)
	}
	names := map[string]bool{}
	for _, k := range s.Knobs {
		if names[k.Name] {
			return fmt.Errorf("the knob %q is declared twice", k.Name)
		}
		names[k.Name] = true
		if len(k.Values) == 0 {
			return fmt.Errorf("the knob %q has no values", k.Name)
		}
		if len(k.Values) >= maxValues {
			return fmt.Errorf("the knob %q has %d values; at most %d are supported", k.Name, len(k.Values), maxValues-1)
		}
		seen := map[rule.Value]bool{}
		for _, v := range k.Values {
			if seen[v] {
				return fmt.Errorf("the knob %q has the value %s twice", k.Name, v)
			}
			seen[v] = true
		}
	}
	return nil
}

// groups returns the knobs that are connected by rules, each group in the order of declaration.
func (s *Space) groups() [][]int {
	of := make([]int, len(s.Knobs))
	for i := range of {
		of[i] = i
	}
	for _, r := range s.rules {
		for _, knob := range r.Uses() {
			from, to := of[knob], of[r.Uses()[0]]
			for i := range of {
				if of[i] == from {
					of[i] = to
				}
			}
		}
	}
	var groups [][]int
	for i := range of {
		var group []int
		for knob, g := range of {
			if g == i {
				group = append(group, knob)
			}
		}
		if group != nil {
			groups = append(groups, group)
		}
	}
	return groups
}

// solver returns the solver of some knobs.
func (s *Space) solver(rules []*rule.Rule, group []int) *rule.Solver {
	values := make([][]rule.Value, len(s.Knobs))
	for i, k := range s.Knobs {
		values[i] = k.Values
	}
	return rule.NewSolver(values, rules, group)
}

// component enumerates the combinations of some knobs. If they are too many, it builds their
// diagram. If that is too large, it only makes sure that there is one.
func (s *Space) component(group []int) (component, error) {
	solver := s.solver(s.rules, group)
	rows, complete := enumerate(solver, quickVisits)
	if !complete {
		if tree, ok := solver.Diagram(); ok {
			return s.diagramComponent(solver, tree)
		}
		rows, complete = enumerate(solver, maxVisits)
	}
	switch {
	case complete && len(rows) == 0:
		return component{}, s.contradiction(solver)
	case complete:
		return component{knobs: group, rows: rows}, nil
	case len(rows) > 0:
		return component{knobs: group, solver: solver, first: rows[0]}, nil
	}
	// The enumeration gave up. Propagation may still find a combination, or that there is none.
	first, gaveUp := draw(solver, rand.New(rand.NewPCG(0, 0)), nil, -1)
	switch {
	case gaveUp:
		return component{}, fmt.Errorf("%w: the constraints %s exclude too many combinations for the solver; "+
			"give the knobs fewer values, or write a constraint between fewer knobs", ErrHard, quoted(solver.Rules()))
	case first == nil:
		return component{}, s.contradiction(solver)
	}
	return component{knobs: group, solver: solver, first: first}, nil
}

// diagramComponent is a component by its diagram, or by a table if it is small.
func (s *Space) diagramComponent(of *rule.Solver, tree *rule.Diagram) (component, error) {
	switch {
	case tree.Size() == 0:
		return component{}, s.contradiction(of)
	case tree.Size() > maxTable:
		return component{knobs: of.Names(), tree: tree}, nil
	}
	c := component{knobs: of.Names()}
	tree.Each(nil, func(row []uint16) bool {
		c.rows = append(c.rows, slices.Clone(Point(row)))
		return true
	})
	return c, nil
}

// enumerate returns all combinations, sorted. It is false if there are more than maxTable, or after
// as many visits as allowed.
func enumerate(s *rule.Solver, visits int) (rows []Point, complete bool) {
	flat := []uint16{} // one array for many rows
	complete = s.Each(nil, visits, func(row []uint16) bool {
		if len(rows) == maxTable {
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

// draw returns a random combination, or nil if there is none. prefer, if not nil, has for each knob
// of the space the value to try first; a knob that is fixed, if not -1, has no other. It gives up
// after maxChecks.
func draw(s *rule.Solver, random *rand.Rand, prefer Point, fixed int) (row Point, gaveUp bool) {
	search := s.Search(maxChecks)
	left, ok := search.All()
	if at := slices.Index(s.Names(), fixed); ok && at >= 0 {
		left, ok = search.Assign(left, at, prefer[fixed])
	}
	if ok {
		left, ok = search.Complete(left, func(left rule.Domains) (int, uint16) {
			at := openPosition(left, random)
			value := left[at][random.IntN(len(left[at]))]
			if prefer != nil && slices.Contains(left[at], prefer[s.Names()[at]]) {
				value = prefer[s.Names()[at]]
			}
			return at, value
		})
	}
	if !ok {
		return nil, search.Exhausted()
	}
	for _, values := range left {
		row = append(row, values[0])
	}
	return row, false
}

// openPosition returns a random position among those with several values left.
func openPosition(left rule.Domains, random *rand.Rand) int {
	chosen, open := -1, 0
	for i, values := range left {
		if len(values) > 1 {
			if open++; random.IntN(open) == 0 {
				chosen = i
			}
		}
	}
	return chosen
}

// contradiction names the fewest rules that the solver shows to contradict each other. It stops
// looking for fewer after maxDoubts sets of rules that take too long: about four seconds.
func (s *Space) contradiction(of *rule.Solver) error {
	const maxDoubts = 4
	rules := of.Rules()
	doubts := 0
	for i := 0; i < len(rules) && doubts < maxDoubts; {
		fewer := slices.Delete(slices.Clone(rules), i, i+1)
		impossible, certain := s.impossible(fewer, of.Names())
		switch {
		case impossible:
			rules = fewer
			continue
		case !certain:
			doubts++
		}
		i++
	}
	return fmt.Errorf("%w: no values obey %s", ErrEmpty, quoted(rules))
}

// impossible reports whether no combination obeys some rules, and whether that is certain.
func (s *Space) impossible(rules []*rule.Rule, group []int) (impossible, certain bool) {
	solver := s.solver(rules, group)
	if row, gaveUp := draw(solver, rand.New(rand.NewPCG(0, 0)), nil, -1); !gaveUp {
		return row == nil, true
	}
	tree, ok := solver.Diagram()
	return ok && tree.Size() == 0, ok
}

// quoted lists the texts of rules, each once: a conjunction is several rules of one text.
func quoted(rules []*rule.Rule) string {
	var texts []string
	for _, r := range rules {
		if text := fmt.Sprintf("%q", clip(r.String())); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, " and ")
}

// Size returns the number of allowed variants. It is false if an open component makes it unknown;
// the number is then a lower bound.
func (s *Space) Size() (n float64, exact bool) {
	n, exact = 1, true
	for _, c := range s.components {
		switch {
		case c.solver != nil:
			n, exact = n*maxTable, false
		case c.tree != nil:
			n *= c.tree.Size()
		default:
			n *= float64(len(c.rows))
		}
	}
	return n, exact
}

// Random draws an allowed variant, uniformly unless a component is open. If the constraints of an
// open component make a draw take too long, it has the same combination of that component each time.
func (s *Space) Random(random *rand.Rand) Point {
	p, _ := s.draw(random)
	return p
}

// draw draws an allowed variant, and reports whether it gave up in an open component.
func (s *Space) draw(random *rand.Rand) (p Point, gaveUp bool) {
	p = make(Point, len(s.Knobs))
	for i := range s.components {
		c := &s.components[i]
		row, none := c.draw(random)
		for i, knob := range c.knobs {
			p[knob] = row[i]
		}
		gaveUp = gaveUp || none
	}
	return p, gaveUp
}

func (c *component) draw(random *rand.Rand) (row Point, gaveUp bool) {
	switch {
	case c.tree != nil:
		return c.tree.Draw(random), false
	case c.solver == nil:
		return c.rows[random.IntN(len(c.rows))], false
	}
	if row, gaveUp = draw(c.solver, random, nil, -1); gaveUp {
		row = c.first
	}
	return row, gaveUp
}

// Allowed reports whether a point obeys all constraints.
func (s *Space) Allowed(p Point) bool {
	for i := range s.components {
		if !s.components[i].allowed(p) {
			return false
		}
	}
	return true
}

func (c *component) allowed(p Point) bool {
	if c.solver != nil {
		return c.solver.Allows(p)
	}
	if c.tree != nil {
		return c.tree.Has(c.part(p))
	}
	_, found := slices.BinarySearchFunc(c.rows, p, func(row, p Point) int {
		for i, knob := range c.knobs {
			if row[i] != p[knob] {
				return int(row[i]) - int(p[knob])
			}
		}
		return 0
	})
	return found
}

// part returns the values of the component's knobs.
func (c *component) part(p Point) Point {
	row := make(Point, len(c.knobs))
	for i, knob := range c.knobs {
		row[i] = p[knob]
	}
	return row
}

// near returns an allowed variant with one value given and few other differences from p; false if
// there is none.
func (s *Space) near(p Point, knob int, value uint16, random *rand.Rand) (Point, bool) {
	p = p.with(knob, value)
	for i := range s.components {
		c := &s.components[i]
		if !slices.Contains(c.knobs, knob) || c.allowed(p) {
			continue
		}
		row := c.near(p, knob, random)
		if row == nil {
			return nil, false
		}
		for i, k := range c.knobs {
			p[k] = row[i]
		}
	}
	return p, true
}

// near returns the combination that differs least from p and has p's value of the knob.
func (c *component) near(p Point, knob int, random *rand.Rand) Point {
	fixed := slices.Index(c.knobs, knob)
	switch {
	case c.tree != nil:
		return c.tree.Near(c.part(p), fixed, random)
	case c.solver != nil:
		row, _ := draw(c.solver, random, p, knob)
		return row
	}
	var best Point
	least, ties := len(c.knobs)+1, 0
	for _, row := range c.rows {
		if row[fixed] != p[knob] {
			continue
		}
		differ := 0
		for i, k := range c.knobs {
			if row[i] != p[k] {
				differ++
			}
		}
		if differ < least {
			best, least, ties = row, differ, 0
		}
		if differ == least {
			if ties++; random.IntN(ties) == 0 {
				best = row
			}
		}
	}
	return best
}

// after returns the combination that follows a row, or the first if row is nil; false after the
// last, or if an open component shows none for too long.
func (c *component) after(row Point) (Point, bool) {
	if c.tree != nil || c.solver != nil {
		return c.following(row)
	}
	at := 0
	if row != nil {
		at, _ = slices.BinarySearchFunc(c.rows, row, slices.Compare[Point])
		at++
	}
	if at == len(c.rows) {
		return nil, false
	}
	return c.rows[at], true
}

// following returns the first combination behind a row, or the first of all if row is nil.
func (c *component) following(row Point) (next Point, ok bool) {
	c.each(row, maxVisits, func(found []uint16) bool {
		if row == nil || !slices.Equal(Point(found), row) {
			next, ok = slices.Clone(Point(found)), true
		}
		return !ok
	})
	return next, ok
}

// each yields the combinations of a component without a table, from a row on if it is not nil. In an
// open component it ends after a number of visits, if that is not negative.
func (c *component) each(from Point, visits int, yield func([]uint16) bool) bool {
	if c.tree != nil {
		return c.tree.Each(from, yield)
	}
	return c.solver.Each(from, visits, yield)
}

// All yields the allowed variants: those of the first component change slowest. Of an open
// component it yields every combination too, in the order of its knobs.
func (s *Space) All() iter.Seq[Point] { return s.all(-1) }

// all yields the allowed variants. In each open component it ends after a number of visits, if that
// is not negative.
func (s *Space) all(visits int) iter.Seq[Point] {
	return func(yield func(Point) bool) {
		s.product(make(Point, len(s.Knobs)), 0, visits, yield)
	}
}

func (s *Space) product(p Point, at, visits int, yield func(Point) bool) bool {
	if at == len(s.components) {
		return yield(slices.Clone(p))
	}
	c := &s.components[at]
	each := func(row []uint16) bool {
		for i, knob := range c.knobs {
			p[knob] = row[i]
		}
		return s.product(p, at+1, visits, yield)
	}
	if c.tree != nil || c.solver != nil {
		return c.each(nil, visits, each)
	}
	for _, row := range c.rows {
		if !each(row) {
			return false
		}
	}
	return true
}

// Default returns the variant of the knobs' defaults; false if a knob has none, or if it is not
// allowed.
func (s *Space) Default() (Point, bool) {
	p := make(Point, len(s.Knobs))
	for i, k := range s.Knobs {
		if k.Default < 0 {
			return nil, false
		}
		p[i] = uint16(k.Default)
	}
	return p, s.Allowed(p)
}

// Values returns the values of a point, in the order of the knobs.
func (s *Space) Values(p Point) []rule.Value {
	values := make([]rule.Value, len(p))
	for i, v := range p {
		values[i] = s.Knobs[i].Values[v]
	}
	return values
}

// Format formats a point as settings of the knobs that have more than one value.
func (s *Space) Format(p Point) string {
	var settings []string
	for i, v := range p {
		if k := s.Knobs[i]; len(k.Values) > 1 {
			settings = append(settings, k.Name+"="+k.Values[v].String())
		}
	}
	if len(settings) == 0 {
		return "the only variant"
	}
	return strings.Join(settings, " ")
}

// Fingerprint identifies the space, so that a journal is never resumed in another one.
func (s *Space) Fingerprint() string {
	h := fnv.New64a()
	for _, k := range s.Knobs {
		fmt.Fprintf(h, "%q %q %q\n", k.Name, k.Layer, k.Values)
	}
	for _, r := range s.rules {
		fmt.Fprintf(h, "%q\n", r.String())
	}
	for _, c := range s.components {
		for _, row := range c.rows {
			for _, v := range row {
				_, _ = h.Write([]byte{byte(v >> 8), byte(v)})
			}
		}
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
