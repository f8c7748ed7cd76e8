package document

import "testing"

func TestExponentials(t *testing.T) {
	for _, test := range []struct {
		knobs map[string]int
		want  Exponentials
	}{
		{nil, ExactExponentials},
		{map[string]int{"USE_FAST_EXP": 1}, ExactExponentials},
		{map[string]int{"EXP2_LINEAR_EIGHTHS": 5}, LinearExponentials},
		{map[string]int{"EXP2_LINEAR_EIGHTHS": 5, "EXP2_SEGMENTS": 1}, LinearExponentials},
		{map[string]int{"EXP2_LINEAR_EIGHTHS": 4, "EXP2_SEGMENTS": 2}, SegmentExponentials},
		{map[string]int{"EXP2_LINEAR_EIGHTHS": 0, "EXP2_SEGMENTS": 2}, ExactExponentials},
		{map[string]int{"EXP2_CUBIC_EIGHTHS": 2}, ExactExponentials},
		{map[string]int{"POLYNOMIAL_EIGHTHS": 4, "USE_KEYS_AS_ROWS": 0}, LinearExponentials},
		{map[string]int{"POLYNOMIAL_EIGHTHS": 4, "USE_KEYS_AS_ROWS": 1}, ExactExponentials},
	} {
		if got := ExponentialsOf(test.knobs); got != test.want {
			t.Errorf("%v: %s, want %s", test.knobs, got, test.want)
		}
	}
}
