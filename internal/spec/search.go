package spec

import "slices"

// search solves for assignments that obey every constraint. It assigns one knob after the other.
// After each step it removes the values that the constraints can no longer allow, which reveals
// dead ends early. The search is complete: if it finds no assignment, there is none.
type search struct {
	knobs []Knob
	rules []*cachedRule
	of    [][]*cachedRule // by knob: the rules that use it
}

// domains holds the remaining values of each knob, as indices into Knob.Values.
type domains [][]int

// cachedRule is a constraint that remembers its results.
type cachedRule struct {
	*Constraint
	knobs  []Knob
	values []int    // of all knobs; scratch memory for holds
	cache  []result // by combination of values; nil if there are too many
}

type result int8

const (
	unknown result = iota
	allowed
	forbidden
)

const (
	// maxCached is the largest number of combinations for which a rule keeps its results.
	maxCached = 1 << 20
	// maxTried is the largest number of combinations that one propagation through a rule tries.
	// With more left it is too early to propagate.
	maxTried = 1 << 12
)

func newSearch(k *Kernel) *search {
	s := &search{knobs: k.Knobs, of: make([][]*cachedRule, len(k.Knobs))}
	for _, c := range k.Constraints {
		r := &cachedRule{Constraint: c, knobs: k.Knobs, values: make([]int, len(k.Knobs))}
		combinations := 1
		for _, knob := range c.uses {
			s.of[knob] = append(s.of[knob], r)
			combinations = min(combinations*len(k.Knobs[knob].Values), maxCached+1)
		}
		if combinations <= maxCached {
			r.cache = make([]result, combinations)
		}
		s.rules = append(s.rules, r)
	}
	return s
}

// all returns every value of every knob without those that no assignment can have. It is false if
// no assignment is possible.
func (s *search) all() (domains, bool) {
	left := make(domains, len(s.knobs))
	for knob := range left {
		for value := range s.knobs[knob].Values {
			left[knob] = append(left[knob], value)
		}
	}
	return left, s.propagate(left, slices.Clone(s.rules))
}

// assign returns the domains after a knob gets a value. It is false if that is a dead end.
func (s *search) assign(left domains, knob, value int) (domains, bool) {
	if !slices.Contains(left[knob], value) {
		return nil, false
	}
	left = slices.Clone(left)
	left[knob] = []int{value}
	return left, s.propagate(left, slices.Clone(s.of[knob]))
}

// exclude returns the domains without one value of a knob. It is false if that is a dead end.
func (s *search) exclude(left domains, knob, value int) (domains, bool) {
	left = slices.Clone(left)
	left[knob] = slices.DeleteFunc(slices.Clone(left[knob]), func(v int) bool { return v == value })
	return left, len(left[knob]) > 0 && s.propagate(left, slices.Clone(s.of[knob]))
}

// complete assigns all knobs. next chooses what to try first: a knob with several values left, and
// one of these values.
func (s *search) complete(left domains, next func(domains) (knob, value int)) (domains, bool) {
	if !slices.ContainsFunc(left, func(values []int) bool { return len(values) > 1 }) {
		return left, true
	}
	knob, value := next(left)
	if assigned, ok := s.assign(left, knob, value); ok {
		if found, ok := s.complete(assigned, next); ok {
			return found, true
		}
	}
	if others, ok := s.exclude(left, knob, value); ok {
		return s.complete(others, next)
	}
	return nil, false
}

// propagate narrows the domains by the pending rules, then by the rules of every knob that lost
// values, until nothing changes. It is false if a knob has no value left.
func (s *search) propagate(left domains, pending []*cachedRule) bool {
	for len(pending) > 0 {
		current := pending[0]
		pending = pending[1:]
		for _, knob := range current.narrow(left) {
			if len(left[knob]) == 0 {
				return false
			}
			for _, r := range s.of[knob] {
				if r != current && !slices.Contains(pending, r) {
					pending = append(pending, r)
				}
			}
		}
	}
	return true
}

// narrow removes the values that the rule allows with no combination of its other knobs. It returns
// the knobs that lost values.
func (r *cachedRule) narrow(left domains) []int {
	supported := r.supported(left)
	if supported == nil {
		return nil
	}
	var narrowed []int
	for i, knob := range r.uses {
		if !slices.Contains(supported[i], false) {
			continue
		}
		var kept []int
		for j, value := range left[knob] {
			if supported[i][j] {
				kept = append(kept, value)
			}
		}
		left[knob] = kept
		narrowed = append(narrowed, knob)
	}
	return narrowed
}

// supported marks, for each knob of the rule, the remaining values that occur in an allowed
// combination. It returns nil if all do, or if there are too many combinations to try.
func (r *cachedRule) supported(left domains) [][]bool {
	combinations, missing := 1, 0
	supported := make([][]bool, len(r.uses))
	for i, knob := range r.uses {
		combinations = min(combinations*len(left[knob]), maxTried+1)
		missing += len(left[knob])
		supported[i] = make([]bool, len(left[knob]))
	}
	if combinations > maxTried {
		return nil
	}
	at := make([]int, len(r.uses)) // the current combination, as indices into left
	for range combinations {
		if r.holds(left, at) {
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
		for i := range at { // count up to the next combination
			if at[i]++; at[i] < len(supported[i]) {
				break
			}
			at[i] = 0
		}
	}
	return supported
}

// holds reports whether the rule allows a combination of remaining values. A rule that fails to
// evaluate allows nothing.
func (r *cachedRule) holds(left domains, at []int) bool {
	combination := 0
	for i, knob := range r.uses {
		combination = combination*len(r.knobs[knob].Values) + left[knob][at[i]]
	}
	if r.cache != nil && r.cache[combination] != unknown {
		return r.cache[combination] == allowed
	}
	for i, knob := range r.uses {
		r.values[knob] = r.knobs[knob].Values[left[knob][at[i]]]
	}
	ok, err := r.Holds(r.values)
	ok = ok && err == nil
	if r.cache != nil {
		r.cache[combination] = forbidden
		if ok {
			r.cache[combination] = allowed
		}
	}
	return ok
}
