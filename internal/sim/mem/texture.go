package mem

import (
	"encoding/binary"
	"math"

	"attune/internal/half"
)

// Texture is a texture or surface object: how kernels read memory by coordinates.
type Texture struct {
	Surface  bool
	Linear   bool // linear memory, which is read by an index
	Address  uint64
	Extent   [3]int // texels; of layers, the last
	Pitch    int    // bytes from row to row
	Slice    int    // bytes from slice to slice, or layer to layer
	Bits     int    // of a channel
	Kind     ChannelKind
	Channels int

	Modes      [3]AddressMode
	Filter     bool // linear filtering
	Normalised bool // coordinates are from 0 to 1
	Scaled     bool // integers are read as fractions of the greatest one
	Border     [4]float32
}

// ChannelKind is the kind of a channel of a texel, as the CUDA runtime numbers it.
type ChannelKind uint8

// The kinds of channels.
const (
	Signed ChannelKind = iota
	Unsigned
	Float
)

// AddressMode is what happens to coordinates outside of a texture, as the CUDA runtime numbers it.
type AddressMode uint8

// The address modes.
const (
	Wrap AddressMode = iota
	Clamp
	Mirror
	Border
)

// textureHandles is the handle of the first texture object. It is no address.
const textureHandles = 0x7e00_0000_0000_0000

// AddTexture makes a texture object and returns its handle.
func (m *Memory) AddTexture(t *Texture) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.textures = append(m.textures, t)
	return textureHandles + uint64(len(m.textures))
}

// RemoveTexture removes a texture object, and reports whether there was one.
func (m *Memory) RemoveTexture(handle uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := handle - textureHandles - 1
	if i >= uint64(len(m.textures)) || m.textures[i] == nil {
		return false
	}
	m.textures[i] = nil
	return true
}

// Texture returns the texture object of a handle, or nil.
func (m *Memory) Texture(handle uint64) *Texture {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if i := handle - textureHandles - 1; i < uint64(len(m.textures)) {
		return m.textures[i]
	}
	return nil
}

// TexelBytes is the size of a texel.
func (t *Texture) TexelBytes() int { return t.Bits / 8 * t.Channels }

// TexelAddress is where a texel is.
func (t *Texture) TexelAddress(at [3]int) uint64 {
	return t.Address + uint64(at[0]*t.TexelBytes()+at[1]*t.Pitch+at[2]*t.Slice)
}

// extent is the size of a dimension, at least one.
func (t *Texture) extent(dimension int) int { return max(t.Extent[dimension], 1) }

// index returns the texel of an index in a dimension, and whether it is not in the border.
func (t *Texture) index(i, dimension int) (int, bool) {
	n, mode := t.extent(dimension), t.Modes[dimension]
	if !t.Normalised && mode < Border && mode != Clamp {
		mode = Clamp
	}
	switch mode {
	case Wrap:
		return ((i % n) + n) % n, true
	case Mirror:
		i = ((i % (2 * n)) + 2*n) % (2 * n)
		return min(i, 2*n-1-i), true
	case Clamp:
		return min(max(i, 0), n-1), true
	}
	return i, i >= 0 && i < n
}

// Texel is the value of a texel: of integers that are not scaled, the bits.
type Texel [4]float64

// Tap is a texel that a sample reads, with its weight.
type Tap struct {
	At     [3]int
	Inside bool // false for the border
	Weight float64
}

// fractionBits is the precision of the weights of linear filtering on chips (CUDA Programming Guide,
// Texture Fetching).
const fractionBits = 8

// limit keeps a coordinate in the range of integers; NaN is 0.
func limit(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return min(max(x, -1<<30), 1<<30)
}

// Taps lists the texels of a sample at coordinates in some dimensions. fixed is the layer, or the index
// of what is not sampled. The list takes the room of into.
func (t *Texture) Taps(at [3]float64, dimensions int, fixed [3]int, into []Tap) []Tap {
	taps := append(into[:0], Tap{At: fixed, Inside: true, Weight: 1})
	for d := range dimensions {
		x := limit(at[d])
		if t.Normalised {
			x = limit(at[d] * float64(t.extent(d)))
		}
		if !t.Filter {
			i, inside := t.index(int(math.Floor(x)), d)
			taps[0].At[d] = i
			taps[0].Inside = taps[0].Inside && inside
			continue
		}
		x -= 0.5
		first := math.Floor(x)
		weight := math.Floor((x-first)*(1<<fractionBits)+0.5) / (1 << fractionBits)
		low, lowInside := t.index(int(first), d)
		high, highInside := t.index(int(first)+1, d)
		for _, tap := range taps {
			next := tap
			next.At[d], next.Inside, next.Weight = high, tap.Inside && highInside, tap.Weight*weight
			taps = append(taps, next)
		}
		for i := range len(taps) / 2 {
			taps[i].At[d], taps[i].Inside, taps[i].Weight = low, taps[i].Inside && lowInside, taps[i].Weight*(1-weight)
		}
	}
	return taps
}

// Gather lists the four texels around a place in two dimensions, in the order of tld4.
func (t *Texture) Gather(at [3]float64, fixed [3]int, into []Tap) []Tap {
	filtered := *t
	filtered.Filter = true
	taps := filtered.Taps(at, 2, fixed, into) // (i, j), (i+1, j), (i, j+1), (i+1, j+1)
	taps[0], taps[1], taps[2], taps[3] = taps[2], taps[3], taps[1], taps[0]
	return taps
}

// Decode decodes the bytes of a texel. A channel that it lacks is 0.
func (t *Texture) Decode(data []byte) Texel {
	var v Texel
	for c := range t.Channels {
		part := data[c*t.Bits/8:]
		var bits uint32
		switch t.Bits {
		case 8:
			bits = uint32(part[0])
		case 16:
			bits = uint32(binary.LittleEndian.Uint16(part))
		default:
			bits = binary.LittleEndian.Uint32(part)
		}
		v[c] = t.channel(bits)
	}
	return v
}

func (t *Texture) channel(bits uint32) float64 {
	shift := 32 - t.Bits
	switch {
	case t.Kind == Float && t.Bits == 16:
		return float64(half.Float16(bits).Float32())
	case t.Kind == Float:
		return float64(math.Float32frombits(bits))
	case t.Kind == Signed && t.Scaled:
		return max(-1, float64(int32(bits<<shift)>>shift)/float64(int64(1)<<(t.Bits-1)-1))
	case t.Kind == Signed:
		return float64(int32(bits<<shift) >> shift)
	case t.Scaled:
		return float64(bits) / float64(int64(1)<<t.Bits-1)
	}
	return float64(bits)
}

// BorderTexel is the value outside of a texture.
func (t *Texture) BorderTexel() Texel {
	var v Texel
	for c := range v {
		v[c] = float64(t.Border[c])
	}
	return v
}

// CubeFace returns the face of a cube that a direction meets, and the place on it from 0 to 1.
func CubeFace(x, y, z float64) (face int, s, t float64) {
	ax, ay, az := math.Abs(x), math.Abs(y), math.Abs(z)
	var major, u, v float64
	switch {
	case ax >= ay && ax >= az:
		face, major, u, v = 0, ax, -z, -y
		if x < 0 {
			face, u = 1, z
		}
	case ay >= az:
		face, major, u, v = 2, ay, x, z
		if y < 0 {
			face, v = 3, -z
		}
	default:
		face, major, u, v = 4, az, x, -y
		if z < 0 {
			face, u = 5, -x
		}
	}
	if major == 0 {
		return 0, 0.5, 0.5
	}
	return face, (u/major + 1) / 2, (v/major + 1) / 2
}
