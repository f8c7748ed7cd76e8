package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"attune/internal/document"
	"attune/internal/ledger"
	"attune/internal/run"
)

type reportOptions struct {
	folder, device string
	ladder         bool
	tune           string
}

func (a *app) reportCommand() *cobra.Command {
	var o reportOptions
	cmd := &cobra.Command{
		Use:   "report [RUN...]",
		Short: "write a document with plots on runs, the ladder, a bench, a search",
		Long: `Report writes a document from the ledger into a folder: report.md with its plots
as SVG files, which GitHub shows, and report.html, one page with everything in
it that needs no script and no network.

RUN names a run, a bench or a tuning as for attune show; without one it is the
latest run. Several runs make one document. With --ladder the document is on the
newest timed run of each stage and selection of the kernel.

A run's document has the verdict and its cause, resources, the correctness of
every shape, seed and input, times with intervals over processes and energy, the
required speedup, peers, profile and roofline, the history over the stages, what
was tried, next steps, the build record, and the commands that repeat it. Every
figure names the record and the key that it comes from.

A folder may have other files. Those of an earlier report are replaced.`,
		Example: `  attune report latest -o out
  attune report --ladder --ledger results -o out
  attune report 448d06 64f3ef --ledger results -o out
  attune report --tune latest-tuning -o out`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.report(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.folder, "output", "o", "report", "write into this `folder`")
	f.BoolVar(&o.ladder, "ladder", false, "report on the ladder of stages")
	f.StringVar(&o.device, "device", "", "device of the ladder's runs: cuda or sim (default: cuda)")
	f.StringVar(&o.tune, "tune", "", "report on this `tuning`")
	return cmd
}

func (o reportOptions) check(args []string) error {
	switch {
	case o.ladder && (len(args) > 0 || o.tune != ""):
		return errors.New("--ladder reports on every stage; it goes with no RUN and no --tune")
	case o.tune != "" && len(args) > 0:
		return errors.New("--tune reports on one search; it goes with no RUN")
	case o.device != "" && !o.ladder:
		return errors.New("--device chooses the runs of --ladder; give both")
	case o.folder == "":
		return errors.New("-o needs the name of a folder")
	}
	return nil
}

func (a *app) report(ctx context.Context, o reportOptions, args []string) error {
	if err := o.check(args); err != nil {
		return usageError{err}
	}
	kept, err := a.readLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	d, err := a.document(ctx, kept, o, args)
	if err != nil {
		return err
	}
	files, err := d.Files()
	if err != nil {
		return err
	}
	if err := document.Write(o.folder, files); err != nil {
		return usageError{err}
	}
	names := slices.Sorted(maps.Keys(files))
	for i, name := range names {
		names[i] = filepath.ToSlash(filepath.Join(o.folder, name))
	}
	if a.json {
		return a.printJSON(map[string]any{"schema_version": 1, "title": d.Title.String(), "files": names})
	}
	for _, line := range d.Headline {
		a.screen().Paragraph(a.stdout, "", line.String(), 2)
	}
	_, err = fmt.Fprintf(a.stdout, "wrote %s and %s, with %d plots\n",
		filepath.ToSlash(filepath.Join(o.folder, document.MarkdownFile)), filepath.ToSlash(filepath.Join(o.folder, document.HTMLFile)), len(files)-2)
	return err
}

// document is the document that the options ask for.
func (a *app) document(ctx context.Context, kept *ledger.Ledger, o reportOptions, args []string) (*document.Document, error) {
	reader := document.Reader{Ledger: kept}
	switch {
	case o.ladder:
		return a.ladderDocument(ctx, reader, o.device)
	case o.tune != "":
		return a.recordDocument(ctx, reader, o.tune)
	case len(args) == 0:
		args = []string{"latest"}
	}
	if len(args) == 1 {
		return a.recordDocument(ctx, reader, args[0])
	}
	var ids []string
	for _, ref := range args {
		entry, err := a.findEntry(ctx, kept, ref)
		if err != nil {
			return nil, err
		}
		if slices.Contains(ids, entry.ID) {
			return nil, usageError{fmt.Errorf("%s names run %s a second time; name each run once", ref, entry.ID)}
		}
		ids = append(ids, entry.ID)
	}
	return a.runsDocument(ctx, reader, ids)
}

func (a *app) ladderDocument(ctx context.Context, reader document.Reader, device string) (*document.Document, error) {
	kernel, _, err := a.kernel()
	if err != nil {
		return nil, err
	}
	if device == "" {
		device = cudaDevice
	}
	study, err := reader.Ladder(ctx, kernel, device)
	if err != nil {
		return nil, err
	}
	if len(study.Runs) == 0 {
		return nil, usageError{fmt.Errorf("no run of a stage of %s on %s in %s; `attune run` makes one", kernel.Name, device, a.ledgerPath())}
	}
	return study.Document()
}

// recordDocument is the document on one record: a run, a bench or a tuning.
func (a *app) recordDocument(ctx context.Context, reader document.Reader, ref string) (*document.Document, error) {
	entry, err := a.find(ctx, reader.Ledger, ref)
	var unknown *ledger.RefError
	switch {
	case errors.As(err, &unknown) && unknown.Bench != "":
		study, err := reader.Bench(ctx, unknown.Bench)
		if err != nil {
			return nil, err
		}
		return study.Document(), nil
	case errors.As(err, &unknown) && unknown.Tuning != "":
		study, err := reader.Tuning(ctx, unknown.Tuning)
		if err != nil {
			return nil, err
		}
		return study.Document(), nil
	case errors.As(err, &unknown):
		return nil, usageError{err}
	case err != nil:
		return nil, err
	}
	return a.runsDocument(ctx, reader, []string{entry.ID})
}

func (a *app) runsDocument(ctx context.Context, reader document.Reader, ids []string) (*document.Document, error) {
	var studies []*document.RunStudy
	for _, id := range ids {
		study, err := reader.Run(ctx, id)
		if err != nil {
			return nil, err
		}
		studies = append(studies, study)
	}
	return document.Runs(studies), nil
}

// checkHTML checks a path for a page before the work, so that a wrong one costs none of it.
func checkHTML(path string) error {
	if path == "" {
		return nil
	}
	_, err := os.Stat(filepath.Dir(path))
	if err := errors.Join(err, document.Replaceable(path)); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return nil
}

// writeHTML writes a report on the runs of a command as one page, also after an interruption.
func (a *app) writeHTML(ctx context.Context, kept *ledger.Ledger, path string, runs []*run.Run) error {
	if path == "" || len(runs) == 0 {
		return nil
	}
	var ids []string
	for _, r := range runs {
		ids = append(ids, r.ID)
	}
	d, err := a.runsDocument(context.WithoutCancel(ctx), document.Reader{Ledger: kept}, ids)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	page, err := d.Page()
	if err != nil {
		return err
	}
	return document.WriteFile(path, page)
}
