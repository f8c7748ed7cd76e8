package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"attune/internal/cases"
	"attune/internal/lab"
	"attune/internal/mutate"
	"attune/internal/sim"
	"attune/internal/toolchain"
)

type mutateOptions struct {
	run   runOptions
	count int
	seed  uint64
}

func (a *app) mutateCommand() *cobra.Command {
	o := mutateOptions{run: runOptions{samples: 1, device: simKind}}
	cmd := &cobra.Command{
		Use:   "mutate VARIANT|CASE.json",
		Short: "break a kernel one line at a time and say how many breaks the gates catch",
		Long: `Mutate tells how much the correctness gate would notice. It changes one line of the variant's PTX at a time, as a slip would: a barrier
left out, a comparison off by one, an offset, a guard turned round. Each mutant goes through the correctness gate on the simulator.

With a case (a JSON file with its PTX beside it, see "attune sim --help") it breaks that kernel and the case's tensor maps, and runs the case under
all checkers. A finding, a buffer that differs, PTX that cannot be loaded and a run without end all kill a mutant.

  killed      it is caught
  survived    it passes, and so might a slip of that kind
  equivalent  it passes, and the compiler makes the same machine code of it, as it is or with what follows from the ranges of parameters,
              threads and blocks filled in: nothing was broken (needs a compiler)

The kill rate is the share of killed ones among those that are not equivalent. More shapes, seeds and schedules kill more.`,
		Example: "  attune mutate stage2\n  attune mutate stage2 --mutants 20 --shapes 1x1x33x64:causal\n  attune mutate stage2 --mutants 0 --json\n" +
			"  attune mutate examples/matmul/small.json --mutants 0",
		Args: exactly("VARIANT or CASE.json", "stage2"),
	}
	f := cmd.Flags()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.count < 0 {
			return usageError{fmt.Errorf("--mutants %d: want 0 for all, or more", o.count)}
		}
		if !strings.HasSuffix(args[0], ".json") {
			return a.mutate(cmd.Context(), o, args[0])
		}
		for _, name := range []string{"shapes", "seeds", "arch"} {
			if f.Changed(name) {
				return usageError{fmt.Errorf("--%s is for variants; a case says itself what it runs", name)}
			}
		}
		return a.mutateCase(cmd.Context(), o, args[0])
	}
	f.IntVar(&o.count, "mutants", 300, "how many to try, picked at random; 0 for all")
	f.Uint64Var(&o.seed, "seed", 0, "picks the mutants; the same ones for the same seed")
	f.StringVar(&o.run.shapes, "shapes", "", "names or shapes, with commas (default: the spec's for the simulator)")
	f.StringVar(&o.run.seeds, "seeds", "", "seeds of the inputs, with commas (default: the spec's for the simulator)")
	f.StringVar(&o.run.arch, "arch", "", "build for this architecture (default: the newest of the stage)")
	f.DurationVar(&o.run.limit, "timeout", 20*time.Second, "how long one launch may take; a mutant that takes longer is killed")
	o.run.sim.flags(f, "")
	return cmd
}

func (a *app) mutate(ctx context.Context, o mutateOptions, text string) error {
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	request, err := o.run.variantsOnly(kernel, []string{text}, true)
	if err != nil {
		return usageError{err}
	}
	images, compiler, err := a.builder(ctx, folder)
	if err != nil {
		return err
	}
	status := a.status()
	defer status.Clear()
	var at lab.Event
	l := &lab.Lab{Kernel: kernel, Builder: images, Watch: func(e lab.Event) {
		at = e
		status.Set("%s", statusText(e))
	}}
	a.useSimulator(l, o.run)
	asked := lab.MutationRequest{Variant: request.Variants[0], Request: request, Count: o.count, Seed: o.seed}
	if compiler != nil {
		asked.Assemble = assembleWith(compiler)
	}
	report, err := l.Mutate(ctx, asked)
	status.Clear()
	if err := ended(ctx, err, at.Done, at.Total); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(struct {
			SchemaVersion int `json:"schema_version"`
			*lab.MutationReport
		}{1, report})
	}
	return a.printMutation(report.Variant+" for "+report.Arch, &report.Report, compiler != nil)
}

// ended says why a mutation has no report, or nil if it has one.
func ended(ctx context.Context, err error, tried, total int) error {
	switch {
	case ctx.Err() != nil && total == 0:
		return errors.New("interrupted before the first mutant")
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted; %d of %d mutants were tried", tried, total)
	}
	return err
}

func assembleWith(compiler *toolchain.Compiler) func(ctx context.Context, ptx []byte, arch string) (string, error) {
	return func(ctx context.Context, ptx []byte, arch string) (string, error) {
		return toolchain.Assemble(ctx, compiler, ptx, arch)
	}
}

// mutateCase breaks the kernel of a case.
func (a *app) mutateCase(ctx context.Context, o mutateOptions, file string) error {
	if err := o.run.sim.check(); err != nil {
		return usageError{err}
	}
	if o.run.limit <= 0 {
		return usageError{fmt.Errorf("--timeout %s: want more than 0", o.run.limit)}
	}
	c, err := cases.Load(file)
	if err != nil {
		return err
	}
	status := a.status()
	defer status.Clear()
	options := o.run.sim.options()
	var tried, total int
	asked := cases.MutationRequest{
		Options: sim.Options{Checks: options.Checks, Tensor: options.Tensor}, Schedules: options.Schedules, Limit: o.run.limit,
		Count: o.count, Seed: o.seed,
		Watch: func(m mutate.Mutant, done, of int) {
			tried, total = done, of
			status.Set("%s: mutant at line %d: %s (%d of %d)", c.Name, m.Line, m.What, done+1, of)
		},
	}
	_, compiler, err := a.builder(ctx, nil)
	if err != nil {
		return err
	}
	if compiler != nil {
		asked.Assemble = assembleWith(compiler)
	}
	report, err := c.Mutate(ctx, asked)
	status.Clear()
	if err := ended(ctx, err, tried, total); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(struct {
			SchemaVersion int `json:"schema_version"`
			*cases.MutationReport
		}{1, report})
	}
	return a.printMutation(report.Case+" for "+report.Arch, &report.Report, compiler != nil)
}

// printMutation writes the report: what was killed, kind by kind and by what, what was not, and the sum.
func (a *app) printMutation(what string, r *mutate.Report, compiler bool) error {
	w := &strings.Builder{}
	fmt.Fprintf(w, "%s: %d of %d possible mutants tried on the simulator\n", what, r.Mutants, r.Possible)
	for _, kind := range slices.Sorted(maps.Keys(r.ByKind)) {
		if t := r.ByKind[kind]; t.Mutants > 0 {
			fmt.Fprintf(w, "  %-20s %d of %d killed\n", kind, t.Killed, t.Mutants)
		}
	}
	if len(r.KilledBy) > 0 {
		fmt.Fprintln(w, "killed by")
	}
	for _, by := range slices.Sorted(maps.Keys(r.KilledBy)) {
		fmt.Fprintf(w, "  %-20s %d\n", by, r.KilledBy[by])
	}
	for _, m := range r.Survivors {
		place := fmt.Sprintf("PTX line %d, ", m.Line)
		if m.Line == 0 {
			place = ""
		}
		fmt.Fprintf(w, "survived: %s%s\n  was  %s\n  is   %s\n", place, m.What, ptxLine(m.Before), ptxLine(m.After))
	}
	fmt.Fprintf(w, "%d killed, %d survived, %d equivalent", r.Killed, r.Survived, r.Equivalent)
	if r.Killed+r.Survived > 0 {
		fmt.Fprintf(w, ": kill rate %.1f %%", 100*r.KillRate)
	}
	fmt.Fprintln(w)
	if !compiler && r.Survived > 0 {
		fmt.Fprintln(w, "with no compiler none can be shown equivalent, and some survivors may be; `attune toolchain install` gets one")
	}
	_, err := io.WriteString(a.stdout, w.String())
	return err
}

// ptxLine is a line of PTX with single spaces.
func ptxLine(text string) string { return strings.Join(strings.Fields(text), " ") }
