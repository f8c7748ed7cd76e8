package tune

import (
	"slices"

	"attune/internal/spec"
)

// OfStage returns the space of the variants of a stage: the knobs that its source has, with the
// stage's values as defaults, and the constraints between them.
func OfStage(stage *spec.Stage) (*Space, error) {
	kernel := stage.Kernel()
	own := stage.Variant().Values()
	var knobs []Knob
	for _, setting := range own {
		i := slices.IndexFunc(kernel.Knobs, func(k spec.Knob) bool { return k.Name == setting.Knob })
		k := kernel.Knobs[i]
		knob := Knob{Name: k.Name, Layer: k.Layer, Default: slices.Index(k.Values, setting.Value)}
		for _, v := range k.Values {
			knob.Values = append(knob.Values, Int(int64(v)))
		}
		knobs = append(knobs, knob)
	}
	// Knobs of other sources stay at their defaults. A constraint may still name them.
	for _, k := range kernel.Knobs {
		if !slices.ContainsFunc(own, func(s spec.Setting) bool { return s.Knob == k.Name }) {
			knobs = append(knobs, Knob{Name: k.Name, Layer: k.Layer, Values: []Value{Int(int64(k.Default))}})
		}
	}
	var rules []string
	for _, c := range kernel.Constraints {
		if len(c.Sources) == 0 || slices.Contains(c.Sources, stage.Source) {
			rules = append(rules, c.Rule)
		}
	}
	return NewSpace(stage.Name, knobs, rules)
}

// VariantOf returns the variant of a point of OfStage.
func VariantOf(stage *spec.Stage, s *Space, p Point) (spec.Variant, error) {
	name := stage.Name
	for i, setting := range stage.Variant().Values() {
		if v := s.Knobs[i].Values[p[i]]; v != Int(int64(setting.Value)) {
			name += "+" + setting.Knob + "=" + v.String()
		}
	}
	return stage.Kernel().Variant(name)
}
