package lab

import (
	"context"
	"fmt"

	"attune/internal/device"
	"attune/internal/measure"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// CompareRequest is which two variants to hold against each other, and how.
type CompareRequest struct {
	A, B       spec.Variant
	Shapes     []tensor.Shape
	Seed       uint64
	Rounds     int // that a comparison begins with
	MostRounds int // that an ambiguous one may buy
	L2         run.L2
	Arch       string
}

// Compare times two variants in turns in one process, with the first a second time as a control. Both must be right on every shape before they are timed.
// What is ambiguous buys more rounds, up to the limit.
func (l *Lab) Compare(ctx context.Context, r CompareRequest) (*run.Comparison, error) {
	sides := Request{Variants: []spec.Variant{r.A, r.B}, Shapes: r.Shapes, Seeds: []uint64{r.Seed}, Arch: r.Arch}
	if err := sides.Check(); err != nil {
		return nil, err
	}
	builds := l.startBuilds(ctx, sides, sides.Variants)
	defer builds.stop()
	var images [2]*toolchain.Image
	for i, v := range sides.Variants {
		l.tell(Event{Variant: v.String(), Doing: "building"})
		image, err := builds.wait(v)
		if err != nil {
			return nil, err
		}
		images[i] = image
	}
	d, err := l.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	c := &run.Comparison{A: compared(r.A, images[0]), B: compared(r.B, images[1]), Facts: d.Facts(), L2: r.L2, Same: codeOf(images[0]) == codeOf(images[1])}
	if err := l.answersRight(ctx, d, sides, images); err != nil {
		return nil, err
	}
	taken := make([]takenShape, len(r.Shapes))
	for rounds := r.Rounds; ; rounds *= 2 {
		rounds = min(rounds, r.MostRounds)
		if err := l.takeTurns(ctx, d, r, images, taken, c.Shapes, rounds); err != nil {
			return nil, err
		}
		c.Shapes = comparedShapes(r.Shapes, taken)
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

func compared(v spec.Variant, image *toolchain.Image) run.Compared {
	return run.Compared{Variant: v.String(), Arch: image.Record.Arch, CodeHash: image.Record.CodeHash}
}

// answersRight is green before fast: nothing is timed that is wrong.
func (l *Lab) answersRight(ctx context.Context, d device.Device, sides Request, images [2]*toolchain.Image) error {
	references := newReferences()
	for i, v := range sides.Variants {
		for _, shape := range sides.Shapes {
			p := problem{shape: shape, seed: sides.Seeds[0], inputs: tensor.Normal}
			l.tell(Event{Variant: v.String(), Doing: "correctness " + p.String()})
			ref, err := references.get(ctx, p)
			if err != nil {
				return err
			}
			outcome, err := d.Run(ctx, newJob(images[i], d.Facts(), ref.inputs))
			if err != nil {
				return fmt.Errorf("%s on %s: %w", v, p, err)
			}
			found, err := compare(ref, outcome, l.Kernel.Tolerance)
			if err != nil {
				return err
			}
			if _, wrong := judge(ref, found, outcome.Findings, v.Stage().ErrorShare, l.Kernel.Tolerance); len(wrong) > 0 {
				return &WrongError{v.String(), p.String() + ": " + wrong[0]}
			}
		}
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
func (l *Lab) takeTurns(ctx context.Context, d device.Device, r CompareRequest, images [2]*toolchain.Image, taken []takenShape, known []run.ComparedShape,
	rounds int,
) error {
	for i, shape := range r.Shapes {
		if known != nil && known[i].Verdict != measure.Ambiguous {
			continue
		}
		l.tell(Event{Variant: r.A.String() + " and " + r.B.String(), Doing: fmt.Sprintf("%d rounds of %s", rounds, shape), Done: i, Total: len(r.Shapes)})
		in := tensor.Draw(shape, r.Seed, tensor.Options{})
		a, b := newJob(images[0], d.Facts(), in), newJob(images[1], d.Facts(), in)
		series, err := d.Time(ctx, []device.Job{a, b, a}, device.Plan{Samples: rounds - taken[i].rounds, ColdL2: r.L2 == run.Cold})
		if err != nil {
			return fmt.Errorf("time %s: %w", shape, err)
		}
		taken[i].add(series)
	}
	return nil
}

func comparedShapes(shapes []tensor.Shape, taken []takenShape) []run.ComparedShape {
	turns := make([]measure.Turns, len(taken))
	for i, t := range taken {
		turns[i] = t.turns
	}
	var all []run.ComparedShape
	for i, c := range measure.Compare(turns) {
		t := taken[i]
		s := run.ComparedShape{
			Shape: shapes[i].String(), Rounds: len(t.turns.A), Comparison: c, Samples: t.turns,
			ATimes: measure.Summarize(t.turns.A), BTimes: measure.Summarize(t.turns.B),
			AParts: t.aParts, BParts: t.bParts, Circumstances: t.circumstances,
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
