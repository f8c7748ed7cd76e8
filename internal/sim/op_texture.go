package sim

import (
	"fmt"
	"math"
	"slices"

	"attune/internal/finding"
	"attune/internal/half"
	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/mem"
)

// textureOp is tex, tld4, suld or sust.
type textureOp struct {
	shape    textureShape
	handle   slot
	at       []slot // the layer if there is one, then the coordinates
	byIndex  bool   // the coordinates are integers
	gather   int    // the channel that tld4 reads
	typed    ptx.Type
	regs     []element // results, or what sust writes
	resident slot      // predicate; noFile for none
	mode     string    // of a surface: trap, clamp or zero
	stores   bool
}

// textureShape is the geometry of a texture.
type textureShape struct {
	dimensions    int
	layered, cube bool
}

var textureShapes = map[string]textureShape{
	"1d": {1, false, false}, "2d": {2, false, false}, "3d": {3, false, false}, "a1d": {1, true, false}, "a2d": {2, true, false},
	"cube": {3, false, true}, "acube": {3, true, true},
}

// lowerTexture lowers tex, tld4, suld and sust on texture objects.
func (c *code) lowerTexture(in *ptx.Instruction, o *op) error {
	t := &textureOp{gather: -1, stores: in.Opcode == "sust"}
	o.texture, o.class = t, count.Memory
	vector := 1
	var coordinates ptx.Type
	for _, m := range in.Modifiers {
		shape, isShape := textureShapes[m]
		typed, isType := ptx.ParseType(m)
		switch {
		case isShape:
			t.shape = shape
		case m == "v2" || m == "v4":
			vector = int(m[1] - '0')
		case isType && t.typed == ptx.NoType:
			t.typed = typed
		case isType:
			coordinates = typed
		case m == "trap" || m == "clamp" || m == "zero":
			t.mode = m
		case in.Opcode == "tld4" && len(m) == 1:
			t.gather = slices.Index([]string{"r", "g", "b", "a"}, m)
		case m == "b" || m == "level" || m == "grad" || m == "base": // there is one level
		default:
			return fmt.Errorf("unsupported modifier .%s", m)
		}
	}
	surface := in.Opcode == "suld" || in.Opcode == "sust"
	t.byIndex = surface || !isFloat(coordinates)
	if t.shape.dimensions == 0 || t.typed == ptx.NoType || len(in.Operands) < 2 {
		return fmt.Errorf("unsupported form")
	}
	value, address := in.Operands[0], in.Operands[1]
	if t.stores {
		value, address = address, value
	}
	o.run = runTexture
	if surface {
		o.run = runSurface
	}
	if value.Kind == ptx.PairOperand {
		var err error
		if t.resident, err = c.predicate(value.Parts[1]); err != nil {
			return err
		}
		value = value.Parts[0]
	}
	m := &memOp{size: t.typed.Size()}
	if err := c.lowerElements(m, value, t.typed, vector, t.stores); err != nil {
		return err
	}
	t.regs = m.regs
	return c.lowerCoordinates(t, address)
}

// lowerCoordinates lowers [handle, {x, y, ...}].
func (c *code) lowerCoordinates(t *textureOp, address ptx.Operand) error {
	if address.Kind != ptx.AddrOperand || len(address.Parts) != 2 || address.Parts[1].Kind != ptx.VecOperand {
		return fmt.Errorf("a texture with a sampler of its own is not supported; use texture objects")
	}
	var err error
	if t.handle, err = c.source(address.Parts[0], ptx.B64); err != nil {
		return err
	}
	want := t.shape.dimensions
	if t.shape.layered {
		want++
	}
	if len(address.Parts[1].Parts) < want {
		return fmt.Errorf("it has %d coordinates, want %d", len(address.Parts[1].Parts), want)
	}
	for _, p := range address.Parts[1].Parts[:want] {
		s, err := c.source(p, ptx.B32)
		if err != nil {
			return err
		}
		t.at = append(t.at, s)
	}
	return nil
}

// namedTexture is a texture object with its handle.
type namedTexture struct {
	handle  uint64
	texture *mem.Texture
}

// textureOf returns the object that a lane names, or nil, which is reported. Mostly it is that of the
// lane before.
func (w *warp) textureOf(o *op, lane int) *mem.Texture {
	handle := w.elementValue(o.texture.handle, lane)
	if known := &w.lastTexture; known.texture != nil && known.handle == handle {
		return known.texture
	}
	t := w.block.launch.memory.Texture(handle)
	w.lastTexture = namedTexture{handle, t}
	if t == nil {
		w.report(finding.Undefined, o, 1<<lane, func() string {
			return fmt.Sprintf("%#x is not a texture or surface object, or it has been destroyed", handle)
		})
	}
	return t
}

// place reads the layer and the coordinates of a lane.
func (w *warp) place(t *textureOp, lane int) (layer int, at [3]float64, index [3]int) {
	registers := t.at
	if t.shape.layered {
		layer, registers = int(int32(w.elementValue(registers[0], lane))), registers[1:]
	}
	for i, s := range registers {
		bits := uint32(w.elementValue(s, lane))
		if index[i] = int(int32(bits)); !t.byIndex {
			at[i] = float64(math.Float32frombits(bits))
		}
	}
	return layer, at, index
}

// taps lists the texels that a lane reads, in the room of into.
func (t *textureOp) taps(x *mem.Texture, layer int, at [3]float64, index [3]int, into []mem.Tap) []mem.Tap {
	dimensions := t.shape.dimensions
	fixed := [3]int{}
	if t.shape.layered || t.shape.cube {
		layer = min(max(layer, 0), max(x.Extent[2]-1, 0))
		fixed[2] = layer
	}
	switch {
	case t.byIndex:
		tap := mem.Tap{At: index, Inside: true, Weight: 1}
		for d := range dimensions {
			tap.Inside = tap.Inside && index[d] >= 0 && index[d] < max(x.Extent[d], 1)
		}
		if t.shape.layered {
			tap.At[2] = layer
		}
		return append(into[:0], tap)
	case t.shape.cube:
		face, s, v := mem.CubeFace(at[0], at[1], at[2])
		sampled := *x
		sampled.Normalised, sampled.Modes = true, [3]mem.AddressMode{mem.Clamp, mem.Clamp, mem.Clamp}
		fixed[2] = face
		if t.shape.layered {
			fixed[2] += 6 * layer
		}
		return sampled.Taps([3]float64{s, v}, 2, fixed, into)
	case t.gather >= 0:
		return x.Gather(at, fixed, into)
	}
	return x.Taps(at, dimensions, fixed, into)
}

// texel reads one texel, with the checks of a read that no write of the launch may precede.
func (w *warp) texel(o *op, x *mem.Texture, tap *mem.Tap, lane int) mem.Texel {
	if !tap.Inside {
		return x.BorderTexel()
	}
	a := accessInfo{space: ptx.Global, bytes: x.TexelBytes(), aligned: true, readOnly: true}
	data := w.access(o, a, x.TexelAddress(tap.At), lane, mem.Read)
	if data == nil {
		return mem.Texel{}
	}
	return x.Decode(data)
}

func runTexture(w *warp, o *op, mask uint32) {
	t := o.texture
	var room [8]mem.Tap
	for l := mask; l != 0; l &= l - 1 {
		lane := firstLane(l)
		var result mem.Texel
		if x := w.textureOf(o, lane); x != nil {
			layer, at, index := w.place(t, lane)
			for i, tap := range t.taps(x, layer, at, index, room[:]) {
				switch v := w.texel(o, x, &tap, lane); {
				case t.gather >= 0:
					result[i] = v[t.gather]
				case tap.Weight == 1:
					result = v
				case tap.Weight > 0:
					for c := range result {
						result[c] += tap.Weight * v[c]
					}
				}
			}
		}
		for i, e := range t.regs {
			if e.slot.file != noFile {
				w.set(e.slot, lane, textureBits(t.typed, result[i]))
			}
		}
		if t.resident.file != noFile {
			w.set(t.resident, lane, 1)
		}
	}
}

// textureBits encodes a value as the type of the result.
func textureBits(t ptx.Type, v float64) uint64 {
	switch t {
	case ptx.F32:
		return uint64(math.Float32bits(float32(v)))
	case ptx.F16:
		return uint64(half.Float16FromFloat64(v))
	}
	return uint64(uint32(int64(v)))
}

// runSurface runs suld and sust, whose first coordinate is in bytes.
func runSurface(w *warp, o *op, mask uint32) {
	t := o.texture
	bytes := t.typed.Size() * len(t.regs)
	d := mem.Read
	if t.stores {
		d = mem.Write
	}
	m := &memOp{size: t.typed.Size(), regs: t.regs, bytes: bytes}
	for l := mask; l != 0; l &= l - 1 {
		lane := firstLane(l)
		var data []byte
		if x := w.textureOf(o, lane); x != nil {
			if address, inside := w.surfaceAddress(o, x, lane, bytes, d); inside {
				if t.stores {
					w.putElements(m, lane, w.value[:])
				}
				data = w.access(o, accessInfo{space: ptx.Global, bytes: bytes, flags: w.accessFlags(m, ptx.Global), aligned: true}, address, lane, d)
			}
		}
		switch {
		case !t.stores:
			w.setElements(m, lane, data)
		case data != nil:
			copy(data, w.value[:bytes])
			w.block.changes++
		}
	}
}

// surfaceAddress returns where an access to a surface goes; false for nowhere.
func (w *warp) surfaceAddress(o *op, x *mem.Texture, lane, bytes int, d mem.Direction) (uint64, bool) {
	t := o.texture
	layer, _, at := w.place(t, lane)
	extent := [3]int{max(x.Extent[0], 1) * x.TexelBytes(), max(x.Extent[1], 1), max(x.Extent[2], 1)}
	if t.shape.layered {
		at[2] = layer
	}
	outside := at[0] < 0 || at[0]+bytes > extent[0]
	for i := 1; i < 3; i++ {
		outside = outside || at[i] < 0 || at[i] >= extent[i]
	}
	switch {
	case !outside:
	case t.mode == "zero":
		return 0, false
	case t.mode == "clamp":
		at[0] = min(max(at[0], 0), extent[0]-bytes)
		at[1], at[2] = min(max(at[1], 0), extent[1]-1), min(max(at[2], 0), extent[2]-1)
	default:
		occurrence := finding.Occurrence{Kind: finding.OutOfBounds, Access: finding.Access{Direction: uint8(d), Memory: x.Address}}
		w.reportMemory(occurrence, o, position{}, lane, ptx.Global, x.Address, func() string {
			return fmt.Sprintf("%s %d bytes of a surface at byte %d of row %d, slice %d; it has %d bytes, %d rows and %d slices",
				d, bytes, at[0], at[1], at[2], extent[0], extent[1], extent[2])
		})
		return 0, false
	}
	return x.Address + uint64(at[0]+at[1]*x.Pitch+at[2]*x.Slice), true
}
