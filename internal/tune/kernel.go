package tune

import (
	"fmt"
	"slices"

	"attune/internal/rule"
	"attune/internal/spec"
)

// OfStage returns the space of the variants of a stage: the knobs that its source has, with the
// stage's values as defaults, and the constraints between them.
func OfStage(stage *spec.Stage) (*Space, error) { return OfVariant(stage.Variant()) }

// OfVariant returns the space of the variants of a variant's stage, with the variant's values as
// defaults. Fixed knobs have the variant's value only. If the variant has exact exponentials, so have
// all of the space: an approximation is no better variant of the same computation.
func OfVariant(v spec.Variant, fixed ...string) (*Space, error) {
	kernel := v.Stage().Kernel()
	own := v.Values()
	for _, name := range fixed {
		if _, has := v.Value(name); !has {
			return nil, fmt.Errorf("%s has no knob %q", v.Stage().Name, name)
		}
	}
	var knobs []Knob
	for _, setting := range own {
		i := slices.IndexFunc(kernel.Knobs, func(k spec.Knob) bool { return k.Name == setting.Knob })
		k := kernel.Knobs[i]
		values := k.Values
		if k.Fixed || slices.Contains(fixed, k.Name) {
			values = []int{setting.Value}
		}
		knob := Knob{Name: k.Name, Layer: k.Layer, Default: slices.Index(values, setting.Value)}
		for _, value := range values {
			knob.Values = append(knob.Values, rule.Int(int64(value)))
		}
		knobs = append(knobs, knob)
	}
	// Knobs of other sources stay at their defaults. A constraint may still name them.
	for _, k := range kernel.Knobs {
		if !slices.ContainsFunc(own, func(s spec.Setting) bool { return s.Knob == k.Name }) {
			knobs = append(knobs, Knob{Name: k.Name, Layer: k.Layer, Values: []rule.Value{rule.Int(int64(k.Default))}})
		}
	}
	to := make([]int, len(kernel.Knobs)) // by knob of the kernel: that of the space
	for i, k := range kernel.Knobs {
		to[i] = slices.IndexFunc(knobs, func(own Knob) bool { return own.Name == k.Name })
	}
	var rules []*rule.Rule
	for _, c := range kernel.Constraints {
		if len(c.Sources) == 0 || slices.Contains(c.Sources, v.Stage().Source) {
			rules = append(rules, c.Compiled().Rename(to).Terms()...)
		}
	}
	if exact := v.Stage().ExactRule(); exact != nil && v.Exponentials() == spec.ExactExponentials {
		rules = append(rules, exact.Rename(to).Terms()...)
	}
	return newSpace(v.Stage().Name, knobs, rules)
}

// VariantOf returns the variant of a point of OfStage.
func VariantOf(stage *spec.Stage, s *Space, p Point) (spec.Variant, error) {
	name := stage.Name
	for i, setting := range stage.Variant().Values() {
		if v := s.Knobs[i].Values[p[i]]; v != rule.Int(int64(setting.Value)) {
			name += "+" + setting.Knob + "=" + v.String()
		}
	}
	return stage.Kernel().Variant(name)
}

// PointOf returns the point of a variant in a space of its stage; false if a fixed knob has another
// value.
func PointOf(s *Space, v spec.Variant) (Point, bool) {
	p := make(Point, len(s.Knobs))
	for i, setting := range v.Values() {
		at := slices.Index(s.Knobs[i].Values, rule.Int(int64(setting.Value)))
		if at < 0 {
			return nil, false
		}
		p[i] = uint16(at)
	}
	return p, s.Allowed(p)
}
