package document

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"attune/internal/catalog"
	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/gate"
	"attune/internal/ledger"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/ptx"
	"attune/internal/run"
	"attune/internal/terminal"
	"attune/internal/toolchain"
)

// screen is the one of the golden files.
var screen = terminal.Screen{Width: 100}

var update = flag.Bool("update", false, "write the present output into the golden files")

// golden compares a text with a file.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got); if the new one is right, run the test with -update:\n%s", file, diff)
	}
}

// runText and runMarkdown render a run.
func runText(w io.Writer, r *run.Run, s terminal.Screen) error {
	return (&RunStudy{Run: r}).Document().Terminal(w, s)
}

func runMarkdown(r *run.Run) []byte {
	return (&RunStudy{Run: r}).Document().WithoutFigures().Markdown()
}

// benchOf is the document of a bench.
func benchOf(b *run.Bench) *Document { return (&BenchStudy{Bench: b}).Document() }

// writeMarkdown writes a document without its plots.
func writeMarkdown(w io.Writer, d *Document) error {
	_, err := w.Write(d.WithoutFigures().Markdown())
	return err
}

func ptr[T any](v T) *T { return &v }

// newRun has the fields of every record.
func newRun(variant string) *run.Run {
	return &run.Run{
		SchemaVersion: 1, ID: "20261115-031522-" + variant + "-3f9a1c", Time: time.Date(2026, 11, 15, 3, 15, 22, 0, time.UTC),
		Kernel: "sdpa", Variant: variant, Stage: variant, Device: "none", Arch: "sm_89", Hypothesis: "it is faster.",
		Requested: run.Requested{Shapes: []string{"1x8x512x64", "2x3x33x64:causal"}, Seeds: []uint64{0, 1}, Samples: 100},
		Git:       toolchain.Git{SHA: "0123456789abcdef0123456789abcdef01234567", Branch: "main"},
		Attune:    "0.1.0+0123456789ab",
	}
}

func built(r *run.Run) *run.Run {
	r.CodeHash = "c0de00ff"
	r.Build = &toolchain.Record{
		Compiler: "nvcc 13.0.88", Flags: []string{"-std=c++17", "-arch=compute_89"},
		Resources: toolchain.Resources{Registers: 74, StaticSharedBytes: 40960, DynamicSharedBytes: 2560, Barriers: 1},
	}
	return r
}

func onDevice(r *run.Run) *run.Run {
	r.Device = "cuda"
	r.Facts = &device.Facts{Kind: "cuda", Name: "NVIDIA L4", UUID: "GPU-12-34", Arch: "sm_89", Multiprocessors: 58, Driver: "13.0"}
	return r
}

func decided(r *run.Run, verdict gate.Verdict, g gate.Gates) *run.Run {
	r.Verdict = verdict
	r.SetGates(g)
	return r
}

func output(shape string, seed uint64, pass bool) run.Correctness {
	return run.Correctness{
		Shape: shape, Seed: seed, Pass: pass,
		Errors: oracle.Errors{
			MaxErr: 0.00123456, MeanErr: 0.0000321, BadFraction: 0, Cosine: 0.99999995,
			Worst: oracle.Worst{Place: oracle.Place{Head: 3, Row: 17, Dim: 5}, Got: 0.5, Want: 0.501},
		},
		Limits: gate.Limits{MaxErr: 0.004, MeanErr: 0.0005},
	}
}

var (
	gatePassed = gate.Check{Status: gate.Pass}
	later      = gate.Unmeasured("an earlier gate failed")
	noProfile  = gate.Unmeasured("no profile was taken")
)

// passing is a variant that is correct and faster than its parent.
func passing() *run.Run {
	r := onDevice(built(newRun("stage2")))
	r.Parent, r.RequiredSpeedup = "stage1", 1.15
	for _, shape := range r.Requested.Shapes {
		for _, seed := range r.Requested.Seeds {
			r.Correctness = append(r.Correctness, output(shape, seed, true))
		}
	}
	r.Performance = []run.Performance{
		{
			Shape: "1x8x512x64", P50US: 12.3456, P90US: 13, P99US: 14.5, StdUS: 0.25, TFLOPS: ptr(43.5), Samples: 100,
			P50LowUS: ptr(12.3), P50HighUS: ptr(12.6), CV: 0.02, RelatedTimes: run.RelatedTimes{SingleUS: ptr(16.25)}, Conditions: someConditions(),
			ParentP50US: ptr(15.4), ParentRatio: ptr(1.2474), RatioLow: ptr(1.24), RatioHigh: ptr(1.2555), Benchmark: true,
		},
		{
			Shape: "2x3x33x64:causal", P50US: 3.2, P90US: 3.3, P99US: 3.4, StdUS: 0.01, TFLOPS: ptr(0.26), Samples: 100,
			ParentP50US: ptr(3.2), ParentRatio: ptr(1.0), RatioLow: ptr(0.99), RatioHigh: ptr(1.01),
		},
	}
	r.Headline = &run.Headline{Shape: "1x8x512x64", P50US: 12.3456, ParentRatio: ptr(1.2474)}
	r.Speedup = &measure.Speedup{Ratio: 1.2474, Low: 1.24, High: 1.2555}
	r.Requested.Timing = "device time by CUDA graph replay"
	r.Requested.Arch = "sm_89"
	return decided(r, gate.Merge, gate.Gates{
		Resources: gatePassed, Correctness: gatePassed, Profile: noProfile,
		Performance: gate.Performance(*r.Speedup, 1.15, "stage1"),
	})
}

// deviceless is a variant on a machine without a GPU, from a program without git information.
func deviceless() *run.Run {
	r := built(newRun("stage2"))
	r.Git = toolchain.Git{}
	none := gate.Unmeasured("no GPU")
	return decided(r, gate.Unknown, gate.Gates{
		Resources: gatePassed, Correctness: gate.Unmeasured("no GPU: NVIDIA's driver is not installed"), Performance: none, Profile: none,
	})
}

// refused is a variant that does not compile.
func refused() *run.Run {
	r := newRun("stage2")
	output := "sdpa.cu(20): error: identifier \"a\" | \"b\" is undefined\n    a | b;\n    ^\n\n1 error detected\n"
	r.Failure = "stage2 for sm_89 does not compile:\n" + output
	r.Git.Dirty = true
	return decided(r, gate.OverBudget, gate.Gates{
		Resources:   gate.Check{Status: gate.Fail, Reasons: []string{"it does not compile: sdpa.cu:20: identifier \"a\" | \"b\" is undefined", strings.TrimRight(output, "\n")}},
		Correctness: later, Performance: later, Profile: later,
	})
}

// incorrect is a variant with more errors than are printed. Its first output is all NaN.
func incorrect() *run.Run {
	r := onDevice(built(newRun("stage2")))
	r.Requested.Seeds = []uint64{0, 1, 2, 3, 4, 5, 6, 7}
	r.Requested.Sanitizer = "racecheck"
	var wrong []string
	for _, shape := range r.Requested.Shapes {
		for _, seed := range r.Requested.Seeds {
			row := output(shape, seed, false)
			row.MaxErr, row.BadFraction = 0.5, 0.25
			row.Wrong = []string{"max_err 0.5 exceeds 0.004"}
			r.Correctness = append(r.Correctness, row)
			wrong = append(wrong, fmt.Sprintf("%s seed %d: %s", shape, seed, row.Wrong[0]))
		}
	}
	first := &r.Correctness[0]
	first.Errors = oracle.Errors{Bad: 4096, BadFraction: 1, NonFinite: 4096, FirstNonFinite: &oracle.Place{}}
	first.Wrong = []string{"4096 elements are not finite, the first at batch 0 head 0 row 0 dim 0"}
	wrong[0] = "1x8x512x64 seed 0: " + first.Wrong[0]
	return decided(r, gate.Incorrect, gate.Gates{Resources: gatePassed, Correctness: gate.Correctness(wrong), Performance: later, Profile: later})
}

// hung is a variant that hangs on its second problem.
func hung() *run.Run {
	r := onDevice(built(newRun("stage2")))
	r.Correctness = []run.Correctness{output("1x8x512x64", 0, true)}
	r.Failure, r.TimedOut = "no result within 1m0s: the kernel hangs", true
	skipped := gate.Unmeasured("the correctness check exceeded its time limit")
	return decided(r, gate.Unknown, gate.Gates{
		Resources: gatePassed, Correctness: gate.Unmeasured("1x8x512x64 seed 1: " + r.Failure), Performance: skipped, Profile: skipped,
	})
}

// onSimulator makes a record one of the simulator, which has no architecture, clock and driver.
func onSimulator(r *run.Run, s run.Simulation) *run.Run {
	r.Device = "sim"
	r.Facts = &device.Facts{Kind: "sim", Name: "PTX simulator"}
	r.Requested.Seeds, r.Requested.Problems, r.Requested.Simulation = []uint64{0}, 6, &s
	return r
}

// racy is a variant with a race that the simulator found on all inputs.
func racy() *run.Run {
	r := onSimulator(built(newRun("stage2")), run.Simulation{Schedules: 2, Checks: true, Tensor: "exact"})
	race := finding.Finding{
		Kind: finding.Race, Severity: finding.Error, Count: 16384, Missing: finding.WarpSync,
		Variable: finding.Variable{Name: "scores", Space: finding.Shared, Bytes: 2048, Offset: 64, ElementBytes: 4},
		Where:    finding.Place{PTXLine: 152, Source: "mma.hpp:47, called from sdpa.cu:54", File: "mma.hpp", Line: 47, Callers: []ptx.Frame{{File: "sdpa.cu", Line: 54}}},
		Other:    &finding.Place{PTXLine: 92, Source: "sdpa.cu:47", File: "sdpa.cu", Line: 47},
		Detail: "warp 0 (all lanes) of block [0 0 0]: reads 4 bytes " +
			"at 0x400 of .shared, which thread 0 wrote; nothing orders the two (lanes of one warp need __syncwarp())",
	}
	for _, shape := range r.Requested.Shapes {
		for _, inputs := range []string{"normal", "outliers", "peaked"} {
			row := output(shape, 0, false)
			row.Inputs, row.Findings, row.Wrong = inputs, []finding.Finding{race}, []string{race.Text()}
			r.Correctness = append(r.Correctness, row)
		}
	}
	return decided(r, gate.Incorrect, gate.Gates{
		Resources: gatePassed, Correctness: gate.Correctness([]string{"1x8x512x64 seed 0 and 5 more: " + race.Text()}), Performance: later, Profile: later,
	})
}

// unsupported is a variant that the simulator cannot run.
func unsupported() *run.Run {
	r := onSimulator(built(newRun("stage7")), run.Simulation{Schedules: 1, Checks: true, Tensor: "exact"})
	cannot := gate.Unmeasured("this device cannot run the kernel")
	return decided(r, gate.Unknown, gate.Gates{
		Resources: gatePassed, Correctness: gate.Unmeasured("the simulator cannot run the PTX: PTX line 63: unsupported instruction wgmma.fence.sync.aligned"),
		Performance: cannot, Profile: cannot,
	})
}

// noted is a correct variant with strict findings of the simulator and an allowed one of the audit.
func noted() *run.Run {
	r := onSimulator(built(newRun("stage2")), run.Simulation{Schedules: 1, Checks: true, Tensor: "exact"})
	for _, shape := range r.Requested.Shapes {
		row := output(shape, 0, true)
		note := func(kind finding.Kind, line, ptxLine, count int, detail string) finding.Finding {
			at := finding.Place{PTXLine: ptxLine, Source: fmt.Sprintf("sdpa.cu:%d", line), File: "sdpa.cu", Line: line}
			return finding.Finding{Kind: kind, Severity: finding.Strict, Where: at, Count: count, Detail: detail}
		}
		row.Notes = []finding.Finding{
			note(finding.MissingFence, 54, 152, 4, "warp 0 (all lanes) of block [0 0 0]: no wgmma.fence before it"),
			note(finding.BadBarrier, 60, 170, 1, "thread 0 of block [0 0 0]: reads the bytes of a live mbarrier at address 0x400"),
		}
		r.Correctness = append(r.Correctness, row)
	}
	r.Audit = []finding.Finding{{
		Kind: finding.ModuleMemory, Severity: finding.Note, Variable: finding.Variable{Name: "tile_counter"},
		Where:  finding.Place{PTXLine: 327, Source: "kernel.cuh:119, called from sdpa.cu:34", File: "kernel.cuh", Line: 119, Callers: []ptx.Frame{{File: "sdpa.cu", Line: 34}}},
		Detail: "writes the variable tile_counter of the module", Count: 2,
	}}
	return decided(r, gate.Unknown, gate.Gates{Resources: gatePassed, Correctness: gatePassed, Performance: later, Profile: later})
}

var records = []struct {
	name   string
	record func() *run.Run
}{
	{"passing", passing},
	{"no-device", deviceless},
	{"refused", refused},
	{"incorrect", incorrect},
	{"hung", hung},
	{"racy", racy},
	{"unsupported", unsupported},
	{"noted", noted},
}

func TestText(t *testing.T) {
	for _, test := range records {
		var out bytes.Buffer
		if err := runText(&out, test.record(), screen); err != nil {
			t.Fatal(err)
		}
		golden(t, test.name+".txt", out.Bytes())
		noTrailingSpace(t, test.name, out.String())
	}
}

func TestMarkdown(t *testing.T) {
	for _, test := range records {
		text := runMarkdown(test.record())
		golden(t, test.name+".md", text)
		wholeTables(t, test.name, string(text))
	}
}

func TestJUnit(t *testing.T) {
	var runs []*run.Run
	for _, test := range records {
		runs = append(runs, test.record())
	}
	var out bytes.Buffer
	if err := JUnit(&out, runs, 0); err != nil {
		t.Fatal(err)
	}
	golden(t, "junit.xml", out.Bytes())
}

// A reader of JUnit files gets the reasons back, whatever characters they have.
func TestJUnitReadsBack(t *testing.T) {
	broken := refused()
	broken.Reasons.Resources = []string{"a < b && \"c\"", "control \x01 and \xff\nlines"}
	var out bytes.Buffer
	if err := JUnit(&out, []*run.Run{passing(), broken}, 0); err != nil {
		t.Fatal(err)
	}
	var suite struct {
		XMLName  xml.Name `xml:"testsuite"`
		Name     string   `xml:"name,attr"`
		Tests    int      `xml:"tests,attr"`
		Failures int      `xml:"failures,attr"`
		Skipped  int      `xml:"skipped,attr"`
		Cases    []struct {
			Class   string  `xml:"classname,attr"`
			Name    string  `xml:"name,attr"`
			Failure *string `xml:"failure"`
			Skipped *struct {
				Message string `xml:"message,attr"`
			} `xml:"skipped"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(out.Bytes(), &suite); err != nil {
		t.Fatal(err)
	}
	if suite.Name != "sdpa" || suite.Tests != 8 || len(suite.Cases) != 8 || suite.Failures != 1 || suite.Skipped != 4 {
		t.Errorf("the suite is %+v", suite)
	}
	failed := suite.Cases[4]
	if failed.Class != "sdpa.stage2" || failed.Name != "resources" || failed.Failure == nil {
		t.Fatalf("the failing case is %+v", failed)
	}
	want := "run " + broken.ID + " on no device (sm_89)\na < b && \"c\"\ncontrol \uFFFD and \uFFFD\nlines"
	if *failed.Failure != want {
		t.Errorf("its text is %q, want %q", *failed.Failure, want)
	}
	if skipped := suite.Cases[3].Skipped; skipped == nil || skipped.Message != "no profile was taken" {
		t.Errorf("the gate without a measurement is %+v", suite.Cases[3])
	}
}

func TestJUnitWithoutRuns(t *testing.T) {
	var out bytes.Buffer
	if err := JUnit(&out, nil, 0); err != nil {
		t.Fatal(err)
	}
	want := xml.Header + `<testsuite name="attune" tests="0" failures="0" errors="0" skipped="0"></testsuite>` + "\n"
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
}

// slow is a variant that is correct and slower than required.
func slow() *run.Run {
	r := passing()
	r.ID, r.Variant, r.Stage = "20261115-031522-stage3a-3f9a1c", "stage3a", "stage3a"
	r.Parent, r.Change, r.RequiredSpeedup = "stage2", "+USE_FUSED_SOFTMAX_PV=1", 1.1
	r.Speedup = &measure.Speedup{Ratio: 1.002, Low: 1.001, High: 1.003}
	return decided(r, gate.ValidNegative, gate.Gates{
		Resources: gatePassed, Correctness: gatePassed, Profile: noProfile, Performance: gate.Performance(*r.Speedup, 1.1, "stage2"),
	})
}

// A valid-negative run is printed with its figures and its cause.
func TestValidNegative(t *testing.T) {
	const cause = "1.002x stage2 (1.001 to 1.003), 1.10x required"
	r := slow()
	for name, text := range map[string]string{
		"text":     printed(t, func(w *bytes.Buffer) error { return runText(w, r, screen) }),
		"ladder":   printed(t, func(w *bytes.Buffer) error { return Ladder([]*run.Run{r}, nil, shortID).Terminal(w, screen) }),
		"markdown": string(runMarkdown(r)),
	} {
		for _, want := range []string{cause, "valid-negative", "slower than required; the experiment is valid", "12.35"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not have %q:\n%s", name, want, text)
			}
		}
	}
	for verdict, explained := range map[gate.Verdict]bool{gate.ValidNegative: true, gate.Merge: false} {
		text := printed(t, func(w *bytes.Buffer) error {
			return History([]ledger.Entry{{Verdict: string(verdict)}}, nil, shortID, screen).Terminal(w, screen)
		})
		if strings.Contains(text, "\nvalid-negative: slower than required; the experiment is valid\n") != explained {
			t.Errorf("the history with %s is:\n%s", verdict, text)
		}
	}
	// A profile takes no times.
	r.Gates.Performance, r.Gates.Profile = gate.NotMeasured, gate.Fail
	if text := string(runMarkdown(r)); !strings.Contains(text, "valid-negative (no unit near its limit; the experiment is valid)") {
		t.Errorf("the report of a profile is:\n%s", text)
	}
}

// ladder is the first stage, one with a parent, one timed on another shape, one that was not timed,
// and one that is slower than required.
func ladder() []*run.Run {
	first := onDevice(built(newRun("stage0")))
	first.Headline, first.Verdict = &run.Headline{Shape: "1x8x512x64", P50US: 123.456}, gate.Merge
	elsewhere := onDevice(built(newRun("stage4")))
	elsewhere.Headline, elsewhere.Verdict = &run.Headline{Shape: "1x1x32x64", P50US: 2}, gate.Unknown
	elsewhere.Parent, elsewhere.RequiredSpeedup = "stage2", 1.05 // the parent could not be built
	second, last := passing(), refused()
	second.Change, last.ID = "+USE_WMMA_PV=1", "20261115-031523-stage2-3f9a1d"
	return []*run.Run{first, second, elsewhere, last, slow()}
}

func TestLadder(t *testing.T) {
	champions := catalog.ChampionRuns{passing().ID: "sm_89"}
	var text, markdown bytes.Buffer
	if err := errors.Join(Ladder(ladder(), champions, shortID).Terminal(&text, screen), writeMarkdown(&markdown, Ladder(ladder(), champions, shortID))); err != nil {
		t.Fatal(err)
	}
	golden(t, "ladder.txt", text.Bytes())
	golden(t, "ladder.md", markdown.Bytes())
	noTrailingSpace(t, "the ladder", text.String())
	wholeTables(t, "the ladder", markdown.String())
}

func TestLadderWithoutTimesOfTheFirst(t *testing.T) {
	rows := Ladder([]*run.Run{refused(), passing()}, nil, shortID).Sections[0].Blocks[0].(Table).Rows
	if got := rows[1][7].String(); got != "-" {
		t.Errorf("a speedup over a first run without times: %q", got)
	}
}

func TestHistory(t *testing.T) {
	entry := func(variant, device, verdict string, h ledger.Headline) ledger.Entry {
		return ledger.Entry{ID: "20261115-031522-" + variant[:6] + "-3f9a1c", Time: time.Date(2026, 11, 15, 3, 15, 22, 0, time.UTC), Variant: variant, Device: device, Arch: "sm_89", Verdict: verdict, Headline: h}
	}
	var out bytes.Buffer
	err := History([]ledger.Entry{
		entry("stage2+TILE_N=32", "cuda", "merge", ledger.Headline{Shape: "1x8x512x64", P50US: ptr(12.3456), ParentRatio: ptr(1.2)}),
		entry("stage0", "cuda", "merge", ledger.Headline{Shape: "1x8x512x64", P50US: ptr(120.0)}),
		entry("stage1", "none", "not-measured", ledger.Headline{}),
	}, catalog.ChampionRuns{"20261115-031522-stage2-3f9a1c": "sm_89"}, shortID, screen).Terminal(&out, screen)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "history.txt", out.Bytes())
	noTrailingSpace(t, "the history", out.String())
}

// On a screen of 80 columns dates and shapes stay, and the speedup is dropped.
func TestHistoryOnNarrowScreen(t *testing.T) {
	at := time.Date(2026, 11, 16, 14, 5, 0, 0, time.UTC)
	entries := []ledger.Entry{
		{ID: "20261116-140500-stage7-7014e0", Time: at, Variant: "stage7a+USE_RELAXED_LOADS=1", Device: "cuda", Verdict: "valid-negative", Headline: ledger.Headline{
			Shape: "1x8x200x64:kvheads=2", P50US: ptr(123.45), ParentRatio: ptr(1.2),
		}},
		{ID: "20261115-140500-stage3-000000", Time: at.AddDate(0, 0, -1), Variant: "stage3b", Device: "sim", Verdict: "correct, not timed"},
	}
	narrow := screen
	narrow.Width = 80
	text := printed(t, func(w *bytes.Buffer) error { return History(entries, nil, shortID, narrow).Terminal(w, narrow) })
	want := `run     date (2026)  variant    verdict             shape                 p50 us
7014e0  11-16 14:05  stage7a+1  valid-negative      1x8x200x64:kvheads=2  123.45
000000  11-15 14:05  stage3b    correct, not timed  -                          -
stage7a+1 is stage7a+USE_RELAXED_LOADS=1
`
	if diff := cmp.Diff(want, strings.Join(strings.SplitAfter(text, "\n")[:4], "")); diff != "" {
		t.Error(diff)
	}
	entries[1].Time = at.AddDate(-1, 0, 0)
	text = printed(t, func(w *bytes.Buffer) error { return History(entries, nil, shortID, narrow).Terminal(w, narrow) })
	if !strings.Contains(text, "2025-11-16 14:05") || !strings.Contains(text, "2026-11-16 14:05") {
		t.Errorf("runs of two years have dates without a year:\n%s", text)
	}
}

// A run without a device and a build has no figures.
func TestNoFiguresWithoutMeasurement(t *testing.T) {
	r := deviceless()
	r.Build = nil
	for name, text := range map[string]string{
		"text":     printed(t, func(w *bytes.Buffer) error { return runText(w, r, screen) }),
		"ladder":   printed(t, func(w *bytes.Buffer) error { return Ladder([]*run.Run{r}, nil, shortID).Terminal(w, screen) }),
		"markdown": strings.Split(string(runMarkdown(r)), "## Build record")[0],
	} {
		for _, known := range []string{r.ID, shortID(r.ID), r.Arch, r.Variant, r.Attune, r.Time.Format("2006-01-02 15:04:05")} {
			text = strings.ReplaceAll(text, known, "")
		}
		if number := regexp.MustCompile(`\d.*`).FindString(text); number != "" {
			t.Errorf("%s has the number %q:\n%s", name, number, text)
		}
		if !strings.Contains(text, "not measured") {
			t.Errorf("%s has no \"not measured\":\n%s", name, text)
		}
	}
}

func printed(t *testing.T, write func(*bytes.Buffer) error) string {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// An output without finite elements has no errors to print.
func TestOutputWithoutFiniteElements(t *testing.T) {
	var row []string
	for _, c := range (&RunStudy{Run: incorrect()}).outputs().Rows[0] {
		row = append(row, c.String())
	}
	want := []string{"1x8x512x64", "", "normal", "0", "not finite", "0.004", "-", "0.0005", "100.00 %", "-", "b0 h0 r0 d0", "FAIL"}
	if diff := cmp.Diff(want, row); diff != "" {
		t.Error(diff)
	}
}

func TestMarkdownCellsAreEscaped(t *testing.T) {
	var out bytes.Buffer
	markdownTable(&out, Table{Columns: columns("a", "b"), Rows: [][]Text{{say("x|y"), say("one\r\ntwo\nthree")}}})
	if want := "| a | b |\n|---|---|\n| x\\|y | one  two three |\n"; out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// The printed log-sum-exp is the one closest to its limit.
func TestLSEIsPrinted(t *testing.T) {
	r := newRun("stage2")
	for _, figures := range [][2]float64{{0.3, 3}, {0.2, 0.4}, {0, 0.1}} {
		c := output("1x8x512x64", 0, true)
		c.LSE, c.Limits.LSE = &oracle.LSEErrors{MaxErr: figures[0]}, &gate.LSE{MaxErr: figures[1]}
		r.Correctness = append(r.Correctness, c)
	}
	if got := correctnessLine(r); !strings.HasSuffix(got, " correct against float64, lse error 0.2 of 0.4 allowed") {
		t.Errorf("got %q", got)
	}
}

func TestSimulatorSettingsArePrinted(t *testing.T) {
	check := func(s run.Simulation, want string) {
		t.Helper()
		r := onSimulator(newRun("stage2"), s)
		r.Correctness = []run.Correctness{output("1x8x512x64", 0, true)}
		if got := correctnessLine(r); got != "1 of 6 correct against float64, "+want {
			t.Errorf("%+v: got %q, want %q", s, got, want)
		}
	}
	check(run.Simulation{Schedules: 1, Checks: true, Tensor: "exact"}, "all checkers on")
	check(run.Simulation{Schedules: 1, Tensor: "exact"}, "checkers off")
	check(run.Simulation{Schedules: 2, Automatic: true, Checks: true, Tensor: "exact"}, "all checkers on, under up to 2 schedules")
	check(run.Simulation{Schedules: 8, Checks: true, Tensor: "f64"}, "all checkers on, under 8 schedules, tensor cores in f64")
}

func TestLongLinesAreWrapped(t *testing.T) {
	long := strings.Repeat("word ", 60)
	var out bytes.Buffer
	g := run.GateOutcome{Name: "correctness", Status: gate.Fail, Reasons: []string{"short", long, strings.Repeat("x", 300), "  indented " + long}}
	if err := writeBlocks(&out, screen, Fields{Fields: []Field{gateField(g, record{}, nil)}}); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimRight(out.String(), "\n"), "\n") {
		if len(line) > 100 {
			t.Errorf("a line of %d: %q", len(line), line)
		}
	}
	if words, letters := strings.Count(out.String(), "word"), strings.Count(out.String(), "x"); words != 120 || letters != 300 {
		t.Errorf("%d of 120 words, %d of 300 letters:\n%s", words, letters, out.String())
	}
}

func TestUnknownFactsOfADevice(t *testing.T) {
	got := string(runMarkdown(racy()))
	if !strings.Contains(got, "| device | `PTX simulator` |") || strings.Contains(got, "UUID") || strings.Contains(got, "multiprocessors") || strings.Contains(got, "driver") {
		t.Errorf("the facts of a simulator:\n%s", got)
	}
}

// closedPipe fails when its room in bytes is used up.
type closedPipe struct{ room int }

func (p *closedPipe) Write(data []byte) (int, error) {
	if p.room -= len(data); p.room < 0 {
		return 0, os.ErrClosed
	}
	return len(data), nil
}

func TestWriteErrorsAreReturned(t *testing.T) {
	runs := []*run.Run{passing()}
	for name, write := range map[string]func(*closedPipe) error{
		"text":    func(p *closedPipe) error { return runText(p, runs[0], screen) },
		"ladder":  func(p *closedPipe) error { return Ladder(runs, nil, shortID).Terminal(p, screen) },
		"history": func(p *closedPipe) error { return History(nil, nil, shortID, screen).Terminal(p, screen) },
		"junit":   func(p *closedPipe) error { return JUnit(p, runs, 0) },
	} {
		for _, room := range []int{0, len(xml.Header)} {
			if err := write(&closedPipe{room}); !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s with room for %d bytes: %v", name, room, err)
			}
		}
	}
}

func noTrailingSpace(t *testing.T, name, text string) {
	t.Helper()
	for i, line := range strings.Split(text, "\n") {
		if strings.TrimRight(line, " \t") != line {
			t.Errorf("%s: line %d ends in a space: %q", name, i+1, line)
		}
	}
}

var bar = regexp.MustCompile(`(^|[^\\])\|`)

// wholeTables counts the bars in every row of a table: an unescaped cell changes their number.
func wholeTables(t *testing.T, name, text string) {
	t.Helper()
	want := 0
	for i, line := range strings.Split(text, "\n") {
		bars := len(bar.FindAllString(line, -1))
		switch {
		case !strings.HasPrefix(line, "|"):
			want = 0
		case want == 0:
			want = bars
		case bars != want:
			t.Errorf("%s: line %d has %d bars, and the table began with %d: %s", name, i+1, bars, want, line)
		}
	}
}

// A state of the repository that is unknown is reported with its reason.
func TestUnknownGit(t *testing.T) {
	r := deviceless()
	r.Git.Unknown = "git did not answer within 5s"
	if text := string(runMarkdown(r)); !strings.Contains(text, "| git | `unknown: git did not answer within 5s` |") {
		t.Error(text)
	}
}

// A fact of a run is in every form of its document: terminal, report.md, attune report as Markdown and as a
// page, and the page of the dashboard.
func TestFactsAreShownEverywhere(t *testing.T) {
	r := passing()
	r.Reproduces = "20261115-031522-stage2-0a0b0c"
	d := (&RunStudy{Run: r}).Document()
	var text bytes.Buffer
	if err := d.Terminal(&text, screen); err != nil {
		t.Fatal(err)
	}
	recorded, err := Describe(r)
	if err != nil {
		t.Fatal(err)
	}
	files, err := d.Files()
	if err != nil {
		t.Fatal(err)
	}
	page, err := d.Bounded(200, 600).Body()
	if err != nil {
		t.Fatal(err)
	}
	for name, form := range map[string]string{
		"terminal": text.String(), "report.md": string(recorded[MarkdownFile]), "Markdown": string(files[MarkdownFile]), "HTML": string(files[HTMLFile]), "dashboard": string(page),
	} {
		if !strings.Contains(form, "reproduces") || !strings.Contains(form, r.Reproduces) {
			t.Errorf("%s does not show what the run reproduces:\n%s", name, form)
		}
	}
}
