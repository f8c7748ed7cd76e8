package tensor

import (
	"math"
	"testing"
)

// The complementary error function inverts the quantile. In a tail, a relative error of x changes
// the probability by x*x times as much, so the tolerance grows with x.
func TestNormalQuantile(t *testing.T) {
	check := func(p float64) {
		t.Helper()
		x := normalQuantile(p)
		back := math.Erfc(-x/math.Sqrt2) / 2
		if math.Abs(back-p) > 1e-15*(1+x*x)*p {
			t.Errorf("quantile of %v is %v, whose probability is %v", p, x, back)
		}
	}
	for i := range 2000 {
		p := (float64(i) + 0.5) / 2000
		check(p)
	}
	for exponent := 1; exponent <= 53; exponent++ {
		for _, factor := range []float64{1, 1.1, 1.7} {
			check(math.Ldexp(factor, -exponent-1))
		}
		check(1 - math.Ldexp(1, -exponent))
	}
	// The boundaries between the three formulas.
	for _, p := range []float64{0.075, math.Exp(-25)} {
		check(p)
		check(math.Nextafter(p, 0))
		check(math.Nextafter(p, 1))
	}
	if x := normalQuantile(0.5); x != 0 {
		t.Errorf("quantile of 0.5 is %v", x)
	}
	for _, p := range []float64{0x1p-53, 0x1p-7, 0.1875, 0.4375} {
		if low, high := normalQuantile(p), normalQuantile(1-p); low != -high {
			t.Errorf("quantiles of p = %v and 1-p are %v and %v; want opposite signs", p, low, high)
		}
	}
}

func TestLogarithm(t *testing.T) {
	for x := 0x1p-60; x < 2; x *= 1.0137 {
		got, want := Logarithm(x), math.Log(x)
		if math.Abs(got-want) > 4e-16*math.Max(math.Abs(want), 0.02) {
			t.Errorf("Logarithm(%v) = %v, want %v", x, got, want)
		}
	}
	if got := Logarithm(1); got != 0 {
		t.Errorf("Logarithm(1) = %v", got)
	}
}

// normalQuantiles gives the bits of normalQuantile, in the centre and the tails, for every batch
// length.
func TestQuantilesMatchQuantile(t *testing.T) {
	edges := []float64{0x1p-53, 1e-12, 0x1p-36, 1.38e-11, 1.39e-11, 1.4e-11, 1e-6, 0.07499999, 0.075, 0.07500001, 0.25, 0.5}
	for _, p := range edges[:len(edges)-1] {
		edges = append(edges, 1-p)
	}
	checkQuantiles := func(all []float64) {
		t.Helper()
		got := make([]float32, len(all))
		normalQuantiles(got, all)
		for i, p := range all {
			if want := float32(normalQuantile(p)); math.Float32bits(got[i]) != math.Float32bits(want) {
				t.Fatalf("batch of %d, element %d: quantile of %v is %v, want %v", len(all), i, p, got[i], want)
			}
		}
	}
	random := Stream(1, 2, 3)
	for count := range batchSize + 1 {
		all := make([]float64, count)
		for i := range all {
			if all[i] = UniformFloat(random); i%3 == 0 {
				all[i] = edges[(i/3+count)%len(edges)]
			}
		}
		checkQuantiles(all)
	}
	// Every value of uniform in the far tails.
	for first := 0.5; first < 1<<16; first += batchSize / 2 {
		var all []float64
		for i := range batchSize / 2 {
			p := (first + float64(i)) * 0x1p-52
			all = append(all, p, 1-p)
		}
		checkQuantiles(all)
	}
}
