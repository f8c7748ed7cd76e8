package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"attune/internal/ledger"
)

func (a *app) ledgerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ledger",
		Short:   "check the ledger or rebuild its index",
		Example: "  attune ledger verify --ledger results",
		Args:    noSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.ledgerSubcommand("verify", "compare every file with its checksum, and the index with the runs", (*ledger.Ledger).Verify),
		a.ledgerSubcommand("reindex", "rebuild the index and remove unfinished recordings", (*ledger.Ledger).Reindex),
	)
	return cmd
}

// ledgerSubcommand makes a command that prints the report of one method of the ledger.
func (a *app) ledgerSubcommand(name, short string, method func(*ledger.Ledger, context.Context) (ledger.Report, error)) *cobra.Command {
	return &cobra.Command{
		Use:     name,
		Short:   short,
		Example: "  attune ledger " + name,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kept, err := a.openLedger(cmd.Context())
			if err != nil {
				return err
			}
			defer kept.Close()
			report, err := method(kept, cmd.Context())
			if err != nil {
				return err
			}
			return a.printLedgerReport(report)
		},
	}
}

// printLedgerReport prints the problems and the numbers of intact records. With a problem the exit
// code is 1.
func (a *app) printLedgerReport(r ledger.Report) error {
	problems := []string{}
	for _, p := range r.Problems {
		problems = append(problems, p.String())
	}
	if a.json {
		document := map[string]any{"schema_version": 1, "runs": r.Runs, "champions": r.Champions, "benches": r.Benches, "problems": problems}
		if err := a.printJSON(document); err != nil {
			return err
		}
	} else {
		for _, p := range problems {
			fmt.Fprintln(a.stdout, p)
		}
		line := counted(r.Runs, "run", "runs")
		if r.Benches > 0 {
			line += ", " + counted(r.Benches, "bench", "benches")
		}
		if r.Champions > 0 {
			line += ", " + counted(r.Champions, "change", "changes") + " of champions"
		}
		fmt.Fprintf(a.stdout, "%s, %s\n", line, counted(len(problems), "problem", "problems"))
	}
	if len(problems) > 0 {
		return gateError{exitFailure}
	}
	return nil
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
