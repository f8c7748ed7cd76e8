package main

import (
	"context"
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"attune/internal/ledger"
	"attune/internal/report"
	"attune/internal/run"
)

func (a *app) showCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "show RUN",
		Short: "print one recorded run",
		Long: `Show prints a run as it was recorded. RUN is its id, the beginning or the end of it where no other run has the same, or "latest".
Files are checked against their hashes.`,
		Example: "  attune show latest\n  attune show 3f9a1c --file report.md",
		Args:    exactly("RUN", "latest"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.show(cmd.Context(), args[0], file) },
	}
	cmd.Flags().StringVar(&file, "file", "", "print this file of the run: run.json, samples.json, ptxas.log, report.md")
	return cmd
}

func (a *app) show(ctx context.Context, ref, file string) error {
	kept, err := a.openLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	entry, err := findEntry(ctx, kept, ref)
	if err != nil {
		return err
	}
	if a.json && file != "" {
		return usageError{errors.New("--json prints run.json, and --file another; give one of them")}
	}
	if a.json {
		file = "run.json"
	}
	if file != "" {
		text, err := kept.Read(ctx, entry.ID, file)
		if errors.Is(err, fs.ErrNotExist) {
			return usageError{err}
		}
		if err == nil {
			_, err = a.stdout.Write(text)
		}
		return err
	}
	r, err := readRun(ctx, kept, entry.ID)
	if err != nil {
		return err
	}
	return report.Text(a.stdout, r)
}

// findEntry finds the run that a reference names. One that names none is a mistake of the caller.
func findEntry(ctx context.Context, kept *ledger.Ledger, ref string) (ledger.Entry, error) {
	entry, err := kept.Find(ctx, ref)
	var unknown *ledger.RefError
	if errors.As(err, &unknown) {
		return entry, usageError{err}
	}
	return entry, err
}

func findRun(ctx context.Context, kept *ledger.Ledger, ref string) (*run.Run, error) {
	entry, err := findEntry(ctx, kept, ref)
	if err != nil {
		return nil, err
	}
	return readRun(ctx, kept, entry.ID)
}

func readRun(ctx context.Context, kept *ledger.Ledger, id string) (*run.Run, error) {
	text, err := kept.Read(ctx, id, "run.json")
	if err != nil {
		return nil, err
	}
	return run.Decode(text)
}
