// FP8 attention of few query rows over many keys, as in decoding, on Hopper (sm_90a). The time is
// that of reading K and V once.
//
//   S = Q·K^T                  (16 rows, keys) mma.m16n8k16; Q in registers, K in shared memory
//   P = exp2(S - row_max)      rounded to FP16, scaled by 2^8, in registers as operand A of P·V
//   O = O * rescale + P·V      (16 rows, D) V in shared memory, transposed in registers
//
// K and V are converted to FP16 in registers. ptxas would do the same for mma of E4M3, and convert
// Q and P as well.
//
// The query rows of all query heads of a K/V head are packed into one tile of 16 rows: group times
// queries is at most 16. Each block takes an equal share of the tiles of all K/V heads
// (schedule.cuh), whatever the lengths of the sequences.
//
// Roles:
//   producer   one warp loads tiles of TILE_N keys of K and V by TMA into a pipeline of KV_STAGES
//              stages. It fills the pipeline before the block synchronises for the first time.
//   consumers  TILE_N / 32 warps. Each takes 32 keys of every tile, with an online softmax of its
//              own. At the end of a head the warps are merged, and then the blocks that share it.
//
// Layouts, innermost last:
//   q, o       (batch, kv_heads * group, queries, D), E4M3; FP16, or BF16 in o_bf16. One of o and
//              o_bf16 is null.
//   q_fp16     with Q_BITS=16 in place of q and descale_q: the same with strides of batch, head and
//   q_bf16     row, in elements. One of the two is null. With Q_BITS=8 they are not read.
//   k, v       (batch, kv_heads, keys, D), E4M3; paged (pages, kv_heads, page_size, D). The kernel
//              reads them by their tensor maps alone: boxes of min(D, 128) columns and 64 keys, a
//              swizzle of as many bytes, coordinates (column, key, K/V head, sequence or page). So
//              other strides need another map only.
//   lse        (batch, kv_heads * group, queries), natural logarithm, or null
//   descale_q  (batch, kv_heads * group); descale_k and descale_v (batch, kv_heads)
//   sinks      (kv_heads * group), or null
//   lengths    (batch): keys of each sequence, or null where all have `keys`
//   page_table (batch, max_pages), or null; page_size is 64, 128 or 256
//
// `even_blocks` of the grid's blocks work where `lengths` are given and all sequences have as many
// tiles. Without lengths all blocks of the grid do.
//
// Workspace: `parts` has 2 * grid * 16 * (D + 2) floats, aligned to 16 bytes, and need not be set.
// `arrived` has batch * kv_heads words, which are zero before the first launch. Each launch leaves
// them zero.
//
// Headers, each built only on those above it:
//   traits.cuh          knobs and sizes
//   params.cuh          arguments, and the keys that a row sees
//   schedule.cuh        tile scheduler
//   shared_storage.cuh  shared memory, pipeline, swizzle
//   query.cuh           conversion of Q
//   producer.cuh        TMA loads
//   mainloop.cuh        the steps of a tile
//   epilogue.cuh        merge, normalise, store
#include "epilogue.cuh"
#include "producer.cuh"

namespace attention::decode {

// The heads of a block, one after the other. The first thread finds the next head while the others
// compute this one. The barriers of the epilogue order that with the reads.
//
// Each warp finds the first head itself, so that Q is loaded, and converted, while the producer
// fills the pipeline: behind the loads of K and V of all blocks it would wait for the memory.
__device__ __forceinline__ void consume(const Params& p, SharedStorage& shared) {
  KvState state;
  RowState rows;
  const LaneOffsets offsets;
  const Cursor first(p, find_start(p));
  bool has_head = first.has_tile();
  if (has_head) rows.start(p, shared, first);
  __syncthreads();
  for (int slot = 0; has_head; slot ^= 1) {
    const Cursor& cursor = shared.cursor[slot];
    if (threadIdx.x == 0) {
      Cursor next = cursor;
      next.advance(p, next.tiles_of_head());
      shared.cursor[slot ^ 1] = next;
      ptx::prefetch_global_l1(&p.descale_v[cursor.sequence * p.kv_heads + cursor.head]);
    }
    mainloop(p, shared, rows, offsets, cursor, state);
    has_head = epilogue(p, shared, rows, cursor);
    if (has_head) rows.start(p, shared, shared.cursor[slot ^ 1]);
  }
}

}  // namespace attention::decode

using namespace attention::decode;

extern "C" __global__ void __launch_bounds__(Sizes::kThreads, Sizes::kBlocksPerSm)
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
  const Params p = {q, o, o_bf16, lse, descale_q, descale_k, descale_v, sinks, lengths, page_table,
                    reinterpret_cast<Part*>(parts), arrived, batch, kv_heads, group, queries, keys,
                    max_pages, page_size, causal, window, even_blocks, softmax_scale, q_fp16,
                    q_bf16, {q_batch_stride, q_head_stride, q_row_stride}};
  if (threadIdx.x >= Sizes::kConsumers) {
    const bool issues = threadIdx.x == Sizes::kConsumers;
    if (issues) {
      ptx::prefetch_tensormap(&k_map);
      ptx::prefetch_tensormap(&v_map);
      for (int i = 0; i < Sizes::kStages; i++) {
        ptx::mbarrier_init(&shared.full[i], 1);
        ptx::mbarrier_init(&shared.empty[i], Sizes::kWarps);
      }
      ptx::fence_mbarrier_init();
    }
    const Start start = find_start(p);
    const Cursor cursor(p, start);
    Producer producer(p, shared, &k_map, &v_map, cursor);
    if (issues) {
      shared.cursor[0] = cursor;
      producer.fill();
    }
    __syncthreads();
    if (issues) producer.refill();
    return;
  }
  consume(p, shared);
}
