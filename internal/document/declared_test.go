package document

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"attune/internal/finding"
	"attune/internal/gate"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/run"
)

// declaredOutput is an output with errors of this size.
func declaredOutput(name string, bad int, element string) oracle.OutputErrors {
	return oracle.OutputErrors{Name: name, Errors: oracle.Errors{
		MaxErr: 0.00123456, MeanErr: 0.0000321, Bad: bad, BadFraction: float64(bad) / 2048,
		Worst: oracle.Worst{Place: oracle.Place{Element: element}, Got: 0.5, Want: 0.501},
	}}
}

// declared is a run of a kernel with two outputs. The second one is wrong on the shape without a
// name.
func declared() *run.Run {
	r := onDevice(built(newRun("fused")))
	r.Kernel, r.Arch, r.Facts.Name = "norm", "sm_90a", "NVIDIA H200"
	r.Problem = &run.Problem{Kind: "declared", SpecSHA256: "5bec", Facts: map[string]string{
		"reference": "python", "path": "reference.py", "python": "3.11.7", "numpy": "2.2.6",
	}}
	r.Parent, r.Speedup = "plain", &measure.Speedup{Ratio: 1.2, Low: 1.1, High: 1.3}
	r.Requested.Shapes, r.Requested.Seeds, r.Requested.Problems = []string{"rows=8,n=256", "rows=3,n=100"}, []uint64{0}, 2
	limits := gate.Limits{Outputs: map[string]gate.OutputLimit{"y": {Abs: 2e-3, Rel: 1e-3}, "count": {}}}
	wrong := declaredOutput("count", 3, "count[7]")
	wrong.FirstNonFinite = &oracle.Place{Element: "count[5]"}
	r.Correctness = []run.Correctness{
		{Shape: "rows=8,n=256", ShapeName: "small", Pass: true, Limits: limits, Outputs: []oracle.OutputErrors{
			declaredOutput("y", 0, "y[3, 17]"), declaredOutput("count", 0, ""),
		}},
		{Shape: "rows=3,n=100", Limits: limits, Outputs: []oracle.OutputErrors{declaredOutput("y", 0, "y[2, 99]"), wrong}},
	}
	r.Requested.Timing = "graph replays"
	r.Performance = []run.Performance{
		{
			Shape: "rows=8,n=256", ShapeName: "small", P50US: 12.3456, P90US: 13, P99US: 14.5, StdUS: 0.25, GBPerS: ptr(3612.4), Samples: 100,
			Shares: &run.Shares{Copy: 0.856}, ParentP50US: ptr(15.4), ParentRatio: ptr(1.2), RatioLow: ptr(1.1), RatioHigh: ptr(1.3), Benchmark: true,
		},
		{Shape: "rows=3,n=100", P50US: 3.2, P90US: 3.3, P99US: 3.4, StdUS: 0.01, Samples: 100},
	}
	return decided(r, gate.Incorrect, gate.Gates{
		Resources: gatePassed, Correctness: gate.Check{Status: gate.Fail, Reasons: []string{"count is wrong"}}, Performance: later, Profile: noProfile,
	})
}

func TestDeclaredRecord(t *testing.T) {
	goldenOf(t, "declared.txt", func(w io.Writer) error { return runText(w, declared(), screen) })
	golden(t, "declared.md", runMarkdown(declared()))
	if got, want := Figures(declared()), "1.200x plain (1.100 to 1.300), none required; 74 registers, 43520 bytes of shared memory; "+
		"1 of 2 correct against reference.py; NVIDIA H200"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}

// Long axes are written once, above the tables, which have the names of the shapes.
func TestLongShapes(t *testing.T) {
	const long = "batch=1,kv_heads=2,group=4,queries=1,keys=300"
	r := declared()
	r.Correctness[0].Shape, r.Performance[0].Shape = long, long
	r.Correctness[1].ShapeName, r.Performance[1].ShapeName = "odd", "odd"
	goldenOf(t, "long_shapes.txt", func(w io.Writer) error { return runText(w, r, screen) })
	r.Correctness[1].ShapeName = ""
	var out strings.Builder
	if err := runText(&out, r, screen); err != nil || strings.Contains(out.String(), "\nshapes\n") {
		t.Errorf("%v: a shape without a name is labelled:\n%s", err, out.String())
	}
}

// A launch with a race is wrong for all of its outputs.
func TestDeclaredRowsOfAFinding(t *testing.T) {
	r := declared()
	r.Correctness[1].Findings = []finding.Finding{{Kind: "race"}}
	outcome := func(row int) string { return (&RunStudy{Run: r}).outputs().Rows[row][10].String() }
	if outcome(2) != "FAIL" || outcome(3) != "FAIL" {
		t.Errorf("%q and %q with a race", outcome(2), outcome(3))
	}
	r.Correctness[1].Findings, r.Correctness[1].Relaunch = nil, &run.Relaunch{}
	if outcome(2) != "FAIL" || outcome(1) != "pass" {
		t.Errorf("%q and %q after a relaunch that failed", outcome(2), outcome(1))
	}
}

func TestDeclaredCells(t *testing.T) {
	for want, got := range map[string]string{
		"0": record{}.share(0, "").Text, "0.001 %": record{}.share(1e-5, "").Text, "12.50 %": record{}.share(0.125, "").Text,
		"equal": record{}.tolerance(0, 0, "").String(), "0.5": record{}.tolerance(0.5, 0, "").String(), "0.25·|want|": record{}.tolerance(0, 0.25, "").String(), "0.5 + 0.25·|want|": record{}.tolerance(0.5, 0.25, "").String(),
		"-": ceilingText(nil), "91.0 % FP8": ceilingText(&run.Shares{BF16: 1.7, FP8: 0.91, Copy: 0.1}), "60.0 % bf16": ceilingText(&run.Shares{BF16: 0.6, FP8: 0.3, Copy: 0.1}),
		"3 (0.15 %)": record{}.bad(declaredOutput("y", 3, "").Errors, "").String(),
	} {
		if got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
	if got := ceilingText(&run.Shares{}); got != none {
		t.Errorf("%q without work", got)
	}
}

// A bench of a declared kernel has the rates that [work] gives, and no empty columns.
func TestDeclaredBench(t *testing.T) {
	b := someBench()
	b.Problem, b.Ceilings = &run.Problem{Kind: "declared"}, &run.Ceilings{BF16: 784, FP8: 1468, CopyTBps: 4.22, Measured: "once"}
	b.Best, b.Skipped, b.Peers = nil, nil, nil
	b.Rows = []run.BenchRow{
		{Shape: "n=4", Name: "fused", DType: "f16", P50US: ptr(5.11), P90US: ptr(5.2), GBPerS: ptr(3612.0), MaxErr: ptr(1e-3), Shares: &run.Shares{Copy: 0.856}},
		{
			Shape: "n=4", Name: "plain", DType: "f16", P50US: ptr(7.5), P90US: ptr(7.6), GBPerS: ptr(2400.0), MaxErr: ptr(1e-3), Shares: &run.Shares{Copy: 0.57},
			Speedup: &measure.Speedup{Ratio: 1.47, Low: 1.4, High: 1.5},
		},
	}
	b.Checked = []run.CheckedShape{{Shape: "n=4", Coverage: oracle.Coverage{Rows: 4, Of: 4}}}
	goldenOf(t, "declared_bench.txt", func(w io.Writer) error { return benchOf(b).Terminal(w, screen) })
	goldenOf(t, "declared_bench.md", func(w io.Writer) error { return writeMarkdown(w, benchOf(b)) })
	b.Rows[0].TFLOPS, b.Rows[1].GBPerS = ptr(1.25), nil
	goldenOf(t, "declared_by_shape.txt", func(w io.Writer) error { return BenchByShape(b).Terminal(w, screen) })
}

// Summaries say which shapes did not run.
func TestDeclaredNames(t *testing.T) {
	var text bytes.Buffer
	err := Summary{Runs: []*run.Run{declared()}, Ledger: ".attune", LeftOut: "not on the simulator: main"}.Document().Terminal(&text, screen)
	if err != nil || !bytes.HasSuffix(text.Bytes(), []byte("\nnot on the simulator: main\n")) {
		t.Errorf("%v\n%s", err, text.String())
	}
}
