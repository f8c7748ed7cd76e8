// Package device runs kernels under guard, on any machine that has memory and can launch.
//
// A Job is one launch as data: image, grid and block, arguments. A Machine is memory and launches
// and nothing else; package cuda implements one. A kernel under test is untrusted, so Run makes
// every result in the same way:
//
//   - Guard bytes surround every buffer and are checked after the launch. This finds a write past
//     the end even where the chip reports no fault.
//   - Outputs are poisoned before each launch, so an element that the kernel does not write cannot
//     keep the result of an earlier launch.
//   - Inputs are read back and must be unchanged.
//   - The job runs twice, with different poison and guard bytes. Both outputs must agree bit for
//     bit.
//
// Package isolate runs a machine in a child process, so a crash, a hang or a lost CUDA context
// costs one variant only. Classify sorts the errors of a device into a fault, a timeout, a crash,
// an unsupported kernel and all others.
//
// The package does not know what a kernel computes; package gate compares outputs with a reference.
package device
