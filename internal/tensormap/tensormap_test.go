package tensormap_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"attune/internal/tensormap"
)

func validMap() tensormap.Map {
	return tensormap.Map{
		Type: "f16", Dims: []int{100, 20, 3}, Strides: []int{208, 4160}, Box: []int{32, 8, 2}, ElementStrides: []int{1, 2, 1}, Interleave: "none",
		Swizzle: "64B", OOB: "nan", L2Promotion: "128B",
	}
}

func TestCheck(t *testing.T) {
	check := func(want string, change func(*tensormap.Map)) {
		t.Helper()
		m := validMap()
		change(&m)
		err := m.Check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
	check("", func(*tensormap.Map) {})
	check("", func(m *tensormap.Map) {
		m.ElementStrides, m.Swizzle, m.OOB, m.Interleave, m.L2Promotion = nil, "", "", "", ""
	})
	check("type", func(m *tensormap.Map) { m.Type = "f8" })
	check("type", func(m *tensormap.Map) { m.Type = "" })
	check("interleave", func(m *tensormap.Map) { m.Interleave = "64B" })
	check("swizzle", func(m *tensormap.Map) { m.Swizzle = "16B" })
	check("elements read as \"one\"", func(m *tensormap.Map) { m.OOB = "one" })
	check("type u16 has no nan", func(m *tensormap.Map) { m.Type = "u16" })
	check("promotion", func(m *tensormap.Map) { m.L2Promotion = "32B" })
	check("0 dimensions", func(m *tensormap.Map) { m.Dims = nil })
	check("6 dimensions", func(m *tensormap.Map) { m.Dims = make([]int, 6) })
	check("a box of 2", func(m *tensormap.Map) { m.Box = m.Box[:2] })
	check("1 strides", func(m *tensormap.Map) { m.Strides = m.Strides[:1] })
	check("2 element strides", func(m *tensormap.Map) { m.ElementStrides = m.ElementStrides[:2] })
	check("extent 1 is 0", func(m *tensormap.Map) { m.Dims[1] = 0 })
	check("extent 0 is 4294967297", func(m *tensormap.Map) { m.Dims[0] = 1<<32 + 1 })
	check("box is 257", func(m *tensormap.Map) { m.Box[2] = 257 })
	check("box is 0", func(m *tensormap.Map) { m.Box[1] = 0 })
	check("stride 0 is 216 bytes, want a multiple of 16", func(m *tensormap.Map) { m.Strides[0] = 216 })
	check("stride 0 is 208 bytes, want a multiple of 32", func(m *tensormap.Map) { m.Interleave = "32B" })
	check("stride 1 is -16", func(m *tensormap.Map) { m.Strides[1] = -16 })
	check("element stride 1 is 9", func(m *tensormap.Map) { m.ElementStrides[1] = 9 })
	check("20 bytes, want a multiple of 16", func(m *tensormap.Map) { m.Box[0] = 10 })
	check("128 bytes, which is more than the swizzle's 64", func(m *tensormap.Map) { m.Box[0] = 64 })
}

func TestSizes(t *testing.T) {
	m := validMap()
	if m.ElementBytes() != 2 || m.Extent(1) != 4 || m.SwizzleBytes() != 64 || m.RowBytes() != 64 || m.BoxBytes() != 64*4*2 || !m.FillsNaN() {
		t.Errorf("%d bytes per element, extent %d, span %d, row %d, box %d", m.ElementBytes(), m.Extent(1), m.SwizzleBytes(), m.RowBytes(), m.BoxBytes())
	}
	if got := m.TensorBytes(); got != 2*4160+19*208+200 {
		t.Errorf("the tensor ends after %d bytes", got)
	}
	plain := tensormap.Map{Type: "u8", Dims: []int{64}, Box: []int{32}}
	if plain.Extent(0) != 32 || plain.SwizzleBytes() != 0 || plain.FillsNaN() || plain.TensorBytes() != 64 {
		t.Errorf("map with defaults: extent %d, span %d, %d bytes", plain.Extent(0), plain.SwizzleBytes(), plain.TensorBytes())
	}
}

// TestTensorBytesOverflow measures tensors that are larger than the address space. The sum must not
// wrap around to a size that a small buffer has.
func TestTensorBytesOverflow(t *testing.T) {
	for _, m := range []tensormap.Map{
		{Type: "u8", Dims: []int{16, 1 << 32}, Strides: []int{1<<40 - 16}},
		{Type: "f64", Dims: []int{1 << 32, 1<<23 + 1, 1<<23 + 1, 2}, Strides: []int{1<<40 - 16, 1<<40 - 16, 1<<40 - 16}},
	} {
		if got := m.TensorBytes(); got != math.MaxInt {
			t.Errorf("%v with strides %v has %d bytes, want %d", m.Dims, m.Strides, got, math.MaxInt)
		}
	}
}

func TestSetLayout(t *testing.T) {
	for _, c := range []struct {
		extents, order, dims, strides []int
	}{
		{[]int{7}, nil, []int{7}, nil},
		{[]int{2, 3, 5, 64}, nil, []int{64, 5, 3, 2}, []int{128, 640, 1920}},
		{[]int{2, 3, 5, 64}, []int{0, 1, 2, 3}, []int{64, 5, 3, 2}, []int{128, 640, 1920}},
		{[]int{2, 3, 5, 64}, []int{0, 2, 1, 3}, []int{64, 3, 5, 2}, []int{640, 128, 1920}},
		{[]int{2, 3, 5, 64}, []int{0, 3, 1, 2}, []int{64, 2, 5, 3}, []int{1920, 128, 640}},
	} {
		m := tensormap.Map{Type: "f16", Dims: []int{1}, Strides: []int{1}}
		if err := m.SetLayout(c.extents, c.order); err != nil {
			t.Errorf("%v in the order %v: %v", c.extents, c.order, err)
		}
		if !slices.Equal(m.Dims, c.dims) || !slices.Equal(m.Strides, c.strides) {
			t.Errorf("%v in the order %v: %v with strides %v; want %v and %v", c.extents, c.order, m.Dims, m.Strides, c.dims, c.strides)
		}
	}
	for _, order := range [][]int{{1, 0}, {0}, {0, 0}, {0, 2}, {0, 1, 2}} {
		m := tensormap.Map{Type: "f16"}
		err := m.SetLayout([]int{4, 8}, order)
		if want := fmt.Sprintf("the order of the dimensions is %v; want 0 and then the others of 0 to 1", order); err == nil || err.Error() != want {
			t.Errorf("%v: %v; want %s", order, err, want)
		}
	}
}
