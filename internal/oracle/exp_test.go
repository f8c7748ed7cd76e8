package oracle

import (
	"math"
	"testing"
)

func TestExpNonPositive(t *testing.T) {
	check := func(x float64) {
		t.Helper()
		got, want := expNonPositive(x), math.Exp(x)
		if math.Abs(got-want) > 2*(math.Nextafter(want, 2)-want) {
			t.Errorf("exp(%v) = %v, want %v", x, got, want)
		}
	}
	for x := -1e-20; x > -708; x *= 1.00007 {
		check(x)
	}
	for x := -707.9; x < 0; x += 0.0037 {
		check(x)
	}
	// At the table entries and halfway between them.
	for k := range 64 * 1000 {
		check(-float64(k) * math.Ln2 / 128)
	}
	for x, want := range map[float64]float64{0: 1, -708: 0, -1e300: 0, math.Inf(-1): 0} {
		if got := expNonPositive(x); got != want {
			t.Errorf("exp(%v) = %v, want %v", x, got, want)
		}
	}
	if got := expNonPositive(math.NaN()); got == got {
		t.Errorf("exp(NaN) = %v", got)
	}
}
