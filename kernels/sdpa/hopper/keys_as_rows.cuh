// Attention with the keys as the rows of both products, for problems that must spread over the chip in small tiles.
//
//   S^T = K * Q^T      (keys, queries): K from global memory straight into registers, Q in shared memory
//   P^T = exp2(S^T - max)              rounded to E4M3 times 2^8
//   O^T = V^T * P^T    (D, queries):   V^T from shared memory into registers, P in shared memory
//
// wgmma has 64 rows, but as few columns as 8. With queries as rows 1x8x512x64 makes 64 tiles; with queries as columns, TILE_M = 32 of them make 128, one
// for each multiprocessor, and E4M3 is multiplied natively.
//
// KEY_GROUPS warpgroups of a block share out the keys: each takes TILE_N keys a step, has a maximum and a sum of its own, and in the end they add up.
// Sums over keys or over d may be taken in any order, so operands lie as they come:
//   d      lane t of four takes 16 bytes of its K row in one load. So byte 16t+4c+i of a row stands at place 16c+4t+i, in K and in Q.
//   keys   a lane has keys g and g+8 of its warp's 16. So key g+8h stands at place 2g+h, in P and in V.
//   O      rows g and g+8 of the product are columns 2g and 2g+1 of O: a pair in one lane.
//
// Shared memory: Q; for each warpgroup V twice (a step ahead, by cp.async), P, and the warps' maxima; and what the warpgroups tell each other in the end.
#pragma once

#include "../common/exp2.cuh"
#include "../common/problem.cuh"
#include "../common/ptx.cuh"
#include "knobs.cuh"
#include "output.cuh"
#include "softmax.cuh"
#include "wgmma.cuh"

namespace attention {

constexpr int kGroups = knob::kKeyGroups;
constexpr int kThreads = 128 * kGroups;
constexpr int kQueries = knob::kTileM;          // columns of both products
constexpr int kKeys = knob::kTileN;             // of one warpgroup and step
constexpr int kRowBlocks = kKeys / 64;          // products that make S^T of a step
constexpr int kParts = knob::kHeadDim / 64;     // products that make O^T
constexpr int kQueryBlocks = kQueries / 8;
constexpr int kColumns = kQueries / 4;          // that a lane has: 8j+2t+e is its column 2j+e
constexpr int kScores = kQueries / 2;           // that a lane has of one product
constexpr int kStepKeys = kGroups * kKeys;
constexpr int kChunks = knob::kHeadDim / 16;    // 16-byte pieces of a row

// An operand of kQueries rows: core matrices of 8 rows by 16 bytes, first all rows of the first 16 bytes.
constexpr int kCoreBytes = 128;
constexpr int kChunkBytes = kQueryBlocks * kCoreBytes;

constexpr int kQBytes = kQueries * knob::kHeadDim;
constexpr int kVBytes = kKeys * knob::kHeadDim;
constexpr int kPBytes = kKeys * kQueries;
constexpr int kStatBytes = kQueries * 4 * sizeof(float);  // (queries, warps)
constexpr int kGroupBytes = 2 * kVBytes + kPBytes + kStatBytes + 2 * kQueries * sizeof(float);
constexpr int kPartialBytes = kGroups * kQueries * knob::kHeadDim * sizeof(float);
constexpr int kMergeBytes = kPartialBytes + kGroups * kStatBytes;
constexpr int kSharedBytes = kQBytes + kGroups * kGroupBytes + kMergeBytes;
constexpr int kDynamicBytes = dynamic_bytes(kSharedBytes);
constexpr int kResident = 0;
constexpr int kLseKind = 1;  // the sums are FP32, of P before it is rounded

struct Lane {
  int warp;  // of its warpgroup
  int g, t;  // 4g + t is its number
  __device__ Lane() : warp(threadIdx.x / 32 % 4), g(threadIdx.x % 32 / 4), t(threadIdx.x % 4) {}
};

// ---- loads ---------------------------------------------------------------------------------------------------------------

// (kRowBlocks, 2 rows, D/4 words) of K, as they come: lane t of four has every fourth piece of its rows.
struct KeyWords {
  uint4 word[kRowBlocks][2][kParts];
};

// kWhole: all of the step's keys are there. Else rows behind the last are read as the last: their scores are masked.
template <bool kWhole>
__device__ __forceinline__ void load_keys(KeyWords& k, const Tile& tile, const Lane& lane, int first, int keys) {
  const int key = first + 16 * lane.warp + lane.g;
  const uint8_t* row = tile.k + static_cast<size_t>(key) * knob::kHeadDim + 16 * lane.t;  // (D)
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int further = 64 * block + 8 * half;
      const uint8_t* from = row + (kWhole ? further : min(further, keys - 1 - key)) * knob::kHeadDim;
#pragma unroll
      for (int part = 0; part < kParts; ++part) k.word[block][half][part] = ptx::ld_global_nc_16(from + 64 * part);
    }
  }
}

// (kKeys, D) of V by cp.async; zeros behind the last key, since P is 0 there and 0 times NaN is not.
template <bool kWhole>
__device__ __forceinline__ void copy_values(unsigned char* v, const Tile& tile, int first, int keys) {
  constexpr int kRows = 128 / kChunks;  // that 128 threads copy at a time
  const int thread = threadIdx.x % 128, row = thread / kChunks, chunk = thread % kChunks;
  const uint8_t* from = tile.v + static_cast<size_t>(first + row) * knob::kHeadDim + 16 * chunk;
  unsigned char* to = v + turned_place<knob::kHeadDim>(row, chunk);
#pragma unroll
  for (int key = 0; key < kKeys; key += kRows) {
    const bool there = kWhole || first + row + key < keys;
    ptx::cp_async_cg_16(to + key * knob::kHeadDim, there ? from + key * knob::kHeadDim : tile.v, there ? 16 : 0);
  }
}

// A step's K and V.
__device__ __forceinline__ void load_step(KeyWords& k, unsigned char* v, const Tile& tile, const Lane& lane, int first, int keys) {
  if (first + kKeys <= keys) {
    load_keys<true>(k, tile, lane, first, keys);
    copy_values<true>(v, tile, first, keys);
  } else {
    load_keys<false>(k, tile, lane, first, keys);
    copy_values<false>(v, tile, first, keys);
  }
}

// (kQueries, D) of Q into core matrices, by all threads of the block: word c of piece t goes to word t of piece c.
struct QueryWords {
  static constexpr int kPieces = kQueries * kChunks;
  static constexpr int kEach = (kPieces + kThreads - 1) / kThreads;
  uint4 word[kEach];

  __device__ __forceinline__ void load(const Tile& tile, int queries) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int piece = i * kThreads + threadIdx.x, row = tile.first_query + piece / kChunks;
      word[i] = make_uint4(0, 0, 0, 0);
      if (piece < kPieces && row < queries) {
        word[i] = ptx::ld_global_nc_16(tile.q + static_cast<size_t>(row) * knob::kHeadDim + 16 * (piece % kChunks));
      }
    }
  }

  __device__ __forceinline__ void store(unsigned char* q) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int piece = i * kThreads + threadIdx.x, row = piece / kChunks, part = piece % kChunks / 4, t = piece % 4;
      if (piece >= kPieces) continue;
      unsigned char* to = q + 4 * part * kChunkBytes + row / 8 * kCoreBytes + row % 8 * 16 + 4 * t;
      const uint32_t words[4] = {word[i].x, word[i].y, word[i].z, word[i].w};
#pragma unroll
      for (int c = 0; c < 4; ++c) *reinterpret_cast<uint32_t*>(to + c * kChunkBytes) = words[c];
    }
  }
};

// ---- products ------------------------------------------------------------------------------------------------------------

// (kRowBlocks, 64 keys, kQueries): the scores of a step.
struct Scores {
  float of[kRowBlocks][kScores];
};

__device__ __forceinline__ void multiply_keys(Scores& s, const KeyWords& k, uint32_t q) {
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) ptx::hold(s.of[block]);
  ptx::wgmma_fence();
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const uint4 upper = k.word[block][0][part], lower = k.word[block][1][part];
      const uint32_t first[4] = {upper.x, lower.x, upper.y, lower.y}, second[4] = {upper.z, lower.z, upper.w, lower.w};
      const uint32_t at = q + 4 * part * kChunkBytes;
      ptx::wgmma_m64k32_e4m3<kQueries>(s.of[block], first, ptx::wgmma_descriptor(at, kChunkBytes, kCoreBytes), part > 0);
      ptx::wgmma_m64k32_e4m3<kQueries>(s.of[block], second, ptx::wgmma_descriptor(at + 2 * kChunkBytes, kChunkBytes, kCoreBytes), true);
    }
  }
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>();
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) ptx::hold(s.of[block]);
}

// (kParts, 64 columns of O, kQueries).
struct Output {
  float of[kParts][kScores];
};

// o = V^T * P^T of one step; `meanwhile` is done while it is under way.
template <typename Meanwhile>
__device__ __forceinline__ void multiply_values(Output& o, const unsigned char* v, uint32_t p, const Lane& lane, Meanwhile meanwhile) {
  constexpr int kSteps = kKeys / 32;
  const int row = threadIdx.x % 32;  // of the 32 keys of a product, whose address this lane gives
  uint32_t a[kSteps][kParts][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      // Four matrices of 8 keys by 8 pairs of columns, turned: lane (g, t) has pair g of keys 2t and 2t+1 of each.
      uint32_t pairs[4];
      ptx::ldmatrix_x4_trans(pairs, v + turned_place<knob::kHeadDim>(32 * step + row, 4 * part + lane.warp));
      a[step][part][0] = __byte_perm(pairs[0], pairs[1], 0x6240);  // column 2g of keys 2t, 2t+8, 2t+1, 2t+9
      a[step][part][1] = __byte_perm(pairs[0], pairs[1], 0x7351);  // column 2g+1
      a[step][part][2] = __byte_perm(pairs[2], pairs[3], 0x6240);
      a[step][part][3] = __byte_perm(pairs[2], pairs[3], 0x7351);
    }
  }
#pragma unroll
  for (int part = 0; part < kParts; ++part) ptx::hold(o.of[part]);
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint64_t b = ptx::wgmma_descriptor(p + 2 * step * kChunkBytes, kChunkBytes, kCoreBytes);
#pragma unroll
    for (int part = 0; part < kParts; ++part) ptx::wgmma_m64k32_e4m3<kQueries>(o.of[part], a[step][part], b, step > 0);
  }
  ptx::wgmma_commit_group();
  meanwhile();
  ptx::wgmma_wait_group<0>();
#pragma unroll
  for (int part = 0; part < kParts; ++part) ptx::hold(o.of[part]);
}

// ---- softmax -------------------------------------------------------------------------------------------------------------

// Query 0 of a tile sees the keys before `end`, and with a causal mask each one a key more; keys behind the last are not there.
__device__ __forceinline__ void mask(Scores& s, const Lane& lane, int first, int end, bool causal, int keys) {
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    const int seen = causal ? min(keys, end + i / 4 * 8 + 2 * lane.t + i % 2) : keys;
    const int limit = seen - first - 16 * lane.warp - lane.g - i / 2 % 2 * 8;  // of the keys 0, 64, 128 .. behind the lane's first
#pragma unroll
    for (int block = 0; block < kRowBlocks; ++block) {
      if (64 * block >= limit) s.of[block][i] = -INFINITY;
    }
  }
}

struct Greater {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// Joins a lane's columns with those of the seven others that have the same ones, and leaves this lane the first kLeft of `value`, beginning with the
// column that is returned: each step gives away one half of them and takes the other, or joins the last one with what all have.
constexpr int kLeft = kColumns > 8 ? kColumns / 8 : 1;

template <int kBit = 4, int kHave = kColumns, typename Join>
__device__ __forceinline__ int scatter(float (&value)[kColumns], const Lane& lane, Join join) {
  if constexpr (kBit == 0) {
    return 0;
  } else if constexpr (kHave == 1) {
    value[0] = join(value[0], __shfl_xor_sync(0xFFFFFFFF, value[0], 4 * kBit));
    return scatter<kBit / 2, 1>(value, lane, join);
  } else {
    constexpr int kHalf = kHave / 2;
    const bool upper = lane.g & kBit;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float away = upper ? value[i] : value[i + kHalf], mine = upper ? value[i + kHalf] : value[i];
      value[i] = join(mine, __shfl_xor_sync(0xFFFFFFFF, away, 4 * kBit));
    }
    return (upper ? kHalf : 0) + scatter<kBit / 2, kHalf>(value, lane, join);
  }
}

// Joins the columns of a warp and writes them to its place in stat (kQueries, 4 warps).
template <typename Join>
__device__ __forceinline__ void publish(float* stat, float (&value)[kColumns], const Lane& lane, Join join) {
  const int column = scatter(value, lane, join);
#pragma unroll
  for (int i = 0; i < kLeft; ++i) {
    const int query = (column + i) / 2 * 8 + 2 * lane.t + (column + i) % 2;
    stat[4 * query + lane.warp] = value[i];
  }
}

__device__ __forceinline__ float4 of_warps(const float* stat, int query) { return *reinterpret_cast<const float4*>(stat + 4 * query); }

__device__ __forceinline__ void greatest_of(float (&value)[kColumns], const Scores& s) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int i = c / 2 * 4 + c % 2;
    value[c] = fmaxf(s.of[0][i], s.of[0][i + 2]);
#pragma unroll
    for (int block = 1; block < kRowBlocks; ++block) value[c] = fmaxf(value[c], fmaxf(s.of[block][i], s.of[block][i + 2]));
  }
}

// exp2 of a lane's scores, its sums, and P to shared memory: each 8x8 matrix of pairs of keys is stored turned, as 8 queries by 16 places.
__device__ __forceinline__ void exponentiate(float (&sum)[kColumns], const Scores& s, unsigned char* p, const Lane& lane, float factor, const float (&base)[kColumns]) {
  const int row = threadIdx.x % 32;
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
    uint32_t words[kQueryBlocks];
#pragma unroll
    for (int j = 0; j < kQueryBlocks; ++j) {
      uint16_t pair[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int i = 4 * j + e, c = 2 * j + e;
        const float upper = exp2_of<knob::kPolynomialEighths>(fmaf(s.of[block][i], factor, base[c]), block), lower = exp2_of<knob::kPolynomialEighths>(fmaf(s.of[block][i + 2], factor, base[c]), block + 1);
        sum[c] += upper + lower;
        pair[e] = ptx::cvt_rn_satfinite_e4m3x2_f32(upper, lower);
      }
      words[j] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
    }
    unsigned char* chunk = p + (4 * block + lane.warp) * kChunkBytes;
    if constexpr (kQueryBlocks == 1) {
      ptx::stmatrix_x1_trans(chunk + row % 8 * 16, words[0]);
    } else if constexpr (kQueryBlocks == 2) {
      ptx::stmatrix_x2_trans(chunk + row % 16 * 16, words[0], words[1]);
    } else {
#pragma unroll
      for (int j = 0; j < kQueryBlocks; j += 4) {
        ptx::stmatrix_x4_trans(chunk + j * kCoreBytes + row * 16, words[j], words[j + 1], words[j + 2], words[j + 3]);
      }
    }
  }
}

// ---- one warpgroup's keys ------------------------------------------------------------------------------------------------

struct Group {
  int index;
  unsigned char* v;  // (2, kKeys, D)
  unsigned char* p;  // (kQueries, kKeys) in core matrices
  float* stat;       // (kQueries, 4 warps)
  float* greatest;   // (2, kQueries): the greatest scores before a step and behind it, in turns

  __device__ __forceinline__ Group(unsigned char* memory, int index) : index(index) {
    v = memory + index * kGroupBytes;
    p = v + 2 * kVBytes;
    stat = reinterpret_cast<float*>(p + kPBytes);
    greatest = stat + 4 * kQueries;
  }
  __device__ __forceinline__ void sync() const { ptx::barrier_sync(1 + index, 128); }

  // The greatest scores of a lane's two columns in a block of eight, before a step.
  __device__ __forceinline__ float2 before(int step, int block, const Lane& lane) const {
    return *reinterpret_cast<const float2*>(greatest + step % 2 * kQueries + 8 * block + 2 * lane.t);
  }
};

// What is added to a scaled score, so that the greatest of its column becomes 2^8; a column that has seen no key yet has none.
__device__ __forceinline__ float base_of(float greatest, float factor) { return kShift - anchor_of(greatest, factor); }

// What remains of a sum that was relative to an earlier greatest score.
__device__ __forceinline__ float kept(float before, float base, float factor) { return ptx::ex2_approx_ftz(fmaf(before, factor, base - kShift)); }

// Takes the scores of a step into account: the greatest so far, which the first warp writes down, the base of each column, and the sums.
__device__ __forceinline__ void raise(float (&base)[kColumns], float (&sum)[kColumns], const Group& group, int step, const Lane& lane, float factor) {
#pragma unroll
  for (int j = 0; j < kQueryBlocks; ++j) {
    const float2 pair = group.before(step, j, lane);
    const float before[2] = {pair.x, pair.y};
    float now[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float4 warps = of_warps(group.stat, 8 * j + 2 * lane.t + e);
      now[e] = fmaxf(fmaxf(fmaxf(warps.x, warps.y), fmaxf(warps.z, warps.w)), before[e]);
      base[2 * j + e] = base_of(now[e], factor);
      if (step > 0) sum[2 * j + e] *= kept(before[e], base[2 * j + e], factor);
    }
    if (lane.warp == 0 && lane.g == 0) {
      *reinterpret_cast<float2*>(group.greatest + (step + 1) % 2 * kQueries + 8 * j + 2 * lane.t) = make_float2(now[0], now[1]);
    }
  }
}

__device__ __forceinline__ void add(Output& total, const Output& product, const Group& group, int step, const Lane& lane, float factor) {
#pragma unroll
  for (int j = 0; j < kQueryBlocks; ++j) {
    const float2 before = group.before(step, j, lane), now = group.before(step + 1, j, lane);
    const float keep[2] = {kept(before.x, base_of(now.x, factor), factor), kept(before.y, base_of(now.y, factor), factor)};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 4 * j; i < 4 * j + 4; ++i) total.of[part][i] = fmaf(total.of[part][i], keep[i % 2], product.of[part][i]);
    }
  }
}

// ---- the merge -----------------------------------------------------------------------------------------------------------

struct Merge {
  float* partial;         // (groups, parts, query blocks, 128 threads, 4)
  float* sum;             // (groups, kQueries, 4 warps)
  unsigned char* groups;  // where they are
  int steps;              // they have done

  __device__ __forceinline__ Merge(unsigned char* groups, int steps) : groups(groups), steps(steps) {
    partial = reinterpret_cast<float*>(groups + kGroups * kGroupBytes);
    sum = partial + kPartialBytes / sizeof(float);
  }
  __device__ __forceinline__ float greatest(int group, int query) const { return Group(groups, group).greatest[steps % 2 * kQueries + query]; }
  __device__ __forceinline__ float4* place(int group, int part, int block) const {
    return reinterpret_cast<float4*>(partial) + ((group * kParts + part) * kQueryBlocks + block) * 128 + threadIdx.x % 128;
  }
};

__device__ __forceinline__ void give(const Merge& merge, const Output& o, const Group& group) {
#pragma unroll
  for (int j = 0; j < kQueryBlocks; ++j) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      *merge.place(group.index, part, j) = make_float4(o.of[part][4 * j], o.of[part][4 * j + 1], o.of[part][4 * j + 2], o.of[part][4 * j + 3]);
    }
  }
}

// What each warpgroup's part of a query counts in O. Returns the logarithm of the sum over all of them.
__device__ __forceinline__ float shares_of(float (&share)[kGroups], const Merge& merge, int query, const Factors& factors) {
  float greatest = -INFINITY;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) greatest = fmaxf(greatest, merge.greatest(group, query));
  const float base = base_of(greatest, factors.scores_log2) - kShift;
  float sum = 0.0f;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    share[group] = ptx::ex2_approx_ftz(fmaf(merge.greatest(group, query), factors.scores_log2, base));
    const float4 warps = of_warps(merge.sum + group * kQueries * 4, query);
    sum = fmaf(share[group], (warps.x + warps.y) + (warps.z + warps.w), sum);
  }
  const float whole = sum > 0.0f ? factors.out * ptx::rcp_approx_ftz(sum) : 0.0f;  // a query that sees no key has 0
#pragma unroll
  for (int group = 0; group < kGroups; ++group) share[group] *= whole;
  return log_sum_exp(sum, -base);
}

// Each warpgroup finishes its share of the queries.
__device__ __forceinline__ void finish(const Merge& merge, const Tile& tile, const Factors& factors, const Group& group, const Lane& lane, int queries) {
  constexpr int kOwnBlocks = kQueryBlocks / kGroups;
#pragma unroll
  for (int i = 0; i < kOwnBlocks; ++i) {
    const int j = group.index * kOwnBlocks + i;
    float share[2][kGroups];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int query = 8 * j + 2 * lane.t + e;
      const float lse = shares_of(share[e], merge, query, factors);
      if constexpr (knob::kLse) {
        if (lane.warp == 0 && lane.g == 0 && tile.first_query + query < queries) tile.lse[tile.first_query + query] = lse;
      }
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int from = 0; from < kGroups; ++from) {
        const float4 piece = *merge.place(from, part, j);
        sum.x = fmaf(share[0][from], piece.x, sum.x);
        sum.y = fmaf(share[1][from], piece.y, sum.y);
        sum.z = fmaf(share[0][from], piece.z, sum.z);
        sum.w = fmaf(share[1][from], piece.w, sum.w);
      }
      const int query = tile.first_query + 8 * j + 2 * lane.t;
      uint32_t* to = reinterpret_cast<uint32_t*>(tile.o + static_cast<size_t>(query) * knob::kHeadDim + 64 * part + 16 * lane.warp + 2 * lane.g);
      if (query < queries) to[0] = output_pair(sum.x, sum.z);
      if (query + 1 < queries) to[knob::kHeadDim / 2] = output_pair(sum.y, sum.w);
    }
  }
}

// ---- the kernel ----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void attend(const Problem& problem) {
  const Head head = head_of_block(problem);
  if (head.q >= problem.heads) return;
  const Tile tile = tile_of(problem, head, blockIdx.x);
  const Lane lane;
  unsigned char* memory = shared_memory<kSharedBytes>();
  unsigned char* q = memory;
  const Group group(memory + kQBytes, threadIdx.x / 128);

  // Everything is asked for before anything is waited for.
  const int steps = max(1, (tile.seen + kStepKeys - 1) / kStepKeys);  // a tile that sees no key has a step in which all are masked
  QueryWords queries;
  KeyWords keys;
  queries.load(tile, problem.queries);
  int first = group.index * kKeys;
  load_step(keys, group.v, tile, lane, first, problem.keys);
  ptx::cp_async_commit_group();
  const Factors factors = factors_of(problem, head);
  queries.store(q);
  for (int query = threadIdx.x % 128; query < kQueries; query += 128) group.greatest[query] = -INFINITY;
  ptx::fence_proxy_async();
  __syncthreads();

  const Merge merge(memory + kQBytes, steps);
  Output total;
  float sum[kColumns] = {};
  int step = 0;
  do {
    Scores scores;
    multiply_keys(scores, keys, ptx::shared_address(q));
    if (first + kKeys > problem.keys || (problem.causal && first + kKeys > tile.visible)) {
      mask(scores, lane, first, tile.visible, problem.causal, problem.keys);
    }
    float greatest[kColumns], base[kColumns];
    greatest_of(greatest, scores);
    publish(group.stat, greatest, lane, Greater{});
    group.sync();
    raise(base, sum, group, step, lane, factors.scores_log2);
    // The other buffer of V was last read before the barrier.
    if (step + 1 < steps) load_step(keys, group.v + (step + 1) % 2 * kVBytes, tile, lane, first + kStepKeys, problem.keys);
    ptx::cp_async_commit_group();
    exponentiate(sum, scores, group.p, lane, factors.scores_log2, base);
    ptx::fence_proxy_async();
    ptx::cp_async_wait_group<1>();
    group.sync();
    Output product;
    multiply_values(product, group.v + step % 2 * kVBytes, ptx::shared_address(group.p), lane, [&] {
      if (step + 1 == steps) publish(merge.sum + group.index * kQueries * 4, sum, lane, Sum{});
    });
    if (step == 0) {
      total = product;
    } else {
      add(total, product, group, step, lane, factors.scores_log2);
    }
    first += kStepKeys;
  } while (++step < steps);

  give(merge, total, group);
  // Where O goes is found out again: registers were scarce meanwhile.
  const Tile same = tile_of(problem, head, ptx::opaque(blockIdx.x));
  __syncthreads();
  finish(merge, same, factors, group, lane, problem.queries);
}

}  // namespace attention
