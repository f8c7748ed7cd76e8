package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"attune/internal/gate"
	"attune/internal/measure"
	"attune/internal/run"
)

// runSelection takes every part through the gates, then records the selection as a whole. Where
// times are measured, parts reuse none: they are interleaved with the selection's parent.
func (r *runner) runSelection(ctx context.Context, e entry, known measurements, done func(*run.Run)) error {
	if r.Device.Timed() {
		known = measurements{}
	}
	var runs []*run.Run
	for _, part := range e.parts {
		record, err := r.runPart(ctx, part, known, done)
		if err != nil {
			return err
		}
		runs = append(runs, record)
	}
	whole := r.join(r.plan, e, runs)
	err := r.record(ctx, whole, nil)
	done(whole)
	return err
}

// join makes the record of a selection from those of its parts.
func (l *Lab) join(p *plan, e entry, parts []*run.Run) *run.Run {
	record := l.emptyRecord(p.Request, p.Shapes)
	record.Variant, record.Stage, record.Hypothesis = e.name, e.name, e.selection.Hypothesis
	for _, part := range parts {
		record.Parts = append(record.Parts, run.Part{
			Variant: part.Variant, Run: part.ID, Arch: part.Arch, CodeHash: part.CodeHash, Verdict: part.Verdict,
			Shapes: part.Requested.Shapes,
		})
		record.Requested.Problems += part.Requested.Problems
		joinFacts(record, part)
		record.Simulated = record.Simulated.Add(part.Simulated)
		if part.Parent != "" { // a part with another head dim has no parent
			record.Parent, record.RequiredSpeedup = part.Parent, e.selection.Speedup
		}
	}
	if p.Against != nil {
		record.Requested.Against, record.RequiredSpeedup = p.Against.String(), 1
	}
	record.CodeHash = joinedHash(record.Parts)
	record.Problem = parts[len(parts)-1].Problem
	pairs := joinRows(record, p, parts)
	gates := joinGates(record, parts, pairs)
	record.SetGates(gates)
	record.Verdict = gates.Verdict(!slices.ContainsFunc(parts, lacksTimes))
	return record
}

// joinFacts adds what a part records of the device, the build and its failure.
func joinFacts(record, part *run.Run) {
	if !slices.Contains(strings.Split(record.Arch, ", "), part.Arch) {
		record.Arch = strings.TrimPrefix(record.Arch+", "+part.Arch, ", ")
	}
	if record.Facts == nil {
		record.Device, record.Facts = part.Device, part.Facts
	}
	if part.Requested.Timing != "" {
		record.Requested.Timing, record.Requested.L2 = part.Requested.Timing, part.Requested.L2
	}
	if part.Requested.Sanitizer != "" {
		record.Requested.Sanitizer = part.Requested.Sanitizer
	}
	if record.ReferenceError == "" {
		record.ReferenceError = part.ReferenceError
	}
	if part.Failure != "" && record.Failure == "" {
		record.Failure, record.TimedOut = part.Variant+": "+part.Failure, part.TimedOut
	}
	record.Log += fmt.Sprintf("# %s\n%s", part.Variant, part.Log)
}

// joinedHash identifies which code ran on which shapes. It is empty if a part was not built.
func joinedHash(parts []run.Part) string {
	var text strings.Builder
	for _, p := range parts {
		if p.CodeHash == "" {
			return ""
		}
		fmt.Fprintln(&text, p.CodeHash, strings.Join(p.Shapes, " "))
	}
	sum := sha256.Sum256([]byte(text.String()))
	return hex.EncodeToString(sum[:])
}

// joinRows adds the rows of all parts in the order of the requested shapes, and returns the times
// that the performance gate counts.
func joinRows(record *run.Run, p *plan, parts []*run.Run) []measure.ProcessPair {
	var pairs []measure.ProcessPair
	for _, shape := range p.Shapes {
		name := shape.String()
		part := parts[slices.IndexFunc(parts, func(r *run.Run) bool { return slices.Contains(r.Requested.Shapes, name) })]
		record.Correctness = append(record.Correctness, rowsOf(part, name)...)
		i := slices.IndexFunc(part.Performance, func(row run.Performance) bool { return row.Shape == name })
		if i < 0 {
			continue
		}
		row, samples := part.Performance[i], part.Samples[i]
		row.Benchmark = slices.Contains(p.gated, shape)
		record.Performance, record.Samples = append(record.Performance, row), append(record.Samples, samples)
		if row.Benchmark && record.Headline == nil {
			record.Headline = row.Headline()
		}
		if row.Benchmark && row.ParentRatio != nil {
			pairs = append(pairs, samples.Pair())
		}
	}
	return pairs
}

// rowsOf are the outputs of a part on a shape. Those of its study come with the last shape of the
// part if they have a shape of their own.
func rowsOf(part *run.Run, shape string) []run.Correctness {
	shapes := part.Requested.Shapes
	last := shape == shapes[len(shapes)-1]
	var rows []run.Correctness
	for _, row := range part.Correctness {
		if row.Shape == shape || last && !slices.Contains(shapes, row.Shape) {
			rows = append(rows, row)
		}
	}
	return rows
}

// lacksTimes reports whether a part has no times for some shape, or none of its parent.
func lacksTimes(part *run.Run) bool {
	return len(part.Performance) < len(part.Requested.Shapes) ||
		part.Parent != "" && slices.ContainsFunc(part.Performance, func(row run.Performance) bool { return row.ParentRatio == nil })
}

// joinGates is the worst outcome of the parts at each gate, except for performance. There the
// selection is compared with its required speedup over all counted shapes, whichever variant took
// them.
func joinGates(record *run.Run, parts []*run.Run, pairs []measure.ProcessPair) gate.Gates {
	g := gate.Gates{
		Resources:   worst(parts, func(p *run.Run) (gate.Status, []string) { return p.Gates.Resources, p.Reasons.Resources }),
		Correctness: worst(parts, func(p *run.Run) (gate.Status, []string) { return p.Gates.Correctness, p.Reasons.Correctness }),
		Profile:     worst(parts, func(p *run.Run) (gate.Status, []string) { return p.Gates.Profile, p.Reasons.Profile }),
	}
	untimed := slices.DeleteFunc(slices.Clone(parts), func(p *run.Run) bool { return !lacksTimes(p) })
	switch {
	case g.Resources.Status == gate.Fail || g.Correctness.Status == gate.Fail:
		g.Performance = gate.Unmeasured(earlierGate)
		g.Profile = g.Performance
	case len(untimed) > 0:
		g.Performance = worst(untimed, func(p *run.Run) (gate.Status, []string) { return gate.NotMeasured, p.Reasons.Performance })
	case len(pairs) == 0:
		g.Performance = noParent
	default:
		speedup := measure.CompareProcesses(pairs)
		record.Speedup = &speedup
		g.Performance = gate.Performance(speedup, record.RequiredSpeedup, record.Parent)
	}
	return g
}

// worst is the worst outcome of the parts at a gate. Its reasons name their part, unless all parts
// have the same.
func worst(parts []*run.Run, at func(*run.Run) (gate.Status, []string)) gate.Check {
	for _, status := range []gate.Status{gate.Fail, gate.NotMeasured} {
		check, found, same := gate.Check{Status: status}, false, true
		_, first := at(parts[0])
		for _, p := range parts {
			s, reasons := at(p)
			same = same && s == status && slices.Equal(reasons, first)
			if s != status {
				continue
			}
			found = true
			for _, reason := range reasons {
				check.Reasons = append(check.Reasons, p.Variant+": "+reason)
			}
		}
		if same {
			check.Reasons = first
		}
		if found {
			return check
		}
	}
	return gate.Check{Status: gate.Pass}
}
