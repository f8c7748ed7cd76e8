package document

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"attune/internal/catalog"
	"attune/internal/device"
	"attune/internal/measure"
	"attune/internal/run"
	"attune/internal/tune"
)

func TestTuningsList(t *testing.T) {
	cost, speedup := 1e-6, 1.25
	variant := func(name, patch string, ratio float64) run.TunedVariant {
		return run.TunedVariant{Variant: name, Patch: patch, Cost: &cost, Ratio: &measure.Speedup{Ratio: ratio, Low: ratio, High: ratio}}
	}
	at := time.Date(2026, 11, 17, 4, 59, 0, 0, time.UTC)
	one := run.Tuning{
		SchemaVersion: 1, ID: "a-111111", Time: at, Kernel: "k", Stage: "k", Objective: run.ObjectiveTime, Evaluations: 7,
		Default: variant("k", "", 1), Best: variant("k+A=1", "p.diff", 1.5), Facts: device.Facts{Kind: "cuda"},
	}
	none := one
	none.ID, none.Best = "b-222222", none.Default
	selection := run.SelectionTuning{
		SchemaVersion: 1, MessageType: run.SelectionMessage, ID: "c-333333", Time: at, Kernel: "k", Selection: "best",
		Objective: run.ObjectiveCost, Proposal: &tune.Proposal{Speedup: &speedup}, Evaluations: 9,
	}
	unknown := selection
	unknown.Proposal = &tune.Proposal{}
	var entries []catalog.TuningEntry
	for _, record := range []interface{ Document() ([]byte, error) }{&one, &none, &selection, &unknown} {
		text, err := record.Document()
		if err != nil {
			t.Fatal(err)
		}
		e, err := catalog.NewTuningEntry(text)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	var out bytes.Buffer
	end := func(id string) string { return id[len(id)-6:] }
	if err := Tunings(entries, end).Terminal(&out, screen); err != nil {
		t.Fatal(err)
	}
	if err := writeMarkdown(&out, Tunings(entries[:1], end)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"111111  2026-11-17 04:59  k               k+A=1 with p.diff  time       1.500x            7\n",
		"222222  2026-11-17 04:59  k               the default        time       1.000x            7\n",
		"333333  2026-11-17 04:59  selection best  a table            cost       1.250x            9\n",
		"333333  2026-11-17 04:59  selection best  a table            cost            -            9\n",
		"| a-111111 | 2026-11-17 04:59 | k | k+A=1 with p.diff | time | 1.500x | 7 |\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	for _, damaged := range []string{"[", `{"message_type": "selection"}`, "{}"} {
		if _, err := catalog.NewTuningEntry([]byte(damaged)); err == nil {
			t.Errorf("%s is a tuning", damaged)
		}
	}
}
