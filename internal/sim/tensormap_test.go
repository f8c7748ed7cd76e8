package sim

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/tensormap"
)

func someMap() TensorMap {
	return TensorMap{Address: 0x1000, Map: tensormap.Map{
		Type: "f16", Dims: []int{100, 20, 3}, Strides: []int{208, 4160}, Box: []int{32, 8, 2}, ElementStrides: []int{1, 2, 1}, Swizzle: "64B", OOB: "nan",
	}}
}

func TestTensorMapRoundTrip(t *testing.T) {
	m := someMap()
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeTensorMap(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&m, got); d != "" {
		t.Error(d)
	}
	if n := got.BoxBytes(); n != 32*4*2*2 {
		t.Errorf("its box has %d bytes", n)
	}
	for i := range b {
		b[i] ^= 1
		if _, err := decodeTensorMap(b); err == nil {
			t.Errorf("with a bit of byte %d changed it is still a map", i)
		}
		b[i] ^= 1
	}
}

func TestTensorMapErrors(t *testing.T) {
	check := func(want string, change func(*TensorMap)) {
		t.Helper()
		m := someMap()
		change(&m)
		if _, err := m.Encode(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
	check("type", func(m *TensorMap) { m.Type = "f8" }) // the rest of what the driver refuses is the map's own to know
	check("address", func(m *TensorMap) { m.Address++ })
	check(`the interleave "16B" is not simulated`, func(m *TensorMap) { m.Interleave = "16B" })
	check(`the type "tf32_ftz" is not simulated`, func(m *TensorMap) { m.Type = "tf32_ftz" })
}

// TestPieces cuts boxes: every byte of the box must be there once, and what is inside must be where the strides say.
func TestPieces(t *testing.T) {
	m := someMap()
	seen := map[uint64]bool{}
	inside := 0
	for _, p := range m.pieces([5]int64{96, 16, 2}, 0x400, false) {
		for i := range p.size {
			if at := p.shared + uint64(i); seen[at] || at < 0x400 || at >= 0x400+512 {
				t.Fatalf("the byte %#x comes twice or is outside of the box", at)
			}
			seen[p.shared+uint64(i)] = true
		}
		if !p.outside {
			inside += p.size
			if at := p.global - m.Address - 2*4160; at%208 < 192 || at%208+uint64(p.size) > 200 || at/208 != 16 && at/208 != 18 {
				t.Errorf("a piece at byte %d of the last plane", at)
			}
		}
	}
	if len(seen) != 512 || inside != 2*8 {
		t.Errorf("%d bytes, %d of them inside; want 512 and 16", len(seen), inside)
	}
}

// FuzzTensorMap takes any bytes for a map. Those that are one must be so again when they are written.
func FuzzTensorMap(f *testing.F) {
	m := someMap()
	b, err := m.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(make([]byte, tensormap.Bytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeTensorMap(b)
		if err != nil {
			return
		}
		if _, err := m.Encode(); err != nil {
			t.Errorf("it was a map, and is none: %v", err)
		}
	})
}
