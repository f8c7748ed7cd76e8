package spec

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"attune/internal/rule"
)

// random reads how random problems are drawn, and draws one.
func (l *loader) random(file *table) {
	t := file.inner("random", "[random]", optional)
	if t == nil {
		return
	}
	r := &Random{Against: AgainstPeers, Required: 1, line: t.line}
	sound := l.ok(func() {
		l.against(t, r)
		l.draws(t, r)
		t.close()
	})
	if !sound {
		return
	}
	if _, err := r.Draw(1, 0, func(Shape) error { return nil }); err != nil {
		found, _ := errors.AsType[problem](err)
		l.problems = append(l.problems, found)
		return
	}
	l.Random = r
}

// against reads what times are compared with.
func (l *loader) against(t *table, r *Random) {
	if t.get("required") != nil {
		r.Required = t.positive("required")
	}
	if t.get("against") != nil {
		r.Against = t.text("against")
	}
	switch known := []string{AgainstPeers, AgainstCopy}; {
	case r.Against == "": // reported
	case !slices.Contains(known, r.Against):
		l.problems.add(t.at("against"), "%q in %s is %q%s", "against", t.name, r.Against, hint(r.Against, known))
	case r.Against == AgainstCopy && l.Declared != nil && l.Declared.Bytes == nil:
		l.problems.add(t.at("against"), "%q in %s is %q, which needs the bytes of a launch; write bytes in [work]", "against", t.name, r.Against)
	}
	if t.get("overhead_us") == nil {
		return
	}
	r.OverheadUS = t.number("overhead_us", func(x float64) bool { return x >= 0 && x <= math.MaxFloat64 }, "of at least 0")
	if r.Against == AgainstPeers {
		l.problems.add(t.at("overhead_us"), "%q in %s is for against = %q only", "overhead_us", t.name, AgainstCopy)
	}
}

// draws reads the names of [random.axes], in the order of the file.
func (l *loader) draws(t *table, r *Random) {
	axes := t.inner("axes", "[random.axes]", required)
	if axes == nil {
		return
	}
	used := map[string]bool{}
	for _, name := range axes.keys {
		l.checkAxisName(axes, name)
		if d, ok := l.draw(axes, name, r); ok {
			r.draws = append(r.draws, d)
			if d.value != nil {
				r.markUses(d.value, used)
			}
		}
	}
	for _, c := range l.conditions(t, r) {
		r.markUses(&c.expression, used)
		r.where = append(r.where, c)
	}
	l.drawnAxes(axes, r, used)
}

// markUses notes the names that an expression uses.
func (r *Random) markUses(e *expression, used map[string]bool) {
	for _, name := range e.rule.Uses() {
		used[r.draws[name].name] = true
	}
}

// vocabulary are the names so far.
func (r *Random) vocabulary() vocabulary {
	v := vocabulary{one: "name", many: "names of [random.axes] above", language: rule.Numeric}
	for _, d := range r.draws {
		v.names = append(v.names, d.name)
	}
	return v
}

// draw reads one name: a number, an expression, choices or limits.
func (l *loader) draw(t *table, name string, r *Random) (draw, bool) {
	n := t.get(name)
	d := draw{name: name, line: n.line, multiple: 1}
	switch value := n.value.(type) {
	case int64:
		d.choices = []int{int(value)}
		return d, true
	case string:
		d.text = strings.Join(strings.Fields(value), " ")
		compiled, wrong := compile(d.text, r.vocabulary())
		for _, err := range wrong {
			l.problems.add(n.line, "%q in %s is %q: %v", name, t.name, clip(d.text), err)
		}
		d.value = &compiled
		return d, len(wrong) == 0
	}
	if n.table == nil {
		t.wrongType(name, n, "a number, an expression, or a table such as { from = 1, to = 64 } or { choices = [64, 128] }")
		return d, false
	}
	inner := &table{node: n, name: fmt.Sprintf("%q of [random.axes]", name), problems: t.problems}
	return d, l.ok(func() {
		if inner.get("choices") != nil {
			l.drawnChoices(inner, &d)
		} else {
			l.drawnLimits(inner, &d)
		}
		inner.close()
	})
}

// drawnChoices reads values with their weights.
func (l *loader) drawnChoices(t *table, d *draw) {
	d.choices = list(t, "choices", "integers", integerItem)
	n := t.get("weights")
	if n == nil {
		return
	}
	if len(n.array) != len(d.choices) && d.choices != nil {
		l.problems.add(n.line, "%q in %s has %d items for %d choices", "weights", t.name, len(n.array), len(d.choices))
		return
	}
	for _, item := range n.array { // weights may repeat
		weight, err := integerItem(item)
		if err == nil && (weight < 1 || weight > maxAxis) {
			err = fmt.Errorf("weight %d: want 1 to %d", weight, maxAxis)
		}
		if err != nil {
			l.problems.add(item.line, "%q in %s: %v", "weights", t.name, err)
		}
		d.weights = append(d.weights, weight)
	}
}

// drawnLimits reads a range of integers.
func (l *loader) drawnLimits(t *table, d *draw) {
	if t.get("scale") != nil {
		scale, known := t.text("scale"), []string{"linear", "log"}
		if d.log = scale == known[1]; scale != "" && !slices.Contains(known, scale) {
			l.problems.add(t.at("scale"), "%q in %s is %q%s", "scale", t.name, scale, hint(scale, known))
		}
	}
	least := 0
	if d.log {
		least = 1
	}
	d.low, d.high = t.integer("from", least, maxAxis), t.integer("to", least, maxAxis)
	if t.get("multiple") != nil {
		d.multiple = max(1, t.integer("multiple", 1, maxAxis))
	}
	switch {
	case t.table["from"] == nil || t.table["to"] == nil:
	case d.low > d.high:
		l.problems.add(t.line, "%s is empty: it is from %d to %d", t.name, d.low, d.high)
	case roundUp(d.low, d.multiple) > d.high:
		l.problems.add(t.line, "%s is empty: no multiple of %d is from %d to %d", t.name, d.multiple, d.low, d.high)
	}
}

// conditions reads the rules between names: one, or an array of them.
func (l *loader) conditions(t *table, r *Random) []condition {
	n := t.get("where")
	if n == nil {
		return nil
	}
	items := n.array
	if items == nil {
		items = []*node{n}
	}
	vocabulary := r.vocabulary()
	vocabulary.many = "names of [random.axes]"
	var all []condition
	for _, item := range items {
		text, err := textItem(item)
		if err != nil {
			l.problems.add(item.line, "%q in %s: %v", "where", t.name, err)
			continue
		}
		compiled, wrong := compileCondition(text, vocabulary)
		for _, err := range wrong {
			l.problems.add(item.line, "%q in %s is %q: %v", "where", t.name, clip(text), err)
		}
		if len(wrong) == 0 {
			all = append(all, condition{compiled, text, item.line})
		}
	}
	return all
}

// drawnAxes finds where the value of each axis of the kernel comes from. A name that is no axis must
// be of use to an expression.
func (l *loader) drawnAxes(t *table, r *Random, used map[string]bool) {
	axes := attentionAxes
	if r.shape = attentionShape; l.Declared != nil {
		axes, r.shape = l.Declared.Axes, l.Declared.shape
	}
	if len(axes) == 0 {
		l.problems.add(t.line, "%s has nothing to draw: [shapes] declares no axis", t.name)
		return
	}
	for _, d := range r.draws {
		if !slices.Contains(axes, d.name) && !used[d.name] {
			l.problems.add(d.line, "%q in %s is no axis, and no expression uses it%s", d.name, t.name, hint(d.name, axes))
		}
	}
	for _, name := range axes {
		from, ok := l.axisSource(r, name)
		if !ok && t.table[name] == nil {
			l.problems.add(t.line, "%s has no %q, an axis without a default", t.name, name)
		}
		r.axes = append(r.axes, from)
	}
}

// axisSource is the draw of an axis, or its default. That of attention's K/V heads and keys are the
// draws of heads and queries.
func (l *loader) axisSource(r *Random, name string) (axisSource, bool) {
	if i := slices.IndexFunc(r.draws, func(d draw) bool { return d.name == name }); i >= 0 {
		return axisSource{draw: i}, true
	}
	if l.Declared != nil {
		value, known := l.Declared.AxisDefaults[name]
		return axisSource{-1, value}, known
	}
	switch name {
	case "batch":
		return axisSource{-1, 1}, true
	case "kv_heads":
		return l.axisSource(r, "heads")
	case "keys":
		return l.axisSource(r, "queries")
	}
	return axisSource{-1, 0}, name == "causal"
}
