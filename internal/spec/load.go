package spec

import (
	"fmt"
	"io/fs"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"attune/internal/tensor"
)

// form is how a word must be written: for the program, and for the reader of a problem.
type form struct {
	pattern *regexp.Regexp
	want    string
}

var (
	knobForm = form{regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`), "an upper-case letter, then upper-case letters, digits or _"}
	nameForm = form{regexp.MustCompile(`^[a-z][a-z0-9_-]*$`), "a lower-case letter, then lower-case letters, digits, _ or -"}
	wordForm = form{regexp.MustCompile(`^[a-z][a-z0-9_]*$`), "a lower-case letter, then lower-case letters, digits or _"}
	archForm = form{regexp.MustCompile(`^sm_[1-9][0-9]{1,2}a?$`), "one such as sm_89 or sm_90a"}
)

// maxFile is far more than a spec has; the time and memory to read one stay small.
const maxFile = 256 << 10

// Load reads kernel.toml at the root of a file system. The error tells of everything that is wrong in it, a line each.
func Load(fsys fs.FS) (*Kernel, error) {
	text, err := fs.ReadFile(fsys, File)
	if err != nil {
		return nil, fmt.Errorf("reading the spec of a kernel: %w", err)
	}
	if len(text) > maxFile {
		return nil, problem{1, fmt.Sprintf("the file has %d bytes; a spec has at most %d", len(text), maxFile)}
	}
	root, err := readTOML(string(text))
	if err != nil {
		return nil, err
	}
	l := loader{Kernel: new(Kernel)}
	l.file(&table{node: root, name: "the file", bad: &l.bad})
	if err := l.bad.err(); err != nil {
		return nil, err
	}
	return l.Kernel, nil
}

// loader fills a kernel, table by table. A part that is wrong stays in the kernel as far as it can be read, so that
// what refers to it is not reported as wrong too.
type loader struct {
	*Kernel
	bad   problems
	shaky bool // a knob or a rule is wrong, so that no variant can be judged by them
}

func (l *loader) file(t *table) {
	l.Name = t.text("name")
	l.form(t, "name", l.Name, nameForm)
	l.About = t.prose("about")

	knobs, rules := t.tables("knob", optional), t.tables("constraint", optional)
	retired := t.tables("retired", optional)
	for _, t := range knobs {
		l.knob(t)
	}
	for _, t := range retired {
		l.retired(t)
	}
	for _, t := range rules {
		l.constraint(t)
	}
	for _, t := range t.tables("shapes", required) {
		l.group(t)
	}
	sound := l.stages(t.tables("stage", required))
	l.sources(knobs, rules)
	l.formerNames(knobs)
	l.retiredNames(retired)
	for _, t := range t.tables("selection", optional) {
		l.selection(t, sound)
	}
	if t := t.inner("run", "[run]", required); t != nil {
		l.run(t)
	}
	if t := t.inner("tolerance", "[tolerance]", required); t != nil {
		l.tolerance(t)
	}
	t.close()
}

// sound says whether a part of the file was read without a problem.
func (l *loader) sound(read func()) bool {
	before := len(l.bad)
	read()
	return len(l.bad) == before
}

// form reports a name that is not written as it should be. An empty one has been reported already.
func (l *loader) form(t *table, key, text string, want form) {
	if text != "" && !want.pattern.MatchString(text) {
		l.bad.add(t.at(key), "%q in %s is %q; want %s", key, t.name, text, want.want)
	}
}

// unique reports a name that is already taken.
func (l *loader) unique(t *table, name string, taken bool) {
	if name != "" && taken {
		l.bad.add(t.at("name"), "%s %q stands twice", t.name, name)
	}
}

func (l *loader) knob(t *table) {
	var k Knob
	sound := l.sound(func() {
		k.Name = t.text("name")
		l.form(t, "name", k.Name, knobForm)
		l.unique(t, k.Name, slices.Contains(l.knobNames(), k.Name))
		k.Values = list(t, "values", "integers", integerItem)
		k.Default = t.integer("default", math.MinInt, math.MaxInt)
	})
	if sound && !slices.Contains(k.Values, k.Default) {
		l.bad.add(t.at("default"), "the default of %s is %d; %s", k.Name, k.Default, k.allowed())
		sound = false
	}
	k.Layer = Layer(t.text("layer"))
	if layers := []string{string(Macro), string(Micro)}; k.Layer != "" && !slices.Contains(layers, string(k.Layer)) {
		l.bad.add(t.at("layer"), "unknown layer %q in %s%s", k.Layer, t.name, hint(string(k.Layer), layers))
	}
	k.About = t.prose("about")
	k.Sources = l.sourceList(t)
	k.Formerly = l.formerly(t)
	t.close()
	l.Knobs = append(l.Knobs, k)
	l.shaky = l.shaky || !sound
}

func (l *loader) constraint(t *table) {
	rule, why, sources := t.text("rule"), t.prose("why"), l.sourceList(t)
	t.close()
	c, wrong := newConstraint(rule, why, l.knobNames())
	if rule != "" { // else it has been reported
		for _, err := range wrong {
			l.bad.add(t.at("rule"), "rule %q: %v", rule, err)
		}
	}
	if c == nil {
		l.shaky = true
		return
	}
	c.Sources = sources
	for _, i := range c.uses {
		l.bind(t, c, l.Knobs[i], len(sources) > 0)
	}
	l.Constraints = append(l.Constraints, c)
}

// bind restricts a constraint to the sources that have a knob it names. Where the file lists the
// sources of the constraint, each of them must have the knob; otherwise at least one must.
func (l *loader) bind(t *table, c *Constraint, knob Knob, listed bool) {
	has := slices.DeleteFunc(slices.Clone(c.Sources), func(source string) bool { return !knob.in(source) })
	lacks := slices.DeleteFunc(slices.Clone(c.Sources), knob.in)
	if len(lacks) > 0 && (listed || len(has) == 0) {
		l.bad.add(t.at("rule"), "rule %q binds the stages of %s, which have no knob %s", c.Rule, strings.Join(lacks, ", "), knob.Name)
		l.shaky = true
		return
	}
	c.Sources = has
	if len(has) == 0 {
		c.Sources = knob.Sources
	}
}

// sourceList reads the optional sources of a knob or a constraint: one string, or a list of strings.
func (l *loader) sourceList(t *table) []string {
	n := t.get("source")
	if n == nil {
		return nil
	}
	if n.array != nil {
		return list(t, "source", "sources", textItem)
	}
	if _, ok := n.value.(string); !ok {
		t.wrong("source", n, "a string or an array of strings")
		return nil
	}
	if source := t.text("source"); source != "" {
		return []string{source}
	}
	return nil
}

func (l *loader) group(t *table) {
	g := Group{Name: t.text("name")}
	l.form(t, "name", g.Name, nameForm)
	l.unique(t, g.Name, slices.ContainsFunc(l.Groups, func(o Group) bool { return o.Name == g.Name }))
	g.Problems = list(t, "problems", "shapes", func(n *node) (tensor.Shape, error) {
		text, err := textItem(n)
		if err != nil {
			return tensor.Shape{}, err
		}
		return tensor.ParseShape(text)
	})
	t.close()
	l.Groups = append(l.Groups, g)
}

// stages reads all stages before it looks at their parents, because a parent may stand further down. It says which of them obey the rules.
func (l *loader) stages(tables []*table) map[*Stage]bool {
	sound := map[*Stage]bool{}
	for _, t := range tables {
		s := &Stage{kernel: l.Kernel, Name: t.text("name"), Source: t.text("source")}
		sound[s] = l.sound(func() { l.assignment(t, s) }) && !l.shaky
		l.Stages = append(l.Stages, s)
		l.stage(t, s)
		if sound[s] {
			l.obeys(s.Variant(), t.at("knobs"))
		}
	}
	for i, t := range tables {
		l.parent(t, l.Stages[i], sound)
	}
	l.circles(tables)
	for _, t := range tables {
		t.close()
	}
	return sound
}

// sources reports the knobs and rules of a source that no stage has.
func (l *loader) sources(tables ...[]*table) {
	var known []string
	for _, s := range l.Stages {
		known = append(known, s.Source)
	}
	for _, t := range slices.Concat(tables...) {
		n := t.get("source")
		if n == nil {
			continue
		}
		items := n.array
		if items == nil {
			items = []*node{n}
		}
		for _, n := range items {
			if source, ok := n.value.(string); ok && source != "" && !slices.Contains(known, source) {
				l.bad.add(n.line, "no stage has the source %q of %s%s", source, t.name, hint(source, known))
			}
		}
	}
}

// obeys reports the constraints that a variant breaks.
func (l *loader) obeys(v Variant, line int) {
	for _, err := range l.check(v) {
		l.bad.add(line, "%v", err)
	}
}

// assignment reads the values that a stage gives to knobs; the rest take their defaults.
func (l *loader) assignment(t *table, s *Stage) {
	for _, knob := range l.Knobs {
		s.values = append(s.values, knob.Default)
	}
	knobs := t.inner("knobs", "knobs of [[stage]]", optional)
	if knobs == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(knobs.table)) {
		i := slices.Index(l.knobNames(), name)
		if i < 0 {
			l.bad.add(knobs.at(name), "unknown knob %q in %s%s", name, knobs.name, l.knobHint(s, name))
			continue
		}
		if !l.Knobs[i].in(s.Source) {
			l.bad.add(knobs.at(name), "%v", notIts(s, l.Knobs[i]))
		}
		n := knobs.get(name)
		value, ok := n.value.(int64)
		allowed := l.Knobs[i].Values
		switch {
		case !ok:
			knobs.wrong(name, n, "an integer")
		case allowed != nil && !slices.Contains(allowed, int(value)):
			l.bad.add(n.line, "%s = %d in %s is not allowed; %s", name, value, knobs.name, l.Knobs[i].allowed())
		}
		s.values[i] = int(value)
	}
}

// stage reads what a stage says beside its knobs and its parent.
func (l *loader) stage(t *table, s *Stage) {
	l.form(t, "name", s.Name, nameForm)
	l.unique(t, s.Name, slices.ContainsFunc(l.Stages, func(o *Stage) bool { return o != s && o.Name == s.Name }))

	if s.Source != "" && (!fs.ValidPath(s.Source) || s.Source == ".") {
		l.bad.add(t.at("source"), "%q in %s is %q; want a path below the directory of %s, without . and ..",
			"source", t.name, s.Source, File)
	}
	s.Hypothesis = t.prose("hypothesis")
	s.ErrorShare = t.number("error_share", func(x float64) bool { return x > 0 && x <= 4 }, "above 0, up to 4")
	if budget := t.inner("budget", "budget of [[stage]]", required); budget != nil {
		s.Budget = Budget{
			Registers:   budget.integer("registers", 1, 255),
			SharedBytes: budget.integer("shared_bytes", 0, math.MaxInt),
			SpillBytes:  budget.integer("spill_bytes", 0, math.MaxInt),
		}
		budget.close()
	}
	s.Archs = list(t, "archs", "architectures", func(n *node) (string, error) {
		arch, err := textItem(n)
		if err == nil && !archForm.pattern.MatchString(arch) {
			err = fmt.Errorf("%q is no architecture; want %s", arch, archForm.want)
		}
		return arch, err
	})
}

// parent reads what a stage is measured against, and the speedup it promises.
func (l *loader) parent(t *table, s *Stage, sound map[*Stage]bool) {
	v := l.against(t, &s.Speedup, sound)
	if v != nil && v.stage == s && sound[s] && !v.departs() {
		l.bad.add(t.at("parent"), "stage %q is its own parent", s.Name)
		return
	}
	s.parent = v
}

// against reads the parent of a stage or a selection and the speedup that it promises over it; nil where there is none, or it is wrong.
func (l *loader) against(t *table, speedup *float64, sound map[*Stage]bool) *Variant {
	if t.get("parent") == nil {
		if n := t.get("speedup"); n != nil {
			l.bad.add(n.line, "%s has a %q but no %q to be faster than", t.name, "speedup", "parent")
		}
		return nil
	}
	*speedup = t.positive("speedup")
	return l.named(t, "parent", sound)
}

// named reads the variant that a key names; nil where it is wrong.
func (l *loader) named(t *table, key string, sound map[*Stage]bool) *Variant {
	text, line := t.text(key), t.at(key)
	if text == "" || l.shaky {
		return nil
	}
	v, wrong := l.parse(text)
	for _, err := range wrong {
		l.bad.add(line, "%q in %s: %v", key, t.name, err)
	}
	if len(wrong) > 0 {
		return nil
	}
	if sound[v.stage] && v.departs() { // else it is right, or has been reported
		l.obeys(v, line)
	}
	return &v
}

// circles reports the stages whose parents lead back to them, each circle at the first of its stages. A parent within
// the same stage is no circle but the end of the way.
func (l *loader) circles(tables []*table) {
	for i, s := range l.Stages {
		way, at := s.Name, s
		for range l.Stages {
			if at.parent == nil || at.parent.stage == at || slices.Index(l.Stages, at) < i {
				break
			}
			at = at.parent.stage
			way += " -> " + at.Name
			if at == s {
				l.bad.add(tables[i].at("parent"), "parents form a circle: %s", way)
				break
			}
		}
	}
}

func (l *loader) run(t *table) {
	var asked []tensor.Shape
	l.Run.Shapes = list(t, "shapes", "shapes", func(n *node) (string, error) {
		text, shapes, err := l.shapesItem(n)
		asked = append(asked, shapes...)
		return text, err
	})
	l.benchmark(t, asked)
	l.Run.Seeds = list(t, "seeds", "integers", seedItem)
	l.Run.SimShapes, l.Run.SimSeeds = l.Run.Shapes, l.Run.Seeds
	if optional(t, "sim_shapes") != nil {
		l.Run.SimShapes = list(t, "sim_shapes", "shapes", func(n *node) (string, error) {
			text, _, err := l.shapesItem(n)
			return text, err
		})
	}
	if optional(t, "sim_seeds") != nil {
		l.Run.SimSeeds = list(t, "sim_seeds", "integers", seedItem)
	}
	t.close()
}

// benchmark reads the shapes that the performance gate looks at, which must be among the shapes of a run.
func (l *loader) benchmark(t *table, run []tensor.Shape) {
	if old := t.table["judged"]; old != nil {
		t.asked = append(t.asked, "judged", "benchmark")
		l.bad.add(old.line, "%q in %s is now called %q; rename the key", "judged", t.name, "benchmark")
		return
	}
	l.Run.Benchmark = list(t, "benchmark", "shapes", func(n *node) (string, error) {
		text, shapes, err := l.shapesItem(n)
		for _, shape := range shapes {
			if err == nil && l.Run.Shapes != nil && !slices.Contains(run, shape) {
				err = fmt.Errorf("shape %s is not among the \"shapes\" of a run", shape)
			}
		}
		return text, err
	})
}

func seedItem(n *node) (uint64, error) {
	seed, err := integerItem(n)
	if err == nil && seed < 0 {
		err = fmt.Errorf("seed %d is below 0", seed)
	}
	return uint64(seed), err
}

// shapesItem reads the name of a group or a shape, and returns also the shapes that are meant.
func (l *loader) shapesItem(n *node) (string, []tensor.Shape, error) {
	text, err := textItem(n)
	if err != nil {
		return "", nil, err
	}
	shapes, err := l.shapes(text)
	return text, shapes, err
}

func (l *loader) tolerance(t *table) {
	l.Tolerance = Tolerance{
		MaxErr:      t.positive("max_err"),
		MeanErr:     t.positive("mean_err"),
		Atol:        t.positive("atol"),
		Rtol:        t.positive("rtol"),
		BadFraction: t.number("bad_fraction", func(x float64) bool { return x >= 0 && x <= 1 }, "from 0 to 1"),
	}
	t.close()
}
