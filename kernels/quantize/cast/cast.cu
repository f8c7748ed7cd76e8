// Q, K and V from FP16 or BF16 to E4M3 in one launch and one pass, with one factor per head:
//
//   y = e4m3(x * scale),   descale = 1 / scale,   scale a power of two
//
// A block has a tile, a run of rows of one head:
//
//   1. It loads its tile, and a sample of the head: 128 chunks of rows at equal distances.
//   2. The scale maps the largest magnitude of the sample to [8, 16). All blocks of a head take the
//      same sample, so they find the same scale without waiting for each other.
//   3. It stores its codes, and counts itself. E4M3 has the same relative precision from 2^-6 to
//      448, so the sample may be 28 times smaller than the head.
//   4. The last block of the head stores the factor. If an element did not fit, it first casts the
//      whole head again, by the largest magnitude of all its elements: no element saturates.
//
// A tensor without rows has no tiles: its pointers are not read. The result depends on no order of
// blocks.
//
// Workspace: `counters` has 64 bits for each head of Q, K and V, which are zero before the first
// launch. Each launch leaves them zero. Heads of one tile are not counted.
#include "include/ptx.cuh"
#include "knobs.cuh"
#include "quantize/chunk.cuh"

namespace {

constexpr int kWarps = knob::kThreads / 32;

constexpr int kSampleChunks = 128;
static_assert(knob::kThreads >= kSampleChunks);

// Exponents of the scale are limited so that scale and factor are normal numbers.
constexpr int kLargestExponent = 112;
// Where the scale puts the exponent of the largest magnitude.
constexpr int kOfSample = 3, kOfHead = 7;

// Lanes of a row, as a power of two.
__device__ int row_shift_of(int dim) { return dim <= 64 ? 3 : dim <= 128 ? 4 : 5; }

// Q, K or V.
struct Tensor {
  const uint16_t* x;  // FP16 or BF16
  uint8_t* y;         // E4M3, (batch, heads, rows, dim)
  float* descale;     // (batch, heads)
  Strides strides;    // of x
  int heads, rows;    // heads of one batch entry
};

// The head of a block, as a thread sees it. A row takes 8, 16 or 32 lanes, so that a thread has the
// same 8 columns in all its chunks; lanes beyond the last column are idle.
struct Head {
  const uint16_t* x;  // the thread's columns of row 0
  uint8_t* y;
  long long x_row_stride;
  int rows, dim;
  int row_shift;  // a row takes 1 << row_shift lanes

  __device__ Head(const Tensor& t, int head, int dim)
      : x_row_stride(t.strides.row), rows(t.rows), dim(dim), row_shift(row_shift_of(dim)) {
    const int batch = head / t.heads;
    x = t.x + batch * t.strides.batch + (head - batch * t.heads) * t.strides.head + column();
    y = t.y + static_cast<size_t>(head) * rows * dim + column();
  }
  __device__ int rows_per_pass() const { return knob::kThreads >> row_shift; }
  __device__ int thread_row() const { return threadIdx.x >> row_shift; }
  __device__ int column() const {
    return (threadIdx.x & ((1 << row_shift) - 1)) * kChunkElements;
  }
  __device__ bool has(int row) const { return row < rows && column() < dim; }
  // Chunks outside of the head are zeros.
  __device__ uint4 load(int row) const {
    return has(row) ? ptx::ld_global_nc_16(x + row * x_row_stride) : uint4{};
  }
  __device__ void store(int row, uint2 codes) const {
    if (has(row)) *reinterpret_cast<uint2*>(y + static_cast<size_t>(row) * dim) = codes;
  }
};

// The largest magnitude in the block. All threads get it.
__device__ float block_max(float value) {
  __shared__ float of_warp[kWarps];
  for (int lane = 16; lane > 0; lane /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0u, value, lane));
  }
  __syncthreads();  // the maxima of the call before are read
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kWarps; warp++) value = fmaxf(value, of_warp[warp]);
  return value;
}

// The power of two that gives amax the exponent `exponent`; 1 for an amax of 0. Subnormal numbers
// count as the smallest normal one.
__device__ float scale_of(float amax, int exponent) {
  if (amax == 0) return 1;
  const int of_amax = max(static_cast<int>(__float_as_uint(amax) >> 23), 1) - 127;
  return __uint_as_float((min(exponent - of_amax, kLargestExponent) + 127) << 23);
}

template <class Type>
__device__ float largest(typename Type::Pair amax) {
  const float2 pair = Type::floats(amax);
  return fmaxf(pair.x, pair.y);
}

// The largest magnitude of the sample: one chunk of each of the first threads. The sample has at
// most 16 rows, and the host refuses heads of 2^24 rows.
template <class Type>
__device__ float sample_max(const Head& head) {
  uint4 x = {};
  if (threadIdx.x < kSampleChunks) {
    x = head.load(head.thread_row() * head.rows / (kSampleChunks >> head.row_shift));
  }
  return block_max(largest<Type>(larger_magnitudes<Type>(Type::pair(0), x)));
}

// Casts the whole head by its largest magnitude. Returns the scale. It is rare, so the type of x is
// read at run time.
__device__ float cast_head(const Head& head, bool bf16) {
  float amax = 0;
  for (int row = head.thread_row(); row < head.rows; row += head.rows_per_pass()) {
    const Floats x = unpack(bf16, head.load(row));
#pragma unroll
    for (int i = 0; i < kChunkElements; i++) {
      if (fabsf(x.v[i]) < INFINITY) amax = fmaxf(amax, fabsf(x.v[i]));
    }
  }
  const float scale = scale_of(block_max(amax), kOfHead);
  for (int row = head.thread_row(); row < head.rows; row += head.rows_per_pass()) {
    head.store(row, e4m3_codes(unpack(bf16, head.load(row)), scale));
  }
  return scale;
}

// Casts a tile by the scale of the sample. Returns whether all elements of the block fit.
template <class Type>
__device__ bool cast_tile(const Head& head, int tile, float* scale) {
  const int first = tile * knob::kChunks * head.rows_per_pass() + head.thread_row();
  uint4 x[knob::kChunks];
#pragma unroll
  for (int i = 0; i < knob::kChunks; i++) x[i] = head.load(first + i * head.rows_per_pass());
  const float of_sample = sample_max<Type>(head);
  *scale = scale_of(of_sample, kOfSample);
  typename Type::Pair amax = Type::pair(0);
#pragma unroll
  for (int i = 0; i < knob::kChunks; i++) {
    amax = larger_magnitudes<Type>(amax, x[i]);
    head.store(first + i * head.rows_per_pass(), e4m3_codes(unpack<Type>(x[i]), *scale));
  }
  // A sample of zeros says nothing: then only zeros fit.
  const float limit = of_sample == 0 ? 0 : kLargestE4M3;
  return !__syncthreads_or(largest<Type>(amax) * *scale > limit);
}

// Counts the block, whose codes are stored. Returns the tiles of the head that were counted before
// it, and in the upper half those of them that did not fit.
__device__ unsigned long long count(unsigned long long* counter, bool fits) {
  __shared__ unsigned long long before;
  if (threadIdx.x == 0) {
    before = ptx::atom_acq_rel_gpu_add(counter, fits ? 1 : (1ull << 32) + 1);
  }
  __syncthreads();
  return before;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(knob::kThreads)
cast(const uint16_t* q, const uint16_t* k, const uint16_t* v,  // FP16 or BF16
     uint8_t* y_q, uint8_t* y_k, uint8_t* y_v,                 // E4M3, (batch, heads, rows, dim)
     float* descale_q, float* descale_k, float* descale_v,     // (batch, heads)
     unsigned long long* counters,                             // (batch * (heads + 2 * kv_heads))
     long long q_batch_stride, long long q_head_stride, long long q_row_stride,
     long long k_batch_stride, long long k_head_stride, long long k_row_stride,
     long long v_batch_stride, long long v_head_stride, long long v_row_stride,
     int batch, int heads, int kv_heads, int q_rows, int kv_rows, int dim,
     int bf16,      // 1: x is BF16, 0: FP16
     int copies) {  // batch entries that get the factors; 1, or any number if batch is 1
  ptx::griddepcontrol_launch_dependents();  // attention, which waits for the codes
  const int tile_rows = knob::kChunks * (knob::kThreads >> row_shift_of(dim));
  const int q_tiles = (q_rows + tile_rows - 1) / tile_rows;
  const int kv_tiles = (kv_rows + tile_rows - 1) / tile_rows;
  const int first_k = batch * heads * q_tiles, first_v = first_k + batch * kv_heads * kv_tiles;
  Tensor t;
  int at = blockIdx.x, tiles = kv_tiles;
  if (at < first_k) {
    t = {q, y_q, descale_q, {q_batch_stride, q_head_stride, q_row_stride}, heads, q_rows};
    tiles = q_tiles;
  } else if (at < first_v) {
    t = {k, y_k, descale_k, {k_batch_stride, k_head_stride, k_row_stride}, kv_heads, kv_rows};
    at -= first_k;
    counters += batch * heads;
  } else {
    t = {v, y_v, descale_v, {v_batch_stride, v_head_stride, v_row_stride}, kv_heads, kv_rows};
    at -= first_v;
    counters += batch * (heads + kv_heads);
  }
  const int head = at / tiles, tile = at - head * tiles;
  const Head of_block(t, head, dim);
  float scale;
  const bool fits = bf16 ? cast_tile<BF16>(of_block, tile, &scale)
                         : cast_tile<FP16>(of_block, tile, &scale);
  const unsigned long long before = tiles > 1 ? count(&counters[head], fits) : 0;
  if (static_cast<int>(before) != tiles - 1) return;
  if (!fits || before >> 32 != 0) scale = cast_head(of_block, bf16);
  for (int i = threadIdx.x; i < copies; i += knob::kThreads) {
    t.descale[i * t.heads + head] = 1 / scale;
  }
  if (threadIdx.x == 0 && tiles > 1) counters[head] = 0;
}
