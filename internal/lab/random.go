package lab

import (
	"context"
	"fmt"

	"attune/internal/measure"
	"attune/internal/run"
	"attune/internal/spec"
)

// checkRandom refuses a comparison with copies on a device whose copy rate is not known.
func (l *Lab) checkRandom(r *run.Random) error {
	if r == nil || r.Against != spec.AgainstCopy || run.CeilingsOf(l.Device.facts.Name) != nil {
		return nil
	}
	return RequestError(fmt.Sprintf("[random] of %s compares times with copies, and no copy rate was measured on %s; "+
		"write against = %q to compare with peers", spec.File, l.Device.facts.Name, spec.AgainstPeers))
}

// compareRandom compares each of ours on a random problem with the fastest peer, or with a copy of
// the problem's bytes.
func (b *bench) compareRandom(shape spec.Shape, all []*contender, bestPeer *contender) error {
	if b.request.Random == nil {
		return nil
	}
	if b.random == nil {
		b.random = map[string][]run.RandomProblem{}
	}
	for _, c := range all {
		if c.row.Peer {
			continue
		}
		p := run.RandomProblem{Shape: c.row.Shape, Variant: c.row.Variant, P50US: c.row.P50US, MaxErr: c.row.MaxErr, Wrong: c.row.Wrong}
		switch {
		case p.Wrong != "":
			p.P50US = nil
		case b.request.Random.Against == spec.AgainstCopy:
			if err := b.compareCopy(shape, c, &p); err != nil {
				return err
			}
		case bestPeer != nil:
			ratio := measure.CompareBlocks(bestPeer.row.Seconds, c.row.Seconds).Ratio
			p.Against, p.AgainstUS, p.Ratio = bestPeer.row.Name, bestPeer.row.P50US, &ratio
		}
		b.random[c.row.Name] = append(b.random[c.row.Name], p)
	}
	return nil
}

// compareCopy compares a time with that of a copy at the measured rate, and the overhead of a launch.
func (b *bench) compareCopy(shape spec.Shape, c *contender, p *run.RandomProblem) error {
	work, err := b.lab.problem().Work(c.build.Variant, shape, c.row.DType)
	if err != nil {
		return err
	}
	us := work.Bytes/b.result.Ceilings.CopyTBps/1e6 + b.request.Random.OverheadUS
	ratio := us / *p.P50US
	p.Against, p.AgainstUS, p.Ratio = spec.AgainstCopy, &us, &ratio
	return nil
}

// skipProblem records why a random problem was not measured. The next one gets fresh devices. It
// returns an error only if the bench was interrupted.
func (b *bench) skipProblem(ctx context.Context, shape spec.Shape, err error) error {
	if err := b.skip(ctx, "the problem", shape.String(), err); err != nil {
		return err
	}
	b.sessions.close()
	return b.forgetPeers(ctx, shape)
}

// summarizeRandom adds the results of the finished problems to the record.
func (b *bench) summarizeRandom() {
	if b.request.Random == nil {
		return
	}
	random := *b.request.Random
	random.Results = []run.RandomResult{}
	for _, e := range b.plan.entries {
		random.Results = append(random.Results, run.SummarizeRandom(e.name, b.random[e.name], random.Required))
	}
	b.result.Random = &random
}
