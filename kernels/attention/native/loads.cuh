// The TMA loads of Q, K and V, by maps of four dimensions: column, row, head, batch.
#pragma once

#include "include/ptx.cuh"
#include "include/tma.cuh"
#include "storage.cuh"

namespace attention::native {

// Issues the loads of kRows rows, 64 columns a box.
template <int kRows>
__device__ __forceinline__ void issue_box_loads(unsigned char* shared, const TensorMap* map,
                                                int row, unsigned head, unsigned batch,
                                                uint64_t* full) {
#pragma unroll
  for (int box = 0; box < Sizes::kHeadDim / 64; ++box) {
    ptx::cp_async_bulk_tensor_4d(shared + box * kRows * 128, map, box * 64, row, head, batch, full);
  }
}

// The loads of all steps of a team, in their order. There is no producer, whose warps would leave
// the others fewer registers: in every step another warp issues the loads of a later one, into the
// stage that all warps have released in the step before. So it comes after the warp of that step,
// and the position can be in shared memory.
struct Loads {
  static constexpr int kEnd = -2;  // n_block behind the last tile

  const Problem& p;
  const TensorMap *q_map, *k_map, *v_map;

  // Where the loads begin, and those of the first step. One thread.
  __device__ __forceinline__ void start() const {
    Storage::scheduler() = TileScheduler(p);
    Cursor at = {0, -1, 0, 0};
    if (!enter_tile(at)) return end(0);
#pragma unroll 1
    for (int consumer = 0; consumer < Sizes::kConsumers; ++consumer) {
      issue_query(Storage::tile(0), consumer);
    }
    issue_step(at, 0);
  }
  // Those of the next steps. One thread. The first step issues those of the last stage.
  __device__ __forceinline__ void fill() const {
#pragma unroll 1
    for (int stage = 1; stage < Sizes::kStages - 1; ++stage) issue(stage);
  }

  // Issues the loads of the next step, if there is one, into its stage. One thread.
  __device__ __forceinline__ void issue(int stage) const {
    Cursor at = Storage::cursor();
    if (at.n_block == kEnd) return;
    if (at.n_block < 0 && !enter_tile(at)) return end(stage);
    issue_step(at, stage);
  }

  // Issues the loads of Q (64, D) of a consumer. One thread. Rows beyond the last query are zeros;
  // their results are not stored.
  __device__ __forceinline__ void issue_query(const Tile& tile, int consumer) const {
    uint64_t* full = &Storage::barriers().q_full[consumer];
    ptx::mbarrier_arrive_expect_tx(full, kQBytes);
    issue_box_loads<64>(Storage::q() + consumer * kQBytes, q_map,
                                 tile.first_query + 64 * consumer, tile.head, tile.batch, full);
  }

 private:
  // K and V of the step at a position, which then moves on.
  __device__ __forceinline__ void issue_step(Cursor at, int stage) const {
    uint64_t* full = &Storage::barriers().full[stage];
    const int first_key = at.n_block * Sizes::kBlockN, to = stage * kTileBytes;
    --at.n_block;
    Storage::cursor() = at;
    ptx::mbarrier_arrive_expect_tx(full, 2 * kTileBytes);
    issue_box_loads<Sizes::kBlockN>(Storage::k() + to, k_map, first_key, at.kv_head,
                                             at.batch, full);
    issue_box_loads<Sizes::kBlockN>(Storage::v() + to, v_map, first_key, at.kv_head,
                                             at.batch, full);
  }
  // Tells the consumers that there are no more tiles.
  __device__ __forceinline__ void end(int stage) const {
    Storage::cursor().n_block = kEnd;
    ptx::mbarrier_arrive(&Storage::barriers().full[stage]);
  }

  // Enters the next tile. Returns false behind the last.
  __device__ __forceinline__ bool enter_tile(Cursor& at) const {
    TileScheduler scheduler = Storage::scheduler();
    if (TileScheduler::kMaxPairedTiles == 0) scheduler.paired = false;  // known to the compiler
    const TileIndex index = tile_index(at.round, scheduler.paired);
    Tile& to = Storage::tile(at.round);
    if (!scheduler.has(index)) {
      to.steps = 0;
      return false;
    }
    const ::WorkTile tile = scheduler.tile(p, index);
    const unsigned batch = tile.head.kv / p.kv_heads;
    const unsigned head = tile.head.q - batch * p.kv_heads * p.group;
    const int steps = max(1, num_n_blocks<Traits>(tile));  // one if no row attends to a key
    to = {p.o_strides.batch * batch + p.o_strides.head * head,
          static_cast<int64_t>(tile.head.q) * p.queries, head, batch, tile.first_query,
          tile.causal_key_end, steps};
    at = {at.round + 1, steps - 1, tile.head.kv - batch * p.kv_heads, batch};
    return true;
  }

  // The position of a round, as TileIndex has it for blocks. First teams come before second ones,
  // so that few tiles are spread over all multiprocessors.
  __device__ __forceinline__ TileIndex tile_index(unsigned round, bool paired) const {
    const unsigned place = Storage::team() * gridDim.x + blockIdx.x, places = kTeams * gridDim.x;
    const unsigned odd = round % 2;
    TileIndex at(paired);
    at.index = paired ? 2 * (round / 2 * places + place) + odd
                      : round * places + (odd ? places - 1 - place : place);
    return at;
  }
};

}  // namespace attention::native
