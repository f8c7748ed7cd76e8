package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"attune/internal/lab"
	"attune/internal/toolchain"
)

type mutateOptions struct {
	run   runOptions
	count int
	seed  uint64
}

func (a *app) mutateCommand() *cobra.Command {
	o := mutateOptions{run: runOptions{samples: 1}}
	cmd := &cobra.Command{
		Use:   "mutate VARIANT",
		Short: "break a kernel one line at a time and say how many breaks the gates catch",
		Long: `Mutate changes one line of the variant's PTX at a time (a barrier left out, a comparison off by one, an offset, a guard turned round ...) and runs each
mutant through the correctness gate on the simulator, with all checkers. What no gate catches survives, unless the compiler makes the same machine
code of it, which shows it equivalent. The share that is caught is the strength of the gates.`,
		Example: "  attune mutate stage2\n  attune mutate stage2 --mutants 0 --json",
		Args:    exactly("VARIANT", "stage2"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.mutate(cmd.Context(), o, args[0]) },
	}
	f := cmd.Flags()
	f.IntVar(&o.count, "mutants", 300, "how many to try, picked at random; 0 for all")
	f.Uint64Var(&o.seed, "seed", 0, "by which they are picked")
	f.StringVar(&o.run.shapes, "shapes", "", "names or shapes, with commas (default: the spec's for the simulator)")
	f.StringVar(&o.run.seeds, "seeds", "", "seeds of the inputs, with commas (default: the spec's for the simulator)")
	f.StringVar(&o.run.arch, "arch", "", "build for this architecture (default: the newest of the stage)")
	f.DurationVar(&o.run.limit, "timeout", 20*time.Second, "how long one launch may take before it counts as endless")
	o.run.sim.flags(f)
	return cmd
}

func (a *app) mutate(ctx context.Context, o mutateOptions, text string) error {
	if err := o.run.sim.check(); err != nil {
		return usageError{err}
	}
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	request, err := o.run.request(kernel, []string{text}, true)
	if err != nil {
		return usageError{err}
	}
	images, compiler, err := a.builder(ctx, folder)
	if err != nil {
		return err
	}
	status := a.status()
	defer status.Clear()
	l := &lab.Lab{Kernel: kernel, Builder: images, Watch: func(e lab.Event) { status.Set("%s", statusText(e)) }}
	a.useSimulator(l, o.run)
	asked := lab.MutationRequest{Variant: request.Variants[0], Request: request, Count: o.count, Seed: o.seed}
	if compiler != nil {
		asked.Assemble = func(ctx context.Context, ptx []byte, arch string) (string, error) {
			return toolchain.Assemble(ctx, compiler, ptx, arch)
		}
	}
	report, err := l.Mutate(ctx, asked)
	status.Clear()
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(struct {
			SchemaVersion int `json:"schema_version"`
			*lab.MutationReport
		}{1, report})
	}
	fmt.Fprintf(a.stdout, "%s for %s: %d of %d possible mutants tried\n", report.Variant, report.Arch, report.Mutants, report.Possible)
	for _, kind := range slices.Sorted(maps.Keys(report.ByKind)) {
		t := report.ByKind[kind]
		fmt.Fprintf(a.stdout, "  %-20s %d of %d caught\n", kind, t.Killed, t.Mutants)
	}
	for _, m := range report.Survivors {
		fmt.Fprintf(a.stdout, "  survived at line %d, %s: %s  ->  %s\n", m.Line, m.What, m.Before, strings.TrimSpace(m.After))
	}
	_, err = fmt.Fprintf(a.stdout, "killed %d, survived %d, equivalent %d: %.1f %% caught\n", report.Killed, report.Survived, report.Equivalent, 100*report.KillRate)
	return err
}
