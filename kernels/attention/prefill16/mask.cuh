// Which keys the rows of a tile attend to, and ALiBi, which lowers the scores of keys that are far.
#pragma once

#include <cmath>

#include "tiles.cuh"

namespace attention::prefill16 {

// The mask of the tile of a round, which lane 0 has read, for one consumer. The bounds of its rows
// stay in the ring of tiles: the main loop has no registers for them.
template <class Traits>
struct Mask : prefill::Mask<Traits> {
  using Base = prefill::Mask<Traits>;
  using Base::is_unmasked;
  using Sizes = TileSizes<Traits>;
  using Tile = prefill16::Tile<Traits>;
  using Scores = attention::Scores<Traits>;
  using Lane = attention::Lane<Traits>;
  unsigned round;

  // The keys of a tree's tokens, the last ones, need a mask.
  __device__ __forceinline__ Mask(const Problem& p, const Tile& tile, unsigned round, int consumer)
      : Base(bounds_of(tile, p.tree_mask == nullptr ? 0 : uniform(tile.queries)), consumer),
        round(round) {}

  // Masks the scores of a step, if a row does not attend to all its keys.
  __device__ __forceinline__ void apply(Scores& s, int n_block) const {
    if (is_unmasked(n_block)) return;
    Base::apply(s, [&] { return bounds_of(pingpong::read_tile<Traits>(round), 0); }, n_block);
  }

  // Masks the tokens of a tree that are no ancestors of a row's. Token t is key keys - queries + t.
  __device__ __forceinline__ void apply_tree(Scores& s, const Problem& p, int n_block) const {
    if (p.tree_mask == nullptr || is_unmasked(n_block)) return;
    const Tile tile = pingpong::read_tile<Traits>(round);
    const int queries = uniform(tile.queries), keys = uniform(tile.source.keys);
    const int first_query = uniform(tile.first_query), sequence = uniform(tile.sequence);
    const int first_row = p.cu_queries == nullptr ? sequence * p.queries : uniform(tile.first_row);
    const Lane lane;
    const int first_token = n_block * Sizes::kBlockN + 2 * lane.t - (keys - queries);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query + lane.row + 8 * half;
      const uint64_t hidden = query < queries ? ~p.tree_mask[first_row + query] : 0;
      hide(s, half, hidden, first_token);
    }
  }

  // s = s * scale - slope * distance, in log2 units, if the problem has slopes. The distance is that
  // of the key from the row's own: that of row i is key i + keys - queries.
  __device__ __forceinline__ void add_alibi(Scores& s, const Problem& p, int n_block) const {
    constexpr float kLog2e = 1.4426950408889634f;
    if (p.alibi_slopes == nullptr) return;
    const Tile tile = pingpong::read_tile<Traits>(round);
    const int own = uniform(tile.first_query) + uniform(tile.source.keys) - uniform(tile.queries);
    const int sequence = uniform(tile.sequence), head = uniform(tile.head);
    const float slope = -kLog2e * p.alibi_slopes[p.alibi_stride_batch * sequence + head];
    const Lane lane;
    const int first = own + lane.row - (n_block * Sizes::kBlockN + 2 * lane.t);
    const float distances[2] = {static_cast<float>(first), static_cast<float>(first + 8)};
#pragma unroll
    for (int i = 0; i < Sizes::kScores; ++i) {
      const int key = i / 4 * 8 + i % 2;
      s[i] = fmaf(slope, fabsf(distances[i / 2 % 2] - key), s[i] * p.score_scale_log2);
    }
  }

 private:
  __device__ __forceinline__ static int uniform(uint32_t x) { return pingpong::uniform(x); }

  // Of a tile without its last keys.
  __device__ __forceinline__ static int4 bounds_of(const Tile& tile, int last) {
    return make_int4(uniform(tile.source.keys) - last, uniform(tile.causal_key_end),
                     uniform(tile.window_begin), 0);
  }

  // Bits first .. first + 31 of x, which has zeros on both sides.
  __device__ __forceinline__ static uint32_t bits_from(uint64_t x, int first) {
    if (first <= -32 || first >= 64) return 0;
    return static_cast<uint32_t>(first < 0 ? x << -first : x >> first);
  }

  // Masks the scores of the lane's upper (half = 0) or lower row whose bit is set. Its first key is
  // that of bit `first`.
  __device__ __forceinline__ static void hide(Scores& s, int half, uint64_t hidden, int first) {
#pragma unroll
    for (int group = 0; group < Sizes::kBlockN / 32; ++group) {
      const uint32_t bits = bits_from(hidden, first + 32 * group);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int key = i / 2 * 8 + i % 2;
        if (bits >> key & 1) s[16 * group + i / 2 * 4 + 2 * half + i % 2] = -INFINITY;
      }
    }
  }
};

}  // namespace attention::prefill16
