package run

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/measure"
)

// The zero value is warm: in a request without a choice, and in old records.
func TestL2(t *testing.T) {
	for text, want := range map[string]L2{`{"l2":"cold"}`: Cold, `{"l2":"warm"}`: Warm, `{"l2":""}`: Warm, `{}`: Warm} {
		var requested Requested
		if err := json.Unmarshal([]byte(text), &requested); err != nil || requested.L2 != want {
			t.Errorf("%s: %s, %v", text, requested.L2, err)
		}
	}
	if text, err := json.Marshal(Comparison{}); err != nil || !strings.Contains(string(text), `"l2":"warm"`) {
		t.Errorf("a comparison without a choice of L2: %s, %v", text, err)
	}
	for _, text := range []string{"hot", "Warm"} {
		var l2 L2
		if err := l2.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "L2 is warm or cold, not") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if !strings.HasSuffix(L2("").Timing(), "inputs warm in L2") {
		t.Error("an empty L2 is not warm")
	}
}

func TestCompareRecordedNeedsOneL2(t *testing.T) {
	samples := []Samples{{Shape: "S", Variant: device.Series{Seconds: []float64{1, 1, 1, 9}, Readings: make([]device.Reading, 4)}}}
	samples[0].Variant.Readings[3].Throttled = []string{"power cap"}
	old, cold := &Run{ID: "old", Samples: samples}, &Run{ID: "new", Samples: samples, Requested: Requested{L2: Cold}}
	if _, err := CompareRecorded(old, cold, 0.05, nil); err == nil || !strings.Contains(err.Error(), "run old was timed with L2 warm and run new with L2 cold") {
		t.Errorf("got %v", err)
	}
	c, err := CompareRecorded(old, old, 0.05, nil)
	if err != nil || c.L2 != Warm || c.Shapes[0].Rounds != 3 || c.Shapes[0].Monitored.Throttled != 2 || c.Shapes[0].P != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestCompareRecordedOnSomeShapes(t *testing.T) {
	series := device.Series{Seconds: []float64{1, 1, 1, 1}}
	r := &Run{ID: "old", Samples: []Samples{{Shape: "S", Variant: series}, {Shape: "T", Variant: series}}}
	for _, test := range []struct{ shapes, want []string }{
		{nil, []string{"S", "T"}},
		{[]string{"T", "U"}, []string{"T"}},
	} {
		c, err := CompareRecorded(r, r, 0.05, test.shapes)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range c.Shapes {
			got = append(got, s.Shape)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("shapes %q: got %q", test.shapes, got)
		}
	}
	if _, err := CompareRecorded(r, r, 0.05, []string{"U"}); err == nil || !strings.Contains(err.Error(), "were not both timed on any of the shapes U") {
		t.Errorf("got %v", err)
	}
}

func TestNewPerformance(t *testing.T) {
	series := func(us float64, n int) device.Series {
		return device.Series{Seconds: slices.Repeat([]float64{us * 1e-6}, n), Single: []float64{15e-6}, Copies: 4}
	}
	parent := series(20, 8)
	p := NewPerformance(1e9, 0, Samples{Shape: "1x8x512x64", Variant: series(10, 8), Parent: &parent})
	near := func(got *float64, want float64) bool { return got != nil && math.Abs(*got-want) < 1e-9 }
	if p.Samples != 8 || p.Copies != 4 || !near(&p.P50US, 10) || !near(p.P50LowUS, 9.9) || !near(p.P50HighUS, 10.1) || !near(p.TFLOPS, 100) || !near(p.SingleUS, 15) {
		t.Errorf("%+v", p)
	}
	if !near(p.ParentP50US, 20) || !near(p.ParentRatio, 2) || !near(p.RatioLow, 2) || !near(p.RatioHigh, 2) {
		t.Errorf("the parent: %+v", p)
	}
	if h := p.Headline(); h.Shape != "1x8x512x64" || h.P50US != p.P50US || !near(h.ParentRatio, 2) {
		t.Errorf("the headline: %+v", h)
	}
	if known := NewPerformance(0, 2e6, Samples{Shape: "S", Variant: series(10, 1)}); known.TFLOPS != nil || !near(known.GBPerS, 200) {
		t.Errorf("work of bytes only: %+v", known)
	}
	if alone := NewPerformance(1e9, 0, Samples{Shape: "S", Variant: series(10, 1)}); alone.ParentRatio != nil || alone.P50LowUS != nil {
		t.Errorf("without a parent and with one sample: %+v", alone)
	}
}

func TestFileName(t *testing.T) {
	for _, c := range [][3]string{
		{"stage2+TILE_N=32", "1x8x512x64:causal", "stage2-TILE_N-32-1x8x512x64-causal"},
		{"rmsnorm", "rows=4096,n=4096", "rmsnorm-rows-4096-n-4096"},
	} {
		if got := FileName(c[0], c[1]); got != c[2] {
			t.Errorf("got %s; want %s", got, c[2])
		}
	}
	long := strings.Repeat("stage7b+TILE_N=256", 10)
	a, b := FileName(long, "rows=1"), FileName(long, "rows=2")
	if len(a) != 160 || len(b) != 160 || a == b {
		t.Errorf("long names become %s and %s", a, b)
	}
}

func TestOverallIsTheGeometricMean(t *testing.T) {
	b := Bench{Best: []BestRow{
		{Speedup: measure.Speedup{Ratio: 1, Low: 0.5, High: 2}}, {Speedup: measure.Speedup{Ratio: 4, Low: 2, High: 8}},
	}}
	if got := b.Overall(); math.Abs(got.Ratio-2) > 1e-12 || math.Abs(got.Low-1) > 1e-12 || math.Abs(got.High-4) > 1e-12 {
		t.Errorf("%+v", got)
	}
}
