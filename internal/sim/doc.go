// Package sim runs PTX with no GPU: the same answers as the card, and stricter about how they come about.
//
// A Program is a PTX module made ready: every instruction has become an operation with resolved operands, and what is not supported was refused
// by name before anything runs. A launch runs the blocks of a grid, each block in one goroutine, warps inside of it in turns, so that a run is the
// same for the same seed. Registers are kept lane by lane in arrays; an operation works on all lanes of a warp that take part.
//
// Warps diverge at branches and come together at the immediate post-dominator, as compilers arrange it for the hardware. Groups of lanes of one warp
// are scheduled independently, so code in which one lane waits for another makes progress; lanes that come to a barrier one after another are not divergent,
// nor are those missed that have returned early.
//
// The machine owns every access to memory, which is what the checkers live on:
//
//   - bounds and alignment, with the name of the buffer and the distance; variables lie apart, so that the neighbour does not hide an index that is off;
//   - memory that nobody has written, to the byte;
//   - races: every access is compared with the last ones to the same bytes by happens-before (clock.go, shadow.go), between lanes, warps, blocks
//     and asynchronous copies, whatever order this run happened to take; fences, releases and atomic operations count with their scopes (fence.go);
//   - asynchronous copies are delivered at the last moment that a wait allows and poison their target until then, so a missing wait changes the
//     answer as well as being reported;
//   - products of warpgroups (wgmma) likewise: their registers hold poison and their operands in shared memory must not change until the wait
//     (wgmma.go), and what was stored there must have been fenced for the tensor cores (proxy.go);
//   - bulk copies, with tensor maps or without, as accesses of the async proxy: what threads have written wants a fence.proxy.async first (asyncproxy.go);
//   - barriers that not all lanes reach, counts that cannot be met, and waits without end, with what each warp waits for: loops that come back to the
//     same registers while nothing changes in memory;
//   - shuffles from lanes that take no part.
//
// Blocks of a cluster run in turns and reach each other's shared memory (cluster.go); an access that nothing orders before the end of its block is a race.
//
// A finding is told once for each pair of places, with its count.
//
// Arithmetic is in package arith (scalars) and package mma (tensor cores).
package sim
