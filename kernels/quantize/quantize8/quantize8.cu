// Q, K and V from FP16 or BF16 to 8 bits for attention/warp8, in one launch:
//
//   Q   s8, a factor for each 4 rows: of 32 those with the same r % 8
//   K   s8, a factor for each 16 keys: of 64 those with the same k % 8 / 2
//   V   E4M3, a factor for each column of a head; with USE_V=0 V stays as it is
//
//   descale = amax / 127 (V: 448),   y = round(x * (127 / amax))
//
// Smooth-K: the mean of each column of a K head is subtracted, which leaves the softmax as it is.
// The scores lose q · mean, which the log-sum-exp needs again.
//
//   problem.cuh       arguments; units of warps
//   columns.cuh       means of K and factors of V, in a pass of their own
//   grid_barrier.cuh  the barrier behind it: the launch is cooperative
#include "columns.cuh"
#include "grid_barrier.cuh"
#include "include/ptx.cuh"
#include "knobs.cuh"
#include "problem.cuh"
#include "quantize/chunk.cuh"

namespace {

constexpr float kLargestS8 = 127;
constexpr int kQGroups = 4, kKGroups = 1;  // of a unit

// Row `n` of 16 of a unit of Q: its 4 groups follow each other, with 4 rows each.
__device__ int q_row(int unit, int n) {
  return unit / 2 * 32 + n % 4 * 8 + unit % 2 * 4 + n / 4;
}
// The same of K: one group.
__device__ int k_row(int unit, int n) { return unit / 4 * 64 + n / 2 * 8 + unit % 4 * 2 + n % 2; }

__device__ int q_units(int rows) { return (rows + 31) / 32 * 2; }
__device__ int k_units(int rows) { return (rows + 63) / 64 * 4; }
__device__ int v_units(int rows) { return (rows + kUnitRows - 1) / kUnitRows; }

// The max of a warp; NaN wins.
__device__ float warp_max(float value) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    value = ptx::max_nan(value, __shfl_xor_sync(~0u, value, lane));
  }
  return value;
}

// s8 codes of x * scale, the first in the lowest byte. Adding 1.5 * 2^23 rounds to nearest even and
// leaves the code in the lowest byte.
__device__ uint2 s8_codes(const Floats& x, float scale) {
  uint32_t bits[kChunkElements];
#pragma unroll
  for (int i = 0; i < kChunkElements; i++) {
    bits[i] = __float_as_uint(__fadd_rn(__fmul_rn(x.v[i], scale), 12582912.0f));
  }
  uint32_t words[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const uint32_t* b = &bits[4 * i];
    const uint32_t low = __byte_perm(b[0], b[1], 0x0040);
    words[i] = __byte_perm(low, __byte_perm(b[2], b[3], 0x0040), 0x5410);
  }
  return {words[0], words[1]};
}

template <int kRowLanes>
__device__ Floats load_columns(const float* values, const Lane<kRowLanes>& lane) {
  Floats x = {};
#pragma unroll
  for (int i = 0; i < kChunkElements; i++) {
    if (lane.inside) x.v[i] = values[lane.column + i];
  }
  return x;
}

// The rows of a unit that a lane has: of 16 of a head, which `row_of` numbers. Values are loaded
// where they are used, at most kLoads at a time; the L1 cache has those of the second time.
constexpr int kLoads = 4;

template <int kRowLanes, class RowOf>
struct Unit {
  static constexpr int kPasses = Lane<kRowLanes>::kPasses;
  const Lane<kRowLanes> lane;
  const RowOf row_of;
  const int end;  // of the rows
  const uint16_t* x;
  const long long stride;

  __device__ Unit(const Tensor& tensor, int head, int dim, const RowOf& row_of)
      : lane(dim),
        row_of(row_of),
        end(lane.inside ? tensor.rows : 0),
        x(tensor.head(head) + lane.column),
        stride(tensor.strides.row) {}
  __device__ int row(int pass) const { return row_of(pass * lane.kRows + lane.row); }
  // The values of a pass without the means. Rows that do not exist are zeros.
  __device__ Floats values(bool bf16, int pass, const Floats& mean) const {
    const int at = row(pass);
    if (at >= end) return {};
    Floats values = unpack(bf16, ptx::ld_global_nc_16(x + at * stride));
#pragma unroll
    for (int i = 0; i < kChunkElements; i++) values.v[i] = __fsub_rn(values.v[i], mean.v[i]);
    return values;
  }
  __device__ void store(uint8_t* y, int dim, int pass, uint2 codes) const {
    const int at = row(pass);
    if (at < end) *reinterpret_cast<uint2*>(y + size_t(at) * dim + lane.column) = codes;
  }
};

// Scales the kGroups groups of a unit of Q or K by their amax. A group with a NaN or an infinity
// has the factor NaN.
template <int kGroups, class Unit>
__device__ void scale_groups(const Problem& p, const Unit& unit, const Floats& mean, uint8_t* y,
                             float* descale) {
  constexpr int kPasses = Unit::kPasses / kGroups;  // of a group
#pragma unroll 1
  for (int group = 0; group < kGroups; group++) {
    const int first = group * kPasses;
    float amax = 0;
#pragma unroll kLoads
    for (int i = 0; i < kPasses; i++) {
      const Floats x = unit.values(p.bf16, first + i, mean);
#pragma unroll
      for (int j = 0; j < kChunkElements; j++) amax = ptx::max_nan(amax, fabsf(x.v[j]));
    }
    amax = warp_max(amax);
    const bool finite = amax < INFINITY;
    const float scale = finite ? __fdiv_rn(kLargestS8, fmaxf(amax, 0x1p-112f)) : 0.0f;
#pragma unroll kLoads
    for (int i = 0; i < kPasses; i++) {
      unit.store(y, p.dim, first + i, s8_codes(unit.values(p.bf16, first + i, mean), scale));
    }
    if (threadIdx.x % 32 == 0) descale[group] = finite ? descale_of(amax, kLargestS8) : NAN;
  }
}

// Writes the products of the rows of a unit with the means of K.
template <class Unit>
__device__ void store_q_dot_mean(const Problem& p, const Columns& columns, const Unit& unit,
                                 int head) {
  const Floats mean = load_columns(columns.means(p, p.kv_head(head)), unit.lane);
#pragma unroll kLoads
  for (int i = 0; i < unit.kPasses; i++) {
    const Floats x = unit.values(p.bf16, i, Floats{});
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kChunkElements; j++) sum = fmaf(x.v[j], mean.v[j], sum);
#pragma unroll
    for (int lanes = 1; lanes < unit.lane.kLanes; lanes *= 2) {
      sum += __shfl_xor_sync(~0u, sum, lanes);
    }
    if (unit.lane.column == 0 && unit.row(i) < unit.end) {
      p.q_dot_mean[size_t(head) * p.q.rows + unit.row(i)] = sum;
    }
  }
}

template <int kRowLanes>
__device__ void quantize_q(const Problem& p, const Columns& columns, int head, int index) {
  const auto row_of = [=](int n) { return q_row(index, n); };
  const Unit<kRowLanes, decltype(row_of)> unit(p.q, head, p.dim, row_of);
  if (p.smooth && p.q_dot_mean) store_q_dot_mean(p, columns, unit, head);
  scale_groups<kQGroups>(p, unit, Floats{}, p.q.output(head),
                         p.q.descale + (size_t(head) * q_units(p.q.rows) + index) * kQGroups);
}

template <int kRowLanes>
__device__ void quantize_k(const Problem& p, const Columns& columns, int head, int index) {
  const auto row_of = [=](int n) { return k_row(index, n); };
  const Unit<kRowLanes, decltype(row_of)> unit(p.k, head, p.dim, row_of);
  Floats mean = {};
  if (p.smooth) mean = load_columns(columns.means(p, head), unit.lane);
  scale_groups<kKGroups>(p, unit, mean, p.k.output(head),
                         p.k.descale + size_t(head) * k_units(p.k.rows) + index);
}

template <int kRowLanes>
__device__ void quantize_v(const Problem& p, const Columns& columns, int head, int index) {
  const auto row_of = [=](int n) { return index * kUnitRows + n; };
  const Unit<kRowLanes, decltype(row_of)> unit(p.v, head, p.dim, row_of);
  const Floats descale = load_columns(columns.factors(p, head), unit.lane);
#pragma unroll kLoads
  for (int i = 0; i < unit.kPasses; i++) {
    Floats x = unit.values(p.bf16, i, Floats{});
#pragma unroll
    for (int j = 0; j < kChunkElements; j++) x.v[j] = __fdiv_rn(x.v[j], descale.v[j]);
    unit.store(p.v.output(head), p.dim, i, e4m3_codes(x, 1.0f));
  }
}

// The second pass.
template <int kRowLanes>
__device__ void quantize_units(const Problem& p, const Columns& columns) {
  const int of_q = q_units(p.q.rows), of_k = k_units(p.k.rows), of_v = v_units(p.v.rows);
  const int all_q = p.q.all_heads * of_q, all_k = p.k.all_heads * of_k;
  const int all_v = knob::kV ? p.v.all_heads * of_v : 0;
  const int warp = threadIdx.x / 32;
#pragma unroll 1
  for (int i = blockIdx.x * kWarps + warp; i < all_q + all_k + all_v; i += gridDim.x * kWarps) {
    if (i < all_q) {
      quantize_q<kRowLanes>(p, columns, i / of_q, i % of_q);
    } else if (i < all_q + all_k) {
      quantize_k<kRowLanes>(p, columns, (i - all_q) / of_k, (i - all_q) % of_k);
    } else if constexpr (knob::kV) {
      quantize_v<kRowLanes>(p, columns, (i - all_q - all_k) / of_v, (i - all_q - all_k) % of_v);
    }
  }
}

template <int kRowLanes>
__device__ void quantize(const Problem& p, float* workspace, ColumnBuffer& buffer) {
  GridBarrier barrier = {reinterpret_cast<uint32_t*>(workspace)};
  const Columns columns = {workspace + 4, p.smooth, knob::kV};
  if (p.smooth || knob::kV) reduce_columns<kRowLanes>(p, columns, barrier, buffer);
  quantize_units<kRowLanes>(p, columns);
  barrier.leave();
}

}  // namespace

extern "C" __global__ void __launch_bounds__(knob::kThreads, knob::kBlocksPerSM)
quantize8(const uint16_t* q, const uint16_t* k, const uint16_t* v,  // FP16 or BF16
          uint8_t* y_q, uint8_t* y_k, uint8_t* y_v,                 // (batch, heads, rows, dim)
          float* descale_q, float* descale_k,                       // (batch, heads, groups)
          float* descale_v,                                         // (batch, kv_heads, dim)
          float* mean_k,                                            // (batch, kv_heads, dim)
          float* q_dot_mean,                                        // (batch, heads, q_rows), null
          float* workspace,                                         // see docs/quantize.md
          long long q_batch_stride, long long q_head_stride, long long q_row_stride,
          long long k_batch_stride, long long k_head_stride, long long k_row_stride,
          long long v_batch_stride, long long v_head_stride, long long v_row_stride,
          int batch, int heads, int kv_heads, int q_rows, int kv_rows, int dim,
          int bf16,      // 1: x is BF16, 0: FP16
          int smooth) {  // 1: subtract the mean of each column of K
  __shared__ ColumnBuffer buffer;
  Problem p;
  p.q = {q, y_q, descale_q, {q_batch_stride, q_head_stride, q_row_stride}, heads, q_rows,
         batch * heads, dim};
  p.k = {k, y_k, descale_k, {k_batch_stride, k_head_stride, k_row_stride}, kv_heads, kv_rows,
         batch * kv_heads, dim};
  p.v = {v, y_v, descale_v, {v_batch_stride, v_head_stride, v_row_stride}, kv_heads, kv_rows,
         batch * kv_heads, dim};
  p.mean_k = mean_k, p.q_dot_mean = q_dot_mean;
  p.dim = dim, p.bf16 = bf16, p.smooth = smooth;
  if (dim <= 64) {
    quantize<8>(p, workspace, buffer);
  } else if (dim <= 128) {
    quantize<16>(p, workspace, buffer);
  } else {
    quantize<32>(p, workspace, buffer);
  }
}
