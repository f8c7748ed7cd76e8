package spec

import (
	"math"
	"slices"
	"strings"
)

func (l *loader) knob(t *table) {
	var k Knob
	ok := l.ok(func() {
		k.Name = t.text("name")
		l.checkForm(t, "name", k.Name, knobForm)
		l.checkUnique(t, k.Name, slices.Contains(l.knobNames(), k.Name))
		k.Values = list(t, "values", "integers", integerItem)
		k.Default = t.integer("default", math.MinInt, math.MaxInt)
	})
	if len(k.Values) > math.MaxUint16 {
		l.problems.add(t.at("values"), "%s has %d values; at most %d are supported", k.Name, len(k.Values), math.MaxUint16)
	}
	if ok && !slices.Contains(k.Values, k.Default) {
		l.problems.add(t.at("default"), "the default of %s is %d; %s", k.Name, k.Default, k.allowed())
		ok = false
	}
	k.Layer = Micro
	if l.required(t, "layer") != nil {
		k.Layer = Layer(t.text("layer"))
	}
	if layers := []string{string(Macro), string(Micro)}; k.Layer != "" && !slices.Contains(layers, string(k.Layer)) {
		l.problems.add(t.at("layer"), "unknown layer %q in %s%s", k.Layer, t.name, hint(string(k.Layer), layers))
	}
	k.About = l.prose(t, "about")
	k.Sources = l.sourceList(t)
	k.Formerly = l.formerly(t)
	k.Allow = allowList(t)
	k.Axis = t.optionalText("axis")
	k.Fixed = t.optionalBool("fixed") || k.Axis != "" // the shapes of a search decide it
	t.close()
	l.Knobs = append(l.Knobs, k)
	l.unusable = l.unusable || !ok
}

func (l *loader) constraint(t *table) {
	rule, why, sources := t.text("rule"), l.prose(t, "why"), l.sourceList(t)
	t.close()
	c, wrong := newConstraint(rule, why, l.knobNames())
	if rule != "" { // otherwise its absence has been reported
		for _, err := range wrong {
			l.problems.add(t.at("rule"), "rule %q: %v", clip(rule), err)
		}
	}
	if c == nil {
		l.unusable = true
		return
	}
	c.Sources = sources
	for _, i := range c.rule.Uses() {
		l.bind(t, c, l.Knobs[i], len(sources) > 0)
	}
	l.Constraints = append(l.Constraints, c)
}

// bind restricts a constraint to the sources that have a knob it uses. If the file lists the
// sources of the constraint, each of them must have the knob; otherwise at least one must.
func (l *loader) bind(t *table, c *Constraint, knob Knob, listed bool) {
	has := slices.DeleteFunc(slices.Clone(c.Sources), func(source string) bool { return !knob.in(source) })
	lacks := slices.DeleteFunc(slices.Clone(c.Sources), knob.in)
	if len(lacks) > 0 && (listed || len(has) == 0) {
		l.problems.add(t.at("rule"), "rule %q applies to the stages of %s, which have no knob %s",
			c.Rule, strings.Join(lacks, ", "), knob.Name)
		l.unusable = true
		return
	}
	c.Sources = has
	if len(has) == 0 {
		c.Sources = knob.Sources
	}
}

// sourceList reads the optional sources of a knob or a constraint: a string or an array of strings.
func (l *loader) sourceList(t *table) []string {
	n := t.get("source")
	if n == nil {
		return nil
	}
	if n.array != nil {
		return list(t, "source", "sources", textItem)
	}
	if _, ok := n.value.(string); !ok {
		t.wrongType("source", n, "a string or an array of strings")
		return nil
	}
	if source := t.text("source"); source != "" {
		return []string{source}
	}
	return nil
}

// axes are those of the kernel's shapes.
func (l *loader) axes() []string {
	if l.Declared != nil {
		return l.Declared.Axes
	}
	return shapeProperties
}

// checkAxes reports axes of knobs that no shape has.
func (l *loader) checkAxes(knobs []*table) {
	for _, t := range knobs {
		if axis := t.optionalText("axis"); axis != "" && !slices.Contains(l.axes(), axis) {
			l.problems.add(t.at("axis"), "the shapes have no axis %q, which %s names%s", axis, t.name, hint(axis, l.axes()))
		}
	}
}

// checkSources reports sources of knobs and constraints that no stage has.
func (l *loader) checkSources(tables ...[]*table) {
	var known []string
	for _, s := range l.Stages {
		known = append(known, s.Source)
	}
	for _, t := range slices.Concat(tables...) {
		n := t.table["source"]
		if n == nil {
			continue
		}
		items := n.array
		if items == nil {
			items = []*node{n}
		}
		for _, n := range items {
			if source, ok := n.value.(string); ok && source != "" && !slices.Contains(known, source) {
				l.problems.add(n.line, "no stage has the source %q of %s%s", source, t.name, hint(source, known))
			}
		}
	}
}
