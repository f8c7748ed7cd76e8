package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/rogpeppe/go-internal/testscript"

	"attune/internal/device"
	"attune/internal/lab"
	"attune/internal/ledger"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/peer"
	"attune/internal/run"
	"attune/internal/toolchain"
)

// someBench is a bench of two shapes on a GPU.
func someBench() *run.Bench {
	at := time.Now().UTC().Truncate(time.Millisecond)
	speedup := measure.Speedup{Ratio: 2, Low: 1.9, High: 2.1}
	b := &run.Bench{
		SchemaVersion: run.BenchSchemaVersion, ID: ledger.NewID(at, "bench"), Time: at, Kernel: "sdpa", Command: "attune bench stage2 --peer torch-cudnn",
		Builds: []toolchain.Record{{Kernel: "sdpa", Variant: "stage2", Arch: "sm_90a", CodeHash: "c0de"}}, Attune: "0.1.0",
		Facts: device.Facts{Kind: "cuda", Name: "a GPU", Arch: "sm_90", Driver: "580"}, Peers: &peer.Facts{Torch: "2.11.0"}, Rounds: 2, Blocks: 1, Timing: "interleaved",
		Rows: []run.BenchRow{}, Best: []run.BestRow{}, Skipped: []run.Skipped{{Name: "torch-flash", Why: "it is missing"}},
	}
	for _, shape := range []string{"1x8x512x64", "1x32x16384x64"} {
		ours, theirs, tflops := 10.5, 21.0, 51.1
		checked := oracle.Coverage{Rows: 4096, Of: 4096}
		if shape != "1x8x512x64" {
			checked.Of = 524288
		}
		b.Requested, b.Checked = append(b.Requested, shape), append(b.Checked, run.CheckedShape{Shape: shape, Coverage: checked})
		b.Rows = append(b.Rows,
			run.BenchRow{Shape: shape, Name: "stage2", DType: "e4m3", P50US: &ours, TFLOPS: &tflops, Seconds: [][]float64{{10.5e-6, 10.5e-6}}},
			run.BenchRow{
				Shape: shape, Name: "torch-cudnn", Peer: true, DType: "fp16", P50US: &theirs, TFLOPS: &tflops, Speedup: &speedup, Seconds: [][]float64{{21e-6, 21e-6}},
			})
		b.Best = append(b.Best, run.BestRow{Shape: shape, Variant: "stage2", Peer: "torch-cudnn", Speedup: speedup})
	}
	return b
}

// benched LEDGER records a bench in a ledger.
func benched(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: benched LEDGER")
	}
	kept, err := ledger.Open(context.Background(), filepath.Join(ts.Getenv("WORK"), args[0]))
	ts.Check(err)
	defer kept.Close()
	files, err := someBench().Documents()
	ts.Check(err)
	ts.Check(kept.RecordBench(context.Background(), files))
}

// A bench prints its result however it ends, and the exit code depends on the end.
func TestBenchEnds(t *testing.T) {
	check := func(what string, set func(*run.Bench), interrupted bool, failed error, code int, out, message string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if interrupted {
			cancel()
			failed = errors.Join(ctx.Err(), failed)
		}
		b := someBench()
		if set == nil {
			b = nil
		} else {
			set(b)
		}
		var stdout, stderr bytes.Buffer
		a := &app{stdout: &stdout, stderr: &stderr, started: true, ledgerDir: "kept"}
		err := a.endBench(ctx, benchOptions{}, lab.BenchRequest{}, b, failed)
		if got := a.exitCode(ctx, err); got != code {
			t.Errorf("%s: exit code %d, want %d: %v", what, got, code, err)
		}
		if !strings.Contains(stdout.String(), out) || (b == nil) != (stdout.Len() == 0) {
			t.Errorf("%s: no %q in\n%s", what, out, stdout.String())
		}
		if message != "" && (err == nil || !strings.Contains(err.Error(), message)) {
			t.Errorf("%s: %v, want %q", what, err, message)
		}
	}
	unchanged := func(*run.Bench) {}
	half := func(b *run.Bench) { b.Checked, b.Rows, b.Ended = b.Checked[:1], b.Rows[:2], "interrupted" }
	check("finished", unchanged, false, nil, exitOK, "1x32x16384x64: checked: 4096 of 524288 rows", "")
	check("wrong", func(b *run.Bench) { b.Rows[0].Wrong = "off" }, false, nil, exitSomeFailed, "WRONG: stage2 on 1x8x512x64: off", "")
	check("a wrong peer", func(b *run.Bench) { b.Rows[1].Wrong = "off" }, false, nil, exitOK, "WRONG: torch-cudnn", "")
	check("interrupted", half, true, nil, exitInterrupted, "NOT FINISHED: 1 of 2 shapes: interrupted",
		"interrupted; 1 of 2 shapes were finished and are in kept")
	check("interrupted at once", nil, true, nil, exitInterrupted, "", "no shape was finished, and nothing is recorded")
	check("interrupted, and the disk is full", func(b *run.Bench) { half(b); b.ID = "" }, true, errors.New("the disk is full"), exitInterrupted,
		"NOT FINISHED", "the disk is full")
	check("failed", func(b *run.Bench) { half(b); b.Ended = "on fire" }, false, errors.New("on fire"), exitFailure, "NOT FINISHED: 1 of 2 shapes: on fire", "on fire")
	check("not recorded", func(b *run.Bench) { b.ID = "" }, false, errors.New("was not recorded"), exitFailure, "1x8x512x64: stage2 is 2.000x the best peer", "was not recorded")
}

// The command of a record repeats the bench.
func TestBenchCommand(t *testing.T) {
	o := benchOptions{peers: "torch-cudnn", dtype: "fp16", shapes: "small,1x8x512x64:causal", seed: 3, rounds: 60, processes: 5, launches: 10, pace: peer.Pace{Rest: 50 * time.Millisecond, Load: time.Second}}
	want := "attune bench stage7 --peer torch-cudnn --peer-dtype fp16 --shapes small,1x8x512x64:causal --seeds 3 --rounds 60 --processes 5 --launches 10 --rest 50ms --load 1s"
	if got := o.command([]string{"stage7"}); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	o.arch = "sm_90a"
	if got := o.command([]string{"stage7"}); got != want+" --arch sm_90a" {
		t.Errorf("with an architecture: %s", got)
	}
	o.kernelFlag = "my kernels/norm"
	if got := o.command([]string{"stage7"}); got != want+" --arch sm_90a --kernel 'my kernels/norm'" {
		t.Error(got)
	}
	o.spread.set = pflag.NewFlagSet("bench", pflag.ContinueOnError)
	o.spread.set.Int("rounds", 60, "")
	if err := o.spread.set.Parse([]string{"--rounds=3"}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(o.elsewhere([]string{"stage7"}), " "); got != "bench stage7 --rounds=3 --recorded-kernel=my kernels/norm" {
		t.Errorf("on a worker: %s", got)
	}
	o = benchOptions{peers: "all", dtype: "fp16", random: randomOptions{80, 1}, rounds: 12, processes: 1, launches: 50}
	want = "attune bench stage7 --peer all --peer-dtype fp16 --random 80 --seed 1 --seeds 0 --rounds 12 --processes 1 --launches 50"
	if got := o.command([]string{"stage7"}); got != want {
		t.Errorf("random: %s\nwant %s", got, want)
	}
}
