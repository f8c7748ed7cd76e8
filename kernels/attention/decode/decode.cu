// Attention of few query rows over many keys in E4M3, FP16 or BF16, as in decoding, on Hopper
// (sm_90a). The time is that of reading K and V once.
//
//   keys as M (mainloop_keys.cuh)                       rows as M (mainloop_rows.cuh)
//   S^T = K·Q^T   K in registers, Q in shared memory    S = Q·K^T   Q in registers
//   P^T = exp2(S^T - reference)  in shared memory       P = exp2(S - row max)  in registers
//   O^T = O^T + V^T·P^T   V^T in registers              O = O + P·V
//
// P is scaled by 2^8 and rounded to FP16, or two terms of BF16 over a cache in BF16. With keys as M
// query rows are padded to ROWS only, and K and V are converted to FP16 on their way to registers.
// With rows as M K and V are operands in shared memory: E4M3 is converted there, and 16 bits are
// loaded as they are.
//
// The query rows of all query heads of a K/V head are packed together. ROWS of them are a unit;
// a head with more has several units, which read K and V again. The tiles of all units are divided
// among the blocks (schedule.cuh), whatever the lengths of the sequences.
//
// Roles:
//   producer   one warp loads tiles of TILE_N keys of K and V by TMA into a pipeline of KV_STAGES
//              stages. It loads the first tiles before the block synchronises for the first time.
//   consumers  CONSUMERS warpgroups. Each takes every CONSUMERS-th tile, with a reference of its own
//              for each row. At the end of a unit the warpgroups are merged, and then the blocks
//              that share it.
//   finishers  three warps beside the producer. They bring the next unit of the block while this one
//              is computed, and merge and store this one while the next is computed.
//   converter  a warpgroup, with rows as M over E4M3: tiles to FP16, in another pipeline of two.
//
// Layouts, innermost last:
//   q, o       (batch, kv_heads * group, queries, D), E4M3; FP16, or BF16 in o_bf16. One of o and
//              o_bf16 is null.
//   q_fp16     in place of q and descale_q, which are then null: the same with strides of batch,
//   q_bf16     head and row, in elements. Exactly one of the three is given.
//   k, v       (batch, kv_heads, keys, D); paged (pages, kv_heads, page_size, D). The kernel reads
//              them by their tensor maps alone: boxes of 64 keys, of smaller pages 16 or 32, and up
//              to 128 bytes, a swizzle of as many bytes, coordinates (column, key, K/V head,
//              sequence or page). So other strides need another map only.
//   lse        (batch, kv_heads * group, queries), natural logarithm, or null
//   descale_q  (batch, kv_heads * group); descale_k and descale_v (batch, kv_heads), or null
//   sinks      (kv_heads * group), or null
//   lengths    (batch): keys of each sequence, or null where all have `keys`
//   page_table (batch, max_pages), or null; page_size is a multiple of 16
//
// `even_blocks` of the grid's blocks work where all sequences have as many tiles: each unit has as
// many of them, or each of them as many units. With 0 all blocks have equal shares of all tiles.
//
// Workspace: `parts` has 2 * grid * ROWS * (D + 2) floats, aligned to 16 bytes, and need not be set.
// `arrived` has a word for each unit, zero before the first launch. Each launch leaves them zero.
//
// Headers, each built only on those above it:
//   traits.cuh          knobs and sizes
//   params.cuh          arguments, and the keys that a row sees
//   schedule.cuh        tile scheduler
//   instructions.cuh    PTX that no other kernel uses
//   shared_storage.cuh  shared memory, pipeline, swizzle
//   query.cuh           conversion of Q
//   producer.cuh        TMA loads
//   converter.cuh       E4M3 to FP16 in shared memory
//   row_part.cuh        results of some tiles
//   mainloop.cuh        the steps of a tile: mainloop_keys.cuh or mainloop_rows.cuh
//   epilogue.cuh        merge, normalise, store
#include "converter.cuh"
#include "epilogue.cuh"
#include "producer.cuh"

namespace attention::decode {

// The units of a block are in shared memory by turns. The consumers load Q of the first one, while
// the producer loads the first tiles. Behind all stages of all blocks Q would wait for the memory,
// so the producer fills the pipeline when Q is there. The finishers bring the next unit while this
// one is computed, and finish this one while the next is computed. The last unit has nothing behind
// it: the consumers finish it themselves.

__device__ __forceinline__ void consume(const Params& p, SharedStorage& shared) {
  RowState rows;
  const Lane lane;
  MainLoop::State state = {lane.first_tile()};
  int next_tile = lane.first_tile();
  const Cursor first(p, find_start(p));
  if (first.has_tile()) {
    const Unit facts(p, first);
    load_queries<Consumers>(p, shared.unit[0], query_of(shared, 0), first.sequence, facts);
    if (threadIdx.x == 0) shared.unit[0].facts = facts;
  }
  __syncthreads();
  if (!first.has_tile()) return;
  for (int i = 0;; i++) {
    const UnitStorage& unit = shared.unit[i % 2];
    if (i > 0) wait(&shared.unit_full[i % 2], i / 2);
    MainLoop(p, shared, lane, i).run(rows, state, next_tile);
    if (i > 0) wait(&shared.result_empty, i - 1);
    if (store_result(shared, rows, lane, unit.facts)) {
      Consumers::sync();
      finish<Consumers>(p, shared, unit.cursor, unit.facts);
      return;
    }
    if (lane.has_result()) arrive(&shared.result_full);
  }
}

template <class Storage>
__device__ __forceinline__ void convert(Storage& shared) {
  if constexpr (Sizes::kConverts) {
    ptx::setmaxnreg_dec<Sizes::kConverterRegisters>();
    __syncthreads();
    convert_tiles(shared);
  }
}

__device__ __forceinline__ void finish_units(const Params& p, SharedStorage& shared) {
  if (!shared.unit[0].cursor.has_tile()) return;
  arrive(&shared.unit_full[0]);
  for (int i = 0; !shared.unit[i % 2].facts.is_last; i++) {
    const UnitStorage& unit = shared.unit[i % 2];
    UnitStorage& next = shared.unit[(i + 1) % 2];
    if (Finishers::thread() == 0) {
      Cursor cursor = unit.cursor;
      cursor.advance(p, cursor.tiles_of_unit());
      next.cursor = cursor;
      next.facts = Unit(p, cursor);
    }
    if constexpr (Sizes::kRowsAsM) wait(&shared.q_empty, i);
    Finishers::sync();
    load_queries<Finishers>(p, next, query_of(shared, i + 1), next.cursor.sequence, next.facts);
    arrive(&shared.unit_full[(i + 1) % 2]);
    wait(&shared.result_full, i);
    finish<Finishers>(p, shared, unit.cursor, unit.facts);
    arrive(&shared.result_empty);
    Finishers::sync();  // all have read the unit
  }
}

// The producer warp. Of boxes of kBoxN keys one lane issues all loads.
template <bool kSmallBoxes>
__device__ __forceinline__ void produce(const Params& p, SharedStorage& shared,
                                        const TensorMap* k_map, const TensorMap* v_map,
                                        const Cursor& cursor) {
  const bool issues = kSmallBoxes || threadIdx.x == Sizes::kFirstProducer;
  Producer<kSmallBoxes> producer(p, shared, k_map, v_map, cursor);
  if (issues) producer.fill(Sizes::kEarlyStages);
  __syncthreads();
  if (!issues) return;
  producer.fill(Sizes::kStages);
  producer.refill();
}

}  // namespace attention::decode

using namespace attention::decode;

extern "C" __global__ void __launch_bounds__(Sizes::kThreads, 1)
decode(const uint8_t* q, const uint8_t*, const uint8_t*, __half* o, __nv_bfloat16* o_bf16,
       float* lse, const float* descale_q, const float* descale_k, const float* descale_v,
       const float* sinks, const int* lengths, const int* page_table, float* parts,
       unsigned* arrived, int batch, int kv_heads, int group, int queries, int keys, int max_pages,
       int page_size, int causal, int window_left, int even_blocks, float softmax_scale,
       const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map,
       const __half* q_fp16, const __nv_bfloat16* q_bf16, long long q_batch_stride,
       long long q_head_stride, long long q_row_stride) {
  extern __shared__ uint8_t raw[];
  // By an offset: a pointer that was an integer in between has generic addresses.
  SharedStorage& shared =
      *reinterpret_cast<SharedStorage*>(raw + (-ptx::shared_address(raw) & 1023));
  // -1, no window, is the largest unsigned number. A window of all keys hides none.
  const int window = min(static_cast<unsigned>(window_left), static_cast<unsigned>(keys));
  // A power of two that divides a page.
  const int box_keys =
      page_table == nullptr ? Sizes::kBoxN : min(page_size & -page_size, Sizes::kBoxN);
  const Params p = {q, o, o_bf16, lse, descale_q, descale_k, descale_v, sinks, lengths, page_table,
                    reinterpret_cast<Part*>(parts), arrived, batch, kv_heads, group, queries, keys,
                    max_pages, page_size, causal, window, even_blocks, box_keys, softmax_scale,
                    q_fp16, q_bf16, {q_batch_stride, q_head_stride, q_row_stride}};
  if (threadIdx.x < Sizes::kConsumers) {
    if constexpr (Sizes::kMovesRegisters) ptx::setmaxnreg_inc<Sizes::kConsumerRegisters>();
    consume(p, shared);
    return;
  }
  if (threadIdx.x < Sizes::kFirstProducer) {
    convert(shared);
    return;
  }
  if constexpr (Sizes::kMovesRegisters) ptx::setmaxnreg_dec<Sizes::kProducerRegisters>();
  if (threadIdx.x >= Sizes::kFirstProducer + 32) {
    __syncthreads();
    finish_units(p, shared);
    return;
  }
  if (threadIdx.x == Sizes::kFirstProducer) {
    ptx::prefetch_tensormap(&k_map);
    ptx::prefetch_tensormap(&v_map);
    shared.init_barriers();
  }
  const Cursor cursor(p, find_start(p));
  if (threadIdx.x == Sizes::kFirstProducer) shared.unit[0].cursor = cursor;
  if (box_keys < Sizes::kBoxN) {
    produce<true>(p, shared, &k_map, &v_map, cursor);
  } else {
    produce<false>(p, shared, &k_map, &v_map, cursor);
  }
}
