package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	simdevice "attune/internal/device/sim"
	"attune/internal/lab"
	"attune/internal/profile"
	"attune/internal/report"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
)

type profileOptions struct {
	device, shapes, arch, folder string
	seed                         uint64
	againstSim                   bool
	limit                        time.Duration
}

func (a *app) profileCommand() *cobra.Command {
	var o profileOptions
	cmd := &cobra.Command{
		Use:   "profile VARIANT",
		Short: "count what a variant does, and say what limits it",
		Long: `Profile takes a variant through the gates with counters in place of times, and records the run. On a GPU the counters are those of Nsight Compute (ncu),
which is started around the process that runs the kernel: the second of its two launches is counted, with the caches flushed before each pass and the clocks
as they are. The ledger keeps the figures, a table and a roofline; the folder of -o gets them too, with ncu's report (.ncu-rep).

The profile gate passes where the tensor cores are at 50 % of their peak or more, or DRAM is below 50 % of its own; else the exit code is 13.

With no GPU, no ncu or no permission to read the counters the simulator counts: instructions, requests and sectors of global memory, passes over shared
memory and their conflicts, products by the machine instructions that they become. It knows no time, no DRAM and no stalls; they are "not measured", and so is
the gate.

--against-sim has it count the same launch beside the GPU. The table has both sides and the difference. Figures that PTX decides must agree within 2 %; those
that do not are named below it, and so is what need not agree or cannot, and why. A difference in brackets is of a figure that need not.

The profiler is asked first which metrics it knows. Those that it does not know on this chip are left out and named; all others are counted.`,
		Example: `  attune profile stage3b
  attune profile stage3b --shapes 1x8x512x64 --against-sim -o out
  attune profile stage2+USE_XOR_SWIZZLE=1 --device sim --json`,
		Args: exactly("VARIANT", "stage2"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.profile(cmd.Context(), o, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.device, "device", "auto", "what runs the kernel: cuda, cuda:N, sim; auto is the GPU, or sim where there is none")
	f.StringVar(&o.shapes, "shapes", "", "names or shapes, with commas (default: the first that the performance gate judges by, or the simulator's first)")
	f.Uint64Var(&o.seed, "seed", 0, "of the inputs")
	f.BoolVar(&o.againstSim, "against-sim", false, "have the simulator count the same launch, and say where the two agree")
	f.StringVar(&o.arch, "arch", "", "build for this architecture (default: the device's, or the newest of the stage)")
	f.StringVarP(&o.folder, "output", "o", "", "write tables, plots and ncu's reports into this folder as well")
	f.DurationVar(&o.limit, "timeout", 5*time.Minute, "how long one launch may take before it is ended, with all the passes of the profiler")
	return cmd
}

func (a *app) profile(ctx context.Context, o profileOptions, text string) error {
	if o.limit <= 0 {
		return usageError{fmt.Errorf("--timeout %s: want more than 0", o.limit)}
	}
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	request := lab.ProfileRequest{Seed: o.seed, Arch: o.arch, Folder: o.folder}
	if request.Variant, err = kernel.Variant(text); err != nil {
		return usageError{err}
	}
	if request.Shapes, err = o.askedShapes(kernel, o.device == simKind); err != nil {
		return usageError{err}
	}
	asked := lab.Request{Variants: []spec.Variant{request.Variant}, Shapes: request.Shapes, Arch: o.arch}
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
	status.Set("looking for a device")
	if err := a.chooseDevice(ctx, l, runOptions{device: o.device, limit: o.limit, sim: simOptions{schedules: 1, checks: "on", tensor: "exact"}}); err != nil {
		return err
	}
	if request.Shapes, err = o.askedShapes(kernel, l.Facts.Kind == simKind); err != nil {
		return usageError{err}
	}
	if err := a.counters(l, o, &request); err != nil {
		return err
	}
	r, profiles, err := l.Profile(ctx, request)
	status.Clear()
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; no profile was taken")
	case err != nil:
		return err
	}
	if err := a.printProfiles(r, profiles); err != nil {
		return err
	}
	return outcome([]*run.Run{r})
}

// askedShapes are the shapes to profile: one, where none is named.
func (o profileOptions) askedShapes(kernel *spec.Kernel, simulated bool) ([]tensor.Shape, error) {
	if o.shapes != "" {
		return kernel.Shapes(o.shapes)
	}
	names := kernel.Run.Benchmark
	if simulated {
		names = kernel.Run.SimShapes
	}
	shapes, err := kernel.Shapes(names[0])
	if err != nil {
		return nil, err
	}
	return shapes[:1], nil
}

// counters finds what counts: Nsight Compute for a GPU, the simulator for itself and where it is asked for. For counting it needs no checkers: those were on
// when the answers were checked.
func (a *app) counters(l *lab.Lab, o profileOptions, request *lab.ProfileRequest) error {
	if l.Facts.Kind == simKind || o.againstSim {
		request.Simulator = simdevice.Open(simdevice.Options{Limit: o.limit})
	}
	if l.Facts.Kind == simKind {
		return nil
	}
	request.Instead = simdevice.Open(simdevice.Options{Limit: o.limit})
	program, err := profile.Find()
	if err != nil {
		request.NoProfiler = err.Error()
		return nil
	}
	name := o.device
	if name == "auto" {
		name = "cuda"
	}
	child, err := a.child(name, o.limit)
	if err != nil {
		return err
	}
	request.Profiler = &profile.Nsight{Program: program, Child: child, Arch: l.Facts.Arch}
	return nil
}

// profiled is the JSON document of `attune profile`.
type profiled struct {
	SchemaVersion int                `json:"schema_version"`
	Run           *run.Run           `json:"run"`
	Profiles      []*profile.Profile `json:"profiles"`
}

func (a *app) printProfiles(r *run.Run, profiles []*profile.Profile) error {
	if a.json {
		return a.printJSON(profiled{1, r, append([]*profile.Profile{}, profiles...)})
	}
	var wrong []error
	for _, p := range profiles {
		wrong = append(wrong, report.Profile(a.stdout, r.Variant, p))
	}
	return errors.Join(append(wrong, report.Text(a.stdout, r))...)
}
