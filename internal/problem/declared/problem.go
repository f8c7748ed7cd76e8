package declared

import (
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"attune/internal/array"
	"attune/internal/finding"
	"attune/internal/mutate"
	"attune/internal/problem"
	"attune/internal/profile"
	"attune/internal/spec"
	"attune/internal/tensormap"
)

// Problem is the problem of a declared kernel.
type Problem struct {
	kernel *spec.Kernel
	*spec.Declaration
	folder fs.FS
	dir    string // the folder on disk; empty for an embedded kernel
}

var _ problem.Problem = (*Problem)(nil)

// New returns the problem of a kernel with a declaration. dir is its folder on disk, empty for an
// embedded kernel.
func New(k *spec.Kernel, folder fs.FS, dir string) *Problem {
	return &Problem{k, k.Declared, folder, dir}
}

// Name returns spec.DeclaredProblem.
func (p *Problem) Name() string { return spec.DeclaredProblem }

// DType lists the number formats of the inputs.
func (p *Problem) DType(v spec.Variant) string {
	var names []string
	for _, a := range p.argsOf(v) {
		if (a.Role == spec.In || a.Role == spec.InOut) && !slices.Contains(names, string(a.Type)) {
			names = append(names, string(a.Type))
		}
	}
	return strings.Join(names, ", ")
}

// argsOf returns the arguments with the types of a variant, or of the defaults of all knobs if there is
// none. CheckShapes reports types that cannot be evaluated.
func (p *Problem) argsOf(v spec.Variant) []spec.Arg {
	if v.Stage() == nil {
		return p.Args
	}
	args, err := p.ArgsOf(v)
	if err != nil {
		return p.Args
	}
	return args
}

// CheckShapes refuses shapes that the variant is not built for, and evaluates all expressions for
// the others.
func (p *Problem) CheckShapes(v spec.Variant, shapes []spec.Shape) error {
	for _, s := range shapes {
		if err := v.Fits(s); err != nil {
			return err
		}
		if err := p.Check(v, s); err != nil {
			first, _, _ := strings.Cut(err.Error(), "\n")
			return fmt.Errorf("%s: %s", v, first)
		}
	}
	return nil
}

// Common reports whether two variants are built for the same shapes.
func (p *Problem) Common(a, b spec.Variant) bool {
	axes, values := a.BuiltFor()
	otherAxes, others := b.BuiltFor()
	return slices.Equal(axes, otherAxes) && slices.Equal(values, others)
}

// Budget is that of the stage.
func (p *Problem) Budget(v spec.Variant) spec.Budget { return v.Stage().Budget }

// Instances are every shape with every seed.
func (p *Problem) Instances(shapes []spec.Shape, seeds []uint64) []problem.Instance {
	var all []problem.Instance
	for _, s := range shapes {
		for _, seed := range seeds {
			all = append(all, p.Plain(s, seed))
		}
	}
	return all
}

// Edges are the inputs of an instance whose seed adds the edges of the fills.
const Edges = "edges"

// Plain is the instance of a shape and a seed.
func (p *Problem) Plain(s spec.Shape, seed uint64) problem.Instance {
	i := problem.Instance{Shape: s, Seed: seed}
	if seed >= array.EdgeSeed {
		i.Inputs = Edges
	}
	return i
}

// Size is the number of elements of all buffers, with the defaults of all knobs.
func (p *Problem) Size(s spec.Shape) float64 {
	size := 0.0
	b, err := p.buffers(p.defaults(s), s)
	if err != nil {
		return math.Inf(1)
	}
	for i, a := range p.Args {
		if a.Role.IsBuffer() && b.extents[i] != nil {
			size += float64(elements(b.extents[i]))
		}
	}
	return size
}

// Work evaluates [work]. A peer, which has no variant, does the work of the defaults of all knobs.
func (p *Problem) Work(v spec.Variant, s spec.Shape, _ string) (problem.Work, error) {
	values := p.defaults(s)
	if v.Stage() != nil {
		values = p.Values(v, s)
	}
	flops, err := p.real(p.FLOPs, values, s)
	if err != nil {
		return problem.Work{}, err
	}
	bytes, err := p.real(p.Bytes, values, s)
	if err != nil {
		return problem.Work{}, err
	}
	return problem.Work{FLOPs: flops, Bytes: bytes}, nil
}

// Parameters are the arguments.
func (p *Problem) Parameters(b problem.Build) []problem.Parameter {
	args := p.argsOf(b.Variant)
	all := make([]problem.Parameter, len(args))
	for i, a := range args {
		all[i] = problem.Parameter{Name: a.Name, Is: "pointer to " + string(a.Type), Bytes: 8, Output: a.Role == spec.Out}
		switch a.Role {
		case spec.Scalar:
			// PTX has no parameters of narrower floats; __half is a structure there.
			isFloat := a.Type == array.F32 || a.Type == array.F64
			all[i] = problem.Parameter{Name: a.Name, Is: string(a.Type), Bytes: a.Type.Bytes(), Float: isFloat, Range: p.scalarRange(a)}
		case spec.Map:
			of := p.Args[a.Map.Arg]
			all[i] = problem.Parameter{Name: a.Name, Is: "CUtensorMap of " + of.Name, Bytes: tensormap.Bytes, Output: of.Role == spec.Out}
		}
	}
	return all
}

// scalarRange returns the range of an integer that is an axis or a constant, nil of others. An axis
// is at least 1, unless it is 0 in a shape of the file: a flag.
func (p *Problem) scalarRange(a spec.Arg) *mutate.Range {
	if a.Type.Float() {
		return nil
	}
	if slices.Contains(p.Axes, a.Value.String()) {
		most := map[array.DType]int64{array.I8: math.MaxInt8, array.U8: math.MaxUint8}[a.Type]
		if most == 0 {
			most = math.MaxInt32
		}
		return &mutate.Range{Min: p.leastAxis(a.Value.String()), Max: most}
	}
	if constant, err := strconv.ParseInt(a.Value.String(), 10, 64); err == nil {
		return &mutate.Range{Min: constant, Max: constant}
	}
	return nil
}

// leastAxis is 0 for an axis that is 0 in a shape of the file, else 1.
func (p *Problem) leastAxis(axis string) int64 {
	for _, group := range p.kernel.Groups {
		for _, s := range group.Shapes {
			names, values := s.Axes()
			if at := slices.Index(names, axis); at >= 0 && values[at] == 0 {
				return 0
			}
		}
	}
	return 1
}

// ParameterHelp says where the parameters are declared.
func (p *Problem) ParameterHelp() string {
	return "the parameters are the [[arg]] of " + spec.File + ", in their order"
}

// LaunchKey lists the knobs that expressions of the declaration use.
func (p *Problem) LaunchKey(b problem.Build) string {
	var settings []string
	for _, s := range p.Settings(b.Variant) {
		settings = append(settings, s.String())
	}
	return strings.Join(settings, " ")
}

// SharedBytes evaluates "shared" of [launch].
func (p *Problem) SharedBytes(b problem.Build, shapes []spec.Shape) (int, error) {
	most := 0
	for _, s := range shapes {
		bytes, err := p.integer(p.Shared, 0, p.Values(b.Variant, s), s)
		if err != nil {
			return 0, err
		}
		most = max(most, bytes)
	}
	return most, nil
}

// Threads evaluates "block" of [launch].
func (p *Problem) Threads(b problem.Build, shapes []spec.Shape) (int, error) {
	most := 0
	for _, s := range shapes {
		block, err := p.integers(p.Block[:], 1, p.Values(b.Variant, s), s)
		if err != nil {
			return 0, err
		}
		most = max(most, block[0]*block[1]*block[2])
	}
	return most, nil
}

// Allowed permits a cooperative kernel to read the registers that the driver sets for its barrier.
func (p *Problem) Allowed() []finding.Kind {
	if p.Cooperative {
		return []finding.Kind{finding.LaunchID}
	}
	return nil
}

// Hints returns none.
func (p *Problem) Hints() profile.Hints { return nil }

// defaults returns the values of the axes and the defaults of all knobs.
func (p *Problem) defaults(s spec.Shape) []int {
	_, values := s.Axes()
	for _, knob := range p.kernel.Knobs {
		values = append(values, knob.Default)
	}
	return values
}

// integer evaluates an expression; absent ones have a default.
func (p *Problem) integer(e *spec.Expr, absent int, values []int, s spec.Shape) (int, error) {
	if e == nil {
		return absent, nil
	}
	value, err := e.Int(values)
	if err != nil {
		return 0, p.EvalError(e, s, err)
	}
	return value, nil
}

// integers evaluates several expressions.
func (p *Problem) integers(exprs []*spec.Expr, absent int, values []int, s spec.Shape) ([]int, error) {
	all := make([]int, len(exprs))
	for i, e := range exprs {
		var err error
		if all[i], err = p.integer(e, absent, values, s); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// real evaluates an expression to a number; 0 if it is absent.
func (p *Problem) real(e *spec.Expr, values []int, s spec.Shape) (float64, error) {
	if e == nil {
		return 0, nil
	}
	value, err := e.Real(values)
	if err != nil {
		return 0, p.EvalError(e, s, err)
	}
	return value, nil
}

// elements is the number of elements of a buffer, or the largest integer if it is beyond.
func elements(extents []int) int {
	n := 1
	for _, extent := range extents {
		if extent > 0 && n > math.MaxInt/extent {
			return math.MaxInt
		}
		n *= extent
	}
	return n
}
