package web

import (
	"net/http"
	"slices"

	"attune/internal/catalog"
	"attune/internal/document"
	"attune/internal/ledger"
	"attune/internal/run"
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
	Champions []catalog.Champion
	Ladder    []ladderRow
	Linear    bool // some rows of the ladder have approximate exponentials
	Plots     []inlinePlot
	Runs      []ledger.Entry
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
		Champions: l.champions.Champions, Ladder: ladderRows(l.ladder, l.linear), Linear: len(l.linear) > 0, Plots: l.plots,
		Runs: l.entries[:min(len(l.entries), overviewRuns)], AllRuns: len(l.entries), Marked: l.marked,
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
