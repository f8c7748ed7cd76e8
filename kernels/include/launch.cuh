// The launch contract: what the host must know to launch an image. attune reads these arrays by
// name from the PTX. So block size, tile and shared memory are defined once, in the source.
#pragma once

// ATTUNE_LAUNCH(threads, query_rows, dynamic_shared_bytes, blocks_per_sm, cluster); omitted
// trailing values are 0.
//
// The grid has tiles in x and query heads in y; z takes the heads beyond the limit of y. Where
// `group` query heads share one head of K and V, y is the head within the group and z the K/V head.
//
// blocks_per_sm: 0 launches one block per tile. A larger value launches a persistent kernel with at
// most that many blocks per multiprocessor.
// cluster: blocks of a cluster, adjacent in x; 0 and 1 mean no cluster. The grid is rounded up to
// whole clusters, so some blocks may lie beyond the last tile.
#define ATTUNE_LAUNCH(...) extern "C" __device__ const unsigned attune_launch[] = {__VA_ARGS__}

// ATTUNE_TENSOR_MAPS({tensor, rows, inner_bytes, swizzle_bytes}, ...) requests one tensor map per
// entry. The maps are the last kernel parameters, in this order (const __grid_constant__
// CUtensorMap). tensor is 0 for q, 1 for k, 2 for v, 3 for o. A map has three dimensions: columns,
// rows, and the heads of all batches. E4M3 codes are u8; o is f16 or bf16. The box is inner_bytes
// by rows by one head. swizzle_bytes is 0, 32, 64 or 128. Out-of-bounds elements read as zeros.
#define ATTUNE_TENSOR_MAPS(...) \
  extern "C" __device__ const unsigned attune_tensor_maps[][4] = {__VA_ARGS__}

// ATTUNE_OUTPUTS(lse, bf16) describes outputs other than an FP16 o. bf16 is 1 if o is BF16. A
// nonzero lse means that the parameter after o is float* lse (B*H, queries), the natural logarithm
// of each row's sum of exp(score). The value says how that sum is taken:
//   1  in FP32, before P is rounded
//   2  on the tensor cores, over P rounded to E4M3
#define ATTUNE_OUTPUTS(...) extern "C" __device__ const unsigned attune_outputs[] = {__VA_ARGS__}
