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

// isScratch reports whether the argument at an index is scratch.
func (c *Case) isScratch(index int) bool {
	if c.launch != nil {
		return c.launch.Args[index].Role == Scratch
	}
	return c.Args[index].Scratch != nil
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
		switch {
		case err != nil:
		case r.c.isScratch(i):
			err = r.memory.HandOver(base)
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
