package rule

import "slices"

// Solver finds assignments of names that obey all rules between them. It is immutable and safe for
// concurrent use.
type Solver struct {
	values [][]Value // by name
	names  []int     // those that it assigns, ascending
	place  []int     // by name: its position in names
	rules  []*Rule
	of     [][]*Rule // by position: the rules that use the name
	alone  Domains   // by position: the values that the rules of one name allow
}

// Domains has the values that are left to each name of a solver, by position, as indices into the
// values of the name. A domain is never changed in place.
type Domains [][]uint16

// NewSolver returns the solver of some names, all if names is nil. values has the values of every
// name of the vocabulary. The solver takes the rules between its names, and those without a name.
func NewSolver(values [][]Value, rules []*Rule, names []int) *Solver {
	s := &Solver{values: values, names: names, place: make([]int, len(values))}
	if names == nil {
		for name := range values {
			s.names = append(s.names, name)
		}
	}
	for name := range s.place {
		s.place[name] = -1
	}
	for at, name := range s.names {
		s.place[name] = at
	}
	s.of = make([][]*Rule, len(s.names))
	for _, r := range rules {
		if len(r.uses) > 0 && s.place[r.uses[0]] < 0 {
			continue
		}
		s.rules = append(s.rules, r)
		for _, name := range r.uses {
			s.of[s.place[name]] = append(s.of[s.place[name]], r)
		}
	}
	s.restrict()
	return s
}

// Names returns the names that the solver assigns.
func (s *Solver) Names() []int { return s.names }

// Rules returns the rules that it obeys.
func (s *Solver) Rules() []*Rule { return s.rules }

// restrict finds the values that the rules of a single name allow.
func (s *Solver) restrict() {
	env := make([]Value, len(s.values))
	never := slices.ContainsFunc(s.rules, func(r *Rule) bool { return len(r.uses) == 0 && !r.Holds(env) })
	s.alone = make(Domains, len(s.names))
	for at, name := range s.names {
		for i, value := range s.values[name] {
			env[name] = value
			broken := func(r *Rule) bool { return len(r.uses) == 1 && !r.Holds(env) }
			if !never && !slices.ContainsFunc(s.of[at], broken) {
				s.alone[at] = append(s.alone[at], uint16(i))
			}
		}
	}
}

// Allows checks a full assignment: for each name of the vocabulary the index of its value.
func (s *Solver) Allows(assignment []uint16) bool {
	env := make([]Value, len(s.values))
	for _, name := range s.names {
		env[name] = s.values[name][assignment[name]]
	}
	return !slices.ContainsFunc(s.rules, func(r *Rule) bool { return !r.Holds(env) })
}

// Each yields all assignments in order, those from a row on if it is not nil. A row has the index of
// a value for each position, and is valid until the next one. Each is false if yield stopped it, or
// after as many visits as allowed; negative for no limit. A visit tries one value of one name, and
// counts as often as it checks a rule, and a large rule several times.
func (s *Solver) Each(from []uint16, visits int, yield func(row []uint16) bool) bool {
	e := enumeration{
		Solver: s, visits: visits, limited: visits >= 0, from: from, row: make([]uint16, len(s.names)), env: make([]Value, len(s.values)),
		ready: make([][]*Rule, len(s.names)),
	}
	for _, r := range s.rules {
		if n := len(r.uses); n > 1 {
			last := s.place[r.uses[n-1]]
			e.ready[last] = append(e.ready[last], r)
		}
	}
	return e.step(0, yield)
}

// enumeration is a depth-first search in the order of the names, so that its results are sorted.
type enumeration struct {
	*Solver
	visits  int // left
	limited bool
	from    []uint16
	row     []uint16
	env     []Value
	ready   [][]*Rule // by position: the rules of several names whose last it assigns
}

func (e *enumeration) step(at int, yield func([]uint16) bool) bool {
	if at == len(e.row) {
		return yield(e.row)
	}
	onPath := e.from != nil && slices.Equal(e.row[:at], e.from[:at])
	name := e.names[at]
values:
	for _, value := range e.alone[at] {
		if onPath && value < e.from[at] {
			continue
		}
		if e.limited && e.visits <= 0 {
			return false
		}
		e.visits--
		e.env[name] = e.values[name][value]
		for i, r := range e.ready[at] {
			if e.visits -= r.weight; i == 0 {
				e.visits++ // the visit itself
			}
			if !r.Holds(e.env) {
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
