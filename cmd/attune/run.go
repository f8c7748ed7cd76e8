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
	"github.com/spf13/pflag"

	"attune/internal/arch"
	"attune/internal/device"
	"attune/internal/device/isolate"
	"attune/internal/lab"
	"attune/internal/oracle"
	"attune/internal/run"
	"attune/internal/spec"
)

type runOptions struct {
	html string
	requestOptions
	device      deviceOptions
	chip        string
	reference   referenceOptions
	files       resultFiles
	quick, full bool
	verbose     bool
	progress    bool
	spread      spreadOptions
	part        string
	given       []string // names of the flags on the command line
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [VARIANT...]",
		Short: "take variants through the gates and record them",
		Long: `Run takes each variant through the gates: resources, correctness, performance,
profile. The first gate that fails ends the run. Every run is recorded.

Without a variant it runs every stage and every selection on a quick set of
shapes, with one seed and only normal inputs on benchmark shapes; --full takes
all. Variants that are named take all, unless --quick is given. --shapes and
--seeds replace those of either set. A selection, such as stage7, runs each
variant that its table chooses, then is recorded as a whole.

Each variant prints a line, and what failed prints its details at the end.
Without a GPU the kernels run on the simulator with all its checkers, untimed.
With a GPU the simulator checks small shapes too, and its findings count.

Ctrl-C keeps the runs that are finished. After ` + "`attune run | head -1`" + ` all run.
Variants and shapes are explained by attune help variants, attune help shapes.`,
		Example: `  attune run
  attune run stage1 stage2 --shapes small,mission --seeds 0,1,2
  attune run stage2+TILE_N=32 --against stage2 --shapes 1x8x1024x64:causal`,
	}
	f := cmd.Flags()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.Visit(func(flag *pflag.Flag) { o.given = append(o.given, flag.Name) })
		return a.run(cmd.Context(), o, args)
	}
	f.StringVar(&o.shapes, "shapes", "", "names or shapes, with commas")
	f.StringVar(&o.seeds, "seeds", "", "seeds of the inputs, with commas")
	f.IntVar(&o.rounds, "rounds", 100, "samples of each shape's time")
	f.IntVar(&o.processes, "processes", defaultProcesses, "fresh processes for the samples")
	energyFlag(f, &o.energy)
	l2Flag(f, &o.l2)
	f.StringVar(&o.against, "against", "", "compare with this variant instead of the parents")
	f.StringVar(&o.arch, "arch", "", "architecture (default: the device's, or newest)")
	o.device.flags(f)
	o.reference.flags(f)
	f.StringVar(&o.device.sanitizer, "sanitizer", "",
		"compute-sanitizer, untimed: "+strings.Join(isolate.SanitizerTools, ", ")+"; auto: if sim refuses it")
	o.device.noSimFlag(f)
	f.StringVar(&o.html, "html", "", "write a report with plots as one page to this `file`")
	f.StringVar(&o.chip, "chip", "", "this card; where it is not there, predict times")
	f.BoolVar(&o.quick, "quick", false, "the quick set, also for named variants")
	f.BoolVar(&o.full, "full", false, "all shapes, seeds and inputs of the spec")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "print the details of every run")
	f.BoolVar(&o.progress, "progress", false, "write the progress as JSON lines to standard error")
	_ = f.MarkHidden("progress") // it is for programs; docs/guide.md describes it
	o.spread.flags(f)
	partFlag(f, &o.part, "problems of every variant")
	o.files.junitFlag(f)
	o.files.sarifFlag(f)
	o.files.benchstatFlag(f)
	return cmd
}

func (o runOptions) check() error {
	tool := o.device.sanitizer
	switch {
	case o.quick && o.full:
		return errors.New("--quick and --full exclude each other")
	case o.rounds < 1:
		return fmt.Errorf("--rounds %d: want at least 1", o.rounds)
	case o.processes < 1:
		return fmt.Errorf("--processes %d: want at least 1", o.processes)
	case tool != "" && tool != sanitizerAuto && !slices.Contains(isolate.SanitizerTools, tool):
		return fmt.Errorf("--sanitizer %q: there are %s, %s", tool, strings.Join(isolate.SanitizerTools, ", "), sanitizerAuto)
	case tool != "" && tool != sanitizerAuto && o.device.name == simDevice:
		return errors.New("--sanitizer needs a GPU; the simulator has its own checkers")
	case o.chip != "" && o.device.name == simDevice:
		return errors.New("--chip is a card, and --device sim the simulator; leave one of them out")
	case o.device.noSim && o.device.name == simDevice:
		return errors.New(run.NoSimFlag + " is for a GPU, and --device sim is the simulator")
	case o.device.noSim && tool == sanitizerAuto:
		return errors.New("--sanitizer auto runs what the simulator refuses, and " + run.NoSimFlag + " does not ask it")
	}
	if o.part != "" && o.device.name != simDevice {
		return errors.New("--part is for the simulator; times of several machines are not joined")
	}
	return errors.Join(checkHTML(o.html), checkLimit(o.device.limit), o.device.sim.check(), o.reference.check(), o.spread.check(), checkPart(o.part, o.spread))
}

// isQuick reports whether a run takes the quick set.
func (o runOptions) isQuick(args []string) bool {
	return o.quick || len(args) == 0 && !o.full && o.shapes == ""
}

// request checks the options and makes a request of them.
func (o runOptions) request(kernel *spec.Kernel, args []string, simulated bool) (lab.Request, error) {
	if err := o.check(); err != nil {
		return lab.Request{}, usageError{err}
	}
	quick := o.isQuick(args)
	if quick {
		o.requestOptions = o.quickSet(kernel, simulated)
	}
	r, err := o.requestOptions.request(kernel, args, simulated)
	if err != nil {
		return r, usageError{err}
	}
	if len(args) == 0 {
		r.Selections = kernel.Selections
	}
	if quick {
		r.NormalOnly = r.Benchmark
	}
	r.Part.Number, r.Part.Of = partOf(o.part)
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
	if o.chip != "" {
		if missing, err := a.lacksChip(ctx, o); err != nil || missing {
			if err != nil {
				return err
			}
			return a.predictRun(ctx, o, args)
		}
	}
	w, err := a.newRecordingWorkplace(ctx, kernel, folder)
	if err != nil {
		return err
	}
	defer w.close()
	a.prepareReference(ctx, w, &o.reference)
	defer a.endFiles(&o.files, false)
	if err := o.files.create(resultFile{flag: "html", path: o.html}); err != nil {
		return err
	}
	w.status.Set("looking for a device")
	o.device.sim.addressSeed = oracle.RandomSeed() | 1 // 0 is the fixed place, which a kernel could know
	var s *spread
	if o.spread.asked() {
		if s, err = a.openSpread(ctx, o.spread, o.device, o.reference); err != nil {
			return err
		}
		defer s.close()
		w.Device = s.device(a, o.device)
	} else if w.Device, err = a.findDevice(ctx, o.device); err != nil {
		return err
	}
	request, err := o.request(kernel, args, w.Device.Simulated())
	if err != nil {
		return err
	}
	if len(args) == 0 {
		arch := w.Device.Facts().Arch
		request.Variants, request.Selections = a.runnable(request.Variants, arch), a.runnableSelections(request.Selections, arch)
	}
	defer ignoreClosedPipe()()
	out := a.newRunPrinter(w, o.verbose, request)
	out.lines = o.progress
	if s != nil {
		err = a.runSpread(ctx, s, w, o, request, args, out)
	} else {
		err = w.Run(ctx, request, out.finished)
	}
	out.stop()
	var refused lab.RequestError
	if errors.As(err, &refused) {
		return err
	}
	if ctx.Err() == nil && err == nil && o.isQuick(args) {
		out.quick = quickText(kernel, request, w.Device.Simulated(), len(args) > 0)
	}
	if w.Device.Simulated() && o.shapes == "" {
		out.leftOut = leftOutText(kernel, request)
	}
	if written := errors.Join(out.end(ctx, err), out.report(&o.files)); written != nil {
		return errors.Join(err, written)
	}
	if err := a.writeHTML(ctx, w.Ledger, o.html, withoutParts(out.runs)); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return out.interrupted()
	case err != nil:
		return err
	}
	a.noteReferenceErrors(out.runs)
	return outcome(withoutParts(out.runs))
}

// lacksChip reports whether the card of --chip is not the device. An unknown card is an error.
func (a *app) lacksChip(ctx context.Context, o runOptions) (bool, error) {
	chip, err := arch.ChipNamed(o.chip)
	if err != nil {
		return false, usageError{err}
	}
	if o.device.name == autoDevice {
		o.device.name = cudaDevice
	}
	found, err := a.findDevice(ctx, o.device)
	if errors.Is(err, device.ErrNoDevice) {
		return true, nil
	}
	return err == nil && !chip.Is(found.Facts().Name), err
}

// noteReferenceErrors writes why references failed, each text once.
func (a *app) noteReferenceErrors(runs []*run.Run) {
	var written []string
	for _, r := range runs {
		if r.ReferenceError != "" && !slices.Contains(written, r.ReferenceError) {
			written = append(written, r.ReferenceError)
			a.note(r.ReferenceError)
		}
	}
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
