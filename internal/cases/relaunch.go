package cases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"attune/internal/finding"
	"attune/internal/sim"
	"attune/internal/sim/mem"
)

// launches are the launches of a case in one memory.
type launches struct {
	c        *Case
	program  *sim.Program
	memory   *mem.Memory
	options  sim.Options
	instance sim.Instance
	values   [][]byte       // of the arguments
	buffers  map[int]uint64 // by argument
	done     int
}

// launch runs the case once and compares what it has left with what the case expects.
func (r *launches) launch(ctx context.Context) (*Outcome, error) {
	c := r.c
	params, err := r.program.Params(c.Entry, r.values)
	if err != nil {
		return nil, err
	}
	result, err := r.program.Run(ctx, r.memory, sim.Launch{
		Entry: c.Entry, Grid: c.Grid, Block: c.Block, Cluster: c.Cluster, DynamicShared: c.Shared, Params: params,
		Cooperative: c.launch != nil && c.launch.Cooperative,
	}, r.options)
	if err != nil {
		return nil, err
	}
	outcome := &Outcome{Name: c.Name, Findings: []finding.Finding{}, Mismatches: []string{}, Counters: result.Counters, Covered: result.Covered, Schedules: result.Schedules, stale: result.Stale}
	for _, f := range result.Findings {
		if r.done > 0 {
			f.Launch = finding.Launch{Relaunch: r.done, Schedule: int(r.options.Seed)}
		}
		outcome.Findings = append(outcome.Findings, f)
	}
	r.done++
	return outcome, c.compare(outcome, r.memory, r.buffers, r.options.Checks)
}

// allocScratch makes a buffer that is zero before the first launch.
func allocScratch(memory *mem.Memory, v finding.Variable, size int, zero bool) (uint64, error) {
	base, err := memory.Alloc(v, size)
	if err != nil {
		return 0, err
	}
	return base, handOver(memory, base, zero, true)
}

// handOver prepares scratch for a launch: cleared, or as the launch before has left it.
func handOver(memory *mem.Memory, base uint64, zero, first bool) error {
	if zero || first {
		if err := memory.Initialise(base, nil); err != nil {
			return err
		}
	}
	if zero {
		return nil
	}
	return memory.Carry(base)
}

// scratch reports whether the argument at an index is scratch, and whether it is cleared before every
// launch.
func (c *Case) scratch(index int) (is, zero bool) {
	if c.launch != nil {
		a := c.launch.Args[index]
		return a.Role == Scratch, a.Zero
	}
	a := c.Args[index]
	return a.Scratch != nil, a.Zero == zeroLaunch
}

// hasState reports whether a launch has left scratch that a later one finds other than zero.
func (r *launches) hasState() bool {
	for i, base := range r.buffers {
		if is, zero := r.c.scratch(i); is && !zero && !r.memory.IsZero(base) {
			return true
		}
	}
	return false
}

// repeat launches the case again on the same inputs, in the memory that the first launch has left. What
// is wrong only then is added to the outcome of the first.
func (r *launches) repeat(ctx context.Context, first *Outcome) error {
	if err := r.restore(); err != nil {
		return err
	}
	again, err := r.launch(ctx)
	if err != nil {
		return err
	}
	reported := map[string]bool{}
	for _, f := range first.Findings {
		reported[f.Key()] = true
	}
	for _, f := range append(again.Findings, r.differences(first, again)...) {
		if !reported[f.Key()] {
			first.Findings = append(first.Findings, f)
		}
	}
	for _, m := range again.Mismatches {
		if !slices.Contains(first.Mismatches, m) {
			first.Mismatches = append(first.Mismatches, "launched again: "+m)
		}
	}
	first.Pass = len(first.Mismatches) == 0 && (!r.options.Checks && r.c.launch == nil || r.c.expected(first.Findings))
	first.Covered.Add(again.Covered)
	return nil
}

// restore gives inputs their contents again. Outputs count as unwritten.
func (r *launches) restore() error {
	r.instance.EndLaunch(r.memory)
	var errs []error
	for i, base := range r.buffers {
		var data []byte
		var err error
		if r.c.launch != nil {
			data = r.c.launch.Args[i].Array.Data
		} else if text := r.c.Args[i].Hex; text != nil {
			data, err = parseHex(*text)
		}
		switch is, zero := r.c.scratch(i); {
		case err != nil:
		case is:
			err = handOver(r.memory, base, zero, false)
		case data != nil:
			err = r.memory.Write(base, data)
		default:
			err = r.memory.Forget(base)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// differences are the outputs of a direct run that are not those of the launch before. Sums by
// floating-point atomics have no order.
func (r *launches) differences(first, again *Outcome) []finding.Finding {
	var all []finding.Finding
	for i, o := range again.Outputs {
		if bytes.Equal(first.Outputs[i].Array.Data, o.Array.Data) || unorderedSum(r.c.launch.PTX) != "" {
			continue
		}
		v := r.c.launch.Args[o.Arg].variable(o.Arg)
		all = append(all, finding.Of(finding.NotRepeatable, v, fmt.Sprintf("%s: the output differs between two launches on the same inputs", v)))
	}
	return all
}
