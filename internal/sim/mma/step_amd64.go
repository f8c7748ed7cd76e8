package mma

import "golang.org/x/sys/cpu"

// haveAssembly says whether the processor has what step_amd64.s needs. GODEBUG=cpu.avx2=off has it say no.
var haveAssembly = cpu.X86.HasAVX2

// stepAssembly adds the products of a step to the sums of eight columns. A bit of odd is set for each row that it has left as it was.
//
//go:noescape
func stepAssembly(sums *uint32, a *float32, exponentsA *int32, b *float32, exponentsB *int32, p *stepPlan) (odd uint64)
