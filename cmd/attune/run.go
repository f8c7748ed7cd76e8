package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"attune/internal/device"
	"attune/internal/device/isolate"
	simdevice "attune/internal/device/sim"
	"attune/internal/lab"
	"attune/internal/report"
	"attune/internal/run"
	"attune/internal/spec"
)

type runOptions struct {
	device, shapes, seeds, against, arch, junit, sanitizer string
	samples                                                int
	l2                                                     run.L2
	limit                                                  time.Duration
	sim                                                    simOptions
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [VARIANT...]",
		Short: "take variants through the gates: build, check, time, judge, record",
		Long: `Run takes each variant through the gates in their order: resources, correctness, performance, profile. The first gate that fails ends
that variant. Every run is recorded in the ledger. With no variant it runs every stage of the kernel, and no selection: most of its variants
are stages.

A selection, such as stage7, is a table that names a variant for each shape (` + "`attune list selections`" + `). Each of its variants runs on
the shapes that it is chosen for, as a run of its own, and then the selection is recorded: the worst of its parts at each gate, and its
speed over all judged shapes.

With no GPU the kernels run on the simulator, under all its checkers (races, bad addresses, missing waits, deadlocks ...) and on fewer and
smaller shapes. It measures no time: the performance gate is then "not measured", which fails nothing.

Times are those of launches in a CUDA graph. Beside them stand the time of a launch by itself, what an empty node of a graph costs, and, where
NVML can be read, clocks, power and heat; samples taken while something held the clocks down are set aside and counted.`,
		Example: `  attune run
  attune run stage1 stage2 --shapes small,mission --seeds 0,1,2
  attune run stage2+TILE_N=32 --against stage2 --shapes 1x8x1024x64:causal
  attune run stage2 --device sim --schedules 4
  attune run stage7`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.run(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.device, "device", "auto", "what runs the kernels: cuda, cuda:N, sim; auto is the GPU, or sim where there is none")
	f.StringVar(&o.shapes, "shapes", "", "names or shapes, with commas (default: the spec's for the device)")
	f.StringVar(&o.seeds, "seeds", "", "seeds of the inputs, with commas (default: the spec's for the device)")
	f.IntVar(&o.samples, "iters", 100, "samples of each shape's time")
	l2Flag(f, &o.l2)
	f.StringVar(&o.against, "against", "", "compare with this variant instead of each one's parent")
	f.StringVar(&o.arch, "arch", "", "build for this architecture (default: the device's, or the newest of the stage)")
	f.DurationVar(&o.limit, "timeout", defaultLimit, "how long one launch or timing may take before it is ended")
	f.StringVar(&o.sanitizer, "sanitizer", "", "check under this tool of compute-sanitizer, without timing: "+strings.Join(isolate.SanitizerTools, ", "))
	o.sim.flags(f, "on the simulator: ")
	f.StringVar(&o.junit, "junit", "", "write the outcome as JUnit XML to this file")
	return cmd
}

func (a *app) run(ctx context.Context, o runOptions, args []string) error {
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	// What is asked wrongly is said before anything is started.
	asked, err := o.request(kernel, args, o.device == simKind)
	if err != nil {
		return usageError{err}
	}
	if err := asked.Check(); err != nil {
		return err
	}
	images, _, err := a.builder(ctx, folder)
	if err != nil {
		return err
	}
	kept, err := a.openLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	status := a.status()
	defer status.Clear()
	l := newLab(kernel, images, status)
	l.Ledger, l.Git, l.Version = kept, a.git(ctx), version()
	junit, err := createJUnit(o.junit) // before the work, so that a wrong path costs none of it
	if err != nil {
		return err
	}
	status.Set("looking for a device")
	if err := a.chooseDevice(ctx, l, o); err != nil {
		return err
	}
	request, err := o.request(kernel, args, l.Facts.Kind == simKind)
	if err != nil {
		return usageError{err}
	}
	if len(args) == 0 {
		request.Variants = a.runnable(request.Variants, l.Facts.Arch)
	}
	// A reader that is gone (a closed pipe) must not stop the work: the ledger has the runs.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	var runs []*run.Run
	err = l.Run(ctx, request, func(r *run.Run) {
		status.Clear()
		runs = append(runs, r)
		if !a.json {
			_ = report.Text(a.stdout, r)
		}
	})
	status.Clear()
	var refused lab.RequestError
	if errors.As(err, &refused) {
		return err
	}
	if written := errors.Join(a.printRuns(runs), writeJUnit(junit, whole(runs))); written != nil {
		return errors.Join(err, written)
	}
	switch {
	case ctx.Err() != nil:
		asked := len(request.Variants) + len(request.Selections)
		return fmt.Errorf("interrupted; %d of %d runs were finished and are in %s", len(whole(runs)), asked, a.ledgerPath())
	case err != nil:
		return err
	}
	return outcome(whole(runs))
}

// whole leaves out the parts of selections: what they come to stands in the selection's own run.
func whole(runs []*run.Run) []*run.Run {
	return slices.DeleteFunc(slices.Clone(runs), func(r *run.Run) bool { return r.PartOf != "" })
}

// runnable leaves out the stages that nobody has asked for by name and that the device cannot run.
func (a *app) runnable(variants []spec.Variant, deviceArch string) []spec.Variant {
	return slices.DeleteFunc(variants, func(v spec.Variant) bool {
		_, err := lab.Arch(v.Stage(), "", deviceArch)
		if err != nil {
			fmt.Fprintf(a.stderr, "attune: leaving out %s: %v\n", v, err)
		}
		return err != nil
	})
}

// printRuns writes the JSON document; as text each run was written when it was finished.
func (a *app) printRuns(runs []*run.Run) error {
	if !a.json {
		return nil
	}
	return a.printJSON(map[string]any{"schema_version": run.SchemaVersion, "runs": append([]*run.Run{}, runs...)})
}

// createJUnit makes the JUnit file, if one was asked for.
func createJUnit(path string) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, usageError{fmt.Errorf("--junit: %w", err)}
	}
	return file, nil
}

func writeJUnit(file *os.File, runs []*run.Run) error {
	if file == nil {
		return nil
	}
	if err := errors.Join(report.JUnit(file, runs), file.Close()); err != nil {
		return fmt.Errorf("write the JUnit file: %w", err)
	}
	return nil
}

// chooseDevice finds the device that was asked for. With auto it is a GPU where there is one, and else the simulator.
func (a *app) chooseDevice(ctx context.Context, l *lab.Lab, o runOptions) error {
	if o.device == simKind {
		a.useSimulator(l, o)
		return nil
	}
	name := o.device
	if name == "auto" {
		name = "cuda"
	}
	open, err := a.opener(name, o.limit, o.sanitizer)
	if err != nil {
		return err
	}
	probe, err := a.opener(name, o.limit, "")
	if err != nil {
		return err
	}
	d, err := probe(ctx)
	switch {
	case err == nil:
		l.Facts = d.Facts()
		l.Open = open
		return d.Close()
	case o.device == "auto" && errors.Is(err, device.ErrNoDevice) && o.sanitizer == "":
		if !a.json {
			fmt.Fprintf(a.stderr, "attune: %v; the kernels run on the simulator, as with --device sim\n", err)
		}
		a.useSimulator(l, o)
		return nil
	}
	return err
}

// useSimulator has the simulator run the kernels.
func (a *app) useSimulator(l *lab.Lab, o runOptions) {
	options := o.sim.options()
	options.Limit, options.Printf = o.limit, func(text string) { fmt.Fprint(a.stderr, text) }
	l.Facts, l.NoClock = simdevice.Open(options).Facts(), true
	l.Simulation = &run.Simulation{Schedules: o.sim.schedules, Checks: options.Checks, Tensor: o.sim.tensor}
	l.Open = func(context.Context) (device.Device, error) { return simdevice.Open(options), nil }
}

// request turns the flags into what the lab takes.
func (o runOptions) request(kernel *spec.Kernel, args []string, simulated bool) (lab.Request, error) {
	r := lab.Request{Samples: o.samples, L2: o.l2, Arch: o.arch}
	if o.samples < 1 {
		return r, fmt.Errorf("--iters %d: want at least 1", o.samples)
	}
	if o.limit <= 0 {
		return r, fmt.Errorf("--timeout %s: want more than 0", o.limit)
	}
	if o.sanitizer != "" && !slices.Contains(isolate.SanitizerTools, o.sanitizer) {
		return r, fmt.Errorf("--sanitizer %q: there are %s", o.sanitizer, strings.Join(isolate.SanitizerTools, ", "))
	}
	if o.sanitizer != "" && o.device == simKind {
		return r, errors.New("--sanitizer needs a GPU; the simulator has checkers of its own")
	}
	if err := o.sim.check(); err != nil {
		return r, err
	}
	var wrong []error
	var err error
	if r.Variants, r.Selections, err = named(kernel, args); err != nil {
		wrong = append(wrong, err)
	}
	if len(args) == 0 {
		for _, stage := range kernel.Stages {
			r.Variants = append(r.Variants, stage.Variant())
		}
	}
	shapes, seeds := kernel.Run.Shapes, kernel.Run.Seeds
	if simulated {
		shapes, seeds = kernel.Run.SimShapes, kernel.Run.SimSeeds
	}
	if o.shapes == "" {
		o.shapes = strings.Join(shapes, ",")
	}
	if r.Shapes, err = kernel.Shapes(o.shapes); err != nil {
		wrong = append(wrong, err)
	}
	if r.Judged, err = kernel.Shapes(strings.Join(kernel.Run.Benchmark, ",")); err != nil {
		wrong = append(wrong, err)
	}
	if r.Seeds, err = parseSeeds(o.seeds, seeds); err != nil {
		wrong = append(wrong, err)
	}
	if o.against != "" {
		against, err := kernel.Variant(o.against)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("--against: %w", err))
		}
		r.Against = &against
	}
	return r, errors.Join(wrong...)
}

// variantsOnly is the request of whoever works on one kernel at a time, and cannot take a selection.
func (o runOptions) variantsOnly(kernel *spec.Kernel, args []string, simulated bool) (lab.Request, error) {
	r, err := o.request(kernel, args, simulated)
	wrong := []error{err}
	for _, s := range r.Selections {
		_, err := kernel.Variant(s.Name) // says why
		wrong = append(wrong, err)
	}
	return r, errors.Join(wrong...)
}

// named reads the variants and selections of a command line.
func named(kernel *spec.Kernel, args []string) (variants []spec.Variant, selections []*spec.Selection, err error) {
	var wrong []error
	for _, text := range args {
		if s := kernel.Selection(text); s != nil {
			selections = append(selections, s)
			continue
		}
		v, err := kernel.Variant(text)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		variants = append(variants, v)
	}
	return variants, selections, errors.Join(wrong...)
}

// l2Flag is the flag of whoever times kernels.
func l2Flag(f *pflag.FlagSet, into *run.L2) {
	f.TextVar(into, "l2", run.Warm,
		"the `state` of L2 that a timed launch finds: warm (its inputs), cold (a flush goes before; its own time is taken off, and shown)")
}

func parseSeeds(text string, otherwise []uint64) ([]uint64, error) {
	if text == "" {
		return otherwise, nil
	}
	var seeds []uint64
	for _, field := range strings.Split(text, ",") {
		seed, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("seed %q is not a whole number from 0 on", field)
		}
		seeds = append(seeds, seed)
	}
	return seeds, nil
}

func statusText(e lab.Event) string {
	if e.Total > 0 {
		return fmt.Sprintf("%s: %s (%d of %d)", e.Variant, e.Doing, e.Done+1, e.Total)
	}
	return fmt.Sprintf("%s: %s", e.Variant, e.Doing)
}
