package spec

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"attune/internal/finding"
	"attune/internal/tensor"
)

// File is the name of the file that declares a kernel.
const File = "kernel.toml"

// Kernel is a CUDA program as kernel.toml declares it. It is immutable and safe for concurrent use.
type Kernel struct {
	Name        string
	About       string
	Allow       []finding.Kind // findings of the audit that every variant may have
	Knobs       []Knob
	Retired     []Retired
	Constraints []*Constraint
	Stages      []*Stage
	Selections  []*Selection
	Groups      []Group
	Run         Run
	Tolerance   Tolerance // of attention
	Random      *Random   // nil if kernel.toml gives no ranges to draw problems from

	Problem  string       // Attention or DeclaredProblem; empty means Attention
	Archs    []string     // of a declared kernel: the architectures it builds for
	Declared *Declaration // nil for attention
}

// Knob is one build-time choice.
type Knob struct {
	Name     string
	Layer    Layer
	Values   []int
	Default  int
	About    string
	Sources  []string       // only stages built from one of these have the knob; all stages if empty
	Formerly []string       // earlier names, which recorded variant names may still use
	Allow    []finding.Kind // findings of the audit that variants with another value than the default may have
	Fixed    bool           // a search keeps its value: it changes what the kernel computes or prints
	Axis     string         // of the shapes: a variant takes only those that have the knob's value there; may be empty
}

// in reports whether the stages of a source have the knob.
func (k Knob) in(source string) bool { return covers(k.Sources, source) }

// covers reports whether a list of sources, where empty means every source, includes one.
func covers(sources []string, source string) bool {
	return len(sources) == 0 || slices.Contains(sources, source)
}

// Layer classifies knobs.
type Layer string

// The layers of knobs.
const (
	Macro Layer = "macro" // the algorithm
	Micro Layer = "micro" // tuning
)

// Stage is a named variant with a hypothesis, a required speedup and a budget, all fixed before it
// runs.
type Stage struct {
	Name       string
	Source     string // path of the CUDA source, relative to kernel.toml
	Hypothesis string
	Speedup    float64 // required over the parent; 0 without a parent
	ErrorShare float64 // limit of the kernel's error over the quantisation error of the inputs
	Budget     Budget
	Archs      []string       // architectures it builds for, such as sm_89 or sm_90a
	Allow      []finding.Kind // findings of the audit that its variants may have
	// ExactExponentials is a rule over knobs: where it holds, the exponentials of the softmax are
	// exact to within what rounding to E4M3 loses. It is empty if the stage does not round P to E4M3.
	ExactExponentials string

	exact  *expression // nil if ExactExponentials is empty
	kernel *Kernel
	values []int // one for each knob
	parent *Variant
}

// Budget limits the resources of a stage.
type Budget struct {
	Registers   int // per thread
	SharedBytes int // per block
	SpillBytes  int // per thread
}

// unlimited is the budget of a stage that declares none.
var unlimited = Budget{math.MaxInt, math.MaxInt, math.MaxInt}

// Unlimited reports whether the stage declares no budget.
func (b Budget) Unlimited() bool { return b == unlimited }

// Group is a named list of shapes. A group of a declared kernel has one shape, which it names.
type Group struct {
	Name   string
	Shapes []Shape
}

// Run holds the defaults of a run. Shapes are written as for Kernel.Shapes.
type Run struct {
	Shapes    []string
	Benchmark []string // the shapes among them on which a stage must reach its required speedup
	Seeds     []uint64

	// Defaults of a run on the simulator, which is much slower than a GPU. They equal Shapes and
	// Seeds if kernel.toml does not set them.
	SimShapes []string
	SimSeeds  []uint64

	// Shapes of a quick run, on a GPU and on the simulator. Both are the "quick" of kernel.toml, or
	// the first shape of each item of Shapes and of SimShapes if kernel.toml does not set it.
	Quick    []string
	SimQuick []string
}

// Tolerance limits the error of every stage, in addition to the stage's ErrorShare. An element is
// bad if |got - want| > Atol + Rtol·|want|.
type Tolerance struct {
	MaxErr      float64
	MeanErr     float64
	Atol        float64
	Rtol        float64
	BadFraction float64
}

// Kernel returns the kernel of the stage.
func (s *Stage) Kernel() *Kernel { return s.kernel }

// Variant returns the stage itself as a variant.
func (s *Stage) Variant() Variant { return Variant{s, s.values} }

// Stage returns the stage of a name.
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
			return nil, s.notVariant()
		}
		names = append(names, s.Name)
	}
	name = shortened(name)
	return nil, fmt.Errorf("unknown stage %q%s", name, hint(name, names))
}

// Shapes parses a comma-separated list of group names and shapes such as "1x8x512x64:causal", or
// "rows=8,n=256" for a declared kernel. It keeps the order and drops repeated shapes. The error
// reports everything that is wrong with the text.
func (k *Kernel) Shapes(text string) ([]Shape, error) {
	var shapes []Shape
	var wrong []error
	items := strings.Split(text, ",")
	if k.Declared != nil {
		items = k.Declared.items(text)
	}
	for _, item := range items {
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

// shapes parses one item of a list. A group name of attention begins with a letter, a shape with a
// digit; a shape of a declared kernel has an equals sign.
func (k *Kernel) shapes(item string) ([]Shape, error) {
	var names []string
	for _, g := range k.Groups {
		if g.Name == item {
			return g.Shapes, nil
		}
		names = append(names, g.Name)
	}
	isShape := item != "" && item[0] >= '0' && item[0] <= '9'
	if k.Declared != nil {
		isShape = strings.Contains(item, "=") || item == string(noAxes) && len(k.Declared.Axes) == 0
	}
	if !isShape {
		choices := hint(item, names)
		if Nearest(item, names) == "" {
			choices += k.anyShape()
		}
		return nil, fmt.Errorf("unknown shape %q%s", item, choices)
	}
	shape, err := k.ParseShape(item)
	if err != nil {
		return nil, err
	}
	return []Shape{shape}, nil
}

// ParseShape parses the text of one shape, as its String method formats it.
func (k *Kernel) ParseShape(text string) (Shape, error) {
	if k.Declared != nil {
		shape, err := k.Declared.parse(text)
		if err != nil {
			return nil, err
		}
		return shape, nil
	}
	shape, err := tensor.ParseShape(text)
	if err != nil {
		return nil, err
	}
	return shape, nil
}

// ShapeNames returns the names that kernel.toml gives to a shape, in the order of the file. The
// shapes of attention have none.
func (k *Kernel) ShapeNames(s Shape) []string {
	if k.Declared == nil {
		return nil
	}
	var names []string
	for _, g := range k.Groups {
		if slices.Contains(g.Shapes, s) {
			names = append(names, g.Name)
		}
	}
	return names
}

func (k *Kernel) knobNames() []string {
	names := make([]string, len(k.Knobs))
	for i, knob := range k.Knobs {
		names[i] = knob.Name
	}
	return names
}

// forSource returns the kernel as the stages of one source see it: the knobs of other sources stay
// at their defaults, and their constraints do not apply.
func (k *Kernel) forSource(source string) *Kernel {
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

// allowed ends the message about a value that a knob does not have.
func (k Knob) allowed() string {
	var values []string
	for _, v := range k.Values {
		values = append(values, strconv.Itoa(v))
	}
	return "allowed are " + strings.Join(values, ", ")
}
