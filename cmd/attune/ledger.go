package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"attune/internal/ledger"
)

func (a *app) ledgerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ledger",
		Short: "check the ledger, add or remove records, rebuild its index",
		Long: `A ledger chains its records: the file chain has one line for each record that
was added or removed, with a hash that depends on all lines before it. The hash
of the last line is the root. Verify reports a record that was rewritten,
removed, renamed or copied in, and a chain that was changed.

A forger can rewrite a record and every line behind it; the root is then another
one. Keep the root elsewhere, for example in git, and compare it by
verify --root.`,
		Example: "  attune ledger verify --ledger results",
		Args:    noSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.ledgerVerifyCommand(), a.ledgerReindexCommand(), a.ledgerSealCommand(), a.ledgerImportCommand(), a.ledgerRemoveCommand())
	return cmd
}

func (a *app) ledgerVerifyCommand() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "compare files with their checksums, and records with the chain",
		Long: `Verify compares every file with its checksum, every record with the chain, the
index with the runs, and the champions with each other and with their runs. It
names each problem with its path; the exit code is then 1. A ledger without any
record is a problem too, unless it has an unfinished search. Verify prints the
root of the chain. With --root it also fails if the records up to that root are
no longer the same; records that were added since are no problem.`,
		Example: "  attune ledger verify\n  attune ledger verify --ledger results --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("root") && !rootPattern.MatchString(root) {
				return usageError{fmt.Errorf("--root %q: want the 64 hex digits that verify prints", root)}
			}
			return a.withLedger(cmd.Context(), func(ctx context.Context, kept *ledger.Ledger) error {
				report, err := kept.Verify(ctx)
				if err != nil {
					return err
				}
				if len(report.Problems) == 0 && report.Links() == 0 && report.Unfinished == 0 { // without a chain any record is a problem
					report.Problems = []ledger.Problem{{File: "chain", What: fmt.Sprintf(
						"is missing, and %s has no records: none was finished yet. If there were some, restore them from git or a copy, or give another --ledger", a.ledgerPath())}}
				}
				return a.printVerified(report, root)
			})
		},
	}
	cmd.Flags().StringVar(&root, "root", "", "`hash` that an earlier verify printed as the root")
	return cmd
}

var rootPattern = regexp.MustCompile("^[0-9a-f]{64}$")

func (a *app) ledgerReindexCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "reindex",
		Short:   "rebuild the index and remove unfinished recordings",
		Example: "  attune ledger reindex",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withLedger(cmd.Context(), func(ctx context.Context, kept *ledger.Ledger) error {
				report, err := kept.Reindex(ctx)
				if err != nil {
					return err
				}
				return a.printLedgerReport(report, "", reportSummary(report))
			})
		},
	}
}

func (a *app) ledgerSealCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "seal",
		Short: "add records to the chain that it does not name yet",
		Long: `Seal adds every intact record that the chain does not name, the oldest first,
and lists them. It makes the chain of a ledger that has none. Check first where
the records come from: from then on verify trusts them as they are. A record
that the chain names is never sealed again; if its files have changed since, it
is named and the exit code is 1.`,
		Example: "  attune ledger seal\n  attune ledger seal --ledger results",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withLedger(cmd.Context(), func(ctx context.Context, kept *ledger.Ledger) error {
				report, err := kept.Seal(ctx)
				if err != nil {
					return err
				}
				return a.printLedgerReport(report, "sealed", reportSummary(report))
			})
		},
	}
}

func (a *app) ledgerImportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "import DIR...",
		Short: "copy records of another ledger into this one",
		Long: `Import copies records and adds them to the chain. DIR is the folder of one
record, such as .attune/runs/ID, or a whole ledger. Every file is checked, and
in a ledger with a chain the chain must name the record. If one is refused,
nothing is imported. Records that the ledger already has are skipped. A record
of a ledger without a chain is imported with a note.`,
		Example: "  attune ledger import .attune/runs/ID --ledger results\n  attune ledger import ../gpu/runs --ledger .attune",
		Args:    atLeastOne("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			kept, err := a.openRecordingLedger(cmd.Context())
			if err != nil {
				return err
			}
			defer kept.Close()
			report, err := kept.Import(cmd.Context(), args...)
			if err != nil {
				return err
			}
			for _, record := range report.Unchained {
				a.note(record + " comes from a ledger without a chain: only its own checksums show that it is as it was recorded")
			}
			return a.printLedgerReport(report, "imported", reportSummary(report))
		},
	}
}

func (a *app) ledgerRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove RECORD...",
		Short: "delete runs, benches or tunings, and say so in the chain",
		Long: `Remove deletes runs, benches and tunings. The chain keeps a line for each, so
verify tells a removal on purpose from a loss. RECORD is an id, the beginning or
end of one if it is unique, "latest", "latest-bench" or "latest-tuning". It may
be gone from the disk already. The run of a champion cannot be removed.`,
		Example: "  attune ledger remove 30323b\n  attune ledger remove 20261115-052709-stage2-30323b",
		Args:    atLeastOne("RECORD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLedger(cmd.Context(), func(ctx context.Context, kept *ledger.Ledger) error {
				return a.ledgerRemove(ctx, kept, args)
			})
		},
	}
}

func (a *app) ledgerRemove(ctx context.Context, kept *ledger.Ledger, refs []string) error {
	removed := []string{}
	for _, ref := range refs {
		record, err := kept.Remove(ctx, ref)
		var unknown *ledger.RefError
		if errors.As(err, &unknown) {
			return usageError{err}
		}
		if err != nil {
			return err
		}
		removed = append(removed, record)
		if !a.json {
			fmt.Fprintln(a.stdout, "removed "+record)
		}
	}
	if a.json {
		return a.printJSON(map[string]any{"schema_version": 1, "removed": removed})
	}
	return nil
}

// atLeastOne refuses a command line without arguments.
func atLeastOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s takes one %s or more, and got none; `%s --help` has examples", cmd.Name(), what, cmd.CommandPath())
		}
		return nil
	}
}

// withLedger opens an existing ledger for a subcommand and closes it.
func (a *app) withLedger(ctx context.Context, work func(context.Context, *ledger.Ledger) error) error {
	kept, err := a.readLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	return work(ctx, kept)
}

// printVerified compares the root with an earlier one, if one is given, and prints the report.
func (a *app) printVerified(r ledger.Report, root string) error {
	since, ok := r.Since(root)
	switch {
	case root != "" && !ok:
		r.Problems = append(r.Problems, ledger.Problem{File: "chain", What: fmt.Sprintf(
			"no line has the hash %s: what was recorded up to that root was changed or removed since", root)})
	case root != "" && since > 0 && !a.json:
		fmt.Fprintf(a.stdout, "%s since the given root\n", counted(since, "line was added", "lines were added"))
	}
	return a.printLedgerReport(r, "", verifiedSummary(r))
}

// verifiedSummary is the last line of verify. It counts only intact records, and says so where there
// are others; then it also says what to do, unless each problem does.
func verifiedSummary(r ledger.Report) string {
	if len(r.Problems) == 0 {
		return reportSummary(r)
	}
	text := fmt.Sprintf("%s; intact: %s", counted(len(r.Problems), "problem", "problems"), recordCounts(r))
	if slices.ContainsFunc(r.Problems, func(p ledger.Problem) bool { return !remedy.MatchString(p.What) }) {
		text += "\nrestore damaged files from git or a copy, or remove a record: `attune ledger remove ID`"
	}
	return text
}

// remedy is in the texts of problems that say what to do.
var remedy = regexp.MustCompile("restore |`attune ")

// reportSummary counts records and problems.
func reportSummary(r ledger.Report) string {
	return fmt.Sprintf("%s, %s", recordCounts(r), counted(len(r.Problems), "problem", "problems"))
}

// printLedgerReport prints what was done to which records, the problems, the summary and the root. With
// a problem the exit code is 1.
func (a *app) printLedgerReport(r ledger.Report, done, summary string) error {
	problems := []string{}
	for _, p := range r.Problems {
		problems = append(problems, p.String())
	}
	if a.json {
		document := map[string]any{"schema_version": 1, "runs": r.Runs, "champions": r.Champions, "benches": r.Benches, "tunings": r.Tunings, "problems": problems}
		if r.Root != "" {
			document["root"], document["links"] = r.Root, r.Links()
		}
		if done != "" {
			document[done] = append([]string{}, r.Added...)
		}
		if err := a.printJSON(document); err != nil {
			return err
		}
	} else {
		for _, record := range r.Added {
			fmt.Fprintln(a.stdout, done+" "+record)
		}
		for _, p := range problems {
			fmt.Fprintln(a.stdout, p)
		}
		fmt.Fprintln(a.stdout, summary)
		if r.Root != "" {
			fmt.Fprintf(a.stdout, "root %s\n", r.Root)
		}
	}
	if len(problems) > 0 {
		return gateError{exitFailure}
	}
	return nil
}

func recordCounts(r ledger.Report) string {
	line := counted(r.Runs, "run", "runs")
	if r.Benches > 0 {
		line += ", " + counted(r.Benches, "bench", "benches")
	}
	if r.Tunings > 0 {
		line += ", " + counted(r.Tunings, "tuning", "tunings")
	}
	if r.Champions > 0 {
		line += ", " + counted(r.Champions, "change", "changes") + " of champions"
	}
	return line
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
