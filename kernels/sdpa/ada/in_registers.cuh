// Attention with scores and P in registers (stages 3b to 6).
//
// A block takes TILE_M query rows of one head. Its NUM_WARPS warps share out the rows, and KEY_WARPS of them the keys as well: a warp has 16 or 32
// rows, its key group every KEY_WARPS-th run of TILE_N keys. It walks them with the online softmax, all in the fragments of mma.sync:
//
//   S = Q K^T          (16, TILE_N) floats, accumulator fragments
//   P = exp2(S - max)  the same fragments, packed into the operand of the second product: no shuffle, no shared memory
//   O += P V           (16, D) floats, accumulator fragments; V has a column of ones more, which gives the sums of the rows of P as P was rounded
//
// and at the end the key groups' O, maxima and sums are merged through shared memory. With one key group there is nothing to merge.
//
// Which number stands where. A product does not care in which order it sums, so the order of each sum is chosen such that every lane loads
// whole words. Lane 4g + t of a warp
//   - holds bytes [t D/4, (t+1) D/4) of the rows g and g + 8 of Q and of the row of K that is column g of a score fragment;
//   - holds bytes [g D/8, (g+1) D/8) of four rows of V, which are the keys of its own scores;
//   - and so ends with the columns [t D/4, (t+1) D/4) of the rows g and g + 8 of O.
// Column c of score fragment j is key 16 (j/2) + 8 (j%2) + c/2, plus 4 and with the lowest bit flipped where c is odd (key_of): in this order
// the rows that a quarter of a warp reads of K or of V lie in different banks, if the swizzle is on.
//
// Where the operands come from:
//   USE_CP_ASYNC=0  global memory to registers, K one step ahead
//   USE_CP_ASYNC=1  a ring of two or three tiles of K and V in shared memory; each key group fills its own part of it
//   USE_WARP_SPECIALIZATION=1  the same ring, filled by warps that do nothing else, with mbarriers for full and empty
// With USE_FP8_MMA the products are of E4M3 operands, on chips that have such (before sm_89: of halves as ever); P is scaled by 2^8 for that, and P V is summed afresh every PROMOTE_KEYS keys and added to O in
// FP32, because the tensor cores of sm_89 keep only some 13 bits of a sum. P of rows that see few keys is multiplied in two parts.
//
// Budget at TILE_M=32, TILE_N=64, D=64, 4 key groups: ring 64 KB (two tiles), merge 32 KB in its place.
#pragma once

#include <cstdio>

#include "../common/e4m3.cuh"
#include "../common/exp2.cuh"
#include "../common/problem.cuh"
#include "../common/ptx.cuh"
#include "knobs.cuh"

namespace attention {

using namespace knob;

constexpr int kRowWarps = kWarps / kKeyWarps;
constexpr int kRowTiles = kTileM / kRowWarps / 16;  // of 16 rows, that a warp has
constexpr int kScoreTiles = kTileN / 8;             // fragments of scores in a row tile
constexpr int kKeyBlocks = kTileN / 16;             // 16 keys: one operand of P V
constexpr int kOutTiles = kHeadDim / 8;             // fragments of O in a row tile
constexpr int kWordsK = kHeadDim / 16;              // words of a row of Q or K that a lane holds
constexpr int kWordsV = kHeadDim / 32;              // words of a row of V that a lane holds
constexpr int kStepKeys = kKeyWarps * kTileN;       // keys that the block takes in one step
constexpr int kChunks = kHeadDim / 16;              // 16-byte pieces of a row
constexpr int kProducers = kWarpSpecialization ? kProducerWarps : 0;
constexpr int kConsumerThreads = 32 * kWarps;
constexpr int kThreads = kConsumerThreads + 32 * kProducers;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;
constexpr uint32_t kOnesF16 = 0x3C003C00u, kOnesE4m3 = 0x38383838u;
constexpr float kScaleP = kFp8Mma ? 8.0f : 0.0f;  // log2: P up to 256 uses the range of E4M3

static_assert(kTileM == kRowTiles * kRowWarps * 16 && (kRowTiles == 1 || kRowTiles == 2), "a warp has 16 or 32 rows");

// Shared memory: the ring, later the merge in its place; the table of codes; the barriers of the ring; the ticket of the work queue.
constexpr int kTileBytes = kStepKeys * kHeadDim;  // codes of K, or of V, of one step
constexpr int kRingBytes = kCpAsync ? kSlots * 2 * kTileBytes : 0;
constexpr int kPartialBytes = kRowTiles * 16 * kHeadDim * 2;  // O of one warp in halves
constexpr int kMergeBytes = kKeyWarps > 1 ? kWarps * (kPartialBytes + kRowTiles * 16 * 8) : 0;
constexpr int kOffsetTable = kRingBytes > kMergeBytes ? kRingBytes : kMergeBytes;
constexpr int kOffsetBarriers = kOffsetTable + (kKvLut ? 512 : 0);
constexpr int kOffsetTicket = kOffsetBarriers + (kWarpSpecialization ? 2 * kSlots * 8 : 0);
constexpr int kSharedBytes = kOffsetTicket + 16;

constexpr int kResident = kPersistent ? kBlocks : 0;

struct Shared {
  uint8_t* ring;     // (slots, K and V, keys of a step, D) codes
  uint4* partials;   // (warps, 8 halves of O of each lane), in the ring's place
  float2* stats;     // (warps, rows): maximum and sum
  uint16_t* table;   // (256)
  uint64_t* full;    // (slots)
  uint64_t* empty;   // (slots)
  unsigned* ticket;
};

__device__ __forceinline__ Shared shared_layout(unsigned char* memory) {
  uint64_t* barriers = reinterpret_cast<uint64_t*>(memory + kOffsetBarriers);
  return {memory,
          reinterpret_cast<uint4*>(memory),
          reinterpret_cast<float2*>(memory + kWarps * kPartialBytes),
          reinterpret_cast<uint16_t*>(memory + kOffsetTable),
          barriers,
          barriers + kSlots,
          reinterpret_cast<unsigned*>(memory + kOffsetTicket)};
}

// Who a thread is.
struct Place {
  int warp, key_group, row_warp;
  int lane, g, t;
};

__device__ __forceinline__ Place place() {
  Place p;
  p.warp = threadIdx.x / 32u;
  p.key_group = p.warp % kKeyWarps;
  p.row_warp = p.warp / kKeyWarps;
  p.lane = threadIdx.x % 32u;
  p.g = p.lane / 4;
  p.t = p.lane % 4;
  return p;
}

// The key that column c of score fragment j stands for, from the first of its tile.
__device__ __forceinline__ int key_of(int j, int c) { return 8 * j + (c % 2 == 0 ? c / 2 : 4 + (c / 2 ^ 1)); }

// One row of Q or K as a lane holds it.
struct Words {
  uint32_t w[kWordsK];
};

// Four rows of V as a lane holds them.
struct Values {
  uint32_t w[4][kWordsV];
};

struct Query {
  uint32_t a[kRowTiles][kFp8Mma ? kWordsK / 2 : kWordsK][4];  // operands of the steps over D
};

struct Scores {
  float s[kRowTiles][kScoreTiles][4];
};

struct Output {
  float o[kRowTiles][kOutTiles + 1][4];  // the last fragment is P times ones: the sums of the rows g and g + 8, in every column
  float max[kRowTiles][2];               // of the rows g and g + 8, in the scores' own unit
};

__device__ __forceinline__ float row_sum(const Output& out, int m, int h) { return out.o[m][kOutTiles][2 * h]; }

__device__ __forceinline__ uint2 decode4(const Shared& shared, uint32_t codes) {
  if constexpr (kKvLut) {
    return e4m3::decode4_by_table(codes, shared.table);
  } else {
    return e4m3::decode4(codes);
  }
}

// ---- from memory to registers ------------------------------------------------------------------------------------------

// Words side by side in global memory.
template <int kCount>
__device__ __forceinline__ void load_words(uint32_t (&words)[kCount], const uint8_t* from) {
  if constexpr (kCount % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const uint4 x = __ldg(reinterpret_cast<const uint4*>(from + 4 * i));
      words[i] = x.x, words[i + 1] = x.y, words[i + 2] = x.z, words[i + 3] = x.w;
    }
  } else {
    const uint2 x = __ldg(reinterpret_cast<const uint2*>(from));
    words[0] = x.x, words[1] = x.y;
  }
}

// The same of a row that may not be there, and is zeros then.
template <int kCount>
__device__ __forceinline__ void load_words_if(bool there, uint32_t (&words)[kCount], const uint8_t* from) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) words[i] = 0;
  if (there) load_words(words, from);
}

// The rows of Q that a lane holds parts of, as codes.
struct QueryCodes {
  Words rows[kRowTiles][2];  // g and g + 8

  __device__ __forceinline__ void load(const Problem& problem, const Tile& tile, const Place& at) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = tile.first_query + (at.row_warp * kRowTiles + m) * 16 + at.g + 8 * h;
        load_words_if(row < problem.queries, rows[m][h].w, tile.q + static_cast<size_t>(row) * kHeadDim + at.t * (kHeadDim / 4));
      }
    }
  }

  __device__ __forceinline__ Query operands(const Shared& shared) const {
    Query query;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const Words &top = rows[m][0], &bottom = rows[m][1];
#pragma unroll
      for (int i = 0; i < kWordsK; i += kFp8Mma ? 2 : 1) {
        if constexpr (kFp8Mma) {
          uint32_t(&a)[4] = query.a[m][i / 2];
          a[0] = top.w[i], a[1] = bottom.w[i], a[2] = top.w[i + 1], a[3] = bottom.w[i + 1];
        } else {
          const uint2 x = decode4(shared, top.w[i]), y = decode4(shared, bottom.w[i]);
          uint32_t(&a)[4] = query.a[m][i];
          a[0] = x.x, a[1] = y.x, a[2] = x.y, a[3] = y.y;
        }
      }
    }
    return query;
  }
};

// Where 16-byte piece `chunk` of a row lies in a tile of the ring.
__device__ __forceinline__ int ring_offset(int row, int chunk) {
  int place = chunk;
  if constexpr (kXorSwizzle) {
    // Two rows of 64 bytes, or one of 128, fill the banks once: rows that are read together differ in their place among those.
    place ^= kChunks == 4 ? (row & 2) : (row & 3) << 1 | (row >> 2 & 1);
  }
  return row * kHeadDim + place * 16;
}

__device__ __forceinline__ uint8_t* ring_tile(const Shared& shared, int slot, int which) {
  return shared.ring + (slot * 2 + which) * kTileBytes;
}

// Starts the copy of keys [first, first + kRows) of K and V into the rows [row, row + kRows) of a slot, by `threads` threads of which this is the
// `thread`-th. Keys past the end arrive as zeros.
template <int kRows, int kCopiers>
__device__ __forceinline__ void copy_async(const Shared& shared, const Problem& problem, const Tile& tile, int slot, int row, int first, int thread) {
  constexpr int kAll = kRows * kChunks;
#pragma unroll
  for (int begin = 0; begin < kAll; begin += kCopiers) {
    const int piece = begin + thread;
    if (kAll % kCopiers != 0 && piece >= kAll) break;
    const int r = piece / kChunks, chunk = piece % kChunks, key = first + r;
    const bool there = key < problem.keys;
    const size_t from = static_cast<size_t>(there ? key : 0) * kHeadDim + chunk * 16;
    const int to = ring_offset(row + r, chunk);
    ptx::cp_async_cg_16(ring_tile(shared, slot, 0) + to, tile.k + from, there ? 16 : 0);
    ptx::cp_async_cg_16(ring_tile(shared, slot, 1) + to, tile.v + from, there ? 16 : 0);
  }
}

// The K of one tile of keys: in registers already, or still in the ring. From global memory a whole tile is loaded without a question, since every
// question would stand before a load.
struct GlobalKeys {
  Words k[kScoreTiles];

  __device__ __forceinline__ void load(const uint8_t* keys, int first, int count, const Place& at) {
    const uint8_t* from = keys + static_cast<size_t>(first + key_of(0, at.g)) * kHeadDim + at.t * (kHeadDim / 4);
    if (first + kTileN <= count) {
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) load_words(k[j].w, from + 8 * j * kHeadDim);
    } else {
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) load_words_if(first + key_of(j, at.g) < count, k[j].w, from + 8 * j * kHeadDim);
    }
  }
  __device__ __forceinline__ Words get(int j, const Place&) const { return k[j]; }
};

struct GlobalValues {
  Values v[kKeyBlocks];

  __device__ __forceinline__ void load(const uint8_t* values, int first, int count, const Place& at) {
    const int key[2] = {first + key_of(0, 2 * at.t), first + key_of(0, 2 * at.t + 1)};
    const uint8_t* from[2] = {values + static_cast<size_t>(key[0]) * kHeadDim + at.g * (kHeadDim / 8),
                              values + static_cast<size_t>(key[1]) * kHeadDim + at.g * (kHeadDim / 8)};
    if (first + kTileN <= count) {
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) load_words(v[j / 2].w[j % 2 * 2 + i], from[i] + 8 * j * kHeadDim);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) load_words_if(key[i] + 8 * j < count, v[j / 2].w[j % 2 * 2 + i], from[i] + 8 * j * kHeadDim);
      }
    }
  }
  __device__ __forceinline__ Values get(int b, const Place&) const { return v[b]; }
};

struct RingKeys {
  const uint8_t* tile;
  int first_row;

  __device__ __forceinline__ Words get(int j, const Place& at) const {
    Words words;
    const int row = first_row + key_of(j, at.g);
#pragma unroll
    for (int i = 0; i < kWordsK; i += 4) {
      const uint4 x = *reinterpret_cast<const uint4*>(tile + ring_offset(row, at.t * (kWordsK / 4) + i / 4));
      words.w[i] = x.x, words.w[i + 1] = x.y, words.w[i + 2] = x.z, words.w[i + 3] = x.w;
    }
    return words;
  }
};

struct RingValues {
  const uint8_t* tile;
  int first_row;

  __device__ __forceinline__ Values get(int b, const Place& at) const {
    Values values;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + key_of(2 * b + i / 2, 2 * at.t + i % 2);
      const int byte = at.g * (kHeadDim / 8);
      const uint8_t* from = tile + ring_offset(row, byte / 16) + byte % 16;
      if constexpr (kWordsV == 4) {
        const uint4 x = *reinterpret_cast<const uint4*>(from);
        values.w[i][0] = x.x, values.w[i][1] = x.y, values.w[i][2] = x.z, values.w[i][3] = x.w;
      } else {
        const uint2 x = *reinterpret_cast<const uint2*>(from);
        values.w[i][0] = x.x, values.w[i][1] = x.y;
      }
    }
    return values;
  }
};

// ---- arithmetic --------------------------------------------------------------------------------------------------------

// S = Q K^T, (16, TILE_N) for each row tile.
template <typename Keys>
__device__ __forceinline__ void multiply_qk(Scores& scores, const Query& query, const Keys& keys, const Shared& shared, const Place& at) {
#pragma unroll
  for (int j = 0; j < kScoreTiles; ++j) {
    const Words k = keys.get(j, at);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores.s[m][j][i] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kWordsK; i += kFp8Mma ? 2 : 1) {
      if constexpr (kFp8Mma) {
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) ptx::mma_m16n8k32_e4m3(scores.s[m][j], query.a[m][i / 2], k.w[i], k.w[i + 1]);
      } else {
        const uint2 b = decode4(shared, k.w[i]);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) ptx::mma_m16n8k16_f16(scores.s[m][j], query.a[m][i], b.x, b.y);
      }
    }
  }
}

// Scores that a row does not see become minus infinity.
__device__ __forceinline__ void mask(Scores& scores, const Problem& problem, const Tile& tile, int first_key, const Place& at) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = (at.row_warp * kRowTiles + m) * 16 + at.g + 8 * h;
      const int limit = problem.causal ? min(problem.keys, tile.visible + row) : problem.keys;
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (first_key + key_of(j, 2 * at.t + i) >= limit) scores.s[m][j][2 * h + i] = -INFINITY;
        }
      }
    }
  }
}

// Scores to P, in place; the new maxima; O and the sums scaled to them.
__device__ __forceinline__ void softmax(Scores& scores, Output& out, float scale_log2) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = out.max[m][h];
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) top = fmaxf(top, fmaxf(scores.s[m][j][2 * h], scores.s[m][j][2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
      const float base = top == -INFINITY ? 0.0f : top * scale_log2 - kScaleP;  // a row that has seen no key yet must not compute inf - inf
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& s = scores.s[m][j][2 * h + i];
          s = exp2_of<knob::kPolynomialEighths>(fmaf(s, scale_log2, -base), i);
        }
      }
      const float shrink = ptx::ex2_approx_ftz(fmaf(out.max[m][h], scale_log2, -base - kScaleP));
#pragma unroll
      for (int n = 0; n <= kOutTiles; ++n) {
        out.o[m][n][2 * h] *= shrink;
        out.o[m][n][2 * h + 1] *= shrink;
      }
      out.max[m][h] = top;
    }
  }
}

__device__ __forceinline__ uint32_t half2_bits(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// O += P V with halves, 16 keys at a time.
template <typename ValueSource>
__device__ __forceinline__ void multiply_pv_f16(Output& out, const Scores& p, const ValueSource& source, const Shared& shared, const Place& at) {
#pragma unroll
  for (int b = 0; b < kKeyBlocks; ++b) {
    const Values v = source.get(b, at);
    uint32_t a[kRowTiles][4];  // P of the 16 keys
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][i] = half2_bits(p.s[m][2 * b + i / 2][i % 2 * 2], p.s[m][2 * b + i / 2][i % 2 * 2 + 1]);
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) ptx::mma_m16n8k16_f16(out.o[m][kOutTiles], a[m], kOnesF16, kOnesF16);
#pragma unroll
    for (int w = 0; w < kWordsV; ++w) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // bytes 0 and 1 of the words, then 2 and 3: two columns of V each
        const unsigned pick = half == 0 ? 0x5140 : 0x7362;
        const uint2 b0 = decode4(shared, __byte_perm(v.w[0][w], v.w[1][w], pick));
        const uint2 b1 = decode4(shared, __byte_perm(v.w[2][w], v.w[3][w], pick));
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          ptx::mma_m16n8k16_f16(out.o[m][4 * w + 2 * half], a[m], b0.x, b1.x);
          ptx::mma_m16n8k16_f16(out.o[m][4 * w + 2 * half + 1], a[m], b0.y, b1.y);
        }
      }
    }
  }
}

// The transpose of four words of four bytes: word i of the result has byte i of each.
__device__ __forceinline__ void transpose4(uint32_t (&x)[4], uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
  const uint32_t cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
  x[0] = __byte_perm(ab_low, cd_low, 0x5410);
  x[1] = __byte_perm(ab_low, cd_low, 0x7632);
  x[2] = __byte_perm(ab_high, cd_high, 0x5410);
  x[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

// Four numbers of P to codes; what rounding took stays behind in them, for another part, if there is to be one.
__device__ __forceinline__ uint32_t encode_p(float (&s)[2][4], int row, bool more) {
  const uint32_t codes = e4m3::encode4(s[0][row], s[0][row + 1], s[1][row], s[1][row + 1]);
  if (more) {
    const uint2 halves = e4m3::decode4(codes);
    const float2 a = __half22float2(*reinterpret_cast<const __half2*>(&halves.x)), b = __half22float2(*reinterpret_cast<const __half2*>(&halves.y));
    s[0][row] -= a.x, s[0][row + 1] -= a.y, s[1][row] -= b.x, s[1][row + 1] -= b.y;
  }
  return codes;
}

// O += P V with E4M3, 32 keys at a time; each PROMOTE_KEYS keys are summed by the tensor cores from zero, and that sum is added to O in FP32.
template <typename ValueSource>
__device__ __forceinline__ void multiply_part_e4m3(Output& out, Scores& p, const ValueSource& source, bool more, const Place& at) {
  constexpr int kBlocks = kPromoteKeys / 32;
#pragma unroll
  for (int first = 0; first < kTileN / 32; first += kBlocks) {
    uint32_t a[kBlocks][kRowTiles][4];  // P of 32 keys
    uint32_t v[kBlocks][2][kOutTiles + 1];  // V of 32 keys: two words of a column, and of one of ones
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          auto& pair = reinterpret_cast<float(&)[2][4]>(p.s[m][4 * (first + b) + i / 2 * 2]);
          a[b][m][i] = encode_p(pair, i % 2 * 2, more);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Values rows = source.get(2 * (first + b) + half, at);
        v[b][half][kOutTiles] = kOnesE4m3;
#pragma unroll
        for (int w = 0; w < kWordsV; ++w) {
          uint32_t columns[4];
          transpose4(columns, rows.w[0][w], rows.w[1][w], rows.w[2][w], rows.w[3][w]);
#pragma unroll
          for (int i = 0; i < 4; ++i) v[b][half][4 * w + i] = columns[i];
        }
      }
    }
#pragma unroll
    for (int n = 0; n <= kOutTiles; ++n) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        float sum[4] = {};
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) ptx::mma_m16n8k32_e4m3(sum, a[b][m], v[b][0][n], v[b][1][n]);
#pragma unroll
        for (int i = 0; i < 4; ++i) out.o[m][n][i] += sum[i];
      }
    }
  }
}

// A row that sees many keys averages over the rounding of its P. One that sees few does not: the rounded P, and then what rounding took, each by itself.
constexpr int kFewKeys = 32;

template <typename ValueSource>
__device__ __forceinline__ void multiply_pv(Output& out, Scores& p, const ValueSource& source, const Problem& problem, const Tile& tile, const Shared& shared,
                                            const Place& at) {
  if constexpr (kFp8Mma) {
    const int fewest = problem.causal ? min(problem.keys, tile.visible + at.row_warp * kRowTiles * 16) : problem.keys;
    const int parts = fewest < kFewKeys ? 2 : 1;
#pragma unroll 1
    for (int part = 0; part < parts; ++part) multiply_part_e4m3(out, p, source, part + 1 < parts, at);
  } else {
    multiply_pv_f16(out, p, source, shared, at);
  }
}

// What comes between the two products.
__device__ __forceinline__ void scores_to_p(Scores& scores, Output& out, const Problem& problem, const Tile& tile, const Factors& factors, int first_key,
                                            const Place& at) {
  const int all_see = problem.causal ? min(problem.keys, tile.visible + at.row_warp * kRowTiles * 16) : problem.keys;
  if (first_key + kTileN > all_see) mask(scores, problem, tile, first_key, at);
  softmax(scores, out, factors.scores_log2);
  if constexpr (kDebugPrint) {
    if (tile.head.q == 0 && tile.first_query == 0 && threadIdx.x == 0) {
      printf("sdpa: keys from %d, row 0: max %g, sum %g, out[0] %g\n", first_key, out.max[0][0], row_sum(out, 0, 0), out.o[0][0][0]);
    }
  }
}

// ---- the walk over the keys --------------------------------------------------------------------------------------------
// Each way asks for its first operands before it asks for the factors of the head, and leaves those for the end of the tile.

__device__ __forceinline__ void clear(Output& out) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) out.max[m][h] = -INFINITY;
#pragma unroll
    for (int n = 0; n <= kOutTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out.o[m][n][i] = 0.0f;
    }
  }
}

__device__ __forceinline__ int steps_of(const Tile& tile) { return (static_cast<unsigned>(tile.seen) + kStepKeys - 1) / kStepKeys; }

// All operands straight from global memory. K, Q and V are asked for before anything is waited for; then the next K as soon as Q K^T is done with the last,
// and the next V as soon as P V is.
__device__ __forceinline__ void walk_global(Output& out, Factors& factors, const Problem& problem, const Tile& tile, const Shared& shared, const Place& at) {
  int key = at.key_group * kTileN;
  if (key >= tile.seen) {
    factors = factors_of(problem, tile.head);
    return;
  }
  GlobalKeys keys;
  keys.load(tile.k, key, problem.keys, at);
  QueryCodes codes;
  codes.load(problem, tile, at);
  GlobalValues values;
  values.load(tile.v, key, problem.keys, at);
  factors = factors_of(problem, tile.head);
  const Query query = codes.operands(shared);
  for (;;) {
    Scores scores;
    multiply_qk(scores, query, keys, shared, at);
    const int next = key + kStepKeys;
    if (next < tile.seen) keys.load(tile.k, next, problem.keys, at);
    scores_to_p(scores, out, problem, tile, factors, key, at);
    multiply_pv(out, scores, values, problem, tile, shared, at);
    if (next >= tile.seen) return;
    key = next;
    values.load(tile.v, key, problem.keys, at);
  }
}

// The threads of a key group wait for each other.
__device__ __forceinline__ void key_group_sync(const Place& at) {
  if constexpr (kRowWarps == 1) {
    __syncwarp();
  } else if constexpr (kKeyWarps == 1) {
    __syncthreads();
  } else {
    ptx::barrier_sync(1 + at.key_group, 32 * kRowWarps);
  }
}

// One tile of keys that lies in a slot of the ring.
__device__ __forceinline__ void step_ring(Output& out, const Query& query, const Problem& problem, const Tile& tile, const Factors& factors,
                                          const Shared& shared, int slot, int step, const Place& at) {
  const int row = at.key_group * kTileN, key = step * kStepKeys + row;
  if (key >= tile.seen) return;
  Scores scores;
  multiply_qk(scores, query, RingKeys{ring_tile(shared, slot, 0), row}, shared, at);
  scores_to_p(scores, out, problem, tile, factors, key, at);
  multiply_pv(out, scores, RingValues{ring_tile(shared, slot, 1), row}, problem, tile, shared, at);
}

// Each key group fills its part of the ring itself, kSlots - 1 steps ahead.
__device__ __forceinline__ void walk_ring(Output& out, Factors& factors, const Problem& problem, const Tile& tile, const Shared& shared, const Place& at) {
  const int steps = steps_of(tile), row = at.key_group * kTileN, thread = at.row_warp * 32 + at.lane;
  const auto copy = [&](int step) {
    if (step < steps) copy_async<kTileN, 32 * kRowWarps>(shared, problem, tile, step % kSlots, row, step * kStepKeys + row, thread);
    ptx::cp_async_commit_group();
  };
#pragma unroll
  for (int step = 0; step < kSlots - 1; ++step) copy(step);
  QueryCodes codes;
  codes.load(problem, tile, at);
  factors = factors_of(problem, tile.head);
  const Query query = codes.operands(shared);
  for (int step = 0; step < steps; ++step) {
    ptx::cp_async_wait_group<kSlots - 2>();
    key_group_sync(at);  // this step's bytes have arrived for every thread, and the last step's are no longer read
    copy(step + kSlots - 1);
    step_ring(out, query, problem, tile, factors, shared, step % kSlots, step, at);
  }
  ptx::cp_async_wait_group<0>();
}

// A position in the ring that goes round and round, tile after tile; the parity is that of the slot's phase.
struct RingPosition {
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) slot = 0, parity ^= 1;
  }
};

// A producer warp fills slot after slot for the whole block.
__device__ __forceinline__ void produce(RingPosition& position, const Problem& problem, const Tile& tile, const Shared& shared) {
  const int steps = steps_of(tile);
  for (int step = 0; step < steps; ++step) {
    ptx::mbarrier_wait_parity(&shared.empty[position.slot], position.parity ^ 1);
    copy_async<kStepKeys, 32 * kProducerWarps>(shared, problem, tile, position.slot, 0, step * kStepKeys, threadIdx.x - kConsumerThreads);
    ptx::cp_async_mbarrier_arrive_noinc(&shared.full[position.slot]);
    position.advance();
  }
}

// The other warps empty them.
__device__ __forceinline__ void consume(RingPosition& position, Output& out, Factors& factors, const Problem& problem, const Tile& tile,
                                        const Shared& shared, const Place& at) {
  const int steps = steps_of(tile);
  QueryCodes codes;
  codes.load(problem, tile, at);
  factors = factors_of(problem, tile.head);
  const Query query = codes.operands(shared);
  for (int step = 0; step < steps; ++step) {
    ptx::mbarrier_wait_parity(&shared.full[position.slot], position.parity);
    step_ring(out, query, problem, tile, factors, shared, position.slot, step, at);
    ptx::mbarrier_arrive(&shared.empty[position.slot]);
    position.advance();
  }
}

// ---- the end of a tile -------------------------------------------------------------------------------------------------

// What the numbers of a row are multiplied with in the end. A row that sees no key gives zeros; NaN stays.
__device__ __forceinline__ float over_sum(float x, float sum) { return sum > 0.0f ? __fdividef(x, sum) : sum; }

// Eight numbers of O, side by side, as halves: piece `piece` of a lane's D/4 numbers of a row. D/8 of those come from the first column of each fragment,
// and then D/8 from the second.
__device__ __forceinline__ uint4 halves_of(const Output& out, int m, int h, int piece, float factor) {
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int n = piece * 8 + 2 * i, column = 2 * h + n / kOutTiles;
    pairs[i] = half2_bits(out.o[m][n % kOutTiles][column] * factor, out.o[m][n % kOutTiles + 1][column] * factor);
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

constexpr int kPieces = kHeadDim / 32;  // of eight numbers, in a lane's part of a row

// With one key group there is nothing to merge.
__device__ __forceinline__ void store_alone(const Output& out, const Factors& factors, const Problem& problem, const Tile& tile, const Place& at) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float factor = over_sum(factors.out, row_sum(out, m, h));
      const int row = tile.first_query + (at.row_warp * kRowTiles + m) * 16 + at.g + 8 * h;
      if (row >= problem.queries) continue;
      uint4* to = reinterpret_cast<uint4*>(tile.o + static_cast<size_t>(row) * kHeadDim + at.t * (kHeadDim / 4));
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) to[piece] = halves_of(out, m, h, piece, factor);
    }
  }
}

// With several, every warp leaves its part in shared memory, divided by its own sum and in an order of its own: (row tile, half, piece, lane).
__device__ __forceinline__ void leave_partial(const Output& out, const Shared& shared, const Place& at) {
  uint4* partial = shared.partials + at.warp * (kPartialBytes / 16);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = row_sum(out, m, h), factor = over_sum(1.0f, sum);
      if (at.t == 0) shared.stats[at.warp * kRowTiles * 16 + m * 16 + h * 8 + at.g] = make_float2(out.max[m][h], sum);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) partial[((m * 2 + h) * kPieces + piece) * 32 + at.lane] = halves_of(out, m, h, piece, factor);
    }
  }
}

// And all take a share of what is to be merged.
__device__ __forceinline__ void merge(const Factors& factors, const Problem& problem, const Tile& tile, const Shared& shared, const Place& at) {
  constexpr int kItems = kRowWarps * kRowTiles * 2 * kPieces;
#pragma unroll
  for (int first = 0; first < kItems; first += kWarps) {
    const int item = first + at.warp;
    if (kItems % kWarps != 0 && item >= kItems) break;
    const int in_warp = item % (kRowTiles * 2 * kPieces), row_warp = item / (kRowTiles * 2 * kPieces);
    const int row_in_warp = in_warp / kPieces * 8 + at.g, piece = item % kPieces;
    const float2* stats = shared.stats + row_warp * kKeyWarps * kRowTiles * 16 + row_in_warp;
    const uint4* partials = shared.partials + row_warp * kKeyWarps * (kPartialBytes / 16) + in_warp * 32 + at.lane;
    float2 stat[kKeyWarps];
    uint4 part[kKeyWarps];
#pragma unroll
    for (int k = 0; k < kKeyWarps; ++k) stat[k] = stats[k * kRowTiles * 16], part[k] = partials[k * (kPartialBytes / 16)];
    float top = -INFINITY;
#pragma unroll
    for (int k = 0; k < kKeyWarps; ++k) top = fmaxf(top, stat[k].x);
    const float base = top == -INFINITY ? 0.0f : top;
    float sum = 0.0f, x[8] = {};
#pragma unroll
    for (int k = 0; k < kKeyWarps; ++k) {
      const float weight = stat[k].y * ptx::ex2_approx_ftz((stat[k].x - base) * factors.scores_log2);
      sum += weight;
      const uint32_t pairs[4] = {part[k].x, part[k].y, part[k].z, part[k].w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 y = __half22float2(*reinterpret_cast<const __half2*>(&pairs[i]));
        x[2 * i] = fmaf(y.x, weight, x[2 * i]);
        x[2 * i + 1] = fmaf(y.y, weight, x[2 * i + 1]);
      }
    }
    const float factor = over_sum(factors.out, sum);
    const int row = tile.first_query + row_warp * kRowTiles * 16 + row_in_warp;
    if (row >= problem.queries) continue;
    uint4* to = reinterpret_cast<uint4*>(tile.o + static_cast<size_t>(row) * kHeadDim + at.t * (kHeadDim / 4));
    to[piece] = make_uint4(half2_bits(x[0] * factor, x[1] * factor), half2_bits(x[2] * factor, x[3] * factor),
                           half2_bits(x[4] * factor, x[5] * factor), half2_bits(x[6] * factor, x[7] * factor));
  }
}

// ---- tile after tile ---------------------------------------------------------------------------------------------------

// The barriers stand where every warp comes by, whatever its role: __syncthreads() in a branch that only some warps take is not defined.
__device__ __forceinline__ void attend_tile(RingPosition& position, const Problem& problem, const Tile& tile, const Shared& shared, const Place& at) {
  const bool computes = !kWarpSpecialization || at.warp < kWarps;
  Output out;
  Factors factors;
  if (computes) {
    clear(out);
    if constexpr (kWarpSpecialization) {
      consume(position, out, factors, problem, tile, shared, at);
    } else if constexpr (kCpAsync) {
      walk_ring(out, factors, problem, tile, shared, at);
    } else {
      walk_global(out, factors, problem, tile, shared, at);
    }
  } else {
    produce(position, problem, tile, shared);
  }
  if constexpr (kKeyWarps == 1) {
    if (computes) store_alone(out, factors, problem, tile, at);
  } else {
    if constexpr (kCpAsync) __syncthreads();  // nobody reads the ring any more: the parts go in its place
    if (computes) leave_partial(out, shared, at);
    __syncthreads();
    if (computes) merge(factors, problem, tile, shared, at);
  }
}

// Tickets that blocks have drawn in this launch. The last one sets it back for the next launch.
__device__ unsigned queue;

__device__ __forceinline__ unsigned draw_ticket(const Shared& shared, unsigned tiles) {
  __syncthreads();  // the last tile is done with shared memory, and its ticket has been read
  if (threadIdx.x == 0) {
    *shared.ticket = atomicAdd(&queue, 1u);
    if (*shared.ticket == tiles + gridDim.x - 1) atomicExch(&queue, 0u);
  }
  __syncthreads();
  return *shared.ticket;
}

__device__ __forceinline__ void prepare(const Shared& shared) {
  if constexpr (kKvLut) {
    for (int i = threadIdx.x; i < 64; i += kThreads) {
      reinterpret_cast<uint2*>(shared.table)[i] = e4m3::decode4(0x03020100u + 0x04040404u * i);
    }
  }
  if constexpr (kWarpSpecialization) {
    if (threadIdx.x < kSlots) {
      ptx::mbarrier_init(&shared.full[threadIdx.x], 32 * kProducers);
      ptx::mbarrier_init(&shared.empty[threadIdx.x], kConsumerThreads);
    }
  }
  if constexpr (kKvLut || kWarpSpecialization) __syncthreads();
}

__device__ __forceinline__ void attend(const Problem& problem) {
  const Shared shared = shared_layout(shared_memory<kSharedBytes>());
  const Place at = place();
  prepare(shared);
  RingPosition position;
  if constexpr (kPersistent) {
    const unsigned a_head = tiles_a_head(problem), tiles = a_head * problem.heads;
    for (;;) {
      const unsigned ticket = draw_ticket(shared, tiles);
      if (ticket >= tiles) break;
      attend_tile(position, problem, tile_of(problem, head_of(problem, ticket / a_head), ticket % a_head), shared, at);
    }
  } else {
    const Head head = head_of_block(problem);
    if (head.q >= problem.heads) return;
    attend_tile(position, problem, tile_of(problem, head, blockIdx.x), shared, at);
  }
}

}  // namespace attention
