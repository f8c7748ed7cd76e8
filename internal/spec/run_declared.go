package spec

import (
	"math"
	"slices"
)

// maxSimElements is the largest number of elements over all buffers of a shape that a run on the
// simulator takes by default.
const maxSimElements = 1 << 20

// maxSimQuick is that number for a shape of "quick", which was chosen for a GPU too. The simulator takes
// 14 bytes for each byte of it.
const maxSimQuick = 1 << 22

// declaredRun reads the defaults of a run of a declared kernel, all of which the file may omit.
func (l *loader) declaredRun(file *table) {
	t := file.inner("run", "[run]", optional)
	if t == nil {
		t = &table{node: &node{line: file.line}, name: "[run]", problems: file.problems}
	}
	var names []string
	for _, g := range l.Groups {
		names = append(names, g.Name)
	}
	r := &l.Run
	r.Shapes = l.shapeList(t, "shapes", names)
	l.declaredBenchmark(file, t)
	r.Seeds, r.SimSeeds = []uint64{0, 1}, []uint64{0}
	if t.get("seeds") != nil {
		r.Seeds = list(t, "seeds", "integers", seedItem)
		r.SimSeeds = r.Seeds[:min(1, len(r.Seeds))]
	}
	if t.get("sim_seeds") != nil {
		r.SimSeeds = list(t, "sim_seeds", "integers", seedItem)
	}
	r.SimShapes = l.shapeList(t, "sim_shapes", nil)
	r.Quick = l.shapeList(t, "quick", nil)
	r.SimQuick = r.Quick
	t.close()
}

// shapeList reads an optional list of names and shapes.
func (l *loader) shapeList(t *table, key string, absent []string) []string {
	n := t.get(key)
	if n == nil {
		return absent
	}
	item := func(n *node) (string, error) {
		text, _, err := l.shapesItem(n)
		return text, err
	}
	if _, ok := n.value.(string); ok { // one shape without brackets
		text, err := item(n)
		if err != nil {
			l.problems.add(n.line, "%q in %s: %v", key, t.name, err)
		}
		return []string{text}
	}
	return list(t, key, "shapes", item)
}

// declaredBenchmark reads the shapes that the performance gate judges from [shapes] or [run]. They
// are all shapes of a run unless the file says otherwise.
func (l *loader) declaredBenchmark(file, run *table) {
	t := run
	if n := file.table["shapes"]; n != nil && n.table[benchmarkKey] != nil {
		t = &table{node: n, name: "[shapes]", problems: file.problems}
		if twice := run.get(benchmarkKey); twice != nil {
			l.problems.add(twice.line, "%q is in %s and in %s; remove one", benchmarkKey, t.name, run.name)
		}
	}
	l.Run.Benchmark = l.shapeList(t, benchmarkKey, l.Run.Shapes)
	all := l.allShapes(l.Run.Shapes)
	if len(all) == 0 { // reported already
		return
	}
	for _, name := range l.Run.Benchmark {
		shapes, _ := l.shapes(name)
		for _, shape := range shapes {
			if !slices.Contains(all, shape) {
				l.problems.add(t.at(benchmarkKey), "%q in %s: shape %s is not among the \"shapes\" of a run", benchmarkKey, t.name, name)
			}
		}
	}
}

// allShapes are the shapes of a list. Errors in it have been reported.
func (l *loader) allShapes(items []string) []Shape {
	var all []Shape
	for _, item := range items {
		shapes, _ := l.shapes(item)
		all = append(all, shapes...)
	}
	return all
}

// simDefaults chooses the shapes that the file does not: small ones for the simulator, and for a
// quick run the first of all, the first of the benchmark and the largest, where indices and counts
// overflow. It needs a variant that is valid.
func (l *loader) simDefaults(v Variant) {
	r := &l.Run
	least, smallest, most, largest := 0, "", 0, ""
	var small []string
	for _, item := range r.Shapes {
		elements := l.elements(v, item)
		if elements <= maxSimElements {
			small = append(small, item)
		}
		if smallest == "" || elements < least {
			least, smallest = elements, item
		}
		if elements >= most {
			most, largest = elements, item
		}
	}
	if len(small) == 0 {
		small = []string{smallest}
	}
	if r.SimShapes == nil {
		r.SimShapes = small
	}
	if r.Quick != nil {
		r.SimQuick = slices.DeleteFunc(slices.Clone(r.Quick), func(item string) bool {
			return !slices.Contains(r.SimShapes, item) && l.elements(v, item) > maxSimQuick
		})
		if len(r.SimQuick) == 0 {
			r.SimQuick = r.SimShapes
		}
		return
	}
	r.SimQuick = r.SimShapes
	for _, item := range []string{r.Shapes[0], r.Benchmark[0], largest} {
		if !slices.Contains(r.Quick, item) {
			r.Quick = append(r.Quick, item)
		}
	}
}

// elements is the largest number of elements over all buffers of an item's shapes.
func (l *loader) elements(v Variant, item string) int {
	most := 0
	for _, shape := range l.allShapes([]string{item}) {
		most = max(most, l.Declared.elements(v, shape))
	}
	return most
}

// tryOut evaluates all expressions for every shape of the file and every stage, and every variant of
// a selection. It reports the first failure of each part. Then it chooses the shapes that need a
// valid declaration.
func (l *loader) tryOut(valid map[*Stage]bool) {
	var variants []Variant
	for _, s := range l.Stages {
		if valid[s] {
			variants = append(variants, s.Variant())
		}
	}
	for _, s := range l.Selections {
		variants = append(variants, s.Variants()...)
	}
	reported := map[any]bool{}
	report := func(part any, line int, text string) {
		if !reported[part] {
			reported[part] = true
			l.problems.add(line, "%s", text)
		}
	}
	tries := 0
	for _, shape := range l.declaredShapes() {
		for _, v := range variants {
			if tries++; tries <= maxTries {
				newTrial(l.Declared, v, shape, report).all()
			}
		}
	}
	if len(l.problems) == 0 {
		l.simDefaults(variants[0])
	}
}

// declaredShapes are the shapes of the file: those with a name and those of [run].
func (l *loader) declaredShapes() []Shape {
	var all []Shape
	for _, g := range l.Groups {
		all = append(all, g.Shapes...)
	}
	all = append(all, l.allShapes(slices.Concat(l.Run.Shapes, l.Run.SimShapes, l.Run.Quick))...)
	seen := map[Shape]bool{}
	return slices.DeleteFunc(all, func(s Shape) bool {
		again := seen[s]
		seen[s] = true
		return again
	})
}

// maxTries bounds the time to read a file of thousands of shapes and stages.
const maxTries = 10000

// Check evaluates all expressions of the declaration for a variant and a shape. Its error lists
// what is wrong, each with its line of kernel.toml.
func (d *Declaration) Check(v Variant, s Shape) error {
	var wrong problems
	newTrial(d, v, s, func(_ any, line int, text string) { wrong.add(line, "%s", text) }).all()
	return wrong.err()
}

// elements is the number of elements of all buffers, or the largest integer if it is unknown.
func (d *Declaration) elements(v Variant, s Shape) int {
	sum := 0
	values := d.Values(v, s)
	for _, a := range d.Args {
		n := 1
		if present, err := a.IsPresent(values); err == nil && !present {
			continue
		}
		for _, e := range a.Shape {
			extent, err := e.Int(values)
			if err != nil {
				return math.MaxInt
			}
			n *= extent
		}
		if a.Role.IsBuffer() {
			sum += n
		}
	}
	return sum
}
