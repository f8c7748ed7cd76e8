package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"attune/internal/device"
	"attune/internal/gate"
	"attune/internal/ledger"
	"attune/internal/measure"
	"attune/internal/run"
)

// measured LEDGER ARCH VERDICT SHAPE... records the latest run of a ledger again as a run of a GPU,
// with times on these shapes and with this verdict.
func measured(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: measured LEDGER ARCH VERDICT SHAPE...")
	}
	ctx := context.Background()
	kept, err := ledger.Open(ctx, filepath.Join(ts.Getenv("WORK"), args[0]))
	ts.Check(err)
	defer kept.Close()
	r, err := new(app).findRun(ctx, kept, "latest")
	ts.Check(err)

	r.Time = time.Now().UTC().Truncate(time.Millisecond)
	r.ID = ledger.NewID(r.Time, r.Stage)
	r.Device, r.Facts = "cuda", &device.Facts{Kind: "cuda", Name: "a GPU", Arch: args[1]}
	r.Requested.Simulation, r.Reproduces = nil, ""
	r.Verdict = gate.Verdict(args[2])
	series := device.Series{Seconds: []float64{10e-6, 10.1e-6, 10.2e-6}, LaunchesPerSample: 50}
	for _, shape := range args[3:] {
		r.Performance = append(r.Performance, run.Performance{Shape: shape, P50US: 10.1, Samples: 3, Benchmark: true})
		r.Samples = append(r.Samples, run.Samples{Shape: shape, Variant: series})
	}
	r.Headline = &run.Headline{Shape: args[3], P50US: 10.1}
	check := gate.Check{Status: gate.Pass, Reasons: []string{"it has no parent to be faster than"}}
	if r.Parent != "" {
		r.Speedup = &measure.Speedup{Ratio: 1.25, Low: 1.2, High: 1.3}
		if r.Verdict == gate.ValidNegative {
			r.Speedup = &measure.Speedup{Ratio: 0.98, Low: 0.97, High: 0.99}
		}
		check = gate.Performance(*r.Speedup, r.RequiredSpeedup, r.Parent)
	}
	r.Gates.Performance, r.Reasons.Performance = check.Status, check.Reasons

	files, err := r.Documents()
	ts.Check(err)
	_, err = kept.Record(ctx, files)
	ts.Check(err)
}
