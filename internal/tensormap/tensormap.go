// Package tensormap describes tensors in global memory to the copies that move boxes of them (cp.async.bulk.tensor): what cuTensorMapEncodeTiled takes, and
// what it refuses. How a map becomes the 128 bytes that a kernel reads is each device's own affair.
package tensormap

import (
	"fmt"
	"slices"
)

// Bytes is the size of an encoded map.
const Bytes = 128

// Map is a tensor and the box of it that one copy moves. Where a name is empty, it is the first of its list.
type Map struct {
	Type           string `json:"dtype"`
	Dims           []int  `json:"dims"`            // elements, the innermost first
	Strides        []int  `json:"strides"`         // bytes, of all dimensions but the innermost
	Box            []int  `json:"box"`             // elements
	ElementStrides []int  `json:"element_strides"` // of which every so many-th is taken; empty for all
	Interleave     string `json:"interleave"`
	Swizzle        string `json:"swizzle"`
	OOB            string `json:"oob"` // what lies outside reads as
	L2Promotion    string `json:"l2_promotion,omitempty"`
}

// The names of what a map is made of, each list in the order in which cuda.h numbers it.
var (
	Types       = []string{"u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32_ftz", "tf32", "tf32_ftz"}
	Interleaves = []string{"none", "16B", "32B"}
	Swizzles    = []string{"none", "32B", "64B", "128B"}
	OOBs        = []string{"zero", "nan"}
	Promotions  = []string{"none", "64B", "128B", "256B"}
)

var (
	typeBytes = []int{1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4}
	floats    = []string{"f16", "f32", "f64", "bf16", "f32_ftz", "tf32", "tf32_ftz"}
)

// Number is the place of a name in one of the lists; an empty name is the first. It is -1 for a name that is not there.
func Number(name string, list []string) int {
	if name == "" {
		return 0
	}
	return slices.Index(list, name)
}

// Check says what the driver would not take.
func (m *Map) Check() error {
	if err := m.checkNames(); err != nil {
		return err
	}
	rank := len(m.Dims)
	switch {
	case rank < 1 || rank > 5:
		return fmt.Errorf("it has %d dimensions, want 1 to 5", rank)
	case len(m.Box) != rank || len(m.Strides) < rank-1 || len(m.ElementStrides) != rank && len(m.ElementStrides) != 0:
		return fmt.Errorf("it has %d dimensions, a box of %d, %d strides and %d element strides", rank, len(m.Box), len(m.Strides), len(m.ElementStrides))
	}
	for i := range rank {
		switch {
		case m.Dims[i] < 1 || m.Dims[i] > 1<<32:
			return fmt.Errorf("its extent %d is %d, want 1 to 2^32", i, m.Dims[i])
		case m.Box[i] < 1 || m.Box[i] > 256:
			return fmt.Errorf("its box is %d in dimension %d, want 1 to 256", m.Box[i], i)
		case m.step(i) < 1 || m.step(i) > 8:
			return fmt.Errorf("its element stride %d is %d, want 1 to 8", i, m.step(i))
		case i > 0 && (m.Strides[i-1] < 0 || m.Strides[i-1]%m.Alignment() != 0 || m.Strides[i-1] >= 1<<40):
			return fmt.Errorf("its stride %d is %d bytes, want a multiple of %d below 2^40", i-1, m.Strides[i-1], m.Alignment())
		}
	}
	return m.checkRow()
}

func (m *Map) checkNames() error {
	switch {
	case !slices.Contains(Types, m.Type):
		return fmt.Errorf("its type is %q, want one of %q", m.Type, Types)
	case Number(m.Interleave, Interleaves) < 0:
		return fmt.Errorf("its interleave is %q, want one of %q", m.Interleave, Interleaves)
	case Number(m.Swizzle, Swizzles) < 0:
		return fmt.Errorf("its swizzle is %q, want one of %q", m.Swizzle, Swizzles)
	case Number(m.OOB, OOBs) < 0:
		return fmt.Errorf("what lies outside reads as %q, want one of %q", m.OOB, OOBs)
	case Number(m.L2Promotion, Promotions) < 0:
		return fmt.Errorf("its L2 promotion is %q, want one of %q", m.L2Promotion, Promotions)
	case m.FillsNaN() && !slices.Contains(floats, m.Type):
		return fmt.Errorf("what lies outside reads as nan, which %s has not", m.Type)
	}
	return nil
}

// checkRow looks at a row of the box, which is what a swizzle works on.
func (m *Map) checkRow() error {
	row := m.RowBytes()
	if row%16 != 0 {
		return fmt.Errorf("a row of its box has %d bytes, want a multiple of 16", row)
	}
	if span := m.Span(); span > 0 && row > span {
		return fmt.Errorf("a row of its box has %d bytes, which is more than the swizzle's %d", row, span)
	}
	return nil
}

// Alignment is what the address and the strides must be multiples of.
func (m *Map) Alignment() int {
	if m.Interleave == "32B" {
		return 32
	}
	return 16
}

// FillsNaN says whether what lies outside reads as NaN, and not as zeros.
func (m *Map) FillsNaN() bool { return m.OOB == "nan" }

// ElementBytes is the size of an element.
func (m *Map) ElementBytes() int { return typeBytes[slices.Index(Types, m.Type)] }

func (m *Map) step(i int) int {
	if len(m.ElementStrides) == 0 {
		return 1
	}
	return m.ElementStrides[i]
}

// Extent is how many elements of the box there are in a dimension.
func (m *Map) Extent(i int) int { return (m.Box[i] + m.step(i) - 1) / m.step(i) }

// Span is the bytes that the swizzle works on; 0 for none.
func (m *Map) Span() int {
	if i := Number(m.Swizzle, Swizzles); i > 0 {
		return 16 << i
	}
	return 0
}

// RowBytes is the size of a row of the box.
func (m *Map) RowBytes() int { return m.Extent(0) * m.ElementBytes() }

// BoxBytes is what a barrier is told of a box, whether or not all of it is inside the tensor.
func (m *Map) BoxBytes() int {
	n := m.ElementBytes()
	for i := range m.Box {
		n *= m.Extent(i)
	}
	return n
}

// TensorBytes is how far the tensor reaches from its address on.
func (m *Map) TensorBytes() int {
	n := m.Dims[0] * m.ElementBytes()
	for i := 1; i < len(m.Dims); i++ {
		n += (m.Dims[i] - 1) * m.Strides[i-1]
	}
	return n
}
