package catalog

import (
	"context"

	"attune/internal/ledger"
	"attune/internal/run"
)

// RunFile and BenchFile are the documents of a run and of a bench in a ledger.
const (
	RunFile   = "run.json"
	BenchFile = "bench.json"

	samplesFile = "samples.json"
)

// Run reads a run without its samples.
func Run(ctx context.Context, kept *ledger.Ledger, id string) (*run.Run, error) {
	text, err := kept.Read(ctx, id, RunFile)
	if err != nil {
		return nil, err
	}
	return run.Decode(text)
}

// ReadSamples adds the recorded samples to a run.
func ReadSamples(ctx context.Context, kept *ledger.Ledger, r *run.Run) error {
	text, err := kept.Read(ctx, r.ID, samplesFile)
	if err != nil {
		return err
	}
	r.Samples, err = run.DecodeSamples(text)
	return err
}

// Bench reads a bench without its samples.
func Bench(ctx context.Context, kept *ledger.Ledger, id string) (*run.Bench, error) {
	text, err := kept.ReadBench(ctx, id, BenchFile)
	if err != nil {
		return nil, err
	}
	return run.DecodeBench(text)
}
