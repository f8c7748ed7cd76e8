package run

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/gate"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/toolchain"
)

func ptr[T any](v T) *T { return &v }

// full is a record with every field, except for those that exclude others.
func full() *Run {
	place := oracle.Place{Batch: 1, Head: 2, Row: 3, Dim: 4}
	r := &Run{
		SchemaVersion: SchemaVersion,
		ID:            "20261115-031522-stage2-3f9a1c",
		Time:          time.Date(2026, 11, 15, 3, 15, 22, 250e6, time.UTC),
		Kernel:        "sdpa", Variant: "stage2", Stage: "stage2", Parent: "stage1", Change: "+USE_WMMA_PV=1",
		Hypothesis: "it is faster", Reproduces: "20261114-031522-stage2-3f9a1c",
		Device: "cuda", Arch: "sm_89", CodeHash: "c0de", Verdict: gate.Merge,
		MeasuredAs: &MeasuredAs{Run: "20261115-031521-stage6-0a1b2c", Variant: "stage6", Times: true},
		Failure:    "no answer", TimedOut: true,
		Headline: &Headline{Shape: "1x8x512x64", P50US: 12.5, ParentRatio: ptr(1.25)},
		Correctness: []Correctness{{
			Shape: "1x8x512x64", Seed: 1<<64 - 1, Inputs: "peaked", Pass: true,
			Errors: oracle.Errors{
				MaxErr: 0.001, MeanErr: 0.0001, Bad: 1, BadFraction: 0.25, Cosine: 0.5, NonFinite: 1,
				Worst: oracle.Worst{Place: place, Got: 1, Want: 2}, FirstNonFinite: &place,
			},
			LSE:    &oracle.LSEErrors{MaxErr: 0.1, MeanErr: 0.01, Worst: oracle.Worst{Place: place, Got: 3, Want: 4}, NonFinite: 1, FirstNonFinite: &place},
			Limits: gate.Limits{MaxErr: 0.06, MeanErr: 0.02, LSE: &gate.LSE{MaxErr: 0.2, MeanErr: 0.1}}, InputCost: &oracle.ErrorSize{Max: 0.3, Mean: 0.1},
			Findings: []finding.Finding{finding.New(finding.Unwritten, "2 bytes")}, Wrong: []string{"unwritten: 2 bytes"}, OutputSHA256: "00ff",
		}},
		Performance: []Performance{{
			Shape: "1x8x512x64", P50US: 12.5, P90US: 13, P99US: 14, StdUS: 0.5, TFLOPS: ptr(42.0), Samples: 100,
			ParentP50US: ptr(15.0), ParentRatio: ptr(1.25), RatioLow: ptr(1.2), RatioHigh: ptr(1.3), Benchmark: true,
		}},
		Speedup: &measure.Speedup{Ratio: 1.25, Low: 1.2, High: 1.3}, RequiredSpeedup: 1.15,
		Requested: Requested{
			Shapes: []string{"1x8x512x64"}, Seeds: []uint64{1<<64 - 1}, Samples: 100, Arch: "sm_89", Against: "stage1", Timing: "by graph",
			Sanitizer: "memcheck", Problems: 3, Simulation: &Simulation{Schedules: 2, Checks: true, Tensor: "exact"},
		},
		Build: &toolchain.Record{
			SchemaVersion: 1, Kernel: "sdpa", Variant: "stage2", Source: "sdpa.cu", Arch: "sm_89", Knobs: map[string]int{"TILE_M": 32},
			Flags: []string{"-O3"}, Compiler: "nvcc 13.0.88", Resources: toolchain.Resources{Registers: 74},
		},
		Loaded: &device.Attributes{Registers: 74, MaxThreads: 256}, Ran: "cubin",
		Facts:  &device.Facts{Kind: "cuda", Name: "NVIDIA L4", Arch: "sm_89", Multiprocessors: 58},
		GitSHA: "abc", Git: toolchain.Git{SHA: "abc", Branch: "main", Dirty: true}, Attune: "0.1.0",
	}
	r.SetGates(gate.Gates{
		Resources: gate.Check{Status: gate.Pass}, Correctness: gate.Check{Status: gate.Pass},
		Performance: gate.Check{Status: gate.Pass, Reasons: []string{"1.250x stage1"}}, Profile: gate.Unmeasured("no profile was taken"),
	})
	return r
}

func encode(t *testing.T, r *Run) []byte {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestDecode(t *testing.T) {
	want := full()
	got, err := Decode(encode(t, want))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
}

// Samples and log have files of their own.
func TestRecordHasNoSamplesAndNoLog(t *testing.T) {
	r := full()
	r.Log = "ptxas info"
	r.Samples = []Samples{{Shape: "S", Variant: device.Series{Seconds: []float64{1}}}}
	if diff := cmp.Diff(string(encode(t, full())), string(encode(t, r))); diff != "" {
		t.Error(diff)
	}
}

func TestSetGates(t *testing.T) {
	r := full()
	if diff := cmp.Diff(Gates{gate.Pass, gate.Pass, gate.Pass, gate.NotMeasured}, r.Gates); diff != "" {
		t.Error(diff)
	}
	want := Reasons{Performance: []string{"1.250x stage1"}, Profile: []string{"no profile was taken"}}
	if diff := cmp.Diff(want, r.Reasons); diff != "" {
		t.Error(diff)
	}
}

// Programs rely on these keys.
func TestKeys(t *testing.T) {
	var document map[string]any
	if err := json.Unmarshal(encode(t, full()), &document); err != nil {
		t.Fatal(err)
	}
	has := func(object any, keys ...string) {
		t.Helper()
		fields, ok := object.(map[string]any)
		if !ok {
			t.Fatalf("%v is not an object", object)
		}
		for _, key := range keys {
			if _, ok := fields[key]; !ok {
				t.Errorf("no key %q in %v", key, fields)
			}
		}
	}
	first := func(key string) any {
		t.Helper()
		list, ok := document[key].([]any)
		if !ok || len(list) != 1 {
			t.Fatalf("%s is %v", key, document[key])
		}
		return list[0]
	}
	has(document, "schema_version", "id", "variant", "device", "verdict", "gates", "correctness", "performance")
	has(document["gates"], "resources", "correctness", "performance", "profile")
	has(first("correctness"), "shape", "seed", "max_err", "mean_err", "bad_fraction", "cosine")
	has(first("performance"), "shape", "p50_us", "p90_us", "p99_us", "std_us", "parent_ratio")
}

// A run without a device has these keys too, and no figures.
func TestKeysOfARunWithoutMeasurements(t *testing.T) {
	r := &Run{SchemaVersion: 1, Device: "none", Verdict: gate.Unknown, Correctness: []Correctness{}, Performance: []Performance{}}
	text := string(encode(t, r))
	for _, want := range []string{`"correctness":[]`, `"performance":[]`, `"device":"none"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	for _, unwanted := range []string{"headline", "speedup", "loaded", "device_facts", "build", "failure", "timed_out"} {
		if strings.Contains(text, `"`+unwanted+`"`) {
			t.Errorf("%s is in %s", unwanted, text)
		}
	}
	timed := string(encode(t, &Run{Performance: []Performance{{Shape: "S", P50US: 1}}}))
	for _, unwanted := range []string{"parent_ratio", "parent_p50_us", "ratio_low", "ratio_high"} {
		if strings.Contains(timed, unwanted) {
			t.Errorf("%s is in %s", unwanted, timed)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	newer := full()
	newer.SchemaVersion = SchemaVersion + 1
	for _, test := range []struct{ text, want string }{
		{string(encode(t, newer)), "run 20261115-031522-stage2-3f9a1c was written by a newer attune (schema 2; this one reads up to 1)"},
		{"", "read a run: unexpected end of JSON input"},
		{"{", "read a run: unexpected end of JSON input"},
		{"[]", "read a run: json: cannot unmarshal array"},
		{`{"schema_version": 1} x`, "read a run: invalid character 'x'"},
		{`{"schema_version": 1, "correctness": 3}`, "read a run: json: cannot unmarshal number"},
		{`{"schema_version": 1, "time": "yesterday"}`, "read a run: parsing time"},
		{"{}", "read a run: it has no schema_version, so it is not a record of one"},
		{"null", "read a run: it has no schema_version, so it is not a record of one"},
		{`{"schema_version": 1, "id": "x", "performance": [{}, {"parent_ratio": 1, "ratio_low": 1, "ratio_high": 1}]}`, "run x is damaged: performance.1 "},
	} {
		r, err := Decode([]byte(test.text))
		if r != nil || err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("Decode(%.60s) = %v, %v; want %s", test.text, r, err, test.want)
		}
	}
}

// A reader ignores keys of later versions.
func TestDecodeIgnoresUnknownKeys(t *testing.T) {
	r, err := Decode([]byte(`{"schema_version": 1, "id": "x", "later": {"a": [1]}}`))
	if err != nil || r.ID != "x" {
		t.Errorf("%+v, %v", r, err)
	}
}

// A record that was read can be written, and reads the same.
func FuzzDecode(f *testing.F) {
	whole, err := json.Marshal(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"schema_version":1}`))
	f.Add([]byte(`{"schema_version":2}`))
	f.Add([]byte(`{"schema_version":1,"time":"2026-11-15T03:15:22.25+14:00","correctness":[{"seed":18446744073709551615}],"headline":{}}`))
	f.Add([]byte(`{"schema_version":1,"correctness":null,"performance":[{"parent_ratio":1e308}],"reasons":{"profile":[]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		first, err := Decode(text)
		if err != nil {
			return
		}
		written, err := json.Marshal(first)
		if err != nil {
			t.Fatalf("%v, from %s", err, text)
		}
		second, err := Decode(written)
		if err != nil {
			t.Fatalf("%v, from %s", err, written)
		}
		again, err := json.Marshal(second)
		if err != nil || string(again) != string(written) {
			t.Fatalf("%v\nwritten: %s\nagain:   %s", err, written, again)
		}
	})
}

// TestAllowedFindings checks that a finding of the audit in an earlier record is allowed if it is no
// reason against the run.
func TestAllowedFindings(t *testing.T) {
	const audit = `[{"kind":"module-memory","what":"counter","where":"k.cu:3 (ptx:9)","text":"writes counter","count":1},` +
		`{"kind":"clock","what":"%clock","where":"k.cu:65 in k.cu:26 (ptx:254)","text":"reads %clock","count":2}]`
	counter := "module-memory: writes counter at k.cu:3 (ptx:9)"
	clock := "clock: reads %clock at k.cu:65 in k.cu:26 (ptx:254) and 1 more"
	check := func(reasons string, want ...string) {
		t.Helper()
		r, err := Decode([]byte(`{"schema_version":1,"id":"a","audit":` + audit + `,"reasons":{"correctness":[` + reasons + `]}}`))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range r.AllowedFindings() {
			got = append(got, f.String())
		}
		if !slices.Equal(got, want) || len(r.Audit) != 2 {
			t.Errorf("reasons %s: got %q, want %q", reasons, got, want)
		}
	}
	check("", counter, clock)
	check(`"`+counter+`; remove it"`, clock)
}

// TestNotes checks that a note about one place is listed once.
func TestNotes(t *testing.T) {
	note := func(line, count int) finding.Finding {
		return finding.Finding{Kind: finding.BadBarrier, Severity: finding.Strict, Where: finding.Place{PTXLine: line}, Count: count, Detail: "text"}
	}
	r := &Run{Correctness: []Correctness{{}, {Notes: []finding.Finding{note(4, 2), note(7, 1)}}, {Notes: []finding.Finding{note(4, 3)}}}}
	want := []string{"bad-barrier at ptx:4 (2 times): text", "bad-barrier at ptx:7 (once): text"}
	if got := r.Notes(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCommandRepeatsARun(t *testing.T) {
	requested := Requested{Shapes: []string{"1x8x512x64", "2x3x33x64:causal"}, Seeds: []uint64{0, 1}, Samples: 100}
	r := &Run{Variant: "stage2", Requested: requested}
	check := func(want string) {
		t.Helper()
		if got := r.Command(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	const plain = "attune run stage2 --shapes 1x8x512x64,2x3x33x64:causal --seeds 0,1"
	check(plain + " --rounds 100")
	r.Requested.Samples, r.Requested.Arch, r.Requested.Against, r.Requested.Sanitizer = 0, "sm_80", "stage0", "memcheck"
	check(plain + " --arch sm_80 --against stage0 --sanitizer memcheck")

	r.Requested = requested
	r.Requested.Simulation = &Simulation{Schedules: 1, Checks: true, Tensor: ExactTensor}
	check(plain + " --device sim") // without --rounds: it measures no time
	r.Requested.Simulation = &Simulation{Schedules: 4, Tensor: "f32"}
	check(plain + " --device sim --schedules 4 --checks off --tensor f32")
	r.Requested.Simulation = &Simulation{Schedules: 1, Checks: true, Tensor: ExactTensor, Strict: true}
	check(plain + " --device sim --strict")
	automatic := &Simulation{Schedules: 2, Automatic: true, Checks: true, Tensor: ExactTensor}
	r.Requested.Simulation = automatic
	check(plain + " --device sim")
	if asked := (&Simulation{Schedules: 2}).Asked(); automatic.Asked() != 0 || asked != 2 {
		t.Errorf("asked for %d and %d schedules", automatic.Asked(), asked)
	}

	r.Requested = Requested{Shapes: []string{"1x8x512x64"}, Seeds: []uint64{0}, Profile: true}
	check("attune profile stage2 --shapes 1x8x512x64 --seeds 0")
}
