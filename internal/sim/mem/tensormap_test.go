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
