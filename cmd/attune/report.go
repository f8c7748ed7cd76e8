package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
	case o.device != "" && o.device != cudaDevice && o.device != simDevice:
		return fmt.Errorf("--device %s: the runs of a ladder are on %s or %s", o.device, cudaDevice, simDevice)
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
	_, err = fmt.Fprintf(a.stdout, "wrote %s and %s, with %s\n", filepath.ToSlash(filepath.Join(o.folder, document.MarkdownFile)),
		filepath.ToSlash(filepath.Join(o.folder, document.HTMLFile)), counted(len(files)-2, "plot", "plots"))
	return err
}

// document is the document that the options ask for.
func (a *app) document(ctx context.Context, kept *ledger.Ledger, o reportOptions, args []string) (*document.Document, error) {
	reader := a.reader(kept)
	switch {
	case o.ladder:
		return a.ladderDocument(ctx, reader, o.device)
	case o.tune != "":
		return a.tuningDocument(ctx, reader, o.tune)
	case len(args) == 0:
		args = []string{"latest"}
	}
	if len(args) == 1 {
		return a.recordDocument(ctx, reader, args[0])
	}
	var ids []string
	for _, ref := range args {
		entry, err := a.findEntry(ctx, kept, ref)
		if alone := new(ledger.RefError); errors.As(err, &alone) && cmp.Or(alone.Bench, alone.Tuning) != "" {
			return nil, usageError{fmt.Errorf("%w, and `attune report %s` reports on it alone", err, ref)}
		}
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
	if len(study.Runs) == 0 && len(study.LeftOut) > 0 {
		return nil, fmt.Errorf("no run of a stage of %s on %s can be read: %s", kernel.Name, device, strings.Join(study.LeftOut, "; "))
	}
	if len(study.Runs) == 0 {
		return nil, usageError{fmt.Errorf("no run of a stage of %s on %s in %s; `attune run` makes one", kernel.Name, device, a.ledgerPath())}
	}
	if !slices.ContainsFunc(study.Runs, func(r *run.Run) bool { return len(r.Performance) > 0 }) {
		return nil, usageError{fmt.Errorf("no run of a stage of %s on %s was timed, and a ladder compares times; `attune history --ladder --device %s` lists the runs, "+
			"and `attune report RUN` reports on one", kernel.Name, device, device)}
	}
	return study.Document()
}

// reader reads records for a report whose commands name the ledger and the kernel's folder, where they
// are not the default.
func (a *app) reader(kept *ledger.Ledger) document.Reader {
	commands := document.Commands{KernelFolder: a.kernelFolder}
	if a.ledgerDir != "" {
		commands.Ledger = run.ShellWord(filepath.ToSlash(a.ledgerDir))
	}
	return document.Reader{Ledger: kept, Commands: commands}
}

// kernelFolder is the folder of a kernel for --kernel, or empty if commands find the kernel without it:
// the folder that was given, or one of that name in a checkout of attune.
func (a *app) kernelFolder(name string) (folder string, known bool) {
	is := func(path string) bool {
		kernel, _, err := (&app{kernelDir: path}).kernel()
		return err == nil && kernel.Name == name
	}
	if a.kernelDir != "" && is(a.kernelDir) {
		return run.ShellWord(filepath.ToSlash(a.kernelDir)), true
	}
	candidates := []string{""}
	if filepath.Base(name) == name && filepath.IsLocal(name) { // a record may have any name
		for _, dir := range []string{filepath.Join(defaultKernelPath, "attention"), filepath.Join(defaultKernelPath, "quantize"), "examples"} {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	for _, path := range candidates {
		if is(path) {
			return run.ShellWord(filepath.ToSlash(path)), true
		}
	}
	return "", false
}

// tuningDocument is the document on a search.
func (a *app) tuningDocument(ctx context.Context, reader document.Reader, ref string) (*document.Document, error) {
	ids, err := reader.Ledger.Tunings()
	if err != nil {
		return nil, err
	}
	entry, err := a.find(ctx, reader.Ledger, ref)
	var unknown *ledger.RefError
	matches := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !strings.HasPrefix(id, ref) && !strings.HasSuffix(id, ref) })
	switch {
	case errors.As(err, &unknown) && unknown.Tuning != "":
		return a.recordDocument(ctx, reader, unknown.Tuning)
	case len(matches) == 1:
		return a.recordDocument(ctx, reader, matches[0])
	case err == nil:
		return nil, usageError{fmt.Errorf("%s is a run, not a search; `attune report %s` reports on it", entry.ID, ref)}
	case unknown == nil:
		return nil, err
	case unknown.Bench != "":
		return nil, usageError{fmt.Errorf("%s is a bench, not a search; `attune report %s` reports on it", unknown.Bench, ref)}
	case len(ids) == 0:
		return nil, usageError{errors.New("the ledger has no tunings; `attune tune` makes one")}
	case len(matches) > 1:
		return nil, usageError{fmt.Errorf("search %q is ambiguous; it may be %s", ref, strings.Join(matches[:min(len(matches), mostNamed)], ", "))}
	}
	return nil, usageError{fmt.Errorf("no search %q; the newest are %s", ref, strings.Join(ids[:min(len(ids), mostNamed)], ", "))}
}

// mostNamed is how many searches an error names.
const mostNamed = 3

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
		return reader.TuningDocument(ctx, unknown.Tuning)
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
	d, err := a.runsDocument(context.WithoutCancel(ctx), a.reader(kept), ids)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	page, err := d.Page()
	if err != nil {
		return err
	}
	if err := document.WriteFile(path, page); err != nil {
		return err
	}
	a.wrote(path)
	return nil
}
