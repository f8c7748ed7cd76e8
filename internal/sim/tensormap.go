package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"attune/internal/ptx"
)

// TensorMap describes a tensor in global memory, and the box of it that one copy moves. The simulator has its own form of the 128 bytes that kernels take.
type TensorMap struct {
	Address        uint64
	Type           string // of an element: u8, u16, u32, s32, u64, s64, f16, bf16, f32, tf32, f64
	Dims           []int  // elements, the innermost first
	Strides        []int  // bytes, of all dimensions but the innermost
	Box            []int  // elements
	ElementStrides []int  // of which every so many-th is taken; empty for all
	Swizzle        string // none, 32B, 64B, 128B
	FillNaN        bool   // what lies outside reads as NaN, and not as zeros
}

// TensorMapBytes is the size of an encoded map.
const TensorMapBytes = 128

var (
	tensorTypes = []string{"u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "tf32"}
	tensorSizes = []int{1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4}
	swizzles    = []string{"none", "32B", "64B", "128B"}
)

const tensorMagic = 0x70616d74

// check says what the driver would.
func (t *TensorMap) check() error {
	rank := len(t.Dims)
	switch {
	case !slices.Contains(tensorTypes, t.Type):
		return fmt.Errorf("its type is %q, want one of %q", t.Type, tensorTypes)
	case !slices.Contains(swizzles, t.Swizzle):
		return fmt.Errorf("its swizzle is %q, want one of %q", t.Swizzle, swizzles)
	case rank < 1 || rank > 5:
		return fmt.Errorf("it has %d dimensions, want 1 to 5", rank)
	case len(t.Box) != rank || len(t.Strides) < rank-1 || len(t.ElementStrides) != rank:
		return fmt.Errorf("it has %d dimensions, a box of %d, %d strides and %d element strides", rank, len(t.Box), len(t.Strides), len(t.ElementStrides))
	case t.Address%16 != 0:
		return fmt.Errorf("its address %#x is not a multiple of 16", t.Address)
	}
	for i := range rank {
		switch {
		case t.Dims[i] < 1 || t.Dims[i] > 1<<32:
			return fmt.Errorf("its extent %d is %d, want 1 to 2^32", i, t.Dims[i])
		case t.Box[i] < 1 || t.Box[i] > 256:
			return fmt.Errorf("its box is %d in dimension %d, want 1 to 256", t.Box[i], i)
		case t.ElementStrides[i] < 1 || t.ElementStrides[i] > 8:
			return fmt.Errorf("its element stride %d is %d, want 1 to 8", i, t.ElementStrides[i])
		case i > 0 && (t.Strides[i-1] < 0 || t.Strides[i-1]%16 != 0 || t.Strides[i-1] >= 1<<40):
			return fmt.Errorf("its stride %d is %d, want a multiple of 16 below 2^40", i-1, t.Strides[i-1])
		}
	}
	row := t.extent(0) * t.elementBytes()
	if row%16 != 0 {
		return fmt.Errorf("a row of its box has %d bytes, want a multiple of 16", row)
	}
	if span := t.span(); span > 0 && row > span {
		return fmt.Errorf("a row of its box has %d bytes, which is more than the swizzle's %d", row, span)
	}
	return nil
}

func (t *TensorMap) elementBytes() int { return tensorSizes[slices.Index(tensorTypes, t.Type)] }

// extent is how many elements of the box there are in a dimension.
func (t *TensorMap) extent(i int) int {
	return (t.Box[i] + t.ElementStrides[i] - 1) / t.ElementStrides[i]
}

// span is the bytes that a swizzle works on; 0 for none.
func (t *TensorMap) span() int {
	if i := slices.Index(swizzles, t.Swizzle); i > 0 {
		return 16 << i
	}
	return 0
}

// boxBytes is what a barrier is told of a box, whether or not all of it is inside the tensor.
func (t *TensorMap) boxBytes() int {
	n := t.elementBytes()
	for i := range t.Box {
		n *= t.extent(i)
	}
	return n
}

// Encode gives the bytes that a kernel takes, or why the driver would not make them.
func (t *TensorMap) Encode() ([]byte, error) {
	m := *t
	if len(m.ElementStrides) == 0 {
		m.ElementStrides = slices.Repeat([]int{1}, len(m.Dims))
	}
	if m.Swizzle == "" {
		m.Swizzle = "none"
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("encode a tensor map: %w", err)
	}
	b := make([]byte, TensorMapBytes)
	le := binary.LittleEndian
	le.PutUint32(b, tensorMagic)
	b[4], b[5], b[6] = byte(len(m.Dims)), byte(slices.Index(tensorTypes, m.Type)), byte(slices.Index(swizzles, m.Swizzle))
	if m.FillNaN {
		b[7] = 1
	}
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

// decodeTensorMap is the inverse. Bytes that are no map are an error.
func decodeTensorMap(b []byte) (*TensorMap, error) {
	le := binary.LittleEndian
	if len(b) != TensorMapBytes || le.Uint32(b) != tensorMagic || le.Uint32(b[124:]) != crc32.ChecksumIEEE(b[:124]) {
		return nil, errors.New("these bytes are no tensor map")
	}
	rank := int(b[4])
	if rank > 5 || int(b[5]) >= len(tensorTypes) || int(b[6]) >= len(swizzles) {
		return nil, errors.New("these bytes are no tensor map")
	}
	t := &TensorMap{Address: le.Uint64(b[8:]), Type: tensorTypes[b[5]], Swizzle: swizzles[b[6]], FillNaN: b[7] == 1}
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

// tensorMap reads the map that a lane names, or reports that there is none.
func (w *warp) tensorMap(o *op, address uint64, lane int) *TensorMap {
	space, inside := ofGeneric(address)
	if address%64 != 0 && space != ptx.Param {
		w.report(Misaligned, o, 1<<lane, func() string { return fmt.Sprintf("the tensor map at %#x is not at a multiple of 64", address) })
	}
	data := w.reachAt(o, accessOf{what: o.sync.bulk.what, space: space, bytes: TensorMapBytes, loose: true}, inside, lane, reading)
	if data == nil {
		return nil
	}
	t, err := decodeTensorMap(data)
	if err == nil && len(t.Dims) != o.sync.bulk.rank {
		err = fmt.Errorf("the tensor map has %d dimensions, and the copy %d", len(t.Dims), o.sync.bulk.rank)
	}
	if err != nil {
		w.report(Undefined, o, 1<<lane, err.Error)
		return nil
	}
	return t
}

// checkBox looks for what the chips answer with an illegal instruction.
func (w *warp) checkBox(o *op, t *TensorMap, at [5]int64, shared uint64, lane int) {
	if shared%128 != 0 {
		w.report(Misaligned, o, 1<<lane, func() string {
			return fmt.Sprintf("a box at the shared address %#x, which is not a multiple of 128", shared)
		})
	}
	if n := at[0] * int64(t.elementBytes()); n%16 != 0 {
		w.report(Misaligned, o, 1<<lane, func() string {
			return fmt.Sprintf("a box from byte %d of the innermost dimension on, which is not a multiple of 16", n)
		})
	}
	if o.sync.bulk.load {
		return
	}
	for i := range t.Dims {
		if at[i] < 0 {
			w.report(Undefined, o, 1<<lane, func() string { return fmt.Sprintf("writes a box from coordinate %d on in dimension %d", at[i], i) })
		}
	}
}

// pieces cuts a box into what lies together in both memories. Whoever writes global memory writes whole 16 bytes at the edge of a row.
func (t *TensorMap) pieces(at [5]int64, shared uint64, store bool) []bulkPiece {
	size, span := t.elementBytes(), t.span()
	row := t.extent(0) * size
	pitch := row
	if span > row {
		pitch = span
	}
	rows := 1
	for i := 1; i < len(t.Dims); i++ {
		rows *= t.extent(i)
	}
	list := make([]bulkPiece, 0, rows*row/16)
	var index [5]int
	for number := 0; ; number++ {
		inside, global := true, t.Address
		for i := 1; i < len(t.Dims); i++ {
			c := at[i] + int64(index[i]*t.ElementStrides[i])
			inside = inside && c >= 0 && c < int64(t.Dims[i])
			global += uint64(c * int64(t.Strides[i-1]))
		}
		for byteAt := 0; byteAt < row; byteAt += 16 {
			target := t.swizzled(shared + uint64(number*pitch+byteAt))
			list = t.chunk(list, at[0], byteAt/size, global, target, inside, store)
		}
		i := 1
		for ; i < len(t.Dims); i++ {
			if index[i]++; index[i] < t.extent(i) {
				break
			}
			index[i] = 0
		}
		if i == len(t.Dims) {
			return list
		}
	}
}

// chunk adds 16 bytes of a row: as one piece where they lie together and are all inside, or all outside.
func (t *TensorMap) chunk(list []bulkPiece, start int64, first int, global, shared uint64, inside, store bool) []bulkPiece {
	size, step := t.elementBytes(), int64(t.ElementStrides[0])
	n := 16 / size
	is := func(i int) bool {
		c := start + int64(first+i)*step
		if store && step == 1 {
			c = start + int64(first)
		}
		return inside && c >= 0 && c < int64(t.Dims[0])
	}
	where := func(i int) uint64 { return global + uint64((start+int64(first+i)*step)*int64(size)) }
	same := is(0) && is(n-1) // and what is between them too
	if !same {
		same = true
		for i := range n {
			same = same && is(i) == is(0)
		}
	}
	if same && (step == 1 || !is(0)) {
		return append(list, t.newPiece(shared, where(0), 16, is(0)))
	}
	for i := range n {
		list = append(list, t.newPiece(shared+uint64(i*size), where(i), size, is(i)))
	}
	return list
}

func (t *TensorMap) newPiece(shared, global uint64, size int, inside bool) bulkPiece {
	p := bulkPiece{shared: shared, global: global, size: size, outside: !inside}
	if inside {
		return p
	}
	p.from = make([]byte, size)
	if t.FillNaN {
		for i := range p.from {
			p.from[i] = [2]byte{0xF7, 0x7F}[i%2]
		}
	}
	return p
}

// swizzled is where a byte of a box lies. The pattern is one of the address and not of the box.
func (t *TensorMap) swizzled(a uint64) uint64 {
	switch t.Swizzle {
	case "32B":
		return a ^ a>>7&1<<4
	case "64B":
		return a ^ a>>7&3<<4
	case "128B":
		return a ^ a>>7&7<<4
	}
	return a
}

// reduction is what a reduction does with two elements; nil where there is none of the type.
func (t *TensorMap) reduction(name string) func(old, b, c uint64) uint64 {
	typed, _ := ptx.ParseType(t.Type)
	switch name {
	case "and", "or", "xor":
		typed = map[int]ptx.Type{4: ptx.B32, 8: ptx.B64}[t.elementBytes()]
	}
	a := &atomicOp{}
	if typed == ptx.NoType || t.elementBytes() < 2 || a.choose(name, typed) != nil {
		return nil
	}
	return a.update
}
