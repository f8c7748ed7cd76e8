package sdpa

import "testing"

func TestChooseVectors(t *testing.T) {
	for have, want := range map[[2]bool]string{
		{false, false}: "Go", {true, false}: "AVX2", {true, true}: "AVX-512", {false, true}: "Go",
	} {
		if got := chooseVectors(have[0], have[1]).name; got != want {
			t.Errorf("AVX2 and AVX-512 are %v: %s, want %s", have, got, want)
		}
	}
}
