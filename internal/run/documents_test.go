package run

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
)

func decompressed(t *testing.T, data []byte) string {
	t.Helper()
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if !reader.ModTime.IsZero() || reader.Name != "" {
		t.Errorf("the gzip header has time %v and name %q", reader.ModTime, reader.Name)
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRunDocuments(t *testing.T) {
	r := full()
	r.Log = "ptxas info\n"
	r.Samples = []Samples{{Shape: "S", Variant: device.Series{Seconds: []float64{1, 2}, LaunchesPerSample: 5}}}
	files, err := r.Documents()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"ptxas.log", "run.json", "samples.json.gz"}
	if diff := cmp.Diff(names, slices.Sorted(maps.Keys(files))); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if string(files["ptxas.log"]) != r.Log {
		t.Errorf("the log is %q", files["ptxas.log"])
	}
	read, err := Decode(files["run.json"])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full(), read); diff != "" {
		t.Errorf("run.json (-written +read):\n%s", diff)
	}
	samples, err := DecodeSamples([]byte(decompressed(t, files["samples.json.gz"])))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Samples, samples); diff != "" {
		t.Errorf("samples (-written +read):\n%s", diff)
	}
}

func TestBenchDocuments(t *testing.T) {
	b := &Bench{SchemaVersion: BenchSchemaVersion, ID: "x", Rows: []BenchRow{{Shape: "S", Name: "stage2", Seconds: [][]float64{{1, 2}}}}}
	files, err := b.Documents()
	if err != nil {
		t.Fatal(err)
	}
	if names := slices.Sorted(maps.Keys(files)); !slices.Equal(names, []string{"bench.json", "samples.json.gz"}) {
		t.Errorf("the files are %v", names)
	}
	read, err := DecodeBench(files["bench.json"])
	if err != nil || read.Rows[0].Name != "stage2" || read.Rows[0].Seconds != nil {
		t.Errorf("%+v, %v", read, err)
	}
	const want = `{"samples":[{"shape":"S","name":"stage2","seconds":[[1,2]]}],"schema_version":1}` + "\n"
	if got := decompressed(t, files["samples.json.gz"]); got != want {
		t.Errorf("samples are %s, want %s", got, want)
	}
}

func TestDocumentsAreDeterministic(t *testing.T) {
	r := full()
	r.Samples = []Samples{{Shape: "S", Variant: device.Series{Seconds: []float64{1, 2, 3}}}}
	first, err := r.Documents()
	if err != nil {
		t.Fatal(err)
	}
	second, err := r.Documents()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Error(diff)
	}
}

// JSON has no NaN, so a record with one is an error.
func TestDocumentsRefuseNaN(t *testing.T) {
	nan := device.Series{Seconds: []float64{math.NaN()}}
	for _, r := range []*Run{
		{Variant: "stage0", RequiredSpeedup: math.NaN()},
		{Variant: "stage0", Samples: []Samples{{Variant: nan}}},
	} {
		if _, err := r.Documents(); err == nil || !strings.Contains(err.Error(), "of stage0: json: unsupported value") {
			t.Errorf("got %v", err)
		}
	}
	share := math.NaN()
	for _, b := range []*Bench{
		{Rows: []BenchRow{{TFLOPS: &share}}},
		{Rows: []BenchRow{{Seconds: [][]float64{{share}}}}},
	} {
		if _, err := b.Documents(); err == nil || !strings.Contains(err.Error(), "of a bench: json: unsupported value") {
			t.Errorf("got %v", err)
		}
	}
}

func TestDecodeBenchRefusesTimesWithoutRates(t *testing.T) {
	_, err := DecodeBench([]byte(`{"schema_version": 1, "id": "x", "rows": [{"p50_us": 1}]}`))
	if _, err := DecodeBench([]byte(`{"schema_version": 1, "problem": {"kind": "declared"}, "rows": [{"p50_us": 1}]}`)); err != nil {
		t.Errorf("the work of a declared problem may be unknown: %v", err)
	}
	if want := "bench x is damaged: rows.0 of its bench.json has a p50_us without tflops"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
