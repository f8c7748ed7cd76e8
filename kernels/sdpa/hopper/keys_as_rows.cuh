// Attention with the keys as the rows of both products, for problems that must spread over the chip in small tiles.
//
//   S^T = K * Q^T      (keys, queries): K from global memory straight into registers, Q in shared memory
//   P^T = exp2(S^T - max)              rounded to E4M3 times 2^8
//   O^T = V^T * P^T    (D, queries):   V^T from shared memory into registers, P in shared memory
//
// wgmma has 64 rows, but as few columns as 8. With queries as rows 1x8x512x64 makes 64 tiles; with queries as columns, TILE_M = 32 of them make 128, one
// for each multiprocessor, and E4M3 is multiplied natively.
//
// At these sizes a chain of latencies decides. The warps of a warpgroup meet twice a step: when the greatest scores are noted and V is there, and when P
// is. Sums of P stay with the lanes until the last step. KEY_GROUPS warpgroups of a block share out the keys, TILE_N a step each, and add up in the end.
//
// Sums over keys or over d may be taken in any order, so operands lie as they come:
//   d      lane t of four takes 16 bytes of its K row in one load. So byte 16t+4c+i of a row stands at place 16c+4t+i, in K and in Q.
//   keys   a warp has 16 keys of each 64, and 32 places of P for two times 16. A lane has keys g and g+8; key g+8h stands at place 2g+h, in P and in V.
//   O      rows g and g+8 of the product are columns 2g and 2g+1 of O: a pair in one lane.
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
constexpr int kWarps = 4;                       // of a warpgroup
constexpr int kQueries = knob::kTileM;          // columns of both products
constexpr int kKeys = knob::kTileN;             // of one warpgroup and step
constexpr int kRowBlocks = kKeys / 64;          // products that make S^T of a step
constexpr int kPairs = kRowBlocks / 2;          // products that make O^T of the keys of a warp
constexpr int kParts = knob::kHeadDim / 64;     // of O's columns
constexpr int kQueryBlocks = kQueries / 8;
constexpr int kColumns = kQueries / 4;          // that a lane has: 8j+2t+e is its column 2j+e
constexpr int kScores = kQueries / 2;           // that a lane has of one product
constexpr int kStepKeys = kGroups * kKeys;
constexpr int kChunks = knob::kHeadDim / 16;    // 16-byte pieces of a row
constexpr bool kFewKeys = kKeys <= 128;         // so that V does not delay K

// An operand of kQueries rows: core matrices of 8 rows by 16 bytes, first all rows of the first 16 bytes.
constexpr int kCoreBytes = 128;
constexpr int kChunkBytes = kQueryBlocks * kCoreBytes;

// What the warps of a warpgroup tell each other about its queries.
struct Notes {
  using OfWarps = float[kWarps][kQueries + 8];  // 8 more, so that a quad reaches four different banks
  OfWarps peak;          // the greatest score of a warp's keys in this step
  OfWarps sum;           // the sum of its P over all steps
  float base[kQueries];  // what those sums are relative to
};

constexpr int kQBytes = kQueries * knob::kHeadDim;
constexpr int kVBytes = kKeys * knob::kHeadDim;
constexpr int kPBytes = kKeys * kQueries;
constexpr int kGroupBytes = 2 * kVBytes + kPBytes + sizeof(Notes);
constexpr int kPartialBytes = kGroups > 1 ? kGroups * kQueries * knob::kHeadDim * sizeof(float) : 0;
constexpr int kSharedBytes = kQBytes + kGroups * kGroupBytes + kPartialBytes;
constexpr int kDynamicBytes = dynamic_bytes(kSharedBytes);
constexpr int kResident = 0;
constexpr int kLseKind = 1;  // the sums are FP32, of P before it is rounded

struct Lane {
  int warp;  // of its warpgroup
  int g, t;  // 4g + t is its number
  __device__ Lane() : warp(threadIdx.x / 32 % 4), g(threadIdx.x % 32 / 4), t(threadIdx.x % 4) {}

  // The query of a tile that is the lane's column.
  __device__ __forceinline__ int query(int column) const { return column / 2 * 8 + 2 * t + column % 2; }
};

// ---- loads ---------------------------------------------------------------------------------------------------------------

// (kRowBlocks, 2 rows, D/4 words) of K, as they come: lane t of four has every fourth piece of its rows. Rows behind the last are read as the last: their
// scores are masked.
struct KeyWords {
  uint4 word[kRowBlocks][2][kParts];

  template <bool kWhole>
  __device__ __forceinline__ void load(const Tile& tile, const Lane& lane, int first, int keys) {
    const int key = first + 16 * lane.warp + lane.g;
#pragma unroll
    for (int block = 0; block < kRowBlocks; ++block) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int behind = 64 * block + 8 * half;
        const unsigned row = kWhole ? key : max(0, min(key + behind, keys - 1));
        const uint8_t* from = tile.k + static_cast<size_t>(row) * knob::kHeadDim + 16 * lane.t + (kWhole ? behind * knob::kHeadDim : 0);  // (D)
#pragma unroll
        for (int part = 0; part < kParts; ++part) word[block][half][part] = ptx::ld_global_nc_16(from + 64 * part);
      }
    }
  }
};

// (kKeys, D) of V by cp.async; zeros behind the last key, since P is 0 there and 0 times NaN is not.
template <bool kWhole>
__device__ __forceinline__ void copy_values(unsigned char* v, const Tile& tile, int first, int keys) {
  constexpr int kRows = 128 / kChunks;  // that 128 threads copy at a time
  const unsigned thread = threadIdx.x % 128, row = thread / kChunks, chunk = thread % kChunks;
  const uint8_t* from = tile.v + static_cast<size_t>(first + row) * knob::kHeadDim + 16 * chunk;
  unsigned char* to = v + turned_place<knob::kHeadDim>(row, chunk);
#pragma unroll
  for (int key = 0; key < kKeys; key += kRows) {
    const bool there = kWhole || first + static_cast<int>(row) + key < keys;
    ptx::cp_async_cg_16(to + key * knob::kHeadDim, there ? from + key * knob::kHeadDim : tile.v, there ? 16 : 0);
  }
}

template <bool kWhole>
__device__ __forceinline__ void copy_step(unsigned char* v, const Tile& tile, int first, int keys) {
  if (kWhole || first + kKeys <= keys) {
    copy_values<true>(v, tile, first, keys);
  } else {
    copy_values<false>(v, tile, first, keys);
  }
  ptx::cp_async_commit_group();
}

// (kQueries, D) of Q into core matrices, by all threads of the block: word c of piece t goes to word t of piece c.
struct QueryWords {
  static constexpr unsigned kPieces = kQueries * kChunks;
  static constexpr int kEach = (kPieces + kThreads - 1) / kThreads;
  uint4 word[kEach];

  // Rows behind the last are read as the last, and not written. Threads without a piece have the last as well: no branch stands before a load.
  __device__ __forceinline__ void load(const Tile& tile, int queries) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const unsigned piece = min(i * kThreads + threadIdx.x, kPieces - 1), row = min(tile.first_query + piece / kChunks, queries - 1);
      word[i] = ptx::ld_global_nc_16(tile.q + static_cast<size_t>(row) * knob::kHeadDim + 16 * (piece % kChunks));
    }
  }

  __device__ __forceinline__ void store(unsigned char* q) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const unsigned piece = i * kThreads + threadIdx.x, row = piece / kChunks, part = piece % kChunks / 4, t = piece % 4;
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
  for (int block = 0; block < kRowBlocks; ++block) ptx::forget(s.of[block]);
  ptx::wgmma_fence();
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const uint4 upper = k.word[block][0][part], lower = k.word[block][1][part];
      const uint32_t first[4] = {upper.x, lower.x, upper.y, lower.y}, second[4] = {upper.z, lower.z, upper.w, lower.w};
      const uint32_t at = q + 4 * part * kChunkBytes / 16;
      ptx::wgmma_m64k32_e4m3<kQueries>(s.of[block], first, ptx::wgmma_descriptor(at, kChunkBytes, kCoreBytes), part > 0);
      ptx::wgmma_m64k32_e4m3<kQueries>(s.of[block], second, ptx::wgmma_descriptor(at + 2 * kChunkBytes / 16, kChunkBytes, kCoreBytes), true);
    }
  }
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>();
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) ptx::hold(s.of[block]);
}

// (warps, pairs, parts) of V^T: 64 columns of O by the 32 keys of a product.
struct ValueWords {
  uint32_t word[kWarps][kPairs][kParts][4];

  __device__ __forceinline__ void load(const unsigned char* v, const Lane& lane) {
    const int row = threadIdx.x % 32;  // of the 32 keys of a product, whose address this lane gives
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          // Four matrices of 8 keys by 8 pairs of columns, turned: lane (g, t) has pair g of keys 2t and 2t+1 of each.
          uint32_t pairs[4];
          const int key = 64 * (2 * pair + row / 16) + 16 * warp + row % 16;
          ptx::ldmatrix_x4_trans(pairs, v + turned_place<knob::kHeadDim>(key, 4 * part + lane.warp));
          uint32_t(&a)[4] = word[warp][pair][part];
          a[0] = __byte_perm(pairs[0], pairs[1], 0x6240);  // column 2g of keys 2t, 2t+8, 2t+1, 2t+9
          a[1] = __byte_perm(pairs[0], pairs[1], 0x7351);  // column 2g+1
          a[2] = __byte_perm(pairs[2], pairs[3], 0x6240);
          a[3] = __byte_perm(pairs[2], pairs[3], 0x7351);
        }
      }
    }
  }
};

// (kParts, 64 columns of O, kQueries).
struct Output {
  float of[kParts][kScores];
};

// o = V^T * P^T; `meanwhile` is done while it is under way.
template <typename Meanwhile>
__device__ __forceinline__ void multiply_values(Output& o, ValueWords& v, uint32_t p, Meanwhile meanwhile) {
#pragma unroll
  for (int i = 0; i < kWarps * kPairs * kParts; ++i) ptx::hold(v.word[i / (kPairs * kParts)][i / kParts % kPairs][i % kParts]);
#pragma unroll
  for (int part = 0; part < kParts; ++part) ptx::forget(o.of[part]);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < kWarps * kPairs; ++i) {
    const int warp = i / kPairs, pair = i % kPairs;
    const uint64_t b = ptx::wgmma_descriptor(p + (8 * pair + 2 * warp) * kChunkBytes / 16, kChunkBytes, kCoreBytes);
#pragma unroll
    for (int part = 0; part < kParts; ++part) ptx::wgmma_m64k32_e4m3<kQueries>(o.of[part], v.word[warp][pair][part], b, i > 0);
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

__device__ __forceinline__ void greatest_of(float (&value)[kColumns], const Scores& s) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int i = c / 2 * 4 + c % 2;
    value[c] = fmaxf(s.of[0][i], s.of[0][i + 2]);
#pragma unroll
    for (int block = 1; block < kRowBlocks; ++block) value[c] = fmaxf(value[c], fmaxf(s.of[block][i], s.of[block][i + 2]));
  }
}

// Notes what the lanes of a warp have, joined, of each query.
template <typename Join>
__device__ __forceinline__ void note(Notes::OfWarps& of, float (&value)[kColumns], const Lane& lane, Join join) {
  const int column = scatter(value, lane, join);
#pragma unroll
  for (int i = 0; i < kLeft; ++i) of[lane.warp][lane.query(column + i)] = value[i];
}

// What is noted about a lane's two queries in a block of eight.
__device__ __forceinline__ float2 pair_of(const float* of_queries, int block, const Lane& lane) {
  return *reinterpret_cast<const float2*>(of_queries + 8 * block + 2 * lane.t);
}

template <typename Join>
__device__ __forceinline__ float2 join_warps(const Notes::OfWarps& of, int block, const Lane& lane, Join join) {
  float2 all = pair_of(of[0], block, lane);
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) {
    const float2 more = pair_of(of[warp], block, lane);
    all.x = join(all.x, more.x), all.y = join(all.y, more.y);
  }
  return all;
}

// What a lane knows of its columns. A weight is 2^(factor * score + base), at most 2^kShift; O and the sums of P are sums of such, the latter of the
// lane's own keys.
struct Columns {
  float base[kColumns];
  float sum[kColumns];
  float keep[kColumns];  // what of the steps before the last remains
  Output o;              // (kParts, 64 columns of O, kQueries)

  __device__ __forceinline__ Columns() {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) base[c] = kUnseen, sum[c] = 0.0f;
#pragma unroll
    for (int i = 0; i < kParts * kScores; ++i) o.of[i / kScores][i % kScores] = 0.0f;
  }

  // To what the greatest scores of this step ask for.
  __device__ __forceinline__ void lower_base(const Notes& notes, const Lane& lane, float factor) {
#pragma unroll
    for (int j = 0; j < kQueryBlocks; ++j) {
      const float2 peaks = join_warps(notes.peak, j, lane, Greater{});
      keep[2 * j] = lowered(base[2 * j], peaks.x, factor);
      keep[2 * j + 1] = lowered(base[2 * j + 1], peaks.y, factor);
    }
  }

  __device__ __forceinline__ void add(const Output& product) {
#pragma unroll
    for (int i = 0; i < kParts * kScores; ++i) {
      float& sum = o.of[i / kScores][i % kScores];
      sum = fmaf(sum, keep[i % kScores / 4 * 2 + i % 2], product.of[i / kScores][i % kScores]);
    }
  }
};

// exp2 of a lane's scores, their sums, and P to shared memory: each 8x8 matrix of pairs of keys is stored turned, as 8 queries by 16 places.
template <bool kAlone>
__device__ __forceinline__ void exponentiate(Columns& columns, const Scores& s, unsigned char* p, const Lane& lane, float factor) {
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
        const float upper = exp2_of<knob::kPolynomialEighths>(fmaf(s.of[block][i], factor, columns.base[c]), block);
        const float lower = exp2_of<knob::kPolynomialEighths>(fmaf(s.of[block][i + 2], factor, columns.base[c]), block + 1);
        const float both = upper + lower;
        columns.sum[c] = block > 0 ? columns.sum[c] + both : kAlone ? both : fmaf(columns.sum[c], columns.keep[c], both);
        pair[e] = ptx::cvt_rn_satfinite_e4m3x2_f32(upper, lower);
      }
      words[j] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
    }
    unsigned char* chunk = p + (block / 2 * 8 + 2 * lane.warp + block % 2) * kChunkBytes;
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
  Notes* notes;

  __device__ __forceinline__ Group(unsigned char* memory, int index) : index(index) {
    v = memory + index * kGroupBytes;
    p = v + 2 * kVBytes;
    notes = reinterpret_cast<Notes*>(p + kPBytes);
  }
  __device__ __forceinline__ void sync() const { ptx::barrier_sync(1 + index, 128); }
};

// ---- the merge -----------------------------------------------------------------------------------------------------------

struct Merge {
  float* partial;         // (groups, parts, query blocks, 128 threads, 4)
  unsigned char* groups;  // where they are

  __device__ __forceinline__ explicit Merge(unsigned char* groups) : groups(groups) {
    partial = reinterpret_cast<float*>(groups + kGroups * kGroupBytes);
  }
  __device__ __forceinline__ const Notes& notes(int group) const { return *Group(groups, group).notes; }
  __device__ __forceinline__ float4* place(int group, int part, int block) const {
    return reinterpret_cast<float4*>(partial) + ((group * kParts + part) * kQueryBlocks + block) * 128 + threadIdx.x % 128;
  }
};

// By the lanes that have each query once.
__device__ __forceinline__ void note_base(Notes& notes, const Columns& columns, const Lane& lane) {
  if (lane.warp > 0 || lane.g > 0) return;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) notes.base[lane.query(c)] = columns.base[c];
}

__device__ __forceinline__ void give(const Merge& merge, const Output& o, const Group& group) {
#pragma unroll
  for (int j = 0; j < kQueryBlocks; ++j) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      *merge.place(group.index, part, j) = make_float4(o.of[part][4 * j], o.of[part][4 * j + 1], o.of[part][4 * j + 2], o.of[part][4 * j + 3]);
    }
  }
}

// What each warpgroup's part of a query counts in O, by its base and its sum. Returns the logarithm of the sum over all of them.
__device__ __forceinline__ float shares_of(float (&share)[kGroups], const float (&base)[kGroups], const float (&sum)[kGroups], float factor) {
  float lowest = base[0], total = 0.0f;
#pragma unroll
  for (int group = 1; group < kGroups; ++group) lowest = fminf(lowest, base[group]);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    share[group] = kGroups == 1 ? 1.0f : ptx::ex2_approx_ftz(lowest - base[group]);
    total = fmaf(share[group], sum[group], total);
  }
  const float whole = total > 0.0f ? factor * ptx::rcp_approx_ftz(total) : 0.0f;  // a query that sees no key has 0
#pragma unroll
  for (int group = 0; group < kGroups; ++group) share[group] *= whole;
  return log_sum_exp(total, lowest);
}

// Each warpgroup finishes its share of the queries; one that is alone has them in registers.
__device__ __forceinline__ void finish(const Merge& merge, const Columns& columns, const Tile& tile, float factor, const Group& group, const Lane& lane, int queries) {
  constexpr int kOwnBlocks = kQueryBlocks / kGroups;
#pragma unroll
  for (int i = 0; i < kOwnBlocks; ++i) {
    const int j = group.index * kOwnBlocks + i, query = tile.first_query + 8 * j + 2 * lane.t;
    float base[2][kGroups], sum[2][kGroups], share[2][kGroups];
#pragma unroll
    for (int from = 0; from < kGroups; ++from) {
      const Notes& notes = merge.notes(from);
      const float2 bases = kGroups == 1 ? make_float2(columns.base[2 * i], columns.base[2 * i + 1]) : pair_of(notes.base, j, lane);
      const float2 sums = join_warps(notes.sum, j, lane, Sum{});
      base[0][from] = bases.x, base[1][from] = bases.y, sum[0][from] = sums.x, sum[1][from] = sums.y;
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float lse = shares_of(share[e], base[e], sum[e], factor);
      if constexpr (knob::kLse) {
        if (lane.warp == 0 && lane.g == 0 && query + e < queries) tile.lse[query + e] = lse;
      }
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      float4 result = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int from = 0; from < kGroups; ++from) {
        const float* own = columns.o.of[part] + 4 * i;
        const float4 piece = kGroups == 1 ? make_float4(own[0], own[1], own[2], own[3]) : *merge.place(from, part, j);
        result.x = fmaf(share[0][from], piece.x, result.x);
        result.y = fmaf(share[1][from], piece.y, result.y);
        result.z = fmaf(share[0][from], piece.z, result.z);
        result.w = fmaf(share[1][from], piece.w, result.w);
      }
      uint32_t* to = reinterpret_cast<uint32_t*>(tile.o + static_cast<size_t>(query) * knob::kHeadDim + 64 * part + 16 * lane.warp + 2 * lane.g);
      if (query < queries) to[0] = output_pair(result.x, result.z);
      if (query + 1 < queries) to[knob::kHeadDim / 2] = output_pair(result.y, result.w);
    }
  }
}

// ---- the kernel ----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ int steps_of(const Tile& tile) { return (tile.seen + kStepKeys - 1) / kStepKeys; }

// A tile that is kAlone has one step, of which all queries see all keys. Short problems have no others, and most of their time is the way of the
// instructions to the multiprocessor: what they need stands in a row, with no branch and nothing between that is for others.
template <bool kAlone>
__device__ __forceinline__ void attend(const Problem& problem, Head head, const Tile& tile) {
  const Lane lane;
  unsigned char* memory = shared_memory<kSharedBytes>();
  unsigned char* q = memory;
  const Group group(memory + kQBytes, kGroups == 1 ? 0 : threadIdx.x / 128);
  Notes& notes = *group.notes;

  // Q and K are asked for before anything is waited for, and V, which would delay them if there is much of it, when Q is there.
  const int steps = kAlone ? 1 : max(1, steps_of(tile));  // a tile that sees no key has a step in which all are masked
  QueryWords queries;
  KeyWords keys;
  int first = group.index * kKeys;
  queries.load(tile, problem.queries);
  keys.load<kAlone>(tile, lane, first, problem.keys);
  if constexpr (kFewKeys) copy_step<kAlone>(group.v, tile, first, problem.keys);
  const Factors factors = factors_of(problem, head);
  queries.store(q);
  if constexpr (!kFewKeys) copy_step<kAlone>(group.v, tile, first, problem.keys);
  ptx::fence_proxy_async();
  __syncthreads();

  Columns columns;
  // Who writes V, P or a peak again has been at a barrier that all reach behind their last use of it. Two steps have different places for V.
  for (int step = 0; step < steps; ++step, first += kStepKeys) {
    const bool last = step + 1 == steps;
    Scores scores;
    multiply_keys(scores, keys, ptx::wgmma_place(q));
    if (!last) keys.load<false>(tile, lane, first + kStepKeys, problem.keys);
    if ((!kAlone && first + kKeys > problem.keys) || (problem.causal && first + kKeys > tile.visible)) {
      mask(scores, lane, first, tile.visible, problem.causal, problem.keys);
    }
    float peaks[kColumns];
    greatest_of(peaks, scores);
    note(notes.peak, peaks, lane, Greater{});
    ptx::cp_async_wait_group<0>();
    group.sync();
    ValueWords values;
    values.load(group.v + step % 2 * kVBytes, lane);
    columns.lower_base(notes, lane, factors.scores_log2);
    if (!last) copy_step<false>(group.v + (step + 1) % 2 * kVBytes, tile, first + kStepKeys, problem.keys);
    exponentiate<kAlone>(columns, scores, group.p, lane, factors.scores_log2);
    ptx::fence_proxy_async();
    group.sync();
    Output product;
    multiply_values(product, values, ptx::wgmma_place(group.p), [&] {
      if (!last) return;
      note(notes.sum, columns.sum, lane, Sum{});
      if constexpr (kGroups == 1) group.sync();
    });
    if constexpr (kAlone) {
      columns.o = product;
    } else {
      columns.add(product);
    }
  }

  const Merge merge(memory + kQBytes);
  if constexpr (kGroups > 1) {
    note_base(notes, columns, lane);
    give(merge, columns.o, group);
    __syncthreads();
  }
  finish(merge, columns, tile, factors.out, group, lane, problem.queries);
}

__device__ __forceinline__ void attend(const Problem& problem) {
  const Head head = head_of_block(problem);
  if (head.q >= problem.heads) return;
  const Tile tile = tile_of(problem, head, blockIdx.x);
  if (steps_of(tile) == 1 && kStepKeys <= problem.keys) {
    attend<true>(problem, head, tile);
  } else {
    attend<false>(problem, head, tile);
  }
}

}  // namespace attention
