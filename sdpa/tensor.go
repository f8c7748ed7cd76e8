package sdpa

import (
	"fmt"
	"math"

	"attune/internal/tensor"
)

// DType is the number format of a tensor's elements. The zero value is no format.
type DType uint8

// The number formats. Inputs have any of them, outputs all but E4M3.
const (
	E4M3 DType = 1 + iota // 8 bits, at most 448, with a factor per head (Tensor.Descale)
	FP16
	BF16
	FP32
)

// Bytes is the size of an element, 0 for no format.
func (t DType) Bytes() int {
	switch t {
	case E4M3:
		return 1
	case FP16, BF16:
		return 2
	case FP32:
		return 4
	}
	return 0
}

func (t DType) String() string {
	switch t {
	case E4M3:
		return "E4M3"
	case FP16:
		return "FP16"
	case BF16:
		return "BF16"
	case FP32:
		return "FP32"
	}
	return fmt.Sprintf("DType(%d)", uint8(t))
}

// Tensor is an array in host memory: [batch, heads, rows, head dim], row-major and without gaps.
type Tensor struct {
	DType DType
	Shape [4]int
	Data  []byte // little-endian
	// Descale are the factors of an E4M3 tensor, one per batch and head: an element is the value of
	// its code times the factor. Nil means 1 for all. Other formats have none.
	Descale []float32
}

// NewTensor allocates a tensor of zeros.
func NewTensor(t DType, shape [4]int) (*Tensor, error) {
	elements, err := checkShape(t, shape)
	if err != nil {
		return nil, fmt.Errorf("sdpa: new tensor: %w", err)
	}
	return &Tensor{DType: t, Shape: shape, Data: make([]byte, elements*t.Bytes())}, nil
}

// FromFloat32 rounds values to a format, to nearest even. Magnitudes above 448 become 448 in E4M3
// and infinity in FP16 from 65520 on. An E4M3 tensor has no factors: [Quantize] makes them.
func FromFloat32(t DType, shape [4]int, values []float32) (*Tensor, error) {
	x, err := NewTensor(t, shape)
	if err != nil {
		return nil, err
	}
	if want := x.elements(); len(values) != want {
		return nil, fmt.Errorf("sdpa: from float32: %d values; the shape %v has %d elements", len(values), shape, want)
	}
	vectors.narrow(x.Data, values, t)
	return x, nil
}

// Float32s returns the elements, those of E4M3 times their factors.
func (x *Tensor) Float32s() ([]float32, error) {
	if err := x.check("tensor"); err != nil {
		return nil, err
	}
	values := make([]float32, x.elements())
	vectors.widen(values, x.Data, x.DType)
	head := x.Shape[2] * x.Shape[3]
	for i, factor := range x.Descale {
		for j := range values[i*head:][:head] {
			values[i*head+j] *= factor
		}
	}
	return values, nil
}

// elements is the number of elements of a valid shape.
func (x *Tensor) elements() int { return x.Shape[0] * x.Shape[1] * x.Shape[2] * x.Shape[3] }

// heads is the number of heads over all batches.
func (x *Tensor) heads() int { return x.Shape[0] * x.Shape[1] }

// descale is the factor of a head, counted over all batches.
func (x *Tensor) descale(head int) float32 {
	if x.Descale == nil {
		return 1
	}
	return x.Descale[head]
}

// check reports what is wrong with a tensor that is the argument of a name.
func (x *Tensor) check(name string) error {
	if x == nil {
		return fmt.Errorf("sdpa: %s is nil", name)
	}
	elements, err := checkShape(x.DType, x.Shape)
	if err != nil {
		return fmt.Errorf("sdpa: %s: %w", name, err)
	}
	if want := elements * x.DType.Bytes(); len(x.Data) != want {
		return fmt.Errorf("sdpa: %s has %d bytes of data; %s of the shape %v has %d", name, len(x.Data), x.DType, x.Shape, want)
	}
	if x.Descale == nil {
		return nil
	}
	if x.DType != E4M3 {
		return fmt.Errorf("sdpa: %s is %s and has descale factors; only E4M3 has them", name, x.DType)
	}
	if want := x.heads(); len(x.Descale) != want {
		return fmt.Errorf("sdpa: %s has %d descale factors; %d batches of %d heads have %d", name, len(x.Descale), x.Shape[0], x.Shape[1], want)
	}
	for i, f := range x.Descale {
		if !(f >= 0) || math.IsInf(float64(f), 0) {
			return fmt.Errorf("sdpa: %s: descale factor %d is %v; want a finite number that is not negative", name, i, f)
		}
	}
	return nil
}

// axes are the names of a shape's extents.
var axes = [4]string{"batch", "heads", "rows", "head dim"}

// maxElements bounds a tensor as the kernels do.
const maxElements = 1 << 31

// checkShape returns the number of elements of a shape.
func checkShape(t DType, shape [4]int) (int, error) {
	if t.Bytes() == 0 {
		return 0, fmt.Errorf("the dtype is %s; want E4M3, FP16, BF16 or FP32", t)
	}
	elements := 1
	for i, extent := range shape {
		if extent < 1 || extent > tensor.MaxExtent {
			return 0, fmt.Errorf("the shape %v has %s %d; want 1 to %d", shape, axes[i], extent, tensor.MaxExtent)
		}
		if elements *= extent; elements > maxElements { // both factors are below 2^32
			return 0, fmt.Errorf("the shape %v has more than 2^31 elements", shape)
		}
	}
	return elements, nil
}
