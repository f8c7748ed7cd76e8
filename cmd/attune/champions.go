package main

import (
	"context"
	"fmt"

	"attune/internal/ledger"
	"attune/internal/report"
)

// listChampions is `attune list champions`. Champions are in the ledger and not in the kernel's
// folder, so plain `attune list` does not print them. The JSON document has every change too.
func (a *app) listChampions(ctx context.Context) error {
	kept, err := a.openLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	changes, err := kept.Champions(ctx)
	if err != nil {
		return err
	}
	entries, err := kept.List(ctx, ledger.Filter{})
	if err != nil {
		return err
	}
	verdicts := map[string]string{}
	for _, e := range entries {
		verdicts[e.ID] = e.Verdict
	}
	if a.json {
		type champion struct {
			ledger.Champion
			Verdict string `json:"verdict,omitempty"` // of the run; empty if the ledger does not have it
		}
		champions := []champion{}
		for _, c := range changes.Now() {
			champions = append(champions, champion{c, verdicts[c.Run]})
		}
		return a.printJSON(map[string]any{"schema_version": 1, "champions": champions, "changes": append([]ledger.Champion{}, changes...)})
	}
	if len(changes) == 0 {
		_, err := fmt.Fprintf(a.stdout, "no champions in %s; `attune promote RUN` makes one\n", a.ledgerPath())
		return err
	}
	for _, c := range changes.Now() {
		if err := report.Champion(a.stdout, c, verdicts[c.Run], a.screen()); err != nil {
			return err
		}
	}
	return nil
}

// championRuns returns the architectures of the present champions by their runs. A damaged record
// of a champion must not fail a list of runs, so it is only reported.
func (a *app) championRuns(ctx context.Context, kept *ledger.Ledger) report.Champions {
	runs := report.Champions{}
	all, err := kept.Champions(ctx)
	if err != nil {
		fmt.Fprintf(a.stderr, "attune: champions are not marked: %v\n", err)
	}
	for _, c := range all.Now() {
		runs[c.Run] = c.Arch
	}
	return runs
}
