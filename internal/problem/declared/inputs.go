package declared

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"attune/internal/array"
	"attune/internal/problem"
	"attune/internal/spec"
)

// buffers are the types, extents and fills of the arguments, by index. They depend on the shape and,
// where an expression uses a knob, on the variant. The extents of a null pointer are nil.
type buffers struct {
	args    []spec.Arg // with their types
	extents [][]int
	fills   [][2]float64
}

// buffers evaluates the extents and fills.
func (p *Problem) buffers(values []int, s spec.Shape) (*buffers, error) {
	args, err := p.ArgsFor(values)
	if err != nil {
		return nil, err
	}
	b := &buffers{args, make([][]int, len(args)), make([][2]float64, len(args))}
	for i, a := range args {
		present, err := a.IsPresent(values)
		if err != nil {
			return nil, p.EvalError(a.When, s, err)
		}
		if !present {
			continue
		}
		if b.extents[i], err = p.integers(a.Shape, 1, values, s); err != nil {
			return nil, err
		}
		for j, e := range []*spec.Expr{a.Fill.A, a.Fill.B} {
			if b.fills[i][j], err = p.real(e, values, s); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

// key identifies the buffers of a shape.
func (b *buffers) key() string {
	types := make([]array.DType, len(b.args))
	for i, a := range b.args {
		types[i] = a.Type
	}
	return fmt.Sprint(types, b.extents, b.fills)
}

// checkMemory refuses buffers of more bytes than a limit, before any of them exists: the inputs and the
// reference of such a shape would use up the memory of the host first. 0 is no limit.
func (r *references) checkMemory(s spec.Shape, b *buffers, limit int64) error {
	if limit <= 0 {
		return nil
	}
	sum, largest, most := 0.0, "", 0.0
	for i, a := range b.args {
		if !a.Role.IsBuffer() || b.extents[i] == nil {
			continue
		}
		bytes := float64(elements(b.extents[i])) * float64(a.Type.Bytes())
		if sum += bytes; bytes > most {
			largest, most = a.Name, bytes
		}
	}
	if sum <= float64(limit) {
		return nil
	}
	const mega = 1e6
	return &problem.ReferenceError{
		Why: fmt.Sprintf("the buffers of %s have %.0f MB, %s alone %.0f MB; %s holds %.0f MB of buffers", s, sum/mega, largest, most/mega,
			r.options.Device, float64(limit)/mega),
		Do: "choose a smaller shape",
	}
}

// arrays makes the arrays of an instance, by argument: contents of inputs, outputs and scratch without Data, nil
// for null pointers, scalars and tensor maps.
func (r *references) arrays(i problem.Instance, b *buffers) ([]*array.Array, error) {
	all := make([]*array.Array, len(r.Args))
	for n, a := range b.args {
		switch {
		case b.extents[n] == nil:
		case a.Role == spec.Out || a.Role == spec.Scratch:
			all[n] = &array.Array{Name: a.Name, Type: a.Type, Shape: b.extents[n]}
		case !a.Role.IsBuffer():
		case a.File != "":
			read, err := r.readInput(i, a, b.extents[n])
			if err != nil {
				return nil, err
			}
			all[n] = read
		default:
			drawn, err := array.Draw(a.Type, b.extents[n], a.Fill.Kind, b.fills[n][0], b.fills[n][1], i.Seed, a.Name)
			if err != nil {
				return nil, &problem.ReferenceError{Why: fmt.Sprintf("the input %q for %s: %v", a.Name, i.Shape, err)}
			}
			all[n] = drawn
		}
	}
	return all, nil
}

// readInput reads the array of an argument from a file.
func (r *references) readInput(i problem.Instance, a spec.Arg, extents []int) (*array.Array, error) {
	pattern, tensor, _ := strings.Cut(a.File, "#")
	name, err := r.find(i, pattern)
	fail := func(err error) error {
		return &problem.ReferenceError{Why: fmt.Sprintf("the input %q for %s: %v", a.Name, i, err), Err: err}
	}
	if err != nil {
		return nil, fail(err)
	}
	read, err := array.ReadFile(r.folder, name, tensor, extents)
	if err != nil && tensor == "" && path.Ext(name) == ".safetensors" {
		// A file of several tensors is meant to have one of the argument's name.
		if named, second := array.ReadFile(r.folder, name, a.Name, extents); second == nil {
			read, err = named, nil
		}
	}
	if other, ok := errors.AsType[*array.ShapeError](err); ok {
		err = fmt.Errorf("%s has shape %s; %s declares %s", name, tuple(other.Has), spec.File, tuple(extents))
	}
	if err != nil {
		return nil, fail(err)
	}
	converted, err := read.Convert(a.Type)
	if err != nil {
		return nil, fail(fmt.Errorf("%s: %w", name, err))
	}
	if !slices.Equal(converted.Shape, extents) {
		return nil, fail(fmt.Errorf("%s has shape %s; %s declares %s", name, tuple(converted.Shape), spec.File, tuple(extents)))
	}
	r.hash(name)
	converted.Name = a.Name
	return converted, nil
}

// find returns the file of an instance: {shape} is the name of the shape or its axes, {seed} the
// seed.
func (r *references) find(i problem.Instance, pattern string) (string, error) {
	names := []string{pattern}
	if strings.Contains(pattern, "{shape}") {
		names = nil
		for _, label := range append(r.kernel.ShapeNames(i.Shape), i.Shape.String()) {
			names = append(names, strings.ReplaceAll(pattern, "{shape}", label))
		}
	}
	for n, name := range names {
		names[n] = path.Clean(strings.ReplaceAll(name, "{seed}", strconv.FormatUint(i.Seed, 10)))
		if _, err := fs.Stat(r.folder, names[n]); err == nil {
			return names[n], nil
		}
	}
	text := fmt.Errorf("there is no file %s", strings.Join(names, " or "))
	run := r.kernel.Run
	if strings.Contains(pattern, "{seed}") && !slices.Contains(slices.Concat(run.Seeds, run.SimSeeds), i.Seed) {
		return "", &noSeedError{text}
	}
	return "", text
}

// noSeedError is the error of a seed that has no file.
type noSeedError struct{ error }

func (e *noSeedError) Is(target error) bool { return target == problem.ErrNoSeed }

// tuple writes extents as Python does.
func tuple(extents []int) string {
	if len(extents) == 1 {
		return fmt.Sprintf("(%d,)", extents[0])
	}
	texts := make([]string, len(extents))
	for i, n := range extents {
		texts[i] = strconv.Itoa(n)
	}
	return "(" + strings.Join(texts, ", ") + ")"
}
