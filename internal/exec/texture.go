package exec

import (
	"math"

	"attune/internal/sim/mem"
)

// texture makes a texture or surface object and answers with its handle.
func (s *session) texture(f *fields) (status, []byte) {
	t := &mem.Texture{Address: f.u64()}
	for i := range t.Extent {
		t.Extent[i] = int(f.u64())
	}
	t.Pitch, t.Slice = int(f.u64()), int(f.u64())
	t.Bits, t.Kind, t.Channels = int(f.u32()), mem.ChannelKind(f.u32()), int(f.u32())
	t.Surface, t.Linear = f.u32() != 0, f.u32() != 0
	t.Filter, t.Normalised, t.Scaled = f.u32() != 0, f.u32() != 0, f.u32() != 0
	for i := range t.Modes {
		t.Modes[i] = mem.AddressMode(f.u32())
	}
	for i := range t.Border {
		t.Border[i] = math.Float32frombits(f.u32())
	}
	if t.Linear {
		t.Border = [4]float32{} // behind its end there are zeros
	}
	knownBits := t.Bits == 8 || t.Bits == 16 || t.Bits == 32
	if f.err != nil || !knownBits || t.Channels < 1 || t.Channels > 4 || t.Kind > mem.Float || !s.isDevice(t.Address) {
		return invalidValue, nil
	}
	return success, u64s(s.memory.AddTexture(t))
}
