package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// The README's ladder is what the committed results give.
func TestReadmeLadderIsPrintedFromTheResults(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(readme), "<!-- ladder -->\n")
	want, _, closed := strings.Cut(rest, "<!-- /ladder -->")
	if !found || !closed {
		t.Fatal("README.md has no ladder between its marks")
	}
	t.Chdir("../..")
	var out, errs bytes.Buffer
	if code := attune([]string{"history", "--ladder", "--markdown", "--ledger", "results"}, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	if out.String() != want {
		t.Errorf("README.md has\n%s\nand the results give\n%s", want, out.String())
	}
}

// Nobody has touched the committed results.
func TestResultsVerify(t *testing.T) {
	t.Chdir("../..")
	var out, errs bytes.Buffer
	if code := attune([]string{"ledger", "verify", "--ledger", "results"}, &out, &errs); code != 0 {
		t.Errorf("exit code %d: %s%s", code, out.String(), errs.String())
	}
}
