package document

import (
	"strings"
	"testing"
	"time"

	"attune/internal/fleet"
	"attune/internal/terminal"
)

// TestFleet prints each state of a worker, the failures of machines and the dead letters.
func TestFleet(t *testing.T) {
	t.Parallel()
	now := time.Now()
	text := func(d *Document) string {
		var out strings.Builder
		if err := d.Terminal(&out, terminal.Screen{Width: 100}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got := text(FleetStatus(&fleet.Status{Server: "nats://here"})); !strings.Contains(got, "No worker has joined") {
		t.Errorf("no worker: %s", got)
	}
	if got := text(FleetDead(nil)); !strings.Contains(got, "No job is dead") {
		t.Errorf("no dead letter: %s", got)
	}
	s := &fleet.Status{
		Server: "nats://here", Classes: []fleet.ClassStatus{{Class: "sim", Workers: 3, Running: 1, Waiting: 7}},
		Workers: []fleet.WorkerState{
			{Name: "a", Class: "sim", Job: "evaluate 01", Started: now.Add(time.Hour), Since: now.Add(time.Hour), Running: 3.2, Up: 60, Busy: 30, Done: 4},
			{Name: "b", Class: "sim", Draining: true, Since: now, Failed: 1, Problem: "disk full"},
			{Name: "c", Class: "sim", Up: 1, Busy: 9},
		},
		Dead: []fleet.DeadLetter{{Job: fleet.Job{Class: "sim", Kind: "finals"}, Key: strings.Repeat("ab", 32), Reason: "3 workers were lost on it", Time: now}},
	}
	got := text(FleetStatus(s))
	for _, want := range []string{"evaluate 01, 3s", "50 %", "ends", "idle", "100 %", "disk full", "abababababab", "finals", "3 workers were lost on it", "attune fleet dead --retry KEY"} {
		if !strings.Contains(got, want) {
			t.Errorf("the status does not have %q:\n%s", want, got)
		}
	}
}
