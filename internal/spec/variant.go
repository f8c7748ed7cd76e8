package spec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"attune/internal/finding"
)

// Variant is a full assignment of the knobs of a kernel: a stage, or a stage with some knobs
// changed. Kernel.Variant and Stage.Variant create variants; the zero Variant is invalid. Two
// variants are equal if their names are.
type Variant struct {
	stage  *Stage
	values []int // one per knob, in the order of Kernel.Knobs; shared and immutable
}

// Setting is a knob and its value.
type Setting struct {
	Knob  string
	Value int
}

// String formats the setting as in a variant name: NAME=1.
func (s Setting) String() string {
	return s.Knob + "=" + strconv.Itoa(s.Value)
}

// Variant parses the name of a variant: a stage and the knobs that differ from it, such as "stage2"
// or "stage2+USE_XOR_SWIZZLE=1+TILE_N=32". The name may use former names of knobs and set retired
// knobs to their fixed value. The error reports everything that is wrong with the name.
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

// parse parses the name of a variant without checking constraints. It returns everything that is
// wrong with the name.
func (k *Kernel) parse(text string) (Variant, []error) {
	parts := strings.Split(text, "+")
	text = shortened(text)
	stage, err := k.Stage(parts[0])
	if err != nil {
		return Variant{}, []error{err}
	}
	var wrong []error
	v := Variant{stage, slices.Clone(stage.values)}
	set := map[string]bool{}
	for i, part := range parts[1:] {
		if len(wrong) == maxMistakes {
			return v, append(wrong, fmt.Errorf("%d more settings were not read", len(parts)-1-i))
		}
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

// maxMistakes bounds the mistakes of a name that are reported. Each one quotes the name, so that the
// messages about a long name would need memory in the square of its length.
const maxMistakes = 10

// shortened is a name or a part of it as messages quote it.
func shortened(text string) string {
	const most = 500 // bytes
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// retiredKnob stands for the index of a knob that the kernel no longer has.
const retiredKnob = -1

// setting parses KNOB=VALUE, a part of a variant name. It returns the knob's present name, its
// index and its value. A former name gives the renamed knob; a retired knob gives the index
// retiredKnob.
func (k *Kernel) setting(stage *Stage, part, text string) (name string, knob, value int, err error) {
	part = shortened(part) // no setting is that long
	name, number, ok := strings.Cut(part, "=")
	if !ok {
		return "", 0, 0, fmt.Errorf("%q in %q is not a setting; write KNOB=VALUE", part, text)
	}
	index := k.knobOf(stage, name)
	if index < 0 {
		return name, retiredKnob, 0, k.checkRetiredSetting(stage, name, number, text)
	}
	found := k.Knobs[index]
	for _, v := range found.Values {
		// Compared as text, so that each value has only one spelling.
		if strconv.Itoa(v) == number {
			return found.Name, index, v, nil
		}
	}
	renamed := ""
	if name != found.Name {
		renamed = fmt.Sprintf(" (now %s)", found.Name)
	}
	if strings.Contains(number, ",") {
		return "", 0, 0, fmt.Errorf("%q is not a variant; knobs are joined by +: %s", text, strings.ReplaceAll(text, ",", "+"))
	}
	return "", 0, 0, fmt.Errorf("%s%s in %q is not allowed; %s", part, renamed, text, found.allowed())
}

// checkRetiredSetting checks a setting whose name is no knob of the stage. It returns nil if the
// stage had a knob of this name that was retired with this value.
func (k *Kernel) checkRetiredSetting(stage *Stage, name, number, text string) error {
	if r := k.retiredOf(stage, name); r != nil {
		if number == strconv.Itoa(r.Value) {
			return nil
		}
		return fmt.Errorf("%s=%s in %q is not allowed; the knob is retired and fixed at %d: %s",
			name, number, text, r.Value, r.Why)
	}
	if i := slices.Index(k.knobNames(), name); i >= 0 {
		return otherSource(stage, k.Knobs[i])
	}
	if had := k.stagesThatHad(name); len(had) > 0 {
		return fmt.Errorf("stage %q never had the retired knob %s; stages that had it: %s",
			stage.Name, name, strings.Join(had, ", "))
	}
	return fmt.Errorf("unknown knob %q in %q%s", name, text, hint(name, k.knobNames()))
}

// otherSource is the error of a knob that belongs to stages of other sources.
func otherSource(stage *Stage, knob Knob) error {
	return fmt.Errorf("stage %q has no knob %s; only stages of %s have it",
		stage.Name, knob.Name, strings.Join(knob.Sources, ", "))
}

// check returns an error for each constraint that a variant breaks.
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
		var settings []string
		for _, knob := range c.rule.Uses() {
			settings = append(settings, Setting{k.Knobs[knob].Name, v.values[knob]}.String())
		}
		with := strings.Join(settings, ", ")
		if err != nil {
			broken = append(broken, fmt.Errorf("%s: rule %q cannot be evaluated for %s: %w", v, c.Rule, with, err))
			continue
		}
		why := ""
		if c.Why != "" {
			why = ": " + c.Why
		}
		broken = append(broken, fmt.Errorf("%s breaks the rule %q with %s%s", v, c.Rule, with, why))
	}
	return broken
}

// Stage returns the stage of the variant.
func (v Variant) Stage() *Stage { return v.stage }

// Allowed returns the findings of the audit that the variant may have: those of the kernel, of its
// stage, and of every knob that is not at its default.
func (v Variant) Allowed() []finding.Kind {
	allowed := slices.Concat(v.stage.kernel.Allow, v.stage.Allow)
	for i, knob := range v.stage.kernel.Knobs {
		if v.values[i] != knob.Default {
			allowed = append(allowed, knob.Allow...)
		}
	}
	return allowed
}

// Values returns the settings of all knobs of the variant, in the order of their declaration.
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

// BuiltFor returns the axes of shapes that the variant is built for one value of, and these values.
// Most variants have none.
func (v Variant) BuiltFor() (axes []string, values []int) {
	for i, value := range v.values {
		if knob := v.stage.kernel.Knobs[i]; knob.Axis != "" && knob.in(v.stage.Source) {
			axes, values = append(axes, knob.Axis), append(values, value)
		}
	}
	return axes, values
}

// Fits refuses a shape that the variant is not built for.
func (v Variant) Fits(shape Shape) error {
	names, sizes := shape.Axes()
	axes, values := v.BuiltFor()
	for i, axis := range axes {
		if at := slices.Index(names, axis); at >= 0 && sizes[at] != values[i] {
			return fmt.Errorf("shape %s has %s %d, and %s is built for %d", shape, axisWords(axis), sizes[at], v, values[i])
		}
	}
	return nil
}

// axisWords is the name of an axis in messages.
func axisWords(axis string) string { return strings.ReplaceAll(axis, "_", " ") }

// String returns the canonical name of the variant: the stage, then the knobs that differ from it,
// in the order of their declaration.
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

// Parent returns the variant that this one is timed against. A stage names its parent, or has none.
// The parent of a variant that differs from its stage is that stage. The parent of a parent can be
// the variant itself, if a stage is timed against itself with one knob changed.
func (v Variant) Parent() (Variant, bool) {
	if v.differs() {
		return v.stage.Variant(), true
	}
	if v.stage.parent == nil {
		return Variant{}, false
	}
	return *v.stage.parent, true
}

// RequiredSpeedup returns the required speedup over the parent. It is 1, not slower, unless the
// variant is a stage with a parent. It is 0 for a stage that is timed but need not be faster.
func (v Variant) RequiredSpeedup() float64 {
	if v.differs() || v.stage.parent == nil {
		return 1
	}
	return v.stage.Speedup
}

// differs reports whether the variant has other knob values than its stage.
func (v Variant) differs() bool {
	return !slices.Equal(v.values, v.stage.values)
}
