// Attention on Q in FP16 or BF16 with K and V in E4M3, on Hopper (sm_90a). The kernel converts Q
// itself, so that a pass before it has only K and V to convert. docs/mixed.md has the arguments.
//
// Main loop, softmax, products and transpose are those of attention/dense/stage7b.cu. traits.cuh
// chooses the tile, the knobs and what differs: query.cuh and output.cuh.
#include "attention/kernel.cuh"
#include "traits.cuh"

using Traits = attention::mixed::Traits;
using Sizes = attention::TileSizes<Traits>;

extern "C" __global__ void __launch_bounds__(Sizes::kThreads, Sizes::kBlocksPerSm)
mixed(const uint16_t*, const uint8_t*, const uint8_t*, uint16_t* __restrict__ o,
      uint16_t* __restrict__ o_bf16, float* __restrict__ lse,
      const float* __restrict__ descale_k, const float* __restrict__ descale_v, int heads,
      int group, int queries, int keys, int causal, int q_bf16, float softmax_scale,
      const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
      const __grid_constant__ TensorMap v_map) {
  Traits::Problem p = {};
  p.o = o_bf16 != nullptr ? o_bf16 : o, p.lse = lse;
  p.descale_k = descale_k, p.descale_v = descale_v;
  p.heads = heads, p.group = group, p.queries = queries, p.keys = keys;
  p.causal = causal != 0, p.softmax_scale = softmax_scale;
  p.q_bf16 = q_bf16 != 0, p.o_bf16 = o_bf16 != nullptr;
  attention::forward<Traits>(p, &q_map, &k_map, &v_map);
}
