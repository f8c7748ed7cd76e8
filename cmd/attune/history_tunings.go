package main

import (
	"context"
	"fmt"

	"attune/internal/catalog"
	"attune/internal/document"
	"attune/internal/ledger"
)

// searches are the tunings of a ledger that a list shows.
type searches struct {
	finished   []catalog.TuningEntry
	total      int // of finished ones, before the limit
	unfinished []catalog.UnfinishedSearch
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
		if e, err := catalog.Search(ctx, kept, id); err != nil {
			a.note(err.Error())
		} else if catalog.Passes(o.filter, e) {
			all.finished = append(all.finished, e)
		}
	}
	if all.total = len(all.finished); o.most(a.json) > 0 {
		all.finished = all.finished[:min(all.total, o.most(a.json))]
	}
	unfinished, err := catalog.Unfinished(kept)
	all.unfinished = catalog.PassingUnfinished(o.filter, unfinished)
	return all, err
}

// print lists the tunings below the runs.
func (s searches) print(ctx context.Context, a *app, kept *ledger.Ledger, o historyOptions, below bool) error {
	if below && len(s.finished)+len(s.unfinished) > 0 {
		fmt.Fprintln(a.stdout)
	}
	short, err := kept.ShortIDs(ctx)
	if err == nil && len(s.finished) > 0 {
		err = a.printDocument(document.Tunings(s.finished, short), o.markdown)
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
