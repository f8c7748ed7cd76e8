/* The table of forms, which attune export writes to attune_sdpa_forms.c. Private to the library. */
#ifndef ATTUNE_SDPA_FORMS_H
#define ATTUNE_SDPA_FORMS_H

#include <stddef.h>
#include <stdint.h>

#define ATTUNE_SDPA_PRIVATE __attribute__((visibility("hidden")))

/* The properties of a problem that conditions see. heads and kv_heads count over all batches. */
typedef struct attune_sdpa_shape {
  int64_t batch, heads, kv_heads, queries, keys, head_dim, causal;
} attune_sdpa_shape;

/* Tensor map of a tensor. Its box has rows of one head. */
typedef struct attune_sdpa_map {
  int32_t tensor; /* 0 q, 1 k, 2 v, 3 o */
  int32_t element_bytes;
  /* 4: columns, rows, heads, batch entries or pages, with any strides. 3: the heads of all batch
   * entries are one dimension, for contiguous tensors. */
  int32_t rank;
  int32_t columns, rows; /* of the box */
  int32_t paged_rows;    /* rows where k and v are paged; boxes of small pages have fewer */
  int32_t swizzle_bytes;
} attune_sdpa_map;

enum { ATTUNE_SDPA_MAX_MAPS = 4, ATTUNE_SDPA_OUTPUTS = 4, ATTUNE_SDPA_MAX_ARGUMENTS = 64 };

/* The arguments of kernels, by their names in kernel.toml. A launch has the address of the value of
 * each argument that its form takes. */
typedef enum attune_argument {
  /* the tensor maps of the form, in order */
  ATTUNE_ARG_MAP_0, ATTUNE_ARG_MAP_1, ATTUNE_ARG_MAP_2, ATTUNE_ARG_MAP_3,
  /* attention: output is o of any type, o and o_bf16 are NULL for the other */
  ATTUNE_ARG_Q, ATTUNE_ARG_K, ATTUNE_ARG_V, ATTUNE_ARG_OUTPUT, ATTUNE_ARG_O, ATTUNE_ARG_O_BF16,
  ATTUNE_ARG_LSE, ATTUNE_ARG_DESCALE_Q, ATTUNE_ARG_DESCALE_K, ATTUNE_ARG_DESCALE_V, ATTUNE_ARG_SINKS,
  ATTUNE_ARG_CU_QUERIES, ATTUNE_ARG_CU_KEYS, ATTUNE_ARG_LENGTHS, ATTUNE_ARG_PAGE_TABLE,
  ATTUNE_ARG_PARTS, ATTUNE_ARG_ARRIVED, ATTUNE_ARG_BATCH, ATTUNE_ARG_HEADS, ATTUNE_ARG_KV_HEADS,
  ATTUNE_ARG_GROUP, ATTUNE_ARG_QUERIES, ATTUNE_ARG_KEYS, ATTUNE_ARG_MAX_PAGES, ATTUNE_ARG_PAGE_SIZE,
  ATTUNE_ARG_CAUSAL, ATTUNE_ARG_WINDOW_LEFT, ATTUNE_ARG_WINDOW_RIGHT, ATTUNE_ARG_EVEN_BLOCKS,
  ATTUNE_ARG_SOFTMAX_SCALE, ATTUNE_ARG_Q_FP16, ATTUNE_ARG_Q_BF16,
  ATTUNE_ARG_Q_STRIDE_BATCH, ATTUNE_ARG_Q_STRIDE_HEAD, ATTUNE_ARG_Q_STRIDE_ROW,
  ATTUNE_ARG_O_STRIDE_BATCH, ATTUNE_ARG_O_STRIDE_HEAD, ATTUNE_ARG_O_STRIDE_ROW,
  ATTUNE_ARG_LSE_STRIDE_BATCH, ATTUNE_ARG_LSE_STRIDE_HEAD, ATTUNE_ARG_TOTAL_QUERIES,
  /* of prefill16 */
  ATTUNE_ARG_SOFTCAP, ATTUNE_ARG_O_COLUMNS,
  ATTUNE_ARG_ALIBI_SLOPES, ATTUNE_ARG_TREE_MASK, ATTUNE_ARG_ALIBI_STRIDE_BATCH,
  ATTUNE_ARG_HEAD_ROWS, /* of pingpong */
  /* of warp */
  ATTUNE_ARG_K_STRIDE_BATCH, ATTUNE_ARG_K_STRIDE_HEAD, ATTUNE_ARG_K_STRIDE_ROW,
  ATTUNE_ARG_V_STRIDE_BATCH, ATTUNE_ARG_V_STRIDE_HEAD, ATTUNE_ARG_V_STRIDE_ROW,
  ATTUNE_ARG_SECTION, ATTUNE_ARG_SPLITS, ATTUNE_ARG_COLUMNS, ATTUNE_ARG_TOTAL_KEYS,
  ATTUNE_ARG_Q_S8, ATTUNE_ARG_K_S8, ATTUNE_ARG_Q_DOT_MEAN, /* of warp8 */
  ATTUNE_ARG_COUNTERS,  /* of pingpong, and of quantisers */
  /* quantisers, beside some of the above */
  ATTUNE_ARG_Y_Q, ATTUNE_ARG_Y_K, ATTUNE_ARG_Y_V, ATTUNE_ARG_MEAN_K,
  ATTUNE_ARG_WORKSPACE, ATTUNE_ARG_Q_ROWS, ATTUNE_ARG_KV_ROWS, ATTUNE_ARG_DIM, ATTUNE_ARG_BF16,
  ATTUNE_ARG_SMOOTH, ATTUNE_ARG_HADAMARD, ATTUNE_ARG_COPIES,
  ATTUNE_ARG_Q_BATCH_STRIDE, ATTUNE_ARG_Q_HEAD_STRIDE, ATTUNE_ARG_Q_ROW_STRIDE,
  ATTUNE_ARG_K_BATCH_STRIDE, ATTUNE_ARG_K_HEAD_STRIDE, ATTUNE_ARG_K_ROW_STRIDE,
  ATTUNE_ARG_V_BATCH_STRIDE, ATTUNE_ARG_V_HEAD_STRIDE, ATTUNE_ARG_V_ROW_STRIDE,
  /* append, beside some of the above */
  ATTUNE_ARG_K_CACHE, ATTUNE_ARG_V_CACHE, ATTUNE_ARG_ROWS, ATTUNE_ARG_PAGED, ATTUNE_ARG_PAGES,
  ATTUNE_ARGUMENTS
} attune_argument;

typedef enum attune_sdpa_kernel {
  ATTUNE_KERNEL_DENSE, /* contiguous tensors without options: the forms of the selection */
  ATTUNE_KERNEL_DECODE,
  ATTUNE_KERNEL_PREFILL,
  ATTUNE_KERNEL_NATIVE,
  ATTUNE_KERNEL_PINGPONG,
  ATTUNE_KERNEL_PREFILL16,
  ATTUNE_KERNEL_MIXED,
  ATTUNE_KERNEL_WARP,  /* of all GPUs but those that the other kernels are for */
  ATTUNE_KERNEL_WARP8, /* of the same GPUs, with products of 8 bits */
  ATTUNE_KERNEL_CAST,
  ATTUNE_KERNEL_QUANTIZE,
  ATTUNE_KERNEL_QUANTIZE8, /* for warp8 */
  ATTUNE_KERNEL_APPEND
} attune_sdpa_kernel;

/* A variant of a kernel: its code and its launch. */
typedef struct attune_sdpa_form_info {
  attune_sdpa_kernel kernel;
  const char *variant, *entry;
  const void *image; /* cubin, or PTX with a final NUL */
  int32_t arch;      /* of the image: 89 for sm_89 */
  int32_t is_exact;  /* it runs on that architecture alone, as that of sm_90a does */
  int32_t is_ptx;    /* else it runs on later architectures too; machine code on those of its major */
  int32_t head_dim;  /* 0: any */
  int32_t threads, shared_bytes; /* per block; dynamic shared memory */
  int32_t cooperative;           /* blocks wait for each other */
  int32_t waits; /* for the launch before, where it first reads its inputs: griddepcontrol.wait */
  int32_t cluster; /* blocks of a cluster; 0 for none */

  int32_t argument_count, map_count;
  uint8_t arguments[ATTUNE_SDPA_MAX_ARGUMENTS]; /* attune_argument */
  attune_sdpa_map maps[ATTUNE_SDPA_MAX_MAPS];

  int32_t query_rows; /* per block; decode: of a K/V head */
  int32_t step_keys;  /* of a native, pingpong, mixed, prefill or decode form */

  /* Most blocks on a multiprocessor. Dense forms: 0 for one block per tile; else persistent, but for
   * those of warp and warp8. */
  int32_t blocks_per_multiprocessor;

  int32_t cache_dtype; /* decode: of k and v, an attune_sdpa_dtype; warp: 0 for that of q; warp8:
                        * E4M3 if q and k are, 0 for s8 */
  int32_t e4m3_v; /* warp8: v is E4M3, else of 16 bits; quantize8: v becomes E4M3 */
  int32_t bf16; /* native, pingpong, prefill16, warp: tensors are BF16, else FP16; warp8: o is */
  int32_t linear_eighths; /* native, pingpong: exponentials of every eight that are approximated */

  /* Warp. */
  int32_t has_options; /* it computes problems with options, and head dims below its own */
  int32_t packs_heads; /* a tile has rows of all query heads of a K/V head */
  int32_t splits;      /* several blocks may divide the keys of a tile */

  /* Quantiser. */
  int32_t chunks;     /* 16-byte chunks of a thread in a tile */
  int32_t max_blocks; /* of the grid */
} attune_sdpa_form_info;

/* The dense forms, then those of the other kernels. */
ATTUNE_SDPA_PRIVATE extern const attune_sdpa_form_info attune_sdpa_forms[];
ATTUNE_SDPA_PRIVATE extern const int attune_sdpa_dense_count, attune_sdpa_form_count;

/* For each choice of the selection the form of each output, -1 without one. An output is 1 for BF16
 * plus 2 with LSE. */
ATTUNE_SDPA_PRIVATE extern const int attune_sdpa_choices[][ATTUNE_SDPA_OUTPUTS];

/* The first choice whose condition holds. Sizes must be within the limits of attune_sdpa.c. */
ATTUNE_SDPA_PRIVATE int attune_sdpa_choose(const attune_sdpa_shape *shape);

/* Whether the decode kernel should compute a problem without options that it can compute. */
ATTUNE_SDPA_PRIVATE int attune_sdpa_prefers_decode(const attune_sdpa_shape *shape);

/* Whether the native or the pingpong kernel should compute a problem in 16 bits that it can. */
ATTUNE_SDPA_PRIVATE int attune_sdpa_prefers_native(const attune_sdpa_shape *shape);

/* Whether the native kernel should have tiles of 64 query rows. */
ATTUNE_SDPA_PRIVATE int attune_sdpa_prefers_tiles_of_64(const attune_sdpa_shape *shape);

/* Whether it should have tiles of 128, if not of 64. */
ATTUNE_SDPA_PRIVATE int attune_sdpa_prefers_small_tiles(const attune_sdpa_shape *shape);

/* Whether it should have tiles of 192, if not of 64 or 128. */
ATTUNE_SDPA_PRIVATE int attune_sdpa_prefers_tiles_of_192(const attune_sdpa_shape *shape);

/* Whether a step of the native or the pingpong kernel should have 64 keys instead of 128. */
ATTUNE_SDPA_PRIVATE int attune_sdpa_prefers_steps_of_64(const attune_sdpa_shape *shape);

/* Whether the mixed kernel should compute a problem with q in 16 bits that it can compute. */
ATTUNE_SDPA_PRIVATE int attune_sdpa_prefers_mixed(const attune_sdpa_shape *shape);

/* The architecture that the selection and most kernels are for, 90 for sm_90a. */
ATTUNE_SDPA_PRIVATE extern const int attune_sdpa_arch;
ATTUNE_SDPA_PRIVATE extern const char attune_sdpa_version_text[];

#endif
