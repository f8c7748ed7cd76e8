package spec

import "slices"

// search finds assignments that obey every constraint. It tries one knob after the other, and after each step takes away
// what the constraints can no longer allow, so that a dead end shows early. It gives up only when nothing is left to try:
// what it does not find, no variant has.
type search struct {
	knobs []Knob
	rules []*rule
	of    [][]*rule // the rules that use a knob
}

// choices has for each knob the values that are left, as indices into Knob.Values.
type choices [][]int

// rule is a constraint that remembers its answers.
type rule struct {
	*Constraint
	knobs  []Knob
	values []int    // of all knobs, for the question that is being put
	known  []answer // by place; nil where they would be too many to keep
}

type answer int8

const (
	unasked answer = iota
	yes
	no
)

const (
	mostKept  = 1 << 20 // answers of one rule
	mostTried = 1 << 12 // combinations that one look at a rule goes through; with more left it is too early to look
)

func newSearch(k *Kernel) *search {
	s := &search{knobs: k.Knobs, of: make([][]*rule, len(k.Knobs))}
	for _, c := range k.Constraints {
		r := &rule{Constraint: c, knobs: k.Knobs, values: make([]int, len(k.Knobs))}
		combinations := 1
		for _, knob := range c.uses {
			s.of[knob] = append(s.of[knob], r)
			combinations = min(combinations*len(k.Knobs[knob].Values), mostKept+1)
		}
		if combinations <= mostKept {
			r.known = make([]answer, combinations)
		}
		s.rules = append(s.rules, r)
	}
	return s
}

// all is every value of every knob, without those that no rule allows; false where no variant is allowed at all.
func (s *search) all() (choices, bool) {
	left := make(choices, len(s.knobs))
	for knob := range left {
		for value := range s.knobs[knob].Values {
			left[knob] = append(left[knob], value)
		}
	}
	return left, s.narrow(left, slices.Clone(s.rules))
}

// with gives what is left once a knob has a value; false where that is known to lead nowhere.
func (s *search) with(left choices, knob, value int) (choices, bool) {
	if !slices.Contains(left[knob], value) {
		return nil, false
	}
	left = slices.Clone(left)
	left[knob] = []int{value}
	return left, s.narrow(left, slices.Clone(s.of[knob]))
}

// without gives what is left once a knob cannot have a value.
func (s *search) without(left choices, knob, value int) (choices, bool) {
	left = slices.Clone(left)
	left[knob] = slices.DeleteFunc(slices.Clone(left[knob]), func(v int) bool { return v == value })
	return left, len(left[knob]) > 0 && s.narrow(left, slices.Clone(s.of[knob]))
}

// complete leaves one value to each knob. next names what to try first: a knob with several values left, and one of
// them.
func (s *search) complete(left choices, next func(choices) (knob, value int)) (choices, bool) {
	if !slices.ContainsFunc(left, func(values []int) bool { return len(values) > 1 }) {
		return left, true
	}
	knob, value := next(left)
	if some, ok := s.with(left, knob, value); ok {
		if found, ok := s.complete(some, next); ok {
			return found, true
		}
	}
	if others, ok := s.without(left, knob, value); ok {
		return s.complete(others, next)
	}
	return nil, false
}

// narrow asks the pending rules, and then those whose knobs have lost values, until nothing changes. It is false when a
// knob has no value left.
func (s *search) narrow(left choices, pending []*rule) bool {
	for len(pending) > 0 {
		asked := pending[0]
		pending = pending[1:]
		for _, knob := range asked.narrow(left) {
			if len(left[knob]) == 0 {
				return false
			}
			for _, r := range s.of[knob] {
				if r != asked && !slices.Contains(pending, r) {
					pending = append(pending, r)
				}
			}
		}
	}
	return true
}

// narrow takes away the values that the rule allows with nothing that is left of its other knobs. It names the knobs that
// lost some.
func (r *rule) narrow(left choices) []int {
	combinations, missing := 1, 0
	allowed := make([][]bool, len(r.uses)) // by place among what is left
	for i, knob := range r.uses {
		combinations = min(combinations*len(left[knob]), mostTried+1)
		missing += len(left[knob])
		allowed[i] = make([]bool, len(left[knob]))
	}
	if combinations > mostTried {
		return nil
	}
	at := make([]int, len(r.uses))
	for range combinations {
		if r.holds(left, at) {
			for i, place := range at {
				if !allowed[i][place] {
					allowed[i][place] = true
					missing--
				}
			}
			if missing == 0 {
				return nil
			}
		}
		for i := range at { // the next combination, as a counter goes on
			if at[i]++; at[i] < len(allowed[i]) {
				break
			}
			at[i] = 0
		}
	}
	var narrowed []int
	for i, knob := range r.uses {
		if !slices.Contains(allowed[i], false) {
			continue
		}
		var kept []int
		for place, value := range left[knob] {
			if allowed[i][place] {
				kept = append(kept, value)
			}
		}
		left[knob] = kept
		narrowed = append(narrowed, knob)
	}
	return narrowed
}

// holds says whether the rule allows the values at these places of what is left. A rule without an answer allows nothing.
func (r *rule) holds(left choices, at []int) bool {
	place := 0
	for i, knob := range r.uses {
		place = place*len(r.knobs[knob].Values) + left[knob][at[i]]
	}
	if r.known != nil && r.known[place] != unasked {
		return r.known[place] == yes
	}
	for i, knob := range r.uses {
		r.values[knob] = r.knobs[knob].Values[left[knob][at[i]]]
	}
	ok, err := r.Holds(r.values)
	ok = ok && err == nil
	if r.known != nil {
		r.known[place] = no
		if ok {
			r.known[place] = yes
		}
	}
	return ok
}
