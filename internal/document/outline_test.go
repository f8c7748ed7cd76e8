package document

import (
	"io"
	"testing"

	"attune/internal/run"
)

func TestOutline(t *testing.T) {
	o := &run.Outline{
		Kernel: "sdpa", Names: []string{"stage2", "stage7"}, Random: &run.Random{Count: 2, Seed: 7, Refused: 1, RefusedWhy: "shape 1x1x8x128 has head dim 128, and stage2 is built for 64"},
		Problems: []run.OutlinedProblem{
			{Shape: "1x8x512x64", Variants: []string{"stage2", "stage7a"}, GFLOP: 0.5369, MB: 1.31},
			{Shape: "4x8x512x64:causal", Variants: []string{"stage2", "stage7b+TILE_M=64"}},
		},
	}
	goldenOf(t, "outline.txt", func(w io.Writer) error { return Outline(o).Terminal(w, screen) })
	goldenOf(t, "outline.md", func(w io.Writer) error { return writeMarkdown(w, Outline(o)) })
}
