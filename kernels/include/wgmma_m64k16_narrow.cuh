// PTX ISA "wgmma.mma_async", m64nNk16 on FP16 operands with 8 to 48 columns. As in
// wgmma_m64k16.cuh: a is in registers, and the rows of b, in shared memory, are the columns of the
// product.
#pragma once

#include "wgmma_m64k16.cuh"

namespace ptx {

#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D8(i) D4(i), D4(i + 4)
#define D16(i) D8(i), D8(i + 8)

__device__ __forceinline__ void wgmma_m64k16_f16(float (&d)[4], const uint32_t (&a)[4], uint64_t b,
                                                 bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %9, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
               "{%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, p, 1, 1, 0; }\n"
               : D4(0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                 "r"(static_cast<int>(accumulate)));
}

__device__ __forceinline__ void wgmma_m64k16_f16(float (&d)[8], const uint32_t (&a)[4], uint64_t b,
                                                 bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %13, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
               "{%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p, 1, 1, 0; }\n"
               : D8(0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                 "r"(static_cast<int>(accumulate)));
}

__device__ __forceinline__ void wgmma_m64k16_f16(float (&d)[16], const uint32_t (&a)[4], uint64_t b,
                                                 bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %21, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1, 0; }\n"
               : D16(0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                 "r"(static_cast<int>(accumulate)));
}

__device__ __forceinline__ void wgmma_m64k16_f16(float (&d)[24], const uint32_t (&a)[4], uint64_t b,
                                                 bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %29, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23}, "
               "{%24,%25,%26,%27}, %28, p, 1, 1, 0; }\n"
               : D16(0), D8(16)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                 "r"(static_cast<int>(accumulate)));
}

__device__ __forceinline__ void wgmma_m64k16_f16(float (&d)[32], const uint32_t (&a)[4],
                                                 uint64_t b, bool accumulate) {
  wgmma_m64k16<false, 0>(d, a, b, accumulate);
}

#undef D4
#undef D8
#undef D16

}  // namespace ptx
