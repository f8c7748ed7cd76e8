package clib

import (
	"fmt"
	"strings"

	"attune/internal/spec"
)

// The knobs of the outputs, and what they need. With LSE all exponentials are exact: the logarithm
// of a sum of approximated ones would carry their error to every user of it.
var (
	bf16Knobs = map[string]int{"USE_BF16_OUT": 1}
	lseKnobs  = map[string]int{"USE_LSE": 1, "EXP2_LINEAR_EIGHTHS": 0, "EXP2_SEGMENTS": 1, "USE_CHECKERBOARD": 0}
)

// Variant returns the variant that computes the same as v for another output.
func Variant(v spec.Variant, output int) (spec.Variant, error) {
	stage := v.Stage()
	name := strings.Builder{}
	name.WriteString(stage.Name)
	changed := map[string]bool{}
	for i, setting := range v.Values() {
		for bit, knobs := range map[int]map[string]int{BF16: bf16Knobs, LSE: lseKnobs} {
			if to, ok := knobs[setting.Knob]; ok && output&bit != 0 {
				setting.Value = to
				changed[setting.Knob] = true
			}
		}
		if setting != stage.Variant().Values()[i] {
			name.WriteString("+" + setting.String())
		}
	}
	if output&BF16 != 0 && !changed["USE_BF16_OUT"] || output&LSE != 0 && !changed["USE_LSE"] {
		return spec.Variant{}, fmt.Errorf("%s writes FP16 without LSE only: its source has no knob for another output", v)
	}
	return stage.Kernel().Variant(name.String())
}
