// Package toolchain builds a variant into an image: PTX and a cubin with the resources they need.
//
// The steps of one build:
//
//  1. Find looks for NVIDIA's compiler in the usual places and in attune's cache, where Install
//     puts it. Verify compares an installed compiler with the hashes of its wheels.
//  2. Builder.Build hashes sources, knobs, flags and compiler. A build with the same hash is loaded
//     from the cache.
//  3. nvcc compiles the sources to PTX. Paths of this machine are removed from it, so the same
//     sources give the same bytes everywhere.
//  4. ptxas assembles the PTX to a cubin. Its log has registers, shared memory, spills, stack and
//     barriers.
//  5. The code hash covers the machine code without debug information. Two variants with one code
//     hash are the same program.
//
// A compiler that rejects a source returns a CompileError. A source that compiles and breaks a rule
// of attune, such as an include from outside the kernel's folder, returns a SourceError. A compiler
// that is damaged, crashes, is killed or writes no output returns a FaultError, which is no statement
// about the source.
//
// The PTX also carries the launch contract (attune_launch), which the kernel's source defines.
//
// The shipped variants are embedded as PTX with the records of their builds (Shipped), so a machine
// without a compiler can run them.
//
// The package does not check an image against a budget; package gate does.
package toolchain
