package sdpa

import "testing"

func TestChooseVectors(t *testing.T) {
	for avx2, want := range map[bool]string{false: "Go", true: "AVX2"} {
		if got := chooseVectors(avx2).name; got != want {
			t.Errorf("AVX2 = %t: %s, want %s", avx2, got, want)
		}
	}
}
