package document

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/gate"
	"attune/internal/ledger"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/plot"
	"attune/internal/profile"
	"attune/internal/ptx"
	"attune/internal/rule"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
	"attune/kernels"
)

// workshop is a ledger that a test records in.
type workshop struct {
	t   *testing.T
	dir string
	Reader
	clock time.Time
}

func newWorkshop(t *testing.T) *workshop {
	t.Helper()
	dir := t.TempDir()
	kept, err := ledger.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	return &workshop{t: t, dir: dir, Reader: Reader{Ledger: kept}, clock: time.Date(2026, 11, 17, 9, 0, 0, 0, time.UTC)}
}

// base is a recorded run of stage6 without history.
func (w *workshop) base() *run.Run {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(results, "runs/20261116-160726-stage6-186dea/run.json"))
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := run.Decode(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *workshop) id(name string) (string, time.Time) {
	w.clock = w.clock.Add(time.Second)
	return ledger.NewID(w.clock, name), w.clock
}

// record records a run with further files.
func (w *workshop) record(r *run.Run, more map[string][]byte) string {
	w.t.Helper()
	r.ID, r.Time = w.id(r.Stage)
	files, err := r.Documents()
	if err != nil {
		w.t.Fatal(err)
	}
	for name, data := range more {
		files[name] = data
	}
	if _, err := w.Ledger.Record(w.t.Context(), files); err != nil {
		w.t.Fatal(err)
	}
	return r.ID
}

// verified is the Markdown of a document that agrees with the ledger.
func (w *workshop) verified(d *Document) string {
	w.t.Helper()
	files := filesOf(w.t, d)
	if _, problems := verify(files, w.dir); len(problems) > 0 {
		w.t.Errorf("%d problems, the first: %s", len(problems), problems[0])
	}
	return string(files[MarkdownFile])
}

func (w *workshop) study(id string) *RunStudy {
	w.t.Helper()
	s, err := w.Run(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func contains(t *testing.T, text string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%.3000s", want, text)
		}
	}
}

// counted profiles of one launch.
func someProfiles(t *testing.T, facts device.Facts) []byte {
	t.Helper()
	values := profile.Values{profile.Time: 9060, profile.DRAMBusy: 80, profile.DRAMBytes: 812410, profile.IssueBusy: 31.73, profile.Waves: 0.5, profile.Occupancy: 12}
	p := &profile.Profile{Shape: "1x8x512x64", FLOPs: 4 * 8 * 512 * 512 * 64, Ncu: values}
	p.Metrics = p.Rows()
	p.Insights = append(profile.Explain(values, nil),
		profile.Insight{Rule: "old", Text: "a record from before: do this"}, profile.Insight{
			Rule: "knob", Text: "x", Cause: "x", Next: "y",
			Knobs: []string{"TILE_M", "TILE_N"},
		})
	var err error
	if p.Roofline, err = profile.NewRoofline(facts, p.FLOPs, values); err != nil {
		t.Fatal(err)
	}
	bare := &profile.Profile{Shape: "2x8x512x64", NoRoofline: "the time was not measured", Metrics: []profile.Row{}, Insights: []profile.Insight{}}
	text, err := json.Marshal(map[string]any{"schema_version": 1, "profiles": []*profile.Profile{p, bare}})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The profile of a run is in its report, and in that of a later run of the same code.
func TestProfiledRun(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	r := w.base()
	id := w.record(r, map[string][]byte{"profile.json": someProfiles(t, *r.Facts)})
	text := w.verified(w.study(id).Document())
	contains(
		t, text, "## Profile and roofline", "of the FP8 ceiling at 661 FLOPs per byte.](report-roofline-0.svg)", "| DRAM throughput | 80.0 % |",
		"- no roofline: the time was not measured\n",
		"| high | 1x8x512x64: the grid is 0.50 waves of blocks, less than the chip can run at once | less work per block makes more blocks; larger problems fill it | 2.00x | medium |",
		"| medium | 1x8x512x64: DRAM is at 80 % of its peak | move fewer bytes", "| 1.25x | large |", "a record from before: do this | - | - | medium |",
		"y; knobs: `TILE_M` `TILE_N`",
	)
	later := w.study(w.record(w.base(), nil))
	if later.Profiled != id || !strings.Contains(w.verified(later.Document()), "run `"+id+"`") {
		t.Errorf("the profile is that of %q, want %s", later.Profiled, id)
	}
	if len(later.Siblings) != 1 || !strings.Contains(string(later.Document().Markdown()), "Runs of the stage") {
		t.Errorf("%d siblings", len(later.Siblings))
	}
	broken := w.base()
	broken.CodeHash = strings.Repeat("0", 64)
	s := w.study(w.record(broken, map[string][]byte{"profile.json": []byte("[]")}))
	if len(s.LeftOut) != 1 || !strings.HasPrefix(s.LeftOut[0], "the profile: read profile.json") {
		t.Errorf("left out: %q", s.LeftOut)
	}
}

// A run with wrong outputs lists what was wrong, and correcting it comes first.
func TestIncorrectRun(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	r := w.base()
	r.Verdict, r.Gates.Correctness = gate.Incorrect, gate.Fail
	r.Reasons.Correctness = []string{"race at k.cu:12\nwith more", "max_err 3 exceeds 0.05"}
	r.Performance, r.Headline, r.Speedup, r.Samples = nil, nil, nil, nil
	r.Reasons.Performance = []string{"a gate before failed"}
	c := &r.Correctness[0]
	c.Pass, c.Wrong, c.Findings = false, []string{"max_err 3 exceeds 0.05"}, []finding.Finding{finding.New("race", "race at k.cu:12\nwith more")}
	c.NonFinite, c.FirstNonFinite = 1, &oracle.Place{}
	text := w.verified(w.study(w.record(r, nil)).Document())
	contains(
		t, text, "- Verdict: incorrect. Cause: race at k.cu:12.", "- Time: not measured.", "135 of 136 outputs are correct", "## Findings\n\nerror: race: two accesses that nothing orders\n", "- max\\_err 3 exceeds 0.05\n",
		"All reasons of the gate correctness", "| high | race at k.cu:12 | find the first wrong output", "No times were measured: a gate before failed.",
		"1 of 136 outputs exceed their limits",
	)
	r.Device, r.Requested.Simulation = "sim", &run.Simulation{}
	text = w.verified(w.study(w.record(r, nil)).Document())
	contains(t, text, "| high | race at k.cu:12 | correct the line that the finding names; the first wrong shape alone, with its details: "+
		"`attune run stage6 --device sim --shapes 1x1x32x64 --seeds 0 -v` |")
}

// A report shows a finding once, with the source lines of both places, marks and the remedy.
func TestFindingWithSources(t *testing.T) {
	r := racy()
	for i := range r.Correctness {
		f := &r.Correctness[i].Findings[0]
		f.Other = &finding.Place{PTXLine: 92, Source: "sdpa.cu:47", File: "sdpa.cu", Line: 47, Column: 5, Excerpt: "    scores[lane] = <x> & y;"}
		f.Where.Excerpt = "  sum += scores[k];"
	}
	s := &RunStudy{Run: r, SourceLink: func(at ptx.Frame) string { return fmt.Sprintf("/kernel?file=%s#L%d", at.File, at.Line) }}
	contains(t, string(s.Document().Markdown()), "error: race on shared variable scores, element 16: two accesses that nothing orders\n",
		"```\n    47 | sum += scores[k];\n       | ^\n```\n", "```\n    47 | scores[lane] = <x> & y;\n       | ^\n```\n", "Help: add \\_\\_syncwarp() between the two\n")
	body, err := s.Document().Body()
	if err != nil {
		t.Fatal(err)
	}
	page := string(body)
	contains(t, page, `<a href="/kernel?file=sdpa.cu#L47"`, "| scores[lane] = &lt;x&gt; &amp; y;\n       | ^", `<span class="bad"`)
	if n := strings.Count(page, "nothing orders"); n != 1 {
		t.Errorf("the finding is shown %d times:\n%s", n, page)
	}
}

// A run over its budget says what it needs.
func TestOverBudgetRun(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	r := w.base()
	r.Verdict, r.Gates.Resources, r.Reasons.Resources = gate.OverBudget, gate.Fail, []string{"300 registers, 255 allowed"}
	r.Build.Resources.SpillStoreBytes, r.Build.Resources.SpillLoadBytes = 40, 24
	r.Correctness, r.Performance, r.Headline, r.Speedup, r.Samples, r.Reasons.Performance, r.Facts = nil, nil, nil, nil, nil, nil, nil
	text := w.verified(w.study(w.record(r, nil)).Document())
	contains(t, text, "Evidence: no output was checked; 236 registers per thread", "; cuda.", "No times were measured.\n",
		"| high | 300 registers, 255 allowed | reduce what the kernel needs",
		"64 bytes are spilled to local memory | shorten the lives of registers", "| spilled, bytes stored and loaded | 64 |")
}

// The figures that a run of a declared kernel has are in its report under the names of its shapes.
func TestDeclaredRun(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	r := w.base()
	r.Kernel, r.Variant, r.Stage, r.Parent, r.Change = "rmsnorm", "rmsnorm", "rmsnorm", "", ""
	r.Problem = &run.Problem{Kind: "declared"}
	for i := range r.Correctness {
		c := &r.Correctness[i]
		c.Shape, c.ShapeName, c.Inputs = "rows=8,n=256", "small", ""
		c.Limits = gate.Limits{Outputs: map[string]gate.OutputLimit{"y": {Abs: 2e-3, Rel: 1e-3}}}
		c.Outputs = []oracle.OutputErrors{{Name: "y", Errors: c.Errors}}
	}
	r.Performance, r.Samples = r.Performance[:1], nil
	p := &r.Performance[0]
	p.Shape, p.ShapeName, p.Benchmark, p.GBPerS, p.P99US = "rows=8,n=256", "small", true, new(3512.5), 2*p.P50US
	p.EmptyNodeUS, p.Monitored.Throttled, p.Monitored.Rounds = new(0.5*p.P50US), 60, 100
	r.Headline = p.Headline()
	r.Git.Dirty = false
	text := w.verified(w.study(w.record(r, nil)).Document())
	contains(
		t, text, "| small | 136/136 |",
		"| shape | name | seed | output | max\\_err | mean\\_err | bad | allowed | tolerance | outcome |",
		"| rows=8,n=256 | small | 0 | y | 0.0225 | 0.00397 | 0 | 0 | 0.002 + 0.001·\\|want\\| |", "| shape | p50 us | ± | interval | p90 us | p99 us |", "| 3512 |",
		"the GPU was throttled in 60 of 100 rounds on small", "the p99 is 5.44 us, the p50 2.72",
		"an empty kernel takes 1.36 us of the 2.72 us", "| 2.00x | large |", "no profile was taken of this code | count what limits it: `attune profile rmsnorm`",
	)
	if strings.Contains(text, "report-errors") || strings.Contains(text, "uncommitted") {
		t.Errorf("there is a plot without limits, or a note on git:\n%s", text)
	}
}

// A peer that is faster, and a parent that is faster, are next steps.
func TestSlowerThanOthers(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	r := w.base()
	w.bench(&run.Bench{
		Kernel: "sdpa", Command: "attune bench stage6", Timing: "graphs", Rows: []run.BenchRow{
			{Shape: "1x8x512x64", Name: "stage6", DType: "e4m3", P50US: new(6.0), TFLOPS: new(80.0), Shares: &run.Shares{FP8: 0.05, BF16: 0.1, Copy: 0.2}},
			{Shape: "1x8x512x64", Name: "fa3-fp8", Peer: true, DType: "e4m3", P50US: new(4.0), TFLOPS: new(120.0)},
			{Shape: "1x8x512x64", Name: "broken", Peer: true, DType: "fp16", Wrong: "max_err 3\nmore"},
			{Shape: "1x8x512x64", Name: "slow fp16", Peer: true, DType: "fp16", P50US: new(9.0), TFLOPS: new(50.0)},
			{Shape: "1x8x512x64", Name: "quick fp16", Peer: true, DType: "fp16", P50US: new(8.0), TFLOPS: new(60.0)},
		},
		Best:     []run.BestRow{{Shape: "1x8x512x64", Variant: "stage6", Peer: "fa3-fp8", Speedup: measure.Speedup{Ratio: 0.667, Low: 0.66, High: 0.67}}},
		Ceilings: run.CeilingsOf("NVIDIA H200"), Skipped: []run.Skipped{{Name: "torch-math", Why: "it is slow"}}, Ended: "the time was over", Facts: *r.Facts,
		Requested: []string{"1x8x512x64", "2x8x512x64", "1x8x2048x64"}, Checked: []run.CheckedShape{{Shape: "1x8x512x64"}},
	})
	s := w.study(w.record(r, nil))
	contains(
		t, w.verified(s.Document()), "on 1x8x512x64 fa3-fp8 takes 4.00 us, and this kernel 6.00 us | profile this shape", "| 1.50x | medium |",
		"on 2x8x2048x64 it is 0.742x as fast as its parent | let a selection take the parent on such shapes | 1.35x | small |",
		"is at 20 % of the measured copy rate", "| 5.00x | large |", "| 1x8x512x64 | e4m3 | 6.00 | quick fp16 | fp16 | 8.00 | 1.33x |",
		"the speedup is 0.819x, and 1.20x was required: 1.46x is missing",
	)
	study, err := w.Bench(t.Context(), s.Bench.ID)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, w.verified(study.Document()), "- torch-math skipped: it is slow\n", "\nNOT FINISHED: 1 of 3 shapes: the time was over\n",
		"- NOT FINISHED: 1 of 3 shapes: the time was over. Missing: 2x8x512x64, 1x8x2048x64.\n",
		"\nWRONG: broken on 1x8x512x64: max\\_err 3 more\n", "Smallest lead over the best peer: 0.667x")
}

// bench records a bench with samples of its rows.
func (w *workshop) bench(b *run.Bench) {
	w.t.Helper()
	b.SchemaVersion = run.BenchSchemaVersion
	b.ID, b.Time = w.id("bench")
	for i, row := range b.Rows {
		if row.P50US != nil {
			b.Rows[i].Seconds = [][]float64{{1e-6 * *row.P50US, 1.01e-6 * *row.P50US}}
		}
	}
	files, err := b.Documents()
	if err == nil {
		err = w.Ledger.RecordBench(w.t.Context(), files)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// tuning records a search.
func (w *workshop) tuning(document any, id string, journal string) {
	w.t.Helper()
	text, err := json.Marshal(document)
	if err == nil {
		err = w.Ledger.RecordTuning(w.t.Context(), map[string][]byte{
			run.TuningFile: text, run.TuneJournal: []byte(journal),
			run.TuneEliteFile: []byte("{}"), run.TuningReport: []byte("x"),
		})
	}
	if err != nil {
		w.t.Fatal(id, err)
	}
}

// A search without a better variant, with failures and a damaged journal, has a report. A tuned
// selection has none.
func TestSearchWithoutResult(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	id, at := w.id("stage6")
	equal := &measure.Speedup{Ratio: 1, Low: 1, High: 1}
	w.tuning(&run.Tuning{
		SchemaVersion: run.TuningSchemaVersion, MessageType: "tuning", ID: id, Time: at, Kernel: "sdpa", Stage: "stage6", Objective: run.ObjectiveTime, Unit: "seconds",
		Default: run.TunedVariant{Variant: "stage6", Cost: new(6e-6), Ratio: equal}, Best: run.TunedVariant{Variant: "stage6", Cost: new(6e-6), Ratio: equal},
		Elites:   []run.TunedVariant{{Variant: "stage6+TILE_N=64", Failure: "incorrect", Reason: "wrong"}},
		Effects:  []tune.KnobEffect{{Knob: "TILE_N", Layer: spec.Micro, Spread: 1.5, Values: []tune.ValueEffect{{Value: rule.Int(64), Evaluations: 2, Failures: 2}}}},
		Failures: map[string]int{"incorrect": 1}, FirstFailures: []run.TuneFailure{{Kind: "incorrect", Variant: "stage6+TILE_N=64", Reason: "wrong\nmore"}},
		Evaluations: 2, Ended: "the budget is spent", Facts: device.Facts{Name: "NVIDIA H200"}, Identity: run.TuneIdentity{Strategy: "evo", Compiler: "nvcc"},
	}, id, "{broken\n")
	study, err := w.Tuning(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, w.verified(study.Document()), "- No variant is better than the default beyond doubt.", "- Objective: time in us, on", "\nfirst incorrect: stage6+TILE\\_N=64: wrong more\n",
		"Left out of this report", "the journal: read journal.jsonl")
	study.Tuning.Objective = run.ObjectiveCost // the same each time: no doubt, and no interval
	contains(t, study.Document().Headline[0].String(), "No variant has fewer simulated cycles than the default.")
	study.Tuning.Faster, study.Tuning.Best.Ratio = true, &measure.Speedup{Ratio: 1.005, Low: 1.005, High: 1.005}
	contains(t, study.Document().Headline[0].String(), ", 1.005x fewer cycles than the default (simulated, no time).")
	contains(t, w.verified(w.study(w.record(w.base(), nil)).Document()),
		"no variant is better than the default beyond doubt. The knob that matters most is `TILE_N`: its values differ by a factor of 1.50.")
	selection, at := w.id("stage7")
	w.tuning(&run.SelectionTuning{SchemaVersion: 1, MessageType: run.SelectionMessage, ID: selection, Time: at, Kernel: "sdpa", Proposal: &tune.Proposal{}}, selection, "")
	if _, err := w.Tuning(t.Context(), selection); err == nil || !strings.Contains(err.Error(), "is that of a selection, not of a variant") {
		t.Errorf("got %v", err)
	}
	if d, err := w.TuningDocument(t.Context(), selection); err != nil || len(d.Sections) == 0 {
		t.Errorf("a tuned selection has no document: %v", err)
	}
	if s := w.study(w.record(w.base(), nil)); len(s.Tunings) != 1 || len(s.LeftOut) > 1 {
		t.Errorf("%d tunings, left out: %q", len(s.Tunings), s.LeftOut)
	}
}

// Records that are damaged beside a run are left out with the reason.
func TestDamagedNeighbours(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	parent := w.base()
	parent.Variant, parent.Stage, parent.Parent = "stage3b", "stage3b", "stage3b" // a circle of parents ends
	damaged := w.record(parent, nil)
	sibling := w.record(w.base(), nil)
	id := w.record(w.base(), nil)
	if s := w.study(id); len(s.Ancestors) != 1 || len(s.Siblings) != 1 || len(s.LeftOut) != 0 {
		t.Errorf("%d ancestors, %d siblings, left out: %q", len(s.Ancestors), len(s.Siblings), s.LeftOut)
	}
	w.bench(&run.Bench{Kernel: "other"})
	benches, err := w.Ledger.Benches()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"runs/" + damaged + "/run.json", "runs/" + sibling + "/run.json", "benches/" + benches[0] + "/bench.json"} {
		damage(t, filepath.Join(w.dir, path))
	}
	s := w.study(id)
	text := strings.Join(s.LeftOut, "\n")
	contains(t, text, "the ancestors: ", "other runs of the stage: ", "benches: ", "was changed after it was recorded")
	contains(t, string(s.Document().Markdown()), "Left out of this report, because it could not be read:")
	if _, err := w.Bench(t.Context(), benches[0]); err == nil {
		t.Error("a damaged bench was read")
	}
}

// Runs that have nothing in common say why they are not compared.
func TestRunsWithoutACommonShape(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	r := w.base()
	r.Headline, r.Performance = nil, nil
	a, b := w.record(w.base(), nil), w.record(r, nil)
	text := w.verified(Runs([]*RunStudy{w.study(a), w.study(b)}))
	contains(t, text, "# Report on stage6, stage6", "## Overview", "The runs cannot be compared: ", "## stage6: Verdict and cause")
	if !strings.Contains(text, "report-run-1-errors.svg") || !strings.Contains(text, "report-run-2-errors.svg") {
		t.Error("the plots of the two runs have one name")
	}
}

// The body of a page can be part of another page.
func TestBody(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	d := w.study(w.record(w.base(), nil)).Document()
	body, err := d.Body()
	if err != nil {
		t.Fatal(err)
	}
	page, err := d.Page()
	if err != nil || !strings.Contains(string(page), string(body)) || strings.Contains(string(body), "<style") {
		t.Errorf("%v, %.200s", err, body)
	}
	if !strings.Contains(CSS, "."+plot.Class) || !strings.Contains(CSS, "[data-theme=dark]") {
		t.Error("the rules have no plots or no themes")
	}
}

// damage overwrites a file of the ledger.
func damage(t *testing.T, path string) {
	t.Helper()
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A ladder uses the next older run of a stage whose newest is damaged, leaves out a stage without a
// readable run, and names what it could not read.
func TestDamagedLadder(t *testing.T) {
	t.Parallel()
	r, dir := copyResults(t)
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	whole, err := r.Ladder(t.Context(), kernel, "cuda")
	if err != nil || len(whole.LeftOut) > 0 {
		t.Fatal(err, whole.LeftOut)
	}
	damage(t, filepath.Join(dir, "runs/20261116-160615-stage2-448d06/run.json"))
	damage(t, filepath.Join(dir, "runs/20261116-160726-stage6-186dea/run.json"))
	damage(t, filepath.Join(dir, "benches/20261117-122005-bench-841720/bench.json"))
	s, err := r.Ladder(t.Context(), kernel, "cuda")
	if err != nil || len(s.Runs) != len(whole.Runs)-1 || len(s.LeftOut) != 3 {
		t.Fatalf("%v, %d runs of %d, left out: %q", err, len(s.Runs), len(whole.Runs), s.LeftOut)
	}
	if s.Runs[2].ID != "20261115-052709-stage2-30323b" {
		t.Errorf("the run of stage2 is %s", s.Runs[2].ID)
	}
	d, err := s.Document()
	if err != nil {
		t.Fatal(err)
	}
	text := string(d.Markdown())
	contains(t, text, "Left out of this report, because it could not be read:", "20261116-160615-stage2-448d06", "20261116-160726-stage6-186dea", "20261117-122005-bench-841720")
}

// The commands of a report name the ledger and the kernel's folder, or say that the folder is needed.
func TestCommands(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	w.Commands = Commands{Ledger: "'my results'", KernelFolder: func(kernel string) (string, bool) {
		folder, known := map[string]string{"sdpa": "", "rmsnorm": "examples/rmsnorm"}[kernel]
		return folder, known
	}}
	own := w.record(w.base(), nil)
	text := w.verified(w.study(own).Document())
	contains(t, text, "\nattune reproduce "+own+" --from 'my results'\n")
	if strings.Contains(text, "--kernel") {
		t.Error("the default kernel is named")
	}
	ladder := &LadderStudy{Kernel: "sdpa", Runs: []*run.Run{w.study(own).Run}, Commands: w.Commands}
	d, err := ladder.Document()
	if err != nil {
		t.Fatal(err)
	}
	contains(t, w.verified(d), "\nattune reproduce "+own+" --from 'my results'\n")
	for kernel, want := range map[string][]string{
		"rmsnorm": {" --from 'my results' --kernel examples/rmsnorm\n", "attune profile stage6 --kernel examples/rmsnorm", " --kernel examples/rmsnorm\n"},
		"other":   {" --from 'my results'\n", "The folder of the kernel `other` is not known here: add `--kernel` with it."},
	} {
		r := w.base()
		r.Kernel = kernel
		contains(t, w.verified(w.study(w.record(r, nil)).Document()), want...)
	}
	for command, want := range map[string]string{
		"attune bench":                "\nattune bench --kernel examples/rmsnorm\n",
		"attune bench --kernel mine":  "\nattune bench --kernel mine\n",
		"attune bench a --shapes all": "\nattune bench a --shapes all --kernel examples/rmsnorm\n",
	} {
		w.bench(&run.Bench{
			Kernel: "rmsnorm", Command: command, Facts: *w.base().Facts, Problem: &run.Problem{Kind: "declared"},
			Rows: []run.BenchRow{{Shape: "rows=8,n=256", Name: "rmsnorm", DType: "bf16", P50US: new(6.0)}},
		})
		ids, err := w.Ledger.Benches()
		if err != nil {
			t.Fatal(err)
		}
		study, err := w.Bench(t.Context(), ids[0])
		if err != nil {
			t.Fatal(err)
		}
		contains(t, w.verified(study.Document()), want)
	}
}

// A ladder counts the stages with a requirement, and names no driver that is not recorded.
func TestLadderHeadline(t *testing.T) {
	t.Parallel()
	first, second := newWorkshop(t).base(), newWorkshop(t).base()
	first.Parent, first.RequiredSpeedup, first.Verdict, first.Facts.Driver = "", 0, gate.Merge, ""
	second.Verdict = gate.ValidNegative
	lines := func(runs ...*run.Run) string {
		d, err := (&LadderStudy{Kernel: "sdpa", Runs: runs}).Document()
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, line := range d.Headline {
			text += line.String() + "\n"
		}
		return text
	}
	contains(t, lines(first, second), "\n0 of 1 stages and selections with a required speedup reach it;", "\nMeasured on NVIDIA H200.\n")
	if text := lines(first); strings.Contains(text, "required") {
		t.Errorf("a ladder without a requirement says\n%s", text)
	}
}

// The finding of a plot of throughput in a run's report is about the run's variant.
func TestThroughputOfTheVariant(t *testing.T) {
	t.Parallel()
	r := openResults(t)
	s, err := r.Run(t.Context(), "20261117-074843-stage7-de5e53")
	if err != nil || s.Sweep == nil {
		t.Fatal(err, s.Sweep)
	}
	plots := 0
	for _, b := range sweepBlocks(s.Sweep, "stage7", "") {
		if figure, ok := b.(Figure); ok {
			plots++
			if !strings.HasPrefix(figure.Plot.Finding(), "stage7, ") {
				t.Errorf("the finding is %q", figure.Plot.Finding())
			}
		}
	}
	if plots == 0 {
		t.Error("there is no plot")
	}
}

// An empty ladder is an error.
func TestEmptyLadder(t *testing.T) {
	t.Parallel()
	if _, err := (&LadderStudy{Kernel: "sdpa"}).Document(); err == nil || err.Error() != "the ledger has no run of a stage of sdpa" {
		t.Errorf("got %v", err)
	}
}
