package catalog

import (
	"context"

	"attune/internal/ledger"
)

// History is the document of `attune history --json`.
type History struct {
	SchemaVersion int                `json:"schema_version"`
	Runs          []HistoryEntry     `json:"runs"`
	Tunings       []TuningEntry      `json:"tunings"`
	Unfinished    []UnfinishedSearch `json:"unfinished_tunings"`
}

// HistoryEntry is a run in a history.
type HistoryEntry struct {
	ledger.Entry
	Champion string `json:"champion,omitempty"` // architecture whose champion was promoted on this run
}

// NewHistory describes runs and searches. No list of it is null.
func NewHistory(entries []ledger.Entry, champions ChampionRuns, finished []TuningEntry, unfinished []UnfinishedSearch) History {
	h := History{
		SchemaVersion: 1, Runs: []HistoryEntry{},
		Tunings: append([]TuningEntry{}, finished...), Unfinished: append([]UnfinishedSearch{}, unfinished...),
	}
	for _, e := range entries {
		h.Runs = append(h.Runs, HistoryEntry{e, champions[e.ID]})
	}
	return h
}

// Champions is the document of `attune list champions --json`.
type Champions struct {
	SchemaVersion int               `json:"schema_version"`
	Champions     []Champion        `json:"champions"` // the present ones
	Changes       []ledger.Champion `json:"changes"`
}

// Champion is a present champion.
type Champion struct {
	ledger.Champion
	Verdict string `json:"verdict,omitempty"` // of the run; empty if the ledger does not have it
}

// ReadChampions reads every champion, with the verdicts of their runs among the entries.
func ReadChampions(ctx context.Context, kept *ledger.Ledger, entries []ledger.Entry) (Champions, error) {
	c := Champions{SchemaVersion: 1, Champions: []Champion{}, Changes: []ledger.Champion{}}
	changes, err := kept.Champions(ctx)
	if err != nil {
		return c, err
	}
	verdicts := map[string]string{}
	for _, e := range entries {
		verdicts[e.ID] = e.Verdict
	}
	for _, now := range changes.Now() {
		c.Champions = append(c.Champions, Champion{now, verdicts[now.Run]})
	}
	c.Changes = append(c.Changes, changes...)
	return c, nil
}

// ChampionRuns maps the id of a run to the architecture whose champion was promoted on it.
type ChampionRuns map[string]string

// Runs are the architectures of the present champions by their runs.
func (c Champions) Runs() ChampionRuns {
	runs := ChampionRuns{}
	for _, now := range c.Champions {
		runs[now.Run] = now.Arch
	}
	return runs
}
