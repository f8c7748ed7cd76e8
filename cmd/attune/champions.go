package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"attune/internal/ledger"
	"attune/internal/report"
)

// championsCommand is `attune list champions`. Unlike the other lists it is of the ledger and not of the kernel.
func (a *app) championsCommand() *cobra.Command {
	var all, markdown bool
	cmd := &cobra.Command{
		Use:     "champions",
		Short:   "list the champion of each architecture, or every change of them",
		Example: "  attune list champions\n  attune list champions --all --ledger results",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.listChampions(cmd.Context(), all, markdown) },
	}
	cmd.Flags().BoolVar(&all, "all", false, "list every change, of each architecture the oldest first")
	cmd.Flags().BoolVar(&markdown, "markdown", false, "write a Markdown table")
	return cmd
}

func (a *app) listChampions(ctx context.Context, all, markdown bool) error {
	kept, err := a.openLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	changes, err := kept.Champions(ctx)
	if err != nil {
		return err
	}
	listed := changes.Now()
	if all {
		listed = changes
	}
	if a.json {
		return a.printJSON(map[string]any{"schema_version": 1, "champions": append([]ledger.Champion{}, listed...)})
	}
	if len(listed) == 0 {
		_, err := fmt.Fprintf(a.stdout, "no champions in %s; `attune promote RUN` makes one\n", a.ledgerPath())
		return err
	}
	return report.ChampionList(a.stdout, listed, markdown)
}

// championRuns says which runs the champions of today rest on. A list of runs is not to fail for a damaged record of a champion.
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
