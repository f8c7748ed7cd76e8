package main

import (
	"context"
	"fmt"

	"attune/internal/catalog"
	"attune/internal/document"
	"attune/internal/ledger"
)

// listChampions is `attune list champions`. Champions are in the ledger and not in the kernel's
// folder, so plain `attune list` does not print them. The JSON document has every change too.
func (a *app) listChampions(ctx context.Context) error {
	kept, err := a.openLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	entries, err := kept.List(ctx, ledger.Filter{})
	if err != nil {
		return err
	}
	champions, err := catalog.ReadChampions(ctx, kept, entries)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(champions)
	}
	if len(champions.Champions) == 0 {
		_, err := fmt.Fprintf(a.stdout, "no champions in %s; `attune promote RUN` makes one\n", a.ledgerPath())
		return err
	}
	for _, c := range champions.Champions {
		if err := a.printDocument(document.Champion(c.Champion, c.Verdict), false); err != nil {
			return err
		}
	}
	return nil
}

// championRuns returns the architectures of the present champions by their runs. A damaged record
// of a champion must not fail a list of runs, so it is only reported.
func (a *app) championRuns(ctx context.Context, kept *ledger.Ledger) catalog.ChampionRuns {
	champions, err := catalog.ReadChampions(ctx, kept, nil)
	if err != nil {
		fmt.Fprintf(a.stderr, "attune: champions are not marked: %v\n", err)
	}
	return champions.Runs()
}
