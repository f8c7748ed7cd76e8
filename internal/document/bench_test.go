package document

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/peer"
	"attune/internal/run"
)

func someBench() *run.Bench {
	ceilings := run.CeilingsOf("NVIDIA H200")
	row := func(shape, name, dtype string, us, flops, bytes float64, speedup *measure.Speedup) run.BenchRow {
		return run.BenchRow{
			Shape: shape, Name: name, Peer: dtype != "e4m3", DType: dtype, P50US: &us, P90US: ptr(us * 1.01), TFLOPS: ptr(flops / us / 1e6), MaxErr: ptr(0.000146),
			MeanErr: ptr(1.5e-5), Launches: 50, Speedup: speedup, Shares: ceilings.Shares(flops, bytes, us/1e6),
		}
	}
	const flops = 4.0 * 8 * 512 * 512 * 64
	best := measure.Speedup{Ratio: 1.8, Low: 1.79, High: 1.812}
	return &run.Bench{
		Facts:  device.Facts{Kind: "cuda", Name: "NVIDIA H200", Arch: "sm_90", Driver: "580, CUDA 13.0"},
		Peers:  &peer.Facts{Python: "3.12.3", Torch: "2.11.0", CUDA: "13.0", CuDNN: "9.19.0", GPU: "NVIDIA H200"},
		Rounds: 60, Blocks: 12, Timing: "interleaved", Ceilings: ceilings,
		Rows: []run.BenchRow{
			row("1x8x512x64", "stage2", "e4m3", 14.06, flops, 1310720, &measure.Speedup{Ratio: 2.75, Low: 2.74, High: 2.76}),
			row("1x8x512x64", "stage3c", "e4m3", 5.11, flops, 1310720, nil),
			row("1x8x512x64", "torch-cudnn", "fp16", 9.2, flops, 2097152, &best),
			{Shape: "1x8x512x64", Name: "torch-math", Peer: true, DType: "fp16", MaxErr: ptr(3.25), MeanErr: ptr(0.1), Wrong: "max_err 3.25 exceeds 0.06"},
			row("2x8x512x64", "stage3c", "e4m3", 8.2, 2*flops, 2*1310720, nil),
			row("2x8x512x64", "torch-cudnn", "fp16", 9.4, 2*flops, 2*2097152, &measure.Speedup{Ratio: 1.146, Low: 1.14, High: 1.15}),
		},
		Best: []run.BestRow{
			{Shape: "1x8x512x64", Variant: "stage3c", Peer: "torch-cudnn", Speedup: best},
			{Shape: "2x8x512x64", Variant: "stage3c", Peer: "torch-cudnn", Speedup: measure.Speedup{Ratio: 1.146, Low: 1.14, High: 1.15}},
		},
	}
}

func TestBench(t *testing.T) {
	b := someBench()
	goldenOf(t, "bench.txt", func(w io.Writer) error { return benchOf(b).Terminal(w, screen) })
	goldenOf(t, "bench.md", func(w io.Writer) error { return writeMarkdown(w, benchOf(b)) })
}

// randomBench is a bench of two random problems, of which a selection fails on one.
func randomBench() *run.Bench {
	b := someBench()
	b.ID, b.Kernel, b.Command = "20261115-093000-bench-3f9a1c", "sdpa", "attune bench stage2 stage3c --random 2 --seed 7"
	b.Requested = []string{"1x8x512x64", "2x8x512x64"}
	b.Checked = []run.CheckedShape{
		{Shape: "1x8x512x64", Coverage: oracle.Coverage{Rows: 4096, Of: 4096}}, {Shape: "2x8x512x64", Coverage: oracle.Coverage{Rows: 512, Of: 8192}},
	}
	problem := func(shape string, us, peer float64) run.RandomProblem {
		return run.RandomProblem{Shape: shape, Ratio: ptr(peer / us), P50US: &us, Against: "torch-cudnn", AgainstUS: &peer, MaxErr: ptr(0.000146)}
	}
	b.Random = &run.Random{
		Count: 2, Seed: 7, Against: "peers", Required: 1.1, Refused: 3, RefusedWhy: "shape 1x1x64x128 has head dim 128, and stage3c is built for 64",
		Results: []run.RandomResult{
			run.SummarizeRandom("stage3c", []run.RandomProblem{problem("1x8x512x64", 5.11, 9.2), problem("2x8x512x64", 8.2, 9.4)}, 1.1),
			run.SummarizeRandom("stage7", []run.RandomProblem{
				{Shape: "1x8x512x64", Variant: "stage7b+TILE_M=64", Wrong: "max_err 3.25 exceeds 0.06"}, problem("2x8x512x64", 9.9, 9.4),
			}, 1.1),
		},
	}
	return b
}

// A bench of random problems has its figures first, and the worst problems. A terminal leaves out the
// table of all times.
func TestRandomBench(t *testing.T) {
	b := randomBench()
	goldenOf(t, "bench_random.txt", func(w io.Writer) error { return benchOf(b).Terminal(w, screen) })
	goldenOf(t, "bench_random.md", func(w io.Writer) error { return writeMarkdown(w, benchOf(b)) })
	b.Random.Against, b.Random.OverheadUS, b.Random.Refused = "copy", 4, 0
	if text := randomOrigin(b).String(); !strings.HasSuffix(text, "takes at the measured rate, plus 4 us, over ours.") || strings.Contains(text, "left out") {
		t.Error(text)
	}
	b.Random.Results[0] = run.SummarizeRandom("stage3c", nil, 1)
	if text := randomText(b, 0).String(); text != "stage3c: no random problem could be compared" {
		t.Error(text)
	}
}

// Without measured ceilings there are no columns for them, and without peers no comparison.
func TestBenchWithoutPeersAndCeilings(t *testing.T) {
	b := someBench()
	b.Facts.Name, b.Ceilings, b.Peers, b.Best, b.Rows = "Another GPU", nil, nil, nil, b.Rows[:2]
	goldenOf(t, "bench_alone.txt", func(w io.Writer) error { return benchOf(b).Terminal(w, screen) })
}

// A recorded bench has its origin, its missing shapes, and the number of checked rows.
func TestRecordedBench(t *testing.T) {
	b := someBench()
	b.ID, b.Attune, b.GitSHA, b.Git.Dirty = "20261115-093000-bench-3f9a1c", "0.1.0", "0123456789abcdef", true
	b.Command = "attune bench stage2 stage3c --peer torch-cudnn,torch-math"
	b.Requested, b.Ended = []string{"1x8x512x64", "2x8x512x64", "1x32x16384x64"}, "interrupted"
	b.Checked = []run.CheckedShape{
		{Shape: "1x8x512x64", Coverage: oracle.Coverage{Rows: 4096, Of: 4096}}, {Shape: "2x8x512x64", Coverage: oracle.Coverage{Rows: 512, Of: 8192}},
	}
	goldenOf(t, "bench_recorded.txt", func(w io.Writer) error { return benchOf(b).Terminal(w, screen) })
	goldenOf(t, "bench_by_shape.txt", func(w io.Writer) error { return BenchByShape(b).Terminal(w, screen) })
	goldenOf(t, "bench_by_shape.md", func(w io.Writer) error { return writeMarkdown(w, BenchByShape(b)) })
}

// TestIncompleteRows prints records that lack figures, as another program may write them.
func TestIncompleteRows(t *testing.T) {
	b := someBench()
	b.Checked = []run.CheckedShape{{Shape: "1x8x512x64"}}
	for i := range b.Rows {
		b.Rows[i].TFLOPS, b.Rows[i].Shares = nil, nil
	}
	for name, write := range map[string]func(io.Writer) error{
		"table":    func(w io.Writer) error { return benchOf(b).Terminal(w, screen) },
		"by shape": func(w io.Writer) error { return BenchByShape(b).Terminal(w, screen) },
		"markdown": func(w io.Writer) error { return writeMarkdown(w, BenchByShape(b)) },
	} {
		var text bytes.Buffer
		if err := write(&text); err != nil || !strings.Contains(text.String(), "5.11") {
			t.Errorf("%s: %v\n%s", name, err, text.String())
		}
	}
	study := &RunStudy{Run: &run.Run{Performance: []run.Performance{{Shape: "1x8x512x64", ParentRatio: ptr(1.5)}}}}
	table := study.times()
	for column, want := range map[string]string{"parent us": "-", "speedup": "1.500x", "95 % interval": "-"} {
		i := slices.IndexFunc(table.Columns, func(c Column) bool { return c.Name.String() == column })
		if got := table.Rows[0][i].String(); got != want {
			t.Errorf("%s of a ratio without times is %q, want %q", column, got, want)
		}
	}
}

func TestSkippedLines(t *testing.T) {
	got := SkippedLines([]run.Skipped{
		{Name: "torch-flash, torch-math", Why: "there is no python3 in PATH", Do: "install one"},
		{Name: "torch-flash", Shape: "1x1x1x512", Why: "no kernel", Do: "another"},
		{Name: "torch-cudnn", Shape: "1x1x1x512", Why: "no kernel", Do: "another"},
		{Name: "torch-cudnn", Shape: "1x1x2x512", Why: "out of memory"},
		{Name: "torch-flash", Shape: "1x1x2x512", Why: "no kernel", Do: "another"},
		{Name: "torch-cudnn", Shape: "1x1x2x512", Why: "no kernel", Do: "another"},
		{Name: "fa3-fp8", Why: "no kernel", Do: "another"},
	})
	want := []string{
		"torch-flash, torch-math skipped: there is no python3 in PATH; to include it: install one",
		"torch-flash, torch-cudnn on 1x1x1x512, 1x1x2x512 skipped: no kernel; to include it: another",
		"torch-cudnn on 1x1x2x512 skipped: out of memory",
		"fa3-fp8 skipped: no kernel; to include it: another",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
