package document

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/perf/benchfmt"

	"attune/internal/ci"
	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/mutate"
	"attune/internal/ptx"
	"attune/internal/run"
)

// inKernel is a checkout with the kernel's folder and one source.
func inKernel(file string) string {
	if file == "sdpa.cu" {
		return "kernels/sdpa/sdpa.cu"
	}
	return ""
}

func TestRunIssues(t *testing.T) {
	r := racy()
	for i := range r.Correctness {
		f := &r.Correctness[i].Findings[0]
		if f.Where.File != "mma.hpp" || f.Where.Callers[0] != (ptx.Frame{File: "sdpa.cu", Line: 54}) { // the header is not in the checkout
			t.Fatalf("the race is at %+v", f.Where)
		}
	}
	at := ci.Location{File: "kernels/sdpa/sdpa.cu", Line: 54}
	other := []ci.Location{{File: "kernels/sdpa/sdpa.cu", Line: 47, Message: "the access that it conflicts with"}}
	text := r.Correctness[0].Findings[0].Text()
	want := []ci.Issue{{Level: ci.Error, Rule: "race", Subject: "stage2", Message: text, Location: at, Related: other}}
	if d := cmp.Diff(want, RunIssues(r, inKernel)); d != "" {
		t.Errorf("a race on six inputs (-want +got):\n%s", d)
	}
	for i := range r.Correctness {
		r.Correctness[i].Findings[0].Where.Callers = []ptx.Frame{{File: "sdpa.cu", Line: 30}, {File: "other.cuh", Line: 1}, {File: "sdpa.cu", Line: 54}}
	}
	got := RunIssues(r, inKernel)[0]
	callers := []ci.Location{{File: "kernels/sdpa/sdpa.cu", Line: 54, Message: "the call of the inlined function"}}
	if d := cmp.Diff(callers, got.Callers); d != "" || got.Location.Line != 30 {
		t.Errorf("the line inside an inlined function is %+v, the callers are (-want +got):\n%s", got.Location, d)
	}
	want = []ci.Issue{{
		Level: ci.Error, Rule: "resources gate", Subject: "stage2", Location: ci.Location{File: "kernels/sdpa/sdpa.cu", Line: 20},
		Message: `it does not compile: sdpa.cu:20: identifier "a" | "b" is undefined (and 1 more)`,
	}}
	if d := cmp.Diff(want, RunIssues(refused(), inKernel)); d != "" {
		t.Errorf("a compile error (-want +got):\n%s", d)
	}
	for name, rule := range map[string]string{"incorrect": "correctness gate", "hung": "timeout", "passing": ""} {
		var got string
		for _, test := range records {
			if test.name == name {
				for _, i := range RunIssues(test.record(), inKernel) {
					got += i.Rule
				}
			}
		}
		if got != rule {
			t.Errorf("%s has the issues %q, want %q", name, got, rule)
		}
	}
}

// Notes and findings of the audit that kernel.toml allows fail nothing; others of the audit do.
func TestRunFindings(t *testing.T) {
	r := noted()
	if issues := RunIssues(r, inKernel); len(issues) != 0 {
		t.Errorf("notes are issues: %+v", issues)
	}
	var levels []ci.Level
	for _, i := range RunFindings(r, inKernel) {
		levels = append(levels, i.Level)
	}
	if d := cmp.Diff([]ci.Level{ci.Notice, ci.Notice}, levels); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	r.Audit[0].Severity = finding.Error
	found := RunFindings(r, inKernel)
	if last := found[len(found)-1]; last.Rule != string(finding.ModuleMemory) || last.Location != (ci.Location{File: "kernels/sdpa/sdpa.cu", Line: 34}) {
		t.Errorf("a finding of the audit is %+v", last)
	}
}

func TestFindingIssue(t *testing.T) {
	f := finding.Finding{
		Kind: finding.Race, Severity: finding.Error, Count: 2, Detail: "text",
		Where: finding.Place{PTXLine: 152, PTX: "ld.shared\t%r1", Source: "sdpa.cu:54", File: "sdpa.cu", Line: 54},
		Other: &finding.Place{PTXLine: 92, PTX: "st.shared"},
	}
	got := FindingIssue("case", f, inKernel, "k.ptx", "k.json")
	if got.Location != (ci.Location{File: "kernels/sdpa/sdpa.cu", Line: 54}) || got.Key != "ld.shared %r1" {
		t.Errorf("%+v", got)
	}
	if len(got.Related) != 1 || got.Related[0].File != "k.ptx" || got.Related[0].Line != 92 {
		t.Errorf("the other place is %+v", got.Related)
	}
	f.Severity, f.Where.File = finding.Strict, "gone.cu"
	if got := FindingIssue("case", f, inKernel, "", "k.json"); got.Level != ci.Notice || got.Location != (ci.Location{File: "k.json"}) || got.Related != nil {
		t.Errorf("without files: %+v", got)
	}
	f.Where.Callers = []ptx.Frame{{File: "sdpa.cu", Line: 60}, {File: "sdpa.cu", Line: 70}}
	if got := FindingIssue("case", f, inKernel, "k.ptx", ""); got.Location.Line != 60 || len(got.Callers) != 1 || got.Callers[0].Line != 70 {
		t.Errorf("of an inlined function: %+v", got)
	}
	f.Where = finding.Place{}
	if got := FindingIssue("case", f, inKernel, "k.ptx", "k.json"); got.Location != (ci.Location{File: "k.ptx"}) {
		t.Errorf("without a line: %+v", got)
	}
}

// A finding about no instruction is in the source of the variant, or else in kernel.toml.
func TestFindingsWithoutLine(t *testing.T) {
	r := racy()
	for i := range r.Correctness {
		r.Correctness[i].Findings = []finding.Finding{finding.New(finding.Unwritten, "8 of 64 elements of O")}
	}
	for _, c := range []struct{ source, exists, want string }{
		{"sdpa.cu", "sdpa.cu", "k/sdpa.cu"}, {"gone.cu", "kernel.toml", "k/kernel.toml"}, {"gone.cu", "", ""},
	} {
		r.Build.Source = c.source
		found := RunFindings(r, func(file string) string {
			if file != "" && file == c.exists {
				return "k/" + file
			}
			return ""
		})
		if len(found) != 1 || found[0].Location != (ci.Location{File: c.want}) {
			t.Errorf("%+v: %+v", c, found)
		}
	}
}

// A line in the checkout comes before an inner one outside of it.
func TestLinesOutsideOfTheCheckout(t *testing.T) {
	frames := []ptx.Frame{{File: "gone.cuh", Line: 1}, {File: "out.cuh", Line: 2}, {File: "sdpa.cu", Line: 3}, {File: "out.cuh", Line: 4}}
	locate := func(file string) string {
		if file == "out.cuh" {
			return "/elsewhere/out.cuh"
		}
		return inKernel(file)
	}
	at, callers := inSource(frames, locate)
	if at != (ci.Location{File: "kernels/sdpa/sdpa.cu", Line: 3}) || len(callers) != 1 || callers[0].Line != 4 {
		t.Errorf("%+v, called from %+v", at, callers)
	}
	at, callers = inSource(append(frames[:2:2], frames[3]), locate)
	if at != (ci.Location{File: "/elsewhere/out.cuh", Line: 2}) || len(callers) != 1 || callers[0].Line != 4 {
		t.Errorf("outside: %+v, called from %+v", at, callers)
	}
}

// Every kind of finding has a rule with help, once.
func TestFindingRules(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range FindingRules() {
		if seen[r.ID] || r.ID == "" || len(r.Short) < 10 || len(r.Help) < 30 {
			t.Errorf("rule %+v", r)
		}
		seen[r.ID] = true
	}
	for _, k := range finding.Kinds() {
		if !seen[string(k)] {
			t.Errorf("%s has no rule", k)
		}
	}
	for _, k := range finding.AllowableKinds() {
		if !seen[string(k)] {
			t.Errorf("%s has no rule", k)
		}
	}
}

func TestMutationFormats(t *testing.T) {
	r := mutate.NewReport(40)
	r.Kill(mutate.Mutant{Line: 3, Kind: "left out"}, "race")
	r.Survive(mutate.Mutant{Line: 5, Kind: "left out", Before: "\tbar.sync \t0;", After: "// left | out"}, false)
	r.Survive(mutate.Mutant{Line: 6, Kind: "operands swapped"}, true)
	issues := MutationIssues("stage2", &r, "k.ptx")
	if len(issues) != 1 || issues[0].Level != ci.Warning || issues[0].Location != (ci.Location{File: "k.ptx", Line: 5}) {
		t.Errorf("%+v", issues)
	}
	text := MutationStep("stage2", &r)
	for _, want := range []string{"1 killed, 1 survived, 1 equivalent, kill rate 50.0 %.", "| 5 | left out | `bar.sync 0;` | // left \\| out |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var out bytes.Buffer
	if err := MutationJUnit(&out, "stage2", &r, time.Second); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`tests="2" failures="1" errors="0" skipped="1" time="1.000"`, `<failure message="1 of 2 survived">`, `<skipped message="all are equivalent to the kernel">`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
}

func TestRunsStep(t *testing.T) {
	var runs []*run.Run
	for _, test := range records {
		runs = append(runs, test.record())
	}
	text := RunsStep(runs)
	golden(t, "step.md", []byte(text))
	wholeTables(t, "step", text)
	if RunsStep(nil) != "" {
		t.Error("a summary of no runs")
	}
}

func TestOtherSteps(t *testing.T) {
	bench := (&BenchStudy{Bench: someBench()}).Document().Step("bench")
	if !strings.HasPrefix(bench, "### attune bench: ") || !strings.Contains(bench, "\n#### Times\n") {
		t.Error(bench)
	}
	comparison := Comparison(someComparison(), "").Step("compare")
	if !strings.HasPrefix(comparison, "### attune compare: ") {
		t.Error(comparison)
	}
	wholeTables(t, "bench", bench)
	wholeTables(t, "comparison", comparison)
	tuning := (&TuningStudy{Tuning: someTuning()}).Document().Step("tune")
	if !strings.HasPrefix(tuning, "### attune tune: ") || strings.Contains(tuning, "![") || !strings.Contains(tuning, "\n#### Best variants\n") {
		t.Error(tuning)
	}
}

// Samples of runs and benches can be read by benchstat.
func TestBenchmarkText(t *testing.T) {
	r := passing()
	r.Samples = []run.Samples{{Shape: "1x8x512x64", Variant: device.Series{Seconds: []float64{1e-6, 2e-6, 3e-6}, Processes: []int{2, 1}}}}
	b := someBench()
	b.Rows = b.Rows[:1]
	b.Rows[0].Seconds = [][]float64{{1e-6}, {2e-6, 3e-6}}
	for name, write := range map[string]func(io.Writer) error{
		"run":   func(w io.Writer) error { return RunBenchmarks(w, []*run.Run{r}) },
		"bench": func(w io.Writer) error { return BenchBenchmarks(w, b) },
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		n := 0
		for reader := benchfmt.NewReader(&out, name); reader.Scan(); n++ {
			result, ok := reader.Result().(*benchfmt.Result)
			if !ok || result.GetConfig("device") == "" {
				t.Errorf("%s: %v", name, reader.Result())
			}
		}
		if n != 3 {
			t.Errorf("%s has %d samples, want 3", name, n)
		}
	}
}
