package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
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

func figuresOf(name string, values []float64) map[string]figure {
	strips := &Strips{Title: name, Unit: "us"}
	ladder := &Ladder{Title: name, Unit: "us"}
	lines := &Lines{Title: name, X: "sequence length", Y: "throughput", Unit: "TFLOP/s"}
	roofline := &Roofline{Title: name, Memory: Ceiling{name, "measured: a copy", 4.22e12}, Compute: []Ceiling{{"FP16", name, 784e12}, {"FP8", "measured", 1468e12}}}
	errs := &Errors{Title: name}
	heat := &HeatMap{Title: name, Value: "the median cost over the best"}
	for i, v := range values {
		label := fmt.Sprintf("%s %d", name, i)
		strips.Groups = append(strips.Groups, StripGroup{name, []StripSeries{{label, Own, values}, {label, Other, values[:1]}, {label, Peer, nil}, {label, Control, values}}})
		ladder.Steps = append(ladder.Steps, Step{label, v, v * 0.99, v * 1.01, Outcome(i % 3)})
		series := LineSeries{Name: label, Peer: i%2 == 1}
		for j, y := range values {
			series.Points = append(series.Points, LinePoint{math.Abs(values[(i+j)%len(values)]) + 512*float64(j), y})
		}
		lines.Series = append(lines.Series, series)
		roofline.Points = append(roofline.Points, RooflinePoint{label, math.Abs(v), 1e12 * v})
		errs.Rows = append(errs.Rows, ErrorRow{label, values})
		row := HeatRow{Name: label}
		for j, cell := range values {
			row.Cells = append(row.Cells, HeatCell{fmt.Sprintf("%s %d", name, j), cell})
		}
		heat.Rows = append(heat.Rows, row)
	}
	reference := math.NaN()
	if len(values) > 0 {
		reference = values[0]
	}
	return map[string]figure{
		"strips": strips, "ladder": ladder, "lines": lines, "roofline": roofline, "errors": errs, "heat": heat,
		"convergence": &Convergence{name, "time", "us", false, values, reference, name},
		"maximised":   &Convergence{name, name, "", true, values, math.NaN(), ""},
		"bare":        &Roofline{Title: name, Points: roofline.Points},
	}
}

// placed is a text of a plot and its room.
type placed struct {
	text string
	size float64
	room box
}

// read parses a plot: its texts and its size. Every coordinate must be a finite number.
func read(svg []byte) (texts []placed, width, height float64, err error) {
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	var current *placed
	var x, y float64
	var at anchor
	bold := false
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts, width, height, nil
		}
		if err != nil {
			return nil, 0, 0, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			values := map[string]string{}
			for _, a := range t.Attr {
				values[a.Name.Local] = a.Value
				if strings.Contains(a.Value, "NaN") && a.Name.Local != "class" || strings.Contains(a.Value, "Inf") {
					return nil, 0, 0, fmt.Errorf("<%s %s=%q>", t.Name.Local, a.Name.Local, a.Value)
				}
			}
			switch t.Name.Local {
			case "svg":
				if _, err := fmt.Sscanf(values["viewBox"], "0 0 %g %g", &width, &height); err != nil {
					return nil, 0, 0, err
				}
			case "text":
				x, _ = strconv.ParseFloat(values["x"], 64)
				y, _ = strconv.ParseFloat(values["y"], 64)
				current = &placed{size: fontSize}
				if s, ok := values["font-size"]; ok {
					current.size, _ = strconv.ParseFloat(s, 64)
				}
				at, bold = anchor(values["text-anchor"]), strings.HasSuffix(values["class"], " b")
			}
		case xml.CharData:
			if current != nil {
				current.text += string(t)
			}
		case xml.EndElement:
			if t.Name.Local == "text" {
				current.room = boxOf(x, y, at, current.size, bold, current.text)
				texts, current = append(texts, *current), nil
			}
		}
	}
}

// faults are the texts of a plot that overlap, leave the page or are too small.
func faults(svg []byte) []string {
	texts, width, height, err := read(svg)
	if err != nil {
		return []string{err.Error()}
	}
	var all []string
	for i, t := range texts {
		if t.room.left < -0.5 || t.room.right > width+0.5 || t.room.top < 0 || t.room.bottom > height {
			all = append(all, fmt.Sprintf("%q leaves the page: %v", t.text, t.room))
		}
		if t.size < smallSize {
			all = append(all, fmt.Sprintf("%q has %g units", t.text, t.size))
		}
		for _, other := range texts[i+1:] {
			if t.room.overlaps(other.room) {
				all = append(all, fmt.Sprintf("%q overlaps %q", t.text, other.text))
			}
		}
	}
	return all
}

func TestNoPlotHasOverlappingLabels(t *testing.T) {
	t.Parallel()
	for name, f := range gallery() {
		if all := faults(f.SVG()); len(all) > 0 {
			t.Errorf("%s: %d faults, the first: %s", name, len(all), all[0])
		}
	}
}

// The check of overlaps finds them.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	page := func(body string) []byte {
		return []byte(`<svg viewBox="0 0 400 100">` + body + `</svg>`)
	}
	for name, body := range map[string]string{
		"overlap":    `<text class="t" x="10" y="20">stage7</text><text class="t" x="40" y="24">stage6</text>`,
		"from right": `<text class="t" x="10" y="20">stage7</text><text class="t" x="90" y="20" text-anchor="end">stage6 stage6</text>`,
		"beyond":     `<text class="t" x="380" y="20">stage7</text>`,
		"above":      `<text class="t" x="10" y="5">stage7</text>`,
		"small":      `<text class="t" x="10" y="20" font-size="9">stage7</text>`,
		"nan":        `<circle cx="NaN"/>`,
		"broken":     `<text>`,
	} {
		if len(faults(page(body))) == 0 {
			t.Errorf("%s was not found", name)
		}
	}
	if all := faults(page(`<text class="t" x="10" y="20">stage7</text><text class="t" x="10" y="40">stage6</text>`)); len(all) > 0 {
		t.Error(all)
	}
}

// A plot has a text alternative and no foreign markup, and the same data gives the same bytes.
func TestPlotsAreAccessibleAndHarmless(t *testing.T) {
	t.Parallel()
	again := gallery()
	for name, f := range gallery() {
		svg := f.SVG()
		for _, want := range []string{`role="img"`, `aria-labelledby="plot-title plot-desc"`, `<title id="plot-title">`, `<desc id="plot-desc">`, "prefers-color-scheme:dark"} {
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
		"stage7 is 1.78x as fast as stage6 on 1x8x512x64.": &Strips{Groups: []StripGroup{{"1x8x512x64", []StripSeries{{"stage6", Other, []float64{17.8}}, {"stage7", Own, []float64{10, 10, 10.1}}}}}},
		"b is 3.00x as fast as a on s2, the largest difference of 2.": &Strips{Groups: []StripGroup{
			{"s1", []StripSeries{{"a", Other, []float64{2}}, {"b", Own, []float64{1}}}}, {"s2", []StripSeries{{"a", Other, []float64{3}}, {"b", Own, []float64{1}}}},
		}},
		"The median of a on s is 2.500 us.": &Strips{Unit: "us", Groups: []StripGroup{{"s", []StripSeries{{"a", Own, []float64{2, 3}}}}}},
		"stage2 is 8.00x as fast as stage0; the largest gain, 4.00x, is from stage1 to stage2.": &Ladder{Unit: "us", Steps: []Step{
			{Name: "stage0", Value: 8}, {Name: "stage1", Value: 4}, {Name: "slow", Value: 5}, {Name: "stage2", Value: 1},
		}},
		"a has the shortest time of the 2 steps, 1.000 us.":                                       &Ladder{Unit: "us", Steps: []Step{{Name: "a", Value: 1}, {Name: "b", Value: 2}}},
		"None of the 1 steps was timed.":                                                          &Ladder{Steps: []Step{{Name: "a", Value: math.NaN()}}},
		"ours reaches 1000 TFLOP/s at keys 4096, 1.25x the best peer, theirs.":                    &Lines{X: "keys", Unit: "TFLOP/s", Series: []LineSeries{{"ours", false, []LinePoint{{4096, 1000}, {8192, 1100}}}, {"theirs", true, []LinePoint{{4096, 800}}}}},
		"ours reaches 1100 TFLOP/s at keys 8192.":                                                 &Lines{X: "keys", Unit: "TFLOP/s", Series: []LineSeries{{"ours", false, []LinePoint{{4096, 1000}, {8192, 1100}}}}},
		"stage7 reaches 734.0 TFLOP/s, 50.0 % of the FP8 ceiling at 1000 FLOPs per byte.":         &Roofline{Memory: Ceiling{"DRAM", "", 4.22e12}, Compute: []Ceiling{{"FP8", "", 1468e12}}, Points: []RooflinePoint{{"stage7", 1000, 734e12}}},
		"All 3 outputs are within their limits; the largest error is 50.0 % of its limit, on s1.": &Errors{Rows: []ErrorRow{{"s1", []float64{0.5, 0.1}}, {"s2", []float64{0}}}},
		"2 of 3 outputs exceed their limits; the largest error is 150 % of its limit, on s1.":     &Errors{Rows: []ErrorRow{{"s1", []float64{1.5, 0.1, math.NaN()}}}},
		"TILE matters most: 64 has 2.00x the value of 128.":                                       &HeatMap{Rows: []HeatRow{{"TILE", []HeatCell{{"64", 2}, {"128", 1}, {"256", math.NaN()}}}, {"OTHER", []HeatCell{{"0", 1.5}, {"1", 1}}}}},
		"The best time, 2.000 us, was found at evaluation 3 of 4; default: 3.000 us. New bests after the first: 1. Failed evaluations: 1.": &Convergence{
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

// Texts and lines stand out from the page and from the cells in both themes.
func TestContrast(t *testing.T) {
	t.Parallel()
	for name, th := range map[string]theme{"light": light, "dark": dark} {
		for _, colour := range append([]string{th.ink, th.muted}, th.series[:]...) {
			if c := contrast(colour, th.page); c < 4.5 {
				t.Errorf("%s: %s on the page has %.2f", name, colour, c)
			}
		}
		for _, cell := range th.heat {
			if c := contrast(th.ink, cell); c < 4.5 {
				t.Errorf("%s: text on %s has %.2f", name, cell, c)
			}
		}
	}
}

// contrast is the ratio of the relative luminances of two colours, as WCAG defines it.
func contrast(a, b string) float64 {
	luminance := func(colour string) float64 {
		n, _ := strconv.ParseUint(colour[1:], 16, 32)
		linear := func(byte uint64) float64 {
			v := float64(byte&0xff) / 255
			if v <= 0.04045 {
				return v / 12.92
			}
			return math.Pow((v+0.055)/1.055, 2.4)
		}
		return 0.2126*linear(n>>16) + 0.7152*linear(n>>8) + 0.0722*linear(n)
	}
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
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
