package run

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"attune/internal/device"
	"attune/internal/measure"
	"attune/internal/oracle"
)

// Comparison compares variant or selection B with A.
type Comparison struct {
	A       Compared        `json:"a"`
	B       Compared        `json:"b"`
	Kernel  string          `json:"kernel,omitempty"` // a declared one
	Same    bool            `json:"same_code"`
	Verdict measure.Verdict `json:"verdict"`
	Shapes  []ComparedShape `json:"shapes"`
	Facts   device.Facts    `json:"facts"`
	L2      L2              `json:"l2"`
	// SampleSeed is the seed of the rows that were checked where not all were; nil for recorded runs.
	SampleSeed *uint64 `json:"sample_seed,omitempty"`

	NoSim    bool `json:"no_sim,omitempty"`   // the simulator did not check the code
	Launches int  `json:"launches,omitempty"` // limit of a graph; 0 for recorded runs, whose samples have their own
	Recorded bool `json:"recorded"`           // the samples are those of recorded runs, which were not interleaved
}

// Compared identifies A or B of a comparison.
type Compared struct {
	Variant  string `json:"variant"`
	Arch     string `json:"arch"`
	CodeHash string `json:"code_hash,omitempty"`

	Simulated *Simulated `json:"simulated,omitempty"` // beside the GPU; nil with NoSim and for recorded runs
}

// ComparedShape is the comparison on one shape.
type ComparedShape struct {
	Shape  string `json:"shape"`
	Rounds int    `json:"rounds"`

	AVariant string `json:"a_variant,omitempty"` // that selection A chose
	BVariant string `json:"b_variant,omitempty"` // that selection B chose

	Checked *oracle.Coverage `json:"answers,omitempty"` // rows compared with the reference; nil for recorded runs

	measure.Comparison
	ATimes  measure.Summary     `json:"a_seconds"`
	BTimes  measure.Summary     `json:"b_seconds"`
	Samples measure.Interleaved `json:"samples"`

	ABetween measure.Between `json:"a_processes"` // seconds
	BBetween measure.Between `json:"b_processes"`
	AJoules  float64         `json:"a_joules_per_launch,omitempty"` // 0 means not measured
	BJoules  float64         `json:"b_joules_per_launch,omitempty"`

	ARelated RelatedTimes         `json:"a_parts"`
	BRelated RelatedTimes         `json:"b_parts"`
	Excluded *measure.Interleaved `json:"set_aside_samples,omitempty"` // samples of rounds in which the GPU was throttled
	Conditions
}

// NewComparedShape describes the samples of one shape.
func NewComparedShape(shape string, samples measure.Interleaved, found measure.Comparison) ComparedShape {
	a, b := measure.SplitProcesses(samples.A, samples.Processes), measure.SplitProcesses(samples.B, samples.Processes)
	return ComparedShape{
		Shape: shape, Rounds: len(samples.A), Comparison: found, Samples: samples,
		ATimes: measure.SummarizeProcesses(a), BTimes: measure.SummarizeProcesses(b),
		ABetween: measure.BetweenProcesses(a), BBetween: measure.BetweenProcesses(b),
	}
}

// Overall is the geometric mean over the shapes.
func (c *Comparison) Overall() measure.Speedup {
	var all []measure.Speedup
	for _, s := range c.Shapes {
		all = append(all, measure.Speedup{Ratio: s.Ratio, Low: s.Low, High: s.High})
	}
	return geometricMean(all)
}

// geometricMean is that of the ratios, and of the ends of their intervals.
func geometricMean(all []measure.Speedup) measure.Speedup {
	var ratio, low, high float64
	for _, s := range all {
		ratio, low, high = ratio+math.Log(s.Ratio), low+math.Log(s.Low), high+math.Log(s.High)
	}
	n := float64(len(all))
	return measure.Speedup{Ratio: math.Exp(ratio / n), Low: math.Exp(low / n), High: math.Exp(high / n)}
}

// CompareRecorded compares the samples of two recorded runs on their common shapes. The samples
// were not interleaved, so the interval does not include what changed between the runs, and there
// is no control. The caller gives the noise floor instead. Only the given shapes are compared; nil
// means all.
func CompareRecorded(a, b *Run, floor float64, shapes []string) (*Comparison, error) {
	if a.Requested.L2 != b.Requested.L2 {
		return nil, fmt.Errorf("run %s was timed with L2 %s and run %s with L2 %s; their times cannot be compared",
			a.ID, a.Requested.L2, b.ID, b.Requested.L2)
	}
	c := &Comparison{A: comparedRun(a), B: comparedRun(b), L2: a.Requested.L2, Recorded: true}
	if b.Problem != nil {
		c.Kernel = b.Kernel
	}
	c.Same = c.A.CodeHash != "" && c.A.CodeHash == c.B.CodeHash
	if b.Facts != nil {
		c.Facts = *b.Facts
	}
	var all []measure.Comparison
	for _, x := range a.Samples {
		for _, y := range b.Samples {
			if x.Shape != y.Shape || shapes != nil && !slices.Contains(shapes, x.Shape) || len(x.Variant.Seconds) == 0 || len(y.Variant.Seconds) == 0 {
				continue
			}
			s := compareSamples(x, y, floor)
			all = append(all, s.Comparison)
			c.Shapes = append(c.Shapes, s)
		}
	}
	if len(c.Shapes) == 0 && shapes != nil {
		return nil, fmt.Errorf("runs %s and %s were not both timed on any of the shapes %s", a.ID, b.ID, strings.Join(shapes, ", "))
	}
	if len(c.Shapes) == 0 {
		return nil, fmt.Errorf("runs %s and %s have no common shape that both were timed on; "+
			"a run on the simulator has no times", a.ID, b.ID)
	}
	c.Verdict = measure.Overall(all)
	return c, nil
}

// compareSamples compares two runs on one shape.
func compareSamples(x, y Samples, floor float64) ComparedShape {
	byProcess := [2][][]float64{x.Pair().Variant, y.Pair().Variant}
	a, b := slices.Concat(byProcess[0]...), slices.Concat(byProcess[1]...)
	return ComparedShape{
		Shape: x.Shape, Rounds: min(len(a), len(b)), Comparison: measure.CompareRecordedProcesses(byProcess[0], byProcess[1], floor),
		ATimes: measure.SummarizeProcesses(byProcess[0]), BTimes: measure.SummarizeProcesses(byProcess[1]),
		ABetween: measure.BetweenProcesses(byProcess[0]), BBetween: measure.BetweenProcesses(byProcess[1]),
		Samples: measure.Interleaved{A: a, B: b}, AJoules: x.Variant.Joules, BJoules: y.Variant.Joules,
		ARelated: RelatedTimesOf(x.Variant), BRelated: RelatedTimesOf(y.Variant), Conditions: x.Conditions().And(y.Conditions()),
	}
}

func comparedRun(r *Run) Compared {
	c := Compared{Variant: r.Variant}
	if r.Build != nil {
		c.Arch, c.CodeHash = r.Build.Arch, r.Build.CodeHash
	}
	return c
}
