// PTX ISA "wgmma.mma_async", m64nNk32 on E4M3 operands: one specialisation per N in use.
//
// wgmma_m64k32_e4m3<kColumns>(d, a, b, accumulate) computes
//
//   d (64, kColumns) = a (64, 32) * b (kColumns, 32)^T, added to d if `accumulate`
//
// b is in shared memory, a in registers or in shared memory. Of an `a` in registers lane 4g+t of
// warp w holds bytes 4t .. 4t+3 of row 16w+g in a[0] and of row 16w+g+8 in a[1], and bytes 16+4t ..
// 19+4t of these rows in a[2] and a[3]. d[4j] and d[4j+1] are columns 8j+2t and 8j+2t+1 of row
// 16w+g, d[4j+2] and d[4j+3] the same columns of row 16w+g+8.
#pragma once

#include <cstdint>

namespace ptx {

// Registers d[i] and the following as inputs and outputs of an asm statement.
#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D8(i) D4(i), D4(i + 4)
#define D16(i) D8(i), D8(i + 8)
#define D32(i) D16(i), D16(i + 16)
#define D64(i) D32(i), D32(i + 32)

// a in registers.
template <int kColumns>
__device__ __forceinline__ void wgmma_m64k32_e4m3(float (&d)[kColumns / 2], const uint32_t (&a)[4],
                                                  uint64_t b, bool accumulate);

template <>
__device__ __forceinline__ void wgmma_m64k32_e4m3<8>(float (&d)[4], const uint32_t (&a)[4],
                                                     uint64_t b, bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %9, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 "
               "{%0,%1,%2,%3}, "
               "{%4,%5,%6,%7}, %8, p, 1, 1; }\n"
               : D4(0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                 "r"(static_cast<int>(accumulate)));
}

template <>
__device__ __forceinline__ void wgmma_m64k32_e4m3<16>(float (&d)[8], const uint32_t (&a)[4],
                                                      uint64_t b, bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %13, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 "
               "{%0,%1,%2,%3,%4,%5,%6,%7}, "
               "{%8,%9,%10,%11}, %12, p, 1, 1; }\n"
               : D8(0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                 "r"(static_cast<int>(accumulate)));
}

template <>
__device__ __forceinline__ void wgmma_m64k32_e4m3<32>(float (&d)[16], const uint32_t (&a)[4],
                                                      uint64_t b, bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %21, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
               "{%16,%17,%18,%19}, %20, p, 1, 1; }\n"
               : D16(0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                 "r"(static_cast<int>(accumulate)));
}

template <>
__device__ __forceinline__ void wgmma_m64k32_e4m3<64>(float (&d)[32], const uint32_t (&a)[4],
                                                      uint64_t b, bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
               "%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
               "{%32,%33,%34,%35}, %36, p, 1, 1; }\n"
               : D32(0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                 "r"(static_cast<int>(accumulate)));
}

template <>
__device__ __forceinline__ void wgmma_m64k32_e4m3<72>(float (&d)[36], const uint32_t (&a)[4],
                                                      uint64_t b, bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %41, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n72k32.f32.e4m3.e4m3 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
               "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35}, "
               "{%36,%37,%38,%39}, %40, p, 1, 1; }\n"
               : D32(0), D4(32)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                 "r"(static_cast<int>(accumulate)));
}

template <>
__device__ __forceinline__ void wgmma_m64k32_e4m3<128>(float (&d)[64], const uint32_t (&a)[4],
                                                       uint64_t b, bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %69, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
               "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,"
               "%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,"
               "%63}, "
               "{%64,%65,%66,%67}, %68, p, 1, 1; }\n"
               : D64(0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                 "r"(static_cast<int>(accumulate)));
}

template <>
__device__ __forceinline__ void wgmma_m64k32_e4m3<192>(float (&d)[96], const uint32_t (&a)[4],
                                                       uint64_t b, bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %101, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n192k32.f32.e4m3.e4m3 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
               "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,"
               "%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,"
               "%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,"
               "%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95}, "
               "{%96,%97,%98,%99}, %100, p, 1, 1; }\n"
               : D64(0), D32(64)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                 "r"(static_cast<int>(accumulate)));
}

template <>
__device__ __forceinline__ void wgmma_m64k32_e4m3<256>(float (&d)[128], const uint32_t (&a)[4],
                                                       uint64_t b, bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %133, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
               "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,"
               "%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,"
               "%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,"
               "%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,"
               "%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,"
               "%119,%120,%121,%122,%123,%124,%125,%126,%127}, "
               "{%128,%129,%130,%131}, %132, p, 1, 1; }\n"
               : D64(0), D64(64)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                 "r"(static_cast<int>(accumulate)));
}

// a in shared memory, described like b.
template <int kColumns>
__device__ __forceinline__ void wgmma_m64k32_e4m3(float (&d)[kColumns / 2], uint64_t a, uint64_t b,
                                                  bool accumulate);

template <>
__device__ __forceinline__ void wgmma_m64k32_e4m3<64>(float (&d)[32], uint64_t a,
                                                      uint64_t b, bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
               "%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
               "%32, %33, p, 1, 1; }\n"
               : D32(0)
               : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

template <>
__device__ __forceinline__ void wgmma_m64k32_e4m3<128>(float (&d)[64], uint64_t a,
                                                       uint64_t b, bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
               "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,"
               "%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,"
               "%63}, "
               "%64, %65, p, 1, 1; }\n"
               : D64(0)
               : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

template <>
__device__ __forceinline__ void wgmma_m64k32_e4m3<192>(float (&d)[96], uint64_t a,
                                                       uint64_t b, bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %98, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n192k32.f32.e4m3.e4m3 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
               "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,"
               "%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,"
               "%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,"
               "%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95}, "
               "%96, %97, p, 1, 1; }\n"
               : D64(0), D32(64)
               : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

template <>
__device__ __forceinline__ void wgmma_m64k32_e4m3<256>(float (&d)[128], uint64_t a,
                                                       uint64_t b, bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %130, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
               "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,"
               "%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,"
               "%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,"
               "%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,"
               "%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,"
               "%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, "
               "%128, %129, p, 1, 1; }\n"
               : D64(0), D64(64)
               : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

#undef D4
#undef D8
#undef D16
#undef D32
#undef D64

}  // namespace ptx
