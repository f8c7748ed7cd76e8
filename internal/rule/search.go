package rule

import "slices"

// Search finds single assignments. It assigns one name after the other. After each step it removes
// the values that the rules can no longer allow, which reveals dead ends early. The search is
// complete, unless it is exhausted: if it finds no assignment, there is none.
type Search struct {
	*Solver
	env    []Value
	checks int
}

// maxTried is the largest number of combinations that one propagation through a rule tries. With
// more left it is too early to propagate.
const maxTried = 1 << 12

// Search returns a search that ends after a number of evaluated rules. That is no time, so that a
// search with the same choices has the same result.
func (s *Solver) Search(checks int) *Search {
	return &Search{Solver: s, env: make([]Value, len(s.values)), checks: checks}
}

// Exhausted reports whether the search has ended: every branch is then a dead end.
func (s *Search) Exhausted() bool { return s.checks <= 0 }

// All returns every value of every name without those that no assignment can have. It is false if
// no assignment is possible.
func (s *Search) All() (Domains, bool) {
	left := slices.Clone(s.alone)
	if slices.ContainsFunc(left, func(values []uint16) bool { return len(values) == 0 }) {
		return nil, false
	}
	return left, s.propagate(left, slices.Clone(s.rules))
}

// Assign returns the domains after the name at a position gets a value. It is false if that is a
// dead end.
func (s *Search) Assign(left Domains, at int, value uint16) (Domains, bool) {
	if !slices.Contains(left[at], value) {
		return nil, false
	}
	left = slices.Clone(left)
	left[at] = []uint16{value}
	return left, s.propagate(left, slices.Clone(s.of[at]))
}

// exclude returns the domains without one value of a name. It is false if that is a dead end.
func (s *Search) exclude(left Domains, at int, value uint16) (Domains, bool) {
	left = slices.Clone(left)
	left[at] = slices.DeleteFunc(slices.Clone(left[at]), func(v uint16) bool { return v == value })
	return left, len(left[at]) > 0 && s.propagate(left, slices.Clone(s.of[at]))
}

// Complete assigns all names. next chooses what to try first: a position with several values left,
// and one of these values.
func (s *Search) Complete(left Domains, next func(Domains) (at int, value uint16)) (Domains, bool) {
	for slices.ContainsFunc(left, func(values []uint16) bool { return len(values) > 1 }) {
		at, value := next(left)
		if assigned, ok := s.Assign(left, at, value); ok {
			if found, ok := s.Complete(assigned, next); ok {
				return found, true
			}
		}
		others, ok := s.exclude(left, at, value)
		if !ok {
			return nil, false
		}
		left = others
	}
	return left, true
}

// propagate narrows the domains by the pending rules, then by the rules of every name that lost
// values, until nothing changes. It is false if a name has no value left, or if the search is
// exhausted.
func (s *Search) propagate(left Domains, pending []*Rule) bool {
	for len(pending) > 0 {
		current := pending[0]
		if s.checks -= current.weight; s.Exhausted() {
			return false
		}
		pending = pending[1:]
		for _, at := range s.narrow(current, left) {
			if len(left[at]) == 0 {
				return false
			}
			for _, r := range s.of[at] {
				if r != current && !slices.Contains(pending, r) {
					pending = append(pending, r)
				}
			}
		}
	}
	return true
}

// narrow removes the values that a rule allows with no combination of its other names. It returns
// the positions that lost values.
func (s *Search) narrow(r *Rule, left Domains) []int {
	supported := s.supported(r, left)
	if supported == nil {
		return nil
	}
	var narrowed []int
	for i, name := range r.uses {
		if !slices.Contains(supported[i], false) {
			continue
		}
		at := s.place[name]
		var kept []uint16
		for j, value := range left[at] {
			if supported[i][j] {
				kept = append(kept, value)
			}
		}
		left[at] = kept
		narrowed = append(narrowed, at)
	}
	return narrowed
}

// supported marks, for each name of a rule, the values left that occur in an allowed combination. It
// returns nil if all do, or if there are too many combinations to try.
func (s *Search) supported(r *Rule, left Domains) [][]bool {
	combinations, missing := 1, 0
	for _, name := range r.uses {
		n := len(left[s.place[name]])
		combinations = min(combinations*n, maxTried+1)
		missing += n
	}
	if combinations > maxTried {
		return nil
	}
	supported := make([][]bool, len(r.uses))
	at := make([]int, len(r.uses)) // the current combination, as indices into left
	for i, name := range r.uses {
		supported[i] = make([]bool, len(left[s.place[name]]))
		s.set(name, left, 0)
	}
	for range combinations {
		s.checks -= r.weight
		if r.Holds(s.env) {
			for i, j := range at {
				if !supported[i][j] {
					supported[i][j] = true
					missing--
				}
			}
			if missing == 0 {
				return nil
			}
		}
		for i, name := range r.uses { // count up to the next combination
			if at[i]++; at[i] == len(supported[i]) {
				at[i] = 0
			}
			s.set(name, left, at[i])
			if at[i] > 0 {
				break
			}
		}
	}
	return supported
}

func (s *Search) set(name int, left Domains, i int) {
	s.env[name] = s.values[name][left[s.place[name]][i]]
}
