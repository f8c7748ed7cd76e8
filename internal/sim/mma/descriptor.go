package mma

// Descriptor is the 64-bit matrix descriptor by which wgmma addresses a matrix in shared memory
// (PTX ISA, Asynchronous Warpgroup Level Matrix Shared Memory Layout).
type Descriptor uint64

// Shared is the layout of a matrix in shared memory.
type Shared struct {
	start, leading, stride uint32 // in bytes
	offset                 uint32 // base offset of the swizzle pattern, in rows of 128 bytes
	size                   uint32 // of an element, in bytes
	units                  uint32 // 16-byte units in a row of the swizzle pattern
	swizzled, mnMajor      bool   // mnMajor: M or N is contiguous, not K
}

// Shared decodes a descriptor for elements of a type; an element of B1 is 32 bits. With the
// transposition bit (imm-trans-a or imm-trans-b) set, M or N is contiguous in memory instead of K.
func (d Descriptor) Shared(t Type, transposed bool) Shared {
	field := func(low, bits int) uint32 { return uint32(d>>low) & (1<<bits - 1) }
	mode := field(62, 2)
	return Shared{
		start: field(0, 14) << 4, leading: field(16, 14) << 4, stride: field(32, 14) << 4,
		offset:   field(49, 3),
		size:     uint32(t.word() / 8),
		units:    [...]uint32{1, 8, 4, 2}[mode],
		swizzled: mode != 0,
		mnMajor:  transposed,
	}
}

// Run is the number of consecutive elements in an aligned unit of 16 bytes: along K, or along M or
// N if that is contiguous.
func (s *Shared) Run() int { return 16 / int(s.size) }

// Address returns the shared memory address of an element; row is its m or its n.
//
// The matrix consists of core matrices of 8 rows by 16 bytes, at the strides in the descriptor, or
// inside the larger pattern of a swizzle. A swizzle permutes the 16-byte units of each 128-byte
// row: it XORs the unit index with the row number. Rows are counted from address zero minus the
// descriptor's base offset.
func (s *Shared) Address(row, k int) uint32 {
	along, across := uint32(k), uint32(row)
	if s.mnMajor {
		along, across = across, along
	}
	run := 16 / s.size
	unit := along / run
	at := s.start + along%run*s.size + across%8*s.units*16
	switch {
	case !s.swizzled && !s.mnMajor:
		at += unit*s.leading + across/8*s.stride
	case !s.swizzled:
		at += unit*s.stride + across/8*s.leading
	case !s.mnMajor:
		at += unit*16 + across/8*s.stride
	default:
		at += unit%s.units*16 + unit/s.units*s.leading + across/8*s.stride
	}
	const window = 1<<18 - 1
	return (at ^ (at>>7-s.offset)&(s.units-1)<<4) & window
}
