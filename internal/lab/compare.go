package lab

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"attune/internal/device"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
)

// CompareRequest says which two variants or selections to compare, and how.
type CompareRequest struct {
	A, B      Candidate
	Shapes    []spec.Shape
	Seed      uint64
	Rounds    int // to begin with
	MaxRounds int // limit of an ambiguous shape
	Processes int // in which the rounds are taken, one after the other; 0 is 1
	Energy    bool
	L2        run.L2
	Launches  int // limit of a graph; 0 for the default
	Arch      string
	MaxWork   float64 // multiply-adds of a complete reference; above it a sample of rows is checked

	SampleSeed *uint64 // of the sampled rows, to repeat a comparison; nil for a random one
}

// Candidate is a variant, or a selection in its place.
type Candidate struct {
	Variant   spec.Variant
	Selection *spec.Selection
}

func (c Candidate) String() string {
	if c.Selection != nil {
		return c.Selection.Name
	}
	return c.Variant.String()
}

// entry plans one candidate.
func (r CompareRequest) entry(p problem.Problem, c Candidate, deviceArch string) (entry, error) {
	request := Request{Problem: p, Shapes: r.Shapes, Seeds: []uint64{r.Seed}, Arch: r.Arch}
	if c.Selection != nil {
		request.Selections = []*spec.Selection{c.Selection}
	} else {
		request.Variants = []spec.Variant{c.Variant}
	}
	planned, err := request.plan(deviceArch)
	if err != nil {
		return entry{}, err
	}
	return planned.entries[0], nil
}

// Compare times A, B and A again as a control, interleaved in one process. Both must be correct on
// every shape before they are timed, and the simulator must find nothing. Rounds are added to shapes
// whose verdict is ambiguous, up to the limit.
func (l *Lab) Compare(ctx context.Context, r CompareRequest) (*run.Comparison, error) {
	c := &comparison{
		lab: l, request: r, sessions: l.newSessions(r.Processes), refs: l.references(r.MaxWork, r.SampleSeed),
		simulations: l.startSimulations(ctx, false, r.Shapes),
	}
	defer c.sessions.close()
	defer c.refs.Close()
	defer c.simulations.stop()
	if err := c.build(ctx); err != nil {
		return nil, err
	}
	for _, b := range c.builds {
		c.simulations.start(b)
	}
	d, err := c.sessions[0].ready(ctx)
	if err != nil {
		return nil, err
	}
	seed := c.refs.Secret()
	result := &run.Comparison{
		A: c.describe(0), B: c.describe(1), Facts: d.Facts(), L2: r.L2, Launches: r.Launches, Same: c.sameCode(),
		SampleSeed: &seed, NoSim: l.Device.withoutSimulator,
	}
	if l.Kernel.Declared != nil {
		result.Kernel = l.Kernel.Name
	}
	if err := c.checkAll(ctx); err != nil {
		return nil, err
	}
	for rounds := r.Rounds; ; rounds *= 2 {
		rounds = min(rounds, r.MaxRounds)
		if err := c.addRounds(ctx, rounds, result.Shapes); err != nil {
			return nil, err
		}
		result.Shapes = c.results()
		ambiguous := slices.ContainsFunc(result.Shapes, func(s run.ComparedShape) bool { return s.Verdict == measure.Ambiguous })
		if !ambiguous || rounds == r.MaxRounds {
			break
		}
	}
	var all []measure.Comparison
	for _, s := range result.Shapes {
		all = append(all, s.Comparison)
	}
	result.Verdict = measure.Overall(all)
	if err := c.proveSimulated(ctx, result); err != nil {
		return nil, err
	}
	return result, nil
}

// proveSimulated refuses a variant that the simulator finds wrong.
func (c *comparison) proveSimulated(ctx context.Context, result *run.Comparison) error {
	for i, compared := range []*run.Compared{&result.A, &result.B} {
		for _, p := range c.entries[i].parts {
			c.lab.progress(Progress{Subject: p.variant.String(), Step: "waiting for the simulator"})
			found, err := c.simulations.result(ctx, c.builds[p.variant.String()])
			if err == nil {
				err = wrongSimulated(p.variant, found)
			}
			if err != nil {
				return err
			}
			compared.Simulated = compared.Simulated.Add(found)
		}
	}
	return nil
}

// comparison is a CompareRequest in progress.
type comparison struct {
	lab      *Lab
	request  CompareRequest
	entries  [2]entry                 // A and B
	builds   map[string]problem.Build // by variant
	sessions sessions
	refs     problem.References
	shapes   []comparedShape

	simulations *simulations
}

// comparedShape is what was measured of one shape.
type comparedShape struct {
	coverage   oracle.Coverage
	processes  []measure.Interleaved // samples of each process
	excluded   measure.Interleaved
	joules     [2]float64          // of A and B; 0 means not measured
	rounds     int                 // including excluded ones
	related    [2]run.RelatedTimes // of A and B
	conditions run.Conditions
}

func (c *comparison) build(ctx context.Context) (err error) {
	var needed []spec.Variant
	for i, candidate := range []Candidate{c.request.A, c.request.B} {
		if c.entries[i], err = c.request.entry(c.lab.problem(), candidate, c.lab.Device.facts.Arch); err != nil {
			return err
		}
		for _, p := range c.entries[i].parts {
			needed = append(needed, p.variant)
		}
	}
	c.builds, err = c.lab.buildAudited(ctx, c.request.Arch, needed...)
	return err
}

// built is what an entry runs on a shape.
func (c *comparison) built(entry int, shape spec.Shape) problem.Build {
	return c.builds[c.entries[entry].on(shape).String()]
}

// sameCode reports whether both entries run the same code on every shape.
func (c *comparison) sameCode() bool {
	p := c.lab.problem()
	return !slices.ContainsFunc(c.request.Shapes, func(shape spec.Shape) bool {
		return CodeOf(p, c.built(0, shape)) != CodeOf(p, c.built(1, shape))
	})
}

// describe identifies an entry by its build, or a selection by those of its parts.
func (c *comparison) describe(i int) run.Compared {
	e, first := c.entries[i], c.built(i, c.request.Shapes[0]).Image.Record
	compared := run.Compared{Variant: e.name, Arch: first.Arch, CodeHash: first.CodeHash}
	if e.selection == nil {
		return compared
	}
	var all []run.Part
	for _, p := range e.parts {
		part := run.Part{CodeHash: c.builds[p.variant.String()].Image.Record.CodeHash}
		for _, shape := range p.shapes {
			part.Shapes = append(part.Shapes, shape.String())
		}
		all = append(all, part)
	}
	compared.CodeHash = joinedHash(all)
	return compared
}

// both names the two candidates in progress steps.
func (c *comparison) both() string { return c.request.A.String() + " and " + c.request.B.String() }

func (c *comparison) instance(shape spec.Shape) problem.Instance {
	return c.lab.problem().Plain(shape, c.request.Seed)
}

// checkAll refuses a variant that is wrong on any shape. It keeps one instance in memory at a time.
func (c *comparison) checkAll(ctx context.Context) error {
	for _, shape := range c.request.Shapes {
		p := c.instance(shape)
		c.lab.progress(Progress{Subject: c.both(), Step: "reference of " + p.String()})
		c.refs.KeepOnly(p)
		ref, err := c.refs.Get(ctx, p)
		if err != nil {
			return err
		}
		second, err := second(ctx, c.refs, c.lab.problem(), p, c.request.Shapes, c.request.Seed)
		if err != nil {
			return err
		}
		for i, e := range c.entries {
			v := e.on(shape)
			c.lab.progress(Progress{Subject: v.String(), Step: "correctness " + p.String()})
			result, err := c.lab.check(ctx, c.sessions[0], c.built(i, shape), ref, second)
			if err != nil {
				return fmt.Errorf("%s on %s: %w", v, p, err)
			}
			if wrong := result.firstWrong(); wrong != "" {
				return notCorrect(v, p, wrong, result.failure)
			}
		}
		c.shapes = append(c.shapes, comparedShape{coverage: ref.Coverage(), processes: make([]measure.Interleaved, len(c.sessions))})
	}
	return nil
}

// addRounds times every shape without a verdict until it has the given number of rounds. There are
// no results before the first call.
func (c *comparison) addRounds(ctx context.Context, rounds int, results []run.ComparedShape) error {
	for i, shape := range c.request.Shapes {
		if results != nil && results[i].Verdict != measure.Ambiguous {
			continue
		}
		c.lab.progress(Progress{
			Subject: c.both(), Step: fmt.Sprintf("%d rounds of %s", rounds, shape), Done: i, Total: len(c.request.Shapes),
		})
		if err := c.timeShape(ctx, shape, rounds, &c.shapes[i]); err != nil {
			return err
		}
	}
	return nil
}

// timeShape takes the missing rounds of one shape.
func (c *comparison) timeShape(ctx context.Context, shape spec.Shape, rounds int, s *comparedShape) error {
	p := c.instance(shape)
	c.refs.KeepOnly(p)
	ref, err := c.refs.Get(ctx, p)
	if err != nil {
		return err
	}
	first, missing := s.rounds == 0, rounds-s.rounds
	for i := range c.sessions {
		plan := device.Plan{
			Samples: measure.Share(missing/2, i, len(c.sessions)) * 2, ColdL2: c.request.L2 == run.Cold, Launches: c.request.Launches,
			Fresh: first, Energy: c.request.Energy && first && i == 0,
		}
		if plan.Samples == 0 {
			continue
		}
		if err := c.timeProcess(ctx, i, shape, ref, plan, s); err != nil {
			return err
		}
	}
	return nil
}

// timeProcess takes rounds of one shape in one process.
func (c *comparison) timeProcess(ctx context.Context, process int, shape spec.Shape, ref problem.Reference, plan device.Plan, s *comparedShape) error {
	a, b := c.built(0, shape), c.built(1, shape)
	all, err := c.lab.time(ctx, c.sessions[process], ref, plan, a, b, a)
	if err != nil {
		return fmt.Errorf("time %s: %w", shape, err)
	}
	var series []device.Series
	for i, t := range all {
		if len(t.Wrong) > 0 {
			return TimedWrong([]problem.Build{a, b, a}[i], shape, t.Wrong[0])
		}
		series = append(series, t.Series)
	}
	s.add(process, series)
	return nil
}

// add takes in the series of A, B and the control in one process. Two rounds in opposite order are
// excluded together.
func (s *comparedShape) add(process int, series []device.Series) {
	s.rounds += len(series[0].Seconds)
	kept, excluded, _ := device.Steady(2, series...)
	s.processes[process], s.excluded = s.processes[process].Append(kept), s.excluded.Append(excluded)
	for i := range s.joules {
		s.joules[i] = cmp.Or(s.joules[i], series[i].Joules)
	}
	s.related = [2]run.RelatedTimes{run.RelatedTimesOf(series[0]), run.RelatedTimesOf(series[1])}
	s.conditions = s.conditions.And(run.ConditionsOf(2, series...))
}

// samples are those of all processes, one after the other. A process of which no pair of rounds is
// left has none.
func (s *comparedShape) samples() measure.Interleaved {
	var all measure.Interleaved
	for _, p := range s.processes {
		if len(p.A) < 2 {
			continue
		}
		all = all.Append([][]float64{p.A, p.B, p.Control})
		all.Processes = append(all.Processes, len(p.A))
	}
	return all
}

// results compares all shapes by what was measured so far.
func (c *comparison) results() []run.ComparedShape {
	samples := make([]measure.Interleaved, len(c.shapes))
	for i, s := range c.shapes {
		samples[i] = s.samples()
	}
	var all []run.ComparedShape
	for i, found := range measure.Compare(samples) {
		s, shape := c.shapes[i], c.request.Shapes[i]
		row := run.NewComparedShape(shape.String(), samples[i], found)
		row.ARelated, row.BRelated, row.Conditions, row.Checked = s.related[0], s.related[1], s.conditions, &s.coverage
		row.AJoules, row.BJoules = s.joules[0], s.joules[1]
		if c.request.A.Selection != nil {
			row.AVariant = c.entries[0].on(shape).String()
		}
		if c.request.B.Selection != nil {
			row.BVariant = c.entries[1].on(shape).String()
		}
		if len(s.excluded.A) > 0 {
			row.Excluded = &s.excluded
		}
		all = append(all, row)
	}
	return all
}
