// New rows of K and V, in FP16 or BF16, to the end of a cache in E4M3. Both tensors in one launch:
// blocks with blockIdx.y = 0 write K, those with 1 write V.
//
//   1. A thread loads one chunk: 8 neighbouring elements of a row, 16 bytes.
//   2. It looks up where the row belongs: position lengths[b] + i of sequence b, in its own part of a
//      contiguous cache, or in the page that the page table has for the position.
//   3. It multiplies by the reciprocal of the factor of the head, rounds to E4M3 and stores 8 bytes.
//
// A row whose position is beyond the capacity, or whose page is not in the cache, is dropped. So are
// all rows of a sequence with a negative length: captured batches mark unused slots so.
#include "include/ptx.cuh"
#include "knobs.cuh"
#include "quantize/chunk.cuh"

namespace {

// K or V.
struct Tensor {
  const uint16_t* x;     // the new rows, FP16 or BF16
  const float* descale;  // (batch, heads)
  uint8_t* cache;        // E4M3, (batch, heads, capacity, dim) or (pages, heads, page_size, dim)
  long long batch_stride, head_stride, row_stride;  // of x, in elements
};

// Where a chunk comes from.
struct Source {
  int batch, head, row, column;
};

__device__ Source source_of(unsigned chunk, int heads, int rows, int dim) {
  const unsigned per_row = dim / kChunkElements;
  const unsigned line = chunk / per_row;  // rows of all heads
  const unsigned all_heads = line / rows;
  return {static_cast<int>(all_heads / heads), static_cast<int>(all_heads % heads),
          static_cast<int>(line % rows), static_cast<int>(chunk % per_row) * kChunkElements};
}

}  // namespace

extern "C" __global__ void __launch_bounds__(knob::kThreads)
append(const uint16_t* k, const uint16_t* v,                // FP16 or BF16, rows to append
       const float* descale_k, const float* descale_v,      // (batch, heads)
       const int* lengths,                                  // (batch): rows before the launch
       const int* page_table,                               // (batch, max_pages), if paged
       uint8_t* k_cache, uint8_t* v_cache,                  // E4M3
       long long k_batch_stride, long long k_head_stride, long long k_row_stride,
       long long v_batch_stride, long long v_head_stride, long long v_row_stride,
       int batch, int heads, int rows, int dim,             // of the new rows
       int paged, int page_size, int max_pages, int pages,  // not paged: the capacity, 1, batch
       int bf16) {                                          // 1: x is BF16, 0: FP16
  const unsigned chunk = blockIdx.x * knob::kThreads + threadIdx.x;
  if (chunk >= static_cast<unsigned>(batch) * heads * rows * (dim / kChunkElements)) return;
  const Tensor t =
      blockIdx.y == 0
          ? Tensor{k, descale_k, k_cache, k_batch_stride, k_head_stride, k_row_stride}
          : Tensor{v, descale_v, v_cache, v_batch_stride, v_head_stride, v_row_stride};
  const Source s = source_of(chunk, heads, rows, dim);
  // The load is issued before those of the length and the page, which depend on each other.
  const uint4 x = ptx::ld_global_nc_16(t.x + s.batch * t.batch_stride + s.head * t.head_stride +
                                       s.row * t.row_stride + s.column);

  const int length = lengths[s.batch];
  if (length < 0) return;
  const unsigned position = static_cast<unsigned>(length) + s.row;  // above 2^31 for a length near it
  const unsigned index = position / page_size;
  if (index >= static_cast<unsigned>(max_pages)) return;
  const int page = paged ? page_table[s.batch * max_pages + index] : s.batch;
  if (page < 0 || page >= pages) return;

  const float scale = __frcp_rn(t.descale[s.batch * heads + s.head]);
  const size_t line = (static_cast<size_t>(page) * heads + s.head) * page_size +
                      (position - index * page_size);
  *reinterpret_cast<uint2*>(t.cache + line * dim + s.column) = e4m3_codes(unpack(bf16, x), scale);
}
