package spec

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"attune/internal/array"
	"attune/internal/tensormap"
)

// The limits of a launch, those of the CUDA programming guide for compute capability 9.0.
const (
	maxElements = 1 << 31 // of a buffer
	maxGridX    = math.MaxInt32
	maxGridYZ   = 65535
	maxThreads  = 1024 // of a block
	maxBlockZ   = 64
	maxCluster  = 16 // blocks
	maxShared   = 232448
)

// trial evaluates the expressions of a declaration for one variant and one shape.
type trial struct {
	*Declaration
	v      Variant
	s      Shape
	values []int
	// report takes the part that is wrong, its line and a message.
	report func(part any, line int, text string)
}

func newTrial(d *Declaration, v Variant, s Shape, report func(part any, line int, text string)) *trial {
	t := &trial{d, v, s, d.Values(v, s), report}
	args, err := d.ArgsFor(t.values)
	if err != nil {
		report("type", 0, err.Error())
		return t
	}
	typed := *d
	typed.Args = args
	t.Declaration = &typed
	return t
}

// all tries every part of the declaration.
func (t *trial) all() {
	shapes, absent := make([][]int, len(t.Args)), make([]bool, len(t.Args))
	for i := range t.Args {
		if absent[i] = t.absent(&t.Args[i]); !absent[i] {
			shapes[i] = t.buffer(&t.Args[i])
		}
	}
	t.output(absent)
	for i := range t.Args {
		a := &t.Args[i]
		switch {
		case absent[i]:
			continue
		case a.Role == Scalar:
			t.scalar(a)
		case a.Map != nil && a.Map.Arg >= 0:
			t.tensorMap(a, shapes[a.Map.Arg])
		}
		t.fill(a, shapes[i])
	}
	t.cluster(t.launch(t.Grid, t.Block, t.Shared))
	for _, e := range []*Expr{t.FLOPs, t.Bytes} {
		if value, ok := t.real(e); ok && !(value >= 0 && value <= math.MaxFloat64) {
			t.wrong(e, "it is %g; want a number of at least 0", value)
		}
	}
	t.reference()
}

// absent reports whether a buffer is a null pointer.
func (t *trial) absent(a *Arg) bool {
	present, err := a.IsPresent(t.values)
	if err != nil {
		t.wrong(a.When, "%v", err)
	}
	return !present && err == nil
}

// output checks that the conditions of the buffers leave an output.
func (t *trial) output(absent []bool) {
	var conditional *Expr
	for i, a := range t.Args {
		if a.Role != Out && a.Role != InOut {
			continue
		}
		if !absent[i] {
			return
		}
		conditional = a.When
	}
	if conditional != nil {
		t.wrong(conditional, "no output is left; want one in every shape")
	}
}

// reference tries the launch of a trusted source, which is built with the defaults of all knobs.
func (t *trial) reference() {
	r := *t
	r.v.values = nil
	for _, knob := range t.v.stage.kernel.Knobs {
		r.v.values = append(r.v.values, knob.Default)
	}
	r.values = r.Values(r.v, r.s)
	r.launch(t.Reference.Grid, t.Reference.Block, t.Reference.Shared)
}

// wrong reports an expression. A nil one has been reported before.
func (t *trial) wrong(e *Expr, format string, args ...any) {
	t.report(e, e.line, fmt.Sprintf("%s (%q) %s: %s", e.key, clip(e.text), t.where(e), fmt.Sprintf(format, args...)))
}

// where names the shape, and the knobs that an expression uses.
func (t *trial) where(exprs ...*Expr) string {
	text := "for " + t.s.String()
	var knobs []string
	for _, e := range exprs {
		for _, i := range e.rule.rule.Uses() {
			if i -= len(t.Declaration.Axes); i >= 0 {
				setting := Setting{t.v.stage.kernel.Knobs[i].Name, t.v.values[i]}.String()
				if !slices.Contains(knobs, setting) {
					knobs = append(knobs, setting)
				}
			}
		}
	}
	if len(knobs) > 0 {
		text += " with " + strings.Join(knobs, ", ")
	}
	return text
}

// integer evaluates an expression from low to high; false if it is absent or wrong.
func (t *trial) integer(e *Expr, low, high int) (int, bool) {
	if e == nil {
		return 0, false
	}
	value, err := e.Int(t.values)
	if err != nil {
		t.wrong(e, "%v", err)
		return 0, false
	}
	if value < low || value > high {
		t.wrong(e, "it is %d; want %d to %d", value, low, high)
		return 0, false
	}
	return value, true
}

// real evaluates an expression; false if it is absent or wrong.
func (t *trial) real(e *Expr) (float64, bool) {
	if e == nil {
		return 0, false
	}
	value, err := e.Real(t.values)
	if err != nil {
		t.wrong(e, "%v", err)
	}
	return value, err == nil
}

// integers evaluates expressions, each from 1 to its limit; nil if one is absent or wrong.
func (t *trial) integers(exprs []*Expr, limits ...int) []int {
	values, all := make([]int, len(exprs)), true
	for i, e := range exprs {
		var ok bool
		values[i], ok = t.integer(e, 1, limits[min(i, len(limits)-1)])
		all = all && ok
	}
	if !all {
		return nil
	}
	return values
}

// buffer returns the extents of a buffer, nil if they are wrong.
func (t *trial) buffer(a *Arg) []int {
	if len(a.Shape) == 0 {
		return nil
	}
	extents := t.integers(a.Shape, math.MaxInt32)
	elements := 1
	for _, n := range extents {
		if elements > maxElements/n {
			t.report(a.Name, a.Shape[0].line, fmt.Sprintf("%s %s: it has more than %d elements: %s",
				a.Shape[0].key, t.where(a.Shape...), maxElements, product(extents)))
			return nil
		}
		elements *= n
	}
	return extents
}

// product writes extents as 64 x 32.
func product(extents []int) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(extents), "[]")), " x ")
}

// scalar checks that a value fits its type.
func (t *trial) scalar(a *Arg) {
	switch {
	case a.Type == "" || a.Value == nil: // reported already
		return
	case a.Type == array.U64:
		if _, err := a.Value.Uint(t.values); err != nil {
			t.wrong(a.Value, "%v", err)
		}
		return
	case !a.Type.Float():
		low, high := integerLimits(a.Type)
		if value, ok := t.integer(a.Value, math.MinInt, math.MaxInt); ok && (value < low || value > high) {
			t.wrong(a.Value, "it is %d; %s has %d to %d", value, a.Type, low, high)
		}
		return
	}
	if value, ok := t.real(a.Value); ok && !math.IsInf(value, 0) && math.Abs(value) > floatLimits[a.Type] {
		t.wrong(a.Value, "it is %.5g; the largest %s is %.5g", value, a.Type, floatLimits[a.Type])
	}
}

// integerLimits are the least and the greatest value of an integer type, as far as int has them.
func integerLimits(d array.DType) (low, high int) {
	bits := 8 * d.Bytes()
	switch {
	case d.Signed():
		return -1 << (bits - 1), 1<<(bits-1) - 1
	case bits == 64:
		return 0, math.MaxInt
	}
	return 0, 1<<bits - 1
}

// floatLimits are the greatest finite values of the floating-point types.
var floatLimits = map[array.DType]float64{
	array.F64: math.MaxFloat64, array.F32: math.MaxFloat32, array.F16: 65504, array.BF16: 0x1.fep127,
	array.E4M3: 448, array.E5M2: 57344,
}

// fill checks that the type of a buffer has the values of its fill.
func (t *trial) fill(a *Arg, extents []int) {
	if a.Type == "" {
		return
	}
	low, high := -floatLimits[a.Type], floatLimits[a.Type]
	if !a.Type.Float() {
		least, most := integerLimits(a.Type)
		low, high = float64(least), float64(most)
	}
	if a.Fill.Kind == "iota" && extents != nil {
		elements := 1
		for _, n := range extents {
			elements *= n
		}
		if last := float64(elements - 1); last > high {
			t.report(a.Name, a.Shape[0].line, fmt.Sprintf("%s %s: iota ends at %.0f; the largest %s is %.0f",
				a.Shape[0].key, t.where(a.Shape...), last, a.Type, high))
		}
	}
	from, ok := t.real(a.Fill.A)
	to, also := t.real(a.Fill.B)
	if !ok || !also {
		return
	}
	last := to
	if a.Fill.Kind == "integers" {
		last = to - 1
		if from != math.Floor(from) || to != math.Floor(to) || !(from < to) {
			t.wrongFill(a, "integers(%.10g, %.10g): want two integers, the first below the second", from, to)
			return
		}
	}
	if a.Fill.Kind == "offsets" && (from != math.Floor(from) || to != math.Floor(to)) {
		t.wrongFill(a, "offsets(%.10g, %.10g): want two integers", from, to)
		return
	}
	switch {
	case !(from <= to):
		t.wrongFill(a, "%s(%.10g, %.10g): the first number is above the second", a.Fill.Kind, from, to)
	case from < low || last > high:
		t.wrongFill(a, "%s(%.10g, %.10g): %s has %.10g to %.10g", a.Fill.Kind, from, to, a.Type, low, high)
	}
}

// wrongFill reports the range of a fill.
func (t *trial) wrongFill(a *Arg, format string, args ...any) {
	text := fmt.Sprintf("%s %s: ", a.Fill.A.key, t.where(a.Fill.A, a.Fill.B))
	t.report(a.Fill.A, a.Fill.A.line, text+fmt.Sprintf(format, args...))
}

// launch checks a grid, a block and the dynamic shared memory. It returns the grid.
func (t *trial) launch(grid, block [3]*Expr, shared *Expr) []int {
	threads := t.integers(block[:], maxThreads, maxThreads, maxBlockZ)
	if threads != nil && threads[0]*threads[1]*threads[2] > maxThreads {
		t.report(block, block[0].line, fmt.Sprintf("%s %s: a block has %s threads; want at most %d",
			block[0].key, t.where(block[:]...), product(threads), maxThreads))
	}
	t.integer(shared, 0, maxShared)
	return t.integers(grid[:], maxGridX, maxGridYZ)
}

// cluster checks that the clusters fill the grid.
func (t *trial) cluster(grid []int) {
	cluster := t.integers(t.Cluster[:], maxCluster)
	if cluster == nil || grid == nil {
		return
	}
	where := fmt.Sprintf("%s %s", t.Cluster[0].key, t.where(append(t.Cluster[:], t.Grid[:]...)...))
	if cluster[0]*cluster[1]*cluster[2] > maxCluster {
		t.report(t.Cluster, t.Cluster[0].line, fmt.Sprintf("%s: a cluster has %s blocks; want at most %d", where, product(cluster), maxCluster))
		return
	}
	for i := range cluster {
		if grid[i]%cluster[i] != 0 {
			t.report(t.Cluster, t.Cluster[0].line, fmt.Sprintf("%s: a grid of %s is no multiple of a cluster of %s",
				where, product(grid), product(cluster)))
			return
		}
	}
}

// tensorMap checks a tensor map as the driver does.
func (t *trial) tensorMap(a *Arg, extents []int) {
	box := t.integers(a.Map.Box, 256)
	swizzle, err := a.Map.SwizzleFor(t.values)
	if err != nil {
		t.wrong(a.Map.SwizzleBytes, "%v", err)
	}
	if len(box) == 0 || extents == nil || a.Type == "" || err != nil {
		return
	}
	order := make([]int, len(a.Map.Order))
	for i, e := range a.Map.Order {
		var ok bool
		if order[i], ok = t.integer(e, 0, len(extents)-1); !ok {
			return
		}
	}
	m := tensormap.Map{Type: a.Type.TensorMapType(), Box: box, Swizzle: swizzle, OOB: a.Map.OOB}
	if err := m.SetLayout(extents, order); err != nil {
		t.wrong(a.Map.Order[0], "%v", err)
		return
	}
	if err := m.Check(); err != nil {
		t.report(a.Name, a.Map.Box[0].line, fmt.Sprintf("[[arg]] %q %s: the driver rejects the tensor map: %v",
			a.Name, t.where(append(slices.Clone(a.Map.Box), t.Args[a.Map.Arg].Shape...)...), err))
	}
}
