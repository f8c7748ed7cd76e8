package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"attune/internal/document"
	"attune/internal/lab"
	"attune/internal/ledger"
	"attune/internal/run"
)

func (a *app) promoteCommand() *cobra.Command {
	var changelog string
	var tag bool
	cmd := &cobra.Command{
		Use:   "promote RUN",
		Short: "make the variant of a run the champion of its architecture",
		Long: `Promote makes the variant of a recorded run the champion of the architecture
that the run was made on (sm_90, sm_89, ...). It builds the variant and runs
nothing. It refuses a run, with the reason, if its evidence is

  missing   no GPU, no times, or no times of a benchmark shape
  stale     today's sources give other code than the run measured
  negative  the verdict is not merge

For a selection, the runs of all parts must be in the ledger and not stale, and
today's table must assign each part its shapes.

The ledger keeps every change of a champion: list champions shows them, and
rollback returns to the one before. --tag marks the sources in git too, with an
annotated tag such as champion/sm_90/stage2-20261115. RUN is written as for
show.`,
		Example: "  attune promote latest\n  attune promote 30323b --changelog --tag\n  attune promote 30323b --changelog=docs/CHANGES.md",
		Args:    exactly("RUN", "latest"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.promote(cmd.Context(), args[0], changelog, tag)
		},
	}
	changelogFlag(cmd, &changelog)
	cmd.Flags().BoolVar(&tag, "tag", false, "make a git tag with the figures; the work tree must be clean")
	return cmd
}

// changelogFlag adds --changelog, whose value is optional.
func changelogFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "changelog", "", "add an entry with the figures to this `file` (without a value: CHANGELOG.md)")
	cmd.Flags().Lookup("changelog").NoOptDefVal = "CHANGELOG.md"
}

func (a *app) promote(ctx context.Context, ref, changelog string, tagged bool) error {
	const unchanged = "nothing was promoted"
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	kept, err := a.openRecordingLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	r, err := a.findRun(ctx, kept, ref)
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
		return interruptedWith(ctx, err, unchanged)
	}
	before, err := readChangelog(changelog) // whatever may fail comes before the change
	if err != nil {
		return err
	}
	var tag *gitTag
	if tagged {
		if tag, err = a.newTag(ctx, r); err != nil {
			return interruptedWith(ctx, fmt.Errorf("--tag: %w; %s", err, unchanged), unchanged)
		}
	}
	c, err := kept.Promote(ctx, ledger.Champion{
		Kernel: r.Kernel, Arch: r.Facts.Arch, Variant: r.Variant, Run: r.ID, CodeHash: r.CodeHash, Attune: version(),
	})
	if err != nil {
		return interruptedWith(ctx, err, unchanged)
	}
	status.Clear()
	if tag == nil {
		return a.printChange(c, r, changelog, before, "")
	}
	if err := tag.make(ctx, r); err != nil {
		return fmt.Errorf("%s is now the champion of %s, but the tag %s is missing: %w", c.Variant, c.Arch, tag.name, err)
	}
	return a.printChange(c, r, changelog, before, tag.name)
}

// interruptedWith replaces the error of work that the user interrupted. left says what the
// interruption left behind.
func interruptedWith(ctx context.Context, err error, left string) error {
	if ctx.Err() != nil {
		return errors.New("interrupted; " + left)
	}
	return err
}

// printChange adds an entry to the changelog, if there is one, and prints the new champion. before
// is the text of the changelog. tag is the name of a tag that was made, or empty.
func (a *app) printChange(c ledger.Champion, r *run.Run, changelog, before, tag string) error {
	described := map[string]any{"schema_version": 1, "champion": c, "verdict": r.Verdict}
	if tag != "" {
		described["tag"] = tag
	}
	if changelog != "" {
		after := document.AddToChangelog(before, document.ChangelogEntry(c, r))
		if err := os.WriteFile(changelog, []byte(after), 0o644); err != nil {
			return fmt.Errorf("%s is now the champion of %s, but its entry in the changelog is missing: %w", c.Variant, c.Arch, err)
		}
		described["changelog"] = changelog
	}
	if a.json {
		return a.printJSON(described)
	}
	if err := a.printDocument(document.Champion(c, string(r.Verdict)), false); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "  figures    %s\n", document.Figures(r))
	if tag != "" {
		fmt.Fprintf(a.stdout, "  tag        %s\n", tag)
	}
	if changelog != "" {
		fmt.Fprintf(a.stdout, "  changelog  %s\n", changelog)
	}
	return nil
}

// readChangelog returns the text of a changelog. A missing file is empty; a missing folder is an
// error.
func readChangelog(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(filepath.Dir(file))
	}
	if err != nil {
		return "", usageError{fmt.Errorf("--changelog: %w", err)}
	}
	return string(text), nil
}
