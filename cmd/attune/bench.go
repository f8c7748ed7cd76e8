package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"attune/internal/device"
	"attune/internal/lab"
	"attune/internal/oracle"
	"attune/internal/peer"
	"attune/internal/report"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
)

type benchOptions struct {
	device, shapes, arch string
	peers, dtype, python string
	seed                 uint64
	rounds, launches     int
	rest                 time.Duration
	limit, peerLimit     time.Duration
	markdown             bool
	askedVariants        []spec.Variant
	askedSelections      []*spec.Selection
	askedShapes          []tensor.Shape
	askedPeers           []peer.Peer
	deviceNumber         int
	everyStage           bool
}

// benchShapes are what a plain bench is on: those that figures of other implementations are at hand for.
const benchShapes = "small,mission,mission256,long,32x8x512x64"

func (a *app) benchCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench [VARIANT...]",
		Short: "time variants beside PyTorch and FlashAttention-3",
		Long: `Bench times variants beside peers, other implementations of attention: the backends of PyTorch's scaled_dot_product_attention, one at a time (torch-flash, torch-cudnn,
torch-efficient, torch-math), and FlashAttention-3 on E4M3 where flash_attn_interface can be imported (fa3-fp8). With no variant it times every stage that
the device can run. A selection (` + "`attune list selections`" + `) has a row by its own name, with the variant that it has chosen beside it.

Peers run in your own Python (--python, else ATTUNE_PYTHON, else python3 in PATH). They get what our FP8 inputs are worth, are timed as ours are (CUDA graphs of equal launches between
events) and take turns with them; their answers are held against the same float64 reference, on a sample of rows where the whole of it
would take minutes, which is said. What answers wrongly is marked WRONG and not timed. A peer
that is missing, refuses a shape, hangs or talks rubbish is left out with a line on standard error, which fails nothing: our own figures come all the same.

A sample is a graph of as many launches as take 5 ms, and 50 at most; a peer's has as many as ours. The start of a graph, 4 to 5 us on an H200,
is shared out over its launches, so that figures of others, from graphs of other lengths, differ by it: --launches sets another most.
Kernels that draw all the power a GPU may have run slower under a steady load, which a bench is, than in short bursts, which figures of others often are:
with --rest the GPU rests before each sample, ours and those of peers.

A bench is kept in the ledger, with its samples and builds; ` + "`attune show latest-bench`" + ` prints it again. One that is interrupted keeps the shapes that were finished.`,
		Example: `  attune bench
  attune bench stage3b stage5 --shapes mission,long --peer torch-cudnn,torch-flash
  attune bench stage7 --peer all --shapes mission,long
  attune bench stage7 --shapes small --launches 10
  attune bench stage7 --shapes 8x8x2048x256 --rest 50ms
  attune bench stage3c --peer all --peer-dtype both --python ~/venv/bin/python3 --json`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.bench(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.peers, "peer", "all", "with commas: "+strings.Join(peer.Kinds(), ", "))
	f.StringVar(&o.dtype, "peer-dtype", "fp16", "numbers of PyTorch's inputs: "+strings.Join(peer.DTypes, ", "))
	f.StringVar(&o.python, "python", "", "the Python that has PyTorch (default: "+peer.PythonVariable+", else python3 in PATH)")
	f.DurationVar(&o.peerLimit, "peer-timeout", 3*time.Minute, "how long Python may take over one answer, the import of PyTorch included, before it is ended")
	f.StringVar(&o.device, "device", "auto", "what runs the kernels: cuda, cuda:N")
	f.StringVar(&o.shapes, "shapes", benchShapes, "names or shapes, with commas")
	f.Uint64Var(&o.seed, "seed", 0, "of the inputs")
	f.IntVar(&o.rounds, "rounds", 60, "samples of each on each shape")
	launchesFlag(f, &o.launches)
	f.DurationVar(&o.rest, "rest", 0, fmt.Sprintf("how long the GPU rests before each sample, %s at most", mostRest))
	f.StringVar(&o.arch, "arch", "", "build for this architecture (default: the device's)")
	f.DurationVar(&o.limit, "timeout", defaultLimit, "how long one launch or timing of ours may take before it is ended")
	f.BoolVar(&o.markdown, "markdown", false, "print the table as Markdown")
	return cmd
}

func (a *app) bench(ctx context.Context, o benchOptions, args []string) error {
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	if err := o.read(kernel, args); err != nil {
		return usageError{err}
	}
	images, _, err := a.builder(ctx, folder)
	if err != nil {
		return err
	}
	status := a.status()
	defer status.Clear()
	l := newLab(kernel, images, status)
	kept, err := a.openLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	l.Ledger, l.Git, l.Version = kept, a.git(ctx), version()
	if err := a.chooseDevice(ctx, l, runOptions{device: o.device, limit: o.limit}); err != nil {
		return err
	}
	status.Clear()
	if o.everyStage {
		if o.askedVariants = a.runnable(o.askedVariants, l.Facts.Arch); len(o.askedVariants) == 0 {
			return errors.New("no stage of this kernel runs on the device")
		}
	}
	result, err := l.Bench(ctx, o.request(args))
	status.Clear()
	return a.endBench(ctx, o, result, err)
}

// endBench prints what there is, and says how a bench has ended.
func (a *app) endBench(ctx context.Context, o benchOptions, result *run.Bench, err error) error {
	if result != nil {
		if written := a.printBench(result, o.markdown); written != nil {
			return errors.Join(err, written)
		}
	}
	switch {
	case ctx.Err() != nil && result == nil:
		return errors.New("interrupted; no shape was finished, and nothing is recorded")
	case ctx.Err() != nil && result.ID != "":
		return fmt.Errorf("interrupted; %d of %d shapes were finished and are in %s", len(result.Answers), len(result.Asked), a.ledgerPath())
	case err != nil:
		return err
	}
	return o.outcome(result)
}

// read turns the words of the command line into what they mean.
func (o *benchOptions) read(kernel *spec.Kernel, args []string) error {
	switch {
	case o.rounds < 1:
		return fmt.Errorf("--rounds %d: want at least 1", o.rounds)
	case o.rest < 0 || o.rest > mostRest:
		return fmt.Errorf("--rest %s: want 0s to %s", o.rest, mostRest)
	case o.limit <= 0 || o.peerLimit <= 0:
		return fmt.Errorf("--timeout %s --peer-timeout %s: want more than 0", o.limit, o.peerLimit)
	case o.device == simKind:
		return errors.New("the simulator measures no time; bench needs a GPU")
	case o.device == "auto":
		o.device = "cuda" // with no GPU there is nothing to fall back on
	}
	if err := checkLaunches(o.launches); err != nil {
		return err
	}
	var wrong [4]error
	o.askedPeers, wrong[0] = peer.Parse(o.peers, o.dtype)
	o.askedShapes, wrong[1] = kernel.Shapes(o.shapes)
	o.deviceNumber, wrong[2] = deviceIndex(o.device)
	o.askedVariants, o.askedSelections, wrong[3] = named(kernel, args)
	if o.everyStage = len(args) == 0; o.everyStage {
		for _, stage := range kernel.Stages {
			o.askedVariants = append(o.askedVariants, stage.Variant())
		}
	}
	return errors.Join(wrong[:]...)
}

func (o *benchOptions) request(args []string) lab.BenchRequest {
	return lab.BenchRequest{
		Variants: o.askedVariants, Selections: o.askedSelections, Shapes: o.askedShapes, Seed: o.seed, Rounds: o.rounds, Launches: o.launches, Rest: o.rest,
		Arch: o.arch, MostWork: oracle.MostWork, Command: o.command(args), Peers: o.askedPeers,
		StartPeers: func(ctx context.Context) (lab.Peers, error) {
			helper, err := peer.Start(ctx, peer.Options{Python: o.python, Device: o.deviceNumber, Limit: o.peerLimit})
			if err != nil {
				return nil, err
			}
			return helper, nil
		},
	}
}

// command is what asks for the same bench again, with what it would be without saying.
func (o *benchOptions) command(args []string) string {
	words := append([]string{"attune", "bench"}, args...)
	words = append(words, "--peer", o.peers, "--peer-dtype", o.dtype, "--shapes", o.shapes, "--seed", fmt.Sprint(o.seed),
		"--rounds", fmt.Sprint(o.rounds), "--launches", fmt.Sprint(o.launches))
	if o.rest > 0 {
		words = append(words, "--rest", o.rest.String())
	}
	if o.arch != "" {
		words = append(words, "--arch", o.arch)
	}
	return strings.Join(words, " ")
}

// mostRest is how long a GPU may be asked to rest. After less than that nothing is left of the load before.
const mostRest = time.Second

// launchesFlag is the flag of whoever times kernels beside others.
func launchesFlag(f *pflag.FlagSet, into *int) {
	f.IntVar(into, "launches", device.UsualLaunches, fmt.Sprintf("launches that a graph has at most, 1 to %d; its start is shared out over them, "+
		"and figures of others come from graphs of other lengths", device.LimitLaunches))
}

func checkLaunches(n int) error {
	if n < 1 || n > device.LimitLaunches {
		return fmt.Errorf("--launches %d: want 1 to %d", n, device.LimitLaunches)
	}
	return nil
}

// printBench writes a bench, and on standard error what was left out of it.
func (a *app) printBench(b *run.Bench, markdown bool) error {
	for _, line := range report.LeftOut(b.LeftOut) {
		fmt.Fprintf(a.stderr, "attune: %s\n", line)
	}
	if a.json {
		return a.printJSON(b)
	}
	return report.Bench(a.stdout, b, markdown)
}

// outcome fails where a variant is wrong.
func (o *benchOptions) outcome(result *run.Bench) error {
	for _, row := range result.Rows {
		switch {
		case row.Peer || row.Wrong == "":
		case len(o.askedVariants)+len(o.askedSelections) == 1:
			return gateError{exitCorrectness}
		default:
			return gateError{exitSomeFailed}
		}
	}
	return nil
}
