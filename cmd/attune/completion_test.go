package main

import (
	"slices"
	"strings"
	"testing"
)

// completions are the words that the shell offers for a command line, without descriptions, and the
// directive.
func completions(t *testing.T, args ...string) (words []string, directive string) {
	t.Helper()
	out, errs, code := printed(append([]string{"__complete"}, args...)...)
	if code != exitOK {
		t.Fatalf("%q: exit code %d: %s", args, code, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, line := range lines[:len(lines)-1] {
		word, _, _ := strings.Cut(line, "\t")
		words = append(words, word)
	}
	return words, lines[len(lines)-1]
}

func TestCompletion(t *testing.T) {
	const noFiles, noSpace, order = 4, 2, 32
	for _, test := range []struct {
		args    []string
		has     []string
		lacks   []string
		noSpace bool
	}{
		{args: []string{"run", ""}, has: []string{"stage0", "stage2", "stage7"}},
		{args: []string{"run", "stage0", "stage1"}, has: []string{"stage1"}, lacks: []string{"stage0", "stage2"}},
		{args: []string{"run", "stage2+TI"}, has: []string{"stage2+TILE_M=", "stage2+TILE_N="}, lacks: []string{"stage2+USE_XOR_SWIZZLE="}, noSpace: true},
		{args: []string{"run", "stage2+TILE_N="}, has: []string{"stage2+TILE_N=32", "stage2+TILE_N=64"}, lacks: []string{"stage2+TILE_N=7"}},
		{args: []string{"run", "stage2+TILE_N=32+TI"}, has: []string{"stage2+TILE_N=32+TILE_M="}, lacks: []string{"stage2+TILE_N=32+TILE_N="}, noSpace: true},
		{args: []string{"run", "nothing+TI"}, lacks: []string{"nothing+TILE_N="}},
		{args: []string{"run", "stage2+NOTHING="}},
		{args: []string{"build", "stage"}, has: []string{"stage2"}, lacks: []string{"stage7"}}, // build takes no selection
		{args: []string{"build", "stage2", ""}, lacks: []string{"stage1"}},
		{args: []string{"compare", "stage2", "stage3"}, has: []string{"stage3b"}},
		{args: []string{"compare", "stage2", "stage3b", ""}, lacks: []string{"stage3b"}},
		{args: []string{"run", "--against", "stage2+USE_X"}, has: []string{"stage2+USE_XOR_SWIZZLE="}, noSpace: true},
		{args: []string{"run", "--shapes", ""}, has: []string{"small", "mission", "1x8x512x64:causal"}, noSpace: true},
		{args: []string{"run", "--shapes", "small,mi"}, has: []string{"small,mission"}, lacks: []string{"small,small", "mission"}, noSpace: true},
		{args: []string{"run", "--shapes", "small,1x8x512x64:"}, has: []string{"small,1x8x512x64:causal"}, noSpace: true},
		{args: []string{"run", "--device", ""}, has: []string{"auto", "cuda", "sim"}},
		{args: []string{"history", "--stage", "stage3"}, has: []string{"stage3b"}},
		{args: []string{"history", "--verdict", ""}, has: []string{"merge", "valid-negative"}},
		{args: []string{"show", "--ledger", "../../results", "latest"}, has: []string{"latest"}},
		{args: []string{"reproduce", "--ledger", "../../results", "20261115-052709"}, has: []string{"20261115-052709-stage2-30323b"}},
		{args: []string{"compare", "--ledger", "../../results", "20261115-052709"}, has: []string{"20261115-052709-stage2-30323b"}},
		{args: []string{"show", "--ledger", "nowhere", ""}},
		{args: []string{"init", ""}, has: []string{"blank", "rmsnorm", "gemm"}},
		{args: []string{"init", "gelu", ""}, lacks: []string{"gemm"}},
		{args: []string{"export", ""}, has: []string{"stage7", "stage7-fast"}, lacks: []string{"stage7b"}},
		{args: []string{"help", "exit"}, has: []string{"exit-codes"}},
		{args: []string{"help", "ledger", ""}, has: []string{"verify"}},
		{args: []string{"help", "run", "now", ""}},
	} {
		words, directive := completions(t, test.args...)
		for _, word := range test.has {
			if !slices.Contains(words, word) {
				t.Errorf("%q does not offer %q: %q", test.args, word, words)
			}
		}
		for _, word := range test.lacks {
			if slices.Contains(words, word) {
				t.Errorf("%q offers %q", test.args, word)
			}
		}
		var got int
		for _, digit := range directive[1:] {
			got = 10*got + int(digit-'0')
		}
		if got&noFiles == 0 || (got&noSpace != 0) != test.noSpace || got&^(noFiles|noSpace|order) != 0 {
			t.Errorf("%q has directive %s", test.args, directive)
		}
	}
	if _, directive := completions(t, "mutate", "nothing"); directive != ":32" {
		t.Errorf("mutate takes files too, and its directive is %s", directive)
	}
	if words, directive := completions(t, "run", "--kernel", "nowhere", ""); len(words) > 0 || directive != ":1" {
		t.Errorf("a kernel that does not exist: %q, %s", words, directive)
	}
}
