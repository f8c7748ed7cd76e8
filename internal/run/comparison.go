package run

import (
	"fmt"
	"math"

	"attune/internal/device"
	"attune/internal/measure"
	"attune/internal/oracle"
)

// Comparison is two variants held against each other. B is what is judged.
type Comparison struct {
	A       Compared        `json:"a"`
	B       Compared        `json:"b"`
	Same    bool            `json:"same_code"`
	Verdict measure.Verdict `json:"verdict"`
	Shapes  []ComparedShape `json:"shapes"`
	Facts   device.Facts    `json:"facts"`
	L2      L2              `json:"l2"`

	Launches int  `json:"launches,omitempty"` // that a graph had at most; 0 for recorded runs, whose samples have their own numbers
	Recorded bool `json:"recorded"`           // by the samples of recorded runs, which were not taken in turns
}

// Compared is one side of a comparison.
type Compared struct {
	Variant  string `json:"variant"`
	Arch     string `json:"arch"`
	CodeHash string `json:"code_hash,omitempty"`
}

// ComparedShape is the comparison on one shape.
type ComparedShape struct {
	Shape  string `json:"shape"`
	Rounds int    `json:"rounds"`

	AVariant string `json:"a_variant,omitempty"` // the one that a selection has chosen here
	BVariant string `json:"b_variant,omitempty"`

	Answers *oracle.Checked `json:"answers,omitempty"` // how much of them was held against the oracle; nil where the runs of a ledger are compared

	measure.Comparison
	ATimes  measure.Summary `json:"a_seconds"`
	BTimes  measure.Summary `json:"b_seconds"`
	Samples measure.Turns   `json:"samples"`

	AParts   Parts          `json:"a_parts"`
	BParts   Parts          `json:"b_parts"`
	SetAside *measure.Turns `json:"set_aside_samples,omitempty"` // of rounds in which something held the clocks down
	Circumstances
}

// Overall is the geometric mean over the shapes, of the ratios and of the ends of their intervals.
func (c *Comparison) Overall() measure.Speedup {
	var ratio, low, high float64
	for _, s := range c.Shapes {
		ratio, low, high = ratio+math.Log(s.Ratio), low+math.Log(s.Low), high+math.Log(s.High)
	}
	n := float64(len(c.Shapes))
	return measure.Speedup{Ratio: math.Exp(ratio / n), Low: math.Exp(low / n), High: math.Exp(high / n)}
}

// CompareRecorded holds the samples of two recorded runs against each other, on the shapes that both have. They were not taken in turns, so that the interval
// knows nothing of what changed between them, and there is no control; the floor is given instead.
func CompareRecorded(a, b *Run, floor float64) (*Comparison, error) {
	if a.Asked.L2 != b.Asked.L2 {
		return nil, fmt.Errorf("run %s was timed with L2 %s and run %s with L2 %s; their times cannot be compared",
			a.ID, a.Asked.L2, b.ID, b.Asked.L2)
	}
	c := &Comparison{A: recordedSide(a), B: recordedSide(b), L2: a.Asked.L2, Recorded: true}
	c.Same = c.A.CodeHash != "" && c.A.CodeHash == c.B.CodeHash
	if b.Facts != nil {
		c.Facts = *b.Facts
	}
	var all []measure.Comparison
	for _, x := range a.Samples {
		for _, y := range b.Samples {
			if x.Shape != y.Shape || len(x.Variant.Seconds) == 0 || len(y.Variant.Seconds) == 0 {
				continue
			}
			ours, _ := x.Steady()
			theirs, _ := y.Steady()
			found := measure.CompareRecorded(ours, theirs, floor)
			all = append(all, found)
			c.Shapes = append(c.Shapes, ComparedShape{
				Shape: x.Shape, Rounds: min(len(ours), len(theirs)), Comparison: found,
				ATimes: measure.Summarize(ours), BTimes: measure.Summarize(theirs), Samples: measure.Turns{A: ours, B: theirs},
				AParts: PartsOf(x.Variant), BParts: PartsOf(y.Variant), Circumstances: x.Circumstances().And(y.Circumstances()),
			})
		}
	}
	if len(c.Shapes) == 0 {
		return nil, fmt.Errorf("runs %s and %s have no shape in common that both were timed on", a.ID, b.ID)
	}
	c.Verdict = measure.Overall(all)
	return c, nil
}

func recordedSide(r *Run) Compared {
	side := Compared{Variant: r.Variant}
	if r.Build != nil {
		side.Arch, side.CodeHash = r.Build.Arch, r.Build.CodeHash
	}
	return side
}
