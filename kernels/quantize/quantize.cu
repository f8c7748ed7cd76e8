// Q, K and V from FP16 or BF16 to E4M3 in one launch, with one factor per head:
//
//   descale = amax / 448,   y = e4m3(x * (448 / amax)),   amax = the largest |x| of the head
//
//   1. A block loads its share of the tiles of all heads. The first ones stay in registers, the next
//      ones in shared memory; those beyond are read again in step 4.
//   2. It writes the largest magnitude of each head in its share to the workspace.
//   3. All blocks synchronise.
//   4. A block scales its tiles by the amax of their heads, from the last tile to the first: those
//      it has to read again are then most likely still in L2.
//
// The launch is cooperative, because blocks wait for each other. A maximum does not depend on the
// order of blocks, and every maximum has its own word, so the workspace needs no reset but for two
// counters.
#include "chunk.cuh"
#include "knobs.cuh"
#include "ptx.cuh"
#include "tiles.cuh"

namespace {

// Two counters, a float for each warp of each tile.
struct Workspace {
  uint32_t* arrived;   // blocks that have reached the barrier
  uint32_t* departed;  // blocks that have left it
  float* amax;         // (tiles, kWarps): of the run of tiles of one block and head that begins here
};

__device__ Workspace workspace_at(float* words) {
  uint32_t* counters = reinterpret_cast<uint32_t*>(words);
  return {counters, counters + 1, words + 4};
}

struct Chunks {
  uint4 c[knob::kChunks];
};

__device__ Chunks load(const Tile& tile) {
  Chunks chunks;
#pragma unroll
  for (int i = 0; i < knob::kChunks; i++) {
    chunks.c[i] = i < tile.chunks ? ptx::ld_global_nc_16(tile.x + i * tile.x_step) : uint4{};
  }
  return chunks;
}

// Tiles in shared memory. A thread reads only the chunks that it has copied itself, so the copies
// need no barrier.
struct SharedTiles {
  uint4* start;

  __device__ uint4* chunk(int slot, int i) const {
    return start + (slot * knob::kChunks + i) * knob::kThreads + threadIdx.x;
  }
  __device__ void copy(int slot, const Tile& tile) const {
#pragma unroll
    for (int i = 0; i < knob::kChunks; i++) {
      const bool inside = i < tile.chunks;
      ptx::cp_async_cg_16(chunk(slot, i), inside ? tile.x + i * tile.x_step : tile.x,
                          inside ? sizeof(uint4) : 0);
    }
  }
  __device__ Chunks load(int slot) const {
    Chunks chunks;
#pragma unroll
    for (int i = 0; i < knob::kChunks; i++) chunks.c[i] = *chunk(slot, i);
    return chunks;
  }
};

// All blocks of the grid meet here, once in a launch. The last one to leave resets the counters for
// the next launch; by then no block reads them.
__device__ void grid_barrier(const Workspace& workspace) {
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::red_release_gpu_add(workspace.arrived, 1);
    while (ptx::ld_acquire_gpu(workspace.arrived) < gridDim.x) {
    }
    if (ptx::atom_acq_rel_gpu_add(workspace.departed, 1) == gridDim.x - 1) {
      *workspace.arrived = 0;
      *workspace.departed = 0;
    }
  }
  __syncthreads();
}

__device__ float warp_max(float value) {
  for (int lane = 16; lane > 0; lane /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0u, value, lane));
  }
  return value;
}

// The first pass: collects the amax of consecutive tiles of a head.
template <class Type>
struct Collector {
  const Problem& problem;
  const Workspace& workspace;
  int run = -1;       // the first tile of the current head in this block, -1 before the first tile
  int head_end = 0;   // the first tile of the next head
  typename Type::Pair amax = {};

  __device__ void add(int index, const Chunks& chunks) {
    if (index >= head_end) {
      write();
      const Tile tile = tile_of(problem, index);
      run = index;
      head_end = tile.first + tile.count;
      amax = Type::pair(0);
    }
#pragma unroll
    for (int i = 0; i < knob::kChunks; i++) amax = larger_magnitudes<Type>(amax, chunks.c[i]);
  }
  __device__ void write() const {
    const float2 pair = Type::floats(amax);
    const float largest = warp_max(fmaxf(pair.x, pair.y));
    if (run >= 0 && threadIdx.x % 32 == 0) {
      workspace.amax[run * kWarps + threadIdx.x / 32] = largest;
    }
  }
};

// The amax of a head from what all its blocks have written. Lanes read one word each at a time.
__device__ float amax_of_head(const Problem& p, const Workspace& workspace, const Tile& tile) {
  const unsigned first = p.block_of(tile.first), last = p.block_of(tile.first + tile.count - 1);
  float amax = 0;
  for (unsigned i = threadIdx.x % 32; i < (last - first + 1) * kWarps; i += 32) {
    const int run = max(tile.first, p.first_tile_of(first + i / kWarps));
    amax = fmaxf(amax, workspace.amax[run * kWarps + i % kWarps]);
  }
  return warp_max(amax);
}

// Below this amax, 448 / amax would overflow or the factor would be subnormal.
constexpr float kSmallestAmax = 0x1p-112f;

// The second pass: scales tiles, in descending order.
template <class Type>
struct Scaler {
  const Problem& problem;
  const Workspace& workspace;
  int first_of_block;
  int head_first = 0x7fffffff;  // the first tile of the current head
  float scale = 0;

  __device__ void begin(const Tile& tile) {
    float amax = amax_of_head(problem, workspace, tile);
    const bool zero = amax == 0;
    amax = fmaxf(amax, kSmallestAmax);
    scale = zero ? 1 : __fdiv_rn(kLargestE4M3, amax);
    head_first = tile.first;
    if (threadIdx.x == 0 && tile.first >= first_of_block) {
      *descale_of(problem, tile) = zero ? 1 : __fdiv_rn(amax, kLargestE4M3);
    }
  }
  __device__ void store(const Tile& tile, const Chunks& chunks) {
    if (tile.first < head_first) begin(tile);
#pragma unroll
    for (int i = 0; i < knob::kChunks; i++) {
      if (i < tile.chunks) {
        *reinterpret_cast<uint2*>(tile.y + i * tile.y_step) =
            e4m3_codes(unpack<Type>(chunks.c[i]), scale);
      }
    }
  }
};

// Waits for the copies of a slot, kYounger slots before the last one. The instruction takes a
// constant, and a loop over slots has less code than one copy of its body for each.
template <int kYounger = knob::kSharedTiles - 1>
__device__ void wait_for_copy(int slot) {
  if constexpr (kYounger > 0) {
    if (slot > knob::kSharedTiles - 1 - kYounger) return wait_for_copy<kYounger - 1>(slot);
  }
  ptx::cp_async_wait_group<kYounger>();
}

template <class Type>
__device__ void quantize_share(const Problem& p, const Workspace& workspace, uint4* shared_memory) {
  const SharedTiles shared{shared_memory};
  const int first = p.first_tile_of(blockIdx.x), last = p.first_tile_of(blockIdx.x + 1);
  const int first_shared = first + knob::kRegisterTiles;
  const int first_reread = first_shared + knob::kSharedTiles;

  // All copies to shared memory are issued before the first load that a thread waits for.
#pragma unroll 1
  for (int slot = 0; slot < knob::kSharedTiles; slot++) {
    if (first_shared + slot < last) shared.copy(slot, tile_of(p, first_shared + slot));
    ptx::cp_async_commit_group();
  }
  Chunks kept[knob::kRegisterTiles];
#pragma unroll
  for (int i = 0; i < knob::kRegisterTiles; i++) {
    if (first + i < last) kept[i] = load(tile_of(p, first + i));
  }

  Collector<Type> collector{p, workspace};
#pragma unroll
  for (int i = 0; i < knob::kRegisterTiles; i++) {
    if (first + i < last) collector.add(first + i, kept[i]);
  }
#pragma unroll 1
  for (int slot = 0; slot < knob::kSharedTiles && first_shared + slot < last; slot++) {
    wait_for_copy(slot);
    collector.add(first_shared + slot, shared.load(slot));
  }
#pragma unroll 1
  for (int i = first_reread; i < last; i++) collector.add(i, load(tile_of(p, i)));
  collector.write();

  grid_barrier(workspace);

  Scaler<Type> scaler{p, workspace, first};
#pragma unroll 1
  for (int i = last - 1; i >= first_reread; i--) {
    const Tile tile = tile_of(p, i);
    scaler.store(tile, load(tile));
  }
#pragma unroll 1
  for (int slot = knob::kSharedTiles - 1; slot >= 0; slot--) {
    if (first_shared + slot < last) {
      scaler.store(tile_of(p, first_shared + slot), shared.load(slot));
    }
  }
#pragma unroll
  for (int i = knob::kRegisterTiles - 1; i >= 0; i--) {
    if (first + i < last) scaler.store(tile_of(p, first + i), kept[i]);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(knob::kThreads)
quantize(const uint16_t* q, const uint16_t* k, const uint16_t* v,  // FP16 or BF16
         uint8_t* y_q, uint8_t* y_k, uint8_t* y_v,                 // E4M3, (batch, heads, rows, dim)
         float* descale_q, float* descale_k, float* descale_v,     // (batch, heads)
         float* workspace,                                         // see docs/quantize.md
         long long q_batch_stride, long long q_head_stride, long long q_row_stride,
         long long k_batch_stride, long long k_head_stride, long long k_row_stride,
         long long v_batch_stride, long long v_head_stride, long long v_row_stride,
         int batch, int heads, int kv_heads, int q_rows, int kv_rows, int dim,
         int bf16) {  // 1: x is BF16, 0: FP16
  extern __shared__ uint4 shared_memory[];
  Problem p;
  p.dim = dim;
  p.row_shift = row_shift_of(dim);
  const int q_tiles = (q_rows + p.rows_per_tile() - 1) / p.rows_per_tile();
  const int kv_tiles = (kv_rows + p.rows_per_tile() - 1) / p.rows_per_tile();
  const int first_k = batch * heads * q_tiles, first_v = first_k + batch * kv_heads * kv_tiles;
  p.tiles = first_v + batch * kv_heads * kv_tiles;
  p.q = {q, y_q, descale_q, {q_batch_stride, q_head_stride, q_row_stride}, heads, q_rows, 0, q_tiles};
  p.k = {k, y_k, descale_k, {k_batch_stride, k_head_stride, k_row_stride}, kv_heads, kv_rows,
         first_k, kv_tiles};
  p.v = {v, y_v, descale_v, {v_batch_stride, v_head_stride, v_row_stride}, kv_heads, kv_rows,
         first_v, kv_tiles};
  if (bf16) {
    quantize_share<BF16>(p, workspace_at(workspace), shared_memory);
  } else {
    quantize_share<FP16>(p, workspace_at(workspace), shared_memory);
  }
}
