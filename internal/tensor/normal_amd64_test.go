package tensor

import (
	"math"
	"reflect"
	"testing"
)

func TestChooseQuotients(t *testing.T) {
	for avx2, want := range map[bool]any{false: noQuotients, true: quotientsAVX2} {
		if reflect.ValueOf(chooseQuotients(avx2)).Pointer() != reflect.ValueOf(want).Pointer() {
			t.Errorf("with AVX2 %t: not the right one", avx2)
		}
	}
}

// What is done eight at a time has the bits of what is done one at a time, and nothing else is touched.
func TestQuotientsHaveTheSameBits(t *testing.T) {
	if reflect.ValueOf(quotients).Pointer() != reflect.ValueOf(quotientsAVX2).Pointer() {
		t.Skip("this processor has no AVX2")
	}
	random := stream(4, 5, 6)
	for name, f := range map[string]*rational{"centre": &centre, "tail": &tail, "far tail": &farTail} {
		for count := range 40 {
			x := make([]float64, count)
			for i := range x {
				x[i] = 4*uniform(random) - 0.1
			}
			got := append([]float64{}, x...)
			if done := quotients(got, f); done != count/8*8 {
				t.Fatalf("%d of %d are done", done, count)
			}
			for i := range x {
				want := x[i]
				if i < count/8*8 {
					want = f.at(x[i])
				}
				if math.Float64bits(got[i]) != math.Float64bits(want) {
					t.Fatalf("%s, %d of them, number %d: of %v it is %v, want %v", name, count, i, x[i], got[i], want)
				}
			}
		}
	}
}
