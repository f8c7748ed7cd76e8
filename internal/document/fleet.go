package document

import (
	"fmt"
	"time"

	"attune/internal/fleet"
)

// FleetStatus is the state of a fleet: its classes, its workers and its dead letters.
func FleetStatus(s *fleet.Status) *Document {
	d := &Document{Title: say("Fleet at " + s.Server)}
	if len(s.Workers) == 0 && len(s.Classes) == 0 {
		d.Sections = []Section{{Blocks: []Block{say("No worker has joined; ", code("attune worker --fleet URL"), " starts one.")}}}
		return d
	}
	d.Sections = []Section{
		{ID: "classes", Title: say("Classes"), Blocks: []Block{fleetClasses(s)}},
		{ID: "workers", Title: say("Workers"), Blocks: []Block{fleetWorkers(s)}},
	}
	if problems := fleetProblems(s); len(problems.Rows) > 0 {
		d.Sections = append(d.Sections, Section{ID: "failures", Title: say("Failures of machines"), Blocks: []Block{problems}})
	}
	if len(s.Dead) > 0 {
		d.Sections = append(d.Sections, FleetDead(s.Dead).Sections...)
	}
	return d
}

func code(text string) Span { return Span{Text: text, Code: true} }

func fleetClasses(s *fleet.Status) Table {
	t := Table{Columns: columns("class", "workers", "running", "waiting")}
	for _, c := range s.Classes {
		t.Rows = append(t.Rows, []Text{say(c.Class), say(fmt.Sprint(c.Workers)), say(fmt.Sprint(c.Running)), say(fmt.Sprint(c.Waiting))})
	}
	return t
}

// fleetWorkers has the workers' own durations: their clocks may differ from the one here.
func fleetWorkers(s *fleet.Status) Table {
	t := Table{Columns: columns("worker", "class", "job", "done", "failed", "busy")}
	t.Columns[2].Wrap = true
	for _, w := range s.Workers {
		job := "idle"
		switch {
		case w.Job != "":
			job = fmt.Sprintf("%s, %s", w.Job, time.Duration(w.Running*1e9).Round(time.Second))
		case w.Draining:
			job = "ends"
		}
		busy := "0 %"
		if w.Up > 0 {
			busy = fmt.Sprintf("%.0f %%", 100*min(1, w.Busy/w.Up))
		}
		t.Rows = append(t.Rows, []Text{say(w.Name), say(w.Class), say(job), say(fmt.Sprint(w.Done)), say(fmt.Sprint(w.Failed)), say(busy)})
	}
	return t
}

// fleetProblems are the last failures of the workers' machines.
func fleetProblems(s *fleet.Status) Table {
	t := Table{Columns: columns("worker", "last failure")}
	t.Columns[1].Wrap = true
	for _, w := range s.Workers {
		if w.Problem != "" {
			t.Rows = append(t.Rows, []Text{say(w.Name), say(w.Problem)})
		}
	}
	return t
}

// FleetDead are the jobs that no machine could do.
func FleetDead(letters []fleet.DeadLetter) *Document {
	if len(letters) == 0 {
		return &Document{Sections: []Section{{Blocks: []Block{say("No job is dead: every one was done, or waits.")}}}}
	}
	t := Table{Columns: columns("key", "class", "kind", "since", "why")}
	t.Columns[4].Wrap = true
	for _, l := range letters {
		t.Rows = append(t.Rows, []Text{say(fmt.Sprintf("%.12s", l.Key)), say(l.Job.Class), say(l.Job.Kind), say(l.Time.Format(time.DateTime)), say(l.Reason)})
	}
	return &Document{Sections: []Section{{
		ID: "dead", Title: say("Dead letters"),
		Blocks: []Block{t, say("They say nothing about the kernels. ", code("attune fleet dead --retry KEY"), " puts one into the queue again.")},
	}}}
}
