package document

import (
	"io"
	"slices"

	"attune/internal/ci"
	"attune/internal/run"
)

// RunBenchmarks writes the samples of runs in the format of Go's benchmarks. Those of the parents,
// which were taken in turn with them, are not repeated.
func RunBenchmarks(w io.Writer, runs []*run.Run) error {
	var config []ci.Config
	var all []ci.Series
	for _, r := range runs {
		if r.Facts != nil && config == nil {
			config = []ci.Config{{Key: "device", Value: r.Facts.Name}, {Key: "arch", Value: r.Facts.Arch}}
		}
		for _, s := range r.Samples {
			all = append(all, ci.Series{Kernel: benchmarked(r.Kernel, r.Problem), Shape: s.Shape, Variant: r.Variant, Seconds: slices.Concat(s.Pair().Variant...)})
		}
	}
	return ci.Benchmarks(w, config, all)
}

// BenchBenchmarks writes the samples of a bench in the format of Go's benchmarks.
func BenchBenchmarks(w io.Writer, b *run.Bench) error {
	var all []ci.Series
	for _, row := range b.Rows {
		all = append(all, ci.Series{Kernel: benchmarked(b.Kernel, b.Problem), Shape: row.Shape, Variant: row.Name, Seconds: slices.Concat(row.Seconds...)})
	}
	return ci.Benchmarks(w, []ci.Config{{Key: "device", Value: b.Facts.Name}, {Key: "arch", Value: b.Facts.Arch}}, all)
}

// benchmarked is the kernel in the name of a benchmark. Attention has none, as in comparisons, so that
// benchstat can compare the samples of all commands.
func benchmarked(kernel string, declared *run.Problem) string {
	if declared == nil {
		return ""
	}
	return kernel
}
