package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"attune/internal/device"
	"attune/internal/lab"
	"attune/internal/ledger"
	"attune/internal/report"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
)

type reproduceOptions struct {
	device, shapes string
	limit          time.Duration
}

func (a *app) reproduceCommand() *cobra.Command {
	var o reproduceOptions
	cmd := &cobra.Command{
		Use:   "reproduce RUN",
		Short: "do a recorded run again and say whether it still holds",
		Long: `Reproduce does a recorded run again: the same variant, shapes, seeds, inputs, architecture and samples, against the same parent, on a device of
the same kind. It holds when the machine code is the same, every answer has the same bytes, and the gates and the verdict are the same. The
times of then and now are compared as well, but they are of two sessions, and decide nothing. The new run is recorded, and names the old one.

A run that was made on a GPU can be done again with --device sim, for correctness only. The simulator is slow: --shapes keeps to some shapes.
RUN is written as for show. The exit code is 0 where the run holds, 3 where it does not, and 20 where it needs a GPU and there is none.`,
		Example: "  attune reproduce latest\n  attune reproduce 30323b --ledger results --device sim --shapes small",
		Args:    exactly("RUN", "latest"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.reproduce(cmd.Context(), o, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.device, "device", "", "what runs the kernels: cuda, cuda:N, sim, auto (default: what ran them then)")
	f.StringVar(&o.shapes, "shapes", "", "of the run's shapes only these, with commas")
	f.DurationVar(&o.limit, "timeout", defaultLimit, "how long one launch or timing may take before it is ended")
	return cmd
}

func (a *app) reproduce(ctx context.Context, o reproduceOptions, ref string) error {
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	kept, err := a.openLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	then, err := readWithSamples(ctx, kept, ref)
	if err != nil {
		return err
	}
	request, err := o.request(kernel, then)
	if err != nil {
		return err
	}
	images, _, err := a.builder(ctx, folder)
	if err != nil {
		return err
	}
	status := a.status()
	defer status.Clear()
	l := newLab(kernel, images, status)
	l.Ledger, l.Git, l.Version = kept, a.git(ctx), version()
	status.Set("looking for a device")
	err = a.chooseDevice(ctx, l, o.as(then))
	if errors.Is(err, device.ErrNoDevice) {
		return fmt.Errorf("%w; run %s was made on one: --device sim does it again for correctness only", err, then.ID)
	}
	if err != nil {
		return interruptedWith(ctx, err, "nothing was recorded")
	}
	var now *run.Run
	err = l.Run(ctx, request, func(r *run.Run) { now = r })
	status.Clear()
	if err != nil {
		return interruptedWith(ctx, err, "nothing was recorded")
	}
	return a.printReproduction(then, now)
}

// request is what does the run again.
func (o reproduceOptions) request(kernel *spec.Kernel, then *run.Run) (lab.Request, error) {
	if o.limit <= 0 {
		return lab.Request{}, usageError{fmt.Errorf("--timeout %s: want more than 0", o.limit)}
	}
	var only []tensor.Shape
	if o.shapes != "" {
		var err error
		if only, err = kernel.Shapes(o.shapes); err != nil {
			return lab.Request{}, usageError{err}
		}
	}
	return lab.Again(kernel, then, only)
}

// as sets the device as it was set then, as far as the flags leave it open.
func (o reproduceOptions) as(then *run.Run) runOptions {
	set := runOptions{device: o.device, limit: o.limit, sim: simOptions{schedules: 1, checks: "on", tensor: "exact"}}
	switch {
	case set.device == "" && then.Device == "none":
		set.device = "auto" // it came to no device then, and will hardly do so now
	case set.device == "":
		set.device = then.Device
	}
	if s := then.Asked.Simulation; s != nil {
		set.sim = simOptions{schedules: s.Schedules, checks: "on", tensor: s.Tensor}
		if !s.Checks {
			set.sim.checks = "off"
		}
	}
	if set.device != simKind {
		set.sanitizer = then.Asked.Sanitizer
	}
	return set
}

func readWithSamples(ctx context.Context, kept *ledger.Ledger, ref string) (*run.Run, error) {
	r, err := findRun(ctx, kept, ref)
	if err != nil {
		return nil, err
	}
	text, err := kept.Read(ctx, r.ID, "samples.json")
	if err == nil {
		r.Samples, err = run.DecodeSamples(text)
	}
	return r, err
}

func (a *app) printReproduction(then, now *run.Run) error {
	found := run.CompareAgain(then, now)
	var err error
	if a.json {
		err = a.printJSON(map[string]any{"schema_version": 1, "holds": found.Holds, "reproduction": found, "run": now})
	} else {
		err = errors.Join(report.Text(a.stdout, now), report.Reproduction(a.stdout, found))
	}
	if err != nil {
		return err
	}
	if !found.Holds {
		return gateError{exitSomeFailed}
	}
	return nil
}
