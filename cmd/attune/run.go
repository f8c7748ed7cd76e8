package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"attune/internal/device/isolate"
	"attune/internal/lab"
	"attune/internal/report"
	"attune/internal/run"
	"attune/internal/spec"
)

type runOptions struct {
	requestOptions
	device deviceOptions
	junit  string
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [VARIANT...]",
		Short: "take variants through the gates and record them",
		Long: `Run takes each variant through the gates in their order: resources,
correctness, performance, profile. The first gate that fails ends the run of
that variant. Every run is recorded in the ledger. Without a variant it runs
every stage of the kernel. For a selection, such as stage7, each chosen variant
runs on its shapes, and then the selection is recorded.

Without a GPU the kernels run on the simulator, with all its checkers (races,
bad addresses, missing waits, deadlocks ...), on fewer and smaller shapes. It
measures no time: the performance gate is then "not measured", which is no
failure. Times are those of launches in a CUDA graph. Samples of a throttled GPU
are excluded and counted.

Variants and shapes are explained by attune help variants, attune help shapes.`,
		Example: `  attune run
  attune run stage1 stage2 --shapes small,mission --seeds 0,1,2
  attune run stage2+TILE_N=32 --against stage2 --shapes 1x8x1024x64:causal
  attune run stage2 --device sim --schedules 4
  attune run stage7`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.run(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.shapes, "shapes", "", "names or shapes, with commas (default: the spec's for the device)")
	f.StringVar(&o.seeds, "seeds", "", "seeds of the inputs, with commas (default: the spec's for the device)")
	f.IntVar(&o.rounds, "rounds", 100, "samples of each shape's time")
	l2Flag(f, &o.l2)
	f.StringVar(&o.against, "against", "", "compare with this variant instead of the parents")
	f.StringVar(&o.arch, "arch", "", "architecture (default: the device's, else the newest)")
	o.device.flags(f)
	f.StringVar(&o.device.sanitizer, "sanitizer", "",
		"check under this tool of compute-sanitizer, without timing: "+strings.Join(isolate.SanitizerTools, ", "))
	f.StringVar(&o.junit, "junit", "", "write the outcome as JUnit XML to this `file`")
	return cmd
}

func (o runOptions) check() error {
	tool := o.device.sanitizer
	switch {
	case o.rounds < 1:
		return fmt.Errorf("--rounds %d: want at least 1", o.rounds)
	case tool != "" && !slices.Contains(isolate.SanitizerTools, tool):
		return fmt.Errorf("--sanitizer %q: there are %s", tool, strings.Join(isolate.SanitizerTools, ", "))
	case tool != "" && o.device.name == simDevice:
		return errors.New("--sanitizer needs a GPU; the simulator has its own checkers")
	}
	return errors.Join(checkLimit(o.device.limit), o.device.sim.check())
}

// request checks the options and makes a request of them.
func (o runOptions) request(kernel *spec.Kernel, args []string, simulated bool) (lab.Request, error) {
	if err := o.check(); err != nil {
		return lab.Request{}, usageError{err}
	}
	r, err := o.requestOptions.request(kernel, args, simulated)
	if err != nil {
		return r, usageError{err}
	}
	return r, r.Check()
}

func (a *app) run(ctx context.Context, o runOptions, args []string) error {
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	if _, err := o.request(kernel, args, o.device.name == simDevice); err != nil { // before anything is started
		return err
	}
	w, err := a.newRecordingWorkplace(ctx, kernel, folder)
	if err != nil {
		return err
	}
	defer w.close()
	junit, err := createJUnit(o.junit) // before the work, so that a wrong path costs none of it
	if err != nil {
		return err
	}
	w.status.Set("looking for a device")
	if w.Device, err = a.findDevice(ctx, o.device); err != nil {
		return err
	}
	request, err := o.request(kernel, args, w.Device.Simulated())
	if err != nil {
		return err
	}
	if len(args) == 0 {
		request.Variants = a.runnable(request.Variants, w.Device.Facts().Arch)
	}
	defer ignoreClosedPipe()()
	var runs []*run.Run
	err = w.Run(ctx, request, func(r *run.Run) {
		w.status.Clear()
		runs = append(runs, r)
		if !a.json {
			_ = report.Text(a.stdout, r, a.screen())
		}
	})
	w.status.Clear()
	var refused lab.RequestError
	if errors.As(err, &refused) {
		return err
	}
	if written := errors.Join(a.printRuns(runs), writeJUnit(junit, withoutParts(runs))); written != nil {
		return errors.Join(err, written)
	}
	switch {
	case ctx.Err() != nil:
		requested := len(request.Variants) + len(request.Selections)
		return fmt.Errorf("interrupted; %d of %d runs were finished and are in %s", len(withoutParts(runs)), requested, a.ledgerPath())
	case err != nil:
		return err
	}
	return outcome(withoutParts(runs))
}

// ignoreClosedPipe keeps the program running when the reader of its output is gone: the ledger
// still gets the runs. It returns a function that restores the default.
func ignoreClosedPipe() func() {
	closed := make(chan os.Signal, 1)
	signal.Notify(closed, syscall.SIGPIPE)
	return func() { signal.Stop(closed) }
}

// withoutParts drops the parts of selections: the run of the selection includes their outcome.
func withoutParts(runs []*run.Run) []*run.Run {
	return slices.DeleteFunc(slices.Clone(runs), func(r *run.Run) bool { return r.PartOf != "" })
}

// printRuns writes the JSON document. Text was written when each run was finished.
func (a *app) printRuns(runs []*run.Run) error {
	if !a.json {
		return nil
	}
	return a.printJSON(map[string]any{"schema_version": run.SchemaVersion, "runs": append([]*run.Run{}, runs...)})
}

// createJUnit creates the JUnit file if a path is given.
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
