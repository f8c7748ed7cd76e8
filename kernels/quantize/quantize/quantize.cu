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
// Hadamard: Q and K are multiplied by a Hadamard matrix over sqrt(dim) first, which leaves the
// products of Q and K as they are. Smooth-K: the mean of each column of a K head is subtracted, which
// leaves the softmax as it is. Step 2 then writes sums and extremes of columns for K (columns.cuh).
//
// A tensor without rows has no tiles: its pointers are not read, and only the others are quantised.
//
// The launch is cooperative, because blocks wait for each other. A maximum does not depend on the
// order of blocks, and sums are added in the order of blocks. Every run of
// tiles has its own words in the workspace, which needs no reset but for the counter.
#include "columns.cuh"
#include "hadamard.cuh"
#include "include/ptx.cuh"
#include "knobs.cuh"
#include "quantize/chunk.cuh"
#include "tiles.cuh"

namespace {

// A counter and what blocks tell each other. A run is the tiles of one head in one block; its
// words are those of its first tile.
struct Workspace {
  uint32_t* counter;  // of the barrier
  float* amax;        // (tiles, kWarps): of a run
  float* columns;     // (tiles of K, kStatistics, dim): of a run
};

__device__ Workspace workspace_at(float* words, const Problem& p) {
  float* amax = words + 4;
  return {reinterpret_cast<uint32_t*>(words), amax, amax + p.tiles * kWarps};
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

// Synchronises all blocks of the grid, once in a launch. A block is counted when it arrives and when
// it leaves. The last one to leave resets the counter for the next launch; by then no block reads it.
__device__ void grid_barrier(uint32_t* counter) {
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::red_release_gpu_add(counter, 1);
    while (ptx::ld_relaxed_gpu(counter) < gridDim.x) {
    }
    __threadfence();  // acquires what the other blocks have written; cheaper than in every poll
    if (ptx::atom_acq_rel_gpu_add(counter, 1) == 2 * gridDim.x - 1) *counter = 0;
  }
  __syncthreads();
}

__device__ float warp_max(float value) {
  for (int lane = 16; lane > 0; lane /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0u, value, lane));
  }
  return value;
}

// The larger of `amax` and the magnitudes of the finite elements.
__device__ float larger_magnitude(float amax, const Floats& x) {
#pragma unroll
  for (int i = 0; i < kChunkElements; i++) {
    const float magnitude = fabsf(x.v[i]);
    if (magnitude < INFINITY) amax = fmaxf(amax, magnitude);
  }
  return amax;
}

__device__ bool is_smooth(const Problem& p, Operand operand) {
  return p.smooth && operand == Operand::kK;
}

__device__ Floats transformed(const Problem& p, Operand operand, Floats x) {
  return p.hadamard && operand != Operand::kV ? hadamard(x, p.dim) : x;
}

// Consecutive tiles of one head in a block.
struct Run {
  Operand operand = Operand::kQ;
  int first = -1;    // -1 before the first tile
  int head_end = 0;  // the first tile of the next head

  __device__ bool has(int index) const { return index < head_end; }
  __device__ void begin(const Problem& p, int index) {
    const Tile tile = tile_of(p, index);
    *this = {tile.operand, index, tile.first + tile.count};
  }
  // Writes the amax of each warp to the words of the run.
  __device__ void write_amax(const Workspace& workspace, float amax) const {
    amax = warp_max(amax);
    if (threadIdx.x % 32 == 0) workspace.amax[first * kWarps + threadIdx.x / 32] = amax;
  }
};

// The first pass without smooth-K and Hadamard: collects the amax in the type of x.
template <class Type>
struct AmaxCollector {
  const Problem& problem;
  const Workspace& workspace;
  ColumnBuffer& buffer;
  Run run;
  typename Type::Pair amax = {};

  __device__ void add(int index, const Chunks& chunks) {
    if (!run.has(index)) {
      if (run.first >= 0) write();
      run.begin(problem, index);
      amax = Type::pair(0);
    }
#pragma unroll
    for (int i = 0; i < knob::kChunks; i++) amax = larger_magnitudes<Type>(amax, chunks.c[i]);
  }
  __device__ void write() const {
    const float2 pair = Type::floats(amax);
    run.write_amax(workspace, fmaxf(pair.x, pair.y));
  }
};

// The first pass with smooth-K or Hadamard: collects the amax of transformed rows, or the statistics
// of columns.
struct TransformCollector {
  const Problem& problem;
  const Workspace& workspace;
  ColumnBuffer& buffer;
  Run run;
  float amax = 0;
  ColumnStatistics columns;

  __device__ void add(int index, const Chunks& chunks) {
    if (!run.has(index)) {
      if (run.first >= 0) write();
      run.begin(problem, index);
      amax = 0;
      columns.clear();
    }
    const int inside = tile_of(problem, index).chunks;
#pragma unroll
    for (int i = 0; i < knob::kChunks; i++) {
      const Floats x = unpack(problem.bf16, chunks.c[i]), y = transformed(problem, run.operand, x);
      if (!is_smooth(problem, run.operand)) {
        amax = larger_magnitude(amax, y);
      } else if (i < inside) {
        columns.add(x, y);
      }
    }
  }
  __device__ void write() const {
    if (is_smooth(problem, run.operand)) {
      const int row = (run.first - problem.k.first_tile) * kStatistics;
      columns.write(problem, buffer, workspace.columns + row * problem.dim);
    } else {
      run.write_amax(workspace, amax);
    }
  }
};

// The two forms of the kernel. The plain one has the type of x at compile time and keeps tiles in
// registers. The other needs the registers for statistics, and reads the type at run time because a
// second copy of its code would double the time of a build.
template <class Type>
struct Plain {
  static constexpr bool kTransform = false;
  static constexpr int kRegisterTiles = knob::kRegisterTiles;
  using Collector = AmaxCollector<Type>;
  static __device__ Floats floats(const Problem&, uint4 chunk) { return unpack<Type>(chunk); }
};

struct Transform {
  static constexpr bool kTransform = true;
  static constexpr int kRegisterTiles = 0;
  using Collector = TransformCollector;
  static __device__ Floats floats(const Problem& p, uint4 chunk) { return unpack(p.bf16, chunk); }
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
template <class Form>
struct Scaler {
  const Problem& problem;
  const Workspace& workspace;
  ColumnBuffer& buffer;
  int first_of_block;
  int head_first = 0x7fffffff;  // the first tile of the current head
  float scale = 0;
  Floats mean = {};  // of the thread's columns, transformed; 0 without smooth-K

  __device__ void begin(const Tile& tile) {
    const bool owner = tile.first >= first_of_block;  // has the first tile of the head
    float amax;
    if (Form::kTransform && is_smooth(problem, tile.operand)) {
      amax = centre(tile, owner);
    } else {
      amax = amax_of_head(problem, workspace, tile);
      mean = {};
      if (owner && tile.operand == Operand::kK && problem.mean_k) clear_means(tile);
    }
    const bool zero = amax == 0;
    amax = fmaxf(amax, kSmallestAmax);
    scale = zero ? 1 : __fdiv_rn(kLargestE4M3, amax);
    head_first = tile.first;
    if (owner) write_descale(tile, zero ? 1 : __fdiv_rn(amax, kLargestE4M3));
  }
  __device__ void write_descale(const Tile& tile, float descale) const {
    const int heads = tile.operand == Operand::kQ ? problem.q.heads : problem.k.heads;
    for (int i = threadIdx.x; i < problem.copies; i += knob::kThreads) {
      descale_of(problem, tile)[i * heads] = descale;
    }
  }
  // The output of means, if there is one, is written whatever is subtracted.
  __device__ void clear_means(const Tile& tile) const {
    for (int c = threadIdx.x; c < problem.dim; c += knob::kThreads) {
      problem.mean_k[tile.head * problem.dim + c] = 0;
    }
  }
  // Sets the means of a K head, and returns the amax of what is left without them. Every warp has
  // whole rows of columns, so each finds the same.
  __device__ float centre(const Tile& tile, bool owner) {
    columns_of_head(problem, workspace.columns, tile, buffer,
                    owner && problem.mean_k ? problem.mean_k + tile.head * problem.dim : nullptr);
    const int column = problem.thread_column();
    const bool inside = column < problem.dim;
#pragma unroll
    for (int i = 0; i < kChunkElements; i++) mean.v[i] = inside ? buffer[0][column + i] : 0;
    mean = transformed(problem, tile.operand, mean);
    float amax = 0;
    if (inside) {
      Floats low, high;
#pragma unroll
      for (int i = 0; i < kChunkElements; i++) {
        low.v[i] = __fsub_rn(buffer[1][column + i], mean.v[i]);
        high.v[i] = __fsub_rn(buffer[2][column + i], mean.v[i]);
      }
      amax = larger_magnitude(larger_magnitude(0, low), high);
    }
    return warp_max(amax);
  }
  __device__ Floats prepared(const Tile& tile, uint4 chunk) const {
    Floats x = Form::floats(problem, chunk);
    if constexpr (Form::kTransform) {
      x = transformed(problem, tile.operand, x);
#pragma unroll
      for (int i = 0; i < kChunkElements; i++) x.v[i] = __fsub_rn(x.v[i], mean.v[i]);
    }
    return x;
  }
  __device__ void store(const Tile& tile, const Chunks& chunks) {
    if (tile.first < head_first) begin(tile);
#pragma unroll
    for (int i = 0; i < knob::kChunks; i++) {
      const uint2 codes = e4m3_codes(prepared(tile, chunks.c[i]), scale);
      if (i < tile.chunks) *reinterpret_cast<uint2*>(tile.y + i * tile.y_step) = codes;
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

template <class Form>
__device__ void quantize_share(const Problem& p, const Workspace& workspace,
                               const SharedTiles& shared, ColumnBuffer& buffer) {
  constexpr int kRegisterTiles = Form::kRegisterTiles;
  const int first = p.first_tile_of(blockIdx.x), last = p.first_tile_of(blockIdx.x + 1);
  const int first_shared = first + kRegisterTiles;
  const int first_reread = first_shared + knob::kSharedTiles;

  // All copies to shared memory are issued before the first load that a thread waits for.
#pragma unroll 1
  for (int slot = 0; slot < knob::kSharedTiles; slot++) {
    if (first_shared + slot < last) shared.copy(slot, tile_of(p, first_shared + slot));
    ptx::cp_async_commit_group();
  }
  Chunks kept[kRegisterTiles + 1];  // one more, because an array has an element
#pragma unroll
  for (int i = 0; i < kRegisterTiles; i++) {
    if (first + i < last) kept[i] = load(tile_of(p, first + i));
  }

  typename Form::Collector collector{p, workspace, buffer};
#pragma unroll
  for (int i = 0; i < kRegisterTiles; i++) {
    if (first + i < last) collector.add(first + i, kept[i]);
  }
#pragma unroll 1
  for (int i = first_shared; i < last; i++) {
    if (i < first_reread) wait_for_copy(i - first_shared);
    collector.add(i, i < first_reread ? shared.load(i - first_shared) : load(tile_of(p, i)));
  }
  if (first < last) collector.write();

  grid_barrier(workspace.counter);

  Scaler<Form> scaler{p, workspace, buffer, first};
#pragma unroll 1
  for (int i = last - 1; i >= first_shared; i--) {
    const Tile tile = tile_of(p, i);
    scaler.store(tile, i < first_reread ? shared.load(i - first_shared) : load(tile));
  }
#pragma unroll
  for (int i = kRegisterTiles - 1; i >= 0; i--) {
    if (first + i < last) scaler.store(tile_of(p, first + i), kept[i]);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(knob::kThreads, knob::kBlocksPerSM)
quantize(const uint16_t* q, const uint16_t* k, const uint16_t* v,  // FP16 or BF16
         uint8_t* y_q, uint8_t* y_k, uint8_t* y_v,                 // E4M3, (batch, heads, rows, dim)
         float* descale_q, float* descale_k, float* descale_v,     // (batch, heads)
         float* mean_k,                                            // (batch, kv_heads, dim) or null
         float* workspace,                                         // see docs/quantize.md
         long long q_batch_stride, long long q_head_stride, long long q_row_stride,
         long long k_batch_stride, long long k_head_stride, long long k_row_stride,
         long long v_batch_stride, long long v_head_stride, long long v_row_stride,
         int batch, int heads, int kv_heads, int q_rows, int kv_rows, int dim,
         int bf16,        // 1: x is BF16, 0: FP16
         int smooth,      // 1: subtract the mean of each column of K
         int hadamard,    // 1: transform the rows of Q and K
         int copies) {    // batch entries that get the factors; 1, or any number if batch is 1
  extern __shared__ uint4 shared_memory[];
  __shared__ ColumnBuffer buffer;
  Problem p;
  p.mean_k = mean_k;
  p.dim = dim;
  p.bf16 = bf16;
  p.smooth = smooth;
  p.hadamard = hadamard;
  p.copies = copies;
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
  const Workspace w = workspace_at(workspace, p);
  const SharedTiles shared{shared_memory};
  if (smooth || hadamard) {
    quantize_share<Transform>(p, w, shared, buffer);
  } else if (bf16) {
    quantize_share<Plain<BF16>>(p, w, shared, buffer);
  } else {
    quantize_share<Plain<FP16>>(p, w, shared, buffer);
  }
}
