package mem

import (
	"math"
	"testing"
)

// TestTaps checks which texels a sample reads, with their weights, by the address modes.
func TestTaps(t *testing.T) {
	type tap struct {
		at     int
		inside bool
		weight float64
	}
	for _, c := range []struct {
		what    string
		texture Texture
		x       float64
		want    []tap
	}{
		{"point", Texture{Modes: [3]AddressMode{Clamp}}, 2.9, []tap{{2, true, 1}}},
		{"clamped below", Texture{Modes: [3]AddressMode{Clamp}}, -7, []tap{{0, true, 1}}},
		{"clamped above", Texture{Modes: [3]AddressMode{Clamp}}, 99, []tap{{3, true, 1}}},
		{"not a number", Texture{Modes: [3]AddressMode{Clamp}}, math.NaN(), []tap{{0, true, 1}}},
		{"border", Texture{Modes: [3]AddressMode{Border}}, -0.1, []tap{{-1, false, 1}}},
		{"wrapped", Texture{Normalised: true}, 1.3, []tap{{1, true, 1}}},
		{"wrap of texels is clamp", Texture{}, 5, []tap{{3, true, 1}}},
		{"mirrored", Texture{Normalised: true, Modes: [3]AddressMode{Mirror}}, 1.3, []tap{{2, true, 1}}},
		{"mirrored below", Texture{Normalised: true, Modes: [3]AddressMode{Mirror}}, -0.3, []tap{{1, true, 1}}},
		{"linear", Texture{Filter: true, Modes: [3]AddressMode{Clamp}}, 1.75, []tap{{1, true, 0.75}, {2, true, 0.25}}},
		{"linear at a centre", Texture{Filter: true, Modes: [3]AddressMode{Clamp}}, 1.5, []tap{{1, true, 1}, {2, true, 0}}},
		{"linear in 1/256", Texture{Filter: true, Modes: [3]AddressMode{Clamp}}, 1.5 + 0.7/256, []tap{{1, true, 255.0 / 256}, {2, true, 1.0 / 256}}},
		{"linear over the edge", Texture{Filter: true, Normalised: true}, 0, []tap{{3, true, 0.5}, {0, true, 0.5}}},
	} {
		c.texture.Extent = [3]int{4, 0, 0}
		taps := c.texture.Taps([3]float64{c.x}, 1, [3]int{}, nil)
		if len(taps) != len(c.want) {
			t.Errorf("%s: %v", c.what, taps)
			continue
		}
		for i, want := range c.want {
			if got := (tap{taps[i].At[0], taps[i].Inside, taps[i].Weight}); got != want {
				t.Errorf("%s: tap %d is %v, want %v", c.what, i, got, want)
			}
		}
	}
}

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		texture Texture
		data    []byte
		want    Texel
	}{
		{Texture{Bits: 8, Kind: Unsigned, Channels: 2}, []byte{255, 7}, Texel{255, 7}},
		{Texture{Bits: 8, Kind: Unsigned, Channels: 1, Scaled: true}, []byte{51}, Texel{0.2}},
		{Texture{Bits: 8, Kind: Signed, Channels: 1, Scaled: true}, []byte{0x80}, Texel{-1}},
		{Texture{Bits: 16, Kind: Signed, Channels: 1}, []byte{0xfe, 0xff}, Texel{-2}},
		{Texture{Bits: 16, Kind: Float, Channels: 1}, []byte{0x00, 0xc0}, Texel{-2}},
		{Texture{Bits: 32, Kind: Float, Channels: 1}, []byte{0, 0, 0x80, 0x3f}, Texel{1}},
	} {
		if got := c.texture.Decode(c.data); got != c.want {
			t.Errorf("%v of %d bits: %v, want %v", c.data, c.texture.Bits, got, c.want)
		}
	}
}

// TestCubeFace checks the faces of a cube by the CUDA Programming Guide's table.
func TestCubeFace(t *testing.T) {
	for _, c := range []struct {
		x, y, z float64
		face    int
		s, t    float64
	}{
		{1, 0, 0, 0, 0.5, 0.5},
		{-1, 0, 0.5, 1, 0.75, 0.5},
		{0.5, 1, 0, 2, 0.75, 0.5},
		{0, -1, 0.5, 3, 0.5, 0.25},
		{0, 0.5, 1, 4, 0.5, 0.25},
		{0.5, 0, -1, 5, 0.25, 0.5},
		{0, 0, 0, 0, 0.5, 0.5},
	} {
		if face, s, v := CubeFace(c.x, c.y, c.z); face != c.face || s != c.s || v != c.t {
			t.Errorf("(%g, %g, %g): face %d at (%g, %g), want %d at (%g, %g)", c.x, c.y, c.z, face, s, v, c.face, c.s, c.t)
		}
	}
}

func TestTextureHandles(t *testing.T) {
	m := NewMemory()
	first, second := m.AddTexture(&Texture{Channels: 1}), m.AddTexture(&Texture{Channels: 2})
	if first == second || m.Texture(first).Channels != 1 || m.Texture(second).Channels != 2 || m.Texture(second+1) != nil || m.Texture(0) != nil {
		t.Error("handles are not those of their textures")
	}
	if !m.RemoveTexture(first) || m.RemoveTexture(first) || m.Texture(first) != nil || m.RemoveTexture(0) {
		t.Error("a texture is removed other than once")
	}
}
