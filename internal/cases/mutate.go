package cases

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"attune/internal/coverage"
	"attune/internal/crash"
	"attune/internal/finding"
	"attune/internal/mutate"
	"attune/internal/sim"
	"attune/internal/sim/mem"
)

// MutationRequest configures Case.Mutate.
type MutationRequest struct {
	Options    sim.Options
	Schedules  int           // warp schedules per mutant, until one kills it; 0 means 1
	RunTimeout time.Duration // time limit of one run
	Count      int           // number of mutants to sample; 0 for all
	Seed       uint64        // of the sample
	// Assemble returns the code hash of PTX. It is nil without a compiler; then no mutant can be
	// shown to be equivalent.
	Assemble func(ctx context.Context, ptx []byte, arch string) (string, error)
	// Progress is a progress callback, called before each mutant runs; may be nil.
	Progress func(m mutate.Mutant, done, total int)
}

// MutationReport counts the mutants of its kernel that a case detects.
type MutationReport struct {
	Case string `json:"case"`
	Arch string `json:"arch"`
	mutate.Report
}

// NotPassedError reports that a case fails already without a mutation.
type NotPassedError struct{ Case, Reason string }

func (e *NotPassedError) Error() string {
	return fmt.Sprintf("%s itself does not pass: %s", e.Case, e.Reason)
}

// Reasons for which a mutant is killed, besides the kinds of findings.
const (
	Mismatch  = "mismatch"   // a buffer differs from the expected bytes
	LoadError = "load-error" // the mutant is not valid PTX, or the simulator does not support it
	NoEnd     = "no-end"     // the launch fails, or runs far longer than the original kernel
	Timeout   = "timeout"    // a run exceeds the time limit
)

// Mutate runs the case on single-line mutants of its kernel and on mutants of its tensor maps. A
// mutant is killed by a finding, a mismatch, invalid PTX, or a run that does not end.
func (c *Case) Mutate(ctx context.Context, m MutationRequest) (*MutationReport, error) {
	text, err := c.text()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	lines, err := mutate.All(text, c.Entry)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", c.Name, c.PTX, err)
	}
	all := append(c.tensorMapMutants(), lines...)
	t := &mutationTrial{request: m}
	if err := t.runOriginal(ctx, c, text); err != nil {
		return nil, err
	}
	report := &MutationReport{Case: c.Name, Arch: c.Arch, Report: mutate.NewReport(len(all))}
	picked := mutate.Sample(all, m.Count, m.Seed)
	for i, mutant := range picked {
		if m.Progress != nil {
			m.Progress(mutant, i, len(picked))
		}
		by, err := t.killedBy(ctx, c.withMutant(mutant), applyMutant(mutant, text))
		switch {
		case err != nil:
			return report, err
		case by != "":
			report.Kill(mutant, by)
			continue
		}
		equivalent := mutant.Kind != otherTensorMap && t.original.IsEquivalent(ctx, mutant.Apply(text))
		if ctx.Err() != nil {
			return report, ctx.Err() // the compiler was stopped, and says nothing about the mutant
		}
		report.Survive(mutant.Located(t.covered), equivalent)
	}
	return report, nil
}

// otherTensorMap is the kind of a mutation of a tensor map.
const otherTensorMap = "other tensor map"

// tensorMapMutants lists the mutations of the tensor maps: every other swizzle that the driver
// accepts.
func (c *Case) tensorMapMutants() []mutate.Mutant {
	var list []mutate.Mutant
	for i, a := range c.Args {
		if a.TensorMap == nil {
			continue
		}
		for _, swizzle := range []string{"none", "32B", "64B", "128B"} {
			m := mutate.Mutant{Kind: otherTensorMap, Before: tensorMapText(i, a.TensorMap.Swizzle), After: tensorMapText(i, swizzle)}
			if _, _, err := c.withMutant(m).arguments(mem.NewMemory()); err == nil && m.After != m.Before {
				list = append(list, m)
			}
		}
	}
	return list
}

func tensorMapText(arg int, swizzle string) string {
	return fmt.Sprintf("argument %d: swizzle %s", arg, swizzle)
}

// withMutant returns the case with a mutated tensor map; for a mutation of the PTX it returns c.
func (c *Case) withMutant(m mutate.Mutant) *Case {
	if m.Kind != otherTensorMap {
		return c
	}
	changed := *c
	changed.Args = slices.Clone(c.Args)
	for i, a := range changed.Args {
		if a.TensorMap == nil || tensorMapText(i, a.TensorMap.Swizzle) != m.Before {
			continue
		}
		other := *a.TensorMap
		other.Swizzle = strings.TrimPrefix(m.After, tensorMapText(i, ""))
		changed.Args[i].TensorMap = &other
	}
	return &changed
}

// applyMutant returns the mutated PTX; a mutation of a tensor map leaves it unchanged.
func applyMutant(m mutate.Mutant, text []byte) []byte {
	if m.Kind == otherTensorMap {
		return text
	}
	return m.Apply(text)
}

// mutationTrial runs mutants.
type mutationTrial struct {
	request  MutationRequest
	strict   bool               // strict findings kill a mutant: the original has none
	original *mutate.Original   // nil without a compiler
	covered  *coverage.Launches // of the unchanged kernel
}

// runOriginal runs the unchanged case, which must pass. Its length bounds the steps of the mutants.
func (t *mutationTrial) runOriginal(ctx context.Context, c *Case, text []byte) error {
	outcome, err := c.run(ctx, text, t.request.Options)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	t.covered = outcome.Covered
	t.strict = !slices.ContainsFunc(outcome.Findings, func(f finding.Finding) bool { return f.Severity == finding.Strict })
	if by, err := t.killedBy(ctx, c, text); err != nil || by != "" {
		return errors.Join(err, &NotPassedError{c.Name, by})
	}
	t.request.Options.MaxSteps = 10_000 + 4*outcome.Counters.WarpInstructions()
	if t.request.Assemble == nil {
		return nil
	}
	assemble := func(ctx context.Context, ptx []byte) (string, error) { return t.request.Assemble(ctx, ptx, c.Arch) }
	if t.original, err = mutate.NewOriginal(ctx, assemble, text, c.Entry, nil); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return nil
}

// killedBy runs a case and returns the reason for which it fails; "" if it passes.
func (t *mutationTrial) killedBy(ctx context.Context, c *Case, text []byte) (string, error) {
	program, err := c.load(text)
	if isPanic(err) {
		return "", err // the mutant is not at fault
	}
	if err != nil {
		return LoadError, nil
	}
	checked := *c
	checked.Strict = t.strict
	for schedule := range max(t.request.Schedules, 1) {
		o := t.request.Options
		o.Seed += uint64(schedule)
		limited, cancel := context.WithTimeout(ctx, t.request.RunTimeout)
		outcome, err := checked.runProgram(limited, program, o)
		cancel()
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case isPanic(err):
			return "", err
		case errors.Is(err, context.DeadlineExceeded):
			return Timeout, nil
		case err != nil:
			return NoEnd, nil
		case !outcome.Pass && len(outcome.Findings) > 0:
			return string(outcome.Findings[0].Kind), nil
		case !outcome.Pass:
			return Mismatch, nil
		}
	}
	return "", nil
}

func isPanic(err error) bool {
	_, ok := errors.AsType[*crash.Panic](err)
	return ok
}
