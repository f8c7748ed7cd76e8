package spec

import (
	"fmt"
	"slices"

	"attune/internal/rule"
)

// Predicate names an expression over a shape, for use in the conditions of a selection. Its value
// is an integer; a boolean expression gives 0 or 1. The expression may be a constant.
type Predicate struct {
	Name  string
	Rule  string // a Starlark expression over shape properties and the predicates before it
	About string

	rule expression
	line int // of the rule
}

// Compiled returns the rule over the properties of a shape and the predicates before it.
func (p *Predicate) Compiled() *rule.Rule { return p.rule.rule }

// vocabulary returns the names that the rule of predicate n may use: shape properties and the
// predicates before n. With n = len(s.Predicates) these are the names that a condition may use.
func (s *Selection) vocabulary(n int) vocabulary {
	v := vocabulary{one: "shape property", many: "shape properties", names: slices.Clone(s.properties)}
	if s.declared {
		v.one, v.many = "axis", "axes"
	}
	if len(s.Predicates) > 0 {
		v.one, v.many = v.one+" or predicate", v.many+", predicates"
	}
	for i, p := range s.Predicates {
		if i < n {
			v.names = append(v.names, p.Name)
		} else {
			v.later = append(v.later, p.Name)
		}
	}
	return v
}

// evaluate returns the properties of a shape and the values of all predicates, in the order of the
// vocabulary. If a predicate cannot be evaluated, it returns the predicate's index and an error.
func (s *Selection) evaluate(shape Shape) ([]int, int, error) {
	_, values := shape.Axes()
	for i, p := range s.Predicates {
		value, err := p.rule.number(values)
		if err != nil {
			return nil, i, fmt.Errorf("%s: predicate %s (%q) cannot be evaluated for %s: %w", s.Name, p.Name, p.Rule, shape, err)
		}
		values = append(values, value)
	}
	return values, 0, nil
}

// predicates reads all names before it compiles a rule, to recognise uses of predicates declared
// below.
func (l *loader) predicates(tables []*table, s *Selection) {
	shared := len(s.Predicates)
	for _, t := range tables {
		p := Predicate{Name: t.text("name"), Rule: t.text("rule"), About: l.prose(t, "about"), line: t.at("rule")}
		l.checkPredicateName(t, p.Name, s)
		t.close()
		s.Predicates = append(s.Predicates, p)
	}
	for i, t := range tables {
		p := &s.Predicates[shared+i]
		if p.Rule == "" { // reported already
			continue
		}
		compiled, wrong := compile(p.Rule, s.vocabulary(shared+i))
		for _, err := range wrong {
			l.problems.add(p.line, "%q in %s is %q: %v", "rule", t.name, clip(p.Rule), err)
		}
		p.rule = compiled
	}
}

// sharedPredicates gives a selection the predicates of the selection that its key "predicates_of"
// names.
func (l *loader) sharedPredicates(t *table, s *Selection) {
	name := t.optionalText("predicates_of")
	if t.table["predicates_of"] == nil {
		return
	}
	other := l.Selection(name)
	if other == nil {
		l.problems.add(t.at("predicates_of"), "%q in %s is %q: there is no such selection above", "predicates_of", t.name, name)
		return
	}
	s.Predicates = slices.Clone(other.Predicates)
}

// checkPredicateName reports a name that an expression cannot use, or that has another meaning
// there.
func (l *loader) checkPredicateName(t *table, name string, s *Selection) {
	l.checkForm(t, "name", name, wordForm)
	l.checkUnique(t, name, slices.ContainsFunc(s.Predicates, func(p Predicate) bool { return p.Name == name }))
	what := "a shape property"
	if s.declared {
		what = "an axis"
	}
	switch {
	case slices.Contains(s.properties, name):
		l.problems.add(t.at("name"), "%s %q has the name of %s; choose another name", t.name, name, what)
	case slices.Contains(rule.Plain.Functions(), name):
		l.problems.add(t.at("name"), "%s %q has the name of a function; choose another name", t.name, name)
	case wordForm.pattern.MatchString(name):
		if !rule.IsWord(name) {
			l.problems.add(t.at("name"), "%s %q has the name of a Starlark keyword; choose another name", t.name, name)
		}
	}
}

// tryPredicates evaluates the predicates for every shape of the file, and reports each that fails
// or gives a value of the wrong type.
func (l *loader) tryPredicates(s *Selection) {
	reported := map[int]bool{}
	for _, g := range l.Groups {
		for _, shape := range g.Shapes {
			_, i, err := s.evaluate(shape)
			if err != nil && !reported[i] {
				reported[i] = true
				l.problems.add(s.Predicates[i].line, "%v", err)
			}
		}
	}
}
