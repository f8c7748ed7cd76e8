/* What the sources of attune_sdpa share: errors, the driver, contexts, launches. Private to the
 * library. */
#ifndef ATTUNE_INTERNAL_H
#define ATTUNE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attune_sdpa.h"
#include "attune_sdpa_forms.h"

/* ---- errors --------------------------------------------------------------------------------- */

/* Sets the error of this thread and returns the status. */
__attribute__((format(printf, 2, 3))) ATTUNE_SDPA_PRIVATE attune_sdpa_status
attune_fail(attune_sdpa_status status, const char *format, ...);
ATTUNE_SDPA_PRIVATE void attune_clear_error(void);

#define TRY(call)                                       \
  do {                                                  \
    const attune_sdpa_status status_ = (call);          \
    if (status_ != ATTUNE_SDPA_OK) return status_;      \
  } while (0)

/* ---- the driver ----------------------------------------------------------------------------- */

/* The part of cuda.h that is used. */
typedef int CUresult, CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;

typedef struct launch_attribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    unsigned cluster[3];
    int cooperative, dependent;
  } value;
} launch_attribute;

typedef struct launch_config {
  unsigned grid[3], block[3], shared_bytes;
  CUstream stream;
  launch_attribute *attributes;
  unsigned attribute_count;
} launch_config;

_Static_assert(sizeof(launch_attribute) == 72 && sizeof(launch_config) == 56,
               "CUlaunchAttribute and CUlaunchConfig have these sizes");

enum {
  DEVICE_MULTIPROCESSORS = 16,
  DEVICE_L2_BYTES = 38,
  DEVICE_MAJOR = 75,
  DEVICE_MINOR = 76,
  POINTER_MEMORY_TYPE = 2,
  POINTER_IS_MANAGED = 8,
  POINTER_DEVICE_ORDINAL = 9,
  MEMORY_DEVICE = 2,
  FUNCTION_DYNAMIC_SHARED = 8,
  FUNCTION_NON_PORTABLE_CLUSTER = 14,
  LOAD_ERROR_LOG = 5,
  LOAD_ERROR_LOG_BYTES = 6,
  LAUNCH_COOPERATIVE = 2,
  LAUNCH_CLUSTER = 4,
  LAUNCH_DEPENDENT = 6, /* programmatic stream serialization */
  CAPTURE_RELAXED = 2,
  INVALID_IMAGE = 200,
  NO_BINARY_FOR_GPU = 209,
  UNSUPPORTED_PTX = 222,
  MAP_U8 = 0,
  MAP_F16 = 6,
  MAP_BF16 = 9,
  MAP_L2_128B = 2,
  MAP_L2_256B = 3
};

/* A CUDA context with the functions that were loaded into it. */
typedef struct context context;

/* Opens the driver once. A failure is not remembered: the next call tries again. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_start_driver(void);
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_current_context(context **into);

/* The current context if this library has started the driver; else NULL. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_started_context(context **into);

/* The current context of a program that has opened the driver, which need not have been by this
 * library; NULL without one. Starts nothing. */
ATTUNE_SDPA_PRIVATE context *attune_peek_context(void);

/* What calls are planned for. */
typedef struct target {
  int32_t arch; /* 89 for sm_89 */
  int32_t multiprocessors;
} target;

ATTUNE_SDPA_PRIVATE target attune_target_of(const context *c);
ATTUNE_SDPA_PRIVATE int attune_device_of(const context *c);
ATTUNE_SDPA_PRIVATE int attune_l2_bytes(const context *c);

/* Whether the code of a form runs on an architecture. */
ATTUNE_SDPA_PRIVATE bool attune_runs_on(const attune_sdpa_form_info *form, int32_t arch);

/* Shared memory of a multiprocessor. A block reserves BLOCK_SHARED_BYTES beside its own. More
 * multiprocessors than there are on sm_80 are of a Hopper GPU, which ATTUNE_ARCH names so. */
enum { BLOCK_SHARED_BYTES = 1024 };
ATTUNE_SDPA_PRIVATE int32_t attune_shared_bytes_of(target t);

/* Loads the code of a form into a context if that has not happened yet. Refuses code for another
 * architecture. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_load(context *c, const attune_sdpa_form_info *form);

/* Blocks of a form that a multiprocessor holds at once; at least 1. The form is loaded. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_resident_blocks(context *c,
                                                              const attune_sdpa_form_info *form,
                                                              int *blocks);

/* A tensor map has the sizes of the whole tensor, innermost first, and those of a box. */
typedef struct tensor_map {
  int type, l2_promotion, swizzle_bytes;
  unsigned rank;
  const void *address;
  uint64_t dims[4], strides[3]; /* in elements; in bytes, without the innermost */
  unsigned box[4];
} tensor_map;

/* The 128 bytes of a kernel's parameter. */
typedef struct encoded_map {
  _Alignas(64) unsigned char bytes[128];
} encoded_map;

ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_encode_map(const tensor_map *map, encoded_map *into);

/* Launches a form that is loaded, with the threads, shared memory and cluster of its contract. values
 * has the address of the value of each argument that the form takes. A dependent launch may start
 * before the end of the one before it on the stream, which allows it; the form waits for that where
 * it first reads its inputs. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_launch(context *c, const attune_sdpa_form_info *form,
                                                     const unsigned grid[3],
                                                     void *values[ATTUNE_ARGUMENTS],
                                                     CUstream stream, bool dependent);

/* ---- pointers ------------------------------------------------------------------------------- */

typedef struct pointer {
  const char *name;
  const void *address;
  unsigned alignment; /* TMA and 16-byte loads and stores need 16 */
} pointer;

/* Refuses NULL and addresses that are not aligned. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_check_addresses(const pointer *all, int count);

/* Refuses host memory and memory of another device, on which a kernel would fault. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_check_memory(const context *c, const pointer *all,
                                                           int count);

/* Copies the parameters of a caller, whose header may be earlier or later than that of the library.
 * Fields that the caller does not have, after the bytes of the first version, become 0; those that
 * the library does not know must be 0, which is no option. Clears the error of this thread. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_copy_params(const char *type, const void *given,
                                                          void *into, size_t size, size_t first);

/* Refuses flags that do not exist. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_check_flags(uint64_t flags);

ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_check_workspace(size_t have, size_t need);

/* ---- sizes and strides ---------------------------------------------------------------------- */

/* The largest extents and tensors that the kernels are checked with. */
#define MAX_EXTENT ((int64_t)1 << 24)
#define MAX_ELEMENTS ((double)((int64_t)1 << 31))

typedef struct extent {
  const char *name;
  int32_t value;
} extent;

/* Refuses extents below 1 and above MAX_EXTENT. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_check_extents(const extent *all, int count);

/* Kernels index a page table by 32 bits. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_check_page_table(int32_t batch, int32_t max_pages);

/* A tensor of rows: batch entries (or pages), heads, rows. */
typedef struct tensor {
  const char *name, *stride_name;
  const void *address;
  const int64_t *given; /* strides as given, all zero for contiguous */
  int64_t extents[3];
  /* after attune_set_strides: */
  int64_t strides[3]; /* in elements */
  bool contiguous;    /* batch, head, row from the outside to the inside, without gaps */
  int32_t columns;
} tensor;

/* Sets the strides, and checks them for elements of some bytes. With rows_first a contiguous tensor
 * has the order batch, row, head. The stride of an extent of 1 does not matter. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_set_strides(tensor *t, int32_t head_dim,
                                                          int element_bytes, bool rows_first);

/* Gives a tensor the strides of what a quantiser makes of it: contiguous, heads before rows. */
ATTUNE_SDPA_PRIVATE void attune_make_contiguous(tensor *t);

/* Refuses a number that is no attune_sdpa_dtype, and those that are not among the bits. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_check_dtype(const char *name, attune_sdpa_dtype dtype,
                                                          int supported);

static inline int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* ---- the kernels ---------------------------------------------------------------------------- */

/* The first form of a kernel for a head dim that runs on an architecture; NULL if the library has
 * none. */
ATTUNE_SDPA_PRIVATE const attune_sdpa_form_info *attune_find_form(attune_sdpa_kernel kernel,
                                                                  int32_t head_dim, int32_t arch);

/* The workspace of kernels/quantize/quantize and quantize8 begins with 16 bytes of counters, the end
 * of the zeroed bytes. The counters of a decode or a pingpong form are before them. */
enum {
  QUANTIZE_COUNTER_BYTES = 16,
  QUANTIZE_OFFSET = ATTUNE_SDPA_ZEROED_BYTES - QUANTIZE_COUNTER_BYTES,
  MAX_DECODE_COUNTERS = QUANTIZE_OFFSET / 4
};

/* A quantisation whose arguments are checked. */
typedef struct quantization {
  tensor q, k, v; /* a tensor without rows is not quantised */
  void *y_q, *y_k, *y_v;
  float *descale_q, *descale_k, *descale_v;
  float *mean_k;   /* or NULL */
  float *q_dot_mean; /* of quantize8: the products of q and mean_k, or NULL */
  void *workspace; /* at QUANTIZE_OFFSET of that of the caller */
  void *counters;  /* of kernels/quantize/cast: that of the caller */
  int32_t batch, heads, kv_heads, q_rows, kv_rows, head_dim;
  int32_t copies; /* batch entries that get the factors: more than 1 for packed tensors */
  int32_t bf16, smooth, hadamard;
} quantization;

/* The form that computes a quantisation to E4M3 on an architecture: one pass over the tensors where
 * no option needs two. NULL if the library has none. */
ATTUNE_SDPA_PRIVATE const attune_sdpa_form_info *attune_find_quantiser(const quantization *z,
                                                                       int32_t arch);

/* The factors of a head of each tensor. */
typedef struct head_factors {
  size_t q, k, v;
} head_factors;

ATTUNE_SDPA_PRIVATE head_factors attune_factors_of(const quantization *z,
                                                   const attune_sdpa_form_info *form);

/* Refuses what the kernel cannot count. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_check_quantization(const quantization *z,
                                                                 const attune_sdpa_form_info *form);

/* Bytes of workspace, those before QUANTIZE_OFFSET not counted. */
ATTUNE_SDPA_PRIVATE size_t attune_quantization_bytes(const quantization *z,
                                                     const attune_sdpa_form_info *form);
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_launch_quantization(const quantization *z, context *c,
                                                                  const attune_sdpa_form_info *form,
                                                                  CUstream stream);

/* An attention problem whose arguments are checked, with inputs as its form takes them. */
typedef struct problem {
  attune_sdpa_params p;
  tensor q, k, v, o;
  bool causal;
  int32_t window_left, window_right; /* -1 without an effect */
  float scale;
  void *parts;     /* of a decode form */
  bool converts_q; /* a decode form takes q in 16 bits */
  void *counters;  /* of the tiles of a pingpong form; NULL for an order without */
  bool other_head_dim; /* that only prefill16 computes */
  int32_t packed;  /* query heads in a tile of a pingpong form; else 1 */
  bool dependent; /* attention is launched before the end of the cast */
  target target;
  int32_t splits;   /* blocks of a tile of a warp form */
  const float *q_dot_mean; /* of a warp8 form: of each row of q with the mean of k, or NULL */
  bool is_measured; /* a selection of the user has chosen the warp form */
} problem;

/* Whether a tensor would have more elements than kernels index by 32 bits, and that as an error. */
ATTUNE_SDPA_PRIVATE bool attune_has_many(const attune_sdpa_params *p, int32_t batch, int32_t heads,
                                         int32_t rows);
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_too_many_elements(const attune_sdpa_params *p,
                                                                extent heads, extent rows);

/* The same of k and v. */
ATTUNE_SDPA_PRIVATE bool attune_keys_are_many(const attune_sdpa_params *p);
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_too_many_keys(const attune_sdpa_params *p);

/* Whether the query rows of a K/V head are left to the decode kernel even if k and v are quantised. */
ATTUNE_SDPA_PRIVATE bool attune_has_few_rows(const attune_sdpa_params *p);

/* Whether the decode kernel computes these query rows of a K/V head, over k and v as they are given
 * or quantised. */
ATTUNE_SDPA_PRIVATE bool attune_decode_rows_fit(const attune_sdpa_params *p, bool quantised);

/* The decode form for k and v of a type with as few rows as hold those of the problem; NULL if the
 * library has none. */
ATTUNE_SDPA_PRIVATE const attune_sdpa_form_info *attune_find_decode(const attune_sdpa_params *p,
                                                                    attune_sdpa_dtype dtype);
ATTUNE_SDPA_PRIVATE size_t attune_decode_part_bytes(const attune_sdpa_form_info *form,
                                                    int32_t multiprocessors);
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_launch_attention(const problem *x, context *c,
                                                               const attune_sdpa_form_info *form,
                                                               CUstream stream);

/* A selection that was measured on the GPU of the user; NULL is none. A file that cannot be read is an
 * error. */
typedef struct selection selection;

ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_find_selection(target t, const selection **into);

/* The place of a form among those of a selection that take the problem; of others their number. */
ATTUNE_SDPA_PRIVATE int attune_rank(const selection *s, const problem *x,
                                    const attune_sdpa_form_info *form);

/* ---- the plan of a call --------------------------------------------------------------------- */

/* What a call does. Tensors that are quantised have their offsets in the workspace. */
typedef struct call_plan {
  problem x;
  const attune_sdpa_form_info *form, *quantiser; /* the latter NULL if nothing is quantised */
  quantization z;
  size_t y_q, y_k, y_v, descale_q, descale_k, descale_v, mean_k, q_dot_mean, parts;
  size_t workspace_bytes;
} call_plan;

/* Checks everything but pointers, and plans the call with or without a workspace: for the device that
 * the parameters name, else for that of a context, else, without one (NULL), for an H200. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_make_plan(const attune_sdpa_params *params,
                                                        bool has_workspace, const context *c,
                                                        call_plan *plan);

/* Sets the form of the warp kernel with the shortest time, or says why there is none. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_select_warp(call_plan *plan, bool has_workspace);

/* Says that the library has no code for an architecture. */
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_refuse_arch(int32_t arch);

/* Whether q, k and v are in 8 bits on such a GPU, as they are given or quantised. Sets the form of
 * the warp8 kernel, and the quantiser, or says why there is none. */
ATTUNE_SDPA_PRIVATE bool attune_is_in_8_bits(const attune_sdpa_params *p);
ATTUNE_SDPA_PRIVATE attune_sdpa_status attune_select_warp8(call_plan *plan);
ATTUNE_SDPA_PRIVATE void attune_set_warp_grid(const problem *x, const attune_sdpa_form_info *form,
                                              unsigned grid[3]);

/* The heads whose tiles follow each other, which share the L2 cache. */
ATTUNE_SDPA_PRIVATE int32_t attune_warp_section(const problem *x,
                                                const attune_sdpa_form_info *form, int l2_bytes);

/* Why no form in 16 bits for many queries computes a problem in FP16 or BF16, as the rest of "no
 * form in 16 bits ..."; NULL if one does, whether or not it is the fastest. */
ATTUNE_SDPA_PRIVATE const char *attune_why_not_halves(const problem *x);

/* An option of the scores, such as "a softcap", which only prefill16 has; NULL without one. */
ATTUNE_SDPA_PRIVATE const char *attune_score_option_of(const attune_sdpa_params *p);

/* The first option of a problem, such as "sinks"; NULL without one. */
ATTUNE_SDPA_PRIVATE const char *attune_option_of(const problem *x);

#endif
