package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"attune/internal/ledger"
	"attune/internal/report"
	"attune/internal/run"
)

// searches are the tunings of a ledger that a list shows.
type searches struct {
	finished   []report.TuningEntry
	total      int // of finished ones, before the limit
	unfinished []unfinishedSearch
}

// unfinishedSearch is a search that runs or was interrupted.
type unfinishedSearch struct {
	ID          string `json:"id"`
	Kernel      string `json:"kernel,omitempty"`
	Variant     string `json:"variant,omitempty"`
	Selection   string `json:"selection,omitempty"`
	Evaluations int    `json:"evaluations"` // lines of its journals
	Running     bool   `json:"running"`
	Folder      string `json:"folder"`
}

// historySearches reads the tunings that pass the filter. A damaged one is left to `ledger verify`. A
// verdict is one of runs.
func (a *app) historySearches(ctx context.Context, kept *ledger.Ledger, o historyOptions) (searches, error) {
	var all searches
	if o.filter.Verdict != "" {
		return all, nil
	}
	ids, err := kept.Tunings()
	if err != nil {
		return all, err
	}
	for _, id := range ids {
		text, err := kept.ReadTuning(ctx, id, run.TuningFile)
		if err != nil {
			a.note(err.Error())
			continue
		}
		if e, err := report.NewTuningEntry(text); err != nil {
			a.note(err.Error())
		} else if passes(o.filter, e) {
			all.finished = append(all.finished, e)
		}
	}
	if all.total = len(all.finished); o.most(a.json) > 0 {
		all.finished = all.finished[:min(all.total, o.most(a.json))]
	}
	all.unfinished, err = unfinishedSearches(kept, o.filter)
	return all, err
}

// passes reports whether a filter of runs lets a search pass. Its variants are the default and the
// best; a selection is a stage and a variant.
func passes(f ledger.Filter, e report.TuningEntry) bool {
	among := func(want string, names ...string) bool { return want == "" || slices.Contains(names, want) }
	return among(f.Kernel, e.Kernel) && among(f.Stage, e.Stage, e.Selection) && among(f.Variant, e.Default, e.Best, e.Selection) &&
		among(f.Device, e.Device)
}

// unfinishedSearches are those of the kernel of a filter. Other filters show none.
func unfinishedSearches(kept *ledger.Ledger, f ledger.Filter) ([]unfinishedSearch, error) {
	if f.Stage != "" || f.Variant != "" || f.Device != "" {
		return nil, nil
	}
	ids, err := kept.UnfinishedTunings()
	var all []unfinishedSearch
	for _, id := range ids {
		u := unfinishedSearch{ID: id, Folder: kept.TuningFolder(id)}
		if unlock, err := kept.LockTuning(id); err == nil {
			unlock()
		} else {
			u.Running = true
		}
		var one run.TuneSearch
		var selection run.SelectionSearch
		if readJSON(filepath.Join(u.Folder, run.TuneFile), &one) {
			u.Kernel, u.Variant = one.Identity.Kernel, one.Identity.Variant
		} else if readJSON(filepath.Join(u.Folder, run.SelectionFile), &selection) {
			u.Selection = selection.Selection
		}
		u.Evaluations = evaluationsIn(u.Folder)
		if f.Kernel == "" || u.Kernel == "" || f.Kernel == u.Kernel {
			all = append(all, u)
		}
	}
	return all, err
}

// readJSON reports whether a file could be read.
func readJSON(file string, into any) bool {
	text, err := os.ReadFile(file)
	return err == nil && json.Unmarshal(text, into) == nil
}

// evaluationsIn counts the evaluations of the journals of a search; each has a line before them.
func evaluationsIn(folder string) int {
	n := 0
	for _, pattern := range []string{run.TuneJournal, filepath.Join("*", run.TuneJournal)} {
		journals, _ := filepath.Glob(filepath.Join(folder, pattern)) // only a pattern can be wrong
		for _, journal := range journals {
			text, _ := os.ReadFile(journal) // one that cannot be read has none
			n += max(0, bytes.Count(text, []byte("\n"))-1)
		}
	}
	return n
}

// print lists the tunings below the runs.
func (s searches) print(ctx context.Context, a *app, kept *ledger.Ledger, o historyOptions, below bool) error {
	if below && len(s.finished)+len(s.unfinished) > 0 {
		fmt.Fprintln(a.stdout)
	}
	short, err := kept.ShortIDs(ctx)
	switch {
	case err != nil || len(s.finished) == 0:
	case o.markdown:
		err = report.TuningsMarkdown(a.stdout, s.finished)
	default:
		err = report.Tunings(a.stdout, s.finished, short, a.screen())
	}
	if err != nil {
		return err
	}
	if len(s.finished) < s.total {
		fmt.Fprintf(a.stdout, "%d of %d tunings; --all lists the others\n", len(s.finished), s.total)
	}
	for _, u := range s.unfinished {
		name := u.Variant
		if u.Selection != "" {
			name = "selection " + u.Selection
		}
		if name != "" {
			name = " of " + name
		}
		state := fmt.Sprintf("the same `attune tune` with --resume continues it, `attune ledger remove %s` removes it", u.ID)
		if u.Running {
			state = "it runs"
		}
		a.screen().Paragraph(a.stdout, "", fmt.Sprintf("unfinished: tuning %s%s, after %s; %s",
			u.ID, name, counted(u.Evaluations, "evaluation", "evaluations"), state), 2)
	}
	return nil
}
