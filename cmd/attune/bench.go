package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"attune/internal/document"
	"attune/internal/lab"
	"attune/internal/oracle"
	"attune/internal/peer"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/trial"
)

type benchOptions struct {
	device           deviceOptions
	shapes, arch     string
	peers, dtype     string
	reference        referenceOptions
	seed             uint64
	sample           sampleSeed
	rounds, launches int
	processes        int
	energy           bool
	pace             peer.Pace
	peerLimit        time.Duration
	kernelDir        string // of the files of [[peer]]
	kernelFlag       string // --kernel, for the command in the record
	random           randomOptions
	dryRun           bool
	markdown         bool
	spread           spreadOptions
	files            resultFiles
}

// benchShapes are the default shapes of attention: those with published figures of other
// implementations.
const benchShapes = "small,mission,mission256,long,32x8x512x64"

const (
	maxRest = time.Second      // the effect of the load before is gone after less
	maxLoad = 10 * time.Second // clocks have settled after less
)

func (a *app) benchCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench [VARIANT...]",
		Short: "time variants beside PyTorch and FlashAttention-3",
		Long: `Bench times variants beside peers. Those of attention are the backends of
PyTorch's scaled_dot_product_attention (torch-flash, torch-cudnn,
torch-efficient, torch-math), and FlashAttention-3 on E4M3 (fa3-fp8). Those of
other kernels are functions f(axes, inputs) on torch tensors: [[peer]] of
kernel.toml, and FILE.py:FUNCTION. Without a variant it times every stage.

Peers run in your own Python: --python, else ATTUNE_PYTHON, else python3 in
PATH. Their inputs have the values of ours, and their times are taken as ours
are, interleaved. All outputs are compared with the same reference. A wrong one
of attention is marked WRONG and not timed. A peer that is missing or fails, or
a function that is wrong, is skipped with a line on standard error.

The start of a graph takes 4 to 5 us on an H200, which its launches share
(--launches). A GPU at its power limit is slower under a steady load (--load)
than in short bursts (--rest).

--random times problems that are drawn from ranges: ` + "`attune help random`" + `.
` + "`attune show latest-bench`" + ` prints the record, also of an interrupted bench.`,
		Example: `  attune bench
  attune bench stage7 --shapes 8x8x2048x256 --launches 10 --load 300ms
  attune bench stage7 --random 80 --seed 1 --peer fa3-fp8
  attune bench --kernel rmsnorm --peer torch,mine.py:fused_rmsnorm`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkRandom(cmd.Flags().Changed); err != nil {
				return usageError{err}
			}
			return a.bench(cmd.Context(), o, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.peers, "peer", "all", "peers with commas, all or none")
	f.StringVar(&o.kernelFlag, "recorded-kernel", "", "`folder` of the kernel in the command of the record, for workers of a fleet")
	_ = f.MarkHidden("recorded-kernel")
	f.StringVar(&o.dtype, "peer-dtype", "fp16", "of PyTorch: "+strings.Join(peer.DTypes, ", "))
	f.StringVar(&o.reference.python, "python", "", "Python with PyTorch")
	f.DurationVar(&o.peerLimit, "peer-timeout", 3*time.Minute, "limit of one reply of Python")
	o.device.gpuFlags(f)
	o.reference.limitFlag(f)
	f.StringVar(&o.shapes, "shapes", "", "names or shapes (default: see attune help shapes)")
	o.random.flags(f)
	f.BoolVar(&o.dryRun, "dry-run", false, "print the problems and end")
	seedFlag(f, &o.seed)
	o.sample.flag(f)
	f.IntVar(&o.rounds, "rounds", 60, "samples of each row")
	f.IntVar(&o.processes, "processes", defaultProcesses, "processes that time the variants")
	energyFlag(f, &o.energy)
	launchesFlag(f, &o.launches)
	f.DurationVar(&o.pace.Rest, "rest", 0, fmt.Sprintf("rest of the GPU before each sample, at most %s", maxRest))
	f.DurationVar(&o.pace.Load, "load", 0, fmt.Sprintf("load before each sample, at most %s", maxLoad))
	f.StringVar(&o.arch, "arch", "", "architecture (default: the device's)")
	f.BoolVar(&o.markdown, "markdown", false, "print the table as Markdown")
	o.spread.fleetFlags(f)
	o.files.benchstatFlag(f)
	return cmd
}

func (a *app) bench(ctx context.Context, o benchOptions, args []string) error {
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	o.kernelDir, o.kernelFlag = a.kernelPath(), cmp.Or(o.kernelFlag, a.kernelDir)
	request, err := o.request(kernel, args)
	if err != nil {
		return usageError{err}
	}
	if o.dryRun {
		return a.printOutline(kernel, request, o.markdown)
	}
	w, err := a.newRecordingWorkplace(ctx, kernel, folder)
	if err != nil {
		return err
	}
	defer w.close()
	a.prepareReference(ctx, w, &o.reference)
	defer a.endFiles(&o.files, o.markdown)
	if err := o.files.create(); err != nil {
		return err
	}
	if o.spread.asked() {
		result, err := a.benchSpread(ctx, o, w, args)
		return a.endBench(ctx, o, request, result, err)
	}
	if w.Device, err = a.findDevice(ctx, o.device); err != nil {
		return err
	}
	if len(args) == 0 {
		arch := w.Device.Facts().Arch
		request.Variants, request.Selections = a.runnable(request.Variants, arch), a.runnableSelections(request.Selections, arch)
		if len(request.Variants)+len(request.Selections) == 0 {
			return errors.New("no stage of this kernel runs on the device")
		}
	}
	result, err := w.Bench(ctx, request)
	w.status.Clear()
	return a.endBench(ctx, o, request, result, err)
}

// benchSpread has a worker of a fleet bench: variants and peers are timed by one machine.
func (a *app) benchSpread(ctx context.Context, o benchOptions, w *workplace, args []string) (*run.Bench, error) {
	s, err := a.spreadOut(ctx, o.spread)
	if err != nil {
		return nil, err
	}
	defer s.close()
	found, err := s.one(ctx, a, w.Ledger, trial.Command{Args: o.elsewhere(args)})
	if err != nil {
		return nil, err
	}
	result := &run.Bench{}
	if err := json.Unmarshal(found.Output, result); err != nil || result.ID == "" {
		return nil, fmt.Errorf("the bench was not finished: %s", found.Errors)
	}
	return result, nil
}

// elsewhere is the command line for a worker. Its folder of the kernel is not that of the record.
func (o *benchOptions) elsewhere(args []string) []string {
	words := slices.Concat([]string{"bench"}, args, o.spread.passed())
	if o.kernelFlag != "" {
		words = append(words, "--recorded-kernel="+o.kernelFlag)
	}
	return words
}

// endBench prints the result, if there is one, and returns how the bench ended.
func (a *app) endBench(ctx context.Context, o benchOptions, request lab.BenchRequest, result *run.Bench, err error) error {
	if result != nil {
		if written := errors.Join(a.printBench(result, o.markdown), a.reportBench(&o.files, result)); written != nil {
			return errors.Join(err, written)
		}
	}
	switch {
	case ctx.Err() != nil && result == nil:
		return errors.New("interrupted; no shape was finished, and nothing is recorded")
	case ctx.Err() != nil && result.ID != "":
		return fmt.Errorf("interrupted; %d of %d shapes were finished and are in %s", len(result.Checked), len(result.Requested), a.ledgerPath())
	case err != nil:
		return err
	}
	return benchOutcome(request, result)
}

// reportBench writes the file of a bench and tells GitHub Actions about it.
func (a *app) reportBench(files *resultFiles, b *run.Bench) error {
	a.step.Add(document.BenchIssues(b)...)
	a.step.Summarize((&document.BenchStudy{Bench: b}).Document().Step("bench"))
	return files.benchstat.write(func(w io.Writer) error { return document.BenchBenchmarks(w, b) })
}

// request checks the options and makes a request of them.
func (o *benchOptions) request(kernel *spec.Kernel, args []string) (lab.BenchRequest, error) {
	switch {
	case o.shapes != "" || o.random.count > 0:
	case kernel.Declared == nil:
		o.shapes = benchShapes
	default:
		o.shapes = strings.Join(kernel.Run.Benchmark, ",")
	}
	r := lab.BenchRequest{
		Seed: o.seed, Rounds: o.rounds, Processes: o.processes, Energy: o.energy, Launches: o.launches, Pace: o.pace, Arch: o.arch,
		MaxWork: oracle.MaxWork, SampleSeed: o.sample.seed, Command: o.command(args),
	}
	switch {
	case o.rounds < 1:
		return r, fmt.Errorf("--rounds %d: want at least 1", o.rounds)
	case o.processes < 1:
		return r, fmt.Errorf("--processes %d: want at least 1", o.processes)
	case o.pace.Rest < 0 || o.pace.Rest > maxRest:
		return r, fmt.Errorf("--rest %s: want 0s to %s", o.pace.Rest, maxRest)
	case o.pace.Load < 0 || o.pace.Load > maxLoad:
		return r, fmt.Errorf("--load %s: want 0s to %s", o.pace.Load, maxLoad)
	case o.peerLimit <= 0:
		return r, fmt.Errorf("--peer-timeout %s: want more than 0", o.peerLimit)
	}
	if err := errors.Join(o.spread.check(), o.device.checkGPU("bench"), checkLaunches(o.launches), o.reference.check()); err != nil {
		return r, err
	}
	var errs [4]error
	r.Peers, errs[0] = o.wantedPeers(kernel)
	r.Variants, r.Selections, errs[2] = named(kernel, args)
	if len(args) == 0 {
		r.Variants = stageVariants(kernel)
	}
	if o.random.count == 0 {
		r.Shapes, errs[1] = kernel.Shapes(o.shapes)
	} else if errs[2] == nil {
		errs[1] = o.random.draw(kernel, &r, len(args) == 0)
	}
	index, err := deviceIndex(o.device.name)
	errs[3] = err
	r.StartPeers = func(ctx context.Context) (lab.Peers, error) {
		helper, err := peer.Start(ctx, peer.Options{Python: o.reference.python, Device: index, Limit: o.peerLimit})
		if err != nil {
			return nil, err
		}
		return helper, nil
	}
	if err := errors.Join(errs[:]...); err != nil || kernel.Declared == nil {
		return r, err
	}
	return r, lab.Request{Variants: r.Variants, Selections: r.Selections, Shapes: r.Shapes, Seeds: []uint64{r.Seed}, Arch: r.Arch}.Check()
}

// wantedPeers are the implementations of attention, or the Python functions of a declared kernel.
func (o *benchOptions) wantedPeers(kernel *spec.Kernel) ([]peer.Peer, error) {
	if kernel.Declared == nil {
		return peer.Parse(o.peers, o.dtype)
	}
	all, err := peer.Functions(o.peers, kernel.Declared.Peers, o.kernelDir)
	for _, p := range all {
		if _, err := kernel.Variant(p.Name); err == nil {
			return nil, fmt.Errorf("peer %s has the name of a variant; name the function otherwise, or give it a name in [[peer]]", p.Name)
		}
	}
	return all, err
}

// command is the command line that repeats a bench, with defaults written out.
func (o *benchOptions) command(args []string) string {
	words := append([]string{"attune", "bench"}, args...)
	words = append(words, "--peer", o.peers, "--peer-dtype", o.dtype)
	if o.random.count > 0 {
		words = append(words, "--random", fmt.Sprint(o.random.count), "--seed", fmt.Sprint(o.random.seed))
	} else {
		words = append(words, "--shapes", o.shapes)
	}
	words = append(words, "--seeds", fmt.Sprint(o.seed),
		"--rounds", fmt.Sprint(o.rounds), "--processes", fmt.Sprint(o.processes), "--launches", fmt.Sprint(o.launches))
	if o.pace.Rest > 0 {
		words = append(words, "--rest", o.pace.Rest.String())
	}
	if o.pace.Load > 0 {
		words = append(words, "--load", o.pace.Load.String())
	}
	if o.arch != "" {
		words = append(words, "--arch", o.arch)
	}
	if o.kernelFlag != "" {
		words = append(words, "--kernel", run.ShellWord(filepath.ToSlash(o.kernelFlag)))
	}
	return strings.Join(words, " ")
}

// printBench writes a bench, and the skipped peers to standard error.
func (a *app) printBench(b *run.Bench, markdown bool) error {
	for _, line := range document.SkippedLines(b.Skipped) {
		fmt.Fprintf(a.stderr, "attune: %s\n", line)
	}
	if a.json {
		return a.printJSON(b)
	}
	return a.printDocument((&document.BenchStudy{Bench: b}).Document(), markdown)
}

// benchOutcome fails if a variant is wrong, or else if one could not be checked.
func benchOutcome(request lab.BenchRequest, result *run.Bench) error {
	var unchecked error
	for _, row := range result.Rows {
		switch {
		case row.Peer || row.Wrong == "":
		case row.Unchecked:
			unchecked = gateError{exitUnchecked}
		case len(request.Variants)+len(request.Selections) == 1:
			return gateError{exitCorrectness}
		default:
			return gateError{exitSomeFailed}
		}
	}
	return unchecked
}
