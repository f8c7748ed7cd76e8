// Attention with the queries as the rows of both products, for problems that fill the chip with tiles of 64 queries a warpgroup.
//
//   S = Q * K^T     (queries, keys): Q in registers, K in shared memory
//   P = exp2(S - max)               rounded to E4M3 times 2^8, in the registers that the second product takes it from
//   O = P * V       (queries, D):    V^T in shared memory
//
// Roles, each with its share of the registers (setmaxnreg):
//   one warpgroup asks for tiles of K and V by tensor copies, as far ahead as the ring of KV_STAGES tiles goes, and turns V over: wgmma takes E4M3
//   operands only with the summed dimension along the row, and V comes with D along it
//   TILE_M / 64 warpgroups compute 64 rows each: the scores of one step while P * V of the step before is under way
//
// Blocks stay and take tile after tile, so that the copies for the next tile run while the last rows of one are written.
//
// Where things lie:
//   keys   a lane has scores of keys 2t, 2t+1, 8+2t, 9+2t of 16, and its P holds them as places 4t..4t+3. V^T has its keys in the same order.
//   O      row n of V^T is column 2n of 16, or 2(n-8)+1. So a lane has columns 4t..4t+3 of each 16 of O.
//   sums   eight rows of ones below V^T make the sum of P one more column of the product: the sum of what was multiplied, rounding included.
//
// The tensor cores keep 13 bits of an E4M3 sum. It leaves them after every step, TILE_N keys, and from there on is FP32.
#pragma once

#include "../common/exp2.cuh"
#include "../common/problem.cuh"
#include "../common/ptx.cuh"
#include "knobs.cuh"
#include "output.cuh"
#include "softmax.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

namespace attention {

constexpr int kConsumers = knob::kTileM / 64;  // warpgroups
constexpr int kThreads = 128 * (kConsumers + 1);
constexpr int kColumnBlocks = knob::kHeadDim / 16;
constexpr int kKeys = knob::kTileN;
constexpr int kScores = kKeys / 2;             // that a lane has
constexpr int kParts = knob::kHeadDim / 64;    // of O's columns, multiplied one after the other
constexpr int kStages = knob::kKvStages;
constexpr int kResident = 1;
constexpr int kLseKind = 2;  // the sums are of P as it was rounded

constexpr int kRowBytes = knob::kHeadDim < 128 ? knob::kHeadDim : 128;  // of a box: the widest that copies can turn
constexpr int kBoxes = knob::kHeadDim / kRowBytes;
constexpr int kBoxBytes = kKeys * kRowBytes;
constexpr int kTileBytes = kKeys * knob::kHeadDim;
constexpr int kTurnedBytes = kKeys * (knob::kHeadDim + 8);  // V^T and the rows of ones

struct Barriers {
  uint64_t k_full[kStages], k_empty[kStages];
  uint64_t v_full[kStages], v_empty[kStages];
  uint64_t turned_full[kStages], turned_empty[kStages];
};

// Every operand begins at a multiple of 1024 bytes: copies and products turn the pieces of a row by its address.
constexpr int kQBytes = knob::kQInShared ? knob::kTileM * knob::kHeadDim : 0;
constexpr int kDynamicBytes = kQBytes + kStages * (2 * kTileBytes + kTurnedBytes) + sizeof(Barriers);

struct Ring {
  unsigned char* q;       // (warpgroups, boxes, 64, row bytes)
  unsigned char* k;       // (stages, boxes, keys, row bytes)
  unsigned char* v;       // (stages, boxes, keys, row bytes)
  unsigned char* turned;  // (stages, D + 8, keys)
  Barriers* barrier;

  __device__ __forceinline__ explicit Ring(unsigned char* memory)
      : q(memory), k(q + kQBytes), v(k + kStages * kTileBytes), turned(v + kStages * kTileBytes),
        barrier(reinterpret_cast<Barriers*>(turned + kStages * kTurnedBytes)) {}
};

// Where in the ring a role is. A place is full in phase 0 when it has been filled once; it is empty before that, in the phase before.
struct Place {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
};

// ---- which tiles a block takes -------------------------------------------------------------------------------------------

// A block's tiles: one of each round of gridDim.x, from the first block to the last and back. With a causal mask every round has less to do from one tile
// to the next, and a block that was early in one round is late in the next.
struct Turn {
  unsigned round = 0, index = blockIdx.x;
  __device__ __forceinline__ void next() {
    ++round;
    index = round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
  }
};

// The order of all tiles. Without a mask those of a head stand together. With one, the tiles that see the most keys come first, over all heads.
struct Schedule {
  unsigned tiles, blocks;  // in all; of a head
  unsigned reciprocal;     // of the heads that share a head of K and V, in units of 2^-32

  __device__ __forceinline__ explicit Schedule(const Problem& p) : blocks(tiles_a_head(p)), reciprocal(~0u) {
    tiles = blocks * p.heads;
    if (p.group != 1) reciprocal /= p.group;
  }

  // Only the last round may be cut short.
  __device__ __forceinline__ bool has(const Turn& turn) const { return turn.index < tiles; }

  __device__ __forceinline__ Tile tile(const Problem& p, const Turn& turn) const {
    const unsigned side_by_side = p.causal ? p.heads : blocks, outer = turn.index / side_by_side, inner = turn.index % side_by_side;
    return p.causal ? tile_of(p, head(p, inner), outer) : tile_of(p, head(p, outer), inner);
  }

 private:
  // A division without a division, one too small at most for heads below 2^31.
  __device__ __forceinline__ Head head(const Problem& p, unsigned q) const {
    const unsigned kv = __umulhi(q, reciprocal);
    return {q, kv + (q - kv * p.group >= p.group)};
  }
};

__device__ __forceinline__ int steps_of(const Tile& tile) { return (tile.seen + kKeys - 1) / kKeys; }

// The steps of a block's tiles one after the other, each tile's from the last keys to the first: with a causal mask the last ones are those that need it.
struct Walk {
  Turn turn;
  int step, kv_head;
  Place place;

  __device__ __forceinline__ Walk(const Problem& p, const Schedule& schedule) { enter(p, schedule); }
  __device__ __forceinline__ bool more(const Schedule& schedule) const { return schedule.has(turn); }
  __device__ __forceinline__ void next(const Problem& p, const Schedule& schedule) {
    place.next();
    if (--step >= 0) return;
    turn.next();
    enter(p, schedule);
  }

 private:
  // Goes to the last step of the tile, or of the next one that has any.
  __device__ __forceinline__ void enter(const Problem& p, const Schedule& schedule) {
    for (; more(schedule); turn.next()) {
      const Tile tile = schedule.tile(p, turn);
      kv_head = tile.head.kv;
      step = steps_of(tile) - 1;
      if (step >= 0) return;
    }
  }
};

// ---- the warps that bring K and V ----------------------------------------------------------------------------------------

__device__ __forceinline__ void copy_tile(unsigned char* to, const TensorMap* map, const Walk& at, uint64_t* full) {
  ptx::mbarrier_arrive_expect_tx(full, kTileBytes);
#pragma unroll
  for (int box = 0; box < kBoxes; ++box) ptx::cp_async_bulk_tensor_3d(to + box * kBoxBytes, map, box * kRowBytes, at.step * kKeys, at.kv_head, full);
}

// Asks for K and V of a step when the places for them are empty. One thread.
__device__ __forceinline__ void bring(const Ring& ring, const Walk& at, const TensorMap* k_map, const TensorMap* v_map) {
  const int stage = at.place.stage;
  ptx::mbarrier_try_wait_parity(&ring.barrier->k_empty[stage], at.place.phase ^ 1);
  copy_tile(ring.k + stage * kTileBytes, k_map, at, &ring.barrier->k_full[stage]);
  ptx::mbarrier_try_wait_parity(&ring.barrier->v_empty[stage], at.place.phase ^ 1);
  copy_tile(ring.v + stage * kTileBytes, v_map, at, &ring.barrier->v_full[stage]);
}

// (kKeys, 16 columns) of V to (16 rows, kKeys) of V^T, by one warp.
__device__ __forceinline__ void turn_columns(unsigned char* turned, const unsigned char* v, int column_block) {
  constexpr int kKeyBlocks = kKeys / 32;
  const int lane = threadIdx.x % 32, row = 16 * column_block + lane % 16;
  const unsigned char* from = v + 16 * column_block / kRowBytes * kBoxBytes + turned_place<kRowBytes>(lane, column_block % (kRowBytes / 16));
  // Four matrices of 8 keys by 8 pairs of columns, turned: a lane has pair g of keys 2t and 2t+1 of each.
  uint32_t pairs[kKeyBlocks][4];
#pragma unroll
  for (int block = 0; block < kKeyBlocks; ++block) ptx::ldmatrix_x4_trans(pairs[block], from + 32 * block * kRowBytes);
#pragma unroll
  for (int block = 0; block < kKeyBlocks; ++block) {
    const uint32_t(&pair)[4] = pairs[block];
    ptx::stmatrix_x4(turned + turned_place<kKeys>(row, 2 * block + lane / 16), __byte_perm(pair[0], pair[1], 0x6420), __byte_perm(pair[0], pair[1], 0x7531),
                     __byte_perm(pair[2], pair[3], 0x6420), __byte_perm(pair[2], pair[3], 0x7531));
  }
}

// One warpgroup. Its first thread asks for the tiles, as far ahead as there are places in the ring; the one that is `ahead` it has asked for.
__device__ __forceinline__ void produce(const Problem& p, const Schedule& schedule, const Ring& ring, const TensorMap* k_map, const TensorMap* v_map, Walk& ahead) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Walk at = ahead;
  for (int stage = 1; stage < kStages && ahead.more(schedule); ++stage) {
    ahead.next(p, schedule);
    if (threadIdx.x == 0 && ahead.more(schedule)) bring(ring, ahead, k_map, v_map);
  }
  if (ahead.more(schedule)) ahead.next(p, schedule);
  __syncwarp();
  for (; at.more(schedule); at.next(p, schedule)) {
    const int stage = at.place.stage;
    ptx::mbarrier_try_wait_parity(&ring.barrier->turned_empty[stage], at.place.phase ^ 1);
    ptx::mbarrier_try_wait_parity(&ring.barrier->v_full[stage], at.place.phase);
#pragma unroll 1
    for (int block = 0; block < kColumnBlocks; block += 4) {
      turn_columns(ring.turned + stage * kTurnedBytes, ring.v + stage * kTileBytes, block + warp);
    }
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) {
      ptx::mbarrier_arrive(&ring.barrier->turned_full[stage]);
      ptx::mbarrier_arrive(&ring.barrier->v_empty[stage]);
    }
    if (ahead.more(schedule)) {
      if (threadIdx.x == 0) bring(ring, ahead, k_map, v_map);
      ahead.next(p, schedule);
    }
    __syncwarp();
  }
}

// The rows of ones below V^T, of every stage, by the warpgroups that compute. No one writes there again.
__device__ __forceinline__ void write_ones(const Ring& ring) {
  constexpr uint32_t kOnes = 0x38383838;  // 1.0 in E4M3, four times
  constexpr int kPieces = 8 * kKeys / 16;  // of 16 bytes
  for (int i = threadIdx.x - 128; i < kStages * kPieces; i += kThreads - 128) {
    unsigned char* rows = ring.turned + i / kPieces * kTurnedBytes + kKeys * knob::kHeadDim;
    reinterpret_cast<uint4*>(rows)[i % kPieces] = make_uint4(kOnes, kOnes, kOnes, kOnes);
  }
}

// ---- the warpgroups that compute -----------------------------------------------------------------------------------------

struct Lane {
  int g, t;  // 4g + t is its number
  int row;   // of the tile: its first of two, eight apart
  __device__ Lane() : g(threadIdx.x % 32 / 4), t(threadIdx.x % 4), row((threadIdx.x / 32 - 4) * 16 + g) {}
};

// (64, D) of Q, as the first operand of a product for every 32 columns: in the lanes' registers, or in shared memory where those are needed for O.
struct Queries {
  uint32_t words[knob::kQInShared ? 1 : knob::kHeadDim / 32][4];  // (2 rows, D) of a lane
  unsigned char* shared;                                          // (boxes, 64, row bytes), turned as a copy would do it

  __device__ __forceinline__ explicit Queries(unsigned char* q) : shared(q + (threadIdx.x / 128 - 1) * 64 * knob::kHeadDim) {}

  // Rows behind the last are read as the last, and not written.
  __device__ __forceinline__ void load(const Tile& tile, const Lane& lane, int queries) {
    if constexpr (knob::kQInShared) {
      const int thread = threadIdx.x % 128, first = tile.first_query + (threadIdx.x / 128 - 1) * 64;
      uint4 piece[kColumnBlocks / 2];
#pragma unroll
      for (int i = 0; i < kColumnBlocks / 2; ++i) {
        const int row = min(first + (128 * i + thread) / kColumnBlocks, queries - 1);
        piece[i] = *reinterpret_cast<const uint4*>(tile.q + static_cast<size_t>(row) * knob::kHeadDim + 16 * (thread % kColumnBlocks));
      }
      sync();  // the products of the tile before have read theirs
#pragma unroll
      for (int i = 0; i < kColumnBlocks / 2; ++i) {
        const int row = (128 * i + thread) / kColumnBlocks, column = 16 * (thread % kColumnBlocks);
        *reinterpret_cast<uint4*>(shared + column / kRowBytes * 64 * kRowBytes + turned_place<kRowBytes>(row, column % kRowBytes / 16)) = piece[i];
      }
      ptx::fence_proxy_async();
      sync();
    } else {
      const uint8_t* upper = tile.q + static_cast<size_t>(min(tile.first_query + lane.row, queries - 1)) * knob::kHeadDim + 4 * lane.t;
      const uint8_t* lower = tile.q + static_cast<size_t>(min(tile.first_query + lane.row + 8, queries - 1)) * knob::kHeadDim + 4 * lane.t;
#pragma unroll
      for (int i = 0; i < knob::kHeadDim / 32; ++i) {
        words[i][0] = *reinterpret_cast<const uint32_t*>(upper + 32 * i);
        words[i][1] = *reinterpret_cast<const uint32_t*>(lower + 32 * i);
        words[i][2] = *reinterpret_cast<const uint32_t*>(upper + 32 * i + 16);
        words[i][3] = *reinterpret_cast<const uint32_t*>(lower + 32 * i + 16);
      }
    }
  }

 private:
  __device__ __forceinline__ void sync() const { ptx::barrier_sync(threadIdx.x / 128, 128); }
};

// s (64, kKeys) = Q (64, D) * K (kKeys, D)^T.
__device__ __forceinline__ void multiply_keys(float (&s)[kScores], const Queries& q, uint32_t k) {
  ptx::hold(s);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < knob::kHeadDim / 32; ++i) {
    const int box = 32 * i / kRowBytes, column = 32 * i % kRowBytes;
    const uint64_t b = ptx::wgmma_descriptor_swizzled<kRowBytes>(k + box * kBoxBytes + column);
    if constexpr (knob::kQInShared) {
      const uint32_t at = ptx::shared_address(q.shared) + box * 64 * kRowBytes + column;
      ptx::wgmma_m64k32_e4m3<kKeys>(s, ptx::wgmma_descriptor_swizzled<kRowBytes>(at), b, i > 0);
    } else {
      ptx::wgmma_m64k32_e4m3<kKeys>(s, q.words[i], b, i > 0);
    }
  }
  ptx::wgmma_commit_group();
}

// (64, kKeys) of P, as the first operand of a product for every 32 keys.
struct Weights {
  uint32_t of[kKeys / 32][4];

  __device__ __forceinline__ void pack(const float (&s)[kScores]) {
#pragma unroll
    for (int i = 0; i < kKeys / 32; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int first = 16 * i + r / 2 * 8 + r % 2 * 2;  // of two blocks of eight keys, the upper or the lower row
        const uint32_t low = ptx::cvt_rn_satfinite_e4m3x2_f32(s[first], s[first + 1]);
        const uint32_t high = ptx::cvt_rn_satfinite_e4m3x2_f32(s[first + 4], s[first + 5]);
        of[i][r] = low | high << 16;
      }
    }
  }
};

// d (64, kColumns) = P (64, kKeys) * V (kKeys, kColumns), from a row of V^T on.
template <int kColumns>
__device__ __forceinline__ void multiply_values(float (&d)[kColumns / 2], const Weights& p, uint32_t turned) {
  ptx::hold(d);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < kKeys / 32; ++i) {
    ptx::wgmma_m64k32_e4m3<kColumns>(d, p.of[i], ptx::wgmma_descriptor_swizzled<kKeys>(turned + 32 * i), i > 0);
  }
  ptx::wgmma_commit_group();
}

// What a lane knows of its two rows: the greatest score so far, and the rows of O and the sum of P relative to it.
struct Rows {
  float greatest[2];
  float sum[2];
  float o[kParts][32];
  float keep[2];  // what of the sums before the last step remains

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int half = 0; half < 2; ++half) greatest[half] = -INFINITY, sum[half] = 0.0f;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < 32; ++i) o[part][i] = 0.0f;
    }
  }
};

// Of the keys of a step a lane's rows see those before `end`, counted from the lane's first.
__device__ __forceinline__ void mask(float (&s)[kScores], const int (&end)[2]) {
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    if (i / 4 * 8 + i % 2 >= end[i / 2 % 2]) s[i] = -INFINITY;
  }
}

// The greatest score of each row with this step's: `base` is what is added to a scaled score, `keep` what remains of earlier sums.
__device__ __forceinline__ void raise(const float (&s)[kScores], Rows& rows, float (&base)[2], float (&keep)[2], float factor) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float greatest = rows.greatest[half];
#pragma unroll
    for (int i = 0; i < kScores; i += 4) greatest = fmaxf(greatest, fmaxf(s[i + 2 * half], s[i + 2 * half + 1]));
    greatest = fmaxf(greatest, __shfl_xor_sync(0xFFFFFFFF, greatest, 1));
    greatest = fmaxf(greatest, __shfl_xor_sync(0xFFFFFFFF, greatest, 2));
    const float anchor = anchor_of(greatest, factor);
    keep[half] = ptx::ex2_approx_ftz(fmaf(rows.greatest[half], factor, -anchor));
    rows.greatest[half] = greatest;
    base[half] = kShift - anchor;
  }
}

__device__ __forceinline__ void exponentiate(float (&s)[kScores], const float (&base)[2], float factor) {
#pragma unroll
  for (int i = 0; i < kScores; ++i) s[i] = exp2_of<knob::kPolynomialEighths>(fmaf(s[i], factor, base[i / 2 % 2]), i);
}

__device__ __forceinline__ void add(float (&total)[32], const float* step, const float (&keep)[2]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) total[i] = fmaf(total[i], keep[i / 2 % 2], step[i]);
}

template <int kPart>
__device__ __forceinline__ void add_part(Rows& rows, const float* step) {
  add(rows.o[kPart], step, rows.keep);

  if constexpr (kPart == kParts - 1) {
#pragma unroll
    for (int half = 0; half < 2; ++half) rows.sum[half] = fmaf(rows.sum[half], rows.keep[half], step[32 + 2 * half]);
  }
}

// O and the sums of P of one step, in parts of 64 columns; the sums come with the last. `ahead` is done while the first part is multiplied. If there are two,
// the second is multiplied while the first is added; for more there are no registers.
template <int kPart, typename Ahead>
__device__ __forceinline__ void multiply_part(Rows& rows, const Weights& p, uint32_t turned, Ahead ahead) {
  constexpr int kColumns = kPart == kParts - 1 ? 72 : 64;
  float step[kColumns / 2];
  multiply_values<kColumns>(step, p, turned + 64 * kPart * kKeys);
  ahead();
  if constexpr (kParts == 2 && kPart == 0) {
    float last[36];
    multiply_values<72>(last, p, turned + 64 * kKeys);
    ptx::wgmma_wait_group<1>();
    ptx::hold(step);
    add_part<0>(rows, step);
    ptx::wgmma_wait_group<0>();
    ptx::hold(last);
    add_part<1>(rows, last);
  } else {
    ptx::wgmma_wait_group<0>();
    ptx::hold(step);
    add_part<kPart>(rows, step);
    if constexpr (kPart < kParts - 1) multiply_part<kPart + 1>(rows, p, turned, [] {});
  }
}

// `now`, which is not negative, must be known before. The assembler keeps the order of arrivals and waits, but not of arithmetic and waits.
__device__ __forceinline__ void arrive_warp(uint64_t* barrier, float now = 0.0f) {
  __syncwarp();
  if (threadIdx.x % 32 == 0 && !(now < 0.0f)) ptx::mbarrier_arrive(barrier);
}

__device__ __forceinline__ void write(const Rows& rows, const Tile& tile, const Lane& lane, const Factors& factors, int queries) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = tile.first_query + lane.row + 8 * half;
    const float share = rows.sum[half] > 0.0f ? factors.out * ptx::rcp_approx_ftz(rows.sum[half]) : 0.0f;  // a query that sees no key has 0
    uint16_t* row = tile.o + static_cast<size_t>(query) * knob::kHeadDim + 4 * lane.t;
    if (query >= queries) continue;
    if constexpr (knob::kLse) {
      if (lane.t == 0) tile.lse[query] = log_sum_exp(rows.sum[half], anchor_of(rows.greatest[half], factors.scores_log2));
    }
#pragma unroll
    for (int i = 0; i < knob::kHeadDim / 16; ++i) {
      const float* o = &rows.o[i / 4][i % 4 * 8 + 2 * half];
      *reinterpret_cast<uint2*>(row + 16 * i) = make_uint2(output_pair(o[0] * share, o[4] * share), output_pair(o[1] * share, o[5] * share));
    }
  }
}

// The steps of a tile from the last keys to the first. `start` waits for the barriers: where one warpgroup computes alone, and problems are short, Q is
// asked for before. More of them get their registers there, and the compiler does better with nothing in them yet.
template <typename Start>
__device__ __forceinline__ void compute(const Problem& p, const Ring& ring, Start start) {
  if constexpr (kConsumers > 1) start();
  const Schedule schedule(p);
  const Lane lane;
  Place k_place, v_place;
  Queries q(ring.q);
  Turn turn;
  if (schedule.has(turn)) q.load(schedule.tile(p, turn), lane, p.queries);
  if constexpr (kConsumers == 1) start();
  while (schedule.has(turn)) {
    const Tile tile = schedule.tile(p, turn);
    const Factors factors = factors_of(p, tile.head);
    // What the lane's two rows see, and the least that one of its warpgroup's does.
    const int seen[2] = {p.causal ? min(p.keys, tile.visible + lane.row) : p.keys, p.causal ? min(p.keys, tile.visible + lane.row + 8) : p.keys};
    const int all_see = p.causal ? min(p.keys, tile.visible + (threadIdx.x / 128 - 1) * 64) : p.keys;
    Rows rows;
    rows.clear();
    float s[kScores];
    Weights weights;

    // The place of K is given back only when the greatest scores are known, so that these are found while P * V is under way: else the assembler
    // would wait for that first.
    const auto weigh = [&](int step, float (&keep)[2]) {
      ptx::hold(s);
      if ((step + 1) * kKeys > all_see) {
        const int end[2] = {seen[0] - step * kKeys - 2 * lane.t, seen[1] - step * kKeys - 2 * lane.t};
        mask(s, end);
      }
      float base[2];
      raise(s, rows, base, keep, factors.scores_log2);
      arrive_warp(&ring.barrier->k_empty[k_place.stage], keep[0] + keep[1]);
      k_place.next();
      exponentiate(s, base, factors.scores_log2);
    };
    const auto ask_scores = [&] {
      ptx::mbarrier_try_wait_parity(&ring.barrier->k_full[k_place.stage], k_place.phase);
      multiply_keys(s, q, ptx::shared_address(ring.k + k_place.stage * kTileBytes));
    };
    const auto values_of = [&] {
      ptx::mbarrier_try_wait_parity(&ring.barrier->turned_full[v_place.stage], v_place.phase);
      return ptx::shared_address(ring.turned + v_place.stage * kTurnedBytes);
    };
    const auto values_done = [&] {
      arrive_warp(&ring.barrier->turned_empty[v_place.stage]);
      v_place.next();
    };

    int step = steps_of(tile) - 1;
    if constexpr (knob::kSkipMasked) {
      const int one_sees = p.causal ? min(p.keys, tile.visible + (threadIdx.x / 128 - 1) * 64 + 63) : p.keys;
#pragma unroll 1
      for (; step >= 0 && step * kKeys >= one_sees; --step) {
        ptx::mbarrier_try_wait_parity(&ring.barrier->k_full[k_place.stage], k_place.phase);
        arrive_warp(&ring.barrier->k_empty[k_place.stage]);
        k_place.next();
        values_of();
        values_done();
      }
    }
    if constexpr (knob::kOverlap) {
      if (step >= 0) {
        ask_scores();
        ptx::wgmma_wait_group<0>();
        weigh(step, rows.keep);
        weights.pack(s);
      }
#pragma unroll 1
      for (; step > 0; --step) {
        float keep[2];
        ask_scores();
        multiply_part<0>(rows, weights, values_of(), [&] {
          ptx::wgmma_wait_group<1>();
          weigh(step - 1, keep);
        });
        values_done();
        rows.keep[0] = keep[0], rows.keep[1] = keep[1];
        weights.pack(s);
      }
      if (step == 0) {
        multiply_part<0>(rows, weights, values_of(), [] {});
        values_done();
      }
    } else {
#pragma unroll 1
      for (; step >= 0; --step) {
        ask_scores();
        ptx::wgmma_wait_group<0>();
        weigh(step, rows.keep);
        weights.pack(s);
        multiply_part<0>(rows, weights, values_of(), [] {});
        values_done();
      }
    }
    // The products have read Q of this tile; that of the next one comes while O is written.
    turn.next();
    if (schedule.has(turn)) q.load(schedule.tile(p, turn), lane, p.queries);
    write(rows, tile, lane, factors, p.queries);
  }
}

// ---- the kernel ----------------------------------------------------------------------------------------------------------

// By one thread.
__device__ __forceinline__ void initialize(Barriers& barrier) {
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) {
    ptx::mbarrier_init(&barrier.k_full[stage], 1);
    ptx::mbarrier_init(&barrier.k_empty[stage], 4 * kConsumers);
    ptx::mbarrier_init(&barrier.v_full[stage], 1);
    ptx::mbarrier_init(&barrier.v_empty[stage], 4);
    ptx::mbarrier_init(&barrier.turned_full[stage], 4);
    ptx::mbarrier_init(&barrier.turned_empty[stage], 4 * kConsumers);
  }
  ptx::fence_mbarrier_init();
}

// All threads of the block, from different places in the code: __syncthreads would have to be one for all.
__device__ __forceinline__ void meet() { ptx::barrier_sync(0, kThreads); }

constexpr int kProducerRegisters = knob::kHeadDim == 256 ? 40 : 56;
constexpr int kConsumerRegisters = kConsumers == 3 ? 152 : knob::kHeadDim == 256 ? 232 : 224;

// The first copies are asked for before anything else is done, by the thread that has made their barriers.
__device__ __forceinline__ void attend(const Problem& problem, const TensorMap* k_map, const TensorMap* v_map) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const Ring ring(memory);
  if (threadIdx.x < 128) {
    if (threadIdx.x == 0) {
      ptx::prefetch_tensormap(k_map);
      ptx::prefetch_tensormap(v_map);
      initialize(*ring.barrier);
    }
    const Schedule schedule(problem);
    Walk ahead(problem, schedule);
    if (threadIdx.x == 0 && ahead.more(schedule)) bring(ring, ahead, k_map, v_map);
    meet();
    if constexpr (kConsumers > 1) ptx::setmaxnreg_dec<kProducerRegisters>();
    produce(problem, schedule, ring, k_map, v_map, ahead);
  } else {
    write_ones(ring);
    ptx::fence_proxy_async();
    compute(problem, ring, [] {
      meet();
      if constexpr (kConsumers > 1) ptx::setmaxnreg_inc<kConsumerRegisters>();
    });
  }
}

}  // namespace attention
