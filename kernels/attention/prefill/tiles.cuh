// The work tiles of sequences: their order, and the keys that a row attends to.
#pragma once

#include <cmath>

#include "attention/row_state.cuh"
#include "attention/shared_storage.cuh"
#include "attention/tile_index.cuh"
#include "attention/tile_sizes.cuh"
#include "problem.cuh"

namespace attention::prefill {

// The order of all tiles. Every head has as many numbers as the longest sequence has tiles, and
// shorter sequences leave the last ones empty.
//   causal     longest tiles first, over all heads: the last round is short
//   otherwise  the tiles of a head are consecutive
//
// Only reciprocals are kept in registers. Divisors are derived from the arguments at each use.
template <class Traits>
struct TileScheduler {
  using Sizes = TileSizes<Traits>;
  const Problem& problem;
  unsigned inner;     // reciprocal of the faster dimension: tiles of a head, or heads
  unsigned group;     // reciprocal of the query heads that share a head of K and V
  unsigned kv_heads;  // reciprocal of the K/V heads of a sequence

  __device__ __forceinline__ explicit TileScheduler(const Problem& p)
      : problem(p),
        inner(Divisor(inner_divisor(p)).reciprocal),
        group(Divisor(ptx::opaque(p.group)).reciprocal),
        kv_heads(Divisor(ptx::opaque(p.kv_heads)).reciprocal) {}

  __device__ __forceinline__ bool has(const TileIndex& at) const {
    return at.index < heads(problem) * most_tiles(problem);
  }

  __device__ __forceinline__ TileIndex first(const Problem& p) const {
    TileIndex at(false);
    pass_empty(p, at);
    return at;
  }

  __device__ __forceinline__ void next(const Problem& p, TileIndex& at) const {
    at.next(false);
    pass_empty(p, at);
  }

  __device__ __forceinline__ WorkTile tile(const Problem& p, const TileIndex& at) const {
    const Place place = find(p, at);
    return work_tile<Sizes::kBlockM>(p, place.head, place.sequence, place.sequence_head,
                                     place.order);
  }

 private:
  struct Place {
    Head head;
    int sequence;
    unsigned sequence_head, order;
  };

  __device__ __forceinline__ Place find(const Problem& p, const TileIndex& at) const {
    const Divisor line(inner_divisor(p), inner);
    const unsigned quotient = line.quotient(at.index), rest = at.index - quotient * line.divisor;
    const unsigned q = p.causal ? rest : quotient, kv = Divisor(p.group, group).quotient(q);
    const unsigned sequence = Divisor(p.kv_heads, kv_heads).quotient(kv);
    return {{q, kv}, static_cast<int>(sequence), q - sequence * p.kv_heads * p.group,
            p.causal ? quotient : rest};
  }

  // Of all sequences.
  __device__ __forceinline__ static unsigned heads(const Problem& p) {
    return ptx::opaque(p.batch) * p.kv_heads * p.group;
  }
  // Of a head of the longest sequence.
  __device__ __forceinline__ static unsigned most_tiles(const Problem& p) {
    const unsigned queries = ptx::opaque(static_cast<unsigned>(p.queries));
    return tiles_of<Sizes::kBlockM>(static_cast<int>(queries));
  }
  __device__ __forceinline__ static unsigned inner_divisor(const Problem& p) {
    return p.causal ? heads(p) : max(1u, most_tiles(p));
  }

  // Only packed sequences have different numbers of tiles.
  __device__ __forceinline__ void pass_empty(const Problem& p, TileIndex& at) const {
    if (p.cu_queries == nullptr) return;
    while (has(at)) {
      const Place place = find(p, at);
      const int tiles = tiles_of<Sizes::kBlockM>(queries_of(p, place.sequence));
      if (static_cast<int>(place.order) < tiles) return;
      at.next(false);
    }
  }
};

// The mask of a work tile, for one consumer.
template <class Traits>
struct Mask {
  using Sizes = TileSizes<Traits>;
  // Every consumer attends to some key of n_block 0: the first one's window begins less than 64
  // keys behind its start, and that of the last one as many keys later as rows lie between them.
  static_assert(!Traits::kSkipMasked || 63 + Sizes::kBlockM - 64 < Sizes::kBlockN);

  // The n_blocks of which every row attends to all keys, in one register: the number of the first
  // in the low half, their count in the high half. Those that do not fit are masked.
  unsigned packed;

  __device__ __forceinline__ Mask(const Problem&, const WorkTile& tile, int consumer)
      : Mask(make_int4(tile.keys, tile.causal_key_end, tile.window_begin, 0), consumer) {}
  // Of the keys, causal_key_end and window_begin of a tile.
  __device__ __forceinline__ Mask(int4 bounds, int consumer) {
    const int begin = bounds.z + first_row<Traits>(consumer) + 63;
    const int end = min(bounds.x, bounds.y + first_row<Traits>(consumer));
    const int first = min(0xFFFF, max(0, begin + Sizes::kBlockN - 1) / Sizes::kBlockN);
    const int count = max(0, min(0xFFFF, max(0, end) / Sizes::kBlockN) - first);
    packed = first | count << 16;
  }
  __device__ __forceinline__ bool is_unmasked(int n_block) const {
    return n_block - (packed & 0xFFFF) < packed >> 16;
  }

  // Some row of a consumer attends to the last key before this; no row attends to later keys.
  __device__ __forceinline__ static int key_end_of(const Problem&, const WorkTile& tile,
                                                   int consumer) {
    return min(tile.keys, tile.causal_key_end + first_row<Traits>(consumer) + 63);
  }

  // Saves what `apply` needs. The main loop has no registers for it.
  __device__ __forceinline__ static void save(const SharedStorage<Traits>& smem,
                                              const WorkTile& tile) {
    const unsigned thread = ptx::opaque(threadIdx.x);
    if (thread % 32 == 0) {
      smem.row_keys[thread / 32 - 4] =
          make_int4(tile.keys, tile.causal_key_end, tile.window_begin, 0);
    }
    __syncwarp();
  }

  __device__ __forceinline__ static void apply(Scores<Traits>& s, const Problem&, const WorkTile&,
                                               int n_block) {
    apply(s, [] { return SharedStorage<Traits>(memory).row_keys[ptx::opaque(threadIdx.x) / 32 - 4]; },
          n_block);
  }

  // Masks a lane's scores. At head dim 64 bits change the order of instructions in unmasked steps,
  // which take 6 % longer then; at 256 there is no register to save the main loop's predicates.
  template <class Bounds>
  __device__ __forceinline__ static void apply(Scores<Traits>& s, const Bounds& bounds,
                                               int n_block) {
    constexpr bool kByBits = Sizes::kHeadDim == 128;
    const Lane<Traits> lane;
    const int first_key = n_block * Sizes::kBlockN + 2 * lane.t;  // of the lane
    const int4 mask = bounds();
    unsigned begin[2], count[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane.row + 8 * half;
      const int end = min(mask.x, mask.y + row);
      begin[half] = mask.z + row - first_key;
      count[half] = max(0, end - (mask.z + row));
      if constexpr (kByBits) mask_by_bits(s, half, mask.z + row - first_key, end - first_key);
    }
    if constexpr (!kByBits) {
      // One comparison for both ends: a key before the begin wraps around to a large number.
#pragma unroll
      for (int i = 0; i < Sizes::kScores; ++i) {
        const unsigned key = i / 4 * 8 + i % 2;
        if (key - begin[i / 2 % 2] >= count[i / 2 % 2]) s[i] = -INFINITY;
      }
    }
  }

 private:
  // How many scores of a lane's row are before a key, counted from the lane's first: of every eight
  // keys the lane has two.
  __device__ __forceinline__ static int scores_before(int key) {
    const int inside = max(0, min(key, Sizes::kBlockN));
    return inside / 8 * 2 + min(inside % 8, 2);
  }

  // At most 32 ones.
  __device__ __forceinline__ static uint32_t low_ones(int count) {
    return __funnelshift_lc(0xFFFFFFFF, 0, max(0, count));
  }

  // Masks the scores of the lane's upper (half = 0) or lower row by a bit for each. This takes half
  // as many instructions as comparisons: one moves seven bits to predicates.
  __device__ __forceinline__ static void mask_by_bits(Scores<Traits>& s, int half, int begin_key,
                                                      int end_key) {
    const int begin = scores_before(begin_key), end = scores_before(end_key);
#pragma unroll
    for (int first = 0; first < Sizes::kScores / 2; first += 32) {
      const uint32_t bits = low_ones(end - first) & ~low_ones(begin - first);
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        if (!(bits >> i & 1)) s[(first + i) / 2 * 4 + 2 * half + i % 2] = -INFINITY;
      }
    }
  }
};

}  // namespace attention::prefill
