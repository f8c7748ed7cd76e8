/* attune_sdpa: FP8 attention forward on NVIDIA Hopper GPUs, softmax(scale * q k^T) v, for many and
 * for few queries, with the quantisers of its inputs and of a cache of keys and values.
 *
 * The library needs nothing but NVIDIA's driver, libcuda.so.1, which it opens at the first call: a
 * program that uses it links and starts on a machine without a GPU. It allocates no GPU memory,
 * waits for no GPU work, and may be called from several threads and on several devices. */
#ifndef ATTUNE_SDPA_H
#define ATTUNE_SDPA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* CUstream and cudaStream_t point to it */

typedef enum attune_sdpa_status {
  ATTUNE_SDPA_OK = 0,
  ATTUNE_SDPA_INVALID_ARGUMENT,    /* no library could compute this */
  ATTUNE_SDPA_UNSUPPORTED,         /* valid, but no form in this library computes it */
  ATTUNE_SDPA_WORKSPACE_TOO_SMALL, /* attune_sdpa_workspace_bytes has the size */
  ATTUNE_SDPA_NO_DRIVER,           /* libcuda.so.1 is missing, too old or does not start */
  ATTUNE_SDPA_DRIVER_ERROR         /* a call of the driver failed */
} attune_sdpa_status;

typedef enum attune_sdpa_dtype {
  ATTUNE_SDPA_E4M3 = 1,
  ATTUNE_SDPA_FP16,
  ATTUNE_SDPA_BF16
} attune_sdpa_dtype;

/* Every workspace begins with this many bytes of counters. They must be zero before the first call.
 * Every call leaves them zero, so one workspace serves all calls on a stream, of any sizes. The
 * bytes behind them need not be set. Calls that may overlap need a workspace each. */
#define ATTUNE_SDPA_ZEROED_BYTES 65536

/* A problem. Set all fields to 0 first, then both windows to -1, then struct_size and what the
 * problem has: a later version may append fields, and accepts the size of an earlier one. */
typedef struct attune_sdpa_params {
  size_t struct_size; /* sizeof(attune_sdpa_params) */

  /* Device pointers, aligned to 16 bytes. */
  const void *q; /* [batch, heads, queries, head_dim] */
  const void *k; /* [batch, kv_heads, keys, head_dim] */
  const void *v; /* [batch, kv_heads, keys, head_dim] */
  void *o;       /* [batch, heads, queries, head_dim] */

  /* NULL, or [batch, heads, queries]: natural logarithm of the sum of exp(score) of each row. For
   * packed sequences [heads, total_queries]. */
  float *lse;

  /* Device pointers. An E4M3 code times its factor is the value. Factors are not negative. NULL for
   * a tensor in FP16 or BF16, whose factors are computed. */
  const float *descale_q; /* [batch, heads] */
  const float *descale_k; /* [batch, kv_heads] */
  const float *descale_v; /* [batch, kv_heads] */

  /* kv_heads divides heads; heads / kv_heads consecutive query heads share a head of k and v. */
  int32_t batch, heads, kv_heads, queries, keys, head_dim;

  /* In elements: batch, head, row. All zero: contiguous in the order above. */
  int64_t q_stride[3], k_stride[3], v_stride[3], o_stride[3];

  /* Of q, k and v. FP16 and BF16 are quantised to E4M3 in the workspace before the computation.
   * Problems with few keys are computed in FP16 or BF16. */
  attune_sdpa_dtype dtype;
  attune_sdpa_dtype out_dtype; /* of o */

  /* Not 0: query i attends to the keys up to i + keys - queries, so the last one to all. */
  int32_t causal;
  float scale; /* of the scores; 0: 1 / sqrt(head_dim) */

  /* Keys beside the query's own: 0 for none, -1 for no limit. */
  int32_t window_left, window_right;
  const float *sinks; /* NULL, or [heads]: one more score of each row */

  /* Device memory of attune_sdpa_workspace_bytes, aligned to 16 bytes; NULL if that is 0. With E4M3
   * inputs it may be NULL in almost all cases: few queries take longer then. */
  void *workspace;
  size_t workspace_bytes;

  /* ---- fields that were appended to the above ---- */

  /* NULL, or [batch + 1] on the device: packed sequences. Sequence b has the queries from
   * cu_queries[b] to cu_queries[b + 1] - 1 and the keys from cu_keys[b] on; the first element is 0.
   * q and o are [total_queries, heads, head_dim], k and v [total_keys, kv_heads, head_dim]: strides
   * have the same order as above, and that of the batch is not used. queries and keys are the most
   * of a sequence. */
  const int32_t *cu_queries, *cu_keys;

  /* NULL, or [batch] on the device: keys of each sequence, at most keys, where k and v are padded
   * or paged. Of packed keys the first ones of each sequence. */
  const int32_t *key_lengths;

  /* NULL, or [batch, max_pages] on the device: page of each page_size keys. Then k and v are
   * [pages, kv_heads, page_size, head_dim]; the first of the strides is that of a page. */
  const int32_t *page_table;
  int32_t max_pages, page_size, pages; /* with a page table; page_size is a multiple of 64 */
  int32_t total_queries, total_keys;   /* rows of packed q and o, of packed k and v */

  /* Options for k and q in FP16 or BF16: as in attune_quantize_params. */
  int32_t smooth_k, hadamard;

  /* Of q, if it differs from that of k and v: FP16 or BF16 beside a cache in E4M3. 0: as dtype. */
  attune_sdpa_dtype q_dtype;

  /* 0, or ATTUNE_SDPA_TRUST_POINTERS: the caller knows that all pointers are memory of the current
   * device. The driver is not asked, which saves CPU time in each call. */
  int32_t flags;
} attune_sdpa_params;

enum { ATTUNE_SDPA_TRUST_POINTERS = 1 };

/* Launches the computation on a stream of the current context and returns. NULL is the default
 * stream. The parameters are read before it returns, the tensors when the stream gets there. The
 * first call of a form in a context loads its code. Launches can be captured into a CUDA graph. */
attune_sdpa_status attune_sdpa_forward(const attune_sdpa_params *params,
                                       struct CUstream_st *stream);

/* Bytes of workspace that the problem needs; 0 if it needs none or is not supported. Reads no
 * tensor and needs no driver. */
size_t attune_sdpa_workspace_bytes(const attune_sdpa_params *params);

/* The variant of the kernel that attune_sdpa_forward launches for the parameters, or NULL if they
 * are not supported: attune_sdpa_last_error says why. Reads no tensor and needs no driver. */
const char *attune_sdpa_form(const attune_sdpa_params *params);

/* From FP16 or BF16 to E4M3 with one factor per head: y = e4m3(x / descale), with descale such that
 * the largest finite element becomes 448. Either q and y_q or all of k, v, y_k and y_v may be NULL:
 * they are not quantised then, and their sizes are not read. */
typedef struct attune_quantize_params {
  size_t struct_size; /* sizeof(attune_quantize_params) */

  /* Device pointers, aligned to 16 bytes. */
  const void *q;    /* [batch, heads, queries, head_dim] */
  const void *k;    /* [batch, kv_heads, keys, head_dim] */
  const void *v;    /* [batch, kv_heads, keys, head_dim] */
  void *y_q;        /* as q, contiguous */
  void *y_k, *y_v;  /* as k and v, contiguous */
  float *descale_q; /* [batch, heads] */
  float *descale_k, *descale_v; /* [batch, kv_heads] */

  /* NULL, or [batch, kv_heads, head_dim]: what smooth_k subtracted, else zeros. */
  float *mean_k;

  int32_t batch, heads, kv_heads, queries, keys, head_dim; /* head_dim: multiple of 8, up to 256 */

  /* In elements, multiples of 8: batch, head, row. All zero: contiguous. */
  int64_t q_stride[3], k_stride[3], v_stride[3];

  attune_sdpa_dtype dtype; /* of q, k and v: FP16 or BF16 */

  /* Not 0: subtract from k the mean of each column of a head, which the softmax does not see. */
  int32_t smooth_k;
  /* Not 0: multiply the rows of q and k by the Hadamard matrix over sqrt(head_dim), which q k^T
   * does not see. head_dim is a power of two then. */
  int32_t hadamard;

  void *workspace; /* device memory of attune_sdpa_quantize_workspace_bytes */
  size_t workspace_bytes;
} attune_quantize_params;

attune_sdpa_status attune_sdpa_quantize(const attune_quantize_params *params,
                                        struct CUstream_st *stream);

/* Bytes of workspace; 0 if the arguments are wrong. Reads no tensor and needs no driver. */
size_t attune_sdpa_quantize_workspace_bytes(const attune_quantize_params *params);

/* New rows of k and v into a cache in E4M3, with factors that are given: y = e4m3(x / descale),
 * saturating at 448. Row i of sequence b goes to position lengths[b] + i. A row behind the capacity
 * or on a negative page is dropped. There is no workspace, and lengths is not changed. */
typedef struct attune_append_params {
  size_t struct_size; /* sizeof(attune_append_params) */

  /* Device pointers; tensors are aligned to 16 bytes. */
  const void *k, *v; /* [batch, kv_heads, rows, head_dim] */

  /* In elements, multiples of 8: batch, head, row. All zero: contiguous. */
  int64_t k_stride[3], v_stride[3];

  const float *descale_k, *descale_v; /* [batch, kv_heads], greater than 0 */
  const int32_t *lengths;             /* [batch]: rows in the cache before the call */

  /* NULL, or [batch, max_pages]: page of each page_size rows of a sequence. No page may occur twice
   * where rows are written. */
  const int32_t *page_table;

  /* E4M3, contiguous: [batch, kv_heads, capacity, head_dim]; with a page table [pages, kv_heads,
   * page_size, head_dim]. */
  void *k_cache, *v_cache;

  int32_t batch, kv_heads, rows, head_dim; /* head_dim: multiple of 8 */
  int32_t capacity;                        /* without a page table */
  int32_t page_size, max_pages, pages;     /* with a page table */

  attune_sdpa_dtype dtype; /* of k and v: FP16 or BF16 */

  /* ---- a field that was appended to the above ---- */

  int64_t flags; /* as in attune_sdpa_params */
} attune_append_params;

attune_sdpa_status attune_sdpa_append(const attune_append_params *params,
                                      struct CUstream_st *stream);

/* Why the last call of this thread failed: one sentence that names the argument and its value.
 * Empty if it succeeded. Valid until the next call of this thread. */
const char *attune_sdpa_last_error(void);

/* The version of attune that wrote this library, and its selection. */
const char *attune_sdpa_version(void);

#ifdef __cplusplus
}
#endif
#endif
