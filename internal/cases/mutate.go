package cases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"attune/internal/mutate"
	"attune/internal/sim"
	"attune/internal/sim/mem"
)

// MutationRequest says how to break the kernel of a case.
type MutationRequest struct {
	Options   sim.Options
	Schedules int           // under which each mutant runs until it is caught; 0 is 1
	Limit     time.Duration // of one run
	Count     int           // of mutants to try; 0 for all
	Seed      uint64        // by which they are picked
	// Assemble gives the code hash of PTX; nil where there is no compiler, and nothing can then be shown equivalent.
	Assemble func(ctx context.Context, ptx []byte, arch string) (string, error)
	Watch    func(m mutate.Mutant, done, total int) // told of each mutant before it runs; may be nil
}

// MutationReport says how many breaks of its kernel a case notices.
type MutationReport struct {
	Case string `json:"case"`
	Arch string `json:"arch"`
	mutate.Report
}

// NotPassedError is the error of a case whose kernel is to be broken, and which does not pass as it is.
type NotPassedError struct{ Case, Wrong string }

func (e *NotPassedError) Error() string {
	return fmt.Sprintf("%s itself does not pass: %s", e.Case, e.Wrong)
}

// What catches a mutant, beside the kinds of findings.
const (
	Mismatch  = "mismatch"   // a buffer does not hold what it should
	LoadError = "load-error" // it is no PTX any more, or none that the simulator takes
	NoEnd     = "no-end"     // it runs several times as long as the kernel, or cannot be launched
	Timeout   = "timeout"
)

// Mutate breaks the kernel of a case one line at a time, and its tensor maps, and runs the case on each mutant. A finding kills it, and so do a
// buffer that does not hold what it should, PTX that is none any more, and a run without an end.
func (c *Case) Mutate(ctx context.Context, m MutationRequest) (*MutationReport, error) {
	text, err := os.ReadFile(filepath.Join(c.dir, c.PTX))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	lines, err := mutate.All(text, c.Entry)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", c.Name, c.PTX, err)
	}
	all := append(c.mapMutants(), lines...)
	t := &trial{request: m}
	if err := t.begin(ctx, c, text); err != nil {
		return nil, err
	}
	report := &MutationReport{Case: c.Name, Arch: c.Arch, Report: mutate.NewReport(len(all))}
	picked := mutate.Sample(all, m.Count, m.Seed)
	for i, mutant := range picked {
		if m.Watch != nil {
			m.Watch(mutant, i, len(picked))
		}
		by, err := t.killedBy(ctx, c.with(mutant), apply(mutant, text))
		switch {
		case err != nil:
			return nil, err
		case by != "":
			report.Kill(mutant, by)
		default:
			report.Spare(mutant, mutant.What != otherMap && t.original.Is(ctx, mutant.Apply(text)))
		}
	}
	return report, nil
}

// otherMap is the kind of a change of a tensor map.
const otherMap = "other tensor map"

// mapMutants lists the changes of the tensor maps: every other swizzle that the driver would take.
func (c *Case) mapMutants() []mutate.Mutant {
	var list []mutate.Mutant
	for i, a := range c.Args {
		if a.TensorMap == nil {
			continue
		}
		for _, swizzle := range []string{"none", "32B", "64B", "128B"} {
			m := mutate.Mutant{What: otherMap, Before: mapText(i, a.TensorMap.Swizzle), After: mapText(i, swizzle)}
			if _, _, err := c.with(m).arguments(mem.NewMemory()); err == nil && m.After != m.Before {
				list = append(list, m)
			}
		}
	}
	return list
}

func mapText(arg int, swizzle string) string {
	return fmt.Sprintf("argument %d: swizzle %s", arg, swizzle)
}

// with is the case with a change of a tensor map made; changes of the PTX leave it as it is.
func (c *Case) with(m mutate.Mutant) *Case {
	if m.What != otherMap {
		return c
	}
	changed := *c
	changed.Args = slices.Clone(c.Args)
	for i, a := range changed.Args {
		if a.TensorMap == nil || mapText(i, a.TensorMap.Swizzle) != m.Before {
			continue
		}
		other := *a.TensorMap
		other.Swizzle = strings.TrimPrefix(m.After, mapText(i, ""))
		changed.Args[i].TensorMap = &other
	}
	return &changed
}

func apply(m mutate.Mutant, text []byte) []byte {
	if m.What == otherMap {
		return text
	}
	return m.Apply(text)
}

// trial is the court that mutants come before.
type trial struct {
	request  MutationRequest
	original *mutate.Original // nil where there is no compiler
}

// begin runs the case as it is: it has to pass, and its length bounds that of the mutants.
func (t *trial) begin(ctx context.Context, c *Case, text []byte) error {
	outcome, err := c.run(ctx, text, t.request.Options)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
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

// killedBy runs a case and says what catches it; empty where nothing does.
func (t *trial) killedBy(ctx context.Context, c *Case, text []byte) (string, error) {
	program, err := c.load(text)
	if err != nil {
		return LoadError, nil
	}
	for schedule := range max(t.request.Schedules, 1) {
		o := t.request.Options
		o.Seed += uint64(schedule)
		limited, cancel := context.WithTimeout(ctx, t.request.Limit)
		outcome, err := c.launch(limited, program, o)
		cancel()
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
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
