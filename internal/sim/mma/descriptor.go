package mma

// Descriptor is the 64-bit word by which wgmma finds a matrix in shared memory.
type Descriptor uint64

// Shared is where the elements of a matrix lie in shared memory.
type Shared struct {
	start, leading, stride uint32 // in bytes
	offset                 uint32 // of the swizzle pattern, in rows of 128 bytes
	size                   uint32 // of an element in bytes
	units                  uint32 // 16-byte units in a row of the swizzle pattern
	swizzled, major        bool   // major: M or N runs fastest, not K
}

// Shared reads a descriptor for elements of a type; of single bits, elements are 32 of them. With the transposition bit
// (imm-trans-a or imm-trans-b) set, M or N runs fastest in memory instead of K.
func (d Descriptor) Shared(t Type, transposed bool) Shared {
	field := func(low, bits int) uint32 { return uint32(d>>low) & (1<<bits - 1) }
	mode := field(62, 2)
	return Shared{
		start: field(0, 14) << 4, leading: field(16, 14) << 4, stride: field(32, 14) << 4,
		offset:   field(49, 3),
		size:     uint32(t.word() / 8),
		units:    [...]uint32{1, 8, 4, 2}[mode],
		swizzled: mode != 0,
		major:    transposed,
	}
}

// Run is the number of elements that lie in 16 bytes, one after the other, beginning at a multiple of it: along K, or along
// M or N where that runs fastest.
func (s *Shared) Run() int { return 16 / int(s.size) }

// Address is that of an element in shared memory: row is its m or its n.
//
// The memory is made of 8 by 16 bytes, the core matrices, which lie at distances that the descriptor gives, in the
// larger pattern of a swizzle if there is one. A swizzle exchanges the 16-byte units of a row of 128 bytes by the number
// of that row, counted from address zero less the descriptor's base offset.
func (s *Shared) Address(row, k int) uint32 {
	along, across := uint32(k), uint32(row)
	if s.major {
		along, across = across, along
	}
	run := 16 / s.size
	unit := along / run
	at := s.start + along%run*s.size + across%8*s.units*16
	switch {
	case !s.swizzled && !s.major:
		at += unit*s.leading + across/8*s.stride
	case !s.swizzled:
		at += unit*s.stride + across/8*s.leading
	case !s.major:
		at += unit*16 + across/8*s.stride
	default:
		at += unit%s.units*16 + unit/s.units*s.leading + across/8*s.stride
	}
	const window = 1<<18 - 1
	return (at ^ (at>>7-s.offset)&(s.units-1)<<4) & window
}
