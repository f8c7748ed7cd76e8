package document

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"attune/internal/catalog"
	"attune/internal/finding"
	"attune/internal/ledger"
	"attune/internal/rule"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/terminal"
	"attune/internal/tune"
)

// terminalDocuments has a document of every kind that a terminal shows.
func terminalDocuments(t *testing.T, s terminal.Screen) map[string]*Document {
	t.Helper()
	tuned := someTuning()
	tuned.Effects = []tune.KnobEffect{{Knob: "THREADS", Layer: spec.Micro, Spread: 1.25, Values: []tune.ValueEffect{{Value: rule.Int(64), Evaluations: 3}}}}
	entry := ledger.Entry{ID: passing().ID, Time: time.Date(2026, 11, 15, 3, 15, 22, 0, time.UTC), Kernel: "sdpa", Variant: "stage2", Device: "cuda", Verdict: "merge"}
	tuning := catalog.TuningEntry{ID: "a-111111", Time: entry.Time, Default: "stage2", Best: "stage3b", Objective: run.ObjectiveTime, Evaluations: 7}
	all := map[string]*Document{
		"bench": benchOf(someBench()), "bench by shape": BenchByShape(someBench()), "champion": Champion(champion(ledger.Promotion), "merge"),
		"comparison": Comparison(someComparison(), ""), "findings": (&RunStudy{Run: racy(), Sources: racySource}).Document(), "ladder": Ladder(ladder(), nil, shortID),
		"history": History([]ledger.Entry{entry, entry}, catalog.ChampionRuns{entry.ID: "sm_89"}, shortID, s), "tunings": Tunings([]catalog.TuningEntry{tuning}, shortID),
		"profile": Profile("stage2", newProfile(t, h200)), "proposal": Proposal(proposal(), "seconds"),
		"selection tuning": SelectionTuning(&run.SelectionTuning{ID: "c-333333", Selection: "best", Objective: run.ObjectiveTime, Unit: "seconds", Proposal: proposal()}),
		"runs":             Runs([]*RunStudy{{Run: passing()}, {Run: slow()}}), "tuning": (&TuningStudy{Tuning: tuned}).Document(), "tuning result": (&TuningStudy{Tuning: tuned}).Result(),
		"summary": Summary{Runs: outcomes(), Ledger: ".attune"}.Document(), "declared": (&RunStudy{Run: declared()}).Document(),
	}
	for _, r := range outcomes() {
		all["run "+r.Variant+" "+string(r.Verdict)] = (&RunStudy{Run: r}).Document()
		all["failure "+r.Variant+" "+string(r.Verdict)] = Failure(r, finding.Sources(racySource))
		all["gates "+r.Variant+" "+string(r.Verdict)] = Gates(r, s, racySource)
	}
	return all
}

// tablesOf are the tables that a terminal shows.
func tablesOf(blocks []Block) []Table {
	var all []Table
	for _, b := range blocks {
		switch b := b.(type) {
		case Table:
			all = append(all, b)
		case Details:
			all = append(all, tablesOf(b.Blocks)...)
		}
	}
	return all
}

// renamed is a cell with another name in place of its first span.
func renamed(cell Text, name string) Text {
	if len(cell) == 0 {
		return say(name)
	}
	changed := slices.Clone(cell[:1])
	changed[0].Text = name
	return changed
}

// Rows whose names differ only in their last characters differ in every table and at every width, in
// each column that names something.
func TestRowsOfTablesStayDistinct(t *testing.T) {
	const long = "stage7b+TILE_M=64+TILE_N=256+KEY_GROUPS=2+KV_STAGES=2+USE_DIRECT_V="
	tables := 0
	for _, width := range []int{60, 80, 100, 120, 160} {
		for _, height := range []int{0, 40} {
			s := terminal.Screen{Width: width, Height: height}
			for name, d := range terminalDocuments(t, s) {
				for i, section := range d.without(Long).Sections {
					for j, table := range tablesOf(section.Blocks) {
						tables++
						for column, c := range table.Columns {
							if err := distinctRows(table, column, d.Narrow, s, long+"10", long+"11"); err != nil {
								t.Errorf("%s, table %d of section %d, column %s at %d columns: %v", name, j, i, c.Name, width, err)
							}
						}
					}
				}
			}
		}
	}
	if tables == 0 {
		t.Error("no table was compared")
	}
}

// distinctRows prints two rows that differ in one name only. A name that the screen has no room for is
// left out as a whole, which is no fault of an optional column.
func distinctRows(table Table, column int, narrow bool, s terminal.Screen, a, b string) error {
	if len(table.Rows) == 0 {
		return nil
	}
	two := Table{Columns: table.Columns, Indent: table.Indent}
	for _, name := range []string{a, b} {
		row := slices.Clone(table.Rows[0])
		row[column] = renamed(row[column], name)
		two.Rows = append(two.Rows, row)
	}
	out := &bytes.Buffer{}
	d := listDocument(two)
	d.Narrow = narrow
	if err := d.Terminal(out, s); err != nil {
		return err
	}
	text, _, _ := strings.Cut(out.String(), " is stage7b+") // the names in full
	equal := two
	equal.Rows = [][]Text{two.Rows[0], two.Rows[0]}
	same := listDocument(equal)
	same.Narrow = narrow
	out.Reset()
	if err := same.Terminal(out, s); err != nil {
		return err
	}
	alike, _, _ := strings.Cut(out.String(), " is stage7b+")
	shown := strings.Contains(text, "stage7b")
	switch {
	case !shown && table.Columns[column].Optional == 0 && column > 0:
		return fmt.Errorf("the name is left out:\n%s", text)
	case shown && text == alike:
		return fmt.Errorf("both rows look the same:\n%s", text)
	}
	return nil
}
