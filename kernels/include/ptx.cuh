// One inline function per PTX instruction that has no C++ name, named like the instruction.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

namespace ptx {

// The 32-bit address in the shared window, which shared-memory instructions take.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Hides the origin of a value from the compiler, at the cost of a move at most. Values derived from
// the result are computed again instead of being kept in registers.
__device__ __forceinline__ unsigned opaque(unsigned x) {
  asm volatile("mov.b32 %0, %0;\n" : "+r"(x));
  return x;
}

// Emits no instruction. The compiler takes the result as the root of address computations. Without
// it the factors of x are folded into every address.
__device__ __forceinline__ size_t opaque(size_t x) {
  asm("" : "+l"(x));
  return x;
}

// PTX ISA "cp.async": 16 bytes from global to shared memory, bypassing L1. Only the first `bytes`
// (0 or 16) are read; the rest is filled with zeros.
__device__ __forceinline__ void cp_async_cg_16(uint32_t shared, const void* global,
                                               uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n"
               :: "r"(shared), "l"(__cvta_generic_to_global(global)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void cp_async_cg_16(void* shared, const void* global, uint32_t bytes) {
  cp_async_cg_16(shared_address(shared), global, bytes);
}

// PTX ISA "cp.async.commit_group".
__device__ __forceinline__ void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// PTX ISA "cp.async.wait_group": waits until at most kPending of the youngest groups are pending.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;\n" :: "n"(kPending) : "memory");
}

// PTX ISA "ld.global.nc": 16 bytes that no thread writes while the kernel runs. It is volatile so
// that the compiler keeps the loads in program order: operands needed first are requested first.
__device__ __forceinline__ uint4 ld_global_nc_16(const void* global) {
  uint4 d;
  asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(d.x), "=r"(d.y), "=r"(d.z), "=r"(d.w)
               : "l"(__cvta_generic_to_global(global)));
  return d;
}

// PTX ISA "ld.relaxed": 16 bytes of global memory, past the L1 cache. ptxas moves ld.global.nc; it
// keeps these loads, and st_relaxed_cta_4, in program order.
__device__ __forceinline__ uint4 ld_relaxed_gpu_16(const void* global) {
  uint4 d;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(d.x), "=r"(d.y), "=r"(d.z), "=r"(d.w)
               : "l"(__cvta_generic_to_global(global)) : "memory");
  return d;
}

// PTX ISA "ld.relaxed": a counter that other blocks change.
__device__ __forceinline__ uint32_t ld_relaxed_gpu(const uint32_t* global) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];\n"
               : "=r"(value) : "l"(__cvta_generic_to_global(global)) : "memory");
  return value;
}

// PTX ISA "red.release": adds to a counter, after all earlier accesses of the thread and of those
// that a barrier has ordered before it.
__device__ __forceinline__ void red_release_gpu_add(uint32_t* global, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;\n"
               :: "l"(__cvta_generic_to_global(global)), "r"(value) : "memory");
}

// PTX ISA "atom.acq_rel": adds to a counter and returns the value before it. It orders the accesses
// of all threads that have added before those that follow.
__device__ __forceinline__ uint32_t atom_acq_rel_gpu_add(uint32_t* global, uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;\n"
               : "=r"(before) : "l"(__cvta_generic_to_global(global)), "r"(value) : "memory");
  return before;
}
__device__ __forceinline__ unsigned long long atom_acq_rel_gpu_add(unsigned long long* global,
                                                                   unsigned long long value) {
  unsigned long long before;
  asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;\n"
               : "=l"(before) : "l"(__cvta_generic_to_global(global)), "l"(value) : "memory");
  return before;
}

// PTX ISA "prefetch.global.L1".
__device__ __forceinline__ void prefetch_global_l1(const void* global) {
  asm volatile("prefetch.global.L1 [%0];\n" :: "l"(__cvta_generic_to_global(global)));
}

// PTX ISA "ld.shared": 4 bytes.
__device__ __forceinline__ uint32_t ld_shared_4(uint32_t address) {
  uint32_t d;
  asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(d) : "r"(address) : "memory");
  return d;
}

// PTX ISA "st.relaxed": 4 bytes to shared memory.
__device__ __forceinline__ void st_relaxed_cta_4(void* shared, uint32_t word) {
  asm volatile("st.relaxed.cta.shared.u32 [%0], %1;\n"
               :: "r"(shared_address(shared)), "r"(word) : "memory");
}

// PTX ISA "rcp": 1/x, within 1 ulp.
__device__ __forceinline__ float rcp_approx_ftz(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// PTX ISA "ex2": 2^x, within 2 ulp.
__device__ __forceinline__ float ex2_approx_ftz(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// PTX ISA "max.NaN": NaN if either operand is NaN.
__device__ __forceinline__ float max_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;\n" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

// PTX ISA "min.NaN": NaN if either operand is NaN.
__device__ __forceinline__ float min_nan(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;\n" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

// PTX ISA "fma.sat": a * b + c clamped to 0 .. 1; NaN becomes 0.
__device__ __forceinline__ float fma_rn_sat(float a, float b, float c) {
  float y;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;\n" : "=f"(y) : "f"(a), "f"(b), "f"(c));
  return y;
}

// PTX ISA "fma.f16x2": a * b + c on pairs of halves.
__device__ __forceinline__ uint32_t fma_rn_f16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// PTX ISA "fma.bf16x2": the same on pairs of BF16 (sm_90 and later).
__device__ __forceinline__ uint32_t fma_rn_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// PTX ISA "max.xorsign.abs": the larger magnitude of each pair, BF16 or FP16; its sign has no
// meaning. A NaN loses against a number.
template <bool kBf16>
__device__ __forceinline__ uint32_t max_magnitude_x2(uint32_t a, uint32_t b) {
  uint32_t d;
  if constexpr (kBf16) {
    asm("max.xorsign.abs.bf16x2 %0, %1, %2;\n" : "=r"(d) : "r"(a), "r"(b));
  } else {
    asm("max.xorsign.abs.f16x2 %0, %1, %2;\n" : "=r"(d) : "r"(a), "r"(b));
  }
  return d;
}

// PTX ISA "mul.bf16x2", "mul.f16x2".
template <bool kBf16>
__device__ __forceinline__ uint32_t mul_rn_x2(uint32_t a, uint32_t b) {
  uint32_t d;
  if constexpr (kBf16) {
    asm("mul.rn.bf16x2 %0, %1, %2;\n" : "=r"(d) : "r"(a), "r"(b));
  } else {
    asm("mul.rn.f16x2 %0, %1, %2;\n" : "=r"(d) : "r"(a), "r"(b));
  }
  return d;
}

// PTX ISA "mma.m16n8k16": d (16, 8) += a (16, 16) * b (16, 8), FP16 with FP32 accumulation.
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                 uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const uint4& a, uint32_t b0,
                                                 uint32_t b1) {
  const uint32_t words[4] = {a.x, a.y, a.z, a.w};
  mma_m16n8k16_f16(d, words, b0, b1);
}

// The same on BF16 or FP16; d is that of the caller's accumulators.
template <bool kBf16>
__device__ __forceinline__ void mma_m16n8k16(float* d, const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  if constexpr (kBf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    mma_m16n8k16_f16(reinterpret_cast<float(&)[4]>(*d), a, b0, b1);
  }
}

// PTX ISA "barrier.sync": waits until `threads` threads have arrived at barrier `id`.
__device__ __forceinline__ void barrier_sync(int id, int threads) {
  asm volatile("barrier.sync %0, %1;\n" :: "r"(id), "r"(threads) : "memory");
}

// PTX ISA "%clock": the low 32 bits of the multiprocessor's cycle counter.
__device__ __forceinline__ uint32_t clock() {
  uint32_t cycles;
  asm volatile("mov.u32 %0, %%clock;\n" : "=r"(cycles));
  return cycles;
}

// PTX ISA "mbarrier.init": a barrier in shared memory whose phase ends after `count` arrivals.
__device__ __forceinline__ void mbarrier_init(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;\n"
               :: "r"(shared_address(barrier)), "r"(count) : "memory");
}

// PTX ISA "mbarrier.arrive".
__device__ __forceinline__ void mbarrier_arrive(uint64_t* barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }\n"
               :: "r"(shared_address(barrier)) : "memory");
}

// PTX ISA "cp.async.mbarrier.arrive.noinc": one of the barrier's expected arrivals, made when this
// thread's earlier copies have landed.
__device__ __forceinline__ void cp_async_mbarrier_arrive_noinc(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];\n"
               :: "r"(shared_address(barrier)) : "memory");
}

// PTX ISA "mbarrier.test_wait.parity", polled until the phase of this parity has ended.
__device__ __forceinline__ void mbarrier_wait_parity(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again; }\n" :: "r"(shared_address(barrier)), "r"(parity) : "memory");
}

// PTX ISA "ldmatrix": four matrices of 8 rows of 16 bytes. Lane i gives the address of row i % 8 of
// matrix i / 8. Lane 4g+t receives word t of row g.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&d)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(row) : "memory");
}

// PTX ISA "ldmatrix.trans": four matrices of 8 rows of 16 bytes. Lane i gives the address of row
// i % 8 of matrix i / 8. Lane 4g+t receives byte pair g of rows 2t and 2t+1.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&d)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(row) : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&d)[4], const void* row) {
  ldmatrix_x4_trans(d, shared_address(row));
}

// ---- sm_89 and later ----

// PTX ISA "cvt", twice: four E4M3 codes to four halves, exactly; the lowest byte to the lowest
// half. The word is split in PTX so that the compiler addresses its upper half directly, without a
// shift.
__device__ __forceinline__ uint2 cvt_rn_f16x2_e4m3x2(uint32_t codes) {
  uint2 halves;
  asm("{ .reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high; }\n"
      : "=r"(halves.x), "=r"(halves.y) : "r"(codes));
  return halves;
}

// PTX ISA "cvt": the two codes of the low or the high half of a word. The half is named by mov,
// which costs no instruction: cvt reads either half.
__device__ __forceinline__ uint32_t cvt_rn_f16x2_e4m3x2_low(uint32_t codes) {
  uint32_t halves;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low; }\n"
      : "=r"(halves) : "r"(codes));
  return halves;
}
__device__ __forceinline__ uint32_t cvt_rn_f16x2_e4m3x2_high(uint32_t codes) {
  uint32_t halves;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high; }\n"
      : "=r"(halves) : "r"(codes));
  return halves;
}

// PTX ISA "cvt": two floats to two E4M3 codes, round to nearest even; `low` to the low byte. Beyond
// 448 and for infinities the result is 448 with the sign; for NaN it is NaN (0x7F).
__device__ __forceinline__ uint16_t cvt_rn_satfinite_e4m3x2_f32(float low, float high) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;\n" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

// The same from two halves.
__device__ __forceinline__ uint16_t cvt_rn_satfinite_e4m3x2_f16x2(uint32_t halves) {
  uint16_t d;
  asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;\n" : "=h"(d) : "r"(halves));
  return d;
}

// PTX ISA "mma.m16n8k32": d (16, 8) += a (16, 32) * b (32, 8), E4M3. The sum is FP32 in the ISA;
// the tensor cores of sm_89 keep about 13 bits of it.
__device__ __forceinline__ void mma_m16n8k32_e4m3(float (&d)[4], const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- sm_90 and later ----

// PTX ISA "stmatrix.trans": lane 4g+t holds byte pairs 2t and 2t+1 of column g, and gives the
// address of a row of 16 bytes.
__device__ __forceinline__ void stmatrix_x1_trans(void* row, uint32_t a) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};\n"
               :: "r"(shared_address(row)), "r"(a) : "memory");
}
__device__ __forceinline__ void stmatrix_x2_trans(void* row, uint32_t a, uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};\n"
               :: "r"(shared_address(row)), "r"(a), "r"(b) : "memory");
}
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t row, uint32_t a, uint32_t b, uint32_t c,
                                                  uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};\n"
               :: "r"(row), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ __forceinline__ void stmatrix_x4_trans(void* row, uint32_t a, uint32_t b, uint32_t c,
                                                  uint32_t d) {
  stmatrix_x4_trans(shared_address(row), a, b, c, d);
}

// PTX ISA "stmatrix": lane 4g+t holds word t of row g of each of four matrices, and gives the
// address of a row of 16 bytes.
__device__ __forceinline__ void stmatrix_x4(uint32_t row, uint32_t a, uint32_t b, uint32_t c,
                                            uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};\n"
               :: "r"(row), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ __forceinline__ void stmatrix_x4(void* row, uint32_t a, uint32_t b, uint32_t c,
                                            uint32_t d) {
  stmatrix_x4(shared_address(row), a, b, c, d);
}

// PTX ISA "fence.proxy.async": makes this thread's earlier writes to shared memory visible to wgmma
// and to bulk copies.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// PTX ISA "lg2": log2(x), with an absolute error of 2^-22.
__device__ __forceinline__ float lg2_approx_ftz(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// PTX ISA "griddepcontrol.launch_dependents": the next launch in the stream may start when all
// blocks have executed it. It waits for their writes by griddepcontrol.wait. Before sm_90 there is
// no such launch.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

// PTX ISA "griddepcontrol.wait": waits until the launches before this one have ended and their
// writes are visible. A launch without the attribute for it starts behind them anyway.
__device__ __forceinline__ void griddepcontrol_wait() {
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
}

}  // namespace ptx
