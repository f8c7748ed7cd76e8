package run

import (
	"strings"
	"testing"

	"attune/internal/device"
)

func TestParseL2(t *testing.T) {
	for _, l2 := range []L2{Warm, Cold} {
		if got, err := ParseL2(string(l2)); got != l2 || err != nil {
			t.Errorf("%s: %s, %v", l2, got, err)
		}
	}
	for _, text := range []string{"", "hot", "Warm"} {
		if _, err := ParseL2(text); err == nil || !strings.Contains(err.Error(), "there are warm and cold") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if !strings.HasSuffix(L2("").Timing(), "inputs warm in L2") {
		t.Error("an empty L2 is not warm")
	}
}

func TestCompareRecordedWantsOneL2(t *testing.T) {
	samples := []Samples{{Shape: "S", Variant: device.Series{Seconds: []float64{1, 1, 1, 9}, Readings: make([]device.Reading, 4)}}}
	samples[0].Variant.Readings[3].Throttled = []string{"power cap"}
	old, cold := &Run{ID: "old", Samples: samples}, &Run{ID: "new", Samples: samples, Asked: Asked{L2: Cold}}
	if _, err := CompareRecorded(old, cold, 0.05); err == nil || !strings.Contains(err.Error(), "run old was timed with L2 warm and run new with L2 cold") {
		t.Errorf("got %v", err)
	}
	c, err := CompareRecorded(old, old, 0.05)
	if err != nil || c.L2 != Warm || c.Shapes[0].Rounds != 3 || c.Shapes[0].Watched.Throttled != 2 || c.Shapes[0].P != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}
