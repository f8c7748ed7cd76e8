package rotate

import "testing"

// Each of n consecutive tests is due in one of n turns.
func TestEveryTestHasATurn(t *testing.T) {
	const n = 8
	for index := range 3 * n {
		runs := 0
		for _, turn := range []string{"c0ffee10", "c0ffee11", "c0ffee12", "c0ffee13", "c0ffee14", "c0ffee15", "c0ffee16", "c0ffee17"} {
			runs += count(t, turn, index, n)
		}
		if runs != 1 {
			t.Errorf("test %d runs in %d of %d turns", index, runs, n)
		}
		if count(t, All, index, n) != 1 {
			t.Errorf("test %d does not run with %s", index, All)
		}
	}
	if count(t, "", 0, n) != 1 || count(t, "", 1, n) != 0 {
		t.Error("without a turn it is not 0")
	}
	if _, err := due("last", 0, n); err == nil {
		t.Error("a turn that is no number is accepted")
	}
}

func count(t *testing.T, turn string, index, n int) int {
	t.Helper()
	is, err := due(turn, index, n)
	if err != nil {
		t.Fatal(err)
	}
	if is {
		return 1
	}
	return 0
}

// Skip skips what is not due.
func TestSkip(t *testing.T) {
	t.Setenv(Variable, "0a")
	ran := map[int]bool{}
	for i := range 4 {
		t.Run("", func(t *testing.T) {
			Skip(t, i, 4)
			ran[i] = true
		})
	}
	if len(ran) != 1 || !ran[2] {
		t.Errorf("tests %v ran, want 2", ran)
	}
}
