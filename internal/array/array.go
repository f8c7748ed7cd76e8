package array

import (
	"fmt"
	"math"
	"slices"
)

// Array is a tensor.
type Array struct {
	Name  string
	Type  DType
	Shape []int
	Data  []byte // little-endian, row-major
}

// Len is the number of elements.
func (a *Array) Len() int {
	n := 1
	for _, extent := range a.Shape {
		n *= extent
	}
	return n
}

// maxBytes bounds an array, so that its size cannot overflow.
const maxBytes = 1 << 40

// count returns the number of elements of a shape.
func count(shape []int) (int, error) {
	n := 1
	for _, extent := range shape {
		if extent < 0 || extent > 0 && n > maxBytes/extent {
			return 0, fmt.Errorf("the shape %v is no size of an array", shape)
		}
		n *= extent
	}
	return n, nil
}

// Floats decodes the elements. The values are exact but for integers of 64 bits beyond 2^53.
func (a *Array) Floats() []float64 {
	values := make([]float64, len(a.Data)/a.Type.Bytes())
	if a.Type.Float() {
		decode(a.Type, values, a.Data)
		return values
	}
	for i, x := range a.Ints() {
		values[i] = float64(x)
		if a.Type == U64 {
			values[i] = float64(uint64(x))
		}
	}
	return values
}

// Ints decodes the elements of an integer array. Values of U64 are reinterpreted.
func (a *Array) Ints() []int64 {
	values := make([]int64, len(a.Data)/a.Type.Bytes())
	decodeInts(a.Type, values, a.Data)
	return values
}

// FromFloats rounds values to nearest even. Finite values beyond an 8-bit float become its largest,
// as cvt.satfinite does. An infinity stays one where the format has it. Values of integer formats
// are rounded to the nearest integer and saturate; NaN becomes 0.
func FromFloats(t DType, shape []int, values []float64) *Array {
	a := &Array{Type: t, Shape: slices.Clone(shape), Data: make([]byte, len(values)*t.Bytes())}
	encode(t, a.Data, values)
	return a
}

// Scalar encodes a number: real for floats, integer for the others. A number that the format does
// not have is an error.
func Scalar(t DType, real float64, integer int64) ([]byte, error) {
	data := make([]byte, t.Bytes())
	if t.Float() {
		encode(t, data, []float64{real})
		var stored [1]float64
		if decode(t, stored[:], data); !t.holds(real, stored[0]) {
			return nil, fmt.Errorf("%g does not fit %s, whose largest value is %g", real, t, t.largest())
		}
		return data, nil
	}
	if low, high := t.limits(); integer < low || integer >= 0 && uint64(integer) > high {
		return nil, fmt.Errorf("%d does not fit %s, which has %d to %d", integer, t, low, high)
	}
	encodeInts(t, data, []uint64{uint64(integer)})
	return data, nil
}

// holds reports whether stored, the rounded value, is x but for its rounding.
func (t DType) holds(x, stored float64) bool {
	if t.Bytes() > 1 {
		return math.IsInf(stored, 0) == math.IsInf(x, 0)
	}
	return !(math.Abs(x) > t.largest()) || x == stored
}

// Convert returns the array in another format: F64 and F32 to any float, U8 to the 8-bit floats,
// the bits of 16-bit integers to BF16. Others must be equal.
func (a *Array) Convert(t DType) (*Array, error) {
	converted := *a
	converted.Type = t
	n := len(a.Shape)
	switch {
	case t == a.Type:
	case (a.Type == F64 || a.Type == F32) && t.Float():
		converted.Data = FromFloats(t, a.Shape, a.Floats()).Data
	case a.Type == U8 && (t == E4M3 || t == E5M2):
	case a.Type == U8 && t == BF16 && n > 0 && a.Shape[n-1] == 2:
		converted.Shape = a.Shape[:n-1]
	default:
		return nil, fmt.Errorf("its elements are %s, not %s; save the array as %s", a.Type, t, t.stored())
	}
	return &converted, nil
}

// stored says in which formats a file has elements that Convert takes.
func (t DType) stored() string {
	switch t {
	case F16:
		return "f16 or f32"
	case BF16:
		return "f32, or its bits as uint16"
	case E4M3, E5M2:
		return "f32, or its bits as uint8"
	}
	return string(t)
}
