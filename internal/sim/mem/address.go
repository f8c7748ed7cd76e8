package mem

import "attune/internal/ptx"

// The generic address space. A window of a state space is 1 TB wide. Its contents do not begin at
// its start, so that the low half of a generic address is never a valid address of the state space.
// A kernel that confuses the two gets an out-of-bounds finding.
const (
	windowShift  = 40
	windowStart  = 0x5a000000
	sharedWindow = 1<<windowShift + windowStart
	localWindow  = 2<<windowShift + windowStart
	constWindow  = 3<<windowShift + windowStart
	paramWindow  = 4<<windowShift + windowStart
	globalBase   = 0x7f << windowShift

	// ArenaBase is where an arena may begin: below all addresses that the system gives a process, and
	// above the windows.
	ArenaBase = 0x20 << windowShift

	functionWindow = 5 << windowShift
)

// FunctionAddress returns the address of a function. No memory has such an address.
func FunctionAddress(number int) uint64 { return functionWindow + uint64(number)*16 }

// FromGeneric converts a generic address to an address of its state space.
func FromGeneric(address uint64) (ptx.Space, uint64) {
	inside := address&(1<<windowShift-1) - windowStart
	switch address >> windowShift {
	case sharedWindow >> windowShift:
		return ptx.Shared, inside
	case localWindow >> windowShift:
		return ptx.Local, inside
	case constWindow >> windowShift:
		return ptx.Const, inside
	case paramWindow >> windowShift:
		return ptx.Param, inside
	}
	return ptx.Global, address
}

// ToGeneric converts an address of a state space to a generic address.
func ToGeneric(space ptx.Space, address uint64) uint64 {
	switch space {
	case ptx.Shared:
		return sharedWindow + address
	case ptx.Local:
		return localWindow + address
	case ptx.Const:
		return constWindow + address
	case ptx.Param:
		return paramWindow + address
	}
	return address
}

// BelowGlobal reports whether an address is below all of global memory.
func BelowGlobal(address uint64) bool { return address < ArenaBase }

// AlignUp rounds a number up to a multiple.
func AlignUp(n, align int) int { return (n + align - 1) / align * align }
