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
		name, knob, value, err := k.setting(stage, part, text)
		switch {
		case err != nil:
			wrong = append(wrong, err)
		case set[name]:
			wrong = append(wrong, fmt.Errorf("%s in %q is set twice", name, text))
		default:
			set[name] = true
			if knob != retiredKnob {
				v.values[knob] = value
			}
		}
	}
	return v, wrong
}

// retiredKnob stands for the index of a knob that the kernel no longer has.
const retiredKnob = -1

// setting reads KNOB=VALUE, a part of a variant name. It returns the knob's present name, its index
// and its value. An old name of a knob gives that knob; a retired knob gives the index retiredKnob.
func (k *Kernel) setting(stage *Stage, part, text string) (name string, knob, value int, err error) {
	name, number, ok := strings.Cut(part, "=")
	if !ok {
		return "", 0, 0, fmt.Errorf("%q in %q is no setting; write KNOB=VALUE", part, text)
	}
	knob = k.knobOf(stage, name)
	if knob < 0 {
		return name, retiredKnob, 0, k.absentKnob(stage, name, number, text)
	}
	k1 := k.Knobs[knob]
	for _, allowed := range k1.Values {
		// Compared as text, so that each value can be written in one way only.
		if strconv.Itoa(allowed) == number {
			return k1.Name, knob, allowed, nil
		}
	}
	renamed := ""
	if name != k1.Name {
		renamed = fmt.Sprintf(" (now %s)", k1.Name)
	}
	return "", 0, 0, fmt.Errorf("%s%s in %q is not allowed; %s", part, renamed, text, k1.allowed())
}

// absentKnob checks a setting whose name is no knob of the stage. It returns nil if the stage had a
// knob of this name, which was retired with this value.
func (k *Kernel) absentKnob(stage *Stage, name, number, text string) error {
	if r := k.retiredOf(stage, name); r != nil {
		if number == strconv.Itoa(r.Value) {
			return nil
		}
		return fmt.Errorf("%s=%s in %q is not allowed; the knob is retired and fixed at %d: %s", name, number, text, r.Value, r.Why)
	}
	if i := slices.Index(k.knobNames(), name); i >= 0 {
		return notIts(stage, k.Knobs[i])
	}
	if had := k.stagesThatHad(name); len(had) > 0 {
		return fmt.Errorf("stage %q never had the knob %s, which is retired; it was one of %s", stage.Name, name, strings.Join(had, ", "))
	}
	return fmt.Errorf("unknown knob %q in %q%s", name, text, hint(name, k.knobNames()))
}

func notIts(stage *Stage, knob Knob) error {
	return fmt.Errorf("stage %q has no knob %s: that is one of %s", stage.Name, knob.Name, strings.Join(knob.Sources, ", "))
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
