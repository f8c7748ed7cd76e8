#include <cstdint>
#include <cuda.h>

// One thread copies a box to shared memory and back by TMA. Both maps have the same swizzle.
extern "C" __global__ void tma_copy(const uint16_t *, uint16_t *, const __grid_constant__ CUtensorMap x,
                                    const __grid_constant__ CUtensorMap y) {
  extern __shared__ unsigned char memory[];
  __shared__ uint64_t full;
  if (threadIdx.x != 0) return;
  const uint32_t start = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  const uint32_t box = (start + 1023) & ~1023u;
  const uint32_t barrier = static_cast<uint32_t>(__cvta_generic_to_shared(&full));
  const int column = blockIdx.x * 64, row = blockIdx.y * ROWS;
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(ROWS * 128) : "memory");
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(box),
      "l"(&x), "r"(column), "r"(row), "r"(barrier)
      : "memory");
  asm volatile(
      "{\n.reg .pred done;\nwait:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n@!done bra wait;\n}" ::"r"(barrier)
      : "memory");
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&y), "r"(column),
               "r"(row), "r"(box)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}
