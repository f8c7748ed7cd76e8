package measure

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// benchstatRow is two series of golang.org/x/perf's own tests with what its benchstat prints of them.
type benchstatRow struct {
	File, Name  string
	Old, New    []float64 // nanoseconds
	OldMedian   string    `json:"old_median"` // such as 46.55n or 15.014µ
	OldInterval string    `json:"old_interval"`
	NewMedian   string    `json:"new_median"`
	NewInterval string    `json:"new_interval"`
	P           string
}

func TestFiguresAreThoseOfBenchstat(t *testing.T) {
	text, err := os.ReadFile("testdata/benchstat.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Rows []benchstatRow }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Rows) < 41 {
		t.Fatalf("%d rows in the file", len(file.Rows))
	}
	for _, row := range file.Rows {
		where := row.File + " " + row.Name
		checkSummary(t, where+" old", Summarize(seconds(row.Old)), row.OldMedian, row.OldInterval)
		checkSummary(t, where+" new", Summarize(seconds(row.New)), row.NewMedian, row.NewInterval)
		if got := fmt.Sprintf("%.3f", PValue(row.Old, row.New)); got != row.P {
			t.Errorf("%s: p=%s, want p=%s", where, got, row.P)
		}
		if a, b := PValue(row.Old, row.New), CompareRecorded(row.Old, row.New, 0.05).P; a != b {
			t.Errorf("%s: a comparison has p=%g; want %g", where, b, a)
		}
	}
}

// seconds are what benchstat reckons in: a median that ends in 5 is rounded to the same side.
func seconds(nanoseconds []float64) []float64 {
	all := make([]float64, len(nanoseconds))
	for i, x := range nanoseconds {
		all[i] = x * 1e-9
	}
	return all
}

// checkSummary holds a summary of seconds against figures as benchstat prints them, to all of their digits.
func checkSummary(t *testing.T, where string, got Summary, median, interval string) {
	t.Helper()
	unit, number := 1e-9, strings.TrimSuffix(median, "n")
	if micro, ok := strings.CutSuffix(median, "µ"); ok {
		unit, number = 1e-6, micro
	}
	_, digits, _ := strings.Cut(number, ".")
	if text := fmt.Sprintf("%.*f", len(digits), got.P50/unit); text != number {
		t.Errorf("%s: median %s, want %s", where, text, number)
	}
	spread := "∞"
	if !math.IsInf(got.Spread(), 1) {
		spread = fmt.Sprintf("%.0f%%", 100*got.Spread())
	}
	if spread != interval {
		t.Errorf("%s: ± %s, want ± %s", where, spread, interval)
	}
}

func TestMedianInterval(t *testing.T) {
	if got := Summarize([]float64{1, 2, 3, 4, 5}); got.Median != nil || !math.IsInf(got.Spread(), 1) {
		t.Errorf("five samples have the interval %+v", got.Median)
	}
	// Of six samples the interval is all of them: it leaves the median out once in 32.
	got := Summarize([]float64{6, 1, 5, 2, 4, 3})
	if got.Median == nil || *got.Median != (Interval{1, 6}) || math.Abs(got.Spread()-2.5/3.5) > 1e-12 {
		t.Errorf("six samples have the interval %+v", got.Median)
	}
	if got := Summarize(make([]float64, 8)); got.Spread() != 0 || got.CV != 0 {
		t.Errorf("eight zeros: spread %g, CV %g", got.Spread(), got.CV)
	}
	if text, err := json.Marshal(Summarize([]float64{1})); err != nil || strings.Contains(string(text), "interval") {
		t.Errorf("one sample as JSON: %s, %v", text, err)
	}
}

func TestPValueLeavesTheOrderAlone(t *testing.T) {
	a, b := []float64{3, 1, 2}, []float64{6, 5, 4}
	PValue(a, b)
	if a[0] != 3 || b[0] != 6 {
		t.Errorf("the caller's samples were sorted: %v, %v", a, b)
	}
}
