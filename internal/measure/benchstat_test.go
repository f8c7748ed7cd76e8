package measure

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// benchstatRow is one or two series of the tests of golang.org/x/perf, and benchstat's output for
// them.
type benchstatRow struct {
	File, Name, Unit string
	Old, New         []float64 // as in the files
	OldMedian        string    `json:"old_median"` // such as 46.55n, 15.014µ, 2.001Gi or 1.718e-06
	OldInterval      string    `json:"old_interval"`
	NewMedian        string    `json:"new_median"`
	NewInterval      string    `json:"new_interval"`
	P                string
}

// benchstatUnits converts the samples of the files (ns, MB/s) to the units of benchstat's output.
var benchstatUnits = map[string]float64{"sec/op": 1e-9, "B/s": 1e6}

// benchstatPrefixes are the suffixes of the medians in benchstat's output.
var benchstatPrefixes = map[string]float64{"n": 1e-9, "µ": 1e-6, "m": 1e-3, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}

func TestAgreesWithBenchstat(t *testing.T) {
	text, err := os.ReadFile("testdata/benchstat.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Rows []benchstatRow }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, row := range file.Rows {
		where := row.File + " " + row.Name + " " + row.Unit
		old, other := scaled(row.Old, benchstatUnits[row.Unit]), scaled(row.New, benchstatUnits[row.Unit])
		checkSummary(t, where+" old", Summarize(old), row.OldMedian, row.OldInterval)
		if len(other) == 0 {
			continue
		}
		compared++
		checkSummary(t, where+" new", Summarize(other), row.NewMedian, row.NewInterval)
		if got := fmt.Sprintf("%.3f", PValue(old, other)); got != row.P {
			t.Errorf("%s: p=%s, want p=%s", where, got, row.P)
		}
		if a, b := PValue(old, other), CompareRecorded(old, other, 0.05).P; a != b {
			t.Errorf("%s: a comparison has p=%g; want %g", where, b, a)
		}
	}
	if len(file.Rows) != 104 || compared != 101 {
		t.Errorf("%d rows in the file, %d of two series", len(file.Rows), compared)
	}
}

// scaled converts samples to benchstat's unit, so that a median that ends in 5 is rounded in the
// same direction.
func scaled(samples []float64, unit float64) []float64 {
	all := make([]float64, len(samples))
	for i, x := range samples {
		all[i] = x * unit
	}
	return all
}

// checkSummary compares a summary with benchstat's output, to all digits.
func checkSummary(t *testing.T, where string, got Summary, median, interval string) {
	t.Helper()
	text := fmt.Sprint(got.P50) // as in benchstat's CSV
	for prefix, unit := range benchstatPrefixes {
		if number, ok := strings.CutSuffix(median, prefix); ok {
			_, digits, _ := strings.Cut(number, ".")
			text = fmt.Sprintf("%.*f%s", len(digits), got.P50/unit, prefix)
		}
	}
	if text != median {
		t.Errorf("%s: median %s, want %s", where, text, median)
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
	// The interval of 6 samples is their whole range: it misses the true median once in 32 times.
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

func TestPValueKeepsTheOrder(t *testing.T) {
	a, b := []float64{3, 1, 2}, []float64{6, 5, 4}
	PValue(a, b)
	if a[0] != 3 || b[0] != 6 {
		t.Errorf("the caller's samples were sorted: %v, %v", a, b)
	}
}
