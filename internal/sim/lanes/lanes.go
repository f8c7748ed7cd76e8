package lanes

import (
	"slices"
	"unsafe"
)

// V32 and V64 are registers: one value for each lane of a warp.
type (
	V32 = [32]uint32
	V64 = [32]uint64
)

// All is the mask of all 32 lanes of a warp.
const All = ^uint32(0)

// Registers are the register files of one call frame. A predicate register has one bit per lane.
type Registers struct {
	R32   []V32
	R64   []V64
	Preds []uint32
}

// Op is one operation. D, A, B and C are the byte offsets of its registers in their register
// files. Unpack32 and Unpack64 write the upper half of A to B.
type Op struct {
	Code       Code
	D, A, B, C uint32
}

// Distances between neighbouring registers of a file, in bytes.
const (
	Stride32   = uint32(unsafe.Sizeof(V32{}))
	Stride64   = uint32(unsafe.Sizeof(V64{}))
	StridePred = uint32(unsafe.Sizeof(uint32(0)))
)

// Run executes operations in order, each on all 32 lanes. ops must not be empty.
func (r *Registers) Run(ops []Op) {
	if haveAssembly {
		runAssembly(&ops[0], len(ops), unsafe.SliceData(r.R32), unsafe.SliceData(r.R64), unsafe.SliceData(r.Preds))
		return
	}
	r.runLoops(ops)
}

// runLoops executes operations with the loops of loops.go.
func (r *Registers) runLoops(ops []Op) {
	for i := range ops {
		loops[ops[i].Code](r, &ops[i])
	}
}

// Clone returns a copy of the registers.
func (r *Registers) Clone() Registers {
	return Registers{R32: slices.Clone(r.R32), R64: slices.Clone(r.R64), Preds: slices.Clone(r.Preds)}
}

// Equal reports whether two sets of registers hold the same values.
func (r *Registers) Equal(o *Registers) bool {
	return slices.Equal(r.Preds, o.Preds) && slices.Equal(r.R32, o.R32) && slices.Equal(r.R64, o.R64)
}
