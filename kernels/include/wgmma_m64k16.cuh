// PTX ISA "wgmma.mma_async", m64nNk16 on BF16 or FP16 operands, with FP32 results.
//
// wgmma_m64k16<kBf16, kBMajor>(d, a, b, accumulate) computes
//
//   d (64, N) = a (64, 16) * b (16, N), added to d if `accumulate`
//
// b is in shared memory. With kBMajor 0 its rows are the columns of the product (K of Q·K^T), with
// 1 they are the summed dimension (V of P·V). Of an `a` in registers lane 4g+t of warp w holds
// columns 2t, 2t+1 of row 16w+g in a[0] and of row 16w+g+8 in a[1], and columns 8+2t, 9+2t of these
// rows in a[2] and a[3]. d is as in wgmma_m64k32.cuh.
#pragma once

#include <cstdint>

namespace ptx {

#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D8(i) D4(i), D4(i + 4)
#define D16(i) D8(i), D8(i + 8)
#define D32(i) D16(i), D16(i + 16)
#define D64(i) D32(i), D32(i + 32)

// a in shared memory.
template <bool kBf16, int kBMajor>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[32], uint64_t a, uint64_t b,
                                             bool accumulate) {
  if constexpr (kBf16) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                 "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
                 "%32, %33, p, 1, 1, 0, %35; }\n"
                 : D32(0)
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kBMajor));
  } else {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                 "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
                 "%32, %33, p, 1, 1, 0, %35; }\n"
                 : D32(0)
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kBMajor));
  }
}

template <bool kBf16, int kBMajor>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[64], uint64_t a, uint64_t b,
                                             bool accumulate) {
  if constexpr (kBf16) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                 "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,"
                 "%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,"
                 "%62,%63}, "
                 "%64, %65, p, 1, 1, 0, %67; }\n"
                 : D64(0)
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kBMajor));
  } else {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                 "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,"
                 "%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,"
                 "%62,%63}, "
                 "%64, %65, p, 1, 1, 0, %67; }\n"
                 : D64(0)
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kBMajor));
  }
}

// a in registers.
template <bool kBf16, int kBMajor>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[32], const uint32_t (&a)[4], uint64_t b,
                                             bool accumulate) {
  if constexpr (kBf16) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                 "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
                 "{%32,%33,%34,%35}, %36, p, 1, 1, %38; }\n"
                 : D32(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                   "r"(static_cast<int>(accumulate)), "n"(kBMajor));
  } else {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                 "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
                 "{%32,%33,%34,%35}, %36, p, 1, 1, %38; }\n"
                 : D32(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                   "r"(static_cast<int>(accumulate)), "n"(kBMajor));
  }
}

template <bool kBf16, int kBMajor>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[64], const uint32_t (&a)[4], uint64_t b,
                                             bool accumulate) {
  if constexpr (kBf16) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                 "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,"
                 "%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,"
                 "%62,%63}, "
                 "{%64,%65,%66,%67}, %68, p, 1, 1, %70; }\n"
                 : D64(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                   "r"(static_cast<int>(accumulate)), "n"(kBMajor));
  } else {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                 "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,"
                 "%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,"
                 "%62,%63}, "
                 "{%64,%65,%66,%67}, %68, p, 1, 1, %70; }\n"
                 : D64(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                   "r"(static_cast<int>(accumulate)), "n"(kBMajor));
  }
}

template <bool kBf16, int kBMajor>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[128], const uint32_t (&a)[4], uint64_t b,
                                             bool accumulate) {
  if constexpr (kBf16) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %133, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                 "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,"
                 "%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,"
                 "%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,"
                 "%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,"
                 "%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,"
                 "%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, "
                 "{%128,%129,%130,%131}, %132, p, 1, 1, %134; }\n"
                 : D64(0), D64(64)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                   "r"(static_cast<int>(accumulate)), "n"(kBMajor));
  } else {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %133, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                 "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,"
                 "%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,"
                 "%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,"
                 "%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,"
                 "%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,"
                 "%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, "
                 "{%128,%129,%130,%131}, %132, p, 1, 1, %134; }\n"
                 : D64(0), D64(64)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                   "r"(static_cast<int>(accumulate)), "n"(kBMajor));
  }
}

// a in registers, with eight more columns of the product in `last`: those of a second block of b,
// at the leading distance of its descriptor.
template <bool kBf16>
__device__ __forceinline__ void wgmma_m64n72k16(float (&d)[32], float (&last)[4],
                                                const uint32_t (&a)[4], uint64_t b) {
  if constexpr (kBf16) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n72k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                 "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35}, "
                 "{%36,%37,%38,%39}, %40, 1, 1, 1, 1;\n"
                 : D32(0), "+f"(last[0]), "+f"(last[1]), "+f"(last[2]), "+f"(last[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  } else {
    asm volatile("wgmma.mma_async.sync.aligned.m64n72k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                 "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35}, "
                 "{%36,%37,%38,%39}, %40, 1, 1, 1, 1;\n"
                 : D32(0), "+f"(last[0]), "+f"(last[1]), "+f"(last[2]), "+f"(last[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
}

#undef D4
#undef D8
#undef D16
#undef D32
#undef D64

}  // namespace ptx
