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
		Short:   "care of the records: verify, reindex",
		Example: "  attune ledger verify --ledger results",
		Args:    noSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.ledgerCare("verify", "check every file of every run, bench and champion against its hash, and the index against the runs", (*ledger.Ledger).Verify),
		a.ledgerCare("reindex", "build the index anew from the runs, and clear away what dead processes left", (*ledger.Ledger).Reindex),
	)
	return cmd
}

func (a *app) ledgerCare(name, short string, care func(*ledger.Ledger, context.Context) (ledger.Report, error)) *cobra.Command {
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
			report, err := care(kept, cmd.Context())
			if err != nil {
				return err
			}
			return a.printCare(report)
		},
	}
}

func (a *app) printCare(report ledger.Report) error {
	problems := []string{}
	for _, p := range report.Problems {
		problems = append(problems, p.String())
	}
	if a.json {
		if err := a.printJSON(map[string]any{"schema_version": 1, "runs": report.Runs, "champions": report.Champions, "benches": report.Benches, "problems": problems}); err != nil {
			return err
		}
	} else {
		for _, p := range problems {
			fmt.Fprintln(a.stdout, p)
		}
		champions := ""
		if report.Champions > 0 {
			champions = counted(report.Champions, "change") + " of champions, "
		}
		benches := ""
		switch report.Benches {
		case 0:
		case 1:
			benches = "1 bench, "
		default:
			benches = fmt.Sprintf("%d benches, ", report.Benches)
		}
		fmt.Fprintf(a.stdout, "%s, %s%s%s\n", counted(report.Runs, "run"), benches, champions, counted(len(problems), "problem"))
	}
	if len(problems) > 0 {
		return gateError{exitFailure}
	}
	return nil
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
