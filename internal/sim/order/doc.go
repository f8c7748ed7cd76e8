// Package order decides which accesses to memory happen before which.
//
// A Clock is a vector clock of a block: for every warp, the epoch up to which its accesses are
// known. The epoch of a warp advances whenever its lanes publish what they have done, at a barrier,
// an arrival or a release. All lanes of a warp share one clock most of the time. A lane that
// synchronises alone gets its own clock until the warp synchronises again (Warp).
//
// Fences and strong accesses carry clocks from one thread to another through locations in memory
// (Fences, Locations).
//
// A Shadow remembers the last accesses to every word of memory and compares each new access with
// them. An access that is not ordered after a conflicting earlier one is a race, whatever order
// this run happened to take. Pages is the shadow of a buffer in global memory, which several blocks
// use at once.
//
// Tensor cores and bulk copies access memory through the async proxy. Clocks therefore record which
// of the known accesses precede a proxy fence.
//
// The package knows warps, lanes and addresses as numbers. It does not know the simulator.
package order
