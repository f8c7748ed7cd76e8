package document

import (
	"slices"
	"strings"
	"testing"

	"attune/internal/gate"
	"attune/internal/measure"
	"attune/internal/run"
	"attune/internal/terminal"
)

func TestShortNames(t *testing.T) {
	names := newShortNames()
	for _, test := range []struct{ variant, want string }{
		{"stage2", "stage2"},
		{"stage2+TILE_N=32", "stage2+TILE_N=32"},
		{"stage7b+TILE_M=64+TILE_N=256+KV_STAGES=2", "stage7b+3"},
		{"stage7b+TILE_M=64+TILE_N=128+KV_STAGES=2", "stage7b+3b"},
		{"stage7b+TILE_M=64+TILE_N=256+KV_STAGES=2", "stage7b+3"},
		{"a-stage-with-a-long-name", "a-stage-with-a-long-name"},
	} {
		if got := names.add(test.variant); got != test.want {
			t.Errorf("%s: got %s, want %s", test.variant, got, test.want)
		}
	}
	var out strings.Builder
	names.write(&out, screen, "run stage7b+3b: merge")
	if want := "stage7b+3b is stage7b+TILE_M=64+TILE_N=128+KV_STAGES=2\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// The verdict of a terminal's report is coloured, and its lines have the same text.
func TestColouredText(t *testing.T) {
	for verdict, code := range map[gate.Verdict]string{gate.Merge: "32", gate.ValidNegative: "33", gate.Incorrect: "31", gate.Unknown: ""} {
		r := passing()
		r.Verdict = verdict
		if verdict == gate.Unknown { // the outputs could not be checked
			r.Gates.Correctness = gate.NotMeasured
		}
		var plain, coloured strings.Builder
		if err := runText(&plain, r, screen); err != nil {
			t.Fatal(err)
		}
		if err := runText(&coloured, r, terminal.Screen{Width: screen.Width, Colour: true}); err != nil {
			t.Fatal(err)
		}
		want := "stage2: \x1b[" + code + "m" + string(verdict) + "\x1b[0m"
		if code == "" {
			want = "stage2: " + string(verdict)
		}
		if !strings.HasPrefix(coloured.String(), want) || !strings.Contains(coloured.String(), "\x1b[32mpass\x1b[0m") {
			t.Errorf("no %q in %q", want, coloured.String())
		}
		if len(strings.Split(plain.String(), "\n")) != len(strings.Split(coloured.String(), "\n")) {
			t.Errorf("colour changes the lines:\n%s\n%s", plain.String(), coloured.String())
		}
	}
}

// A correct run without times is green; one whose outputs could not be checked has no colour.
func TestCorrectUntimed(t *testing.T) {
	correct, unchecked := noted(), deviceless()
	for _, c := range []struct {
		run         *run.Run
		shown, tone string
	}{{correct, "correct, not timed", "good"}, {unchecked, "not-measured", ""}, {unsupported(), "not-measured", ""}} {
		if c.run.Verdict != gate.Unknown {
			t.Fatalf("%s is recorded as %s", c.run.Variant, c.run.Verdict)
		}
		shown := VerdictInList(c.run)
		if shown != c.shown || VerdictTone(shown) != c.tone {
			t.Errorf("%q in %q; want %q in %q", shown, VerdictTone(shown), c.shown, c.tone)
		}
		page, err := (&RunStudy{Run: c.run}).Document().Page()
		if err != nil {
			t.Fatal(err)
		}
		class := `<span class="good" data-source="` + c.run.ID + `/run.json#summary:verdict">correct, not timed</span>`
		if strings.Contains(string(page), class) != (c.tone == "good") {
			t.Errorf("%s: the page is green: %v", c.shown, c.tone != "good")
		}
	}
	if !slices.ContainsFunc(VerdictLegend(), func(g VerdictGroup) bool { return slices.Equal(g.Verdicts, []string{"correct, not timed"}) }) {
		t.Error("the legend does not explain it")
	}
}

// A row of a comparison has the change of the time and its interval, and marks instead of a verdict
// where there is no difference.
func TestChangeText(t *testing.T) {
	for _, test := range []struct {
		ratio measure.Speedup
		want  string
	}{
		{measure.Speedup{Ratio: 1.0142, Low: 1.0122, High: 1.0162}, "-1.4 % ±0.2"},
		{measure.Speedup{Ratio: 0.5, Low: 0.4, High: 0.6}, "+100.0 % ±50.0"},
		{measure.Speedup{Ratio: 1, Low: 0.9999, High: 1.0001}, "+0.00 % ±0.01"},
	} {
		if got := changeText(test.ratio); got != test.want {
			t.Errorf("%+v: got %s, want %s", test.ratio, got, test.want)
		}
	}
	c := someComparison()
	c.Shapes = append(c.Shapes, c.Shapes[0], c.Shapes[0])
	c.Shapes[1].Verdict, c.Shapes[2].Verdict = measure.Same, measure.Ambiguous
	var out strings.Builder
	if err := Comparison(c, "").Terminal(&out, screen); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{", geometric mean of 3", "±0.02  ~\n", "±0.02  ?\n", "\n~ the same within 1 %\n", "\n? the samples do not decide\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if first, _, _ := strings.Cut(out.String(), "\n"); !strings.HasPrefix(first, "stage2 → stage3b+TILE_N=64: faster, -63.20 %") {
		t.Errorf("the first line is %q", first)
	}
}

// The sequence of a report is: headline, gates, figures.
func TestOrderOfAReport(t *testing.T) {
	text := printedRun(t, passing())
	at := -1
	for _, part := range []string{"stage2: merge, 1.247x stage1 (1.15x required)\nNVIDIA L4, sm_89, 2026-11-15 03:15:22\n", "\n  resources ", "\n  profile ", "\ncorrectness\n", "\nperformance\n"} {
		next := strings.Index(text, part)
		if next <= at && at >= 0 || next < 0 {
			t.Errorf("%q is missing or too early in\n%s", part, text)
		}
		at = next
	}
}

func printedRun(t *testing.T, r *run.Run) string {
	t.Helper()
	var out strings.Builder
	if err := runText(&out, r, screen); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
