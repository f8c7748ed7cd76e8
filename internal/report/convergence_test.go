package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func convergences() map[string]*Convergence {
	nan := math.NaN()
	long := &Convergence{Title: "convolution on an A4000", Objective: "time", Unit: "ms", Reference: 0.93, ReferenceName: "best of the recording"}
	for i := range 200 {
		v := 1 + 3*math.Exp(-float64(i)/30)*(0.3+math.Abs(math.Sin(float64(i)*1.7))) + 0.4*math.Abs(math.Sin(float64(i)*2.1))
		if i%11 == 5 {
			v = nan
		}
		long.Values = append(long.Values, v)
	}
	many := *long
	many.Values, many.Reference = nil, 1e6
	for i := range 17956 {
		many.Values = append(many.Values, 1e6+float64(i*7919%17956))
	}
	return map[string]*Convergence{
		"long": long,
		"many": &many,
		"one":  {Title: "x", Objective: "simulated cost", Unit: "cycles", Values: []float64{123456789}, Reference: 123456789, ReferenceName: "default"},
		"none": {Title: "x", Objective: "time", Unit: "us", Values: []float64{nan, nan}, Reference: nan},
		"rate": {Title: "x", Objective: "GFLOP/s", Values: []float64{10, nan, 30, 20, 40}, Maximised: true, Reference: nan},
		"zero": {Title: "x", Objective: "score", Values: []float64{0, 0}, Reference: nan},
		"tiny": {Title: "x <&>", Objective: "time", Unit: "s", Values: []float64{3e-7, 2.9e-7, 2.95e-7}, Reference: 3e-7, ReferenceName: "default"},
		"long name": {
			Title:     "stage7b+HEAD_DIM=128+TILE_M=192+KV_STAGES=3+USE_Q_IN_SHARED=1+USE_OVERLAP=0+USE_SKIP_MASKED=1",
			Objective: "time", Unit: "us", Values: []float64{4, 5, 3.9}, Reference: 4, ReferenceName: "stage7b+HEAD_DIM=128+TILE_M=192+KV_STAGES=3",
		},
	}
}

func TestConvergenceSentence(t *testing.T) {
	t.Parallel()
	all := convergences()
	for name, want := range map[string]string{
		"one":  "The best simulated cost, 123456789 cycles, was found at evaluation 1 of 1; default: 123456789 cycles. New bests after the first: 0. Failed evaluations: 0.",
		"none": "None of the 2 evaluations has a result.",
		"rate": "The best GFLOP/s, 40, was found at evaluation 5 of 5. New bests after the first: 2. Failed evaluations: 1.",
	} {
		if got := all[name].Sentence(); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// box is the place of a text on the page.
type box struct {
	text                     string
	left, right, top, bottom float64
}

// labels are the texts of a plot, with a generous estimate of their width.
func labels(t *testing.T, svg []byte) (all []box) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "text" {
			continue
		}
		var text string
		if err := d.DecodeElement(&text, &start); err != nil {
			t.Fatal(err)
		}
		at := map[string]string{}
		for _, a := range start.Attr {
			at[a.Name.Local] = a.Value
		}
		x, _ := strconv.ParseFloat(at["x"], 64)
		y, _ := strconv.ParseFloat(at["y"], 64)
		width := 0.54 * convergeFont * float64(utf8.RuneCountInString(text))
		switch at["text-anchor"] {
		case "middle":
			x -= width / 2
		case "end":
			x -= width
		}
		all = append(all, box{text, x, x + width, y - 0.75*convergeFont, y + 0.2*convergeFont})
	}
}

// A plot is XML whose labels are on the page and do not overlap.
func TestConvergencePlot(t *testing.T) {
	t.Parallel()
	for name, c := range convergences() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if err := ConvergencePlot(&out, c); err != nil {
				t.Fatal(err)
			}
			if folder := os.Getenv("ATTUNE_PLOTS"); folder != "" {
				if err := os.WriteFile(fmt.Sprintf("%s/%s.svg", folder, name), out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if !strings.Contains(out.String(), escaped(c.Sentence())) || strings.Contains(out.String(), "NaN") {
				t.Errorf("the plot has no text alternative, or a NaN:\n%.600s", out.String())
			}
			if out.Len() > 400_000 {
				t.Errorf("the plot has %d bytes", out.Len())
			}
			boxes := labels(t, out.Bytes())
			for i, a := range boxes {
				if a.left < 0 || a.right > convergeWidth || a.top < 0 || a.bottom > convergeHeight {
					t.Errorf("%q is off the page: %+v", a.text, a)
				}
				for _, b := range boxes[:i] {
					if a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom {
						t.Errorf("%q overlaps %q", a.text, b.text)
					}
				}
			}
		})
	}
}
