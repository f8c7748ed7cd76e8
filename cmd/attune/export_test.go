package main

import (
	"slices"
	"testing"

	"attune/internal/toolchain"
)

// An export has all outputs if a compiler can build them, those of --with if it is given, and the
// shipped ones else.
func TestOutputsOfExport(t *testing.T) {
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		t.Skip(err)
	}
	text := func(s string) *string { return &s }
	all := []int{0, 1, 2, 3}
	if _, err := toolchain.Find(t.Context(), cacheDir); err != nil {
		all = []int{0}
	}
	for _, test := range []struct {
		with *string
		want []int
	}{{nil, all}, {text(""), []int{0}}, {text("bf16"), []int{0, 1}}, {text("lse"), []int{0, 2}}, {text("lse,bf16"), []int{0, 1, 2, 3}}} {
		got, err := (&app{}).outputs(t.Context(), exportOptions{with: test.with})
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%v: %v, %v; want %v", test.with, got, err, test.want)
		}
	}
}
