package spec

import (
	"fmt"
	"math"
	"slices"
)

// Retired is a knob that the kernel no longer has. Recorded variant names may still set it to the
// value that the code was fixed at; such a setting is dropped.
type Retired struct {
	Name   string
	Value  int
	Why    string
	Stages []string // stages that had the knob; all stages if empty
}

// in reports whether a stage had the knob.
func (r Retired) in(stage *Stage) bool {
	return len(r.Stages) == 0 || slices.Contains(r.Stages, stage.Name)
}

// retiredOf returns the retired knob that a name means for a stage, or nil.
func (k *Kernel) retiredOf(stage *Stage, name string) *Retired {
	for i, r := range k.Retired {
		if r.Name == name && r.in(stage) {
			return &k.Retired[i]
		}
	}
	return nil
}

// stagesThatHad returns the stages of the retired knobs of a name.
func (k *Kernel) stagesThatHad(name string) []string {
	var stages []string
	for _, r := range k.Retired {
		if r.Name == name {
			stages = append(stages, r.Stages...)
		}
	}
	return stages
}

// knobOf returns the index of the knob that a name means for a stage: a knob of that name, or else
// one that formerly had it. It returns -1 if the stage has neither.
func (k *Kernel) knobOf(stage *Stage, name string) int {
	i := slices.IndexFunc(k.Knobs, func(knob Knob) bool { return knob.Name == name && knob.in(stage.Source) })
	if i >= 0 {
		return i
	}
	return slices.IndexFunc(k.Knobs, func(knob Knob) bool {
		return slices.Contains(knob.Formerly, name) && knob.in(stage.Source)
	})
}

// formerly reads the former names of a knob.
func (l *loader) formerly(t *table) []string {
	if t.get("formerly") == nil {
		return nil
	}
	return list(t, "formerly", "knob names", func(n *node) (string, error) {
		name, err := textItem(n)
		if err == nil && !knobForm.pattern.MatchString(name) {
			err = fmt.Errorf("%q is not a knob name; want %s", name, knobForm.want)
		}
		return name, err
	})
}

// retired reads a knob that the kernel no longer has.
func (l *loader) retired(t *table) {
	r := Retired{Name: t.text("name"), Value: t.integer("value", math.MinInt, math.MaxInt), Why: l.prose(t, "why")}
	l.checkForm(t, "name", r.Name, knobForm)
	if t.get("stages") != nil {
		r.Stages = list(t, "stages", "stages", textItem)
	}
	t.close()
	l.Retired = append(l.Retired, r)
}

// checkFormerNames reports former names that also mean another knob in the same stage. Knobs of
// different sources may have had the same name.
func (l *loader) checkFormerNames(tables []*table) {
	for i, t := range tables {
		for _, name := range l.Knobs[i].Formerly {
			if other, stage := l.otherKnob(i, name); stage != nil {
				l.problems.add(t.at("formerly"), "%q in %q of %s is ambiguous: in stage %q it also means the knob %s",
					name, "formerly", l.Knobs[i].Name, stage.Name, other.Name)
			}
		}
	}
}

// otherKnob returns a knob that has a former name of knob i as its name or its own former name, in
// a stage that has both knobs. Of two knobs with the same former name it reports only the later
// one.
func (l *loader) otherKnob(i int, name string) (Knob, *Stage) {
	for _, stage := range l.Stages {
		if !l.Knobs[i].in(stage.Source) {
			continue
		}
		for j, other := range l.Knobs {
			if other.in(stage.Source) && (other.Name == name || j < i && slices.Contains(other.Formerly, name)) {
				return other, stage
			}
		}
	}
	return Knob{}, nil
}

// checkRetired reports retired knobs of unknown stages, and those whose name also means something
// else in one of their stages.
func (l *loader) checkRetired(tables []*table) {
	var stages []string
	for _, s := range l.Stages {
		stages = append(stages, s.Name)
	}
	for i, t := range tables {
		r := l.Retired[i]
		if r.Stages == nil && t.table["stages"] != nil { // reported already
			continue
		}
		for _, name := range r.Stages {
			if !slices.Contains(stages, name) {
				l.problems.add(t.at("stages"), "unknown stage %q in %s%s", name, t.name, hint(name, stages))
			}
		}
		for _, stage := range l.Stages {
			if other := l.otherMeaning(stage, i); other != "" && r.in(stage) {
				l.problems.add(t.at("name"), "%s %q: in stage %q the name %s", t.name, r.Name, stage.Name, other)
				break
			}
		}
	}
}

// otherMeaning describes what else the name of retired knob i means for a stage; empty if nothing.
func (l *loader) otherMeaning(stage *Stage, i int) string {
	name := l.Retired[i].Name
	if knob := l.knobOf(stage, name); knob >= 0 {
		return "means the knob " + l.Knobs[knob].Name
	}
	for _, earlier := range l.Retired[:i] {
		if earlier.Name == name && earlier.in(stage) {
			return "is retired twice"
		}
	}
	return ""
}

// knobHint ends the message about an unknown knob in [[stage]], where only present names are
// allowed.
func (l *loader) knobHint(stage *Stage, name string) string {
	if i := l.knobOf(stage, name); i >= 0 {
		return fmt.Sprintf("; it is now called %s", l.Knobs[i].Name)
	}
	if r := l.retiredOf(stage, name); r != nil {
		return fmt.Sprintf("; it is retired and fixed at %d: %s", r.Value, r.Why)
	}
	return hint(name, l.knobNames())
}
