package mem

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/tensormap"
)

func exampleMap() TensorMap {
	return TensorMap{Address: 0x1000, Map: tensormap.Map{
		Type: "f16", Dims: []int{100, 20, 3}, Strides: []int{208, 4160}, Box: []int{32, 8, 2}, ElementStrides: []int{1, 2, 1}, Swizzle: "64B", OOB: "nan",
	}}
}

func TestTensorMapRoundTrip(t *testing.T) {
	m := exampleMap()
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeTensorMap(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&m, got); d != "" {
		t.Error(d)
	}
	if n := got.BoxBytes(); n != 32*4*2*2 {
		t.Errorf("the box has %d bytes", n)
	}
	for i := range b {
		b[i] ^= 1
		if _, err := DecodeTensorMap(b); err == nil {
			t.Errorf("a map with one bit of byte %d changed is decoded without error", i)
		}
		b[i] ^= 1
	}
}

func TestTensorMapErrors(t *testing.T) {
	check := func(want string, change func(*TensorMap)) {
		t.Helper()
		m := exampleMap()
		change(&m)
		if _, err := m.Encode(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not contain %q", err, want)
		}
	}
	check("type", func(m *TensorMap) { m.Type = "f8" }) // package tensormap tests the other checks of the driver
	check("address", func(m *TensorMap) { m.Address++ })
	check(`the interleave "16B" is not simulated`, func(m *TensorMap) { m.Interleave = "16B" })
	check(`the type "tf32_ftz" is not simulated`, func(m *TensorMap) { m.Type = "tf32_ftz" })
}

// TestPieces divides boxes. Every byte of the box must be in one piece, and the pieces inside the
// tensor must be where the strides put them.
func TestPieces(t *testing.T) {
	m := exampleMap()
	seen := map[uint64]bool{}
	inside := 0
	for _, p := range m.Pieces([5]int64{96, 16, 2}, 0x400, false) {
		for i := range p.Size {
			if at := p.Shared + uint64(i); seen[at] || at < 0x400 || at >= 0x400+512 {
				t.Fatalf("the byte at %#x is in two pieces or outside of the box", at)
			}
			seen[p.Shared+uint64(i)] = true
		}
		if !p.Outside {
			inside += p.Size
			if at := p.Global - m.Address - 2*4160; at%208 < 192 || at%208+uint64(p.Size) > 200 || at/208 != 16 && at/208 != 18 {
				t.Errorf("a piece at byte %d of the last plane", at)
			}
		}
	}
	if len(seen) != 512 || inside != 2*8 {
		t.Errorf("%d bytes, %d of them inside; want 512 and 16", len(seen), inside)
	}
}

// FuzzTensorMap decodes arbitrary bytes. A map that decodes must encode again.
func FuzzTensorMap(f *testing.F) {
	m := exampleMap()
	b, err := m.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(make([]byte, tensormap.Bytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeTensorMap(b)
		if err != nil {
			return
		}
		if _, err := m.Encode(); err != nil {
			t.Errorf("a decoded map does not encode: %v", err)
		}
	})
}

// TestReplaceField makes a map out of zeroed bytes, field by field.
func TestReplaceField(t *testing.T) {
	b := make([]byte, tensormap.Bytes)
	replace := func(field string, dimension int, value uint64) {
		t.Helper()
		if _, _, known := TensorMapField(field); !known {
			t.Errorf("%s is not known", field)
		}
		if err := ReplaceField(b, field, dimension, value); err != nil {
			t.Errorf("%s: %v", field, err)
		}
	}
	want := exampleMap()
	replace("global_address", 0, want.Address)
	if _, err := DecodeTensorMap(b); err == nil {
		t.Error("a map without dimensions is decoded without error")
	}
	replace("rank", 0, 2)
	for i := range want.Dims {
		replace("global_dim", i, uint64(want.Dims[i]))
		replace("box_dim", i, uint64(want.Box[i]))
		replace("element_stride", i, uint64(want.ElementStrides[i]))
		if i > 0 {
			replace("global_stride", i-1, uint64(want.Strides[i-1]))
		}
	}
	replace("elemtype", 0, 6)
	replace("swizzle_mode", 0, 2)
	replace("fill_mode", 0, 1)
	got, err := DecodeTensorMap(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&want, got); d != "" {
		t.Error(d)
	}
	replace("elemtype", 0, 10) // 8 is f32_ftz, which the driver numbers 10
	if got, err := DecodeTensorMap(b); err != nil || got.Type != "bf16" {
		t.Errorf("element type 10 is %s, error %v", got.Type, err)
	}
	replace("interleave_layout", 0, 1)
	if _, err := DecodeTensorMap(b); err == nil || !strings.Contains(err.Error(), "interleave") {
		t.Errorf("error %v for an interleave", err)
	}
}

// TestReplaceFieldDefaults leaves out the rank and the type, which are zero for one dimension of u8.
func TestReplaceFieldDefaults(t *testing.T) {
	b := make([]byte, tensormap.Bytes)
	for field, value := range map[string]uint64{"global_address": 0x1000, "global_dim": 2048, "box_dim": 256, "element_stride": 1} {
		if err := ReplaceField(b, field, 0, value); err != nil {
			t.Errorf("%s: %v", field, err)
		}
	}
	got, err := DecodeTensorMap(b)
	if err != nil || len(got.Dims) != 1 || got.Dims[0] != 2048 || got.Type != "u8" || got.Address != 0x1000 {
		t.Errorf("got %+v, %v; want 2048 elements of u8 at 0x1000", got, err)
	}
}

func TestReplaceFieldErrors(t *testing.T) {
	check := func(want, field string, dimension int, value uint64) {
		t.Helper()
		if err := ReplaceField(make([]byte, tensormap.Bytes), field, dimension, value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v does not contain %q", field, err, want)
		}
	}
	check("the value 5 is not one of rank", "rank", 0, 5)
	check("the value 13 is not one of elemtype", "elemtype", 0, 13)
	check("swizzle_mode", "swizzle_mode", 0, 4)
	check("fill_mode", "fill_mode", 0, 2)
	check("interleave_layout", "interleave_layout", 0, 3)
	check("the dimension 4 has no stride", "global_stride", 4, 16)
	if err := ReplaceField([]byte{127: 1}, "rank", 0, 1); err == nil {
		t.Error("a field of bytes that are no tensor map is replaced without error")
	}
	if _, _, known := TensorMapField("swizzle_atomicity"); known {
		t.Error("swizzle_atomicity is known")
	}
}

// TestRows compares the units of the rows of boxes with the pieces of the same boxes.
func TestRows(t *testing.T) {
	divided := 0
	for _, swizzle := range tensormap.Swizzles {
		for _, box := range []int{16, 32, 64, 128} {
			m := TensorMap{Address: 0x10000, Map: tensormap.Map{
				Type: "u8", Dims: []int{160, 20, 3}, Strides: []int{160, 3200}, Box: []int{box, 9, 2}, ElementStrides: []int{1, 2, 1}, Swizzle: swizzle,
			}}
			for _, at := range [][5]int64{{}, {32, 3, 1}, {-16, 0, 0}, {144, 1, 0}, {0, -3, 2}, {16, 15, 2}} {
				rows, ok := m.AppendRows(nil, at, 0x400)
				if !ok {
					continue
				}
				divided++
				var units []Piece
				for i := range rows {
					units = rows[i].AppendUnits(units)
				}
				if diff := cmp.Diff(m.Pieces(at, 0x400, false), units); diff != "" {
					t.Errorf("swizzle %s, box of %d bytes at %v: -pieces +units\n%s", swizzle, box, at, diff)
				}
			}
		}
	}
	if divided < 20 {
		t.Errorf("%d boxes have rows", divided)
	}
}
