// What the host must know to launch an image. attune reads the arrays by their names from the PTX, so that a variant's block
// size, tile and shared memory stand in one place: the source that uses them.
#pragma once

// ATTUNE_LAUNCH(threads, query_rows, dynamic_shared_bytes, blocks_a_multiprocessor, cluster); what is left out at the end is 0.
// The grid has tiles in x and heads in y, and in z where they are too many for y. Where `group` heads share K and V, y has those and z the
// heads of K and V.
// blocks_a_multiprocessor is 0 for one block a tile, and else the most blocks of which each takes tile after tile. cluster is how many
// blocks, side by side in x, make a cluster; 0 and 1 are none. There may then be blocks behind the last tile, to make the cluster whole.
#define ATTUNE_LAUNCH(...) extern "C" __device__ const unsigned attune_launch[] = {__VA_ARGS__}

// ATTUNE_TENSOR_MAPS({tensor, rows, inner_bytes, swizzle_bytes}, ...) asks for tensor maps, one for each row, as parameters behind all
// others and in this order (const __grid_constant__ CUtensorMap). tensor is 0 for q, 1 for k, 2 for v, 3 for o. A map has three
// dimensions: columns, rows and heads (of all batches); E4M3 codes are u8, and o is f16 or bf16. Its box is inner_bytes by rows by one head.
// swizzle_bytes is 0, 32, 64 or 128, and what lies outside reads as zeros.
#define ATTUNE_TENSOR_MAPS(...) extern "C" __device__ const unsigned attune_tensor_maps[][4] = {__VA_ARGS__}

// ATTUNE_OUTPUTS(lse, bf16) says what the kernel writes that is not an o of FP16 alone. bf16 is 1 if o is BF16. lse is 0 for nothing; else
// float* lse (B*H, queries) is a parameter right behind o, for the natural logarithm of the sum of exp(score): 1 if that is summed in FP32,
// 2 if the exponentials are rounded to E4M3 and summed on tensor cores, 3 if some of these were lines (exp2.cuh).
#define ATTUNE_OUTPUTS(...) extern "C" __device__ const unsigned attune_outputs[] = {__VA_ARGS__}
