// PTX ISA "wgmma": asynchronous matrix products of a warpgroup, E4M3 operands and FP32 results. The
// tensor cores keep 13 bits of the sum between instructions.
//
// A product runs while its warps execute other instructions. Between wgmma_fence and
// wgmma_wait_group no instruction may touch its registers; fence_registers keeps the compiler from
// moving an access there.
#pragma once

#include <cstdint>

#include "ptx.cuh"
#include "wgmma_m64k32.cuh"

// Byte offset of 16-byte chunk `chunk` of a row, in a tile with rows of kBytes (64 or 128) and the
// swizzle that TMA and wgmma define for that width. Eight rows of one chunk column lie in eight
// different groups of banks.
template <int kBytes>
__device__ __forceinline__ int swizzled_offset(int row, int chunk) {
  static_assert(kBytes == 64 || kBytes == 128);
  return row * kBytes + 16 * (chunk ^ (kBytes == 64 ? row / 2 % 4 : row % 8));
}

namespace ptx {

// PTX ISA "wgmma.fence": orders earlier register accesses before the products that follow.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

// PTX ISA "wgmma.commit_group".
__device__ __forceinline__ void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

// PTX ISA "wgmma.wait_group": waits until at most kPending of the youngest groups are pending.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" :: "n"(kPending) : "memory");
}

// Emits no instruction. The compiler must hold these values in their registers at this point, and
// read them again afterwards (CUTLASS: warpgroup_fence_operand).
template <int kCount>
__device__ __forceinline__ void fence_registers(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i]) :: "memory");
}

template <int kCount>
__device__ __forceinline__ void fence_registers(uint32_t (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(registers[i]) :: "memory");
}

// Emits no instruction. Tells the compiler that the old values are dead. The asm of a product names
// its result as input and output, so without this a product that does not accumulate would keep
// them alive.
template <int kCount>
__device__ __forceinline__ void discard_registers(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "=f"(registers[i]) :: "memory");
}

// The address of an operand in shared memory as descriptors hold it, in units of 16 bytes. The
// address of a later column or row block is one addition away.
__device__ __forceinline__ uint32_t descriptor_address(const void* operand) {
  return shared_address(operand) / 16;
}

// Descriptor of an operand with 32 bytes per row along the summed dimension, in core matrices of 8
// rows by 16 bytes without swizzle. `leading` is the distance in bytes between core matrices along
// the row, `stride` that between groups of eight rows.
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address, uint32_t leading,
                                                     uint32_t stride) {
  return static_cast<uint64_t>(stride / 16) << 32 | address + (leading / 16 << 16);
}

// Descriptor of an operand with contiguous rows of kBytes (64 or 128) in the swizzle of TMA.
// `address` may be 32, 64 or 96 bytes into the first row.
template <int kBytes>
__device__ __forceinline__ uint64_t wgmma_descriptor_swizzled(uint32_t address) {
  static_assert(kBytes == 64 || kBytes == 128);
  return wgmma_descriptor(address, 16, 8 * kBytes) | (kBytes == 128 ? 1ull : 2ull) << 62;
}

}  // namespace ptx
