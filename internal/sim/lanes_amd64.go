package sim

import "golang.org/x/sys/cpu"

// haveLaneAssembly says whether the processor has what lanes_amd64.s needs. GODEBUG=cpu.avx2=off has it say no.
var haveLaneAssembly = cpu.X86.HasAVX2 && cpu.X86.HasFMA

// lanesAssembly executes operations one after the other on every lane.
//
//go:noescape
func lanesAssembly(ops *laneOp, n int, r32 *v32, r64 *v64, preds *uint32)
