package plot_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"attune/internal/plot"
	"attune/internal/plot/plottest"
)

// figure is what every plot has.
type figure interface {
	Finding() string
	SVG() []byte
	Inline(id string) []byte
}

// Names and values that a plot must survive.
const (
	longName    = "stage7b+KV_STAGES=4+USE_PERSISTENT_CTA=1+EXP2_LINEAR_EIGHTHS=3+TILE_M=128+TILE_N=160+NUM_PRODUCER_WARPS=1"
	hostileName = "<script>alert(1)</script>&\"'\x00\x1b[31m\u202eabc\nname | `x` \U0001F600 " + "]]>"
)

// sets are samples of different kinds.
func sets() map[string][]float64 {
	many := make([]float64, 60)
	for i := range many {
		many[i] = 10 + math.Sin(float64(i*i))
	}
	return map[string][]float64{
		"none": {}, "one": {3.25}, "sixty": many, "equal": {7, 7, 7, 7}, "zero": {0, 0}, "nan": {math.NaN(), 2, math.Inf(1)},
		"huge": {1e300, -1e300, 5}, "tiny": {1e-300, 2e-300}, "wide": {1e-12, 1, 1e12}, "close": {1e6, 1e6 + 1e-3},
		"negative": {-3, -2, -2.5}, "largest": {math.MaxFloat64, 1},
	}
}

// gallery has each plot with each set of values and with usual, long and hostile names.
func gallery() map[string]figure {
	all := map[string]figure{}
	for setName, values := range sets() {
		for nameKind, name := range map[string]string{"usual": "stage7", "long": longName, "hostile": hostileName, "empty": ""} {
			for kind, f := range figuresOf(name, values) {
				all[kind+" "+setName+" "+nameKind] = f
			}
		}
	}
	return all
}

// seventeenThousand are the values of a long search.
func seventeenThousand() (values []float64) {
	for i := range 17956 {
		values = append(values, 1e6+float64(i*7919%17956))
	}
	return values
}

// A plot of many values stays small.
func TestPlotsOfManyValuesAreSmall(t *testing.T) {
	t.Parallel()
	values := seventeenThousand()
	for _, f := range []figure{
		&plot.Convergence{Objective: "time", Values: values, Reference: values[0]},
		&plot.Strips{Groups: []plot.StripGroup{{Series: []plot.StripSeries{{Samples: values}}}}},
		&plot.Errors{Rows: []plot.ErrorRow{{Shares: values}}},
	} {
		if size := len(f.SVG()); size > 400_000 {
			t.Errorf("%T has %d bytes", f, size)
		}
		if all := plottest.Faults(f.SVG()); len(all) > 0 {
			t.Errorf("%T: %s", f, all[0])
		}
	}
}

func figuresOf(name string, values []float64) map[string]figure {
	strips := &plot.Strips{Title: name, Unit: "us"}
	ladder := &plot.Ladder{Title: name, Unit: "us"}
	lines := &plot.Lines{Title: name, X: "sequence length", Y: "throughput", Unit: "TFLOP/s"}
	roofline := &plot.Roofline{Title: name, Memory: plot.Ceiling{name, "measured: a copy", 4.22e12}, Compute: []plot.Ceiling{
		{"FP16", name, 784e12},
		{"FP8", "measured", 1468e12},
	}}
	errs := &plot.Errors{Title: name}
	heat := &plot.HeatMap{Title: name, Value: "the median cost over the best"}
	for i, v := range values {
		label := fmt.Sprintf("%s %d", name, i)
		ladder.Steps = append(ladder.Steps, plot.Step{label, v, v * 0.99, v * 1.01, plot.Outcome(i % 4)})
		roofline.Points = append(roofline.Points, plot.RooflinePoint{label, math.Abs(v), 1e12 * v})
		if i >= 10 { // of the plots with all values for each
			continue
		}
		strips.Groups = append(strips.Groups, plot.StripGroup{Name: name, Series: []plot.StripSeries{{label, plot.Own, values}, {
			label, plot.Other,
			values[:1],
		}, {label, plot.Peer, nil}, {label, plot.Control, values}}})
		series := plot.LineSeries{Name: label, Peer: i%2 == 1}
		for j, y := range values {
			series.Points = append(series.Points, plot.LinePoint{math.Abs(values[(i+j)%len(values)]) + 512*float64(j), y})
		}
		lines.Series = append(lines.Series, series)
		errs.Rows = append(errs.Rows, plot.ErrorRow{label, values})
		row := plot.HeatRow{Name: label}
		for j, cell := range values {
			row.Cells = append(row.Cells, plot.HeatCell{fmt.Sprintf("%s %d", name, j), cell})
		}
		heat.Rows = append(heat.Rows, row)
	}
	reference := math.NaN()
	if len(values) > 0 {
		reference = values[0]
	}
	return map[string]figure{
		"strips": strips, "ladder": ladder, "lines": lines, "roofline": roofline, "errors": errs, "heat": heat,
		"convergence": &plot.Convergence{name, "time", "us", false, values, reference, name},
		"maximised":   &plot.Convergence{name, name, "", true, values, math.NaN(), ""},
		"bare":        &plot.Roofline{Title: name, Points: roofline.Points},
	}
}

// Names that differ in one place, wherever that is, differ in the plot. They may take several lines.
func TestNamesAreNotCut(t *testing.T) {
	t.Parallel()
	long := func(middle string) string {
		return "stage7b+TILE_M=64+TILE_N=256+KEY_GROUPS=" + middle + "+USE_OVERLAP=0+USE_SKIP_MASKED=1+EXP2_LINEAR_EIGHTHS=8"
	}
	a, b := long("1"), long("2")
	shape := "batch=8,heads=32,queries=4096,keys=16384,window=1024,head_dim=128"
	for name, f := range map[string]figure{
		"strips": &plot.Strips{Title: a, Unit: "us", Groups: []plot.StripGroup{{Name: shape, Series: []plot.StripSeries{{Name: a, Samples: []float64{1, 2}}, {Name: b, Samples: []float64{2, 3}}}}}},
		"ladder": &plot.Ladder{Title: shape, Unit: "us", Steps: []plot.Step{{Name: a, Value: 2}, {Name: b, Value: 1}}},
		"lines":  &plot.Lines{Title: shape, X: "n", Series: []plot.LineSeries{{Name: a, Points: []plot.LinePoint{{X: 1, Y: 1}}}, {Name: b, Points: []plot.LinePoint{{X: 1, Y: 2}}}}},
		"errors": &plot.Errors{Title: shape, Rows: []plot.ErrorRow{{Name: a, Shares: []float64{0.1}}, {Name: b, Shares: []float64{0.2}}}},
		"heat":   &plot.HeatMap{Title: shape, Rows: []plot.HeatRow{{Name: a, Cells: []plot.HeatCell{{Label: "1", Value: 1}}}, {Name: b, Cells: []plot.HeatCell{{Label: "1", Value: 1}}}}},
		"cells":  &plot.HeatMap{Title: shape, Rows: []plot.HeatRow{{Name: "POLICY", Cells: []plot.HeatCell{{Label: a, Value: 1}, {Label: b, Value: 2}}}}},
	} {
		svg := string(f.SVG())
		drawn := regexp.MustCompile(`<[^>]*>|\s`).ReplaceAllString(svg[strings.Index(svg, `class="bg"`):], "")
		for _, want := range []string{a, b, shape} {
			if !strings.Contains(drawn, want) {
				t.Errorf("%s does not have all of %s: %s", name, want, drawn)
			}
		}
		if all := plottest.Faults([]byte(svg)); len(all) > 0 {
			t.Errorf("%s: %s", name, all[0])
		}
	}
}

func TestNoPlotHasOverlappingLabels(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	for name, f := range gallery() {
		if all := plottest.Faults(f.SVG()); len(all) > 0 {
			t.Errorf("%s: %d faults, the first: %s", name, len(all), all[0])
		}
	}
}

// A plot has a text alternative and no foreign markup, and the same data gives the same bytes.
func TestPlotsAreAccessibleAndHarmless(t *testing.T) {
	t.Parallel()
	again := gallery()
	for name, f := range gallery() {
		svg := f.SVG()
		for _, want := range []string{
			`role="img"`, `aria-labelledby="plot-title plot-desc"`, `<title id="plot-title">`, `<desc id="plot-desc">`,
			"prefers-color-scheme:dark",
		} {
			if !bytes.Contains(svg, []byte(want)) {
				t.Errorf("%s lacks %s", name, want)
			}
		}
		for _, bad := range []string{"<script", "\x00", "\x1b", "\u202e", "http://", "https://", "url(", "style="} {
			if bytes.Contains(bytes.ReplaceAll(svg, []byte("http://www.w3.org/2000/svg"), nil), []byte(bad)) {
				t.Errorf("%s has %q", name, bad)
			}
		}
		if f.Finding() == "" || strings.Contains(f.Finding(), "NaN") || strings.Contains(f.Finding(), "Inf") {
			t.Errorf("%s: finding %q", name, f.Finding())
		}
		if !bytes.Equal(svg, again[name].SVG()) {
			t.Errorf("%s differs between two calls", name)
		}
		inline := f.Inline("run-3")
		if bytes.Contains(inline, []byte("<style")) || !bytes.Contains(inline, []byte(`aria-labelledby="run-3-title run-3-desc"`)) {
			t.Errorf("%s inline: %.200s", name, inline)
		}
	}
}

func TestFindings(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]figure{
		"stage7 is 1.780x as fast as stage6 on 1x8x512x64.": &plot.Strips{Groups: []plot.StripGroup{{
			Name:   "1x8x512x64",
			Series: []plot.StripSeries{{"stage6", plot.Other, []float64{17.8}}, {"stage7", plot.Own, []float64{10, 10, 10.1}}},
		}}},
		"b is 3.000x as fast as a on s2, the largest difference of 2 groups.": &plot.Strips{Groups: []plot.StripGroup{
			{Name: "s1", Series: []plot.StripSeries{{"a", plot.Other, []float64{2}}, {"b", plot.Own, []float64{1}}}}, {
				Name:   "s2",
				Series: []plot.StripSeries{{"a", plot.Other, []float64{3}}, {"b", plot.Own, []float64{1}}},
			},
		}},
		"b is 1.510x as fast as a on s.": &plot.Strips{Groups: []plot.StripGroup{{Name: "s", Ratio: 1.51, Series: []plot.StripSeries{{
			"a", plot.Other,
			[]float64{3},
		}, {"b", plot.Own, []float64{2}}}}}},
		"The median of a on s is 2.50 us.": &plot.Strips{Unit: "us", Groups: []plot.StripGroup{{Name: "s", Series: []plot.StripSeries{{"a", plot.Own, []float64{2, 3}}}}}},
		"stage2 is 8.00x as fast as stage0; the largest gain, 4.00x, is from stage1 to stage2.": &plot.Ladder{Unit: "us", Steps: []plot.Step{
			{Name: "stage0", Value: 8}, {Name: "stage1", Value: 4}, {Name: "slow", Value: 5}, {Name: "stage2", Value: 1},
		}},
		"a has the shortest time of the 2 steps, 1.00 us.": &plot.Ladder{Unit: "us", Steps: []plot.Step{{
			Name:  "a",
			Value: 1,
		}, {Name: "b", Value: 2}}},
		"None of the 1 steps was timed.": &plot.Ladder{Steps: []plot.Step{{Name: "a", Value: math.NaN()}}},
		"ours reaches 1000.00 TFLOP/s at keys 4096, 1.250x the best peer, theirs.": &plot.Lines{
			X: "keys", Unit: "TFLOP/s",
			Series: []plot.LineSeries{{"ours", false, []plot.LinePoint{{4096, 1000}, {8192, 1100}}}, {"theirs", true, []plot.LinePoint{{4096, 800}}}},
		},
		"second reaches 600.00 TFLOP/s at keys 4096, 0.750x the best peer, theirs.": &plot.Lines{
			X: "keys", Unit: "TFLOP/s", Subject: "second", Series: []plot.LineSeries{
				{Name: "ours", Points: []plot.LinePoint{{X: 4096, Y: 1000}}},
				{Name: "second", Points: []plot.LinePoint{{X: 4096, Y: 600}}},
				{Name: "theirs", Peer: true, Points: []plot.LinePoint{{X: 4096, Y: 800}}},
			},
		},
		"ours reaches 900.00 TFLOP/s at keys 512.": &plot.Lines{
			X: "keys", Unit: "TFLOP/s", Subject: "not in the plot", Series: []plot.LineSeries{{Name: "ours", Points: []plot.LinePoint{{X: 512, Y: 900}}}},
		},
		"ours reaches 1100.00 TFLOP/s at keys 8192.": &plot.Lines{
			X: "keys", Unit: "TFLOP/s",
			Series: []plot.LineSeries{{"ours", false, []plot.LinePoint{{4096, 1000}, {8192, 1100}}}},
		},
		"stage7 reaches 734.00 TFLOP/s, 50.0 % of the FP8 ceiling at 1000 FLOPs per byte.": &plot.Roofline{
			Memory:  plot.Ceiling{"DRAM", "", 4.22e12},
			Compute: []plot.Ceiling{{"FP8", "", 1468e12}}, Points: []plot.RooflinePoint{{"stage7", 1000, 734e12}},
		},
		"All 3 outputs are within their limits; the largest error is 50.0 % of its limit, on s1.": &plot.Errors{Rows: []plot.ErrorRow{{"s1", []float64{
			0.5,
			0.1,
		}}, {"s2", []float64{0}}}},
		"2 of 3 outputs exceed their limits; the largest error is 150 % of its limit, on s1.": &plot.Errors{Rows: []plot.ErrorRow{{"s1", []float64{
			1.5,
			0.1, math.NaN(),
		}}}},
		"TILE matters most: 64 has 2.00x the value of 128.": &plot.HeatMap{Rows: []plot.HeatRow{{
			"TILE",
			[]plot.HeatCell{{"64", 2}, {"128", 1}, {"256", math.NaN()}},
		}, {"OTHER", []plot.HeatCell{{"0", 1.5}, {"1", 1}}}}},
		"The best time, 2.000 us, was found at evaluation 3 of 4; default: 3.000 us. New bests after the first: 1. Failed evaluations: 1.": &plot.Convergence{
			Objective: "time", Unit: "us", Values: []float64{3, math.NaN(), 2, 4}, Reference: 3, ReferenceName: "default",
		},
	} {
		if got := f.Finding(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if !bytes.Contains(f.SVG(), []byte(want)) {
			t.Errorf("the text alternative lacks %q", want)
		}
	}
}

// With ATTUNE_GALLERY the plots are written there, to be looked at.
func TestGallery(t *testing.T) {
	folder := os.Getenv("ATTUNE_GALLERY")
	if folder == "" {
		t.Skip("ATTUNE_GALLERY names no folder")
	}
	for name, f := range gallery() {
		if err := os.WriteFile(filepath.Join(folder, strings.ReplaceAll(name, " ", "-")+".svg"), f.SVG(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
