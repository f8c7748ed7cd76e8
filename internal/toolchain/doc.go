// Package toolchain turns a variant into an image: PTX and machine code with what they need of the chip.
//
// The road of one build:
//
//  1. Find looks for NVIDIA's compiler where people have it, and in attune's own cache, where Install puts it.
//  2. Builder.Build hashes sources, knobs, flags and compiler. A build with the same hash is taken from the cache.
//  3. nvcc makes PTX, which is rid of machine paths, so that the same sources give the same bytes everywhere.
//  4. ptxas makes machine code from that PTX; its log gives registers, shared memory, spills, stack and barriers.
//  5. The machine code is hashed without debug information: two variants with one hash are one program.
//
// The stages that attune ships travel with the kernel as PTX with the record of their build (Shipped), so that a machine
// without a compiler can run them.
//
// The package judges nothing: whether an image fits its budget is for the gates to say.
package toolchain
