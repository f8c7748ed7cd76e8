package lanes

import "golang.org/x/sys/cpu"

// haveAssembly reports whether the processor can run lanes_amd64.s. GODEBUG=cpu.avx2=off turns the
// assembly off.
var haveAssembly = cpu.X86.HasAVX2 && cpu.X86.HasFMA

// runAssembly executes n operations in order, each on all lanes.
//
//go:noescape
func runAssembly(ops *Op, n int, r32 *V32, r64 *V64, preds *uint32)
