package spec

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/rule"
	"attune/internal/tensor"
)

// Selection is a table that picks a variant for each shape, with a hypothesis like a stage.
type Selection struct {
	Name       string
	Hypothesis string
	Speedup    float64  // required over the parent; 0 without a parent
	Archs      []string // architectures that all its variants build for
	Predicates []Predicate
	Choices    []Choice // the first one that holds for a shape applies; the last always holds
	// Exponentials is what the selection claims of all its variants. It is empty without a claim.
	Exponentials Exponentials

	parent     *Variant
	properties []string // names of a shape that conditions may use
	declared   bool     // they are axes of a declared kernel
}

// Choice is one line of the table.
type Choice struct {
	When    string // an expression over shape properties and predicates; empty in the last choice
	Variant Variant
	Why     string

	when     *expression // nil in the last choice
	whenLine int
	line     int // of the key "variant"
}

// Condition returns the compiled condition over the properties of a shape and all predicates. It is
// nil in the last choice.
func (c *Choice) Condition() *rule.Rule {
	if c.when == nil {
		return nil
	}
	return c.when.rule
}

// shapeProperties are the names that conditions of attention may use.
var shapeProperties, _ = tensor.Shape{}.Axes()

// Choose returns the choice for a shape. It returns an error if a condition cannot be evaluated,
// for example because of a division by zero.
func (s *Selection) Choose(shape Shape) (Choice, error) {
	values, _, err := s.evaluate(shape)
	if err != nil {
		return Choice{}, err
	}
	c, err := s.choose(values)
	if err != nil {
		return Choice{}, fmt.Errorf("%s: %q cannot be evaluated for %s: %w", s.Name, c.When, shape, err)
	}
	return c, nil
}

// choose returns the first choice that holds for the values of the vocabulary, or the first whose
// condition cannot be evaluated, with an error.
func (s *Selection) choose(values []int) (Choice, error) {
	for _, c := range s.Choices {
		if c.when == nil {
			return c, nil
		}
		if holds, err := c.when.Holds(values); holds || err != nil {
			return c, err
		}
	}
	panic("BUG: the last choice of a selection has a condition")
}

// Parent returns the variant that the selection is timed against on every shape; false if there is
// none.
func (s *Selection) Parent() (Variant, bool) {
	if s.parent == nil {
		return Variant{}, false
	}
	return *s.parent, true
}

// Variants returns the distinct variants of the table, in its order.
func (s *Selection) Variants() []Variant {
	var all []Variant
	for _, c := range s.Choices {
		if !slices.ContainsFunc(all, func(v Variant) bool { return v.String() == c.Variant.String() }) {
			all = append(all, c.Variant)
		}
	}
	return all
}

// Terms returns the names that conditions of the selection may use, and their values for a shape:
// first the axes of the problem, whose number is returned too, then the predicates.
func (s *Selection) Terms(shape Shape) (names []string, values []int, axes int, err error) {
	values, _, err = s.evaluate(shape)
	return s.vocabulary(len(s.Predicates)).names, values, len(s.properties), err
}

// WithChoices returns the selection with another table. It refuses what kernel.toml may not have: a
// wrong condition, a last choice with a condition, an approximation where the selection claims exact
// exponentials.
func (s *Selection) WithChoices(choices []Choice) (*Selection, error) {
	other := *s
	other.Choices = slices.Clone(choices)
	for i := range other.Choices {
		c := &other.Choices[i]
		if last := i == len(choices)-1; last != (c.When == "") {
			return nil, fmt.Errorf("%s: choice %d of %d has the condition %q; all but the last have one", s.Name, i+1, len(choices), c.When)
		}
		if s.Exponentials == ExactExponentials && c.Variant.Exponentials() != ExactExponentials {
			return nil, fmt.Errorf("%s has exact exponentials, but not in %s", s.Name, c.Variant)
		}
		if c.when = nil; c.When == "" {
			continue
		}
		when, wrong := compileCondition(c.When, s.vocabulary(len(s.Predicates)))
		if len(wrong) > 0 {
			return nil, fmt.Errorf("%s: the condition %q: %w", s.Name, clip(c.When), wrong[0])
		}
		c.when = &when
	}
	if len(choices) == 0 {
		return nil, fmt.Errorf("%s: a table needs a choice", s.Name)
	}
	return &other, nil
}

// Selection returns the selection of a name, nil if there is none.
func (k *Kernel) Selection(name string) *Selection {
	for _, s := range k.Selections {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// notVariant is the error of a selection name where a single variant is needed.
func (s *Selection) notVariant() error {
	var names []string
	for _, v := range s.Variants() {
		names = append(names, v.String())
	}
	return fmt.Errorf("%s is a selection: its variant depends on the shape; name one variant: %s "+
		"(`attune list selections` shows the shapes of each)", s.Name, strings.Join(names, ", "))
}

// selection reads a selection and tries it on every shape of the file.
func (l *loader) selection(t *table, valid map[*Stage]bool) {
	s := &Selection{Name: t.text("name"), properties: l.axes(), declared: l.Declared != nil}
	ok := l.ok(func() {
		l.checkForm(t, "name", s.Name, nameForm)
		l.checkUnique(t, s.Name, l.Selection(s.Name) != nil)
		if slices.ContainsFunc(l.Stages, func(o *Stage) bool { return o.Name == s.Name }) && s.Name != "" {
			l.problems.add(t.at("name"), "%s %q has the name of a stage; choose another name", t.name, s.Name)
		}
		s.Hypothesis = l.prose(t, "hypothesis")
		s.parent = l.parentAndSpeedup(t, &s.Speedup, valid)
		l.sharedPredicates(t, s)
		l.predicates(t.tables("predicate", optional), s)
		l.choices(t.tables("choice", required), s, valid)
		l.exponentials(t, s)
	})
	t.close()
	if !ok || l.unusable || len(s.Choices) == 0 { // reported already
		return
	}
	l.Selections = append(l.Selections, s)
	l.commonArchs(t, s)
	if l.ok(func() { l.tryPredicates(s) }) {
		l.tryChoices(s)
	}
}

func (l *loader) choices(tables []*table, s *Selection, valid map[*Stage]bool) {
	for i, t := range tables {
		c := Choice{When: t.optionalText("when"), Why: l.prose(t, "why"), whenLine: t.at("when"), line: t.at("variant")}
		if v := l.variant(t, "variant", valid); v != nil {
			c.Variant = *v
		}
		t.close()
		last := i == len(tables)-1
		switch {
		case t.table["when"] == nil && !last:
			l.problems.add(tables[i+1].line, "this %s is unreachable: the one before it has no %q and applies to all shapes", t.name, "when")
		case t.table["when"] != nil && last:
			l.problems.add(c.whenLine, "the last %s has a %q; remove it, so that the choice applies to all remaining shapes", t.name, "when")
		}
		if c.When != "" {
			when, wrong := compileCondition(c.When, s.vocabulary(len(s.Predicates)))
			for _, err := range wrong {
				l.problems.add(c.whenLine, "%q in %s is %q: %v", "when", t.name, clip(c.When), err)
			}
			c.when = &when
		}
		s.Choices = append(s.Choices, c)
	}
}

// commonArchs sets the architectures that all variants of a selection build for, and reports if
// there are none.
func (l *loader) commonArchs(t *table, s *Selection) {
	for _, arch := range s.Choices[0].Variant.stage.Archs {
		if !slices.ContainsFunc(s.Choices, func(c Choice) bool { return !slices.Contains(c.Variant.stage.Archs, arch) }) {
			s.Archs = append(s.Archs, arch)
		}
	}
	if len(s.Archs) > 0 {
		return
	}
	var all []string
	for _, v := range s.Variants() {
		all = append(all, fmt.Sprintf("%s is for %s", v, strings.Join(v.stage.Archs, ", ")))
	}
	l.problems.add(t.line, "no architecture runs all variants of %s %q: %s", t.name, s.Name, strings.Join(all, "; "))
}

// tryChoices tries the table on every shape of the file. It reports conditions that fail, and
// choices that apply only to shapes that their variant is not built for. A choice that also fits some
// shapes is accepted: a run reports the shapes that it does not fit.
func (l *loader) tryChoices(s *Selection) {
	misfit, fits := map[int]Shape{}, map[int]bool{} // by the line of the choice
	for _, g := range l.Groups {
		for _, shape := range g.Shapes {
			values, _, err := s.evaluate(shape)
			if err != nil {
				panic("BUG: the predicates were tried on the shapes of the file")
			}
			c, err := s.choose(values)
			if err != nil {
				l.problems.add(c.whenLine, "%s: %q cannot be evaluated for %s: %v", s.Name, c.When, shape, err)
				return
			}
			if c.Variant.Fits(shape) == nil {
				fits[c.line] = true
			} else {
				misfit[c.line] = shape
			}
		}
	}
	for _, c := range s.Choices {
		if shape, ok := misfit[c.line]; ok && !fits[c.line] {
			axes, values := c.Variant.BuiltFor()
			var built []string
			for i, axis := range axes {
				built = append(built, fmt.Sprintf("%s %d", axisWords(axis), values[i]))
			}
			l.problems.add(c.line, "%s is built for %s, but all shapes of the file that select it have another, such as %s",
				c.Variant, strings.Join(built, " and "), shape)
		}
	}
}
