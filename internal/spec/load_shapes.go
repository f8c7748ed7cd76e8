package spec

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// benchmarkKey is the key of [shapes] that names no shape.
const benchmarkKey = "benchmark"

// maxAxis is the largest value of an axis.
const maxAxis = math.MaxInt32

// namedShapes reads the shapes of a declared kernel. A kernel without axes has one shape.
func (l *loader) namedShapes(file *table) {
	n := file.get("shapes")
	if n != nil && n.table == nil {
		file.wrongType("shapes", n, "a table [shapes] with lines such as small = { n = 256 }")
	}
	defaults := l.axisDefaults(file)
	if n == nil || n.table == nil {
		if n == nil && defaults != nil {
			l.problems.add(defaults.line, "%s gives defaults to the axes of [shapes], which the file does not have", defaults.name)
		}
		l.Groups = []Group{{string(noAxes), []Shape{noAxes}}}
		return
	}
	t := &table{node: n, name: "[shapes]", problems: file.problems}
	l.firstWith = map[string]string{}
	var shapes []*table
	for _, name := range t.keys {
		if name == benchmarkKey {
			t.get(name)
			continue
		}
		l.checkShapeName(t, name)
		if shape := t.inner(name, fmt.Sprintf("shape %q", name), required); shape != nil {
			shapes = append(shapes, shape)
			l.axisNames(shape)
			l.Groups = append(l.Groups, Group{Name: name})
		}
	}
	if len(l.Groups) == 0 {
		l.problems.add(t.line, "%s has no shape; write one such as small = { n = 256 }", t.name)
	}
	if defaults != nil {
		l.axisNames(defaults)
	}
	for i, shape := range shapes {
		var axes Axes
		if l.ok(func() { axes = l.axisValues(shape) }) {
			l.Groups[i].Shapes = []Shape{axes}
		}
	}
	t.close()
}

func (l *loader) checkShapeName(t *table, name string) {
	if !shapeForm.pattern.MatchString(name) {
		l.problems.add(t.at(name), "%q in %s is no name of a shape; want %s", name, t.name, shapeForm.want)
	}
}

// axisNames adds the axes of a shape to those of the kernel.
func (l *loader) axisNames(t *table) {
	for _, name := range t.keys {
		if !slices.Contains(l.Declared.Axes, name) {
			l.checkAxisName(t, name)
			l.Declared.Axes = append(l.Declared.Axes, name)
			l.firstWith[name] = t.name
		}
	}
}

// axisDefaults reads the values of axes that a shape need not give.
func (l *loader) axisDefaults(file *table) *table {
	t := file.inner("axes", "[axes]", optional)
	if t == nil {
		return nil
	}
	l.Declared.AxisDefaults = map[string]int{}
	for _, name := range t.keys {
		l.Declared.AxisDefaults[name] = t.integer(name, 0, maxAxis)
	}
	t.close()
	return t
}

// axisValues reads a shape. It must have every axis of the kernel that has no default.
func (l *loader) axisValues(t *table) Axes {
	values := make([]int, len(l.Declared.Axes))
	for i, name := range l.Declared.Axes {
		value, known := l.Declared.AxisDefaults[name]
		if t.get(name) == nil && known {
			values[i] = value
			continue
		}
		if t.get(name) == nil {
			l.problems.add(t.line, "%s has no axis %q, which %s has", t.name, name, l.firstWith[name])
			continue
		}
		values[i] = t.integer(name, 0, maxAxis)
	}
	return newAxes(l.Declared.Axes, values)
}

// newAxes formats a shape.
func newAxes(names []string, values []int) Axes {
	if len(names) == 0 {
		return noAxes
	}
	items := make([]string, len(names))
	for i, name := range names {
		items[i] = name + "=" + strconv.Itoa(values[i])
	}
	return Axes(strings.Join(items, ","))
}

// parse parses axis=value items, in any order. Axes with a default may be missing.
func (d *Declaration) parse(text string) (Axes, error) {
	if len(d.Axes) == 0 {
		if text == string(noAxes) {
			return noAxes, nil
		}
		return "", fmt.Errorf("unknown shape %q; the kernel has no axes and the one shape %s", text, noAxes)
	}
	values := make([]int, len(d.Axes))
	set := make([]bool, len(d.Axes))
	axes := "; the axes are " + strings.Join(d.Axes, ", ")
	for item := range strings.SplitSeq(text, ",") {
		name, number, ok := strings.Cut(strings.TrimSpace(item), "=")
		name, number = strings.TrimSpace(name), strings.TrimSpace(number)
		i := slices.Index(d.Axes, name)
		switch {
		case !ok:
			return "", fmt.Errorf("shape %q: %q is no axis=value%s", text, item, axes)
		case i < 0:
			return "", fmt.Errorf("shape %q: unknown axis %q%s", text, name, hint(name, d.Axes))
		case set[i]:
			return "", fmt.Errorf("shape %q sets %s twice%s", text, name, axes)
		}
		value, err := strconv.Atoi(number)
		if err != nil || value < 0 || value > maxAxis {
			return "", fmt.Errorf("shape %q: %s is %q; want an integer from 0 to %d", text, name, number, maxAxis)
		}
		values[i], set[i] = value, true
	}
	for i, name := range d.Axes {
		value, known := d.AxisDefaults[name]
		switch {
		case set[i]:
		case known:
			values[i] = value
		default:
			return "", fmt.Errorf("shape %q has no %s%s", text, name, axes)
		}
	}
	return newAxes(d.Axes, values), nil
}

// items splits a list of names and shapes at its commas. Consecutive axis=value parts are one shape
// until every axis is set or an axis repeats.
func (d *Declaration) items(text string) []string {
	var items, shape, axes []string
	end := func() {
		if len(shape) > 0 {
			items = append(items, strings.Join(shape, ","))
		}
		shape, axes = nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		name, _, ok := strings.Cut(part, "=")
		if !ok {
			end()
			items = append(items, part)
			continue
		}
		if slices.Contains(axes, name) || len(axes) > 0 && len(axes) >= len(d.Axes) {
			end()
		}
		shape = append(shape, part)
		if slices.Contains(d.Axes, name) {
			axes = append(axes, name)
		}
	}
	end()
	return items
}

// anyShape ends a list of the names of shapes with the form of all others.
func (k *Kernel) anyShape() string {
	if k.Declared == nil {
		return ", and any BxHxSxD such as 1x8x512x64"
	}
	for _, g := range k.Groups {
		if len(g.Shapes) > 0 && g.Shapes[0] != Shape(noAxes) {
			return ", and any other such as " + g.Shapes[0].String()
		}
	}
	return ""
}
