// Package rotate chooses which of many similar tests run this time. `make test` sets the turn to the
// commit, so every commit runs another sample, and the same commit runs the same one.
package rotate

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

// Variable is the environment variable with the turn: a number in hexadecimal such as the first
// digits of a commit, or All. Without it the turn is 0.
const (
	Variable = "ATTUNE_TURN"
	All      = "all"
)

// Skip skips all but one of n consecutive tests; index counts them.
func Skip(t testing.TB, index, n int) {
	t.Helper()
	due, err := Due(index, n)
	if err != nil {
		t.Fatal(err)
	}
	if !due {
		t.Skipf("one test of %d runs in each turn; %s=%s runs all", n, Variable, All)
	}
}

// Due reports whether a test of n consecutive ones is in the sample of this turn.
func Due(index, n int) (bool, error) {
	return due(os.Getenv(Variable), index, n)
}

func due(text string, index, n int) (bool, error) {
	switch text {
	case All:
		return true, nil
	case "":
		text = "0"
	}
	turn, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return false, fmt.Errorf("%s=%s is neither %s nor a number in hexadecimal", Variable, text, All)
	}
	return uint64(index)%uint64(n) == turn%uint64(n), nil
}
