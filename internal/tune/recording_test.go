package tune

import (
	"bytes"
	"compress/gzip"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"attune/internal/regular"
	"attune/internal/rule"
)

var inf = math.Inf(1)

// cacheText is a cache in the form that Kernel Tuner writes.
const cacheText = `{
"device_name": "a GPU", "kernel_name": "k", "problem_size": [64, 64], "tune_params_keys": ["x", "m"],
"tune_params": {"x": [16, 32], "m": ["a", "b"]}, "objective": "time",
"cache": {
"16,a": {"x": 16, "m": "a", "time": 2.5, "times": [2.0, 3.0], "compile_time": 100, "verification_time": 0, "benchmark_time": 50, "timestamp": "2026-01-01"},
"32,a": {"x": 32, "m": "a", "time": "RuntimeFailedConfig", "compile_time": 100},
"16,b": {"x": 16, "m": "b", "time": "CompilationFailedConfig"},
"32,b": {"x": 32, "m": "b", "time": 1.5, "times": [1.5]}`

func TestCache(t *testing.T) {
	r, err := ReadRecording([]byte(cacheText + "}}"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Kernel != "k" || r.Device != "a GPU" || len(r.Entries) != 4 || r.Truncated {
		t.Errorf("%+v", r)
	}
	e, ok := r.Find(Point{0, 0})
	if !ok || e.Value != 2.5 || e.Seconds() != 0.15 || len(e.Times) != 2 {
		t.Errorf("%+v", e)
	}
	if e, _ := r.Find(Point{1, 0}); e.Failure != FailedRuntime {
		t.Errorf("%+v", e)
	}
	if e, _ := r.Find(Point{0, 1}); e.Failure != FailedCompile {
		t.Errorf("%+v", e)
	}
	if _, ok := r.Find(Point{0, 2}); ok {
		t.Error("found what is not there")
	}
	checkRoundTrip(t, r)
}

// checkRoundTrip writes a recording in both formats and reads it again.
func checkRoundTrip(t *testing.T, r *Recording) {
	t.Helper()
	for _, write := range []func(*bytes.Buffer) error{
		func(b *bytes.Buffer) error { return r.WriteCache(b) }, func(b *bytes.Buffer) error { return r.WriteT4(b) },
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		again, err := ReadRecording(out.Bytes())
		if err != nil {
			t.Fatalf("%v:\n%s", err, out.String())
		}
		if len(again.Entries) != len(r.Entries) || again.Objective != r.Objective || again.Kernel != r.Kernel || again.Device != r.Device {
			t.Fatalf("%d entries of %q", len(again.Entries), again.Objective)
		}
		for i, want := range r.Entries {
			got := again.Entries[i]
			if !slices.Equal(again.Space.Values(got.Point), r.Space.Values(want.Point)) || got.Failure != want.Failure ||
				got.Value != want.Value || got.Compile != want.Compile || !slices.Equal(got.Times, want.Times) || got.Timestamp != want.Timestamp {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
	}
}

// A killed Kernel Tuner leaves a cache without its brackets, or with half a line.
func TestTruncatedCache(t *testing.T) {
	for text, want := range map[string]int{
		cacheText: 4, cacheText + ",\n": 4, cacheText + "}": 4, cacheText + `,"16,c": {"x": 16`: 4,
		cacheText[:strings.Index(cacheText, `"32,b"`)+3]: 3,
	} {
		r, err := ReadRecording([]byte(text))
		if err != nil || len(r.Entries) != want || !r.Truncated {
			t.Errorf("%v, want %d entries: ...%s", err, want, text[len(text)-20:])
		}
	}
}

func TestT4(t *testing.T) {
	const text = `{"results": [
		{"configuration": {"b": 2, "a": "t"}, "times": {"compilation_time": 5, "runtimes": [1, 3]}, "invalidity": "correct", "objectives": ["time"]},
		{"configuration": {"b": 1, "a": "s"}, "times": {"runtimes": [9]}, "invalidity": "runtime", "measurements": [{"name": "time", "value": 9}]},
		{"configuration": {"b": 1.5, "a": "t"}, "times": {}, "invalidity": "correct", "measurements": [{"name": "time", "value": 4}]}],
		"schema_version": "1.0.0"}`
	r, err := ReadRecording([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if r.Space.Knobs[0].Name != "b" || !slices.Equal(r.Space.Knobs[0].Values, []rule.Value{rule.Int(1), rule.Real(1.5), rule.Int(2)}) {
		t.Errorf("the values of numbers are not sorted: %v", r.Space.Knobs)
	}
	if e := r.Entries[0]; e.Value != 2 || e.Compile != 5 || e.Benchmark != 4 {
		t.Errorf("%+v", e)
	}
	if e := r.Entries[1]; e.Failure != FailedRuntime {
		t.Errorf("a failed result with runtimes counts: %+v", e)
	}
}

// Rates are maximised.
func TestObjectives(t *testing.T) {
	r, err := ReadRecording([]byte(`{"tune_params_keys": ["x"], "objective": "GFLOP/s", "cache": {"1": {"x": 1, "GFLOP/s": 5}, "2": {"x": 2, "GFLOP/s": 7}}}`))
	if err != nil {
		t.Fatal(err)
	}
	replay, err := NewReplay(r, nil)
	if err != nil || replay.Optimum != 7 || replay.Near != 1 || replay.Value(-7) != 7 {
		t.Errorf("%+v %v", replay, err)
	}
	checkRoundTrip(t, r)
}

// What Python writes and JSON does not have is a failed result, and so is 1e20.
func TestNonFiniteValues(t *testing.T) {
	r, err := ReadRecording([]byte(`{"kernel_name": "NaN \" Infinity", "tune_params_keys": ["x"],
		"cache": {"1": {"x": 1, "time": NaN}, "2": {"x": 2, "time": -Infinity}, "3": {"x": 3, "time": 1e20}, "4": {"x": 4, "time": null},
		"5": {"x": 5, "time": "InvalidConfig"}, "6": {"x": "NaN", "time": 1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range r.Entries {
		if (e.Failure == "") != (i == 5) {
			t.Errorf("%d: %+v", i, e)
		}
	}
	if r.Entries[4].Failure != FailedConstraints || r.Kernel != `NaN " Infinity` {
		t.Errorf("%+v", r)
	}
}

// A time or a rate of zero or below was not measured: it is a failed result, and a note says so.
func TestImpossibleValues(t *testing.T) {
	for objective, want := range map[string]int{"time": 2, "GFLOP/s": 2, "score": 0, "energy": 0} {
		text := strings.ReplaceAll(`{"tune_params_keys": ["x"], "objective": "OBJ", "cache": {
			"1": {"x": 1, "OBJ": 1.5}, "2": {"x": 2, "OBJ": 0}, "3": {"x": 3, "OBJ": -1.0}}}`, "OBJ", objective)
		r, err := ReadRecording([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		replay := mustReplay(t, r, nil)
		if r.Impossible != want || replay.Failing != want || len(replay.Notes()) != want/2 {
			t.Errorf("%s: %d, %d fail, %q", objective, r.Impossible, replay.Failing, replay.Notes())
		}
		if want > 0 && (replay.Optimum != 1.5 || replay.Notes()[0] != "a recorded "+objective+" of zero or below counts as failed; there are 2 such results") {
			t.Errorf("%v %q", replay.Optimum, replay.Notes())
		}
	}
	r, err := ReadRecording([]byte(`{"tune_params_keys": ["x"], "cache": {"1": {"x": 1, "time": 0}}}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Impossible = 1
	if notes := (&Replay{Recording: r}).Notes(); len(notes) != 1 || !strings.HasSuffix(notes[0], "there is 1 such result") {
		t.Errorf("%q", notes)
	}
	if _, err := NewReplay(r, nil); err == nil || !strings.HasSuffix(err.Error(), "a time of zero or below counts as failed") {
		t.Error(err)
	}
}

// Of two results of a variant the last one counts, and a note says how many do not.
func TestRepeatedResults(t *testing.T) {
	r, err := ReadRecording([]byte(`{"tune_params_keys": ["x"], "cache": {
		"1": {"x": 1, "time": 1}, "2": {"x": 2, "time": 2}, "1": {"x": 1, "time": 3}}}`))
	if err != nil {
		t.Fatal(err)
	}
	replay := mustReplay(t, r, nil)
	if want := "1 recorded result is of a variant that has a later one; the last one counts"; r.Repeated != 1 || replay.Optimum != 2 || replay.Notes()[0] != want {
		t.Errorf("%d %v %q", r.Repeated, replay.Optimum, replay.Notes())
	}
	r.Repeated = 20
	if want := "20 recorded results are of variants that have a later one; the last one counts"; replay.Notes()[0] != want {
		t.Errorf("%q", replay.Notes())
	}
}

// Times in quotes are times. Integers over 64 bits are values as long as they can be told apart.
func TestOddNumbers(t *testing.T) {
	r, err := ReadRecording([]byte(`{"tune_params_keys": ["x"], "tune_params": {"x": [18446744073709551616, 36893488147419103232]}, "cache": {
		"a": {"x": 18446744073709551616, "time": "3.5"}, "b": {"x": 36893488147419103232, "time": "Inf"}}}`))
	if err != nil || len(r.Entries) != 2 || r.Entries[0].Value != 3.5 || r.Entries[1].Failure != FailedRuntime {
		t.Errorf("%+v %v", r, err)
	}
}

func TestBrokenRecordings(t *testing.T) {
	long := `{"tune_params_keys": ["x"], "tune_params": {"x": [0` // more values than a knob may have
	var values strings.Builder
	for i := range maxValues {
		values.WriteString("," + rule.Int(int64(i+1)).String())
	}
	long += values.String()
	for text, want := range map[string]string{
		"":                     "not a JSON object",
		"[1]":                  "want { and got [",
		"{":                    "ends in the middle",
		`{"a": 1`:              "ends in the middle",
		`{"a" 1}`:              "broken JSON after byte",
		`{"a": 1,}`:            "broken JSON after byte",
		`{"a": 1}`:             "neither a Kernel Tuner cache",
		`{"cache": {}}`:        "tune_params_keys",
		`{"cache": {"a": 1`:    "ends in the middle",
		`{"cache": 5}`:         "want {",
		`{"cache": {"a" 1}}`:   "broken JSON",
		`{"cache": {"a": }}`:   "broken JSON",
		`{"cache": {"a": 1,}}`: "broken JSON",
		`{"tune_params_keys": ["x"], "cache": {}}`:                                                                                         "the file has no results",
		`{"tune_params_keys": ["x"], "cache": {"1": 5}}`:                                                                                   `the result of "1": json`,
		`{"tune_params_keys": ["x"], "cache": {"1": {}}}`:                                                                                  `it has no value of "x"`,
		`{"tune_params_keys": ["x"], "cache": {"1": {"x": []}}}`:                                                                           "x: [] is not a number",
		`{"tune_params_keys": ["x"], "cache": {"1": {"x": 1}}}`:                                                                            `it has no "time"`,
		`{"tune_params_keys": ["x"], "tune_params": 5, "cache": {}}`:                                                                       "tune_params: ",
		`{"tune_params_keys": ["x", "x"], "cache": {"1": {"x": 1, "time": 1}}}`:                                                            "declared twice",
		long + `]}, "cache": {"1": {"x": 1, "time": 1}}}`:                                                                                  "has more than 65535 values",
		long[:len(long)-6] + `]}, "cache": {"1": {"x": -1, "time": 1}}}`:                                                                   "has more than 65535 values",
		`{"tune_params_keys": ["x"], "cache": {"1": {"x": 18446744073709551616, "time": 1}, "2": {"x": 18446744073709551617, "time": 1}}}`: `the values 18446744073709551616 and 18446744073709551617 of "x" cannot be told apart`,
		`{"results": [{"configuration": {"a": 18446744073709551616}}, {"configuration": {"a": 18446744073709551617}}]}`:                    "cannot be told apart",
		`{"tune_params_keys": ["x"], "tune_params": {"x": [18446744073709551616, 18446744073709551617]}, "cache": {}}`:                     "cannot be told apart",
		`{"results": [{"invalidity": "correct"}]}`:                                                                                         "result 1 has no configuration",
		`{"results": 5}`:                               "results: ",
		`{"results": []}`:                              "the file has no results",
		`{"results": [{"configuration": 5}]}`:          "result 1: configuration",
		`{"results": [{"configuration": {"a": [1]}}]}`: "result 1: configuration",
		`{"results": [{"configuration": {"a": 1}, "invalidity": "correct"}, {"configuration": {}}]}`:                           `result 2: it has no value of "a"`,
		`{"results": [{"configuration": {"a": 1}, "times": {"runtimes": [1]}, "invalidity": "correct", "objectives": ["x"]}]}`: `no measurement "x"`,
	} {
		if _, err := ReadRecording([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

// Files that do not end, and files that are far too large, are not read.
func TestUnboundedFiles(t *testing.T) {
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large.json")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o644), os.WriteFile(large, nil, 0o644), os.Truncate(large, maxFile+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadRecording(pipe); !errors.Is(err, regular.ErrNotRegular) {
		t.Errorf("a pipe: %v", err)
	}
	if _, err := LoadSpace(large); !errors.As(err, new(*regular.SizeError)) {
		t.Errorf("a large file: %v", err)
	}
}

func TestLoadFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	zip := func(text string) []byte {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		_, err := z.Write([]byte(text))
		if err := errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	zipped := zip(cacheText + "}}")
	if r, err := LoadRecording(write("a.gz", zipped)); err != nil || len(r.Entries) != 4 {
		t.Error(err)
	}
	if s, err := LoadSpace(write("t1.gz", zip(string(t1Text([]Knob{ints("x", 1)}))))); err != nil || len(s.Knobs) != 1 {
		t.Error(err)
	}
	for path, want := range map[string]string{
		write("cut.gz", zipped[:40]):          "damaged gzip file",
		write("head.gz", zipped[:4]):          "damaged gzip file",
		write("text", []byte("text")):         "not a JSON object",
		filepath.Join(dir, "missing.json.gz"): "no such file",
	} {
		if _, err := LoadRecording(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := LoadSpace(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Error(err)
		}
	}
}

// Texts have no order of their own, and come behind numbers.
func TestOrderOfValues(t *testing.T) {
	r, err := ReadRecording([]byte(`{"tune_params_keys": ["x"], "cache": {
		"t": {"x": "t", "time": 1}, "2": {"x": 2, "time": 2}, "s": {"x": "s", "time": 3}, "1": {"x": 1, "time": 4}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := []rule.Value{rule.Int(1), rule.Int(2), rule.Text("t"), rule.Text("s")}; !slices.Equal(r.Space.Knobs[0].Values, want) {
		t.Errorf("%v, want %v", r.Space.Knobs[0].Values, want)
	}
	if e, _ := r.Find(Point{2}); e.Value != 1 {
		t.Errorf("%+v", e)
	}
}

func TestUnwritableRecording(t *testing.T) {
	r, err := ReadRecording([]byte(cacheText + "}}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Entries[0].Value = inf
	var out bytes.Buffer
	if r.WriteCache(&out) == nil || r.WriteT4(&out) == nil {
		t.Error("an infinite time is written")
	}
	r.ProblemSize = []byte("{")
	if r.WriteCache(&out) == nil {
		t.Error("a broken problem size is written")
	}
}

func FuzzReadRecording(f *testing.F) {
	f.Add([]byte(cacheText + "}}"))
	f.Add([]byte(`{"results": [{"configuration": {"a": 1}, "times": {"runtimes": [1]}, "invalidity": "correct"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ReadRecording(data)
		if err != nil {
			return
		}
		if replay, err := NewReplay(r, nil); err == nil {
			replay.RandomMedian()
		}
	})
}
