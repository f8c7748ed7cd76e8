package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"attune/internal/gate"
	"attune/internal/ledger"
	"attune/internal/report"
	"attune/internal/run"
)

type historyOptions struct {
	filter           ledger.Filter
	ladder, markdown bool
}

func (a *app) historyCommand() *cobra.Command {
	var o historyOptions
	cmd := &cobra.Command{
		Use:   "history",
		Short: "list the recorded runs, or the ladder of stages",
		Long: `History lists the runs of the ledger, the newest first. With --ladder it shows the newest timed run of each stage and selection on a
device, in the order of the spec: what it changes in its parent, time, speedups, resources, verdict, and why it is no merge. The run that a
champion rests on is marked with the champion's architecture.`,
		Example: "  attune history --stage stage2 --limit 10\n  attune history --ladder --markdown --ledger results",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.history(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.filter.Variant, "variant", "", "only this variant")
	f.StringVar(&o.filter.Stage, "stage", "", "only this stage and its variants")
	f.StringVar(&o.filter.Verdict, "verdict", "", "only runs with this verdict")
	f.StringVar(&o.filter.Device, "device", "", "only runs on this device: cuda, sim or none (default: all; for --ladder: cuda)")
	f.IntVar(&o.filter.Limit, "limit", 0, "at most so many (default: all)")
	f.BoolVar(&o.ladder, "ladder", false, "show the ladder of stages")
	f.BoolVar(&o.markdown, "markdown", false, "write a Markdown table")
	return cmd
}

func (a *app) history(ctx context.Context, o historyOptions) error {
	if v := gate.Verdict(o.filter.Verdict); v != "" && !slices.Contains(gate.Verdicts, v) {
		return usageError{fmt.Errorf("--verdict %q: there are %s", v, joined(gate.Verdicts))}
	}
	if o.ladder && (o.filter.Variant != "" || o.filter.Stage != "" || o.filter.Verdict != "" || o.filter.Limit != 0) {
		return usageError{errors.New("--ladder shows every stage; of the filters only --device goes with it")}
	}
	kept, err := a.openLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	if o.ladder {
		return a.historyLadder(ctx, kept, o)
	}
	entries, err := kept.List(ctx, o.filter)
	if err != nil {
		return err
	}
	champions := a.championRuns(ctx, kept)
	if a.json {
		listed := []historyEntry{}
		for _, e := range entries {
			listed = append(listed, historyEntry{e, champions[e.ID]})
		}
		return a.printJSON(map[string]any{"schema_version": 1, "runs": listed})
	}
	if len(entries) == 0 {
		_, err := fmt.Fprintf(a.stdout, "no runs in %s\n", a.ledgerPath())
		return err
	}
	return report.History(a.stdout, entries, champions, o.markdown)
}

// historyEntry is a run in the JSON document of `attune history`.
type historyEntry struct {
	ledger.Entry
	Champion string `json:"champion,omitempty"` // the architecture, where a champion rests on this run
}

// historyLadder finds the newest run of each stage.
func (a *app) historyLadder(ctx context.Context, kept *ledger.Ledger, o historyOptions) error {
	kernel, _, err := a.kernel()
	if err != nil {
		return err
	}
	device := o.filter.Device
	if device == "" {
		device = "cuda"
	}
	runs := []*run.Run{}
	for _, stage := range kernel.Stages {
		r, err := newestRun(ctx, kept, ledger.Filter{Kernel: kernel.Name, Variant: stage.Name, Device: device})
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		if parent, err := kernel.Variant(r.Parent); err == nil && r.Change == "" { // an older record does not say
			r.Change = stage.Variant().Change(parent)
		}
		runs = append(runs, r)
	}
	for _, s := range kernel.Selections {
		r, err := newestRun(ctx, kept, ledger.Filter{Kernel: kernel.Name, Variant: s.Name, Device: device})
		if err != nil {
			return err
		}
		if r != nil {
			runs = append(runs, r)
		}
	}
	if a.json {
		return a.printJSON(map[string]any{"schema_version": 1, "runs": runs})
	}
	if len(runs) == 0 {
		_, err := fmt.Fprintf(a.stdout, "no run of a stage on %s in %s\n", device, a.ledgerPath())
		return err
	}
	return report.Ladder(a.stdout, runs, a.championRuns(ctx, kept), o.markdown)
}

// newestRun is the newest run that took times, which says more than a later one that took none; else the newest, or nil. Parts of selections are
// left out: their shapes are the table's, and their parent is the selection's.
func newestRun(ctx context.Context, kept *ledger.Ledger, filter ledger.Filter) (*run.Run, error) {
	entries, err := kept.List(ctx, filter)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(entries, func(a, b ledger.Entry) int {
		untimed := func(e ledger.Entry) int {
			if e.Headline.P50US == nil {
				return 1
			}
			return 0
		}
		return untimed(a) - untimed(b)
	})
	for _, e := range entries {
		r, err := readRun(ctx, kept, e.ID)
		if err != nil || r.PartOf == "" {
			return r, err
		}
	}
	return nil, nil
}
