package mem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"attune/internal/tensormap"
)

// TensorMap is a tensor map of a tensor at an address. The simulator encodes it in its own format.
type TensorMap struct {
	tensormap.Map
	Address uint64
}

const tensorMagic = 0x70616d74

// check returns an error for a map that the driver refuses or that is not simulated.
func (t *TensorMap) check() error {
	switch {
	case tensormap.EnumValue(t.Interleave, tensormap.Interleaves) > 0:
		return fmt.Errorf("the interleave %q is not simulated", t.Interleave)
	case strings.HasSuffix(t.Type, "_ftz"):
		return fmt.Errorf("the type %q is not simulated", t.Type)
	case t.Address%16 != 0:
		return fmt.Errorf("its address %#x is not a multiple of 16", t.Address)
	}
	return t.Check()
}

// Encode returns the 128 bytes that a kernel takes.
func (t *TensorMap) Encode() ([]byte, error) {
	m := *t
	if len(m.ElementStrides) == 0 {
		m.ElementStrides = slices.Repeat([]int{1}, len(m.Dims))
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("encode a tensor map: %w", err)
	}
	b := make([]byte, tensormap.Bytes)
	le := binary.LittleEndian
	le.PutUint32(b, tensorMagic)
	b[4], b[5] = byte(len(m.Dims)-1), byte(tensormap.EnumValue(m.Type, tensormap.Types))
	b[6], b[7] = byte(tensormap.EnumValue(m.Swizzle, tensormap.Swizzles)), byte(tensormap.EnumValue(m.OOB, tensormap.OOBs))
	le.PutUint64(b[8:], m.Address)
	for i := range m.Dims {
		le.PutUint64(b[16+8*i:], uint64(m.Dims[i]))
		if i > 0 {
			le.PutUint64(b[48+8*i:], uint64(m.Strides[i-1]))
		}
		le.PutUint16(b[88+2*i:], uint16(m.Box[i]))
		b[98+i] = byte(m.ElementStrides[i])
	}
	le.PutUint32(b[124:], crc32.ChecksumIEEE(b[:124]))
	return b, nil
}

var errNotTensorMap = errors.New("the bytes are not a tensor map")

// isTensorMap reports whether Encode or ReplaceField made the bytes.
func isTensorMap(b []byte) bool {
	le := binary.LittleEndian
	return len(b) == tensormap.Bytes && le.Uint32(b) == tensorMagic && le.Uint32(b[124:]) == crc32.ChecksumIEEE(b[:124])
}

// DecodeTensorMap is the inverse of Encode. It returns an error for bytes that neither Encode nor
// ReplaceField made.
func DecodeTensorMap(b []byte) (*TensorMap, error) {
	le := binary.LittleEndian
	if !isTensorMap(b) {
		return nil, errNotTensorMap
	}
	rank := int(b[4]) + 1
	if rank > 5 || int(b[interleaveByte]) >= len(tensormap.Interleaves) || int(b[5]) >= len(tensormap.Types) || int(b[6]) >= len(tensormap.Swizzles) || int(b[7]) >= len(tensormap.OOBs) {
		return nil, errNotTensorMap
	}
	t := &TensorMap{
		Address: le.Uint64(b[8:]),
		Map:     tensormap.Map{Type: tensormap.Types[b[5]], Swizzle: tensormap.Swizzles[b[6]], OOB: tensormap.OOBs[b[7]]},
	}
	if i := b[interleaveByte]; i > 0 {
		t.Interleave = tensormap.Interleaves[i]
	}
	for i := range rank {
		t.Dims = append(t.Dims, int(le.Uint64(b[16+8*i:])))
		if i > 0 {
			t.Strides = append(t.Strides, int(le.Uint64(b[48+8*i:])))
		}
		t.Box = append(t.Box, int(le.Uint16(b[88+2*i:])))
		t.ElementStrides = append(t.ElementStrides, int(b[98+i]))
	}
	return t, t.check()
}

// replacedTypes are the element types in the numbering of tensormap.replace. The driver's differs.
var replacedTypes = []string{"u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32_ftz", "f64", "bf16", "tf32", "tf32_ftz"}

// TensorMapField describes a field of tensormap.replace: whether its value has 64 bits, whether it
// has one value a dimension, and whether there is such a field.
func TensorMapField(name string) (wide, indexed, known bool) {
	switch name {
	case "global_address":
		return true, false, true
	case "global_stride":
		return true, true, true
	case "box_dim", "global_dim", "element_stride":
		return false, true, true
	case "rank", "elemtype", "interleave_layout", "swizzle_mode", "fill_mode":
		return false, false, true
	}
	return false, false, false
}

// ReplaceField sets a field of an encoded tensor map as tensormap.replace does. Bytes that are all
// zero are a map of one dimension, of u8, without extents. Compilers begin with those, and leave out
// fields that are zero then: Triton replaces no rank of 1. DecodeTensorMap checks the map as a whole,
// because a kernel may replace its fields in any order.
func ReplaceField(b []byte, field string, dimension int, value uint64) error {
	if !isTensorMap(b) && slices.ContainsFunc(b, func(x byte) bool { return x != 0 }) {
		return errNotTensorMap
	}
	outside := fmt.Errorf("the value %d is not one of %s", value, field)
	le := binary.LittleEndian
	switch field {
	case "global_address":
		le.PutUint64(b[8:], value)
	case "global_dim":
		le.PutUint64(b[16+8*dimension:], value)
	case "global_stride": // of the dimension after the innermost one, and so on
		if dimension > 3 {
			return fmt.Errorf("the dimension %d has no stride; the last is 3", dimension)
		}
		le.PutUint64(b[56+8*dimension:], value)
	case "box_dim":
		le.PutUint16(b[88+2*dimension:], uint16(min(value, 1<<16-1)))
	case "element_stride":
		b[98+dimension] = byte(min(value, 255))
	case "rank":
		if value > 4 {
			return outside
		}
		b[4] = byte(value)
	case "elemtype":
		if value >= uint64(len(replacedTypes)) {
			return outside
		}
		b[5] = byte(tensormap.EnumValue(replacedTypes[value], tensormap.Types))
	default:
		at, names := enumField(field)
		if value >= uint64(len(names)) {
			return outside
		}
		b[at] = byte(value)
	}
	le.PutUint32(b, tensorMagic)
	le.PutUint32(b[124:], crc32.ChecksumIEEE(b[:124]))
	return nil
}

// interleaveByte is where an encoded map has the interleave.
const interleaveByte = 103

// enumField returns the place and the values of a field that is a choice.
func enumField(field string) (at int, values []string) {
	switch field {
	case "swizzle_mode":
		return 6, tensormap.Swizzles
	case "fill_mode":
		return 7, tensormap.OOBs
	}
	return interleaveByte, tensormap.Interleaves
}

// Piece is a range of bytes of a bulk copy that is contiguous in shared memory and in the other
// memory, or a row of a box. A piece outside of a tensor has no global memory.
type Piece struct {
	Shared  uint64
	Global  uint64 // or the address in shared memory that the copy reads
	Size    int
	Outside bool
	Swizzle uint64  // of a row, permutes its 16-byte units within itself; 0 where they are in order
	From    []byte  // the bytes that the copy read; for a piece outside, the fill bytes
	Source  *Buffer // that From lies in; nil for shared memory
}

// UnitBytes is the size of the units that a swizzle moves.
const UnitBytes = 16

// Unit returns the address in shared memory of the byte at an offset of the piece.
func (p *Piece) Unit(offset int) uint64 { return swizzled(p.Shared+uint64(offset), p.Swizzle) }

// AppendUnits adds the units of a row as pieces of their own.
func (p *Piece) AppendUnits(list []Piece) []Piece {
	for at := 0; at < p.Size; at += UnitBytes {
		unit := Piece{Shared: p.Unit(at), Global: p.Global + uint64(at), Size: UnitBytes, Outside: p.Outside}
		if p.Outside {
			unit.From = p.From[at : at+UnitBytes]
		}
		list = append(list, unit)
	}
	return list
}

// AppendRows adds the rows of a box that a copy loads. It reports false where a row is not one run of
// global memory inside of the tensor, or all outside, or where the box is not one range of shared
// memory: Pieces divides such a box.
func (t *TensorMap) AppendRows(list []Piece, at [5]int64, shared uint64) ([]Piece, bool) {
	row, span := t.RowBytes(), t.SwizzleBytes()
	if t.ElementStrides[0] != 1 || at[0] < 0 || at[0]+int64(t.Box[0]) > int64(t.Dims[0]) || row%UnitBytes != 0 || shared%128 != 0 ||
		t.swizzleMask() != 0 && row != span {
		return list, false
	}
	mask, offset := t.swizzleMask(), uint64(at[0])*uint64(t.ElementBytes())
	t.eachRow(at, func(number int, inside bool, global uint64) {
		p := t.newPiece(shared+uint64(number*row), global+offset, row, inside)
		p.Swizzle = mask
		list = append(list, p)
	})
	return list, true
}

// eachRow visits the rows of a box: whether the row is inside of the tensor but for its innermost
// coordinate, and the address of the element at coordinate 0.
func (t *TensorMap) eachRow(at [5]int64, visit func(number int, inside bool, global uint64)) {
	rows := 1
	for i := 1; i < len(t.Dims); i++ {
		rows *= t.Extent(i)
	}
	var index [5]int
	for number := range rows {
		inside, global := true, t.Address
		for i := 1; i < len(t.Dims); i++ {
			c := at[i] + int64(index[i]*t.ElementStrides[i])
			inside = inside && c >= 0 && c < int64(t.Dims[i])
			global += uint64(c * int64(t.Strides[i-1]))
		}
		visit(number, inside, global)
		for i := 1; i < len(t.Dims); i++ {
			if index[i]++; index[i] < t.Extent(i) {
				break
			}
			index[i] = 0
		}
	}
}

// Pieces divides a box of the tensor into pieces. at has the coordinates of the box, and shared is
// its address in shared memory. A store writes whole 16-byte units at the end of a row.
func (t *TensorMap) Pieces(at [5]int64, shared uint64, store bool) []Piece {
	size, span := t.ElementBytes(), t.SwizzleBytes()
	row, mask := t.RowBytes(), t.swizzleMask()
	pitch := max(row, span)
	list := make([]Piece, 0, t.BoxBytes()/UnitBytes)
	t.eachRow(at, func(number int, inside bool, global uint64) {
		for byteAt := 0; byteAt < row; byteAt += UnitBytes {
			target := swizzled(shared+uint64(number*pitch+byteAt), mask)
			list = t.appendUnit(list, at[0], byteAt/size, global, target, inside, store)
		}
	})
	return list
}

// appendUnit adds 16 bytes of a row. They are one piece if they are contiguous in global memory and
// all inside, or all outside.
func (t *TensorMap) appendUnit(list []Piece, start int64, first int, global, shared uint64, inside, store bool) []Piece {
	size, step := t.ElementBytes(), int64(t.ElementStrides[0])
	n := 16 / size
	isInside := func(i int) bool {
		c := start + int64(first+i)*step
		if store && step == 1 {
			c = start + int64(first)
		}
		return inside && c >= 0 && c < int64(t.Dims[0])
	}
	where := func(i int) uint64 { return global + uint64((start+int64(first+i)*step)*int64(size)) }
	same := isInside(0) && isInside(n-1) // then so are the elements between them
	if !same {
		same = true
		for i := range n {
			same = same && isInside(i) == isInside(0)
		}
	}
	if same && (step == 1 || !isInside(0)) {
		return append(list, t.newPiece(shared, where(0), 16, isInside(0)))
	}
	for i := range n {
		list = append(list, t.newPiece(shared+uint64(i*size), where(i), size, isInside(i)))
	}
	return list
}

func (t *TensorMap) newPiece(shared, global uint64, size int, inside bool) Piece {
	p := Piece{Shared: shared, Global: global, Size: size, Outside: !inside}
	if inside {
		return p
	}
	p.From = make([]byte, size)
	if t.FillsNaN() {
		for i := range p.From {
			p.From[i] = [2]byte{0xF7, 0x7F}[i%2]
		}
	}
	return p
}

// swizzled returns where a byte of a box lies. The pattern depends on the address in shared memory,
// not on the position in the box.
func swizzled(a, mask uint64) uint64 { return a ^ a>>7&mask<<4 }

// swizzleMask returns the bits of a row's number that permute its units.
func (t *TensorMap) swizzleMask() uint64 {
	switch t.Swizzle {
	case "32B":
		return 1
	case "64B":
		return 3
	case "128B":
		return 7
	}
	return 0
}
