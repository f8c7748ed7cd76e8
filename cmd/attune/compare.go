package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"attune/internal/lab"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/report"
	"attune/internal/run"
	"attune/internal/spec"
)

type compareOptions struct {
	device, shapes, arch, format, folder string
	seed                                 uint64
	rounds, most, repeat, launches       int
	l2                                   run.L2
	limit                                time.Duration
}

// compareFormats are what the samples of a comparison can be written as.
var compareFormats = map[string]func(io.Writer, *run.Comparison) error{
	"benchstat": report.ComparisonBenchstat, "csv": report.ComparisonCSV, "t4": report.ComparisonT4,
}

func (a *app) compareCommand() *cobra.Command {
	var o compareOptions
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "say whether variant B is faster than variant A",
		Long: `Compare times two variants in one process, in turns (A B A', A' B A, ...), with A a second time as a control, after both have given right answers. The ratio
is the median over pairs of rounds; a difference needs its whole interval beyond the floor, 1 % or what the control differs from itself by,
and the same needs it within 1 %. Rounds are added while the verdict is ambiguous, up to --most. Beside the verdict stand benchstat's figures: the
interval of each median, and the p-value of the two heaps of samples, which know nothing of turns, control or floor.

The answers to a problem that float64 would take minutes for (2e10 multiply-adds) are looked at on a sample of their rows, which is said.

A selection takes each shape with the variant that its table names for it, which stands beside the shape.

Two recorded runs (ids, or latest) are compared by the samples that they keep. They were not taken in turns, which is said, and the floor is 5 %.

--repeat does the whole comparison again and again and counts the verdicts: with the same variant twice, this shows how far the machine can be trusted.`,
		Example: `  attune compare stage2 stage3b
  attune compare stage3b stage3b+USE_XOR_SWIZZLE=1 --shapes mission,long -o out
  attune compare stage3b stage7 --shapes mission,long
  attune compare stage2 stage2 --repeat 200
  attune compare 30323b latest --ledger results`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return a.compare(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.device, "device", "auto", "what runs the kernels: cuda, cuda:N")
	f.StringVar(&o.shapes, "shapes", "", "names or shapes, with commas (default: those that the performance gate judges by)")
	f.Uint64Var(&o.seed, "seed", 0, "of the inputs")
	f.IntVar(&o.rounds, "rounds", 100, "to begin with, on each shape")
	f.IntVar(&o.most, "most", 1600, "rounds that an ambiguous shape may come to")
	l2Flag(f, &o.l2)
	launchesFlag(f, &o.launches)
	f.IntVar(&o.repeat, "repeat", 1, "do it so many times and count the verdicts")
	f.StringVar(&o.arch, "arch", "", "build for this architecture (default: the device's)")
	f.StringVar(&o.format, "format", "", "print the samples as "+strings.Join(slices.Sorted(maps.Keys(compareFormats)), ", ")+" instead of the table")
	f.StringVarP(&o.folder, "output", "o", "", "write COMPARE.md, its plot and the samples into this folder")
	f.DurationVar(&o.limit, "timeout", defaultLimit, "how long one launch or timing may take before it is ended")
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
	first, errA := side(kernel, args[0])
	second, errB := side(kernel, args[1])
	if errA != nil && errB != nil && !strings.HasPrefix(args[0], "stage") {
		return a.compareRecorded(ctx, o, args)
	}
	if err := errors.Join(errA, errB); err != nil {
		return usageError{err}
	}
	if o.shapes == "" {
		o.shapes = strings.Join(kernel.Run.Benchmark, ",")
	}
	shapes, err := kernel.Shapes(o.shapes)
	if err != nil {
		return usageError{err}
	}
	images, _, err := a.builder(ctx, folder)
	if err != nil {
		return err
	}
	status := a.status()
	defer status.Clear()
	l := newLab(kernel, images, status)
	if err := a.chooseDevice(ctx, l, runOptions{device: o.cuda(), limit: o.limit}); err != nil {
		return err
	}
	request := lab.CompareRequest{
		A: first, B: second, Shapes: shapes, Seed: o.seed, Rounds: o.rounds, MostRounds: o.most, L2: o.l2,
		Launches: o.launches, Arch: o.arch, MostWork: oracle.MostWork,
	}
	counts := map[measure.Verdict]int{}
	for i := range o.repeat {
		c, err := l.Compare(ctx, request)
		status.Clear()
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted; %d of %d comparisons were finished", i, o.repeat)
		}
		if err != nil {
			return err
		}
		counts[c.Verdict]++
		if o.repeat == 1 {
			return a.printComparison(o, c, fmt.Sprintf("attune compare %s %s --shapes %s --seed %d --rounds %d --most %d --l2 %s --launches %d",
				first, second, o.shapes, o.seed, o.rounds, o.most, o.l2, o.launches))
		}
		if !a.json {
			fmt.Fprintf(a.stdout, "%d: %s, ratio %.4f\n", i+1, c.Verdict, c.Overall().Ratio)
		}
	}
	return a.printCounts(counts, o.repeat)
}

// side reads a variant, or the name of a selection.
func side(kernel *spec.Kernel, text string) (lab.Side, error) {
	if s := kernel.Selection(text); s != nil {
		return lab.Side{Selection: s}, nil
	}
	v, err := kernel.Variant(text)
	return lab.Side{Variant: v}, err
}

func (o compareOptions) check() error {
	switch {
	case o.rounds < 2 || o.most < o.rounds:
		return fmt.Errorf("--rounds %d --most %d: want at least 2 rounds, and no fewer at most", o.rounds, o.most)
	case o.repeat < 1:
		return fmt.Errorf("--repeat %d: want at least 1", o.repeat)
	case o.device == simKind:
		return errors.New("the simulator measures no time; compare needs a GPU")
	case o.format != "" && compareFormats[o.format] == nil:
		return fmt.Errorf("--format %q: there are %s", o.format, strings.Join(slices.Sorted(maps.Keys(compareFormats)), ", "))
	case o.repeat > 1 && (o.format != "" || o.folder != ""):
		return errors.New("--repeat counts verdicts; it does not go with --format or -o")
	}
	return checkLaunches(o.launches)
}

// cuda is the device to ask for: with no GPU there is nothing to fall back on.
func (o compareOptions) cuda() string {
	if o.device == "auto" {
		return "cuda"
	}
	return o.device
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
		if err := writeComparison(o.folder, c, command); err != nil {
			return err
		}
	}
	switch {
	case o.format != "":
		return compareFormats[o.format](a.stdout, c)
	case a.json:
		overall := c.Overall()
		return a.printJSON(struct {
			SchemaVersion int     `json:"schema_version"`
			Ratio         float64 `json:"ratio"`
			Low           float64 `json:"ratio_low"`
			High          float64 `json:"ratio_high"`
			*run.Comparison
		}{1, overall.Ratio, overall.Low, overall.High, c})
	}
	if err := report.Comparison(a.stdout, c, false); err != nil {
		return err
	}
	for _, line := range report.ComparisonLines(c) {
		fmt.Fprintln(a.stdout, line)
	}
	_, err := fmt.Fprintln(a.stdout, report.ComparisonVerdict(c))
	return err
}

// writeComparison writes the report, its plot and the samples in every format.
func writeComparison(folder string, c *run.Comparison, command string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	const plot = "compare.svg"
	for name, write := range map[string]func(io.Writer) error{
		"COMPARE.md":    func(w io.Writer) error { return report.ComparisonMarkdown(w, c, plot, command) },
		plot:            func(w io.Writer) error { return report.ComparisonPlot(w, c) },
		"benchstat.txt": func(w io.Writer) error { return report.ComparisonBenchstat(w, c) },
		"samples.csv":   func(w io.Writer) error { return report.ComparisonCSV(w, c) },
		"t4.json":       func(w io.Writer) error { return report.ComparisonT4(w, c) },
	} {
		var text bytes.Buffer
		if err := write(&text); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name), text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// recordedFloor is what two sessions may differ by with nothing changed: clocks, heat, another card.
const recordedFloor = 0.05

// compareRecorded holds the samples of two recorded runs against each other, shape by shape.
func (a *app) compareRecorded(ctx context.Context, o compareOptions, refs []string) error {
	kept, err := a.openLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	var sides [2]*run.Run
	for i, ref := range refs {
		if sides[i], err = readWithSamples(ctx, kept, ref); err != nil {
			return err
		}
	}
	c, err := run.CompareRecorded(sides[0], sides[1], recordedFloor)
	if err != nil {
		return err
	}
	if !a.json {
		fmt.Fprintln(a.stderr, "attune: these runs were not taken in turns: clocks, heat and the card may differ; `attune compare A B` with variants measures anew")
	}
	return a.printComparison(o, c, fmt.Sprintf("attune compare %s %s", sides[0].ID, sides[1].ID))
}
