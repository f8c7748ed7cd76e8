package array

import (
	"bytes"
	"math"
	"slices"
	"testing"
)

// A path that three inputs in a million take runs on small arrays of an edge seed. The elements are values
// that the fill draws, and most are those of any seed.
func TestDrawEdges(t *testing.T) {
	within := func(low, high float64) func(float64) bool {
		return func(x float64) bool { return low <= x && x <= high }
	}
	for _, c := range []struct {
		dtype    DType
		fill     string
		a, b     float64
		rare     []func(float64) bool
		low, top float64
	}{
		{F32, "normal", 0, 0, []func(float64) bool{within(5.2, 6), within(-6, -5.2), within(4.5, 4.7), within(-1e-6, 1e-6)}, -6, 6},
		{F16, "normal", 0, 0, []func(float64) bool{within(5.2, 6), within(-6, -5.2)}, -6, 6},
		{E4M3, "normal", 0, 0, []func(float64) bool{within(4.5, 6), within(-6, -4.5)}, -6, 6},
		{F32, "uniform", -1, 3, []func(float64) bool{within(-1, -1+1e-6), within(3-1e-6, 3), within(-1e-7, 0), within(0, 1e-7)}, -1, 3},
		{F32, "uniform", 0.5, 1.5, []func(float64) bool{within(0.5, 0.5+1e-6), within(1.5-1e-6, 1.5)}, 0.5, 1.5},
		{F32, "uniform", 2, 2, []func(float64) bool{within(2, 2)}, 2, 2},
		{I32, "integers", -1e9, 1e9, []func(float64) bool{within(-1e9, -1e9), within(1e9-1, 1e9-1), within(0, 0)}, -1e9, 1e9 - 1},
		{BF16, "integers", -128, 128, []func(float64) bool{within(-128, -128), within(127, 127), within(0, 0)}, -128, 127},
		{I64, "offsets", 0, 1e12, []func(float64) bool{within(0, 0), within(1e12, 1e12)}, 0, 1e12},
	} {
		for n := range []int{48, 300, 4000} {
			n = []int{48, 300, 4000}[n]
			values := draw(t, c.dtype, n, c.fill, c.a, c.b, EdgeSeed+7, "x").Floats()
			for i, is := range c.rare {
				if !slices.ContainsFunc(values, is) {
					t.Errorf("%d of %s %s: no element of kind %d", n, c.dtype, c.fill, i)
				}
			}
			plain := 0
			for _, x := range values {
				if x < c.low || x > c.top {
					t.Errorf("%d of %s %s: %g", n, c.dtype, c.fill, x)
				}
				if !slices.ContainsFunc(c.rare, func(is func(float64) bool) bool { return is(x) }) {
					plain++
				}
			}
			if c.a != c.b && plain < 3*n/4 || c.fill == "normal" && plain < n/2 {
				t.Errorf("%d of %s %s: %d plain elements", n, c.dtype, c.fill, plain)
			}
		}
	}
	if last := draw(t, U64, 64, "integers", 0, 0x1p64, EdgeSeed, "x"); !bytes.Contains(last.Data, bytes.Repeat([]byte{255}, 8)) {
		t.Error("no largest u64")
	}
	for _, n := range []int{0, 1, 3} {
		draw(t, F32, n, "normal", 0, 0, EdgeSeed, "x")
	}
}

// Only a share of the elements differs, so that sums of products have nearly the errors of other seeds.
func TestEdgesAreFew(t *testing.T) {
	sum := 0.0
	for _, x := range draw(t, F32, 100_000, "normal", 0, 0, EdgeSeed, "x").Floats() {
		sum += x * x
	}
	if rms := math.Sqrt(sum / 100_000); rms < 1.1 || rms > 1.3 {
		t.Errorf("root mean square %.3f", rms)
	}
	for _, fill := range []string{"zeros", "ones", "iota"} {
		if !bytes.Equal(draw(t, F32, 500, fill, 0, 0, EdgeSeed, "x").Data, draw(t, F32, 500, fill, 0, 0, 1, "x").Data) {
			t.Errorf("%s has edges", fill)
		}
	}
}
