// y[i] = x[i] + x[j], where j is the right neighbour of i in its warp, or the first lane after the
// last. Each DEFECT but 6 leaves the output right on an H200.
#include <stdint.h>

extern "C" __global__ void planted(const float *x, float *y, int n) {
  __shared__ __align__(128) float tile[THREADS];
  __shared__ __align__(128) float sums[THREADS];
  const int t = threadIdx.x, i = blockIdx.x * THREADS + t;
  const int next = (t & ~31) | ((t + 1) & 31);
#if DEFECT == 1  // the last block reads past the end of x
  tile[t] = x[i];
#elif DEFECT == 2  // the last block leaves the end of its tile as it was
  if (i < n) tile[t] = x[i];
#else
  tile[t] = i < n ? x[i] : 0.0f;
#endif
#if DEFECT != 3  // the warp runs in step, so that its lanes see each other's stores
  __syncthreads();
#endif
  const float sum = tile[t] + (DEFECT == 2 ? 1.0f : (float)(blockIdx.x * THREADS + next < n)) * tile[next];
  sums[t] = sum;
#if DEFECT == 6  // nobody arrives at the barrier
  __shared__ uint64_t barrier;
  const uint32_t at = (uint32_t)__cvta_generic_to_shared(&barrier);
  if (t == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
  __syncthreads();
  uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
        : "=r"(done) : "r"(at) : "memory");
  }
#endif
#if DEFECT != 4  // the bulk copy belongs to another proxy than the stores before it
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  __syncthreads();
  const int count = min(THREADS, n - (int)blockIdx.x * THREADS);
  if (t == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(y + blockIdx.x * THREADS),
                 "r"((uint32_t)__cvta_generic_to_shared(sums)), "r"(count * 4)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#if DEFECT != 5  // the tile is written again while the copy may still read it
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
    sums[0] = sum;
  }
}
