package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/gate"
	"attune/internal/ledger"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/peer"
	"attune/internal/run"
	"attune/internal/toolchain"
)

// blocksOf are samples around a time in us.
func blocksOf(us float64) [][]float64 {
	return [][]float64{{us * 1e-6, us * 1.01e-6}, {us * 1e-6, us * 0.99e-6}}
}

func resultRow(shape, name, variant, dtype string, us float64) run.BenchRow {
	tflops, mean := 1000/us, 1e-4
	return run.BenchRow{
		Shape: shape, Name: name, Variant: variant, DType: dtype, P50US: &us, TFLOPS: &tflops, MeanErr: &mean, Seconds: blocksOf(us),
		Peer: strings.HasPrefix(name, "torch-") || name == flash3,
	}
}

// resultsBench has two selections, one of them approximate, beside PyTorch and FlashAttention-3, on
// shapes in a sweep and others.
func resultsBench() *run.Bench {
	empty := 0.55
	at := time.Date(2026, 11, 16, 7, 26, 58, 0, time.UTC)
	b := &run.Bench{
		ID: "20261116-072658-bench-4eece4", Time: at, Attune: "0.1.0", Rounds: 4, Blocks: 2,
		Command:  "attune bench stage7 stage7-fast --peer all --peer-dtype fp16 --shapes 1x8x512x64 --seed 0 --rounds 4 --launches 10",
		Facts:    device.Facts{Name: "NVIDIA H200", Arch: "sm_90", Multiprocessors: 132, Driver: "580"},
		Peers:    &peer.Facts{Torch: "2.11.0", CUDA: "13.0", Python: "3.12"},
		Ceilings: &run.Ceilings{Device: "NVIDIA H200", BF16: 784, FP8: 1468, CopyTBps: 4.22, Measured: "driver 580"},
		Builds: []toolchain.Record{
			{Variant: "stage7a", CodeHash: "aaaa", Knobs: map[string]int{"EXP2_CUBIC_EIGHTHS": 1}},
			{Variant: "stage7b", CodeHash: "bbbb", Knobs: map[string]int{"EXP2_LINEAR_EIGHTHS": 0}},
			{Variant: "stage7b+EXP2_LINEAR_EIGHTHS=5", CodeHash: "cccc", Knobs: map[string]int{"EXP2_LINEAR_EIGHTHS": 5}},
		},
		Skipped: []run.Skipped{{Name: "torch-math", Shape: "8x32x2048x64", Why: "out of memory"}},
		Ended:   "interrupted", Requested: make([]string, 6),
		Conditions: run.Conditions{EmptyNodeUS: &empty, Monitored: &run.Monitored{
			ClockMHz: [2]int{1575, 1980}, PowerWatts: 648, Celsius: 66, Rounds: 8, Throttled: 2, Reasons: []string{"power cap"},
		}},
	}
	checked := func(shape string, rows, of int) {
		b.Checked = append(b.Checked, run.CheckedShape{Shape: shape, Coverage: oracle.Coverage{Rows: rows, Of: of}})
	}
	for _, shape := range []string{"1x8x512x64", "1x8x128x64:kv=512"} {
		checked(shape, 4096, 4096)
		b.Rows = append(b.Rows,
			resultRow(shape, "stage7", "stage7a", "e4m3", 4), resultRow(shape, "stage7-fast", "stage7a", "e4m3", 4),
			resultRow(shape, "torch-cudnn", "", "fp16", 8), resultRow(shape, "torch-flash", "", "fp16", 10), resultRow(shape, flash3, "", "e4m3", 12))
	}
	for _, shape := range []string{"8x32x2048x64", "1x32x16384x64", "8x32x2048x64:causal"} {
		checked(shape, 4086, 524288)
		b.Rows = append(b.Rows,
			resultRow(shape, "stage7", "stage7b", "e4m3", 2), resultRow(shape, "stage7-fast", "stage7b+EXP2_LINEAR_EIGHTHS=5", "e4m3", 1.5),
			resultRow(shape, "torch-cudnn", "", "fp16", 4), resultRow(shape, flash3, "", "e4m3", 3))
	}
	b.Rows[4].Wrong, b.Rows[4].P50US = "off", nil
	b.Rows[len(b.Rows)-3].Shares = &run.Shares{FP8: 0.5}
	return b
}

func someResults() results {
	knobs := map[string]int{"POLYNOMIAL_EIGHTHS": 5, "USE_KEYS_AS_ROWS": 0}
	speedup := &measure.Speedup{Ratio: 1.784, Low: 1.783, High: 1.785}
	performance := []run.Performance{{Shape: "1x8x512x64", P50US: 3.94, Benchmark: true}, {Shape: "2x8x512x64", P50US: 4.26, Benchmark: true}}
	first := &run.Run{
		ID: "20261116-072954-stage6-b163c4", Variant: "stage6", Arch: "sm_90a", CodeHash: "6666", Verdict: gate.Merge, Performance: performance,
		Hypothesis: "it is correct.", Build: &toolchain.Record{Compiler: "nvcc 13.0.88"}, Facts: &device.Facts{Name: "NVIDIA H200", Arch: "sm_90", Driver: "580"},
	}
	second := &run.Run{
		ID: "20261116-073028-stage7-b93d6b", Variant: "stage7", Parent: "stage6", Arch: "sm_90a", Verdict: gate.ValidNegative, Performance: performance,
		Speedup: speedup, RequiredSpeedup: 2, Hypothesis: "two are faster", Parts: []run.Part{
			{Variant: "stage7a", Run: "a", CodeHash: "aaaa", Shapes: []string{"1x8x512x64"}},
			{Variant: "stage7b", Run: "b", CodeHash: "bbbb", Shapes: []string{"2x8x512x64"}},
		},
	}
	third := &run.Run{
		ID: "20261116-073029-stage7b-c93d6b", Variant: "stage7b", Parent: "stage6", Change: "hopper/sdpa.cu+TILE_M=128", Verdict: gate.Merge,
		Performance: performance, Hypothesis: "one is faster", Build: &toolchain.Record{Knobs: knobs},
	}
	sanitized := func(variant, code string, tools ...string) (all []sanitized) {
		for _, tool := range tools {
			all = append(all, sanitized{
				Variant: variant, Tool: tool, Outcome: "clean", Date: "2026-11-15", Device: "NVIDIA H200", Driver: "580", CodeHash: code,
				Shapes: []string{"1x1x127x64"}, Problems: 8,
			})
		}
		return all
	}
	alone := resultsBench()
	alone.ID, alone.Command, alone.Peers, alone.Ended, alone.Skipped = "20261116-073150-bench-cecdd7", "attune bench stage7 --rest 100ms", nil, "", nil
	alone.Checked, alone.Rows = alone.Checked[2:3], alone.Rows[10:11]
	return results{
		Ladder: []*run.Run{first, second, third},
		Parts: map[string]*run.Run{
			"a": {CodeHash: "aaaa", Build: &toolchain.Record{Knobs: map[string]int{"POLYNOMIAL_EIGHTHS": 1, "USE_KEYS_AS_ROWS": 1}}},
			"b": {CodeHash: "bbbb", Build: &toolchain.Record{Knobs: knobs}},
		},
		Champions: []championRun{{
			Champion: ledger.Champion{Arch: "sm_90", Variant: "stage6", Run: "20261115-070623-stage6-92f753", CodeHash: "5555", Since: first.Time},
			Promoted: &run.Run{Verdict: gate.Merge, Build: &toolchain.Record{Resources: toolchain.Resources{Registers: 185}}},
		}},
		Benches:  []*run.Bench{alone, resultsBench()},
		Examples: []*run.Bench{exampleBench()},
		Tunings:  someTunings(),
		Sanitizers: append(append(sanitized("stage6", "6666", "memcheck", "racecheck"), sanitized("stage7b+EXP2_LINEAR_EIGHTHS=5", "cccc", "memcheck")...),
			sanitized("stage7b+TILE_M=64", "9999", "memcheck", "racecheck")...),
	}
}

// exampleBench is a bench of a declared kernel with a peer, and a row whose output was wrong.
func exampleBench() *run.Bench {
	us, gb, tflops := 17.01, 3945.0, 3.94
	slow := 22.98
	return &run.Bench{
		ID: "20261117-072510-bench-bfc98f", Facts: device.Facts{Name: "NVIDIA H200"}, Problem: &run.Problem{},
		Rows: []run.BenchRow{
			{Shape: "rows=4096,n=4096", Name: "rmsnorm", P50US: &us, GBPerS: &gb, TFLOPS: &tflops, Shares: &run.Shares{Copy: 0.935, BF16: 0.005}},
			{
				Shape: "rows=4096,n=4096", Name: "torch", Peer: true, P50US: &slow,
				Speedup: &measure.Speedup{Ratio: 1.351, Low: 1.349, High: 1.353},
			},
			{Shape: "m=4096", Name: "gemm", P50US: &us, GBPerS: &gb, TFLOPS: &tflops, Shares: &run.Shares{Copy: 0.12, BF16: 0.9}},
			{Shape: "rows=4096,n=4096", Name: "rmsnorm+CHUNKS=1", Wrong: "max_err 3 exceeds 0.1"},
		},
	}
}

// someTunings are a search that found a better variant, and one of an unknown space that did not.
func someTunings() []*run.Tuning {
	standard, variants := 6.376e-6, 6029.0
	identity := run.TuneIdentity{Shapes: []string{"1x8x512x64", "2x8x512x64"}}
	return []*run.Tuning{
		{
			ID: "20261117-073319-stage7b-dd7911", Stage: "stage7b", Objective: run.ObjectiveTime, Identity: identity, Faster: true,
			Evaluations: 200, Variants: &variants, Seconds: 123.4, Default: run.TunedVariant{Cost: &standard},
			Best: run.TunedVariant{
				Variant: "stage7b+TILE_M=64", Ratio: &measure.Speedup{Ratio: 1.57, Low: 1.563, High: 1.577},
				Shapes: []run.TuneShape{{Shape: "1x8x512x64", Ratio: &measure.Speedup{Ratio: 1.64}}, {Shape: "2x8x512x64", Ratio: &measure.Speedup{Ratio: 1.503}}},
			},
		},
		{
			ID: "20261117-074004-stage7a-a21ca2", Stage: "stage7a", Objective: run.ObjectiveTime, Identity: identity,
			Evaluations: 11, Seconds: 101, Default: run.TunedVariant{Cost: &standard}, Best: run.TunedVariant{Cost: &standard},
		},
	}
}

func TestResults(t *testing.T) {
	text := resultsMarkdown(someResults())
	golden(t, "results.md", text)
	for i, line := range strings.Split(string(text), "\n") {
		if n := utf8.RuneCountInString(line); n > documentWidth {
			t.Errorf("line %d has %d columns: %s", i+1, n, line)
		}
	}
	if empty := string(resultsMarkdown(results{})); strings.Contains(empty, "\n## ") {
		t.Errorf("no results have sections:\n%s", empty)
	}
}

func TestHeadline(t *testing.T) {
	golden(t, "headline.md", []byte(headlineMarkdown(someResults())))
	if text := headlineMarkdown(results{}); text != "" {
		t.Errorf("no results have %q", text)
	}
}

// A table that is too wide for the screen is split by implementation.
func TestGroupsThatFit(t *testing.T) {
	columns := [][]string{{"shape", "1x8x512x64"}}
	for range 12 {
		columns = append(columns, []string{strings.Repeat("x", 12), "1"})
	}
	total := 0
	for _, group := range groupsThatFit(columns) {
		var out bytes.Buffer
		header, rows := transpose(group)
		alignedTable(&out, header, rows)
		line, _, _ := strings.Cut(out.String(), "\n")
		if header[0] != "shape" || len(line) > documentWidth || !strings.Contains(line, "| shape      |") {
			t.Errorf("%d columns: %s", len(line), line)
		}
		total += len(header) - 1
	}
	if total != 12 {
		t.Errorf("%d of 12 columns", total)
	}
}

func TestWrapCommand(t *testing.T) {
	short := "attune bench stage7 --shapes a,b"
	if got := wrapCommand(short); got != short {
		t.Errorf("%q", got)
	}
	long := "attune bench stage7 --peer none --shapes " + strings.Repeat("32x32x512x64:causal,", 8) + "small --rounds 12 --launches 50 --seeds 0 --rest 100ms"
	got := wrapCommand(long)
	for line := range strings.Lines(got) {
		if len(strings.TrimSuffix(line, "\n")) > documentWidth {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	// A shell joins the lines again.
	joined := strings.Join(strings.Fields(strings.ReplaceAll(got, "\\\n", "")), " ")
	if diff := cmp.Diff(long, joined); diff != "" {
		t.Error(diff)
	}
	if word := strings.Repeat("x", 200); wrapCommand(word) != word {
		t.Error("a long word was broken")
	}
}
