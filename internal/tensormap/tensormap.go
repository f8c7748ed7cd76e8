package tensormap

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Bytes is the size of an encoded map in bytes.
const Bytes = 128

// Map is a tensor and the box of it that one copy moves. An empty Interleave, Swizzle, OOB or
// L2Promotion means the first name of its list below.
type Map struct {
	Type           string `json:"dtype"`
	Dims           []int  `json:"dims"`            // extents in elements, innermost first
	Strides        []int  `json:"strides"`         // in bytes, of all dimensions but the innermost
	Box            []int  `json:"box"`             // extents in elements, innermost first
	ElementStrides []int  `json:"element_strides"` // step in each dimension; empty means 1
	Interleave     string `json:"interleave"`
	Swizzle        string `json:"swizzle"`
	OOB            string `json:"oob"` // value of elements outside the tensor
	L2Promotion    string `json:"l2_promotion,omitempty"`
}

// The names of enumerated parameters, each list in the order of the enumeration in cuda.h.
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

// EnumValue returns the value of a name in its enumeration: its index in the list, 0 for an empty
// name, -1 for an unknown name.
func EnumValue(name string, list []string) int {
	if name == "" {
		return 0
	}
	return slices.Index(list, name)
}

// SetLayout sets the extents and strides to those of a row-major array with these extents, innermost
// last. order has, for each dimension of the map, the dimension of the array counted from its
// innermost one; an empty order keeps theirs. The innermost dimension stays the first: it has no
// stride.
func (m *Map) SetLayout(extents, order []int) error {
	rank := len(extents)
	if len(order) == 0 {
		for i := range rank {
			order = append(order, i)
		}
	}
	sorted := slices.Sorted(slices.Values(order))
	for i, dimension := range sorted {
		if len(order) != rank || dimension != i || order[0] != 0 {
			return fmt.Errorf("the order of the dimensions is %v; want 0 and then the others of 0 to %d", order, rank-1)
		}
	}
	strides := make([]int, rank)
	stride := m.ElementBytes()
	for i := range rank {
		strides[i] = stride
		stride *= extents[rank-1-i]
	}
	m.Dims, m.Strides = nil, nil
	for i, dimension := range order {
		m.Dims = append(m.Dims, extents[rank-1-dimension])
		if i > 0 {
			m.Strides = append(m.Strides, strides[dimension])
		}
	}
	return nil
}

// Check returns an error if the driver would reject the map.
func (m *Map) Check() error {
	if err := m.checkNames(); err != nil {
		return err
	}
	rank := len(m.Dims)
	switch {
	case rank < 1 || rank > 5:
		return fmt.Errorf("it has %d dimensions, want 1 to 5", rank)
	case len(m.Box) != rank || len(m.Strides) < rank-1 || len(m.ElementStrides) != rank && len(m.ElementStrides) != 0:
		return fmt.Errorf("it has %d dimensions, a box of %d, %d strides and %d element strides",
			rank, len(m.Box), len(m.Strides), len(m.ElementStrides))
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
	case EnumValue(m.Interleave, Interleaves) < 0:
		return fmt.Errorf("its interleave is %q, want one of %q", m.Interleave, Interleaves)
	case EnumValue(m.Swizzle, Swizzles) < 0:
		return fmt.Errorf("its swizzle is %q, want one of %q", m.Swizzle, Swizzles)
	case EnumValue(m.OOB, OOBs) < 0:
		return fmt.Errorf("out-of-bounds elements read as %q, want one of %q", m.OOB, OOBs)
	case EnumValue(m.L2Promotion, Promotions) < 0:
		return fmt.Errorf("its L2 promotion is %q, want one of %q", m.L2Promotion, Promotions)
	case m.FillsNaN() && !slices.Contains(floats, m.Type):
		return fmt.Errorf("out-of-bounds elements read as nan, but type %s has no nan", m.Type)
	}
	return nil
}

// checkRow checks the size of a row of the box, the unit that a swizzle permutes.
func (m *Map) checkRow() error {
	row := m.RowBytes()
	if row%16 != 0 {
		return fmt.Errorf("a row of its box has %d bytes, want a multiple of 16", row)
	}
	if span := m.SwizzleBytes(); span > 0 && row > span {
		return fmt.Errorf("a row of its box has %d bytes, which is more than the swizzle's %d", row, span)
	}
	return nil
}

// Alignment returns the required alignment in bytes of the address and the strides.
func (m *Map) Alignment() int {
	if m.Interleave == "32B" {
		return 32
	}
	return 16
}

// FillsNaN reports whether elements outside the tensor read as NaN instead of zero.
func (m *Map) FillsNaN() bool { return m.OOB == "nan" }

// ElementBytes returns the size of an element in bytes.
func (m *Map) ElementBytes() int { return typeBytes[slices.Index(Types, m.Type)] }

func (m *Map) step(i int) int {
	if len(m.ElementStrides) == 0 {
		return 1
	}
	return m.ElementStrides[i]
}

// Extent returns the number of elements that a copy moves in dimension i of the box.
func (m *Map) Extent(i int) int { return (m.Box[i] + m.step(i) - 1) / m.step(i) }

// SwizzleBytes returns the width of the swizzle pattern in bytes, 0 without a swizzle.
func (m *Map) SwizzleBytes() int {
	if i := EnumValue(m.Swizzle, Swizzles); i > 0 {
		return 16 << i
	}
	return 0
}

// RowBytes returns the size of a row of the box in bytes.
func (m *Map) RowBytes() int { return m.Extent(0) * m.ElementBytes() }

// BoxBytes returns the number of bytes that a copy reports to its mbarrier. Elements outside the
// tensor count too.
func (m *Map) BoxBytes() int {
	n := m.ElementBytes()
	for i := range m.Box {
		n *= m.Extent(i)
	}
	return n
}

// TensorBytes returns the distance in bytes from the address of the tensor to its end. It returns
// the largest integer for a tensor that is larger than the address space.
func (m *Map) TensorBytes() int {
	n := uint64(m.Dims[0]) * uint64(m.ElementBytes())
	for i := 1; i < len(m.Dims); i++ {
		high, low := bits.Mul64(uint64(m.Dims[i]-1), uint64(m.Strides[i-1]))
		if n += low; high > 0 || low > math.MaxInt || n > math.MaxInt {
			return math.MaxInt
		}
	}
	return int(n)
}
