package cases

import (
	"math"
	"slices"
	"strconv"

	"attune/internal/array"
)

// newOutput summarises the contents of a buffer.
func newOutput(index int, a LaunchArg, data []byte) Output {
	values := &array.Array{Name: a.Array.Name, Type: a.Array.Type, Shape: a.Array.Shape, Data: data}
	o := Output{Arg: index, Name: values.Name, Type: string(values.Type), Shape: slices.Clone(values.Shape), Array: values}
	reals := values.Floats()
	for _, x := range reals {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			o.NonFinite++
			continue
		}
		if o.Min == nil {
			o.Min, o.Max = new(float64), new(float64)
			*o.Min, *o.Max = x, x
		}
		*o.Min, *o.Max = min(*o.Min, x), max(*o.Max, x)
	}
	for i, x := range reals[:min(len(reals), firstElements)] {
		o.First = append(o.First, elementText(values, i, x))
	}
	return o
}

// elementText writes an element without a loss.
func elementText(values *array.Array, index int, x float64) string {
	size := values.Type.Bytes()
	one := &array.Array{Type: values.Type, Shape: []int{1}, Data: values.Data[index*size:][:size]}
	switch {
	case values.Type == array.U64:
		return strconv.FormatUint(uint64(one.Ints()[0]), 10)
	case !values.Type.Float():
		return strconv.FormatInt(one.Ints()[0], 10)
	case values.Type == array.F64:
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	return strconv.FormatFloat(x, 'g', -1, 32)
}
