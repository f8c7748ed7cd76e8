package count

import "attune/internal/sim/mma"

// TensorUnit is a kind of machine instruction that multiplies matrices.
type TensorUnit uint8

// The kinds, by the name of the instruction of one warp. Instructions of a warpgroup count as the
// same kind.
const (
	HMMA TensorUnit = iota // FP16, BF16, TF32
	QMMA                   // FP8
	IMMA                   // integers
	BMMA                   // single bits
	DMMA                   // FP64
	tensorUnits
)

// TensorSource is the format that a machine instruction multiplies.
type TensorSource uint8

// The source formats, with the format of the sum where Nsight Compute distinguishes it.
const (
	FP16ToFP32 TensorSource = iota
	FP16ToFP16
	BF16
	TF32
	FP8
	Int8
	Int4
	Bits
	FP64
	tensorSources
)

// MachineProduct is the machine instructions that a matrix product of PTX becomes.
type MachineProduct struct {
	unit   TensorUnit
	count  uint64 // instructions per warp
	source TensorSource
}

// MachineProductOf returns what ptxas makes of a product for an architecture, such as sm_90a. A
// chip that lacks a format widens the operands and needs twice the instructions.
func MachineProductOf(in *mma.Instruction, arch string) MachineProduct {
	number := archNumber(arch)
	p := MachineProduct{count: 1}
	switch in.A {
	case mma.F16:
		p.source = FP16ToFP32
		if in.D == mma.F16 {
			p.source = FP16ToFP16
		}
	case mma.BF16:
		p.source = BF16
	case mma.TF32:
		p.source = TF32
		if in.Op == mma.WMMA {
			p.count = 2 // of k4
		}
	case mma.E4M3, mma.E5M2:
		p.unit, p.source = QMMA, FP8
		if in.Op != mma.WGMMA && number != 89 && number < 120 {
			p = MachineProduct{unit: HMMA, count: 2, source: FP16ToFP32}
			if in.D == mma.F16 {
				p.source = FP16ToFP16
			}
		}
	case mma.S8, mma.U8:
		p.unit, p.source = IMMA, Int8
	case mma.S4, mma.U4:
		p.unit, p.source = IMMA, Int4
		if number >= 90 {
			p.source, p.count = Int8, 2
		}
	case mma.B1:
		p.unit, p.source = BMMA, Bits
		if in.BitOp == mma.Xor && number >= 90 {
			p.count = 2
		}
	case mma.F64:
		p.unit, p.source = DMMA, FP64
	}
	if in.Op == mma.WMMA && in.Shape.M*in.Shape.N == 16*16 {
		p.count *= 2 // of m16n8
	}
	return p
}

// Product counts a product of a warp, or a warp's part of a warpgroup's. rows is the number of rows
// of D that the warp computes.
func (c *Counters) Product(in *mma.Instruction, p MachineProduct, rows int) {
	flops := 2 * uint64(rows) * uint64(in.Shape.N) * uint64(in.Shape.K)
	c.TensorOps++
	c.TensorFLOPs += flops
	c.Products[p.unit] += p.count
	if in.Op == mma.WGMMA {
		c.WarpgroupProducts += p.count
	}
	c.Operations[p.source] += flops
}

// archNumber returns the number of an architecture: 90 for sm_90a.
func archNumber(arch string) int {
	n := 0
	for _, digit := range arch {
		if digit >= '0' && digit <= '9' {
			n = 10*n + int(digit-'0')
		}
	}
	return n
}
