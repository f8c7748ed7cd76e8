package spec

import "strings"

// Diff describes what turns another variant, usually the parent, into this one: the source if it
// differs, then the knobs that differ, as in a variant name.
func (v Variant) Diff(from Variant) string {
	var text strings.Builder
	if v.stage.Source != from.stage.Source {
		text.WriteString(v.stage.Source)
	}
	for i, value := range v.values {
		if value != from.values[i] && v.stage.kernel.Knobs[i].in(v.stage.Source) {
			text.WriteString("+" + Setting{v.stage.kernel.Knobs[i].Name, value}.String())
		}
	}
	return text.String()
}
