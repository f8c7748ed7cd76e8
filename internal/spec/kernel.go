package spec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"attune/internal/tensor"
)

// File is the name of the file that holds a kernel's spec.
const File = "kernel.toml"

// Kernel is a CUDA program as its spec describes it. It is read only, and its methods can be called from many
// goroutines at once.
type Kernel struct {
	Name        string
	About       string
	Knobs       []Knob
	Retired     []Retired
	Constraints []*Constraint
	Stages      []*Stage
	Selections  []*Selection
	Groups      []Group
	Run         Run
	Tolerance   Tolerance
}

// Knob is one build-time choice.
type Knob struct {
	Name     string
	Layer    Layer
	Values   []int
	Default  int
	About    string
	Sources  []string // only stages built from one of these have the knob; all stages if empty
	Formerly []string // earlier names, which recorded variant names may still use
}

// in reports whether the stages of a source have the knob.
func (k Knob) in(source string) bool { return covers(k.Sources, source) }

// covers reports whether a list of sources, where empty means every source, includes one.
func covers(sources []string, source string) bool {
	return len(sources) == 0 || slices.Contains(sources, source)
}

// Layer says what kind of choice a knob is.
type Layer string

// The layers of knobs.
const (
	Macro Layer = "macro" // the algorithm
	Micro Layer = "micro" // fine tuning
)

// Stage is a named variant with a hypothesis, all of it fixed before the stage runs.
type Stage struct {
	Name       string
	Source     string // of the CUDA program, from the directory of the spec
	Hypothesis string
	Speedup    float64 // promised over the parent; 0 for a stage without one
	ErrorShare float64 // how much the kernel's own error may be, as a share of what FP8 inputs cost
	Budget     Budget
	Archs      []string // where it can run, such as sm_89 or sm_90a

	kernel *Kernel
	values []int // one for each knob
	parent *Variant
}

// Budget is what a stage may take of the chip: at most so many registers a thread, bytes of shared memory a block and
// bytes of spill.
type Budget struct {
	Registers   int
	SharedBytes int
	SpillBytes  int
}

// Group is a list of shapes under one name.
type Group struct {
	Name     string
	Problems []tensor.Shape
}

// Run is what a run does unless it is told otherwise. Shapes are written as for Kernel.Shapes.
type Run struct {
	Shapes    []string
	Benchmark []string // the shapes among them on which a stage must reach its required speedup
	Seeds     []uint64

	// On the simulator, which is slower than a GPU by far, a run may do less. Where the spec does not say, it does the same.
	SimShapes []string
	SimSeeds  []uint64
}

// Tolerance bounds the error of every stage from the outside, whatever its own budget of error. An element is bad if
// it is off by more than Atol + Rtol·|right|.
type Tolerance struct {
	MaxErr      float64
	MeanErr     float64
	Atol        float64
	Rtol        float64
	BadFraction float64
}

// Variant is the stage itself, without a departure.
func (s *Stage) Variant() Variant { return Variant{s, s.values} }

// Stage finds a stage by its name.
func (k *Kernel) Stage(name string) (*Stage, error) {
	var names []string
	for _, s := range k.Stages {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	for _, s := range k.Selections {
		if s.Name == name {
			return nil, s.notOne()
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("unknown stage %q%s", name, hint(name, names))
}

// Shapes reads a list of shapes, with commas between them: names of groups, or shapes as in "1x8x512x64:causal". The
// order is kept, and a shape that comes again is left out. The error tells of everything that is wrong with the text.
func (k *Kernel) Shapes(text string) ([]tensor.Shape, error) {
	var shapes []tensor.Shape
	var wrong []error
	for _, item := range strings.Split(text, ",") {
		found, err := k.shapes(item)
		if err != nil {
			wrong = append(wrong, err)
		}
		for _, shape := range found {
			if !slices.Contains(shapes, shape) {
				shapes = append(shapes, shape)
			}
		}
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	return shapes, nil
}

// shapes reads one item of a list. The name of a group begins with a letter and a shape with a digit.
func (k *Kernel) shapes(item string) ([]tensor.Shape, error) {
	var names []string
	for _, g := range k.Groups {
		if g.Name == item {
			return g.Problems, nil
		}
		names = append(names, g.Name)
	}
	if item == "" || item[0] < '0' || item[0] > '9' {
		way := hint(item, names)
		if Nearest(item, names) == "" {
			way += ", and any BxHxSxD such as 1x8x512x64"
		}
		return nil, fmt.Errorf("unknown shape %q%s", item, way)
	}
	shape, err := tensor.ParseShape(item)
	if err != nil {
		return nil, err
	}
	return []tensor.Shape{shape}, nil
}

func (k *Kernel) knobNames() []string {
	names := make([]string, len(k.Knobs))
	for i, knob := range k.Knobs {
		names[i] = knob.Name
	}
	return names
}

// of is the kernel as the stages of one source see it: the knobs of others stay at their defaults, and their rules do not count.
func (k *Kernel) of(source string) *Kernel {
	own := &Kernel{Knobs: slices.Clone(k.Knobs)}
	for i, knob := range own.Knobs {
		if !knob.in(source) {
			own.Knobs[i].Values = []int{knob.Default}
		}
	}
	for _, c := range k.Constraints {
		if c.in(source) {
			own.Constraints = append(own.Constraints, c)
		}
	}
	return own
}

// allowed ends the message about a value that a knob cannot have.
func (k Knob) allowed() string {
	var values []string
	for _, v := range k.Values {
		values = append(values, strconv.Itoa(v))
	}
	return "allowed are " + strings.Join(values, ", ")
}
