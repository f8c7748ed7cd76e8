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
	"attune/internal/spec"
	"attune/internal/tensor"
)

// parts shares out the shapes of a request among the variants of a selection, in the order of its table. Each part is a request of its own, for
// one variant.
func (r Request) parts(s *spec.Selection) ([]Request, error) {
	taken := map[string][]tensor.Shape{}
	for _, shape := range r.Shapes {
		c, err := s.Choose(shape)
		if err != nil {
			return nil, RequestError(err.Error())
		}
		taken[c.Variant.String()] = append(taken[c.Variant.String()], shape)
	}
	var parts []Request
	for _, v := range s.Variants() {
		if shapes := taken[v.String()]; len(shapes) > 0 {
			part := r
			part.Variants, part.Selections, part.Shapes, part.partOf, part.Reproduces = []spec.Variant{v}, nil, shapes, s, ""
			parts = append(parts, part)
		}
	}
	return parts, nil
}

// runSelection takes every part through the gates, and then makes one record of all of them. Nothing measured is shared between parts: their shapes
// are others.
func (l *Lab) runSelection(ctx context.Context, r Request, s *spec.Selection, b *builds, refs *references, done func(*run.Run)) error {
	parts, err := r.parts(s)
	if err != nil {
		return err
	}
	var runs []*run.Run
	for _, part := range parts {
		record, err := l.runAndRecord(ctx, part, part.Variants[0], b, refs, measurements{}, done)
		if err != nil {
			return err
		}
		runs = append(runs, record)
	}
	whole := l.join(r, s, runs)
	err = l.record(ctx, whole)
	done(whole)
	return err
}

// join makes the record of a selection from those of its parts.
func (l *Lab) join(r Request, s *spec.Selection, parts []*run.Run) *run.Run {
	record := l.emptyRecord(r)
	record.Variant, record.Stage, record.Hypothesis = s.Name, s.Name, s.Hypothesis
	for _, p := range parts {
		record.Parts = append(record.Parts, run.Part{
			Variant: p.Variant, Run: p.ID, Arch: p.Arch, CodeHash: p.CodeHash, Verdict: p.Verdict, Shapes: p.Asked.Shapes,
		})
		joinFacts(record, p)
		if p.Parent != "" { // there may be none for the head dim of a part
			record.Parent, record.RequiredSpeedup = p.Parent, s.Speedup
		}
	}
	if r.Against != nil {
		record.Asked.Against, record.RequiredSpeedup = r.Against.String(), 1
	}
	record.CodeHash = joinedHash(record.Parts)
	judged := joinRows(record, r, parts)
	timed := !slices.ContainsFunc(parts, untimed)
	gates := joinGates(record, parts, judged)
	record.SetGates(gates)
	record.Verdict = gates.Verdict(timed)
	return record
}

// joinFacts adds what a part says of the device and of its own end.
func joinFacts(record, p *run.Run) {
	if !slices.Contains(strings.Split(record.Arch, ", "), p.Arch) {
		record.Arch = strings.TrimPrefix(record.Arch+", "+p.Arch, ", ")
	}
	if record.Facts == nil {
		record.Device, record.Facts = p.Device, p.Facts
	}
	if p.Asked.Timing != "" {
		record.Asked.Timing, record.Asked.L2 = p.Asked.Timing, p.Asked.L2
	}
	if p.Asked.Sanitizer != "" {
		record.Asked.Sanitizer = p.Asked.Sanitizer
	}
	if p.Failure != "" && record.Failure == "" {
		record.Failure, record.TimedOut = p.Variant+": "+p.Failure, p.TimedOut
	}
	record.Log += fmt.Sprintf("# %s\n%s", p.Variant, p.Log)
}

// joinedHash stands for what ran: which code on which shapes. It is empty where a part has none.
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

// joinRows puts the rows of all parts into the order of the shapes that were asked for, and gives the times that the performance gate looks at.
func joinRows(record *run.Run, r Request, parts []*run.Run) []measure.Pair {
	var judged []measure.Pair
	for _, shape := range r.Shapes {
		of := shape.String()
		p := parts[slices.IndexFunc(parts, func(p *run.Run) bool { return slices.Contains(p.Asked.Shapes, of) })]
		for _, row := range p.Correctness {
			if row.Shape == of {
				record.Correctness = append(record.Correctness, row)
			}
		}
		i := slices.IndexFunc(p.Performance, func(row run.Performance) bool { return row.Shape == of })
		if i < 0 {
			continue
		}
		row, samples := p.Performance[i], p.Samples[i]
		row.Judged = r.judges(shape)
		record.Performance, record.Samples = append(record.Performance, row), append(record.Samples, samples)
		if row.Judged && record.Headline == nil {
			record.Headline = &run.Headline{Shape: row.Shape, P50US: row.P50US, ParentRatio: row.ParentRatio}
		}
		if row.Judged && row.ParentRatio != nil {
			judged = append(judged, pairOf(samples))
		}
	}
	return judged
}

// untimed says whether a part lacks times, of its own or of the parent.
func untimed(p *run.Run) bool {
	return len(p.Performance) < len(p.Asked.Shapes) ||
		p.Parent != "" && slices.ContainsFunc(p.Performance, func(row run.Performance) bool { return row.ParentRatio == nil })
}

// joinGates is the worst that a part comes to at each gate, but for speed: there the selection is held against its promise as a stage is, over all
// judged shapes, whichever variant took them.
func joinGates(record *run.Run, parts []*run.Run, judged []measure.Pair) gate.Gates {
	g := gate.Gates{
		Resources:   worst(parts, func(p *run.Run) (gate.Status, []string) { return p.Gates.Resources, p.Reasons.Resources }),
		Correctness: worst(parts, func(p *run.Run) (gate.Status, []string) { return p.Gates.Correctness, p.Reasons.Correctness }),
		Profile:     worst(parts, func(p *run.Run) (gate.Status, []string) { return p.Gates.Profile, p.Reasons.Profile }),
	}
	without := slices.DeleteFunc(slices.Clone(parts), func(p *run.Run) bool { return !untimed(p) })
	switch {
	case g.Resources.Status == gate.Fail || g.Correctness.Status == gate.Fail:
		g.Performance = gate.Unmeasured("an earlier gate failed")
		g.Profile = g.Performance
	case len(without) > 0:
		g.Performance = worst(without, func(p *run.Run) (gate.Status, []string) { return gate.NotMeasured, p.Reasons.Performance })
	case len(judged) == 0:
		g.Performance = gate.Check{Status: gate.Pass, Reasons: []string{"it has no parent to be faster than"}}
	default:
		speedup := measure.CompareSpeed(judged)
		record.Speedup = &speedup
		g.Performance = gate.Performance(speedup, record.RequiredSpeedup, record.Parent)
	}
	return g
}

// worst is what the worst parts say at a gate, each by its name, or once where all say the same.
func worst(parts []*run.Run, at func(*run.Run) (gate.Status, []string)) gate.Check {
	for _, status := range []gate.Status{gate.Fail, gate.NotMeasured} {
		check, same := gate.Check{Status: status}, true
		_, first := at(parts[0])
		found := false
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
