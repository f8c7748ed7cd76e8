package lab

import (
	"context"
	"fmt"
	"slices"

	"attune/internal/device"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// CompareRequest is which two variants or selections to hold against each other, and how.
type CompareRequest struct {
	A, B       Side
	Shapes     []tensor.Shape
	Seed       uint64
	Rounds     int // that a comparison begins with
	MostRounds int // that an ambiguous one may buy
	L2         run.L2
	Launches   int // as BenchRequest has it
	Arch       string
	MostWork   float64 // as BenchRequest has it
}

// Side is a variant, or a selection in its place.
type Side struct {
	Variant   spec.Variant
	Selection *spec.Selection
}

func (s Side) String() string {
	if s.Selection != nil {
		return s.Selection.Name
	}
	return s.Variant.String()
}

// on is the variant that takes a shape, of which the request has been checked.
func (s Side) on(shape tensor.Shape) spec.Variant {
	if s.Selection == nil {
		return s.Variant
	}
	c, _ := s.Selection.Choose(shape)
	return c.Variant
}

// request asks for a side alone.
func (r CompareRequest) request(s Side) Request {
	request := Request{Shapes: r.Shapes, Seeds: []uint64{r.Seed}, Arch: r.Arch}
	if s.Selection != nil {
		request.Selections = []*spec.Selection{s.Selection}
	} else {
		request.Variants = []spec.Variant{s.Variant}
	}
	return request
}

// both are the images of two sides on one shape.
type both [2]*toolchain.Image

// Compare times two variants or selections in turns in one process, with the first a second time as a control. Both must be right on every shape before
// they are timed. What is ambiguous buys more rounds, up to the limit.
func (l *Lab) Compare(ctx context.Context, r CompareRequest) (*run.Comparison, error) {
	images, err := l.buildSides(ctx, r)
	if err != nil {
		return nil, err
	}
	d, err := l.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	c := &run.Comparison{A: compared(r, r.A, images, 0), B: compared(r, r.B, images, 1), Facts: d.Facts(), L2: r.L2, Launches: r.Launches, Same: true}
	for _, of := range images {
		c.Same = c.Same && codeOf(of[0]) == codeOf(of[1])
	}
	checked, err := l.answersRight(ctx, d, r, images)
	if err != nil {
		return nil, err
	}
	taken := make([]takenShape, len(r.Shapes))
	for rounds := r.Rounds; ; rounds *= 2 {
		rounds = min(rounds, r.MostRounds)
		if err := l.takeTurns(ctx, d, r, images, taken, c.Shapes, rounds); err != nil {
			return nil, err
		}
		c.Shapes = comparedShapes(r, taken, checked)
		if !anyAmbiguous(c.Shapes) || rounds == r.MostRounds {
			break
		}
	}
	var all []measure.Comparison
	for _, s := range c.Shapes {
		all = append(all, s.Comparison)
	}
	c.Verdict = measure.Overall(all)
	return c, nil
}

// buildSides gives the images of both sides for each shape.
func (l *Lab) buildSides(ctx context.Context, r CompareRequest) ([]both, error) {
	var needed []spec.Variant
	for _, side := range []Side{r.A, r.B} {
		if err := r.request(side).Check(); err != nil {
			return nil, err
		}
		for _, shape := range r.Shapes {
			needed = append(needed, side.on(shape))
		}
	}
	builds := l.startBuilds(ctx, Request{Arch: r.Arch}, needed)
	defer builds.stop()
	images := make([]both, len(r.Shapes))
	for i, v := range needed {
		l.tell(Event{Variant: v.String(), Doing: "building"})
		image, err := builds.wait(v)
		if err != nil {
			return nil, err
		}
		images[i%len(r.Shapes)][i/len(r.Shapes)] = image
	}
	return images, nil
}

// compared describes one side: by its build, or, of a selection, by those of its parts.
func compared(r CompareRequest, s Side, images []both, side int) run.Compared {
	first := images[0][side].Record
	c := run.Compared{Variant: s.String(), Arch: first.Arch, CodeHash: first.CodeHash}
	if s.Selection == nil {
		return c
	}
	parts, _ := r.request(s).parts(s.Selection) // the request has been checked
	var all []run.Part
	for _, part := range parts {
		p := run.Part{}
		for i, shape := range r.Shapes {
			if slices.Contains(part.Shapes, shape) {
				p.CodeHash, p.Shapes = images[i][side].Record.CodeHash, append(p.Shapes, shape.String())
			}
		}
		all = append(all, p)
	}
	c.CodeHash = joinedHash(all)
	return c
}

// answersRight is green before fast: nothing is timed that is wrong. It says how much of the answer to each shape was looked at. Of large problems there is
// one in memory at a time.
func (l *Lab) answersRight(ctx context.Context, d device.Device, r CompareRequest, images []both) ([]oracle.Checked, error) {
	var checked []oracle.Checked
	for i, shape := range r.Shapes {
		p := problem{shape: shape, seed: r.Seed, inputs: tensor.Normal}
		l.tell(Event{Variant: r.A.String() + " and " + r.B.String(), Doing: "the right answer to " + p.String()})
		ref, err := newSampledReferences(r.MostWork).get(ctx, p)
		if err != nil {
			return nil, err
		}
		checked = append(checked, ref.checked())
		for j, side := range []Side{r.A, r.B} {
			if err := l.answerRight(ctx, d, p, ref, side.on(shape), images[i][j]); err != nil {
				return nil, err
			}
		}
	}
	return checked, nil
}

// answerRight refuses a variant that gives a wrong answer.
func (l *Lab) answerRight(ctx context.Context, d device.Device, p problem, ref *reference, v spec.Variant, image *toolchain.Image) error {
	l.tell(Event{Variant: v.String(), Doing: "correctness " + p.String()})
	outcome, err := d.Run(ctx, newJob(image, d.Facts(), ref.inputs))
	if err != nil {
		return fmt.Errorf("%s on %s: %w", v, p, err)
	}
	_, wrong, err := l.check(ref, v, image, outcome)
	if err != nil {
		return err
	}
	if len(wrong) > 0 {
		return &WrongError{v.String(), p.String() + ": " + wrong[0]}
	}
	return nil
}

// takenShape is all that was measured of one shape.
type takenShape struct {
	turns, aside   measure.Turns
	rounds         int // those that were set aside included
	aParts, bParts run.Parts
	circumstances  run.Circumstances
}

// add takes in what a device has measured: a, b and the control.
func (t *takenShape) add(series []device.Series) {
	t.rounds += len(series[0].Seconds)
	// A round in one order counts only with the one in the other.
	kept, aside, _ := device.Steady(2, series...)
	t.turns, t.aside = joined(t.turns, kept), joined(t.aside, aside)
	t.aParts, t.bParts = run.PartsOf(series[0]), run.PartsOf(series[1])
	t.circumstances = t.circumstances.And(run.CircumstancesOf(2, series...))
}

func joined(t measure.Turns, more [][]float64) measure.Turns {
	return measure.Turns{A: append(t.A, more[0]...), B: append(t.B, more[1]...), Control: append(t.Control, more[2]...)}
}

// takeTurns adds rounds to the series of every shape that is not decided yet, until it has so many.
func (l *Lab) takeTurns(ctx context.Context, d device.Device, r CompareRequest, images []both, taken []takenShape, known []run.ComparedShape,
	rounds int,
) error {
	for i, shape := range r.Shapes {
		if known != nil && known[i].Verdict != measure.Ambiguous {
			continue
		}
		l.tell(Event{Variant: r.A.String() + " and " + r.B.String(), Doing: fmt.Sprintf("%d rounds of %s", rounds, shape), Done: i, Total: len(r.Shapes)})
		in := tensor.Draw(shape, r.Seed, tensor.Options{})
		a, b := newJob(images[i][0], d.Facts(), in), newJob(images[i][1], d.Facts(), in)
		series, err := d.Time(ctx, []device.Job{a, b, a}, device.Plan{Samples: rounds - taken[i].rounds, ColdL2: r.L2 == run.Cold, Launches: r.Launches})
		if err != nil {
			return fmt.Errorf("time %s: %w", shape, err)
		}
		taken[i].add(series)
	}
	return nil
}

func comparedShapes(r CompareRequest, taken []takenShape, checked []oracle.Checked) []run.ComparedShape {
	turns := make([]measure.Turns, len(taken))
	for i, t := range taken {
		turns[i] = t.turns
	}
	var all []run.ComparedShape
	for i, c := range measure.Compare(turns) {
		t := taken[i]
		s := run.ComparedShape{
			Shape: r.Shapes[i].String(), Rounds: len(t.turns.A), Comparison: c, Samples: t.turns,
			ATimes: measure.Summarize(t.turns.A), BTimes: measure.Summarize(t.turns.B),
			AParts: t.aParts, BParts: t.bParts, Circumstances: t.circumstances, Answers: &checked[i],
		}
		if r.A.Selection != nil {
			s.AVariant = r.A.on(r.Shapes[i]).String()
		}
		if r.B.Selection != nil {
			s.BVariant = r.B.on(r.Shapes[i]).String()
		}
		if len(t.aside.A) > 0 {
			s.SetAside = &t.aside
		}
		all = append(all, s)
	}
	return all
}

func anyAmbiguous(shapes []run.ComparedShape) bool {
	for _, s := range shapes {
		if s.Verdict == measure.Ambiguous {
			return true
		}
	}
	return false
}
