package array

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

// Floats decodes the elements. The values are exact but for integers of 64 bits beyond 2^53.
func (a *Array) Floats() []float64 { panic("not yet") }

// Ints decodes the elements of an integer array. Values of U64 are reinterpreted.
func (a *Array) Ints() []int64 { panic("not yet") }

// FromFloats rounds values to nearest even. Values beyond E4M3 become its largest, as
// cvt.satfinite does.
func FromFloats(t DType, shape []int, values []float64) *Array { panic("not yet") }

// Scalar encodes a number: real for floats, integer for the others. A number that the format does
// not have is an error.
func Scalar(t DType, real float64, integer int64) ([]byte, error) { panic("not yet") }

// Convert returns the array in another format: F64 and F32 to any float, U8 to the 8-bit floats,
// the bits of 16-bit integers to BF16. Others must be equal.
func (a *Array) Convert(t DType) (*Array, error) { panic("not yet") }
