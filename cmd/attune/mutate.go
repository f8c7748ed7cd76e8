package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"attune/internal/cases"
	"attune/internal/ci"
	"attune/internal/document"
	"attune/internal/lab"
	"attune/internal/mutate"
	"attune/internal/sim"
	"attune/internal/toolchain"
	"attune/internal/trial"
)

type mutateOptions struct {
	requestOptions
	device    deviceOptions
	reference referenceOptions
	count     int
	seed      uint64 // picks the mutants
	part      string // I/N of the picked mutants
	spread    spreadOptions
	files     resultFiles
	started   time.Time
}

func (a *app) mutateCommand() *cobra.Command {
	var o mutateOptions
	cmd := &cobra.Command{
		Use:   "mutate [VARIANT|CASE.json]",
		Short: "break a kernel one line at a time and count what the gates catch",
		Long: `Mutate measures what the correctness gate catches. It changes one line of the
variant's PTX at a time, as a programming error would: a missing barrier, a
comparison or an offset that is off by one, an inverted guard. Each mutant goes
through the correctness gate on the simulator.

With a case (a JSON file with its PTX, see "attune help cases") it changes that
kernel and the case's tensor maps, and runs the case with all checkers. A
finding, a buffer that differs, PTX that cannot be loaded and a run that does
not end all kill a mutant.

  killed      it is caught
  survived    it passes, so an error of that kind may pass too
  equivalent  it passes, and the compiler makes the same machine code of it, as
              it is or with the known ranges of parameters, threads and blocks
              filled in: nothing is broken (needs a compiler)

The kill rate is the share of killed mutants among those that are not
equivalent. More shapes, seeds and schedules kill more.`,
		Example: `  attune mutate stage2
  attune mutate stage2 --mutants 20 --shapes 1x1x33x64:causal
  attune mutate stage2 --mutants 0 --json
  attune mutate examples/matmul/small.json --mutants 0`,
		Args: a.oneVariant("VARIANT or CASE.json"),
	}
	f := cmd.Flags()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(); err != nil {
			return usageError{err}
		}
		name, err := a.variantArgument(args)
		if err != nil {
			return err
		}
		defer a.endFiles(&o.files, false)
		if err := o.files.create(); err != nil {
			return err
		}
		o.started = time.Now()
		if !strings.HasSuffix(name, ".json") {
			return a.mutate(cmd.Context(), o, name)
		}
		for _, name := range []string{"shapes", "seeds", "arch", "fleet", "creds", "class", "workers", "part"} {
			if f.Changed(name) {
				return usageError{fmt.Errorf("--%s is for variants; a case has its own", name)}
			}
		}
		return a.mutateCase(cmd.Context(), o, name)
	}
	f.IntVar(&o.count, "mutants", 300, "number of mutants to try, picked at random; 0 for all")
	f.Uint64Var(&o.seed, "mutant-seed", 0, "picks the mutants; the same ones for the same seed")
	f.StringVar(&o.shapes, "shapes", "", "names or shapes, with commas (default: the spec's for the simulator)")
	f.StringVar(&o.seeds, "seeds", "", "seeds of the inputs, with commas (default: the spec's for the simulator)")
	f.StringVar(&o.arch, "arch", "", "build for this architecture (default: the newest of the stage)")
	f.DurationVar(&o.device.limit, "timeout", 20*time.Second, "limit of one launch; a mutant that takes longer is killed")
	o.device.sim.flags(f, "")
	o.reference.flags(f)
	o.spread.flags(f)
	o.files.junitFlag(f)
	partFlag(f, &o.part, "mutants")
	return cmd
}

func (o mutateOptions) check() error {
	if o.count < 0 {
		return fmt.Errorf("--mutants %d: want 0 for all, or more", o.count)
	}
	return errors.Join(o.spread.check(), checkPart(o.part, o.spread), checkLimit(o.device.limit), o.device.sim.check(), o.reference.check())
}

func (a *app) mutate(ctx context.Context, o mutateOptions, text string) error {
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	request, err := o.variantsOnly(kernel, []string{text}, true)
	if err != nil {
		return usageError{err}
	}
	w, err := a.newWorkplace(ctx, kernel, folder)
	if err != nil {
		return err
	}
	defer w.close()
	if o.spread.asked() {
		return a.mutateSpread(ctx, w, o, text)
	}
	a.prepareReference(ctx, w, &o.reference)
	o.device.sim.strict = true // a mutant that only the letter of PTX forbids is detected too
	w.Device = a.simulator(o.device)
	mutation := lab.MutationRequest{Request: request, Count: o.count, Seed: o.seed}
	mutation.Part, mutation.Parts = partOf(o.part)
	if w.compiler != nil {
		mutation.Assemble = assembleWith(w.compiler)
	}
	result, err := w.Mutate(ctx, mutation)
	w.status.Clear()
	if result == nil {
		return mutationError(ctx, err, 0, 0)
	}
	return a.endMutation(ctx, o, result, w.compiler != nil, w.last.Total, err)
}

// endMutation prints the mutants of a variant, of which all were to be tried.
func (a *app) endMutation(ctx context.Context, o mutateOptions, result *lab.MutationReport, compiler bool, total int, err error) error {
	document := struct {
		SchemaVersion int `json:"schema_version"`
		*lab.MutationReport
	}{1, result}
	return errors.Join(a.printMutation(ctx, document, result.Variant+" for "+result.Arch, &result.Report, compiler),
		a.reportMutation(o, result.Variant+" for "+result.Arch, &result.Report, ""),
		mutationError(ctx, err, result.Mutants, total))
}

// mutantsAtOnce is how many mutants a job of a fleet has at most: the unchanged kernel is checked in each.
const mutantsAtOnce = 25

// mutateSpread tries the mutants on several workers.
func (a *app) mutateSpread(ctx context.Context, w *workplace, o mutateOptions, text string) error {
	o.device.name = simDevice
	s, err := a.openSpread(ctx, o.spread, o.device, o.reference)
	if err != nil {
		return err
	}
	defer s.close()
	parts := max(2*s.slots, (o.count+mutantsAtOnce-1)/mutantsAtOnce)
	if o.count > 0 {
		parts = min(parts, o.count)
	}
	var all []trial.Command
	for i := range parts {
		all = append(all, trial.Command{Args: append([]string{"mutate", text, fmt.Sprintf("--part=%d/%d", i, parts)}, o.spread.passed()...)})
	}
	var result *lab.MutationReport
	done := 0
	w.status.Set("%s: %d parts on %d workers", text, parts, s.workers)
	err = s.commands(ctx, a, nil, all, func(_ int, found *trial.Outcome) error {
		var one lab.MutationReport
		if err := json.Unmarshal(found.Output, &one); err != nil || one.Variant == "" {
			return fmt.Errorf("a part of the mutants was not tried: %s", found.Errors)
		}
		if done++; result == nil {
			empty := mutate.NewReport(one.Possible)
			result = &lab.MutationReport{Variant: one.Variant, Arch: one.Arch, Report: empty}
		}
		result.Add(one.Report)
		w.status.Set("%s: %d of %d parts, %d killed, %d survived", text, done, parts, result.Killed, result.Survived)
		return nil
	})
	w.status.Clear()
	if result == nil {
		return mutationError(ctx, err, 0, 0)
	}
	return a.endMutation(ctx, o, result, w.compiler != nil, o.count, err)
}

// printMutation prints the mutants that were tried. Interrupted before the first one, it prints
// nothing.
func (a *app) printMutation(ctx context.Context, described any, kernel string, r *mutate.Report, compiler bool) error {
	if r.Mutants == 0 && ctx.Err() != nil {
		return nil
	}
	if a.json {
		return a.printJSON(described)
	}
	return document.Mutation(a.stdout, kernel, r, compiler)
}

// reportMutation writes the file of the mutants and tells GitHub Actions about them. ptx is the file of
// their lines in the checkout; it may be empty.
func (a *app) reportMutation(o mutateOptions, kernel string, r *mutate.Report, ptx string) error {
	a.step.Add(document.MutationIssues(kernel, r, ptx)...)
	a.step.Summarize(document.MutationStep(kernel, r))
	return o.files.junit.write(func(w io.Writer) error { return document.MutationJUnit(w, kernel, r, time.Since(o.started)) })
}

// mutationError replaces the error of an interrupted mutation by how far it got.
func mutationError(ctx context.Context, err error, tried, total int) error {
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

// mutateCase mutates the kernel of a case.
func (a *app) mutateCase(ctx context.Context, o mutateOptions, file string) error {
	c, err := cases.Load(file)
	if err != nil {
		return err
	}
	_, compiler, err := a.builder(ctx, nil)
	if err != nil {
		return err
	}
	status := a.status()
	defer status.Clear()
	options := o.device.sim.options()
	var total int
	mutation := cases.MutationRequest{
		Options: sim.Options{Checks: options.Checks, Tensor: options.Tensor, Memory: options.Memory}, Schedules: options.Schedules, RunTimeout: o.device.limit,
		Count: o.count, Seed: o.seed,
		Progress: func(m mutate.Mutant, done, of int) {
			total = of
			status.Set("%s: mutant at line %d: %s (%d of %d)", c.Name, m.Line, m.Kind, done+1, of)
		},
	}
	if compiler != nil {
		mutation.Assemble = assembleWith(compiler)
	}
	result, err := c.Mutate(ctx, mutation)
	status.Clear()
	if result == nil {
		return mutationError(ctx, err, 0, 0)
	}
	document := struct {
		SchemaVersion int `json:"schema_version"`
		*cases.MutationReport
	}{1, result}
	return errors.Join(a.printMutation(ctx, document, result.Case+" for "+result.Arch, &result.Report, compiler != nil),
		a.reportMutation(o, result.Case+" for "+result.Arch, &result.Report, ci.FindTree().Path(c.PTXFile())),
		mutationError(ctx, err, result.Mutants, total))
}
