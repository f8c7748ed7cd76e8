package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"attune/internal/lab"
	"attune/internal/ledger"
	"attune/internal/report"
	"attune/internal/run"
)

type promoteOptions struct {
	changelog string
	tag       bool
}

func (a *app) promoteCommand() *cobra.Command {
	var o promoteOptions
	cmd := &cobra.Command{
		Use:   "promote RUN",
		Short: "make the variant of a run the champion of its architecture, on the run's evidence",
		Long: `Promote makes the variant of a recorded run the champion of the architecture that the run was made on (sm_90, sm_89 ...). It refuses, with the
reason, where the evidence is missing (no such run, no GPU, no times), stale (today's sources give other code than was measured) or negative
(the verdict is not merge); the exit code is then 1, and 2 where there is no such run. It builds the variant and runs nothing. Of a selection the
runs of all parts must be there and fresh, and today's table must give each part its shapes.

The ledger keeps every change of a champion; rollback returns to the one before. RUN is written as for show.`,
		Example: "  attune promote latest\n  attune promote 30323b --changelog --tag\n  attune promote 30323b --changelog=docs/CHANGES.md",
		Args:    exactly("RUN", "latest"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.promote(cmd.Context(), o, args[0]) },
	}
	changelogFlag(cmd, &o.changelog)
	cmd.Flags().BoolVar(&o.tag, "tag", false, "make an annotated git tag, such as champion/sm_90/stage2-20261115; the work tree must be clean")
	return cmd
}

// changelogFlag adds --changelog, which may go without a value.
func changelogFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "changelog", "", "write an entry with the figures into this file; --changelog alone is CHANGELOG.md here")
	cmd.Flags().Lookup("changelog").NoOptDefVal = "CHANGELOG.md"
}

func (a *app) promote(ctx context.Context, o promoteOptions, ref string) error {
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	kept, err := a.openLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	r, err := findRun(ctx, kept, ref)
	if err != nil {
		return err
	}
	images, _, err := a.builder(ctx, folder)
	if err != nil {
		return err
	}
	status := a.status()
	defer status.Clear()
	status.Set("building %s for %s", r.Variant, r.Arch)
	if err := (&lab.Lab{Kernel: kernel, Builder: images, Ledger: kept}).CheckPromotion(ctx, r); err != nil {
		return interruptedWith(ctx, err, "nothing was promoted")
	}
	// What may fail is tried before the champion is changed.
	var tag *gitTag
	if o.tag {
		if tag, err = a.newTag(ctx, r); err != nil {
			return fmt.Errorf("--tag: %w; nothing was promoted", err)
		}
	}
	if err := readable(o.changelog); err != nil {
		return err
	}
	c, err := kept.Promote(ctx, ledger.Champion{
		Kernel: r.Kernel, Arch: r.Facts.Arch, Variant: r.Variant, Run: r.ID, CodeHash: r.CodeHash, Attune: version(),
	})
	if err != nil {
		return interruptedWith(ctx, err, "nothing was promoted")
	}
	status.Clear()
	document := map[string]any{}
	if tag != nil {
		if err := tag.make(ctx, report.Figures(r)); err != nil {
			return fmt.Errorf("%s is the champion of %s now, but the tag %s was not made: %w", c.Variant, c.Arch, tag.name, err)
		}
		document["tag"] = tag.name
	}
	return a.printChange(c, r, o.changelog, document)
}

// interruptedWith is the error of work that the caller may have ended.
func interruptedWith(ctx context.Context, err error, left string) error {
	if ctx.Err() != nil {
		return errors.New("interrupted; " + left)
	}
	return err
}

// printChange writes the entry of the changelog, and says what has changed.
func (a *app) printChange(c ledger.Champion, r *run.Run, changelog string, document map[string]any) error {
	if changelog != "" {
		if err := addToChangelog(changelog, report.ChangelogEntry(c, r)); err != nil {
			return fmt.Errorf("%s is the champion of %s now, but %s has no entry of it: %w", c.Variant, c.Arch, changelog, err)
		}
		document["changelog"] = changelog
	}
	if a.json {
		document["schema_version"], document["champion"] = 1, c
		return a.printJSON(document)
	}
	before := "the first one"
	if c.Previous != nil {
		before = "before it " + c.Previous.Variant
	}
	fmt.Fprintf(a.stdout, "champion of %s: %s, %s\n", c.Arch, c.Variant, before)
	fmt.Fprintf(a.stdout, "  %-10s %s\n  %-10s %s\n  %-10s %s\n", "figures", report.Figures(r), "run", c.Run, "record", c.ID)
	for _, what := range []string{"tag", "changelog"} {
		if document[what] != nil {
			fmt.Fprintf(a.stdout, "  %-10s %s\n", what, document[what])
		}
	}
	return nil
}

// readable refuses a changelog that could not be read later on. One that is not there will be made.
func readable(changelog string) error {
	if changelog == "" {
		return nil
	}
	if _, err := os.ReadFile(changelog); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return usageError{fmt.Errorf("--changelog: %w", err)}
	}
	if _, err := os.Stat(filepath.Dir(changelog)); err != nil {
		return usageError{fmt.Errorf("--changelog: %w", err)}
	}
	return nil
}

func addToChangelog(file, entry string) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm()
	}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(file, []byte(report.AddToChangelog(string(text), entry)), mode)
}
