package document

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"attune/internal/gate"
	"attune/internal/ledger"
	"attune/internal/measure"
	"attune/internal/run"
)

func champion(change ledger.Change) ledger.Champion {
	r := passing()
	c := ledger.Champion{
		ID: "20261115-061200-sm_89-7be20d", Change: change, Number: 2, Since: time.Date(2026, 11, 15, 6, 12, 0, 0, time.UTC),
		Kernel: "sdpa", Arch: "sm_89", Variant: r.Variant, Run: r.ID, CodeHash: "c0de00ff11223344",
		Previous: &ledger.Previous{ID: "20261114-061200-sm_89-7be20d", Variant: "stage1", Run: "20261114-031522-stage1-3f9a1b"},
	}
	return c
}

func TestChampion(t *testing.T) {
	first := champion(ledger.Promotion)
	first.Variant, first.Previous = "stage1", nil
	text := printed(t, func(w *bytes.Buffer) error {
		return errors.Join(Champion(first, "").Terminal(w, screen), Champion(champion(ledger.Promotion), "merge").Terminal(w, screen), Champion(champion(ledger.Rollback), "merge").Terminal(w, screen))
	})
	golden(t, "champions.txt", []byte(text))
	noTrailingSpace(t, "the champions", text)
}

func TestChangelogEntry(t *testing.T) {
	check := func(c ledger.Champion, r *run.Run, want string) {
		t.Helper()
		if diff := cmp.Diff(want, ChangelogEntry(c, r)); diff != "" {
			t.Error(diff)
		}
	}
	const figures = "12.35 us on 1x8x512x64; 1.247x stage1 (1.240 to 1.256), 1.15x required; 74 registers, 43520 bytes of shared memory; " +
		"4 of 4 correct against float64; NVIDIA L4 (run `20261115-031522-stage2-3f9a1c`, verdict merge)."
	check(champion(ledger.Promotion), passing(), "- Champion of sm_89: `stage2`, before it `stage1`. "+figures)
	check(champion(ledger.Rollback), passing(), "- Champion of sm_89 rolled back to `stage2`, before it `stage1`. "+figures)
	first := champion(ledger.Promotion)
	first.Previous = nil
	check(first, passing(), "- Champion of sm_89: `stage2`. "+figures)
}

func TestAddToChangelog(t *testing.T) {
	check := func(before, want string) {
		t.Helper()
		if diff := cmp.Diff(want, AddToChangelog(before, "- new")); diff != "" {
			t.Errorf("%q:\n%s", before, diff)
		}
	}
	check("", "# Changelog\n\n## Unreleased\n\n- new\n")
	check("# Changes\n", "# Changes\n\n## Unreleased\n\n- new\n")
	check("# Changes\n\n## 1.0\n\n- old\n", "# Changes\n\n## Unreleased\n\n- new\n\n## 1.0\n\n- old\n")
	check("# Changes\n\n## Unreleased\n", "# Changes\n\n## Unreleased\n\n- new\n")
	check("# Changes\n\n## [Unreleased]\n\nWords.\n\n- one\n  more of it\n\n## 1.0\n",
		"# Changes\n\n## [Unreleased]\n\nWords.\n\n- one\n  more of it\n- new\n\n## 1.0\n")
	check("## Unreleased\n- one", "## Unreleased\n- one\n- new\n")
	check("## 1.0\n", "\n## Unreleased\n\n- new\n\n## 1.0\n")
}

// No line of a changelog is lost, and the entry is added once.
func FuzzAddToChangelog(f *testing.F) {
	f.Add("# Changelog\n\n## Unreleased\n\n- one\n\n## 1.0\n- old\n")
	f.Add("## \n## Unreleased")
	f.Add("\r\n## [unreleased]\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		const entry = "- new entry"
		count := func(text string) map[string]int {
			lines := map[string]int{}
			for _, line := range strings.Split(text, "\n") {
				if strings.TrimSpace(line) != "" {
					lines[line]++
				}
			}
			return lines
		}
		before, after := count(text), count(AddToChangelog(text, entry))
		if after[entry] != before[entry]+1 {
			t.Fatalf("%q: %d entries", text, after[entry])
		}
		for line, n := range before {
			if after[line] < n {
				t.Errorf("%q: the line %q is lost", text, line)
			}
		}
	})
}

func TestReproduction(t *testing.T) {
	held := func() *run.Reproduction {
		return &run.Reproduction{
			Recorded: "20261115-031522-stage2-3f9a1c", Repeated: "20261116-031522-stage2-3f9a1d", Holds: true,
			Code: run.CodeCheck{Same: true, Recorded: "c0de00ff112233", Repeated: "c0de00ff112233"}, Outputs: run.OutputCheck{Same: 12},
			Gates: []run.GateCheck{
				{Name: "resources", Recorded: "pass", Repeated: "pass", Compared: true},
				{Name: "performance", Recorded: "pass", Repeated: "pass", Compared: true},
			},
			Verdict: run.GateCheck{Name: "verdict", Recorded: "merge", Repeated: "merge", Compared: true},
			Time:    &measure.Speedup{Ratio: 1.01, Low: 1, High: 1.02},
			Times:   []run.TimeCheck{{Shape: "1x8x512x64", RecordedUS: 12.34, RepeatedUS: 12.2, Ratio: measure.Speedup{Ratio: 1.01, Low: 1, High: 1.02}, Benchmark: true}},
		}
	}
	check := func(name string, r *run.Reproduction) {
		t.Helper()
		text := printed(t, func(w *bytes.Buffer) error { return Reproduction(r).Terminal(w, screen) })
		golden(t, name, []byte(text))
		noTrailingSpace(t, name, text)
	}
	check("holds.txt", held())

	simulated := held()
	simulated.CorrectnessOnly, simulated.Time, simulated.Times = true, nil, nil
	simulated.Gates[1].Repeated, simulated.Gates[1].Compared = "not-measured", false
	simulated.Verdict.Repeated, simulated.Verdict.Compared = "not-measured", false
	simulated.Outputs = run.OutputCheck{Same: 3, Skipped: 9}
	check("holds-on-sim.txt", simulated)

	broken := held()
	broken.Holds, broken.Code = false, run.CodeCheck{Recorded: "c0de00ff112233"}
	broken.Outputs = run.OutputCheck{Same: 1, Different: 2, Missing: 3}
	broken.Gates[0].Repeated, broken.Verdict.Repeated = "fail", string(gate.OverBudget)
	broken.Differences = []string{"the machine code differs: it does not compile now", "the verdict was merge and is over-budget"}
	check("holds-not.txt", broken)

	bare := held()
	bare.Outputs = run.OutputCheck{}
	if text := printed(t, func(w *bytes.Buffer) error { return Reproduction(bare).Terminal(w, screen) }); !strings.Contains(text, "no outputs to compare with") {
		t.Error(text)
	}
	changed := held()
	changed.Outputs.Unordered, changed.Changed = 2, []string{"kernel.toml has changed", "reference.py has changed"}
	text := printed(t, func(w *bytes.Buffer) error { return Reproduction(changed).Terminal(w, screen) })
	for _, want := range []string{"differs       kernel.toml has changed; reference.py has changed", "bit for bit; 2 differ, which their unordered sums may"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
