// Package sim runs PTX without a GPU. It computes the same results as the chip, and it is stricter:
// checkers report defects that a chip may hide.
//
// A Program is a lowered PTX module. Every instruction has become an operation with resolved
// operands. An unsupported instruction is refused by name before anything runs. A launch runs the
// blocks of a grid. Each block runs in one goroutine, one warp at a time, so that runs with the
// same seed are the same. A register is an array over the lanes of a warp, and an operation works
// on all active lanes.
//
// A warp diverges at a branch and reconverges at the immediate post-dominator, as compilers arrange
// it for the hardware. Lane groups of one warp are scheduled independently, so that code in which
// one lane waits for another makes progress. Lanes may reach a barrier one after another, and lanes
// that have returned early are not missing.
//
// Every access to memory goes through the machine, where the checkers are:
//
//   - Bounds and alignment, with the name of the buffer and the distance. Gaps between variables
//     make an index that is slightly out of bounds visible.
//   - Uninitialised memory, by the byte. The use of a value is reported, not its load (taint.go).
//   - Races. Every access is compared with the last accesses to the same bytes by happens-before
//     (package order): between lanes, warps, blocks and asynchronous copies, whatever order this
//     run took. Fences, releases and atomic operations count with their scopes (op_fence.go).
//   - Asynchronous copies. A copy lands at the last moment that a wait allows, and its target is
//     poisoned until then. A missing wait therefore also changes the result.
//   - Products of warpgroups (wgmma). Their registers are poisoned, and their operands in shared
//     memory must not change, until the wait (op_wgmma.go). What threads have stored must be fenced
//     for the tensor cores.
//   - Bulk copies, which use the async proxy. What threads have written needs a fence.proxy.async
//     first (access_async.go).
//   - Barriers that not all lanes reach, wrong counts, and waits without end, with what each warp
//     waits for (stall.go).
//   - Shuffles from lanes that do not take part.
//
// Blocks of a cluster run interleaved and access each other's shared memory (op_cluster.go). An
// access that nothing orders before the end of its block is a race.
//
// A finding is reported once for each pair of places, with a count. It is an error, or strict if
// hardware does what PTX leaves undefined.
//
// The parts that do not need the machine are packages of their own: order (happens-before), mem
// (memory), count (counters), lanes (operations on registers), finding, arith (scalar arithmetic)
// and mma (tensor cores).
package sim
