package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"attune/internal/ptx"
	"attune/internal/tensormap"
)

// TensorMap is a map of a tensor at an address. The simulator has its own form of the 128 bytes that kernels take.
type TensorMap struct {
	tensormap.Map
	Address uint64
}

const tensorMagic = 0x70616d74

// check says what the driver would, and what is not simulated.
func (t *TensorMap) check() error {
	switch {
	case tensormap.Number(t.Interleave, tensormap.Interleaves) > 0:
		return fmt.Errorf("the interleave %q is not simulated", t.Interleave)
	case strings.HasSuffix(t.Type, "_ftz"):
		return fmt.Errorf("the type %q is not simulated", t.Type)
	case t.Address%16 != 0:
		return fmt.Errorf("its address %#x is not a multiple of 16", t.Address)
	}
	return t.Check()
}

// Encode gives the bytes that a kernel takes, or why there are none.
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
	b[4], b[5] = byte(len(m.Dims)), byte(tensormap.Number(m.Type, tensormap.Types))
	b[6], b[7] = byte(tensormap.Number(m.Swizzle, tensormap.Swizzles)), byte(tensormap.Number(m.OOB, tensormap.OOBs))
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
	if len(b) != tensormap.Bytes || le.Uint32(b) != tensorMagic || le.Uint32(b[124:]) != crc32.ChecksumIEEE(b[:124]) {
		return nil, errors.New("these bytes are no tensor map")
	}
	rank := int(b[4])
	if rank > 5 || int(b[5]) >= len(tensormap.Types) || int(b[6]) >= len(tensormap.Swizzles) || int(b[7]) >= len(tensormap.OOBs) {
		return nil, errors.New("these bytes are no tensor map")
	}
	t := &TensorMap{
		Address: le.Uint64(b[8:]),
		Map:     tensormap.Map{Type: tensormap.Types[b[5]], Swizzle: tensormap.Swizzles[b[6]], OOB: tensormap.OOBs[b[7]]},
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

// tensorMap reads the map that a lane names, or reports that there is none.
func (w *warp) tensorMap(o *op, address uint64, lane int) *TensorMap {
	space, inside := ofGeneric(address)
	if address%64 != 0 && space != ptx.Param {
		w.report(Misaligned, o, 1<<lane, func() string { return fmt.Sprintf("the tensor map at %#x is not at a multiple of 64", address) })
	}
	data := w.reachAt(o, accessOf{what: o.sync.bulk.what, space: space, bytes: tensormap.Bytes, loose: true}, inside, lane, reading)
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
	if n := at[0] * int64(t.ElementBytes()); n%16 != 0 {
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
	size, span := t.ElementBytes(), t.Span()
	row := t.RowBytes()
	pitch := row
	if span > row {
		pitch = span
	}
	rows := 1
	for i := 1; i < len(t.Dims); i++ {
		rows *= t.Extent(i)
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
			if index[i]++; index[i] < t.Extent(i) {
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
	size, step := t.ElementBytes(), int64(t.ElementStrides[0])
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
	if t.FillsNaN() {
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
		typed = map[int]ptx.Type{4: ptx.B32, 8: ptx.B64}[t.ElementBytes()]
	}
	a := &atomicOp{}
	if typed == ptx.NoType || t.ElementBytes() < 2 || a.choose(name, typed) != nil {
		return nil
	}
	return a.update
}
