package spec

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"

	"attune/internal/arch"
	"attune/internal/finding"
)

// stages reads all stages before their parents, because a parent may be declared further down. It
// returns the stages whose knobs are valid. A declared kernel without stages has one of its name.
func (l *loader) stages(file *table) map[*Stage]bool {
	valid := map[*Stage]bool{}
	tables := file.tables("stage", l.required)
	if file.table["stage"] == nil && l.Declared != nil {
		name := &node{line: file.at("name"), value: cmp.Or(l.Name, "kernel")} // a missing name was reported
		tables = []*table{{node: &node{line: name.line, table: map[string]*node{"name": name}}, name: file.name, problems: file.problems}}
	}
	for _, t := range tables {
		s := &Stage{kernel: l.Kernel, Name: t.text("name"), Source: l.stageSource(t)}
		valid[s] = l.ok(func() { l.assignment(t, s) }) && !l.unusable
		l.Stages = append(l.Stages, s)
		l.stage(t, s)
		if valid[s] {
			l.checkConstraints(s.Variant(), t.at("knobs"))
		}
	}
	for i, t := range tables {
		l.parent(t, l.Stages[i], valid)
	}
	l.checkCycles(tables)
	l.checkStageSources(file, tables)
	for _, t := range tables {
		t.close()
	}
	return valid
}

// stageSource reads the source of a stage. That of the kernel is the default.
func (l *loader) stageSource(t *table) string {
	if l.Declared == nil {
		return t.text("source")
	}
	return l.path(t, "source", l.Declared.Source)
}

// checkStageSources reports sources of a declared kernel that do not exist.
func (l *loader) checkStageSources(file *table, tables []*table) {
	if l.Declared == nil {
		return
	}
	own := l.Declared.Source
	if file.table["source"] != nil || slices.ContainsFunc(l.Stages, func(s *Stage) bool { return s.Source == own }) {
		l.checkFile(file, "source", own, false)
	}
	for i, t := range tables {
		if source := l.Stages[i].Source; source != own {
			l.checkFile(t, "source", source, false)
		}
	}
}

// checkConstraints reports the constraints that a variant breaks.
func (l *loader) checkConstraints(v Variant, line int) {
	for _, err := range l.check(v) {
		l.problems.add(line, "%v", err)
	}
}

// assignment reads the knob values of a stage; other knobs keep their defaults.
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
			l.problems.add(knobs.at(name), "unknown knob %q in %s%s", name, knobs.name, l.knobHint(s, name))
			continue
		}
		if !l.Knobs[i].in(s.Source) {
			l.problems.add(knobs.at(name), "%v", otherSource(s, l.Knobs[i]))
		}
		n := knobs.get(name)
		value, ok := n.value.(int64)
		values := l.Knobs[i].Values
		switch {
		case !ok:
			knobs.wrongType(name, n, "an integer")
		case values != nil && !slices.Contains(values, int(value)):
			l.problems.add(n.line, "%s = %d in %s is not allowed; %s", name, value, knobs.name, l.Knobs[i].allowed())
		}
		s.values[i] = int(value)
	}
}

// stage reads the keys of a stage other than its knobs and its parent.
func (l *loader) stage(t *table, s *Stage) {
	l.checkForm(t, "name", s.Name, nameForm)
	l.checkUnique(t, s.Name, slices.ContainsFunc(l.Stages, func(o *Stage) bool { return o != s && o.Name == s.Name }))

	if s.Source != "" && (!fs.ValidPath(s.Source) || s.Source == ".") {
		l.problems.add(t.at("source"), "%q in %s is %q; want a path below the directory of %s, without . and ..",
			"source", t.name, s.Source, File)
	}
	s.Hypothesis = l.prose(t, "hypothesis")
	if l.Declared == nil {
		s.ErrorShare = t.number("error_share", func(x float64) bool { return x > 0 && x <= 4 }, "above 0, up to 4")
	}
	s.Budget = l.budget(t)
	s.Archs = l.archs(t, l.Archs)
	s.Allow = allowList(t)
	if l.Declared == nil {
		l.exactExponentials(t, s)
	}
}

// budget reads the limits of the resources. A declared kernel may omit any of them.
func (l *loader) budget(t *table) Budget {
	b := unlimited
	budget := t.inner("budget", "budget of [[stage]]", l.required)
	if budget == nil {
		return b
	}
	for _, limit := range []struct {
		key       string
		value     *int
		low, high int
	}{
		{"registers", &b.Registers, 1, 255},
		{"shared_bytes", &b.SharedBytes, 0, math.MaxInt},
		{"spill_bytes", &b.SpillBytes, 0, math.MaxInt},
	} {
		if l.required(budget, limit.key) != nil {
			*limit.value = budget.integer(limit.key, limit.low, limit.high)
		}
	}
	budget.close()
	return b
}

// archs reads a list of architectures. A declared kernel lists those of all its stages at the top
// of the file, or none.
func (l *loader) archs(t *table, absent []string) []string {
	if l.required(t, "archs") == nil {
		return absent
	}
	return list(t, "archs", "architectures", func(n *node) (string, error) {
		name, err := textItem(n)
		switch {
		case err != nil:
		case !archForm.pattern.MatchString(name):
			err = fmt.Errorf("%q is not an architecture; want %s", name, archForm.want)
		case !slices.Contains(arch.Compiled, name):
			err = fmt.Errorf("the compiler does not know %s; it knows %s", name, strings.Join(arch.Compiled, ", "))
		case l.listsArchs && !slices.Contains(l.Archs, name):
			err = fmt.Errorf("%s is not among the architectures of the kernel, %s", name, strings.Join(l.Archs, ", "))
		}
		return name, err
	})
}

// exactExponentials reads the rule that says which variants of a stage have exact exponentials.
func (l *loader) exactExponentials(t *table, s *Stage) {
	const key = "exact_exponentials"
	s.ExactExponentials = strings.Join(strings.Fields(t.optionalText(key)), " ")
	if s.ExactExponentials == "" || l.unusable {
		return
	}
	exact, wrong := compileCondition(s.ExactExponentials, knobVocabulary(l.knobNames()))
	for _, err := range wrong {
		l.problems.add(t.at(key), "%q in %s is %q: %v", key, t.name, s.ExactExponentials, err)
	}
	s.exact = &exact
}

// allowList reads the optional list of findings of the audit that a kernel, a stage or a knob may
// have.
func allowList(t *table) []finding.Kind {
	if t.get("allow") == nil {
		return nil
	}
	var names []string
	for _, kind := range finding.AllowableKinds() {
		names = append(names, string(kind))
	}
	return list(t, "allow", "kinds of findings", func(n *node) (finding.Kind, error) {
		name, err := textItem(n)
		if err == nil && !slices.Contains(names, name) {
			err = fmt.Errorf("unknown kind of finding %q%s", name, hint(name, names))
		}
		return finding.Kind(name), err
	})
}

// parent reads the parent of a stage and the required speedup over it.
func (l *loader) parent(t *table, s *Stage, valid map[*Stage]bool) {
	v := l.parentAndSpeedup(t, &s.Speedup, valid)
	if v != nil && v.stage == s && valid[s] && !v.differs() {
		l.problems.add(t.at("parent"), "stage %q is its own parent", s.Name)
		return
	}
	s.parent = v
}

// parentAndSpeedup reads the parent of a stage or a selection and the required speedup over it. The
// parent is nil if it is absent or wrong.
func (l *loader) parentAndSpeedup(t *table, speedup *float64, valid map[*Stage]bool) *Variant {
	if t.get("parent") == nil {
		if n := t.get("speedup"); n != nil {
			l.problems.add(n.line, "%s has a %q but no %q to compare with", t.name, "speedup", "parent")
		}
		return nil
	}
	if l.required(t, "speedup") != nil {
		*speedup = t.positive("speedup")
	}
	return l.variant(t, "parent", valid)
}

// variant reads the variant that a key names; nil if it is wrong.
func (l *loader) variant(t *table, key string, valid map[*Stage]bool) *Variant {
	text, line := t.text(key), t.at(key)
	if text == "" || l.unusable {
		return nil
	}
	v, wrong := l.parse(text)
	for _, err := range wrong {
		l.problems.add(line, "%q in %s: %v", key, t.name, err)
	}
	if len(wrong) > 0 {
		return nil
	}
	// A stage itself has been checked where it is declared.
	if valid[v.stage] && v.differs() {
		l.checkConstraints(v, line)
	}
	return &v
}

// checkCycles reports stages whose chain of parents leads back to them, once for each cycle, at its
// first stage. A chain ends at a stage whose parent belongs to the stage itself.
func (l *loader) checkCycles(tables []*table) {
	for i, s := range l.Stages {
		chain, at := s.Name, s
		for range l.Stages {
			if at.parent == nil || at.parent.stage == at || slices.Index(l.Stages, at) < i {
				break
			}
			at = at.parent.stage
			chain += " -> " + at.Name
			if at == s {
				l.problems.add(tables[i].at("parent"), "parents form a cycle: %s", chain)
				break
			}
		}
	}
}
