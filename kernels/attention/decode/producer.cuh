// The producer warp: TMA loads of K and V.
#pragma once

#include "shared_storage.cuh"

namespace attention::decode {

// Boxes of a tile in global memory. A page holds whole boxes. Where they have kBoxN keys one lane has
// all of a tile. Those of smaller pages are kTileN / box_keys, one for each lane from the first on.
template <bool kSmallBoxes>
struct Source {
  static constexpr int kBoxes = kSmallBoxes ? 1 : Sizes::kBoxesN;
  int valid;  // keys of the tile
  int head;
  int key[kBoxes];   // of a box: in its page, or in its sequence
  int page[kBoxes];  // of a box: its page, or its sequence

  __device__ __forceinline__ Source() {}

  __device__ __forceinline__ Source(const Params& p, const Cursor& cursor, int kv_head)
      : valid(min(cursor.keys.end - cursor.first_key(), Sizes::kTileN)), head(kv_head) {
    if (valid == 0) return;
#pragma unroll
    for (int i = 0; i < kBoxes; i++) {
      const int first = first_of(p, i);
      if (first >= Sizes::kTileN) return;
      // The page of a box that no row sees may not exist: a neighbour is loaded in its place.
      key[i] = max(cursor.first_key() + first, cursor.keys.begin & -box_keys(p));
      key[i] = min(key[i], (cursor.keys.end - 1) & -box_keys(p));
      page[i] = cursor.sequence;
      if (!kSmallBoxes && p.page_table == nullptr) continue;
      const int entry = key[i] / p.page_size;
      page[i] = __ldg(&p.page_table[static_cast<size_t>(cursor.sequence) * p.max_pages + entry]);
      key[i] -= entry * p.page_size;
    }
  }

  __device__ __forceinline__ static int box_keys(const Params& p) {
    return kSmallBoxes ? p.box_keys : Sizes::kBoxN;
  }
  // The first key of a box in its tile; behind the tile for a lane without a box.
  __device__ __forceinline__ static int first_of(const Params& p, int i) {
    return kSmallBoxes ? threadIdx.x % 32 * p.box_keys : i * Sizes::kBoxN;
  }
};

// Loads the tiles of a block. One lane has it, or for small boxes the whole warp.
template <bool kSmallBoxes>
class Producer {
 public:
  __device__ __forceinline__ Producer(const Params& p, SharedStorage& shared,
                                      const TensorMap* k_map, const TensorMap* v_map,
                                      const Cursor& cursor)
      : p_(p), shared_(shared), k_map_(k_map), v_map_(v_map), cursor_(cursor) {
    look_ahead(true);
  }

  // Fills the empty stages up to `end`. That needs no consumers, so the block need not have
  // synchronised.
  __device__ __forceinline__ void fill(int end) {
    for (; filled_ < end && cursor_.has_tile(); filled_++) load(filled_);
  }

  // Fills each stage again when the consumers have released it.
  __device__ __forceinline__ void refill() {
    KvState state = {0};
    while (cursor_.has_tile()) {
      load(state.stage, state.phase);
      state.advance(1);
    }
  }

 private:
  using Boxes = Source<kSmallBoxes>;

  // The entries of the page table of the next tile are requested before the wait, which hides their
  // latency.
  __device__ __forceinline__ Boxes take() {
    const Boxes source = next_;
    cursor_.advance(p_, 1);
    look_ahead(cursor_.at == cursor_.unit_begin);
    return source;
  }

  __device__ __forceinline__ void look_ahead(bool is_other_unit) {
    if (!cursor_.has_tile()) return;
    if (is_other_unit) head_ = cursor_.kv_head(p_);
    next_ = Boxes(p_, cursor_, head_);
  }

  __device__ __forceinline__ void load(int stage) { load_tile(take(), stage); }

  __device__ __forceinline__ void load(int stage, uint32_t phase) {
    const Boxes source = take();
    ptx::mbarrier_try_wait_parity(&shared_.empty[stage], phase);
    load_tile(source, stage);
  }

  __device__ __forceinline__ void load_tile(const Boxes& source, int stage) {
    // A tile without keys is complete at the arrival. A lane that still waited for the stage could
    // then miss its phase.
    if constexpr (kSmallBoxes) __syncwarp();
    if (!kSmallBoxes || threadIdx.x % 32 == 0) announce(source.valid, stage);
    if constexpr (kSmallBoxes) __syncwarp();
    if (source.valid == 0) return;
#pragma unroll
    for (int i = 0; i < Boxes::kBoxes; i++) {
      const int first = Boxes::first_of(p_, i);
      if (first < Sizes::kTileN) load_box(source, i, first, stage);
    }
  }

  __device__ __forceinline__ void announce(int valid, int stage) {
    if constexpr (Sizes::kConverts) shared_.valid[stage] = valid;
    if (valid > 0) {
      ptx::mbarrier_arrive_expect_tx(&shared_.full[stage], 2 * Sizes::kTileBytes);
    } else {
      ptx::mbarrier_arrive(&shared_.full[stage]);
    }
  }

  __device__ __forceinline__ void load_box(const Boxes& source, int i, int first, int stage) {
    uint64_t* full = &shared_.full[stage];
#pragma unroll
    for (int d = 0; d < Sizes::kBoxesD; d++) {
      const int at = box_offset(first / Sizes::kBoxN, d) + first % Sizes::kBoxN * Sizes::kBoxBytes;
      const int column = d * Sizes::kBoxColumns;
      ptx::cp_async_bulk_tensor_4d(shared_.k[stage] + at, k_map_, column, source.key[i],
                                   source.head, source.page[i], full);
      ptx::cp_async_bulk_tensor_4d(shared_.v[stage] + at, v_map_, column, source.key[i],
                                   source.head, source.page[i], full);
    }
  }

  const Params& p_;
  SharedStorage& shared_;
  const TensorMap* k_map_;
  const TensorMap* v_map_;
  Cursor cursor_;
  int head_ = 0;    // of the unit of the cursor: its division takes longer than a load
  int filled_ = 0;  // stages
  Boxes next_;
};

}  // namespace attention::decode
