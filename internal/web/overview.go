package web

import (
	"context"
	"net/http"
	"slices"

	"attune/internal/catalog"
	"attune/internal/document"
	"attune/internal/run"
	"attune/internal/spec"
)

// Rows of the lists on the overview.
const (
	overviewRuns     = 12
	overviewSearches = 5
	overviewBenches  = 5
)

// overview is the first page: champions, what runs, the ladder, the newest records.
type overview struct {
	Empty     bool
	Champions []championRow
	Ladder    []ladderRow
	Linear    bool // some rows of the ladder have approximate exponentials
	Plots     []inlinePlot
	Runs      runTable
	AllRuns   int
	Marked    catalog.ChampionRuns
	Running   []catalog.UnfinishedSearch
	Tunings   []catalog.TuningEntry
	Benches   []*run.Bench
	Jobs      []Job // that run
	Damage    []string
	Unread    bool // the ladder may lack runs that are damaged
}

// ladderRow is a stage with its speedup over the first stage on the same shape.
type ladderRow struct {
	*run.Run
	OverFirst *float64
	Linear    bool // its exponentials are approximate
}

// Shown is the verdict as lists show it.
func (r ladderRow) Shown() string { return document.VerdictInList(r.Run) }

// championRow is a champion, and why it is the champion.
type championRow struct {
	catalog.Champion
	Evidence *run.Run // that it was promoted on; nil if it cannot be read
	Rivals   []rival
}

// rival is a stage or selection whose parent is the champion.
type rival struct {
	Name        string
	Required    float64  // speedup over the champion; 0 if none is
	Run         *run.Run // its newest timed one on a GPU; nil without any
	OtherParent bool     // the run has another parent than the champion
}

// Shown is the verdict of the run as lists show it.
func (r rival) Shown() string { return document.VerdictInList(r.Run) }

func (s *Server) championRows(ctx context.Context, l *lists) []championRow {
	kernel, _, err := s.config.Kernel()
	var rows []championRow
	for _, c := range l.champions.Champions {
		row := championRow{Champion: c}
		if found, err := s.records.run(ctx, c.Run); err == nil {
			row.Evidence, row.Verdict = found, document.VerdictInList(found)
		}
		if err == nil && kernel.Name == c.Kernel {
			row.Rivals = rivals(kernel, c.Variant, l.ladder)
		}
		rows = append(rows, row)
	}
	return rows
}

// rivals are the stages and selections whose parent is a variant, with their runs of the ladder.
func rivals(kernel *spec.Kernel, champion string, ladder []*run.Run) []rival {
	var all []rival
	add := func(name string, parent spec.Variant, known bool, required float64) {
		if !known || parent.String() != champion {
			return
		}
		one := rival{Name: name, Required: required}
		if i := slices.IndexFunc(ladder, func(r *run.Run) bool { return r.Variant == name && r.Headline != nil }); i >= 0 {
			one.Run, one.OtherParent = ladder[i], ladder[i].Parent != champion
		}
		all = append(all, one)
	}
	for _, stage := range kernel.Stages {
		v := stage.Variant()
		parent, known := v.Parent()
		add(stage.Name, parent, known, v.RequiredSpeedup())
	}
	for _, selection := range kernel.Selections {
		parent, known := selection.Parent()
		add(selection.Name, parent, known, selection.Speedup)
	}
	return all
}

func (s *Server) overview(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Query().Has("token") {
		return s.signIn(w, r, r.URL.Query().Get("token"), "/")
	}
	l, err := s.records.now(r.Context())
	if err != nil {
		return err
	}
	running, err := catalog.Unfinished(s.config.Ledger)
	if err != nil {
		return err
	}
	page := overview{
		Empty:     len(l.entries)+len(l.benches)+len(l.tunings)+len(running) == 0,
		Champions: s.championRows(r.Context(), l), Ladder: ladderRows(l.ladder, l.linear), Linear: len(l.linear) > 0, Plots: l.plots,
		Runs: s.records.table(r.Context(), l, "Latest runs", l.entries[:min(len(l.entries), overviewRuns)]), AllRuns: len(l.entries), Marked: l.marked,
		Running: running, Tunings: l.tunings[:min(len(l.tunings), overviewSearches)],
		Benches: l.benches[:min(len(l.benches), overviewBenches)], Jobs: s.runningJobs(), Damage: s.records.damageIn(l, ""),
	}
	page.Unread = l.noLadder || len(s.records.damageIn(l, runFolder)) > 0
	return s.render(w, r, http.StatusOK, "overview", "Overview", page)
}

func (s *Server) runningJobs() []Job {
	return slices.DeleteFunc(s.jobs.list(), func(j Job) bool { return j.State != jobRuns })
}

func ladderRows(runs []*run.Run, linear document.Approximate) []ladderRow {
	var rows []ladderRow
	for _, r := range runs {
		row := ladderRow{Run: r, Linear: linear[r.ID]}
		if first := runs[0].Headline; first != nil && r.Headline != nil && first.Shape == r.Headline.Shape {
			ratio := first.P50US / r.Headline.P50US
			row.OverFirst = &ratio
		}
		rows = append(rows, row)
	}
	return rows
}
