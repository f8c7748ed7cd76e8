package spec

import (
	"slices"

	"attune/internal/rule"
)

// Exponentials is how a variant that rounds P to E4M3 computes the exponentials of the softmax. It
// is empty for variants that do not round P to E4M3.
type Exponentials string

// The kinds of exponentials.
const (
	ExactExponentials       Exponentials = "exact"       // to within what rounding to E4M3 loses
	ApproximateExponentials Exponentials = "approximate" // some of them, such as by one chord per octave
)

// Exponentials returns how the variant computes exponentials, by the rule of its stage. A rule that
// cannot be evaluated does not hold.
func (v Variant) Exponentials() Exponentials {
	if v.stage.exact == nil {
		return ""
	}
	if exact, err := v.stage.exact.Holds(v.values); exact && err == nil {
		return ExactExponentials
	}
	return ApproximateExponentials
}

// ExactRule returns the rule over the kernel's knobs that holds for variants with exact exponentials.
// It is nil if the stage does not round P to E4M3.
func (s *Stage) ExactRule() *rule.Rule {
	if s.exact == nil {
		return nil
	}
	return s.exact.rule
}

// exponentials reads how the variants of a selection compute exponentials. A selection that claims
// exact ones has no variant that approximates.
func (l *loader) exponentials(t *table, s *Selection) {
	const key = "exponentials"
	s.Exponentials = Exponentials(t.optionalText(key))
	known := []Exponentials{"", ExactExponentials, ApproximateExponentials}
	if !slices.Contains(known, s.Exponentials) {
		l.problems.add(t.at(key), "%q in %s is %q; want %q or %q", key, t.name, s.Exponentials, known[1], known[2])
	}
	if s.Exponentials != ExactExponentials || l.unusable {
		return
	}
	for _, c := range s.Choices {
		if c.Variant.stage != nil && c.Variant.Exponentials() != ExactExponentials {
			l.problems.add(c.line, "%s %q has exact exponentials, but not in %s; its stage has no %q that holds for it",
				t.name, s.Name, c.Variant, "exact_exponentials")
		}
	}
}
