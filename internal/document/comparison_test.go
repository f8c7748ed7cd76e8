package document

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/plot"
	"attune/internal/run"
)

func someComparison() *run.Comparison {
	turns := measure.Interleaved{
		A: []float64{14.1e-6, 14.2e-6, 14.15e-6, 14.12e-6}, B: []float64{5.2e-6, 5.21e-6, 5.19e-6, 5.22e-6},
		Control: []float64{14.11e-6, 14.19e-6, 14.13e-6, 14.14e-6},
	}
	found := measure.Compare([]measure.Interleaved{turns})[0]
	return &run.Comparison{
		A: run.Compared{Variant: "stage2", Arch: "sm_90a", CodeHash: strings.Repeat("ab", 32)}, B: run.Compared{Variant: "stage3b+TILE_N=64", Arch: "sm_90a"},
		Verdict: found.Verdict, Facts: device.Facts{Kind: "cuda", Name: "NVIDIA H200", Arch: "sm_90", Driver: "13.0"}, L2: run.Cold,
		Shapes: []run.ComparedShape{{
			Shape: "1x8x512x64", Rounds: 4, Comparison: found, Samples: turns, ATimes: measure.Summarize(turns.A), BTimes: measure.Summarize(turns.B),
			ARelated: run.RelatedTimes{SingleUS: ptr(18.2), WithFlushUS: ptr(54.16), FlushUS: ptr(40.02)}, BRelated: run.RelatedTimes{SingleUS: ptr(9.1), WithFlushUS: ptr(45.2), FlushUS: ptr(40.0)},
			Conditions: someConditions(),
		}},
	}
}

func someConditions() run.Conditions {
	return run.Conditions{EmptyNodeUS: ptr(0.6), Monitored: &run.Monitored{
		ClockMHz: [2]int{1755, 1980}, MemoryClockMHz: [2]int{3201, 3201}, PowerWatts: 412.5, Celsius: 45,
		Rounds: 6, Throttled: 2, Excluded: 2, Reasons: []string{"power cap"},
	}}
}

// What the simulator did beside the GPU is among the conditions.
func TestComparisonIsSimulated(t *testing.T) {
	c := someComparison()
	c.A.Simulated = &run.Simulated{Instances: 1, Schedules: 4}
	c.B.Simulated = &run.Simulated{Refused: "tcgen05"}
	lines := ComparisonLines(c)
	for _, want := range []string{"stage2 simulated: on 1 shape under up to 4 schedules, 0 findings", "stage3b+TILE_N=64 simulated: no: the simulator cannot run tcgen05"} {
		if !slices.Contains(lines, want) {
			t.Errorf("no %q among %q", want, lines)
		}
	}
	c = someComparison()
	c.NoSim = true
	if lines := ComparisonLines(c); !slices.Contains(lines, "stage2 simulated: no: --no-sim") {
		t.Errorf("%q", lines)
	}
}

func TestComparison(t *testing.T) {
	c := someComparison()
	goldenOf(t, "comparison.txt", func(w io.Writer) error { return Comparison(c, "").Terminal(w, screen) })
	goldenOf(t, "comparison.md", func(w io.Writer) error {
		return writeMarkdown(w, Comparison(c, "attune compare stage2 stage3b+TILE_N=64"))
	})
	goldenOf(t, "comparison.bench", func(w io.Writer) error { return ComparisonBenchstat(w, c) })
}

// A comparison on sampled rows reports their number.
func TestComparisonOnSampledRows(t *testing.T) {
	c := someComparison()
	c.Shapes[0].Checked = &oracle.Coverage{Rows: 4094, Of: 524288}
	want := c.Shapes[0].Shape + ": checked: 4094 of 524288 rows"
	if lines := ComparisonLines(c); !slices.Contains(lines, want) {
		t.Errorf("no %q in %q", want, lines)
	}
	c.Shapes[0].Checked.Rows = 524288
	if lines := strings.Join(ComparisonLines(c), " "); strings.Contains(lines, "checked") {
		t.Errorf("all rows were checked: %s", lines)
	}
}

// A limit of launches that is not the default is reported.
func TestComparisonLaunches(t *testing.T) {
	for launches, want := range map[int]bool{0: false, 50: false, 10: true, 1000: true} {
		c := someComparison()
		c.Launches = launches
		if got := slices.Contains(ComparisonLines(c), fmt.Sprintf("graphs of at most %d launches", launches)); got != want {
			t.Errorf("%d launches are reported: %t; want %t", launches, got, want)
		}
	}
}

// Recorded runs have no control, and may have different numbers of samples.
func TestRecordedComparison(t *testing.T) {
	c := someComparison()
	c.Recorded, c.Shapes[0].Samples.Control = true, nil
	c.Shapes[0].Samples.B = c.Shapes[0].Samples.B[:3]
	goldenOf(t, "comparison_recorded.md", func(w io.Writer) error {
		return writeMarkdown(w, Comparison(c, "attune compare latest 30323b"))
	})
	var table bytes.Buffer
	if err := ComparisonCSV(&table, c); err != nil {
		t.Fatal(err)
	}
	want := &plot.Strips{Title: "stage2 and stage3b+TILE_N=64, NVIDIA H200", Unit: "us", Digits: 4, Groups: []plot.StripGroup{{
		Name: c.Shapes[0].Shape, Ratio: c.Shapes[0].Ratio, Series: []plot.StripSeries{
			{Name: "stage2", Kind: plot.Other, Samples: microseconds(c.Shapes[0].Samples.A)},
			{Name: "stage3b+TILE_N=64", Kind: plot.Own, Samples: microseconds(c.Shapes[0].Samples.B)},
		},
	}}}
	if diff := cmp.Diff(want, ComparisonPlot(c)); diff != "" {
		t.Errorf("the plot (-want +got):\n%s", diff)
	}
	rows, err := csv.NewReader(&table).ReadAll()
	if err != nil || len(rows) != 8 || rows[7][2] != "b" || rows[7][4] != "5.19e-06" {
		t.Errorf("%v, %q", err, rows)
	}
}

func TestComparisonT4(t *testing.T) {
	var text bytes.Buffer
	if err := ComparisonT4(&text, someComparison()); err != nil {
		t.Fatal(err)
	}
	var document struct {
		Results []struct {
			Configuration map[string]string
			Times         struct{ Runtimes []float64 }
			Measurements  []struct {
				Value float64
				Unit  string
			}
		}
	}
	if err := json.Unmarshal(text.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	second := document.Results[1]
	if len(document.Results) != 2 || second.Configuration["variant"] != "stage3b+TILE_N=64" || len(second.Times.Runtimes) != 4 ||
		second.Measurements[0].Unit != "ms" || second.Measurements[0].Value < 0.0052 || second.Measurements[0].Value > 0.00522 {
		t.Errorf("%s", text.String())
	}
}

func goldenOf(t *testing.T, name string, write func(io.Writer) error) {
	t.Helper()
	var text bytes.Buffer
	if err := write(&text); err != nil {
		t.Fatal(err)
	}
	golden(t, name, text.Bytes())
}
