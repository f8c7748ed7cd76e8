/* attune_sdpa: attention forward on NVIDIA GPUs since Ampere, softmax(scale * q k^T) v, for many and
 * for few queries, with the quantisers of its inputs and of a cache of keys and values. On Hopper it
 * computes in FP8 and in 16 bits, on other GPUs in 16 bits and, without options, in 8.
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

/* What FP16 and BF16 tensors are computed in. */
typedef enum attune_sdpa_precision {
  ATTUNE_SDPA_PRECISION_AUTO = 0, /* E4M3 where that is a tenth faster, or only E4M3 has a form */
  ATTUNE_SDPA_PRECISION_FP8,      /* E4M3: they are quantised in the workspace. On other GPUs than
                                   * Hopper's s8, and v E4M3 or not quantised */
  ATTUNE_SDPA_PRECISION_16        /* their own type: nothing is quantised */
} attune_sdpa_precision;

/* Every workspace begins with this many bytes of counters. They must be zero before the first call.
 * Every call leaves them zero, so one workspace serves all calls on a stream, of any sizes. The
 * bytes behind them need not be set. Calls that may overlap need a workspace each. */
#define ATTUNE_SDPA_ZEROED_BYTES 65536

/* Values of flags, in all structs. */
#define ATTUNE_SDPA_TRUST_POINTERS UINT64_C(1) /* all pointers are memory of the current device: the
                                                * driver is not asked, which saves CPU time */

/* The structs of this header begin as zeros, for instance by `attune_sdpa_params p = {0};`. Zero is
 * the default of every field that names one, and no option; fields without a default are required.
 * struct_size is that of the caller's header. A later version appends fields, and accepts the
 * structs of this one. This version accepts longer structs of a later one, if what it does not know
 * is zero. */

/* A problem of attention. Sizes are in elements, pointers are those of the device. */
typedef struct attune_sdpa_params {
  size_t struct_size; /* sizeof(attune_sdpa_params) */

  /* ---- sizes: 1 to 2^24 each ---- */
  int32_t batch;    /* sequences */
  int32_t heads;    /* of q and o, in a sequence */
  int32_t kv_heads; /* of k and v; divides heads: heads / kv_heads consecutive heads share one */
  int32_t queries;  /* rows of q and o in a sequence; of packed sequences the most of one */
  int32_t keys;     /* rows of k and v in a sequence; of packed or paged ones the most of one */
  /* Columns: 64, 128 or 256. For FP16 and BF16 that are not quantised also other multiples of 8 up
   * to 256, by kernels that are not tuned for them. */
  int32_t head_dim;

  /* ---- formats ---- */
  attune_sdpa_dtype dtype;     /* of k and v, and of q. Whether FP16 and BF16 are quantised to E4M3
                                * in the workspace, precision says: by default where that is a
                                * tenth faster */
  attune_sdpa_dtype q_dtype;   /* of q beside k and v in E4M3: FP16 or BF16; 0: as dtype */
  attune_sdpa_dtype out_dtype; /* of o: FP16 or BF16 */

  /* ---- the mask and the scores ---- */
  int32_t causal; /* not 0: query i attends to the keys up to i + keys - queries; 0: to all */
  /* Not 0: a query attends to window_left keys before its own and to window_right behind it, -1 for
   * no limit. 0: no window; both limits are 0 then. */
  int32_t has_window;
  int32_t window_left, window_right;
  float scale;        /* of the scores, finite and not negative; 0: 1 / sqrt(head_dim) */
  const float *sinks; /* [heads]: one more score of each row, without a value; NULL: none */

  /* ---- tensors, aligned to 16 bytes ---- */
  const void *q; /* [batch, heads, queries, head_dim] */
  const void *k; /* [batch, kv_heads, keys, head_dim] */
  const void *v; /* [batch, kv_heads, keys, v_head_dim] */
  void *o;       /* [batch, heads, queries, v_head_dim] */

  /* Strides of batch, head and row, in elements. All zero: contiguous in the order above. */
  int64_t q_stride[3], k_stride[3], v_stride[3], o_stride[3];

  /* [batch, heads, queries], of packed sequences [heads, total_queries]: receives the natural
   * logarithm of the sum of exp(score) of each row, its sink included; minus infinity for a row
   * without keys, with a sink too. NULL: not computed. */
  float *lse;

  /* [batch, heads] of q, [batch, kv_heads] of k and v: the value of an E4M3 code is the code times
   * its factor, which is not negative. NULL for tensors in FP16 or BF16. */
  const float *descale_q, *descale_k, *descale_v;

  /* ---- sequences of different lengths ---- */
  /* [batch + 1]: packed sequences. Sequence b has the queries from cu_queries[b] to
   * cu_queries[b + 1] - 1 and the keys from cu_keys[b] on; the first element is 0. q and o are
   * [total_queries, heads, head_dim], k and v [total_keys, kv_heads, head_dim]: strides have the
   * order above, and that of the batch is not used. NULL: not packed. */
  const int32_t *cu_queries, *cu_keys;
  int32_t total_queries, total_keys; /* rows of packed q and o, of packed k and v */

  /* [batch]: keys of each sequence, at most keys, where k and v are padded or paged; of packed keys
   * the first ones of each sequence. NULL: all. */
  const int32_t *key_lengths;

  /* [batch, max_pages]: page of each page_size keys. k and v are then [pages, kv_heads, page_size,
   * head_dim]; the first of their strides is that of a page. NULL: no pages. */
  const int32_t *page_table;
  int32_t max_pages; /* of a sequence, with a page table */
  int32_t page_size; /* keys of a page, with a page table: a multiple of 16 */
  int32_t pages;     /* of k and v, with a page table */

  /* ---- the quantiser of k and q in FP16 or BF16 ---- */
  /* On other GPUs than Hopper's it always smooths k, and the log-sum-exp is that of the given k. */
  int32_t smooth_k, hadamard; /* as in attune_quantize_params; 0: not */

  /* ---- the call ---- */
  /* Memory of attune_sdpa_workspace_bytes, aligned to 16 bytes; NULL if that is 0. With E4M3 inputs
   * it may be NULL in almost all cases: few queries take longer then. So do causal problems in FP16
   * and BF16 that are computed as given. */
  void *workspace;
  size_t workspace_bytes;

  uint64_t flags; /* ATTUNE_SDPA_TRUST_POINTERS; 0: none */

  /* ---- since the struct of 320 bytes ---- */
  /* An attune_sdpa_precision. With E4M3 tensors AUTO and FP8 are the same, and 16 is invalid. */
  int32_t precision;
  /* A score s, scaled, becomes softcap * tanh(s / softcap). For tensors of one type, FP16 or BF16,
   * not quantised: without smooth_k, hadamard and ATTUNE_SDPA_PRECISION_FP8. 0: no cap. */
  float softcap;

  /* ---- since the struct of 328 bytes ---- */
  int32_t v_head_dim; /* columns of v and o, if they are not head_dim; 0: head_dim */
  int32_t reserved;   /* 0 */

  /* ---- since the struct of 336 bytes ---- */
  /* [heads], or [batch, heads]: row i of a sequence gets -slope * |i + keys - queries - j| added to
   * the score of key j, scaled and capped, with its own queries and keys; not to that of a sink.
   * Finite. For the tensors that softcap is for. NULL: none. */
  const float *alibi_slopes;
  int64_t alibi_stride; /* from the slopes of a sequence to those of the next: 0 or at least heads */
  /* [batch, queries], of packed queries [total_queries]: bit t of row i says that the row sees the
   * draft token t, which is key keys - queries + t of its sequence. Rows see all keys before. With
   * at most 64 queries, without causal and a window. For the tensors that softcap is for. NULL:
   * none. */
  const uint64_t *tree_mask;

  /* ---- since the struct of 360 bytes ---- */
  /* The GPU that a call is planned for: 89 for sm_89, and its multiprocessors. Both 0: that of the
   * current context, or an H200 (90 and 132) where the program has not opened the driver yet. They
   * are for the functions that launch nothing; attune_sdpa_forward refuses those of another GPU. */
  int32_t arch, multiprocessors;
} attune_sdpa_params;

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

/* What attune_sdpa_forward does for some parameters. */
typedef struct attune_sdpa_explanation {
  size_t struct_size; /* sizeof(attune_sdpa_explanation), set by the caller */

  const char *form;   /* the variant that computes attention, as attune_sdpa_form */
  const char *kernel; /* "dense", "decode", "prefill", "native", "pingpong", "prefill16",
                       * "mixed", "warp" or "warp8" */
  int32_t precision;  /* of k and v: ATTUNE_SDPA_PRECISION_FP8 or _16 */
  int32_t launches;   /* 2 with a quantiser, else 1 */
  size_t workspace_bytes;

  /* The documented error of O on normal inputs: RMS over that of float64 on the tensors of the call.
   * docs/library.md has the table and its sources. */
  double relative_error;

  char reason[192]; /* why this precision and this form: one sentence */

  /* ---- since the struct of 240 bytes ---- */
  int32_t arch, multiprocessors; /* of the GPU that the call is planned for: 89 for sm_89 */
} attune_sdpa_explanation;

/* Explains the choice for parameters, with or without a workspace as they have it. Reads no tensor
 * and needs no driver. What is not supported has the status and the error of attune_sdpa_forward. */
attune_sdpa_status attune_sdpa_explain(const attune_sdpa_params *params,
                                       attune_sdpa_explanation *into);

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

  /* [batch, kv_heads, head_dim]: receives what smooth_k subtracted, else zeros. NULL: nothing. */
  float *mean_k;

  int32_t batch, heads, kv_heads, queries, keys, head_dim; /* head_dim: multiple of 8, up to 256 */

  /* In elements, multiples of 8: batch, head, row. All zero: contiguous. */
  int64_t q_stride[3], k_stride[3], v_stride[3];

  attune_sdpa_dtype dtype; /* of q, k and v: FP16 or BF16 */

  /* Not 0: subtract from k the mean of each column of a head, which the softmax does not see.
   * 0: do not. */
  int32_t smooth_k;
  /* Not 0: multiply the rows of q and k by the Hadamard matrix over sqrt(head_dim), which q k^T
   * does not see. head_dim is a power of two then. 0: do not. */
  int32_t hadamard;

  void *workspace; /* device memory of attune_sdpa_quantize_workspace_bytes */
  size_t workspace_bytes;

  uint64_t flags; /* ATTUNE_SDPA_TRUST_POINTERS; 0: none */
} attune_quantize_params;

attune_sdpa_status attune_sdpa_quantize(const attune_quantize_params *params,
                                        struct CUstream_st *stream);

/* Bytes of workspace; 0 if the arguments are wrong. Reads no tensor and needs no driver. */
size_t attune_sdpa_quantize_workspace_bytes(const attune_quantize_params *params);

/* New rows of k and v into a cache in E4M3, with factors that are given: y = e4m3(x / descale),
 * saturating at 448. Row i of sequence b goes to position lengths[b] + i. A row behind the capacity
 * is dropped, and one on a page that is negative or not below pages. A sequence with a negative
 * length is an unused slot: nothing is written. There is no workspace, and lengths is not changed. */
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

  uint64_t flags; /* ATTUNE_SDPA_TRUST_POINTERS; 0: none */
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
