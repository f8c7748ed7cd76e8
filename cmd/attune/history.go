package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"attune/internal/catalog"
	"attune/internal/document"
	"attune/internal/gate"
	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/spec"
)

type historyOptions struct {
	filter           ledger.Filter
	limit            int
	all              bool
	ladder, markdown bool
}

func (a *app) historyCommand() *cobra.Command {
	var o historyOptions
	cmd := &cobra.Command{
		Use:   "history",
		Short: "list the recorded runs and tunings, or the ladder of stages",
		Long: `History lists the last 20 runs of the ledger, the newest first; with --json all
of them. With --kernel it lists the runs of that kernel. Every command accepts
the short ids that it prints. Below it lists the tunings, and searches that are
not finished. A damaged run is named and left out. Of a long list only the
newest 200 runs are checked for damage; attune ledger verify checks all records.

With --ladder it shows the newest timed run of each stage and selection on a
device, in the order of the spec: the change from its parent, time, speedups,
resources, verdict, and the reason if the verdict is not merge. The run of a
champion is marked with the champion's architecture.

A listed time is a median without its interval. Runs of one process differ by up
to 1 % for no reason of the kernel; attune compare ID ID compares two runs.`,
		Example: "  attune history --stage stage2 --limit 10\n  attune history --all --verdict merge\n  attune history --ladder --markdown --ledger results",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("limit") && (o.limit < 1 || o.all) {
				return usageError{fmt.Errorf("--limit %d: want at least 1, and not with --all", o.limit)}
			}
			return a.history(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.filter.Variant, "variant", "", "only this variant")
	f.StringVar(&o.filter.Stage, "stage", "", "only this stage and its variants")
	f.StringVar(&o.filter.Verdict, "verdict", "", "only runs with this verdict")
	f.StringVar(&o.filter.Device, "device", "", "only runs on this device: cuda, sim or none (default: all; for --ladder: cuda)")
	f.IntVar(&o.limit, "limit", 0, "list at most this many runs (default: 20; with --json: all)")
	f.BoolVar(&o.all, "all", false, "list all runs")
	f.BoolVar(&o.ladder, "ladder", false, "show the ladder of stages")
	f.BoolVar(&o.markdown, "markdown", false, "write a Markdown table")
	return cmd
}

// recordedDevices are the devices of records.
var recordedDevices = []string{cudaDevice, simDevice, "none"}

func (a *app) history(ctx context.Context, o historyOptions) error {
	if v := gate.Verdict(o.filter.Verdict); v != "" && !slices.Contains(gate.Verdicts, v) {
		return usageError{fmt.Errorf("--verdict %q: there are %s", v, joined(gate.Verdicts))}
	}
	if d := o.filter.Device; d != "" && !slices.Contains(recordedDevices, d) {
		return usageError{fmt.Errorf("--device %q: there are %s", d, strings.Join(recordedDevices, ", "))}
	}
	if o.ladder && (o.filter.Variant != "" || o.filter.Stage != "" || o.filter.Verdict != "" || o.limit != 0 || o.all) {
		return usageError{errors.New("--ladder shows every stage; the only filter that goes with it is --device")}
	}
	kept, err := a.readLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	if o.ladder {
		return a.historyLadder(ctx, kept, o)
	}
	if a.kernelDir != "" {
		kernel, _, err := a.kernel()
		if err != nil {
			return err
		}
		o.filter.Kernel = kernel.Name
	}
	entries, total, err := a.historyRuns(ctx, kept, o)
	if err != nil {
		return err
	}
	tunings, err := a.historySearches(ctx, kept, o)
	if err != nil {
		return err
	}
	champions := a.championRuns(ctx, kept)
	if a.json {
		return a.printJSON(catalog.NewHistory(entries, champions, tunings.finished, tunings.unfinished))
	}
	if len(entries) == 0 && len(tunings.finished)+len(tunings.unfinished) == 0 {
		_, err := fmt.Fprintf(a.stdout, "no runs in %s\n", a.ledgerPath())
		return err
	}
	if err := a.printRuns(ctx, kept, entries, total, champions, o.markdown); err != nil {
		return err
	}
	return tunings.print(ctx, a, kept, o, len(entries) > 0)
}

// checkedRuns is how many listed runs are compared with their checksums. It takes 22 ms on two cores.
const checkedRuns = 200

// historyRuns returns the runs of the list and how many there are in total. It leaves out damaged ones
// and names them, as far as the ledger and the check of the newest runs find them.
func (a *app) historyRuns(ctx context.Context, kept *ledger.Ledger, o historyOptions) (entries []ledger.Entry, total int, err error) {
	if entries, err = kept.List(ctx, o.filter); err != nil {
		return nil, 0, err
	}
	damaged := kept.Unlisted()
	total = len(entries)
	if limit := o.most(a.json); limit > 0 {
		entries = entries[:min(limit, total)]
	}
	var ids []string
	for _, e := range entries[:min(len(entries), checkedRuns)] {
		ids = append(ids, e.ID)
	}
	unreadable, err := kept.Unreadable(ctx, ids)
	if err != nil {
		return nil, 0, err
	}
	for _, p := range unreadable {
		entries = slices.DeleteFunc(entries, func(e ledger.Entry) bool { return e.ID == p.Run })
	}
	damaged = append(damaged, unreadable...)
	for _, p := range damaged {
		a.note("left out: " + p.What)
	}
	if len(damaged) > 0 {
		a.note("`attune ledger verify` checks every file; restore damaged ones from git or a copy")
	}
	return entries, total - len(unreadable), nil
}

// printRuns prints the table of runs, of which there are more in total.
func (a *app) printRuns(ctx context.Context, kept *ledger.Ledger, entries []ledger.Entry, total int, champions catalog.ChampionRuns, markdown bool) error {
	if len(entries) == 0 {
		return nil
	}
	short, err := kept.ShortIDs(ctx)
	if err != nil {
		return err
	}
	document.ShowVerdicts(entries, func(id string) (*run.Run, error) { return catalog.Run(ctx, kept, id) })
	if err := a.printDocument(document.History(entries, champions, short, a.screen()), markdown); err != nil || markdown || len(entries) == total {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%d of %d runs; --all lists the others\n", len(entries), total)
	return err
}

// most is the limit of the list, or 0.
func (o historyOptions) most(json bool) int {
	const most = 20
	if o.limit == 0 && !o.all && !json {
		return most
	}
	return o.limit
}

// historyLadder prints the newest run of each stage and selection.
func (a *app) historyLadder(ctx context.Context, kept *ledger.Ledger, o historyOptions) error {
	kernel, _, err := a.kernel()
	if err != nil {
		return err
	}
	device := o.filter.Device
	if device == "" {
		device = "cuda"
	}
	runs, err := ladderRuns(ctx, kept, kernel, device)
	if err != nil && len(runs) == 0 {
		return err
	}
	for _, reason := range catalog.Reasons(err) {
		fmt.Fprintf(a.stderr, "attune: left out: %s\n", reason)
	}
	if a.json {
		return a.printJSON(map[string]any{"schema_version": 1, "runs": runs})
	}
	if len(runs) == 0 {
		_, err := fmt.Fprintf(a.stdout, "no run of a stage on %s in %s\n", device, a.ledgerPath())
		return err
	}
	short, err := kept.ShortIDs(ctx)
	if err != nil {
		return err
	}
	return a.printDocument(document.Ladder(runs, a.championRuns(ctx, kept), short), o.markdown)
}

// ladderRuns are the newest runs of all stages and selections on a device, in the order of the
// spec.
func ladderRuns(ctx context.Context, kept *ledger.Ledger, kernel *spec.Kernel, device string) ([]*run.Run, error) {
	entries, err := kept.List(ctx, ledger.Filter{Kernel: kernel.Name, Device: device})
	if err != nil {
		return nil, err
	}
	return catalog.Ladder(kernel, device, entries, func(id string) (*run.Run, error) { return catalog.Run(ctx, kept, id) })
}
