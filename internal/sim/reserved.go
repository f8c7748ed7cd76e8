package sim

import (
	"strings"

	"attune/internal/sim/mem"
)

// Reserved shared memory.
//
// The system reserves the first 1024 bytes of shared memory. The special registers
// %reserved_smem_offset_* tell where they are, and libraries such as cooperative groups keep the
// barriers of tiles there. The values of the registers were read on an H200. A kernel that does
// not read the registers has no business there: an access below its variables is out of bounds.

// reservedEnd is the end of the part that libraries may use.
const reservedEnd = 288

// readsReserved reports whether a function reads the address of reserved shared memory.
func (c *code) readsReserved() bool {
	for _, s := range c.specials {
		if strings.HasPrefix(s.name, "reserved_smem_offset_") {
			return true
		}
	}
	return false
}

// reservedAt returns the block's reserved shared memory if it has the bytes of an access, else nil.
// The memory is zero at the start, as on the chip after a reset.
func (b *block) reservedAt(address uint64, size int) *mem.Shared {
	if !b.launch.usesReserved || address+uint64(size) > reservedEnd || address > reservedEnd {
		return nil
	}
	if b.reserved == nil {
		b.reserved = &mem.Shared{Data: make([]byte, reservedEnd), Marks: make([]byte, reservedEnd)}
		mem.Fill(b.reserved.Marks, mem.Written)
		b.reserved.Shadow.Reset(reservedEnd)
	}
	return b.reserved
}
