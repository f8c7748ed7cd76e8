package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"attune/internal/catalog"
	"attune/internal/document"
	"attune/internal/ledger"
	"attune/internal/run"
)

type showOptions struct {
	file              string
	markdown, byShape bool
}

func (a *app) showCommand() *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use:   "show RUN",
		Short: "print one recorded run, bench or tuning",
		Long: `Show prints a recorded run, bench or tuning: the headline, the gates, then all
figures. RUN is an id, the beginning or the end of one if it is unique, "latest"
for the newest run (with --kernel of that kernel), "latest-bench" or
"latest-tuning". Files are checked against their hashes; changes of files that
are not printed are noted.`,
		Example: "  attune show latest\n  attune show 3f9a1c --file report.md\n  attune show latest-bench --by-shape --markdown --ledger results",
		Args:    exactly("RUN", "latest"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.show(cmd.Context(), args[0], o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.file, "file", "", "print this file of the record: run.json, bench.json or tuning.json, samples.json, report.md, ptxas.log, journal.jsonl")
	f.BoolVar(&o.markdown, "markdown", false, "print it as Markdown")
	f.BoolVar(&o.byShape, "by-shape", false, "one line per shape, of a bench")
	return cmd
}

func (a *app) show(ctx context.Context, ref string, o showOptions) error {
	if a.json && o.file != "" {
		return usageError{errors.New("--json prints run.json and --file another file; give one of them")}
	}
	if (a.json || o.file != "") && (o.markdown || o.byShape) {
		return usageError{errors.New("--json and --file print recorded files; --markdown and --by-shape do not go with them")}
	}
	kept, err := a.readLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	entry, err := a.find(ctx, kept, ref)
	var unknown *ledger.RefError
	switch {
	case errors.As(err, &unknown) && unknown.Bench != "":
		return a.showBench(ctx, kept, unknown.Bench, o)
	case errors.As(err, &unknown) && unknown.Tuning != "":
		return a.showTuning(ctx, kept, unknown.Tuning, o)
	case errors.As(err, &unknown):
		return usageError{err}
	case err != nil:
		return err
	case o.byShape:
		return usageError{fmt.Errorf("--by-shape is for benches, and %s is a run", entry.ID)}
	}
	a.noteUnsealed(kept, entry.ID)
	if a.json {
		o.file = "run.json"
	}
	if o.file != "" {
		return a.showFile(kept.Read(ctx, entry.ID, o.file))
	}
	r, err := catalog.Run(ctx, kept, entry.ID)
	if err != nil {
		return err
	}
	a.noteDamage(kept, entry.ID)
	return a.printDocument((&document.RunStudy{Run: r}).Document(), o.markdown)
}

// printDocument writes a document as Markdown or for the screen.
func (a *app) printDocument(d *document.Document, markdown bool) error {
	if !markdown {
		return d.Terminal(a.stdout, a.screen())
	}
	_, err := a.stdout.Write(d.WithoutFigures().Markdown())
	return err
}

func (a *app) showBench(ctx context.Context, kept *ledger.Ledger, id string, o showOptions) error {
	const file = "bench.json"
	a.noteUnsealed(kept, id)
	if a.json {
		o.file = file
	}
	if o.file != "" {
		return a.showFile(kept.ReadBench(ctx, id, o.file))
	}
	text, err := kept.ReadBench(ctx, id, file)
	if err != nil {
		return err
	}
	a.noteDamage(kept, id)
	b, err := run.DecodeBench(text)
	switch {
	case err != nil:
		return err
	case o.byShape:
		return a.printDocument(document.BenchByShape(b), o.markdown)
	}
	return a.printBench(b, o.markdown)
}

// showTuning prints a finished search.
func (a *app) showTuning(ctx context.Context, kept *ledger.Ledger, id string, o showOptions) error {
	if o.byShape {
		return usageError{fmt.Errorf("--by-shape is for benches, and %s is a tuning", id)}
	}
	a.noteUnsealed(kept, id)
	if a.json {
		o.file = run.TuningFile
	}
	if o.file != "" {
		return a.showFile(kept.ReadTuning(ctx, id, o.file))
	}
	text, err := kept.ReadTuning(ctx, id, run.TuningFile)
	if err != nil {
		return err
	}
	a.noteDamage(kept, id)
	selection, err := run.DecodeSelectionTuning(text)
	if err != nil {
		return err
	}
	if selection != nil {
		return a.showSelectionTuning(selection, o)
	}
	t, err := run.DecodeTuning(text)
	if err != nil {
		return err
	}
	study := &document.TuningStudy{Tuning: t, Complete: a.withKernelOf(t.Kernel)}
	return a.printDocument(study.Document(), o.markdown)
}

// withKernelOf completes commands about a kernel of a record, which does not have the kernel's folder.
func (a *app) withKernelOf(name string) func(string) string {
	if kernel, _, err := a.kernel(); err == nil && kernel.Name == name {
		return a.withKernel
	}
	elsewhere := *a
	elsewhere.kernelDir = "FOLDER_OF_" + strings.ToUpper(name)
	return elsewhere.withKernel
}

// noteUnsealed says on stderr that the chain does not vouch for a record.
func (a *app) noteUnsealed(kept *ledger.Ledger, id string) {
	if err := kept.Sealed(id); err != nil {
		a.note(err.Error())
	}
}

// noteDamage says on stderr that files of a record have changed, though not the printed one.
func (a *app) noteDamage(kept *ledger.Ledger, id string) {
	for _, p := range kept.Damage(id) {
		a.note(p.String())
	}
}

// showFile prints a file of a record. One that the record never had is a usage error.
func (a *app) showFile(text []byte, err error) error {
	if _, damaged := errors.AsType[*ledger.DamageError](err); errors.Is(err, fs.ErrNotExist) && !damaged {
		return usageError{err}
	}
	if err == nil {
		out := a.raw // as it is, for a program
		if a.screen().Height > 0 {
			out = a.stdout
		}
		_, err = out.Write(text)
	}
	return err
}

// find finds a run by its reference. With --kernel, "latest" is the newest run of that kernel.
func (a *app) find(ctx context.Context, kept *ledger.Ledger, ref string) (ledger.Entry, error) {
	if ref != "latest" || a.kernelDir == "" {
		return kept.Find(ctx, ref)
	}
	kernel, _, err := a.kernel()
	if err != nil {
		return ledger.Entry{}, err
	}
	entries, err := kept.List(ctx, ledger.Filter{Kernel: kernel.Name})
	if err == nil && len(entries) == 0 {
		if _, err := kept.Find(ctx, ref); err != nil {
			return ledger.Entry{}, err
		}
		err = usageError{fmt.Errorf("no run of %s in %s; attune history lists the runs of all kernels", kernel.Name, a.ledgerPath())}
	}
	if err != nil {
		return ledger.Entry{}, err
	}
	return entries[0], nil
}

// findEntry finds a run by its reference. An unknown reference is a usage error.
func (a *app) findEntry(ctx context.Context, kept *ledger.Ledger, ref string) (ledger.Entry, error) {
	entry, err := a.find(ctx, kept, ref)
	var unknown *ledger.RefError
	if errors.As(err, &unknown) {
		return entry, usageError{err}
	}
	return entry, err
}

func (a *app) findRun(ctx context.Context, kept *ledger.Ledger, ref string) (*run.Run, error) {
	entry, err := a.findEntry(ctx, kept, ref)
	if err != nil {
		return nil, err
	}
	return catalog.Run(ctx, kept, entry.ID)
}
