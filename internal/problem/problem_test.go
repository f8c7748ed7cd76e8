package problem

import (
	"testing"

	"attune/internal/spec"
)

func TestInstanceNames(t *testing.T) {
	for inputs, want := range map[string]string{
		"": "n=4 seed 7", "normal": "n=4 seed 7", "outliers": "n=4 seed 7 outliers",
	} {
		i := Instance{Shape: spec.Axes("n=4"), Seed: 7, Inputs: inputs}
		if i.String() != want {
			t.Errorf("%q; want %q", i, want)
		}
	}
}

func TestReferenceError(t *testing.T) {
	for want, err := range map[string]error{
		"reference.py: no numpy":             &ReferenceError{Why: "reference.py: no numpy"},
		"reference.py: no numpy; install it": &ReferenceError{Why: "reference.py: no numpy", Do: "install it"},
	} {
		if err.Error() != want {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
