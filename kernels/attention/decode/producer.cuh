// The producer warp: TMA loads of K and V.
#pragma once

#include "shared_storage.cuh"

namespace attention::decode {

// A lane's box of a tile in global memory. A page holds whole boxes, so a tile has kTileN / box_keys
// of them, one for each lane from the first on. Dense tiles have boxes of kBoxN keys.
struct Source {
  int valid;  // keys of the tile
  int first;  // of the box in its tile, in keys; behind the tile for a lane without a box
  int head;
  int key;   // of the box: in its page, or in its sequence
  int page;  // of the box, or its sequence

  __device__ __forceinline__ Source() {}

  __device__ __forceinline__ Source(const Params& p, const Cursor& cursor, int kv_head)
      : valid(min(cursor.keys.end - cursor.first_key(), Sizes::kTileN)),
        first(threadIdx.x % 32 * p.box_keys),
        head(kv_head) {
    if (valid == 0 || first >= Sizes::kTileN) return;
    // The page of a box that no row sees may not exist: a neighbour is loaded in its place.
    key = max(cursor.first_key() + first, cursor.keys.begin & -p.box_keys);
    key = min(key, (cursor.keys.end - 1) & -p.box_keys);
    page = cursor.sequence;
    if (p.page_table == nullptr) return;
    const int entry = key / p.page_size;
    page = __ldg(&p.page_table[static_cast<size_t>(cursor.sequence) * p.max_pages + entry]);
    key -= entry * p.page_size;
  }
};

// Loads a tile. All lanes of the producer warp call it, each for its box.
__device__ __forceinline__ void load_tile(SharedStorage& shared, const TensorMap* k_map,
                                          const TensorMap* v_map, const Source& source, int stage) {
  uint64_t* full = &shared.full[stage];
  // A tile without keys is complete at the arrival. A lane that still waited for the stage could
  // then miss its phase.
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    if constexpr (Sizes::kConverts) shared.valid[stage] = source.valid;
    if (source.valid > 0) {
      ptx::mbarrier_arrive_expect_tx(full, 2 * Sizes::kTileBytes);
    } else {
      ptx::mbarrier_arrive(full);
    }
  }
  __syncwarp();
  if (source.valid == 0 || source.first >= Sizes::kTileN) return;
#pragma unroll
  for (int d = 0; d < Sizes::kBoxesD; d++) {
    const int at = box_offset(source.first / Sizes::kBoxN, d) +
                   source.first % Sizes::kBoxN * Sizes::kBoxBytes;
    const int column = d * Sizes::kBoxColumns;
    ptx::cp_async_bulk_tensor_4d(shared.k[stage] + at, k_map, column, source.key, source.head,
                                 source.page, full);
    ptx::cp_async_bulk_tensor_4d(shared.v[stage] + at, v_map, column, source.key, source.head,
                                 source.page, full);
  }
}

// Loads the tiles of a block. A whole warp has it.
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
  // The entries of the page table of the next tile are requested before the wait, which hides their
  // latency.
  __device__ __forceinline__ Source take() {
    const Source source = next_;
    cursor_.advance(p_, 1);
    look_ahead(cursor_.at == cursor_.unit_begin);
    return source;
  }

  __device__ __forceinline__ void look_ahead(bool is_other_unit) {
    if (!cursor_.has_tile()) return;
    if (is_other_unit) head_ = cursor_.kv_head(p_);
    next_ = Source(p_, cursor_, head_);
  }

  __device__ __forceinline__ void load(int stage) {
    load_tile(shared_, k_map_, v_map_, take(), stage);
  }

  __device__ __forceinline__ void load(int stage, uint32_t phase) {
    const Source source = take();
    ptx::mbarrier_try_wait_parity(&shared_.empty[stage], phase);
    load_tile(shared_, k_map_, v_map_, source, stage);
  }

  const Params& p_;
  SharedStorage& shared_;
  const TensorMap* k_map_;
  const TensorMap* v_map_;
  Cursor cursor_;
  int head_ = 0;    // of the unit of the cursor: its division takes longer than a load
  int filled_ = 0;  // stages
  Source next_;
};

}  // namespace attention::decode
