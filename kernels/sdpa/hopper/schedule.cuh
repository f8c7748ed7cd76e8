// Which tiles a block takes, and the steps it goes through them in.
#pragma once

#include "../common/problem.cuh"
#include "../common/ptx.cuh"
#include "ring.cuh"

namespace attention {

// A block's tiles: one of each round of gridDim.x, from the first block to the last and back. With a causal mask every round has less to do from one tile
// to the next, and a block that was early in one round is late in the next. In pairs, a block has two tiles that stand together, in two rounds.
struct Turn {
  unsigned round = 0, index;

  __device__ __forceinline__ explicit Turn(bool in_pairs) : index(in_pairs ? 2 * blockIdx.x : blockIdx.x) {}
  // The same; what follows from it is found once more, and need not be kept until then.
  __device__ __forceinline__ Turn anew() const { Turn t = *this; t.index = ptx::opaque(index); return t; }
  __device__ __forceinline__ void next(bool in_pairs) {
    ++round;
    const unsigned odd = round % 2;
    index = in_pairs ? 2 * (round / 2 * gridDim.x + blockIdx.x) + odd : round * gridDim.x + (odd ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
  }
};

// Division by a number that stays, for numbers below 2^31: every tile needs some, and the divisions of integers take a hundred cycles each.
struct Divisor {
  unsigned of, reciprocal;  // the latter in units of 2^-32

  __device__ __forceinline__ explicit Divisor(unsigned of) : of(of), reciprocal(~0u) {
    if (of != 1) reciprocal /= of;
  }
  __device__ __forceinline__ unsigned quotient(unsigned x) const {
    const unsigned low = __umulhi(x, reciprocal);  // one too small at most
    return low + (x - low * of >= of);
  }
};

// The order of all tiles. Without a mask those of a head stand together. With one, the tiles that see the most keys come first, over all heads: the last
// round is then short. But each round has K and V of all heads, which the L2 may not hold; so where heads are short and many, the tile that sees the most
// keys of a head stands beside the one that sees the fewest, and so on: pairs that are all alike, head after head.
struct Schedule {
  static constexpr unsigned kMostInPairs = knob::kHeadDim > 64 ? 16 : 0;  // tiles of a head
  unsigned tiles;
  bool in_pairs;
  Divisor side_by_side, group;  // tiles or pairs of a head, or heads; heads that share a head of K and V

  __device__ __forceinline__ explicit Schedule(const Problem& p)
      : tiles(tiles_a_head(p) * p.heads),
        in_pairs(kMostInPairs > 0 && p.causal && tiles_a_head(p) % 2 == 0 && tiles_a_head(p) <= kMostInPairs && tiles >= 4 * gridDim.x && p.keys >= p.queries),
        side_by_side(in_pairs ? tiles_a_head(p) / 2 : p.causal ? p.heads : tiles_a_head(p)), group(p.group) {}

  // Only the last round may be cut short.
  __device__ __forceinline__ bool has(const Turn& turn) const { return turn.index < tiles; }

  __device__ __forceinline__ Tile tile(const Problem& p, const Turn& turn) const {
    const unsigned index = in_pairs ? turn.index / 2 : turn.index;
    const unsigned outer = side_by_side.quotient(index), inner = index - outer * side_by_side.of;
    const unsigned q = p.causal && !in_pairs ? inner : outer, place = p.causal && !in_pairs ? outer : inner;
    return tile_of(p, {q, group.quotient(q)}, in_pairs && turn.index % 2 ? 2 * side_by_side.of - 1 - place : place);
  }
};

__device__ __forceinline__ int steps_of(const Tile& tile) { return (tile.seen + kKeys - 1) / kKeys; }

// The steps of a block's tiles one after the other, each tile's from the last keys to the first: with a causal mask the last ones are those that need it.
// It ends with the first tile that sees no key: whichever come behind see none either. (In pairs, all see some.)
struct Walk {
  Turn turn;
  int step = -1, kv_head;
  Place place;

  __device__ __forceinline__ Walk(const Problem& p, const Schedule& schedule) : turn(schedule.in_pairs) { enter(p, schedule); }
  __device__ __forceinline__ bool more() const { return step >= 0; }
  __device__ __forceinline__ void next(const Problem& p, const Schedule& schedule) {
    place.advance();
    if (--step >= 0) return;
    turn.next(schedule.in_pairs);
    enter(p, schedule);
  }

 private:
  // Goes to the last step of the tile.
  __device__ __forceinline__ void enter(const Problem& p, const Schedule& schedule) {
    if (!schedule.has(turn)) return;
    const Tile tile = schedule.tile(p, turn);
    kv_head = tile.head.kv;
    step = steps_of(tile) - 1;
  }
};

}  // namespace attention
