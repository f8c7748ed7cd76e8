// Named barriers at which some threads only arrive; ptx.cuh has barrier_sync, which waits.
#pragma once

namespace ptx {

// PTX ISA "barrier.arrive": arrives at barrier `id` of `threads` threads, and does not wait.
__device__ __forceinline__ void barrier_arrive(int id, int threads) {
  asm volatile("barrier.arrive %0, %1;\n" :: "r"(id), "r"(threads) : "memory");
}

}  // namespace ptx
