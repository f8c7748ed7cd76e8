package tensor

import (
	"math"
	"reflect"
	"testing"
)

func TestChooseEvaluate(t *testing.T) {
	for avx2, want := range map[bool]any{false: evaluateNone, true: evaluateAVX2} {
		if reflect.ValueOf(chooseEvaluate(avx2)).Pointer() != reflect.ValueOf(want).Pointer() {
			t.Errorf("AVX2 = %t: wrong function", avx2)
		}
	}
}

// The vector code gives the bits of rational.at and leaves the remaining elements unchanged.
func TestEvaluateVectorBits(t *testing.T) {
	if reflect.ValueOf(evaluateVector).Pointer() != reflect.ValueOf(evaluateAVX2).Pointer() {
		t.Skip("this processor has no AVX2")
	}
	random := Stream(4, 5, 6)
	for name, f := range map[string]*rational{"centre": &centre, "tail": &tail, "far tail": &farTail} {
		for count := range 40 {
			x := make([]float64, count)
			for i := range x {
				x[i] = 4*UniformFloat(random) - 0.1
			}
			got := append([]float64{}, x...)
			if done := evaluateVector(got, f); done != count/8*8 {
				t.Fatalf("%d of %d elements were evaluated", done, count)
			}
			for i := range x {
				want := x[i]
				if i < count/8*8 {
					want = f.at(x[i])
				}
				if math.Float64bits(got[i]) != math.Float64bits(want) {
					t.Fatalf("%s of %d elements, element %d: f(%v) is %v, want %v", name, count, i, x[i], got[i], want)
				}
			}
		}
	}
}
