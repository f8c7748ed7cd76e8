/* attune_sdpa: FP8 attention forward on NVIDIA Hopper GPUs, softmax(scale * q k^T) v.
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

/* A problem. Set all fields to 0 first, then struct_size and what the problem has: a later version
 * may append fields. */
typedef struct attune_sdpa_params {
  size_t struct_size; /* sizeof(attune_sdpa_params) */

  /* Device pointers, aligned to 16 bytes. */
  const void *q; /* [batch, heads, queries, head_dim] */
  const void *k; /* [batch, kv_heads, keys, head_dim] */
  const void *v; /* [batch, kv_heads, keys, head_dim] */
  void *o;       /* [batch, heads, queries, head_dim] */

  /* NULL, or [batch, heads, queries]: natural logarithm of the sum of exp(score) of each row. */
  float *lse;

  /* Device pointers. An E4M3 code times its factor is the value. Factors are not negative. */
  const float *descale_q; /* [batch, heads] */
  const float *descale_k; /* [batch, kv_heads] */
  const float *descale_v; /* [batch, kv_heads] */

  /* kv_heads divides heads; heads / kv_heads consecutive query heads share a head of k and v. */
  int32_t batch, heads, kv_heads, queries, keys, head_dim;

  /* In elements: batch, head, row. All zero: contiguous in the order above. */
  int64_t q_stride[3], k_stride[3], v_stride[3], o_stride[3];

  attune_sdpa_dtype dtype;     /* of q, k and v */
  attune_sdpa_dtype out_dtype; /* of o */

  /* Not 0: query i attends to the keys up to i + keys - queries, so the last one to all. */
  int32_t causal;
  float scale; /* of the scores; 0: 1 / sqrt(head_dim) */

  int32_t window_left, window_right; /* keys beside the query's own; -1: no limit */
  const float *sinks;                /* NULL, or [heads] */

  void *workspace; /* device memory of attune_sdpa_workspace_bytes; NULL if that is 0 */
  size_t workspace_bytes;
} attune_sdpa_params;

/* Launches the computation on a stream of the current context and returns. NULL is the default
 * stream. The parameters are read before it returns, the tensors when the stream gets there. The
 * first call of a form in a context loads its code. Launches can be captured into a CUDA graph. */
attune_sdpa_status attune_sdpa_forward(const attune_sdpa_params *params,
                                       struct CUstream_st *stream);

/* Bytes of workspace that the problem needs; 0 if it is not supported. Reads no tensor. */
size_t attune_sdpa_workspace_bytes(const attune_sdpa_params *params);

/* The variant of the kernel that the table selects for the problem, or NULL if it is not supported:
 * attune_sdpa_last_error says why. Reads no tensor and needs no driver. */
const char *attune_sdpa_form(const attune_sdpa_params *params);

/* Why the last call of this thread failed: one sentence that names the argument and its value.
 * Empty if it succeeded. Valid until the next call of this thread. */
const char *attune_sdpa_last_error(void);

/* The version of attune that wrote this library, and its selection. */
const char *attune_sdpa_version(void);

#ifdef __cplusplus
}
#endif
#endif
