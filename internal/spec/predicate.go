package spec

import (
	"fmt"
	"slices"

	"go.starlark.net/syntax"

	"attune/internal/tensor"
)

// Predicate names an expression over a shape, so that the conditions of a selection can use it.
// Its value is an integer; a boolean expression gives 0 or 1. A constant may have a name too.
type Predicate struct {
	Name  string
	Rule  string // a Starlark expression over the words of a shape and the predicates before it
	About string

	rule expression
	line int // of the rule
}

// vocabulary is what the rule of predicate n may name: the words of a shape and the predicates
// before n. With n the number of predicates it is what a condition may name.
func (s *Selection) vocabulary(n int) vocabulary {
	v := vocabulary{one: "word of a shape", many: "words of a shape", names: slices.Clone(shapeWords)}
	if len(s.Predicates) > 0 {
		v.one, v.many = "word of a shape or predicate", "words of a shape, predicates"
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

// evaluate returns the values of the words of a shape and of all predicates, in the order of the
// vocabulary. If a predicate has no value for the shape, it returns the predicate's index and an error.
func (s *Selection) evaluate(shape tensor.Shape) ([]int, int, error) {
	values := valuesOf(shape)
	for i, p := range s.Predicates {
		value, err := p.rule.number(values)
		if err != nil {
			return nil, i, fmt.Errorf("%s: predicate %s (%q) has no value for %s: %w", s.Name, p.Name, p.Rule, shape, err)
		}
		values = append(values, value)
	}
	return values, 0, nil
}

// predicates reads all names before it compiles a rule, to recognise a predicate that is declared too late.
func (l *loader) predicates(tables []*table, s *Selection) {
	for _, t := range tables {
		p := Predicate{Name: t.text("name"), Rule: t.text("rule"), About: t.prose("about"), line: t.at("rule")}
		l.predicateName(t, p.Name, s)
		t.close()
		s.Predicates = append(s.Predicates, p)
	}
	for i, t := range tables {
		p := &s.Predicates[i]
		if p.Rule == "" { // reported already
			continue
		}
		rule, wrong := compile(p.Rule, s.vocabulary(i))
		for _, err := range wrong {
			l.bad.add(p.line, "%q in %s is %q: %v", "rule", t.name, p.Rule, err)
		}
		p.rule = rule
	}
}

// predicateName reports a name that an expression could not use, or that means something else there.
func (l *loader) predicateName(t *table, name string, s *Selection) {
	l.form(t, "name", name, wordForm)
	l.unique(t, name, slices.ContainsFunc(s.Predicates, func(p Predicate) bool { return p.Name == name }))
	switch {
	case slices.Contains(shapeWords, name):
		l.bad.add(t.at("name"), "%s %q has the name of a word of a shape; choose another name", t.name, name)
	case slices.Contains(ruleFunctions, name):
		l.bad.add(t.at("name"), "%s %q has the name of a function; choose another name", t.name, name)
	case wordForm.pattern.MatchString(name):
		if _, err := new(syntax.FileOptions).ParseExpr("name", name, 0); err != nil {
			l.bad.add(t.at("name"), "%s %q has the name of a Starlark keyword; choose another name", t.name, name)
		}
	}
}

// tryPredicates evaluates the predicates for every shape of the file, and reports each that has no
// value for a shape, or one of a wrong type.
func (l *loader) tryPredicates(s *Selection) {
	reported := map[int]bool{}
	for _, g := range l.Groups {
		for _, shape := range g.Problems {
			_, i, err := s.evaluate(shape)
			if err != nil && !reported[i] {
				reported[i] = true
				l.bad.add(s.Predicates[i].line, "%v", err)
			}
		}
	}
}
