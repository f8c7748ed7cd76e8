package spec

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/tensor"
)

// Selection is a table that says which variant takes which shape, with a hypothesis as a stage has one.
type Selection struct {
	Name       string
	Hypothesis string
	Speedup    float64  // promised over the parent; 0 for a selection without one
	Archs      []string // where every variant of it can run
	Predicates []Predicate
	Choices    []Choice // the first that holds for a shape is taken; the last holds for all

	parent *Variant
}

// Choice is one line of the table.
type Choice struct {
	When    string // a Starlark expression over the words of a shape and predicates; empty in the last choice
	Variant Variant
	Why     string

	when *expression // nil in the last choice
	line int         // of its variant
}

// HeadDimKnob is the knob that must agree with the head dim of a shape.
const HeadDimKnob = "HEAD_DIM"

// shapeWords are what a choice may ask of a shape. Heads are those of all batches: a kernel sees no difference.
var shapeWords = []string{"batch", "heads", "kv_heads", "queries", "keys", "head_dim", "causal"}

// valuesOf has one value for each word of a shape.
func valuesOf(s tensor.Shape) []int {
	causal := 0
	if s.Causal {
		causal = 1
	}
	return []int{s.Batch, s.HeadCount(), s.KVHeadCount(), s.SeqQ, s.SeqK, s.HeadDim, causal}
}

// Choose gives the line of the table that takes a shape. An error means that a condition has no answer for it, as after a division by zero.
func (s *Selection) Choose(shape tensor.Shape) (Choice, error) {
	values, _, err := s.evaluate(shape)
	if err != nil {
		return Choice{}, err
	}
	for _, c := range s.Choices {
		if c.when == nil {
			return c, nil
		}
		holds, err := c.when.Holds(values)
		if err != nil {
			return Choice{}, fmt.Errorf("%s: %q has no answer for %s: %w", s.Name, c.When, shape, err)
		}
		if holds {
			return c, nil
		}
	}
	panic("BUG: the last choice of a selection has a condition")
}

// Parent is what the selection is measured against, whichever variant takes a shape; false where there is nothing.
func (s *Selection) Parent() (Variant, bool) {
	if s.parent == nil {
		return Variant{}, false
	}
	return *s.parent, true
}

// Variants are those that the table names, each once, in its order.
func (s *Selection) Variants() []Variant {
	var all []Variant
	for _, c := range s.Choices {
		if !slices.ContainsFunc(all, func(v Variant) bool { return v.String() == c.Variant.String() }) {
			all = append(all, c.Variant)
		}
	}
	return all
}

// Selection finds a selection by its name; nil where the name is none of one.
func (k *Kernel) Selection(name string) *Selection {
	for _, s := range k.Selections {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// notOne is the answer to whoever needs one variant.
func (s *Selection) notOne() error {
	var names []string
	for _, v := range s.Variants() {
		names = append(names, v.String())
	}
	return fmt.Errorf("%s is a selection and stands for another variant on each shape; name one of them: %s "+
		"(`attune list selections` shows which takes what)", s.Name, strings.Join(names, ", "))
}

// selection reads a table of choices, and tries it on every shape of the file.
func (l *loader) selection(t *table, stages map[*Stage]bool) {
	s := &Selection{Name: t.text("name")}
	sound := l.sound(func() {
		l.form(t, "name", s.Name, nameForm)
		l.unique(t, s.Name, l.Selection(s.Name) != nil)
		if slices.ContainsFunc(l.Stages, func(o *Stage) bool { return o.Name == s.Name }) && s.Name != "" {
			l.bad.add(t.at("name"), "%s %q has the name of a stage", t.name, s.Name)
		}
		s.Hypothesis = t.prose("hypothesis")
		s.parent = l.against(t, &s.Speedup, stages)
		l.predicates(t.tables("predicate", optional), s)
		l.choices(t.tables("choice", required), s, stages)
	})
	t.close()
	if !sound || l.shaky || len(s.Choices) == 0 { // the last of which has been reported
		return
	}
	l.Selections = append(l.Selections, s)
	l.commonArchs(t, s)
	if l.sound(func() { l.tryPredicates(s) }) {
		l.headDims(t, s)
	}
}

func (l *loader) choices(tables []*table, s *Selection, stages map[*Stage]bool) {
	for i, t := range tables {
		c := Choice{When: t.maybe("when"), Why: t.prose("why"), line: t.at("variant")}
		if v := l.named(t, "variant", stages); v != nil {
			c.Variant = *v
		}
		t.close()
		last := i == len(tables)-1
		switch {
		case t.table["when"] == nil && !last:
			l.bad.add(tables[i+1].line, "no shape comes as far as this %s: the one before it has no %q and takes the rest", t.name, "when")
		case t.table["when"] != nil && last:
			l.bad.add(t.at("when"), "the last %s has a %q; without one it takes the rest", t.name, "when")
		}
		if c.When != "" {
			when, wrong := compileCondition(c.When, s.vocabulary(len(s.Predicates)))
			for _, err := range wrong {
				l.bad.add(t.at("when"), "%q in %s is %q: %v", "when", t.name, c.When, err)
			}
			c.when = &when
		}
		s.Choices = append(s.Choices, c)
	}
}

// commonArchs finds where all variants of a selection can run: one of them alone would be no selection.
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
	l.bad.add(t.line, "no architecture runs all variants of %s %q: %s", t.name, s.Name, strings.Join(all, "; "))
}

// headDims tries the table on every shape of the file, and reports the choices that take shapes of other head dims alone. One that takes the rest
// may be given such shapes too: whoever runs them is told.
func (l *loader) headDims(t *table, s *Selection) {
	other, fits := map[int]tensor.Shape{}, map[int]bool{} // by the line of the choice
	for _, g := range l.Groups {
		for _, shape := range g.Problems {
			c, err := s.Choose(shape)
			if err != nil {
				l.bad.add(t.line, "%s %v", t.name, err)
				return
			}
			if dim, ok := c.Variant.Value(HeadDimKnob); ok && dim != shape.HeadDim {
				other[c.line] = shape
			} else {
				fits[c.line] = true
			}
		}
	}
	for _, c := range s.Choices {
		if shape, ok := other[c.line]; ok && !fits[c.line] {
			dim, _ := c.Variant.Value(HeadDimKnob)
			l.bad.add(c.line, "%s is built for head dim %d, and of the shapes in the file it is chosen for others alone, such as %s", c.Variant, dim, shape)
		}
	}
}
