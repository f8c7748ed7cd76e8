package document

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attune/internal/plot"
	"attune/internal/plot/plottest"
)

// No plot of a report on results/ has labels that overlap.
func TestNoPlotOfResultsHasOverlappingLabels(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("reads every record of results/")
	}
	plots := 0
	for name, files := range documents(t) {
		for file, data := range files {
			if !strings.HasSuffix(file, ".svg") {
				continue
			}
			plots++
			if faults := plottest.Faults(data); len(faults) > 0 {
				t.Errorf("%s of %s: %s", file, name, faults[0])
			}
		}
	}
	if plots < 50 {
		t.Errorf("only %d plots were checked", plots)
	}
}

// plain reads a file of results/ as plain JSON.
func plain(t *testing.T, path string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(results, path))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, ".gz") {
		reader, err := gzip.NewReader(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		var inner map[string]any
		if err := json.NewDecoder(reader).Decode(&inner); err != nil {
			t.Fatal(err)
		}
		return inner
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	return document
}

// list is a list of objects below a key.
func list(document map[string]any, key string) (all []map[string]any) {
	for _, element := range document[key].([]any) {
		all = append(all, element.(map[string]any))
	}
	return all
}

// samePlot fails unless a file of a report is a plot that the test has made of plain JSON.
func samePlot(t *testing.T, files map[string][]byte, name string, want Plot) {
	t.Helper()
	if !bytes.Equal(files[name], want.SVG()) {
		t.Errorf("%s is not the plot of the ledger's figures: %.900s\nwant %.900s", name, drawn(string(files[name])), drawn(string(want.SVG())))
	}
}

func filesOf(t *testing.T, d *Document) map[string][]byte {
	t.Helper()
	files, err := d.Files()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The plots of a run have the figures of its record and its samples.
func TestPlotsOfARun(t *testing.T) {
	t.Parallel()
	const id, variant, parent = "20261116-160726-stage6-186dea", "stage6", "stage3b"
	r := openResults(t)
	study, err := r.Run(t.Context(), id)
	if err != nil || len(study.LeftOut) > 0 {
		t.Fatal(err, study.LeftOut)
	}
	files := filesOf(t, study.Document())
	record := plain(t, "runs/"+id+"/run.json")

	errs := &plot.Errors{Title: "Errors of " + variant + " against float64", Error: "largest error"}
	for _, c := range list(record, "correctness") {
		shape := c["shape"].(string)
		if n := len(errs.Rows); n == 0 || errs.Rows[n-1].Name != shape {
			errs.Rows = append(errs.Rows, plot.ErrorRow{Name: shape})
		}
		row := &errs.Rows[len(errs.Rows)-1]
		row.Shares = append(row.Shares, c["max_err"].(float64)/c["limits"].(map[string]any)["max_err"].(float64))
	}
	samePlot(t, files, "report-errors.svg", errs)

	strips := &plot.Strips{Title: "Samples of " + variant, Unit: "us"}
	samples := map[string]map[string]any{}
	for _, s := range list(plain(t, "runs/"+id+"/samples.json.gz"), "samples") {
		samples[s["shape"].(string)] = s
	}
	us := func(s map[string]any, key string) (all []float64) {
		for _, v := range s[key].(map[string]any)["seconds"].([]any) {
			all = append(all, 1e6*v.(float64))
		}
		return all
	}
	for _, judged := range []bool{true, false} {
		for _, p := range list(record, "performance") {
			shape := p["shape"].(string)
			if p["judged"] == judged && len(strips.Groups) < 4 {
				strips.Groups = append(strips.Groups, plot.StripGroup{Name: shape, Ratio: p["parent_ratio"].(float64), Series: []plot.StripSeries{
					{Name: parent, Kind: plot.Other, Samples: us(samples[shape], "parent")}, {Name: variant, Kind: plot.Own, Samples: us(samples[shape], "variant")},
				}})
			}
		}
	}
	samePlot(t, files, "report-samples.svg", strips)
}

// The plot of the ladder has the times of all stages.
func TestPlotOfTheLadder(t *testing.T) {
	t.Parallel()
	files := filesOf(t, ladderOf(t, openResults(t)))
	const shape = "1x8x512x64"
	want := &plot.Ladder{Title: "Time on " + shape + " over the stages", Unit: "us"}
	for _, id := range []string{
		"20261116-160542-stage0-134a9f", "20261116-160557-stage1-050cdb", "20261116-160615-stage2-448d06", "20261116-160630-stage3a-05d2ee",
		"20261116-160644-stage3b-64f3ef", "20261116-160656-stage3c-bb03ce", "20261116-160706-stage4-b99783", "20261116-160715-stage5-65796c",
		"20261116-160726-stage6-186dea", "20261116-160736-stage7a-3af825", "20261116-160746-stage7b-af4382", "20261118-090125-stage7-2f1514",
		"20261116-160819-stage7-fast-d666e8",
	} {
		record := plain(t, "runs/"+id+"/run.json")
		step := plot.Step{Name: record["variant"].(string), Outcome: plot.Rejected}
		if record["verdict"] == "merge" {
			step.Outcome = plot.Accepted
		}
		if step.Name == "stage7b" { // half of its exponentials are approximate by its knobs
			step.Name += " ~"
		}
		for _, p := range list(record, "performance") {
			if p["shape"] == shape {
				step.Value, step.Low, step.High = p["p50_us"].(float64), p["p50_low_us"].(float64), p["p50_high_us"].(float64)
			}
		}
		want.Steps = append(want.Steps, step)
	}
	samePlot(t, files, "report-ladder.svg", want)
}

// The plots of a bench have its rates.
func TestPlotsOfABench(t *testing.T) {
	t.Parallel()
	const id = "20261116-221937-bench-6be430"
	benches, _ := recorded(t, openResults(t))
	files := filesOf(t, benches[id].Document())
	want := &plot.Lines{Title: "Throughput at head dim 64, NVIDIA H200", X: "sequence length", Y: "throughput", Unit: "TFLOP/s", Series: []plot.LineSeries{
		{Name: "stage7, e4m3"}, {Name: "stage7-fast, e4m3 ~"}, {Name: "fa3-fp8, e4m3", Peer: true},
	}}
	for _, row := range list(plain(t, "benches/"+id+"/bench.json"), "rows") {
		var batch, heads, seq, dim int
		var rest string
		n, _ := fmt.Sscanf(row["shape"].(string)+" .", "%dx%dx%dx%d %s", &batch, &heads, &seq, &dim, &rest)
		if n != 5 || dim != 64 { // a causal shape has more behind the head dim
			continue
		}
		at := map[string]int{"stage7": 0, "stage7-fast": 1, "fa3-fp8": 2}[row["name"].(string)]
		want.Series[at].Points = append(want.Series[at].Points, plot.LinePoint{X: float64(seq), Y: row["tflops"].(float64)})
	}
	samePlot(t, files, "report-throughput-0.svg", want)
}

// The plots of a search have its costs and the effects of its knobs.
func TestPlotsOfASearch(t *testing.T) {
	t.Parallel()
	const id = "20261117-075034-rmsnorm-64bd56"
	_, tunings := recorded(t, openResults(t))
	files := filesOf(t, tunings[id].Document())
	record := plain(t, "tunings/"+id+"/tuning.json")
	heat := &plot.HeatMap{Title: "Values of knobs", Value: "the median cost with it over the best of the search"}
	for _, effect := range list(record, "effects") {
		row := plot.HeatRow{Name: effect["knob"].(string)}
		for _, v := range list(effect, "values") {
			cell := plot.HeatCell{Label: fmt.Sprint(v["value"]), Value: math.NaN()}
			if median, ok := v["median_over_best"].(float64); ok {
				cell.Value = median
			}
			row.Cells = append(row.Cells, cell)
		}
		heat.Rows = append(heat.Rows, row)
	}
	samePlot(t, files, "report-knobs.svg", heat)

	journal, err := os.ReadFile(filepath.Join(results, "tunings", id, "journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	course := &plot.Convergence{Title: "rmsnorm on rows=4096,n=4096, NVIDIA H200", Objective: "time", Unit: "us", ReferenceName: "default"}
	for line := range bytes.Lines(journal) {
		var entry map[string]any
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatal(err)
		}
		detail, ok := entry["detail"].(map[string]any)
		if !ok || detail["same_code_as"] != nil {
			continue
		}
		value := math.NaN()
		if cost, ok := detail["cost"].(float64); ok {
			value = 1e6 * cost
		}
		course.Values = append(course.Values, value)
	}
	course.Reference = course.Values[0]
	samePlot(t, files, "report-convergence.svg", course)
}
