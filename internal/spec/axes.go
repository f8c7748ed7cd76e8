package spec

import (
	"strconv"
	"strings"
)

// The problems that a kernel can compute.
const (
	Attention       = "attention"
	DeclaredProblem = "declared" // kernel.toml declares arguments, launch and reference
)

// Shape is one size of a problem. Its dynamic type is comparable, because shapes are keys of maps.
type Shape interface {
	String() string                       // canonical; Kernel.ParseShape gives an equal shape
	Axes() (names []string, values []int) // what conditions of selections see
}

// Axes is a shape of a declared kernel: the value of each axis, in the order of Declaration.Axes,
// such as "rows=8,n=256". The one shape of a kernel without axes is "default".
type Axes string

// noAxes is the shape of a kernel without axes.
const noAxes Axes = "default"

// String returns the text, which is canonical.
func (a Axes) String() string { return string(a) }

// Axes returns the names and the values of the axes.
func (a Axes) Axes() (names []string, values []int) {
	if a == noAxes {
		return nil, nil
	}
	for item := range strings.SplitSeq(string(a), ",") {
		name, text, _ := strings.Cut(item, "=")
		value, err := strconv.Atoi(text)
		if err != nil {
			panic("BUG: the shape " + strconv.Quote(string(a)) + " is not canonical")
		}
		names, values = append(names, name), append(values, value)
	}
	return names, values
}

// Value returns the value of an axis, 0 if the shape has none of that name.
func (a Axes) Value(name string) int {
	names, values := a.Axes()
	for i, n := range names {
		if n == name {
			return values[i]
		}
	}
	return 0
}
