package run

import (
	"encoding/json"
	"strings"
	"testing"

	"attune/internal/device"
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
	if _, err := CompareRecorded(old, cold, 0.05); err == nil || !strings.Contains(err.Error(), "run old was timed with L2 warm and run new with L2 cold") {
		t.Errorf("got %v", err)
	}
	c, err := CompareRecorded(old, old, 0.05)
	if err != nil || c.L2 != Warm || c.Shapes[0].Rounds != 3 || c.Shapes[0].Monitored.Throttled != 2 || c.Shapes[0].P != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}
