package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"attune/internal/catalog"
	"attune/internal/document"
	"attune/internal/lab"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/regular"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/trial"
)

type compareOptions struct {
	device                         deviceOptions
	reference                      referenceOptions
	shapes, arch, format, folder   string
	seed                           uint64
	sample                         sampleSeed
	rounds, most, repeat, launches int
	processes                      int
	energy                         bool
	l2                             run.L2
	files                          resultFiles
	given                          []string // names of the flags on the command line
	spread                         spreadOptions
}

// recordedFlags are the flags of compare that recorded runs take. The others are for measurements.
var recordedFlags = []string{"shapes", "format", "output", "benchstat", "kernel", "ledger", "json", "color"}

// compareFormats write the samples of a comparison.
var compareFormats = map[string]func(io.Writer, *run.Comparison) error{
	"benchstat": document.ComparisonBenchstat, "csv": document.ComparisonCSV, "t4": document.ComparisonT4,
}

func formatNames() string { return strings.Join(slices.Sorted(maps.Keys(compareFormats)), ", ") }

func (a *app) compareCommand() *cobra.Command {
	var o compareOptions
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "report whether variant B is faster than variant A",
		Long: `Compare times two variants in one process, interleaved (A B A', A' B A, ...),
with A a second time as a control, after both have given correct outputs. The
ratio is the median over pairs of rounds. A selection takes the variant that its
table chooses. "Faster" and "slower" need the whole
interval beyond the noise floor: 1 %, or the difference of the control if that
is larger. "Same" (~) needs it within 1 %. Rounds are added while the verdict is
ambiguous (?), up to --most. The verdict and the geometric mean come first, then
a row per shape as benchstat prints it: both medians, and the change of the time
with its interval. p treats the samples as two independent sets.

Where the float64 reference would take minutes (2e10 multiply-adds), the outputs
are checked on a sample of their rows, which the table reports.

Two recorded runs (ids, or latest) are compared by their recorded samples. They
were not interleaved, and the noise floor is 5 %.

With --processes the rounds are spread over fresh processes, and the interval is
that of their ratios. --repeat repeats the comparison and counts the verdicts.
With the same variant twice both show how reliable the machine is.`,
		Example: `  attune compare stage2 stage3b
  attune compare stage3b stage3b+USE_XOR_SWIZZLE=1 --shapes mission -o out
  attune compare stage2 stage2 --processes 10
  attune compare stage2 stage2 --repeat 200
  attune compare 30323b latest --ledger results`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			cmd.Flags().Visit(func(f *pflag.Flag) { o.given = append(o.given, f.Name) })
			return a.compare(cmd.Context(), o, args)
		},
	}
	f := cmd.Flags()
	o.device.gpuFlags(f)
	o.reference.flags(f)
	f.StringVar(&o.shapes, "shapes", "", "names or shapes, with commas; all: those of two recorded runs (default: the benchmark shapes)")
	seedFlag(f, &o.seed)
	o.sample.flag(f)
	f.IntVar(&o.rounds, "rounds", 100, "rounds of each shape to begin with")
	f.IntVar(&o.most, "most", 1600, "limit of rounds of an ambiguous shape")
	f.IntVar(&o.processes, "processes", 1, "fresh processes in which the rounds are taken")
	energyFlag(f, &o.energy)
	l2Flag(f, &o.l2)
	launchesFlag(f, &o.launches)
	f.IntVar(&o.repeat, "repeat", 1, "repeat the comparison and count the verdicts")
	f.StringVar(&o.arch, "arch", "", "build for this architecture (default: the device's)")
	f.StringVar(&o.format, "format", "", "print the samples as "+formatNames()+" instead of the table")
	f.StringVarP(&o.folder, "output", "o", "", "write COMPARE.md, its plot and the samples into this `folder`")
	o.spread.fleetFlags(f)
	o.files.benchstatFlag(f)
	return cmd
}

func (a *app) compare(ctx context.Context, o compareOptions, args []string) error {
	if err := o.check(); err != nil {
		return usageError{err}
	}
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	defer a.endFiles(&o.files, o.format != "")
	if err := o.files.create(); err != nil {
		return err
	}
	first, errA := candidate(kernel, args[0])
	second, errB := candidate(kernel, args[1])
	if errA != nil && errB != nil && !namesStage(kernel, args[0]) {
		return a.compareRecorded(ctx, o, kernel, args)
	}
	if o.shapes == "" {
		o.shapes = strings.Join(kernel.Run.Benchmark, ",")
	}
	shapes, err := kernel.Shapes(o.shapes)
	if err := errors.Join(errA, errB, err); err != nil {
		return usageError{err}
	}
	if o.spread.asked() {
		return a.compareSpread(ctx, o, args)
	}
	w, err := a.newWorkplace(ctx, kernel, folder)
	if err != nil {
		return err
	}
	defer w.close()
	a.prepareReference(ctx, w, &o.reference)
	if w.Device, err = a.findDevice(ctx, o.device); err != nil {
		return err
	}
	return a.compareVariants(ctx, o, w, lab.CompareRequest{
		A: first, B: second, Shapes: shapes, Seed: o.seed, Rounds: o.rounds, MaxRounds: o.most, L2: o.l2,
		Processes: o.processes, Energy: o.energy, Launches: o.launches, Arch: o.arch, MaxWork: oracle.MaxWork, SampleSeed: o.sample.seed,
	})
}

// compareSpread has a worker of a fleet compare: both variants are timed by one machine. What it prints is
// printed here.
func (a *app) compareSpread(ctx context.Context, o compareOptions, args []string) error {
	s, err := a.spreadOut(ctx, o.spread)
	if err != nil {
		return err
	}
	defer s.close()
	found, err := s.one(ctx, a, nil, trial.Command{Args: append([]string{"compare", args[0], args[1]}, o.spread.passed()...), Text: !a.json})
	if err != nil {
		return err
	}
	if a.json {
		_, err = fmt.Fprintln(a.stdout, string(found.Output))
	} else {
		var text string
		if err = json.Unmarshal(found.Output, &text); err == nil {
			_, err = io.WriteString(a.stdout, text)
		}
	}
	return errors.Join(err, failed(found))
}

// compareVariants compares once, or repeatedly to count verdicts.
func (a *app) compareVariants(ctx context.Context, o compareOptions, w *workplace, request lab.CompareRequest) error {
	counts := map[measure.Verdict]int{}
	for i := range o.repeat {
		c, err := w.Compare(ctx, request)
		w.status.Clear()
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted; %d of %d comparisons were finished", i, o.repeat)
		}
		if err != nil {
			return err
		}
		counts[c.Verdict]++
		if o.repeat == 1 {
			return a.printComparison(o, c, fmt.Sprintf("attune compare %s %s --shapes %s --seeds %d --rounds %d --most %d --processes %d --l2 %s --launches %d",
				request.A, request.B, o.shapes, o.seed, o.rounds, o.most, o.processes, o.l2, o.launches))
		}
		if !a.json {
			fmt.Fprintf(a.stdout, "%d: %s, ratio %.4f\n", i+1, c.Verdict, c.Overall().Ratio)
		}
	}
	return a.printCounts(counts, o.repeat)
}

// namesStage reports whether a text that is no variant is meant as one, and not as a run.
func namesStage(kernel *spec.Kernel, text string) bool {
	name, _, changed := strings.Cut(text, "+")
	_, err := kernel.Stage(name)
	return changed || err == nil || strings.HasPrefix(text, "stage")
}

// candidate reads a variant, or the name of a selection.
func candidate(kernel *spec.Kernel, text string) (lab.Candidate, error) {
	if s := kernel.Selection(text); s != nil {
		return lab.Candidate{Selection: s}, nil
	}
	v, err := kernel.Variant(text)
	return lab.Candidate{Variant: v}, err
}

func (o *compareOptions) check() error {
	switch {
	case o.rounds < 2 || o.most < o.rounds:
		return fmt.Errorf("--rounds %d --most %d: want at least 2 rounds, and a limit that is not below them", o.rounds, o.most)
	case o.processes < 1 || o.rounds < 2*o.processes:
		return fmt.Errorf("--processes %d: want at least 1, and 2 rounds for each", o.processes)
	case o.repeat < 1:
		return fmt.Errorf("--repeat %d: want at least 1", o.repeat)
	case o.format != "" && compareFormats[o.format] == nil:
		return fmt.Errorf("--format %q: there are %s", o.format, formatNames())
	case o.spread.asked() && (o.folder != "" || o.files.benchstat.path != ""):
		return errors.New("--output and --benchstat write files of this machine; with --fleet, --format prints the samples")
	case o.repeat > 1 && (o.format != "" || o.folder != "" || o.files.benchstat.path != ""):
		return errors.New("--repeat counts verdicts; it does not go with --format, --benchstat or -o")
	}
	return errors.Join(o.spread.check(), o.device.checkGPU("compare"), checkLaunches(o.launches), o.reference.check())
}

func (a *app) printCounts(counts map[measure.Verdict]int, total int) error {
	if a.json {
		return a.printJSON(map[string]any{"schema_version": 1, "repeated": total, "verdicts": counts})
	}
	_, err := fmt.Fprintf(a.stdout, "of %d comparisons: %d faster, %d slower, %d same, %d ambiguous\n",
		total, counts[measure.Faster], counts[measure.Slower], counts[measure.Same], counts[measure.Ambiguous])
	return err
}

func (a *app) printComparison(o compareOptions, c *run.Comparison, command string) error {
	if o.folder != "" {
		files, err := document.ComparisonFiles(c, command)
		if err != nil {
			return err
		}
		if err := writeFolder(o.folder, files); err != nil {
			return err
		}
	}
	found := document.Comparison(c, command)
	a.step.Summarize(found.Step("compare"))
	err := errors.Join(o.files.benchstat.write(func(w io.Writer) error { return document.ComparisonBenchstat(w, c) }))
	if err != nil {
		return err
	}
	switch {
	case o.format != "":
		return compareFormats[o.format](a.stdout, c)
	case a.json:
		return a.printJSON(catalog.NewComparison(c))
	}
	return found.Terminal(a.stdout, a.screen())
}

func writeFolder(folder string, files map[string][]byte) error {
	errs := []error{os.MkdirAll(folder, 0o755)}
	for name, data := range files {
		errs = append(errs, regular.Write(filepath.Join(folder, name), data))
	}
	return errors.Join(errs...)
}

// compareRecorded compares the samples of two recorded runs, shape by shape.
func (a *app) compareRecorded(ctx context.Context, o compareOptions, kernel *spec.Kernel, refs []string) error {
	want, err := catalog.RecordedShapes(kernel, o.shapes)
	for _, name := range o.given {
		if !slices.Contains(recordedFlags, name) {
			err = fmt.Errorf("--%s is for variants, which are measured; %s and %s are recorded runs, whose samples were taken", name, refs[0], refs[1])
		}
	}
	if err != nil {
		return usageError{err}
	}
	kept, err := a.readLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	var runs [2]*run.Run
	for i, ref := range refs {
		if runs[i], err = a.readWithSamples(ctx, kept, ref); err != nil {
			return err
		}
	}
	c, all, err := catalog.Compare(runs[0], runs[1], want, o.shapes == "")
	if err != nil {
		return err
	}
	if !a.json {
		fmt.Fprintln(a.stderr, "attune: these runs were not interleaved; clocks, temperature and GPU may differ")
		if o.shapes == "" && !all {
			fmt.Fprintln(a.stderr, "attune: compared on the benchmark shapes; --shapes all compares every shape of both runs")
		}
	}
	return a.printComparison(o, c, fmt.Sprintf("attune compare %s %s", runs[0].ID, runs[1].ID))
}
