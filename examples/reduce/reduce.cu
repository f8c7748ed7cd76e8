// The sum of an array, by blocks that take tiles from a work queue. The result does not depend on
// which block takes which tile:
//
//   1. A block takes tiles by atomicAdd on queue[0] until none is left. It writes the sum of each
//      tile to partial.
//   2. A block that finds no tile counts itself in queue[1]. The last one adds up the partial sums
//      in the order of the tiles.
//   3. The last block resets the queue, so that the next launch finds it as this one did.
//
// Blocks are counted when they leave, not tiles when they are done: a block that still asks for a
// tile would otherwise increment queue[0] after the reset.
#include <cstdint>

namespace {

constexpr int kTile = 16384;  // elements

// Adds up the values of all threads of the block. Every thread gets the sum. A barrier must separate
// two calls: a slow thread may still read the sums of the first.
__device__ float block_sum(float value) {
  __shared__ float warps[THREADS / 32];
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < THREADS / 32; warp++) sum += warps[warp];
  return sum;
}

// Adds 1 to a counter of the queue. Every thread of the block gets the value before it.
__device__ uint32_t count(uint32_t* counter) {
  __shared__ uint32_t value;
  __syncthreads();  // all threads have read the previous value
  if (threadIdx.x == 0) value = atomicAdd(counter, 1);
  __syncthreads();
  return value;
}

__device__ float sum_of_tile(const float* x, int n) {
  float sum = 0;
  if (n == kTile) {
    const float4* quads = reinterpret_cast<const float4*>(x);
#pragma unroll
    for (int i = 0; i < kTile / 4 / THREADS; i++) {
      const float4 q = quads[threadIdx.x + i * THREADS];
      sum += (q.x + q.y) + (q.z + q.w);
    }
  } else {
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += THREADS) sum += x[i];
  }
  return block_sum(sum);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
reduce(const float* x,    // (n)
       float* partial,    // (tiles)
       float* y,          // (1)
       uint32_t* queue,   // (2): the next tile, the blocks that have left
       int n) {
  const uint32_t tiles = (n + kTile - 1) / kTile;
  for (uint32_t tile = count(&queue[0]); tile < tiles; tile = count(&queue[0])) {
    const float sum = sum_of_tile(x + size_t(tile) * kTile, min(kTile, int(n - tile * kTile)));
    if (threadIdx.x == 0) partial[tile] = sum;
  }
  __threadfence();  // the partial sums of this block are written before it is counted
  if (count(&queue[1]) < gridDim.x - 1) return;
  __threadfence();  // those of the other blocks are read after the last one is counted

  float sum = 0;
  for (uint32_t tile = threadIdx.x; tile < tiles; tile += THREADS) sum += partial[tile];
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    *y = sum;
    queue[0] = queue[1] = 0;
  }
}
