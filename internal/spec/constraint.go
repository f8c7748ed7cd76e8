package spec

import (
	"strings"

	"attune/internal/rule"
)

// Constraint is a rule between knobs that every variant obeys.
type Constraint struct {
	Rule    string // a Starlark expression over knobs
	Why     string
	Sources []string // it applies only to stages built from one of these; to all stages if empty

	expression
}

// Compiled returns the rule over the knobs in the order of Kernel.Knobs.
func (c *Constraint) Compiled() *rule.Rule { return c.rule }

// in reports whether the constraint applies to the stages of a source.
func (c *Constraint) in(source string) bool { return covers(c.Sources, source) }

// newConstraint compiles a rule over the named knobs. It reports everything that is wrong with the
// rule.
func newConstraint(text, why string, knobs []string) (*Constraint, []error) {
	text = strings.Join(strings.Fields(text), " ")
	e, wrong := compileCondition(text, knobVocabulary(knobs))
	if len(wrong) > 0 {
		return nil, wrong
	}
	return &Constraint{Rule: text, Why: why, expression: e}, nil
}

// knobVocabulary is that of rules over knobs.
func knobVocabulary(knobs []string) vocabulary {
	return vocabulary{one: "knob", many: "knobs", names: knobs}
}
