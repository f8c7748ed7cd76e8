package sim

import "attune/internal/sim/mma"

// TensorUnit is a kind of machine instruction that multiplies matrices.
type TensorUnit uint8

// The kinds, by the name of the instruction for one warp; those for a warpgroup count as the same kind.
const (
	HMMA TensorUnit = iota // FP16, BF16, TF32
	QMMA                   // FP8
	IMMA                   // integers
	BMMA                   // bits
	DMMA                   // FP64
	tensorUnits
)

// TensorSource is what a machine instruction multiplies.
type TensorSource uint8

// The sources, with the type of the sum where it counts.
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

// machineProduct is what an instruction of PTX becomes.
type machineProduct struct {
	unit   TensorUnit
	count  uint64 // instructions of a warp
	source TensorSource
}

// machineProductOf says what ptxas makes of a product for an architecture. A chip that lacks a format widens its operands and needs twice the
// instructions.
func machineProductOf(in *mma.Instruction, arch int) machineProduct {
	p := machineProduct{count: 1}
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
		if in.Op == mma.Warp {
			p.count = 2 // by k4
		}
	case mma.E4M3, mma.E5M2:
		p.unit, p.source = QMMA, FP8
		if in.Op != mma.Group && arch != 89 && arch < 120 {
			p = machineProduct{unit: HMMA, count: 2, source: FP16ToFP32}
			if in.D == mma.F16 {
				p.source = FP16ToFP16
			}
		}
	case mma.S8, mma.U8:
		p.unit, p.source = IMMA, Int8
	case mma.S4, mma.U4:
		p.unit, p.source = IMMA, Int4
		if arch >= 90 {
			p.source, p.count = Int8, 2
		}
	case mma.B1:
		p.unit, p.source = BMMA, Bits
		if in.BitOp == mma.Xor && arch >= 90 {
			p.count = 2
		}
	case mma.F64:
		p.unit, p.source = DMMA, FP64
	}
	if in.Op == mma.Warp && in.Shape.M*in.Shape.N == 16*16 {
		p.count *= 2 // two of m16n8
	}
	return p
}

// countProduct counts a product of a warp, or a warp's part of a warpgroup's.
func (w *warp) countProduct(o *op, rows int) {
	s, p := o.mat.in.Shape, w.block.launch.plans[o.number].machine
	flops := 2 * uint64(rows) * uint64(s.N) * uint64(s.K)
	w.count.TensorOps++
	w.count.TensorFLOPs += flops
	w.count.Products[p.unit] += p.count
	if o.mat.in.Op == mma.Group {
		w.count.WarpgroupProducts += p.count
	}
	w.count.Operations[p.source] += flops
}

// archNumber is the number of an architecture: 90 of sm_90a.
func archNumber(arch string) int {
	n := 0
	for _, digit := range arch {
		if digit >= '0' && digit <= '9' {
			n = 10*n + int(digit-'0')
		}
	}
	return n
}
