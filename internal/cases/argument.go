package cases

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"attune/internal/array"
	"attune/internal/regular"
)

// Role is the access that a kernel has to an argument.
type Role string

// The roles.
const (
	In     Role = "in"
	Out    Role = "out"
	InOut  Role = "inout"
	Scalar Role = "scalar"

	Scratch Role = "scratch" // for the kernel's own use; zero before the first launch
)

// LaunchArg is an argument of a direct run. An output and scratch have no data, a scalar has no shape.
type LaunchArg struct {
	Role  Role
	Array *array.Array
	Zero  bool // of scratch: it is cleared before every launch
}

// argumentForm is the syntax of an argument, for messages.
const argumentForm = "want TYPE:in:SOURCE, TYPE:inout:SOURCE, TYPE:out:SHAPE, TYPE:scratch:SHAPE or TYPE:VALUE"

// ParseArgument reads an argument of the command line, such as f32:in:x.npy, f32:in:normal:1024x64,
// f32:out:1024 or i32:1024, with an optional name, as in y=f32:out:1024. The seed is that of fills,
// and the index of the argument selects the random stream of one without a name.
func ParseArgument(text string, index int, seed uint64) (LaunchArg, error) {
	arg, err := parseArgument(text, index, seed)
	if err != nil {
		return arg, fmt.Errorf("--arg %s: %w", text, err)
	}
	return arg, nil
}

func parseArgument(text string, index int, seed uint64) (LaunchArg, error) {
	name, rest := "", text
	if before, after, named := strings.Cut(text, "="); named && !strings.Contains(before, ":") {
		if name, rest = before, after; !isName(name) {
			return LaunchArg{}, fmt.Errorf("%q is no name; use letters, digits and _", name)
		}
	}
	word, source, ok := strings.Cut(rest, ":")
	if !ok {
		return LaunchArg{}, errors.New(argumentForm)
	}
	dtype, err := array.ParseDType(word)
	if err != nil {
		return LaunchArg{}, err
	}
	role, source, isBuffer := cutRole(source)
	arg := LaunchArg{Role: role}
	switch {
	case !isBuffer:
		arg.Role = Scalar
		arg.Array, err = parseScalar(dtype, source)
	case role == Out || role == Scratch:
		var shape []int
		if role == Scratch {
			source, arg.Zero = strings.CutSuffix(source, ":zero")
		}
		shape, err = parseShape(source)
		arg.Array = &array.Array{Type: dtype, Shape: shape}
	default:
		arg.Array, err = readSource(dtype, source, seed, fillName(name, index))
	}
	if err != nil {
		return LaunchArg{}, err
	}
	arg.Array.Name = name
	return arg, arg.checkSize()
}

// fillName is the name that selects the random stream of an argument.
func fillName(name string, index int) string {
	if name == "" {
		return "arg" + strconv.Itoa(index)
	}
	return name
}

func isName(name string) bool {
	word := func(r rune) bool {
		return r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	}
	return name != "" && strings.IndexFunc(name, func(r rune) bool { return !word(r) }) < 0 && (name[0] < '0' || name[0] > '9')
}

// cutRole splits in:x.npy.
func cutRole(text string) (role Role, source string, ok bool) {
	before, after, _ := strings.Cut(text, ":")
	for _, role := range []Role{In, Out, InOut, Scratch} {
		if before == string(role) {
			return role, after, true
		}
	}
	return "", text, false
}

// checkSize refuses an empty buffer.
func (a LaunchArg) checkSize() error {
	if a.Role != Scalar && a.Array.Len() == 0 {
		return errors.New("a buffer needs at least one element")
	}
	return nil
}

func parseScalar(t array.DType, text string) (*array.Array, error) {
	real, integer := 0.0, int64(0)
	var err error
	switch {
	case t.Float():
		real, err = strconv.ParseFloat(text, 64)
	case t == array.U64:
		var bits uint64
		if bits, err = strconv.ParseUint(text, 0, 64); err == nil {
			return &array.Array{Type: t, Data: binary.LittleEndian.AppendUint64(nil, bits)}, nil
		}
	default:
		integer, err = strconv.ParseInt(text, 0, 64)
	}
	if err != nil {
		return nil, fmt.Errorf("%q is no %s; %s", text, t, argumentForm)
	}
	data, err := array.Scalar(t, real, integer)
	return &array.Array{Type: t, Data: data}, err
}

// parseShape reads extents such as 1024 or 1024x64.
func parseShape(text string) ([]int, error) {
	var shape []int
	elements := 1
	for _, part := range strings.Split(text, "x") {
		extent, err := strconv.Atoi(part)
		if err != nil || extent < 1 || extent > maxElements/elements {
			return nil, fmt.Errorf("%q is no shape; want extents such as 1024 or 1024x64, and at most 2^31 elements", text)
		}
		elements *= extent
		shape = append(shape, extent)
	}
	return shape, nil
}

const maxElements = 1 << 31

// readSource reads the contents of a buffer: a file, values in brackets, or a fill with a shape.
func readSource(t array.DType, text string, seed uint64, name string) (*array.Array, error) {
	if list, ok := strings.CutPrefix(text, "["); ok {
		return parseValues(t, list)
	}
	file, tensor, _ := strings.Cut(text, "#")
	if slices.Contains([]string{".npy", ".safetensors"}, filepath.Ext(file)) {
		a, err := array.ReadFile(regular.Folder(filepath.Dir(file)), filepath.Base(file), tensor, nil)
		if err != nil {
			return nil, err
		}
		if a, err = a.Convert(t); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return a, nil
	}
	fill, size, ok := strings.Cut(text, ":")
	if !ok {
		return nil, fmt.Errorf("%q is neither a file (.npy, .safetensors) nor values in brackets nor a fill with a shape, such as normal:1024", text)
	}
	shape, err := parseShape(size)
	if err != nil {
		return nil, err
	}
	kind, a, b, err := parseFill(fill)
	if err != nil {
		return nil, err
	}
	return array.Draw(t, shape, kind, a, b, seed, name)
}

// parseFill reads normal or uniform(0, 1).
func parseFill(text string) (kind string, a, b float64, err error) {
	kind, list, called := strings.Cut(text, "(")
	wrong := fmt.Errorf("%q is no fill; there are normal, uniform(a,b), zeros, ones, iota, integers(a,b), offsets(a,b)", text)
	if called != slices.Contains([]string{"uniform", "integers", "offsets"}, kind) || !slices.Contains(array.Fills, kind) {
		return "", 0, 0, wrong
	}
	if !called {
		return kind, 0, 0, nil
	}
	first, second, ok := strings.Cut(strings.TrimSuffix(list, ")"), ",")
	a, errA := strconv.ParseFloat(strings.TrimSpace(first), 64)
	b, errB := strconv.ParseFloat(strings.TrimSpace(second), 64)
	if !ok || errA != nil || errB != nil || !strings.HasSuffix(list, ")") {
		return "", 0, 0, wrong
	}
	return kind, a, b, nil
}

// parseValues reads the rest of [1, 2, 3].
func parseValues(t array.DType, text string) (*array.Array, error) {
	list, ok := strings.CutSuffix(text, "]")
	if !ok {
		return nil, errors.New("the bracket is not closed")
	}
	values := &array.Array{Type: t}
	for _, part := range strings.Split(list, ",") {
		value, err := parseScalar(t, strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		values.Data = append(values.Data, value.Data...)
	}
	values.Shape = []int{len(values.Data) / t.Bytes()}
	return values, nil
}
