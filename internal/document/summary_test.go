package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"attune/internal/finding"
	"attune/internal/gate"
	"attune/internal/run"
	"attune/internal/terminal"
)

// outcomes are runs with every outcome of a line.
func outcomes() []*run.Run {
	settings := run.Simulation{Schedules: 1, Checks: true, Tensor: run.ExactTensor}
	return []*run.Run{
		passing(), onSimulator(deviceless(), settings), selected(), slow(), refused(), incorrect(), hung(), racy(), unsupported(),
	}
}

// racySource is the source of racy.
func racySource(file string) []byte {
	if file != "sdpa.cu" {
		return nil
	}
	return []byte(strings.Repeat("\n", 46) + "    scores[row * stride + column] = score;\n" + strings.Repeat("\n", 6) + "\tmma(scores + 16 * step, values);\n")
}

// runLine is the line of a run.
func runLine(t *testing.T, r *run.Run, names RunNames, s terminal.Screen) string {
	t.Helper()
	out := &strings.Builder{}
	if err := RunLine(r, names).Terminal(out, s); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func TestRunLines(t *testing.T) {
	var names []string
	for _, r := range outcomes() {
		names = append(names, r.Variant)
	}
	for _, width := range []int{60, 80, 100, 160} {
		out := &bytes.Buffer{}
		for _, r := range outcomes() {
			out.WriteString(runLine(t, r, NewRunNames(names, terminal.Screen{Width: width}), terminal.Screen{Width: width}) + "\n")
		}
		for _, r := range outcomes() {
			if Failed(r) || Unchecked(r) {
				if err := Failure(r, racySource).Terminal(out, terminal.Screen{Width: width}); err != nil {
					t.Fatal(err)
				}
			}
		}
		summary := Summary{
			Runs: outcomes(), Elapsed: 12345 * time.Millisecond, Ledger: ".attune", Quick: "quick set of 4 shapes; --full takes all",
		}
		if err := summary.Document().Terminal(out, terminal.Screen{Width: width}); err != nil {
			t.Fatal(err)
		}
		if width == 100 {
			golden(t, "lines.txt", out.Bytes())
		}
		for line := range strings.SplitSeq(out.String(), "\n") {
			if utf8.RuneCountInString(line) > width {
				t.Errorf("wider than %d columns: %s", width, line)
			}
		}
		noTrailingSpace(t, "the lines", out.String())
	}
}

// The name of a variant is cut on a narrow terminal only.
func TestLongNamesOfRuns(t *testing.T) {
	r := passing()
	r.Variant = "stage7b+TILE_M=64+TILE_N=256+KEY_GROUPS=2+KV_STAGES=2"
	for s, want := range map[terminal.Screen]string{
		{Width: 80}:              r.Variant + "  ok",
		{Width: 160, Height: 40}: r.Variant + "  ok",
		{Width: 80, Height: 24}:  "stage7b+TILE_M=64+TILE_…  ok",
	} {
		line := runLine(t, r, NewRunNames([]string{r.Variant}, s), s)
		if !strings.HasPrefix(line, want) || !strings.Contains(line, "4/4") || !strings.Contains(line, "12.35 us") {
			t.Errorf("%+v: %s", s, line)
		}
	}
}

// No two names look the same, on no terminal and in no pipe, wherever they differ.
func TestNamesThatDiffer(t *testing.T) {
	knobs := func(first, middle, last string) string {
		return "stage7b+TILE_M=" + first + "+TILE_N=256+KEY_GROUPS=" + middle + "+KV_STAGES=2+USE_DIRECT_V=" + last
	}
	groups := map[string][]string{
		"start":  {"a" + knobs("64", "2", "1"), "b" + knobs("64", "2", "1"), "stage0"},
		"middle": {knobs("64", "2", "1"), knobs("64", "4", "1"), knobs("64", "2", "1"), "stage0"},
		"end":    {knobs("64", "2", "1"), knobs("64", "2", "0"), "stage0"},
		"all":    {knobs("64", "2", "1"), knobs("128", "2", "1"), knobs("64", "4", "1"), knobs("64", "2", "0"), "a" + knobs("64", "2", "1")},
		"knobs":  {"stage7b+TILE_M=64+TILE_N=128", "stage7b+TILE_M=64+TILE_N=256", "stage7b+TILE_M=64+TILE_N=128+KEY_GROUPS=4"},
	}
	for name, names := range groups {
		for width := 60; width <= 160; width++ {
			for _, height := range []int{0, 24} {
				s := terminal.Screen{Width: width, Height: height}
				column, seen := NewRunNames(names, s), map[string]string{}
				for _, variant := range names {
					r := passing()
					r.Variant = variant
					text, _, _ := strings.Cut(runLine(t, r, column, s), "  ")
					if other, ok := seen[text]; ok && other != variant {
						t.Errorf("%s at %+v: %s and %s are both %s", name, s, variant, other, text)
					}
					if seen[text] = variant; height == 0 && text != variant {
						t.Errorf("%s is cut in a pipe: %s", variant, text)
					}
				}
			}
		}
	}
}

func TestGates(t *testing.T) {
	out := &bytes.Buffer{}
	for _, r := range []*run.Run{passing(), refused(), racy()} {
		if err := Gates(r, terminal.Screen{Width: 80}, nil).Terminal(out, terminal.Screen{Width: 80}); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "screen.txt", out.Bytes())
	for line := range strings.Lines(out.String()) {
		if utf8.RuneCountInString(line) > 81 {
			t.Errorf("wider than 80 columns: %s", line)
		}
	}
}

func TestSummaryOfOneRun(t *testing.T) {
	r := passing()
	out := &bytes.Buffer{}
	if err := (Summary{Runs: []*run.Run{r}, Ledger: "kept"}).Document().Terminal(out, terminal.Screen{Width: 200}); err != nil {
		t.Fatal(err)
	}
	if want := "1 variant: 1 ok, 0 failed; took 0.0 s; records in kept; details: attune show " + r.ID + "\n"; out.String() != want {
		t.Errorf("got %q, want %q", out, want)
	}
	for name, write := range map[string]func(*closedPipe) error{
		"summary": func(w *closedPipe) error {
			return Summary{Runs: outcomes()}.Document().Terminal(w, terminal.Screen{Width: 80})
		},
		"failure": func(w *closedPipe) error { return Failure(racy(), nil).Terminal(w, terminal.Screen{Width: 80}) },
		"gates": func(w *closedPipe) error {
			return Gates(racy(), terminal.Screen{Width: 80}, nil).Terminal(w, terminal.Screen{Width: 80})
		},
	} {
		if err := write(&closedPipe{}); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// The headline and the list say what a verdict does not tell.
func TestVerdictsThatTellLittle(t *testing.T) {
	unbuiltPart := refused()
	unbuiltPart.Parts = []run.Part{{}}
	failing := deviceless()
	failing.ReferenceError = "reference.py: no luck"
	untimed := noted()
	untimed.Requested.Simulation = nil
	for _, c := range []struct {
		run           *run.Run
		text, inLists string
	}{
		{noted(), "correct, not timed (on the simulator, no GPU)", "correct, not timed"},
		{untimed, "correct, not timed", "correct, not timed"},
		{deviceless(), "not-measured: the outputs were not checked", "not-measured"},
		{failing, "not-measured: the reference failed", "not-measured"},
		{refused(), `does not compile: sdpa.cu:20: identifier "a" | "b" is undefined (over-budget)`, "over-budget (not built)"},
		{unbuiltPart, "over-budget", "over-budget"},
		{incorrect(), "incorrect", "incorrect"},
	} {
		if text, inLists := verdictText(c.run), VerdictInList(c.run); text != c.text || inLists != c.inLists {
			t.Errorf("%q and %q; want %q and %q", text, inLists, c.text, c.inLists)
		}
	}
	if verdictColour("over-budget (not built)") != verdictColour("over-budget") {
		t.Error("the word changes the colour")
	}
}

// A run on a GPU says what the simulator did: in its line, its verdict, its facts and its findings.
func TestSimulatedBesideGPU(t *testing.T) {
	proven := func(change func(r *run.Run)) *run.Run {
		r := passing()
		r.Simulated = &run.Simulated{Instances: 3, Schedules: 4, Shapes: []string{"1x1x32x64"}}
		change(r)
		return r
	}
	for _, c := range []struct {
		run                    *run.Run
		verdict, line, written string
	}{
		{proven(func(*run.Run) {}), "merge", " us", "on 3 shapes under up to 4 schedules, 0 findings"},
		{
			proven(func(r *run.Run) { r.Simulated = &run.Simulated{Refused: "tcgen05", Why: "PTX line 7: tcgen05.alloc"} }),
			"merge, not simulated: tcgen05", "not simulated: tcgen05", "no: the simulator cannot run tcgen05",
		},
		{
			proven(func(r *run.Run) { r.Simulated = &run.Simulated{Refused: "tcgen05", Sanitized: []string{"memcheck"}} }),
			"merge, not simulated: tcgen05", "not simulated: tcgen05", "under compute-sanitizer (memcheck), 0 findings",
		},
		{proven(func(r *run.Run) { r.Simulated, r.Requested.NoSim = nil, true }), "merge, not simulated: --no-sim", "not simulated: --no-sim", "no: --no-sim"},
	} {
		if got := verdictText(c.run); got != c.verdict {
			t.Errorf("%q; want %q", got, c.verdict)
		}
		if got := runLine(t, c.run, RunNames{width: 20}, terminal.Screen{Width: 200}); !strings.Contains(got, c.line) {
			t.Errorf("%q; want %q", got, c.line)
		}
		out := &bytes.Buffer{}
		if err := runText(out, c.run, terminal.Screen{Width: 200}); err != nil || !strings.Contains(out.String(), c.written) {
			t.Errorf("%s\nwant %q, %v", out, c.written, err)
		}
		if text := string(runMarkdown(c.run)); !strings.Contains(text, c.written) {
			t.Errorf("%s\nwant %q", text, c.written)
		}
	}
	race := finding.New(finding.Race, "two threads write")
	found := proven(func(r *run.Run) {
		r.Verdict, r.Gates.Correctness = gate.Incorrect, gate.Fail
		r.Simulated.Findings, r.Simulated.Wrong = []finding.Finding{race}, []string{"on the simulator, 1x1x32x64 seed 0: " + race.String()}
		r.Reasons.Correctness = r.Simulated.Wrong
	})
	if got := runLine(t, found, RunNames{width: 20}, terminal.Screen{Width: 200}); !strings.HasSuffix(got, "correctness: "+race.String()+", the simulator") {
		t.Errorf("the line of a race: %q", got)
	}
	out := &bytes.Buffer{}
	if err := Failure(found, nil).Terminal(out, terminal.Screen{Width: 200}); err != nil || !strings.Contains(out.String(), "1 finding\n") || !strings.Contains(out.String(), "two threads write") {
		t.Errorf("%s, %v", out, err)
	}
}

func TestExcused(t *testing.T) {
	r := noted()
	if got := Excused(r); got != "" {
		t.Errorf("a run without unordered sums: %q", got)
	}
	row := &r.Correctness[1]
	row.Notes = append(row.Notes, finding.New(finding.UnorderedSums, "unordered floating-point atomics at red.cu:5: launches need not agree bit for bit"))
	if got := Excused(r); got != "note: stage2: unordered floating-point atomics at red.cu:5: launches need not agree bit for bit" {
		t.Errorf("%q", got)
	}
}

// The short line of a finding has its innermost line in the kernel's folder.
func TestShortFinding(t *testing.T) {
	for text, want := range map[string]string{
		"race at ../sdpa/tma.cuh:34 (ptx:5, called from loads.cuh:66, native.cu:30) (once): x": "race at loads.cuh:66",
		"race at -I0/tma.cuh:34 (ptx:5, called from native.cu:30) (once): x":                   "race at native.cu:30",
		"race at ../sdpa/tma.cuh:34 (ptx:5) (once): x":                                         "race at ../sdpa/tma.cuh:34",
		"race at tma.cuh:34 (ptx:5) (once): x":                                                 "race at tma.cuh:34",
		"race at ptx:5 (once): x":                                                              "race at ptx:5",
		"race at native.cu:30 in tma.cuh:34 (ptx:5) (once): x":                                 "race at tma.cuh:34", // of an earlier version
		"a text (of something) in words":                                                       "race: a text (of something) in words",
	} {
		var f finding.Finding
		if err := json.Unmarshal(fmt.Appendf(nil, `{"kind":"race","text":%q}`, text), &f); err != nil {
			t.Fatal(err)
		}
		if got := shortFinding(f); got != want {
			t.Errorf("%s: %q; want %q", text, got, want)
		}
	}
}

// The lines of a compiler are printed as it wrote them, however narrow the screen: a wrapped line moves
// its caret away from what it points at.
func TestCompilerOutputIsNotWrapped(t *testing.T) {
	const source = `  row_sum += sums[warp] * exp_approx(maxima[warp] - row_max) + a_name_that_is_long_enough[warp];`
	caret := strings.Repeat(" ", strings.Index(source, "a_name")) + "^"
	output := []string{`softmax.cu(92): error: identifier "a_name_that_is_long_enough" is undefined in this scope`, source, caret}
	r := refused()
	r.Reasons.Resources = []string{run.NotCompiled + ": " + output[0], "declare it", strings.Join(output, "\n")}
	for width := 60; width <= 160; width += 20 {
		s := terminal.Screen{Width: width}
		for name, d := range map[string]*Document{
			"run": Failure(r, nil), "watch": Gates(r, s, nil), "show": (&RunStudy{Run: r}).Document(),
		} {
			out := &strings.Builder{}
			if err := d.Terminal(out, s); err != nil {
				t.Fatal(err)
			}
			if want := "  " + strings.Join(output, "\n  ") + "\n"; strings.Count(out.String(), want) != 1 {
				t.Errorf("%s at %d columns has not once\n%s\nit has\n%s", name, width, want, out)
			}
			if !strings.Contains(out.String(), "declare it\n") {
				t.Errorf("%s at %d columns lacks the advice:\n%s", name, width, out)
			}
		}
	}
}
