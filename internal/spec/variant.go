package spec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Variant is a full assignment of the knobs of a kernel, as one of its stages or a departure from one. Kernel.Variant
// and Stage.Variant make them; the zero Variant is of no use. Two variants are the same if their texts are.
type Variant struct {
	stage  *Stage
	values []int // one for each knob, in the order of Kernel.Knobs; shared, never written
}

// Setting is a knob and its value.
type Setting struct {
	Knob  string
	Value int
}

// String writes the setting as in a variant, NAME=1.
func (s Setting) String() string {
	return s.Knob + "=" + strconv.Itoa(s.Value)
}

// Variant reads the text of a variant: a stage, and the knobs that differ from it, such as "stage2" or
// "stage2+USE_XOR_SWIZZLE=1+TILE_N=32". The error tells of everything that is wrong with it.
func (k *Kernel) Variant(text string) (Variant, error) {
	v, wrong := k.parse(text)
	if len(wrong) == 0 {
		wrong = k.check(v)
	}
	if len(wrong) > 0 {
		return Variant{}, errors.Join(wrong...)
	}
	return v, nil
}

// parse reads the text of a variant, and asks no constraint. It says all that is wrong with the text.
func (k *Kernel) parse(text string) (Variant, []error) {
	parts := strings.Split(text, "+")
	stage, err := k.Stage(parts[0])
	if err != nil {
		return Variant{}, []error{err}
	}
	var wrong []error
	v := Variant{stage, slices.Clone(stage.values)}
	set := map[string]bool{}
	for _, part := range parts[1:] {
		knob, value, err := k.setting(stage, part, text)
		switch {
		case err != nil:
			wrong = append(wrong, err)
		case set[k.Knobs[knob].Name]:
			wrong = append(wrong, fmt.Errorf("%s in %q is set twice", k.Knobs[knob].Name, text))
		default:
			set[k.Knobs[knob].Name] = true
			v.values[knob] = value
		}
	}
	return v, wrong
}

// setting reads KNOB=VALUE, a part of the text of a variant, and returns the index of the knob and its value.
func (k *Kernel) setting(stage *Stage, part, text string) (knob, value int, err error) {
	name, number, ok := strings.Cut(part, "=")
	if !ok {
		return 0, 0, fmt.Errorf("%q in %q is no setting; write KNOB=VALUE", part, text)
	}
	names := k.knobNames()
	knob = slices.Index(names, name)
	if knob < 0 {
		return 0, 0, fmt.Errorf("unknown knob %q in %q%s", name, text, hint(name, names))
	}
	if !k.Knobs[knob].in(stage.Source) {
		return 0, 0, notIts(stage, k.Knobs[knob])
	}
	for _, allowed := range k.Knobs[knob].Values {
		// Compared as text, so that each value can be written in one way only.
		if strconv.Itoa(allowed) == number {
			return knob, allowed, nil
		}
	}
	return 0, 0, fmt.Errorf("%s in %q is not allowed; %s", part, text, k.Knobs[knob].allowed())
}

func notIts(stage *Stage, knob Knob) error {
	return fmt.Errorf("stage %q has no knob %s: that is one of %s", stage.Name, knob.Name, knob.Source)
}

// check asks every constraint that binds a variant, and says which ones a variant breaks.
func (k *Kernel) check(v Variant) []error {
	var broken []error
	for _, c := range k.Constraints {
		if !c.in(v.stage.Source) {
			continue
		}
		ok, err := c.Holds(v.values)
		if ok {
			continue
		}
		var involved []string
		for _, knob := range c.uses {
			involved = append(involved, Setting{k.Knobs[knob].Name, v.values[knob]}.String())
		}
		with := strings.Join(involved, ", ")
		if err != nil {
			broken = append(broken, fmt.Errorf("%s: rule %q has no answer for %s: %w", v, c.Rule, with, err))
			continue
		}
		broken = append(broken, fmt.Errorf("%s breaks the rule %q with %s: %s", v, c.Rule, with, c.Why))
	}
	return broken
}

// Stage is the stage that the variant is, or departs from.
func (v Variant) Stage() *Stage { return v.stage }

// Values returns the setting of every knob that the variant has, in the order in which the kernel declares them.
func (v Variant) Values() []Setting {
	var settings []Setting
	for i, value := range v.values {
		if knob := v.stage.kernel.Knobs[i]; knob.in(v.stage.Source) {
			settings = append(settings, Setting{knob.Name, value})
		}
	}
	return settings
}

// Value returns the value of a knob, if the variant has it.
func (v Variant) Value(name string) (int, bool) {
	for _, s := range v.Values() {
		if s.Knob == name {
			return s.Value, true
		}
	}
	return 0, false
}

// String writes the variant in its one canonical form: the stage, then the knobs that differ from the stage's own
// value, in the order in which the kernel declares them.
func (v Variant) String() string {
	var text strings.Builder
	text.WriteString(v.stage.Name)
	for i, value := range v.values {
		if value != v.stage.values[i] {
			text.WriteByte('+')
			text.WriteString(Setting{v.stage.kernel.Knobs[i].Name, value}.String())
		}
	}
	return text.String()
}

// Parent is the variant that this one is measured against. For a stage it is the one that the stage names; the first
// stage has none. For a departure from a stage it is that stage. It is one step and no lineage: the parent of a
// parent can be the variant itself, where a stage is measured against itself with one knob turned back.
func (v Variant) Parent() (Variant, bool) {
	if v.departs() {
		return v.stage.Variant(), true
	}
	if v.stage.parent == nil {
		return Variant{}, false
	}
	return *v.stage.parent, true
}

// RequiredSpeedup is how many times faster than its parent the variant must be. A stage with a parent has promised it.
// Anything else has promised nothing and returns 1, not to be slower.
func (v Variant) RequiredSpeedup() float64 {
	if v.departs() || v.stage.parent == nil {
		return 1
	}
	return v.stage.Speedup
}

func (v Variant) departs() bool {
	return !slices.Equal(v.values, v.stage.values)
}
