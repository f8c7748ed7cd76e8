// One inline function per PTX instruction that has no C++ name, named like the instruction.
#pragma once

#include <cstdint>

// A tensor map that the host encoded: the driver's CUtensorMap.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

namespace ptx {

// The 32-bit address in the shared window, which shared-memory instructions take.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// x, of which ptxas does not know how it was computed.
__device__ __forceinline__ uint32_t opaque(uint32_t x) {
  asm volatile("mov.b32 %0, %0;\n" : "+r"(x));
  return x;
}

// PTX ISA "ex2": 2^x, within 2 ulp.
__device__ __forceinline__ float ex2_approx_ftz(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// PTX ISA "lg2": log2(x), with an absolute error of 2^-22.
__device__ __forceinline__ float lg2_approx_ftz(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// PTX ISA "cvt": two E4M3 codes to two FP16 numbers, exactly: those of the low or the high half of
// a word. The half is named by mov, which costs no instruction: cvt reads either half.
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

// PTX ISA "mma.m16n8k16": d (16, 8) += a (16, 16) * b (16, 8), FP16 with FP32 results.
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const uint4& a, uint32_t b0,
                                                 uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// PTX ISA "ldmatrix": four matrices of 8 rows of 16 bytes. Lane i gives the address of row i % 8 of
// matrix i / 8. Lane 4g+t receives word t of row g.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&d)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(row) : "memory");
}

// PTX ISA "ld.shared": 4 bytes.
__device__ __forceinline__ uint32_t ld_shared_4(uint32_t address) {
  uint32_t d;
  asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(d) : "r"(address) : "memory");
  return d;
}

// PTX ISA "atom.acq_rel.gpu.add": the value before. It orders what the block has written before a
// barrier with what the block reads behind the next one.
__device__ __forceinline__ unsigned atom_acq_rel_gpu_add(unsigned* global, unsigned x) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;\n"
               : "=r"(before) : "l"(__cvta_generic_to_global(global)), "r"(x) : "memory");
  return before;
}

// PTX ISA "barrier.sync": waits until `threads` threads have arrived at barrier `id`.
__device__ __forceinline__ void barrier_sync(int id, int threads) {
  asm volatile("barrier.sync %0, %1;\n" :: "r"(id), "r"(threads) : "memory");
}

// PTX ISA "mbarrier.init": a barrier in shared memory whose phase ends after `count` arrivals.
__device__ __forceinline__ void mbarrier_init(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;\n"
               :: "r"(shared_address(barrier)), "r"(count) : "memory");
}

// PTX ISA "fence.mbarrier_init": makes initialised barriers visible to TMA.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

// PTX ISA "mbarrier.arrive".
__device__ __forceinline__ void mbarrier_arrive(uint64_t* barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }\n"
               :: "r"(shared_address(barrier)) : "memory");
}

// PTX ISA "mbarrier.arrive.expect_tx": one arrival, and `bytes` more that must land before the
// phase ends.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n"
               :: "r"(shared_address(barrier)), "r"(bytes) : "memory");
}

// PTX ISA "mbarrier.try_wait.parity", repeated until the phase of this parity has ended. The warp
// may sleep while it waits.
__device__ __forceinline__ void mbarrier_try_wait_parity(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again; }\n" :: "r"(shared_address(barrier)), "r"(parity) : "memory");
}

// PTX ISA "prefetch.global.L1".
__device__ __forceinline__ void prefetch_global_l1(const void* global) {
  asm volatile("prefetch.global.L1 [%0];\n" :: "l"(__cvta_generic_to_global(global)));
}

// PTX ISA "prefetch.tensormap".
__device__ __forceinline__ void prefetch_tensormap(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];\n" :: "l"(map) : "memory");
}

// PTX ISA "cp.async.bulk.tensor": the box at (x, y, z, w) of a four-dimensional tensor to shared
// memory, zeros where it is out of bounds. The barrier counts the bytes. One thread issues it.
__device__ __forceinline__ void cp_async_bulk_tensor_4d(void* shared, const TensorMap* map, int x,
                                                        int y, int z, int w, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];\n"
      :: "r"(shared_address(shared)), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w),
         "r"(shared_address(barrier))
      : "memory");
}

}  // namespace ptx
