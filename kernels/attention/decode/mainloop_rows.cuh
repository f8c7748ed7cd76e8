// The main loop of a consumer warpgroup over its tiles of a unit, with query rows as M: S = Q·K^T,
// P = exp2(S), and O += P·V. P stays in registers, and the softmax is that of a warp: no step of a
// tile needs shared memory or a barrier of the warpgroup, but for K and V.
#pragma once

#include "include/named_barrier.cuh"
#include "include/output.cuh"
#include "include/wgmma.cuh"
#include "include/wgmma_m64k16.cuh"
#include "query.cuh"
#include "row_part.cuh"

namespace attention::decode {

constexpr int kScores = Sizes::kTileN / 2;   // of a lane: 2 rows, 2 of every 8 keys
constexpr int kPanelUnits = 8;               // units of 16 bytes in a row of a panel of 64 columns
constexpr int kPanel = Sizes::kTileN * kPanelUnits;  // of K or V
using Scores = float[kScores];

// The growth of the row max, in log2 units, that needs no rescale of O. P is then up to 2^15.
constexpr float kGrowth = 7.0f;

// Q is in registers: wgmma would read it for each tile, and the shared memory has no time for that
// beside the conversion. Head dim 256 and 128 rows have no registers for it.
constexpr bool kQInShared = Sizes::kHeadDim == 256 || Sizes::kRows == 128;

// Whether a tile is released before the scores of the next are started: the converter waits for V,
// and a consumer with one stage for the next tile.
constexpr bool kReleasesFirst =
    Sizes::kConverts || Sizes::kOperandStages == Sizes::kTileGroups;

// P in BF16 has two terms, of 8 bits each.
constexpr int kTerms = Sizes::kBf16 ? 2 : 1;

// The places of a thread. Lane 4g+t of warp w has rows 16w+g and 16w+g+8 of its 64, and columns
// 8j+2t and 8j+2t+1 of a product.
struct Lane {
  int tile_group;  // takes tiles tile_group, tile_group + kTileGroups, ...
  int first_row;   // of its 64
  int row, t;      // it has rows `row` and `row + 8` of the unit

  __device__ __forceinline__ Lane() {
    const int lane = threadIdx.x % 32, group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    tile_group = Sizes::kTileGroups == 1 ? 0 : group;
    first_row = Sizes::kRowGroups == 1 ? 0 : 64 * group;
    row = first_row + threadIdx.x / 32 % 4 * 16 + lane / 4;
    t = lane % 4;
  }

  __device__ __forceinline__ int first_tile() const { return tile_group; }
  // Whether it tells the finishers that the result is there.
  __device__ __forceinline__ bool has_result() const { return tile_group == 0; }
};

// The accumulators of the two rows of a lane.
struct RowState {
  float o[Sizes::kHeadDim / 2];
  float row_sum[2];  // of this lane's keys
  float scale[2];    // P = exp2(S * scale + shift)
  float shift[2];    // kMaxOffset - row max * scale, with the row max of an earlier tile
  float limit[2];    // a larger score needs a new row max

  __device__ __forceinline__ void clear(const float* scales, int row) {
#pragma unroll
    for (float& x : o) x = 0;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      row_sum[half] = 0;
      scale[half] = scales[row + 8 * half];
      limit[half] = -INFINITY;
      shift[half] = kUnset;
    }
  }

  // The row max that `shift` has, scaled; -inf before the first key.
  __device__ __forceinline__ float row_max(int half) const {
    return shift[half] == kUnset ? -INFINITY : kMaxOffset - shift[half];
  }

  // Takes the largest scores so far as row max. `top` has those of the lane's keys.
  __device__ __forceinline__ void raise(const float (&top)[2]) {
    float rescale[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float now = fmaxf(top[half], __shfl_xor_sync(~0u, top[half], 1));
      now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
      const float before = shift[half];
      shift[half] = fminf(before, fmaf(-now, scale[half], kMaxOffset));
      rescale[half] = ptx::ex2_approx_ftz(shift[half] - before);
      row_sum[half] *= rescale[half];
      if (shift[half] != kUnset) {
        limit[half] = __fdividef(kGrowth + kMaxOffset - shift[half], scale[half]);
      }
    }
#pragma unroll
    for (int i = 0; i < Sizes::kHeadDim / 2; i++) o[i] *= rescale[i / 2 % 2];
  }
};

// P as operand A of P·V, for every 16 keys.
struct Probabilities {
  uint32_t words[kTerms][Sizes::kTileN / 16][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& term : words) {
#pragma unroll
      for (auto& step : term) {
#pragma unroll
        for (uint32_t& word : step) word = 0;
      }
    }
  }

  __device__ __forceinline__ void fence() {
#pragma unroll
    for (auto& term : words) {
#pragma unroll
      for (auto& step : term) ptx::fence_registers(step);
    }
  }

  // Of two keys of a row.
  __device__ __forceinline__ void set(int i, float x, float y) {
    const uint32_t pair = pack_output<Sizes::kBf16>(x, y);
    words[0][i / 8][i / 2 % 4] = pair;
    if constexpr (kTerms == 2) {  // what the first term has not
      words[kTerms - 1][i / 8][i / 2 % 4] = pack_output<true>(
          x - __uint_as_float(pair << 16), y - __uint_as_float(pair & 0xFFFF0000));
    }
  }
};

// S becomes P.
__device__ __forceinline__ void softmax(const Scores& s, RowState& rows, Probabilities& p) {
  float top[2] = {s[0], s[2]};
#pragma unroll
  for (int i = 0; i < kScores; i++) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], s[i]);
  if (__any_sync(~0u, top[0] > rows.limit[0] || top[1] > rows.limit[1])) rows.raise(top);
#pragma unroll
  for (int i = 0; i < kScores; i += 2) {
    const int half = i / 2 % 2;
    const float x = ptx::ex2_approx_ftz(fmaf(s[i], rows.scale[half], rows.shift[half]));
    const float y = ptx::ex2_approx_ftz(fmaf(s[i + 1], rows.scale[half], rows.shift[half]));
    rows.row_sum[half] += x + y;
    p.set(i, x, y);
  }
}

// Masks the keys that a row does not see.
__device__ __forceinline__ void mask(Scores& s, const Params& p, const Lane& lane, int first_row,
                                     int keys_end, int tile_key) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int query = (first_row + lane.row + 8 * half) % p.queries;
    const int first = tile_key + 2 * lane.t;  // key of the lane
    const int begin = p.window_begin(keys_end, query) - first;
    const int end = p.causal_end(keys_end, query) - first;
#pragma unroll
    for (int i = 0; i < kScores; i++) {
      const int key = i / 4 * 8 + i % 2;
      if (i / 2 % 2 == half && (key < begin || key >= end)) s[i] = -INFINITY;
    }
  }
}

// Q of 64 rows: in registers as operand A, for every 16 columns, or a descriptor address.
struct Query {
  uint32_t address;
  uint32_t words[kQInShared ? 1 : Sizes::kHeadDim / 16][4];

  __device__ __forceinline__ void load(const __half* q) {
    if constexpr (kQInShared) {
      address = ptx::descriptor_address(q);
    } else {
      const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
      for (int i = 0; i < Sizes::kHeadDim / 16; i++) {
        ptx::ldmatrix_x4(words[i], ptx::shared_address(q) + i / 4 * 64 * 128 +
                                       swizzled_offset<128>(row, i % 4 * 2 + lane / 16));
      }
    }
  }

  // s += Q[:, 16i .. 16i+15] * K^T; the first product overwrites s.
  __device__ __forceinline__ void multiply(Scores& s, int i, uint64_t k) const {
    if constexpr (kQInShared) {
      const uint32_t q = address + i / 4 * 64 * kPanelUnits + 2 * (i % 4);
      ptx::wgmma_m64k16<Sizes::kBf16, 0>(s, ptx::wgmma_descriptor_swizzled<128>(q), k, i > 0);
    } else {
      ptx::wgmma_m64k16<Sizes::kBf16, 0>(s, words[i], k, i > 0);
    }
  }
};

// Where the operands of a tile are, and their barriers: those of the converter, or of TMA.
template <class Storage>
struct Operands {
  Storage& shared;
  int stage;

  __device__ __forceinline__ uint8_t* k() const {
    if constexpr (Sizes::kConverts) return shared.operands.k[stage];
    else return shared.k[stage];
  }
  __device__ __forceinline__ uint8_t* v() const {
    if constexpr (Sizes::kConverts) return shared.operands.v[stage];
    else return shared.v[stage];
  }
  __device__ __forceinline__ void wait_k(uint32_t phase) const {
    if constexpr (Sizes::kConverts) wait(&shared.operands.k_full[stage], phase);
    else wait(&shared.full[stage], phase);
  }
  __device__ __forceinline__ void wait_v(uint32_t phase) const {
    if constexpr (Sizes::kConverts) wait(&shared.operands.v_full[stage], phase);
  }
  __device__ __forceinline__ void release_k() const {
    if constexpr (Sizes::kConverts) arrive(&shared.operands.k_empty[stage]);
  }
  __device__ __forceinline__ void release_v() const {
    if constexpr (Sizes::kConverts) arrive(&shared.operands.v_empty[stage]);
    else arrive(&shared.empty[stage]);
  }
};

// The tiles of a unit that this warpgroup has: of those of the block `next` and every kTileGroups-th
// behind it.
class MainLoop {
 public:
  using State = RingState<Sizes::kOperandStages>;

  __device__ __forceinline__ MainLoop(const Params& p, SharedStorage& shared, const Lane& lane,
                                      int index)
      : p_(p), shared_(shared), lane_(lane), unit_(shared.unit[index % 2]),
        end_(unit_.cursor.keys.end), is_padding_((lane.row & ~15) >= unit_.facts.rows) {}

  // `next` becomes the first tile of the next unit.
  __device__ __forceinline__ void run(RowState& rows, State& state, int& next) {
    const int tiles = unit_.cursor.tiles_of_unit();
    Query query;
    query.load(shared_.q + lane_.first_row * Sizes::kHeadDim);
    rows.clear(unit_.scale, lane_.row);
    if (!kQInShared || next >= tiles || end_ == 0) arrive(&shared_.q_empty);
    if (next < tiles && end_ == 0) {  // the only tile of a unit without keys
      const auto tile = operands(state);
      tile.wait_k(state.phase);
      tile.release_k();
      tile.wait_v(state.phase);
      tile.release_v();
      advance(state, next);
    } else if (next < tiles) {
      Scores s;
      Probabilities probs;
      probs.clear();
      int tile_key = unit_.cursor.first_key() + next * Sizes::kTileN;
      start_scores(s, query, state);
      finish_products(s, rows, probs);
      for (;;) {
        const Tile tile = operands(state);
        const bool is_last = next + Sizes::kTileGroups >= tiles;
        tile.release_k();
        if (kQInShared && is_last) arrive(&shared_.q_empty);
        make_weights(s, rows, probs, tile_key);
        tile.wait_v(state.phase);
        if (!Sizes::kConverts && tile_key + Sizes::kTileN > end_) {
          clear_values(tile, end_ - tile_key);
        }
        start_outputs(rows, probs, tile);
        advance(state, next);
        tile_key += Sizes::kTileGroups * Sizes::kTileN;
        if (kReleasesFirst || is_last) {
          finish_products(s, rows, probs);
          tile.release_v();
          if (is_last) break;
        }
        start_scores(s, query, state);
        finish_products(s, rows, probs);
        if (!kReleasesFirst) tile.release_v();
      }
    }
    next -= tiles;
  }

 private:
  using Tile = Operands<SharedStorage>;

  __device__ __forceinline__ Tile operands(const State& state) const {
    return {shared_, state.stage};
  }

  __device__ __forceinline__ static void advance(State& state, int& next) {
    state.advance(Sizes::kTileGroups);
    next += Sizes::kTileGroups;
  }

  // S = Q·K^T of the tile at `state`.
  __device__ __forceinline__ void start_scores(Scores& s, const Query& query, const State& state) {
    const Tile tile = operands(state);
    tile.wait_k(state.phase);
    const uint32_t k = ptx::descriptor_address(tile.k());
    ptx::discard_registers(s);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < Sizes::kHeadDim / 16; i++) {
      query.multiply(s, i, ptx::wgmma_descriptor_swizzled<128>(k + i / 4 * kPanel + 2 * (i % 4)));
    }
    ptx::wgmma_commit_group();
  }

  // Waits for S of the next tile and O of this one. ptxas would serialise products of which one is
  // waited for beside the other.
  __device__ __forceinline__ static void finish_products(Scores& s, RowState& rows,
                                                         Probabilities& probs) {
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(s);
    ptx::fence_registers(rows.o);
    probs.fence();
  }

  // S becomes P.
  __device__ __forceinline__ void make_weights(Scores& s, RowState& rows, Probabilities& probs,
                                               int tile_key) const {
    if (is_padding_) {
      probs.clear();
      return;
    }
    const bool whole = tile_key >= p_.window_begin(end_, p_.queries - 1) &&
                       tile_key + Sizes::kTileN <= p_.causal_end(end_, 0);
    if (!whole) mask(s, p_, lane_, unit_.facts.first_row, end_, tile_key);
    softmax(s, rows, probs);
  }

  // Starts O += P·V.
  __device__ __forceinline__ void start_outputs(RowState& rows, Probabilities& probs,
                                                const Tile& tile) {
    const uint32_t v = ptx::descriptor_address(tile.v());
    ptx::fence_registers(rows.o);
    probs.fence();
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < Sizes::kTileN / 16; i++) {
#pragma unroll
      for (int term = 0; term < kTerms; term++) {
        ptx::wgmma_m64k16<Sizes::kBf16, 1>(
            rows.o, probs.words[term][i],
            ptx::wgmma_descriptor(v + i * 16 * kPanelUnits, 16 * kPanel, 1024) | 1ull << 62, true);
      }
    }
    ptx::wgmma_commit_group();
  }

  // V behind the last key may be anything, and 0 times NaN is NaN. All readers of the tile clear it.
  __device__ __forceinline__ void clear_values(const Tile& tile, int valid) const {
    constexpr int kThreads = Sizes::kGroupThreads * Sizes::kRowGroups;
    const int pieces = (Sizes::kTileN - valid) * kPanelUnits;  // of 16 bytes, of a panel
    for (int i = threadIdx.x % kThreads; i < pieces; i += kThreads) {
#pragma unroll
      for (int panel = 0; panel < Sizes::kHeadDim / 64; panel++) {
        uint8_t* to = tile.v() + 16 * (panel * kPanel + valid * kPanelUnits + i);
        *reinterpret_cast<uint4*>(to) = {0, 0, 0, 0};
      }
    }
    ptx::fence_proxy_async();  // wgmma reads it, and TMA writes it next
    ptx::barrier_sync(kGroupBarrier + lane_.tile_group, kThreads);
  }

  const Params& p_;
  SharedStorage& shared_;
  const Lane& lane_;
  const UnitStorage& unit_;
  const int end_;
  const bool is_padding_;  // all rows of the warp
};

// The place of a column of the result in its row: eight rows of a store are in different banks.
__device__ __forceinline__ int result_column(int row, int column) {
  return column ^ 8 * (row % 4);
}

// The result of a unit to shared memory. The second of two consumers that share the tiles leaves
// its own there, and the first merges it with its own. Returns whether the unit is the last of the
// block.
__device__ __forceinline__ bool store_result(SharedStorage& shared, const RowState& rows,
                                             const Lane& lane, const Unit& unit) {
  const int count = unit.rows;
  const bool is_last = unit.is_last;  // of the next unit when the first consumer has merged
  const bool merges = Sizes::kTileGroups == 2 && lane.tile_group == 0;
  if (merges) ptx::barrier_sync(kPairBarrier, Sizes::kConsumers);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = lane.row + 8 * half;
    const bool is_padding = row >= count;
    float row_sum = rows.row_sum[half];
    row_sum += __shfl_xor_sync(~0u, row_sum, 1);
    row_sum += __shfl_xor_sync(~0u, row_sum, 2);
    const float mine = rows.row_max(half);
    float row_max = mine, x = 1, y = 0;
    if (merges && !is_padding) {
      const float other = shared.row_max[row];
      row_max = fmaxf(mine, other);
      x = rescale(mine, row_max), y = rescale(other, row_max);
      row_sum = fmaf(shared.row_sum[row], y, row_sum * x);
    }
    __syncwarp();  // all lanes of the row have read its max and sum
    if (is_padding) continue;
    if (lane.t == 0) shared.row_max[row] = row_max, shared.row_sum[row] = row_sum;
#pragma unroll
    for (int i = 0; i < Sizes::kHeadDim / 8; i++) {
      const float a = rows.o[4 * i + 2 * half], b = rows.o[4 * i + 2 * half + 1];
      const int column = result_column(row, 8 * i + 2 * lane.t);
      float2* to = reinterpret_cast<float2*>(&shared.o[row][column]);
      *to = merges ? float2{fmaf(to->x, y, a * x), fmaf(to->y, y, b * x)} : float2{a, b};
    }
  }
  if (Sizes::kTileGroups == 2 && !merges) ptx::barrier_arrive(kPairBarrier, Sizes::kConsumers);
  return is_last;
}

// Four columns of a row of the result.
constexpr int kResults = 1;
__device__ __forceinline__ RowPart load_result(const SharedStorage& shared, int, int row,
                                               int column) {
  return {shared.row_max[row], shared.row_sum[row],
          *reinterpret_cast<const float4*>(&shared.o[row][result_column(row, column)])};
}

}  // namespace attention::decode
