package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	simdevice "attune/internal/device/sim"
	"attune/internal/document"
	"attune/internal/lab"
	"attune/internal/profile"
	"attune/internal/run"
	"attune/internal/spec"
)

type profileOptions struct {
	device               deviceOptions
	reference            referenceOptions
	shapes, arch, folder string
	seed                 uint64
	againstSim           bool
}

func (a *app) profileCommand() *cobra.Command {
	o := profileOptions{device: deviceOptions{sim: defaultSim}}
	cmd := &cobra.Command{
		Use:   "profile [VARIANT]",
		Short: "count what a variant does, and report what limits it",
		Long: `Profile takes a variant through the gates with counters instead of times, and
records the run. On a GPU the counters are those of Nsight Compute (ncu), which
is started around the process that runs the kernel. It counts the second of two
launches, with the caches flushed before each pass and the clocks as they are.
The ledger keeps the figures, a table and a roofline plot. The folder of -o gets
them too, with ncu's report (.ncu-rep).

The profile gate passes if the launch is near the limit that binds it: the
busiest of tensor cores, DRAM, L2, L1 and SM pipes is at 50 % of its peak or
more. A grid that does not fill the chip, or a unit that was not counted, leaves
a launch below that "not measured".

Without a GPU, without ncu or without permission to read the counters, the
simulator counts: instructions, requests and sectors of global memory, passes
over shared memory and their conflicts, and tensor instructions. It has no time,
no DRAM and no stalls; they are "not measured", and so is the gate.

With --against-sim the simulator counts the same launch as the GPU. Figures that
PTX determines must agree within 2 %. A difference in brackets is of a figure
that need not agree. Metrics that ncu does not have are skipped and named.

The roofline of a declared kernel needs flops in its [work]; the bytes that DRAM
moves are compared with bytes there.`,
		Example: `  attune profile stage3b
  attune profile stage3b --shapes 1x8x512x64 --against-sim -o out
  attune profile stage2+USE_XOR_SWIZZLE=1 --device sim --json
  attune profile rmsnorm --kernel rmsnorm --shapes rows=8,n=256`,
		Args: a.oneVariant("VARIANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			variant, err := a.variantArgument(args)
			if err != nil {
				return err
			}
			return a.profile(cmd.Context(), o, variant)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.device.name, "device", autoDevice, "cuda, cuda:N, sim; auto: the GPU, else sim")
	f.StringVar(&o.shapes, "shapes", "", "names or shapes, with commas (default: the first benchmark shape, or the simulator's first)")
	seedFlag(f, &o.seed)
	f.BoolVar(&o.againstSim, "against-sim", false, "count the same launch on the simulator too, and compare")
	f.StringVar(&o.arch, "arch", "", "architecture (default: the device's, or newest)")
	f.StringVarP(&o.folder, "output", "o", "", "write tables, plots and ncu's reports into this `folder` as well")
	f.DurationVar(&o.device.limit, "timeout", 5*time.Minute, "limit of one launch, with all passes of the profiler")
	o.reference.flags(f)
	return cmd
}

func (a *app) profile(ctx context.Context, o profileOptions, text string) error {
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	if _, err := o.request(kernel, text, o.device.name == simDevice); err != nil { // before anything is started
		return err
	}
	w, err := a.newRecordingWorkplace(ctx, kernel, folder)
	if err != nil {
		return err
	}
	defer w.close()
	a.prepareReference(ctx, w, &o.reference)
	w.status.Set("looking for a device")
	if w.Device, err = a.findDevice(ctx, o.device); err != nil {
		return err
	}
	request, err := o.request(kernel, text, w.Device.Simulated())
	if err != nil {
		return err
	}
	if err := a.addCounters(w.Device, o, &request); err != nil {
		return err
	}
	r, profiles, err := w.Profile(ctx, request)
	w.status.Clear()
	if err != nil {
		return interruptedWith(ctx, err, "no profile was taken")
	}
	if err := a.printProfiles(r, profiles); err != nil {
		return err
	}
	a.noteReferenceErrors([]*run.Run{r})
	return outcome([]*run.Run{r})
}

// request checks the options and makes a request of them, without counters.
func (o profileOptions) request(kernel *spec.Kernel, text string, simulated bool) (lab.ProfileRequest, error) {
	r := lab.ProfileRequest{Seed: o.seed, Arch: o.arch, Folder: o.folder}
	errs := [3]error{errors.Join(checkLimit(o.device.limit), o.reference.check())}
	r.Variant, errs[1] = kernel.Variant(text)
	r.Shapes, errs[2] = o.profiledShapes(kernel, simulated)
	if err := errors.Join(errs[:]...); err != nil {
		return r, usageError{err}
	}
	return r, lab.Request{Variants: []spec.Variant{r.Variant}, Shapes: r.Shapes, Seeds: []uint64{r.Seed}, Arch: o.arch}.Check()
}

// profiledShapes are the requested shapes, or one by default.
func (o profileOptions) profiledShapes(kernel *spec.Kernel, simulated bool) ([]spec.Shape, error) {
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

// addCounters adds Nsight Compute for a GPU, and the simulator for itself, for --against-sim and as
// a fallback. It counts without checkers: the correctness gate has run them.
func (a *app) addCounters(d lab.Device, o profileOptions, request *lab.ProfileRequest) error {
	simulator := simdevice.Open(simdevice.Options{Limit: o.device.limit})
	if d.Simulated() || o.againstSim {
		request.Simulator = simulator
	}
	if d.Simulated() {
		return nil
	}
	request.Fallback = simulator
	program, err := profile.Find()
	if err != nil {
		request.NoProfiler = err.Error()
		return nil
	}
	name := o.device.name
	if name == autoDevice {
		name = cudaDevice
	}
	child, err := a.child(name, o.device.limit)
	if err != nil {
		return err
	}
	request.Profiler = &profile.Nsight{Program: program, Child: child, Arch: d.Facts().Arch}
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
	var errs []error
	for _, p := range profiles {
		errs = append(errs, document.Profile(r.Variant, p).Terminal(a.stdout, a.screen()))
	}
	return errors.Join(append(errs, a.printDocument((&document.RunStudy{Run: r}).Document(), false))...)
}
